"""Cases of a broker of their own: retention, deleted records, restarts, whole directories."""

import time

from plain import MIB, first_time

RETAINING = {
    "log.retention.check.interval.ms": "1000",
    "log.initial.task.delay.ms": "1000",
    "log.cleaner.enable": "false",
    "auto.create.topics.enable": "false",
}
DELAY_MS = 6_000


def retention(case, client, chance):
    stamp = first_time(chance)
    now = int(time.time() * 1000)
    half = MIB // 2 - 72
    off = {"segment_bytes": MIB, "retention_ms": -1, "file_delete_delay_ms": DELAY_MS}
    for name in ("bytes", "exact", "exact1", "ms", "all", "future"):
        client.topic(f"ret-{name}", **off)
    for number in range(chance.randrange(7, 10)):
        client.batch("ret-bytes", n=8, size=60_000, ts=stamp + number, kind="random", seed=number)
    rest = chance.randrange(200_000, 400_000)
    for topic in ("ret-exact", "ret-exact1"):
        for size in (half, half, half, half, rest):
            client.batch(topic, size=size, ts=stamp)
    for hours in (3, 3, 2, 2, 1, 1, 0, 0):
        client.batch("ret-ms", size=half, ts=now - hours * 3_600_000)
    client.batch("ret-ms", ts=now - 1_000)
    for number in range(5):
        client.batch("ret-all", size=half, ts=stamp + number)
    for at in (stamp, stamp, now + 1_800_000, now + 1_800_000, stamp, stamp, stamp):
        client.batch("ret-future", size=half, ts=at)
    case.copy("dir-before", "running", "all data written, retention off")
    client.config("ret-bytes", retention_bytes=chance.randrange(MIB // 2, 2 * MIB))
    client.config("ret-exact", retention_bytes=MIB + rest + 72)
    client.config("ret-exact1", retention_bytes=MIB + rest + 73)
    client.config("ret-ms", retention_ms=5_400_000)
    client.config("ret-all", retention_ms=1_000)
    client.config("ret-future", retention_ms=600_000)
    time.sleep(2)
    case.copy("dir-marked", "running", "behind the pass, within file.delete.delay.ms")
    time.sleep(DELAY_MS / 1_000 + 2)
    case.copy("dir-after", "running", "file.delete.delay.ms later")
    case.passes()
    case.stop()
    case.copy("dir", "stopped", "clean stop")


def delete_records(case, client, chance):
    stamp = first_time(chance)
    each = chance.randrange(4_000, 20_000)
    before = {"mid": 18, "active": 2, "three": 100}
    for name in before:
        client.topic(f"del-{name}", segment_bytes=MIB, retention_ms=-1, file_delete_delay_ms=2_000)
        for number in range(int(2.3 * MIB / each / 3)):
            client.batch(f"del-{name}", n=3, size=each, ts=stamp + number, kind="random", seed=1)
    case.copy("dir-before", "running", "all data written")
    for name, to in before.items():
        client.act("truncate", f"del-{name}", to)
    client.act("truncate", "del-three", -1)
    time.sleep(6)
    case.copy("dir-deleted", "running", "records deleted, files gone")
    case.stop()
    case.copy("dir", "stopped", "clean stop")


def leader_epoch(case, client, chance):
    stamp = first_time(chance)
    client.topic("epochs", segment_bytes=MIB)
    client.topic("epochs-idle")
    client.topic("epochs-empty")
    client.topic("epochs-roll", segment_ms=60_000)
    client.batch("epochs-idle", n=4, ts=stamp)
    size, rounds = chance.randrange(600, 1_500), chance.randrange(3, 5)
    for number in range(rounds):
        if number != 2:
            for _ in range(6):
                client.batch("epochs", n=3, size=size, ts=stamp, seed=number)
        for at in (0, 61_000):
            client.batch("epochs-roll", n=2, ts=stamp + number * 200_000 + at)
        case.stop()
        case.copy(f"dir-stop{number + 1}", "stopped", f"clean stop {number + 1}")
        case.start()
        case.broker.wait_for_leader("epochs-empty")
        time.sleep(1)
        case.copy(f"dir-start{number + 1}", "running", "started again")
    case.stop()
    case.copy("dir", "stopped", "clean stop")


def whole_dir(case, client, chance):
    """Topics of many kinds, one deleted, one with partitions added: the whole log directory."""
    client.topic("w-plain")
    client.topic("w-three", 3, segment_bytes=2 * MIB, retention_ms=86_400_000)
    client.topic("w-compact", cleanup_policy="compact", min_cleanable_dirty_ratio="0.2")
    client.topic("w-lat", message_timestamp_type="LogAppendTime", compression_type="lz4")
    client.topic("w.dots_and-dashes-1", 2)
    client.topic("w-gone", 2)
    client.topic("w-never", preallocate="true", segment_bytes=MIB)
    client.topic("w-prealloc", preallocate="true", segment_bytes=MIB)
    now = int(time.time() * 1000)
    for topic in ("w-plain", "w-three", "w-compact", "w-gone", "w-prealloc"):
        for _ in range(chance.randrange(2, 6)):
            client.batch(topic, n=3, size=80, key="k:0:9", ts=now, step=1)
    client.act("partitions", "w-three", 5)
    client.act("delete", "w-gone")
    case.topics.remove("w-gone")
    time.sleep(2)
    case.copy("dir-live", "running", "a topic deleted, partitions added", is_whole=True)
    case.stop()
    case.copy("dir", "stopped", "clean stop", is_whole=True)
    case.start()
    case.broker.wait_for_leader("w-plain")
    time.sleep(1)
    case.stop()
    case.copy("dir-restop", "stopped", "started and stopped again", is_whole=True)


CASES = {
    "retention": (retention, RETAINING),
    "delete-records": (delete_records, RETAINING),
    "leader-epoch": (leader_epoch, {"log.retention.ms": "-1", "log.cleaner.enable": "false"}),
    "whole-dir": (
        whole_dir,
        {"log.cleaner.enable": "false", "log.segment.delete.delay.ms": "900000"},
    ),
}
