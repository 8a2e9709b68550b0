//! The wire layer.
