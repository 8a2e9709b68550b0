//! What opening a log found and did, and why it may fail.

use std::fmt;

use crate::disk::DiskError;
use crate::format::partition_metadata::PartitionMetadataError;
use crate::units::{ByteCount, Offset, Position, TopicId};

/// Why a log can't be opened. Nothing of its records was touched in vain: opening again repeats
/// everything that wasn't finished.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OpenError {
    /// The disk failed.
    #[error("{what}: {error}")]
    Disk {
        /// The step that failed.
        what: String,
        /// What the disk said.
        error: DiskError,
    },
    /// `partition.metadata` can't be read.
    #[error("partition.metadata: {0}")]
    Metadata(PartitionMetadataError),
    /// The directory belongs to another topic of the same name.
    #[error("partition.metadata has topic id {found:?}, {expected:?} was expected")]
    TopicId {
        /// The topic that the log was opened for.
        expected: TopicId,
        /// The topic that wrote the directory.
        found: TopicId,
    },
    /// A segment is longer than 2^31 - 1 bytes, more than its index can address.
    #[error("segment {base:020} has {bytes} bytes, more than 2^31 - 1", base = .segment.0)]
    SegmentTooLong {
        /// Base offset.
        segment: Offset,
        /// Its length.
        bytes: ByteCount,
    },
    /// A segment begins with a message of format 0 or 1, which Kafka 0.10 and older wrote.
    #[error(
        "segment {base:020} begins with message format {magic}; let Kafka rewrite or delete it",
        base = .segment.0
    )]
    Legacy {
        /// Base offset.
        segment: Offset,
        /// Its magic.
        magic: i8,
    },
}

/// A torn tail that was cut off: nothing valid stood behind it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Truncated {
    /// Base offset of the segment.
    pub segment: Offset,
    /// Where it ends now.
    pub at: Position,
    /// How many bytes went.
    pub bytes: ByteCount,
}

/// Bytes that are no batch, with valid batches behind them (or that a later segment shows to be
/// incomplete). They were copied to a file of their own; no batch was dropped with them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Damage {
    /// Base offset of the segment.
    pub segment: Offset,
    /// Where they stood.
    pub at: Position,
    /// How many they are.
    pub bytes: ByteCount,
    /// The file in the partition's directory that has them now.
    pub quarantine: String,
    /// First offset that can't be read any more.
    pub lost_from: Offset,
    /// First offset behind it that can.
    pub lost_to: Offset,
    /// Whether what stood behind it was set aside, too: a write that was never synced, and so never
    /// acknowledged, left a hole in front of it.
    pub was_unsynced: bool,
}

/// Offsets missing between two segments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gap {
    /// First offset that is missing.
    pub from: Offset,
    /// First offset after it that isn't.
    pub to: Offset,
}

/// What opening a log found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Segments of the log.
    pub segments: usize,
    /// Segments whose batch headers were read.
    pub walked: usize,
    /// Batches whose headers were read.
    pub batches: u64,
    /// Batches whose headers were read for the state of producers: those behind the newest
    /// snapshot.
    pub replayed: u64,
    /// Bytes whose checksums were computed.
    pub checked: ByteCount,
    /// Torn tails.
    pub truncated: Vec<Truncated>,
    /// Damaged ranges.
    pub damages: Vec<Damage>,
    /// Offsets that no segment has; not looked for in compacted logs.
    pub gaps: Vec<Gap>,
    /// Base offsets of segments that were split off: they were too far from the base of the segment
    /// that they stood in for an index entry.
    pub split: Vec<Offset>,
    /// Base offsets of segments whose indexes were missing or wrong.
    pub indexes_rebuilt: Vec<Offset>,
    /// Names of leftovers that were removed.
    pub removed: Vec<String>,
    /// Whether the leader epochs were taken from the batches.
    pub epochs_rebuilt: bool,
    /// First offset of the log.
    pub log_start: Offset,
    /// Its log end offset.
    pub log_end: Offset,
}

impl RecoveryReport {
    /// Whether anything that was once written can't be read any more.
    pub fn is_lossy(&self) -> bool {
        !(self.truncated.is_empty() && self.damages.is_empty() && self.gaps.is_empty())
    }

    /// Whether the files were just as a clean stop leaves them.
    pub fn is_uneventful(&self) -> bool {
        let is_whole = self.indexes_rebuilt.is_empty() && self.removed.is_empty();
        !self.is_lossy() && is_whole && self.split.is_empty() && !self.epochs_rebuilt
    }
}

impl fmt::Display for RecoveryReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RecoveryReport { segments, batches, checked, log_start, log_end, .. } = self;
        write!(f, "offsets {log_start} to {log_end} in {segments} segments; ")?;
        write!(f, "{batches} batch headers read, {checked} bytes checked")?;
        for Truncated { segment, at, bytes } in &self.truncated {
            write!(f, "; segment {segment}: torn tail of {bytes} bytes at {at} cut off")?;
        }
        for damage in &self.damages {
            let Damage { segment, at, bytes, quarantine, lost_from, lost_to, .. } = damage;
            write!(f, "; segment {segment}: {bytes} damaged bytes at {at} kept in {quarantine}, ")?;
            write!(f, "offsets {lost_from} to before {lost_to} are lost")?;
        }
        for Gap { from, to } in &self.gaps {
            write!(f, "; offsets {from} to before {to} are missing")?;
        }
        for segment in &self.split {
            write!(f, "; segment {segment} split off: the one before spanned 2^31 offsets")?;
        }
        if !self.indexes_rebuilt.is_empty() {
            write!(f, "; indexes of {} segments rebuilt", self.indexes_rebuilt.len())?;
        }
        Ok(())
    }
}
