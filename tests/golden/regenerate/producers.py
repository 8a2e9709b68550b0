"""Cases of producers: idempotent ones, transactions, compaction, restarts of a whole directory."""

import re
import time

from case import logged_ms, now_ms
from plain import CODECS, MIB

TWO_DAYS_MS = 172_800_000


def idempotent(case, client, chance):
    broker = case.broker
    client.topic("idem", segment_bytes=MIB, retention_ms=-1)
    stamp = now_ms() - 900_000
    of = {"n": 3, "size": 100, "step": 1}
    client.batch("idem", pid=9001, epoch=0, seq=0, ts=stamp - TWO_DAYS_MS, **of)
    near_the_end = 2_147_483_640
    client.batch("idem", pid=9002, epoch=5, seq=near_the_end, ts=stamp, n=20)
    client.batch("idem", pid=9002, epoch=5, seq=12, ts=stamp, n=5)
    client.batch("idem", wanted="refused", pid=9002, epoch=5, seq=18, ts=stamp, n=5)
    client.batch("idem", wanted="refused", pid=9002, epoch=4, seq=0, ts=stamp, n=5)
    for number in range(7):
        client.batch("idem", pid=9003, epoch=0, seq=10 * number, ts=stamp + number, n=10)
    client.batch("idem", pid=9003, epoch=0, seq=30, ts=stamp + 3, n=10)
    client.batch("idem", wanted="refused", pid=9003, epoch=0, seq=0, ts=stamp, n=10)
    sequences = {1: 0, 2: 0, 3: 0}

    def mix(mebibytes):
        while broker.log_bytes("idem-0") < mebibytes * MIB:
            pid, count = chance.choice((1, 2, 3, -1)), chance.randrange(5, 60)
            size, at = chance.randrange(150, 900), now_ms() - 900_000
            who = {"pid": pid, "epoch": 0, "seq": sequences[pid]} if 0 < pid else {}
            client.batch("idem", n=count, size=size, ts=at, seed=count, **who)
            if 0 < pid:
                sequences[pid] += count

    mix(2.2)
    time.sleep(1)
    case.copy("dir-1-running", "running", "idle broker after two rolls")
    client.batch("idem", wanted="refused", pid=9003, epoch=2, seq=5, ts=stamp, n=4)
    client.batch("idem", pid=9003, epoch=2, seq=0, ts=stamp, n=4)
    client.batch("idem", wanted="refused", pid=9003, epoch=0, seq=70, ts=stamp, n=4)
    mix(3.3)
    case.stop()
    case.copy("dir-2-stopped", "stopped", "clean stop")
    case.start()
    broker.wait_for_leader("idem")
    time.sleep(1)
    case.copy("dir-3-started", "running", "started again, nothing appended")
    client.batch("idem", pid=1, epoch=0, seq=sequences[1], ts=stamp, n=7)
    client.batch("idem", pid=9001, epoch=0, seq=50, ts=stamp, n=2)
    case.stop()
    case.copy("dir-4-stopped", "stopped", "clean stop after two more batches")


def transactions(case, client, chance):
    client.topic("tx", segment_bytes=MIB, retention_ms=-1)
    client.topic("in", retention_ms=-1)
    case.topics += ["__transaction_state", "__consumer_offsets"]
    client.batch("in", n=60, ts=now_ms())
    for name in ("T1", "T2", "T3"):
        client.act("open", name, f"id-{name}")

    def send(name, most=40):
        size = chance.randrange(300, 1_100)
        client.send(name, "tx", n=chance.randrange(1, most), size=size, ts=now_ms())

    client.act("begin", "T2")
    send("T2", 4)
    ends = iter([1.0, 2.0, 9.0])
    until = next(ends)
    while case.broker.log_bytes("tx-0") < 2.6 * MIB:
        client.act("begin", "T1")
        for _ in range(chance.randrange(1, 4)):
            send("T1")
            if chance.random() < 0.4:
                client.batch("tx", n=10, size=700, ts=now_ms())
        if chance.random() < 0.4:
            client.act("offsets", "T1", "g-tx", "in", chance.randrange(60))
        client.act(chance.choice(("commit", "abort")), "T1")
        if until * MIB < case.broker.log_bytes("tx-0"):
            until = next(ends)
            client.act(chance.choice(("commit", "abort")), "T2")
            client.act("begin", "T2")
            send("T2", 4)
    client.act("abort", "T2")
    client.act("begin", "T1")
    client.act("commit", "T1")
    client.act("begin", "T3")
    send("T3", 5)
    client.act("begin", "T1")
    send("T1", 5)
    client.act("abort", "T1")
    time.sleep(1)
    case.copy("dir-1-running", "running", "a transaction is open")
    for number, event in ((2, "stopped"), (3, "restarted")):
        case.stop()
        case.copy(f"dir-{number}-{event}", "stopped", "clean stop, a transaction is open")
        case.start()
        case.broker.wait_for_leader("tx")
        time.sleep(3)
    send("T3", 3)
    client.act("commit", "T3")
    time.sleep(1)
    case.stop()
    case.copy("dir-4-committed", "stopped", "committed after two restarts, clean stop")


def compaction(case, client, chance):
    held, horizon_ms = {"min_cleanable_dirty_ratio": "1.0"}, chance.randrange(2_000, 4_000)
    common = {**held, "delete_retention_ms": horizon_ms, "file_delete_delay_ms": 500}
    compact = {"cleanup_policy": "compact", **common}
    client.topic("c", segment_bytes=MIB, segment_ms=600_000, **compact)
    client.topic("ci", segment_ms=60_000, **compact)
    client.topic("cz", segment_ms=60_000, **compact)
    client.topic("ct", segment_ms=2_000, **compact)
    client.topic("ca", segment_ms=2_000, message_timestamp_type="LogAppendTime", **compact)
    both = {**common, "cleanup_policy": "compact,delete", "retention_ms": -1}
    client.topic("cd", segment_ms=60_000, **both)
    topics = [it for it in case.topics]
    client.act("open", "T", "t")
    stamp = now_ms() - 10_800_000
    writer = Compacted(case, client, chance, stamp)
    writer.fill(2.3)
    for number in range(6):
        for at in range(3):
            key, when = f"k:{4 * at + number}:30", stamp + number * 1_800_000 + at
            client.batch("cd", n=8, size=70, ts=when, key=key)
    writer.round()
    writer.close_segments()
    case.stop()
    case.copy("dir-1-before", "stopped", "clean stop before any cleaning")
    for number in range(3):
        case.start()
        case.broker.wait_for_leader("c")
        time.sleep(1)
        if 0 < number:
            writer.round()
            writer.close_segments()
            time.sleep(horizon_ms / 1_000 + 0.5)
            case.copy(f"dir-{2 * number + 1}-before-pass", "running", "before the next pass")
        for topic in topics:
            more = {"retention_ms": 6_900_000} if topic == "cd" and number == 0 else {}
            client.config(topic, min_cleanable_dirty_ratio="0.01", **more)
        settle(case.broker, [it for it in topics if number == 0 or it != "cd"])
        for topic in topics:
            client.config(topic, **held)
        time.sleep(2)
        case.stop()
        case.copy(f"dir-{2 * number + 2}-cleaned", "stopped", "every topic cleaned, clean stop")
    for at_ms, topic in cleanings(case.broker, topics):
        case.table("[[clean]]", topic=topic, logged_ms=at_ms)


class Compacted:
    """What is written to compacted topics."""

    def __init__(self, case, client, chance, stamp):
        self.case, self.client, self.chance, self.stamp = case, client, chance, stamp
        self.at, self.rounds = stamp, 0

    def fill(self, mebibytes):
        while self.case.broker.log_bytes("c-0") < mebibytes * MIB:
            count, size = self.chance.randrange(10, 60), self.chance.randrange(150, 900)
            tomb = self.chance.choice((0, 0, 0, 7))
            key = f"k:{self.chance.randrange(700)}:700"
            self.client.batch("c", n=count, size=size, ts=self.at, step=1, key=key, tomb=tomb)
            self.at += count + 3

    def round(self):
        """Segments of a minute of the records' time; transactions and append times by the clock."""
        client, number = self.client, self.rounds
        self.rounds += 1
        self.fill(self.case.broker.log_bytes("c-0") / MIB + 0.3)
        for part in range(3):
            at, index = self.stamp + (number * 4 + part) * 61_000, 3 * number + part
            client.batch("ci", n=10, size=80, ts=at, key="k:0:10", pid=100 + index, epoch=0, seq=0)
            more = {"pid": 200, "epoch": 0, "seq": 5 * index}
            client.batch("ci", n=5, size=80, ts=at + 40, key="k:0:10", **more)
            for codec_number, codec in enumerate(CODECS):
                key = f"k:{3 * codec_number}:24"
                client.batch("cz", n=12, size=90, ts=at + codec_number, key=key, codec=codec)
        for end in ("commit", "abort"):
            client.act("begin", "T")
            client.send("T", "ct", n=10, size=60, ts=now_ms(), key="k:0:100")
            client.act(end, "T")
        client.batch("ca", n=6, size=60, ts=self.stamp, step=1, key="k:0:6")
        client.batch("ca", n=4, size=60, ts=self.stamp, step=1, key=f"k:{number}:8", tomb=2)

    def close_segments(self):
        time.sleep(2.2)
        self.at += 601_000
        for topic in ("c", "ci", "cz"):
            at = self.at if topic == "c" else self.stamp + (self.rounds * 4) * 61_000 - 1_000
            self.client.batch(topic, n=1, ts=at, key=f"active:{self.rounds}:99")
        for topic in ("ct", "ca"):
            self.client.batch(topic, n=1, ts=now_ms(), key="active:0:9")


def settle(broker, topics):
    """Until the cleaner has begun on every topic and then been silent for some seconds."""
    deadline, last, since = time.monotonic() + 120, None, time.monotonic()
    while time.monotonic() < deadline:
        text = (broker.folder / "server.log").read_text(errors="replace")
        begun = set(re.findall(r"Beginning cleaning of log (\S+)-\d+", text))
        count = len(re.findall("leaner|eleting segment", text))
        if count != last or not begun.issuperset(topics):
            last, since = count, time.monotonic()
        elif 2.5 < time.monotonic() - since:
            return
        time.sleep(0.1)
    raise TimeoutError(f"not cleaned: {set(topics) - begun}")


def cleanings(broker, topics):
    at_ms = None
    for line in broker.log_lines():
        if line.startswith("["):
            at_ms = logged_ms(line)
        found = re.search(r"Beginning cleaning of log (\S+)-\d+", line)
        if found and found[1] in topics:
            yield at_ms, found[1]


def restart(case, client, chance):
    """A whole directory, started and stopped without traffic."""
    client.topic("r-data", segment_bytes=MIB, retention_ms=-1)
    client.topic("r-empty")
    client.topic("r-open", retention_ms=-1)
    client.topic("r-compact", cleanup_policy="compact")
    client.topic("r-notime", retention_ms=-1)
    stamp = now_ms() - 100_000
    for number in range(chance.randrange(25, 40)):
        client.batch("r-data", n=50, size=900, ts=stamp + number, step=1, seed=number)
    client.batch("r-open", n=5, ts=stamp, pid=600, epoch=0, seq=0, txn=True)
    client.batch("r-open", n=5, ts=stamp, pid=601, epoch=0, seq=0)
    client.batch("r-compact", n=5, ts=stamp, key="k:0:3")
    client.batch("r-notime", n=5, ts=-1)
    case.copy("dir-0-running", "running", "idle broker", is_whole=True)
    case.stop()
    case.copy("dir-1-stopped", "stopped", "clean stop", is_whole=True)
    for number in (2, 3):
        case.start()
        case.broker.wait_for_leader("r-data")
        time.sleep(2)
        case.copy(f"dir-{number}a-started", "running", "started, no traffic", is_whole=True)
        case.stop()
        case.copy(f"dir-{number}-stopped", "stopped", "clean stop, no traffic", is_whole=True)


SOON = {
    "log.initial.task.delay.ms": "500",
    "log.flush.offset.checkpoint.interval.ms": "500",
    "log.flush.start.offset.checkpoint.interval.ms": "500",
}
UNVERIFIED = {"transaction.partition.verification.enable": "false"}
CASES = {
    "idempotent": (idempotent, SOON),
    "transactions": (transactions, {}),
    "compaction": (compaction, {**SOON, "log.cleaner.backoff.ms": "200"}),
    "restart": (restart, UNVERIFIED),
}
