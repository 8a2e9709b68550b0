//! A consumer of one partition, as far as its position goes.

use uringlog::format::batch::BatchHeader;
use uringlog::{ByteCount, Offset, Partition, ReadError};

use crate::experiments::Failure;
use crate::experiments::measure::usize_of;

/// What one look at the log takes at most.
const FETCH_BYTES: ByteCount = ByteCount(1 << 20);

/// Holds the offset of the record that it gets next.
pub struct Consumer {
    partition: Partition,
    /// The position.
    pub position: u64,
    /// How often it lagged so far behind that its next record was gone.
    pub resets: u64,
}

impl Consumer {
    /// At the log start.
    pub fn new(partition: &Partition) -> Consumer {
        let position = partition.cursors().log_start.0;
        Consumer { partition: partition.clone(), position, resets: 0 }
    }

    /// Fetches once and takes at most so many records; gives how many it got. Behind the log start
    /// it goes on from there.
    ///
    /// # Errors
    /// Whatever else the log refuses.
    pub async fn take(&mut self, most: u64) -> Result<u64, Failure> {
        let read = self.partition.read(Offset(self.position), FETCH_BYTES).await;
        let records = match read {
            Ok(records) => records,
            Err(ReadError::Log(uringlog::log::ReadError::OffsetOutOfRange { .. }))
                if self.position < self.partition.cursors().log_start.0 =>
            {
                self.resets += 1;
                self.position = self.partition.cursors().log_start.0;
                return Ok(0);
            }
            Err(error) => return Err(error.into()),
        };
        let end = end_of(&records)?.unwrap_or(self.position);
        let taken = end.saturating_sub(self.position).min(most);
        self.position += taken;
        Ok(taken)
    }
}

/// The offset behind the last whole batch; `None` when there is none. Nothing is compacted, so that
/// every offset between two is that of a record.
///
/// # Errors
/// Bytes that are no batch.
pub fn end_of(mut records: &[u8]) -> Result<Option<u64>, Failure> {
    let mut end = None;
    while !records.is_empty() {
        let header = BatchHeader::decode(records)
            .map_err(|error| Failure::Wrong(format!("what was read is no batch: {error}")))?;
        let Some((_, rest)) = records.split_at_checked(usize_of(header.size.0)) else { break };
        records = rest;
        end = header.last_offset().map(|it| it.0 + 1).or(end);
    }
    Ok(end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engines::batches;
    use uringlog::{LeaderEpoch, Timestamp};

    fn batch(base: u64, records: usize) -> Vec<u8> {
        let mut batch = batches::uniform(&vec![&b"x"[..]; records], Timestamp(1));
        batch.assign(Offset(base), LeaderEpoch(0));
        batch.as_bytes().to_vec()
    }

    #[test]
    fn a_fetch_ends_behind_its_last_whole_batch() {
        let both = [batch(5, 3), batch(8, 2)].concat();
        assert_eq!(end_of(&both).expect("batches"), Some(10));
        assert_eq!(end_of(&both[..both.len() - 1]).expect("batches"), Some(8));
        assert_eq!(end_of(&[]).expect("nothing"), None);
        end_of(&[0; 100]).expect_err("no batch");
    }
}
