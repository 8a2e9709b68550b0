#!/usr/bin/env python3
"""Transactions with Kafka's own Java clients: TransactionalMessageCopier with random aborts,
producer-perf with transactions, `kafka-transactions` (list, describe, describe-producers,
find-hanging, abort) and the console consumer's formatter for `__transaction_state`.

The server may be killed and started again while the copier runs.
"""

import json
import re
import subprocess
import time

import lib
import suite
from confluent import Confluent
from java import Tools
from kills import Restarts
from transactions import ends, producer, settled_ends, stable_ends, values_of

PARTITIONS = 4
COPIER = "org.apache.kafka.tools.TransactionalMessageCopier"
FORMATTER = "org.apache.kafka.tools.consumer.TransactionLogMessageFormatter"
PERF_RECORDS = 20_000
COPY_S = 600


def copy_command(bootstrap, source, target, name):
    """Copies one partition's share of a group; ends when it is at the end."""
    return [
        lib.KAFKA,
        "java",
        COPIER,
        *("--broker-list", bootstrap),
        *("--input-topic", source, "--input-partition", "-1", "--output-topic", target),
        *("--consumer-group", f"{name}-group", "--transactional-id", name),
        *("--transaction-size", "500", "--max-messages", "-1"),
        *("--enable-random-aborts", "--group-mode", "--use-group-metadata"),
    ]


def check_copier(report, client, arguments):
    bootstrap, count = arguments.bootstrap, arguments.records
    source = lib.topic_name("java-transactions", "source")
    target = lib.topic_name("java-transactions", "target")
    for topic in (source, target):
        suite.ready_topic(client, topic, PARTITIONS)
    now = int(time.time() * 1000)
    records = [
        lib.Record(number % PARTITIONS, b"key", f"{number}".encode(), [], now)
        for number in range(count)
    ]
    client.produce(source, records, "all", "none", True)
    started = time.monotonic()
    restarts = Restarts(arguments.midway, arguments.kills if arguments.midway else 0)
    command = copy_command(bootstrap, source, target, lib.topic_name("copier"))
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL
    )
    while process.poll() is None and time.monotonic() < started + COPY_S:
        restarts.look()
        time.sleep(0.01)
    process.kill()
    out = process.communicate()[0].decode()
    report.equal("the copier's exit status", process.returncode, 0)
    report.equal("restarts that failed", restarts.failed, 0)
    last = json.loads(out.strip().splitlines()[-1]) if out.strip() else {}
    report.equal("records that the copier has left", last.get("remaining"), 0)
    report.step(f"the copier took {time.monotonic() - started:.0f} s: {last}")
    until = settled_ends(bootstrap, target)
    found = values_of(bootstrap, target, "read_committed", until)
    report.moved += sum(map(len, found.values()))
    wanted = sorted(int(record.value) for record in records)
    got = sorted(int(value) for values in found.values() for value in values)
    report.check("every record once", got == wanted, f"{len(got)} of {len(wanted)}")


def check_perf(report, client, tools):
    topic, name = lib.topic_name("java-transactions", "perf"), lib.topic_name("perf")
    suite.ready_topic(client, topic, PARTITIONS)
    answer = lib.run(
        [
            lib.KAFKA,
            "producer-perf",
            *("--bootstrap-server", tools.bootstrap, "--topic", topic),
            *("--num-records", str(PERF_RECORDS), "--record-size", "100", "--throughput", "-1"),
            *("--transactional-id", name, "--transaction-duration-ms", "50"),
        ]
    )
    out = answer.stdout.decode()
    report.equal("producer-perf's exit status", answer.returncode, 0)
    report.step(out.strip().splitlines()[-1] if out.strip() else "no output")
    until = settled_ends(tools.bootstrap, topic)
    found = values_of(tools.bootstrap, topic, "read_committed", until)
    report.equal("records of producer-perf", sum(map(len, found.values())), PERF_RECORDS)
    described = described_as(tools, name)
    report.equal("its last transaction", described.get("TransactionState"), "CompleteCommit")
    # With transaction version 2 every end raises the epoch.
    epoch = int(described.get("ProducerEpoch", 0))
    report.check("its epoch was raised by every transaction", epoch > 1, described)


def described_as(tools, name):
    out = tools.must("transactions", "describe", "--transactional-id", name)
    head, *rows = [line.split("\t") for line in out.strip().splitlines()]
    return dict(zip((word.strip() for word in head), (word.strip() for word in rows[0])))


def check_hanging(report, client, tools):
    """An operator finds a transaction that nobody ends, and ends it."""
    bootstrap, name = tools.bootstrap, lib.topic_name("hanging")
    topic = lib.topic_name("java-transactions", "hanging")
    suite.ready_topic(client, topic, PARTITIONS)
    open_one = producer(bootstrap, name)
    open_one.begin_transaction()
    open_one.produce(topic, b"hanging", partition=3)
    open_one.flush(60)
    listed = tools.must("transactions", "list")
    rows = [line.split() for line in listed.splitlines() if line.startswith(name)]
    report.check("list names it as open", rows and rows[0][-1] == "Ongoing", listed)
    described = described_as(tools, name)
    report.equal("describe names its partition", described["TopicPartitions"], f"{topic}-3")
    report.equal("describe names its state", described["TransactionState"], "Ongoing")
    where = ["--topic", topic, "--partition", "3"]
    out = tools.must("transactions", "describe-producers", *where)
    report.check("describe-producers names its first offset", re.search(r"\b0\s*$", out), out)
    status, out, err = tools.run("transactions", "abort", *where, "--start-offset", "0")
    report.check("abort", status == 0, (out, err))
    report.equal("it is over", stable_ends(bootstrap, topic)[3], ends(bootstrap, topic)[3])
    found = values_of(bootstrap, topic, "read_committed", ends(bootstrap, topic))
    report.equal("and does not count", found[3], [])


def values_in(text):
    """JSON values without anything between them, as the formatter prints them."""
    decoder = json.JSONDecoder()
    while text.startswith("{"):
        value, end = decoder.raw_decode(text)
        yield value
        text = text[end:].lstrip()


def check_formatter(report, tools):
    status, out, err = tools.run(
        "console-consumer",
        *("--topic", "__transaction_state", "--from-beginning", "--timeout-ms", "10000"),
        *("--formatter", FORMATTER),
    )
    records = list(values_in(out))
    report.check("Kafka's formatter reads __transaction_state", records, (status, out[-500:], err))
    versions = {(it["key"]["type"], it["value"]["version"]) for it in records if it["value"]}
    report.equal("types and versions of the records", versions, {(0, 1)})


def body(arguments):
    report = lib.Report("java-transactions")
    client, tools = Confluent(arguments.bootstrap), Tools(arguments.bootstrap)
    check_copier(report, client, arguments)
    check_perf(report, client, tools)
    check_hanging(report, client, tools)
    check_formatter(report, tools)
    return report.finish()


def more_options(parser):
    parser.add_argument("--kills", type=int, default=3, help="how often the server is killed (3)")
    parser.add_argument("--midway", metavar="COMMAND", help="kills the server and starts it again")


if __name__ == "__main__":
    ARGUMENTS = lib.options(__doc__, more_options)
    lib.main(lambda: body(ARGUMENTS))
