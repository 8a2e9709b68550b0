#!/usr/bin/env python3
"""kill -9 again and again while librdkafka produces small batches.

One idempotent producer keeps a few hundred records on their way to 4 partitions; in between, a
command kills the server and starts it again, as often as asked. Afterwards every record that was
acknowledged has to stand at the offset that its acknowledgement named, no record twice, and the
offsets of each partition without a gap.
"""

import subprocess
import time

from confluent_kafka import Producer

import lib
import suite
from confluent import Confluent

PARTITIONS = 4
IN_FLIGHT = 400
# How long the server lives between two kills: long enough for the client to find it again.
LIFE_S = 0.7
FLUSH_S = 120
# Fewer acknowledgements than this between two kills prove nothing.
PER_KILL = 500


class Restarts:
    """Runs the command so many times, each some time after the one before is over."""

    def __init__(self, command, count):
        self.command, self.left, self.failed = command, count, 0
        self.process, self.since = None, time.monotonic()

    def look(self):
        if self.process is not None:
            if self.process.poll() is None:
                return
            self.failed += self.process.returncode != 0
            self.process, self.since = None, time.monotonic()
        if self.left and time.monotonic() - self.since > LIFE_S:
            self.left -= 1
            self.process = subprocess.Popen(
                self.command, shell=True, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL
            )

    def are_over(self):
        return not self.left and self.process is None


def produce(bootstrap, topic, restarts):
    """What was acknowledged, by partition and offset, and the errors."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "log_level": 0,
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 1,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 100,
            "retry.backoff.ms": 10,
            "retry.backoff.max.ms": 20,
            "topic.metadata.refresh.fast.interval.ms": 20,
            "message.timeout.ms": FLUSH_S * 1000,
        }
    )
    acknowledged, errors = {}, []
    number = 0
    while not restarts.are_over():
        restarts.look()
        if len(producer) >= IN_FLIGHT:
            producer.poll(0.005)
            continue
        value = f"{number} {'x' * (number * 37 % 900)}".encode()
        partition = number % PARTITIONS

        def delivered(error, message, value=value, partition=partition):
            if error:
                errors.append(error)
            else:
                acknowledged[partition, message.offset()] = value

        producer.produce(topic, value, partition=partition, on_delivery=delivered)
        producer.poll(0)
        number += 1
    left = producer.flush(FLUSH_S)
    return number, left, acknowledged, errors


def body(arguments):
    report = lib.Report(f"kills {arguments.kills}")
    client = Confluent(arguments.bootstrap)
    topic = lib.topic_name("kills")
    suite.ready_topic(client, topic, PARTITIONS, {"segment.bytes": str(1 << 20)})
    restarts = Restarts(arguments.midway, arguments.kills)
    sent, left, acknowledged, errors = produce(arguments.bootstrap, topic, restarts)
    report.equal("restarts that failed", restarts.failed, 0)
    report.equal("records without an answer", left, 0)
    report.check("no record was refused", not errors, errors[:1])
    wanted = PER_KILL * arguments.kills
    report.check("the client found the server between kills", len(acknowledged) >= wanted)
    report.step(f"{sent} records sent, {len(acknowledged)} acknowledged, {arguments.kills} kills")
    ends = {partition: client.bounds(topic, partition)[1] for partition in range(PARTITIONS)}
    received = client.read(topic, {partition: "earliest" for partition in ends}, ends)
    found = {(record.partition, offset): record.value for record, offset in received}
    report.moved = len(received)
    report.equal("records in all partitions", len(found), sum(ends.values()))
    lost = [place for place, value in acknowledged.items() if found.get(place) != value]
    report.check("every acknowledged record is at its offset", not lost, lost[:3])
    values = [value for value in found.values()]
    report.equal("records that are there twice", len(values) - len(set(values)), 0)
    gaps = [
        partition
        for partition, end in ends.items()
        if sorted(offset for part, offset in found if part == partition) != list(range(end))
    ]
    report.check("offsets without a gap", not gaps, gaps)
    return report.finish()


def more_options(parser):
    parser.add_argument("--kills", type=int, default=20, help="how often the server is killed (20)")
    parser.add_argument("--midway", metavar="COMMAND", required=True, help="kills and starts it")


if __name__ == "__main__":
    ARGUMENTS = lib.options(__doc__, more_options)
    lib.main(lambda: body(ARGUMENTS))
