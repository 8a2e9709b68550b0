//! The shard layer.
