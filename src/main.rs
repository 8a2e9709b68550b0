//! The command line of uringlog.

use std::process::ExitCode;

fn main() -> ExitCode {
    uringlog::cli::main()
}
