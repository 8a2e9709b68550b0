//! A Fetch request without a session, and its answer.

use bytes::{Bytes, BytesMut};

use super::connection::{Connection, Encoded};
use super::error::ClientError;
use super::produce::check_topic;
use crate::units::ByteCount;
use crate::wire::StrBytes;
use crate::wire::error::WireError;
pub use crate::wire::fetch::AbortedTransaction;
use crate::wire::frame::RequestHeader;
use crate::wire::read::Reader;
use crate::wire::versions::{self, api};

/// One partition to read from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FetchFrom {
    /// The topic's name.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// The first offset wanted.
    pub offset: i64,
    /// Bound of this partition's bytes, but for a first batch that is larger.
    pub bytes_max: i32,
}

/// Which records of transactions are wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Isolation {
    /// All.
    #[default]
    ReadUncommitted,
    /// Those below the last stable offset; which of them are of transactions that were aborted is
    /// told with them.
    ReadCommitted,
}

/// Bounds of a whole request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FetchLimits {
    /// How long the broker waits for `bytes_min`, in milliseconds.
    pub wait_max_ms: i32,
    /// Answer as soon as there are so many bytes.
    pub bytes_min: i32,
    /// Bound of the whole answer, but for a first batch that is larger.
    pub bytes_max: i32,
    /// Which records may be among them.
    pub isolation: Isolation,
}

impl Default for FetchLimits {
    fn default() -> FetchLimits {
        let isolation = Isolation::default();
        FetchLimits { wait_max_ms: 500, bytes_min: 1, bytes_max: 50 << 20, isolation }
    }
}

/// What one partition gave.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fetched {
    /// The topic's name.
    pub topic: StrBytes,
    /// The partition.
    pub partition: i32,
    /// Error code of this partition, 0 for none.
    pub error_code: i16,
    /// First offset that can't be read yet.
    pub high_watermark: i64,
    /// The last stable offset.
    pub last_stable: i64,
    /// First offset that can still be read; -1 when the version doesn't say.
    pub log_start: i64,
    /// Transactions that were aborted and may have batches among the records; none unless it was
    /// asked for what is committed.
    pub aborted: Vec<AbortedTransaction>,
    /// Whole batches; the first may begin before the offset asked for, the last may be cut.
    pub records: Bytes,
}

impl Fetched {
    /// Nothing when the partition has no error.
    ///
    /// # Errors
    /// [`ClientError::Refused`].
    pub fn check(&self) -> Result<(), ClientError> {
        ClientError::check(self.error_code, || {
            format!("fetch from partition {} of topic {:?}", self.partition, self.topic)
        })
    }
}

/// Encodes a request for the partitions of one broker; those of one topic should stand together.
///
/// # Errors
/// [`ClientError::Unsupported`]; [`ClientError::Argument`] for a topic name that no broker can
/// have.
pub fn encode_fetch(
    connection: &Connection,
    from: &[FetchFrom],
    limits: FetchLimits,
) -> Result<Encoded, ClientError> {
    from.iter().try_for_each(|one| check_topic(&one.topic))?;
    let header = connection.header(api::FETCH)?;
    encode(header, from, limits).map_err(ClientError::Encode)
}

fn encode(
    header: RequestHeader,
    from: &[FetchFrom],
    limits: FetchLimits,
) -> Result<Encoded, WireError> {
    const FIXED: usize = 48;
    const EACH: usize = 48;
    let version = header.version;
    let range = versions::check(api::FETCH, version)?;
    let bytes = FIXED + from.iter().map(|one| EACH + one.topic.len()).sum::<usize>();
    let mut writer = header.start(range, bytes);
    writer.i32(-1);
    writer.i32(limits.wait_max_ms);
    writer.i32(limits.bytes_min);
    writer.i32(limits.bytes_max);
    writer.i8(match limits.isolation {
        Isolation::ReadUncommitted => 0,
        Isolation::ReadCommitted => 1,
    });
    if version >= 7 {
        // No session: id 0, epoch -1.
        writer.i32(0);
        writer.i32(-1);
    }
    let topics = from.chunk_by(|one, next| one.topic == next.topic);
    writer.array(Some(topics.clone().count()));
    for partitions in topics {
        writer.text(Some(&partitions[0].topic));
        writer.array(Some(partitions.len()));
        for partition in partitions {
            encode_partition(&mut writer, partition, version);
        }
        writer.no_tags();
    }
    if version >= 7 {
        writer.array(Some(0));
    }
    if version >= 11 {
        writer.text(Some(""));
    }
    writer.no_tags();
    let frame = writer.finish(ByteCount(0))?.freeze();
    Ok(Encoded::whole(header, frame))
}

fn encode_partition(writer: &mut crate::wire::write::Writer, from: &FetchFrom, version: i16) {
    writer.i32(from.partition);
    if version >= 9 {
        writer.i32(-1);
    }
    writer.i64(from.offset);
    if version >= 12 {
        writer.i32(-1);
    }
    if version >= 5 {
        writer.i64(-1);
    }
    writer.i32(from.bytes_max);
    writer.no_tags();
}

/// Reads the answer to [`encode_fetch`]: what each partition gave, errors of single partitions
/// included.
///
/// # Errors
/// [`ClientError::Wire`]; [`ClientError::Refused`] when the request as a whole is.
pub fn decode_fetched(
    connection: &Connection,
    version: i16,
    body: BytesMut,
) -> Result<Vec<Fetched>, ClientError> {
    let (code, fetched) = decode(version, body).map_err(|source| connection.wrong(source))?;
    ClientError::check(code, || format!("fetch from {}", connection.address()))?;
    Ok(fetched)
}

fn decode(version: i16, body: BytesMut) -> Result<(i16, Vec<Fetched>), WireError> {
    let range = versions::check(api::FETCH, version)?;
    let mut reader = Reader::new(body, range.is_flexible(version));
    reader.i32("throttle time")?;
    let mut error_code = 0;
    if version >= 7 {
        error_code = reader.i16("error code")?;
        reader.i32("session id")?;
    }
    let mut fetched = Vec::new();
    for _ in 0..reader.array(1, "topics")? {
        let topic = reader.text("topic name")?;
        for _ in 0..reader.array(1, "partitions")? {
            fetched.push(decode_partition(&mut reader, version, &topic)?);
        }
        reader.skip_tags("topic tags")?;
    }
    reader.skip_tags("body tags")?;
    Ok((error_code, fetched))
}

fn decode_partition(
    reader: &mut Reader<BytesMut>,
    version: i16,
    topic: &StrBytes,
) -> Result<Fetched, WireError> {
    let partition = reader.i32("partition index")?;
    let error_code = reader.i16("error code")?;
    let high_watermark = reader.i64("high watermark")?;
    let last_stable = reader.i64("last stable offset")?;
    let log_start = if version >= 5 { reader.i64("log start offset")? } else { -1 };
    let mut aborted = Vec::new();
    for _ in 0..reader.array_length(1, "aborted transactions")?.unwrap_or(0) {
        let producer_id = reader.i64("aborted producer id")?;
        let first_offset = reader.i64("aborted first offset")?;
        aborted.push(AbortedTransaction { producer_id, first_offset });
        reader.skip_tags("aborted transaction tags")?;
    }
    if version >= 11 {
        reader.i32("preferred read replica")?;
    }
    let records = reader.records("records")?.freeze();
    reader.skip_tags("partition tags")?;
    Ok(Fetched {
        topic: topic.clone(),
        partition,
        error_code,
        high_watermark,
        last_stable,
        log_start,
        aborted,
        records,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::error::ErrorCode;
    use crate::wire::fetch::{FetchAnswer, FetchRequest, Part, PartitionAnswer, Records};
    use crate::wire::frame;
    use crate::wire::topics::{TopicGroup, TopicKey};

    fn from(topic: &str, partition: i32) -> FetchFrom {
        FetchFrom { topic: topic.to_owned(), partition, offset: 9, bytes_max: 100 }
    }

    #[test]
    fn the_broker_reads_what_the_client_writes() {
        for version in 4..=12 {
            let header =
                RequestHeader { api_key: api::FETCH, version, correlation_id: 5, client_id: None };
            let list = [from("a", 0), from("a", 1), from("b", 0)];
            let isolation = Isolation::ReadCommitted;
            let limits = FetchLimits { isolation, ..FetchLimits::default() };
            let encoded = encode(header, &list, limits).expect("small");
            let body = BytesMut::from(&encoded.parts[0][4..]);
            let (header, body) = frame::split(body).expect("a header");
            assert_eq!(header, encoded.header);
            let read = FetchRequest::decode(body, version).expect("well-formed");
            let key = |name| TopicKey::Name(StrBytes::from_static_str(name));
            let groups = [
                TopicGroup { key: key("a"), partitions: 2 },
                TopicGroup { key: key("b"), partitions: 1 },
            ];
            assert_eq!(&read.topics[..], &groups);
            assert_eq!((read.bytes_min, read.session_epoch, read.replica.0), (1, -1, -1));
            assert_eq!(read.isolation_level, 1);
            assert_eq!((read.partitions[1].index, read.partitions[1].offset), (1, 9));
            assert_eq!(read.partitions[2].bytes_max, 100);
        }
    }

    #[test]
    fn the_client_reads_what_the_broker_writes() {
        let key = TopicKey::Name(StrBytes::from_static_str("a"));
        let aborted = vec![AbortedTransaction { producer_id: 1, first_offset: 2 }];
        let partitions = [
            PartitionAnswer {
                high_watermark: 8,
                last_stable: 7,
                log_start: 6,
                aborted: Some(aborted.clone()),
                records: Records::Bytes(Bytes::from_static(b"batch")),
                ..PartitionAnswer::refused(3, ErrorCode::None)
            },
            PartitionAnswer::refused(4, ErrorCode::OffsetOutOfRange),
        ];
        for version in 4..=12 {
            let answer = FetchAnswer {
                version,
                correlation_id: 5,
                throttle_ms: 0,
                error: ErrorCode::None,
                session_id: 0,
                topics: &[TopicGroup { key: key.clone(), partitions: 2 }],
                partitions: &partitions,
                nodes: &[],
            };
            let mut frame = BytesMut::new();
            for part in answer.encode().expect("small") {
                let Part::Bytes(bytes) = part else { panic!("no slices") };
                frame.extend_from_slice(&bytes);
            }
            let body = frame.split_off(if version >= 12 { 9 } else { 8 });
            for cut in 0..body.len() {
                decode(version, BytesMut::from(&body[..cut])).expect_err("cut");
            }
            let (code, fetched) = decode(version, body).expect("well-formed");
            assert_eq!((code, fetched.len()), (0, 2));
            assert_eq!((fetched[0].partition, &fetched[0].records[..]), (3, &b"batch"[..]));
            assert_eq!((fetched[0].high_watermark, fetched[0].last_stable), (8, 7));
            assert_eq!(fetched[0].aborted, aborted);
            assert_eq!(fetched[0].log_start, if version >= 5 { 6 } else { -1 });
            assert_eq!((fetched[1].partition, fetched[1].error_code), (4, 1));
            fetched[1].check().expect_err("out of range");
        }
    }
}
