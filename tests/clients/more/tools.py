"""Gets the clients of other languages ready: packages from npm, PyPI, crates.io, Go's proxy and
Maven, kept in the cache, built once for each change of the sources. Each function here gives a function that
prepares one program and returns its command.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
CACHE = (
    Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "uringlog" / "more-clients"
)
AIOKAFKA = (
    "aiokafka==0.14.0",
    "async-timeout==5.0.1",
    "typing_extensions==4.16.0",
    "packaging==26.4",
)
# Without these a build of librdkafka leaves out TLS and some codecs.
FOR_LIBRDKAFKA = ("libssl-dev", "zlib1g-dev", "libzstd-dev", "libcurl4-openssl-dev")


def must(command, folder=None, **environment):
    """Runs a step of an installation; shows what it printed only when it failed."""
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{command} failed:\n{(done.stdout + done.stderr)[-3000:]}")


def stamped(folder, sources, build):
    """Calls `build` unless the folder was built from the same sources."""
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    stamp = folder / ".built"
    if stamp.exists() and stamp.read_text() == digest:
        return
    folder.mkdir(parents=True, exist_ok=True)
    build()
    stamp.write_text(digest)


def python(script):
    def prepare():
        folder = CACHE / "python"

        def build():
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
            must([*pip, "--target", str(folder), "--upgrade", *AIOKAFKA])

        stamped(folder, [Path(__file__)], build)
        os.environ["PYTHONPATH"] = str(folder)
        return [sys.executable, str(HERE / script)]

    return prepare


def node(script):
    """The program runs beside node_modules: modules are looked for from where a program lies."""

    def prepare():
        folder = CACHE / "node"
        package = HERE / "node" / "package.json"

        def build():
            shutil.copy(package, folder)
            must(["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts"], folder)
            build_librdkafka(folder / "node_modules" / "@confluentinc" / "kafka-javascript")

        stamped(folder, [package], build)
        for source in (HERE / "node").glob("*.*js"):
            shutil.copy(source, folder)
        return ["node", str(folder / script)]

    return prepare


def build_librdkafka(folder):
    """From the sources in the package: its ready-made binary lies in no registry."""
    if os.getuid() == 0:
        must(["apt-get", "install", "-y", "-qq", "--no-install-recommends", *FOR_LIBRDKAFKA])
    must(
        ["npx", "--no-install", "node-pre-gyp", "install", "--build-from-source"],
        folder,
        CKJS_LINKING="dynamic",
        npm_config_nodedir="/usr",
    )


def go(program):
    def prepare():
        folder = CACHE / "go"
        here = HERE / "go"
        sources = [*sorted(here.glob("checks/*.go")), *sorted(here.glob(f"{program}/*.go"))]
        output = folder / program
        digest_folder = folder / f"{program}.stamp"

        def build():
            must(["go", "build", "-o", str(output), f"./{program}"], here)

        stamped(digest_folder, [*sources, here / "go.mod"], build)
        return [str(output)]

    return prepare


def rust(program):
    def prepare():
        folder, here = CACHE / "rust", HERE.parent / "rust"
        sources = [*sorted(here.glob("src/*.rs")), here / "Cargo.toml", here / "Cargo.lock"]

        def build():
            must(["cargo", "build", "--locked"], here, CARGO_TARGET_DIR=str(folder))

        stamped(folder, sources, build)
        return [str(folder / "debug" / program)]

    return prepare


def jars():
    """The folder of the jars that java/pom.xml names."""
    folder, pom = CACHE / "jars", HERE / "java" / "pom.xml"

    def build():
        must(
            ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
            + [f"-DoutputDirectory={folder}"]
        )

    stamped(folder, [pom], build)
    return folder


def java(main, *arguments):
    """The command that runs a class of these jars, or a source file with them."""
    return [
        *("java", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
        f"-Dlog4j2.configurationFile={HERE / 'java' / 'log4j2.properties'}",
        *("-cp", f"{jars()}/*", str(main), *map(str, arguments)),
    ]
