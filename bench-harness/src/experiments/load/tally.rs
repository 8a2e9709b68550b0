//! What came of a load: counts, latencies, and whether the harness kept its own schedule.

use std::time::Duration;

use hdrhistogram::Histogram;

use super::drive::{Pace, Plan};
use crate::experiments::Failure;
use crate::experiments::measure::f64_of;
use crate::record::Latency;

const NS_PER_MS: f64 = 1e6;

/// The harness is behind its schedule when one request in a hundred leaves later than this.
const LATE_MAX: Duration = Duration::from_millis(1);

/// The harness has no time left when it takes more of its core than this.
const BUSY_MAX: f64 = 0.95;

/// Counts of a run as it goes on.
pub struct Tally {
    /// From the time that the schedule names to the answer, or until a consumer has the batch.
    pub latencies: Latency,
    /// From the same time to the acknowledgement, where latencies end at a consumer.
    pub acknowledged: Latency,
    window: Histogram<u64>,
    late: Histogram<u64>,
    scheduled: u64,
    answered: u64,
    failed: u64,
    /// Bytes of records in what counts.
    bytes: u64,
    /// And in everything.
    bytes_ever: u64,
    /// Answers, and their bytes, that came in the time that counts, whenever they were due.
    arrived: (u64, u64),
    first_error: Option<String>,
}

/// A finished run, or as much of it as there was.
pub struct Measured {
    pub plan: Plan,
    /// CPU time of the harness while there was a schedule, spinning towards due times included.
    pub cpu: Duration,
    /// How long the schedule was.
    pub wall: Duration,
    /// When the last answer was there, or nobody waited for it any longer.
    pub after: Duration,
    pub tally: Tally,
    /// What ended it early.
    pub broken_off: Option<Failure>,
}

impl Tally {
    pub fn new() -> Tally {
        let histogram = || Histogram::new(3).expect("3 digits are fine");
        Tally {
            latencies: Latency::new(),
            acknowledged: Latency::new(),
            window: histogram(),
            late: histogram(),
            scheduled: 0,
            answered: 0,
            failed: 0,
            bytes: 0,
            bytes_ever: 0,
            arrived: (0, 0),
            first_error: None,
        }
    }

    pub fn scheduled(&mut self, late: Duration, counts: bool) {
        self.scheduled += 1;
        if counts {
            // Saturating would cut the value to what the histogram holds without growing.
            self.late.record(ns(late)).expect("it grows by itself");
        }
    }

    /// So long after the beginning, with this latency.
    pub fn answered(&mut self, (at, latency): (Duration, Duration), (bytes, counts): (u64, bool)) {
        self.answered += 1;
        self.bytes_ever += bytes;
        if counts {
            self.latencies.record_at(at, latency);
            self.window.record(ns(latency).max(1)).expect("it grows by itself");
            self.bytes += bytes;
        }
    }

    /// An answer, with so many bytes, came in the time that counts.
    pub fn arrived(&mut self, bytes: u64) {
        self.arrived = (self.arrived.0 + 1, self.arrived.1 + bytes);
    }

    /// So long after the beginning, with this latency.
    pub fn acknowledged(&mut self, (at, latency): (Duration, Duration)) {
        self.acknowledged.record_at(at, latency);
    }

    pub fn failed(&mut self, error: &str) {
        self.failed += 1;
        self.first_error.get_or_insert_with(|| error.to_owned());
    }

    /// Latencies since this was asked last.
    pub fn window(&mut self) -> Histogram<u64> {
        let empty = Histogram::new(3).expect("3 digits are fine");
        std::mem::replace(&mut self.window, empty)
    }

    /// How often requests ended, well or badly.
    pub fn answers(&self) -> u64 {
        self.answered + self.failed
    }

    pub fn scheduled_count(&self) -> u64 {
        self.scheduled
    }

    pub fn failed_count(&self) -> u64 {
        self.failed
    }

    pub fn first_error(&self) -> Option<&str> {
        self.first_error.as_deref()
    }

    /// Bytes of records in what counts.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The same, warm-up included.
    pub fn bytes_ever(&self) -> u64 {
        self.bytes_ever
    }

    /// How late one request in a hundred was sent, or later, in nanoseconds.
    pub fn late_p99(&self) -> u64 {
        self.late.value_at_quantile(0.99)
    }

    /// Requests that are neither answered nor failed.
    pub fn open(&self) -> u64 {
        self.scheduled.saturating_sub(self.answered + self.failed)
    }
}

impl Measured {
    /// The share of its core that the harness needed.
    pub fn busy(&self) -> f64 {
        self.cpu.as_secs_f64() / self.wall.as_secs_f64().max(1e-9)
    }

    /// Why the figures say more of the harness than of the broker, if they do.
    pub fn bottleneck(&self) -> Option<String> {
        let late = self.tally.late_p99();
        if matches!(self.plan.pace, Pace::Rate(_)) && ns(LATE_MAX) < late {
            return Some(format!(
                "one request in a hundred was sent {:.3} ms late or more",
                ms(late)
            ));
        }
        let busy = self.busy();
        (BUSY_MAX < busy).then(|| format!("its thread was busy {:.0} %", 100.0 * busy))
    }

    /// Answered requests a second, of those that count until the last answer; in a closed loop, of
    /// those that came in the time that counts.
    pub fn answered_rate(&self) -> f64 {
        match self.arrived() {
            Some((answers, _)) => f64_of(answers) / self.plan.counted.as_secs_f64(),
            None => f64_of(self.tally.latencies.total().len()) / self.counted_seconds(),
        }
    }

    /// Bytes of records in them.
    pub fn bytes_rate(&self) -> f64 {
        match self.arrived() {
            Some((_, bytes)) => f64_of(bytes) / self.plan.counted.as_secs_f64(),
            None => f64_of(self.tally.bytes) / self.counted_seconds(),
        }
    }

    /// Of a closed loop that went on to its end.
    fn arrived(&self) -> Option<(u64, u64)> {
        let is_closed = matches!(self.plan.pace, Pace::Closed { .. });
        let is_whole = self.plan.warm_up + self.plan.counted <= self.after;
        (is_closed && is_whole && 0 < self.tally.arrived.0).then_some(self.tally.arrived)
    }

    /// With answers that came late the time is longer than planned: a backlog is no throughput.
    fn counted_seconds(&self) -> f64 {
        self.after.saturating_sub(self.plan.warm_up).max(Duration::from_millis(1)).as_secs_f64()
    }
}

fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

pub fn ms(ns: u64) -> f64 {
    f64_of(ns) / NS_PER_MS
}

#[cfg(test)]
pub mod tests {
    use super::super::{Kind, Reach};
    use super::*;
    use uringlog::client::Acks;

    pub fn measured(pace: Pace, (latency, late): (Duration, Duration)) -> Measured {
        let plan = Plan {
            kind: Kind::Produce,
            bootstrap: String::new(),
            topic: String::new(),
            topic_settings: Vec::new(),
            partitions: 1,
            pace,
            connections: 1,
            reach: Reach::OnePartition,
            in_flight: 1,
            batch_records: 1,
            record_bytes: 16,
            acks: Acks::All,
            fetch_bytes: 1,
            warm_up: Duration::from_secs(1),
            counted: Duration::from_secs(9),
        };
        let mut tally = Tally::new();
        for _ in 0..100 {
            tally.scheduled(late, true);
            tally.answered((Duration::from_secs(1), latency), (10, true));
        }
        let (cpu, wall) = (Duration::from_secs(1), Duration::from_secs(10));
        Measured { plan, cpu, wall, after: wall, tally, broken_off: None }
    }

    #[test]
    fn a_late_harness_says_so() {
        let (short, long) = (Duration::from_micros(50), Duration::from_millis(5));
        let rate = Pace::Rate(10.0);
        assert_eq!(measured(rate, (short, short)).bottleneck(), None);
        let late = measured(rate, (short, long)).bottleneck();
        assert!(late.is_some_and(|text| text.contains("5.0")));
        // Nothing is due at a time there.
        let closed = Pace::Closed { requests_max: 100 };
        assert_eq!(measured(closed, (short, long)).bottleneck(), None);
    }

    #[test]
    fn a_busy_harness_says_so_but_not_one_that_only_waits() {
        let mut busy = measured(Pace::Rate(10.0), (Duration::ZERO, Duration::ZERO));
        busy.cpu = Duration::from_millis(9_800);
        assert_eq!(busy.bottleneck().as_deref(), Some("its thread was busy 98 %"));
        busy.cpu = Duration::from_millis(4_800);
        assert!((busy.busy() - 0.48).abs() < 1e-9);
        assert_eq!(busy.bottleneck(), None);
    }

    #[test]
    fn rates_are_of_the_time_until_the_last_answer() {
        let mut late = measured(Pace::Rate(10.0), (Duration::ZERO, Duration::ZERO));
        assert!((late.bytes_rate() - 1000.0 / 9.0).abs() < 1e-9);
        late.after = Duration::from_secs(21);
        assert!((late.answered_rate() - 5.0).abs() < 1e-9);
    }

    #[test]
    fn warm_up_counts_as_answered_only() {
        let mut tally = Tally::new();
        tally.scheduled(Duration::ZERO, false);
        assert_eq!(tally.open(), 1);
        let latency = (Duration::ZERO, Duration::from_millis(1));
        tally.answered(latency, (10, false));
        assert_eq!((tally.open(), tally.latencies.total().len(), tally.bytes), (0, 0, 0));
        assert_eq!(tally.bytes_ever(), 10);
        tally.answered(latency, (10, true));
        assert_eq!((tally.window().len(), tally.window().len()), (1, 0));
    }
}
