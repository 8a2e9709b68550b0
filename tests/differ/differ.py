#!/usr/bin/env python3
"""The same requests to a stock Kafka and to uringlog, all keys and versions, answers compared.

  differ.py --binary PATH [--out DIR]    asks both and writes results/differ.md
  differ.py --table DIR                  writes it from the answers that a run has left there

Leaves DIR/differ.jsonl (every answer of both). Differences that explained.json gives a reason for
are counted; any other is listed and makes the exit status 1. A rule there is a reason, the path of
the difference, and what else has to match: all but the reason are regular expressions for the whole.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "clients"))

import lib  # noqa: E402
import program  # noqa: E402
import server  # noqa: E402

RESULTS = lib.ROOT / "results" / "differ.md"
HEAD = """# The same requests to Kafka and to uringlog

Made by `scripts/differ`: {count} requests, every key and version of the table that Kafka 4.3.1 advertises (but for
what is not offered here), the same bytes to a stock broker and to uringlog (one shard, page-cache tier); Kafka's own
classes decode both answers. "A version too many" is asked as well. What differs between any two clusters (ids,
addresses, times, sizes of disks) is compared only for being there. Reasons stand in `tests/differ/explained.json`,
each with the fields that it is for.
"""
# Those that scripts/kafka gives its broker.
SETTINGS = (
    "offsets.topic.num.partitions=4",
    "transaction.state.log.num.partitions=4",
    "group.initial.rebalance.delay.ms=0",
)
SHOWN = 100


def rules():
    found = json.loads((HERE / "explained.json").read_text())
    for rule in found:
        if not {"path", "reason"} <= set(rule) or len(rule) < 3:
            sys.exit(f"explained.json: a rule wants a path, a reason and what it is about: {rule}")
    return [
        {key: re.compile(value) if key != "reason" else value for key, value in rule.items()}
        for rule in found
    ]


def reason(line, difference, explained):
    """Why this difference is as it should be, or None."""
    about = {"api": line["api"], "version": str(line["version"]), "case": line["case"]}
    about |= difference
    for rule in explained:
        if all(rule[key].fullmatch(str(about[key])) for key in rule if key != "reason"):
            return rule["reason"]
    return None


def compared(lines):
    """For each API a count of answers by how they compare; all reasons with their counts; what has
    none, as (line, difference)."""
    explained = rules()
    rows, reasons, unexplained = defaultdict(Counter), Counter(), []
    for line in lines:
        why = [(it, reason(line, it, explained)) for it in line["differences"]]
        reasons.update({text for _, text in why if text})
        missing = [(line, it) for it, text in why if text is None]
        unexplained += missing
        kind = "unexplained" if missing else "explained" if why else "same"
        rows[(line["key"], line["api"])][kind] += 1
    return rows, reasons, unexplained


def told(line, it):
    kafka, ours = (it[side][:SHOWN] or "nothing" for side in ("kafka", "uringlog"))
    about = f"{line['api']} {line['version']}, {line['case']}"
    return f"{about}: {it['path']} is {kafka} of Kafka, {ours} here"


def row(*cells):
    return "| " + " | ".join(map(str, cells)) + " |"


def write_table(lines):
    rows, reasons, unexplained = compared(lines)
    versions = defaultdict(set)
    for line in lines:
        versions[line["key"]].add(line["version"])
    out = [HEAD.format(count=f"{len(lines):,}")]
    out += [row("key", "API", "versions", "answers", "same", "differ as explained", "differ")]
    out += ["|---|---|---|---|---|---|---|"]
    kinds = ("same", "explained", "unexplained")
    for (key, name), counts in sorted(rows.items()):
        asked = f"{min(versions[key])}-{max(versions[key])}"
        out.append(row(key, name, asked, sum(counts.values()), *(counts[it] for it in kinds)))
    total = sum(rows.values(), Counter())
    out.append(row("", "all", "", sum(total.values()), *(total[it] for it in kinds)))
    out += ["", row("answers", "why they differ"), "|---|---|"]
    often = sorted(reasons.items(), key=lambda it: (-it[1], it))
    out += [row(count, text) for text, count in often]
    out += ["", "What has no reason:" if unexplained else "Nothing differs without a reason."]
    out += ["", *(f"- {told(*it)}" for it in unexplained)] if unexplained else []
    RESULTS.write_text("\n".join(out) + "\n")
    return unexplained


def run(work, binary, out):
    ours = server.Uringlog(work / "ours", binary, "auto", "page-cache", 1, SETTINGS)
    stock = server.StockKafka(work / "kafka", 1)
    (work / "program.json").write_text(json.dumps(program.CASES))
    try:
        stock.start()
        ours.start()
        subprocess.run(
            [lib.KAFKA, "java", HERE / "Differ.java", str(stock.port), str(ours.port),
             work / "program.json", out],
            check=True,
        )
    finally:
        ours.kill()
        stock.kill()


def main():
    parser = argparse.ArgumentParser(
        prog="scripts/differ",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--binary", type=Path, help="uringlog's binary")
    parser.add_argument("--out", type=Path, help="where the answers are left")
    parser.add_argument("--table", type=Path, metavar="DIR", help="asks nobody")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        out = (arguments.table or arguments.out or Path(work)) / "differ.jsonl"
        if not arguments.table:
            out.parent.mkdir(parents=True, exist_ok=True)
            run(Path(work), arguments.binary, out)
        lines = [json.loads(it) for it in out.read_text().splitlines()]
    unexplained = write_table(lines)
    for it in unexplained:
        print(f"unexplained: {told(*it)}", file=sys.stderr)
    failed = len({id(line) for line, _ in unexplained})
    print(f"{len(lines) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    lib.main(main)
