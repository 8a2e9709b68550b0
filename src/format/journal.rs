//! The commit journal of a shard, as its file holds it: two superblocks, then records.
//!
//! ```text
//! block 0, 1   superblock, two copies written in turn: generation g stands in block g mod 2
//! block 2 ..   records in a circle, each from a block boundary on, padded with zeros to the next
//!
//! superblock   0  magic "uringJNL"        8  version u32 (1)     12  CRC-32C u32 of [16, 512)
//!             16  generation u64         24  nonce u64           32  directory id, 16 bytes
//!             48  length of the file u64 56  shard u32
//!
//! record       0  magic u32              4  CRC-32C u32 of [8, length)
//!              8  length u32, without the padding                12  entries u32
//!             16  generation u64         24  nonce u64
//!             32  sequence u64           40  tail u64: first sequence that is still needed
//!             48  entries, one after the other
//!
//! entry        0  kind u8                1  zero, 3 bytes         4  length of the payload u32
//!              8  topic id, 16 bytes     24  partition u32        28  leader epoch i32
//!             32  first offset u64       40  segment u64          48  position u64
//!             56  payload
//! ```
//!
//! All numbers are big-endian, as in Kafka's own files. An entry of kind 1 (data) carries batches
//! as they stand in `.log`: of which segment (base offset), from which position on. One of kind 2
//! (void) takes back what earlier records have of its partition at its first offset and beyond;
//! the rest of it is zero.
//!
//! A record counts when magic, generation, nonce and checksum are right. The generation grows with
//! each restart of the journal, so records of former rounds mean nothing; the nonce is drawn at
//! random then, so that no client can send a batch that looks like a record.

use crate::format::properties::DirectoryId;
use crate::units::{
    ByteCount, LeaderEpoch, Offset, PartitionId, Position, TopicId, u64_of, usize_of,
};

/// What the file is written in, and aligned to.
pub const BLOCK_BYTES: usize = 4096;
/// Where records begin: behind both superblocks.
pub const RECORDS_START: u64 = 2 * 4096;
/// The version that this code reads and writes.
pub const VERSION: u32 = 1;
/// Suffix of a journal's file in the data directory.
pub const SUFFIX: &str = ".journal";
/// Bytes of a record before its entries.
pub const RECORD_HEADER_BYTES: usize = 48;
/// Bytes of an entry before its payload.
pub const ENTRY_HEADER_BYTES: usize = 56;

const SUPERBLOCK_MAGIC: [u8; 8] = *b"uringJNL";
/// One sector: devices write it whole or not at all.
const SUPERBLOCK_BYTES: usize = 512;
const SUPERBLOCK_CHECKED_FROM: usize = 16;
const RECORD_MAGIC: u32 = 0x754a_524e;
const RECORD_CHECKED_FROM: usize = 8;
const KIND_DATA: u8 = 1;
const KIND_VOID: u8 = 2;

/// Name of a shard's journal in the data directory. A plain file: Kafka takes every directory there
/// for a partition.
pub fn file_name(shard: u32) -> String {
    format!("shard-{shard}{SUFFIX}")
}

/// The shard whose journal has this name.
pub fn shard_of(name: &str) -> Option<u32> {
    let number = name.strip_prefix("shard-")?.strip_suffix(SUFFIX)?;
    let shard = number.parse().ok()?;
    (file_name(shard) == name).then_some(shard)
}

/// One round of a journal's life: records of others are not its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Generation {
    /// Grows with each restart.
    pub number: u64,
    /// Drawn at random with each restart.
    pub nonce: u64,
}

/// What stands at the beginning of the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Superblock {
    /// The round that is on.
    pub generation: Generation,
    /// Id of the data directory that the journal belongs to.
    pub directory: DirectoryId,
    /// Length of the file.
    pub length: ByteCount,
    /// Whose journal it is.
    pub shard: u32,
}

/// Why bytes are no superblock of ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SuperblockError {
    /// Fewer bytes than a superblock has, or another magic.
    #[error("it doesn't begin as a journal does")]
    Magic,
    /// Another version.
    #[error("it has version {0}, this program knows version {VERSION}")]
    Version(u32),
    /// The checksum is wrong.
    #[error("its first blocks are damaged")]
    Checksum,
}

impl Superblock {
    /// The block that this superblock is written to, counted from 0.
    pub fn block(&self) -> u64 {
        self.generation.number % 2
    }

    /// The whole block.
    pub fn encode(&self) -> [u8; BLOCK_BYTES] {
        let mut block = [0; BLOCK_BYTES];
        block[..8].copy_from_slice(&SUPERBLOCK_MAGIC);
        put(&mut block, 8, &VERSION.to_be_bytes());
        put(&mut block, 16, &self.generation.number.to_be_bytes());
        put(&mut block, 24, &self.generation.nonce.to_be_bytes());
        put(&mut block, 32, &self.directory.0);
        put(&mut block, 48, &self.length.0.to_be_bytes());
        put(&mut block, 56, &self.shard.to_be_bytes());
        let crc = crc32c::crc32c(&block[SUPERBLOCK_CHECKED_FROM..SUPERBLOCK_BYTES]);
        put(&mut block, 12, &crc.to_be_bytes());
        block
    }

    /// Reads one copy.
    ///
    /// # Errors
    /// [`SuperblockError`].
    pub fn decode(block: &[u8]) -> Result<Superblock, SuperblockError> {
        let Some(block) = block.get(..SUPERBLOCK_BYTES) else { return Err(SuperblockError::Magic) };
        if block[..8] != SUPERBLOCK_MAGIC {
            return Err(SuperblockError::Magic);
        }
        let version = u32_at(block, 8);
        if version != VERSION {
            return Err(SuperblockError::Version(version));
        }
        if crc32c::crc32c(&block[SUPERBLOCK_CHECKED_FROM..]) != u32_at(block, 12) {
            return Err(SuperblockError::Checksum);
        }
        Ok(Superblock {
            generation: Generation { number: u64_at(block, 16), nonce: u64_at(block, 24) },
            directory: DirectoryId(bytes_at(block, 32)),
            length: ByteCount(u64_at(block, 48)),
            shard: u32_at(block, 56),
        })
    }

    /// The newer of the copies at the beginning of a file that can be read. When one can't, it may
    /// be the newer one ([`Superblock::is_doubtful`]).
    ///
    /// # Errors
    /// When neither can be read, and when one is of another version.
    pub fn newest(head: &[u8]) -> Result<Superblock, SuperblockError> {
        let first = Superblock::decode(head);
        let second = Superblock::decode(head.get(BLOCK_BYTES..).unwrap_or_default());
        match (first, second) {
            (Err(error @ SuperblockError::Version(_)), _)
            | (_, Err(error @ SuperblockError::Version(_))) => Err(error),
            (Ok(a), Ok(b)) if a.generation.number < b.generation.number => Ok(b),
            (Ok(a), _) => Ok(a),
            (_, Ok(b)) => Ok(b),
            // Neither is ours: no journal at all.
            (Err(SuperblockError::Magic), Err(error)) | (Err(error), Err(_)) => Err(error),
        }
    }

    /// Whether a copy is neither whole nor blank, as it is until it is written the first time: the
    /// start of a round that a crash has cut short, or damage.
    pub fn is_doubtful(head: &[u8]) -> bool {
        let is_wrong = |at: usize| {
            let copy = head.get(at..).unwrap_or_default();
            Superblock::decode(copy).is_err() && !is_blank(head, at)
        };
        is_wrong(0) || is_wrong(BLOCK_BYTES)
    }
}

fn is_blank(head: &[u8], at: usize) -> bool {
    let copy = head.get(at..at + SUPERBLOCK_BYTES);
    copy.is_some_and(|copy| copy.iter().all(|byte| *byte == 0))
}

/// Which partition an entry is about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PartitionName {
    /// Of its topic.
    pub topic: TopicId,
    /// Its number in the topic.
    pub partition: PartitionId,
}

/// What an entry says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Entry<'a> {
    /// Batches, and where they stand.
    Data(Data<'a>),
    /// Earlier entries of the partition count no more.
    Void(Void),
}

/// Batches as they stand in one segment's `.log`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Data<'a> {
    /// Which partition.
    pub name: PartitionName,
    /// The epoch that the first batch is stamped with.
    pub epoch: LeaderEpoch,
    /// Offset of the first record.
    pub first: Offset,
    /// Base offset of the segment.
    pub segment: Offset,
    /// Where the first batch begins in the segment's `.log`.
    pub at: Position,
    /// The batches.
    pub bytes: &'a [u8],
}

/// Takes back what earlier records have of a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Void {
    /// Which partition.
    pub name: PartitionName,
    /// Entries that begin at this offset or beyond.
    pub from: Offset,
}

/// What a record says about itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordHeader {
    /// The round that it belongs to.
    pub generation: Generation,
    /// Its number: the one before plus one.
    pub sequence: u64,
    /// First record that is still needed: all files that earlier ones cover were synced.
    pub tail: u64,
}

/// Fills a record's memory, entry after entry.
#[derive(Debug)]
pub struct RecordBuilder {
    length: usize,
    entries: u32,
}

impl Default for RecordBuilder {
    /// A record without entries.
    fn default() -> RecordBuilder {
        RecordBuilder { length: RECORD_HEADER_BYTES, entries: 0 }
    }
}

impl RecordBuilder {
    /// How many entries there are.
    pub fn entries(&self) -> u32 {
        self.entries
    }

    /// Bytes that the record takes in the file if `more` are added to it.
    pub fn padded_length(&self, more: usize) -> usize {
        (self.length + more).next_multiple_of(BLOCK_BYTES)
    }

    /// Adds batches; `parts` are them, in order, and stand for `data.bytes`.
    ///
    /// # Panics
    /// When the memory is too short.
    pub fn data<'p>(
        &mut self,
        memory: &mut [u8],
        data: Data<'_>,
        parts: impl Iterator<Item = &'p [u8]>,
    ) {
        let from = self.length;
        let mut end = from + ENTRY_HEADER_BYTES;
        for part in parts {
            memory[end..end + part.len()].copy_from_slice(part);
            end += part.len();
        }
        let payload = end - from - ENTRY_HEADER_BYTES;
        let Data { name, epoch, first, segment, at, .. } = data;
        let head = EntryHead { kind: KIND_DATA, name, epoch, first, segment, at };
        head.encode(&mut memory[from..], payload);
        self.length = end;
        self.entries += 1;
    }

    /// Adds a void.
    ///
    /// # Panics
    /// When the memory is too short.
    pub fn void(&mut self, memory: &mut [u8], void: Void) {
        let Void { name, from } = void;
        let head = EntryHead {
            kind: KIND_VOID,
            name,
            epoch: LeaderEpoch::NONE,
            first: from,
            segment: Offset(0),
            at: Position(0),
        };
        head.encode(&mut memory[self.length..], 0);
        self.length += ENTRY_HEADER_BYTES;
        self.entries += 1;
    }

    /// Completes the record; returns the bytes that it takes in the file, padding included.
    pub fn finish(self, memory: &mut [u8], header: RecordHeader) -> usize {
        let padded = self.padded_length(0);
        memory[self.length..padded].fill(0);
        let length = u32::try_from(self.length).expect("a record is shorter than 4 GiB");
        put(memory, 0, &RECORD_MAGIC.to_be_bytes());
        put(memory, 8, &length.to_be_bytes());
        put(memory, 12, &self.entries.to_be_bytes());
        put(memory, 16, &header.generation.number.to_be_bytes());
        put(memory, 24, &header.generation.nonce.to_be_bytes());
        put(memory, 32, &header.sequence.to_be_bytes());
        put(memory, 40, &header.tail.to_be_bytes());
        let crc = crc32c::crc32c(&memory[RECORD_CHECKED_FROM..self.length]);
        put(memory, 4, &crc.to_be_bytes());
        padded
    }
}

struct EntryHead {
    kind: u8,
    name: PartitionName,
    epoch: LeaderEpoch,
    first: Offset,
    segment: Offset,
    at: Position,
}

impl EntryHead {
    fn encode(&self, memory: &mut [u8], payload: usize) {
        let length = u32::try_from(payload).expect("a record is shorter than 4 GiB");
        put(memory, 0, &[self.kind, 0, 0, 0]);
        put(memory, 4, &length.to_be_bytes());
        put(memory, 8, &self.name.topic.0);
        put(memory, 24, &self.name.partition.0.to_be_bytes());
        put(memory, 28, &self.epoch.0.to_be_bytes());
        put(memory, 32, &self.first.0.to_be_bytes());
        put(memory, 40, &self.segment.0.to_be_bytes());
        put(memory, 48, &self.at.0.to_be_bytes());
    }
}

/// A record that counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    /// What it says about itself.
    pub header: RecordHeader,
    entries: &'a [u8],
}

impl<'a> Record<'a> {
    /// The record at the start of `bytes`, if one of this generation stands there whole.
    pub fn parse(bytes: &'a [u8], generation: Generation) -> Option<Record<'a>> {
        let head = bytes.get(..RECORD_HEADER_BYTES)?;
        let found = Generation { number: u64_at(head, 16), nonce: u64_at(head, 24) };
        if u32_at(head, 0) != RECORD_MAGIC || found != generation {
            return None;
        }
        let length = usize::try_from(u32_at(head, 8)).ok()?;
        let record = bytes.get(..length).filter(|_| RECORD_HEADER_BYTES <= length)?;
        if crc32c::crc32c(&record[RECORD_CHECKED_FROM..]) != u32_at(head, 4) {
            return None;
        }
        let header =
            RecordHeader { generation, sequence: u64_at(head, 32), tail: u64_at(head, 40) };
        let record = Record { header, entries: &record[RECORD_HEADER_BYTES..] };
        // The checksum says that we wrote it: then its entries are right, too.
        let count = record.entries().count();
        (u64::from(u32_at(head, 12)) == u64_of(count)).then_some(record)
    }

    /// The round of the record at the start of `bytes`, whichever it is, if one stands there whole.
    pub fn generation_at(bytes: &[u8]) -> Option<Generation> {
        let head = bytes.get(..RECORD_HEADER_BYTES)?;
        let generation = Generation { number: u64_at(head, 16), nonce: u64_at(head, 24) };
        Record::parse(bytes, generation).map(|_| generation)
    }

    /// Bytes that it takes in the file.
    pub fn padded_length(&self) -> u64 {
        u64_of((RECORD_HEADER_BYTES + self.entries.len()).next_multiple_of(BLOCK_BYTES))
    }

    /// Its entries, in order; ends early at one that makes no sense.
    pub fn entries(&self) -> impl Iterator<Item = Entry<'a>> + use<'a> {
        let mut rest = self.entries;
        std::iter::from_fn(move || {
            let head = rest.get(..ENTRY_HEADER_BYTES)?;
            let payload = usize_of(u64::from(u32_at(head, 4)));
            let end = ENTRY_HEADER_BYTES.checked_add(payload)?;
            let bytes = rest.get(ENTRY_HEADER_BYTES..end)?;
            rest = &rest[end..];
            decode_entry(head, bytes)
        })
    }
}

fn decode_entry<'a>(head: &[u8], bytes: &'a [u8]) -> Option<Entry<'a>> {
    let topic = TopicId(bytes_at(head, 8));
    let name = PartitionName { topic, partition: PartitionId(u32_at(head, 24)) };
    let first = Offset(u64_at(head, 32));
    match head[0] {
        KIND_DATA => Some(Entry::Data(Data {
            name,
            epoch: LeaderEpoch(i32::from_be_bytes(bytes_at(head, 28))),
            first,
            segment: Offset(u64_at(head, 40)),
            at: Position(u64_at(head, 48)),
            bytes,
        })),
        KIND_VOID => Some(Entry::Void(Void { name, from: first })),
        _ => None,
    }
}

fn put(memory: &mut [u8], at: usize, bytes: &[u8]) {
    memory[at..at + bytes.len()].copy_from_slice(bytes);
}

fn bytes_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    *bytes[at..].first_chunk().expect("the length was checked")
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes_at(bytes, at))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(bytes_at(bytes, at))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GENERATION: Generation = Generation { number: 5, nonce: 0x1234_5678_9abc_def0 };
    const NAME: PartitionName =
        PartitionName { topic: TopicId([9; 16]), partition: PartitionId(3) };

    fn superblock(number: u64) -> Superblock {
        Superblock {
            generation: Generation { number, ..GENERATION },
            directory: DirectoryId([4; 16]),
            length: ByteCount(1 << 20),
            shard: 1,
        }
    }

    fn data(bytes: &[u8]) -> Data<'_> {
        Data {
            name: NAME,
            epoch: LeaderEpoch(2),
            first: Offset(100),
            segment: Offset(64),
            at: Position(4711),
            bytes,
        }
    }

    fn record() -> Vec<u8> {
        let mut memory = vec![0xff; 3 * BLOCK_BYTES];
        let mut builder = RecordBuilder::default();
        builder.data(&mut memory, data(&[]), [&b"abc"[..], b"defg"].into_iter());
        builder.void(&mut memory, void());
        let header = RecordHeader { generation: GENERATION, sequence: 12, tail: 7 };
        let padded = builder.finish(&mut memory, header);
        assert_eq!(padded, BLOCK_BYTES);
        memory.truncate(padded);
        memory
    }

    fn void() -> Void {
        Void { name: NAME, from: Offset(100) }
    }

    #[test]
    fn superblocks_alternate_and_the_newer_one_counts() {
        let mut head = vec![0; 2 * BLOCK_BYTES];
        assert_eq!(Superblock::newest(&head), Err(SuperblockError::Magic));
        for number in [6, 7, 8] {
            let one = superblock(number);
            let at = usize_of(one.block()) * BLOCK_BYTES;
            head[at..at + BLOCK_BYTES].copy_from_slice(&one.encode());
            assert_eq!(Superblock::newest(&head), Ok(one));
        }
        // Either one is damaged: the other one counts, if no record says otherwise.
        assert!(!Superblock::is_doubtful(&head));
        for (at, left) in [(0, 7), (40, 7), (BLOCK_BYTES, 8), (BLOCK_BYTES + 60, 8)] {
            let mut head = head.clone();
            head[at] ^= 1;
            assert_eq!(Superblock::newest(&head), Ok(superblock(left)), "{at}");
            assert!(Superblock::is_doubtful(&head));
        }
        head[11] = 9;
        assert_eq!(Superblock::newest(&head), Err(SuperblockError::Version(9)));
        assert_eq!(Superblock::newest(b"short"), Err(SuperblockError::Magic));
    }

    #[test]
    fn records_come_back_as_they_went() {
        let bytes = record();
        let record = Record::parse(&bytes, GENERATION).expect("it is whole");
        assert_eq!((record.header.sequence, record.header.tail), (12, 7));
        assert_eq!(record.padded_length(), u64_of(BLOCK_BYTES));
        let entries: Vec<_> = record.entries().collect();
        assert_eq!(entries, [Entry::Data(data(b"abcdefg")), Entry::Void(void())]);
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let bytes = record();
        let length = usize_of(u64::from(u32_at(&bytes, 8)));
        for bit in 0..8 * length {
            let mut bytes = bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Record::parse(&bytes, GENERATION), None, "bit {bit}");
        }
    }

    #[test]
    fn records_of_other_rounds_and_torn_ones_do_not_count() {
        let bytes = record();
        let older = Generation { number: 4, ..GENERATION };
        let forged = Generation { nonce: 1, ..GENERATION };
        assert_eq!(Record::parse(&bytes, older), None);
        assert_eq!(Record::parse(&bytes, forged), None);
        for length in 0..100 {
            assert_eq!(Record::parse(&bytes[..length], GENERATION), None);
        }
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        assert_eq!(file_name(12), "shard-12.journal");
        assert_eq!(shard_of("shard-12.journal"), Some(12));
        for name in ["shard-012.journal", "shard-.journal", "shard-1.journal.tmp", "topic-0"] {
            assert_eq!(shard_of(name), None, "{name}");
        }
    }
}
