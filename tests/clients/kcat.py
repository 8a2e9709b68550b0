#!/usr/bin/env python3
"""Debian's kcat (librdkafka 2.0) against a bootstrap server.

kcat gives no record timestamps and one set of headers per run, so each move sends lines `key TAB
number text` and compares what kcat itself reads back, as JSON, partition by partition.
"""

import json
import time

import lib
import suite
from confluent import Confluent
from lib import CODECS, PARTITIONS, Record

HEADERS = [("source", b"kcat"), ("empty", b"")]
# label, options of the producing kcat
MOVES = [(f"plain-codec-{codec}", ["-z", codec, "-X", "acks=all"]) for codec in CODECS] + [
    ("blind-codec-none", ["-X", "acks=0"]),
    ("leader-codec-none", ["-X", "acks=1"]),
    ("idempotent-codec-none", ["-X", "enable.idempotence=true"]),
    ("idempotent-codec-zstd", ["-X", "enable.idempotence=true", "-z", "zstd"]),
]


class Kcat:
    def __init__(self, bootstrap):
        self.bootstrap = bootstrap

    def run(self, *arguments, stdin=b""):
        return lib.run(["kcat", "-b", self.bootstrap, *arguments], stdin=stdin)

    def lines(self, *arguments):
        answer = self.run(*arguments)
        if answer.returncode:
            raise RuntimeError(f"kcat {arguments}: {answer.stderr.decode()}")
        return answer.stdout.splitlines()

    def metadata(self, *arguments):
        return json.loads(b"".join(self.lines("-L", "-J", *arguments)))

    def read(self, topic, *arguments):
        """Records and offsets that `kcat -C` prints until the end of the partitions."""
        found = [json.loads(line) for line in self.lines("-C", "-t", topic, "-J", "-e", *arguments)]
        return [(record_of(entry), entry["offset"]) for entry in found]

    def offset_at(self, topic, partition, timestamp):
        """kcat -Q answers `topic [partition] offset N`."""
        return int(self.lines("-q", "-Q", "-t", f"{topic}:{partition}:{timestamp}")[0].split()[-1])

    def high_watermark(self, topic, partition):
        return self.offset_at(topic, partition, -1)


def record_of(entry):
    flat = entry.get("headers") or []
    headers = [
        (flat[i], None if flat[i + 1] is None else flat[i + 1].encode())
        for i in range(0, len(flat), 2)
    ]
    return Record(
        entry["partition"],
        encoded(entry.get("key")),
        encoded(entry["payload"]),
        headers,
        entry["ts"],
    )


def encoded(text):
    return None if text is None else text.encode()


def without_time(records):
    return [record._replace(timestamp=0) for record in records]


def produce(kcat, topic, records, *arguments):
    """One kcat for each partition; -Z sends an empty field as null."""
    for partition, part in lib.by_partition(records).items():
        stdin = b"".join(b"%s\t%s\n" % (record.key or b"", record.value or b"") for record in part)
        headers = [word for name, value in HEADERS for word in ("-H", f"{name}={value.decode()}")]
        answer = kcat.run(
            "-P",
            "-t",
            topic,
            "-p",
            str(partition),
            "-K",
            "\t",
            "-Z",
            *headers,
            *arguments,
            stdin=stdin,
        )
        if answer.returncode:
            raise RuntimeError(f"kcat -P: {answer.stderr.decode()}")


def lines_to_send(count, partitions=PARTITIONS):
    records = [
        record._replace(value=record.value or None, headers=HEADERS, timestamp=0)
        for record in lib.make_records(count, partitions)
    ]
    # A line with neither key nor value is no record for kcat.
    return [
        record if record.key or record.value else record._replace(key=b"filled")
        for record in records
    ]


def create(bootstrap, topic, partitions, **config):
    """kcat cannot create topics; Kafka's own tool would cost a JVM for each, confluent-kafka is
    at hand."""
    suite.ready_topic(Confluent(bootstrap), topic, partitions, config)


def check_metadata(kcat, report, bootstrap):
    found = kcat.metadata()
    addresses = [lib.split_address(broker["name"]) for broker in found["brokers"]]
    report.check(
        "-L names the bootstrap address", lib.split_address(bootstrap) in addresses, addresses
    )
    topic = lib.topic_name("kcat", "metadata")
    create(bootstrap, topic, 4)
    described = kcat.metadata("-t", topic)["topics"][0]
    report.equal(
        "-L -t shows the partitions",
        [part["partition"] for part in described["partitions"]],
        [0, 1, 2, 3],
    )
    ids = {broker["id"] for broker in found["brokers"]}
    report.check(
        "-L -t names a leader of the cluster for each",
        {part["leader"] for part in described["partitions"]} <= ids,
        described,
    )
    text = b"\n".join(kcat.lines("-L", "-t", topic)).decode()
    report.check("-L as text", f'topic "{topic}" with 4 partitions' in text, text)


def check_move(kcat, report, label, arguments, count):
    topic = lib.topic_name("kcat", label)
    create(kcat.bootstrap, topic, PARTITIONS)
    records = lines_to_send(count)
    started = time.monotonic()
    before = int(time.time() * 1000)
    produce(kcat, topic, records, *arguments)
    produced = time.monotonic()
    counts = {partition: len(part) for partition, part in lib.by_partition(records).items()}
    lib.wait_until(
        lambda: all(kcat.high_watermark(topic, p) >= n for p, n in counts.items()),
        f"{label}: arrival",
    )
    received = kcat.read(topic, "-o", "beginning")
    lib.compare(report, label, records, without_time([record for record, _ in received]))
    report.check(
        f"{label}: timestamps are those of the producing",
        all(
            before - 1000 <= record.timestamp <= time.time() * 1000 + 1000 for record, _ in received
        ),
    )
    report.equal(
        f"{label}: high watermarks", {p: kcat.high_watermark(topic, p) for p in counts}, counts
    )
    report.step(
        f"{label}: {count} records, {count / (produced - started):.0f}/s out, "
        f"{count / (time.monotonic() - produced):.0f}/s in"
    )


def check_positions(kcat, report):
    topic = lib.topic_name("kcat", "positions")
    create(kcat.bootstrap, topic, 2)
    records = lines_to_send(4000, 2)
    produce(kcat, topic, records)
    received = kcat.read(topic, "-p", "1", "-o", "beginning")
    everything = [record for record, _ in received]
    report.equal("offsets without a gap", [offset for _, offset in received], list(range(2000)))
    report.equal(
        "from an offset",
        [record for record, _ in kcat.read(topic, "-p", "1", "-o", "1500")],
        everything[1500:],
    )
    report.equal(
        "from an offset, a count of them",
        [record for record, _ in kcat.read(topic, "-p", "1", "-o", "100", "-c", "10")],
        everything[100:110],
    )
    report.equal(
        "the last ten",
        [offset for _, offset in kcat.read(topic, "-p", "1", "-o", "-10")],
        list(range(1990, 2000)),
    )
    report.equal("from the end", kcat.read(topic, "-p", "1", "-o", "end"), [])
    report.equal("-Q earliest", kcat.offset_at(topic, 1, -2), 0)
    report.equal("-Q latest", kcat.offset_at(topic, 1, -1), 2000)
    middle = everything[1000].timestamp
    wanted = lib.first_at_or_after(everything, middle)
    report.equal("-Q by timestamp", kcat.offset_at(topic, 1, middle), wanted)
    report.equal(
        "from a timestamp",
        [offset for _, offset in kcat.read(topic, "-p", "1", "-o", f"s@{middle}")],
        list(range(wanted, 2000)),
    )
    answer = kcat.run(
        "-C", "-t", topic, "-p", "1", "-o", "9000", "-e", "-X", "auto.offset.reset=error"
    )
    report.check(
        "an offset beyond the end is an error",
        answer.returncode != 0 and b"out of range" in answer.stderr.lower(),
        (answer.returncode, answer.stderr),
    )


def check_errors(kcat, report):
    small = lib.topic_name("kcat", "small")
    create(kcat.bootstrap, small, 1, **{"max.message.bytes": "10000"})
    answer = kcat.run("-P", "-t", small, "-p", "0", stdin=b"x" * 20_000 + b"\n")
    report.check(
        "a record over the topic's limit",
        b"Message size too large" in answer.stderr or b"too large" in answer.stderr.lower(),
        (answer.returncode, answer.stderr),
    )
    report.equal("is not kept", kcat.high_watermark(small, 0), 0)


def check_unknown_topic(kcat, report, auto_create):
    topic = lib.topic_name("kcat", "unknown")
    if auto_create == "ask":
        asked = Confluent(kcat.bootstrap)
        auto_create = {"true": "on", "false": "off"}[
            asked.broker_config(min(asked.brokers()))["auto.create.topics.enable"]
        ]
    answer = kcat.run("-P", "-t", topic, "-X", "message.timeout.ms=10000", stdin=b"value\n")
    if auto_create == "on":
        report.check("an unknown topic is created", answer.returncode == 0, answer.stderr)
        report.equal(
            "and keeps the record", [record.value for record, _ in kcat.read(topic)], [b"value"]
        )
    else:
        report.check(
            "an unknown topic is an error",
            answer.returncode != 0 or b"nknown" in answer.stderr,
            (answer.returncode, answer.stderr),
        )
        names = {entry["topic"] for entry in kcat.metadata()["topics"]}
        report.check("and is not created", topic not in names)


def body(arguments):
    report = lib.Report("kcat")
    kcat = Kcat(arguments.bootstrap)
    report.step(
        b" ".join(
            line for line in lib.run(["kcat", "-V"]).stdout.splitlines() if b"Version" in line
        ).decode()
    )
    check_metadata(kcat, report, arguments.bootstrap)
    each = -(-arguments.records // len(MOVES))
    for label, options in MOVES:
        check_move(kcat, report, label, options, each)
    check_positions(kcat, report)
    check_errors(kcat, report)
    check_unknown_topic(kcat, report, arguments.auto_create)
    return report.finish()


if __name__ == "__main__":
    ARGUMENTS = lib.options(__doc__)
    lib.main(lambda: body(ARGUMENTS))
