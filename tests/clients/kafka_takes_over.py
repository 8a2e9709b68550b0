#!/usr/bin/env python3
"""Kafka 4.3.1 starts on a log directory that another server wrote and stopped cleanly, takes no
partition for a stray, and serves the same records, timestamps, offsets and headers.

How Kafka is made to know the topics: its metadata goes to a directory of its own
(`metadata.log.dir`), formatted by `kafka-storage format` with the cluster id of the log
directory's meta.properties; then the topics found on disk are added, with the ids in their
partition.metadata, to the bootstrap records that a controller appends to an empty metadata log
(scripts/kafka-support/ImportTopics.java). The partition folders stay untouched; only
`__cluster_metadata-0` is left out, since Kafka refuses a second metadata log in a log directory.
The feature eligible.leader.replicas has to be off: with it a controller that does not know the
broker's last epoch takes its registration for one after an unclean stop, empties every ISR, and
elects no leader.

    kafka_takes_over.py --binary uringlog [--engine E] [--durability T]   two shards wrote it
    kafka_takes_over.py --stock                         two stock brokers did (tests this script)
"""

import argparse
import logging
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import dump
import lib
import server
import suite
from confluent import Confluent

METADATA = "__cluster_metadata-0"
PARTITIONS = 6
# name, configuration, acks, codec, idempotent
TOPICS = (
    ("plain", {}, "all", "none", False),
    ("rolled", {"segment.bytes": str(1 << 20)}, "all", "none", True),
    ("packed-codec-zstd", {}, "all", "zstd", True),
    ("packed-codec-lz4", {"segment.bytes": str(1 << 20)}, "1", "lz4", False),
)


def write_topics(report, bootstrap, count):
    """{topic: [(Record, offset)] by partition}, as the first server gives them back."""
    client = Confluent(bootstrap)
    written = {}
    for name, config, acks, codec, idempotent in TOPICS:
        topic = lib.topic_name("takeover", name)
        suite.ready_topic(client, topic, PARTITIONS, config)
        records = lib.make_records(count // len(TOPICS), PARTITIONS)
        client.produce(topic, records, acks, codec, idempotent)
        written[topic] = read_topic(client, topic)
        lib.compare(report, f"{name} before", records, [record for record, _ in written[topic]])
    return written


def ends(client, topic):
    """{partition: high watermark}; None while a partition's leader has just been elected and does
    not answer."""
    try:
        return {partition: client.bounds(topic, partition)[1] for partition in range(PARTITIONS)}
    except lib.Refused:
        return None


def read_topic(client, topic):
    counts = lib.wait_until(lambda: ends(client, topic), f"every partition of {topic} to answer")
    received = client.read(topic, {partition: "earliest" for partition in counts}, counts)
    return sorted(received, key=lambda pair: (pair[0].partition, pair[1]))


def read_properties(path):
    lines = path.read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))


def topics_on_disk(data):
    """{topic: (id, partitions, highest leader epoch)} from the partition folders."""
    found = {}
    for folder in dump.all_partitions(data):
        topic, partition = re.fullmatch(r"(.+)-(\d+)", folder.name).groups()
        identity = re.search(r"topic_id: (\S+)", (folder / "partition.metadata").read_text())[1]
        known, partitions, epoch = found.get(topic, (identity, 0, 0))
        assert known == identity, f"{folder} has another topic id than its neighbours"
        found[topic] = (
            identity,
            max(partitions, int(partition) + 1),
            max(epoch, highest_epoch(folder)),
        )
    return found


def highest_epoch(folder):
    """The checkpoint has a version, a count, then `epoch offset` lines."""
    lines = (folder / "leader-epoch-checkpoint").read_text().splitlines()[2:]
    return max((int(line.split()[0]) for line in lines), default=0)


def must(*command, **environment):
    answer = lib.run([lib.KAFKA, *map(str, command)], env={**lib.os.environ, **environment})
    if answer.returncode:
        raise RuntimeError(
            f"scripts/kafka {command[0]}: {answer.stdout.decode()[-1500:]} "
            f"{answer.stderr.decode()[-3000:]}"
        )
    return answer.stdout.decode()


def prepare(report, kafka_dir, port):
    """Formats Kafka's metadata beside the log directory kafka_dir/data and makes the topics
    known."""
    data, metadata = kafka_dir / "data", kafka_dir / "metadata"
    before = (data / "meta.properties").read_text()
    identity = read_properties(data / "meta.properties")
    node = identity["node.id"]
    must(
        "format",
        kafka_dir,
        port,
        f"metadata.log.dir={metadata}",
        f"node.id={node}",
        KAFKA_CLUSTER_ID=identity["cluster.id"],
        KAFKA_FORMAT="--feature eligible.leader.replicas.version=0",
    )
    report.equal(
        "format leaves meta.properties alone", (data / "meta.properties").read_text(), before
    )
    topics = [
        f"{name}:{identity_}:{partitions}:{epoch}"
        for name, (identity_, partitions, epoch) in topics_on_disk(data).items()
    ]
    out = must(
        "java",
        lib.ROOT / "scripts/kafka-support/ImportTopics.java",
        metadata,
        node,
        identity["directory.id"],
        *topics,
    )
    report.step(f"{len(topics)} topics imported: {out.strip()}")


def start_kafka(kafka_dir, port):
    """The broker keeps its stdout: no pipe, it would never close."""
    with open(kafka_dir / "start.log", "wb") as log:
        status = subprocess.run(
            [lib.KAFKA, "start", str(kafka_dir), str(port)],
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            check=False,
        ).returncode
    if status:
        raise RuntimeError((kafka_dir / "start.log").read_text()[-3000:])


def check_log(report, kafka_dir):
    lines = (kafka_dir / "server.log").read_text().splitlines()
    strays = [
        line for line in lines if re.search(r"\bstray", line, re.I) and "No stray" not in line
    ]
    report.check("no stray in Kafka's log", not strays, strays[:3])
    folders = [path.name for path in (kafka_dir / "data").iterdir() if path.name.endswith("-stray")]
    report.check("no stray folder", not folders, folders[:3])
    errors = [line for line in lines if re.match(r"\[[^]]*\] (ERROR|FATAL) ", line)]
    report.check("no error in Kafka's log", not errors, errors[:3])
    recovered = [line for line in lines if "Recovering unflushed segment" in line]
    report.check("nothing to recover after a clean stop", not recovered, recovered[:3])


def check_taken_over(report, bootstrap, written):
    client = Confluent(bootstrap)
    for topic, before in written.items():
        leaders = lib.wait_until(
            lambda: suite.leaders_of(client, topic, PARTITIONS), f"leaders of {topic}"
        )
        report.equal(f"{topic} has its partitions", sorted(leaders), list(range(PARTITIONS)))
        after = read_topic(client, topic)
        report.moved += len(after)
        report.check(
            f"{topic}: the same records at the same offsets",
            after == before,
            f"{len(after)} of {len(before)}",
        )
        more = lib.make_records(60, PARTITIONS, seed=2)
        client.produce(topic, more, "all", "none", True)
        grown = read_topic(client, topic)
        report.equal(f"{topic}: takes new records", len(grown), len(before) + len(more))


def take_over(report, data, work, written):
    kafka_dir = work / "kafka"
    kafka_dir.mkdir(parents=True)
    subprocess.run(["cp", "-a", "--sparse=always", str(data), str(kafka_dir / "data")], check=True)
    shutil.rmtree(kafka_dir / "data" / METADATA, ignore_errors=True)
    port = lib.free_port(1)
    prepare(report, kafka_dir, port)
    start_kafka(kafka_dir, port)
    try:
        report.step("Kafka has started")
        check_taken_over(report, f"127.0.0.1:{port}", written)
        check_log(report, kafka_dir)
    finally:
        must("stop", kafka_dir)
    dump.check(report, kafka_dir / "data", metadata=kafka_dir / "metadata")


def merge_brokers(first, second):
    """The partitions of two stock brokers in one directory, as two shards of ours leave them."""
    for folder in dump.partitions(second):
        shutil.move(folder, first / folder.name)
    for name in (
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
        "log-start-offset-checkpoint",
    ):
        parts = [(directory / name).read_text().splitlines()[2:] for directory in (first, second)]
        lines = [line for part in parts for line in part]
        (first / name).write_text("\n".join(["0", str(len(lines)), *lines]) + "\n")


def body(arguments):
    report = lib.Report("kafka-takes-over")
    work = Path(tempfile.mkdtemp(prefix="uringlog-takeover-", dir=arguments.work))
    if arguments.stock:
        source = server.StockKafka(work / "source")
    else:
        source = server.Uringlog(
            work / "source", arguments.binary, arguments.engine, arguments.durability, 2
        )
    try:
        source.start()
        written = write_topics(report, source.bootstrap, arguments.records)
        status, seconds = source.stop()
        report.equal("orderly stop", status, 0)
        report.step(f"written and stopped in {seconds:.1f} s")
        if arguments.stock:
            merge_brokers(source.dirs[0] / "data", source.dirs[1] / "data")
        take_over(report, source.data, work, written)
    finally:
        source.kill()
    if report.failed or arguments.keep:
        print(f"kept: {work}")
    else:
        shutil.rmtree(work)
    return report.finish()


if __name__ == "__main__":
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    PARSER = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    PARSER.add_argument("--binary", help="uringlog's binary")
    PARSER.add_argument(
        "--stock", action="store_true", help="let two stock brokers write the directory"
    )
    PARSER.add_argument("--engine", default="uring")
    PARSER.add_argument("--durability", default="device")
    PARSER.add_argument("--records", type=int, default=100_000)
    PARSER.add_argument(
        "--work", help="where the directories are made (the system's temporary directory)"
    )
    PARSER.add_argument("--keep", action="store_true", help="keep the directories")
    ARGUMENTS = PARSER.parse_args()
    lib.main(lambda: body(ARGUMENTS))
