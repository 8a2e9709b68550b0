//! Logs of one-record batches of a length, filled by the engine: what lookups are timed on.

use uringlog::{Engine, Partition, RecordBatch, now};

use super::phenomenon::Contents;
use crate::engines::{batches, files, library};
use crate::experiments::Failure;
use crate::experiments::measure::{u64_of, usize_of};
use crate::run::Context;

/// Batches of one turn: its plan is one write.
const TURN_BATCHES: u64 = 512;
const TURN_BYTES: u64 = 4 << 20;
/// The shortest batch with a record in it.
pub const BATCH_BYTES_MIN: u64 = 68;

/// What a log is to be like.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Length of every batch, one record in each; some lengths are missed by a byte.
    pub batch_bytes: u64,
    /// `index.interval.bytes`.
    pub interval: u64,
    /// `segment.bytes`.
    pub segment_bytes: u64,
    /// Full segments in front of the active one.
    pub sealed: u64,
}

/// A filled log: its batch and its sealed segments, read back from their files.
pub struct Filled {
    pub partition: Partition,
    pub batch_bytes: u64,
    pub sealed: Vec<Contents>,
}

/// Fills a new partition of the engine.
///
/// # Errors
/// A batch that fits no segment, and whatever the log refuses.
pub async fn fill(
    context: &Context,
    engine: &Engine,
    (topic, shape): (&str, Shape),
) -> Result<Filled, Failure> {
    let batch = single(shape.batch_bytes, context.seed);
    let batch_bytes = u64_of(batch.as_bytes().len());
    let fit = shape.segment_bytes / batch_bytes;
    if fit == 0 {
        return Err(Failure::Usage(format!(
            "a batch of {batch_bytes} bytes fits no segment of {}: lower the batch size, or raise \
             sweep_segment_bytes",
            shape.segment_bytes
        )));
    }
    let spec = library::spec(context, (topic, 0), |config| {
        config.segment_bytes.0 = shape.segment_bytes;
        config.index_interval_bytes.0 = shape.interval;
        config.batch_bytes_max.0 = shape.segment_bytes;
        config.flush_messages = u64::MAX;
        // Room for an entry a batch in either index: only bytes end a segment.
        config.segment_index_bytes.0 = (12 * (fit + 16)).max(1 << 20);
    });
    let partition = engine.open_or_create(spec).await?;
    let (mut left, turn) = (fit * shape.sealed + 1, (TURN_BYTES / batch_bytes).max(1));
    let progress = context.progress(left, "batches to look up in");
    while 0 < left {
        context.check()?;
        let count = left.min(turn.min(TURN_BATCHES));
        let mut due = None;
        for _ in 0..count {
            due = Some(partition.append(batches::copy(&batch))?.due);
        }
        partition.reached(due.expect("one at least was appended")).await?;
        left -= count;
        progress.advance(count);
    }
    let segments = files::segments(partition.directory())?;
    let (_, sealed) = segments.split_last().expect("a log has a segment");
    if u64_of(sealed.len()) != shape.sealed {
        let (found, expected) = (sealed.len(), shape.sealed);
        return Err(Failure::Wrong(format!("{found} sealed segments, not {expected}")));
    }
    let sealed = sealed.iter().map(|it| Contents::read(partition.directory(), it));
    let sealed = sealed.collect::<Result<_, _>>()?;
    Ok(Filled { partition, batch_bytes, sealed })
}

/// A batch of one record, as long as this or, where its length fields don't allow it, a byte or two
/// shorter.
fn single(bytes: u64, seed: u64) -> RecordBatch {
    let mut value = bytes.saturating_sub(BATCH_BYTES_MIN);
    while 0 < value && bytes < batches::length(1, value) {
        value -= 1;
    }
    batches::uniform(&[&batches::bytes(usize_of(value), seed)], now())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_as_long_as_asked_for() {
        for bytes in [68, 69, 100, 1000, 16_384, 131_072, 1 << 20] {
            let batch = single(bytes, 1);
            let length = u64_of(batch.as_bytes().len());
            assert!(length <= bytes && bytes <= length + 2, "{length} for {bytes}");
        }
    }
}
