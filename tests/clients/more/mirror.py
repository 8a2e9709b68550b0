#!/usr/bin/env python3
"""MirrorMaker 2 from the server under test to a real Kafka: records, the topic's configuration,
a group's offsets, and what is written while it runs."""

import signal
import subprocess
import tempfile
from pathlib import Path

import checks
import lib
import server
import suite
import tools
from confluent import Confluent
from confluent_kafka import Consumer, TopicPartition

SETTINGS = """clusters = source, target
source.bootstrap.servers = {source}
target.bootstrap.servers = {target}
source->target.enabled = true
source->target.topics = mirrored.*
source->target.groups = .*
target->source.enabled = false
replication.factor = 1
checkpoints.topic.replication.factor = 1
heartbeats.topic.replication.factor = 1
offset-syncs.topic.replication.factor = 1
offset.storage.replication.factor = 1
status.storage.replication.factor = 1
config.storage.replication.factor = 1
sync.group.offsets.enabled = true
sync.group.offsets.interval.seconds = 2
emit.checkpoints.interval.seconds = 2
offset.lag.max = 0
refresh.topics.interval.seconds = 5
refresh.groups.interval.seconds = 5
sync.topic.configs.interval.seconds = 5
source.consumer.auto.offset.reset = earliest
source->target.exactly.once.source.support = disabled
"""
PATIENCE_S = 300


def commit(bootstrap, group, topic, offset):
    settings = {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False}
    consumer = Consumer(settings)
    parts = [TopicPartition(topic, it, offset) for it in range(lib.PARTITIONS)]
    consumer.commit(offsets=parts, asynchronous=False)
    consumer.close()


def committed(bootstrap, group, topic):
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    found = consumer.committed([TopicPartition(topic, it) for it in range(lib.PARTITIONS)], 30)
    consumer.close()
    return [it.offset for it in found]


def ends(client, topic):
    try:
        return sum(client.bounds(topic, it)[1] for it in range(lib.PARTITIONS))
    except lib.Refused:
        return 0


def check_mirror(report, bootstrap, count, work, target):
    source, there = Confluent(bootstrap), Confluent(target.bootstrap)
    topic, group = lib.topic_name("mirrored"), lib.topic_name("group")
    suite.ready_topic(source, topic, lib.PARTITIONS, {"retention.ms": "86400000"})
    records = lib.make_records(count)
    half = count // 2
    source.produce(topic, records[:half], "all", "lz4", True)
    (work / "mm2.properties").write_text(
        SETTINGS.format(source=bootstrap, target=target.bootstrap)
    )
    command = tools.java("org.apache.kafka.connect.mirror.MirrorMaker", work / "mm2.properties")
    with open(work / "mm2.log", "ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    copy = f"source.{topic}"
    try:
        arrived = lambda wanted: lambda: ends(there, copy) >= wanted  # noqa: E731
        lib.wait_until(arrived(half), "the first half", PATIENCE_S, 0.5)
        source.produce(topic, records[half:], "all", "zstd", True)
        lib.wait_until(arrived(count), "the second half", PATIENCE_S, 0.5)
        own = [sum(it.partition == p for it in records) for p in range(lib.PARTITIONS)]
        commit(bootstrap, group, topic, min(own))
        try:
            is_there = lambda: min(committed(target.bootstrap, group, copy)) > 0  # noqa: E731
            lib.wait_until(is_there, "the group's offsets", 60, 1)
        except TimeoutError:
            pass
        found = committed(target.bootstrap, group, copy)
        report.check(
            "a group's offsets are translated", 0 < min(found) <= max(found) <= min(own), found
        )
        starts = {it: "earliest" for it in range(lib.PARTITIONS)}
        received = [it for it, _ in there.read(copy, starts, dict(enumerate(own)))]
        report.say("moved", len(received))
        same = lib.by_partition(received) == lib.by_partition(records)
        report.check("every record once and in order", same, f"{len(received)} of {count}")
        config = lambda: there.topic_config(copy).get("retention.ms")  # noqa: E731
        try:
            lib.wait_until(lambda: config() == "86400000", "the configuration", 60, 0.5)
        except TimeoutError:
            pass
        report.equal("the topic's configuration is copied", config(), "86400000")
    finally:
        process.send_signal(signal.SIGTERM)
        status = process.wait(60)
    report.equal("it ends in order after SIGTERM", status, 143)


def main():
    bootstrap, count = checks.arguments()
    report = checks.Checks()
    report.say("version", "4.3.1")
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        target = server.StockKafka(work / "target", 1)
        try:
            target.start()
            run = lambda: check_mirror(report, bootstrap, count, work, target)  # noqa: E731
            report.attempt("mirror", run)
            target.stop()
        finally:
            target.kill()
        if report.failed:
            print((work / "mm2.log").read_text(errors="replace")[-20000:])
    return report.finish()


if __name__ == "__main__":
    lib.main(main)
