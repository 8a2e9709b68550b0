"""Makes archives of directories that Apache Kafka writes, like those of tests/golden/kafka.

A case is a folder: case.toml (the broker's settings, each step with its time), copies of the log
directory at several moments, and in dump/ what Kafka's own tools say of them. Every case is packed
to OUT/NAME.tar.zst. The bytes differ from run to run (clocks, ids of topics); another --seed makes
other sizes, counts, timestamps, limits and places of damage.

    scripts/golden --list
    scripts/golden --out DIR                     every case
    scripts/golden --out DIR --seed 7 codecs retention
    PROGRAMS_OUT=FOLDER PROPTEST_CASES=50 cargo test --test programs
    scripts/golden --out DIR --programs FOLDER   those programs as a case of its own
    GOLDEN_DIR=DIR cargo test --test golden      repeats them in uringlog and compares
    GOLDEN_DIR=DIR cargo test --test dump        prints them as Kafka does

Needs Java with its compiler, Maven, tar and zstd (scripts/client-deps); every case takes between
ten seconds and some minutes.
"""

import argparse
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import plain
import producers
import programs
import standing
import unclean
import wide
from case import HERE, KAFKA, Broker, Case, Client, java, libraries

PACKED = "tar -C '{out}' --sort=name --owner=0 --group=0 --sparse -cf - '{name}'"
# Cases with a broker each.
ALONE = {**standing.CASES, **producers.CASES, **wide.CASES}
# As the archives of the repository: a window of 32 MiB. Only whole archives get their name.
ZSTD = "zstd -q -{level} --long=25 -f -o '{to}.part' && mv '{to}.part' '{to}'"


class Making:
    """Where, with which numbers, on which port."""

    def __init__(self, arguments, work):
        self.seed, self.port, self.level = arguments.seed, arguments.port, arguments.level
        self.work, self.out = Path(work), Path(work) / "cases"
        self.classes = self.work / "classes"

    def chance(self, name):
        return random.Random(f"{self.seed} {name}")


def known():
    return [*plain.CASES, *ALONE, "unclean", *(f"unclean-{it[0]}" for it in unclean.VARIANTS)]


def make_plain(making, names):
    """All of them on one broker, one after the other."""
    broker = Broker(making.work / "b-plain", making.port, plain.BROKER)
    made = []
    broker.start()
    try:
        client = Client(broker, making.classes)
        for name in names:
            client.case = Case(making.out, name, described(plain.CASES[name]), broker)
            made.append(client.case)
            plain.CASES[name](client.case, client, making.chance(name))
        client.close()
        broker.stop()
    finally:
        if broker.is_up():
            broker.kill()
    for case in made:
        case.step("stop")
        case.copy("dir", "stopped", "clean stop")
        case.finish()
    return made


def make_programs(making, folder):
    found = programs.read(folder)
    if not found:
        raise RuntimeError(f"no program in {folder}")
    return make_with(making, "programs", programs.BROKER, lambda *it: programs.run(*it, found))


def make_alone(making, name):
    run, settings = ALONE[name]
    what = described(run)
    chance = making.chance(name)
    return make_with(making, name, settings, lambda *it: run(*it, chance), what)


def make_with(making, name, settings, run, what="programs of random parameters"):
    """One case on a broker of its own."""
    broker = Broker(making.work / f"b-{name}", making.port, settings)
    case = Case(making.out, name, what, broker)
    try:
        case.start()
        client = Client(broker, making.classes)
        client.case = case
        run(case, client)
        client.close()
    finally:
        if broker.is_up():
            broker.kill()
    case.finish()
    return [case]


def described(function):
    return " ".join((function.__doc__ or function.__name__.replace("_", " ")).split()).rstrip(".")


def compile_java(making):
    making.classes.mkdir(parents=True)
    sources = [str(path) for path in HERE.glob("*.java")]
    command = ["javac", "-nowarn", "-cp", f"{libraries()}/*", "-d", str(making.classes), *sources]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)


def finish(making, cases, out):
    """What Kafka's dump tool prints of the copies, then the archives."""
    folders = [str(case.folder) for case in cases]
    command = [KAFKA, "java", *java(making.classes), "Dump", *folders]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    for case in cases:
        pack = PACKED.format(out=making.out, name=case.name)
        pack += " | " + ZSTD.format(to=out / f"{case.name}.tar.zst", level=making.level)
        subprocess.run(["bash", "-o", "pipefail", "-c", pack], check=True)
        size = (out / f"{case.name}.tar.zst").stat().st_size
        print(f"{case.name}: {size:,} bytes", flush=True)


def make(making, wanted, arguments):
    out, jobs = arguments.out, []
    if arguments.programs:
        wanted = {"programs"}
        jobs.append(("programs", lambda: make_programs(making, arguments.programs)))
    names = [name for name in plain.CASES if name in wanted]
    if names:
        jobs.append((" ".join(names), lambda: make_plain(making, names)))
    for name in ALONE:
        if name in wanted:
            jobs.append((name, lambda name=name: make_alone(making, name)))
    if any(name.startswith("unclean") for name in wanted):
        jobs.append(("unclean", lambda: unclean.plain(making)))
        if wanted - {"unclean"}:
            jobs.append(("unclean-*", lambda: unclean.variants(making, wanted)))
    failed = []
    for name, job in jobs:
        began = time.monotonic()
        try:
            cases = [case for case in job() if case.name in wanted]
            finish(making, cases, out)
        except Exception as error:  # noqa: BLE001 - the other cases are still made
            failed.append(name)
            print(f"FAILED {name}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        print(f"  {name}: {time.monotonic() - began:.0f} s", flush=True)
    return failed


def main():
    parser = argparse.ArgumentParser(
        prog="scripts/golden",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("cases", nargs="*", metavar="CASE", help="all of them when none is named")
    parser.add_argument("--out", type=Path, help="where the archives go")
    parser.add_argument("--seed", default="1", help="makes other numbers (1)")
    parser.add_argument("--port", type=int, default=23_470, help="the broker's port (23470)")
    parser.add_argument("--level", type=int, default=19, help="of zstd, which is slow (19)")
    parser.add_argument("--programs", type=Path, metavar="FOLDER", help="run these instead")
    parser.add_argument("--keep", action="store_true", help="keep the brokers' folders")
    parser.add_argument("--list", action="store_true", help="name the cases and end")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(known()))
        return 0
    unknown = set(arguments.cases) - set(known())
    if unknown or not arguments.out:
        parser.error(f"no such case: {', '.join(sorted(unknown))}" if unknown else "--out is missing")
    arguments.out.mkdir(parents=True, exist_ok=True)
    work = tempfile.mkdtemp(prefix="uringlog-golden-")
    making = Making(arguments, work)
    compile_java(making)
    failed = make(making, set(arguments.cases or known()), arguments)
    if failed or arguments.keep:
        print(f"kept: {work}")
    else:
        shutil.rmtree(work)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
