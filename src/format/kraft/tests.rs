use proptest::prelude::*;

use super::*;

#[test]
fn bytes_are_kafkas() {
    assert_eq!(MetadataRecord::NoOp.encode(), [1, 20, 0, 0]);
    let feature = MetadataRecord::FeatureLevel { name: "group.version".into(), level: 1 };
    assert_eq!(feature.encode(), b"\x01\x0c\x00\x0egroup.version\x00\x01\x00");
    let config = MetadataRecord::Config {
        resource: ConfigResource::Broker(String::new()),
        name: "min.insync.replicas".into(),
        value: Some("1".into()),
    };
    assert_eq!(config.encode(), b"\x01\x04\x00\x04\x01\x14min.insync.replicas\x021\x00");
}

#[test]
fn what_is_not_known_is_an_error() {
    let unknown = |kind, version| Err(KraftError::Unknown { kind, version });
    assert_eq!(MetadataRecord::decode(&[1, 18, 0, 0]), unknown(18, 0));
    assert_eq!(MetadataRecord::decode(&[1, 20, 1, 0]), unknown(20, 1));
    assert_eq!(MetadataRecord::decode(&[1, 3, 3, 0]), unknown(3, 3));
    assert_eq!(MetadataRecord::decode(&[2, 20, 0, 0]), Err(KraftError::Frame(2)));
    let surplus = Err(KraftError::Compact(CompactError::Surplus(1)));
    assert_eq!(MetadataRecord::decode(&[1, 20, 0, 0, 0]), surplus);
    assert_eq!(MetadataRecord::decode(&[1, 4, 0, 9, 1, 1, 0, 0]), { Err(KraftError::Resource(9)) });
}

fn brokers() -> impl Strategy<Value = Vec<BrokerId>> {
    prop::collection::vec(any::<i32>().prop_map(BrokerId), 0..5)
}

fn partition() -> impl Strategy<Value = MetadataRecord> {
    let sets = (brokers(), brokers(), brokers(), brokers());
    let tagged = (any::<i8>(), prop::option::of(brokers()), prop::option::of(brokers()));
    let directories = prop::collection::vec(any::<[u8; 16]>().prop_map(DirectoryId), 0..3);
    let numbers = (0..=i32::MAX.unsigned_abs(), any::<i32>(), any::<i32>(), any::<i32>());
    (numbers, any::<[u8; 16]>(), sets, directories, tagged).prop_map(
        |(numbers, topic_id, sets, directories, tagged)| {
            MetadataRecord::Partition(PartitionRecord {
                partition: PartitionId(numbers.0),
                topic_id: TopicId(topic_id),
                replicas: sets.0,
                isr: sets.1,
                removing: sets.2,
                adding: sets.3,
                leader: BrokerId(numbers.1),
                recovery_state: tagged.0,
                leader_epoch: LeaderEpoch(numbers.2),
                partition_epoch: numbers.3,
                directories,
                eligible: tagged.1,
                last_known_eligible: tagged.2,
            })
        },
    )
}

fn record() -> impl Strategy<Value = MetadataRecord> {
    let topic = || "[a-z_-]{1,30}".prop_map(|name| TopicName::new(&name).expect("valid"));
    let id = || any::<[u8; 16]>().prop_map(TopicId);
    let resource = prop_oneof![
        topic().prop_map(ConfigResource::Topic),
        "[0-9]{0,3}".prop_map(ConfigResource::Broker),
        "[a-z]{0,9}".prop_map(ConfigResource::ClientMetrics),
        ".{0,9}".prop_map(ConfigResource::Group),
    ];
    prop_oneof![
        (topic(), id()).prop_map(|(name, topic_id)| MetadataRecord::Topic { name, topic_id }),
        partition(),
        (resource, ".{0,20}", prop::option::of(".{0,200}"))
            .prop_map(|(resource, name, value)| MetadataRecord::Config { resource, name, value }),
        id().prop_map(|topic_id| MetadataRecord::RemoveTopic { topic_id }),
        (".{0,20}", any::<i16>())
            .prop_map(|(name, level)| MetadataRecord::FeatureLevel { name, level }),
        (any::<i32>(), any::<i64>(), any::<i64>()).prop_map(|(broker, broker_epoch, next)| {
            let (broker, next) = (BrokerId(broker), ProducerId(next));
            MetadataRecord::ProducerIds { broker, broker_epoch, next }
        }),
        (0..=i32::MAX.unsigned_abs(), id(), prop::option::of(any::<i32>())).prop_map(
            |(partition, topic_id, leader)| {
                let (partition, leader) = (PartitionId(partition), leader.map(BrokerId));
                let change = PartitionChange { partition, topic_id, leader };
                MetadataRecord::PartitionChange(change)
            }
        ),
        quota().prop_map(MetadataRecord::ClientQuota),
        scram().prop_map(MetadataRecord::UserScramCredential),
        (".{0,20}", any::<i8>()).prop_map(|(user, mechanism)| {
            MetadataRecord::RemoveUserScramCredential { user, mechanism }
        }),
        Just(MetadataRecord::NoOp),
        Just(MetadataRecord::Begin),
        Just(MetadataRecord::End),
        Just(MetadataRecord::Abort),
    ]
}

fn quota() -> impl Strategy<Value = QuotaRecord> {
    let kinds = prop_oneof![Just("user"), Just("client-id"), Just("ip")];
    let part = (kinds.prop_map(str::to_owned), prop::option::of(".{0,20}"));
    let entity = prop::collection::btree_map(part.0, part.1, 0..3);
    let value = prop::option::of(any::<f64>().prop_map(kraft_users::QuotaValue));
    (entity, ".{0,20}", value).prop_map(|(entity, key, value)| QuotaRecord { entity, key, value })
}

fn scram() -> impl Strategy<Value = ScramRecord> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..70);
    (".{0,20}", any::<i8>(), bytes(), bytes(), bytes(), any::<i32>()).prop_map(
        |(user, mechanism, salt, stored_key, server_key, iterations)| ScramRecord {
            user,
            mechanism,
            salt,
            stored_key,
            server_key,
            iterations,
        },
    )
}

proptest! {
    #[test]
    fn records_survive(record in record(), cut in any::<prop::sample::Index>()) {
        let bytes = record.encode();
        prop_assert_eq!(MetadataRecord::decode(&bytes), Ok(record));
        prop_assert!(MetadataRecord::decode(&bytes[..cut.index(bytes.len())]).is_err());
    }

    #[test]
    fn garbage_is_no_panic(
        kind in 0_u8..30,
        version in 0_u8..3,
        body in prop::collection::vec(any::<u8>(), 0..80),
    ) {
        let value = [&[1, kind, version][..], &body].concat();
        let _ = MetadataRecord::decode(&value);
        let _ = MetadataRecord::decode(&body);
    }
}
