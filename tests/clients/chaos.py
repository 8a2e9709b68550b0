#!/usr/bin/env python3
"""Producers, transactional copiers and readers in groups, while everything is killed.

  chaos.py --binary PATH [--minutes M] [--seed N] [--shards N]     against uringlog
  chaos.py --stock [--minutes M]                                   against stock Kafka

Two idempotent producers write numbered records for a hundred keys each into `in`. Three copiers in one
group read `in`, write each record to `out` and commit their offsets in the same transaction
(consume-transform-produce). A group of three readers counts what arrives in `out`. Meanwhile the
server is killed (-9) and started again, and now and then a copier or a reader is.

At the end everything is read back. In `in`, each key has its numbers from 0 without a gap and
without one twice, and nothing that was acknowledged is missing. In `out`, as read_committed
readers see it, stands exactly the same, in the same order for each key.
"""

import argparse
import json
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import lib
import server

PARTITIONS = 6
PRODUCERS, COPIERS, READERS = 2, 3, 3
KEYS = 100
# Records in one transaction, at most, and records a second of one producer.
BATCH = 200
RATE = 400
# Seconds between two kills of the server, and the share of kills that hit a client instead.
LIFE_S = (4, 20)
CLIENT_SHARE = 0.4
DRAIN_S = 180
# A copier that has done nothing for so long is killed, too: librdkafka's send_offsets_to_transaction
# sometimes never returns when its brokers went away, with no request under way and against any
# server (handlers of its answers leave without a result). How often is told.
STUCK_S = 45
QUIET = {"log_level": 0, "reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 500}


def producer_main(bootstrap, number, ends_at, path):
    """Writes until the time is over, then waits for all acknowledgements; leaves counts by key."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5,
         "message.timeout.ms": 600_000, **QUIET}
    )
    sent, acked, failures = dict.fromkeys(range(KEYS), 0), 0, []

    def delivered(error, _):
        nonlocal acked
        if error is None:
            acked += 1
        else:
            failures.append(str(error))

    while time.time() < ends_at and not failures:
        key = random.randrange(KEYS)
        producer.produce("in", f"{sent[key]}", f"{number}-{key}", on_delivery=delivered)
        sent[key] += 1
        producer.poll(0)
        time.sleep(1 / RATE)
    left = producer.flush(DRAIN_S)
    result = {"sent": {f"{number}-{key}": count for key, count in sent.items()}, "acked": acked,
              "left": left, "failures": failures[:5]}
    Path(path).write_text(json.dumps(result))


def consumer(bootstrap, group, instance=None, **more):
    settings = {
        "bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest",
        "enable.auto.commit": False, "isolation.level": "read_committed",
        "session.timeout.ms": 6000, **QUIET, **more,
    }
    if instance:
        settings["group.instance.id"] = instance
    return Consumer(settings)


# What a copier did last, for when it stands still.
LAST = []


def trace(text):
    """Keeps the last steps of a copier where the checker finds them."""
    LAST.append(f"{time.time():.3f} {text}")
    del LAST[:-TRACE_LINES]
    with open(TRACE_PATH[0], "w") as out:
        out.write("\n".join(LAST) + "\n")


TRACE_LINES = 30
TRACE_PATH = ["/dev/null"]


def copier_main(bootstrap, number, path):
    """Copies for ever; ends by a signal. A transaction that fails is aborted and done again."""
    TRACE_PATH[0] = path
    while True:
        try:
            copy(bootstrap, number)
        except KafkaException as error:
            trace(f"a new producer: {error}")
            time.sleep(0.2)


def copy(bootstrap, number):
    reader = consumer(bootstrap, "copiers")
    reader.subscribe(["in"])
    writer = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": f"copier-{number}",
         "transaction.timeout.ms": 10_000, **QUIET}
    )
    try:
        trace("init")
        writer.init_transactions(30)
        while True:
            messages = [it for it in reader.consume(BATCH, 0.5) if it.error() is None]
            if messages and not copied(reader, writer, messages):
                rewind(reader)
    finally:
        reader.close()


def copied(reader, writer, messages):
    """Whether the transaction with these was committed; raises what only a new producer mends."""
    places = sorted({it.partition() for it in messages})
    trace(f"begin: {len(messages)} records of {places}")
    writer.begin_transaction()
    try:
        for message in messages:
            writer.produce("out", message.value(), message.key())
        positions = reader.position(reader.assignment())
        writer.send_offsets_to_transaction(positions, reader.consumer_group_metadata(), 10)
    except KafkaException as error:
        trace(f"offsets: {error}")
        if not error.args[0].txn_requires_abort():
            raise
        writer.abort_transaction(30)
        return False
    while True:
        try:
            trace("commit")
            writer.commit_transaction(10)
            trace("committed")
            return True
        except KafkaException as error:
            trace(f"commit: {error}")
            if error.args[0].retriable():
                continue
            if not error.args[0].txn_requires_abort():
                raise
            writer.abort_transaction(30)
            return False


def rewind(reader):
    """Back to what is committed, since the messages in hand were not copied."""
    for place in reader.committed(reader.assignment(), 30):
        at = place.offset if place.offset >= 0 else 0
        reader.seek(TopicPartition(place.topic, place.partition, at))


def reader_main(bootstrap, number, protocol):
    """Reads `out` in a group and commits; only there to make rebalances."""
    while True:
        reader = consumer(bootstrap, "readers", **{"group.protocol": protocol}
                          if protocol == "classic" else {})
        reader.subscribe(["out"])
        try:
            while True:
                messages = reader.consume(500, 0.5)
                if any(it.error() is None for it in messages):
                    reader.commit(asynchronous=True)
        except KafkaException:
            time.sleep(0.2)
        finally:
            reader.close()


def read_all(bootstrap, topic):
    """Key to its values in order of offset, as committed readers see them; keys stay in one
    partition."""
    reader = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "checker", "enable.auto.commit": False,
         "isolation.level": "read_committed", "enable.partition.eof": True,
         "auto.offset.reset": "earliest", **QUIET}
    )
    reader.assign([TopicPartition(topic, it, 0) for it in range(PARTITIONS)])
    found, ends = {}, set()
    deadline = time.time() + DRAIN_S
    while len(ends) < PARTITIONS and time.time() < deadline:
        for message in reader.consume(5000, 1):
            if message.error() is None:
                found.setdefault(message.key().decode(), []).append(int(message.value()))
            elif message.error().code() == KafkaError._PARTITION_EOF:
                ends.add(message.partition())
    reader.close()
    if len(ends) < PARTITIONS:
        raise RuntimeError(f"{topic} could not be read to its end within {DRAIN_S} s")
    return found


class Chaos:
    def __init__(self, broker, arguments, work):
        self.broker, self.work = broker, work
        self.minutes, self.random = arguments.minutes, random.Random(arguments.seed)
        self.bootstrap = broker.bootstrap
        self.clients, self.kills = {}, {"server": 0, "client": 0, "stuck client": 0}

    def spawn(self, name, main, *arguments):
        process = multiprocessing.Process(target=main, args=(self.bootstrap, *arguments))
        process.start()
        self.clients[name] = (process, main, arguments)

    def start(self):
        admin = AdminClient({"bootstrap.servers": self.bootstrap, **QUIET})
        topics = [NewTopic(it, PARTITIONS, 1) for it in ("in", "out")]
        for made in admin.create_topics(topics).values():
            made.result(30)
        self.ends_at = time.time() + 60 * self.minutes
        for number in range(PRODUCERS):
            path = str(self.work / f"producer-{number}.json")
            self.spawn(f"producer-{number}", producer_main, number, self.ends_at, path)
        for number in range(COPIERS):
            path = str(self.work / f"copier-{number}.txt")
            self.spawn(f"copier-{number}", copier_main, number, path)
        for number in range(READERS):
            self.spawn(f"reader-{number}", reader_main, number, "classic")

    def restart(self, name):
        """kill -9 of a client, and another one in its place."""
        process, main, arguments = self.clients[name]
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        self.spawn(name, main, *arguments)

    def restart_stuck(self):
        for number in range(COPIERS):
            path = self.work / f"copier-{number}.txt"
            if not path.exists() or time.time() - path.stat().st_mtime < STUCK_S:
                continue
            if " begin" not in path.read_text().splitlines()[-1]:
                continue
            self.restart(f"copier-{number}")
            path.touch()
            self.kills["stuck client"] += 1

    def kill_until_the_end(self):
        while time.time() < self.ends_at:
            self.restart_stuck()
            time.sleep(min(self.random.uniform(*LIFE_S), max(self.ends_at - time.time(), 0)))
            if self.random.random() < CLIENT_SHARE:
                names = [it for it in self.clients if not it.startswith("producer")]
                self.restart(self.random.choice(names))
                self.kills["client"] += 1
            else:
                self.broker.kill()
                time.sleep(self.random.uniform(0, 1))
                self.broker.start()
                self.kills["server"] += 1

    def drain(self):
        """Waits for the producers, and until the copiers have committed all of `in`."""
        for name, (process, _, _) in self.clients.items():
            if name.startswith("producer"):
                process.join(DRAIN_S + 30)
        watcher = consumer(self.bootstrap, "copiers")
        places = [TopicPartition("in", it) for it in range(PARTITIONS)]
        deadline, lag = time.time() + DRAIN_S, None
        while time.time() < deadline and lag != 0:
            time.sleep(1)
            self.restart_stuck()
            try:
                done = watcher.committed(places, 10)
                lag = sum(watcher.get_watermark_offsets(it, 10)[1] - max(it.offset, 0) for it in done)
            except KafkaException:
                continue
        watcher.close()
        if lag != 0:
            self.explain()
        for name, (process, _, _) in self.clients.items():
            process.kill()
            process.join()
        return lag

    def explain(self):
        """What stands still: the group, the transactions, the last steps of each copier."""
        for command in (["groups", "--describe", "--group", "copiers"], ["transactions", "list"]):
            tool, *rest = command
            told = lib.run([lib.KAFKA, tool, "--bootstrap-server", self.bootstrap, *rest])
            print(told.stdout.decode(), told.stderr.decode())
        for number in range(COPIERS):
            print((self.work / f"copier-{number}.txt").read_text())
            one = ["transactions", "--bootstrap-server", self.bootstrap, "describe"]
            told = lib.run([lib.KAFKA, *one, "--transactional-id", f"copier-{number}"])
            print(told.stdout.decode(), told.stderr.decode())

    def check(self, report):
        results = [json.loads((self.work / f"producer-{it}.json").read_text())
                   for it in range(PRODUCERS)]
        sent = {}
        for result in results:
            sent.update(result["sent"])
            report.equal("all records acknowledged", (result["left"], result["failures"]), (0, []))
        read, copied = read_all(self.bootstrap, "in"), read_all(self.bootstrap, "out")
        wrong = [it for it in sent if read.get(it, []) != list(range(sent[it]))]
        report.equal("keys of `in` with a loss, a duplicate or another order", wrong[:5], [])
        wrong = [it for it in sent if copied.get(it, []) != list(range(sent[it]))]
        for key in wrong[:3]:
            got = copied.get(key, [])
            twice = sorted({it for it in got if got.count(it) > 1})[:5]
            gone = sorted(set(range(sent[key])) - set(got))[:5]
            print(f"  key {key}: {len(got)} of {sent[key]}, twice {twice}, missing {gone}")
        report.equal("keys of `out` with a loss, a duplicate or another order", wrong[:5], [])
        report.moved = sum(map(len, read.values())) + sum(map(len, copied.values()))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary")
    parser.add_argument("--stock", action="store_true")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--shards", type=int, default=1)
    arguments = parser.parse_args()
    report = lib.Report("chaos")
    with tempfile.TemporaryDirectory() as work:
        work = Path(work)
        settings = ("offsets.topic.num.partitions=4", "transaction.state.log.num.partitions=4")
        if arguments.stock:
            broker = server.StockKafka(work / "kafka", 1)
        else:
            broker = server.Uringlog(work / "uringlog", arguments.binary, "auto", "device",
                                     arguments.shards, settings)
        broker.start()
        chaos = Chaos(broker, arguments, work)
        try:
            chaos.start()
            chaos.kill_until_the_end()
            report.equal("records that the copiers have not copied", chaos.drain(), 0)
            report.step(f"killed: {chaos.kills}")
            chaos.check(report)
        finally:
            for process, _, _ in chaos.clients.values():
                process.kill()
            if report.failed:
                print((work / "uringlog" / "server.log").read_text()[-4000:]
                      if not arguments.stock else "")
            broker.kill()
    return report.finish()


if __name__ == "__main__":
    multiprocessing.set_start_method("spawn")
    sys.exit(main())
