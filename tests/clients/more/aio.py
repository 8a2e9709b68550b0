#!/usr/bin/env python3
"""aiokafka against a bootstrap server: every codec, assignment, a group of three that changes,
commits, lookups by time, transactions with offsets."""

import asyncio
import time

import aiokafka
import checks
import lib
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.structs import OffsetAndMetadata

PARTITIONS = 6
SHARED = 9000


class Member:
    """A consumer of a group, read by a task of its own."""

    def __init__(self, consumer, seen):
        self.consumer, self.seen = consumer, seen
        self.task = asyncio.create_task(self.read())

    async def read(self):
        async for message in self.consumer:
            self.seen.append(message)

    def assigned(self):
        return sorted(it.partition for it in self.consumer.assignment())

    async def close(self):
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        await self.consumer.stop()


async def until(condition, seconds=lib.DEADLINE_S):
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        await asyncio.sleep(0.02)
    return condition()


class Client:
    def __init__(self, bootstrap):
        self.bootstrap = bootstrap

    async def create(self, label):
        topic = lib.topic_name(label)
        admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
        await admin.start()
        await admin.create_topics([NewTopic(topic, PARTITIONS, 1)])
        await admin.close()
        return topic

    async def produce(self, topic, records, codec=None, **more):
        producer = AIOKafkaProducer(
            bootstrap_servers=self.bootstrap,
            compression_type=codec,
            linger_ms=5,
            **{"enable_idempotence": True, **more},
        )
        await producer.start()
        await send(producer, topic, records)
        await producer.stop()

    async def consumer(self, *topics, group=None, **more):
        consumer = AIOKafkaConsumer(
            *topics,
            bootstrap_servers=self.bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            session_timeout_ms=10_000,
            heartbeat_interval_ms=500,
            auto_commit_interval_ms=200,
            isolation_level="read_committed",
            metadata_max_age_ms=2000,
            **more,
        )
        await consumer.start()
        return consumer

    async def member(self, topic, group, seen):
        return Member(await self.consumer(topic, group=group), seen)

    async def read_all(self, topic, count, starts=None):
        """By assignment, from the given offset of every partition."""
        consumer = await self.consumer()
        parts = [TopicPartition(topic, it) for it in range(PARTITIONS)]
        consumer.assign(parts)
        for part in parts:
            consumer.seek(part, starts or 0)
        found = []
        deadline = time.monotonic() + lib.DEADLINE_S
        while len(found) < count and time.monotonic() < deadline:
            for some in (await consumer.getmany(timeout_ms=500)).values():
                found += some
        await consumer.stop()
        return found


async def send(producer, topic, records):
    sent = []
    for record in records:
        sent.append(
            await producer.send(
                topic,
                record.value,
                record.key,
                record.partition,
                record.timestamp,
                headers=record.headers,
            )
        )
    for future in sent:
        await future


def record_of(message):
    headers = [(name, value) for name, value in message.headers]
    return lib.Record(
        message.partition, message.key, message.value, headers, message.timestamp
    )


def same_in_order(report, what, sent, messages):
    report.say("moved", len(messages))
    wanted, got = lib.by_partition(sent), lib.by_partition(map(record_of, messages))
    wrong = [it for it in wanted if wanted[it] != got.get(it)]
    report.check(what, not wrong, f"{len(messages)} of {len(sent)}, partitions {wrong} differ")


async def codecs(report, client, count):
    for codec in lib.CODECS:
        topic = await client.create(codec)
        records = lib.make_records(count // len(lib.CODECS))
        await client.produce(topic, records, None if codec == "none" else codec)
        messages = await client.read_all(topic, len(records))
        same_in_order(report, f"produce and read, {codec}", records, messages)
    records = lib.make_records(600)
    topic = await client.create("leader")
    await client.produce(topic, records, enable_idempotence=False, acks=1)
    same_in_order(report, "acks=1", records, await client.read_all(topic, 600))


async def sharing(report, client, _):
    topic, group, seen = await client.create("shared"), lib.topic_name("group"), []
    records = lib.make_records(SHARED)
    members = []

    async def expect(what, sizes):
        def holds():
            found = [it.assigned() for it in members]
            whole = sorted(sum(found, [])) == list(range(PARTITIONS))
            return whole and sorted(map(len, found)) == sizes

        await until(holds)
        report.check(what, holds(), [it.assigned() for it in members])

    members.append(await client.member(topic, group, seen))
    await expect("one member has every partition", [6])
    await client.produce(topic, records[:3000])
    members += await asyncio.gather(*(client.member(topic, group, seen) for _ in range(2)))
    await expect("three members share the partitions", [2, 2, 2])
    await client.produce(topic, records[3000:6000])
    await members.pop(0).close()
    await expect("a member leaves, the others take over", [3, 3])
    await client.produce(topic, records[6000:])
    places = lambda: {(it.partition, it.offset) for it in seen}  # noqa: E731
    await until(lambda: len(places()) == SHARED)
    report.equal("nothing is lost over rebalances", len(places()), SHARED)
    for member in members:
        await member.close()
    await committed_are_ends(report, client, topic, group)


async def committed_are_ends(report, client, topic, group):
    again = []
    member = await client.member(topic, group, again)
    await until(lambda: len(member.assigned()) == PARTITIONS)
    parts = [TopicPartition(topic, it) for it in range(PARTITIONS)]
    committed = {part: await member.consumer.committed(part) for part in parts}
    ends = await member.consumer.end_offsets(parts)
    report.equal("committed offsets are the ends", committed, ends)
    # Behind what would be read once more, if it were.
    last = [lib.Record(it, None, b"last", [], int(time.time() * 1000)) for it in range(PARTITIONS)]
    await client.produce(topic, last)
    ended = lambda: {it.partition for it in again if it.value == b"last"}  # noqa: E731
    await until(lambda: len(ended()) == PARTITIONS)
    found = [it.value for it in again]
    report.equal("a new member begins at what was committed", found, [b"last"] * PARTITIONS)
    await member.close()


async def by_time(report, client, _):
    topic = await client.create("times")
    stamp = int(time.time() * 1000) - 3_600_000
    records = [
        lib.Record(number % PARTITIONS, None, b"%d" % number, [], stamp + number)
        for number in range(6000)
    ]
    await client.produce(topic, records)
    consumer = await client.consumer()
    part = TopicPartition(topic, 2)
    consumer.assign([part])
    asked = stamp + 400 * PARTITIONS + 2
    found = (await consumer.offsets_for_times({part: asked - 1}))[part]
    report.equal("the offset at a time", (found.offset, found.timestamp), (400, asked))
    late = await consumer.offsets_for_times({part: stamp + 10_000_000})
    report.equal("no offset at a later time", late[part], None)
    consumer.seek(part, found.offset)
    first = await consumer.getone()
    report.equal("read from that time on", (first.offset, first.timestamp), (400, asked))
    await consumer.stop()


async def transactions(report, client, _):
    topic, source = await client.create("committed"), await client.create("source")
    group = lib.topic_name("group")
    records = lib.make_records(4000)
    producer = AIOKafkaProducer(
        bootstrap_servers=client.bootstrap, transactional_id=lib.topic_name("transactional")
    )
    await producer.start()
    for at in range(4):
        await producer.begin_transaction()
        await send(producer, topic, records[at * 1000 : (at + 1) * 1000])
        if at == 3:
            offsets = {TopicPartition(source, 0): OffsetAndMetadata(7, "")}
            await producer.send_offsets_to_transaction(offsets, group)
        await (producer.abort_transaction() if at == 1 else producer.commit_transaction())
    await producer.stop()
    wanted = records[:1000] + records[2000:]
    what = "committed transactions are read, aborted ones not"
    same_in_order(report, what, wanted, await client.read_all(topic, len(wanted)))
    consumer = await client.consumer(source, group=group)
    found = await consumer.committed(TopicPartition(source, 0))
    report.equal("offsets sent with a transaction are committed", found, 7)
    await consumer.stop()


async def parts():
    bootstrap, count = checks.arguments()
    report, client = checks.Checks(), Client(bootstrap)
    report.say("version", aiokafka.__version__)
    for part in (codecs, sharing, by_time, transactions):
        try:
            await asyncio.wait_for(part(report, client, count), 400)
        except Exception as error:  # noqa: BLE001 - the failure is the report
            report.check(part.__name__, False, f"{type(error).__name__}: {error}")
    return report.finish()


if __name__ == "__main__":
    lib.main(lambda: asyncio.run(parts()))
