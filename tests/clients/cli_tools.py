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
from collections import namedtuple
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

# What differs by design: a pattern of the command, and why.
EXPLAINED = [
    (
        r"^api-versions",
        "delegation tokens, share groups, streams groups and changes of voters are not served",
    ),
    (r"^features describe", "features of parts that are not served are not supported"),
    (
        r"^configs --describe --entity-type brokers --entity-name 1 --all",
        "settings that mean nothing here are unknown, others are ours",
    ),
    (r"^console-producer --topic compacted$", "records without a key are not looked for"),
    (r"^configs .*--all", "settings of tiered storage are not known here"),
    (
        r"^topics --describe",
        "Kafka keeps min.insync.replicas of all brokers in its metadata log (KIP-966)",
    ),
    (
        r"^topics --create .*--replication-factor 3",
        "says why there can be one replica only",
    ),
]


def substitutions(bootstrap):
    """What is replaced before two texts are compared, in this order."""
    host, port = bootstrap.rsplit(":", 1)
    return [
        (rf"(?:{re.escape(host)}|localhost|/127\.0\.0\.1):{port}", "HOST:PORT"),
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
        (r"/tmp/\S+?/(\w+\.(?:json|csv))", r"\1"),
    ]


# The numbers of some tools are measurements, or count what happened to be batched together.
MEASURED = ("producer-perf", "consumer-perf", "metadata-quorum", "e2e-latency")


def normalised(command, text, bootstrap):
    for pattern, instead in substitutions(bootstrap):
        text = re.sub(pattern, instead, text)
    if command.tool in MEASURED:
        text = re.sub(r"(?<![\w.])\d+(?:[.,]\d+)*(?![\w])", "N", text)
    lines = [re.sub(r"[ \t]+", " ", line).strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not line.startswith("at ")]
    if command.tool in MEASURED:
        # How often progress is shown is a matter of speed.
        lines = list(dict.fromkeys(lines))
    return lines


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


def explanation(command):
    line = f"{command.tool} {' '.join(command.arguments)}".replace("{broker}", "1").strip()
    return next((why for pattern, why in EXPLAINED if re.search(pattern, line)), None)


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
            normalised(command, outcome.text, side.server.bootstrap)
            for side, outcome in zip(sides, outcomes)
        ]
        same = texts[0] == texts[1] and outcomes[0].status == outcomes[1].status
        rows.append((number, command, outcomes, texts, same))
        shown = "same" if same else explanation(command) or "DIFFERENT"
        line = f"{command.tool} {' '.join(command.arguments)}"
        print(f"{number:4} {line[:100]:100} {shown}", flush=True)


def write_raw(rows, sides):
    directory = RESULTS / "cli-tools"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    for index, side in enumerate(sides):
        with open(directory / f"{side.name}.txt", "w") as file:
            for number, command, outcomes, _, _ in rows:
                outcome = outcomes[index]
                text = outcome.text.replace(str(side.server.work), "WORK")
                file.write(
                    f"### {number} {command.tool} {' '.join(command.arguments)}\n"
                    f"{text.rstrip()}\n[exit {outcome.status}]\n\n"
                )
    with open(directory / "differences.txt", "w") as file:
        for number, command, outcomes, texts, same in rows:
            if same:
                continue
            file.write(f"### {number} {command.tool} {' '.join(command.arguments)}\n")
            if outcomes[0].status != outcomes[1].status:
                file.write(f"exit: Kafka {outcomes[0].status}, uringlog {outcomes[1].status}\n")
            lines = difflib.unified_diff(*texts, "kafka", "uringlog", lineterm="", n=0)
            file.write("\n".join(list(lines)[2:]) + "\n\n")


def write_table(rows, groups, versions):
    same = sum(row[4] for row in rows)
    named = sum(not row[4] and bool(explanation(row[1])) for row in rows)
    out = [
        "# Kafka's command line",
        "",
        f"`scripts/cli-tools` on {time.strftime('%Y-%m-%d')}, tools and broker of {versions}: the "
        "same commands, in this order, against Kafka and against uringlog. A cell tells the exit "
        "status and how many lines were printed; texts are compared without ids, addresses, times "
        "and rates. Everything that was printed is in [cli-tools/](cli-tools/), with the "
        "differences in [differences.txt](cli-tools/differences.txt).",
        "",
        f"{len(rows)} commands: {same} say the same, {named} differ for the reason that is named, "
        f"{len(rows) - same - named} differ. Groups of commands: {', '.join(groups)}.",
    ]
    out = [line if len(line) <= 120 else wrapped(line) for line in out]
    for group in groups:
        out += ["", f"## {group}", "", "| # | command | Kafka | uringlog | same? |", "|--:|---|---|---|---|"]
        for number, command, outcomes, _, is_same in (row for row in rows if row[1].group == group):
            line = f"{command.tool} {' '.join(command.arguments)}".replace("|", "\\|")
            verdict = "yes" if is_same else explanation(command) or "**no**"
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
