//! Clocks, cores, kernel workers, medians, and the two forms in which figures leave the harness.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Map, Value};

use super::{Doing, Failure};
use crate::sys::TraceCount;

/// Threads of this process that the kernel runs for its rings.
pub fn kernel_workers() -> usize {
    let Ok(threads) = fs::read_dir("/proc/self/task") else { return 0 };
    let is_worker = |name: String| name.starts_with("iou-wrk");
    threads
        .flatten()
        .filter(|thread| fs::read_to_string(thread.path().join("comm")).is_ok_and(is_worker))
        .count()
}

/// CPU time of the whole process so far, kernel workers included, the ended ones too.
pub fn process_cpu() -> Duration {
    cpu(ClockId::ProcessCPUTime)
}

/// CPU time of the calling thread so far.
pub fn thread_cpu() -> Duration {
    cpu(ClockId::ThreadCPUTime)
}

/// CPU time that all cores have spent on something so far, in steps of a hundredth of a second.
pub fn machine_cpu() -> Duration {
    const TICK: Duration = Duration::from_millis(10);
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let line = text.lines().next().unwrap_or_default();
    let fields = line.split_whitespace().skip(1).filter_map(|field| field.parse::<u32>().ok());
    let fields: Vec<u32> = fields.collect();
    // user, nice, system, (idle, iowait,) irq, softirq.
    [0, 1, 2, 5, 6].into_iter().filter_map(|at| fields.get(at)).map(|ticks| *ticks * TICK).sum()
}

/// How many cores the machine has, those that this thread may not use included.
pub fn cores() -> usize {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let is_core = |line: &&str| {
        line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|it: char| it.is_numeric()))
    };
    text.lines().filter(is_core).count().max(1)
}

fn cpu(clock: ClockId) -> Duration {
    Duration::try_from(clock_gettime(clock)).expect("CPU clocks do not go below zero")
}

/// Pins the calling thread to one core.
pub fn pin(core: usize) -> Result<(), Failure> {
    let mut cores = CpuSet::new();
    cores.set(core);
    sched_setaffinity(None, &cores).doing("pin a thread to its core")
}

/// Type of the file system that holds the folder.
pub fn file_system(folder: &Path) -> Result<String, Failure> {
    let magic = rustix::fs::statfs(folder).doing("ask for the file system")?.f_type;
    Ok(match magic {
        0xef53 => "ext4".to_owned(),
        0x5846_5342 => "xfs".to_owned(),
        0x9123_683e => "btrfs".to_owned(),
        0x0102_1994 => "tmpfs".to_owned(),
        _ => format!("{magic:#x}"),
    })
}

/// Counters of the tracepoints that tell what a thread asks of the kernel, of the threads that it
/// starts too.
pub struct Traces {
    system_calls: Option<TraceCount>,
    punts: Option<TraceCount>,
}

/// What they stand at; `None` where tracepoints are not permitted.
#[derive(Clone, Copy, Default, Debug)]
pub struct Traced {
    /// System calls of all kinds.
    pub system_calls: Option<u64>,
    /// Ring entries that were handed to a kernel worker.
    pub punts: Option<u64>,
}

impl Traces {
    /// From now on, of the calling thread.
    pub fn of_this_thread() -> Traces {
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        let count = |event| TraceCount::open_with_children(event, thread);
        Traces {
            system_calls: count("raw_syscalls/sys_enter"),
            punts: count("io_uring/io_uring_queue_async_work"),
        }
    }

    /// The counts so far, to be given to [`Traces::since`].
    pub fn start(&self) -> Traced {
        let punts = count(self.punts.as_ref());
        // Last, so that nothing of this is counted.
        Traced { punts, system_calls: count(self.system_calls.as_ref()) }
    }

    /// What was counted since the start, without the call that asks for it.
    pub fn since(&self, start: Traced) -> Traced {
        let system_calls = less(count(self.system_calls.as_ref()), start.system_calls);
        let punts = less(count(self.punts.as_ref()), start.punts);
        Traced { system_calls: system_calls.map(|it| it - 1), punts }
    }
}

fn count(of: Option<&TraceCount>) -> Option<u64> {
    of.and_then(TraceCount::read)
}

fn less(after: Option<u64>, before: Option<u64>) -> Option<u64> {
    Some(after? - before?)
}

/// A count as a number to calculate with.
pub fn f64_of(count: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "counts of a run are far below 2^53")]
    let number = count as f64;
    number
}

/// A length as a 64-bit count.
pub fn u64_of(length: usize) -> u64 {
    u64::try_from(length).expect("usize is 64 bits")
}

/// A 64-bit count as a length.
pub fn usize_of(length: u64) -> usize {
    usize::try_from(length).expect("usize is 64 bits")
}

/// One cell of an experiment: what was varied, and the figures of each round.
pub struct Row {
    pub labels: Vec<(&'static str, String)>,
    pub rounds: Vec<Vec<(&'static str, f64)>>,
}

/// Prints the rows as a Markdown table of medians with their range.
pub fn print_table(rows: &[Row]) {
    let Some(first) = rows.first() else { return };
    let figures = first.rounds.first().map_or(Vec::new(), |round| names(round));
    let labels: Vec<_> = first.labels.iter().map(|(name, _)| *name).collect();
    let heads: Vec<_> = labels.into_iter().chain(figures.iter().copied()).collect();
    println!("\n| {} |\n|{}", heads.join(" | "), "---|".repeat(heads.len()));
    for row in rows {
        let labels = row.labels.iter().map(|(_, value)| value.clone());
        let cells: Vec<_> = labels.chain(figures.iter().map(|name| row.cell(name))).collect();
        println!("| {} |", cells.join(" | "));
    }
}

fn names(round: &[(&'static str, f64)]) -> Vec<&'static str> {
    round.iter().map(|(name, _)| *name).collect()
}

impl Row {
    /// Median and range of a figure over the rounds.
    fn cell(&self, name: &str) -> String {
        let mut values: Vec<f64> = self.values(name).collect();
        values.sort_by(f64::total_cmp);
        match values.as_slice() {
            [] => "-".to_owned(),
            [only] => shown(*only),
            [least, .., most] => {
                let median = values[values.len() / 2];
                if least.total_cmp(most).is_eq() {
                    return shown(median);
                }
                format!("{} ({}..{})", shown(median), shown(*least), shown(*most))
            }
        }
    }

    fn values(&self, name: &str) -> impl Iterator<Item = f64> {
        let matching = move |figure: &&(&'static str, f64)| figure.0 == name;
        self.rounds.iter().filter_map(move |round| round.iter().find(matching)).map(|pair| pair.1)
    }

    /// The figures of a round with the labels, as one JSON object.
    fn line(&self, experiment: &str, number: usize) -> Value {
        let mut line = Map::new();
        line.insert("experiment".to_owned(), experiment.into());
        line.insert("round".to_owned(), number.into());
        for (name, value) in &self.labels {
            line.insert((*name).to_owned(), value.clone().into());
        }
        for (name, value) in &self.rounds[number] {
            line.insert((*name).to_owned(), (*value).into());
        }
        Value::Object(line)
    }
}

/// Appends one JSON line per row and round to the file, if there is one.
pub fn write_lines(rows: &[Row], experiment: &str, path: Option<&Path>) -> Result<(), Failure> {
    let Some(path) = path else { return Ok(()) };
    let file = File::options().create(true).append(true).open(path);
    let mut file = file.doing("open the file for the figures")?;
    for row in rows {
        for number in 0..row.rounds.len() {
            let line = row.line(experiment, number);
            writeln!(file, "{line}").doing("write the figures")?;
        }
    }
    Ok(())
}

fn shown(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        ..10.0 => format!("{value:.2}"),
        ..100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_the_calls_between_are_counted() {
        let traces = Traces::of_this_thread();
        let start = traces.start();
        for _ in 0..10 {
            let _parent = rustix::process::getppid();
        }
        let counted = traces.since(start);
        // Where tracepoints are not permitted there is no count.
        if let Some(system_calls) = counted.system_calls {
            assert_eq!(system_calls, 10);
        }
        if let Some(punts) = counted.punts {
            assert_eq!(punts, 0);
        }
    }

    #[test]
    fn a_cell_shows_median_and_range() {
        let rounds = vec![vec![("us", 3.0)], vec![("us", 1.0)], vec![("us", 200.0)]];
        let row = Row { labels: Vec::new(), rounds };
        assert_eq!(row.cell("us"), "3.00 (1.00..200)");
        assert_eq!(row.cell("absent"), "-");
    }
}
