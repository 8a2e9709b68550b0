#!/usr/bin/env python3
"""kafka-python 3 against a bootstrap server: the checks of suite.py."""

import logging
import time

import kafka
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, OffsetSpec
from kafka.errors import KafkaError, KafkaTimeoutError, UnknownTopicOrPartitionError

import lib
import suite
from lib import Record, Refused

POLL_MS = 200


def refuse(error):
    """The library's exception as Kafka's code; a time-out waiting for a topic's metadata means it
    is unknown."""
    cause = error
    while cause is not None and getattr(cause, "errno", None) is None:
        cause = cause.__cause__
    if cause is None and isinstance(error, KafkaTimeoutError):
        return Refused(UnknownTopicOrPartitionError.errno, str(error))
    return Refused(getattr(cause, "errno", None), f"{type(error).__name__} {error}")


class KafkaPython:
    sends_null_headers = False

    def __init__(self, bootstrap):
        self.bootstrap = bootstrap
        self.admin = KafkaAdminClient(bootstrap_servers=bootstrap)
        self.asking = self.consumer()

    def versions(self):
        taken_for = self.admin._manager.broker_version
        return f"kafka-python {kafka.__version__}, takes the server for Kafka {taken_for}"

    def consumer(self, fetch_bytes=1 << 20):
        return KafkaConsumer(
            bootstrap_servers=self.bootstrap,
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="none",
            max_poll_records=5000,
            max_partition_fetch_bytes=fetch_bytes,
        )

    def call(self, function, *arguments, **named):
        try:
            return function(*arguments, **named)
        except ValueError as error:
            # The library looks at topic names itself before it sends.
            raise Refused(
                lib.INVALID_TOPIC if "illegal" in str(error) else None, str(error)
            ) from error
        except KafkaError as error:
            raise refuse(error) from error

    # Topics and configuration.

    def brokers(self):
        found = self.admin.describe_cluster()["brokers"]
        return {
            broker.get("node_id", broker.get("broker_id")): (broker["host"], broker["port"])
            for broker in found
        }

    def topics(self):
        return set(self.admin.list_topics())

    def describe(self, topic):
        found = self.call(self.admin.describe_topics, [topic])[0]
        if found["error_code"]:
            raise Refused(found["error_code"])
        return {part["partition_index"]: part["leader_id"] for part in found["partitions"]}

    def create(self, topic, partitions, config, replicas=1):
        self.call(
            self.admin.create_topics,
            {
                topic: {
                    "num_partitions": partitions,
                    "replication_factor": replicas,
                    "configs": config,
                }
            },
        )

    def delete(self, topic):
        self.call(self.admin.delete_topics, [topic])

    def configuration(self, kind, name):
        found = self.call(
            self.admin.describe_configs, [ConfigResource(kind, name)], config_filter="all"
        )
        entries = found[kind.name.lower()][name]
        return {key: entry["value"] for key, entry in entries.items()}

    def topic_config(self, topic):
        return self.configuration(ConfigResourceType.TOPIC, topic)

    def broker_config(self, broker):
        return self.configuration(ConfigResourceType.BROKER, str(broker))

    # Producing.

    def producer(self, **more):
        return KafkaProducer(bootstrap_servers=self.bootstrap, linger_ms=5, **more)

    def produce(self, topic, records, acks, codec, idempotent):
        producer = self.producer(
            acks="all" if acks == "all" else int(acks),
            enable_idempotence=idempotent,
            compression_type=None if codec == "none" else codec,
            batch_size=65_536,
        )
        futures = [
            producer.send(
                topic, record.value, record.key, record.headers, record.partition, record.timestamp
            )
            for record in records
        ]
        self.call(producer.flush, lib.DEADLINE_S)
        found = [self.call(future.get, 10) for future in futures]
        producer.close()
        return [(answer.partition, answer.offset) for answer in found]

    def stream(self, topic, records, halfway):
        """Idempotent; goes on through a server that goes away and comes back. `halfway` is called
        when half of the records are handed over. Records with partition -1 go where the library's
        partitioner says.
        """
        producer = self.producer(
            enable_idempotence=True,
            compression_type="lz4",
            batch_size=65_536,
            max_block_ms=300_000,
            delivery_timeout_ms=300_000,
        )
        futures = []
        for number, record in enumerate(records):
            if number == len(records) // 2:
                halfway()
            partition = record.partition if record.partition >= 0 else None
            futures.append(
                self.call(
                    producer.send,
                    topic,
                    record.value,
                    record.key,
                    record.headers,
                    partition,
                    record.timestamp,
                )
            )
        self.call(producer.flush, 300)
        for future in futures:
            self.call(future.get, 10)
        producer.close()

    def produce_one(self, topic, value):
        producer = self.producer(max_request_size=5_000_000, max_block_ms=8000)
        try:
            self.call(self.call(producer.send, topic, value).get, 30)
        finally:
            producer.close()

    # Reading.

    def bounds(self, topic, partition):
        place = TopicPartition(topic, partition)
        first = self.call(self.asking.beginning_offsets, [place])[place]
        return (first, self.call(self.asking.end_offsets, [place])[place])

    def offset_at(self, topic, partition, timestamp):
        place = TopicPartition(topic, partition)
        found = self.call(self.asking.offsets_for_times, {place: timestamp})[place]
        return found.offset if found is not None else None

    def newest(self, topic, partition):
        """(offset, timestamp) of the record with the highest timestamp."""
        place = TopicPartition(topic, partition)
        found = self.call(self.admin.list_partition_offsets, {place: OffsetSpec.MAX_TIMESTAMP})[
            place
        ]
        return found.offset, found.timestamp

    def assigned(self, topic, starts, **more):
        consumer = self.consumer(**more)
        consumer.assign([TopicPartition(topic, partition) for partition in starts])
        for partition, start in starts.items():
            place = TopicPartition(topic, partition)
            if start == "earliest":
                consumer.seek_to_beginning(place)
            elif start == "latest":
                consumer.seek_to_end(place)
            else:
                consumer.seek(place, start)
        return consumer

    def read(self, topic, starts, counts, fetch_bytes=1 << 20):
        consumer = self.assigned(topic, starts, fetch_bytes=fetch_bytes)
        received = []
        left = dict(counts)
        deadline = time.monotonic() + lib.patience_s(counts)
        while any(number > 0 for number in left.values()) and time.monotonic() < deadline:
            for place, messages in self.call(consumer.poll, POLL_MS).items():
                left[place.partition] -= len(messages)
                received += [(record_of(message), message.offset) for message in messages]
        consumer.close()
        return received

    def read_latest(self, topic, partition, nudge):
        consumer = self.assigned(topic, {partition: "latest"})
        deadline = time.monotonic() + lib.DEADLINE_S
        while time.monotonic() < deadline:
            for messages in self.call(consumer.poll, POLL_MS).values():
                consumer.close()
                return record_of(messages[0]), messages[0].offset
            nudge()
        raise TimeoutError("nothing arrived at the end of the log")

    def fetch_at(self, topic, partition, offset):
        consumer = self.assigned(topic, {partition: offset})
        try:
            return self.call(consumer.poll, 10_000)
        finally:
            consumer.close()


def record_of(message):
    headers = [(name, value) for name, value in message.headers]
    return Record(message.partition, message.key, message.value, headers, message.timestamp)


if __name__ == "__main__":
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    arguments = lib.options(__doc__)
    lib.main(lambda: suite.run(KafkaPython(arguments.bootstrap), "kafka-python", arguments))
