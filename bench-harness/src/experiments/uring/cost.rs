//! What a way costs at a point, and how the ring does against the best of the others there.

use std::time::Duration;

use crate::experiments::measure::{Traced, f64_of, u64_of};
use crate::record::{Better, Latency, Recorder, Table, Unit, unit};

/// What stands for losses where the ring got nothing done in a point's time.
const UNMEASURED: &str = "all: nothing was over in the time of the point";
/// Counts for one operation, which are told and not judged.
const PER_OPERATION: Unit = Unit { name: "per operation", better: Better::None };

/// Which side a way is on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// It uses the ring where that is the point.
    Ring,
    /// The same with a commit journal.
    RingWithJournal,
    /// The same promise without the ring.
    Other,
    /// The same with a commit journal.
    OtherWithJournal,
    /// It promises less than the rest, and is shown beside them.
    Aside,
}

/// What was measured of a way at a point.
pub struct Cost<'a> {
    pub way: &'a str,
    pub side: Side,
    pub operations: u64,
    pub bytes: u64,
    pub wall: Duration,
    pub cpu: Duration,
    pub traced: Traced,
    pub workers: usize,
    pub latency: &'a Latency,
}

/// The measures that ways are compared by.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub way: String,
    pub side: Side,
    /// Bytes/s.
    pub throughput: f64,
    /// Nanoseconds.
    pub p99: f64,
    /// Seconds for 10^9 bytes.
    pub cpu: f64,
}

impl Outcome {
    /// Whether anything was over before the point's time was: without that there is no latency,
    /// and the rest is that of nothing.
    fn is_measured(&self) -> bool {
        0.0 < self.throughput
    }
}

impl Cost<'_> {
    /// Records it as the way's, under the operation's name.
    pub fn record(&self, operation: &str, recorder: &mut Recorder) -> Outcome {
        recorder.as_engine(self.way);
        let name = |what: &str| format!("{operation}_{what}");
        let throughput = f64_of(self.bytes) / self.wall.as_secs_f64();
        let cpu = self.cpu.as_secs_f64() / (f64_of(self.bytes.max(1)) / 1e9);
        recorder.figure(&name("throughput"), throughput.round(), unit::BYTES_PER_SECOND);
        recorder.figure(&name("cpu"), cpu, unit::CPU_SECONDS_PER_GB);
        let per_operation = |count: u64| f64_of(count) / f64_of(self.operations.max(1));
        let Traced { system_calls, punts } = self.traced;
        for (what, count) in [("system_calls", system_calls), ("punted", punts)] {
            if let Some(count) = count {
                recorder.figure(&name(what), per_operation(count), PER_OPERATION);
            }
        }
        recorder.figure(&name("workers"), u64_of(self.workers), unit::COUNT.told());
        recorder.latency(operation, self.latency);
        let p99 = f64_of(self.latency.total().value_at_quantile(0.99));
        Outcome { way: self.way.to_owned(), side: self.side, throughput, p99, cpu }
    }
}

/// A further count for one operation.
pub fn per_operation(recorder: &mut Recorder, name: &str, (count, operations): (u64, u64)) {
    let value = f64_of(count) / f64_of(operations.max(1));
    recorder.figure(name, value, PER_OPERATION);
}

/// The points of a part, compared.
pub struct Ratios {
    table: Table,
    points: u64,
    lost: u64,
}

/// A way on the ring against the best others; above 1 is better for throughput, below 1 for the
/// rest.
#[derive(PartialEq, Debug)]
struct Ratio {
    throughput: f64,
    p99: f64,
    cpu: f64,
    best: String,
}

impl Ratios {
    /// No points yet.
    pub fn new(title: &str) -> Ratios {
        let columns =
            ["point", "ring", "throughput", "best other", "p99", "CPU", "the ring loses in"];
        let title = format!("{title}: the ring over the best other way at every point");
        Ratios { table: Table::new(&title, &columns), points: 0, lost: 0 }
    }

    /// All ways at one point, whose parameters the recorder has.
    pub fn point(&mut self, recorder: &mut Recorder, label: &str, outcomes: &[Outcome]) {
        let is_ring = |it: &&Outcome| matches!(it.side, Side::Ring | Side::RingWithJournal);
        for ring in outcomes.iter().filter(is_ring) {
            let Some(ratio) = ratio(ring, outcomes) else { continue };
            recorder.as_engine(&ring.way);
            if !ring.is_measured() {
                self.points += 1;
                self.lost += 1;
                let cells = [label, &ring.way, "-", &ratio.best, "-", "-", UNMEASURED];
                self.table.row(cells.map(str::to_owned).to_vec());
                continue;
            }
            recorder.figure("throughput_to_best_other", ratio.throughput, unit::RATIO);
            recorder.figure("p99_to_best_other", ratio.p99, unit::RATIO);
            recorder.figure("cpu_to_best_other", ratio.cpu, unit::RATIO);
            let losses = ratio.losses();
            self.points += 1;
            self.lost += u64::from(!losses.is_empty());
            let mark = if losses.is_empty() { "-".to_owned() } else { losses.join(", ") };
            let [throughput, p99, cpu] = [ratio.throughput, ratio.p99, ratio.cpu].map(short);
            let way = ring.way.clone();
            let row = vec![label.to_owned(), way, throughput, ratio.best, p99, cpu, mark];
            self.table.row(row);
        }
        recorder.as_engine("none");
    }

    /// The table, and the counts.
    pub fn finish(self, recorder: &mut Recorder) {
        recorder.as_engine("none");
        recorder.figure("points_compared", self.points, unit::COUNT.told());
        recorder.figure("points_lost", self.lost, unit::COUNT.told());
        recorder.table(self.table);
    }
}

impl Ratio {
    /// What the ring is worse in, beyond the digits that are shown.
    fn losses(&self) -> Vec<&'static str> {
        const SHOWN: f64 = 0.005;
        let all = [
            ("throughput", self.throughput < 1.0 - SHOWN),
            ("p99", 1.0 + SHOWN < self.p99),
            ("CPU", 1.0 + SHOWN < self.cpu),
        ];
        all.into_iter().filter(|it| it.1).map(|it| it.0).collect()
    }
}

/// `None` where there is no other way, or none got anything done.
fn ratio(ring: &Outcome, outcomes: &[Outcome]) -> Option<Ratio> {
    let may = |it: &&Outcome| match it.side {
        Side::Other => true,
        // A journal is to be beaten with a journal only.
        Side::OtherWithJournal => ring.side == Side::RingWithJournal,
        Side::Ring | Side::RingWithJournal | Side::Aside => false,
    };
    let others: Vec<&Outcome> = outcomes.iter().filter(may).filter(|it| it.is_measured()).collect();
    let fastest = others.iter().max_by(|one, it| one.throughput.total_cmp(&it.throughput))?;
    let least = |of: fn(&Outcome) -> f64| others.iter().map(|it| of(it)).fold(f64::MAX, f64::min);
    Some(Ratio {
        throughput: ring.throughput / fastest.throughput,
        p99: ring.p99 / least(|it| it.p99).max(1.0),
        cpu: ring.cpu / least(|it| it.cpu).max(f64::MIN_POSITIVE),
        best: fastest.way.clone(),
    })
}

fn short(value: f64) -> String {
    if 100.0 <= value { format!("{value:.0}") } else { format!("{value:.2}") }
}

/// What holds for every part.
pub fn notes(recorder: &mut Recorder) {
    let traced = crate::experiments::measure::Traces::of_this_thread().start();
    if traced.system_calls.is_none() || traced.punts.is_none() {
        recorder.note(
            "uring: the kernel's tracepoints are not permitted here (they need root, or a \
             perf_event_paranoid that allows them), so there are no counts of system calls and of \
             entries handed to kernel workers.",
        );
    }
    recorder.note(
        "uring: ratios are those of the ring to the best other way at the same point, which may \
         be another way for throughput, p99 and CPU. A way with a commit journal on the ring is \
         held against all others; one without it against those without. `the ring loses in` \
         names what is worse than there by more than half a percent in this round; whether that \
         is more than noise, the range over the rounds tells.",
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(way: &str, side: Side, (throughput, p99, cpu): (f64, f64, f64)) -> Outcome {
        Outcome { way: way.to_owned(), side, throughput, p99, cpu }
    }

    #[test]
    fn the_best_other_is_found_for_each_measure() {
        let outcomes = [
            outcome("linked", Side::Ring, (100.0, 30.0, 2.0)),
            outcome("journal", Side::RingWithJournal, (300.0, 10.0, 1.0)),
            outcome("serial", Side::Other, (50.0, 20.0, 4.0)),
            outcome("pool", Side::Other, (80.0, 60.0, 8.0)),
            outcome("plain-journal", Side::OtherWithJournal, (400.0, 5.0, 0.5)),
            outcome("none", Side::Aside, (9000.0, 0.1, 0.1)),
        ];
        let linked = ratio(&outcomes[0], &outcomes).expect("there are others");
        assert_eq!(linked, Ratio { throughput: 1.25, p99: 1.5, cpu: 0.5, best: "pool".to_owned() });
        assert_eq!(linked.losses(), ["p99"]);
        let journal = ratio(&outcomes[1], &outcomes).expect("there are others");
        assert_eq!(
            journal,
            Ratio { throughput: 0.75, p99: 2.0, cpu: 2.0, best: "plain-journal".to_owned() }
        );
        assert_eq!(journal.losses(), ["throughput", "p99", "CPU"]);
        assert_eq!(ratio(&outcomes[0], &outcomes[..2]), None);
    }

    #[test]
    fn a_way_that_got_nothing_done_is_the_best_in_nothing() {
        let stalled = outcome("pool", Side::Other, (0.0, 0.0, 1e9));
        let outcomes = [
            outcome("linked", Side::Ring, (100.0, 30.0, 2.0)),
            outcome("serial", Side::Other, (50.0, 20.0, 4.0)),
            stalled.clone(),
        ];
        let linked = ratio(&outcomes[0], &outcomes).expect("there is another");
        assert_eq!((linked.p99, linked.best.as_str()), (1.5, "serial"));
        assert_eq!(ratio(&outcomes[0], &[stalled]), None);
    }
}
