//! Where the newest record of each key is, in a fixed amount of memory.

use std::hash::Hasher;

use siphasher::sip128::{Hasher128, SipHasher24};

use crate::units::{ByteCount, Offset, u64_of, usize_of};

/// Memory of a key: 16 bytes of hash and its offset, as in Kafka's `SkimpyOffsetMap`.
pub const SLOT_BYTES: usize = SLOT_WORDS * size_of::<u64>();

/// Two of hash, one of offset.
const SLOT_WORDS: usize = 3;

/// The keys themselves are not kept: two with the same hash would count as one. The hash has 128
/// bits and a secret, so that nobody can make such keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Hash(u64, u64);

/// Newest offsets by key.
#[derive(Debug)]
pub struct OffsetMap {
    /// Hash and offset plus one of each slot; 0 is an empty one. Plain numbers, since a large
    /// vector of zeros costs nothing before it is touched.
    words: Vec<u64>,
    used: usize,
    used_max: usize,
    secret: (u64, u64),
    latest: Option<Offset>,
}

impl OffsetMap {
    /// A map of so much memory, to be filled to so many thousandths of its slots
    /// (`log.cleaner.dedupe.buffer.size`, `log.cleaner.io.buffer.load.factor`).
    ///
    /// # Panics
    /// When the memory is less than that of two slots.
    pub fn new(memory: ByteCount, load_thousandths: u64, secret: (u64, u64)) -> OffsetMap {
        let slots = usize_of(memory.0) / SLOT_BYTES;
        assert!(2 <= slots, "a map has two slots at least");
        let share = usize_of(u64_of(slots) * load_thousandths / 1000);
        // At least one stays free, so that every search ends.
        let used_max = share.clamp(1, slots - 1);
        OffsetMap { words: vec![0; slots * SLOT_WORDS], used: 0, used_max, secret, latest: None }
    }

    /// The same for a range of so many offsets, which can't have more keys: no more memory than
    /// they need.
    ///
    /// # Panics
    /// As [`OffsetMap::new`].
    pub fn for_offsets(
        (offsets, memory): (u64, ByteCount),
        load_thousandths: u64,
        secret: (u64, u64),
    ) -> OffsetMap {
        let slots = offsets.saturating_mul(1000) / load_thousandths.max(1);
        let needed = slots.saturating_add(2).saturating_mul(u64_of(SLOT_BYTES));
        OffsetMap::new(memory.min(ByteCount(needed)), load_thousandths, secret)
    }

    /// Whether no further key fits.
    pub fn is_full(&self) -> bool {
        self.used == self.used_max
    }

    /// Notes a record; `false` when the map is full and the key isn't in it.
    pub fn put(&mut self, key: &[u8], offset: Offset) -> bool {
        let hash = self.hash(key);
        let at = self.find(hash);
        if self.slot(at).1 == 0 {
            if self.is_full() {
                return false;
            }
            self.used += 1;
        }
        let words = &mut self.words[at * SLOT_WORDS..][..SLOT_WORDS];
        words.copy_from_slice(&[hash.0, hash.1, offset.0 + 1]);
        self.advance(offset);
        true
    }

    /// The offset of a key's newest record.
    pub fn get(&self, key: &[u8]) -> Option<Offset> {
        let (_, offset) = self.slot(self.find(self.hash(key)));
        offset.checked_sub(1).map(Offset)
    }

    /// The last offset that was noted, or passed over as one that has no key.
    pub fn latest(&self) -> Option<Offset> {
        self.latest
    }

    /// Everything up to this offset has been seen.
    pub fn advance(&mut self, offset: Offset) {
        self.latest = self.latest.max(Some(offset));
    }

    /// How many thousandths of the slots are used.
    pub fn used_thousandths(&self) -> u64 {
        u64_of(self.used) * 1000 / u64_of(self.words.len() / SLOT_WORDS)
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.used
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    fn slot(&self, at: usize) -> (Hash, u64) {
        let words = &self.words[at * SLOT_WORDS..][..SLOT_WORDS];
        (Hash(words[0], words[1]), words[2])
    }

    fn find(&self, hash: Hash) -> usize {
        let count = u64_of(self.words.len() / SLOT_WORDS);
        let mut at = hash.0 % count;
        // The other half says how far to go on, so that keys of one place part.
        let step = hash.1 % (count - 1) + 1;
        let mut tried = 0;
        loop {
            let (found, offset) = self.slot(usize_of(at));
            if offset == 0 || found == hash {
                return usize_of(at);
            }
            tried += 1;
            // A step that shares a factor with the count doesn't come everywhere.
            at = if tried < count { (at + step) % count } else { (at + 1) % count };
        }
    }

    fn hash(&self, key: &[u8]) -> Hash {
        let mut hasher = SipHasher24::new_with_keys(self.secret.0, self.secret.1);
        hasher.write(key);
        let hash = hasher.finish128();
        Hash(hash.h1, hash.h2)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn map(slots: usize) -> OffsetMap {
        OffsetMap::new(ByteCount(u64_of(slots * SLOT_BYTES)), 1000, (1, 2))
    }

    #[test]
    fn a_slot_has_24_bytes() {
        assert_eq!(SLOT_BYTES, 24);
    }

    #[test]
    fn a_full_map_takes_known_keys_only() {
        let mut map = map(4);
        for key in [b"a", b"b", b"c"] {
            assert!(map.put(key, Offset(7)));
        }
        assert!(!map.put(b"d", Offset(8)));
        assert_eq!((map.get(b"d"), map.latest()), (None, Some(Offset(7))));
        assert!(map.put(b"a", Offset(9)));
        assert_eq!((map.get(b"a"), map.len()), (Some(Offset(9)), 3));
    }

    #[test]
    fn offset_0_is_an_offset() {
        let mut map = map(8);
        assert!(map.is_empty() && map.latest().is_none());
        assert!(map.put(b"", Offset(0)));
        assert_eq!(map.get(b""), Some(Offset(0)));
        map.advance(Offset(5));
        assert_eq!(map.latest(), Some(Offset(5)));
    }

    proptest! {
        #[test]
        fn it_is_a_map(keys in proptest::collection::vec(0_u8..60, 0..200)) {
            let (mut map, mut model) = (map(64), HashMap::new());
            for (offset, key) in (0_u64..).zip(keys) {
                prop_assert!(map.put(&[key], Offset(offset)));
                model.insert(key, Offset(offset));
            }
            for key in 0..60 {
                prop_assert_eq!(map.get(&[key]), model.get(&key).copied());
            }
        }
    }
}
