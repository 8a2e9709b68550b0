#!/usr/bin/env python3
"""The same requests to a stock Kafka and to uringlog, all keys and versions, answers compared.

  differ.py --binary PATH [--out DIR]

Leaves DIR/differ.jsonl (every answer of both) and prints a table in Markdown. Differences that
explained.json gives a reason for are counted; any other makes the exit status 1.
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

EXPLAINED = [
    {key: re.compile(value) if key != "reason" else value for key, value in rule.items()}
    for rule in json.loads((HERE / "explained.json").read_text())
]


def reason(line, difference):
    """Why this difference is as it should be, or None."""
    for rule in EXPLAINED:
        about = {"api": line["api"], "version": str(line["version"]), "case": line["case"]}
        about |= difference
        if all(rule[key].fullmatch(str(about[key])) for key in rule if key != "reason"):
            return rule["reason"]
    return None


def table(lines):
    """Rows: an API, the versions that were asked, answers that are the same, explained, not."""
    rows, unexplained, reasons = defaultdict(Counter), [], Counter()
    versions = defaultdict(set)
    for line in lines:
        api = (line["key"], line["api"])
        versions[api].add(line["version"])
        why = [(it, reason(line, it)) for it in line["differences"]]
        reasons.update({text for _, text in why if text})
        missing = [it for it, text in why if text is None]
        unexplained += [(line, it) for it in missing]
        kind = "unexplained" if missing else "explained" if why else "same"
        rows[api][kind] += 1
    print("| key | API | versions | answers | same | differ as explained | differ |")
    print("|---|---|---|---|---|---|---|")
    for (key, name), counts in sorted(rows.items()):
        asked = versions[(key, name)]
        print(
            f"| {key} | {name} | {min(asked)}-{max(asked)} | {sum(counts.values())} "
            f"| {counts['same']} | {counts['explained']} | {counts['unexplained']} |"
        )
    total = sum(rows.values(), Counter())
    print(
        f"| | all | | {sum(total.values())} | {total['same']} | {total['explained']} "
        f"| {total['unexplained']} |"
    )
    print("\n| answers | why they differ |\n|---|---|")
    for text, count in reasons.most_common():
        print(f"| {count} | {text} |")
    return unexplained


def run(work, binary, out):
    ours = server.Uringlog(work / "ours", binary, "auto", "page-cache", 1, SETTINGS)
    stock = server.StockKafka(work / "kafka", 1)
    (work / "program.json").write_text(json.dumps(program.CASES))
    stock.start()
    ours.start()
    try:
        subprocess.run(
            [lib.KAFKA, "java", HERE / "Differ.java", str(stock.port), str(ours.port),
             work / "program.json", out],
            check=True,
        )
    finally:
        ours.stop()
        stock.stop()


# Those that scripts/kafka gives its broker.
SETTINGS = (
    "offsets.topic.num.partitions=4",
    "transaction.state.log.num.partitions=4",
    "group.initial.rebalance.delay.ms=0",
)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", required=True)
    parser.add_argument("--out", default=None)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        out = Path(arguments.out or work) / "differ.jsonl"
        out.parent.mkdir(parents=True, exist_ok=True)
        run(Path(work), arguments.binary, out)
        lines = [json.loads(it) for it in out.read_text().splitlines()]
    unexplained = table(lines)
    for line, it in unexplained:
        print(
            f"unexplained: {line['api']} {line['version']}, {line['case']}: {it['path']} is "
            f"{it['kafka'][:200]} of Kafka, {it['uringlog'][:200]} here",
            file=sys.stderr,
        )
    print(f"\n{len(lines) - len({id(line) for line, _ in unexplained})} passed, "
          f"{len({id(line) for line, _ in unexplained})} failed")
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
