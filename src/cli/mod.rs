//! The command line: each command is a function over plain options.

pub mod command;

pub mod record_format;

pub mod topic;

pub mod produce;

mod producer_window;

pub mod consume;

mod follower;
