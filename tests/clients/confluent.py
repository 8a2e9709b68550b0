#!/usr/bin/env python3
"""confluent-kafka (librdkafka) against a bootstrap server: the checks of suite.py."""

import subprocess
import sys
import time

import confluent_kafka
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec, ResourceType

import lib
import suite
from lib import Record, Refused

POLL_S = 0.1
START = {"earliest": confluent_kafka.OFFSET_BEGINNING, "latest": confluent_kafka.OFFSET_END}


def code_of(error):
    return error.args[0].code() if isinstance(error, KafkaException) else error.code()


class Confluent:
    sends_null_headers = True

    def __init__(self, bootstrap):
        self.common = {
            "bootstrap.servers": bootstrap,
            "log_level": 2,
            "topic.metadata.refresh.interval.ms": 5000,
        }
        self.admin = AdminClient(self.common)
        # The library wants a group id even where no group is joined.
        self.asking = self.consumer()

    def versions(self):
        library = confluent_kafka.libversion()[0]
        return f"confluent-kafka {confluent_kafka.__version__}, librdkafka {library}"

    def consumer(self, **more):
        return Consumer(
            {
                **self.common,
                "group.id": "assigned-only",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "enable.partition.eof": False,
                **more,
            }
        )

    # Topics and configuration.

    def answer(self, futures):
        for future in futures.values():
            try:
                return future.result(timeout=lib.DEADLINE_S)
            except KafkaException as error:
                raise Refused(code_of(error), error.args[0].str()) from error
        raise AssertionError("the library returned no future")

    def brokers(self):
        found = self.admin.list_topics(timeout=30).brokers
        return {broker.id: (broker.host, broker.port) for broker in found.values()}

    def topics(self):
        return set(self.admin.list_topics(timeout=30).topics)

    def describe(self, topic):
        found = self.admin.describe_topics(confluent_kafka.TopicCollection([topic]))
        description = self.answer(found)
        return {part.id: part.leader.id if part.leader else -1 for part in description.partitions}

    def create(self, topic, partitions, config, replicas=1):
        self.answer(
            self.admin.create_topics([NewTopic(topic, partitions, replicas, config=config)])
        )

    def delete(self, topic):
        self.answer(self.admin.delete_topics([topic]))

    def configuration(self, kind, name):
        entries = self.answer(self.admin.describe_configs([ConfigResource(kind, name)]))
        return {entry.name: entry.value for entry in entries.values()}

    def topic_config(self, topic):
        return self.configuration(ResourceType.TOPIC, topic)

    def broker_config(self, broker):
        return self.configuration(ResourceType.BROKER, str(broker))

    # Producing.

    def produce(self, topic, records, acks, codec, idempotent):
        producer = Producer(
            {
                **self.common,
                "acks": acks,
                "compression.type": codec,
                "linger.ms": 5,
                "enable.idempotence": idempotent,
                "queue.buffering.max.messages": 200_000,
            }
        )
        answers = [None] * len(records)
        errors = []
        for number, record in enumerate(records):

            def delivered(error, message, number=number):
                if error:
                    errors.append(error)
                else:
                    answers[number] = (message.partition(), message.offset())

            send(producer, topic, record, delivered)
        left = producer.flush(lib.DEADLINE_S)
        if errors:
            raise Refused(
                errors[0].code(), f"{len(errors)} records not delivered: {errors[0].str()}"
            )
        if left:
            raise TimeoutError(f"{left} records not delivered")
        return answers

    def stream(self, topic, records, halfway):
        """Idempotent; goes on through a server that goes away and comes back. `halfway` is called
        when half of the records are handed over. Records with partition -1 go where the library's
        partitioner says.
        """
        producer = Producer(
            {
                **self.common,
                "enable.idempotence": True,
                "compression.type": "lz4",
                "linger.ms": 5,
                "queue.buffering.max.messages": 50_000,
                "message.timeout.ms": 300_000,
            }
        )
        errors = []
        for number, record in enumerate(records):
            if number == len(records) // 2:
                halfway()
            send(producer, topic, record, lambda error, _: error and errors.append(error))
        left = producer.flush(300)
        if errors or left:
            raise RuntimeError(f"{len(errors)} failed {errors[:1]}, {left} not delivered")

    def produce_one(self, topic, value):
        producer = Producer(
            {
                **self.common,
                "message.max.bytes": 5_000_000,
                "message.timeout.ms": 20_000,
                # Else the library waits 30 s for an unknown topic to appear.
                "topic.metadata.propagation.max.ms": 5000,
            }
        )
        errors = []
        try:
            producer.produce(topic, value, on_delivery=lambda error, _: errors.append(error))
        except KafkaException as error:
            raise Refused(code_of(error), str(error)) from error
        if producer.flush(30):
            raise TimeoutError("not delivered")
        if errors[0]:
            raise Refused(errors[0].code(), errors[0].str())

    # Reading.

    def bounds(self, topic, partition):
        try:
            return self.asking.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)
        except KafkaException as error:
            raise Refused(code_of(error)) from error

    def offset_at(self, topic, partition, timestamp):
        found = self.asking.offsets_for_times(
            [TopicPartition(topic, partition, timestamp)], timeout=30
        )[0]
        if found.error:
            raise Refused(found.error.code())
        return found.offset if found.offset >= 0 else None

    def newest(self, topic, partition):
        """(offset, timestamp) of the record with the highest timestamp."""
        asked = {TopicPartition(topic, partition): OffsetSpec.max_timestamp()}
        found = self.answer(self.admin.list_offsets(asked))
        return found.offset, found.timestamp

    def read(self, topic, starts, counts, fetch_bytes=1 << 20):
        consumer = self.consumer(**{"max.partition.fetch.bytes": fetch_bytes})
        consumer.assign(
            [
                TopicPartition(topic, partition, START.get(start, start))
                for partition, start in starts.items()
            ]
        )
        received = []
        left = dict(counts)
        deadline = time.monotonic() + lib.patience_s(counts)
        while any(number > 0 for number in left.values()) and time.monotonic() < deadline:
            for message in consumer.consume(1000, POLL_S):
                if message.error():
                    consumer.close()
                    raise Refused(message.error().code(), message.error().str())
                left[message.partition()] -= 1
                received.append((record_of(message), message.offset()))
        consumer.close()
        return received

    def read_to_end(self, topics, isolation):
        """{topic: records of its partition 0}; markers and offsets that are missing are passed
        over."""
        more = {"enable.partition.eof": True, "isolation.level": isolation}
        consumer = self.consumer(**more)
        begin = confluent_kafka.OFFSET_BEGINNING
        consumer.assign([TopicPartition(topic, 0, begin) for topic in topics])
        received = {topic: [] for topic in topics}
        left = set(topics)
        deadline = time.monotonic() + lib.DEADLINE_S
        while left and time.monotonic() < deadline:
            for message in consumer.consume(1000, POLL_S):
                if not message.error():
                    received[message.topic()].append((record_of(message), message.offset()))
                elif message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF:
                    left.discard(message.topic())
                else:
                    raise Refused(message.error().code(), message.error().str())
        consumer.close()
        if left:
            raise TimeoutError(f"no end of {sorted(left)[:5]}")
        return received

    def read_latest(self, topic, partition, nudge):
        consumer = self.consumer()
        consumer.assign([TopicPartition(topic, partition, confluent_kafka.OFFSET_END)])
        message = None
        deadline = time.monotonic() + lib.DEADLINE_S
        while message is None and time.monotonic() < deadline:
            message = consumer.poll(0.3)
            if message is None:
                nudge()
        consumer.close()
        return record_of(message), message.offset()

    def fetch_at(self, topic, partition, offset):
        consumer = self.consumer()
        consumer.assign([TopicPartition(topic, partition, offset)])
        message = consumer.poll(10)
        consumer.close()
        if message is None:
            raise TimeoutError("neither a record nor an error")
        if message.error():
            # The policy "error" wraps the broker's error in a local one.
            code = message.error().code()
            local = confluent_kafka.KafkaError._AUTO_OFFSET_RESET
            raise Refused(lib.OFFSET_OUT_OF_RANGE if code == local else code, message.error().str())
        return record_of(message)


def send(producer, topic, record, on_delivery):
    while True:
        try:
            producer.produce(
                topic,
                record.value,
                record.key,
                record.partition,
                timestamp=record.timestamp,
                headers=record.headers,
                on_delivery=on_delivery,
            )
            break
        except BufferError:
            producer.poll(POLL_S)
    producer.poll(0)


def record_of(message):
    return Record(
        message.partition(),
        message.key(),
        message.value(),
        message.headers() or [],
        message.timestamp()[1],
    )


# A process of its own: librdkafka 2.16 crashes when a coordinator is named and has no OffsetFetch.
STORED = """
import sys
from confluent_kafka import OFFSET_STORED, Consumer, TopicPartition
consumer = Consumer({"bootstrap.servers": sys.argv[1], "group.id": "stored",
                     "enable.auto.commit": False, "log_level": 2})
consumer.assign([TopicPartition(sys.argv[2], 0, OFFSET_STORED)])
consumer.poll(2)
consumer.close()
"""


def check_stored_offset(adapter, report, bootstrap):
    """A consumer that asks for an offset that its group has stored: it may wait, or begin anew."""
    topic = lib.topic_name("confluent", "stored")
    suite.ready_topic(adapter, topic, 1)
    ended = subprocess.run(
        [sys.executable, "-c", STORED, bootstrap, topic], timeout=lib.DEADLINE_S, check=False
    )
    report.equal("exit status of a consumer of stored offsets", ended.returncode, 0)


if __name__ == "__main__":
    arguments = lib.options(__doc__)
    adapter = Confluent(arguments.bootstrap)
    lib.main(lambda: suite.run(adapter, "confluent", arguments, [check_stored_offset]))
