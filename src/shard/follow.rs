//! Following a partition: its batches one after the other, waiting for more at the end.

use bytes::BytesMut;

use crate::format::batch::{BatchHeader, RecordBatch};
use crate::shard::partition::Partition;
use crate::shard::reader::ReadError;
use crate::units::{ByteCount, Offset, Position, usize_of};

/// How much is read at a time, but for a batch that is larger.
const READ_BYTES: ByteCount = ByteCount(1 << 20);

/// A reader that goes on for ever; made by [`Partition::follow`].
pub struct Follow {
    partition: Partition,
    /// First offset that has not been handed out.
    next: Offset,
    /// Whole batches that were read and not handed out.
    read: BytesMut,
}

impl Partition {
    /// Follows the partition from the batch that holds `offset` on. The end is no end: there
    /// [`Follow::next`] waits until more is visible, which is when its appender is answered.
    pub fn follow(&self, offset: Offset) -> Follow {
        Follow { partition: self.clone(), next: offset, read: BytesMut::new() }
    }
}

impl Follow {
    /// The next batch, as soon as there is one. The first may begin before the offset asked for,
    /// since a batch is never split.
    ///
    /// # Errors
    /// As [`Partition::read`]: also when the partition stops serving, or when retention has
    /// overtaken this reader. The next call tries the same offset again.
    pub async fn next(&mut self) -> Result<RecordBatch, ReadError> {
        let mut beyond = self.next;
        while self.read.is_empty() {
            self.partition.changed(beyond).await;
            // Should nothing stand there up to the high watermark, more is waited for.
            beyond = beyond.max(self.partition.cursors().high_watermark);
            self.read = self.partition.read(self.next, READ_BYTES).await?.into();
        }
        let batch = take_batch(&mut self.read)?;
        let last = batch.header().last_offset().ok_or(UNREADABLE)?;
        self.next = Offset(last.0 + 1);
        Ok(batch)
    }

    /// The first offset of the next batch, or one before it where offsets are missing.
    pub fn position(&self) -> Offset {
        self.next
    }
}

const UNREADABLE: ReadError = ReadError::Corrupt { at: Position(0) };

/// Splits the first batch off. What can't be read is dropped, so that the next call reads anew.
fn take_batch(read: &mut BytesMut) -> Result<RecordBatch, ReadError> {
    let size = BatchHeader::decode(read).map(|header| usize_of(header.size.0));
    let bytes = match size {
        Ok(size) if size <= read.len() => read.split_to(size),
        _ => std::mem::take(read),
    };
    RecordBatch::decode(bytes).map_err(|_| {
        read.clear();
        UNREADABLE
    })
}
