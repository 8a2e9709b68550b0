//! Batches and settings that the tests share.

use bytes::BytesMut;
use uringlog::format::batch::{self, BatchHeader, Codec, RecordBatch};
use uringlog::format::codec::{self, Levels};
use uringlog::format::record::{BatchBuilder, NewRecord, RecordsIter};
use uringlog::log::config::{CleanupPolicy, Durability, LogConfig, TimestampType};
use uringlog::log::error::AppendError;
use uringlog::log::validate::validate;
use uringlog::units::{ProducerEpoch, ProducerId, Sequence, Timestamp};

pub const NOW: Timestamp = Timestamp(1_700_000_000_000);
pub const CODECS: [Codec; 5] = [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];
pub const LOG_APPEND_TIME: i16 = 0x08;
pub const CONTROL: i16 = 0x20;

pub fn config() -> LogConfig {
    LogConfig::defaults(Durability::PageCache)
}

pub fn append_time() -> LogConfig {
    LogConfig { timestamp_type: TimestampType::LogAppendTime, ..config() }
}

pub fn compacted() -> LogConfig {
    LogConfig { cleanup_policy: CleanupPolicy { delete: false, compact: true }, ..config() }
}

/// A keyed batch with records at these times.
pub fn batch(codec: Codec, timestamps: &[i64]) -> RecordBatch {
    let mut builder =
        BatchBuilder::new(codec).with_producer(ProducerId(7), ProducerEpoch(1), Sequence(5));
    for timestamp in timestamps {
        builder.push(&NewRecord {
            timestamp: Timestamp(*timestamp),
            key: Some(b"key"),
            value: Some(&[b'v'; 300]),
            headers: &[(b"h", None), (b"", Some(b"x"))],
        });
    }
    builder.build()
}

/// The same batch with another header, its CRC right.
pub fn changed(batch: &RecordBatch, change: impl FnOnce(&mut BatchHeader)) -> RecordBatch {
    let mut header = *batch.header();
    change(&mut header);
    decode(batch::encode(&header, batch.payload()))
}

/// A batch of raw record bytes.
pub fn raw(codec: Codec, count: i32, records: &[u8]) -> RecordBatch {
    let payload = codec::compress(codec, Levels::default(), records).expect("packs");
    let header = BatchHeader {
        attributes: codec.attribute(),
        last_offset_delta: count - 1,
        record_count: count,
        ..*batch(Codec::None, &[NOW.0]).header()
    };
    decode(batch::encode(&header, &payload))
}

pub fn decode(bytes: BytesMut) -> RecordBatch {
    RecordBatch::decode(bytes).expect("length and CRC are right")
}

pub fn unpacked(batch: &RecordBatch) -> Vec<u8> {
    let codec = batch.header().codec().expect("known");
    let limit = config().decompressed_bytes_max;
    codec::decompress(codec, batch.payload(), limit).expect("unpacks").into_owned()
}

pub fn timestamps(batch: &RecordBatch) -> Vec<i64> {
    let records = unpacked(batch);
    let records = RecordsIter::new(batch.header(), &records);
    records.map(|record| record.expect("valid").timestamp.0).collect()
}

pub fn refusal(batch: RecordBatch, config: &LogConfig) -> AppendError {
    validate(batch, config, NOW).expect_err("refused")
}

pub fn refused_records(error: &AppendError) -> Vec<u32> {
    error.record_errors().iter().map(|error| error.batch_index).collect()
}
