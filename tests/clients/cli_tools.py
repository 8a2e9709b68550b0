"""Kafka's own command line against Kafka and against uringlog: the same commands in the same
order, and what they print side by side.

The tools are those of one version of Kafka after the other (--tools), each on a new pair of brokers;
the broker beside ours is 4.3.1. Writes a table (command, outcome with Kafka, outcome with uringlog,
whether they say the same, for each version) to results/cli-tools.md and everything that was printed
to results/cli-tools/VERSION/; what an earlier run found of groups that --only leaves out stays there.
What differs from run to run (ids, addresses, times, rates, directories) is replaced by its kind before
the comparison; the raw text is kept as it was.

Exit status: 0 when every command says the same or differs for a reason that is named here.
"""

import argparse
import difflib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter, namedtuple
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cli_commands
import lib
import raw
from server import StockKafka, Uringlog

RESULTS = lib.ROOT / "results"
BROKER_VERSION = "4.3.1"
TOOLS_VERSIONS = ("4.3.1", "4.4.0")

# Kafka's defaults, which scripts/kafka changes for the tests and uringlog has.
DEFAULTS = (
    "offsets.topic.num.partitions=50",
    "transaction.state.log.num.partitions=50",
    "group.initial.rebalance.delay.ms=3000",
    # What uringlog is started with.
    "log.flush.interval.messages=9223372036854775807",
)

Outcome = namedtuple("Outcome", "status text seconds")
# `why` is a reason for what isn't the same, if there is one.
Row = namedtuple("Row", "number command outcomes texts same why")

# Settings of Kafka's that are unknown here, since what they are about isn't there or works otherwise.
NOT_SERVED = (
    "alter.config.policy|alter.log.dirs|authorizer|auto.leader.rebalance|background.threads|"
    "broker.(heartbeat|id|rack|session)|client.quota.callback|config.providers|"
    "connection.failed.authentication|connections.max.reauth|controlled.shutdown|controller|"
    "cordoned.log.dirs|create.topic.policy|delegation.token|delete.(records.purgatory|topic.enable)|"
    "early.start.listeners|fetch.purgatory|follower.fetch|"
    "group.consumer.(max|min).(assignment|heartbeat|session)|"
    "group.(coordinator|share|streams)|initial.broker|inter.broker|kafka.metrics|leader.imbalance|"
    "listener|listeners|log.dir.failure|log.local.retention|max.connection.creation|"
    "max.connections.per.ip|max.request.partition|metadata|metric|metrics|"
    "num.(io|network|recovery|replica)|offsets.(commit.timeout|load.buffer|topic.compression)|"
    "principal|process|producer.purgatory|queued.max|quota.window|remote|replica|replication|"
    "request.timeout|sasl|security|share|socket.(connection|listen|receive.buffer|send.buffer)|ssl|"
    "telemetry|transaction.(state.log.load.buffer|two.phase)"
).replace(".", r"\.")

KEPT_MINIMUM = "Kafka keeps min.insync.replicas of all brokers in its metadata log (KIP-966)"
ALL_OF_A_TOPIC = r"^configs --describe --entity-type topics .*--all"
ALL_OF_A_BROKER = r"^configs --describe --entity-type brokers --entity-name 1 --all"
CREATED_WITH_THREE = r"^topics --create .*--replication-factor 3"
# What differs by design: a pattern of the command, one of what is left out of the lines that differ,
# and why. Lines have a sign in front, - for Kafka's and + for ours: a pattern may name the side.
EXPLAINED = [
    (
        r"^api-versions",
        r"^.\w+\((?:38|39|4[01]|7[6-9]|8[013-9]|9[0-2])\): .*",
        "delegation tokens, share groups, streams groups and changes of voters are not served",
    ),
    (
        r"^features describe",
        r"^-Feature: (?:eligible\.leader\.replicas|kraft|share|streams)\.version .*",
        "features of parts that are not served are not supported",
    ),
    (
        r"^console-producer --topic compacted$",
        r"^-Compacted topic cannot accept message without key in topic partition compacted-0$|"
        r"^\+it has no key, which a compacted topic \(cleanup\.policy=compact\) needs$",
        "the refusal is worded otherwise",
    ),
    (
        CREATED_WITH_THREE,
        r"(?<=^-ERROR )Unable to replicate the partition 3 time\(s\): .*|"
        r"(?<=: )Unable to replicate the partition 3 time\(s\): .*|"
        r"replication factor 3: this broker serves one host and keeps one replica; use 1 \(or -1\)",
        "says why there can be one replica only",
    ),
    (r"^topics --describe", r"\bmin\.insync\.replicas=1,?", KEPT_MINIMUM),
    (
        r"^configs --describe --(?:entity-type brokers --entity-default|broker-defaults)",
        r"^-min\.insync\.replicas=1 .*synonyms=\{DYNAMIC_DEFAULT_BROKER_CONFIG:.*",
        KEPT_MINIMUM,
    ),
    (
        r"^configs .*--all",
        r"\bDYNAMIC_DEFAULT_BROKER_CONFIG:min\.insync\.replicas=1, ",
        KEPT_MINIMUM,
    ),
    (
        r"^configs .*--all",
        r"\bDEFAULT_CONFIG:log\.flush\.interval\.messages=(?:1|9223372036854775807)\b",
        "the device tier is the default",
    ),
    (
        ALL_OF_A_TOPIC,
        r"\bDEFAULT_CONFIG:log\.local\.retention\.(?:ms|bytes)=-2\b",
        "settings of tiered storage are not known here",
    ),
    (
        ALL_OF_A_BROKER,
        rf"^-(?:{NOT_SERVED})(?:\.\S*)?=.*",
        "settings that mean nothing here are unknown",
    ),
    (
        ALL_OF_A_BROKER,
        r"^\+(?:journal|uringlog)\..*|^\+group\.consumer\.regex\.refresh\.interval\.ms=600000 .*|"
        r"^\+log\.initial\.task\.delay\.ms=30000 .*",
        "others are ours, or internal ones of Kafka's",
    ),
    (
        ALL_OF_A_BROKER,
        r"\b(?:group\.max\.size|group\.consumer\.max\.size|max\.connections)=(?:10000|2147483647)\b",
        "limits are lower",
    ),
    (
        ALL_OF_A_BROKER,
        r"\bSTATIC_BROKER_CONFIG:(?:group\.initial\.rebalance\.delay\.ms|node\.id|"
        r"offsets\.topic\.(?:num\.partitions|replication\.factor)|"
        r"transaction\.state\.log\.(?:min\.isr|num\.partitions|replication\.factor))=\d+(?:, )?|"
        r"\bDEFAULT_CONFIG:node\.id=1\b",
        "Kafka's file of the test says what is the default here",
    ),
    (
        ALL_OF_A_BROKER,
        r"\bDEFAULT_CONFIG:(?:offsets\.topic|transaction\.state\.log)\.replication\.factor=[13]\b|"
        r"\bDEFAULT_CONFIG:transaction\.state\.log\.min\.isr=[12]\b",
        "there is one replica",
    ),
    (
        ALL_OF_A_BROKER,
        r"^.log\.dirs?=(?:DATA|null|/tmp/kafka-logs) .*",
        "the directory is an option of the command",
    ),
    (
        r"^configs --describe --(?:entity-type )?broker-logger",
        r"^[-+](?!root=)[^=]*=(?:DEBUG|ERROR|FATAL|INFO|TRACE|WARN) .*",
        "loggers are those of the program, by their own names",
    ),
    (
        # Before it is changed.
        r"^configs --describe --entity-type broker-loggers",
        r"^[-+]root=(?:INFO|WARN) .*",
        "warnings alone are logged unless one asks for more",
    ),
    (
        r"^metadata-quorum describe --status",
        r'(?<="endpoints": \[)"(?:CONTROLLER://N:N|PLAINTEXT://HOST:PORT)"',
        "the voter has no listener of its own",
    ),
    (
        r"^delete-records --offset-json-file \{nowhere\}",
        r"(?<=missing-0 error: )(?:Timed out waiting for a node assignment|Call\(callName=deleteR).*",
        "the tool asks until its time is up; what it says then is chance",
    ),
    (
        r"^transactions describe-producers --topic missing",
        r"(?<= on leader: )(?:Timed out waiting for a node assignment|Call\(callName=describePr).*",
        "the tool asks until its time is up; what it says then is chance",
    ),
]


def substitutions(server):
    """What is replaced before two texts are compared, in this order."""
    host, port = server.bootstrap.rsplit(":", 1)
    return [
        (re.escape(str(server.data)), "DATA"),
        (rf"(?:{re.escape(host)}|localhost|(?<!/)/127\.0\.0\.1):{port}", "HOST:PORT"),
        (rf"\b{port}\b", "PORT"),
        (r"\[20\d\d-\d\d-\d\d [\d:,]+\] ", ""),
        (r"(?<=crc: )\d+", "CRC"),
        (r"20\d\d-\d\d-\d\d[ T]\d\d:\d\d:\d\d[.,:]\d+", "TIME"),
        (r"\(?\borg\.apache\.kafka\.[\w.$]+\)?:?", ""),
        (r"TopicId: \S+", "TopicId: ID"),
        (r"Cluster ID: \S+", "Cluster ID: ID"),
        (r"ClusterId:( +)\S+", r"ClusterId:\1ID"),
        (r"\b[A-Za-z0-9_-]{22}\b", "ID"),
        (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UUID"),
        (r'"logDir":"[^"]*"', '"logDir":"DIR"'),
        (r"\b1[6-9]\d{11}\b", "MILLIS"),
        # The duration of a transaction stands behind its beginning.
        (r"\bMILLIS(\s+)\d+\b", r"MILLIS\1DURATION"),
        # One more with each record of the metadata log.
        (r"\bEpoch:(\s*)\d+", r"Epoch:\1N"),
        (r"/tmp/\S+?/(\w+\.(?:json|csv))", r"\1"),
    ]


# The numbers of some tools are measurements, or count what happened to be batched together.
MEASURED = ("producer-perf", "consumer-perf", "metadata-quorum", "e2e-latency")
# How often progress is shown is a matter of speed.
PROGRESS = re.compile(r"N records sent, N records/sec \(N MB/sec\), N ms avg latency, N ms max latency\.")


def normalised(command, text, server):
    for pattern, instead in substitutions(server):
        text = re.sub(pattern, instead, text)
    if command.tool in MEASURED:
        text = re.sub(r"(?<![\w.])\d+(?:[.,]\d+)*(?![\w])", "N", text)
    lines = [re.sub(r"[ \t]+", " ", line).strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not line.startswith("at ")]
    if command.tool in MEASURED:
        lines = [line for line in dict.fromkeys(lines) if not PROGRESS.fullmatch(line)]
    # Tools go through hash maps and print to two streams: the order of lines is chance.
    return sorted(lines)


class Side:
    """One of the two brokers, and the directory of files that the commands name."""

    def __init__(self, name, server, files, tools):
        self.name = name
        self.server = server
        self.files = files
        self.environment = {**os.environ, "KAFKA_VERSION": tools}

    def run(self, command, timeout):
        fields = {name: str(path) for name, path in self.files.items()}
        fields |= {"broker": "1", "data": str(self.server.data)}
        if command.tool == cli_commands.HANG:
            return hang(self.server.bootstrap, *command.arguments)
        words = [word.format(**fields) if "{" in word else word for word in command.arguments]
        line = [lib.KAFKA, command.tool, *placed(command.tool, words, self.server.bootstrap)]
        began = time.monotonic()
        try:
            done = subprocess.run(
                line,
                input=command.stdin or "",
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=timeout,
                env=self.environment,
            )
            status, text = done.returncode, done.stdout
        except subprocess.TimeoutExpired as late:
            status, text = "timeout", (late.stdout or b"").decode(errors="replace")
        return Outcome(status, text, time.monotonic() - began)


def hang(bootstrap, transactional_id, topic, partition):
    """A batch of a transaction that its coordinator knows nothing of, which a partition takes that
    doesn't verify it."""
    began = time.monotonic()
    connection = raw.Connection(bootstrap)
    code, producer, epoch = raw.init_producer(connection, transactional_id)
    records = raw.batch(b"hanging", int(time.time() * 1000), producer, epoch, 0, True)
    refused, _ = raw.produce(connection, topic, int(partition), records, transactional_id)
    connection.close()
    text = f"error codes {code}, {refused}"
    return Outcome(int(bool(code or refused)), text, time.monotonic() - began)


def placed(tool, words, bootstrap):
    """The arguments with the broker's address where the tool wants it."""
    address = ["--bootstrap-server", bootstrap]
    if tool in ("features", "metadata-quorum", "transactions"):
        return address + words
    if tool == "acls":
        return address + words
    if tool == "producer-perf":
        return words + address
    if "--validate-regex" in words or tool == "dump-log":
        return words
    return words + address


def line_of(command):
    return f"{command.tool} {' '.join(command.arguments)}".strip()


def explanation(command, outcomes, texts):
    """Why the two differ, when every line that does is as it should be but for what the reasons
    leave out; None otherwise."""
    line = line_of(command).replace("{broker}", "1")
    if outcomes[0].status != outcomes[1].status:
        return None
    counts = [Counter(text) for text in texts]
    left = [f"-{it}" for it in (counts[0] - counts[1]).elements()]
    right = [f"+{it}" for it in (counts[1] - counts[0]).elements()]
    reasons = []
    for pattern, part, why in EXPLAINED:
        if not re.search(pattern, line):
            continue
        before = (left, right)
        left, right = ([re.sub(part, "", it) for it in side] for side in (left, right))
        if (left, right) != before and why not in reasons:
            reasons.append(why)
    rest = [sorted(it[1:] for it in side if it.strip("+-")) for side in (left, right)]
    return "; ".join(reasons) if reasons and rest[0] == rest[1] else None


def brief(outcome):
    lines = len(outcome.text.splitlines())
    return f"{outcome.status}, {lines} line{'s' if lines != 1 else ''}"


def chosen(options):
    groups = list(dict.fromkeys(command.group for command in cli_commands.LIST))
    wanted = options.only.split(",") if options.only else groups
    left_out = options.without.split(",") if options.without else []
    unknown = [name for name in wanted + left_out if name not in groups]
    if unknown:
        sys.exit(f"cli-tools: no group {unknown[0]}; groups: {', '.join(groups)}")
    keep = [name for name in wanted if name not in left_out]
    # What the others work on is always made.
    keep = [name for name in groups if name in keep or name in ("topics", "records")]
    return keep, [command for command in cli_commands.LIST if command.group in keep]


def write_files(directory):
    paths = {}
    for name, text in cli_commands.FILES.items():
        path = Path(directory) / f"{name}.{'csv' if name.startswith('reset') else 'json'}"
        path.write_text(text)
        paths[name] = path
    return paths


def run_all(rows, sides, commands, options):
    pool = ThreadPoolExecutor(len(sides))
    for number, command in numbered(commands):
        outcomes = list(pool.map(lambda side: side.run(command, options.timeout), sides))
        texts = [
            normalised(command, outcome.text, side.server)
            for side, outcome in zip(sides, outcomes)
        ]
        same = texts[0] == texts[1] and outcomes[0].status == outcomes[1].status
        why = None if same else explanation(command, outcomes, texts)
        rows.append(Row(number, command, outcomes, texts, same, why))
        line = line_of(command)
        shown = "same" if same else why or "DIFFERENT"
        print(f"{number:4} {line[:100]:100} {shown}", flush=True)


def numbered(commands):
    """Each with its place among all commands, whichever are run."""
    return [it for it in enumerate(cli_commands.LIST, 1) if any(it[1] is one for one in commands)]


def head_of(number, command):
    return f"### {number} {command.tool} {' '.join(command.arguments)}"


def merge(path, sections, rows):
    """Writes sections by their heads, those of other commands as an earlier run found them."""
    heads = {head_of(*it): it[0] for it in enumerate(cli_commands.LIST, 1)}
    run = {head_of(row.number, row.command) for row in rows}
    earlier = path.read_text() if path.exists() else ""
    for part in re.split(r"^(?=### \d+ )", earlier, flags=re.M):
        head = part.split("\n", 1)[0]
        if head in heads and head not in run:
            sections[head] = part
    path.write_text("".join(sections[head] for head in sorted(sections, key=heads.get)))


def write_raw(rows, sides, tools):
    directory = RESULTS / "cli-tools" / tools
    directory.mkdir(parents=True, exist_ok=True)
    for index, side in enumerate(sides):
        sections = {}
        for number, command, outcomes, *_ in rows:
            text = outcomes[index].text.replace(str(side.server.work), "WORK").rstrip()
            head, status = head_of(number, command), outcomes[index].status
            sections[head] = f"{head}\n{text}\n[exit {status}]\n\n"
        merge(directory / f"{side.name}.txt", sections, rows)
    sections = {}
    for number, command, outcomes, texts, same, _ in rows:
        if same:
            continue
        lines = list(difflib.unified_diff(*texts, "kafka", "uringlog", lineterm="", n=0))[2:]
        if outcomes[0].status != outcomes[1].status:
            lines.insert(0, f"exit: Kafka {outcomes[0].status}, uringlog {outcomes[1].status}")
        head = head_of(number, command)
        sections[head] = "\n".join([head, *lines]) + "\n\n"
    merge(directory / "differences.txt", sections, rows)
    kept = [
        {
            "number": number,
            "group": command.group,
            "line": line_of(command),
            "kafka": brief(outcomes[0]),
            "uringlog": brief(outcomes[1]),
            "same": same,
            "why": why,
        }
        for number, command, outcomes, _, same, why in rows
    ]
    run = {it["number"] for it in kept}
    for it in kept_outcomes().get(tools, {"commands": []})["commands"]:
        place = it.get("number", 0)
        if place not in run and any(
            number == place and line_of(command) == it["line"]
            for number, command in enumerate(cli_commands.LIST, 1)
        ):
            kept.append(it)
    kept.sort(key=lambda it: it["number"])
    found = {"date": time.strftime("%Y-%m-%d"), "commands": kept}
    (directory / "outcomes.json").write_text(json.dumps(found, indent=1) + "\n")


def kept_outcomes():
    """What was found with each version of the tools, by this run or an earlier one."""
    paths = sorted((RESULTS / "cli-tools").glob("*/outcomes.json"))
    return {path.parent.name: json.loads(path.read_text()) for path in paths}


def counts(commands):
    same = sum(it["same"] for it in commands)
    named = sum(not it["same"] and bool(it.get("why")) for it in commands)
    return same, named, len(commands) - same - named


def verdict(found):
    return "yes" if found["same"] else found.get("why") or "**no**"


def cells(found):
    return f"{found['kafka']} | {found['uringlog']} | {verdict(found)}" if found else "- | - | -"


def write_table():
    """Returns how many commands differ without a reason."""
    runs = kept_outcomes()
    head = (
        f"`scripts/cli-tools`: the same commands, in this order, with the tools of each version "
        f"against Apache Kafka {BROKER_VERSION} and against uringlog. A cell tells the exit status "
        "and how many lines were printed; texts are compared without ids, addresses, times and "
        "rates, and whatever the order of their lines. Everything that was printed is in "
        "[cli-tools/](cli-tools/), with the differences in `differences.txt` of each version."
    )
    out = ["# Kafka's command line", "", wrapped(head), ""]
    out += ["| tools | date | commands | the same | differ for a named reason | differ |"]
    out += ["|---|---|--:|--:|--:|--:|"]
    for version, run in runs.items():
        same, named, different = counts(run["commands"])
        many = len(run["commands"])
        out.append(f"| {version} | {run['date']} | {many} | {same} | {named} | {different} |")
    for group in dict.fromkeys(it["group"] for run in runs.values() for it in run["commands"]):
        out += ["", f"## {group}", "", *rows_of(group, runs)]
    (RESULTS / "cli-tools.md").write_text("\n".join(out) + "\n")
    return sum(counts(run["commands"])[2] for run in runs.values())


def rows_of(group, runs):
    columns = "".join(f" Kafka, {it} | uringlog, {it} | same? |" for it in runs)
    out = [f"| command |{columns}", "|---|" + "---|---|---|" * len(runs)]
    # The n-th time that a command is given is the same one with each version.
    found = {}
    for version, run in runs.items():
        times = {}
        for it in run["commands"]:
            if it["group"] == group:
                times[it["line"]] = times.get(it["line"], 0) + 1
                found.setdefault((it["line"], times[it["line"]]), {})[version] = it
    for (line, _), outcomes in found.items():
        shown = line.replace("|", "\\|")
        row = " | ".join(cells(outcomes.get(version)) for version in runs)
        out.append(f"| `{shown}` | {row} |")
    return out


def wrapped(line):
    lines, current = [], ""
    for word in line.split(" "):
        if current and 110 < len(current) + 1 + len(word):
            lines.append(current)
            current = word
        else:
            current = f"{current} {word}".strip()
    return "\n".join([*lines, current])


def run_version(tools, commands, options):
    with tempfile.TemporaryDirectory(prefix="cli-tools-") as work:
        files = write_files(work)
        ours = Uringlog(
            Path(work) / "uringlog", options.binary, options.engine, "page-cache", 1
        )
        sides = [
            Side("kafka", StockKafka(Path(work) / "kafka", 1, DEFAULTS), files, tools),
            Side("uringlog", ours, files, tools),
        ]
        rows = []
        try:
            for side in sides:
                side.server.start()
            run_all(rows, sides, commands, options)
        except KeyboardInterrupt:
            print("cli-tools: interrupted; what was run is written", flush=True)
        finally:
            for side in sides:
                side.server.kill()
        write_raw(rows, sides, tools)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--binary", type=Path, default=lib.ROOT / "target/release/uringlog")
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--tools", metavar="VERSION,...", default=",".join(TOOLS_VERSIONS),
                        help=f"versions of Kafka's tools ({','.join(TOOLS_VERSIONS)})")
    parser.add_argument("--only", metavar="GROUP,...", help="these groups of commands alone")
    parser.add_argument("--without", metavar="GROUP,...", help="all groups but these")
    parser.add_argument("--timeout", type=int, default=90, help="seconds for one command (90)")
    parser.add_argument("--table", action="store_true", help="only write the table anew")
    options = parser.parse_args()
    if not options.binary.exists() and not options.table:
        sys.exit(f"cli-tools: no {options.binary}; build it: cargo build --release")
    _, commands = chosen(options)
    for tools in [] if options.table else options.tools.split(","):
        run_version(tools, commands, options)
    different = write_table()
    print(f"cli-tools: {different} commands differ without a reason", flush=True)
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
