//! What the report draws.

use crate::record::picture::names;
use crate::record::{Kind, Picture, Recorder};

fn scaling(figure: &str, against: &str) -> Kind {
    Kind::Scaling { figures: names(&[figure]), against: against.to_owned() }
}

fn bars(figure: &str, by: &str) -> Kind {
    Kind::Bars { figures: names(&[figure]), by: Some(by.to_owned()) }
}

fn declare(
    recorder: &mut Recorder,
    (name, title, see): (&str, &str, &str),
    draw: Kind,
    only: &[(&str, &str)],
) {
    let picture = Picture::new(name, title, see, draw);
    let picture = only.iter().fold(picture, |it, (name, value)| it.only(name, *value));
    recorder.picture(picture);
}

/// Sequential against random.
pub fn disk(recorder: &mut Recorder) {
    declare(
        recorder,
        (
            "sequential-and-random",
            "Sequential and random writes against their size",
            "How far the two lines of a way lie apart is what order is worth on this device: much \
             for small direct writes on a disk that moves or reads ahead, little on flash and \
             behind a cache.",
        ),
        scaling("write_throughput", "block_bytes"),
        &[("part", "disk")],
    );
}

fn by(sweep: &'static str) -> [(&'static str, &'static str); 2] {
    [("part", "plans"), ("sweep", sweep)]
}

/// The log's plans.
pub fn plans(recorder: &mut Recorder) {
    appends(recorder);
    waiting(recorder);
}

/// Throughput and cost of appends.
fn appends(recorder: &mut Recorder) {
    declare(
        recorder,
        (
            "appends-by-partitions",
            "Durable appends against partitions",
            "With one partition all ways wait for the same device. With many, the ways that have \
             several syncs under way (linked, pool) leave the serial one behind, and the journal, \
             with one write for all partitions, leaves these behind.",
        ),
        scaling("append_throughput", "partitions"),
        &by("partitions"),
    );
    declare(
        recorder,
        (
            "appends-by-batch",
            "Durable appends against bytes of a batch",
            "Lines come together to the right: large batches are bound by the device and by \
             copying, whatever hands them over.",
        ),
        scaling("append_throughput", "batch_bytes"),
        &by("batch_bytes"),
    );
    declare(
        recorder,
        (
            "append-cpu-by-batch",
            "CPU of durable appends against bytes of a batch",
            "Each plan has its price whatever it carries, so the lines fall; the lowest one has \
             the fewest syncs and the fewest threads.",
        ),
        scaling("append_cpu", "batch_bytes"),
        &by("batch_bytes"),
    );
    declare(
        recorder,
        (
            "ring-to-best-other",
            "Throughput of the ring over the best other way",
            "Above 1 the ring wins, below 1 it loses.",
        ),
        scaling("throughput_to_best_other", "partitions"),
        &by("partitions"),
    );
    declare(
        recorder,
        (
            "system-calls",
            "System calls for one batch, by partitions",
            "A ring enters the kernel a few times a turn, so its share for a batch falls with the \
             partitions; a loop of calls has the same for each.",
        ),
        bars("append_system_calls", "partitions"),
        &by("partitions"),
    );
}

/// What waits for whom: latency, group commit, no sync at all.
fn waiting(recorder: &mut Recorder) {
    declare(
        recorder,
        (
            "append-latency",
            "How long a turn takes until all is acknowledged",
            "The left end is the usual turn, the right end the slowest ones. Where lines cross, \
             the way with the better median has the worse tail.",
        ),
        Kind::Percentiles { latencies: names(&["append"]) },
        &[("part", "plans"), ("sweep", "sync"), ("sync", "fdatasync")],
    );
    declare(
        recorder,
        (
            "group-commit",
            "Batches that come together: a plan for each, or one for all",
            "With group commit (true) the batches of a partition share a write and a sync; the \
             difference is nearly their number where the sync is the price.",
        ),
        bars("append_throughput", "group_commit"),
        &by("group_commit"),
    );
    declare(
        recorder,
        (
            "with-and-without-sync",
            "Appends that wait for a sync, and those that don't",
            "Without syncs (none) the page cache takes everything, and a system call that writes \
             is done sooner than a ring's entry: this is where the ring has least to offer.",
        ),
        bars("append_throughput", "sync"),
        &by("sync"),
    );
}

/// How noisy it was.
pub fn noise(recorder: &mut Recorder) {
    declare(
        recorder,
        (
            "cpu-of-others",
            "Share of all cores that others took, point by point",
            "Low and level is good: a hill means that ways were measured under different \
             conditions there, the kernel's own threads included.",
        ),
        Kind::Timeline { series: names(&["cpu_of_others"]), events: Vec::new() },
        &[("part", "plans")],
    );
}

/// From socket to file.
pub fn socket(recorder: &mut Recorder) {
    declare(
        recorder,
        (
            "frame-cpu",
            "CPU for one frame from socket to file",
            "What stands above the bar of `network` is the price of writing: chains against \
             system calls.",
        ),
        bars("frame_cpu", "in_flight"),
        &[("part", "socket")],
    );
}

/// File ranges to sockets.
pub fn reads(recorder: &mut Recorder) {
    let of = |sweep, cache| [("part", "reads"), ("sweep", sweep), ("cache", cache)];
    for cache in ["hot", "cold"] {
        let see = match cache {
            "hot" => {
                "Small answers cost their turns and calls, large ones their copies: ways that \
                 don't copy gain to the right."
            }
            _ => {
                "The device is the same for all: what differs is whether one answer that waits \
                 for it makes the others wait."
            }
        };
        let (name, title) = (
            format!("reads-by-size-{cache}"),
            format!("Answers from a {cache} file against their size"),
        );
        let draw = scaling("read_throughput", "answer_bytes");
        declare(recorder, (&name, &title, see), draw, &of("answer_bytes", cache));
        let (name, title) = (
            format!("reads-by-connections-{cache}"),
            format!("Answers from a {cache} file against connections"),
        );
        let see = match cache {
            "hot" => "One thread serves, so lines are flat once it is busy.",
            _ => {
                "A way whose waiting happens on the serving thread stays flat; one whose waiting \
                 happens elsewhere grows with the connections."
            }
        };
        let draw = scaling("read_throughput", "connections");
        declare(recorder, (&name, &title, see), draw, &of("connections", cache));
    }
    declare(
        recorder,
        (
            "read-cpu-hot",
            "CPU of answers from a hot file against their size",
            "The line that lies lowest to the right copies least.",
        ),
        scaling("read_cpu", "answer_bytes"),
        &of("answer_bytes", "hot"),
    );
}

/// Set-ups of a ring.
pub fn queues(recorder: &mut Recorder) {
    for (sync, what) in [("none", "not synced"), ("fdatasync", "synced")] {
        let name = format!("queue-depth-{what}").replace(' ', "-");
        let title = format!("Writes that are {what}, against the depth of the queue");
        let see = match sync {
            "none" => {
                "A deeper queue shares one enter among more writes, so the ring comes nearer to \
                 system calls; they may still be first, since nothing waits for a device."
            }
            _ => {
                "A deeper queue has more syncs under way at once: ring and threads rise, the loop \
                 of calls stays where it is."
            }
        };
        let draw = scaling("queued_write_throughput", "depth");
        declare(recorder, (&name, &title, see), draw, &[("part", "queues"), ("sync", sync)]);
    }
}

/// Ways to sync.
pub fn syncs(recorder: &mut Recorder) {
    declare(
        recorder,
        (
            "ways-to-sync",
            "One durable append after the other, by way",
            "Ways that don't change the file's length need no commit of the file system's \
             journal, and are ahead where that costs; the last two are fast since they promise \
             less.",
        ),
        scaling("synced_write_throughput", "synced_bytes"),
        &[("part", "syncs")],
    );
}

/// Index entries.
pub fn index(recorder: &mut Recorder) {
    declare(
        recorder,
        (
            "index-entries",
            "Appends with index entries, written or mapped",
            "The distance to `log-only` is the price of the index. With a sync it disappears \
             beside the device.",
        ),
        bars("indexed_append_throughput", "sync"),
        &[("part", "index")],
    );
}
