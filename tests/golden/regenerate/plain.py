"""Cases of one broker without retention: rolls, indexes, timestamps, codecs, shapes."""

import time

MIB = 1 << 20
BROKER = {
    "log.retention.ms": "-1",
    "log.cleaner.enable": "false",
    "auto.create.topics.enable": "false",
}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
# A batch of one record with a null key and a value of 8,192 bytes or more takes so many more.
OVERHEAD = 72


def first_time(chance):
    return 1_600_000_000_000 + chance.randrange(10**11)


def size_roll(case, client, chance):
    client.topic("size-roll", segment_bytes=MIB)
    size, count, stamp = chance.randrange(300, 1_300), chance.randrange(5, 25), first_time(chance)
    for number in range(int(3.2 * MIB / (size + 10) / count)):
        client.batch("size-roll", n=count, size=size, ts=stamp, step=4, seed=number)
        stamp += 4 * count
    case.copy("dir-live", "running", "after the last append")


def size_roll_exact(case, client, chance):
    """A segment that ends exactly at its limit, one byte below, one byte above; batches as large as
    a segment, and one byte larger."""
    big, number = chance.randrange(60_000, 130_000), chance.randrange(6, 8)
    stamp = first_time(chance)
    for name, more in (("on", 0), ("under", -1), ("over", 1)):
        topic = f"exact-{name}"
        client.topic(topic, segment_bytes=MIB, max_message_bytes=2_000_000)
        for at in range(number):
            client.batch(topic, size=big, ts=stamp + at, kind="random")
        client.batch(topic, size=MIB - number * (big + OVERHEAD) - OVERHEAD + more, ts=stamp)
        for at in range(2):
            client.batch(topic, size=1, ts=stamp + 30_000 + at)
    client.topic("exact-whole", segment_bytes=MIB, max_message_bytes=2_000_000)
    for at in range(2):
        client.batch("exact-whole", size=MIB - OVERHEAD, ts=stamp + at)
    client.batch("exact-whole", wanted="refused", size=MIB - OVERHEAD + 1, ts=stamp + 2)
    client.batch("exact-whole", size=5, ts=stamp + 3)


def time_roll(case, client, chance):
    wait, stamp = chance.randrange(4_000, 20_000), first_time(chance)
    client.topic("time-roll", segment_ms=wait)
    behind = (0, wait // 2, wait, wait + 1, -90 * wait, 50 * wait, 5 * wait, 51 * wait + 1)
    for it in behind:
        client.batch("time-roll", n=chance.randrange(1, 4), ts=stamp + it)
    client.batch("time-roll", ts=-1)
    client.batch("time-roll", ts=stamp + 60 * wait)
    client.topic("time-roll-first", segment_ms=wait)
    client.batch("time-roll-first", n=2, ts=stamp, step=3_000)
    for it in (3_000 + wait, 3_001 + wait):
        client.batch("time-roll-first", ts=stamp + it)
    client.topic("time-roll-nots", segment_ms=2_000)
    for stamp_of in (-1, -1, -1, stamp):
        client.batch("time-roll-nots", ts=stamp_of)
        time.sleep(1.4)
    client.topic(
        "time-roll-lag",
        segment_ms=3_600_000,
        cleanup_policy="compact,delete",
        max_compaction_lag_ms=5_000,
    )
    for it in range(4):
        client.batch("time-roll-lag", key=f"k:{it}:9", ts=stamp + it * 2_500)


def index_interval(case, client, chance):
    stamp = first_time(chance)
    for interval in (0, chance.randrange(1, 2_000), 4_096, chance.randrange(8_000, 60_000)):
        topic = f"interval-{interval}"
        client.topic(topic, index_interval_bytes=interval)
        for number in range(50):
            size = chance.choice((80, 150, 900, 3_950, 6_000))
            at = stamp + chance.choice((number * 7, 40))
            client.batch(topic, n=chance.randrange(1, 4), size=size, ts=at, seed=number)
    full = chance.randrange(8, 20) * 12
    for name, step in (("time", 10), ("offset", 0)):
        topic = f"index-full-{name}"
        client.topic(topic, index_interval_bytes=0, segment_index_bytes=full)
        for number in range(60):
            client.batch(topic, size=50, ts=stamp + number * step, seed=number)
    case.copy("dir-live", "running", "after the last append")


def timestamps(case, client, chance):
    stamp = first_time(chance)
    for name, interval in (("order", 0), ("sparse", 100_000)):
        topic = f"ts-{name}"
        client.topic(topic, index_interval_bytes=interval)
        for _ in range(12):
            step = chance.choice((-10, 0, 10))
            client.batch(topic, n=5, ts=stamp + chance.randrange(400), step=step)
        client.batch(topic, n=2, ts=stamp - 5_000_000_000, step=5_000_000_000)
    client.topic("ts-none", index_interval_bytes=0)
    for codec in ("none", "gzip", "none"):
        client.batch("ts-none", n=3, ts=-1, codec=codec)
    client.topic("ts-zero", index_interval_bytes=0)
    for at in (0, 0, -1, 5):
        client.batch("ts-zero", n=2, ts=at)
    client.topic("ts-lies", index_interval_bytes=0)
    for lie, codec in ((999_999, "none"), (-999_999, "none"), (999_999, "lz4"), (-1, "zstd")):
        told = stamp + lie if lie != -1 else -1
        client.batch("ts-lies", n=4, ts=stamp, step=10, maxts=told, codec=codec)
    ahead = int(time.time() * 1000) + 3_700_000
    client.batch("ts-lies", wanted="refused", ts=ahead)
    client.topic("ts-flag", index_interval_bytes=0)
    for flag in ({}, {"flag": True, "maxts": stamp + 101}, {}):
        client.batch("ts-flag", n=2, ts=stamp, step=1, **flag)


def timestamps_shared(case, client, chance):
    stamp = first_time(chance)
    for codec in ("none", "gzip", "zstd"):
        topic = f"share-{codec}"
        client.topic(topic, index_interval_bytes=0, segment_bytes=MIB)
        for number in range(8):
            client.batch(topic, n=3, ts=stamp + min(number, 4), codec=codec)
    client.topic("share-segments", segment_bytes=MIB)
    for number in range(4):
        client.batch("share-segments", size=600_000, ts=stamp, kind="random", seed=number)


def log_append_time(case, client, chance):
    stamp, kind = first_time(chance), "LogAppendTime"
    client.topic("lat", message_timestamp_type=kind, index_interval_bytes=0)
    client.topic(
        "lat-zstd", message_timestamp_type=kind, compression_type="zstd", index_interval_bytes=0
    )
    client.topic("lat-roll", message_timestamp_type=kind, segment_ms=1_500)
    for codec in ("none", "gzip", "zstd"):
        for topic in ("lat", "lat-zstd"):
            client.batch(topic, n=chance.randrange(1, 9), ts=stamp, step=-100, codec=codec, size=60)
    for at in (0, -1, int(time.time() * 1000) + 7_200_000):
        client.batch("lat", n=2, ts=at)
    client.batch("lat", wanted="refused", ts=stamp, flag=True)
    for _ in range(3):
        client.batch("lat-roll", n=2, ts=stamp)
        time.sleep(0.9)


def shapes(case, client, chance):
    client.topic("shapes")
    stamp = first_time(chance)
    for number in range(25):
        client.batch(
            "shapes",
            n=chance.choice((1, 1, 2, 40)),
            size=chance.choice((0, 1, 55, 57, 63, 64, 8_180, 8_192)),
            key=chance.choice(("null", "key:0:5", "a-longer-key:0:7")),
            headers=chance.choice((0, 0, 1, 3)),
            tomb=chance.choice((0, 0, 2)),
            ts=stamp + number,
            step=chance.choice((0, 1, -63, 64, 8_192)),
            seed=number,
        )
    client.batch("shapes", n=1_000, size=60, key="k:0:1000", ts=stamp + 300)
    client.batch("shapes", size=chance.randrange(500_000, 900_000), ts=stamp + 90_000_000_000)


def codecs(case, client, chance):
    stamp = first_time(chance)
    size = chance.randrange(60, 400)
    for codec in CODECS[1:]:
        topic = f"codec-{codec}"
        client.topic(topic)
        for count, kind in ((1, "text"), (90, "text"), (500, "random"), (5, "random")):
            client.batch(
                topic, n=count, size=size, kind=kind, key="k:0:99", ts=stamp, step=3, codec=codec
            )
    for wanted in (*CODECS[1:], "uncompressed"):
        topic = f"to-{wanted}"
        client.topic(topic, compression_type=wanted)
        for codec in CODECS:
            client.batch(topic, n=40, size=size, ts=stamp, step=5, codec=codec, headers=1)


CASES = {
    "size-roll": size_roll,
    "size-roll-exact": size_roll_exact,
    "time-roll": time_roll,
    "index-interval": index_interval,
    "timestamps": timestamps,
    "timestamps-shared": timestamps_shared,
    "log-append-time": log_append_time,
    "shapes": shapes,
    "codecs": codecs,
}
