"""Kafka's own kafka-dump-log over every partition of a stopped server's directory: no complaint
is allowed.

dump.py DIR      checks all partitions in DIR; exit status 0 when nothing is wrong
"""

import re
import subprocess
import sys
from pathlib import Path

import lib

# The lines that the tool prints for good files; whatever else it says is a complaint.
LOG_LINES = re.compile(
    r"^(Dumping .*\.log$|Log starting offset: \d+$|"
    r"baseOffset: .* compresscodec: (?P<codec>\w+) crc: \d+ isvalid: true$|"
    r"\| offset: \d+ (CreateTime|LogAppendTime|NoTimestampType): )"
)
INDEX_LINES = re.compile(
    r"^(Dumping .*index$|offset: \d+ position: \d+$|timestamp: -?\d+ offset: \d+$|"
    r".*index passed sanity check\.$|.*index is empty\.$)"
)
# Printed for every segment that does not begin at offset 0: the tool starts to compare at -1.
FIRST_OF_SEGMENT = re.compile(r"^(Non-consecutive offsets in .*:|\s+-1 is followed by \d+)$")
ABOUT = re.compile(r"^(?:Non-consecutive offsets in |Found timestamp mismatch in :)(.*)$")
FILES_PER_RUN = 400


def dump(files, arguments, good):
    """The complaints about the files, and the codecs of their batches: {partition folder: set}."""
    complaints, codecs = [], {}
    folder = ""
    for start in range(0, len(files), FILES_PER_RUN):
        part = ",".join(map(str, files[start : start + FILES_PER_RUN]))
        process = subprocess.Popen(
            [lib.KAFKA, "dump-log", "--files", part, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
        )
        for line in process.stdout:
            line = line.rstrip("\n")
            match = good.match(line)
            if line.startswith("Dumping "):
                folder = Path(line.removeprefix("Dumping ")).parent.name
            if match and match.groupdict().get("codec"):
                codecs.setdefault(folder, set()).add(match["codec"])
            elif not match:
                complaints.append(line)
        if process.wait():
            complaints.append(f"exit status {process.returncode}")
    return without_harmless(complaints), codecs


def without_harmless(complaints):
    """Leaves out the pair of lines about a segment's first offset; any other gap keeps both its
    lines."""
    kept = []
    for line in complaints:
        if FIRST_OF_SEGMENT.match(line) and "-1 is followed" in line:
            if kept and kept[-1].startswith("Non-consecutive offsets"):
                kept.pop()
            continue
        kept.append(line)
    return kept


def all_partitions(data):
    """But for the metadata log."""
    return sorted(
        path
        for path in Path(data).iterdir()
        if path.is_dir()
        and re.search(r"-\d+$", path.name)
        and not path.name.startswith("__cluster_metadata")
    )


def partitions(data):
    """Without the internal topics."""
    return [path for path in all_partitions(data) if not path.name.startswith("__")]


def internal_partitions(data):
    return [path for path in all_partitions(data) if path.name.startswith("__")]


def files_of(folders, *suffixes):
    return sorted(
        path for folder in folders for path in folder.iterdir() if path.suffix in suffixes
    )


def without_known(complaints, folders):
    """Leaves out offsets that are missing, and times that don't fit, in these partitions."""
    kept, is_known = [], False
    for line in complaints:
        about = ABOUT.match(line)
        if about:
            is_known = Path(about[1]).parent.name in folders
        elif not line.startswith(" "):
            is_known = False
        if not is_known:
            kept.append(line)
    return kept


def check(report, data, is_text=True, known_in=(), metadata=None):
    """Records whose bytes are no text can't be told from the tool's own lines: for them, and for
    those of internal topics, only the batches and the records' positions are printed. `metadata`
    is `metadata.log.dir`, where that is another directory."""
    report.check("the directory holds partitions", bool(all_partitions(data)), data)
    # A client may have deleted its topics.
    if partitions(data):
        check_partitions(report, "", partitions(data), is_text, known_in)
    if internal_partitions(data):
        check_partitions(report, " of internal topics", internal_partitions(data), False, known_in)
    check_metadata(report, Path(metadata or data) / "__cluster_metadata-0")


def check_partitions(report, whose, folders, is_text, known_in):
    def found_nothing(what, complaints):
        report.check(f"{what}{whose}", not complaints, "; ".join(complaints[:5]))

    logs = files_of(folders, ".log")
    indexes = files_of(folders, ".index", ".timeindex")
    complaints, codecs = dump(logs, ["--deep-iteration", *["--print-data-log"] * is_text], LOG_LINES)
    found_nothing(f"dump-log of {len(logs)} segments", without_known(complaints, known_in))
    complaints, _ = dump(indexes, [], INDEX_LINES)
    complaints = without_known(complaints, known_in)
    found_nothing(f"dump-log of {len(indexes)} indexes against their segments", complaints)
    complaints, _ = dump(indexes, ["--index-sanity-check"], INDEX_LINES)
    found_nothing(f"index sanity check of {len(indexes)} indexes", complaints)
    for folder, found in sorted(codecs.items()):
        named = re.search(r"-codec-(\w+)-", folder)
        if named:
            report.check(f"{folder} is stored as {named[1]}", named[1] in found, found)


def check_metadata(report, folder):
    """Every directory has one: without it nothing was looked at."""
    logs = files_of([folder], ".log") if folder.is_dir() else []
    complaints, _ = dump(
        logs,
        ["--cluster-metadata-decoder", "--deep-iteration"],
        re.compile(LOG_LINES.pattern + r"|^\| offset|^(\s|$)|^[A-Za-z]+\(|^Snapshot"),
    )
    if not logs:
        complaints.append(f"no log in {folder}")
    report.check("dump-log of the cluster metadata", not complaints, "; ".join(complaints[:5]))


if __name__ == "__main__":
    REPORT = lib.Report("dump-log")
    check(REPORT, sys.argv[1])
    sys.exit(REPORT.finish())
