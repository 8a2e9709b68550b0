//! Which records of a journal count, and what they say is to be there.

use std::collections::{BTreeMap, HashMap};

use bytes::BytesMut;

use crate::format::journal::{
    BLOCK_BYTES, Data, Entry, PartitionName, RECORDS_START, Record, Superblock, Void, file_name,
};
use crate::log::recovery::OpenError;
use crate::log::recovery::files::Files;
use crate::units::{ByteCount, Position, u64_of, usize_of};

/// How much of a journal is read at a time.
const READ_BYTES: u64 = 1 << 20;

/// A journal in memory.
pub(super) struct Loaded {
    pub name: String,
    pub superblock: Superblock,
    pub bytes: Vec<u8>,
    /// Whether the file is shorter than it was made.
    pub is_cut: bool,
}

/// The records that count, oldest first.
#[derive(Default)]
pub(super) struct Usable<'a> {
    pub records: Vec<Record<'a>>,
    /// The first damaged one.
    pub damaged: Option<u64>,
    /// Whole ones behind it. What they carry is not put in place, since what was in the gap would
    /// be missing in front of it; but what they take back, or give another place, must not come
    /// back.
    behind: Vec<Record<'a>>,
}

pub(super) fn load(
    files: &mut Files<'_>,
    superblock: Superblock,
    length: ByteCount,
) -> Result<Loaded, OpenError> {
    let name = file_name(superblock.shard);
    let wanted = superblock.length.0.min(length.0);
    let file = files.open(&name)?;
    let mut bytes = Vec::with_capacity(usize_of(wanted));
    let mut part = BytesMut::new();
    while u64_of(bytes.len()) < wanted {
        let at = u64_of(bytes.len());
        part.resize(usize_of((wanted - at).min(READ_BYTES)), 0);
        part = files.read(file, Position(at), part)?;
        bytes.extend_from_slice(&part);
    }
    files.close(file)?;
    let is_cut = length < superblock.length;
    Ok(Loaded { name, superblock, bytes, is_cut })
}

/// Finds the run of records from the newest one's tail on.
pub(super) fn usable(loaded: &Loaded) -> Usable<'_> {
    let bytes = &loaded.bytes[..];
    let mut found = BTreeMap::new();
    let mut at = usize_of(RECORDS_START);
    while at < bytes.len() {
        match Record::parse(&bytes[at..], loaded.superblock.generation) {
            Some(record) => {
                at += usize_of(record.padded_length());
                found.insert(record.header.sequence, record);
            }
            None => at += BLOCK_BYTES,
        }
    }
    let Some(newest) = found.last_key_value().map(|(_, record)| record.header) else {
        return Usable { damaged: loaded.is_cut.then_some(0), ..Usable::default() };
    };
    let mut usable = Usable::default();
    for sequence in newest.tail..=newest.sequence {
        let Some(record) = found.remove(&sequence) else {
            usable.damaged = Some(sequence);
            usable.behind = found.split_off(&sequence).into_values().collect();
            return usable;
        };
        usable.records.push(record);
    }
    usable.damaged = loaded.is_cut.then_some(newest.sequence + 1);
    usable
}

pub(super) type Entries<'a> = HashMap<PartitionName, Vec<Data<'a>>>;

/// What the records say is to be there, by partition, in order, and how many entries were taken
/// back.
pub(super) fn live_entries<'a>(usable: &Usable<'a>) -> (Entries<'a>, u64) {
    let mut live = Entries::new();
    let mut voided = 0;
    let mut take_back = |live: &mut Entries<'a>, Void { name, from }| {
        let Some(entries) = live.get_mut(&name) else { return };
        let before = entries.len();
        entries.retain(|data| data.first < from);
        voided += u64_of(before - entries.len());
    };
    for entry in usable.records.iter().flat_map(Record::entries) {
        match entry {
            Entry::Data(data) => live.entry(data.name).or_default().push(data),
            Entry::Void(void) => take_back(&mut live, void),
        }
    }
    for entry in usable.behind.iter().flat_map(Record::entries) {
        let void = match entry {
            Entry::Void(void) => void,
            // Offsets are given again only after a void, which is in the gap then.
            Entry::Data(Data { name, first, .. }) => Void { name, from: first },
        };
        take_back(&mut live, void);
    }
    live.retain(|_, entries| !entries.is_empty());
    (live, voided)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::journal::{Generation, RecordBuilder, RecordHeader};
    use crate::format::properties::DirectoryId;
    use crate::units::{LeaderEpoch, Offset, PartitionId, TopicId};

    const GENERATION: Generation = Generation { number: 3, nonce: 7 };
    const FIRST_SEQUENCE: u64 = 20;

    fn name(partition: u32) -> PartitionName {
        PartitionName { topic: TopicId([1; 16]), partition: PartitionId(partition) }
    }

    fn data(partition: u32, first: u64) -> Entry<'static> {
        Entry::Data(Data {
            name: name(partition),
            epoch: LeaderEpoch(0),
            first: Offset(first),
            segment: Offset(0),
            at: Position(first * 10),
            bytes: b"ten bytes!",
        })
    }

    fn void(partition: u32, from: u64) -> Entry<'static> {
        Entry::Void(Void { name: name(partition), from: Offset(from) })
    }

    /// A journal of these records, all of them needed, some damaged.
    fn journal(records: &[&[Entry<'static>]], damaged: &[usize]) -> Loaded {
        let mut bytes = vec![0; usize_of(RECORDS_START)];
        for (number, entries) in records.iter().enumerate() {
            let mut memory = vec![0; BLOCK_BYTES];
            let mut builder = RecordBuilder::default();
            for entry in *entries {
                match entry {
                    Entry::Data(data) => {
                        builder.data(&mut memory, *data, std::iter::once(data.bytes));
                    }
                    Entry::Void(void) => builder.void(&mut memory, *void),
                }
            }
            let sequence = FIRST_SEQUENCE + u64_of(number);
            let header = RecordHeader { generation: GENERATION, sequence, tail: FIRST_SEQUENCE };
            builder.finish(&mut memory, header);
            if damaged.contains(&number) {
                memory[60] ^= 1;
            }
            bytes.extend_from_slice(&memory);
        }
        let superblock = Superblock {
            generation: GENERATION,
            directory: DirectoryId([2; 16]),
            length: ByteCount(u64_of(bytes.len())),
            shard: 0,
        };
        Loaded { name: file_name(0), superblock, bytes, is_cut: false }
    }

    /// What is to be put in place: partition and first offset; and how many entries are not.
    fn check(
        records: &[&[Entry<'static>]],
        damaged: &[usize],
    ) -> (Vec<(u32, u64)>, u64, Option<u64>) {
        let journal = journal(records, damaged);
        let usable = usable(&journal);
        let (live, voided) = live_entries(&usable);
        let entries = live.into_values().flatten();
        let mut found: Vec<_> = entries.map(|it| (it.name.partition.0, it.first.0)).collect();
        found.sort_unstable();
        (found, voided, usable.damaged.map(|sequence| sequence - FIRST_SEQUENCE))
    }

    #[test]
    fn records_count_in_order_and_voids_take_back_what_is_older() {
        let records: &[&[_]] =
            &[&[data(1, 5), data(2, 5)], &[data(1, 6)], &[void(1, 6)], &[data(1, 6), data(1, 7)]];
        assert_eq!(check(records, &[]), (vec![(1, 5), (1, 6), (1, 7), (2, 5)], 1, None));
    }

    #[test]
    fn nothing_behind_a_gap_is_put_in_place_but_what_it_takes_back_is_gone() {
        let records: &[&[_]] = &[&[data(1, 5), data(2, 5)], &[data(3, 1)], &[data(2, 6)]];
        assert_eq!(check(records, &[1]), (vec![(1, 5), (2, 5)], 0, Some(1)));
        let records: &[&[_]] = &[&[data(1, 5), data(1, 6)], &[data(3, 1)], &[void(1, 6)]];
        assert_eq!(check(records, &[1]), (vec![(1, 5)], 1, Some(1)));
        // The void itself is damaged: what has its offset now tells.
        let records: &[&[_]] = &[&[data(1, 5), data(1, 6)], &[void(1, 6)], &[data(1, 6)]];
        assert_eq!(check(records, &[1]), (vec![(1, 5)], 1, Some(1)));
        assert_eq!(check(records, &[0]), (vec![], 0, Some(0)));
    }
}
