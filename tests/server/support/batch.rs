//! Batches to send, good and bad, and what is in those that come back.

use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use uringlog::format::batch::{BatchHeader, Codec, RecordBatch};
use uringlog::format::record::{BatchBuilder, NewRecord, RecordsIter};
use uringlog::units::{ProducerEpoch, ProducerId, Sequence, Timestamp, usize_of};

use super::client::Client;

/// Where the fields of a batch's header stand.
pub const LENGTH_AT: usize = 8;
pub const MAGIC_AT: usize = 16;
pub const CRC_AT: usize = 17;
pub const ATTRIBUTES_AT: usize = 21;
pub const LAST_OFFSET_DELTA_AT: usize = 23;
pub const RECORD_COUNT_AT: usize = 57;
pub const RECORDS_AT: usize = 61;

pub fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970");
    Timestamp(i64::try_from(since.as_millis()).expect("millions of years"))
}

fn build<T: AsRef<[u8]>>(mut builder: BatchBuilder, at: Timestamp, values: &[T]) -> Vec<u8> {
    for value in values {
        builder.push(&NewRecord::value(at, value.as_ref()));
    }
    builder.build().as_bytes().to_vec()
}

/// One record for each value, all of this time.
pub fn at<T: AsRef<[u8]>>(at: Timestamp, values: &[T]) -> Vec<u8> {
    build(BatchBuilder::new(Codec::None), at, values)
}

/// One record for each value.
pub fn of<T: AsRef<[u8]>>(values: &[T]) -> Vec<u8> {
    packed(Codec::None, values)
}

/// The same, compressed.
pub fn packed<T: AsRef<[u8]>>(codec: Codec, values: &[T]) -> Vec<u8> {
    build(BatchBuilder::new(codec), now(), values)
}

/// The same, of an idempotent producer.
pub fn sequenced(producer: (i64, i16), sequence: i32, values: &[String]) -> Vec<u8> {
    let (id, epoch) = producer;
    let builder = BatchBuilder::new(Codec::None);
    let (id, epoch) = (ProducerId(id), ProducerEpoch(epoch));
    build(builder.with_producer(id, epoch, Sequence(sequence)), now(), values)
}

/// The same, as part of its transaction.
pub fn transactional(producer: (i64, i16), sequence: i32, values: &[&str]) -> Vec<u8> {
    let (id, epoch) = (ProducerId(producer.0), ProducerEpoch(producer.1));
    let builder = BatchBuilder::new(Codec::None).with_producer(id, epoch, Sequence(sequence));
    build(builder.transactional(), now(), values)
}

/// One record with a value of this many bytes that follow from `seed` and don't compress well.
pub fn large(seed: u64, value_bytes: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut value = Vec::with_capacity(value_bytes + size_of::<u64>());
    while value.len() < value_bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        value.extend_from_slice(&state.to_le_bytes());
    }
    value.truncate(value_bytes);
    of(&[value])
}

/// The batch with bytes written over.
pub fn patched(batch: &[u8], at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut batch = batch.to_vec();
    batch[at..at + bytes.len()].copy_from_slice(bytes);
    batch
}

/// The batch with the CRC that its bytes have.
pub fn sealed(mut batch: Vec<u8>) -> Vec<u8> {
    let crc = crc32c::crc32c(&batch[ATTRIBUTES_AT..]);
    batch[CRC_AT..ATTRIBUTES_AT].copy_from_slice(&crc.to_be_bytes());
    batch
}

/// Offset and value of each record in a row of uncompressed batches; a batch that is cut off at
/// the end is left out, as consumers do.
pub fn records(mut bytes: &[u8]) -> Vec<(i64, Vec<u8>)> {
    let mut found = Vec::new();
    while let Ok(header) = BatchHeader::decode(bytes) {
        let size = usize_of(header.size.0);
        let Some(batch) = bytes.get(..size) else { break };
        let batch = RecordBatch::decode(batch.into()).expect("what is served is whole");
        for record in RecordsIter::new(batch.header(), batch.payload()) {
            let record = record.expect("what is served has whole records");
            let offset = header.base_offset + i64::from(record.offset_delta);
            found.push((offset, record.value.expect("a value").to_vec()));
        }
        bytes = &bytes[size..];
    }
    found
}

/// What of a row of uncompressed batches a reader of committed records sees: no control records,
/// and nothing of the aborted transactions, which are given as producer and first offset.
pub fn committed(mut bytes: &[u8], aborted: &[(i64, i64)]) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    let mut over: Vec<(i64, i64)> = aborted.to_vec();
    while let Ok(header) = BatchHeader::decode(bytes) {
        let size = usize_of(header.size.0);
        let Some(batch) = bytes.get(..size) else { break };
        let (producer, base) = (header.producer_id.0, header.base_offset);
        let ended = over.iter().position(|(id, first)| *id == producer && *first <= base);
        match ended {
            Some(at) if header.is_control() => drop(over.remove(at)),
            Some(_) if header.is_transactional() => {}
            _ if header.is_control() => {}
            _ => found.extend(records(batch).into_iter().map(|(_, value)| value)),
        }
        bytes = &bytes[size..];
    }
    found
}

/// Everything in a partition from an offset on, as a consumer reads it.
pub fn consume(client: &mut Client, topic: &str, partition: i32, from: i64) -> Vec<(i64, Vec<u8>)> {
    let mut found: Vec<(i64, Vec<u8>)> = Vec::new();
    let mut next = from;
    loop {
        let answer = client.fetch(topic, partition, next, 8 << 20);
        assert_eq!(answer.error_code, 0, "{topic}-{partition} at {next}");
        let bytes: Bytes = answer.records.unwrap_or_default();
        let more: Vec<_> =
            records(&bytes).into_iter().filter(|(offset, _)| next <= *offset).collect();
        let Some((last, _)) = more.last() else { return found };
        next = last + 1;
        found.extend(more);
    }
}
