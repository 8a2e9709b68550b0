//! Random histories of a shard's commit journal on a disk that lies, with the power cut or the
//! process killed at any step, and again during the replay.
//!
//! What must hold afterwards: every acknowledged batch is there, once, at its offset and byte for
//! byte, in segments that hold nothing else; nothing is there that was never appended, nor anything
//! that was given up; and the logs go on. Where the journal itself is damaged, the replay says what
//! may be missing.

#[path = "journal/actions.rs"]
mod actions;
#[path = "journal/check.rs"]
mod check;
#[path = "journal/directed.rs"]
mod directed;
#[path = "journal/histories.rs"]
mod histories;
#[path = "journal/known.rs"]
mod known;
#[path = "journal/random.rs"]
mod random;
#[path = "journal/same_files.rs"]
mod same_files;
#[path = "journal/start.rs"]
mod start;
#[path = "journal/turns.rs"]
mod turns;
#[path = "journal/world.rs"]
mod world;
