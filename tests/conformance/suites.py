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
from concurrent.futures import ThreadPoolExecutor
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
    log = cwd / "conformance-build.log"
    with open(log, "w") as out:
        status = call(command, out, 3000, cwd=cwd)
    if status != 0:
        raise RuntimeError(f"{what} failed, {log} says:\n{log.read_text()[-2000:]}")


def folder_of_kafka(home):
    """A folder like Kafka's own, for tests that call its scripts or compile against its jars."""
    (home / "bin").mkdir(parents=True, exist_ok=True)
    tools = ("topics", "configs", "acls", "console-producer", "console-consumer")
    commands = {**{it: it for it in tools}, "run-class": "java"}
    for name, command in commands.items():
        script = home / "bin" / f"kafka-{name}.sh"
        script.write_text(f'#!/bin/sh\nexec "{lib.KAFKA}" {command} "$@"\n')
        script.chmod(0o755)
    jars = subprocess.run([lib.KAFKA, "jars"], stdout=subprocess.PIPE, text=True, check=True)
    if not (home / "libs").is_symlink():
        (home / "libs").symlink_to(jars.stdout.strip())
    return home


class Librdkafka:
    """librdkafka's own tests, each in a process of its own."""

    # Version, and which package of which registry brings its sources with the tests.
    CRATE = ("2.12.1", "rdkafka-sys@4.10.0")
    NPM = ("2.15.1", "@confluentinc/kafka-javascript@1.10.1")
    SECONDS = 120
    SECONDS_FULL = 840
    # In full it has more than a hundred parts of up to half a minute each.
    SECONDS_0113 = 3600
    AT_ONCE = 4
    # Numbers of tests, for a run of a few; all when empty.
    chosen = frozenset(os.environ.get("CONFORMANCE_TESTS", "").split())
    # Local ones, mocks, share groups (not served), and those that wait for hours by design.
    SKIPPED = re.compile(r"00(00|09|62|66|78)|01(0[45]|17)|.*mock|.*share_|8\d\d\d")
    # Those that measure speed are left to the full mode.
    SLOW = re.compile(r"00(38|55)")
    # Those that want a broker which creates no topics by itself.
    NO_AUTO_CREATE = re.compile(r"0045|0107|0111")

    # For one node without an authorizer, where these tests would end before they begin: two or
    # three replicas become one, and the calls about ACLs are left out of 0081.
    CHANGES = (
        ("test.c", r"(rd_kafka_NewTopic_new\(topicname, partition_cnt, )replication_factor",
         r"\1replication_factor > 1 ? 1 : replication_factor"),
        # Kafka 4 takes no smaller segments; 2.15's own answer to that in 0077.
        ("0129-fetch_aborted_msgs.c", r"20000", "1048576"),
        ("0077-compaction.c", r"segment\.ms=10000 ", "segment.ms=500 "),
        ("0077-compaction.c", r"segment\.bytes=10000 ", "segment.bytes=1048576 "),
        ("0077-compaction.c", r"fillcnt, 1000\)", "fillcnt, 60000)"),
        ("0077-compaction.c", r"partition, 20, 1024\)", "partition, 20, 60000)"),
        ("0081-admin.c", r"num_replicas = \(int\)avail_broker_cnt", "num_replicas = 1"),
        ("0081-admin.c", r"^ +do_test_(Create|Describe|Delete)Acls\(rk, mainq, [01]\);\n", ""),
    )

    # Modes, each with what it sets besides. In the full one members that start together must find
    # themselves in one generation, which a delay of 0 leaves to chance: there it is Kafka's default.
    MODES = {
        "quick": (),
        "full": ("group.initial.rebalance.delay.ms=3000",),
        "noautocreate": ("auto.create.topics.enable=false",),
    }

    def __init__(self, protocol, mode="quick", package=CRATE):
        """The mode is quick, full, or noautocreate: the runner's scenario of that name."""
        self.protocol = protocol
        self.mode = mode
        self.package = package
        self.version = package[0]
        newer = "" if package == self.CRATE else f"{self.version[:4]}-"
        self.NAME = f"librdkafka-{newer}{protocol}{'' if mode == 'quick' else f'-{mode}'}"
        self.WHAT = (f"librdkafka {self.version}, its test runner, {mode}, group.protocol={protocol}; "
                     "one replica, no ACLs")
        self.SETTINGS = self.MODES[mode]

    # What the runner lacks skips or fails the tests that want it, with any broker: nothing is
    # disabled here that a test against one plain broker asks for.
    CONFIGURE = ("--disable-gssapi", "--disable-curl", "--disable-zstd", "--disable-optimization")

    def built(self):
        """Built anew after a change of the options or the changes: they are in the stamp."""
        home = CACHE / f"librdkafka-{self.version}"
        runner = home / "tests" / "test-runner"
        stamp, wanted = home / "conformance-stamp", repr((self.CONFIGURE, self.CHANGES))
        if stamp.exists() and stamp.read_text() == wanted:
            return runner
        CACHE.mkdir(parents=True, exist_ok=True)
        fetch = CACHE / "fetch"
        shutil.rmtree(fetch, ignore_errors=True)
        shutil.rmtree(home, ignore_errors=True)
        fetch.mkdir()
        shutil.copytree(self.fetched(fetch), home)
        # What cargo vendor leaves has lost the permission to be run.
        must(["chmod", "-R", "+x", "."], home, "chmod")
        for path, pattern, instead in self.CHANGES:
            text = (home / "tests" / path).read_text()
            changed, times = re.subn(pattern, instead, text, flags=re.M)
            # A newer release may have it so by itself.
            if times == 0 and instead not in text:
                raise RuntimeError(f"{path} has no {pattern} any more")
            (home / "tests" / path).write_text(changed)
        must(["./configure", *self.CONFIGURE], home, "configure")
        options = (home / "config.h").read_text()
        for wish in ("WITH_SSL 1", "WITH_RAPIDJSON 1"):
            if f"#define {wish}" not in options:
                raise RuntimeError(f"librdkafka was configured without {wish}: {home}/config.log")
        for folder, target in (("src", "librdkafka.a"), ("src-cpp", "librdkafka++.a"),
                               ("tests", "test-runner")):
            must(["make", "-j2", "-C", folder, target], home, f"make {target}")
        # Its Java clients, once: tests that run beside each other would compile them together.
        kafka = folder_of_kafka(home / "kafka")
        must(["make", "-C", "tests/java", f"KAFKA_PATH={kafka}"], home, "make java")
        stamp.write_text(wanted)
        return runner

    def fetched(self, folder):
        """The folder of the sources, out of the package."""
        _, name = self.package
        if self.package == self.NPM:
            must(["npm", "pack", "--silent", name], folder, "npm pack")
            must(["tar", "xzf", next(folder.glob("*.tgz"))], folder, "tar")
            return folder / "package" / "deps" / "librdkafka"
        must(["cargo", "init", "--quiet", "--name", "fetch", "--lib", "."], folder, "cargo init")
        must(["cargo", "add", "--quiet", name], folder, "cargo add")
        must(["cargo", "vendor", "--quiet", "vendor"], folder, "cargo vendor")
        return next((folder / "vendor").glob("rdkafka-sys*")) / "librdkafka"

    def run(self, broker, work, out):
        """Several at a time, since most of them mostly wait; what fails is run once more alone."""
        runner = self.built()
        (work / "test.conf").write_text(f"bootstrap.servers={broker.bootstrap}\n")
        folder_of_kafka(work / "tools")
        sources = sorted(runner.parent.glob("[0-9][0-9][0-9][0-9]-*.c*"))
        names = [it.stem for it in sources if self.has(it.stem)]
        again = []
        with ThreadPoolExecutor(self.AT_ONCE) as pool:
            for name, outcome, _ in pool.map(lambda it: self.one(runner, work, it), names):
                if outcome == "fail":
                    again.append(name)
                else:
                    yield name, outcome
        for name in again:
            name, outcome, text = self.one(runner, work, name)
            if outcome == "fail":
                keep(out, name, text)
            yield name, outcome

    def has(self, name):
        if self.SKIPPED.match(name) or (self.chosen and name[:4] not in self.chosen):
            return False
        if self.mode == "noautocreate":
            return bool(self.NO_AUTO_CREATE.match(name))
        return self.mode == "full" or not self.SLOW.match(name)

    def one(self, runner, work, name):
        bootstrap = (work / "test.conf").read_text().split("=")[1].strip()
        env = {"RDKAFKA_TEST_CONF": str(work / "test.conf"), "TEST_KAFKA_VERSION": "4.1.0",
               "KAFKA_PATH": str(work / "tools"), "BROKERS": bootstrap,
               "TEST_CONSUMER_GROUP_PROTOCOL": self.protocol, "TESTS": name[:4]}
        place = work / name
        place.mkdir(exist_ok=True)
        # Quick is without its emulation of a bad network, as in its own Makefile.
        flags = {"quick": ["-E", "-Q"], "full": [], "noautocreate": ["-s", "noautocreate"]}
        command = [runner, "-L", "-p1", *flags[self.mode]]
        seconds = self.SECONDS if self.mode == "quick" else self.SECONDS_FULL
        if name.startswith("0113"):
            seconds = self.SECONDS_0113
        status, text = captured(command, place, seconds, cwd=runner.parent, env=env)
        if status != 0:
            return name, "fail", text
        # The rows of the runner's own summary; the first speaks for the whole.
        passed = re.findall(r"^\|\S* (\d{4}\S+) +\| +PASSED", text, re.M)
        return name, "pass" if passed else "skip", text


class Kgo:
    """franz-go's group and transaction pipelines, and the smaller tests that talk to a broker."""

    NAME = "franz-go"
    VERSION = "v1.22.3"
    WHAT = f"franz-go {VERSION} kgo: TestGroupETL, TestTxnEtl (100,000 records), broker tests"
    # Name of the run, pattern of the tests, seconds.
    RUNS = (
        ("small", "^(TestUnknownGroupOffsetFetchPinned|TestPing|TestIssue1034|TestIssue\\d+|"
         "TestConsumeTopicRetrieval.*|TestConsumeRegex|Test848.*|TestDirectPartitionPurge|"
         "TestAddRemovePartitions|TestPauseIssue.*|TestIssueFetchLarger.*|TestPooling|"
         "TestGroupSimple|TestHookPollStart|TestLookbackMilli|TestClient_Produce.*)$", 240),
        ("TestGroupETL", "^TestGroupETL$", 600),
        ("TestTxnEtl", "^TestTxnEtl$", 600),
    )

    def built(self, work):
        home = CACHE / f"franz-go-{self.VERSION}"
        runner = home / "kgo.test"
        if runner.exists():
            return runner
        CACHE.mkdir(parents=True, exist_ok=True)
        module = f"github.com/twmb/franz-go@{self.VERSION}"
        status, text = captured(["go", "mod", "download", "-json", module], work, 600)
        folder = re.search(r'"Dir": "([^"]+)"', text)
        if status != 0 or not folder:
            raise RuntimeError(f"go mod download {module}: {text[-500:]}")
        shutil.rmtree(home, ignore_errors=True)
        shutil.copytree(folder[1], home)
        must(["chmod", "-R", "u+w", "."], home, "chmod")
        must(["go", "test", "-c", "-o", runner, "./pkg/kgo"], home, "go test -c")
        return runner

    def run(self, broker, work, out):
        runner = self.built(work)
        env = {"KGO_SEEDS": broker.bootstrap, "KGO_TEST_RF": "1", "KGO_TEST_RECORDS": "100000",
               "KGO_LOG_LEVEL": "none"}
        for name, pattern, seconds in self.RUNS:
            command = [runner, "-test.count=1", "-test.run", pattern, "-test.v",
                       f"-test.timeout={seconds}s"]
            status, text = captured(command, work, seconds + 30, env=env,
                                    cwd=runner.parent / "pkg" / "kgo")
            cases = results_of_go(text, name, status)
            if any(outcome == "fail" for _, outcome in cases):
                keep(out, name, text, 200)
            yield from cases


def results_of_go(text, test, status):
    """Sub-tests as Go names them; the test itself when it has none or never came to an end."""
    found = re.findall(r"^ *--- (PASS|FAIL|SKIP): (\S+)", text, re.M)
    words = {"PASS": "pass", "FAIL": "fail", "SKIP": "skip"}
    cases = {name: words[word] for word, name in found}
    if status != 0 and "fail" not in cases.values():
        cases[test] = "fail"
    return sorted(cases.items())


OUTSIDE = """
class ExternalService:
    def __init__(self, host, port):
        self.host, self.port = host, port

    def open(self):
        pass

    close = stop = open


class SpawnedService:
    def __init__(self, *_):
        raise RuntimeError("only a broker from outside can be tested")
"""


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
        must([*pip, "pytest", "pytest-timeout", "py", "mock", "lz4", "python-snappy", "zstandard",
              "crc32c"], CACHE, "pip")
        must([sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", ":all:",
              f"kafka-python=={self.VERSION}", "-d", CACHE], CACHE, "pip download")
        archive = next(CACHE.glob(f"kafka_python-{self.VERSION}.tar.gz"))
        with tarfile.open(archive) as packed:
            packed.extractall(CACHE, filter="data")
        must([*pip, "-e", "."], home, "pip install")
        # What the archive lacks: without the first, Python's own package of that name is found; the
        # second starts brokers, and a broker from outside needs nothing of it.
        (home / "test" / "__init__.py").touch()
        (home / "test" / "service.py").write_text(OUTSIDE)
        (home / ".ready").touch()
        return home

    def run(self, broker, work, out):
        home = self.home()
        env = {"KAFKA_URI": f"kafka://{broker.bootstrap}", "KAFKA_VERSION": "4.3.1",
               "KAFKA_ROOT": str(work)}
        command = [CACHE / "kafka-python-venv/bin/python", "-m", "pytest", "test/integration",
                   "-k", "not sasl and not ssl", "-v", "--tb=short", "--show-capture=no", "--timeout",
                   "120", "-p", "no:cacheprovider"]
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
    WHAT = ("Kafka 4.3.1: VerifiableProducer, VerifiableConsumer, TransactionalMessageCopier with "
            "100,000 records each; ClientCompatibilityTest")
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
        yield "ClientCompatibilityTest", self.compatibility(broker, work, out)
        for more in ((), ("--enable-random-aborts", "--group-mode", "--use-group-metadata")):
            case = " ".join(["TransactionalMessageCopier", *more])
            yield case, self.copied(broker, work, out, more)

    def compatibility(self, broker, work, out):
        """Every feature is expected; the exception is of brokers before 0.10.1."""
        features = ("offsets-for-times", "cluster-id", "create-topics", "describe-acls",
                    "describe-configs", "idempotent-producer")
        flags = [word for it in features for word in (f"--{it}-supported", "True")]
        topic = lib.topic_name("compatibility")
        captured([lib.KAFKA, "topics", "--bootstrap-server", broker.bootstrap, "--create",
                  "--topic", topic], work, 60)
        command = [lib.KAFKA, "java", "org.apache.kafka.tools.ClientCompatibilityTest",
                   "--topic", topic, "--bootstrap-server", broker.bootstrap, "--num-cluster-nodes",
                   str(getattr(broker, "shards", 1)), "--expect-record-too-large-exception", "False", *flags]
        status, text = captured(command, work, 120)
        if status != 0:
            keep(out, "ClientCompatibilityTest", text)
        return "pass" if status == 0 else "fail"

    def copied(self, broker, work, out, more):
        """Records that arrived when each of the numbers sent came out once and in order."""
        bootstrap = ["--bootstrap-server", broker.bootstrap]
        source, target = lib.topic_name("copy", "from"), lib.topic_name("copy", "to")
        for topic in (source, target):
            captured([lib.KAFKA, "topics", *bootstrap, "--create", "--topic", topic,
                      "--partitions", "1"], work, 60)
        captured([lib.KAFKA, "verifiable-producer", *bootstrap, "--topic", source,
                  "--max-messages", str(self.COUNT)], work, 300)
        command = [lib.KAFKA, "java", "org.apache.kafka.tools.TransactionalMessageCopier",
                   "--broker-list", broker.bootstrap, "--input-topic", source, "--input-partition",
                   "0", "--output-topic", target, "--transactional-id", lib.topic_name("copier"),
                   "--consumer-group", lib.topic_name("copiers"), "--transaction-size", "1000", *more]
        status, said = captured(command, work, 300)
        command = [lib.KAFKA, "console-consumer", *bootstrap, "--topic", target,
                   "--from-beginning", "--isolation-level", "read_committed",
                   "--timeout-ms", "10000"]
        _, text = captured(command, work, 300)
        numbers = [int(it) for it in text.splitlines() if it.isdigit()]
        if status == 0 and numbers == list(range(self.COUNT)):
            return len(numbers)
        keep(out, f"copier {more}: status {status}, {len(numbers)} records", said)
        return "fail"


ALL = [Kgo(), Librdkafka("classic"), Librdkafka("consumer"), KafkaPython(), JavaCheckers(),
       Librdkafka("classic", "full"), Librdkafka("classic", "noautocreate"),
       Librdkafka("consumer", "full"),
       Librdkafka("classic", package=Librdkafka.NPM), Librdkafka("consumer", package=Librdkafka.NPM),
       Librdkafka("classic", "full", Librdkafka.NPM), Librdkafka("consumer", "full", Librdkafka.NPM),
       Librdkafka("consumer", "noautocreate", Librdkafka.NPM)]
