#!/usr/bin/env python3
"""Debian's kcat: records piped in with every codec and in a transaction, read back by assignment
and as a group of three from which one member goes away, and from a time on."""

import json
import re
import signal
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import checks
import lib

PARTITIONS = 6
SHARED = 9000
FAST = ("-X", "session.timeout.ms=10000", "-X", "auto.commit.interval.ms=200")


class Kcat:
    def __init__(self, bootstrap):
        self.bootstrap = bootstrap

    def command(self, *words):
        return ["kcat", "-b", self.bootstrap, *words]

    def run(self, *words, stdin=b""):
        done = lib.run(self.command(*words), stdin=stdin)
        if done.returncode:
            raise RuntimeError(f"kcat {words}: {done.stderr.decode()[-500:]}")
        return done.stdout.decode()

    def topic(self, label):
        """kcat has no way to create a topic: Kafka's own tool does."""
        name = lib.topic_name(label)
        tool = [lib.KAFKA, "topics", "--bootstrap-server", self.bootstrap, "--create"]
        done = lib.run([*tool, "--topic", name, "--partitions", str(PARTITIONS)])
        if done.returncode:
            raise RuntimeError(done.stdout.decode() + done.stderr.decode())
        return name

    def produce(self, topic, values, *more):
        """Each partition in a run of its own; keys and headers with them."""
        for partition in range(PARTITIONS):
            own = (it for it in values if it % PARTITIONS == partition)
            lines = "".join(f"key-{it % 100}|{it}\n" for it in own)
            # Idempotent: else a retry just after the topic's creation may change the order.
            where = ("-P", "-t", topic, "-p", str(partition), "-X", "enable.idempotence=true")
            how = ("-K", "|", "-H", "source=kcat")
            self.run(*where, *how, *more, stdin=lines.encode())

    def read(self, topic, *more):
        words = ("-C", "-t", topic, "-J", "-e", "-q", *more)
        return [json.loads(line) for line in self.run(*words).splitlines()]


class Member:
    """kcat -G in a process of its own: lines of JSON, and what it says about rebalances."""

    def __init__(self, kcat, group, topic):
        words = ("-G", group, "-J", "-u", *FAST, "-X", "auto.offset.reset=earliest", topic)
        self.process = subprocess.Popen(
            kcat.command(*words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.seen, self.said, self.has = [], [], []
        for target in (self.read, self.listen):
            threading.Thread(target=target, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            self.seen.append(json.loads(line))

    def listen(self):
        for line in self.process.stderr:
            self.said.append(line)
            if "rebalanced" in line:
                is_assigned = "assigned:" in line
                found = re.findall(r"\[(\d+)\]", line) if is_assigned else []
                self.has = sorted(map(int, found))

    def close(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)


def values_of(found):
    by_partition = {}
    for it in found:
        by_partition.setdefault(it["partition"], []).append(int(it["payload"]))
    return by_partition


def wanted_of(values):
    return {p: [it for it in values if it % PARTITIONS == p] for p in range(PARTITIONS)}


def check_codecs(report, kcat, count):
    many = -(-count // len(lib.CODECS))
    for codec in lib.CODECS:
        topic = kcat.topic(codec)
        kcat.produce(topic, range(many), "-z", codec)
        found = kcat.read(topic)
        report.say("moved", len(found))
        what = f"produce and read, {codec}"
        report.check(what, values_of(found) == wanted_of(range(many)), f"{len(found)} of {many}")
    whole = all(it["key"] == f"key-{int(it['payload']) % 100}" for it in found)
    report.check("keys come back", whole)
    report.check("headers come back", all(it["headers"] == ["source", "kcat"] for it in found))


def check_sharing(report, kcat):
    topic, group = kcat.topic("shared"), lib.topic_name("group")
    members = [Member(kcat, group, topic)]

    def expect(what, sizes):
        def holds():
            whole = sorted(sum((it.has for it in members), [])) == list(range(PARTITIONS))
            return whole and sorted(len(it.has) for it in members) == sizes

        try:
            lib.wait_until(holds, what, 60)
            report.check(what, True)
        except TimeoutError:
            report.check(what, False, [(it.has, it.said[-3:]) for it in members])

    try:
        expect("one member has every partition", [6])
        kcat.produce(topic, range(3000))
        members += [Member(kcat, group, topic) for _ in range(2)]
        expect("three members share the partitions", [2, 2, 2])
        kcat.produce(topic, range(3000, 6000))
        gone = members.pop(0)
        reads = lambda: any(int(it["payload"]) >= 3000 for it in gone.seen)  # noqa: E731
        lib.wait_until(reads, "a member that reads")
        report.equal("a member ends in order", gone.close(), 0)
        expect("a member leaves, the others take over", [3, 3])
        kcat.produce(topic, range(6000, SHARED))
        seen = lambda: {int(r["payload"]) for it in [gone, *members] for r in it.seen}  # noqa: E731
        try:
            lib.wait_until(lambda: len(seen()) == SHARED, "records", 60)
        except TimeoutError:
            pass
        report.equal("nothing is lost over rebalances", len(seen()), SHARED)
        for member in members:
            member.close()
    finally:
        for member in members:
            member.process.kill()
    again = Member(kcat, group, topic)
    lib.wait_until(lambda: len(again.has) == PARTITIONS, "an assignment")
    # Behind what would be read once more, if it were.
    last = range(SHARED, SHARED + PARTITIONS)
    kcat.produce(topic, last)
    found = lambda: {int(it["payload"]) for it in again.seen}  # noqa: E731
    try:
        lib.wait_until(lambda: set(last) <= found(), "what was written last")
    except TimeoutError:
        pass
    again.close()
    report.equal("a new member begins at what was committed", sorted(found()), list(last))


def check_times(report, kcat):
    topic = kcat.topic("times")
    kcat.produce(topic, range(600))
    at = max(it["ts"] for it in kcat.read(topic)) + 1
    lib.wait_until(lambda: at < time.time() * 1000, "the next millisecond", pause=0.001)
    kcat.produce(topic, range(600, 1200))
    answer = kcat.run("-q", "-Q", "-t", f"{topic}:2:{at}")
    report.equal("the offset at a time", int(answer.split()[-1]), 100)
    found = kcat.read(topic, "-o", f"s@{at}")
    report.equal("read from that time on", values_of(found), wanted_of(range(600, 1200)))
    found = kcat.read(topic, "-o", f"e@{at}")
    report.equal("read up to that time", values_of(found), wanted_of(range(600)))


def check_transactions(report, kcat):
    topic = kcat.topic("committed")
    lines = "".join(f"{number}\n" for number in range(3000)).encode()
    name = ("-X", f"transactional.id={lib.topic_name('kcat')}")
    kcat.run("-P", "-t", topic, "-p", "0", *name, stdin=lines)
    with tempfile.TemporaryDirectory() as work:
        # It commits at the end of its input; killed before, its transaction stays open.
        path = Path(work) / "pipe"
        script = f"(seq 3000 3999; sleep 100) | exec {' '.join(kcat.command('-P', '-t', topic))}"
        path.write_text(f"{script} -p 0 {' '.join(name)} -X linger.ms=1\n")
        shell = subprocess.Popen(["/bin/sh", str(path)], start_new_session=True)
        uncommitted = ("-X", "isolation.level=read_uncommitted", "-p", "0")
        try:
            lib.wait_until(lambda: len(kcat.read(topic, *uncommitted)) > 3000, "records", 30)
            opened = True
        except TimeoutError:
            opened = False
        finally:
            lib.os.killpg(shell.pid, signal.SIGKILL)
            shell.wait()
        report.check("an open transaction is seen by who asks for it", opened)
    # The next producer of that name aborts what was left.
    kcat.run("-P", "-t", topic, "-p", "0", *name, stdin=b"4000\n")
    found = kcat.read(topic, "-X", "isolation.level=read_committed", "-p", "0")
    got = [int(it["payload"]) for it in found]
    what = "committed transactions are read, aborted ones not"
    report.equal(what, (len(got), got == [*range(3000), 4000]), (3001, True))


def main():
    bootstrap, count = checks.arguments()
    report, kcat = checks.Checks(), Kcat(bootstrap)
    version = re.search(r"Version (\S+) \(.*(librdkafka [\d.]+)", kcat.run("-V"))
    report.say("version", ", ".join(version.groups()))
    report.attempt("codecs", lambda: check_codecs(report, kcat, count))
    report.attempt("sharing", lambda: check_sharing(report, kcat))
    report.attempt("times", lambda: check_times(report, kcat))
    report.attempt("transactions", lambda: check_transactions(report, kcat))
    return report.finish()


if __name__ == "__main__":
    lib.main(main)
