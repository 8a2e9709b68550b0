//! The commands against a server of their own, as a user runs them.
//!
//! What needs groups is checked by `tests/clients/command_line.py`, against a stock Kafka too.

mod consuming;

mod errors;

mod manual;

mod producing;

mod serving;

mod topics;
