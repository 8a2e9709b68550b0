//! What a client asks for.
//!
//! ```text
//! replica id i32 (4-14) | max wait i32 | min bytes i32 | max bytes i32 | isolation i8
//! | session id i32, epoch i32 (7+)
//! | topics { name (4-12) or id (13+) | partitions { index i32 | leader epoch i32 (9+) | offset i64
//!       | last fetched epoch i32 (12+) | log start i64 (5+) | max bytes i32
//!       | [tags, 0: directory id (17+), 1: high watermark (18+)] } | [tags] }
//! | forgotten topics { name or id | partitions { i32 } | [tags] } (7+) | rack (11+)
//! | [tags, 0: cluster id (12+), 1: replica state (15+)]
//! ```

use bytes::BytesMut;
use smallvec::SmallVec;

use super::super::StrBytes;
use super::super::error::WireError;
use super::super::read::Reader;
use super::super::topics::{TopicGroup, TopicGroups, TopicKey, check_count};
use super::super::versions::{self, api};
use super::{
    CURRENT_EPOCH_FROM, LAST_EPOCH_FROM, LOG_START_FROM, RACK_FROM, REPLICA_STATE_FROM,
    SESSION_FROM, TOPIC_ID_FROM,
};
use crate::units::{BrokerId, LeaderEpoch};

/// Fewest bytes of a topic: length of a name, number of partitions, tagged fields.
const TOPIC_BYTES_MIN: usize = 3;
/// Bytes of a partition in version 4, the smallest: index, offset, max bytes.
const PARTITION_BYTES_MIN: usize = 16;

/// A Fetch request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FetchRequest {
    /// The follower that asks; -1 for a consumer.
    pub replica: BrokerId,
    /// The follower's epoch; -1 for a consumer.
    pub replica_epoch: i64,
    /// How long to wait for `bytes_min`, in milliseconds.
    pub wait_max_ms: i32,
    /// Answer as soon as there are so many bytes.
    pub bytes_min: i32,
    /// Bound of the whole answer, but for a first batch that is larger.
    pub bytes_max: i32,
    /// 1: only what committed transactions wrote.
    pub isolation_level: i8,
    /// The fetch session; 0 for none.
    pub session_id: i32,
    /// Its epoch: 0 starts a session, -1 wants none.
    pub session_epoch: i32,
    /// The topics, and how many of `partitions` each has.
    pub topics: TopicGroups,
    /// The partitions of all topics, in the request's order.
    pub partitions: SmallVec<[FetchPartition; 2]>,
    /// What leaves the session.
    pub forgotten: Vec<ForgottenTopic>,
    /// The client's rack; empty when it has none.
    pub rack: StrBytes,
    /// The cluster that a follower believes to ask.
    pub cluster_id: Option<StrBytes>,
}

/// One partition to read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FetchPartition {
    /// The partition's number; it may be negative or unknown.
    pub index: i32,
    /// The leader epoch that the client knows; -1 when it doesn't.
    pub leader_epoch: LeaderEpoch,
    /// Where to read from; it may be negative.
    pub offset: i64,
    /// Epoch of the last record that the client has; -1 when it doesn't know.
    pub last_fetched_epoch: LeaderEpoch,
    /// A follower's log start offset; -1 for a consumer.
    pub log_start: i64,
    /// Bound of this partition's bytes.
    pub bytes_max: i32,
}

/// Partitions that leave a fetch session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ForgottenTopic {
    /// The topic.
    pub key: TopicKey,
    /// Its partitions.
    pub partitions: Vec<i32>,
}

impl FetchRequest {
    /// Reads the body of a request; see [`super::super::frame::split`].
    ///
    /// # Errors
    /// [`WireError`]: unsupported version, or a length that doesn't fit.
    pub fn decode(body: BytesMut, version: i16) -> Result<FetchRequest, WireError> {
        let range = versions::check(api::FETCH, version)?;
        let mut reader = Reader::new(body, range.is_flexible(version));
        let mut request = FetchRequest::decode_settings(&mut reader, version)?;
        for _ in 0..reader.array(TOPIC_BYTES_MIN, "topics")? {
            request.decode_topic(&mut reader, version)?;
        }
        if version >= SESSION_FROM {
            for _ in 0..reader.array(TOPIC_BYTES_MIN, "forgotten topics")? {
                request.decode_forgotten(&mut reader, version)?;
            }
        }
        if version >= RACK_FROM {
            request.rack = reader.text("rack id")?;
        }
        request.decode_tags(&mut reader, version)?;
        Ok(request)
    }

    fn decode_settings(
        reader: &mut Reader<BytesMut>,
        version: i16,
    ) -> Result<FetchRequest, WireError> {
        let has_replica = version < REPLICA_STATE_FROM;
        let has_session = version >= SESSION_FROM;
        Ok(FetchRequest {
            replica: BrokerId(if has_replica { reader.i32("replica id")? } else { -1 }),
            replica_epoch: -1,
            wait_max_ms: reader.i32("max wait")?,
            bytes_min: reader.i32("min bytes")?,
            bytes_max: reader.i32("max bytes")?,
            isolation_level: reader.i8("isolation level")?,
            session_id: if has_session { reader.i32("session id")? } else { 0 },
            session_epoch: if has_session { reader.i32("session epoch")? } else { -1 },
            topics: SmallVec::new(),
            partitions: SmallVec::new(),
            forgotten: Vec::new(),
            rack: StrBytes::new(),
            cluster_id: None,
        })
    }

    fn decode_topic(
        &mut self,
        reader: &mut Reader<BytesMut>,
        version: i16,
    ) -> Result<(), WireError> {
        let key = reader.topic_key(version >= TOPIC_ID_FROM)?;
        let partitions = reader.array(PARTITION_BYTES_MIN, "partitions")?;
        self.topics.push(TopicGroup { key, partitions });
        check_count(self.topics.len() + self.partitions.len() + partitions)?;
        for _ in 0..partitions {
            self.partitions.push(FetchPartition::decode(reader, version)?);
        }
        reader.skip_tags("topic tags")
    }

    fn decode_forgotten(
        &mut self,
        reader: &mut Reader<BytesMut>,
        version: i16,
    ) -> Result<(), WireError> {
        let key = reader.topic_key(version >= TOPIC_ID_FROM)?;
        let count = reader.array(size_of::<i32>(), "forgotten partitions")?;
        check_count(self.forgotten.len() + count)?;
        let mut partitions = Vec::with_capacity(count);
        for _ in 0..count {
            partitions.push(reader.i32("forgotten partition")?);
        }
        self.forgotten.push(ForgottenTopic { key, partitions });
        reader.skip_tags("forgotten topic tags")
    }

    fn decode_tags(
        &mut self,
        reader: &mut Reader<BytesMut>,
        version: i16,
    ) -> Result<(), WireError> {
        for _ in 0..reader.tags("body tags")? {
            let (number, size) = reader.tag("body tag")?;
            let end = reader.left() - size;
            match number {
                0 => self.cluster_id = reader.nullable_text("cluster id")?,
                1 if version >= REPLICA_STATE_FROM => {
                    self.replica = BrokerId(reader.i32("replica id")?);
                    self.replica_epoch = reader.i64("replica epoch")?;
                    reader.skip_tags("replica state tags")?;
                }
                _ => reader.skip(size, "body tag")?,
            }
            check_tag_end(reader, end, size)?;
        }
        Ok(())
    }
}

/// Fails when a tagged field was read that is longer or shorter than its size says.
fn check_tag_end(reader: &Reader<BytesMut>, end: usize, size: usize) -> Result<(), WireError> {
    if reader.left() == end {
        return Ok(());
    }
    let length = i64::try_from(size).expect("no frame is that long");
    Err(WireError::Length { what: "body tag", length })
}

impl FetchPartition {
    fn decode(reader: &mut Reader<BytesMut>, version: i16) -> Result<FetchPartition, WireError> {
        let index = reader.i32("partition index")?;
        let has_epoch = version >= CURRENT_EPOCH_FROM;
        let leader_epoch = if has_epoch { reader.i32("leader epoch")? } else { -1 };
        let offset = reader.i64("fetch offset")?;
        let has_last = version >= LAST_EPOCH_FROM;
        let last_fetched_epoch = if has_last { reader.i32("last fetched epoch")? } else { -1 };
        let has_start = version >= LOG_START_FROM;
        let log_start = if has_start { reader.i64("log start offset")? } else { -1 };
        let bytes_max = reader.i32("partition max bytes")?;
        // Directory id and high watermark are a follower's; nothing here reads them.
        reader.skip_tags("partition tags")?;
        Ok(FetchPartition {
            index,
            leader_epoch: LeaderEpoch(leader_epoch),
            offset,
            last_fetched_epoch: LeaderEpoch(last_fetched_epoch),
            log_start,
            bytes_max,
        })
    }
}
