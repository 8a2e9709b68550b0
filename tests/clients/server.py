"""Servers under test: uringlog's binary, and stock Kafka through scripts/kafka with the same face.

start() waits until every port accepts, stop() gives the exit status and the seconds, kill() is
kill -9; bootstrap, data (the log directory), log (what it printed), restart_command (kill -9 and
start again, as one shell command, for scripts that do it in the middle of their work).
"""

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import lib

START_S = 30
# The issue asks for an orderly stop below one second; a loaded test machine gets more, and the
# time is shown.
STOP_S = 20


class Uringlog:
    """`uringlog serve` on a directory below `work`."""

    def __init__(self, work, binary, engine, durability, shards, settings=()):
        self.work = Path(work)
        self.data = self.work / "data"
        self.log = self.work / "server.log"
        self.pid_file = self.work / "server.pid"
        self.shards = shards
        self.port = lib.free_port(shards)
        self.bootstrap = f"127.0.0.1:{self.port}"
        self.command = [
            str(binary),
            "serve",
            "--dir",
            str(self.data),
            "--listen",
            self.bootstrap,
            "--engine",
            engine,
            "--durability",
            durability,
            "--shards",
            str(shards),
        ]
        for setting in settings:
            self.command += ["--set", setting]
        self.restart_command = shlex.join(
            [sys.executable, __file__, str(self.work), str(shards), str(self.port), *self.command]
        )

    def start(self):
        self.work.mkdir(parents=True, exist_ok=True)
        return start_process(self.work, self.command, self.port, self.shards)

    def stop(self):
        """Orderly stop of the process that runs now (a script may have restarted it). Returns
        (status, seconds)."""
        pid = int(self.pid_file.read_text())
        started = time.monotonic()
        os.kill(pid, signal.SIGTERM)
        status = wait_for_end(self.work, pid, STOP_S)
        if status is None:
            kill_process(self.work)
            status = f"none after {STOP_S} s, killed"
        return status, time.monotonic() - started

    def kill(self):
        if self.pid_file.exists():
            kill_process(self.work)


def start_process(work, command, port, shards):
    """A small shell stays as the parent and writes the exit status down: after a restart from
    another script the server is no child of the one that stops it."""
    work = Path(work)
    status_file, pid_file = work / "server.status", work / "server.pid"
    status_file.unlink(missing_ok=True)
    pid_file.unlink(missing_ok=True)
    script = (
        f"{shlex.join(command)} & echo $! >{shlex.quote(str(pid_file))}.new && "
        f"mv {shlex.quote(str(pid_file))}.new {shlex.quote(str(pid_file))}; "
        f"wait $!; echo $? >{shlex.quote(str(status_file))}"
    )
    with open(work / "server.log", "ab") as log:
        subprocess.Popen(
            ["/bin/sh", "-c", script],
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    lib.wait_until(pid_file.exists, "the server's process", START_S, 0.005)
    pid = int(pid_file.read_text())
    began = time.monotonic()
    while not all(lib.accepts(port + shard) for shard in range(shards)):
        if not alive(pid) or time.monotonic() > began + START_S:
            raise RuntimeError(
                f"the server did not start: {(work / 'server.log').read_text()[-3000:]}"
            )
        time.sleep(0.01)
    return time.monotonic() - began


def alive(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (OSError, IndexError):
        return False
    return state != "Z"


def wait_for_end(work, pid, seconds):
    """The exit status, or None when the process still runs after that time."""
    status_file = Path(work) / "server.status"
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not alive(pid) and status_file.exists() and status_file.read_text().strip():
            return int(status_file.read_text())
        time.sleep(0.01)
    return None


def kill_process(work):
    """kill -9, and wait until it is gone."""
    pid = int((Path(work) / "server.pid").read_text())
    if alive(pid):
        os.kill(pid, signal.SIGKILL)
        wait_for_end(work, pid, STOP_S)


class StockKafka:
    """A combined node and, for two "shards", a second broker, as in the question that came before
    the design."""

    def __init__(self, work, brokers=2, settings=()):
        self.work = Path(work)
        self.settings = list(settings)
        self.port = lib.free_port(brokers)
        self.bootstrap = f"127.0.0.1:{self.port}"
        self.dirs = [self.work / f"broker-{i}" for i in range(brokers)]
        self.data = self.dirs[0] / "data"
        victim, port = self.dirs[-1], self.port + brokers - 1
        self.restart_command = (
            f"{lib.KAFKA} kill {victim} && sleep 1 && {lib.KAFKA} start {victim} {port}"
        )

    def start(self):
        began = time.monotonic()
        self.must("start", self.dirs[0], self.port, *self.settings)
        for i, directory in enumerate(self.dirs[1:], 1):
            self.must("join", directory, self.port + i, self.dirs[0], *self.settings)
        return time.monotonic() - began

    def stop(self):
        began = time.monotonic()
        for directory in reversed(self.dirs):
            self.must("stop", directory)
        return 0, time.monotonic() - began

    def kill(self):
        for directory in self.dirs:
            if (directory / "pid").exists():
                self.must("kill", directory)

    def must(self, *arguments):
        # The broker inherits stdout: a pipe would never close.
        with open(self.work.parent / f"{self.work.name}.log", "ab") as log:
            subprocess.run(
                [lib.KAFKA, *map(str, arguments)],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                check=True,
            )


if __name__ == "__main__":
    # The restart command: WORK SHARDS PORT COMMAND...
    WORK, SHARDS, PORT, *COMMAND = sys.argv[1:]
    kill_process(WORK)
    start_process(WORK, COMMAND, int(PORT), int(SHARDS))
