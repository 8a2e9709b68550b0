"""Cases of topics whose settings and batches are drawn at random: rolls and indexes, producers and
their transactions, deleted records, retention, compaction. Brokers stop, start and are killed in
between. They try together what the other cases try one by one.
"""

import time

from case import now_ms
from plain import CODECS, MIB, first_time
from producers import SOON, UNVERIFIED, cleanings, settle
from standing import DELAY_MS, RETAINING

HOUR_MS = 3_600_000
FOREVER = 2**63 - 1
# A request with more is refused; a segment of the least size takes three.
BATCH_BYTES = 340_000
# Above what brokers give away, and such whose places in a hash map are not their order.
IDS = (70_001, 70_017, 70_002, (1 << 32) + 70_003, (7 << 40) + 16, 2**62 + 5)


class Numbered:
    """Producer ids of a topic, their epochs and next sequence numbers."""

    def __init__(self, chance):
        self.chance, self.states, self.open = chance, {}, {}

    def next(self, pid, count, txn=False):
        epoch, sequence = self.states.get(pid, (0, 0))
        self.states[pid] = (epoch, sequence + count)
        if txn:
            self.open[pid] = epoch
        return {"pid": pid, "epoch": epoch, "seq": sequence, **({"txn": True} if txn else {})}

    def raised(self, pid):
        epoch, _ = self.states.get(pid, (0, 0))
        self.states[pid] = (epoch + 1, 0)


def shape(chance):
    """Of a batch."""
    size = chance.choice((0, 1, 40, 130, 900, 5_000, 60_000))
    count = chance.choice((1, 1, 2, 7, 60, 2_000))
    return {
        "n": max(1, min(count, BATCH_BYTES // (size + 30))),
        "size": size,
        "kind": chance.choice(("text", "random")),
        "key": chance.choice(("null", "k:0:9", "a-much-longer-key:3:1000")),
        "headers": chance.choice((0, 0, 0, 1, 5)),
        "tomb": chance.choice((0, 0, 1, 3)),
        "codec": chance.choice(("none", *CODECS)),
        "seed": chance.randrange(10**6),
    }


def stamps(chance, first):
    """Mostly near, out of order; now and then far behind or years ahead."""
    near = first + chance.randrange(50_000)
    far = chance.choice((first - 10**10, first + 10**11, 4 * 10**12, 1))
    stamp = chance.choice((near, near, near, near, near, far))
    return {"ts": stamp, "step": chance.choice((0, 1, -7, 900)) if 1 < stamp else 0}


def drawn(chance, **fixed):
    """A topic's settings."""
    wanted = {
        "segment_bytes": chance.randrange(MIB, 2 * MIB),
        "segment_ms": chance.choice((25_000, 7 * 24 * HOUR_MS)),
        "index_interval_bytes": chance.choice((0, 1, 700, 4_096, 2**31 - 1)),
        "segment_index_bytes": chance.choice((100, 1_000, 10 * MIB)),
        "preallocate": chance.choice(("false", "false", "true")),
        "message_timestamp_after_max_ms": FOREVER,
        "retention_ms": -1,
        "file_delete_delay_ms": DELAY_MS,
    }
    return {**wanted, **fixed}


def rounds(case, topics, work, first=1):
    """`work`, a stop, again, a kill, again, a stop, with a copy after each."""
    for number, end in enumerate(("stop", "kill", "stop"), first):
        work(number)
        time.sleep(2)
        case.copy(f"dir-{number}-running", "running", f"round {number} is over")
        if end == "stop":
            case.stop()
            case.copy(f"dir-{number}-stopped", "stopped", "clean stop")
        else:
            case.kill()
            case.copy(f"dir-{number}-killed", "killed", "kill -9")
        if number < first + 2:
            case.start()
            for topic in topics:
                case.broker.wait_for_leader(topic)
            time.sleep(1)


def wide_rolls(case, client, chance):
    """Random limits of segments and indexes, random batches, restarts and a kill"""
    first, topics = first_time(chance), []
    for number in range(14):
        settings = drawn(chance)
        if number in (0, 1, 2):
            settings.update(segment_index_bytes=(24, 36, 48)[number], index_interval_bytes=0)
        if number in (3, 4):
            settings.update(message_timestamp_type="LogAppendTime", segment_ms=2_500)
        if number in (5, 6, 7):
            settings.update(compression_type=chance.choice(("uncompressed", *CODECS[1:])))
            settings.update(compression_gzip_level=chance.randrange(1, 10))
            settings.update(compression_lz4_level=chance.randrange(1, 18))
            settings.update(compression_zstd_level=chance.randrange(1, 20))
        topics.append(f"rolls-{number}")
        client.topic(topics[-1], **settings)
    producers = {topic: Numbered(chance) for topic in topics}

    def work(_):
        for topic in topics:
            for _ in range(chance.randrange(4, 16)):
                options = {**shape(chance), **stamps(chance, first)}
                if chance.random() < 0.3:
                    options.update(producers[topic].next(chance.choice(IDS), options["n"]))
                client.batch(topic, **options)

    rounds(case, topics, work)


def wide_producers(case, client, chance):
    """Idempotent and transactional producers side by side, over many segments, restarts, a kill"""
    topics = [f"pids-{number}" for number in range(5)]
    for number, topic in enumerate(topics):
        small = {"segment_index_bytes": 60, "index_interval_bytes": 0}
        client.topic(topic, **drawn(chance, **(small if number % 2 else {})))
    known = {topic: Numbered(chance) for topic in topics}

    def work(_):
        for topic in topics:
            for _ in range(chance.randrange(25, 50)):
                act(client, chance, topic, known[topic])

    rounds(case, topics, work)


def act(client, chance, topic, numbered):
    """A batch, the end of a transaction, a new epoch, or something that is refused."""
    pid, options = chance.choice(IDS), {**shape(chance), "ts": now_ms(), "step": 0}
    options.update(n=min(options["n"], 40), size=min(options["size"], 9_000))
    what = chance.random()
    if what < 0.25 and numbered.open:
        pid = chance.choice(sorted(numbered.open))
        epoch = numbered.open.pop(pid)
        if chance.random() < 0.5:
            numbered.raised(pid)
            epoch += 1
        client.act("marker", topic, pid, epoch, 0, chance.choice(("commit", "abort")))
    elif what < 0.3:
        client.batch(topic, **options)
    elif what < 0.36 and pid not in numbered.open:
        numbered.raised(pid)
        client.batch(topic, **options, **numbered.next(pid, options["n"]))
    elif what < 0.42 and pid in numbered.states and pid not in numbered.open:
        epoch, sequence = numbered.states[pid]
        # One whose records are all deleted may begin anywhere.
        if 0 < sequence and "del" not in topic:
            wrong = {"pid": pid, "epoch": epoch, "seq": sequence + 5}
            client.batch(topic, wanted="refused", **options, **wrong)
    else:
        is_transaction = pid in numbered.open or pid in IDS[:4] and chance.random() < 0.6
        client.batch(topic, **options, **numbered.next(pid, options["n"], is_transaction))


def wide_deletes(case, client, chance):
    """Records deleted in the middle of batches, between transactions, restarts and a kill"""
    topics = [f"del-{number}" for number in range(5)]
    for number, topic in enumerate(topics):
        small = {"segment_index_bytes": 84, "index_interval_bytes": 0}
        client.topic(topic, **drawn(chance, **(small if number % 2 else {})))
    known = {topic: Numbered(chance) for topic in topics}
    ends = dict.fromkeys(topics, 0)

    def work(number):
        for topic in topics:
            for _ in range(chance.randrange(15, 30)):
                act(client, chance, topic, known[topic])
            for pid, epoch in sorted(known[topic].open.items()):
                client.act("marker", topic, pid, epoch, 0, "abort")
            known[topic].open.clear()
            answer = client.batch(topic, n=3, ts=now_ms())
            ends[topic], begin = int(answer.rsplit("..", 1)[1]) + 1, ends[topic]
        case.copy(f"dir-{number}-before", "running", "before records are deleted")
        for topic in topics:
            to = chance.randrange(begin, ends[topic]) if topic != topics[-1] else -1
            client.act("truncate", topic, to)
            if chance.random() < 0.5:
                client.act("truncate", topic, min(max(to, 0) + 1, ends[topic]))
        time.sleep(DELAY_MS / 1_000 + 3)

    rounds(case, topics, work)


def wide_retention(case, client, chance):
    """Limits of size and of age together, producers and transactions, timestamps in disorder"""
    topics, now = [f"keep-{number}" for number in range(7)], now_ms()
    for number, topic in enumerate(topics):
        small = {"segment_index_bytes": 120, "index_interval_bytes": 0}
        client.topic(topic, **drawn(chance, **(small if number % 3 == 1 else {})))
    known = {topic: Numbered(chance) for topic in topics}
    for number, topic in enumerate(topics):
        for at in range(40):
            age = (40 - at) * HOUR_MS // 4 + chance.randrange(20) * 60_000
            options = {**shape(chance), "ts": now - age, "step": 1}
            if number % 2:
                options.update(known[topic].next(chance.choice(IDS), options["n"]))
            client.batch(topic, **options)
    case.copy("dir-before", "running", "all data written, retention off")
    for number, topic in enumerate(topics):
        limits = {"retention_ms": chance.randrange(1, 9) * HOUR_MS + 450_000}
        limits = {} if number == 0 else limits
        if number != 1:
            limits["retention_bytes"] = chance.choice((0, MIB // 3, 2 * MIB, 5 * MIB))
        client.config(topic, **limits)
    time.sleep(3)
    case.copy("dir-marked", "running", "behind the pass, within file.delete.delay.ms")
    time.sleep(DELAY_MS / 1_000 + 2)
    case.copy("dir-after", "running", "file.delete.delay.ms later")
    case.passes()
    for topic in topics:
        client.config(topic, retention_ms=-1, retention_bytes=-1)
    rounds(case, topics, lambda _: [client.batch(it, n=3, ts=now_ms()) for it in topics])


def wide_compaction(case, client, chance):
    """Compacted topics with random settings, lags, producers, transactions and codecs"""
    held, horizon_ms = {"min_cleanable_dirty_ratio": "1.0"}, chance.randrange(2_000, 4_000)
    stamp, topics, known = now_ms() - 5 * HOUR_MS, [], {}
    for number in range(7):
        settings = {
            "cleanup_policy": "compact,delete" if number == 6 else "compact",
            "delete_retention_ms": horizon_ms,
            "index_interval_bytes": chance.choice((0, 700, 4_096)),
            "segment_index_bytes": chance.choice((60, 600, 10 * MIB)),
        }
        # Not where there are markers: these have the time of day.
        if number in (1, 5):
            settings["min_compaction_lag_ms"] = HOUR_MS
        if number == 3:
            settings["max_message_bytes"] = 2 * MIB
        topics.append(f"pack-{number}")
        fixed = {"file_delete_delay_ms": 500, "segment_ms": 60_000, **held, **settings}
        client.topic(topics[-1], **drawn(chance, **fixed))
        known[topics[-1]] = Numbered(chance)

    def end(topic, pid):
        epoch = known[topic].open.pop(pid) + 1
        known[topic].raised(pid)
        client.act("marker", topic, pid, epoch, 0, chance.choice(("commit", "abort")))

    def work(number):
        for topic in topics:
            numbered = known[topic]
            for part in range(chance.randrange(9, 16)):
                at = stamp + (number * 16 + part) * 61_000
                of = {**shape(chance), "ts": at, "step": chance.choice((0, 1))}
                of["key"] = f"k:{chance.randrange(40)}:{chance.choice((40, 300))}"
                of["tomb"] = chance.choice((0, 0, 1, 2, 5))
                pid = chance.choice(IDS)
                if topic in topics[::2] and pid not in numbered.open and chance.random() < 0.6:
                    is_transaction = pid in IDS[:3]
                    of.update(numbered.next(pid, of["n"], is_transaction))
                client.batch(topic, **of)
                if numbered.open and chance.random() < 0.7:
                    end(topic, chance.choice(sorted(numbered.open)))
            # Nothing is cleaned from the first record of an open transaction on.
            for pid in sorted(numbered.open):
                end(topic, pid)
            if number == 2:
                client.batch(topic, ts=now_ms() - 60_000, key="young:0:1")
            else:
                client.batch(topic, ts=stamp + (number * 16 + 16) * 61_000 - 1, key="last:0:1")

    work(0)
    case.stop()
    case.copy("dir-1-before", "stopped", "clean stop before any cleaning")
    for number in range(3):
        case.start()
        for topic in topics:
            case.broker.wait_for_leader(topic)
        time.sleep(1)
        if 0 < number:
            work(number)
            time.sleep(horizon_ms / 1_000 + 0.5)
            case.copy(f"dir-{2 * number + 1}-before-pass", "running", "before the next pass")
        for topic in topics:
            client.config(topic, min_cleanable_dirty_ratio="0.01")
        settle(case.broker, topics)
        for topic in topics:
            client.config(topic, **held)
        time.sleep(2)
        case.stop()
        case.copy(f"dir-{2 * number + 2}-cleaned", "stopped", "every topic cleaned, clean stop")
    for at_ms, topic in cleanings(case.broker, topics):
        case.table("[[clean]]", topic=topic, logged_ms=at_ms)


QUIET = {"log.retention.ms": "-1", "log.cleaner.enable": "false", **SOON, **UNVERIFIED}
CASES = {
    "wide-rolls": (wide_rolls, QUIET),
    "wide-producers": (wide_producers, QUIET),
    "wide-deletes": (wide_deletes, {**RETAINING, **SOON, **UNVERIFIED}),
    "wide-retention": (wide_retention, {**RETAINING, **SOON, **UNVERIFIED}),
    "wide-compaction": (
        wide_compaction,
        {**SOON, **UNVERIFIED, "log.cleaner.backoff.ms": "200"},
    ),
}
