//! The hash that tells whether the topics of a group have changed (`Utils#computeGroupHash`):
//! XXH3 with 64 bits, over id, name and partitions of each topic in the order of names.

use twox_hash::XxHash3_64;

use crate::coordinator::group::topics::Topics;
use crate::units::TopicId;

/// Version of the way to hash a topic.
const MAGIC: u8 = 0;

/// The hash of these topics, of those that there are; 0 for none.
pub fn of_topics<'a>(names: impl IntoIterator<Item = &'a str>, topics: &dyn Topics) -> i64 {
    let mut bytes = Vec::new();
    for name in names {
        if let Some((id, partitions)) = topics.by_name(name) {
            bytes.extend_from_slice(&of_topic(name, id, partitions).to_le_bytes());
        }
    }
    if bytes.is_empty() { 0 } else { hash(&bytes) }
}

/// Numbers are little-endian, characters are UTF-16 units, their number stands behind them. There
/// are no racks.
fn of_topic(name: &str, id: TopicId, partitions: u32) -> i64 {
    let mut bytes = vec![MAGIC];
    for half in id.0.chunks(8) {
        bytes.extend(half.iter().rev());
    }
    let units: Vec<u16> = name.encode_utf16().collect();
    units.iter().for_each(|unit| bytes.extend_from_slice(&unit.to_le_bytes()));
    let length = u32::try_from(units.len()).expect("a name is short");
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(&partitions.to_le_bytes());
    (0..partitions).for_each(|partition| bytes.extend_from_slice(&partition.to_le_bytes()));
    hash(&bytes)
}

fn hash(bytes: &[u8]) -> i64 {
    XxHash3_64::oneshot(bytes).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_kafkas() {
        // Computed with hash4j 0.22, as Kafka 4.3.1 does.
        let mut id = [0; 16];
        (0_u8..).zip(&mut id).for_each(|(number, byte)| *byte = number);
        let topic = of_topic("flights", TopicId(id), 3);
        assert_eq!(topic, 1_336_419_739_266_807_705);
        assert_eq!(hash(&topic.to_le_bytes()), 5_285_571_135_326_525_605);
        let both = [topic.to_le_bytes(), 5_i64.to_le_bytes()].concat();
        assert_eq!(hash(&both), -6_648_773_684_189_260_956);
    }
}
