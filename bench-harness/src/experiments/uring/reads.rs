//! File ranges to sockets in five ways, hot and cold.
//!
//! One thread serves; one more reads from all connections, each with one request under way. A
//! *cold* point begins with none of the file in the page cache, and asks for no part twice.

use std::fs::File;
use std::time::Duration;

use rustix::fs::{Advice, fadvise};

use super::cost::{Cost, Outcome, Ratios, Side, per_operation};
use super::{pictures, point_time};
use crate::experiments::measure::{self, u64_of};
use crate::experiments::splice::{Many, Mode, Read, WhenFull, fill, measure_many};
use crate::experiments::{Doing, Failure};
use crate::record::{Better, Recorder, Unit};
use crate::run::Context;

const WAYS: [(Mode, &str, Side); 5] = [
    (Mode::ReadSend, "read-send", Side::Other),
    (Mode::Sendfile, "sendfile", Side::Other),
    (Mode::Splice(WhenFull::Steal), "splice", Side::Ring),
    (Mode::ReadSendZeroCopy, "send-zc", Side::Ring),
    (Mode::Mapped, "mmap-send", Side::Other),
];
/// What the device gave; caches decide.
const DEVICE_BYTES: Unit = Unit { name: "bytes", better: Better::None };

#[derive(Clone, Copy)]
struct Point {
    sweep: &'static str,
    answer_bytes: u64,
    connections: u64,
    is_cold: bool,
}

/// Every point.
///
/// # Errors
/// Whatever the network or the disk refuses, and wrong bytes.
pub fn run(context: &Context, recorder: &mut Recorder) -> Result<(), Failure> {
    if measure::cores() < 2 {
        recorder.note("uring, reads: left out, as server and readers need a core each.");
        return Ok(());
    }
    let points = points(context)?;
    let path = context.folder.join("served");
    let file = super::new_file(&path)?;
    fill(&file, context.parameters.number("read_bytes"))?;
    let mut ratios = Ratios::new("Reads");
    let progress = context.progress(u64_of(points.len() * WAYS.len()), "reads in every way");
    for point in points {
        recorder.vary("sweep", point.sweep);
        recorder.vary("answer_bytes", point.answer_bytes);
        recorder.vary("connections", point.connections);
        recorder.vary("cache", point.cache());
        let mut outcomes = Vec::new();
        for way in super::in_turn(context, &WAYS) {
            context.check()?;
            outcomes.push(measure_way(context, (&file, point, way), recorder)?);
            progress.advance(1);
        }
        let Point { answer_bytes, connections, .. } = point;
        let label = format!("{connections} x {answer_bytes} B, {}", point.cache());
        ratios.point(recorder, &label, &outcomes);
    }
    ratios.finish(recorder);
    notes(recorder);
    pictures::reads(recorder);
    super::remove(&path)
}

fn points(context: &Context) -> Result<Vec<Point>, Failure> {
    let parameters = &context.parameters;
    let (answer_bytes, connections) =
        (parameters.number("middle_answer_bytes"), parameters.number("middle_connections"));
    let mut points = Vec::new();
    for is_cold in [false, true] {
        let middle = Point { sweep: "answer_bytes", answer_bytes, connections, is_cold };
        for answer_bytes in parameters.numbers("answer_bytes") {
            points.push(Point { answer_bytes, ..middle });
        }
        for connections in parameters.numbers("connections") {
            points.push(Point { sweep: "connections", connections, ..middle });
        }
    }
    match points.iter().find(|it| !it.answer_bytes.is_multiple_of(8)) {
        None => Ok(points),
        Some(it) => Err(Failure::Usage(format!(
            "--set answer_bytes, middle_answer_bytes: answers are multiples of 8 bytes, not {}",
            it.answer_bytes
        ))),
    }
}

impl Point {
    fn cache(&self) -> &'static str {
        if self.is_cold { "cold" } else { "hot" }
    }
}

fn measure_way(
    context: &Context,
    (file, point, (mode, way, side)): (&File, Point, (Mode, &str, Side)),
    recorder: &mut Recorder,
) -> Result<Outcome, Failure> {
    if point.is_cold {
        fadvise(file, 0, None, Advice::DontNeed).doing("drop the file from the page cache")?;
    } else {
        touch(file)?;
    }
    let many = Many {
        mode,
        connections: u32::try_from(point.connections).expect("at most 1,024"),
        answer_bytes: point.answer_bytes,
        file_bytes: context.parameters.number("read_bytes"),
        is_once: point.is_cold,
        time: point_time(context),
    };
    let before = device_bytes();
    let Read { latency, answers, wall, cpu, workers, enters, traced } = measure_many(file, many)?;
    let read = device_bytes().zip(before).map(|(after, before)| after - before);
    let cost = Cost {
        way,
        side,
        operations: answers,
        bytes: answers * point.answer_bytes,
        wall: wall.max(Duration::from_nanos(1)),
        cpu,
        traced,
        workers,
        latency: &latency,
    };
    let outcome = cost.record("read", recorder);
    per_operation(recorder, "read_enters", (enters, answers));
    if let Some(read) = read {
        recorder.figure("device_bytes_read", read, DEVICE_BYTES);
    }
    Ok(outcome)
}

/// All of the file is in the page cache.
fn touch(mut file: &File) -> Result<(), Failure> {
    use std::io::{Seek, SeekFrom};
    file.seek(SeekFrom::Start(0)).doing("rewind the served file")?;
    std::io::copy(&mut file, &mut std::io::sink()).doing("read the served file").map(drop)
}

/// What this process has had devices read; `None` where the kernel doesn't say.
fn device_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/io").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("read_bytes: "))?;
    line.trim().parse().ok()
}

fn notes(recorder: &mut Recorder) {
    recorder.note(
        "uring, reads: every way is served by the same loop on one ring, which receives, sends \
         headers and waits for sockets; only the way from file to socket differs. `read-send` \
         and `send-zc` read by system call into a buffer, `sendfile` is a system call, \
         `mmap-send` sends from mapped memory. So they are better than a loop on epoll by what \
         the ring saves around them, and the ratios tell what the ring's own way adds. \
         On loopback SEND_ZC copies all the same, and pays for its second completion; only a \
         network card shows what it saves.",
    );
    recorder.note(
        "uring, reads: cold points begin with the file dropped from the page cache \
         (POSIX_FADV_DONTNEED) and jump through it; `device_bytes_read` above what was asked for \
         is the kernel's read-ahead. `read-send`, `send-zc`, `sendfile` and `mmap-send` wait for \
         the device on the thread that serves all others; a splice waits on a kernel worker. The \
         virtual machine's host may have the file in its own cache.",
    );
}
