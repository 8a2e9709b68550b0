//! Batches of clients, good, bad and hostile, through decoding and validation.

mod make;
mod rules;
