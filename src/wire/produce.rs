//! Produce: requests in versions 3 to 13 and their answers.
//!
//! ```text
//! request: transactional id | acks i16 | timeout i32 | topics {
//!              name (3-12) or id (13)
//!              | partitions { index i32 | records length | batch | [tags] } | [tags] }
//!          | [tags]
//! answer:  topics { name or id | partitions { index i32 | error i16 | base offset i64
//!              | log append time i64 | log start i64 (5+)
//!              | record errors { batch index i32 | message } (8+) | message (8+)
//!              | [tags, 0: current leader (10+)] } | [tags] }
//!          | throttle i32 | [tags, 0: node endpoints (10+)]
//! ```
//!
//! Tags and compact lengths from version 9 on.

use bytes::BytesMut;
use smallvec::SmallVec;

use super::StrBytes;
use super::error::{ErrorCode, WireError};
use super::read::Reader;
use super::topics::{CurrentLeader, NodeEndpoint, TopicGroup, TopicGroups, TopicKey, check_count};
use super::versions::{self, api};
use super::write::Writer;
use crate::units::ByteCount;

const TOPIC_ID_FROM: i16 = 13;
const LOG_START_FROM: i16 = 5;
const RECORD_ERRORS_FROM: i16 = 8;
const CURRENT_LEADER_FROM: i16 = 10;

/// Fewest bytes of a topic: length of a name, number of partitions, tagged fields.
const TOPIC_BYTES_MIN: usize = 3;
/// Fewest bytes of a partition: index, length of records, tagged fields.
const PARTITION_BYTES_MIN: usize = 6;

/// A Produce request. Its batches are slices of the frame that it arrived in.
#[derive(Debug)]
pub struct ProduceFrame {
    /// The transactional producer's id.
    pub transactional_id: Option<StrBytes>,
    /// -1, 0 or 1; anything else is error 21.
    pub acks: i16,
    /// How long the client waits for the acks, in milliseconds.
    pub timeout_ms: i32,
    /// The topics, and how many of `partitions` each has.
    pub topics: TopicGroups,
    /// The partitions of all topics, in the request's order.
    pub partitions: SmallVec<[ProducePartition; 2]>,
}

/// One partition's batch.
#[derive(Debug)]
pub struct ProducePartition {
    /// The partition's number; it may be negative or unknown.
    pub index: i32,
    /// What the client wants appended: should be exactly one batch. Empty when it sent null.
    pub batch: BytesMut,
}

impl ProduceFrame {
    /// Takes apart the body of a request; see [`super::frame::split`].
    ///
    /// # Errors
    /// [`WireError`]: unsupported version, or a length that doesn't fit. The batches' content is
    /// not looked at.
    pub fn walk(body: BytesMut, version: i16) -> Result<ProduceFrame, WireError> {
        let range = versions::check(api::PRODUCE, version)?;
        let mut reader = Reader::new(body, range.is_flexible(version));
        let mut frame = ProduceFrame {
            transactional_id: reader.nullable_text("transactional id")?,
            acks: reader.i16("acks")?,
            timeout_ms: reader.i32("timeout")?,
            topics: SmallVec::new(),
            partitions: SmallVec::new(),
        };
        for _ in 0..reader.array(TOPIC_BYTES_MIN, "topics")? {
            frame.walk_topic(&mut reader, version >= TOPIC_ID_FROM)?;
        }
        reader.skip_tags("body tags")?;
        Ok(frame)
    }

    fn walk_topic(&mut self, reader: &mut Reader<BytesMut>, by_id: bool) -> Result<(), WireError> {
        let key = reader.topic_key(by_id)?;
        let partitions = reader.array(PARTITION_BYTES_MIN, "partitions")?;
        self.topics.push(TopicGroup { key, partitions });
        check_count(self.topics.len() + self.partitions.len() + partitions)?;
        for _ in 0..partitions {
            let index = reader.i32("partition index")?;
            let batch = reader.records("records")?;
            reader.skip_tags("partition tags")?;
            self.partitions.push(ProducePartition { index, batch });
        }
        reader.skip_tags("topic tags")
    }
}

/// An answer to be encoded. Partitions stand in the order of the topics, as in the request.
#[derive(Clone, Copy, Debug)]
pub struct ProduceAnswer<'a> {
    /// Version of the request.
    pub version: i16,
    /// Correlation id of the request.
    pub correlation_id: i32,
    /// The request's topics.
    pub topics: &'a [TopicGroup],
    /// One for each of the request's partitions.
    pub partitions: &'a [PartitionAnswer],
    /// Where the leaders are that partitions name, from version 10 on.
    pub nodes: &'a [NodeEndpoint],
    /// How long the client should hold back, in milliseconds.
    pub throttle_ms: i32,
}

/// What became of one partition's batch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartitionAnswer {
    /// The partition's number, as sent.
    pub index: i32,
    /// [`ErrorCode::None`] when it was appended.
    pub error: ErrorCode,
    /// Offset of the batch's first record, -1 on an error.
    pub base_offset: i64,
    /// The time that a log with LogAppendTime gave it, else -1.
    pub log_append_time: i64,
    /// The log start offset, -1 when not known.
    pub log_start: i64,
    /// Records because of which the batch was refused.
    pub record_errors: Vec<RecordError>,
    /// Why the batch was refused.
    pub message: Option<String>,
    /// The leader, with errors 6 and 74.
    pub leader: Option<CurrentLeader>,
}

/// One record because of which a batch was refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordError {
    /// The record's place in the batch.
    pub batch_index: i32,
    /// What is wrong with it.
    pub message: Option<String>,
}

impl PartitionAnswer {
    /// An answer for a batch that wasn't appended.
    pub fn refused(index: i32, error: ErrorCode) -> PartitionAnswer {
        PartitionAnswer {
            index,
            error,
            base_offset: -1,
            log_append_time: -1,
            log_start: -1,
            record_errors: Vec::new(),
            message: None,
            leader: None,
        }
    }

    /// Bytes that suffice for it in any version.
    fn bytes_max(&self) -> usize {
        const FIXED: usize = 64;
        const MESSAGE: usize = 8;
        let text = |text: &Option<String>| MESSAGE + text.as_ref().map_or(0, String::len);
        let errors = self.record_errors.iter().map(|error| text(&error.message)).sum::<usize>();
        FIXED + errors + text(&self.message)
    }
}

impl ProduceAnswer<'_> {
    /// The whole frame, size prefix included, in one buffer allocated once.
    ///
    /// # Errors
    /// [`WireError::AnswerTooLarge`], [`WireError::Unsupported`].
    ///
    /// # Panics
    /// When the topics' counts don't add up to the number of partitions.
    pub fn encode(&self) -> Result<BytesMut, WireError> {
        let range = versions::check(api::PRODUCE, self.version)?;
        let flexible = range.is_flexible(self.version);
        let mut writer = Writer::answer(self.correlation_id, flexible, self.bytes_max());
        writer.array(Some(self.topics.len()));
        let mut rest = self.partitions;
        for topic in self.topics {
            let (own, others) = rest.split_at(topic.partitions);
            rest = others;
            writer.topic_key(&topic.key);
            writer.array(Some(own.len()));
            for partition in own {
                self.encode_partition(&mut writer, partition);
            }
            writer.no_tags();
        }
        assert!(rest.is_empty(), "every partition belongs to a topic");
        writer.i32(self.throttle_ms);
        let nodes = if self.version >= CURRENT_LEADER_FROM { self.nodes } else { &[] };
        writer.node_endpoints(nodes);
        writer.finish(ByteCount(0))
    }

    fn encode_partition(&self, writer: &mut Writer, answer: &PartitionAnswer) {
        writer.i32(answer.index);
        writer.i16(answer.error.to_wire());
        writer.i64(answer.base_offset);
        writer.i64(answer.log_append_time);
        if self.version >= LOG_START_FROM {
            writer.i64(answer.log_start);
        }
        if self.version >= RECORD_ERRORS_FROM {
            writer.array(Some(answer.record_errors.len()));
            for error in &answer.record_errors {
                writer.i32(error.batch_index);
                writer.text(error.message.as_deref());
                writer.no_tags();
            }
            writer.text(answer.message.as_deref());
        }
        match answer.leader {
            Some(leader) if self.version >= CURRENT_LEADER_FROM => {
                writer.uvarint(1);
                writer.current_leader(0, leader);
            }
            _ => writer.no_tags(),
        }
    }

    fn bytes_max(&self) -> usize {
        const FRAME: usize = 32;
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Version 3: no transactional id, acks -1, 1,000 ms, topic "t", partition 5, three bytes.
    fn request(length: [u8; 4]) -> BytesMut {
        let mut bytes = BytesMut::new();
        bytes.extend_from_slice(&[0xff, 0xff, 0xff, 0xff, 0, 0, 3, 0xe8]);
        bytes.extend_from_slice(&[0, 0, 0, 1, 0, 1, b't', 0, 0, 0, 1, 0, 0, 0, 5]);
        bytes.extend_from_slice(&length);
        bytes.extend_from_slice(b"abc");
        bytes
    }

    #[test]
    fn batches_lie_in_the_frame() {
        let body = request([0, 0, 0, 3]);
        let memory = body.as_ptr_range();
        let frame = ProduceFrame::walk(body, 3).expect("whole");
        assert_eq!((frame.acks, frame.timeout_ms), (-1, 1_000));
        assert_eq!(frame.partitions[0].index, 5);
        assert_eq!(&frame.partitions[0].batch[..], b"abc");
        assert!(memory.contains(&frame.partitions[0].batch.as_ptr()));
    }

    #[test]
    fn lengths_that_lie_are_refused_and_null_is_empty() {
        let null = ProduceFrame::walk(request([0xff; 4]), 3).expect("three bytes are left over");
        assert!(null.partitions[0].batch.is_empty());
        let long = ProduceFrame::walk(request([0, 0, 0, 4]), 3);
        let expected = WireError::Truncated { what: "records", needed: 4, left: 3 };
        assert_eq!(long.expect_err("too long"), expected);
        let negative = ProduceFrame::walk(request([0xff, 0xff, 0xff, 0xfe]), 3);
        let expected = WireError::Length { what: "records", length: -2 };
        assert_eq!(negative.expect_err("negative"), expected);
        let unsupported = ProduceFrame::walk(request([0, 0, 0, 3]), 2);
        let expected = WireError::Unsupported { api_key: 0, version: 2 };
        assert_eq!(unsupported.expect_err("below 3"), expected);
    }

    #[test]
    fn the_answer_is_allocated_once() {
        let topics = [TopicGroup { key: TopicKey::Id(Default::default()), partitions: 1 }];
        let partitions = [PartitionAnswer {
            record_errors: vec![RecordError { batch_index: 1, message: Some("x".repeat(300)) }],
            message: Some("y".repeat(300)),
            leader: Some(CurrentLeader { id: Default::default(), epoch: Default::default() }),
            ..PartitionAnswer::refused(0, ErrorCode::InvalidRecord)
        }];
        let nodes = [NodeEndpoint { id: Default::default(), host: "h".repeat(300), port: 1 }];
        let answer = ProduceAnswer {
            version: 13,
            correlation_id: 0,
            topics: &topics,
            partitions: &partitions,
            nodes: &nodes,
            throttle_ms: 0,
        };
        assert!(answer.encode().expect("small").len() <= answer.bytes_max());
    }
}
