#!/usr/bin/env python3
"""Kafka Connect, standalone: a file's lines to a topic and from there to another file; the worker
is stopped, more lines are written, and a new worker goes on where the old one was."""

import signal
import subprocess
import tempfile
from pathlib import Path

import checks
import lib
import tools

WORKER = """bootstrap.servers={bootstrap}
key.converter=org.apache.kafka.connect.storage.StringConverter
value.converter=org.apache.kafka.connect.storage.StringConverter
offset.storage.file.filename={work}/offsets
offset.flush.interval.ms=500
listeners=http://127.0.0.1:{port}
consumer.auto.offset.reset=earliest
producer.compression.type={codec}
"""
SOURCE = """name=file-source
connector.class=FileStreamSource
tasks.max=1
file={work}/in
topic={topic}
"""
SINK = """name=file-sink
connector.class=FileStreamSink
tasks.max=1
file={work}/out
topics={topic}
"""
PATIENCE_S = 240


class Worker:
    def __init__(self, work, **values):
        for name, text in (("worker", WORKER), ("source", SOURCE), ("sink", SINK)):
            (work / f"{name}.properties").write_text(text.format(work=work, **values))
        files = [work / f"{name}.properties" for name in ("worker", "source", "sink")]
        command = tools.java("org.apache.kafka.connect.cli.ConnectStandalone", *files)
        with open(work / "worker.log", "ab") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


def lines_in(path):
    return path.read_text().splitlines() if path.exists() else []


def check_files(report, bootstrap, count, work):
    topic = lib.topic_name("connect")
    wanted = [f"line {number} {'offset segment ' * (number % 5)}" for number in range(count)]
    steps = [(wanted[: count // 2], "lz4"), (wanted[count // 2 :], "zstd")]
    until = 0
    for number, (lines, codec) in enumerate(steps, 1):
        with open(work / "in", "a") as source:
            source.write("".join(f"{line}\n" for line in lines))
        until += len(lines)
        values = {"bootstrap": bootstrap, "topic": topic, "port": lib.free_port(), "codec": codec}
        worker = Worker(work, **values)
        try:
            lib.wait_until(
                lambda: worker.process.poll() is not None or len(lines_in(work / "out")) >= until,
                "lines in the sink's file",
                PATIENCE_S,
                0.5,
            )
        finally:
            status = worker.stop()
        report.equal(f"worker {number} ends in order after SIGTERM", status, 143)
    got = lines_in(work / "out")
    report.say("moved", len(got))
    what = "every line once and in order, over two workers"
    report.check(what, got == wanted, f"{len(got)} of {len(wanted)}")


def main():
    bootstrap, count = checks.arguments()
    report = checks.Checks()
    report.say("version", "4.3.1")
    with tempfile.TemporaryDirectory() as work:
        run = lambda: check_files(report, bootstrap, count, Path(work))  # noqa: E731
        report.attempt("file to file", run)
        if report.failed:
            print((Path(work) / "worker.log").read_text(errors="replace")[-20000:])
    return report.finish()


if __name__ == "__main__":
    lib.main(main)
