//! Which partition a key belongs to. That is the producer's decision, not the broker's: the same
//! key meets the same partition whatever client sent it, as long as all take the same hash.

use crate::units::{u64_of, usize_of};

/// The partition of a key among so many, as Kafka's clients choose it: the hash without its sign,
/// modulo the number of partitions.
///
/// # Panics
/// Without a partition, and for a key of 2^31 bytes or more.
pub fn partition_of_key(key: &[u8], partitions: usize) -> usize {
    assert!(0 < partitions, "a topic has a partition");
    usize_of(u64::from(key_hash(key) & 0x7fff_ffff) % u64_of(partitions))
}

/// 32-bit MurmurHash2 with the seed of Kafka's clients.
///
/// # Panics
/// For a key of 2^31 bytes or more.
pub fn key_hash(key: &[u8]) -> u32 {
    const SEED: u32 = 0x9747_b28c;
    const FACTOR: u32 = 0x5bd1_e995;
    let length = u32::try_from(key.len()).expect("a key is shorter than 2^31 bytes");
    let mut hash = SEED ^ length;
    let (words, tail) = key.as_chunks::<4>();
    for word in words {
        let mixed = u32::from_le_bytes(*word).wrapping_mul(FACTOR);
        let mixed = (mixed ^ (mixed >> 24)).wrapping_mul(FACTOR);
        hash = hash.wrapping_mul(FACTOR) ^ mixed;
    }
    if !tail.is_empty() {
        let mut last = [0; 4];
        last[..tail.len()].copy_from_slice(tail);
        hash = (hash ^ u32::from_le_bytes(last)).wrapping_mul(FACTOR);
    }
    hash = (hash ^ (hash >> 13)).wrapping_mul(FACTOR);
    hash ^ (hash >> 15)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values that Kafka's own tests of its hash have.
    #[test]
    fn keys_hash_as_in_kafkas_clients() {
        let known: [(&str, i32); 6] = [
            ("21", -973_932_308),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
            ("abc", 479_470_107),
        ];
        for (key, expected) in known {
            let hash = i32::from_ne_bytes(key_hash(key.as_bytes()).to_ne_bytes());
            assert_eq!(hash, expected, "{key}");
        }
    }

    #[test]
    fn a_hash_below_zero_loses_its_sign_only() {
        // -973932308 without its sign bit is 1173551340.
        assert_eq!(partition_of_key(b"21", 1000), 340);
        assert_eq!(partition_of_key(b"21", 1), 0);
    }
}
