#!/usr/bin/env python3
"""Real clients against the real server: clients x engines x durability tiers x shard counts.

Each cell starts a server of its own on a new directory, runs one client script against it, stops
the server with SIGTERM (exit status 0 is required), and lets kafka-dump-log read every segment
and index of the directory. Auto-creation of topics is off in the cells with the plain-file
engine, so both answers are checked.
"""

import argparse
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import namedtuple
from pathlib import Path

import dump
import lib
import server

HERE = Path(__file__).resolve().parent
ENGINES, TIERS, SHARDS = ("uring", "plain-file"), ("device", "page-cache"), (1, 2)
# What a cell runs: script and arguments.
CLIENTS = {
    "confluent": ["confluent.py"],
    "kafka-python": ["kafka_python.py"],
    "kcat": ["kcat.py"],
    "java": ["java.py"],
    "flights": ["flights.py", "--producer", "confluent", "--consumer", "kafka-python"],
    "flights-back": ["flights.py", "--producer", "kafka-python", "--consumer", "confluent"],
    "kills": ["kills.py"],
    "groups": ["groups.py"],
    "transactions": ["transactions.py"],
    "java-transactions": ["java_transactions.py"],
    "takeover": ["kafka_takes_over.py"],
    "command-line": ["command_line.py"],
    "bad-input": ["bad_input.py"],
    "topic-changes": ["topic_changes.py"],
}
# Ten thousand groups, each of which would wait for more members; transactions of the dead.
SETTINGS = {
    "bad-input": [
        "group.initial.rebalance.delay.ms=0",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms=1000",
    ]
}
Cell = namedtuple("Cell", "client engine tier shards")
# Every client, engine, tier and shard count, and every pair of the last three, at least once.
QUICK = (
    Cell("confluent", "uring", "device", 2),
    Cell("kafka-python", "plain-file", "page-cache", 2),
    Cell("kcat", "uring", "page-cache", 1),
    Cell("java", "plain-file", "device", 1),
    Cell("flights", "uring", "device", 2),
    Cell("flights-back", "plain-file", "page-cache", 1),
    Cell("kills", "uring", "device", 2),
    Cell("groups", "uring", "device", 2),
    Cell("transactions", "uring", "device", 2),
    Cell("java-transactions", "plain-file", "page-cache", 2),
    Cell("takeover", "uring", "device", 2),
    Cell("command-line", "uring", "device", 2),
    Cell("bad-input", "uring", "page-cache", 2),
    Cell("topic-changes", "uring", "device", 2),
)
CELL_S = 1200


def full():
    cells = [Cell(*cell) for cell in itertools.product(CLIENTS, ENGINES, TIERS, SHARDS)]
    return [cell for cell in cells if cell.client != "takeover" or cell.shards == 2]


def name_of(cell):
    shards = "1 shard" if cell.shards == 1 else f"{cell.shards} shards"
    return f"{cell.client} {cell.engine} {cell.tier} {shards}"


def build_server(cell, work, arguments):
    auto_create = "auto.create.topics.enable=" + (
        "false" if cell.engine == "plain-file" else "true"
    )
    if cell.engine == "stock":
        return server.StockKafka(work / "server", cell.shards, arguments.set)
    return server.Uringlog(
        work / "server",
        arguments.binary,
        cell.engine,
        cell.tier,
        cell.shards,
        [auto_create, *SETTINGS.get(cell.client, []), *arguments.set],
    )


def client_command(cell, arguments, under_test):
    script, *more = CLIENTS[cell.client]
    command = [sys.executable, str(HERE / script), *more, "--records", str(arguments.records)]
    if cell.client == "takeover":
        origin = (
            ["--stock"]
            if cell.engine == "stock"
            else [
                "--binary",
                str(arguments.binary),
                "--engine",
                cell.engine,
                "--durability",
                cell.tier,
            ]
        )
        return command + origin
    command += ["--bootstrap", under_test.bootstrap]
    if cell.client == "command-line":
        command += ["--binary", str(arguments.binary)]
    if cell.client == "kills":
        command += ["--midway", under_test.restart_command, "--kills", str(arguments.kills)]
    if cell.client == "groups":
        command += ["--midway", under_test.restart_command]
    if cell.client.endswith("transactions") and cell.engine != "stock":
        command += ["--midway", under_test.restart_command]
    if cell.client.startswith("flights"):
        command += ["--midway", under_test.restart_command]
        command += ["--at-least-once"] if cell.engine == "stock" else []
    return command


def run_client(command, log):
    """Its exit status; 124 when it took too long and was ended."""
    with open(log, "wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL)
        try:
            return process.wait(CELL_S)
        except subprocess.TimeoutExpired:
            process.terminate()
            try:
                process.wait(server.STOP_S * 3)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            return 124


def run_cell(cell, work, arguments):
    """True when everything in the cell held; prints why otherwise."""
    work.mkdir(parents=True)
    report = lib.Report(name_of(cell))
    log = work / "client.log"
    if cell.client == "takeover":
        command = client_command(cell, arguments, None) + ["--work", str(work)]
        report.equal("the client's exit status", run_client(command, log), 0)
        return conclude(report, log, None)
    under_test = build_server(cell, work, arguments)
    try:
        under_test.start()
        report.equal(
            "the client's exit status",
            run_client(client_command(cell, arguments, under_test), log),
            0,
        )
        status, seconds = under_test.stop()
        report.equal("the server's exit status after SIGTERM", status, 0)
        report.step(f"orderly stop in {seconds:.2f} s")
        for data in getattr(under_test, "dirs", None) or [under_test.data]:
            dump.check(report, data / "data" if cell.engine == "stock" else data)
    except (RuntimeError, TimeoutError, OSError, subprocess.CalledProcessError) as error:
        report.check("the cell ran", False, error)
    finally:
        under_test.kill()
    return conclude(report, log, getattr(under_test, "log", None))


def conclude(report, log, server_log):
    if report.failed:
        for path in filter(None, (log, server_log)):
            if path.exists():
                print(f"---- the end of {path}\n{path.read_text(errors='replace')[-4000:]}")
    else:
        print(log.read_text(errors="replace").strip().splitlines()[-1])
    return not report.failed


def choose(arguments):
    if arguments.stock:
        # Without replicas Kafka's tier promises nothing after a kill in the middle of a write.
        others = [client for client in CLIENTS if client != "kills"]
        return [Cell(client, "stock", "page-cache", 2) for client in arguments.clients or others]
    cells = full() if arguments.full else list(QUICK)
    for field, wanted in (
        ("client", arguments.clients),
        ("engine", arguments.engines),
        ("tier", arguments.tiers),
        ("shards", arguments.shards),
    ):
        cells = [cell for cell in cells if not wanted or getattr(cell, field) in wanted]
    return cells


def default_binary():
    return Path(os.environ.get("CARGO_TARGET_DIR", lib.ROOT / "target")) / "release" / "uringlog"


def parse():
    parser = argparse.ArgumentParser(
        prog="scripts/matrix",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="a covering subset (the default)")
    parser.add_argument("--full", action="store_true", help="every cell")
    parser.add_argument(
        "--stock", action="store_true", help="two stock Kafka brokers instead of uringlog"
    )
    parser.add_argument("--list", action="store_true", help="print the cells and end")
    parser.add_argument("--binary", type=Path, default=default_binary(), help="uringlog's binary")
    parser.add_argument("--records", type=int, default=100_000, help="records per cell at least")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of the server"
    )
    parser.add_argument("--kills", type=int, default=20, help="kills in the cell of that name (20)")
    parser.add_argument("--clients", nargs="+", choices=CLIENTS, help="only these")
    parser.add_argument("--engines", nargs="+", choices=ENGINES, help="only these")
    parser.add_argument("--tiers", nargs="+", choices=TIERS, help="only these")
    parser.add_argument("--shards", nargs="+", type=int, choices=SHARDS, help="only these")
    parser.add_argument(
        "--work", help="where directories are made (the system's temporary directory)"
    )
    parser.add_argument("--keep", action="store_true", help="keep directories of passed cells too")
    return parser.parse_args()


def main():
    arguments = parse()
    cells = choose(arguments)
    if arguments.list:
        print("\n".join(map(name_of, cells)))
        return 0
    needs_binary = any(it.engine != "stock" or it.client == "command-line" for it in cells)
    if needs_binary and not os.access(arguments.binary, os.X_OK):
        print(
            f"{arguments.binary} is missing: run `cargo build --release`, or name one with --binary"
        )
        return 2
    work = Path(tempfile.mkdtemp(prefix="uringlog-matrix-", dir=arguments.work))
    results = []
    for cell in cells:
        print(f"== {name_of(cell)}", flush=True)
        folder = work / name_of(cell).replace(" ", "-")
        started = time.monotonic()
        passed = run_cell(cell, folder, arguments)
        results.append((cell, passed, (time.monotonic() - started) / 60))
        if passed and not arguments.keep:
            shutil.rmtree(folder)
    return summary(results, work)


def summary(results, work):
    print("\nminutes  cell")
    for cell, passed, minutes in results:
        print(f"{minutes:7.1f}  {name_of(cell)}{'' if passed else '  FAILED'}")
    print(f"{sum(minutes for _, _, minutes in results):7.1f}  in all")
    failed = sum(not passed for _, passed, _ in results)
    if failed or any(work.iterdir()):
        print(f"kept: {work}")
    else:
        work.rmdir()
    print(f"{len(results) - failed} passed, {failed} failed")
    return 1 if failed or not results else 0


if __name__ == "__main__":
    sys.exit(main())
