"""The archives of tests/golden/kafka: what producers sent to Kafka, to be sent to another server.

Each batch goes as one Produce request, as it stands in the archive's log, by a client that knows
this one request. Batches of transactions are left out: their markers come from a coordinator.
"""

import socket
import struct
import subprocess
import tempfile
import tomllib
from collections import namedtuple
from pathlib import Path

import lib

ROOT = lib.ROOT / "tests" / "golden" / "kafka"
# Cases with one folder of batches that nothing has been taken out of.
CASES = (
    "codecs",
    "idempotent",
    "index-interval",
    "leader-epoch",
    "log-append-time",
    "shapes",
    "size-roll",
    "size-roll-exact",
    "time-roll",
    "timestamps",
    "timestamps-shared",
)
FOLDERS = {"idempotent": "dir-4-stopped"}
HEADER = struct.Struct(">qiibIhiqqqhii")
CRC_FROM = 21
LOG_APPEND_TIME, TRANSACTIONAL, CONTROL = 8, 16, 32
PRODUCE, PRODUCE_VERSION = 0, 7

Topic = namedtuple("Topic", "name config batches")


def topics():
    """Every topic of every case."""
    found = []
    for case in CASES:
        with tempfile.TemporaryDirectory() as work:
            archive = ROOT / f"{case}.tar.zst"
            unpack = f"zstd -dc --long=25 '{archive}' | tar -xf - -C '{work}'"
            subprocess.run(["sh", "-c", unpack], check=True)
            found += of_case(Path(work) / case)
    return found


def of_case(root):
    table = tomllib.loads((root / "case.toml").read_text())
    declared = {topic["name"]: topic.get("config", {}) for topic in table.get("topic", [])}
    for step in table.get("step", []):
        if step["kind"] == "create-topic":
            declared[step["topic"]] = step.get("config", {})
    folder = root / FOLDERS.get(root.name, "dir")
    for name, config in declared.items():
        logs = sorted((folder / f"{name}-0").glob("*.log"))
        batches = [batch for log in logs for batch in split(log.read_bytes())]
        if not batches or any(attributes(batch) & (TRANSACTIONAL | CONTROL) for batch in batches):
            continue
        config = {key: value for key, value in config.items() if value != "-1"}
        # Their records are old.
        yield Topic(name, {**config, "retention.ms": "-1"}, [as_sent(it) for it in batches])


def split(log):
    at = 0
    while at + HEADER.size <= len(log):
        size = 12 + struct.unpack_from(">i", log, at + 8)[0]
        yield log[at : at + size]
        at += size


def attributes(batch):
    return HEADER.unpack_from(batch)[5]


def as_sent(batch):
    """Without the flag that the broker set."""
    fields = list(HEADER.unpack_from(batch))
    fields[0] = 0
    if fields[5] & LOG_APPEND_TIME:
        fields[5] &= ~LOG_APPEND_TIME
        fields[4] = crc32c(HEADER.pack(*fields)[CRC_FROM:] + batch[HEADER.size :])
    return HEADER.pack(*fields) + batch[HEADER.size :]


def crc_table():
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


CRC_TABLE = crc_table()


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ CRC_TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


class Sender:
    """One connection to the broker that leads the partition."""

    def __init__(self, host, port):
        self.socket = socket.create_connection((host, port), timeout=lib.DEADLINE_S)

    def send(self, topic, batch):
        """The error code."""
        name = topic.encode()
        body = struct.pack(">hhih", PRODUCE, PRODUCE_VERSION, 1, -1)
        body += struct.pack(">hhiih", -1, -1, 30_000, 1, len(name)) + name
        body += struct.pack(">iii", 1, 0, len(batch)) + batch
        self.socket.sendall(struct.pack(">i", len(body)) + body)
        answer = self.receive(struct.unpack(">i", self.receive(4))[0])
        # Correlation id, one topic, its name, one partition, its number.
        return struct.unpack_from(">h", answer, 4 + 4 + 2 + len(name) + 4 + 4)[0]

    def receive(self, size):
        found = b""
        while len(found) < size:
            more = self.socket.recv(size - len(found))
            if not more:
                raise ConnectionError("the server closed the connection")
            found += more
        return found

    def close(self):
        self.socket.close()

