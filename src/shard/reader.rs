//! Reads: from an offset to whole batches of one file.
//!
//! The log's index gives the start of a batch at or before the offset and a batch-aligned end; the
//! headers in between, read in small windows, give the very batch. Bytes are read or spliced
//! afterwards, from exactly there.

use bytes::{Bytes, BytesMut};
use tokio::sync::oneshot;

use crate::disk::{DiskError, FileId, Lane, Plan, PlanTag, Step};
use crate::format::batch::{self, BatchHeader, RecordBatch};
use crate::format::codec;
use crate::format::record::RecordsIter;
use crate::format::scan::{self, Scan, Window};
use crate::log::producers::Ended;
use crate::log::{Located, Slice, TimestampScan, TimestampSearch};
use crate::shard::edge;
use crate::shard::engine::{Core, now};
use crate::shard::partition::{Partition, ReadSlice};
use crate::units::{ByteCount, LeaderEpoch, Offset, Position, Timestamp, u64_of, usize_of};

/// How much of a file is read at a time while only headers matter.
const WINDOW_BYTES: u64 = 8 << 10;

/// The owner that reads on behalf of fetches carry; no log has this number.
const READER: u32 = u32::MAX;

/// Why records could not be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReadError {
    /// The log refuses: out of range, or offline.
    #[error(transparent)]
    Log(#[from] crate::log::ReadError),
    /// The file could not be read.
    #[error("reading failed: {0}")]
    Disk(DiskError),
    /// No valid batch stands where one must.
    #[error("no valid batch at position {at}")]
    Corrupt {
        /// Where in the segment's `.log`.
        at: Position,
    },
}

/// A record found by its time.
pub type FoundRecord = (Timestamp, Offset, LeaderEpoch);

impl Partition {
    /// Whole batches from the one that holds `offset` on, at most `bytes_max` bytes of one
    /// segment; with `at_least_one` the first batch comes whatever its size. `None` when nothing
    /// is readable there yet (or the first batch is too large).
    ///
    /// # Errors
    /// [`ReadError::Log`] below the log start and beyond the log end; [`ReadError::Disk`].
    pub async fn locate(
        &self,
        offset: Offset,
        bytes_max: ByteCount,
        at_least_one: bool,
    ) -> Result<Option<ReadSlice>, ReadError> {
        let Some((slice, start, _pin)) = self.start(offset).await? else { return Ok(None) };
        self.cut(&slice, start, (bytes_max, at_least_one)).await
    }

    /// The same for a reader of committed records: no batch from `stable` on, which is a last
    /// stable offset of this partition.
    ///
    /// # Errors
    /// As [`Partition::locate`].
    pub async fn locate_stable(
        &self,
        (offset, stable): (Offset, Offset),
        bytes_max: ByteCount,
        at_least_one: bool,
    ) -> Result<Option<ReadSlice>, ReadError> {
        let Some((mut slice, start, _pin)) = self.start(offset).await? else { return Ok(None) };
        if stable <= offset {
            return Ok(None);
        }
        // The end is a batch's, too: transactions begin with one.
        let ends_here = slice.next_segment.is_none_or(|next| stable < next);
        if ends_here
            && let Some((end, at, _pin)) = self.start(stable).await?
            && end.file == slice.file
        {
            slice.end = slice.end.min(at);
        }
        if slice.end <= start {
            return Ok(None);
        }
        self.cut(&slice, start, (bytes_max, at_least_one)).await
    }

    /// The aborted transactions that a reader of committed records has to leave out of what it
    /// reads from `offset` on in `slice`.
    pub fn aborted_in(&self, offset: Offset, slice: &ReadSlice) -> Vec<Ended> {
        let log = self.cell.log.borrow();
        let end = log.offset_bound((slice.segment, slice.file), slice.at + slice.length);
        log.aborted(offset, end).copied().collect()
    }

    /// What of a segment's readable range, from `start` on, is within the limits.
    async fn cut(
        &self,
        slice: &Slice,
        start: Position,
        limits: (ByteCount, bool),
    ) -> Result<Option<ReadSlice>, ReadError> {
        let whole = slice.end - start;
        let length = if whole <= limits.0 {
            whole
        } else {
            self.aligned_length(slice, start, limits).await?
        };
        if length.0 == 0 {
            return Ok(None);
        }
        Ok(Some(ReadSlice::new(self, (slice.segment, slice.file), start, length)))
    }

    /// The bytes that [`Partition::locate`] names; empty when there are none yet.
    ///
    /// # Errors
    /// As [`Partition::locate`].
    pub async fn read(&self, offset: Offset, bytes_max: ByteCount) -> Result<Bytes, ReadError> {
        match self.locate(offset, bytes_max, true).await? {
            Some(slice) => slice.bytes().await,
            None => Ok(Bytes::new()),
        }
    }

    /// The first record at or after `target` in offset order (`UnifiedLog.fetchOffsetByTimestamp`).
    ///
    /// # Errors
    /// [`ReadError::Disk`], [`ReadError::Corrupt`].
    pub async fn offset_for_timestamp(
        &self,
        target: Timestamp,
    ) -> Result<Option<FoundRecord>, ReadError> {
        loop {
            let search = self.cell.log.borrow_mut().timestamp_search(target)?;
            if let Some(range) = self.searched(search).await? {
                return self.first_at(range, false).await;
            }
        }
    }

    /// The first record with the partition's largest timestamp.
    ///
    /// # Errors
    /// [`ReadError::Disk`], [`ReadError::Corrupt`].
    pub async fn offset_of_max_timestamp(&self) -> Result<Option<FoundRecord>, ReadError> {
        loop {
            let search = self.cell.log.borrow_mut().max_timestamp_search()?;
            if let Some(range) = self.searched(search).await? {
                return self.first_at(range, true).await;
            }
        }
    }

    /// The range that a search names, empty when there is none; `None` when what it needs has just
    /// been loaded and it has to be asked again.
    async fn searched(
        &self,
        search: TimestampSearch,
    ) -> Result<Option<Option<TimestampScan>>, ReadError> {
        match search {
            TimestampSearch::Nothing => return Ok(Some(None)),
            TimestampSearch::Scan(range) => return Ok(Some(Some(range))),
            TimestampSearch::Load(plan) => self.load(plan).await?,
            TimestampSearch::Loading => self.cell.loaded.notified().await,
        }
        Ok(None)
    }

    /// The segment and the start of the batch that holds `offset`, or of the next one behind a gap;
    /// and what keeps the segment's file open meanwhile.
    async fn start(
        &self,
        mut offset: Offset,
    ) -> Result<Option<(Slice, Position, ReadSlice)>, ReadError> {
        loop {
            let Some(slice) = self.slice(offset).await? else { return Ok(None) };
            let pin = self.pin((slice.segment, slice.file));
            if slice.exact {
                return Ok(Some((slice, slice.at, pin)));
            }
            if let Some(start) = self.exact_start(&slice, offset).await? {
                return Ok(Some((slice, start, pin)));
            }
            let Some(next) = slice.next_segment else { return Ok(None) };
            offset = next;
        }
    }

    /// Keeps a segment's file open while it is read: others may load segments meanwhile, and this
    /// one may be the next to go.
    fn pin(&self, (segment, file): (Offset, FileId)) -> ReadSlice {
        ReadSlice::new(self, (segment, file), Position(0), ByteCount(0))
    }

    async fn slice(&self, offset: Offset) -> Result<Option<Slice>, ReadError> {
        loop {
            let located = self.cell.log.borrow_mut().locate(offset)?;
            match located {
                Located::Empty => return Ok(None),
                Located::Load(plan) => self.load(plan).await?,
                Located::Loading => self.cell.loaded.notified().await,
                Located::Slice(slice) => {
                    self.core.sealed.borrow_mut().touch(self.cell.number, slice.segment);
                    return Ok(Some(slice));
                }
            }
        }
    }

    /// Loads a sealed segment's index and opens its file. In a task of its own: others may wait for
    /// the same load, and whoever began it may give up.
    async fn load(&self, plan: Plan) -> Result<(), ReadError> {
        let (running, partition) = (self.core.run(plan), self.clone());
        let (outcome, loaded) = oneshot::channel();
        edge::spawn(async move {
            let finished = running.await;
            let result = finished.result;
            partition.cell.log.borrow_mut().complete(finished, now());
            partition.cell.loaded.notify_waiters();
            partition.unload_beyond_limits();
            // Whoever waited may have given up.
            let _ = outcome.send(result);
        });
        let result = loaded.await.expect("the task lives as long as its runtime");
        result.map_err(|failure| ReadError::Disk(failure.error))
    }

    /// Forgets the least recently read sealed segments of the shard that are over its limits.
    fn unload_beyond_limits(&self) {
        let loaded: Vec<_> = self.cell.log.borrow().loaded().collect();
        let mut sealed = self.core.sealed.borrow_mut();
        for (segment, bytes) in loaded {
            sealed.note(self.cell.number, segment, bytes);
        }
        let victims = sealed.over_limit();
        drop(sealed);
        for (number, segment) in victims {
            self.core.unload(number, segment);
        }
        self.core.enter_and_reap();
    }

    /// Walks headers from the index's floor to the batch that holds `offset`.
    async fn exact_start(
        &self,
        slice: &Slice,
        offset: Offset,
    ) -> Result<Option<Position>, ReadError> {
        let mut walk = HeaderWalk::new(&self.core, slice.file, slice.at, slice.end);
        while let Some((header, at)) = walk.next().await? {
            let last = header.last_offset().ok_or(ReadError::Corrupt { at })?;
            if offset <= last {
                self.cell.log.borrow_mut().note(offset, slice.file, at);
                return Ok(Some(at));
            }
        }
        Ok(None)
    }

    /// The largest length within the limit that ends at a batch's end.
    async fn aligned_length(
        &self,
        slice: &Slice,
        start: Position,
        (bytes_max, at_least_one): (ByteCount, bool),
    ) -> Result<ByteCount, ReadError> {
        let limit = start + bytes_max;
        let floor = self.cell.log.borrow().align_end(slice, start, limit);
        // Behind the last index entry lie a few more whole batches; none is when the index has an
        // entry a batch, so the walk costs one small read.
        let from = floor.max(start);
        let mut walk = HeaderWalk::new(&self.core, slice.file, from, slice.end);
        let mut end = from;
        while let Some((header, at)) = walk.next().await? {
            let next = at + header.size;
            let first = at == start;
            if limit < next && !(first && at_least_one) {
                break;
            }
            end = next;
            if limit <= next {
                break;
            }
        }
        Ok(end - start)
    }

    /// Walks the batches of a range to its record.
    async fn first_at(
        &self,
        range: Option<TimestampScan>,
        only_equal: bool,
    ) -> Result<Option<FoundRecord>, ReadError> {
        let Some(range) = range else { return Ok(None) };
        self.core.sealed.borrow_mut().touch(self.cell.number, range.segment);
        let _pin = self.pin((range.segment, range.file));
        let mut walk = HeaderWalk::new(&self.core, range.file, range.from, range.to);
        while let Some((header, at)) = walk.next().await? {
            let last = header.last_offset().ok_or(ReadError::Corrupt { at })?;
            if header.max_timestamp < range.timestamp || last < range.offset_min {
                continue;
            }
            if only_equal && header.max_timestamp != range.timestamp {
                continue;
            }
            let bytes = self.core.bytes_of(range.file, at, header.size).await?;
            let limit = self.cell.log.borrow().config().decompressed_bytes_max;
            if let Some(found) = first_record(&header, &bytes, &range, (limit, at))? {
                return Ok(Some(found));
            }
            if only_equal {
                // The first batch with the largest timestamp decides, even when none of its
                // records has it (a client's header that lied), as in Kafka.
                return Ok(None);
            }
        }
        Ok(None)
    }

    /// All batches from `offset` to the high watermark, one after the other: for replaying a log
    /// of one's own at start.
    ///
    /// # Errors
    /// As [`Partition::read`]; [`ReadError::Corrupt`] for a batch that is none.
    pub async fn replay(
        &self,
        mut offset: Offset,
        bytes_max: ByteCount,
        mut take: impl FnMut(RecordBatch),
    ) -> Result<Offset, ReadError> {
        loop {
            let bytes = self.read(offset, bytes_max).await?;
            if bytes.is_empty() {
                return Ok(offset);
            }
            let mut rest = BytesMut::from(bytes);
            while !rest.is_empty() {
                let corrupt = ReadError::Corrupt { at: Position(0) };
                let header = BatchHeader::decode(&rest).map_err(|_| corrupt)?;
                let size = usize_of(header.size.0);
                if rest.len() < size {
                    return Err(corrupt);
                }
                let batch = RecordBatch::decode(rest.split_to(size)).map_err(|_| corrupt)?;
                offset = header.last_offset().ok_or(corrupt)? + 1;
                take(batch);
            }
        }
    }
}

impl ReadSlice {
    /// Reads the slice into memory.
    ///
    /// # Errors
    /// [`ReadError::Disk`].
    pub async fn bytes(&self) -> Result<Bytes, ReadError> {
        let bytes = self.core.bytes_of(self.file, self.at, self.length).await?;
        Ok(bytes.freeze())
    }

    /// Reads the slice into `buffer`, whose length is the slice's.
    ///
    /// # Errors
    /// [`ReadError::Disk`].
    ///
    /// # Panics
    /// When the lengths differ.
    pub async fn read_into(&self, buffer: BytesMut) -> Result<BytesMut, ReadError> {
        assert!(u64_of(buffer.len()) == self.length.0);
        self.core.fill(self.file, self.at, buffer).await
    }
}

impl Core {
    async fn bytes_of(
        &self,
        file: FileId,
        at: Position,
        length: ByteCount,
    ) -> Result<BytesMut, ReadError> {
        self.fill(file, at, BytesMut::zeroed(usize_of(length.0))).await
    }

    async fn fill(
        &self,
        file: FileId,
        at: Position,
        bytes: BytesMut,
    ) -> Result<BytesMut, ReadError> {
        let tag = PlanTag { owner: READER, lane: Lane::Read, number: self.read_number() };
        let mut steps = crate::disk::plan::Steps::new();
        steps.push(Step::Read { file, at, bytes });
        let mut finished = self.run(Plan { tag, steps }).await;
        finished.result.map_err(|failure| ReadError::Disk(failure.error))?;
        match finished.plan.steps.pop() {
            Some(Step::Read { bytes, .. }) => Ok(bytes),
            _ => unreachable!("the plan was one read"),
        }
    }
}

/// The first record of a batch that a search by timestamp answers with.
fn first_record(
    header: &BatchHeader,
    bytes: &[u8],
    range: &TimestampScan,
    (limit, at): (ByteCount, Position),
) -> Result<Option<FoundRecord>, ReadError> {
    let corrupt = ReadError::Corrupt { at };
    let kind = header.codec().map_err(|_| corrupt)?;
    let packed = &bytes[batch::HEADER_BYTES..];
    let payload = codec::decompress(kind, packed, limit).map_err(|_| corrupt)?;
    let base = header.base().ok_or(corrupt)?;
    for record in RecordsIter::new(header, &payload) {
        let record = record.map_err(|_| corrupt)?;
        let delta = u64::try_from(record.offset_delta).map_err(|_| corrupt)?;
        let offset = base + delta;
        if range.timestamp <= record.timestamp && range.offset_min <= offset {
            return Ok(Some((record.timestamp, offset, header.leader_epoch)));
        }
    }
    Ok(None)
}

/// Batch headers of a file, one after the other, read in windows.
struct HeaderWalk<'a> {
    core: &'a Core,
    file: FileId,
    at: Position,
    end: Position,
    window: BytesMut,
    window_at: Position,
}

impl<'a> HeaderWalk<'a> {
    fn new(core: &'a Core, file: FileId, at: Position, end: Position) -> HeaderWalk<'a> {
        HeaderWalk { core, file, at, end, window: BytesMut::new(), window_at: at }
    }

    /// The next header and its place; `None` at the end.
    async fn next(&mut self) -> Result<Option<(BatchHeader, Position)>, ReadError> {
        loop {
            let window = Window { bytes: &self.window, at: self.window_at };
            match scan::header_at(window, self.at, self.end) {
                Scan::End => return Ok(None),
                Scan::Batch { header, at, next } => {
                    self.at = next;
                    return Ok(Some((header, at)));
                }
                Scan::NeedMore { .. } => {
                    let length = (self.end - self.at).0.min(WINDOW_BYTES);
                    self.window = self.core.bytes_of(self.file, self.at, ByteCount(length)).await?;
                    self.window_at = self.at;
                }
                Scan::Invalid(_) => return Err(ReadError::Corrupt { at: self.at }),
            }
        }
    }
}
