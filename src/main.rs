//! The command line of uringlog.

fn main() {}
