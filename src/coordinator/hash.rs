//! Which partition of an internal topic a group or a transactional id belongs to.

use crate::units::PartitionId;

/// The partition of a key among `count`: Java's `String.hashCode`, made positive as Kafka does
/// (`Utils.abs`, which maps the lowest number to 0), modulo the number of partitions.
///
/// # Panics
/// When there is no partition.
pub fn partition_for(key: &str, count: u32) -> PartitionId {
    let positive = java_hash(key).checked_abs().unwrap_or(0);
    PartitionId(positive.unsigned_abs() % count)
}

/// Over the UTF-16 units of the text, wrapping around.
pub(crate) fn java_hash(text: &str) -> i32 {
    text.encode_utf16()
        .fold(0, |hash: i32, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_javas() {
        // Printed by jshell: "…".hashCode().
        for (text, hash) in [
            ("", 0),
            ("a", 97),
            ("my-group", -1_906_497_762),
            ("polygenelubricants", i32::MIN),
            ("ä€😀", 16_603_051),
        ] {
            assert_eq!(java_hash(text), hash, "{text}");
        }
    }

    #[test]
    fn the_lowest_hash_goes_to_the_first_partition() {
        assert_eq!(partition_for("polygenelubricants", 50), PartitionId(0));
        assert_eq!(partition_for("a", 50), PartitionId(47));
    }
}
