//! Lines that people type, and what is wrong with some of them.

use super::tests::parsed;

#[test]
fn commands_of_the_manual() {
    for line in [
        "topic create t --partitions 3 --config retention.ms=-1 --config cleanup.policy=",
        "topic create a b --replication-factor 1 --if-not-exists --json",
        "topic list --bootstrap box:1 --internal",
        "topic ls -b box:1,box:2",
        "topic describe t u",
        "topic delete t --if-exists",
        "topic add-partitions t --total 4",
        "topic alter t --set a=b --unset c",
        "topic trim t --before 15m --partition 1",
        "produce t --partition 0 --key-separator , --acks 0 --batch-bytes 1000 -",
        "produce t -K : -H a=b -z zstd lines.txt",
        "consume t --partition 0 --from @5 --count 3 --follow --format %o:%s",
        "consume t --from 2026-11-30T14:00 --until now --with key,offset",
        "consume t -g workers -F --json --assignor cooperative-sticky --instance one --lag",
        "consume t u -g workers --protocol consumer --assignor uniform",
        "consume t --isolation read-committed",
        "offsets",
        "offsets t --at 15m --at @0 --partition 1",
        "config describe topic/t --all",
        "config set broker/1 log.retention.ms=1000 --dry-run",
        "config unset brokers log.retention.ms",
        "cluster describe --color never",
        "cluster features",
        "cluster api-versions --broker 1",
        "cluster log-dirs --partitions --json",
        "group list --state empty",
        "group describe",
        "group describe g h --json",
        "group members g",
        "group reset g --to-earliest",
        "group reset g --topic t:0,2-4 --shift-by -5 --execute",
        "group reset g --all-topics --to-time 2026-11-30 --dry-run",
        "group reset g --by-duration PT1H --csv",
        "group reset g --from-file plan.csv --execute",
        "group delete g h",
        "group delete-offsets g --topic t",
        "bench produce t -n 10 --size 1 --rate 5 --linger-ms 1 --codec lz4 --acks 1",
        "bench consume t --duration 10s --json",
        "completions zsh",
        "man pages",
        "doctor --dir /tmp",
        "recover /srv/data --shards 2 --engine uring --config c.toml --set node.id=2",
    ] {
        parsed(line).unwrap_or_else(|error| panic!("{line}: {error}"));
    }
}

#[test]
fn what_is_wrong_is_said() {
    for (line, part) in [
        ("topic create a/b", "Topic name is invalid"),
        ("topic create t --partitions 0", "0 is not in 1"),
        ("topic create t --config x", "not NAME=VALUE"),
        ("topic alter t", "--set"),
        ("topic trim t", "--before"),
        ("topic list --bootstrap box", "is not HOST:PORT"),
        ("topic list --bootstrap box:1,:2", "is not HOST:PORT"),
        ("serve --shards 0", "0 is not in 1..=256"),
        ("serve --engine fast", "auto, uring, plain-file"),
        ("recover", "<DIR>"),
        ("produce t --acks 2", "all, 1, 0"),
        ("produce t --partition -1", "-1"),
        ("produce t --codec brotli", "none, gzip, snappy, lz4, zstd"),
        ("consume t --from never", "earliest"),
        ("consume t --until earliest", "no place to stop"),
        ("consume t --group g --partition 1", "cannot be used with"),
        ("consume t --assignor range", "--group"),
        ("consume t --lag", "--group"),
        ("consume t --json --format %s", "cannot be used with"),
        ("consume t --with colour", "timestamp, topic, partition, offset, key, headers, all"),
        ("offsets t --at yesterday", "is no time"),
        ("offsets --partition 1", "<TOPICS>"),
        ("config describe t", "topic/NAME, group/NAME, broker/ID, loggers/ID or brokers"),
        ("config set topic/t", "<NAME=VALUE>"),
        ("group reset g", "--to-earliest"),
        ("group reset g --to-earliest --to-latest", "cannot be used with"),
        ("group reset g --to-time tomorrow", "is no time"),
        ("group reset g --by-duration 1y", "is no span"),
        ("group reset g --to-offset -1", "-1"),
        ("group reset g --to-earliest --execute --dry-run", "cannot be used with"),
        ("group reset g --from-file f --topic t", "cannot be used with"),
        ("group reset g --to-earliest --topic t:x", "is no partition"),
        ("group delete-offsets g", "--topic"),
        ("bench produce t --linger-ms 1", "--rate"),
        ("bench produce t --duration soon", "is no span"),
        ("completions cmd", "bash, elvish, fish, powershell, zsh"),
    ] {
        let error = parsed(line).expect_err(line);
        assert!(error.contains(part), "{line}: {error}");
    }
}
