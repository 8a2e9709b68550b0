#!/usr/bin/env python3
"""More clients against stock Kafka and against uringlog: the same program, what it found side by
side.

  scripts/more-clients [CLIENT ...]     runs them (all by default), writes results/more-clients.md
  scripts/more-clients --only uringlog  against one of the two; the other's results are kept
  scripts/more-clients --table          only writes the table, from the results that are there

Each client has a new server of its own (uringlog with two shards) and leaves
results/more-clients/CLIENT.json. The exit status is 1 when something passes against Kafka and not
against uringlog.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import lib  # noqa: E402
import server  # noqa: E402
import tools  # noqa: E402

RESULTS = lib.ROOT / "results" / "more-clients"
BROKERS = ("kafka", "uringlog")
SHARDS = 2
CELL_S = 900
# As scripts/kafka starts Kafka.
SETTINGS = (
    "offsets.topic.num.partitions=4",
    "transaction.state.log.num.partitions=4",
    "group.initial.rebalance.delay.ms=0",
)
# Who, what it is, and what makes it ready to run and gives its command.
CLIENTS = {
    "streams": ("Kafka Streams, word count, exactly-once v2", tools.python("streams.py")),
    "kafkajs": ("kafkajs (node)", tools.node("kafkajs.js")),
    "sarama": ("sarama (Go)", tools.go("sarama")),
    "aiokafka": ("aiokafka (Python)", tools.python("aio.py")),
    "kafka-go": ("kafka-go (Go)", tools.go("kafkago")),
    "confluent-javascript": ("@confluentinc/kafka-javascript (node)", tools.node("confluent.js")),
    "kcat": ("kcat, group consumer", tools.python("kcat_groups.py")),
    "connect": ("Kafka Connect, file source and sink", tools.python("connect.py")),
    "mirror-maker": ("MirrorMaker 2, to a real Kafka", tools.python("mirror.py")),
    "rdkafka": ("rdkafka (Rust)", tools.rust("rdkafka")),
    "rskafka": ("rskafka (Rust)", tools.rust("rskafka")),
    "platformatic": ("@platformatic/kafka (node)", tools.node("platformatic.mjs")),
}


def broker(name, work, binary):
    if name == "kafka":
        return server.StockKafka(work / "kafka", 1)
    return server.Uringlog(work / "uringlog", binary, "auto", "page-cache", SHARDS, SETTINGS)


def run_program(command, log):
    """Its exit status; 124 when it took too long. Its whole process group is ended then."""
    with open(log, "wb") as out:
        process = subprocess.Popen(
            command, stdout=out, stderr=out, stdin=subprocess.DEVNULL, start_new_session=True
        )
        try:
            return process.wait(CELL_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return 124


def outcomes(text):
    """Checks, records that were moved and compared, and the client's own version."""
    found, moved, version = {}, 0, ""
    for line in text.splitlines():
        kind, *words = line.split("\t")
        if kind == "ok" and words:
            found.setdefault(words[0], "pass")
        elif kind in ("FAIL", "none") and words:
            found[words[0]] = f"{'fail' if kind == 'FAIL' else 'none'}: {' '.join(words[1:])}"
        elif kind == "moved":
            moved += int(words[0])
        elif kind == "version":
            version = words[0]
    return found, moved, version


def run(client, command, name, arguments):
    with tempfile.TemporaryDirectory(prefix="uringlog-more-", dir=arguments.work) as work:
        target = broker(name, Path(work), arguments.binary)
        log = RESULTS / f"{client}-{name}.log"
        target.start()
        began = time.monotonic()
        try:
            status = run_program([*command, target.bootstrap, str(arguments.records)], log)
            seconds = round(time.monotonic() - began)
            ended, _ = target.stop()
        finally:
            target.kill()
        text = log.read_text(errors="replace")
        found, moved, version = outcomes(text)
        if status not in (0, 1) or not found:
            found["the program ran to its end"] = f"fail: exit status {status}"
        if ended != 0:
            found["the server's exit status after SIGTERM"] = f"fail: {ended}"
        failed = [it for it in found.values() if it.startswith("fail")]
        if not failed:
            log.unlink()
        elif hasattr(target, "log"):
            # What the server said, behind what the client said.
            with open(log, "a") as both:
                both.write(f"\n---- server\n{target.log.read_text(errors='replace')[-20000:]}")
    print(f"{client} {name}: {len(found)} checks, {len(failed)} failed, {seconds} s", flush=True)
    for check, outcome in found.items():
        if outcome.startswith("fail"):
            print(f"  {check}: {outcome}", flush=True)
    return {"checks": found, "moved": moved, "version": version, "seconds": seconds}


def run_client(client, arguments):
    path = RESULTS / f"{client}.json"
    kept = json.loads(path.read_text()) if path.exists() else {}
    command = CLIENTS[client][1]()
    for name in arguments.brokers:
        kept[name] = run(client, command, name, arguments)
        kept[name]["date"] = date.today().isoformat()
        path.write_text(json.dumps(kept, indent=1) + "\n")


def passes(checks):
    return sum(it == "pass" for it in checks.values())


def worse(found):
    """What passes with Kafka and not with uringlog."""
    ours = found.get("uringlog", {}).get("checks", {})
    theirs = found.get("kafka", {}).get("checks", {})
    return [it for it, outcome in theirs.items() if outcome == "pass" and ours.get(it) != "pass"]


def cell(outcome):
    return re.sub(r"\|", "/", outcome or "-")[:160]


def table():
    all_found = {
        client: json.loads((RESULTS / f"{client}.json").read_text())
        for client in CLIENTS
        if (RESULTS / f"{client}.json").exists()
    }
    lines = [
        "# More clients",
        "",
        "Made by `scripts/more-clients`: the same program against stock Apache Kafka 4.3.1 (one",
        "node) and against uringlog (two shards). A cell holds the checks that passed, those that",
        "were made, the records that were moved and compared, and the seconds (on a machine that",
        "does other work: no measure of speed). `none` stands for what a client does not have.",
        "",
        "| client | version | Kafka | uringlog | only Kafka passes | date |",
        "|---|---|---|---|---|---|",
    ]
    behind = 0
    for client, found in all_found.items():
        cells = []
        for name in BROKERS:
            it = found.get(name)
            made = sum(not o.startswith("none") for o in it["checks"].values()) if it else 0
            cells.append(
                f"{passes(it['checks'])}/{made}, {it['moved']:,} records, {it['seconds']} s"
                if it
                else "-"
            )
        some = found.get("uringlog") or found.get("kafka")
        behind += len(worse(found))
        lines.append(
            f"| {CLIENTS[client][0]} | {some['version']} | {cells[0]} | {cells[1]} | "
            f"{len(worse(found))} | {some['date']} |"
        )
    for client, found in all_found.items():
        lines += ["", f"## {CLIENTS[client][0]}", ""]
        lines += ["| check | Kafka | uringlog |", "|---|---|---|"]
        columns = [found.get(name, {}).get("checks", {}) for name in BROKERS]
        for check in dict.fromkeys([*columns[0], *columns[1]]):
            row = " | ".join(cell(column.get(check)) for column in columns)
            lines.append(f"| {check} | {row} |")
    (lib.ROOT / "results" / "more-clients.md").write_text("\n".join(lines) + "\n")
    return behind


def main():
    parser = argparse.ArgumentParser(
        prog="scripts/more-clients",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("clients", nargs="*", metavar="CLIENT", help=", ".join(CLIENTS))
    parser.add_argument("--binary", required=True, type=Path)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--only", choices=BROKERS, help="one of the two")
    parser.add_argument("--records", type=int, default=100_000, help="per client at least (100000)")
    parser.add_argument("--work", help="where directories are made")
    arguments = parser.parse_args()
    unknown = set(arguments.clients) - set(CLIENTS)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(CLIENTS)}")
    arguments.brokers = [arguments.only] if arguments.only else BROKERS
    RESULTS.mkdir(parents=True, exist_ok=True)
    if not arguments.table:
        for client in arguments.clients or CLIENTS:
            run_client(client, arguments)
    return 1 if table() else 0


if __name__ == "__main__":
    sys.exit(main())
