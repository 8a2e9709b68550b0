//! How long does it take to put a full journal in place?
//!
//! A journal is filled until it takes no more, with nothing synced on its behalf. Then everything
//! is dropped and the logs are cut to nothing, as if no byte of theirs had reached the device.
