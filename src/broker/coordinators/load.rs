//! Reading a partition of an internal topic into its coordinator.

use crate::coordinator::{Coordinator, Entry, Origin};
use crate::format::batch::RecordBatch;
use crate::format::codec;
use crate::format::record::RecordsIter;
use crate::log::LogState;
use crate::shard::{Partition, ReadError};
use crate::units::ByteCount;

/// How much of the log is read at a time.
const LOAD_BYTES: ByteCount = ByteCount(1 << 20);

/// Most bytes of one batch's records when they are decompressed.
const DECOMPRESSED_BYTES_MAX: ByteCount = ByteCount(128 << 20);

/// Records that can't be read and are named one by one; the rest is counted.
const NAMED_MAX: u64 = 10;

/// Why a partition can't be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The log is offline.
    #[error("the partition is offline")]
    Offline,
    /// The log can't be read.
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// The coordinator as the log's durable records make it.
///
/// # Errors
/// [`LoadError`]; trying again may help.
pub async fn load<C: Coordinator>(
    partition: &Partition,
    settings: &C::Settings,
) -> Result<C, LoadError> {
    // What was appended before is over first, however it ends: nothing may become visible behind
    // the reading.
    let _ = partition.reached(partition.cursors().next).await;
    if matches!(partition.state(), LogState::Offline(_)) {
        return Err(LoadError::Offline);
    }
    let mut loading = Loading { coordinator: C::new(settings), unreadable: 0 };
    let start = partition.cursors().log_start;
    partition.replay(start, LOAD_BYTES, |batch| loading.take(partition, &batch)).await?;
    if loading.unreadable > NAMED_MAX {
        let (count, place) = (loading.unreadable, partition.directory().display());
        tracing::error!("{place}: {count} records can't be read; they are passed over");
    }
    Ok(loading.coordinator)
}

struct Loading<C> {
    coordinator: C,
    unreadable: u64,
}

impl<C: Coordinator> Loading<C> {
    fn take(&mut self, partition: &Partition, batch: &RecordBatch) {
        if let Err((offset, error)) = self.replay(batch) {
            self.unreadable += 1;
            if self.unreadable <= NAMED_MAX {
                let place = partition.directory().display();
                tracing::error!("{place}: offset {offset}: {error}; it is passed over");
            }
        }
    }

    /// Fails with the last record that can't be read, after all others were taken.
    fn replay(&mut self, batch: &RecordBatch) -> Result<(), (i64, String)> {
        let header = batch.header();
        let base = header.base_offset;
        let damaged = |error: String| (base, error);
        let codec = header.codec().map_err(|error| damaged(error.to_string()))?;
        let payload = codec::decompress(codec, batch.payload(), DECOMPRESSED_BYTES_MAX);
        let payload = payload.map_err(|error| damaged(error.to_string()))?;
        let mut outcome = Ok(());
        for record in RecordsIter::new(header, &payload) {
            let record = record.map_err(|error| damaged(error.to_string()))?;
            let offset = base + i64::from(record.offset_delta);
            let Some(key) = record.key else { continue };
            if header.is_control() {
                if let Some(commits) = marker_of(key) {
                    self.coordinator.replay_marker(header.producer_id, commits);
                }
                continue;
            }
            let origin = match header.is_transactional() {
                true => Origin::Transaction(header.producer_id),
                false => Origin::Own,
            };
            let replayed =
                self.coordinator.replay(Entry { key, value: record.value, origin, offset });
            if let Err(error) = replayed {
                outcome = Err((offset, error.to_string()));
            }
        }
        outcome
    }
}

/// Whether a control record commits a transaction; `None` when it doesn't end one.
fn marker_of(key: &[u8]) -> Option<bool> {
    match key {
        [_, _, 0, 0, ..] => Some(false),
        [_, _, 0, 1, ..] => Some(true),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_end_transactions_and_other_control_records_do_not() {
        assert_eq!(marker_of(&[0, 0, 0, 0]), Some(false));
        assert_eq!(marker_of(&[0, 0, 0, 1]), Some(true));
        assert_eq!(marker_of(&[0, 0, 0, 2]), None);
        assert_eq!(marker_of(&[0]), None);
    }
}
