//! From batch to batch through a `.log` file, as `FileLogInputStream` goes: whatever the batches
//! hold. For the tools that look at files without a server.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, SeekFrom, seek};
use rustix::io::Errno;

use crate::format::batch::{BatchHeader, HEADER_BYTES};
use crate::format::compact::{CompactError, Reader};
use crate::units::{
    ByteCount, LeaderEpoch, ProducerEpoch, ProducerId, Sequence, Timestamp, u64_of, usize_of,
};

/// Why a file can't be read on.
#[derive(Debug, thiserror::Error)]
pub enum LogFileError {
    /// The system doesn't let us.
    #[error("cannot read {}: {error}", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// As the system says.
        error: io::Error,
    },
    /// No batch begins where one should.
    #[error("{}: {what}", path.display())]
    Corrupt {
        /// Which file.
        path: PathBuf,
        /// What is wrong and where.
        what: String,
    },
}

impl LogFileError {
    /// A fault of this file.
    pub fn corrupt(path: &Path, what: impl ToString) -> LogFileError {
        LogFileError::Corrupt { path: path.to_owned(), what: what.to_string() }
    }

    /// For what reading returns.
    pub fn read(path: &Path) -> impl FnOnce(io::Error) -> LogFileError {
        |error| LogFileError::Read { path: path.to_owned(), error }
    }
}

/// Largest file of a log directory but for `.log` files of more, which are never read whole:
/// positions in a segment are of 31 bits, and so are sizes of indexes.
const WHOLE_BYTES_MAX: u64 = 1 << 31;

/// A file, read whole: of its holes, which a running broker's indexes mostly are, nothing is read.
///
/// # Errors
/// As the system says, or `FileTooLarge` above 2 GiB: no file that a broker writes is, so that a
/// sparse or foreign one doesn't take the memory.
pub fn read_whole(path: &Path) -> io::Result<Vec<u8>> {
    let (file, length) = open_regular(path)?;
    if WHOLE_BYTES_MAX < length {
        let what = format!("{length} bytes: a file of this kind has 2 GiB at most");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, what));
    }
    let mut bytes = vec![0; usize_of(length)];
    let mut from = 0;
    while let Some((start, end)) = written(&file, from, length)? {
        let mut at = usize_of(start);
        let end = usize_of(end.min(length));
        while at < end {
            match file.read_at(&mut bytes[at..end], u64_of(at))? {
                // Somebody cut it off meanwhile.
                0 => {
                    bytes.truncate(at);
                    return Ok(bytes);
                }
                count => at += count,
            }
        }
        from = u64_of(end);
    }
    Ok(bytes)
}

/// The next bytes of the file that were written, from a position on: where they begin and end.
///
/// # Errors
/// As the system says.
pub fn written(file: &File, from: u64, length: u64) -> io::Result<Option<(u64, u64)>> {
    if length <= from {
        return Ok(None);
    }
    match seek(file, SeekFrom::Data(from)) {
        Ok(start) => Ok(Some((start, seek(file, SeekFrom::Hole(start))?))),
        Err(Errno::NXIO) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Opens a file, and says how long it is. Only what holds bytes by itself: a pipe would be waited
/// for, and a device has no end.
///
/// # Errors
/// As the system says, or `InvalidInput`.
pub fn open_regular(path: &Path) -> io::Result<(File, u64)> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
    }
    Ok((file, metadata.len()))
}

/// Bytes read at once.
const WINDOW_BYTES: u64 = 4 << 20;
/// The same where batches are lent to others: small enough to be in a cache still when they are
/// looked at.
const LENT_WINDOW_BYTES: u64 = 512 << 10;
/// Largest batch that is lent. Of larger ones each head is read by itself.
const LENT_BYTES_MAX: u64 = 64 << 10;
/// Offset, size, CRC and magic, which every format begins with.
const HEAD_BYTES: u64 = 17;
/// Offset and size, which the size doesn't count.
const OVERHEAD_BYTES: u64 = 12;
/// Smallest size of any format.
const SIZE_MIN: i32 = 14;
/// Where the bytes begin that the CRC covers.
pub const CRC_FROM: usize = 21;
/// Where a batch of format 2 says how far its last offset is from its first.
pub const LAST_OFFSET_DELTA_AT: u64 = 23;

/// Bytes of a file that are in memory.
#[derive(Clone, Default, Debug)]
pub struct Window {
    /// What they are.
    pub bytes: Arc<Vec<u8>>,
    /// Where in the file the first one is.
    pub at: u64,
}

/// A `.log` file and the part of it that was read last.
#[derive(Debug)]
pub struct LogFile {
    path: PathBuf,
    file: Arc<File>,
    length: u64,
    window: Window,
    /// Whether batches are lent, and only their heads looked at here.
    lends: bool,
    /// Former windows, which others may still have.
    lent: Vec<Arc<Vec<u8>>>,
    /// Of the batch that was found last.
    last_size: u64,
}

/// Where a batch lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Found {
    /// Its first byte.
    pub at: u64,
    /// Its bytes.
    pub size: u64,
    /// Format: 0 and 1 of Kafka before 0.11, 2 since.
    pub magic: i8,
    /// First field of the batch: its first offset, or in the old formats its last.
    pub offset: i64,
}

impl Found {
    /// The byte behind it.
    pub fn end(&self) -> u64 {
        self.at + self.size
    }
}

impl LogFile {
    /// Opens the file, whose length is taken now: others may append to it meanwhile.
    ///
    /// # Errors
    /// [`LogFileError::Read`].
    pub fn open(path: &Path) -> Result<LogFile, LogFileError> {
        let (file, length) = open_regular(path).map_err(LogFileError::read(path))?;
        Ok(LogFile {
            path: path.to_owned(),
            file: Arc::new(file),
            length,
            window: Window::default(),
            lends: false,
            lent: Vec::new(),
            last_size: 0,
        })
    }

    /// Bytes of the file.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Its name as it was given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// For others who read it, too.
    pub fn shared(&self) -> Arc<File> {
        self.file.clone()
    }

    /// From now on the heads of batches are what is looked at here: of large batches nothing else
    /// is read, small ones can be [lent](LogFile::lend).
    pub fn read_heads(&mut self) {
        self.lends = true;
    }

    /// The part of the file that holds all of this batch, for others to read; `None` when the batch
    /// is large, and better read where it is looked at. The window stays the same over many
    /// batches.
    ///
    /// # Errors
    /// [`LogFileError::Read`].
    pub fn lend(&mut self, found: Found) -> Result<Option<&Window>, LogFileError> {
        if LENT_BYTES_MAX < found.size {
            return Ok(None);
        }
        self.bytes(found.at, found.size)?;
        Ok(Some(&self.window))
    }

    /// Bytes to read when some are wanted that aren't at hand.
    fn window_bytes(&self) -> u64 {
        match self.lends {
            false => WINDOW_BYTES,
            true if self.last_size <= LENT_BYTES_MAX => LENT_WINDOW_BYTES,
            true => u64_of(HEADER_BYTES),
        }
    }

    /// A window that nobody else has.
    fn free_window(&mut self) -> &mut Vec<u8> {
        if Arc::strong_count(&self.window.bytes) != 1 {
            let free = self.lent.iter().position(|window| Arc::strong_count(window) == 1);
            let next = free.map_or_else(Arc::default, |place| self.lent.swap_remove(place));
            self.lent.push(std::mem::replace(&mut self.window.bytes, next));
        }
        Arc::get_mut(&mut self.window.bytes).expect("it was looked for")
    }

    /// So many bytes of the file; they are there.
    ///
    /// # Errors
    /// [`LogFileError::Read`].
    pub fn bytes(&mut self, at: u64, count: u64) -> Result<&[u8], LogFileError> {
        let window_end = self.window.at + u64_of(self.window.bytes.len());
        if at < self.window.at || window_end < at + count {
            let wanted = count.max(self.window_bytes()).min(self.length - at);
            let file = self.file.clone();
            let window = self.free_window();
            window.resize(usize_of(wanted), 0);
            let read = file.read_exact_at(window, at);
            self.window.at = at;
            read.map_err(LogFileError::read(&self.path))?;
        }
        let from = usize_of(at - self.window.at);
        Ok(&self.window.bytes[from..from + usize_of(count)])
    }

    /// Where the next bytes lie that were ever written, from `at` on; `None` when there are none.
    ///
    /// # Errors
    /// [`LogFileError::Read`].
    pub fn next_data(&self, at: u64) -> Result<Option<u64>, LogFileError> {
        if self.length <= at {
            return Ok(None);
        }
        match rustix::fs::seek(&self.file, rustix::fs::SeekFrom::Data(at)) {
            Ok(found) => Ok((found < self.length).then_some(found)),
            // Nothing but a hole follows.
            Err(rustix::io::Errno::NXIO) => Ok(None),
            Err(error) => Err(LogFileError::read(&self.path)(error.into())),
        }
    }

    /// The batch at `at`; `None` where less than a whole one is left before `end`.
    ///
    /// # Errors
    /// [`LogFileError::Read`]; [`LogFileError::Corrupt`] where the size is that of no batch.
    pub fn batch(&mut self, at: u64, end: u64) -> Result<Option<Found>, LogFileError> {
        if end.saturating_sub(HEAD_BYTES) <= at {
            return Ok(None);
        }
        let mut head = Reader::new(self.bytes(at, HEAD_BYTES)?);
        let fields = |head: &mut Reader<'_>| {
            let (offset, size) = (head.i64()?, head.i32()?);
            head.i32()?;
            Ok::<_, CompactError>((offset, size, head.i8()?))
        };
        let (offset, size, magic) = fields(&mut head).expect("17 bytes hold them");
        if size < SIZE_MIN {
            let what = format!(
                "Found record size {size} smaller than minimum record overhead ({SIZE_MIN}) at \
                 position {at}"
            );
            return Err(LogFileError::corrupt(&self.path, what));
        }
        let size = u64::from(size.unsigned_abs()) + OVERHEAD_BYTES;
        self.last_size = size;
        Ok((size <= end - at).then_some(Found { at, size, magic, offset }))
    }

    /// The header of a batch of format 2 (or of one that says to be newer, which Kafka reads as
    /// such) and whether its CRC holds.
    ///
    /// # Errors
    /// [`LogFileError::Read`]; [`LogFileError::Corrupt`] when the file ends before a header would.
    pub fn header(&mut self, found: Found) -> Result<(BatchHeader, bool), LogFileError> {
        let header = self.head(found)?;
        let covered = self.bytes(found.at, found.size)?;
        let is_valid =
            HEADER_BYTES <= covered.len() && crc32c::crc32c(&covered[CRC_FROM..]) == header.crc;
        Ok((header, is_valid))
    }

    /// The same without the CRC.
    ///
    /// # Errors
    /// As [`LogFile::header`].
    pub fn head(&mut self, found: Found) -> Result<BatchHeader, LogFileError> {
        if self.length - found.at < u64_of(HEADER_BYTES) {
            let what = format!("the batch at position {} is shorter than its header", found.at);
            return Err(LogFileError::corrupt(&self.path, what));
        }
        let bytes = self.bytes(found.at, u64_of(HEADER_BYTES))?;
        Ok(header_of(bytes).expect("61 bytes hold a header"))
    }
}

/// The fields of a header, whatever they are.
fn header_of(bytes: &[u8]) -> Result<BatchHeader, CompactError> {
    let mut reader = Reader::new(bytes);
    let base_offset = reader.i64()?;
    let size = ByteCount(u64::from(reader.i32()?.unsigned_abs()) + OVERHEAD_BYTES);
    let leader_epoch = LeaderEpoch(reader.i32()?);
    reader.i8()?;
    Ok(BatchHeader {
        base_offset,
        size,
        leader_epoch,
        crc: u32::from_be_bytes(reader.array()?),
        attributes: reader.i16()?,
        last_offset_delta: reader.i32()?,
        base_timestamp: Timestamp(reader.i64()?),
        max_timestamp: Timestamp(reader.i64()?),
        producer_id: ProducerId(reader.i64()?),
        producer_epoch: ProducerEpoch(reader.i16()?),
        base_sequence: Sequence(reader.i32()?),
        record_count: reader.i32()?,
    })
}
