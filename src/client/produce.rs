//! A Produce request for one batch, and its answer.

use bytes::{Bytes, BytesMut};

use super::connection::{Connection, Encoded};
use super::error::ClientError;
use crate::units::{ByteCount, byte_count};
use crate::wire::error::WireError;
use crate::wire::frame::RequestHeader;
use crate::wire::read::Reader;
use crate::wire::versions::{self, api};

/// What a batch's answer waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Acks {
    /// Nothing: there is no answer.
    None,
    /// The leader has it.
    Leader,
    /// Every replica in sync has it.
    All,
}

impl Acks {
    /// As the request carries it.
    pub fn to_wire(self) -> i16 {
        match self {
            Acks::None => 0,
            Acks::Leader => 1,
            Acks::All => -1,
        }
    }
}

/// Where a batch went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Produced {
    /// Offset of its first record; -1 with [`Acks::None`].
    pub base_offset: i64,
    /// The time that the broker gave it, -1 when it kept the producer's.
    pub log_append_time: i64,
    /// The partition's log start offset, -1 when the version doesn't say.
    pub log_start: i64,
}

impl Produced {
    /// What is known of a batch that isn't answered.
    pub const UNKNOWN: Produced = Produced { base_offset: -1, log_append_time: -1, log_start: -1 };
}

/// One batch and how to send it.
#[derive(Clone, Debug)]
pub(super) struct ProduceOne<'a> {
    pub topic: &'a str,
    pub partition: i32,
    pub batch: Bytes,
    pub acks: Acks,
    pub timeout_ms: i32,
}

/// Encodes a request with one batch; the batch is not copied.
///
/// # Errors
/// [`ClientError::Unsupported`]; [`ClientError::Encode`] for a batch beyond a frame;
/// [`ClientError::Argument`] for a topic name that no broker can have.
pub fn encode_produce(
    connection: &Connection,
    (topic, partition): (&str, i32),
    batch: Bytes,
    (acks, timeout_ms): (Acks, i32),
) -> Result<Encoded, ClientError> {
    check_topic(topic)?;
    let header = connection.header(api::PRODUCE)?;
    let one = ProduceOne { topic, partition, batch, acks, timeout_ms };
    encode(header, &one).map_err(ClientError::Encode)
}

pub(super) fn check_topic(topic: &str) -> Result<(), ClientError> {
    const NAME_BYTES_MAX: usize = 249;
    if (1..=NAME_BYTES_MAX).contains(&topic.len()) {
        return Ok(());
    }
    let length = topic.len();
    let text = format!("a topic name has 1 to {NAME_BYTES_MAX} characters, not {length}");
    Err(ClientError::Argument(text))
}

pub(super) fn encode(header: RequestHeader, one: &ProduceOne) -> Result<Encoded, WireError> {
    /// Bytes that suffice for all the lengths and numbers of the body.
    const FIXED: usize = 64;
    let range = versions::check(api::PRODUCE, header.version)?;
    let mut writer = header.start(range, FIXED + one.topic.len());
    writer.text(None);
    writer.i16(one.acks.to_wire());
    writer.i32(one.timeout_ms);
    writer.array(Some(1));
    writer.text(Some(one.topic));
    writer.array(Some(1));
    writer.i32(one.partition);
    writer.records_length(byte_count(one.batch.len()))?;
    let head_bytes = writer.len();
    // The ends of partition, topic and body.
    (0..3).for_each(|_| writer.no_tags());
    let batch_bytes: ByteCount = byte_count(one.batch.len());
    let mut head = writer.finish(batch_bytes)?;
    let tail = head.split_off(head_bytes).freeze();
    let parts = [head.freeze(), one.batch.clone(), tail];
    Ok(Encoded { header, parts, is_answered: one.acks != Acks::None })
}

/// Reads the answer to [`encode_produce`].
///
/// # Errors
/// [`ClientError::Wire`]; [`ClientError::Refused`] with the broker's code and words.
pub fn decode_produced(
    connection: &Connection,
    version: i16,
    body: BytesMut,
) -> Result<Produced, ClientError> {
    let answer = decode(version, body).map_err(|source| connection.wrong(source))?;
    let what = || format!("produce to partition {} of topic {:?}", answer.index, answer.topic);
    ClientError::check_message(answer.error_code, answer.message.as_deref(), what)?;
    Ok(answer.produced)
}

/// An answer's only partition.
#[derive(Debug)]
pub(super) struct OneAnswer {
    pub topic: String,
    pub index: i32,
    pub error_code: i16,
    pub message: Option<String>,
    pub produced: Produced,
}

pub(super) fn decode(version: i16, body: BytesMut) -> Result<OneAnswer, WireError> {
    let range = versions::check(api::PRODUCE, version)?;
    let mut reader = Reader::new(body, range.is_flexible(version));
    one(reader.array(1, "topics")?, "topics")?;
    let topic = reader.text("topic name")?.to_string();
    one(reader.array(1, "partitions")?, "partitions")?;
    let index = reader.i32("partition index")?;
    let error_code = reader.i16("error code")?;
    let produced = Produced {
        base_offset: reader.i64("base offset")?,
        log_append_time: reader.i64("log append time")?,
        log_start: if version >= 5 { reader.i64("log start offset")? } else { -1 },
    };
    let message = if version >= 8 { decode_message(&mut reader)? } else { None };
    Ok(OneAnswer { topic, index, error_code, message, produced })
}

/// The message for the batch, or else the first one for a record.
fn decode_message(reader: &mut Reader<BytesMut>) -> Result<Option<String>, WireError> {
    let mut first = None;
    for _ in 0..reader.array(1, "record errors")? {
        let batch_index = reader.i32("batch index")?;
        let message = reader.nullable_text("record error message")?;
        reader.skip_tags("record error tags")?;
        let text = |message| format!("record {batch_index}: {message}");
        first = first.or_else(|| message.map(text));
    }
    let message = reader.nullable_text("error message")?;
    Ok(message.map(|message| message.to_string()).or(first))
}

/// Fails unless there is exactly one.
fn one(count: usize, what: &'static str) -> Result<(), WireError> {
    if count == 1 {
        return Ok(());
    }
    Err(WireError::Length { what, length: i64::try_from(count).unwrap_or(i64::MAX) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{BrokerId, LeaderEpoch};
    use crate::wire::StrBytes;
    use crate::wire::error::ErrorCode;
    use crate::wire::frame;
    use crate::wire::produce::{PartitionAnswer, ProduceAnswer, ProduceFrame, RecordError};
    use crate::wire::topics::{CurrentLeader, TopicGroup, TopicKey};

    fn header(version: i16) -> RequestHeader {
        let client_id = Some(StrBytes::from_static_str("me"));
        RequestHeader { api_key: api::PRODUCE, version, correlation_id: 5, client_id }
    }

    #[test]
    fn the_broker_reads_what_the_client_writes() {
        for version in 3..=12 {
            let batch = Bytes::from(vec![9; 300]);
            let one = ProduceOne {
                topic: "flights",
                partition: 4,
                batch: batch.clone(),
                acks: Acks::All,
                timeout_ms: 30,
            };
            let encoded = encode(header(version), &one).expect("small");
            let mut bytes = BytesMut::new();
            encoded.parts.iter().for_each(|part| bytes.extend_from_slice(part));
            let size = bytes.split_to(4);
            assert_eq!(&size[..], i32::try_from(bytes.len()).expect("small").to_be_bytes());
            let (header, body) = frame::split(bytes).expect("a header");
            assert_eq!(header, encoded.header);
            let frame = ProduceFrame::walk(body, version).expect("well-formed");
            assert_eq!((frame.acks, frame.timeout_ms), (-1, 30));
            assert_eq!(frame.topics[0].key, TopicKey::Name(StrBytes::from_static_str("flights")));
            assert_eq!(frame.partitions[0].index, 4);
            assert_eq!(frame.partitions[0].batch, batch);
        }
    }

    #[test]
    fn the_client_reads_what_the_broker_writes() {
        let key = TopicKey::Name(StrBytes::from_static_str("flights"));
        let partitions = [PartitionAnswer {
            base_offset: 7,
            log_start: 3,
            record_errors: vec![RecordError { batch_index: 2, message: Some("bad".to_owned()) }],
            leader: Some(CurrentLeader { id: BrokerId(1), epoch: LeaderEpoch(0) }),
            ..PartitionAnswer::refused(4, ErrorCode::InvalidRecord)
        }];
        for version in 3..=12 {
            let answer = ProduceAnswer {
                version,
                correlation_id: 5,
                topics: &[TopicGroup { key: key.clone(), partitions: 1 }],
                partitions: &partitions,
                nodes: &[],
                throttle_ms: 0,
            };
            let frame = answer.encode().expect("small");
            let body = &frame[if version >= 9 { 9 } else { 8 }..];
            let read = decode(version, BytesMut::from(body)).expect("well-formed");
            assert_eq!((read.topic.as_str(), read.index, read.error_code), ("flights", 4, 87));
            assert_eq!(read.produced.base_offset, 7);
            assert_eq!(read.produced.log_start, if version >= 5 { 3 } else { -1 });
            assert_eq!(read.message.as_deref(), (version >= 8).then_some("record 2: bad"));
            for cut in 0..body.len() - 8 {
                let _ = decode(version, BytesMut::from(&body[..cut]));
            }
        }
    }
}
