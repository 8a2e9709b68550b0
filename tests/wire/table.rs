//! What is advertised against what a stock Kafka 4.3.1 advertises.

use std::collections::BTreeMap;

use uringlog::wire::versions::ADVERTISED;

/// Key, lowest and highest version on Kafka 4.3.1's client listener, but for what belongs to parts
/// that don't exist here: delegation tokens (38 to 41), share groups and streams groups (76 to 79,
/// 83 to 92), voters that come and go (80, 81). `kafka-broker-api-versions` prints it.
const KAFKA: [(i16, i16, i16); 55] = [
    (0, 0, 13),
    (1, 4, 18),
    (2, 1, 11),
    (3, 0, 13),
    (8, 2, 10),
    (9, 1, 10),
    (10, 0, 6),
    (11, 0, 9),
    (12, 0, 4),
    (13, 0, 5),
    (14, 0, 5),
    (15, 0, 6),
    (16, 0, 5),
    (17, 0, 1),
    (18, 0, 4),
    (19, 2, 7),
    (20, 1, 6),
    (21, 0, 2),
    (22, 0, 5),
    (23, 2, 4),
    (24, 0, 5),
    (25, 0, 4),
    (26, 0, 5),
    (27, 1, 2),
    (28, 0, 5),
    (29, 1, 3),
    (30, 1, 3),
    (31, 1, 3),
    (32, 1, 4),
    (33, 0, 2),
    (34, 1, 2),
    (35, 1, 5),
    (36, 0, 2),
    (37, 0, 3),
    (42, 0, 2),
    (43, 0, 2),
    (44, 0, 1),
    (45, 0, 1),
    (46, 0, 0),
    (47, 0, 0),
    (48, 0, 1),
    (49, 0, 1),
    (50, 0, 0),
    (51, 0, 0),
    (55, 0, 2),
    (57, 0, 2),
    (60, 0, 2),
    (61, 0, 0),
    (64, 0, 0),
    (65, 0, 0),
    (66, 0, 2),
    (68, 0, 1),
    (69, 0, 1),
    (74, 0, 1),
    (75, 0, 0),
];

#[test]
fn the_table_is_kafkas() {
    let ours: BTreeMap<i16, (i16, i16)> =
        ADVERTISED.iter().map(|range| (range.key, (range.min, range.max))).collect();
    assert_eq!(ours.len(), ADVERTISED.len(), "every key comes once");
    let kafka: BTreeMap<i16, (i16, i16)> =
        KAFKA.iter().map(|(key, min, max)| (*key, (*min, *max))).collect();
    let unknown: Vec<i16> = ours.keys().copied().filter(|key| !kafka.contains_key(key)).collect();
    assert_eq!(unknown, [0; 0], "keys that Kafka doesn't advertise");
    let missing: Vec<i16> = kafka.keys().copied().filter(|key| !ours.contains_key(key)).collect();
    assert_eq!(missing, [0; 0], "keys of Kafka that are missing here");
    for (key, versions) in ours {
        assert_eq!(Some(&versions), kafka.get(&key), "versions of key {key}");
    }
}

#[test]
fn they_come_in_the_order_of_their_keys() {
    assert!(ADVERTISED.is_sorted_by_key(|range| range.key));
}
