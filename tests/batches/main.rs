//! Batches of clients, good, bad and hostile, through decoding and validation.

mod golden;
mod hostile;
mod make;
mod rules;
