//! What the tests of the real binary share: a server process, raw connections, batches, file
//! systems that misbehave. Everything waits for a condition, with a limit; nothing sleeps for luck.

pub mod batch;
pub mod client;
pub mod files;
pub mod load;
pub mod mount;
pub mod process;
pub mod wait;

use process::Launch;

/// The engines, as `--engine` takes them.
pub const ENGINES: [&str; 2] = ["uring", "plain-file"];

/// The ways to serve: both engines, and a host that refuses io_uring, where the network side is
/// another one, too.
pub fn hosts() -> [(&'static str, Launch); 3] {
    let without = Launch::without_io_uring("auto");
    [
        ("uring", Launch::new("uring")),
        ("plain-file", Launch::new("plain-file")),
        ("refused", without),
    ]
}
