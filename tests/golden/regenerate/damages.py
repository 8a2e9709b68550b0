"""Damage to the folder of a partition, each kind by a name: what a disk, a crash or a hand may do."""

import shutil
import struct

POINTS = "recovery-point-offset-checkpoint"
STARTS = "log-start-offset-checkpoint"
BASE_AT, LENGTH_AT, MAGIC_AT, LAST_DELTA_AT, RECORDS_AT = 0, 8, 16, 23, 61


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
        return self.flip(path, position + RECORDS_AT + self.chance.randrange(size - RECORDS_AT))

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

    def change_batch(self, root, part, at, change):
        """`change` gets the batch, and what stands in front of it and behind it."""
        path = self.file(root, self.active, "log")
        data, found = path.read_bytes(), batches(path)
        position, size = found[min(int(len(found) * part), len(found) - 1)]
        end = position + size
        path.write_bytes(data[:position] + change(data[position:end]) + data[end:])
        return f"{path.name}: batch at {position} {at}"

    def moved(self, by):
        def change(batch):
            return struct.pack(">q", struct.unpack_from(">q", batch)[0] + by) + batch[8:]

        return change

    def cut_to(self, root, base, kind, length):
        """A negative length counts from the end."""
        path = self.file(root, base, kind)
        path.write_bytes(path.read_bytes()[:length])
        return f"{path.name}: cut to {path.stat().st_size} bytes"

    def cut_batch(self, root, left):
        """Leaves so many bytes of the last batch."""
        path = self.file(root, self.active, "log")
        return self.cut_to(root, self.active, "log", batches(path)[-1][0] + left)

    def overwrite(self, root, base, kind, most):
        path = self.file(root, base, kind)
        data = path.read_bytes()
        garbage = self.chance.randbytes(min(most, len(data)))
        path.write_bytes(garbage + data[len(garbage) :])
        return f"{path.name}: first {len(garbage)} bytes overwritten"

    def zeros(self, root, base, kind, count):
        path = self.file(root, base, kind)
        data = path.read_bytes()
        path.write_bytes(bytes(count) + data[count:])
        return f"{path.name}: first {count} bytes are zeros"

    def end(self, root):
        """The offset behind the last batch."""
        path = self.file(root, self.active, "log")
        position, _ = batches(path)[-1]
        data = path.read_bytes()
        base = struct.unpack_from(">q", data, position)[0]
        return base + struct.unpack_from(">i", data, position + LAST_DELTA_AT)[0] + 1

    def line(self, root, name, offset):
        (root / name).write_text(f"0\n1\nu 0 {offset}\n")
        return f"{name}: u 0 {offset}"

    def snapshot_beyond(self, root):
        to = self.end(root) + 1_000
        newest = sorted((root / "u-0").glob("*.snapshot"))[-1]
        shutil.copy(newest, self.file(root, to, "snapshot"))
        return f"a snapshot at {to}, behind the log's end"

    def newest_snapshot(self, root, damage):
        path = sorted((root / "u-0").glob("*.snapshot"))[-1]
        if damage == "gone":
            return self.remove(root, f"u-0/{path.name}")
        if damage == "empty":
            path.write_bytes(b"")
            return f"{path.name}: emptied"
        return self.flip(path, 8)

    def epochs(self, root, text):
        (root / "u-0" / "leader-epoch-checkpoint").write_text(text)
        return f"leader-epoch-checkpoint: {text!r}"


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

# For what may be done to either directory.
EITHER = (
    ("q1-txnindex-gone-sealed", lambda it, to: it.remove_kind(to, it.sealed, "txnindex")),
    ("q2-txnindex-gone-active", lambda it, to: it.remove_kind(to, it.active, "txnindex")),
    ("q3-txnindex-zeros-sealed", lambda it, to: it.zeros(to, it.sealed, "txnindex", 34)),
    ("q4-txnindex-zeros-active", lambda it, to: it.zeros(to, it.active, "txnindex", 34)),
    ("q5-txnindex-cut-sealed", lambda it, to: it.cut_to(to, it.sealed, "txnindex", -5)),
    ("q6-txnindex-cut-active", lambda it, to: it.cut_to(to, it.active, "txnindex", -34)),
    ("r1-timeindex-gone-sealed", lambda it, to: it.remove_kind(to, it.sealed, "timeindex")),
    ("r2-timeindex-gone-active", lambda it, to: it.remove_kind(to, it.active, "timeindex")),
    ("s1-index-garbage-sealed", lambda it, to: it.overwrite(to, it.sealed, "index", 80)),
    ("s2-index-garbage-active", lambda it, to: it.overwrite(to, it.active, "index", 80)),
    ("s3-index-cut-sealed", lambda it, to: it.cut_to(to, it.sealed, "index", -3)),
    ("s4-index-empty-sealed", lambda it, to: it.cut_to(to, it.sealed, "index", 0)),
    ("s5-index-empty-active", lambda it, to: it.cut_to(to, it.active, "index", 0)),
    ("s6-timeindex-empty-sealed", lambda it, to: it.cut_to(to, it.sealed, "timeindex", 0)),
    ("s7-timeindex-garbage-active", lambda it, to: it.overwrite(to, it.active, "timeindex", 132)),
    ("t1-header-torn", lambda it, to: it.cut_batch(to, 30)),
    ("t2-active-log-empty", lambda it, to: it.cut_to(to, it.active, "log", 0)),
    ("t3-last-batch-gone", lambda it, to: it.cut_batch(to, 0)),
    (
        "v1-length-wrong",
        lambda it, to: it.change_batch(
            to, 0.6, "is longer", lambda b: b[:8] + struct.pack(">i", 2**30) + b[12:]
        ),
    ),
    (
        "v2-magic-wrong",
        lambda it, to: it.change_batch(to, 1, "has magic 9", lambda b: b[:16] + b"\t" + b[17:]),
    ),
    ("v3-offset-raised", lambda it, to: it.change_batch(to, 1, "3 offsets on", it.moved(3))),
    ("v4-offset-lowered", lambda it, to: it.change_batch(to, 0.7, "9 offsets back", it.moved(-9))),
    ("v5-batch-twice", lambda it, to: it.change_batch(to, 1, "is there twice", lambda b: b + b)),
    ("w1-first-log-gone", lambda it, to: it.remove_kind(to, it.first, "log")),
    ("w2-middle-log-gone", lambda it, to: it.remove_kind(to, it.sealed, "log")),
    ("x1-snapshot-beyond", lambda it, to: it.snapshot_beyond(to)),
    ("x2-newest-snapshot-corrupt", lambda it, to: it.newest_snapshot(to, "corrupt")),
    ("x3-newest-snapshot-gone", lambda it, to: it.newest_snapshot(to, "gone")),
    ("x4-newest-snapshot-empty", lambda it, to: it.newest_snapshot(to, "empty")),
    ("y2-epochs-empty", lambda it, to: it.epochs(to, "")),
    ("y3-epochs-gone", lambda it, to: it.remove(to, "u-0/leader-epoch-checkpoint")),
    ("z1-point-beyond", lambda it, to: it.line(to, POINTS, it.end(to) + 700)),
    ("z2-point-inside-active", lambda it, to: it.line(to, POINTS, it.active + 311)),
    ("z3-point-inside-sealed", lambda it, to: it.line(to, POINTS, it.sealed + 77)),
    ("z4-point-at-zero", lambda it, to: it.line(to, POINTS, 0)),
    ("z5-start-inside-first", lambda it, to: it.line(to, STARTS, it.first + 5)),
    ("z6-start-inside-active", lambda it, to: it.line(to, STARTS, it.active + 5)),
    ("z7-start-beyond", lambda it, to: it.line(to, STARTS, it.end(to) + 50)),
    ("aa-metadata-gone", lambda it, to: it.remove(to, "u-0/partition.metadata")),
)
# Roots with which Kafka does not start.
NO_START = ("j2", "y1")
VARIANTS += (
    ("y1-epochs-garbage-no-start", "killed", "y1", lambda it, to: it.epochs(to, "0\n3\n0 many\n")),
)
VARIANTS += tuple(
    (f"{name}{more}", state, "", damage)
    for state, more in (("killed", ""), ("clean", "-clean"))
    for name, damage in EITHER
)
