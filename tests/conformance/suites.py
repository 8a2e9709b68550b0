"""The suites: where each comes from, how it is built, how its cases are run one by one.

Sources come from the registries that publish them, into the cache; nothing of them is kept here.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
from pathlib import Path

import lib

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "uringlog" / "suites"


def call(command, out, seconds, cwd=None, env=None):
    """Runs a command in a session of its own, its output into `out`; its exit status, or None when
    it took too long and was killed."""
    environment = {**os.environ, **(env or {})}
    process = subprocess.Popen(
        [str(it) for it in command], stdout=out, stderr=subprocess.STDOUT, cwd=cwd,
        stdin=subprocess.DEVNULL, env=environment, start_new_session=True,
    )
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return None


def captured(command, work, seconds, **more):
    """Exit status and output."""
    path = work / "output.txt"
    with open(path, "w") as out:
        status = call(command, out, seconds, **more)
    return status, path.read_text(errors="replace")


def keep(out, case, text, lines=40):
    """The last lines of what failed."""
    out.write(f"== {case}\n" + "\n".join(text.splitlines()[-lines:]) + "\n")
    out.flush()


def must(command, cwd, what):
    log = CACHE / "build.log"
    with open(log, "w") as out:
        status = call(command, out, 3000, cwd=cwd)
    if status != 0:
        raise RuntimeError(f"{what} failed, {log} says:\n{log.read_text()[-2000:]}")


class Librdkafka:
    """librdkafka's own tests, each in a process of its own."""

    VERSION = "2.12.1"
    CRATE = "rdkafka-sys@4.10.0"
    SECONDS = 150
    # Local ones, mocks, and those that wait for hours by design.
    SKIPPED = re.compile(r"00(00|09|38|55|62|66|78)|01(0[45]|17)|.*mock|8\d\d\d")

    def __init__(self, protocol):
        self.protocol = protocol
        self.NAME = f"librdkafka-{protocol}"
        self.WHAT = f"librdkafka {self.VERSION}, its test runner, quick, group.protocol={protocol}"

    def built(self):
        home = CACHE / f"librdkafka-{self.VERSION}"
        runner = home / "tests" / "test-runner"
        if runner.exists():
            return runner
        CACHE.mkdir(parents=True, exist_ok=True)
        fetch = CACHE / "fetch"
        shutil.rmtree(fetch, ignore_errors=True)
        shutil.rmtree(home, ignore_errors=True)
        fetch.mkdir()
        must(["cargo", "init", "--quiet", "--name", "fetch", "--lib", "."], fetch, "cargo init")
        must(["cargo", "add", "--quiet", self.CRATE], fetch, "cargo add")
        must(["cargo", "vendor", "--quiet", "vendor"], fetch, "cargo vendor")
        source = next((fetch / "vendor").glob("rdkafka-sys*")) / "librdkafka"
        shutil.copytree(source, home)
        # What cargo vendor leaves has lost the permission to be run.
        must(["chmod", "-R", "+x", "."], home, "chmod")
        must(["./configure", "--disable-ssl", "--disable-gssapi", "--disable-curl",
              "--disable-zstd", "--disable-optimization"], home, "configure")
        for folder, target in (("src", "librdkafka.a"), ("src-cpp", "librdkafka++.a"),
                               ("tests", "test-runner")):
            must(["make", "-j2", "-C", folder, target], home, f"make {target}")
        return runner

    def run(self, broker, work, out):
        runner = self.built()
        (work / "test.conf").write_text(f"bootstrap.servers={broker.bootstrap}\n")
        env = {"RDKAFKA_TEST_CONF": str(work / "test.conf"), "TEST_KAFKA_VERSION": "4.1.0",
               "TEST_CONSUMER_GROUP_PROTOCOL": self.protocol}
        sources = sorted(runner.parent.glob("[0-9][0-9][0-9][0-9]-*.c*"))
        for source in sources:
            number, name = source.stem[:4], source.stem
            if self.SKIPPED.match(name):
                continue
            command = [runner, "-L", "-Q", "-p1", "-E"]
            status, text = captured(command, work, self.SECONDS, cwd=runner.parent,
                                    env={**env, "TESTS": number})
            if status == 0 and not re.search(r"\bPASSED\b", text):
                yield name, "skip"
            elif status == 0:
                yield name, "pass"
            else:
                keep(out, name, text)
                yield name, "fail"


class Kgo:
    """franz-go's group and transaction pipelines."""

    NAME = "franz-go"
    VERSION = "v1.22.3"
    WHAT = f"franz-go {VERSION} kgo: TestGroupETL, TestGroupSimple, TestTxnEtl, 100,000 records"
    TESTS = ("TestGroupETL", "TestGroupSimple", "TestTxnEtl")

    def run(self, broker, work, out):
        module = f"github.com/twmb/franz-go@{self.VERSION}"
        status, text = captured(["go", "mod", "download", "-json", module], work, 600)
        folder = re.search(r'"Dir": "([^"]+)"', text)
        if status != 0 or not folder:
            raise RuntimeError(f"go mod download {module}: {text[-500:]}")
        source = CACHE / "franz-go"
        shutil.rmtree(source, ignore_errors=True)
        shutil.copytree(folder[1], source)
        must(["chmod", "-R", "u+w", "."], source, "chmod")
        env = {"KGO_SEEDS": broker.bootstrap, "KGO_TEST_RF": "1", "KGO_TEST_RECORDS": "100000"}
        for test in self.TESTS:
            command = ["go", "test", "./pkg/kgo", "-count=1", "-run", f"^{test}$", "-v",
                       "-timeout", "15m"]
            status, text = captured(command, work, 1000, cwd=source, env=env)
            for case, outcome in results_of_go(text, test, status):
                if outcome == "fail":
                    keep(out, case, text, 80)
                yield case, outcome


def results_of_go(text, test, status):
    """Sub-tests as Go names them; the test itself when it has none or never came to an end."""
    found = re.findall(r"^ *--- (PASS|FAIL|SKIP): (\S+)", text, re.M)
    words = {"PASS": "pass", "FAIL": "fail", "SKIP": "skip"}
    cases = {name: words[word] for word, name in found}
    if status != 0 and "fail" not in cases.values():
        cases[test] = "fail"
    return sorted(cases.items())


class KafkaPython:
    """kafka-python's integration tests, from its source distribution."""

    NAME = "kafka-python"
    VERSION = "3.0.12"
    WHAT = f"kafka-python {VERSION}, test/integration against an external broker"

    def home(self):
        home = CACHE / f"kafka_python-{self.VERSION}"
        if (home / ".ready").exists():
            return home
        CACHE.mkdir(parents=True, exist_ok=True)
        must([sys.executable, "-m", "venv", CACHE / "kafka-python-venv"], CACHE, "venv")
        pip = [CACHE / "kafka-python-venv/bin/python", "-m", "pip", "install", "--quiet"]
        must([*pip, "pytest", "pytest-timeout", "mock", "lz4", "python-snappy", "zstandard",
              "crc32c"], CACHE, "pip")
        must([sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", ":all:",
              f"kafka-python=={self.VERSION}", "-d", CACHE], CACHE, "pip download")
        archive = next(CACHE.glob(f"kafka_python-{self.VERSION}.tar.gz"))
        with tarfile.open(archive) as packed:
            packed.extractall(CACHE, filter="data")
        must([*pip, "-e", "."], home, "pip install")
        (home / ".ready").touch()
        return home

    def run(self, broker, work, out):
        home = self.home()
        env = {"KAFKA_URI": f"kafka://{broker.bootstrap}", "KAFKA_VERSION": "4.2.0"}
        command = [CACHE / "kafka-python-venv/bin/python", "-m", "pytest", "test/integration",
                   "-k", "not sasl and not ssl", "-v", "--timeout", "120", "-p", "no:cacheprovider"]
        _, text = captured(command, work, 2400, cwd=home, env=env)
        words = {"PASSED": "pass", "FAILED": "fail", "ERROR": "fail", "SKIPPED": "skip",
                 "XFAIL": "skip", "XPASS": "pass"}
        cases = re.findall(r"^test/integration/(\S+) (PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)", text, re.M)
        if not cases:
            raise RuntimeError(text[-2000:])
        if any(words[word] == "fail" for _, word in cases):
            keep(out, "pytest", text, 400)
        for name, word in cases:
            yield name, words[word]


class JavaCheckers:
    """Checkers that stand in Kafka's jars."""

    NAME = "kafka-checkers"
    WHAT = "Kafka 4.3.1: VerifiableProducer and VerifiableConsumer, 100,000 records"
    COUNT = 100_000

    def run(self, broker, work, out):
        topic = lib.topic_name("verifiable")
        bootstrap = ["--bootstrap-server", broker.bootstrap]
        captured([lib.KAFKA, "topics", *bootstrap, "--create", "--topic", topic, "--partitions", "3"],
                 work, 60)
        for acks in ("-1", "1"):
            command = [lib.KAFKA, "verifiable-producer", *bootstrap, "--topic", topic,
                       "--max-messages", str(self.COUNT), "--acks", acks]
            status, text = captured(command, work, 300)
            acked = text.count('"name":"producer_send_success"')
            good = status == 0 and acked == self.COUNT
            if not good:
                keep(out, f"producer {acks}", text)
            yield f"VerifiableProducer, acks {acks}", acked if good else "fail"
        for protocol in ("classic", "consumer"):
            command = [lib.KAFKA, "verifiable-consumer", *bootstrap, "--topic", topic,
                       "--group-id", lib.topic_name("group"), "--reset-policy", "earliest",
                       "--max-messages", str(2 * self.COUNT), "--group-protocol", protocol]
            status, text = captured(command, work, 300)
            counts = re.findall(r'"name":"records_consumed".*?"count":(\d+)', text)
            counts += re.findall(r'"count":(\d+).*?"name":"records_consumed"', text)
            read = sum(map(int, counts))
            good = status == 0 and read >= 2 * self.COUNT
            if not good:
                keep(out, f"consumer {protocol}", text)
            yield f"VerifiableConsumer, group.protocol {protocol}", read if good else "fail"


ALL = [Librdkafka("classic"), Librdkafka("consumer"), Kgo(), KafkaPython(), JavaCheckers()]
