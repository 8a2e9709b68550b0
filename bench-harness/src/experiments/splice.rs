//! Splice to slow readers.

mod probe;

use super::Failure;
pub use probe::set_nonblocking;

/// What to measure.
#[derive(clap::Args)]
pub struct Options {
    /// Only ask the kernel how `O_NONBLOCK`, receives and splices of one socket get on.
    #[arg(long)]
    probe: bool,
}

/// Runs the experiment and prints its tables.
pub fn run(options: &Options) -> Result<(), Failure> {
    if options.probe {
        return probe::run();
    }
    Ok(())
}
