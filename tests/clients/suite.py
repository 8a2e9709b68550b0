"""The checks that every client library with an API of its own has to pass; `confluent.py` and
`kafka_python.py` bring an adapter for theirs. An adapter has these methods (Refused is raised
with Kafka's error code):

    sends_null_headers                           whether the library lets a header's value be null
    versions()                                   text
    brokers()                                    {id: (host, port)}
    topics()                                     set of names
    describe(topic)                              {partition: leader id}
    create(topic, partitions, config, replicas)  delete(topic)
    topic_config(topic), broker_config(id)       {name: value}
    produce(topic, records, acks, codec, idempotent)   [(partition, offset)] in sending order
    produce_one(topic, value)                    until acknowledged; large values reach the server
    bounds(topic, partition)                     (log start, high watermark)
    offset_at(topic, partition, timestamp)       offset or None
    newest(topic, partition)                     (offset, timestamp) of the highest timestamp
    read(topic, starts, counts, fetch_bytes)     group-less; starts {partition: "earliest"|offset};
                                                 returns [(Record, offset)] in arriving order
    read_latest(topic, partition, nudge)         the first (Record, offset) that arrives when one
                                                 starts at the end; calls nudge() until it does
    fetch_at(topic, partition, offset)           reads at an offset without a reset policy
"""

import time
import zlib

import lib
from lib import CODECS, PARTITIONS, Refused

# label, acks, codec, idempotent
MOVES = (
    ("idempotent-codec-none", "all", "none", True),
    ("idempotent-codec-gzip", "all", "gzip", True),
    ("idempotent-codec-zstd", "all", "zstd", True),
    ("plain-codec-snappy", "all", "snappy", False),
    ("plain-codec-lz4", "1", "lz4", False),
    ("plain-codec-none", "1", "none", False),
    ("blind-codec-none", "0", "none", False),
    ("blind-codec-gzip", "0", "gzip", False),
)
assert {codec for _, _, codec, _ in MOVES} == set(CODECS)
SMALL_MAX = 10_000
SERVER_MAX = 1_048_588


def run(adapter, name, arguments, more=()):
    report = lib.Report(name)
    report.step(adapter.versions())
    check_metadata(adapter, report, arguments.bootstrap)
    check_topics(adapter, report)
    each = -(-arguments.records // len(MOVES))
    for move in MOVES:
        check_move(adapter, report, name, move, each)
    check_positions(adapter, report, name)
    check_append_time(adapter, report, name)
    check_errors(adapter, report, name)
    check_unknown_topic(adapter, report, name, arguments.auto_create)
    for check in more:
        check(adapter, report, arguments.bootstrap)
    return report.finish()


def check_metadata(adapter, report, bootstrap):
    brokers = adapter.brokers()
    report.check("metadata names a broker", bool(brokers))
    report.check(
        "metadata names the bootstrap address",
        lib.split_address(bootstrap) in brokers.values(),
        brokers,
    )
    ports = [port for _, port in brokers.values()]
    report.check("every broker has an address of its own", len(set(ports)) == len(ports), brokers)
    config = adapter.broker_config(min(brokers))
    for wanted in (
        "num.partitions",
        "auto.create.topics.enable",
        "message.max.bytes",
        "log.segment.bytes",
    ):
        report.check(
            f"the broker's configuration names {wanted}", wanted in config, sorted(config)[:20]
        )


def check_topics(adapter, report):
    topic = lib.topic_name("suite-topic")
    adapter.create(topic, 3, {"retention.ms": "-1", "segment.bytes": "1048576"})
    lib.wait_until(lambda: topic in adapter.topics(), f"{topic} in the list")
    leaders = lib.wait_until(lambda: leaders_of(adapter, topic, 3), f"leaders of {topic}")
    report.check(
        "leaders are brokers of the cluster",
        set(leaders.values()) <= set(adapter.brokers()),
        leaders,
    )
    config = adapter.topic_config(topic)
    report.equal("retention.ms as created", config.get("retention.ms"), "-1")
    report.equal("segment.bytes as created", config.get("segment.bytes"), "1048576")
    report.equal("cleanup.policy by default", config.get("cleanup.policy"), "delete")
    report.equal("bounds of an empty partition", adapter.bounds(topic, 2), (0, 0))
    report.refused(
        "create it again", [lib.TOPIC_ALREADY_EXISTS], lambda: adapter.create(topic, 3, {})
    )
    adapter.delete(topic)
    lib.wait_until(lambda: topic not in adapter.topics(), f"{topic} gone from the list")
    report.refused(
        "delete it again", [lib.UNKNOWN_TOPIC_OR_PARTITION], lambda: adapter.delete(topic)
    )
    adapter.create(topic, 1, {})
    leaders = lib.wait_until(lambda: leaders_of(adapter, topic, 1), f"leaders of the new {topic}")
    report.equal("created anew with one partition", sorted(leaders), [0])
    adapter.delete(topic)


def leaders_of(adapter, topic, partitions):
    """The leaders once all partitions have one; just after the creation they may not."""
    try:
        leaders = adapter.describe(topic)
    except Refused:
        return None
    return leaders if len(leaders) == partitions and min(leaders.values()) >= 0 else None


def ready_topic(adapter, topic, partitions, config=None):
    """Creates it and waits until every partition answers: acks=0 would lose records sent before."""
    adapter.create(topic, partitions, config or {})
    lib.wait_until(lambda: leaders_of(adapter, topic, partitions), f"leaders of {topic}")

    def answers():
        try:
            return all(
                adapter.bounds(topic, partition) == (0, 0) for partition in range(partitions)
            )
        except Refused:
            return False

    lib.wait_until(answers, f"every partition of {topic} to answer")


def check_move(adapter, report, name, move, count):
    label, acks, codec, idempotent = move
    topic = lib.topic_name(name, label)
    records = lib.make_records(count, seed=zlib.crc32(label.encode()))
    ready_topic(adapter, topic, PARTITIONS)
    started = time.monotonic()
    delivered = adapter.produce(topic, records, acks, codec, idempotent)
    produced = time.monotonic()
    counts = {partition: len(part) for partition, part in lib.by_partition(records).items()}
    if acks == "0":
        lib.wait_until(
            lambda: sum(adapter.bounds(topic, p)[1] for p in counts) >= count, f"{label}: arrival"
        )
    else:
        places = [(record.partition, number // PARTITIONS) for number, record in enumerate(records)]
        report.check(
            f"{label}: every acknowledgement names partition and offset",
            delivered == places,
            f"{lib.shorten(delivered[:8])}",
        )
    received = adapter.read(topic, {partition: "earliest" for partition in counts}, counts)
    lib.compare(report, label, records, [record for record, _ in received])
    in_order = all(
        offset == number
        for part in counts
        for number, offset in enumerate(
            offset for record, offset in received if record.partition == part
        )
    )
    report.check(f"{label}: offsets without a gap", in_order)
    bounds = {partition: adapter.bounds(topic, partition) for partition in counts}
    report.equal(
        f"{label}: bounds", bounds, {partition: (0, number) for partition, number in counts.items()}
    )
    report.step(
        f"{label}: {count} records, {count / (produced - started):.0f}/s out, "
        f"{count / (time.monotonic() - produced):.0f}/s in"
    )


def check_positions(adapter, report, name):
    """Reading from an offset, from a timestamp and from the end."""
    topic = lib.topic_name(name, "positions")
    records = lib.make_records(6000, partitions=2, seed=7)
    ready_topic(adapter, topic, 2)
    adapter.produce(topic, records, "all", "lz4", False)
    part = lib.by_partition(records)[1]
    for start in (0, 1, 1234, len(part) - 1):
        received = adapter.read(topic, {1: start}, {1: len(part) - start})
        report.check(
            f"read from offset {start}",
            [record for record, _ in received] == part[start:] and received[0][1] == start,
            lib.shorten(received[:1]),
        )
    stamps = [record.timestamp for record in part]
    for stamp in (min(stamps) - 1000, stamps[0], stamps[777], stamps[1500] + 1, max(stamps)):
        report.equal(
            f"offset at timestamp {stamp - stamps[0]} ms after the first",
            adapter.offset_at(topic, 1, stamp),
            lib.first_at_or_after(part, stamp),
        )
    offset, stamp = adapter.newest(topic, 1)
    report.check(
        "the highest timestamp", stamp == max(stamps) and stamps[offset] == stamp, (offset, stamp)
    )
    report.equal(
        "no offset after the last timestamp", adapter.offset_at(topic, 1, max(stamps) + 1), None
    )
    headers = [("null", None)] if adapter.sends_null_headers else []
    marker = lib.Record(1, b"marker", b"nudge", headers, max(stamps) + 5)
    record, offset = adapter.read_latest(
        topic, 1, lambda: adapter.produce(topic, [marker], "all", "none", False)
    )
    report.check(
        "read from the end sees only what is new",
        record == marker and offset >= len(part),
        (record, offset),
    )
    end = adapter.bounds(topic, 1)[1]
    report.refused(
        "fetch beyond the end",
        [lib.OFFSET_OUT_OF_RANGE],
        lambda: adapter.fetch_at(topic, 1, end + 1000),
    )


def check_append_time(adapter, report, name):
    """A topic with LogAppendTime replaces the client's timestamps, compressed batches included."""
    for codec in ("none", "gzip"):
        topic = lib.topic_name(name, "append-time", "codec", codec)
        ready_topic(adapter, topic, 1, {"message.timestamp.type": "LogAppendTime"})
        records = lib.make_records(500, partitions=1)
        before = int(time.time() * 1000)
        adapter.produce(topic, records, "all", codec, True)
        after = int(time.time() * 1000)
        received = [record for record, _ in adapter.read(topic, {0: "earliest"}, {0: len(records)})]
        report.check(
            f"append time, {codec}: the timestamps are the server's",
            all(before - 5 <= record.timestamp <= after + 5 for record in received),
        )
        report.equal(
            f"append time, {codec}: all else is the client's",
            [record._replace(timestamp=0) for record in received],
            [record._replace(timestamp=0) for record in records],
        )


def check_errors(adapter, report, name):
    for illegal in ("with/slash", "with space", "x" * 250, ".."):
        report.refused(
            f"create the illegal name {illegal[:12]!r}",
            [lib.INVALID_TOPIC],
            lambda: adapter.create(illegal, 1, {}),
        )
    fresh = lib.topic_name(name, "refused")
    report.refused(
        "create with 0 partitions", [lib.INVALID_PARTITIONS], lambda: adapter.create(fresh, 0, {})
    )
    report.refused(
        "create with 99 replicas",
        [lib.INVALID_REPLICATION_FACTOR],
        lambda: adapter.create(fresh, 1, {}, 99),
    )
    report.refused(
        "create with an unknown config",
        [lib.INVALID_CONFIG],
        lambda: adapter.create(fresh, 1, {"retention.msec": "1"}),
    )
    report.refused(
        "create with an illegal value",
        [lib.INVALID_CONFIG],
        lambda: adapter.create(fresh, 1, {"retention.ms": "soon"}),
    )
    report.check("none of these made a topic", fresh not in adapter.topics())
    small = lib.topic_name(name, "small")
    ready_topic(adapter, small, 1, {"max.message.bytes": str(SMALL_MAX)})
    report.refused(
        "a record over the topic's limit",
        [lib.MESSAGE_TOO_LARGE],
        lambda: adapter.produce_one(small, b"x" * (2 * SMALL_MAX)),
    )
    adapter.produce_one(small, b"x" * (SMALL_MAX // 2))
    report.equal("a record under the limit is taken", adapter.bounds(small, 0), (0, 1))
    large = lib.topic_name(name, "large")
    ready_topic(adapter, large, 1)
    report.refused(
        "a record over the server's limit",
        [lib.MESSAGE_TOO_LARGE],
        lambda: adapter.produce_one(large, b"x" * (SERVER_MAX + 1)),
    )
    adapter.produce_one(large, b"x" * (SERVER_MAX - 1000))
    report.equal("a record just under it is taken", adapter.bounds(large, 0), (0, 1))
    received = adapter.read(large, {0: "earliest"}, {0: 1}, 1024)
    report.equal(
        "and read by a client that asks for 1 KiB at a time",
        [len(record.value) for record, _ in received],
        [SERVER_MAX - 1000],
    )


def check_unknown_topic(adapter, report, name, auto_create):
    config = adapter.broker_config(min(adapter.brokers()))
    if auto_create == "ask":
        auto_create = "on" if config["auto.create.topics.enable"] == "true" else "off"
    topic = lib.topic_name(name, "unknown")
    if auto_create == "off":
        # librdkafka finds out from the metadata and answers with its own code -188.
        report.refused(
            "produce to an unknown topic",
            [lib.UNKNOWN_TOPIC_OR_PARTITION, -188],
            lambda: adapter.produce_one(topic, b"value"),
        )
        report.check("it was not created", topic not in adapter.topics())
        return
    adapter.produce_one(topic, b"value")
    report.equal(
        "an unknown topic is created with num.partitions",
        len(adapter.describe(topic)),
        int(config["num.partitions"]),
    )
    counts = {
        partition: adapter.bounds(topic, partition)[1] for partition in adapter.describe(topic)
    }
    received = adapter.read(topic, {partition: "earliest" for partition in counts}, counts)
    report.equal("and keeps the record", [record.value for record, _ in received], [b"value"])
    report.refused(
        "produce to an illegal name",
        [lib.INVALID_TOPIC],
        lambda: adapter.produce_one("with space", b"value"),
    )
