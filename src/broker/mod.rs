//! The broker layer.
