"""The histories of tests/golden as uringlog has repeated them, put into a data directory of its.

`cargo test --test golden` with GOLDEN_KEEP leaves a folder for each partition: what the log wrote,
with transactions, deleted records, expired segments, restarts, recovery from damage. Each becomes
partition 0 of a topic of its own: uringlog makes the topics, stops, and the files of the partition
are replaced, all but the one that has the topic's id.
"""

import os
import re
import shutil
import subprocess
from collections import namedtuple
from pathlib import Path

import lib
import suite

PREFIX = "kept-"
# A broker that runs would delete or compact what is there.
OURS = {"retention.ms": "-1", "retention.bytes": "-1", "cleanup.policy": "delete"}
LOG_STARTS = "log-start-offset-checkpoint"
EPOCHS = "leader-epoch-checkpoint"
RESTARTS_MAX = 12
# A flipped byte that neither server looks for at its start: reading it is an error.
DAMAGED = ("unclean-k1-", "unclean-k2-")
# What kafka-dump-log complains of in Kafka's own files of these cases, too: batches with a flag that
# the broker takes off, believing their header's time; offsets that are missing, since recovery has
# set a batch aside, has completed a swap that leaves out batches, or the cleaner has been there.
KNOWN = (
    *(f"kept-compaction-{topic}-0-0" for topic in ("c", "ca", "cd", "ci", "ct", "cz")),
    "kept-timestamps-ts-flag-0-0",
    "kept-timestamps-ts-lies-0-0",
    "kept-damage-c-0",
    "kept-damage-h2-0",
    "kept-damage-k3-0",
)

Kept = namedtuple("Kept", "topic folder config log_start")


def repeat(folder):
    """Runs the histories."""
    environment = {**os.environ, "GOLDEN_KEEP": str(folder)}
    command = ["cargo", "test", "-p", "uringlog", "--test", "golden"]
    answer = subprocess.run(
        command, cwd=lib.ROOT, env=environment, capture_output=True, check=False
    )
    if answer.returncode:
        raise RuntimeError((answer.stdout + answer.stderr).decode(errors="replace")[-3000:])
    folders = [path for path in sorted(Path(folder).iterdir()) if path.is_dir()]
    return [of(path) for path in folders if not path.name.startswith(DAMAGED)]


def of(folder):
    lines = Path(f"{folder}.settings").read_text().splitlines()
    settings = dict(line.split("=", 1) for line in lines)
    log_start = settings.pop("log-start", None)
    # A broker's settings are among those of whole directories.
    is_topics = {name: value for name, value in settings.items() if not name.startswith("log.")}
    config = {name: value for name, value in is_topics.items() if value != "-1"}
    # Kafka's log is searched for words that are in the names of damages.
    name = re.sub(r"^unclean-([a-z]\d?)-.*", r"damage-\1", folder.name)
    name = re.sub(r"^unclean-", "killed-", name)
    return Kept(PREFIX + name, folder, {**config, **OURS}, log_start)


def make_topics(client, kept):
    for it in kept:
        suite.ready_topic(client, it.topic, 1, it.config)


def newest_epoch(path):
    lines = (path / EPOCHS).read_text().splitlines()[2:] if (path / EPOCHS).exists() else []
    return max((int(line.split()[0]) for line in lines), default=0)


def age(kafka, data, kept):
    """Starts and stops Kafka on the topics, which are empty still, until its leader epochs are
    those of the histories: each restart of Kafka's raises them, and a leader's epoch never
    falls."""
    wanted = max(newest_epoch(it.folder) for it in kept)
    for _ in range(RESTARTS_MAX):
        if wanted <= newest_epoch(data / f"{kept[0].topic}-0"):
            return
        kafka.start()
        kafka.end("stop")
    raise RuntimeError(f"the leader epoch {wanted} was not reached in {RESTARTS_MAX} restarts")


def install(uringlog, kept):
    """Into the directory of a stopped server."""
    for it in kept:
        partition = uringlog.data / f"{it.topic}-0"
        for path in partition.iterdir():
            if path.name != "partition.metadata":
                path.unlink()
        for path in it.folder.iterdir():
            if path.name != "partition.metadata":
                shutil.copy2(path, partition)
    path = uringlog.data / LOG_STARTS
    lines = path.read_text().splitlines()[2:] if path.exists() else []
    lines = [line for line in lines if not line.startswith(PREFIX)]
    lines += [f"{it.topic} 0 {it.log_start}" for it in kept if it.log_start]
    path.write_text("\n".join(["0", str(len(lines)), *lines]) + "\n")


def is_stamped(topic, kept):
    configs = [it.config for it in kept if it.topic == topic]
    return any(it.get("message.timestamp.type") == "LogAppendTime" for it in configs)
