#!/usr/bin/env python3
"""Kafka's own Java clients against a bootstrap server, through its command-line tools
(scripts/kafka): console-producer, console-consumer with --partition (no group), producer-perf,
topics, get-offsets, configs.

Each tool is a JVM of its own, so there are few moves with many records each, into two partitions.
"""

import re
import time
from collections import Counter

import lib

PARTITIONS = 2
HEADERS = "source:console,part:two"
# label, codec, properties of the producer
MOVES = (
    ("default-codec-none", "none", []),
    ("idempotent-codec-zstd", "zstd", ["enable.idempotence=true", "acks=all"]),
    ("plain-codec-lz4", "lz4", ["enable.idempotence=false", "acks=all"]),
    ("leader-codec-gzip", "gzip", ["enable.idempotence=false", "acks=1"]),
    ("blind-codec-snappy", "snappy", ["enable.idempotence=false", "acks=0"]),
)
PERFS = (["acks=1", "enable.idempotence=false"], ["acks=all", "batch.size=65536", "linger.ms=5"])
PERF_BYTES = 200
# How a tool says it: the exception for the error code is named on stderr.
EXISTS, ILLEGAL = "TopicExistsException", "InvalidTopicException"
REPLICATION, CONFIG = "InvalidReplicationFactorException", "InvalidConfigurationException"


class Tools:
    def __init__(self, bootstrap):
        self.bootstrap = bootstrap

    def run(self, tool, *arguments, stdin=b""):
        answer = lib.run(
            [lib.KAFKA, tool, "--bootstrap-server", self.bootstrap, *arguments], stdin=stdin
        )
        return answer.returncode, answer.stdout.decode(), answer.stderr.decode()

    def must(self, tool, *arguments, stdin=b""):
        status, out, err = self.run(tool, *arguments, stdin=stdin)
        if status:
            raise RuntimeError(
                f"{tool} {arguments} ended with {status}: {out[-2000:]} {err[-2000:]}"
            )
        return out

    def create(self, topic, partitions, *more):
        return self.run(
            "topics",
            "--create",
            "--topic",
            topic,
            "--partitions",
            str(partitions),
            "--replication-factor",
            "1",
            *more,
        )

    def offsets(self, topic, when):
        """{partition: offset}; the tool leaves a partition's offset empty where it has none."""
        out = self.must("get-offsets", "--topic", topic, "--time", str(when))
        lines = [line.rsplit(":", 2) for line in out.splitlines() if line.startswith(topic)]
        return {int(partition): int(offset) if offset else None for _, partition, offset in lines}

    def consume(self, topic, partition, offset, count, *more, patience_ms=30_000):
        properties = [
            word
            for name in ("timestamp", "offset", "partition", "headers", "key")
            for word in ("--formatter-property", f"print.{name}=true")
        ]
        return self.run(
            "console-consumer",
            "--topic",
            topic,
            "--partition",
            str(partition),
            "--offset",
            str(offset),
            "--max-messages",
            str(count),
            "--timeout-ms",
            str(patience_ms),
            *properties,
            *more,
        )


def lines_to_send(count):
    """Text lines as the producer's reader wants them, and what the consumer has to print for
    each."""
    sent = []
    for number, record in enumerate(lib.make_records(count)):
        key = "null" if record.key is None else record.key.decode()
        value = (record.value or b"").decode() or f"{number} filled"
        sent.append((HEADERS, key, f"{number} {value}"))
    return sent


def parse(line):
    """`CreateTime:N TAB Partition:N TAB Offset:N TAB headers TAB key TAB value` -> its fields."""
    stamp, partition, offset, headers, key, value = line.split("\t", 5)
    number = [int(field.split(":")[1]) for field in (stamp, partition, offset)]
    return (*number, (headers, key, value))


def check_topics(tools, report):
    topic = lib.topic_name("java", "topics")
    status, out, err = tools.create(
        topic, 4, "--config", "retention.ms=-1", "--config", "segment.bytes=1048576"
    )
    report.check("create", status == 0, (out, err))
    report.check("list", topic in tools.must("topics", "--list").split())
    out = tools.must("topics", "--describe", "--topic", topic)
    report.check("describe: partition count", "PartitionCount: 4" in out, out)
    report.equal(
        "describe: partitions with a leader",
        len(re.findall(r"Partition: \d+\s+Leader: \d+", out)),
        4,
    )
    report.check(
        "describe: configuration", "retention.ms=-1" in out and "segment.bytes=1048576" in out, out
    )
    out = tools.must(
        "configs", "--describe", "--entity-type", "topics", "--entity-name", topic, "--all"
    )
    report.check(
        "configs of the topic",
        "retention.ms=-1" in out and "cleanup.policy=delete" in out,
        out[:500],
    )
    report.check(
        "configs give the source", "DYNAMIC_TOPIC_CONFIG:retention.ms=-1" in out, out[:500]
    )
    out = tools.must(
        "configs", "--describe", "--entity-type", "brokers", "--entity-name", "1", "--all"
    )
    report.check(
        "configs of the broker", "log.segment.bytes=" in out and "num.partitions=" in out, out[:500]
    )
    report.equal("offsets of an empty topic", tools.offsets(topic, -1), {p: 0 for p in range(4)})
    for what, said, call in (
        ("create it again", EXISTS, lambda: tools.create(topic, 4)),
        ("create an illegal name", ILLEGAL, lambda: tools.create("with/slash", 1)),
        (
            "create with an unknown config",
            CONFIG,
            lambda: tools.create(topic + "-config", 1, "--config", "retention.msec=1"),
        ),
    ):
        status, out, err = call()
        report.check(what, status != 0 and said in out + err, (status, out[-500:], err[-500:]))
    report.check("create with too many replicas", refuses_replicas(tools, topic + "-replicas"))
    tools.must("topics", "--delete", "--topic", topic)
    report.check("deleted", topic not in tools.must("topics", "--list").split())
    status, out, err = tools.run("topics", "--delete", "--topic", topic)
    report.check(
        "delete it again", status != 0 and "does not exist" in out + err, (status, out[-500:])
    )


def refuses_replicas(tools, topic):
    status, out, err = tools.run(
        "topics", "--create", "--topic", topic, "--partitions", "1", "--replication-factor", "99"
    )
    return status != 0 and REPLICATION in err


def check_move(tools, report, move, count):
    label, codec, properties = move
    topic = lib.topic_name("java", label)
    status, out, err = tools.create(topic, PARTITIONS)
    report.check(f"{label}: create", status == 0, (out, err))
    sent = lines_to_send(count)
    arguments = [word for setting in properties for word in ("--command-property", setting)]
    arguments += [
        word
        for setting in ("parse.key=true", "parse.headers=true", "null.marker=null")
        for word in ("--reader-property", setting)
    ]
    started = time.monotonic()
    tools.must(
        "console-producer",
        "--topic",
        topic,
        "--compression-codec",
        codec,
        *arguments,
        stdin="".join("\t".join(line) + "\n" for line in sent).encode(),
    )
    produced = time.monotonic()
    ends = lib.wait_until(lambda: arrived(tools, topic, count), f"{label}: arrival")
    received = []
    for partition, end in ends.items():
        status, out, err = tools.consume(topic, partition, "earliest", end)
        report.check(
            f"{label}: the consumer of partition {partition} ends well", status == 0, err[-500:]
        )
        received.append([parse(line) for line in out.splitlines()])
    compare(report, label, sent, received)
    report.step(
        f"{label}: {count} records, {count / (produced - started):.0f}/s out, "
        f"{count / (time.monotonic() - produced):.0f}/s in, JVM starts included"
    )


def arrived(tools, topic, count):
    ends = tools.offsets(topic, -1)
    return ends if sum(ends.values()) >= count else None


def compare(report, label, sent, received):
    """The multiset; which partition a key goes to is the client's choice, so order means rising
    numbers."""
    lines = [fields for part in received for _, _, _, fields in part]
    report.moved += len(lines)
    missing, beyond = Counter(sent) - Counter(lines), Counter(lines) - Counter(sent)
    report.check(
        f"{label}: every record once",
        not missing and not beyond,
        f"{missing.total()} missing {lib.shorten(list(missing)[:1])}, {beyond.total()} too many "
        f"{lib.shorten(list(beyond)[:1])}",
    )
    for partition, part in enumerate(received):
        numbers = [int(fields[2].split()[0]) for _, _, _, fields in part]
        report.check(f"{label}: order within partition {partition}", numbers == sorted(numbers))
        report.check(
            f"{label}: offsets of partition {partition} without a gap",
            [offset for _, _, offset, _ in part] == list(range(len(part))),
        )
        report.check(
            f"{label}: partition {partition} is named", {p for _, p, _, _ in part} <= {partition}
        )
    keys = [{fields[1] for _, _, _, fields in part} - {"null"} for part in received]
    report.check(f"{label}: a key stays in one partition", not keys[0] & keys[1])


def check_positions(tools, report):
    topic = lib.topic_name("java", "positions")
    tools.create(topic, 1)
    sent = lines_to_send(3000)
    text = "".join("\t".join(line) + "\n" for line in sent).encode()
    tools.must(
        "console-producer",
        "--topic",
        topic,
        "--reader-property",
        "parse.key=true",
        "--reader-property",
        "parse.headers=true",
        "--reader-property",
        "null.marker=null",
        stdin=text,
    )
    status, out, err = tools.consume(topic, 0, 1000, 2000)
    part = [parse(line) for line in out.splitlines()]
    report.check(
        "from an offset", status == 0 and [entry[3] for entry in part] == sent[1000:], err[-500:]
    )
    stamps = [entry[0] for entry in part]
    middle = stamps[1000]
    report.equal("get-offsets earliest", tools.offsets(topic, -2), {0: 0})
    report.equal("get-offsets latest", tools.offsets(topic, -1), {0: 3000})
    wanted = 1000 + next(i for i, stamp in enumerate(stamps) if stamp >= middle)
    if stamps[0] < middle:
        report.equal("get-offsets at a timestamp", tools.offsets(topic, middle), {0: wanted})
    newest = 1000 + stamps.index(max(stamps))
    report.equal("get-offsets max-timestamp", tools.offsets(topic, -3), {0: newest})
    status, out, err = tools.consume(topic, 0, "latest", 1, patience_ms=3000)
    report.check(
        "from the end there is nothing",
        out == "" and "Processed a total of 0" in err,
        (out[:200], err),
    )
    status, out, err = tools.consume(
        topic, 0, 99_999, 1, "--command-property", "auto.offset.reset=none"
    )
    report.check(
        "an offset beyond the end is an error", "out of range" in out + err, (status, err[-500:])
    )


def check_perf(tools, report, count):
    for properties in PERFS:
        topic = lib.topic_name("java", "perf")
        tools.create(topic, PARTITIONS)
        out = tools.must(
            "producer-perf",
            "--topic",
            topic,
            "--num-records",
            str(count),
            "--record-size",
            str(PERF_BYTES),
            "--throughput",
            "-1",
            *[word for setting in properties for word in ("--command-property", setting)],
        )
        report.check(
            f"producer-perf {properties[0]} sent all", f"{count} records sent" in out, out[-300:]
        )
        report.equal(
            f"producer-perf {properties[0]}: offsets", sum(tools.offsets(topic, -1).values()), count
        )
        report.step(f"producer-perf {properties[0]}: {out.splitlines()[-1]}")


def check_oversize(tools, report):
    topic = lib.topic_name("java", "small")
    tools.create(topic, 1, "--config", "max.message.bytes=10000")
    _, out, err = tools.run("console-producer", "--topic", topic, stdin=b"x" * 20_000 + b"\n")
    report.check(
        "a record over the topic's limit", "RecordTooLargeException" in out + err, err[-500:]
    )
    report.equal("is not kept", tools.offsets(topic, -1), {0: 0})


def check_unknown_topic(tools, report, auto_create):
    topic = lib.topic_name("java", "unknown")
    if auto_create == "ask":
        out = tools.must(
            "configs", "--describe", "--entity-type", "brokers", "--entity-name", "1", "--all"
        )
        auto_create = "on" if re.search(r"(?m)^\s*auto.create.topics.enable=true", out) else "off"
    _, out, err = tools.run(
        "console-producer",
        "--topic",
        topic,
        "--command-property",
        "max.block.ms=8000",
        stdin=b"value\n",
    )
    exists = topic in tools.must("topics", "--list").split()
    if auto_create == "on":
        report.check("an unknown topic is created", exists, err[-500:])
        report.equal("and keeps the record", sum(tools.offsets(topic, -1).values()), 1)
    else:
        report.check(
            "an unknown topic is an error", "not present in metadata" in out + err, err[-500:]
        )
        report.check("and is not created", not exists)


def body(arguments):
    report = lib.Report("java")
    tools = Tools(arguments.bootstrap)
    check_topics(tools, report)
    each = -(-arguments.records // len(MOVES))
    for move in MOVES:
        check_move(tools, report, move, each)
    check_positions(tools, report)
    check_perf(tools, report, arguments.records // 2)
    check_oversize(tools, report)
    check_unknown_topic(tools, report, arguments.auto_create)
    return report.finish()


if __name__ == "__main__":
    ARGUMENTS = lib.options(__doc__)
    lib.main(lambda: body(ARGUMENTS))
