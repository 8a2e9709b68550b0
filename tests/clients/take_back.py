#!/usr/bin/env python3
"""A data directory goes from uringlog to Kafka 4.3.1 and back, several times, as it is.

What Kafka is given is a server.properties and the directory: nothing is formatted, imported or
copied. The node has the directory's node.id, is broker and controller, and its quorum is static
(controller.quorum.voters), since the metadata log names no voters.

    uringlog writes, stops    ->  Kafka repairs nothing, serves all of it, appends, stops
    uringlog serves, appends  ->  is killed
    Kafka recovers, serves    ->  is killed
    uringlog serves, appends  ->  stops; kafka-dump-log reads every file

Topics: several kinds of configuration and of producers, one deleted; all topics of the archives
in tests/golden/kafka whose batches come from producers alone, sent batch by batch; and every
history of tests/golden as the log has repeated it (kept.py): transactions, deleted records,
expired segments, restarts, recovery from damage.
"""

import argparse
import hashlib
import json
import re
import shutil
import subprocess
import tempfile
from collections import Counter, namedtuple
from pathlib import Path

import archives
import dump
import kept
import lib
import server
import suite
from confluent import Confluent

SEGMENT = {"segment.bytes": str(1 << 20)}
Kind = namedtuple("Kind", "name partitions config acks codec idempotent")
KINDS = (
    Kind("plain", 3, {}, "all", "none", False),
    Kind("rolled", 2, SEGMENT, "all", "none", True),
    Kind("gzip", 1, {"index.interval.bytes": "0"}, "all", "gzip", True),
    Kind("snappy", 1, SEGMENT, "1", "snappy", False),
    Kind("lz4", 2, {**SEGMENT, "segment.index.bytes": "240"}, "all", "lz4", True),
    Kind("zstd", 2, {"segment.ms": "600000"}, "all", "zstd", True),
    Kind("recoded", 1, {"compression.type": "zstd"}, "all", "none", True),
    Kind("stamped", 2, {"message.timestamp.type": "LogAppendTime"}, "all", "lz4", True),
    Kind("limited", 1, {**SEGMENT, "retention.bytes": str(3 << 20)}, "all", "none", True),
    Kind("compacted", 1, {"cleanup.policy": "compact"}, "all", "none", True),
    Kind("never-used", 2, {}, None, None, None),
)
# Nothing is appended to these behind the first stop: Kafka must leave every file of them as it is.
UNTOUCHED = ("snappy", "recoded", "never-used")
PER_TOPIC = 4000
REPAIRS = re.compile(
    r"Recovering unflushed|[Rr]ebuil[dt](?!ing producer state from offset)|[Tt]runcat|[Cc]orrupt|"
    r"[Ss]anity|[Ff]ound invalid|Could not find|\bstray\b|offline|unclean"
)
# The last two: a busy machine, and a start of Kafka's that asks its controller before it is active.
HARMLESS = re.compile(
    r"^\t|__cluster_metadata-0|No stray|Performing controller activation|"
    r"Exceptionally slow controller event|Unexpected error handling .*CONTROLLER_REGISTRATION"
)
SEPARATOR, END = "\x01|", "\x02\n"
# Between the times of the histories' records.
MIDDLE_MS = 1_700_000_000_500


class Kafka:
    """Kafka on a directory that exists."""

    def __init__(self, work, data):
        self.work, self.data = work, data
        self.port = lib.free_port(2)
        self.bootstrap = f"127.0.0.1:{self.port}"

    def prepare(self):
        data = self.data
        node = re.search(r"^node\.id=(\d+)", (data / "meta.properties").read_text(), re.M)[1]
        controller = self.port + 1
        lines = [
            "process.roles=broker,controller",
            f"node.id={node}",
            f"listeners=PLAINTEXT://{self.bootstrap},CONTROLLER://127.0.0.1:{controller}",
            f"controller.quorum.voters={node}@127.0.0.1:{controller}",
            "controller.listener.names=CONTROLLER",
            f"log.dirs={data}",
            "offsets.topic.num.partitions=2",
            "offsets.topic.replication.factor=1",
            "group.initial.rebalance.delay.ms=0",
            # A debug build on a busy machine: no broker is to be fenced for that.
            "broker.session.timeout.ms=60000",
        ]
        self.work.mkdir(parents=True)
        (self.work / "server.properties").write_text("\n".join(lines) + "\n")

    def start(self):
        if not self.work.exists():
            self.prepare()
        with open(self.work / "start.log", "ab") as log:
            status = subprocess.run(
                [lib.KAFKA, "start", str(self.work), str(self.port)],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                check=False,
            ).returncode
        if status:
            raise RuntimeError((self.work / "start.log").read_text()[-3000:])

    def end(self, how):
        subprocess.run([lib.KAFKA, how, str(self.work)], check=True, stdin=subprocess.DEVNULL)

    def is_up(self):
        return (self.work / "pid").exists()

    def lines(self):
        """The log since the last start."""
        text = (self.work / "server.log").read_text(errors="replace")
        return [line for line in text.splitlines() if not HARMLESS.search(line)]


# What is written.


def write_kinds(report, client):
    partitions = {}
    for kind in KINDS:
        suite.ready_topic(client, kind.name, kind.partitions, kind.config)
        partitions[kind.name] = kind.partitions
        if kind.acks:
            client.produce(kind.name, records_for(kind, 1), kind.acks, kind.codec, kind.idempotent)
    suite.ready_topic(client, "gone", 3)
    client.produce("gone", lib.make_records(300, 3), "all", "none", True)
    client.delete("gone")
    report.step(f"{len(KINDS)} topics written, one more deleted")
    return partitions


def records_for(kind, seed):
    records = lib.make_records(PER_TOPIC, kind.partitions, seed)
    if kind.name == "compacted":
        return [it._replace(key=it.key or b"no key") for it in records]
    return records


def write_archives(report, client):
    """Sends the batches of the archives to whoever leads partition 0 of their topics."""
    partitions, senders, count = {}, {}, 0
    for topic in archives.topics():
        name = f"golden-{topic.name}"
        suite.ready_topic(client, name, 1, topic.config)
        partitions[name] = 1
        leader = client.describe(name)[0]
        if leader not in senders:
            senders[leader] = archives.Sender(*client.brokers()[leader])
        codes = Counter(senders[leader].send(name, batch) for batch in topic.batches)
        report.equal(f"{name}: batches taken", codes, Counter({0: len(topic.batches)}))
        count += len(topic.batches)
    for sender in senders.values():
        sender.close()
    report.step(f"{count} batches of the archives sent to {len(partitions)} topics")
    return partitions


def append_more(client, seed):
    for kind in KINDS:
        if kind.acks and kind.name not in UNTOUCHED:
            records = records_for(kind, seed)[:200]
            client.produce(kind.name, records, "all", kind.codec, kind.idempotent)


# What is read.


def read_all(client, partitions):
    """{topic: [(Record, offset)]} of all that is there."""
    return {topic: read(client, topic, count) for topic, count in partitions.items()}


def read_kept(client, histories, isolation="read_uncommitted"):
    """The same of the histories, where markers of transactions take offsets, too."""
    return client.read_to_end([it.topic for it in histories], isolation)


def read(client, topic, partitions):
    def bounds():
        try:
            return {it: client.bounds(topic, it) for it in range(partitions)}
        except lib.Refused:
            return None

    found = lib.wait_until(bounds, f"every partition of {topic} to answer")
    # Where a topic's newest batch was rolled away, its offsets go on: what is read counts.
    starts = {it: low for it, (low, high) in found.items() if low < high}
    counts = {it: found[it][1] - found[it][0] for it in starts}
    received = client.read(topic, starts, counts) if starts else []
    return sorted(received, key=lambda pair: (pair[0].partition, pair[1]))


def check_same(report, when, before, after):
    for topic, records in before.items():
        report.moved += len(after[topic])
        kept = after[topic][: len(records)] if len(after[topic]) > len(records) else after[topic]
        by_offset = {(record.partition, offset): record for record, offset in after[topic]}
        lost = [it for it in records if by_offset.get((it[0].partition, it[1])) != it[0]]
        first = lib.shorten(lost[:1])
        report.check(f"{when}: {topic} has every record", not lost, f"{len(lost)} lost: {first}")
        report.check(f"{when}: {topic} is read", kept or not records, len(after[topic]))


def check_console(report, bootstrap, expected, histories):
    """One run of the console consumer over all topics; it doesn't print the topic."""
    stamped = {topic for topic in expected if is_stamped(topic, histories)}
    wanted = Counter(
        printed(topic in stamped, *pair) for topic, records in expected.items() for pair in records
    )
    names = "|".join(re.escape(topic) for topic in expected)
    prints = ("partition", "offset", "timestamp", "headers", "key", "value")
    properties = [f"print.{name}=true" for name in prints]
    properties += [f"key.separator={SEPARATOR}", f"line.separator={END}", "null.literal=<null>"]
    command = [lib.KAFKA, "console-consumer", "--bootstrap-server", bootstrap]
    command += ["--include", names, "--from-beginning", "--timeout-ms", "30000"]
    command += ["--max-messages", str(sum(wanted.values()))]
    for it in properties:
        command += ["--formatter-property", it]
    answer = lib.run(command)
    lines = answer.stdout.split(END.encode())
    found = Counter(lines[:-1])
    missing, surplus = wanted - found, found - wanted
    detail = f"missing {list(missing)[:1]}, surplus {list(surplus)[:1]}, {answer.stderr[-300:]}"
    report.check(
        f"the console consumer prints all {sum(wanted.values())} records",
        not missing and not surplus,
        detail,
    )


def is_stamped(topic, histories):
    is_sent = topic == "stamped" or topic.startswith("golden-lat")
    return is_sent or kept.is_stamped(topic, histories)


def printed(is_stamped, record, offset):
    """As Kafka's DefaultMessageFormatter prints the record."""
    kind = "LogAppendTime" if is_stamped else "CreateTime"
    headers = b",".join(
        name.encode() + b":" + (b"<null>" if value is None else value)
        for name, value in record.headers
    )
    fields = (
        f"{kind}:{record.timestamp}".encode(),
        f"Partition:{record.partition}".encode(),
        f"Offset:{offset}".encode(),
        headers or b"NO_HEADERS",
        b"<null>" if record.key is None else record.key,
        b"<null>" if record.value is None else record.value,
    )
    return SEPARATOR.encode().join(fields)


# What Kafka's tools say.


def get_offsets(bootstrap):
    """What kafka-get-offsets prints of every partition: first, last, newest, and at a time."""
    lines = {}
    for when in ("-2", "-1", "-3", str(MIDDLE_MS)):
        command = [lib.KAFKA, "get-offsets", "--bootstrap-server", bootstrap, "--time", when]
        answer = lib.run(command)
        if answer.returncode:
            raise RuntimeError(answer.stderr.decode(errors="replace")[-1000:])
        lines[when] = set(answer.stdout.decode().splitlines())
    return lines


def check_get_offsets(report, before, after):
    """Both servers say the same of the same files."""
    for when, lines in before.items():
        ours = {line for line in lines if not line.startswith("__")}
        theirs = {line for line in after[when] if not line.startswith("__")}
        differ = sorted(ours ^ theirs)
        report.check(
            f"get-offsets --time {when}: {len(ours)} partitions as before", not differ, differ[:6]
        )


def check_log_dirs(report, bootstrap, data):
    """kafka-log-dirs: the size of a partition is that of its `.log` files."""
    answer = lib.run([lib.KAFKA, "log-dirs", "--bootstrap-server", bootstrap, "--describe"])
    line = next(it for it in answer.stdout.decode().splitlines() if it.startswith("{"))
    directories = [it for broker in json.loads(line)["brokers"] for it in broker["logDirs"]]
    sizes = {it["partition"]: it["size"] for found in directories for it in found["partitions"]}
    wrong, checked = [], 0
    for folder in dump.partitions(data):
        found = sum(path.stat().st_size for path in folder.glob("*.log"))
        checked += 1
        if sizes.get(folder.name) != found:
            wrong.append((folder.name, sizes.get(folder.name), found))
    report.check(f"log-dirs: sizes of {checked} partitions", not wrong, wrong[:4])


def check_dump(report, data):
    """kafka-dump-log has no complaint that it wouldn't have of Kafka's own files."""
    dump.check(report, data, is_text=False, known_in=kept.KNOWN)


# What Kafka did to the files.


def digests(data, topics=None):
    """{file: digest} of every partition's files, or of those topics'."""
    found = {}
    for folder in dump.partitions(data):
        if topics is None or folder.name.rsplit("-", 1)[0] in topics:
            for path in sorted(folder.iterdir()):
                found[f"{folder.name}/{path.name}"] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def check_sealed(report, before, after):
    """While Kafka runs the active indexes have their full length; everything else stays."""
    last = {name.split("/")[0]: name for name in sorted(before) if name.endswith(".log")}
    actives = {name.removesuffix(".log") for name in last.values()}
    checked, changed = 0, []
    for name, digest in before.items():
        stem, kind = name.rsplit(".", 1) if "." in name.split("/")[1] else (name, "")
        if kind in ("log", "txnindex") or (kind in ("index", "timeindex") and stem not in actives):
            checked += 1
            if after.get(name) != digest:
                changed.append(name)
    report.check(f"Kafka changed none of {checked} files of segments", not changed, changed[:5])


def check_untouched(report, before, after):
    """Behind Kafka's clean stop; a start adds a line to leader-epoch-checkpoint."""
    names = [name for name in before if not name.endswith("leader-epoch-checkpoint")]
    changed = [name for name in names if after.get(name) != before[name]]
    surplus = [name for name in after if name not in before]
    report.check(f"{len(names)} files of untouched topics are as before", not changed, changed[:5])
    report.check("untouched topics have no further file", not surplus, surplus[:5])


def check_log(report, when, kafka, repairs):
    lines = kafka.lines()
    found = [line for line in lines if REPAIRS.search(line)]
    if not repairs:
        report.check(f"{when}: Kafka finds nothing to repair", not found, found[:4])
    # A file that is longer than its batches is cut after a kill, which is what recovery is for.
    lost = [line for line in found if re.search(r"[Cc]orrupt|\bstray\b|offline|invalid", line)]
    report.check(f"{when}: nothing is damaged, nothing goes offline", not lost, lost[:4])
    loud = [line for line in lines if re.match(r"\[[^]]*\] (WARN|ERROR|FATAL) ", line)]
    report.check(f"{when}: no warning, no error in Kafka's log", not loud, loud[:4])
    folders = [path.name for path in Path(kafka.work.parent / "u/data").glob("*-stray")]
    report.check(f"{when}: no stray folder", not folders, folders)


def check_verify(report, when, uringlog):
    answer = lib.run([uringlog.command[0], "verify", str(uringlog.data)])
    text = (answer.stdout + answer.stderr).decode(errors="replace")
    report.check(f"{when}: uringlog verify finds nothing", answer.returncode == 0, text[-800:])


# The steps.


def write_all(report, uringlog, kafka):
    """What uringlog writes, over the network and, stopped, by the tests of its log."""
    uringlog.start()
    client = Confluent(uringlog.bootstrap)
    partitions = {**write_kinds(report, client), **write_archives(report, client)}
    histories = kept.repeat(kafka.work.parent / "kept")
    kept.make_topics(client, histories)
    uringlog.stop()
    kept.age(kafka, uringlog.data, histories)
    report.step("Kafka's restarts have raised the leader epochs")
    kept.install(uringlog, histories)
    report.step(f"{len(histories)} partitions of the histories put in place")
    uringlog.start()
    client = Confluent(uringlog.bootstrap)
    written = {**read_all(client, partitions), **read_kept(client, histories)}
    report.step(f"{sum(map(len, written.values()))} records read from uringlog")
    return partitions, histories, written


def first_stay(report, uringlog, kafka, is_committed_compared):
    partitions, histories, written = write_all(report, uringlog, kafka)
    committed = {}
    if is_committed_compared:
        committed = read_kept(Confluent(uringlog.bootstrap), histories, "read_committed")
    offsets = get_offsets(uringlog.bootstrap)
    status, _ = uringlog.stop()
    report.equal("uringlog stops in order", status, 0)
    check_verify(report, "before Kafka", uringlog)
    before = digests(uringlog.data)
    untouched = digests(uringlog.data, UNTOUCHED)
    kafka.start()
    report.step("Kafka has started")
    check_log(report, "after a clean stop", kafka, repairs=False)
    check_sealed(report, before, digests(uringlog.data))
    names = " ".join(path.name for path in uringlog.data.iterdir())
    report.check("the deleted topic stays deleted", not re.search(r"gone-\d(\s|$)", names), names)
    client = Confluent(kafka.bootstrap)
    found = {**read_all(client, partitions), **read_kept(client, histories)}
    check_same(report, "Kafka", written, found)
    if is_committed_compared:
        found = read_kept(client, histories, "read_committed")
        check_same(report, "Kafka, committed", committed, found)
    check_get_offsets(report, offsets, get_offsets(kafka.bootstrap))
    check_log_dirs(report, kafka.bootstrap, uringlog.data)
    check_console(report, kafka.bootstrap, written, histories)
    append_more(client, 2)
    append_to_kept(client, histories)
    after = read_all(client, partitions)
    check_grown(report, "Kafka", written, after)
    after_kept = read_kept(client, histories)
    check_same(report, "Kafka, behind appends", {it: written[it] for it in after_kept}, after_kept)
    for topic, records in after_kept.items():
        report.equal(f"Kafka takes a record for {topic}", len(records), len(written[topic]) + 1)
    kafka.end("stop")
    check_untouched(report, untouched, digests(uringlog.data, UNTOUCHED))
    check_verify(report, "after Kafka", uringlog)
    report.step("Kafka has stopped")
    return partitions, histories, {**after, **after_kept}


def append_to_kept(client, histories):
    for it in histories:
        records = lib.make_records(1, 1)
        client.produce(it.topic, records, "all", "none", False)


def check_grown(report, who, before, after):
    for kind in KINDS:
        grown = len(after[kind.name]) - len(before[kind.name])
        wanted = 200 if kind.acks and kind.name not in UNTOUCHED else 0
        if kind.name != "limited":
            report.equal(f"{who} takes more records for {kind.name}", grown, wanted)


def second_stay(report, uringlog, kafka, partitions, histories, known):
    uringlog.start()
    client = Confluent(uringlog.bootstrap)
    back = {**read_all(client, partitions), **read_kept(client, histories)}
    check_same(report, "uringlog, after Kafka's clean stop", known, back)
    append_more(client, 3)
    append_to_kept(client, histories)
    known = {**read_all(client, partitions), **read_kept(client, histories)}
    check_grown(report, "uringlog", back, known)
    uringlog.kill()
    report.step("uringlog went on and was killed")
    kafka.start()
    check_log(report, "after a kill", kafka, repairs=True)
    client = Confluent(kafka.bootstrap)
    found = {**read_all(client, partitions), **read_kept(client, histories)}
    check_same(report, "Kafka, after the kill", known, found)
    append_more(client, 4)
    known = {**read_all(client, partitions), **read_kept(client, histories)}
    kafka.end("kill")
    report.step("Kafka went on and was killed")
    return known


def third_stay(report, uringlog, partitions, histories, known):
    uringlog.start()
    client = Confluent(uringlog.bootstrap)
    back = {**read_all(client, partitions), **read_kept(client, histories)}
    check_same(report, "uringlog, after Kafka was killed", known, back)
    append_more(client, 5)
    check_grown(report, "uringlog, at last", back, read_all(client, partitions))
    status, _ = uringlog.stop()
    report.equal("uringlog stops in order again", status, 0)
    check_verify(report, "at last", uringlog)
    check_dump(report, uringlog.data)


def body(arguments):
    report = lib.Report("take-back")
    work = Path(tempfile.mkdtemp(prefix="uringlog-take-back-", dir=arguments.work))
    uringlog = server.Uringlog(
        work / "u", arguments.binary, arguments.engine, arguments.durability, arguments.shards
    )
    kafka = Kafka(work / "kafka", uringlog.data)
    try:
        partitions, histories, known = first_stay(
            report, uringlog, kafka, arguments.read_committed
        )
        known = second_stay(report, uringlog, kafka, partitions, histories, known)
        third_stay(report, uringlog, partitions, histories, known)
    finally:
        uringlog.kill()
        if kafka.is_up():
            kafka.end("kill")
    if report.failed or arguments.keep:
        print(f"kept: {work}")
    else:
        shutil.rmtree(work)
    return report.finish()


if __name__ == "__main__":
    PARSER = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    PARSER.add_argument("--binary", required=True, help="uringlog's binary")
    PARSER.add_argument("--engine", default="uring")
    PARSER.add_argument("--durability", default="device")
    PARSER.add_argument("--shards", type=int, default=2)
    PARSER.add_argument("--work", help="where the directory is made")
    PARSER.add_argument(
        "--read-committed",
        action="store_true",
        help="compare what readers of committed records get, too",
    )
    PARSER.add_argument("--keep", action="store_true", help="keep the directory")
    ARGUMENTS = PARSER.parse_args()
    lib.main(lambda: body(ARGUMENTS))
