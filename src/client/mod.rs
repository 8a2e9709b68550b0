//! The client layer.
