#!/usr/bin/env python3
"""Consumer groups with real clients against a bootstrap server: librdkafka (confluent-kafka),
kafka-python, and Kafka's own tools.

Three members share the partitions of a topic under each way to rebalance; a member leaves and
comes back; static members restart without a rebalance and are fenced; what is committed is there
after a kill (with --midway) and while strangers may not commit; groups are listed, described,
deleted, and their offsets, too; Kafka's formatters read `__consumer_offsets`.
"""

import threading
import time
from collections import Counter

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

import lib
from lib import Refused
from java import Tools

PARTITIONS = 6
SESSION_MS = 6000
PARTS = ("sharing", "static", "change", "regex", "grown", "python", "java")
# What ways there are: label, the members' settings.
WAYS = {
    "range": {"group.protocol": "classic", "partition.assignment.strategy": "range"},
    "cooperative": {
        "group.protocol": "classic",
        "partition.assignment.strategy": "cooperative-sticky",
    },
    "uniform": {"group.protocol": "consumer", "group.remote.assignor": "uniform"},
    "range-server": {"group.protocol": "consumer", "group.remote.assignor": "range"},
}


class Member:
    """A consumer on a thread of its own: what it read, what it has, what went wrong."""

    def __init__(self, bootstrap, group, topics, settings):
        self.read, self.errors, self.assigned, self.rebalances = [], [], set(), 0
        self.is_ended = threading.Event()
        classic = {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": 500}
        is_classic = settings["group.protocol"] == "classic"
        self.consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "topic.metadata.refresh.interval.ms": 1000,
                "log_level": 0,
                **(classic if is_classic else {}),
                **settings,
            }
        )
        self.consumer.subscribe(
            topics,
            on_assign=self.on_assign,
            on_revoke=self.on_revoke,
            on_lost=self.on_revoke,
        )
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def on_assign(self, _, partitions):
        self.rebalances += 1
        self.assigned |= {(it.topic, it.partition) for it in partitions}

    def on_revoke(self, consumer, partitions):
        try:
            consumer.commit(asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._NO_OFFSET:
                self.errors.append(error.args[0].code())
        self.assigned -= {(it.topic, it.partition) for it in partitions}

    def run(self):
        while not self.is_ended.is_set():
            message = self.consumer.poll(0.1)
            if message is None:
                continue
            if message.error():
                self.errors.append(message.error().code())
            else:
                self.read.append((message.partition(), message.offset(), message.value()))
        self.consumer.close()

    def end(self):
        self.is_ended.set()
        self.thread.join()


def share(members):
    return sorted(len(it.assigned) for it in members)


def wait_for_shares(report, what, members, wanted):
    """Every partition belongs to one member, in these shares."""
    try:
        lib.wait_until(lambda: share(members) == wanted, what, 60)
    except TimeoutError:
        return report.equal(what, share(members), wanted)
    owners = Counter(partition for it in members for partition in it.assigned)
    return report.check(what, set(owners.values()) <= {1}, f"shared: {owners}")


def produce(bootstrap, topic, count, start=0):
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "log_level": 0})
    for number in range(start, start + count):
        while True:
            try:
                producer.produce(topic, str(number).encode(), partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(60):
        raise RuntimeError("not everything was produced")


class Checks:
    def __init__(self, report, arguments):
        self.report, self.bootstrap = report, arguments.bootstrap
        self.midway = arguments.midway
        self.tools = Tools(arguments.bootstrap)

    @property
    def admin(self):
        """A new one each time: one that has seen its broker die may never send again what asks
        for a group's coordinator, with Kafka, too."""
        self.client = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        return self.client

    def topic(self, label):
        name = lib.topic_name("groups", label)
        self.admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(30)
        return name

    def ends(self, group, topic):
        wanted = [TopicPartition(topic, it) for it in range(PARTITIONS)]
        answer = self.admin.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group, wanted)], require_stable=True
        )
        return [it.offset for it in answer[group].result(30).topic_partitions]

    def describe(self, group):
        return self.admin.describe_consumer_groups([group])[group].result(30)

    def sharing(self, way, count):
        """Members come and go, and the server is killed in between."""
        report, settings = self.report, WAYS[way]
        topic, group = self.topic(way), lib.topic_name("group", way)
        produce(self.bootstrap, topic, count)

        def member():
            return Member(self.bootstrap, group, [topic], settings)

        members = [member()]
        wait_for_shares(report, f"{way}: the first has all", members, [6])
        members += [member(), member()]
        wait_for_shares(report, f"{way}: three share", members, [2, 2, 2])
        wait_for(report, f"{way}: all is read", members, count)
        found = self.describe(group)
        report.equal(f"{way}: described state", found.state.name, "STABLE")
        report.equal(f"{way}: described members", len(found.members), 3)
        report.equal(
            f"{way}: described partitions",
            sorted(len(it.assignment.topic_partitions) for it in found.members),
            [2, 2, 2],
        )
        last = members.pop()
        last.end()
        wait_for_shares(report, f"{way}: two share what the third had", members, [3, 3])
        report.equal(f"{way}: errors", [it for one in members for it in one.errors], [])
        self.refuse_while_running(way, group, topic)
        for one in members:
            one.end()
        each = count // PARTITIONS
        report.equal(f"{way}: committed", self.ends(group, topic), [each] * PARTITIONS)
        self.kill()
        report.equal(f"{way}: committed before a kill", self.ends(group, topic), [each] * 6)
        produce(self.bootstrap, topic, count, count)
        members = [member(), member()]
        wait_for_shares(report, f"{way}: two share after a kill", members, [3, 3])
        wait_for(report, f"{way}: goes on where it was", members, count)
        numbers = {int(value) for one in members for _, _, value in one.read}
        report.equal(f"{way}: nothing is read twice", min(numbers, default=None), count)
        self.kill()
        produce(self.bootstrap, topic, count, 2 * count)
        wait_for(report, f"{way}: members live through a kill", members, 2 * count)
        for one in members:
            one.end()
        report.equal(f"{way}: committed at last", self.ends(group, topic), [3 * each] * 6)
        self.delete(way, group, topic)
        report.step(f"{way}: shared, left, killed, deleted")

    def kill(self):
        if self.midway:
            done = lib.run(["/bin/sh", "-c", self.midway])
            self.report.equal("the restart", done.returncode, 0)

    def refuse_while_running(self, way, group, topic):
        """Strangers' commits, deletions of what is in use."""
        report = self.report
        stranger = Consumer({"bootstrap.servers": self.bootstrap, "group.id": group})
        offsets = [TopicPartition(topic, 0, 0)]
        self.refused(
            f"{way}: a stranger's commit",
            {KafkaError.UNKNOWN_MEMBER_ID, KafkaError.STALE_MEMBER_EPOCH},
            lambda: stranger.commit(offsets=offsets, asynchronous=False),
        )
        stranger.close()
        self.refused(
            f"{way}: deleting a group with members",
            {KafkaError.NON_EMPTY_GROUP},
            lambda: self.admin.delete_consumer_groups([group])[group].result(30),
        )
        status, out, _ = self.tools.run(
            "groups", "--delete-offsets", "--group", group, "--topic", topic
        )
        is_refused = "GroupSubscribedToTopic" in out or status
        report.check(f"{way}: deleting offsets in use", is_refused, out)
        listed = {it.group_id: it for it in self.admin.list_consumer_groups().result(30).valid}
        report.check(f"{way}: the group is listed", group in listed)

    def delete(self, way, group, topic):
        report = self.report
        out = self.tools.must("groups", "--describe", "--group", group)
        report.equal(f"{way}: rows of Kafka's tool", out.count(topic), PARTITIONS)
        lags = [row.split()[5] for row in out.splitlines() if topic in row]
        report.equal(f"{way}: lags of Kafka's tool", lags, ["0"] * PARTITIONS)
        out = self.tools.must(
            "groups", "--delete-offsets", "--group", group, "--topic", f"{topic}:0"
        )
        report.check(f"{way}: deleting an offset", "Successful" in out, out)
        report.equal(f"{way}: offset after that", self.ends(group, topic)[0], -1001)
        self.admin.delete_consumer_groups([group])[group].result(30)
        self.refused(
            f"{way}: deleting it again",
            {KafkaError.GROUP_ID_NOT_FOUND},
            lambda: self.admin.delete_consumer_groups([group])[group].result(30),
        )

    def refused(self, what, codes, call):
        def refusing():
            try:
                return call()
            except KafkaException as error:
                raise Refused(error.args[0].code(), str(error)) from error

        self.report.refused(what, codes, refusing)

    def static(self, way):
        """A static member restarts and finds its partitions; a second one with its name fences
        the first, or is refused."""
        report, settings = self.report, WAYS[way]
        topic, group = self.topic("static"), lib.topic_name("static", way)
        produce(self.bootstrap, topic, 600)

        def member(name):
            return Member(
                self.bootstrap, group, [topic], {**settings, "group.instance.id": name}
            )

        first, second = member("one"), member("two")
        wait_for_shares(report, f"static {way}: two share", [first, second], [3, 3])
        had, rebalances = set(first.assigned), second.rebalances
        first.end()
        first = member("one")
        wait_for_shares(report, f"static {way}: one is back", [first, second], [3, 3])
        report.equal(f"static {way}: it has what it had", first.assigned, had)
        report.equal(f"static {way}: the other noticed nothing", second.rebalances, rebalances)
        twin = member("one")
        fenced = {
            KafkaError.FENCED_INSTANCE_ID,
            KafkaError.UNRELEASED_INSTANCE_ID,
            KafkaError._FATAL,
        }
        both = (first, twin)
        lib.wait_until(
            lambda: any(set(it.errors) & fenced for it in both), "one of two to be fenced", 60
        )
        report.check(f"static {way}: one of two is fenced", True)
        for one in (first, second, twin):
            one.end()
        report.step(f"static {way}")

    def kafka_python(self, count):
        """The same sharing with another client."""
        from kafka import KafkaConsumer

        report = self.report
        topic, group = self.topic("python"), lib.topic_name("group", "python")
        produce(self.bootstrap, topic, count)
        consumers = [
            KafkaConsumer(
                topic,
                bootstrap_servers=self.bootstrap,
                group_id=group,
                auto_offset_reset="earliest",
                session_timeout_ms=SESSION_MS,
                heartbeat_interval_ms=500,
            )
            for _ in range(3)
        ]
        numbers, ended = Counter(), threading.Event()

        def run(consumer):
            while not ended.is_set():
                for records in consumer.poll(200).values():
                    numbers.update(int(it.value) for it in records)
            consumer.close()

        threads = [threading.Thread(target=run, args=(it,)) for it in consumers]
        for thread in threads:
            thread.start()

        def shares():
            return sorted(len(it.assignment()) for it in consumers)

        try:
            lib.wait_until(lambda: shares() == [2, 2, 2] and len(numbers) == count, "shares", 60)
        except TimeoutError:
            pass
        report.equal("kafka-python: three share", shares(), [2, 2, 2])
        report.equal("kafka-python: all is read", len(numbers), count)
        report.moved += len(numbers)
        ended.set()
        for thread in threads:
            thread.join()
        each = count // PARTITIONS
        report.equal("kafka-python: committed", self.ends(group, topic), [each] * PARTITIONS)
        report.step("kafka-python")

    def kind(self, group):
        listed = self.admin.list_consumer_groups().result(30).valid
        return next((it.type.name for it in listed if it.group_id == group), None)

    def change(self, count):
        """Clients are changed over to the other protocol one by one, and back."""
        report, topic, group = self.report, self.topic("change"), lib.topic_name("group", "change")
        produce(self.bootstrap, topic, count)

        def member(way):
            return Member(self.bootstrap, group, [topic], WAYS[way])

        old = [member("range"), member("range")]
        wait_for_shares(report, "change: two with the classic protocol", old, [3, 3])
        report.equal("change: the group's type at first", self.kind(group), "CLASSIC")
        new = [member("uniform")]
        wait_for_shares(report, "change: one of three is changed", old + new, [2, 2, 2])
        report.equal("change: the group's type then", self.kind(group), "CONSUMER")
        for one in old:
            one.end()
        wait_for_shares(report, "change: all are changed", new, [6])
        wait_for(report, "change: all is read", old + new, count)
        back = [member("range")]
        wait_for_shares(report, "change: one is changed back", new + back, [3, 3])
        for one in new:
            one.end()
        wait_for_shares(report, "change: all are changed back", back, [6])
        report.equal("change: the group's type at last", self.kind(group), "CLASSIC")
        produce(self.bootstrap, topic, count, count)
        wait_for(report, "change: it goes on", back + new + old, 2 * count)
        for one in back:
            one.end()
        each = 2 * count // PARTITIONS
        report.equal("change: committed", self.ends(group, topic), [each] * PARTITIONS)
        report.step("change")

    def regex(self, way):
        """Topics that match, those that come later, too."""
        report, group = self.report, lib.topic_name("group", "regex")
        prefix = lib.topic_name("groups", "regex")

        def make(number):
            name = f"{prefix}-{number}"
            self.admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(30)

        make(1)
        members = [Member(self.bootstrap, group, [f"^{prefix}-.*"], WAYS[way]) for _ in range(2)]
        wait_for_shares(report, f"regex {way}: one topic", members, [3, 3])
        make(2)
        wait_for_shares(report, f"regex {way}: a topic that came later", members, [6, 6])
        for one in members:
            one.end()
        report.step(f"regex {way}")

    def grown(self, way):
        """Partitions are added under a running group, and the topic is made anew."""
        report = self.report
        topic, group = self.topic("grown"), lib.topic_name("group", "grown")
        member = Member(self.bootstrap, group, [topic], WAYS[way])
        wait_for_shares(report, f"{way}: all of a new topic", [member], [PARTITIONS])
        self.tools.must("topics", "--alter", "--topic", topic, "--partitions", "9")
        wait_for_shares(report, f"{way}: partitions that are added", [member], [9])
        member.end()
        report.step(f"{way}: partitions added")

    def formatters(self, count):
        """Kafka's own consumer in a group, and its formatters of what stands in the topic."""
        report = self.report
        topic, group = self.topic("java"), lib.topic_name("group", "java")
        produce(self.bootstrap, topic, count)
        out = self.tools.must(
            "console-consumer",
            "--topic",
            topic,
            "--group",
            group,
            "--from-beginning",
            "--max-messages",
            str(count),
            "--timeout-ms",
            "30000",
        )
        report.equal("java: read", len(out.splitlines()), count)
        report.moved += count
        report.equal(
            "java: committed", self.ends(group, topic), [count // PARTITIONS] * PARTITIONS
        )
        reader = [
            "console-consumer",
            "--topic",
            "__consumer_offsets",
            "--from-beginning",
            "--timeout-ms",
            "5000",
            "--formatter",
        ]
        package = "org.apache.kafka.tools.consumer."
        _, out, err = self.tools.run(*reader, package + "OffsetsMessageFormatter")
        # Records have no line of their own.
        rows = out.count(f'"group":"{group}"')
        report.check("java: formatter of offsets", rows >= PARTITIONS, out[-500:] + err[-500:])
        _, out, err = self.tools.run(*reader, package + "GroupMetadataMessageFormatter")
        rows = out.count(f'"group":"{group}"')
        report.check("java: formatter of groups", rows >= 1, out[-500:] + err[-500:])
        report.step("java")


def wait_for(report, what, members, count):
    """That many different numbers; nobody may have lost its place meanwhile."""

    def numbers():
        return {int(value) for one in members for _, _, value in one.read}

    try:
        lib.wait_until(lambda: len(numbers()) >= count, what, lib.DEADLINE_S)
    except TimeoutError:
        pass
    report.moved += len(numbers())
    report.equal(what, len(numbers()), count)


def body():
    def extra(parser):
        parser.add_argument("--midway", help="a command that kills and restarts the server")
        parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
        parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)

    arguments = lib.options(__doc__, extra)
    report = lib.Report("groups")
    checks = Checks(report, arguments)
    each = max(600, arguments.records // len(arguments.ways) // 3 // PARTITIONS * PARTITIONS)
    for way in arguments.ways:
        if "sharing" in arguments.parts:
            checks.sharing(way, each)
        if "static" in arguments.parts:
            checks.static(way)
        if "regex" in arguments.parts:
            checks.regex(way)
        if "grown" in arguments.parts:
            checks.grown(way)
    if "change" in arguments.parts:
        checks.change(each)
    if "python" in arguments.parts:
        checks.kafka_python(each)
    if "java" in arguments.parts:
        checks.formatters(600)
    return report.finish()


if __name__ == "__main__":
    lib.main(body)
