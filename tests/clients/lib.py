"""What every client script shares: records, comparison, the report, options, and processes.

A script moves records through one client library against any bootstrap server, calls
`report.check` for each thing that must hold, and ends with `report.finish()`: exit status 0 only
when every check passed.
"""

import argparse
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections import Counter, namedtuple
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KAFKA = str(ROOT / "scripts" / "kafka")
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PARTITIONS = 6
DEADLINE_S = 120

# Kafka's error codes that the checks name.
OFFSET_OUT_OF_RANGE = 1
UNKNOWN_TOPIC_OR_PARTITION = 3
MESSAGE_TOO_LARGE = 10
INVALID_TOPIC = 17
TOPIC_ALREADY_EXISTS = 36
INVALID_PARTITIONS = 37
INVALID_REPLICATION_FACTOR = 38
INVALID_CONFIG = 40

# What is sent; `headers` is a list of (name, bytes or None).
Record = namedtuple("Record", "partition key value headers timestamp")


class Refused(Exception):
    """The server (or the client library for it) answered with a Kafka error code."""

    def __init__(self, code, text=""):
        super().__init__(f"error {code} {text}")
        self.code = code


class Report:
    """Counts checks, prints each failure at once, and knows the exit status."""

    def __init__(self, name):
        self.name = name
        self.passed = 0
        self.failed = 0
        self.moved = 0
        self.started = time.monotonic()

    def check(self, what, holds, detail=""):
        if holds:
            self.passed += 1
        else:
            self.failed += 1
            print(f"FAIL {self.name}: {what}{': ' if detail else ''}{detail}", flush=True)
        return holds

    def equal(self, what, got, wanted):
        return self.check(what, got == wanted, f"got {shorten(got)}, wanted {shorten(wanted)}")

    def refused(self, what, codes, call):
        """Runs `call`, which has to raise Refused with one of the codes."""
        try:
            answer = call()
        except Refused as refusal:
            return self.check(what, refusal.code in codes, f"{refusal}, wanted one of {codes}")
        return self.check(what, False, f"accepted ({shorten(answer)}), wanted error {codes}")

    def step(self, text):
        print(f"  {time.monotonic() - self.started:6.1f} s  {text}", flush=True)

    def finish(self):
        print(
            f"{self.name}: {self.moved} records moved and compared, {self.passed} checks passed, "
            f"{self.failed} checks failed, {time.monotonic() - self.started:.0f} s",
            flush=True,
        )
        return 1 if self.failed else 0


def shorten(value, limit=300):
    text = repr(value)
    return text if len(text) <= limit else text[:limit] + "..."


def options(description, extra=None):
    """The options of every client script; `extra` adds a script's own to the parser."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--bootstrap", required=True, metavar="HOST:PORT")
    parser.add_argument(
        "--records", type=int, default=100_000, help="how many to move at least (100000)"
    )
    parser.add_argument(
        "--auto-create",
        choices=("on", "off", "ask"),
        default="ask",
        help="whether the server creates unknown topics; by default its configuration is asked",
    )
    if extra:
        extra(parser)
    return parser.parse_args()


def topic_name(*parts):
    """A name that no earlier run on the same server used."""
    return "-".join([*parts, format(random.SystemRandom().getrandbits(32), "08x")])


# Records.


def make_records(count, partitions=PARTITIONS, seed=1):
    """`count` records in sending order: keys, null keys, null values, headers, timestamps that
    also go back.

    Each record names its number in the key or the value, so that equal lists prove the order.
    The timestamps lie within the last hour: the default retention must not touch them.
    """
    chance = random.Random(seed)
    words = ["offset", "segment", "batch", "index", "leader", "epoch", "shard", "plan", "ring"]
    first = int(time.time() * 1000) - 3_600_000
    records = []
    for number in range(count):
        value = f"{number} {' '.join(chance.choices(words, k=chance.randrange(4, 24)))}".encode()
        key = None if number % 7 == 3 else f"key-{number % 1000}".encode()
        if number % 101 == 50:
            key, value = f"gone-{number}".encode(), None
        elif number % 103 == 50:
            value = b"" if key else value
        headers = []
        if number % 5 == 0:
            headers = [("number", str(number).encode()), ("empty", b""), ("number", b"again")]
        stamp = first + number * 3 + chance.randrange(40)
        records.append(Record(number % partitions, key, value, headers, stamp))
    return records


def by_partition(records):
    lists = {}
    for record in records:
        lists.setdefault(record.partition, []).append(record)
    return lists


def compare(report, what, sent, received):
    """The multiset and the order within each partition; both arguments are lists of comparable
    records."""
    wanted, got = by_partition(sent), by_partition(received)
    report.moved += len(received)
    missing = Counter(map(repr, sent)) - Counter(map(repr, received))
    beyond = Counter(map(repr, received)) - Counter(map(repr, sent))
    report.check(
        f"{what}: every record once",
        not missing and not beyond,
        f"{missing.total()} missing, {beyond.total()} too many; first {shorten(list(missing)[:1])} "
        f"{shorten(list(beyond)[:1])}",
    )
    wrong = [partition for partition in wanted if wanted[partition] != got.get(partition)]
    report.check(
        f"{what}: order within each partition", not wrong, f"differs in partitions {wrong}"
    )


def first_at_or_after(records, timestamp):
    """The offset a lookup by timestamp has to give for one partition's records, or None."""
    return next(
        (offset for offset, record in enumerate(records) if record.timestamp >= timestamp), None
    )


# Processes.


def run(command, stdin=None, timeout=DEADLINE_S * 5, env=None):
    """Runs to the end; bytes in, CompletedProcess with bytes out. The caller judges the exit
    status."""
    return subprocess.run(
        command,
        input=stdin if stdin is not None else b"",
        capture_output=True,
        timeout=timeout,
        env=env,
        check=False,
    )


def split_address(bootstrap):
    host, port = bootstrap.rsplit(":", 1)
    return host, int(port)


def accepts(port, host="127.0.0.1"):
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((host, port)) == 0


def free_port(neighbours=2):
    """A port such that it and the next ones up to `neighbours` in all are free on loopback.

    Below the kernel's ephemeral range: no outgoing connection can take it before the server binds.
    """
    low = int(re.match(r"\d+", Path("/proc/sys/net/ipv4/ip_local_port_range").read_text())[0])
    for _ in range(1000):
        port = random.SystemRandom().randrange(max(1025, low - 12_000), low - neighbours)
        if all(can_bind(port + i) for i in range(neighbours)):
            return port
    raise RuntimeError("no free ports found")


def can_bind(port):
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def patience_s(counts):
    """How long reading that many records may take: a thousand a second is slow for every client."""
    return DEADLINE_S + sum(counts.values()) / 1000


def wait_until(condition, what, seconds=DEADLINE_S, pause=0.05):
    deadline = time.monotonic() + seconds
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds} s for {what}")
        time.sleep(pause)


def main(body):
    """Runs a script's body; an unexpected exception is a failure with its trace, not a hang."""
    # An ending by the runner must still run the `finally` that stops servers.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        status = body()
    except SystemExit as ending:
        status = ending.code
    except Exception:  # noqa: BLE001 - the trace is the report
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    # Client libraries leave threads behind that could hold up an ordinary exit.
    os._exit(status)
