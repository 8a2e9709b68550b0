"""The programs that `cargo test --test programs` wrote down, run by Kafka: one case of a topic for
each, with a copy of the directory at every stop.
"""

import time
from pathlib import Path

BROKER = {
    "log.retention.ms": "-1",
    "log.cleaner.enable": "false",
    "auto.create.topics.enable": "false",
}
RESTART = "restart"


def read(folder):
    """{topic: its lines between the restarts}, the first line being the topic's settings."""
    programs = {}
    for path in sorted(Path(folder).glob("program-*")):
        parts = [[]]
        for line in path.read_text().splitlines():
            if line == RESTART:
                parts.append([])
            else:
                parts[-1].append(dict(word.split("=", 1) for word in line.split()[1:]))
        programs[path.name] = parts
    return programs


def run(case, client, programs):
    """Restarts come at the same time for all: the one that has most of them counts."""
    for topic, parts in programs.items():
        settings = parts[0].pop(0)
        client.topic(topic, **{name.replace(".", "_"): it for name, it in settings.items()})
    for number in range(max(map(len, programs.values()))):
        if 0 < number:
            case.stop()
            case.copy(f"dir-stop{number}", "stopped", f"clean stop {number}")
            case.start()
            for topic in programs:
                case.broker.wait_for_leader(topic)
            time.sleep(1)
        for topic, parts in programs.items():
            for options in parts[number] if number < len(parts) else []:
                client.batch(topic, **options)
    case.stop()
    case.copy("dir", "stopped", "clean stop")
