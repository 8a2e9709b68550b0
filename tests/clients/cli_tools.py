"""Kafka's own command line against Kafka and against uringlog: the same commands in the same
order, and what they print side by side.

Writes a table (command, outcome with Kafka, outcome with uringlog, whether they say the same) to
results/cli-tools.md and everything that was printed to results/cli-tools/. What differs from run to
run (ids, addresses, times, rates, directories) is replaced by its kind before the comparison; the
raw text is kept as it was.

Exit status: 0 when every command says the same or differs for a reason that is named here.
"""

import argparse
import difflib
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter, namedtuple
from pathlib import Path

import cli_commands
import lib
from server import StockKafka, Uringlog

RESULTS = lib.ROOT / "results"

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
        r"^configs --describe --entity-type brokers --entity-default",
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
        r"^metadata-quorum describe --status",
        r'(?<="endpoints": \[)"(?:CONTROLLER://N:N|PLAINTEXT://HOST:PORT)"',
        "the voter has no listener of its own",
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

    def __init__(self, name, server, files):
        self.name = name
        self.server = server
        self.files = files

    def run(self, command, timeout):
        fields = {name: str(path) for name, path in self.files.items()}
        fields["broker"] = "1"
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
            )
            status, text = done.returncode, done.stdout
        except subprocess.TimeoutExpired as late:
            status, text = "timeout", (late.stdout or b"").decode(errors="replace")
        return Outcome(status, text, time.monotonic() - began)


def placed(tool, words, bootstrap):
    """The arguments with the broker's address where the tool wants it."""
    address = ["--bootstrap-server", bootstrap]
    if tool in ("features", "metadata-quorum", "transactions"):
        return address + words
    if tool == "acls":
        return address + words
    if tool == "producer-perf":
        return words + address
    if "--validate-regex" in words:
        return words
    return words + address


def explanation(command, outcomes, texts):
    """Why the two differ, when every line that does is as it should be but for what the reasons
    leave out; None otherwise."""
    line = f"{command.tool} {' '.join(command.arguments)}".replace("{broker}", "1").strip()
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
    for number, command in enumerate(commands, 1):
        outcomes = [side.run(command, options.timeout) for side in sides]
        texts = [
            normalised(command, outcome.text, side.server)
            for side, outcome in zip(sides, outcomes)
        ]
        same = texts[0] == texts[1] and outcomes[0].status == outcomes[1].status
        why = None if same else explanation(command, outcomes, texts)
        rows.append(Row(number, command, outcomes, texts, same, why))
        shown = "same" if same else why or "DIFFERENT"
        line = f"{command.tool} {' '.join(command.arguments)}"
        print(f"{number:4} {line[:100]:100} {shown}", flush=True)


def write_raw(rows, sides):
    directory = RESULTS / "cli-tools"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    for index, side in enumerate(sides):
        with open(directory / f"{side.name}.txt", "w") as file:
            for number, command, outcomes, *_ in rows:
                outcome = outcomes[index]
                text = outcome.text.replace(str(side.server.work), "WORK")
                file.write(
                    f"### {number} {command.tool} {' '.join(command.arguments)}\n"
                    f"{text.rstrip()}\n[exit {outcome.status}]\n\n"
                )
    with open(directory / "differences.txt", "w") as file:
        for number, command, outcomes, texts, same, _ in rows:
            if same:
                continue
            file.write(f"### {number} {command.tool} {' '.join(command.arguments)}\n")
            if outcomes[0].status != outcomes[1].status:
                file.write(f"exit: Kafka {outcomes[0].status}, uringlog {outcomes[1].status}\n")
            lines = difflib.unified_diff(*texts, "kafka", "uringlog", lineterm="", n=0)
            file.write("\n".join(list(lines)[2:]) + "\n\n")


def write_table(rows, groups, versions):
    same = sum(row.same for row in rows)
    named = sum(bool(row.why) for row in rows)
    out = [
        "# Kafka's command line",
        "",
        f"`scripts/cli-tools` on {time.strftime('%Y-%m-%d')}, tools and broker of {versions}: the "
        "same commands, in this order, against Kafka and against uringlog. A cell tells the exit "
        "status and how many lines were printed; texts are compared without ids, addresses, times "
        "and rates, and whatever the order of their lines. Everything that was printed is in "
        "[cli-tools/](cli-tools/), with the differences in "
        "[differences.txt](cli-tools/differences.txt).",
        "",
        f"{len(rows)} commands: {same} say the same, {named} differ for the reason that is named, "
        f"{len(rows) - same - named} differ. Groups of commands: {', '.join(groups)}.",
    ]
    out = [line if len(line) <= 120 else wrapped(line) for line in out]
    for group in groups:
        out += ["", f"## {group}", "", "| # | command | Kafka | uringlog | same? |", "|--:|---|---|---|---|"]
        for number, command, outcomes, _, is_same, why in rows:
            if command.group != group:
                continue
            line = f"{command.tool} {' '.join(command.arguments)}".replace("|", "\\|")
            verdict = "yes" if is_same else why or "**no**"
            out.append(
                f"| {number} | `{line}` | {brief(outcomes[0])} | {brief(outcomes[1])} | {verdict} |"
            )
    (RESULTS / "cli-tools.md").write_text("\n".join(out) + "\n")
    return len(rows) - same - named


def wrapped(line):
    lines, current = [], ""
    for word in line.split(" "):
        if current and 110 < len(current) + 1 + len(word):
            lines.append(current)
            current = word
        else:
            current = f"{current} {word}".strip()
    return "\n".join([*lines, current])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--binary", type=Path, default=lib.ROOT / "target/release/uringlog")
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--only", metavar="GROUP,...", help="these groups of commands alone")
    parser.add_argument("--without", metavar="GROUP,...", help="all groups but these")
    parser.add_argument("--timeout", type=int, default=90, help="seconds for one command (90)")
    options = parser.parse_args()
    if not options.binary.exists():
        sys.exit(f"cli-tools: no {options.binary}; build it: cargo build --release")
    groups, commands = chosen(options)
    with tempfile.TemporaryDirectory(prefix="cli-tools-") as work:
        files = write_files(work)
        ours = Uringlog(
            Path(work) / "uringlog", options.binary, options.engine, "page-cache", 1
        )
        sides = [
            Side("kafka", StockKafka(Path(work) / "kafka", 1, DEFAULTS), files),
            Side("uringlog", ours, files),
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
        write_raw(rows, sides)
    different = write_table(rows, groups, "Apache Kafka 4.3.1")
    print(f"cli-tools: {len(rows)} commands, {different} differ without a reason", flush=True)
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
