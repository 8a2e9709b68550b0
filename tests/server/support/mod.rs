//! What the tests of the real binary share: a server process, raw connections, batches, file
//! systems that misbehave. Everything waits for a condition, with a limit; nothing sleeps for luck.

pub mod batch;
pub mod client;
pub mod mount;
pub mod process;
pub mod wait;

/// The engines, as `--engine` takes them.
pub const ENGINES: [&str; 2] = ["uring", "plain-file"];
