//! An answer as a list of parts: bytes that are written here, and holes that the caller fills from
//! files while they travel.
//!
//! ```text
//! throttle i32 | error i16, session id i32 (7+) | topics { name (4-12) or id (13+) | partitions {
//!     index i32 | error i16 | high watermark i64 | last stable i64 | log start i64 (5+)
//!     | aborted { producer id i64 | first offset i64 | [tags] } | preferred replica i32 (11+)
//!     | records length | records
//!     | [tags, 0: diverging epoch, 1: current leader (12+)] } | [tags] }
//! | [tags, 0: node endpoints (16+)]
//! ```
//!
//! The frame's size and every length of records stand before the records, so all lengths are fixed
//! before the first byte leaves. Whoever can't deliver a slice after that has to close the
//! connection. Everything written here lies in one buffer; the parts are slices of it.

use bytes::{Bytes, BytesMut};
use smallvec::SmallVec;

use super::super::error::{ErrorCode, WireError};
use super::super::topics::{CurrentLeader, NodeEndpoint, TopicGroup, TopicKey};
use super::super::versions::{self, api};
use super::super::write::Writer;
use super::{LOG_START_FROM, NODES_FROM, PREFERRED_REPLICA_FROM, SESSION_FROM};
use crate::units::{ByteCount, LeaderEpoch, byte_count};

/// First version with tagged fields.
const TAGS_FROM: i16 = 12;

/// An answer to be encoded. Partitions stand in the order of the topics.
#[derive(Clone, Copy, Debug)]
pub struct FetchAnswer<'a> {
    /// Version of the request.
    pub version: i16,
    /// Correlation id of the request.
    pub correlation_id: i32,
    /// How long the client should hold back, in milliseconds.
    pub throttle_ms: i32,
    /// An error of the whole request, from version 7 on.
    pub error: ErrorCode,
    /// The fetch session; 0 for none.
    pub session_id: i32,
    /// The topics, and how many of `partitions` each has.
    pub topics: &'a [TopicGroup],
    /// The partitions of all topics.
    pub partitions: &'a [PartitionAnswer],
    /// Where the leaders are that partitions name, from version 16 on.
    pub nodes: &'a [NodeEndpoint],
}

/// What is read from one partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartitionAnswer {
    /// The partition's number, as sent.
    pub index: i32,
    /// [`ErrorCode::None`], with or without records.
    pub error: ErrorCode,
    /// The high watermark; -1 on an error.
    pub high_watermark: i64,
    /// The last stable offset; -1 on an error.
    pub last_stable: i64,
    /// The log start offset; -1 on an error.
    pub log_start: i64,
    /// Aborted transactions among the records; `None` (null) unless the client reads committed.
    pub aborted: Option<Vec<AbortedTransaction>>,
    /// A follower that the client should ask instead; -1 for none.
    pub preferred_replica: i32,
    /// Where the client's log departs from ours.
    pub diverging: Option<EpochEnd>,
    /// The leader, with errors 6 and 74.
    pub leader: Option<CurrentLeader>,
    /// The batches. Never null: librdkafka complains of a null message set.
    pub records: Records,
}

/// A transaction that was aborted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AbortedTransaction {
    /// Its producer.
    pub producer_id: i64,
    /// Its first offset.
    pub first_offset: i64,
}

/// The last offset of an epoch, plus one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EpochEnd {
    /// The epoch.
    pub epoch: LeaderEpoch,
    /// Its end offset.
    pub end_offset: i64,
}

/// Where a partition's batches are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Records {
    /// There are none.
    Empty,
    /// In memory.
    Bytes(Bytes),
    /// So many bytes that the caller puts there: a hole in the frame.
    Slice(ByteCount),
}

impl Records {
    /// How many bytes.
    pub fn length(&self) -> ByteCount {
        match self {
            Records::Empty => ByteCount(0),
            Records::Bytes(bytes) => byte_count(bytes.len()),
            Records::Slice(length) => *length,
        }
    }
}

/// A piece of a frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Part {
    /// Bytes to be sent.
    Bytes(Bytes),
    /// Bytes of a file.
    Slice(SlicePart),
}

/// A hole in a frame, never empty.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlicePart {
    /// Place in [`FetchAnswer::partitions`] of the partition whose records go here.
    pub owner: usize,
    /// Exactly so many bytes.
    pub length: ByteCount,
}

/// A whole frame, size prefix included.
pub type Parts = SmallVec<[Part; 4]>;

impl PartitionAnswer {
    /// An answer without records.
    pub fn refused(index: i32, error: ErrorCode) -> PartitionAnswer {
        PartitionAnswer {
            index,
            error,
            high_watermark: -1,
            last_stable: -1,
            log_start: -1,
            aborted: None,
            preferred_replica: -1,
            diverging: None,
            leader: None,
            records: Records::Empty,
        }
    }

    fn encode_head(&self, writer: &mut Writer, version: i16) -> Result<(), WireError> {
        writer.i32(self.index);
        writer.i16(self.error.to_wire());
        writer.i64(self.high_watermark);
        writer.i64(self.last_stable);
        if version >= LOG_START_FROM {
            writer.i64(self.log_start);
        }
        writer.array(self.aborted.as_ref().map(Vec::len));
        for transaction in self.aborted.iter().flatten() {
            writer.i64(transaction.producer_id);
            writer.i64(transaction.first_offset);
            writer.no_tags();
        }
        if version >= PREFERRED_REPLICA_FROM {
            writer.i32(self.preferred_replica);
        }
        writer.records_length(self.records.length())
    }

    fn encode_tags(&self, writer: &mut Writer, version: i16) {
        if version < TAGS_FROM {
            return;
        }
        let count = u64::from(self.diverging.is_some()) + u64::from(self.leader.is_some());
        writer.uvarint(count);
        if let Some(end) = self.diverging {
            writer.tag(0, size_of::<i32>() + size_of::<i64>() + 1);
            writer.i32(end.epoch.0);
            writer.i64(end.end_offset);
            writer.no_tags();
        }
        if let Some(leader) = self.leader {
            writer.current_leader(1, leader);
        }
    }

    /// Bytes that suffice for it in any version, records apart.
    fn bytes_max(&self) -> usize {
        const FIXED: usize = 88;
        const ABORTED: usize = 17;
        FIXED + self.aborted.as_ref().map_or(0, |list| ABORTED * list.len())
    }
}

impl FetchAnswer<'_> {
    /// Fixes all lengths and writes everything but the records.
    ///
    /// # Errors
    /// [`WireError::AnswerTooLarge`], [`WireError::Unsupported`].
    ///
    /// # Panics
    /// When the topics' counts don't add up to the number of partitions.
    pub fn encode(&self) -> Result<Parts, WireError> {
        let range = versions::check(api::FETCH, self.version)?;
        let flexible = range.is_flexible(self.version);
        let mut writer = Writer::answer(self.correlation_id, flexible, self.bytes_max());
        let mut cuts = Cuts::new();
        writer.i32(self.throttle_ms);
        if self.version >= SESSION_FROM {
            writer.i16(self.error.to_wire());
            writer.i32(self.session_id);
        }
        writer.array(Some(self.topics.len()));
        let mut next = 0;
        for topic in self.topics {
            writer.topic_key(&topic.key);
            writer.array(Some(topic.partitions));
            for owner in next..next + topic.partitions {
                self.encode_partition(&mut writer, owner, &mut cuts)?;
            }
            next += topic.partitions;
            writer.no_tags();
        }
        assert_eq!(next, self.partitions.len(), "every partition belongs to a topic");
        writer.node_endpoints(if self.version >= NODES_FROM { self.nodes } else { &[] });
        let records = self.partitions.iter().map(|partition| partition.records.length().0).sum();
        Ok(self.join(writer.finish(ByteCount(records))?, &cuts))
    }

    fn encode_partition(
        &self,
        writer: &mut Writer,
        owner: usize,
        cuts: &mut Cuts,
    ) -> Result<(), WireError> {
        let partition = &self.partitions[owner];
        partition.encode_head(writer, self.version)?;
        if partition.records.length().0 > 0 {
            cuts.push((writer.len(), owner));
        }
        partition.encode_tags(writer, self.version);
        Ok(())
    }

    /// Cuts what was written where records go, and puts them there.
    fn join(&self, mut written: BytesMut, cuts: &Cuts) -> Parts {
        let mut parts = Parts::new();
        let mut done = 0;
        for &(at, owner) in cuts {
            parts.push(Part::Bytes(written.split_to(at - done).freeze()));
            done = at;
            parts.push(match &self.partitions[owner].records {
                Records::Bytes(bytes) => Part::Bytes(bytes.clone()),
                other => Part::Slice(SlicePart { owner, length: other.length() }),
            });
        }
        if !written.is_empty() {
            parts.push(Part::Bytes(written.freeze()));
        }
        parts
    }

    fn bytes_max(&self) -> usize {
        const FRAME: usize = 40;
        const TOPIC: usize = 32;
        const NODE: usize = 16;
        let topic = |topic: &TopicGroup| match &topic.key {
            TopicKey::Name(name) => TOPIC + name.len(),
            TopicKey::Id(_) => TOPIC,
        };
        FRAME
            + self.topics.iter().map(topic).sum::<usize>()
            + self.partitions.iter().map(PartitionAnswer::bytes_max).sum::<usize>()
            + self.nodes.iter().map(|node| NODE + node.host.len()).sum::<usize>()
    }
}

/// Places in the written bytes where a partition's records go.
type Cuts = SmallVec<[(usize, usize); 4]>;

#[cfg(test)]
mod tests {
    use super::super::super::StrBytes;
    use super::*;

    fn check(version: i16, records: Records, expected: &[Part]) {
        let key = TopicKey::Name(StrBytes::from_static_str("t"));
        let topics = [TopicGroup { key, partitions: 1 }];
        let answer = PartitionAnswer::refused(3, ErrorCode::None);
        let partitions = [PartitionAnswer { high_watermark: 9, records, ..answer }];
        let answer = FetchAnswer {
            version,
            correlation_id: 1,
            throttle_ms: 0,
            error: ErrorCode::None,
            session_id: 0,
            topics: &topics,
            partitions: &partitions,
            nodes: &[],
        };
        assert_eq!(answer.encode().expect("small").as_slice(), expected);
    }

    /// Version 4 up to the records of `length` bytes.
    fn head(length: u8) -> Vec<u8> {
        let mut bytes = vec![0, 0, 0, 49 + length, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1];
        bytes.extend([0, 1, b't', 0, 0, 0, 1, 0, 0, 0, 3, 0, 0]);
        bytes.extend([0, 0, 0, 0, 0, 0, 0, 9]);
        bytes.extend([0xff; 8]);
        bytes.extend([0xff; 4]);
        bytes.extend([0, 0, 0, length]);
        bytes
    }

    fn bytes(bytes: Vec<u8>) -> Part {
        Part::Bytes(Bytes::from(bytes))
    }

    #[test]
    fn records_at_the_end_leave_no_trailer() {
        let slice = Part::Slice(SlicePart { owner: 0, length: ByteCount(100) });
        check(4, Records::Slice(ByteCount(100)), &[bytes(head(100)), slice]);
        check(4, Records::Empty, &[bytes(head(0))]);
        check(4, Records::Slice(ByteCount(0)), &[bytes(head(0))]);
        let three = Bytes::from_static(b"abc");
        check(4, Records::Bytes(three.clone()), &[bytes(head(3)), Part::Bytes(three)]);
    }

    #[test]
    fn an_answer_beyond_a_frame_is_an_error() {
        for length in [(1 << 31) - 1, 1 << 31, 1 << 40] {
            let key = TopicKey::Name(StrBytes::from_static_str("t"));
            let records = Records::Slice(ByteCount(length));
            let refused = PartitionAnswer::refused(3, ErrorCode::None);
            let answer = FetchAnswer {
                version: 12,
                correlation_id: 1,
                throttle_ms: 0,
                error: ErrorCode::None,
                session_id: 0,
                topics: &[TopicGroup { key, partitions: 1 }],
                partitions: &[PartitionAnswer { records, ..refused }],
                nodes: &[],
            };
            assert!(matches!(answer.encode(), Err(WireError::AnswerTooLarge(_))), "{length}");
        }
    }
}
