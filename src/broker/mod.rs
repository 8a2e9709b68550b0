//! The broker layer.

pub mod config;
