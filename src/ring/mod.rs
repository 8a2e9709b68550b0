//! The ring layer.
