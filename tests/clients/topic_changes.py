"""Topics that are deleted, made anew under the same name, or given more partitions while groups
read them and transactions write them. `--beside HOST:PORT` does the same with another broker (a
real Kafka) first, whose answers are the expected ones.
"""

import time

import lib
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

PROTOCOLS = ("classic", "consumer")


class Broker:
    def __init__(self, bootstrap):
        self.bootstrap = bootstrap
        self.admin = AdminClient({"bootstrap.servers": bootstrap})
        self.found = {}

    def note(self, what, answer):
        print(f"  {self.bootstrap} {what}: {answer}", flush=True)
        self.found[what] = answer

    def create(self, topic, partitions=2):
        def made():
            made = self.admin.create_topics([NewTopic(topic, partitions, 1)])
            return made[topic].exception() is None

        # The name is taken for as long as the old topic is being deleted.
        lib.wait_until(made, f"{topic} to be made")

    def delete(self, topic):
        self.admin.delete_topics([topic])[topic].result()

    def producer(self, **more):
        return Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 0, **more})

    def send(self, topic, *values, partitions=2):
        producer, failed = self.producer(), []
        for number, value in enumerate(values):
            producer.produce(topic, value, partition=number % partitions,
                             on_delivery=lambda error, _: error and failed.append(str(error)))
        assert producer.flush(60) == 0 and not failed, failed

    def consumer(self, group, protocol):
        settings = {"bootstrap.servers": self.bootstrap, "group.id": group,
                    "group.protocol": protocol, "auto.offset.reset": "earliest",
                    "enable.auto.commit": False, "topic.metadata.refresh.interval.ms": 1000,
                    "isolation.level": "read_committed"}
        return Consumer(settings)


def read(consumer, many, seconds=60):
    """Values, sorted, until there are so many different ones (a rebalance may give some twice);
    errors are passed over, as a program would."""
    values, deadline = set(), time.monotonic() + seconds
    while len(values) < many and time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is not None and not message.error():
            values.add(message.value().decode())
    return sorted(values)


def offsets(consumer, topic):
    found = consumer.committed([TopicPartition(topic, it) for it in (0, 1)], timeout=30)
    return [it.offset for it in found]


def positions(consumer, topic, expected, seconds=30):
    """Where it stands, once that is as expected: a member of librdkafka is given the partitions
    anew when the topic's id changes, and has no position until it has read them again."""
    deadline = time.monotonic() + seconds
    while True:
        consumer.poll(0.2)
        found = [it.offset for it in consumer.position([TopicPartition(topic, it) for it in (0, 1)])]
        if found == expected or time.monotonic() > deadline:
            return found


def deleted_under_a_group(broker, protocol):
    topic, group = lib.topic_name("deleted"), lib.topic_name("group")
    broker.create(topic)
    broker.send(topic, "a", "b", "c")
    consumer = broker.consumer(group, protocol)
    consumer.subscribe([topic])
    broker.note(f"read before the deletion, {protocol}", read(consumer, 3))
    consumer.commit(asynchronous=False)
    broker.note(f"committed, {protocol}", offsets(consumer, topic))
    broker.delete(topic)
    read(consumer, 1, 3)
    other = broker.consumer(group, "classic")
    # Kafka forgets what was committed of a topic that is gone.
    gone = lib.wait_until(lambda: offsets(other, topic) == [-1001, -1001], "no offsets", 30, 0.5)
    broker.note(f"its offsets are forgotten, {protocol}", gone)
    broker.create(topic)
    broker.send(topic, "d", "e")
    broker.note(f"the new topic of the same name is read, {protocol}", read(consumer, 2))
    broker.note(f"to its end, {protocol}", positions(consumer, topic, [1, 1]))
    consumer.commit(asynchronous=False)
    broker.note(f"and committed, {protocol}", offsets(other, topic))
    consumer.close()
    other.close()


def grown_under_a_group(broker, protocol):
    topic, group = lib.topic_name("grown"), lib.topic_name("group")
    broker.create(topic)
    consumer = broker.consumer(group, protocol)
    consumer.subscribe([topic])
    read(consumer, 1, 1)
    broker.send(topic, "a", "b")
    broker.note(f"read before it grows, {protocol}", read(consumer, 2))
    broker.admin.create_partitions([NewPartitions(topic, 5)])[topic].result()
    broker.send(topic, "c", "d", "e", "f", "g", partitions=5)
    found = [it for it in read(consumer, 7, 30) if it not in "ab"]
    broker.note(f"read from all five, {protocol}", found)
    broker.note(f"partitions that it has, {protocol}", len(consumer.assignment()))
    consumer.close()


def attempt(call):
    try:
        call()
    except KafkaException as error:
        return error.args[0].name()
    return "done"


def deleted_under_a_transaction(broker):
    kept, gone = lib.topic_name("kept"), lib.topic_name("gone")
    broker.create(kept)
    broker.create(gone)
    producer = broker.producer(**{"transactional.id": lib.topic_name("t")})
    producer.init_transactions(60)
    for round_, end in (("commit", producer.commit_transaction), ("abort", producer.abort_transaction)):
        producer.begin_transaction()
        for topic in (kept, gone):
            producer.produce(topic, round_, partition=0)
        producer.flush(60)
        broker.delete(gone)
        time.sleep(1)
        broker.note(f"{round_} without one of the topics", attempt(lambda: end(60)))
        broker.create(gone)
    producer.begin_transaction()
    for topic, value in ((kept, "to the one"), (gone, "to the other")):
        producer.produce(topic, value, partition=0)
    broker.note("commit to the topic that was made anew", attempt(lambda: producer.commit_transaction(60)))
    consumer = broker.consumer(lib.topic_name("group"), "classic")
    consumer.subscribe([kept, gone])
    broker.note("what readers of what is committed find", read(consumer, 3))
    broker.note("and nothing more", read(consumer, 1, 3))
    consumer.close()


def made_anew_under_a_producer(broker):
    topic = lib.topic_name("anew")
    broker.create(topic)
    producer, said = broker.producer(**{"enable.idempotence": True}), []

    def send(value):
        producer.produce(topic, value, partition=0,
                         on_delivery=lambda error, it: said.append(error.name() if error else it.offset()))
        producer.flush(60)

    send("a")
    send("b")
    broker.delete(topic)
    broker.create(topic)
    time.sleep(2)
    send("c")
    broker.note("offsets over a topic that was made anew", said)


# By protocol for the first two.
STEPS = (
    *(lambda broker, it=it: deleted_under_a_group(broker, it) for it in PROTOCOLS),
    *(lambda broker, it=it: grown_under_a_group(broker, it) for it in PROTOCOLS),
    deleted_under_a_transaction,
    made_anew_under_a_producer,
)


def body(arguments):
    found = []
    for bootstrap in filter(None, (arguments.beside, arguments.bootstrap)):
        broker = Broker(bootstrap)
        for number, step in enumerate(STEPS):
            try:
                step(broker)
            except Exception as error:  # noqa: BLE001 - the failure is the answer
                broker.note(f"step {number} comes to its end", f"{type(error).__name__}: {error}")
        found.append(broker.found)
    report = lib.Report("topic changes")
    expected = found[0] if arguments.beside else EXPECTED
    for what in dict.fromkeys([*expected, *found[-1]]):
        report.equal(what, found[-1].get(what, "not asked"), expected.get(what, "not asked"))
    return report.finish()


# What Kafka 4.3.1 answers, as --beside shows.
EXPECTED = {
    "commit without one of the topics": "done",
    "abort without one of the topics": "done",
    "commit to the topic that was made anew": "done",
    "what readers of what is committed find": ["commit", "to the one", "to the other"],
    "and nothing more": [],
    "offsets over a topic that was made anew": [0, 1, 0],
}
for _protocol in PROTOCOLS:
    EXPECTED |= {
        f"read before the deletion, {_protocol}": ["a", "b", "c"],
        f"committed, {_protocol}": [2, 1],
        f"its offsets are forgotten, {_protocol}": True,
        f"the new topic of the same name is read, {_protocol}": ["d", "e"],
        f"to its end, {_protocol}": [1, 1],
        f"and committed, {_protocol}": [1, 1],
        f"read before it grows, {_protocol}": ["a", "b"],
        f"read from all five, {_protocol}": ["c", "d", "e", "f", "g"],
        f"partitions that it has, {_protocol}": 5,
    }


def more_options(parser):
    parser.add_argument("--beside", metavar="HOST:PORT", help="another broker, whose answers count")


if __name__ == "__main__":
    lib.main(lambda: body(lib.options(__doc__, more_options)))
