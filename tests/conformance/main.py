#!/usr/bin/env python3
"""Other people's test suites and tools against uringlog and against stock Kafka: the same command,
raw results side by side.

  scripts/conformance [SUITE ...]      runs them (all by default) and writes results/conformance.md
  scripts/conformance --table          only writes the table, from the results that are there

Each suite leaves results/conformance/SUITE.json: {"suite", "what", "date", "seconds",
"cases": [{"case", "kafka", "uringlog", "uringlog-2"}]}
(uringlog-2 has two shards), where an outcome is "pass", "fail", "skip" or a number of
records that were moved and compared, and what failed with its last lines in SUITE-BROKER.log (not
kept in the repository). Seconds are no measure of the brokers: builds and other work run beside.
The exit status is 1 when something passes against Kafka and not against uringlog, or is missing there.
CONFORMANCE_TESTS="0081 0103" runs those tests of librdkafka alone and keeps the other results.
"""

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE.parent / "clients"))
sys.path.insert(0, str(HERE))

import server  # noqa: E402
import suites  # noqa: E402

RESULTS = ROOT / "results" / "conformance"
# What librdkafka's tests want of a broker; `scripts/kafka` sets the rest for Kafka too.
BOTH = ("num.partitions=4",)
SETTINGS = (
    *BOTH,
    "offsets.topic.num.partitions=4",
    "transaction.state.log.num.partitions=4",
    "group.initial.rebalance.delay.ms=0",
)


# Shards of uringlog: two are two brokers to a client.
SHARDS = {"uringlog": 1, "uringlog-2": 2}
TITLES = {"kafka": "Kafka", "uringlog": "uringlog", "uringlog-2": "uringlog, 2 shards"}


def broker(suite, name, work, binary):
    more = getattr(suite, "SETTINGS", ())
    if name == "kafka":
        return server.StockKafka(work / "kafka", 1, (*BOTH, *more))
    # uringlog refuses a name that is given twice; in a file of Kafka's the last one counts.
    settings = tuple({it.split("=")[0]: it for it in (*SETTINGS, *more)}.values())
    return server.Uringlog(work / "uringlog", binary, "auto", "page-cache", SHARDS[name], settings)


def run(suite, binary, name):
    """Runs a suite against a broker and keeps what came out."""
    outcomes = {}
    with tempfile.TemporaryDirectory() as work:
        work = Path(work)
        target = broker(suite, name, work, binary)
        target.start()
        began = time.monotonic()
        try:
            with open(RESULTS / f"{suite.NAME}-{name}.log", "w") as out:
                for case, outcome in suite.run(target, work, out):
                    outcomes[case] = outcome
                    print(f"{suite.NAME} {name}: {case}: {outcome}", flush=True)
        finally:
            target.stop()
    save(suite, name, outcomes, round(time.monotonic() - began))


def save(suite, name, outcomes, seconds):
    """Puts a broker's outcomes beside the others'. Read only now: another run may have ended."""
    path = RESULTS / f"{suite.NAME}.json"
    before = json.loads(path.read_text()) if path.exists() else {"cases": [], "seconds": {}}
    cases = {it["case"]: it for it in before["cases"]}
    if not os.environ.get("CONFORMANCE_TESTS"):
        before["seconds"][name] = seconds
        for it in cases.values():
            it.pop(name, None)
    for case, outcome in outcomes.items():
        cases.setdefault(case, {"case": case})[name] = outcome
    found = {
        "suite": suite.NAME,
        "what": suite.WHAT,
        "date": date.today().isoformat(),
        "seconds": before["seconds"],
        "cases": [cases[it] for it in sorted(cases) if len(cases[it]) > 1],
    }
    path.write_text(json.dumps(found, indent=1) + "\n")


def is_good(outcome):
    return outcome == "pass" or isinstance(outcome, int)


def behind(case, columns):
    """The columns of uringlog that fail where Kafka passes; a case that is missing from a run has
    failed: the suite has ended before it, or has left it out."""
    if not is_good(case.get("kafka")):
        return []
    return [it for it in columns if not is_good(case.get(it))]


def columns_of(cases):
    """Those of uringlog that the suite was run for."""
    return [it for it in SHARDS if any(it in case for case in cases)]


def counts(cases, name):
    """Passed, failed and skipped, as text; a dash for what wasn't run."""
    outcomes = [it[name] for it in cases if name in it]
    passed = sum(map(is_good, outcomes))
    failed = outcomes.count("fail")
    return f"{passed} / {failed} / {len(outcomes) - passed - failed}" if outcomes else "not run"


# Why a case fails where Kafka with one node passes, when it is no fault to be mended there.
EXPLAINED = {
    ("0081-admin", "uringlog-2"):
        "it names the broker of each new partition; which shard a partition belongs to is decided "
        "by uringlog",
    ("0118-commit_rebalance", "uringlog-2"):
        "a race of the test, which Kafka loses too: with no delay before a group's first "
        "generation the consumer that is closed may be alone in it, and commits while the other "
        "joins; with the delay (full mode) it passes",
    ("test_admin_integration.py::test_alter_partition_reassignments", "uringlog-2"):
        "it asks for a replica on every broker; shards are brokers of one replica",
}


HEAD = """# Conformance

Other people's suites and tools against stock Apache Kafka 4.3.1 and against uringlog, by the same
commands on the same machine: `scripts/conformance`. Raw results stand in `results/conformance/`.
Most of what fails on both wants an authorizer, or other node ids; in librdkafka's they are 0109,
0115 and 0119, whose ACLs a stock broker refuses. Cells are passed / failed / skipped (by the suite
itself: mocks, security, other versions). What passes against Kafka and is missing from a run
against uringlog counts as what only Kafka passes.
"""

NOT_RUN = """
## What is not run

- librdkafka's tests that talk to no broker (0000, 0009, 0062, 0066, 0078, and whatever the runner
  counts as local or a mock), the endless one (8000), and 2.15's of share groups (0170 to 0190),
  which uringlog does not serve.
- librdkafka's full mode against two shards.
- What librdkafka's runner skips by itself: 0028 and 0047 (known issues of the client), 0092
  (message versions that Kafka 4 has removed), 0097, 0126, 0135 and 0142 (TLS, SASL), 0101
  (followers), 1000 (by hand)."""


def told(suite, case, name):
    why = EXPLAINED.get((case, name))
    return f"{suite}: {case} ({TITLES[name]}){': ' if why else ''}{why or ''}"


def row(cells):
    return "| " + " | ".join(map(str, cells)) + " |"


def rule(count):
    return "|" + "---|" * count


def table():
    found = [json.loads(it.read_text()) for it in sorted(RESULTS.glob("*.json"))]
    head = ["suite", "what", *TITLES.values(), "only Kafka passes", "date"]
    lines = [HEAD, row(head), rule(len(head))]
    worse = []
    for it in found:
        cases = it["cases"]
        here = [told(it["suite"], case["case"], name)
                for case in cases for name in behind(case, columns_of(cases))]
        worse += here
        cells = [counts(cases, name) for name in TITLES]
        lines.append(row([it["suite"], it["what"], *cells, len(here), it["date"]]))
    for suite in suites.ALL:
        if suite.NAME not in {it["suite"] for it in found}:
            lines.append(row([suite.NAME, suite.WHAT, *["not run"] * len(TITLES), "-", "-"]))
    lines += ["", "## What passes only against Kafka", ""]
    lines += [f"- {it}" for it in worse] or ["Nothing."]
    lines.append(NOT_RUN)
    for it in found:
        lines += ["", f"## {it['suite']}", "", row(["case", *TITLES.values()])]
        lines.append(rule(1 + len(TITLES)))
        for case in it["cases"]:
            lines.append(row([case["case"], *(case.get(name, "-") for name in TITLES)]))
    (ROOT / "results" / "conformance.md").write_text("\n".join(lines) + "\n")
    return worse


def main():
    # An ending from outside must still stop the broker.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = [it.NAME for it in suites.ALL]
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=", ".join(names))
    parser.add_argument("--binary", required=True)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--only", choices=tuple(TITLES), help="one column")
    arguments = parser.parse_args()
    unknown = set(arguments.suites) - set(names)
    if unknown:
        parser.error(f"no such suite: {', '.join(unknown)}; there are {', '.join(names)}")
    RESULTS.mkdir(parents=True, exist_ok=True)
    brokers = [arguments.only] if arguments.only else list(TITLES)
    if not arguments.table:
        for suite in suites.ALL:
            if not arguments.suites or suite.NAME in arguments.suites:
                for name in brokers:
                    run(suite, arguments.binary, name)
    worse = table()
    for it in worse:
        print(f"passes only against Kafka: {it}")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
