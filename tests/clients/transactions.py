#!/usr/bin/env python3
"""Transactions with librdkafka's producer and consumers, kill -9 of the server in between.

Checked are: what committed and uncommitted readers see of committed, aborted and open
transactions; a zombie that is shut out by its successor; the transaction of a dead client, which
the server aborts after its timeout; offsets that a transaction commits for a group; and a copy of
a topic (consume, transform, produce, send offsets) while the server is killed and started again:
every record once, in the order of its partition.
"""

import random
import time

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaException, Producer, TopicPartition

import lib
import suite
from confluent import Confluent
from kills import Restarts

PARTITIONS = 4
PER_TRANSACTION = 400
# The server looks for transactions that are open for too long every 10 s by default.
TIMEOUT_MS = 3000
ABORT_S = 40
COPY_S = 600
# What a client hears of whose place has been taken: librdkafka's own code, and Kafka's.
FENCED = (-144, 47, 90)


def producer(bootstrap, name, **more):
    made = Producer(
        {
            "bootstrap.servers": bootstrap,
            "log_level": 0,
            "transactional.id": name,
            "linger.ms": 5,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
            "retry.backoff.ms": 20,
            **more,
        }
    )
    patiently(lambda: made.init_transactions(60))
    return made


def patiently(call, seconds=120):
    """Calls again while librdkafka says that another try may help."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return call()
        except KafkaException as error:
            if not error.args[0].retriable() or deadline < time.monotonic():
                raise


def values_of(bootstrap, topic, level, until):
    """What a reader gets from all partitions up to the offsets `until`, by partition; control
    records count for the position, so that a reader knows when it is through."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "log_level": 0,
            "group.id": "reading",
            "enable.auto.commit": False,
            "isolation.level": level,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, part, OFFSET_BEGINNING) for part in until])
    found = {part: [] for part in until}
    ended = {part for part, end in until.items() if end == 0}
    deadline = time.monotonic() + lib.DEADLINE_S
    while len(ended) < len(until) and time.monotonic() < deadline:
        for message in consumer.consume(1000, 0.2):
            if message.error():
                ended.add(message.partition())
            else:
                found[message.partition()].append(message.value())
    consumer.close()
    return found


def ends(bootstrap, topic, level="read_uncommitted"):
    """Where each partition ends for such a reader: for a committed one at its last stable
    offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "log_level": 0,
            "group.id": "asking",
            "isolation.level": level,
        }
    )
    asked = [TopicPartition(topic, part, OFFSET_END) for part in range(PARTITIONS)]
    found = {it.partition: it.offset for it in consumer.offsets_for_times(asked, timeout=30)}
    consumer.close()
    return found


def stable_ends(bootstrap, topic):
    return ends(bootstrap, topic, "read_committed")


def check_visibility(report, client, bootstrap):
    topic = lib.topic_name("transactions", "visible")
    suite.ready_topic(client, topic, PARTITIONS)
    making = producer(bootstrap, lib.topic_name("visible"))
    committed = {part: [] for part in range(PARTITIONS)}
    everything = {part: [] for part in range(PARTITIONS)}
    for number in range(30):
        making.begin_transaction()
        commits = number % 3 != 1
        for record in range(40):
            # Not every partition in every transaction.
            part = (number + record % (1 + number % PARTITIONS)) % PARTITIONS
            value = f"{number} {record} {commits}".encode()
            making.produce(topic, value, partition=part)
            everything[part].append(value)
            if commits:
                committed[part].append(value)
        if commits:
            patiently(lambda: making.commit_transaction(60))
        else:
            making.flush(60)
            patiently(lambda: making.abort_transaction(60))
    until = settled_ends(bootstrap, topic)
    report.equal(
        "committed readers see what was committed",
        values_of(bootstrap, topic, "read_committed", until),
        committed,
    )
    report.equal(
        "other readers see everything",
        values_of(bootstrap, topic, "read_uncommitted", until),
        everything,
    )
    check_open(report, (bootstrap, topic), (making, committed))


def settled_ends(bootstrap, topic):
    """The ends, when the markers of all transactions are written."""
    return lib.wait_until(
        lambda: (found := ends(bootstrap, topic)) == stable_ends(bootstrap, topic) and found,
        "the end of all transactions",
    )


def check_open(report, where, state):
    """Records of an open transaction hold committed readers up, and nobody else."""
    (bootstrap, topic), (making, committed) = where, state
    before = ends(bootstrap, topic)
    making.begin_transaction()
    making.produce(topic, b"open", partition=0)
    making.flush(60)
    outside = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    outside.produce(topic, b"outside", partition=0)
    outside.flush(60)
    report.equal("the stable end while it is open", stable_ends(bootstrap, topic)[0], before[0])
    report.equal("the end while it is open", ends(bootstrap, topic)[0], before[0] + 2)
    patiently(lambda: making.commit_transaction(60))
    until = settled_ends(bootstrap, topic)
    report.equal(
        "afterwards committed readers go on",
        values_of(bootstrap, topic, "read_committed", until)[0],
        committed[0] + [b"open", b"outside"],
    )


def check_zombie(report, client, bootstrap):
    topic, name = lib.topic_name("transactions", "zombie"), lib.topic_name("zombie")
    suite.ready_topic(client, topic, PARTITIONS)
    first = producer(bootstrap, name)
    first.begin_transaction()
    first.produce(topic, b"of the zombie", partition=1)
    first.flush(60)
    second = producer(bootstrap, name)
    second.begin_transaction()
    second.produce(topic, b"of its successor", partition=1)
    patiently(lambda: second.commit_transaction(60))
    code = None
    try:
        first.produce(topic, b"late", partition=1)
        first.flush(60)
        first.commit_transaction(60)
    except KafkaException as error:
        code = error.args[0].code()
    report.check("a zombie is shut out", code in FENCED, code)
    until = settled_ends(bootstrap, topic)
    found = values_of(bootstrap, topic, "read_committed", until)[1]
    report.equal("nothing of it counts", found, [b"of its successor"])


def check_dead_client(report, client, bootstrap):
    topic = lib.topic_name("transactions", "dead")
    suite.ready_topic(client, topic, PARTITIONS)
    options = {"transaction.timeout.ms": TIMEOUT_MS, "message.timeout.ms": TIMEOUT_MS}
    dead = producer(bootstrap, lib.topic_name("dead"), **options)
    dead.begin_transaction()
    dead.produce(topic, b"of the dead", partition=2)
    dead.flush(60)
    outside = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    outside.produce(topic, b"of the living", partition=2)
    outside.flush(60)
    started = time.monotonic()
    report.equal("its transaction is open", stable_ends(bootstrap, topic)[2], 0)
    lib.wait_until(
        lambda: stable_ends(bootstrap, topic)[2] == 3, "the server to abort it", ABORT_S
    )
    report.step(f"a dead client's transaction is aborted after {time.monotonic() - started:.0f} s")
    found = values_of(bootstrap, topic, "read_committed", ends(bootstrap, topic))[2]
    report.equal("what the dead has written does not count", found, [b"of the living"])
    report.check("the dead is shut out", ends_fenced(dead, topic))


def ends_fenced(dead, topic):
    try:
        dead.produce(topic, b"of the undead", partition=2)
        dead.flush(10)
        dead.commit_transaction(30)
    except KafkaException:
        return True
    return False


class Copier:
    """One consume-transform-produce loop."""

    def __init__(self, bootstrap, source, target):
        self.bootstrap, self.source, self.target = bootstrap, source, target
        self.name, self.group = lib.topic_name("copier"), lib.topic_name("copying")
        self.transactions = self.aborted = self.renewed = 0
        self.consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "log_level": 0,
                "group.id": self.group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "session.timeout.ms": 10_000,
                "heartbeat.interval.ms": 500,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
            }
        )
        self.consumer.subscribe([source])
        self.producer = producer(bootstrap, self.name)

    def step(self, abort):
        messages = [it for it in self.consumer.consume(PER_TRANSACTION, 0.5) if not it.error()]
        if not messages:
            return
        try:
            self.transaction(messages, abort)
            self.transactions += 1
        except KafkaException as error:
            if error.args[0].txn_requires_abort():
                patiently(lambda: self.producer.abort_transaction(60))
            else:
                self.producer = producer(self.bootstrap, self.name)
                self.renewed += 1
            self.rewind()
            self.aborted += 1

    def transaction(self, messages, abort):
        self.producer.begin_transaction()
        for message in messages:
            while True:
                try:
                    self.producer.produce(
                        self.target, message.value(), partition=message.partition()
                    )
                    break
                except BufferError:
                    self.producer.poll(0.05)
        positions = {it.partition(): it.offset() + 1 for it in messages}
        offsets = [TopicPartition(self.source, part, at) for part, at in positions.items()]
        member = self.consumer.consumer_group_metadata()
        patiently(lambda: self.producer.send_offsets_to_transaction(offsets, member, 60))
        if abort:
            patiently(lambda: self.producer.abort_transaction(60))
            self.aborted += 1
            self.rewind()
        else:
            patiently(lambda: self.producer.commit_transaction(60))

    def rewind(self):
        """Back to what is committed."""
        assigned = self.consumer.assignment()
        for it in patiently(lambda: self.consumer.committed(assigned, timeout=60)):
            self.consumer.seek(
                TopicPartition(it.topic, it.partition, it.offset if it.offset >= 0 else 0)
            )

    def committed(self):
        asked = [TopicPartition(self.source, part) for part in range(PARTITIONS)]
        found = patiently(lambda: self.consumer.committed(asked, timeout=60))
        return {it.partition: it.offset for it in found}


def check_copy(report, client, arguments):
    bootstrap, count = arguments.bootstrap, arguments.records
    source = lib.topic_name("transactions", "source")
    target = lib.topic_name("transactions", "target")
    for topic in (source, target):
        suite.ready_topic(client, topic, PARTITIONS)
    records = [
        lib.Record(number % PARTITIONS, None, f"{number} {'x' * (number % 90)}".encode(), [], 0)
        for number in range(count)
    ]
    records = [it._replace(timestamp=int(time.time() * 1000)) for it in records]
    client.produce(source, records, "all", "none", True)
    wanted = {part: [it.value for it in records if it.partition == part] for part in range(PARTITIONS)}
    copier = Copier(bootstrap, source, target)
    chance = random.Random(1)
    restarts = Restarts(arguments.midway, arguments.kills if arguments.midway else 0)
    through = {part: len(values) for part, values in wanted.items()}
    started = time.monotonic()
    while time.monotonic() < started + COPY_S:
        restarts.look()
        copier.step(chance.random() < 0.1)
        if restarts.are_over() and copier.committed() == through:
            break
    report.equal("restarts that failed", restarts.failed, 0)
    report.equal("restarts that are left", restarts.left, 0)
    report.equal("the group's offsets afterwards", copier.committed(), through)
    report.step(
        f"{copier.transactions} transactions, {copier.aborted} aborted, "
        f"{copier.renewed} new producers, {count / (time.monotonic() - started):.0f} records/s"
    )
    until = settled_ends(bootstrap, target)
    found = values_of(bootstrap, target, "read_committed", until)
    report.moved += sum(map(len, found.values()))
    for part, values in wanted.items():
        report.check(
            f"partition {part}: every record once, in order",
            found[part] == values,
            f"{len(found[part])} of {len(values)}, {len(set(found[part]))} different",
        )


def body(arguments):
    report = lib.Report("transactions")
    client = Confluent(arguments.bootstrap)
    report.step(client.versions())
    check_visibility(report, client, arguments.bootstrap)
    check_zombie(report, client, arguments.bootstrap)
    check_dead_client(report, client, arguments.bootstrap)
    check_copy(report, client, arguments)
    return report.finish()


def more_options(parser):
    parser.add_argument("--kills", type=int, default=10, help="how often the server is killed (10)")
    parser.add_argument("--midway", metavar="COMMAND", help="kills the server and starts it again")


if __name__ == "__main__":
    ARGUMENTS = lib.options(__doc__, more_options)
    lib.main(lambda: body(ARGUMENTS))
