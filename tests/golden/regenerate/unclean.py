"""A killed broker's directory, recovered; and the same directory after damage of many kinds."""

import random
import re
import shutil
import struct
import time
from pathlib import Path

from case import Broker, Case, Client, copy, now_ms
from plain import MIB
from producers import SOON, UNVERIFIED

SETTINGS = {**UNVERIFIED, **SOON}
CONFIG = {"segment.bytes": str(MIB), "retention.ms": "-1"}
# Of which each takes the place of a damaged one; the case itself has the first.
PARTITIONS = 30
LEADS = r"Leader u-\d+ .* starts at leader epoch"
POINTS = "recovery-point-offset-checkpoint"


def batches(path):
    """(position, size) of each batch of a `.log`."""
    data, at, found = path.read_bytes(), 0, []
    while at + 61 <= len(data):
        length = struct.unpack_from(">i", data, at + 8)[0]
        if length < 49 or len(data) < at + 12 + length:
            break
        found.append((at, 12 + length))
        at += 12 + length
    return found


class Damages:
    """What can be done to a partition's folder: each method damages, and says how."""

    def __init__(self, chance, bases):
        self.chance = chance
        self.first, *_, self.sealed, self.active = bases

    def file(self, root, base, kind):
        return root / "u-0" / f"{base:020}.{kind}"

    def flip(self, path, at):
        data = bytearray(path.read_bytes())
        data[at] ^= 0x40
        path.write_bytes(data)
        return f"{path.name}: byte {at} flipped"

    def flip_batch(self, root, base, part):
        path = self.file(root, base, "log")
        found = batches(path)
        position, size = found[min(int(len(found) * part), len(found) - 1)]
        return self.flip(path, position + 61 + self.chance.randrange(size - 61))

    def cut(self, root):
        path = self.file(root, self.active, "log")
        data = path.read_bytes()
        cut = self.chance.randrange(1, batches(path)[-1][1])
        path.write_bytes(data[:-cut])
        return f"{path.name}: last {cut} bytes cut off"

    def tail(self, root, tail):
        path = self.file(root, self.active, "log")
        path.write_bytes(path.read_bytes() + tail)
        return f"{path.name}: {len(tail)} bytes appended"

    def garbage_times(self, root, base):
        path = self.file(root, base, "timeindex")
        data = path.read_bytes()
        garbage = self.chance.randbytes(min(132, len(data)))
        path.write_bytes(garbage + data[len(garbage) :])
        return f"{path.name}: first {len(garbage)} bytes overwritten"

    def remove(self, root, *names):
        for name in names:
            (root / name).unlink()
        return f"removed: {' '.join(names)}"

    def remove_kind(self, root, base, kind):
        return self.remove(root, f"u-0/{base:020}.{kind}")

    def snapshots(self, root):
        paths = sorted((root / "u-0").glob("*.snapshot"))
        return self.remove(root, *(f"u-0/{path.name}" for path in paths))

    def leftovers(self, root):
        shutil.copy(
            self.file(root, self.first, "log"), self.file(root, self.first, "log.deleted")
        )
        for kind in ("index", "timeindex", "snapshot"):
            self.file(root, 7, f"{kind}.deleted").write_bytes(b"x" * 40)
        for kind in ("log", "index", "timeindex", "txnindex"):
            self.file(root, self.sealed, f"{kind}.cleaned").write_bytes(b"")
        return "leftovers of a deletion and of a cleaning"

    def swap(self, root):
        """A finished cleaning of the first two segments, whose indexes are empty."""
        one, two = self.file(root, self.first, "log"), self.file(root, self.sealed, "log")
        data = one.read_bytes()
        kept = b"".join(data[at : at + size] for at, size in batches(one)[::2])
        kept += two.read_bytes()[batches(two)[-1][0] :]
        self.file(root, self.first, "log.swap").write_bytes(kept)
        for kind in ("index", "timeindex"):
            self.file(root, self.first, f"{kind}.swap").write_bytes(b"")
        return "a finished swap of two segments, the originals still there"

    def swap_begun(self, root):
        shutil.copy(
            self.file(root, self.first, "log"), self.file(root, self.first, "log.cleaned")
        )
        self.file(root, self.first, "index.cleaned").write_bytes(b"")
        path = self.file(root, self.sealed, "log")
        at, size = batches(path)[2]
        self.file(root, self.sealed, "log.swap").write_bytes(path.read_bytes()[: at + size])
        self.file(root, self.sealed, "index.swap").write_bytes(b"")
        return "a swap that had only begun"

    def points(self, root, text):
        (root / POINTS).write_text(text)
        return f"{POINTS}: {text!r}"

    def orphans(self, root):
        for kind, size in (("index", 16), ("timeindex", 24), ("snapshot", 10)):
            self.file(root, 5, kind).write_bytes(bytes(size))
        return "files of a segment without a log"


# Name, the directory's state, whose root it needs, damage.
VARIANTS = (
    ("a-torn-tail", "killed", "", lambda it, to: it.cut(to)),
    ("b-flip-last", "killed", "", lambda it, to: it.flip_batch(to, it.active, 1)),
    ("c-flip-middle", "killed", "", lambda it, to: it.flip_batch(to, it.active, 0.5)),
    ("d-index-gone", "killed", "", lambda it, to: it.remove_kind(to, it.sealed, "index")),
    ("e1-timeindex-garbage-active", "killed", "", lambda it, to: it.garbage_times(to, it.active)),
    ("e2-timeindex-garbage-sealed", "killed", "", lambda it, to: it.garbage_times(to, it.sealed)),
    ("f-zero-tail", "killed", "", lambda it, to: it.tail(to, bytes(4_096))),
    ("f2-garbage-tail", "killed", "", lambda it, to: it.tail(to, it.chance.randbytes(300))),
    (
        "g1-snapshot-corrupt",
        "killed",
        "",
        lambda it, to: it.flip(it.file(to, it.active, "snapshot"), 8),
    ),
    ("g2-snapshot-gone", "killed", "", lambda it, to: it.remove_kind(to, it.active, "snapshot")),
    ("g3-all-snapshots-gone", "killed", "", lambda it, to: it.snapshots(to)),
    ("h1-deleted-cleaned", "killed", "", lambda it, to: it.leftovers(to)),
    ("h2-swap", "killed", "", lambda it, to: it.swap(to)),
    ("h3-swap-and-cleaned", "killed", "", lambda it, to: it.swap_begun(to)),
    ("i-no-recovery-point", "killed", "i", lambda it, to: it.remove(to, POINTS)),
    ("j-garbage-recovery-point", "killed", "j", lambda it, to: it.points(to, "0\n1\nu 0 many\n")),
    ("j2-bad-recovery-point-no-start", "killed", "j2", lambda it, to: it.points(to, "7\n0\n")),
    ("k1-flip-old-clean", "clean", "", lambda it, to: it.flip_batch(to, it.first, 0.3)),
    ("k2-flip-old-killed", "killed", "", lambda it, to: it.flip_batch(to, it.first, 0.3)),
    (
        "k3-flip-old-no-recovery-point",
        "killed",
        "i",
        lambda it, to: it.flip_batch(to, it.first, 0.3) + "; " + it.remove(to, POINTS),
    ),
    ("l-torn-tail-clean", "clean", "", lambda it, to: it.cut(to)),
    ("m-index-gone-clean", "clean", "", lambda it, to: it.remove_kind(to, it.sealed, "index")),
    (
        "m2-index-gone-active-clean",
        "clean",
        "",
        lambda it, to: it.remove_kind(to, it.active, "index"),
    ),
    ("m3-all-snapshots-gone-clean", "clean", "", lambda it, to: it.snapshots(to)),
    (
        "n-epochs-gone",
        "killed",
        "",
        lambda it, to: it.remove(to, "u-0/leader-epoch-checkpoint"),
    ),
    ("o-orphans", "killed", "", lambda it, to: it.orphans(to)),
    ("p-active-log-gone", "killed", "", lambda it, to: it.remove_kind(to, it.active, "log")),
)


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
        client.topic("u", PARTITIONS, **{"segment_bytes": MIB, "retention_ms": -1})
        fill(case, client, chance)
        time.sleep(2)
        case.kill()
        keep(broker, making.work / "killed")
        case.copy("dir-1-killed", "killed", "kill -9")
        case.start()
        broker.wait_for(LEADS, PARTITIONS)
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


def variants(making):
    """One broker for each state of the root; each variant is a partition of its own there."""
    groups = {}
    for variant in VARIANTS:
        groups.setdefault(variant[1:3], []).append(variant)
    made = []
    for (state, root), members in groups.items():
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
    lines_for_all(broker.data, len(members))
    if root:
        (broker.data / POINTS).unlink()
        text = cases[0].folder / "dir-1-damaged" / POINTS
        if text.exists():
            shutil.copy2(text, broker.data)
    run(broker, cases, root != "j2")
    return cases


def run(broker, cases, starts):
    try:
        started = broker.start(check=False) == 0
        if started != starts:
            raise RuntimeError(f"the broker {'started' if started else 'did not start'}")
        at_ms = now_ms()
        if starts:
            broker.wait_for(LEADS, PARTITIONS)
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


def lines_for_all(data, count):
    """Every partition has the line of the first in the checkpoints."""
    for path in Path(data).glob("*-checkpoint"):
        own = [it for it in path.read_text().splitlines()[2:] if it.startswith("u 0 ")]
        lines = [f"u {it} {own[0].split()[-1]}" for it in range(count)] if own else []
        path.write_text("\n".join(["0", str(len(lines)), *lines]) + "\n")
