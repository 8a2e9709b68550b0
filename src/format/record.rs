//! Records inside a batch, and building a batch from records.
//!
//! ```text
//! length varint             bytes behind it
//! attributes i8             unused
//! timestamp delta varlong   from the batch's base timestamp
//! offset delta varint       from the batch's base offset
//! key length varint         -1: null      key
//! value length varint       -1: null      value
//! header count varint       each: key length varint, key, value length varint (-1: null), value
//! ```
//!
//! As strict as Kafka's `DefaultRecord`: a record is consumed exactly, and so is the batch.

use bytes::BytesMut;

use crate::format::batch::{self, BatchHeader, Codec, RecordBatch};
use crate::format::codec::{self, Levels};
use crate::format::varint::{self, VarintError};
use crate::units::{
    ByteCount, LeaderEpoch, ProducerEpoch, ProducerId, Sequence, Timestamp, u64_of, usize_of,
};

/// Smallest record: length, attributes, two deltas, two null lengths and no headers.
pub const RECORD_BYTES_MIN: usize = 7;

/// Why the records of a batch aren't valid.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RecordError {
    /// A number of variable length that isn't one.
    #[error(transparent)]
    Varint(#[from] VarintError),
    /// The record's length is negative or beyond the bytes left.
    #[error("record length {length} with {left} bytes left")]
    Length {
        /// As announced.
        length: i32,
        /// Bytes at hand.
        left: u64,
    },
    /// The length of a key, value or header is below -1 (below 0 for a header's key) or beyond the
    /// record.
    #[error("length {length} of a key, value or header with {left} bytes of the record left")]
    Field {
        /// As announced.
        length: i32,
        /// Bytes left in the record.
        left: u64,
    },
    /// A negative number of headers, or more than the bytes left could hold.
    #[error("{count} record headers with {left} bytes of the record left")]
    HeaderCount {
        /// As announced.
        count: i32,
        /// Bytes left in the record.
        left: u64,
    },
    /// Bytes behind the last header of a record.
    #[error("{0} bytes of a record are left over")]
    RecordSurplus(u64),
    /// Bytes behind the batch's last record.
    #[error("{0} bytes are left behind the last record of the batch")]
    BatchSurplus(u64),
    /// The bytes end before the announced number of records.
    #[error("the batch announces {announced} records and has {present}")]
    Missing {
        /// As the header says.
        announced: i32,
        /// As there are.
        present: i32,
    },
    /// A negative number of records.
    #[error("the batch announces {0} records")]
    Count(i32),
}

/// One record; its bytes lie in the batch's payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordView<'a> {
    /// The record's time: the batch's max timestamp in a LogAppendTime batch.
    pub timestamp: Timestamp,
    /// Timestamp minus the batch's base timestamp, as it stands in the record.
    pub timestamp_delta: i64,
    /// Offset minus the batch's base offset.
    pub offset_delta: i32,
    /// The key.
    pub key: Option<&'a [u8]>,
    /// The value; none is a tombstone in a compacted topic.
    pub value: Option<&'a [u8]>,
    /// The headers.
    pub headers: Headers<'a>,
}

/// A record's headers in their order: keys (UTF-8 as a rule, not checked) and values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Headers<'a> {
    left: u32,
    bytes: &'a [u8],
}

impl<'a> Iterator for Headers<'a> {
    type Item = (&'a [u8], Option<&'a [u8]>);

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let header = take_header(&mut self.bytes);
        Some(header.expect("the record's headers were walked when it was read"))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = usize_of(u64::from(self.left));
        (left, Some(left))
    }
}

impl ExactSizeIterator for Headers<'_> {}

/// Iterates the records of an unpacked payload; ends after the first error.
#[derive(Clone, Debug)]
pub struct RecordsIter<'a> {
    rest: &'a [u8],
    announced: i32,
    present: i32,
    base_timestamp: Timestamp,
    append_time: Option<Timestamp>,
    is_done: bool,
}

impl<'a> RecordsIter<'a> {
    /// Starts at the first record. `payload` is unpacked; the header says how many records there
    /// are and what their times count from.
    pub fn new(header: &BatchHeader, payload: &'a [u8]) -> RecordsIter<'a> {
        RecordsIter {
            rest: payload,
            announced: header.record_count,
            present: 0,
            base_timestamp: header.base_timestamp,
            append_time: header.is_log_append_time().then_some(header.max_timestamp),
            is_done: false,
        }
    }

    fn step(&mut self) -> Result<Option<RecordView<'a>>, RecordError> {
        if self.announced < 0 {
            return Err(RecordError::Count(self.announced));
        }
        if self.present == self.announced {
            return match self.rest.len() {
                0 => Ok(None),
                left => Err(RecordError::BatchSurplus(u64_of(left))),
            };
        }
        if self.rest.is_empty() {
            let (announced, present) = (self.announced, self.present);
            return Err(RecordError::Missing { announced, present });
        }
        let body = take_body(&mut self.rest)?;
        let mut record = decode(body, self.base_timestamp)?;
        if let Some(append_time) = self.append_time {
            record.timestamp = append_time;
        }
        self.present += 1;
        Ok(Some(record))
    }
}

impl<'a> Iterator for RecordsIter<'a> {
    type Item = Result<RecordView<'a>, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_done {
            return None;
        }
        let item = self.step().transpose();
        self.is_done = !matches!(item, Some(Ok(_)));
        item
    }
}

fn take_body<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8], RecordError> {
    let length = varint::take_i32(rest)?;
    let left = u64_of(rest.len());
    let body = usize::try_from(length).ok().and_then(|length| rest.split_at_checked(length));
    let (body, behind) = body.ok_or(RecordError::Length { length, left })?;
    *rest = behind;
    Ok(body)
}

fn decode(body: &[u8], base_timestamp: Timestamp) -> Result<RecordView<'_>, RecordError> {
    // The attributes are unused, and Kafka takes any.
    let (_, mut rest) = body.split_first().ok_or(VarintError::Truncated)?;
    let timestamp_delta = varint::take_i64(&mut rest)?;
    let offset_delta = varint::take_i32(&mut rest)?;
    let key = take_nullable(&mut rest)?;
    let value = take_nullable(&mut rest)?;
    let count = varint::take_i32(&mut rest)?;
    let left = u64_of(rest.len());
    let is_possible = usize::try_from(count).is_ok_and(|count| count <= rest.len());
    if !is_possible {
        return Err(RecordError::HeaderCount { count, left });
    }
    let headers = Headers { left: count.unsigned_abs(), bytes: rest };
    for _ in 0..count {
        take_header(&mut rest)?;
    }
    if !rest.is_empty() {
        return Err(RecordError::RecordSurplus(u64_of(rest.len())));
    }
    Ok(RecordView {
        // Java's addition wraps; a batch whose times do so is refused by its timestamp rules.
        timestamp: Timestamp(base_timestamp.0.wrapping_add(timestamp_delta)),
        timestamp_delta,
        offset_delta,
        key,
        value,
        headers,
    })
}

type Header<'a> = (&'a [u8], Option<&'a [u8]>);

fn take_header<'a>(rest: &mut &'a [u8]) -> Result<Header<'a>, RecordError> {
    let left = u64_of(rest.len());
    let key = take_nullable(rest)?.ok_or(RecordError::Field { length: -1, left })?;
    Ok((key, take_nullable(rest)?))
}

/// A length and so many bytes; Kafka takes any negative length of a key or value for null.
fn take_nullable<'a>(rest: &mut &'a [u8]) -> Result<Option<&'a [u8]>, RecordError> {
    let length = varint::take_i32(rest)?;
    let Ok(wanted) = usize::try_from(length) else { return Ok(None) };
    let left = u64_of(rest.len());
    let (bytes, behind) =
        rest.split_at_checked(wanted).ok_or(RecordError::Field { length, left })?;
    *rest = behind;
    Ok(Some(bytes))
}

/// A record to be put into a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewRecord<'a> {
    /// Its time.
    pub timestamp: Timestamp,
    /// Its key.
    pub key: Option<&'a [u8]>,
    /// Its value.
    pub value: Option<&'a [u8]>,
    /// Its headers.
    pub headers: &'a [(&'a [u8], Option<&'a [u8]>)],
}

impl<'a> NewRecord<'a> {
    /// A record that has a value only.
    pub fn value(timestamp: Timestamp, value: &'a [u8]) -> NewRecord<'a> {
        NewRecord { timestamp, key: None, value: Some(value), headers: &[] }
    }

    /// Bytes that the record takes in a batch at most, before compression.
    pub fn bytes_max(&self) -> usize {
        const NUMBERS: usize = 4 * varint::VARINT_BYTES_MAX + varint::VARLONG_BYTES_MAX + 6;
        let length = |bytes: Option<&[u8]>| bytes.map_or(0, <[u8]>::len);
        let header =
            |(key, value): &Header<'_>| key.len() + length(*value) + 2 * varint::VARINT_BYTES_MAX;
        NUMBERS
            + length(self.key)
            + length(self.value)
            + self.headers.iter().map(header).sum::<usize>()
    }
}

/// Bytes that a record takes in a payload.
///
/// # Panics
/// When a key, value or header has 2^31 bytes or more.
pub fn size(offset_delta: i32, timestamp_delta: i64, record: &NewRecord<'_>) -> usize {
    let body = body_size(offset_delta, timestamp_delta, record);
    varint::length_i32(body) + usize::try_from(body).expect("a length")
}

fn body_size(offset_delta: i32, timestamp_delta: i64, record: &NewRecord<'_>) -> i32 {
    let nullable = |bytes: Option<&[u8]>| {
        let length = bytes.map_or(-1, length_of);
        varint::length_i32(length) + bytes.map_or(0, <[u8]>::len)
    };
    let count = length_of(record.headers);
    let headers = record.headers.iter().map(|(key, value)| nullable(Some(key)) + nullable(*value));
    let length = 1
        + varint::length_i64(timestamp_delta)
        + varint::length_i32(offset_delta)
        + nullable(record.key)
        + nullable(record.value)
        + varint::length_i32(count)
        + headers.sum::<usize>();
    i32::try_from(length).expect("a record is shorter than 2^31 bytes")
}

/// Appends one record as it stands in a payload.
///
/// # Panics
/// When a key, value or header has 2^31 bytes or more.
pub fn encode(out: &mut Vec<u8>, offset_delta: i32, timestamp_delta: i64, record: &NewRecord<'_>) {
    varint::put_i32(out, body_size(offset_delta, timestamp_delta, record));
    out.push(0);
    varint::put_i64(out, timestamp_delta);
    varint::put_i32(out, offset_delta);
    put_nullable(out, record.key);
    put_nullable(out, record.value);
    varint::put_i32(out, length_of(record.headers));
    for (key, value) in record.headers {
        put_nullable(out, Some(key));
        put_nullable(out, *value);
    }
}

fn put_nullable(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    varint::put_i32(out, bytes.map_or(-1, length_of));
    out.extend_from_slice(bytes.unwrap_or(&[]));
}

fn length_of<T>(items: &[T]) -> i32 {
    i32::try_from(items.len()).expect("a field is shorter than 2^31")
}

/// Collects records into one batch, with base offset 0, as a producer does.
#[derive(Clone, Debug)]
pub struct BatchBuilder {
    codec: Codec,
    levels: Levels,
    flags: i16,
    producer: (ProducerId, ProducerEpoch, Sequence),
    base_timestamp: Timestamp,
    max_timestamp: Timestamp,
    count: i32,
    records: Vec<u8>,
}

impl BatchBuilder {
    /// An empty batch of a producer that isn't idempotent.
    pub fn new(codec: Codec) -> BatchBuilder {
        BatchBuilder {
            codec,
            levels: Levels::default(),
            flags: 0,
            producer: (ProducerId::NONE, ProducerEpoch(-1), Sequence(-1)),
            base_timestamp: Timestamp::NONE,
            max_timestamp: Timestamp::NONE,
            count: 0,
            records: Vec::new(),
        }
    }

    /// With these levels of compression.
    pub fn with_levels(self, levels: Levels) -> BatchBuilder {
        BatchBuilder { levels, ..self }
    }

    /// As an idempotent producer's batch.
    pub fn with_producer(
        self,
        id: ProducerId,
        epoch: ProducerEpoch,
        base_sequence: Sequence,
    ) -> BatchBuilder {
        BatchBuilder { producer: (id, epoch, base_sequence), ..self }
    }

    /// As part of a transaction.
    pub fn transactional(self) -> BatchBuilder {
        BatchBuilder { flags: self.flags | batch::TRANSACTIONAL, ..self }
    }

    /// As a batch of control records.
    pub fn control(self) -> BatchBuilder {
        BatchBuilder { flags: self.flags | batch::CONTROL, ..self }
    }

    /// Adds a record. The first one's time is the base of the others'.
    pub fn push(&mut self, record: &NewRecord<'_>) {
        if self.count == 0 {
            self.base_timestamp = record.timestamp;
        }
        let delta = record.timestamp.0.wrapping_sub(self.base_timestamp.0);
        encode(&mut self.records, self.count, delta, record);
        self.max_timestamp = self.max_timestamp.max(record.timestamp);
        self.count = self.count.checked_add(1).expect("a batch has less than 2^31 records");
    }

    /// How many records there are.
    pub fn count(&self) -> i32 {
        self.count
    }

    /// Size that the batch has without compression.
    pub fn size(&self) -> usize {
        batch::HEADER_BYTES + self.records.len()
    }

    /// The batch.
    ///
    /// # Panics
    /// Without a record, and when 2^31 bytes are exceeded.
    pub fn build(self) -> RecordBatch {
        assert!(self.count > 0);
        let packed;
        let payload = match self.codec {
            Codec::None => &self.records,
            Codec::Gzip | Codec::Snappy | Codec::Lz4 | Codec::Zstd => {
                packed = codec::compress(self.codec, self.levels, &self.records);
                packed.as_ref().expect("packing bytes in memory fails for none that are known")
            }
        };
        let bytes: BytesMut = batch::encode(&self.header(), payload);
        RecordBatch::decode(bytes).expect("it was encoded just now")
    }

    fn header(&self) -> BatchHeader {
        let (producer_id, producer_epoch, base_sequence) = self.producer;
        BatchHeader {
            base_offset: 0,
            size: ByteCount(0),
            leader_epoch: LeaderEpoch::NONE,
            crc: 0,
            attributes: self.codec.attribute() | self.flags,
            last_offset_delta: self.count - 1,
            base_timestamp: self.base_timestamp,
            max_timestamp: self.max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            record_count: self.count,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn records(batch: &RecordBatch) -> Vec<Result<RecordView<'_>, RecordError>> {
        RecordsIter::new(batch.header(), batch.payload()).collect()
    }

    fn one(record: &NewRecord<'_>) -> RecordBatch {
        let mut builder = BatchBuilder::new(Codec::None);
        builder.push(record);
        builder.build()
    }

    #[test]
    fn sizes_are_kafkas() {
        for (value, size) in [(&b"1"[..], 69), (b"123456", 74)] {
            assert_eq!(one(&NewRecord::value(Timestamp(5), value)).size(), ByteCount(size));
        }
    }

    #[test]
    fn nulls_empties_and_headers_are_told_apart() {
        let headers: [Header<'_>; 3] = [(b"a", Some(b"1")), (b"", None), (b"c", Some(b""))];
        let record =
            NewRecord { timestamp: Timestamp(-5), key: Some(b""), value: None, headers: &headers };
        let batch = one(&record);
        let read = records(&batch)[0].expect("valid");
        assert_eq!((read.key, read.value), (Some(&b""[..]), None));
        assert_eq!(read.timestamp, Timestamp(-5));
        assert_eq!(read.headers.len(), 3);
        assert_eq!(read.headers.collect::<Vec<_>>(), headers);
    }

    #[test]
    fn a_log_append_time_batch_gives_its_time_to_every_record() {
        let mut batch = one(&NewRecord::value(Timestamp(5), b"x"));
        batch.set_max_timestamp(true, Timestamp(99));
        assert_eq!(records(&batch)[0].expect("valid").timestamp, Timestamp(99));
    }

    fn first_error(payload: &[u8], record_count: i32) -> RecordError {
        let header =
            BatchHeader { record_count, ..*one(&NewRecord::value(Timestamp(0), b"")).header() };
        let mut items = RecordsIter::new(&header, payload);
        let error = items.by_ref().find_map(Result::err).expect("an error");
        assert_eq!(items.next(), None);
        error
    }

    #[test]
    fn records_are_consumed_exactly() {
        use RecordError::*;
        let batch = one(&NewRecord::value(Timestamp(0), b"v"));
        let good = batch.payload();
        assert_eq!(first_error(good, 2), Missing { announced: 2, present: 1 });
        assert_eq!(first_error(good, 0), BatchSurplus(u64_of(good.len())));
        assert_eq!(first_error(good, -1), Count(-1));
        assert_eq!(first_error(&[good, &[0]].concat(), 1), BatchSurplus(1));
        assert!(matches!(first_error(&good[..good.len() - 1], 1), Length { .. }));
        // The fields: length, attributes, time, offset, key (null), value length, v, header count.
        assert_eq!(good, [14, 0, 0, 0, 1, 2, b'v', 0]);
        let check = |at: usize, byte, expected| {
            let mut bad = good.to_vec();
            bad[at] = byte;
            assert_eq!(first_error(&bad, 1), expected, "byte {at} is {byte}");
        };
        check(0, 16, Length { length: 8, left: 7 });
        check(0, 1, Length { length: -1, left: 7 });
        check(0, 0, Varint(VarintError::Truncated));
        check(4, 20, Field { length: 10, left: 3 });
        check(5, 0, HeaderCount { count: 59, left: 1 });
        check(5, 1, HeaderCount { count: 59, left: 1 });
        check(7, 2, HeaderCount { count: 1, left: 0 });
        check(7, 1, HeaderCount { count: -1, left: 0 });
        let surplus = [16, 0, 0, 0, 1, 2, b'v', 0, 0];
        assert_eq!(first_error(&surplus, 1), RecordSurplus(1));
        let null_header_key = [18, 0, 0, 0, 1, 2, b'v', 2, 1, 1];
        assert!(matches!(first_error(&null_header_key, 1), Field { length: -1, .. }));
    }

    type Row = (i64, Option<Vec<u8>>, Option<Vec<u8>>, Vec<(Vec<u8>, Option<Vec<u8>>)>);

    fn row() -> impl Strategy<Value = Row> {
        let bytes = || prop::collection::vec(any::<u8>(), 0..40);
        let headers = prop::collection::vec((bytes(), prop::option::of(bytes())), 0..4);
        (any::<i64>(), prop::option::of(bytes()), prop::option::of(bytes()), headers)
    }

    proptest! {
        #[test]
        fn batches_survive_every_codec(
            rows in prop::collection::vec(row(), 1..20),
            codec in prop::sample::select(
                vec![Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd]
            ),
        ) {
            let mut builder = BatchBuilder::new(codec);
            for (timestamp, key, value, headers) in &rows {
                let headers: Vec<Header<'_>> =
                    headers.iter().map(|(key, value)| (&key[..], value.as_deref())).collect();
                let record = NewRecord {
                    timestamp: Timestamp(*timestamp),
                    key: key.as_deref(),
                    value: value.as_deref(),
                    headers: &headers,
                };
                let before = builder.size();
                builder.push(&record);
                prop_assert!(builder.size() - before <= record.bytes_max());
            }
            let batch = builder.build();
            prop_assert_eq!(batch.offsets(), u64_of(rows.len()));
            let payload = codec::decompress(codec, batch.payload(), ByteCount(1 << 20));
            let payload = payload.expect("fits");
            let read: Vec<_> = RecordsIter::new(batch.header(), &payload).collect();
            prop_assert_eq!(read.len(), rows.len());
            for (number, (record, (timestamp, key, value, headers))) in
                read.into_iter().zip(&rows).enumerate()
            {
                let record = record.expect("valid");
                prop_assert_eq!(i32::try_from(number), Ok(record.offset_delta));
                prop_assert_eq!(record.timestamp.0, *timestamp);
                prop_assert_eq!(record.key, key.as_deref());
                prop_assert_eq!(record.value, value.as_deref());
                let read = record.headers.map(|(key, value)| {
                    (key.to_vec(), value.map(<[u8]>::to_vec))
                });
                prop_assert_eq!(&read.collect::<Vec<_>>(), headers);
            }
        }

        #[test]
        fn garbage_is_no_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            record_count: i32,
        ) {
            let header = BatchHeader {
                record_count,
                ..*one(&NewRecord::value(Timestamp(0), b"")).header()
            };
            for record in RecordsIter::new(&header, &bytes).flatten() {
                let announced = record.headers.left;
                prop_assert_eq!(u32::try_from(record.headers.count()), Ok(announced));
            }
        }
    }
}
