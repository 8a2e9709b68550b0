#!/usr/bin/env python3
"""uringlog's own command line against any bootstrap server: the same checks on a stock Kafka, whose
answers decide what is right, and on uringlog.

A part of the checks that needs APIs which the server doesn't advertise has failed.
"""

import json
import os
import signal
import subprocess
import time

import lib
from lib import CODECS, PARTITIONS

GROUPS = {"OffsetCommit", "OffsetFetch", "JoinGroup", "ListGroups", "DescribeGroups"}
ADMIN = {"CreatePartitions", "IncrementalAlterConfigs", "DeleteRecords", "DescribeLogDirs"}
TRANSACTIONS = {"AddPartitionsToTxn", "EndTxn"}
# A field with each of the two offsets that the checks compare most.
LAG = ("committed_offset", "lag")


class Uringlog:
    """The program; `--bootstrap` is given to every command."""

    def __init__(self, binary, bootstrap):
        self.binary = binary
        self.environment = {**os.environ, "URINGLOG_BOOTSTRAP": bootstrap}
        self.started = []

    def run(self, line, stdin=b""):
        return lib.run([self.binary, *line.split()], stdin=stdin, env=self.environment)

    def out(self, line, stdin=b""):
        """What it prints; that it fails is not expected."""
        answer = self.run(line, stdin)
        if answer.returncode:
            raise RuntimeError(f"uringlog {line}: {answer.stderr.decode()}")
        return answer.stdout.decode()

    def json(self, line, stdin=b""):
        return json.loads(self.out(f"{line} --json", stdin))

    def records(self, line):
        return [json.loads(one) for one in self.out(f"consume {line} --json").splitlines()]

    def start(self, line):
        command = [self.binary, *line.split()]
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, stdout=pipe, stderr=pipe, env=self.environment)
        self.started.append(process)
        return process

    def end_all(self):
        """Ends what a failed check left running."""
        for process in self.started:
            if process.poll() is None:
                process.kill()
                process.wait()

    def refused(self, report, what, line, *parts):
        """The command has to fail, and to say all of this."""
        answer = self.run(line)
        text = answer.stderr.decode()
        holds = answer.returncode == 1 and all(part in text for part in parts)
        report.check(what, holds, f"status {answer.returncode}: {text}")


def end(process):
    """Ctrl-C; what it printed."""
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=lib.DEADLINE_S)
    return process.returncode, out.decode()


def check_topics(cli, report):
    one, other = lib.topic_name("cli-topic"), lib.topic_name("cli-topic")
    made = cli.json(f"topic create {one} --partitions 3 --config retention.ms=86400000")
    report.check("a topic is created with an id", made["created"] and len(made["id"]) == 22, made)
    again = cli.json(f"topic create {one} --if-not-exists")
    report.equal("created once", again["created"], False)
    cli.refused(
        report, "created twice", f"topic create {one}", "TOPIC_ALREADY_EXISTS", "--if-not-exists"
    )
    cli.out(f"topic create {other}")
    listed = {topic["topic"]: topic for topic in cli.json("topic list")}
    report.check("both are listed", {one, other} <= set(listed), sorted(listed))
    report.equal("its partitions are listed", listed[one]["partitions"], 3)
    (described,) = cli.json(f"topic describe {one}")
    report.equal("its id is that of its creation", described["id"], made["id"])
    report.equal("its config", described["configs"], {"retention.ms": "86400000"})
    ends = [(it["log_start_offset"], it["high_watermark"]) for it in described["partitions"]]
    report.equal("it is empty", ends, [(0, 0)] * 3)
    settings = {one["name"]: one for one in cli.json(f"config describe topic/{one} --all")}
    report.equal("config says the same", settings["retention.ms"]["value"], "86400000")
    report.equal("and where from", settings["retention.ms"]["source"], "DYNAMIC_TOPIC_CONFIG")
    for name in (one, other):
        report.check("deleted", cli.json(f"topic delete {name}")["deleted"])
    lib.wait_until(lambda: not cli.json(f"topic delete {one} --if-exists")["deleted"], "its end")
    unknown = ("UNKNOWN_TOPIC_OR_PARTITION", "uringlog topic list")
    cli.refused(report, "unknown: describe", f"topic describe {one}", *unknown)
    cli.refused(report, "unknown: consume", f"consume {one}", *unknown)
    cli.refused(report, "unknown: offsets", f"offsets {one}", *unknown)


def check_records(cli, report, count):
    """Every codec: keys, order and headers as they were sent."""
    topic = lib.topic_name("cli-records")
    cli.out(f"topic create {topic} --partitions {PARTITIONS}")
    each = -(-count // len(CODECS))
    for codec in CODECS:
        lines = [f"key-{i % 1000}={codec} {i}" for i in range(each)]
        text = "".join(f"{line}\n" for line in lines).encode()
        cli.out(f"produce {topic} -K = -z {codec} -H codec={codec} -", text)
    found = cli.records(topic)
    report.moved += len(found)
    place = {}
    for record in found:
        place.setdefault(record["key"], set()).add(record["partition"])
    report.check("a key has one partition", all(len(it) == 1 for it in place.values()))
    wanted = [(f"key-{i % 1000}", f"{codec} {i}") for codec in CODECS for i in range(each)]
    got = {}
    for record in found:
        got.setdefault(record["key"], []).append(record["value"])
    sent = {}
    for key, value in wanted:
        sent.setdefault(key, []).append(value)
    report.check("each key's records, in their order", got == sent)
    report.check(
        "headers", all(it["headers"][0]["value"] == it["value"].split()[0] for it in found)
    )
    ends = cli.json(f"offsets {topic}")
    report.equal("offsets agree", sum(it["latest"] for it in ends), each * len(CODECS))
    cli.out(f"topic delete {topic}")


def check_filters(cli, report):
    topic = lib.topic_name("cli-filters")
    cli.out(f"topic create {topic} --partitions 1")
    cli.out(f"produce {topic} -K :", b"a:0\nb:1\nc:2\n")
    first = cli.records(topic)
    midway = max(it["timestamp"] for it in first) + 1
    lib.wait_until(lambda: time.time() * 1000 > midway + 1, "the next millisecond", pause=0.001)
    cli.out(f"produce {topic} -K : -H x=1 -H y=2", b"d:3\ne:4\n")

    def values(line):
        return [int(it["value"]) for it in cli.records(f"{topic} {line}")]

    report.equal("all", values(""), [0, 1, 2, 3, 4])
    report.equal("from a time", values(f"--from @{midway}"), [3, 4])
    report.equal("until a time", values(f"--until @{midway}"), [0, 1, 2])
    report.equal("offsets", values("--from 1 --until 4"), [1, 2, 3])
    report.equal("count", values("--from 1 -n 2"), [1, 2])
    report.equal("a count of none", values("-n 0"), [])
    report.equal("the end", values("--from latest"), [])
    report.equal("the last hour", values("--from 1h"), [0, 1, 2, 3, 4])
    report.equal("one partition", values("--partition 0 --from 4"), [4])
    cli.refused(report, "an offset beyond", f"consume {topic} --from 9", "partition 0 has 0 to 5")
    cli.refused(report, "a partition beyond", f"consume {topic} -p 1", "none is 1")
    fields = cli.out(f"consume {topic} --from 3 -n 1 --with all").rstrip("\n").split("\t")
    report.equal("fields", fields[1:], ["0", "3", "d", "x=1,y=2", "3"])
    report.check("a time for people", fields[0].endswith("Z") and len(fields[0]) == 24, fields)
    text = cli.out(f"consume {topic} --from 3 --format %t/%p/%o:%k=%s|")
    report.equal("a format", text, f"{topic}/0/3:d=3|{topic}/0/4:e=4|")
    (at,) = cli.json(f"offsets {topic} --at @{midway}")
    report.equal("the offset of a time", at["at"][0]["offset"], 3)
    cli.out(f"produce {topic}", b"\xff\x00\n")
    (bytes_,) = cli.records(f"{topic} --from 5")
    report.equal("what is no text", bytes_["value"], {"base64": "/wA="})
    follow = cli.start(f"consume {topic} --from latest --follow")
    reads = []
    while not reads:
        # Until it has begun, what is sent is before its beginning.
        cli.out(f"produce {topic}", b"late\n")
        reads = lines_within(follow, 0.5)
    report.equal("following", reads[0], b"late\n")
    report.equal("Ctrl-C is an end like another", end(follow)[0], 0)
    cli.out(f"topic delete {topic}")


def lines_within(process, seconds):
    os.set_blocking(process.stdout.fileno(), False)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        line = process.stdout.readline()
        if line:
            return [line]
        time.sleep(0.01)
    return []


def check_admin(cli, report):
    topic = lib.topic_name("cli-admin")
    cli.out(f"topic create {topic} --partitions 1")
    cli.out(f"produce {topic}", b"0\n1\n2\n3\n")
    report.equal(
        "more partitions", cli.json(f"topic add-partitions {topic} --total 3")["partitions"], 3
    )
    cli.refused(
        report, "fewer", f"topic add-partitions {topic} --total 2", "INVALID_PARTITIONS", "help:"
    )
    cli.out(f"config set topic/{topic} retention.ms=1000000 segment.bytes=1048576")
    cli.out(f"topic alter {topic} --unset segment.bytes --set max.message.bytes=5000")

    def configs():
        (described,) = cli.json(f"topic describe {topic}")
        return described["configs"]

    wanted = {"retention.ms": "1000000", "max.message.bytes": "5000"}
    lib.wait_until(lambda: configs() == wanted, f"{wanted}, at last {configs()}")
    cli.out(f"config set topic/{topic} retention.ms=5 --dry-run")
    report.equal("a dry run changes nothing", configs(), wanted)
    cli.refused(
        report, "no such config", f"config set topic/{topic} colour=red", "INVALID_CONFIG", "help:"
    )
    cli.out(f"config unset topic/{topic} retention.ms max.message.bytes")
    lib.wait_until(lambda: configs() == {}, "no configs")
    trimmed = cli.json(f"topic trim {topic} --before 2 --partition 0")
    report.equal("trimmed", trimmed[0]["log_start_offset"], 2)
    report.equal("what is left", cli.out(f"consume {topic}"), "2\n3\n")
    held = cli.json("cluster log-dirs")
    sizes = {
        (it["topic"], it["partition"]): it["bytes"] for one in held for it in one["partitions"]
    }
    report.check("its size", sizes[(topic, 0)] > 60, sizes.get((topic, 0)))
    cli.out(f"topic delete {topic}")


def check_isolation(cli, report, bootstrap):
    """Transactions: what was aborted, and what is still open."""
    # The command line has no transactions, and the rest of the checks needs no such library.
    from confluent_kafka import Producer

    topic = lib.topic_name("cli-isolation")
    cli.out(f"topic create {topic} --partitions 1")
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions(lib.DEADLINE_S)
    for value, end_it in (
        ("a", producer.commit_transaction),
        ("b", producer.abort_transaction),
        ("c", producer.commit_transaction),
        ("d", producer.flush),
    ):
        producer.begin_transaction()
        for half in "12":
            producer.produce(topic, f"{value}{half}")
            producer.flush(lib.DEADLINE_S)
        end_it(lib.DEADLINE_S)
    committed = "--isolation read-committed --format %s."
    report.equal(
        "all records", cli.out(f"consume {topic} --format %s."), "a1.a2.b1.b2.c1.c2.d1.d2."
    )

    def becomes(line, wanted):
        """A commit is answered before its markers are in the log."""
        lib.wait_until(lambda: cli.out(f"consume {topic} {line}") == wanted, wanted)

    becomes(committed, "a1.a2.c1.c2.")
    # Into the middle of the one that was aborted: its first offset lies before.
    report.equal("from 4 on", cli.out(f"consume {topic} --from 4 {committed}"), "c1.c2.")
    producer.commit_transaction(lib.DEADLINE_S)
    becomes(f"--from 9 {committed}", "d1.d2.")
    report.equal("and all", cli.out(f"consume {topic} {committed}"), "a1.a2.c1.c2.d1.d2.")
    cli.out(f"topic delete {topic}")


def check_groups(cli, report):
    topic, group = lib.topic_name("cli-group"), lib.topic_name("cli-g")
    cli.out(f"topic create {topic} --partitions 4")
    for partition in range(4):
        cli.out(f"produce {topic} -p {partition}", b"".join(b"%d\n" % i for i in range(100)))
    absent = ("GROUP_ID_NOT_FOUND", "uringlog group list")
    cli.refused(report, "unknown: describe", f"group describe {group}", *absent)
    cli.refused(report, "unknown: delete", f"group delete {group}", *absent)
    answer = cli.run(f"consume {topic} --group {group} --lag")
    report.equal("a member reads all", len(answer.stdout.splitlines()), 400)
    report.moved += 400
    rows = [line.split() for line in answer.stderr.decode().splitlines()]
    rows = [row[1:9] for row in rows if row and row[0] == group]
    wanted = [[topic, str(i), "0", "100", "100", "100", "100", "0"] for i in range(4)]
    report.equal("the five offsets and the lag of a member", rows, wanted)
    report.equal("and only once", cli.out(f"consume {topic} --group {group}"), "")
    listed = {it["group"]: it for it in cli.json("group list")}
    report.equal("it is listed", listed[group]["state"], "Empty")
    report.equal("by state", group in cli.out("group list --state stable"), False)
    cli.out(f"produce {topic} -p 1", b"more\n")
    lags = lags_of(cli, group)
    report.equal("what is behind", lags, {0: (100, 0), 1: (100, 1), 2: (100, 0), 3: (100, 0)})
    cli.out(f"consume {topic} --group {group} -n 1")
    report.equal("nothing is", lags_of(cli, group)[1], (101, 0))
    check_members(cli, report, topic, group)
    check_prompt_end(cli, report, topic, group)
    check_static_members(cli, report, topic)
    check_consumer_protocol(cli, report)
    check_resets(cli, report, topic, group)
    cli.out(f"group delete {group}")
    cli.refused(report, "deleted", f"group describe {group}", *absent)
    cli.out(f"topic delete {topic}")


def lags_of(cli, group):
    (described,) = cli.json(f"group describe {group}")
    return {it["partition"]: tuple(it[name] for name in LAG) for it in described["partitions"]}


def check_members(cli, report, topic, group):
    """Two that share, and one that takes over when the other leaves."""
    members = [cli.start(f"consume {topic} -g {group} -F") for _ in range(2)]

    def counts():
        return [len(it["assigned"]) for it in members_of(cli, group)]

    lib.wait_until(lambda: counts() == [2, 2], "two members with two partitions each", pause=0.5)
    (described,) = cli.json(f"group describe {group}")
    report.equal("a stable group", (described["state"], described["members"]), ("Stable", 2))
    report.equal("with an assignor", described["assignor"], "range")
    busy = f"group reset {group} --to-earliest --execute"
    cli.refused(report, "reset under members", busy, "stop them first")
    cli.refused(report, "delete under members", f"group delete {group}", "NON_EMPTY_GROUP", "help:")
    cli.out(f"produce {topic} -p 0", b"to one\n")
    cli.out(f"produce {topic} -p 3", b"to the other\n")
    lib.wait_until(
        lambda: all(lag == 0 for _, lag in lags_of(cli, group).values()), "commits", pause=0.5
    )
    ends = [end(members[0])]
    lib.wait_until(lambda: counts() == [4], "the one that is left has all", pause=0.5)
    ends.append(end(members[1]))
    report.equal("both end well", [status for status, _ in ends], [0, 0])
    text = "".join(sorted(out for _, out in ends))
    report.equal("each record once", text, "to one\nto the other\n")
    report.equal("nobody is left", counts(), [])


def check_prompt_end(cli, report, topic, group):
    """Its last questions once waited behind the fetches that wait for more records, half a second
    each."""
    member = cli.start(f"consume {topic} -g {group} -F --lag")
    lib.wait_until(
        lambda: [len(it["assigned"]) for it in members_of(cli, group)] == [4], "a member"
    )
    began = time.monotonic()
    report.equal("a member that shows lag ends well", end(member)[0], 0)
    seconds = time.monotonic() - began
    report.check("and promptly", seconds < 3, f"after {seconds:.1f} s")
    report.equal("having left", members_of(cli, group), [])


def check_static_members(cli, report, topic):
    """Members with names of their own are expected back; a name that is taken over ends."""
    group = lib.topic_name("cli-static")
    line = f"consume {topic} -g {group} -F --from latest --assignor cooperative-sticky --instance"
    members = [cli.start(f"{line} {name}") for name in "ab"]

    def shared():
        found = members_of(cli, group)
        return sorted((it["instance"], len(it["assigned"])) for it in found)

    both = [("a", 2), ("b", 2)]
    lib.wait_until(lambda: shared() == both, "two members with names", pause=0.5)
    (described,) = cli.json(f"group describe {group}")
    report.equal("their assignor", described["assignor"], "cooperative-sticky")
    twin = cli.start(f"{line} b")
    _, said = members[1].communicate(timeout=lib.DEADLINE_S)
    report.equal("a name taken over", members[1].returncode, 1)
    report.check("is told so", b"FENCED_INSTANCE_ID" in said and b"--instance" in said, said)
    report.equal("the others end well", [end(it)[0] for it in (members[0], twin)], [0, 0])
    report.equal("both are expected back", shared(), both)


def check_consumer_protocol(cli, report):
    """KIP-848, two topics: two members share, one that is killed is put out, nothing is lost."""
    group, topic = lib.topic_name("cli-848"), lib.topic_name("cli-848-topic")
    other = lib.topic_name("cli-848-other")
    cli.out(f"topic create {topic} --partitions 4")
    cli.out(f"topic create {other} --partitions 2")
    # Kafka's broker hears of it a little later than its controller.
    seen = lambda: cli.run(f"topic describe {other}").returncode == 0  # noqa: E731
    lib.wait_until(seen, "the new topic", pause=0.5)
    line = f"consume {topic} {other} -g {group} -F --protocol consumer --from latest --with topic"
    members = [cli.start(line) for _ in range(2)]

    def counts():
        return sorted(len(it["assigned"]) for it in members_of(cli, group))

    lib.wait_until(lambda: counts() == [3, 3], "two members with three partitions each", pause=0.5)
    (described,) = cli.json(f"group describe {group}")
    report.equal("the broker shares out", described["assignor"], "uniform")
    for number in range(4):
        cli.out(f"produce {topic} -p {number}", b"to the first\n")
    cli.out(f"produce {other} -p 1", b"to the other\n")
    # Ends and committed offsets are equal when all was printed.
    at = lambda: [it for it in lags_by_topic(cli, group) if it[2] != 0 or it[1] is None]  # noqa: E731
    lib.wait_until(lambda: not at(), "commits", pause=0.5)
    ends = [end(members[0])]
    lib.wait_until(lambda: counts() == [6], "the one that is left has all", pause=0.5)
    ends.append(end(members[1]))
    report.equal("both end well", [status for status, _ in ends], [0, 0])
    text = sorted("".join(out for _, out in ends).splitlines())
    wanted = sorted([f"{topic}\tto the first"] * 4 + [f"{other}\tto the other"])
    report.equal("each record of both topics once", text, wanted)
    report.equal("nobody is left", counts(), [])
    cli.out(f"group delete {group}")
    cli.out(f"topic delete {topic}")
    cli.out(f"topic delete {other}")


def lags_by_topic(cli, group):
    (described,) = cli.json(f"group describe {group}")
    return [(it["topic"], it["committed_offset"], it["lag"]) for it in described["partitions"]]


def members_of(cli, group):
    """None before the first has come: a group is made by its members."""
    answer = cli.run(f"group members {group} --json")
    if b"GROUP_ID_NOT_FOUND" in answer.stderr:
        return []
    return json.loads(answer.stdout)["members"]


def check_resets(cli, report, topic, group):
    def committed():
        return [offset for _, (offset, _) in sorted(lags_of(cli, group).items())]

    report.equal("before", committed(), [101, 101, 100, 101])
    planned = cli.json(f"group reset {group} --to-earliest")
    report.equal("planned", [it["after"] for it in planned["partitions"]], [0] * 4)
    report.equal("a plan changes nothing", committed(), [101, 101, 100, 101])
    for goal, wanted in (
        ("--to-earliest", [0] * 4),
        ("--to-offset 50", [50] * 4),
        ("--shift-by -20", [30] * 4),
        ("--shift-by 1000", [101, 101, 100, 101]),
        ("--to-latest", [101, 101, 100, 101]),
        ("--to-time @0", [0] * 4),
        ("--by-duration 1h", [0] * 4),
        ("--to-time 2099-01-01", [101, 101, 100, 101]),
        (f"--to-offset 7 --topic {topic}:1-2", [101, 7, 7, 101]),
        ("--to-current", [101, 7, 7, 101]),
    ):
        cli.out(f"group reset {group} {goal} --execute")
        report.equal(goal, committed(), wanted)
    plan = cli.out(f"group reset {group} --to-earliest --csv")
    report.equal("a plan for a file", plan, "".join(f"{topic},{i},0\n" for i in range(4)))
    cli.out(f"group reset {group} --from-file /dev/stdin --execute", f"{topic},2,55\n".encode())
    report.equal("from a file", committed(), [101, 7, 55, 101])
    read = cli.out(f"consume {topic} --group {group}")
    report.equal("it goes on from there", len(read.splitlines()), 94 + 45)
    cli.out(f"group delete-offsets {group} --topic {topic}:0")
    report.equal("offsets deleted", committed(), [101, 100, 101])
    stranger = lib.topic_name("cli-new")
    cli.out(f"group reset {stranger} --topic {topic} --to-latest --execute")
    report.equal("a group made by its offsets", len(lags_of(cli, stranger)), 4)
    cli.out(f"group delete {stranger}")
    cli.refused(
        report, "nothing to reset", f"group reset {stranger} --to-latest", "name topics with"
    )


def check_cluster(cli, report, bootstrap):
    cluster = cli.json("cluster describe")
    addresses = [it["address"] for it in cluster["brokers"]]
    report.check("the bootstrap address is a broker's", bootstrap in addresses, addresses)
    ids = [it["id"] for it in cluster["brokers"]]
    report.check("the controller is one of them", cluster["controller"] in ids, cluster)
    for feature in cli.json("cluster features"):
        report.check(
            f"feature {feature['feature']} is at a level that there is",
            feature["level"] <= feature["supported_max"],
            feature,
        )
    settings = cli.json(f"config describe broker/{ids[0]} --all")
    report.check("a broker's settings", len(settings) > 50, len(settings))


def check_bench(cli, report, count):
    topic = lib.topic_name("cli-bench")
    cli.out(f"topic create {topic} --partitions {PARTITIONS}")
    sent = cli.json(f"bench produce {topic} -n {count} --size 100")
    report.equal("bench sends what it is told", sent["records"], count)
    report.check("and says how long it took", sent["latency_us"]["p99"] > 0, sent)
    read = cli.json(f"bench consume {topic}")
    report.equal("and reads it", read["records"], count)
    report.moved += count
    cli.out(f"topic delete {topic}")


def main():
    def more(parser):
        parser.add_argument("--binary", required=True, help="uringlog's binary")

    arguments = lib.options(__doc__, more)
    cli = Uringlog(arguments.binary, arguments.bootstrap)
    report = lib.Report("command-line")
    try:
        check_all(cli, report, arguments)
    finally:
        cli.end_all()
    return report.finish()


def check_all(cli, report, arguments):
    spoken = {it["api"] for it in cli.json("cluster api-versions")}
    half = arguments.records // 2
    for name, needs, check in (
        ("topics", set(), lambda: check_topics(cli, report)),
        ("records", set(), lambda: check_records(cli, report, half)),
        ("filters", set(), lambda: check_filters(cli, report)),
        ("cluster", set(), lambda: check_cluster(cli, report, arguments.bootstrap)),
        ("bench", set(), lambda: check_bench(cli, report, half)),
        (
            "isolation",
            TRANSACTIONS,
            lambda: check_isolation(cli, report, arguments.bootstrap),
        ),
        ("admin", ADMIN, lambda: check_admin(cli, report)),
        ("groups", GROUPS, lambda: check_groups(cli, report)),
    ):
        missing = sorted(needs - spoken)
        if report.check(f"{name}: the server advertises what it needs", not missing, missing):
            check()
            report.step(name)


if __name__ == "__main__":
    lib.main(main)
