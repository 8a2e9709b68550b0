//! Topics, partitions and the protocol's APIs on top of the shards.
//!
//! Every shard has a [`node`]: its partitions and the image that clients are shown. Shard 0 has the
//! [`controller`] besides, through which all changes go, and which keeps them in the
//! [`metadata_log`]. [`server`] starts and stops all of it.

pub mod config;

pub mod errors;

pub mod placement;

pub mod capacity;

pub mod image;

pub mod settings;

pub mod alterations;

pub mod log_levels;

pub mod quota;

pub mod sessions;

mod throttle;

mod journals;

mod ports;

pub mod recover;

pub mod checkpoints;

pub mod directory;

pub mod leftovers;

pub mod sweep;

pub mod mail;

pub mod peers;

pub mod node;

pub mod apply;

pub mod topics;

pub mod metadata_log;

pub mod controller;

pub mod coordinators;

pub mod api;

pub mod service;

pub mod chores;

pub mod server;

pub mod metrics;

pub mod http;

pub use recover::{RecoverError, Recovery, recover};
pub use server::{EngineChoice, Monitor, Server, ServerOptions, StartError, StopError};
