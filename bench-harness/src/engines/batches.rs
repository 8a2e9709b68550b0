//! Batches as producers make them.

use bytes::BytesMut;
use uringlog::{BatchBuilder, Codec, NewRecord, RecordBatch, Timestamp};

use crate::experiments::Failure;

/// Bytes for values: not zeros, and the same for the same seed.
pub fn bytes(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        state.to_be_bytes()[0]
    };
    (0..length).map(|_| next()).collect()
}

/// A batch of records without keys, all with the same time: their deltas take a byte each.
pub fn uniform(values: &[&[u8]], timestamp: Timestamp) -> RecordBatch {
    let mut batch = BatchBuilder::new(Codec::None);
    for value in values {
        batch.push(&NewRecord::value(timestamp, value));
    }
    batch.build()
}

/// The same batch once more: appending takes it by value and writes offsets into its bytes.
pub fn copy(batch: &RecordBatch) -> RecordBatch {
    let bytes = BytesMut::from(batch.as_bytes());
    RecordBatch::decode(bytes).expect("these are the bytes of a valid batch")
}

/// How long a batch of `records` values of `value` bytes is, before it is built.
pub fn length(records: u64, value: u64) -> u64 {
    let value = usize::try_from(value).expect("usize is 64 bits");
    let value = vec![0; value];
    let mut batch = BatchBuilder::new(Codec::None);
    for _ in 0..records {
        batch.push(&NewRecord::value(Timestamp(0), &value));
    }
    u64::try_from(batch.size()).expect("usize is 64 bits")
}

/// The time of the first of `count` records that are `gap_ms` apart, when the last one's is `last`.
///
/// # Errors
/// When it would lie before 1970, where times don't reach; `gap` is the parameter to be lowered.
pub fn first_time(
    last: Timestamp,
    (count, gap_ms): (u64, u64),
    gap: &str,
) -> Result<Timestamp, Failure> {
    let span = count.saturating_sub(1).saturating_mul(gap_ms);
    match i64::try_from(span) {
        Ok(span) if span <= last.0 => Ok(Timestamp(last.0 - span)),
        _ => Err(Failure::Usage(format!(
            "{gap}={gap_ms}: of {count} records so far apart, the last one now, the first would \
             be older than 1970; lower {gap}, or take fewer records"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_do_not_reach_before_1970() {
        let first = |count, gap_ms| first_time(Timestamp(1000), (count, gap_ms), "gap_ms");
        assert_eq!(first(11, 100).expect("it does"), Timestamp(0));
        assert_eq!(first(0, 100).expect("it does"), Timestamp(1000));
        let text = first(12, 100).expect_err("too far").to_string();
        assert!(text.contains("lower gap_ms, or take fewer records"), "{text}");
        assert!(first(u64::MAX, u64::MAX).is_err());
    }

    #[test]
    fn batches_have_the_lengths_that_the_documents_show() {
        // 15 x 1,024 B in 15,556 B; single ones of 38 and 48 B in 106 and 116 B.
        for (records, value, expected) in [(15, 1024, 15_556), (1, 38, 106), (1, 48, 116)] {
            assert_eq!(length(records, value), expected);
        }
        let value = bytes(1024, 7);
        let batch = uniform(&[value.as_slice(); 15], Timestamp(1));
        assert_eq!(batch.as_bytes().len(), 15_556);
        assert_eq!(copy(&batch).as_bytes(), batch.as_bytes());
        assert_eq!(bytes(1024, 7), value);
        assert_ne!(bytes(1024, 9), value);
    }
}
