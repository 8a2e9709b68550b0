//! The pure core: batches go in, plans come out, completions move the cursors.
//!
//! No clock, no file, no thread, no random number and no async in here: time is an argument.

pub mod config;

pub mod error;

pub mod validate;

pub mod producers;

pub mod epochs;

pub mod retention;
