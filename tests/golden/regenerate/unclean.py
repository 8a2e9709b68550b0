"""A killed broker's directory, recovered; and the same directory after damage of many kinds."""

import random
import re
import shutil
import time
from pathlib import Path

from case import Broker, Case, Client, copy, now_ms
from damages import NO_START, POINTS, VARIANTS, Damages
from plain import MIB
from producers import SOON, UNVERIFIED

SETTINGS = {**UNVERIFIED, **SOON}
CONFIG = {"segment.bytes": str(MIB), "retention.ms": "-1"}
LEADS = r"Leader u-\d+ .* starts at leader epoch"


def plain(making):
    """The case itself: killed, recovered, stopped; its folders are what the variants start from."""
    chance = making.chance("unclean")
    broker = Broker(making.work / "b-unclean", making.port, SETTINGS)
    case = Case(making.out, "unclean", "kill -9, recovery, clean stop", broker)
    try:
        case.start()
        client = Client(broker, making.classes)
        client.case = case
        case.is_first_only = True
        client.topic("u", partitions(), **{"segment_bytes": MIB, "retention_ms": -1})
        fill(case, client, chance)
        time.sleep(2)
        case.kill()
        keep(broker, making.work / "killed")
        case.copy("dir-1-killed", "killed", "kill -9")
        case.start()
        broker.wait_for(LEADS, partitions())
        time.sleep(1)
        case.copy("dir-2-recovered", "running", "started after the kill")
        case.stop()
        keep(broker, making.work / "clean")
        case.copy("dir-3-stopped", "stopped", "clean stop")
        client.close()
    finally:
        if broker.is_up():
            broker.kill()
    case.finish()
    return [case]


def fill(case, client, chance):
    sequences, stamp, rounds = {}, now_ms() - 600_000, 0
    while case.broker.log_bytes("u-0") < 2.4 * MIB:
        rounds += 1
        pid, count = chance.choice((1, 2, 3, 77)), chance.randrange(6, 50)
        sequence = sequences.get(pid, 0)
        is_transaction = {"txn": True} if pid == 77 else {}
        options = {"n": count, "size": chance.randrange(150, 850), "ts": stamp + rounds * 50}
        who = {"pid": pid, "epoch": 0, "seq": sequence, **is_transaction}
        client.batch("u", **options, **who, step=1, seed=rounds)
        sequences[pid] = sequence + count
        if pid == 77:
            client.act("marker", "u", 77, 0, 0, chance.choice(("commit", "abort")))


def keep(broker, to):
    shutil.rmtree(to, ignore_errors=True)
    copy(broker.folder, to)
    for path in [*to.glob("server.log*"), to / "pid"]:
        path.unlink(missing_ok=True)


def groups(wanted=None):
    """Variants by the state of the root: one broker each."""
    found = {}
    for variant in VARIANTS:
        if wanted is None or f"unclean-{variant[0]}" in wanted:
            found.setdefault(variant[1:3], []).append(variant)
    return found


def partitions():
    """Each variant of a group is a partition of its own, which the cluster has to know."""
    return max(map(len, groups().values()))


def variants(making, wanted):
    made = []
    for (state, root), members in groups(wanted).items():
        made += group(making, state, root, members)
    return made


def group(making, state, root, members):
    work = making.work / "b-unclean"
    shutil.rmtree(work)
    copy(making.work / state, work)
    broker = Broker(work, making.port, SETTINGS)
    original = making.work / "original"
    shutil.rmtree(original, ignore_errors=True)
    shutil.move(broker.data / "u-0", original)
    bases = sorted(int(path.stem) for path in original.glob("*.log"))
    cases = []
    for number, (name, _, _, damage) in enumerate(members):
        what = f"damage to what case 'unclean' left {state}"
        case = Case(making.out, f"unclean-{name}", what, broker)
        case.topics.append("u")
        case.step("create-topic", topic="u", config=CONFIG)
        own = case.folder / "dir-1-damaged"
        own.mkdir()
        copy(original, own / "u-0")
        for path in (making.work / state / "data").iterdir():
            if path.is_file() and path.name not in (".lock", "bootstrap.checkpoint"):
                shutil.copy2(path, own)
        one_line(own, "u 0")
        damages = Damages(random.Random(f"{making.seed} {name}"), bases)
        case.step("damage", what=damage(damages, own))
        shutil.rmtree(broker.data / f"u-{number}", ignore_errors=True)
        copy(own / "u-0", broker.data / f"u-{number}")
        case.copied("dir-1-damaged", state, "damaged by hand", now_ms())
        cases.append(case)
    lines_for_all(broker.data, cases)
    if root:
        (broker.data / POINTS).unlink()
        text = cases[0].folder / "dir-1-damaged" / POINTS
        if text.exists():
            shutil.copy2(text, broker.data)
    run(broker, cases, root not in NO_START)
    return cases


def run(broker, cases, starts):
    try:
        started = broker.start(check=False) == 0
        if started != starts:
            raise RuntimeError(f"the broker {'started' if started else 'did not start'}")
        at_ms = now_ms()
        if starts:
            broker.wait_for(LEADS, partitions())
            time.sleep(2)
            at_ms = now_ms()
            for number, case in enumerate(cases):
                case.step("start", at_ms=at_ms)
                copy_one(case, "dir-2-started", "running", "started, nothing appended", number)
            broker.stop()
            at_ms = now_ms()
        for number, case in enumerate(cases):
            case.step("stop" if starts else "start", at_ms=at_ms)
            if starts:
                copy_one(case, "dir-3-stopped", "stopped", "clean stop", number)
            case.finish(lambda line, number=number: re.sub(rf"\bu-{number}\b", "u-0", line))
    finally:
        if broker.is_up():
            broker.kill()


def copy_one(case, name, state, event, number):
    to, data, at_ms = case.folder / name, case.broker.data, now_ms()
    to.mkdir()
    copy(data / f"u-{number}", to / "u-0")
    for path in data.iterdir():
        if path.is_file() and path.name not in (".lock", "bootstrap.checkpoint"):
            shutil.copy2(path, to)
    one_line(to, f"u {number}")
    case.copied(name, state, event, at_ms)


def one_line(folder, partition):
    """Leaves only the line of a partition in the checkpoints, as `u 0`."""
    for path in Path(folder).glob("*-checkpoint"):
        lines = [it for it in path.read_text().splitlines()[2:] if it.startswith(f"{partition} ")]
        lines = [f"u 0 {line.split()[-1]}" for line in lines]
        path.write_text("\n".join(["0", str(len(lines)), *lines]) + "\n")


def lines_for_all(data, cases):
    """Every partition has its case's line in the checkpoints."""
    for path in Path(data).glob("*-checkpoint"):
        lines = []
        for number, case in enumerate(cases):
            own = case.folder / "dir-1-damaged" / path.name
            own = own.read_text().splitlines()[2:] if own.exists() else []
            lines += [f"u {number} {it.split()[-1]}" for it in own if it.startswith("u 0 ")]
        path.write_text("\n".join(["0", str(len(lines)), *lines]) + "\n")
