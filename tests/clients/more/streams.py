#!/usr/bin/env python3
"""Kafka Streams' word count with exactly-once v2, two instances, one of them killed (kill -9) in
the middle and started again. Each word's counts in the output have to be 1, 2, 3 ... without a
gap and without a repetition.
"""

import collections
import random
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import checks
import lib
import tools
from confluent import Confluent
from confluent_kafka import Consumer, KafkaError, TopicPartition
import suite

PARTITIONS = 4
WORDS = [f"word-{number}" for number in range(500)]
WORDS_A_LINE = 2
PATIENCE_S = 400


class Reader:
    """Counts of each word in the order of the output, by committed transactions only."""

    def __init__(self, bootstrap, topic):
        self.counts = collections.defaultdict(list)
        self.total = 0
        self.consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "reader",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
            }
        )
        self.consumer.assign([TopicPartition(topic, it, 0) for it in range(PARTITIONS)])

    def read(self, wanted, seconds, processes=()):
        deadline = time.monotonic() + seconds
        while self.total < wanted and time.monotonic() < deadline:
            for message in self.consumer.consume(1000, 0.5):
                if message.error():
                    if message.error().code() != KafkaError._PARTITION_EOF:
                        raise RuntimeError(message.error())
                    continue
                self.counts[message.key().decode()].append(int(message.value()))
                self.total += 1
            ended = [it.returncode for it in processes if it.poll() is not None]
            if ended:
                raise RuntimeError(f"an instance ended with {ended}")


def start(bootstrap, names, folder, log):
    source = checks.HERE / "java" / "WordCount.java"
    command = tools.java(source, bootstrap, *names, folder, 2)
    return subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)


def check_counts(report, bootstrap, count, work):
    client = Confluent(bootstrap)
    source, target = lib.topic_name("lines"), lib.topic_name("counts")
    for topic in (source, target):
        suite.ready_topic(client, topic, PARTITIONS)
    chance = random.Random(7)
    lines = [" ".join(chance.choices(WORDS, k=WORDS_A_LINE)) for _ in range(count // WORDS_A_LINE)]
    wanted = collections.Counter(word for line in lines for word in line.split())
    now = int(time.time() * 1000)
    records = [
        lib.Record(number % PARTITIONS, None, line.encode(), [], now)
        for number, line in enumerate(lines)
    ]
    half = len(records) // 2
    client.produce(source, records[:half], "all", "lz4", True)
    names = [lib.topic_name("word-count"), source, target]
    log = open(work / "streams.log", "ab")
    instances = [start(bootstrap, names, work / f"state-{it}", log) for it in range(2)]
    try:
        reader = Reader(bootstrap, target)
        reader.read(half * WORDS_A_LINE // 2, PATIENCE_S, instances)
        report.check("instances start and count", reader.total > 0, "nothing came out")
        instances[0].kill()
        instances[0].wait()
        client.produce(source, records[half:], "all", "zstd", True)
        instances[0] = start(bootstrap, names, work / "state-0", log)
        reader.read(wanted.total(), PATIENCE_S, instances)
        reader.read(wanted.total() + 1, 3)
        for instance in instances:
            instance.send_signal(signal.SIGTERM)
        statuses = [instance.wait(60) for instance in instances]
    finally:
        for instance in instances:
            instance.kill()
    report.say("moved", reader.total)
    report.equal("updates of counts in all, after a kill", reader.total, wanted.total())
    wrong = [it for it in wanted if reader.counts[it] != list(range(1, wanted[it] + 1))]
    report.check("every word counted exactly once, in order", not wrong, wrong[:3])
    report.equal("instances end in order after SIGTERM", statuses, [143, 143])


def main():
    bootstrap, count = checks.arguments()
    report = checks.Checks()
    report.say("version", "4.3.1")
    with tempfile.TemporaryDirectory() as work:
        run = lambda: check_counts(report, bootstrap, count, Path(work))  # noqa: E731
        report.attempt("word count", run)
        if report.failed:
            print((Path(work) / "streams.log").read_text(errors="replace")[-20000:])
    return report.finish()


if __name__ == "__main__":
    lib.main(main)
