use std::io::Write;

use super::*;
use crate::log::config::{CleanupPolicy, LogConfig};

fn set(pairs: &[&str]) -> Result<ServerConfig, ConfigError> {
    let set = pairs.iter().map(|pair| (*pair).to_owned()).collect();
    ServerConfig::load(&Sources { file: None, set, durability: None })
}

fn refused(pairs: &[&str]) -> String {
    set(pairs).expect_err("refused").to_string()
}

fn overrides(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn resolved(server: &[&str], topic: &[(&str, &str)]) -> LogConfig {
    let server = set(server).expect("valid");
    let overrides = overrides(topic);
    TopicConfigs::new(&server).validate(&overrides).expect("valid");
    TopicConfigs::new(&server).resolve(&overrides)
}

#[test]
fn defaults_are_the_logs() {
    assert_eq!(resolved(&[], &[]), LogConfig::defaults(Durability::Device));
    let page_cache = Sources { durability: Some(Durability::PageCache), ..Sources::default() };
    let server = ServerConfig::load(&page_cache).expect("valid");
    let config = TopicConfigs::new(&server).resolve(&BTreeMap::new());
    assert_eq!(config, LogConfig::defaults(Durability::PageCache));
    let server = ServerConfig::defaults();
    assert_eq!(server.node_id, BrokerId(1));
    assert_eq!(server.connection_idle_ms_max, Some(600_000));
    assert_eq!(server.directory, None);
}

#[test]
fn kafkas_precedence_holds() {
    let retention = |server: &[&str], topic: &[(&str, &str)]| resolved(server, topic).retention_ms;
    let hours = "log.retention.hours=1";
    let minutes = "log.retention.minutes=2";
    let ms = "log.retention.ms=3";
    assert_eq!(retention(&[hours], &[]), Some(3_600_000));
    assert_eq!(retention(&[hours, minutes], &[]), Some(120_000));
    assert_eq!(retention(&[ms, hours, minutes], &[]), Some(3));
    assert_eq!(retention(&[ms], &[("retention.ms", "4")]), Some(4));
    assert_eq!(retention(&[ms], &[("retention.ms", "-1")]), None);
    assert_eq!(retention(&["log.retention.hours=-5"], &[]), None);
    assert_eq!(retention(&["log.retention.ms=-7"], &[]), None);
    assert_eq!(resolved(&["log.roll.hours=2"], &[]).segment_ms, 7_200_000);
    assert_eq!(resolved(&["log.roll.hours=2", "log.roll.ms=9"], &[]).segment_ms, 9);
    assert_eq!(resolved(&["log.flush.scheduler.interval.ms=8"], &[]).flush_ms, 8);
    let both = ["log.flush.scheduler.interval.ms=8", "log.flush.interval.ms=7"];
    assert_eq!(resolved(&both, &[]).flush_ms, 7);
    let server = set(&[ms, hours]).expect("valid");
    let line = "--set: log.retention.hours has no effect, log.retention.ms (--set) beats it";
    assert_eq!(server.shadowed(), [line]);
}

#[test]
fn topic_configs_reach_the_log() {
    let topic = [
        ("cleanup.policy", "compact,delete"),
        ("compression.type", "zstd"),
        ("compression.zstd.level", "-5"),
        ("message.timestamp.type", "LogAppendTime"),
        ("preallocate", "TRUE"),
        ("retention.bytes", "77"),
        ("segment.bytes", "2097152"),
        ("flush.messages", "9223372036854775807"),
    ];
    let config = resolved(&[], &topic);
    assert_eq!(config.cleanup_policy, CleanupPolicy { delete: true, compact: true });
    assert_eq!(config.compression, Some(crate::format::batch::Codec::Zstd));
    assert_eq!(config.zstd_level, -5);
    assert_eq!(config.timestamp_type, crate::log::config::TimestampType::LogAppendTime);
    assert!(config.preallocate);
    assert_eq!(config.retention_bytes, Some(ByteCount(77)));
    assert_eq!(config.segment_bytes, ByteCount(2 << 20));
    assert_eq!(config.durability(), Durability::PageCache);
    let empty = resolved(&[], &[("cleanup.policy", ""), ("internal.segment.bytes", "512")]);
    assert_eq!(empty.cleanup_policy, CleanupPolicy { delete: false, compact: false });
    assert_eq!(empty.segment_bytes, ByteCount(512));
}

#[test]
fn topic_refusals_have_kafkas_words() {
    let server = ServerConfig::defaults();
    let check = |name: &str, value: &str, expected: &str| {
        let error = TopicConfigs::new(&server).validate(&overrides(&[(name, value)]));
        assert_eq!(error.expect_err("refused").to_string(), expected);
    };
    let least = "Invalid value 300 for configuration segment.bytes: Value must be at least 1048576";
    check("segment.bytes", "300", least);
    check("segment.byte", "1", {
        "Unknown topic config name: segment.byte (did you mean segment.bytes?)"
    });
    check("log.segment.bytes", "1", {
        "Unknown topic config name: log.segment.bytes (it is a broker's config, topics have \
         segment.bytes)"
    });
    check("colour", "red", "Unknown topic config name: colour");
    check("retention.ms", "x", {
        "Invalid value x for configuration retention.ms: Not a number of type LONG"
    });
    check("remote.storage.enable", "true", {
        "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with \
         remote log storage."
    });
    let lag = overrides(&[("min.compaction.lag.ms", "5"), ("max.compaction.lag.ms", "4")]);
    let error = TopicConfigs::new(&server).validate(&lag).expect_err("refused");
    assert_eq!(error, TopicConfigError::Lag { least: 5, most: 4 });
}

#[test]
fn refusals_name_the_setting_the_range_and_the_nearest_name() {
    assert_eq!(refused(&["log.segment.bytes=300"]), {
        "--set: invalid value \"300\" for log.segment.bytes: Value must be at least 1048576 \
         (allowed: 1048576 to 2147483647)"
    });
    assert_eq!(refused(&["log.segment.byte=1"]), {
        "--set: unknown setting log.segment.byte; did you mean log.segment.bytes?"
    });
    assert_eq!(refused(&["segment.bytes=1"]), {
        "--set: unknown setting segment.bytes; it is a topic's config, the server's setting is \
         log.segment.bytes"
    });
    assert_eq!(refused(&["colour=red"]), "--set: unknown setting colour");
    assert_eq!(refused(&["ssl.key.password=x"]), {
        "--set: ssl.key.password is known to Kafka but not supported here: there is no TLS"
    });
    assert_eq!(refused(&["listeners=x"]), {
        "--set: listeners is known to Kafka but not supported here: use --listen"
    });
    assert!(refused(&["default.replication.factor=3"]).contains("no more than 1"));
    assert!(refused(&["log.dirs=/a,/b"]).contains("exactly one data directory"));
    assert!(refused(&["log.retention.hours=0"]).contains("at least 1 ms"));
    assert!(refused(&["uringlog.frames.bytes.max=5"]).contains("socket.request.max.bytes"));
    assert!(
        refused(&["log.cleaner.min.compaction.lag.ms=5", {
            "log.cleaner.max.compaction.lag.ms=4"
        }])
        .contains("exceeds")
    );
    assert!(refused(&["num.partitions=1", "num.partitions=2"]).contains("--set says 1"));
    assert!(refused(&["num.partitions"]).contains("NAME=VALUE"));
}

#[test]
fn all_faults_of_a_file_are_reported_with_their_lines() {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    let text = "num.partitions = 0\nlog.dirs = \"/data\"\nlog.segmnt.bytes = 5\n\
                zookeeper.connect = \"x\"\n";
    file.write_all(text.as_bytes()).expect("written");
    let path = file.path().to_owned();
    let sources = |set: &[&str]| Sources {
        file: Some(path.clone()),
        set: set.iter().map(|one| (*one).to_owned()).collect(),
        durability: None,
    };
    let error = ServerConfig::load(&sources(&["also=bad"])).expect_err("four faults");
    let mut lines: Vec<_> = error.0.iter().map(ToString::to_string).collect();
    lines.sort();
    let shown = path.display();
    assert_eq!(lines.len(), 4, "{lines:?}");
    assert_eq!(lines[0], "--set: unknown setting also");
    assert!(lines[1].starts_with(&format!("{shown}:1: invalid value \"0\" for num.partitions")));
    assert!(lines[2].starts_with(&format!("{shown}:3: unknown setting log.segmnt.bytes; did")));
    assert!(lines[3].starts_with(&format!("{shown}:4: zookeeper.connect is known to Kafka")));
}

#[test]
fn the_command_line_beats_the_file() {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(b"num.partitions = 3\nlog.flush.interval.messages = 10\n").expect("written");
    let sources = Sources {
        file: Some(file.path().to_owned()),
        set: vec!["num.partitions=5".to_owned()],
        durability: Some(Durability::Device),
    };
    let server = ServerConfig::load(&sources).expect("valid");
    assert_eq!(server.partitions_default, 5);
    let config = TopicConfigs::new(&server).resolve(&BTreeMap::new());
    assert_eq!(config.durability(), Durability::Device);
    let clash = Sources {
        set: vec!["log.flush.interval.messages=10".to_owned()],
        durability: Some(Durability::Device),
        file: None,
    };
    let error = ServerConfig::load(&clash).expect_err("refused").to_string();
    assert!(error.starts_with("--durability: log.flush.interval.messages is 1"), "{error}");
    let gone = Sources { file: Some("/no/such/file".into()), ..Sources::default() };
    let error = ServerConfig::load(&gone).expect_err("refused").to_string();
    assert!(error.starts_with("/no/such/file: can't read the configuration file: "), "{error}");
}

fn found<'a>(list: &'a [Described], name: &str) -> &'a Described {
    list.iter().find(|config| config.name == name).expect("described")
}

#[test]
fn descriptions_tell_where_values_come_from() {
    let server = set(&["log.retention.minutes=2", "num.partitions=6"]).expect("valid");
    let list = describe_topic(&server, &overrides(&[("segment.bytes", "1048576")]));
    let retention = found(&list, "retention.ms");
    assert_eq!(retention.value.as_deref(), Some("120000"));
    assert_eq!((retention.source.code(), retention.type_code.0), (4, 5));
    let names: Vec<_> = retention
        .synonyms
        .iter()
        .map(|one| (one.name, one.value.as_deref().unwrap_or("null"), one.source.code()))
        .collect();
    assert_eq!(names, [("log.retention.minutes", "2", 4), ("log.retention.hours", "168", 5)]);
    let segment = found(&list, "segment.bytes");
    assert_eq!((segment.value.as_deref(), segment.source.code()), (Some("1048576"), 1));
    assert_eq!(segment.synonyms.len(), 2);
    assert!(!segment.is_default());
    let cleanup = found(&list, "cleanup.policy");
    assert!(cleanup.is_default());
    assert_eq!((cleanup.value.as_deref(), cleanup.type_code.0), (Some("delete"), 7));
    assert!(list.iter().all(|config| config.name != "internal.segment.bytes"));

    let list = describe_server(&server);
    let partitions = found(&list, "num.partitions");
    assert_eq!((partitions.value.as_deref(), partitions.source.code()), (Some("6"), 4));
    assert!(partitions.is_read_only);
    assert_eq!(found(&list, "log.retention.ms").value, None);
}
