//! Which shard a partition lives on: a pure function, so that every shard answers alike.

use crate::units::{BrokerId, PartitionId, TopicId};

/// Most shards of one broker; their ids must stay far from those of other nodes.
pub const SHARDS_MAX: usize = 256;

/// The shard that owns a partition. The partitions of one topic go round the shards, from a
/// start that the topic's random id chooses, so that many small topics spread as well as one
/// large one.
///
/// # Panics
/// When there is no shard.
pub fn shard_of(topic: TopicId, partition: PartitionId, shards: usize) -> usize {
    assert!(shards > 0, "a broker has at least one shard");
    let count = u128::try_from(shards).expect("a count fits 128 bits");
    let start = u128::from_be_bytes(topic.0) % count;
    let shard = (start + u128::from(partition.0)) % count;
    usize::try_from(shard).expect("the remainder is below the number of shards")
}

/// The broker id that a shard has on the wire.
///
/// # Panics
/// When the id would leave the 31 bits, which the configuration rules out.
pub fn broker_of(node: BrokerId, shard: usize) -> BrokerId {
    let shard = i32::try_from(shard).expect("shards are at most SHARDS_MAX");
    BrokerId(node.0.checked_add(shard).expect("node.id leaves room for the shards"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic(last: u8) -> TopicId {
        let mut id = [0x5a; 16];
        id[15] = last;
        TopicId(id)
    }

    #[test]
    fn partitions_of_a_topic_spread_evenly() {
        for shards in 1..=8 {
            let mut load = vec![0; shards];
            for partition in 0..24 {
                load[shard_of(topic(7), PartitionId(partition), shards)] += 1;
            }
            let most = load.iter().max().expect("there is a shard");
            let least = load.iter().min().expect("there is a shard");
            assert!(most - least <= 1, "{shards} shards: {load:?}");
        }
    }

    #[test]
    fn topics_of_one_partition_start_at_different_shards() {
        let shards: std::collections::BTreeSet<usize> =
            (0..=255).map(|id| shard_of(topic(id), PartitionId(0), 4)).collect();
        assert_eq!(shards.len(), 4);
    }

    #[test]
    fn shards_are_brokers_from_the_node_id_on() {
        assert_eq!(broker_of(BrokerId(1), 0), BrokerId(1));
        assert_eq!(broker_of(BrokerId(1), 3), BrokerId(4));
    }
}
