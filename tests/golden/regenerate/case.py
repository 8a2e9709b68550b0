"""A case that is being made: its folder, its case.toml, a broker and a client that does things."""

import calendar
import os
import re
import shutil
import subprocess
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
KAFKA = str(HERE.parents[2] / "scripts" / "kafka")
# Only the newest seconds of a start may be told apart from what was before.
WAIT_S = 600
ROOT_FILES_LEFT_OUT = (".lock", "bootstrap.checkpoint")


def now_ms():
    return time.time_ns() // 1_000_000


def quote(value):
    if isinstance(value, int):
        return str(value)
    return '"' + str(value).replace("\\", "\\\\").replace('"', '\\"') + '"'


def inline(settings):
    return "{ " + ", ".join(f"{quote(k)} = {quote(v)}" for k, v in settings.items()) + " }"


class Broker:
    """Kafka in a folder of its own; its clock's zone is UTC, which its log is read in."""

    def __init__(self, folder, port, settings, environment=None):
        self.folder, self.port, self.settings = Path(folder), port, settings
        self.data = self.folder / "data"
        heap = os.environ.get("KAFKA_HEAP", "-Xms256m -Xmx512m -XX:TieredStopAtLevel=1")
        # A busy machine starts a broker in minutes; a broker that ends is told of at once.
        patience = os.environ.get("KAFKA_START_SECONDS", "600")
        defaults = {"TZ": "UTC", "KAFKA_HEAP": heap, "KAFKA_START_SECONDS": patience}
        self.environment = {**os.environ, **defaults, **(environment or {})}

    def kafka(self, *arguments, check=True):
        with open(f"{self.folder}.out", "ab") as out:
            return subprocess.run(
                [KAFKA, *map(str, arguments)],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                check=check,
            ).returncode

    def pairs(self):
        return [f"{name}={value}" for name, value in self.settings.items()]

    def start(self, check=True):
        return self.kafka("start", self.folder, self.port, *self.pairs(), check=check)

    def stop(self):
        self.kafka("stop", self.folder)

    def kill(self):
        self.kafka("kill", self.folder)

    def is_up(self):
        return (self.folder / "pid").exists()

    def log_lines(self):
        """Those of all starts."""
        names = sorted(self.folder.glob("server.log.*")) + [self.folder / "server.log"]
        found = [path for path in names if path.exists()]
        return [it for path in found for it in path.read_text(errors="replace").splitlines()]

    def wait_for(self, pattern, count=1):
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            text = (self.folder / "server.log").read_text(errors="replace")
            if count <= len(re.findall(pattern, text)):
                return
            time.sleep(0.1)
        raise TimeoutError(f"no {pattern} in the log of {self.folder}")

    def wait_for_leader(self, topic):
        self.wait_for(rf"Leader {re.escape(topic)}-0 .* starts at leader epoch")

    def log_bytes(self, partition):
        return sum(path.stat().st_size for path in (self.data / partition).glob("*.log"))


class Case:
    """A folder of a case's name: case.toml, copies of the log directory, what Kafka's dump tool
    prints of them."""

    def __init__(self, out, name, what, broker):
        self.name, self.broker, self.topics = name, broker, []
        # Whether only partition 0 is of the case.
        self.is_first_only = False
        self.folder = Path(out) / name
        shutil.rmtree(self.folder, ignore_errors=True)
        (self.folder / "dump").mkdir(parents=True)
        self.lines = [f"case = {quote(name)}", f"what = {quote(what)}", 'kafka = "4.3.1"', ""]
        self.table("[broker]", **broker.settings)

    def table(self, header, **values):
        self.lines.append(header)
        for name, value in values.items():
            text = inline(value) if isinstance(value, dict) else quote(value)
            key = name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else quote(name)
            self.lines.append(f"{key} = {text}")
        self.lines.append("")

    def step(self, kind, **values):
        values.setdefault("at_ms", now_ms())
        self.table("[[step]]", kind=kind, **values)

    def start(self):
        self.broker.start()
        self.step("start")

    def stop(self):
        self.broker.stop()
        self.step("stop")

    def kill(self):
        self.broker.kill()
        self.step("kill")

    def copy(self, name, state, event, is_whole=False):
        """Copies the case's partitions as they are, and the root's text files."""
        to, at_ms = self.folder / name, now_ms()
        to.mkdir()
        for path in sorted(self.broker.data.iterdir()):
            if path.name.endswith(".tmp") or path.name in ROOT_FILES_LEFT_OUT:
                continue
            is_wanted = is_whole or path.is_file() or self.is_own(path.name)
            if is_wanted:
                copy(path, to)
        self.copied(name, state, event, at_ms)

    def copied(self, name, state, event, at_ms):
        self.table("[[step]]", kind="snapshot", at_ms=at_ms, dir=name, broker=state, event=event)

    def is_own(self, folder):
        topic, _, partition = folder.rpartition("-")
        is_partition = partition == "0" if self.is_first_only else partition.isdigit()
        return is_partition and topic in self.topics

    def passes(self):
        """When retention first took something of each topic, by the broker's log."""
        found = {}
        for line in self.broker.log_lines():
            match = re.search(r"partition=(\S+)-0,.* due to segment deletion", line)
            if match and match[1] in self.topics:
                found.setdefault(f"pass_ms_{match[1].replace('-', '_')}", logged_ms(line))
        self.step("retention_pass", **found)

    def finish(self, edit=lambda line: line):
        data = str(self.broker.data)
        number = "0" if self.is_first_only else r"\d+"
        own = re.compile("|".join(rf"\b{re.escape(it)}-{number}\b" for it in self.topics) or "$^")
        lines = [line for line in self.broker.log_lines() if own.search(line)]
        kept = [edit(line.replace(data, "DATA")) for line in lines]
        (self.folder / "dump" / "broker-log.txt").write_text("\n".join(kept) + "\n")
        (self.folder / "case.toml").write_text("\n".join(self.lines))


def copy(path, to):
    """Holes stay holes."""
    command = ["cp", "-a", "--sparse=always", str(path), str(to)]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)


def logged_ms(line):
    match = re.match(r"\[(\d+)-(\d+)-(\d+) (\d+):(\d+):(\d+),(\d+)\]", line)
    *date, millis = map(int, match.groups())
    return calendar.timegm((*date, 0, 0, 0)) * 1000 + millis


class Client:
    """The long-lived client: a line for each thing that it does, noted as a step of the case."""

    def __init__(self, broker, classes):
        self.broker, self.case = broker, None
        self.process = subprocess.Popen(
            [KAFKA, "java", *java(classes), "Client", str(broker.port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=open(f"{broker.folder}.client", "ab"),
            env=broker.environment,
            text=True,
            bufsize=1,
        )

    def topic(self, name, partitions=1, **config):
        config = {key.replace("_", "."): value for key, value in config.items()}
        at_ms = now_ms()
        words = [f"{key}={value}" for key, value in config.items()]
        self.ask(" ".join(["topic", name, str(partitions), *words]))
        self.broker.wait_for_leader(name)
        self.case.topics.append(name)
        settings = {key: str(value) for key, value in config.items()}
        self.case.step("create-topic", topic=name, at_ms=at_ms, config=settings)

    def config(self, name, **config):
        config = {key.replace("_", "."): value for key, value in config.items()}
        at_ms = now_ms()
        self.ask(" ".join(["config", name, *(f"{key}={value}" for key, value in config.items())]))
        settings = {key: str(value) for key, value in config.items()}
        self.case.step("alter-config", topic=name, at_ms=at_ms, config=settings)

    def batch(self, topic, wanted="ok", **options):
        return self.append(topic, f"batch {topic}", options, wanted)

    def send(self, name, topic, **options):
        return self.append(topic, f"send {name} {topic}", options, "ok")

    def append(self, topic, command, options, wanted):
        at_ms = now_ms()
        flags = [key if value is True else f"{key}={value}" for key, value in options.items()]
        answer = self.ask(" ".join([command, *flags]), wanted)
        found = re.search(r"offsets=(\d+)\.\.(\d+)", answer)
        offsets = {"first": int(found[1]), "last": int(found[2])} if found else {}
        kind = "append" if found else "refused"
        self.case.step(kind, topic=topic, at_ms=at_ms, command=command, answer=answer, **offsets)
        return answer

    def act(self, *words, wanted="ok"):
        command, at_ms = " ".join(map(str, words)), now_ms()
        answer = self.ask(command, wanted)
        self.case.step("client", at_ms=at_ms, command=command, answer=answer)
        return answer

    def ask(self, line, wanted="ok"):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().strip()
        if not answer.startswith(wanted):
            raise RuntimeError(f"{line}: {answer}")
        return answer

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def java(classes):
    """Arguments for a class of ours. The archive of classes fits another class path; the warning
    about that would come between the answers."""
    return ["-Xlog:disable", "-cp", f"{classes}:{libraries()}/*"]


def libraries():
    cache = os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))
    return f"{cache}/uringlog/kafka-4.3.1"
