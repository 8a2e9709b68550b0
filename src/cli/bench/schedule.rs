//! When a record is due, and when a batch goes out: plain arithmetic on a clock that is given.
//!
//! With a rate, record i is due i/rate seconds after the start, whether or not those before it have
//! been taken: an open loop. A broker that stalls then shows in the latency of every record that
//! was due meanwhile, and not only of the one that waited.

use std::time::Duration;

use crate::units::u64_of;

/// How records follow each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Schedule {
    /// Records a second; without one the next record is always due.
    pub rate: Option<u64>,
    /// How long a record may wait for its batch to fill.
    pub linger: Duration,
    /// Records of a full batch.
    pub batch_records: u64,
    /// Records in all; the end is the clock's, without a number.
    pub records: Option<u64>,
}

/// What to do now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Action {
    /// Send a batch of so many records.
    Send(u64),
    /// Nothing before this time.
    Wait(Duration),
    /// All have been sent.
    Done,
}

impl Schedule {
    /// When a record is due, from the start.
    pub(super) fn due(&self, index: u64) -> Duration {
        let Some(rate) = self.rate else { return Duration::ZERO };
        let nanos = u128::from(index) * 1_000_000_000 / u128::from(rate);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// What to do `now`, with so many records sent before.
    pub(super) fn action(&self, now: Duration, sent: u64) -> Action {
        let left = self.records.map_or(u64::MAX, |records| records.saturating_sub(sent));
        if left == 0 {
            return Action::Done;
        }
        let wanted = self.batch_records.min(left);
        let full_at = self.due(sent.saturating_add(wanted - 1));
        if full_at <= now {
            return Action::Send(wanted);
        }
        let patience = self.due(sent).saturating_add(self.linger);
        if patience <= now {
            return Action::Send(self.due_by(now, sent).min(wanted));
        }
        Action::Wait(patience.min(full_at))
    }

    /// Records due by `now` and not sent; at least the next one.
    fn due_by(&self, now: Duration, sent: u64) -> u64 {
        let rate = self.rate.unwrap_or(u64::MAX);
        let due = now.as_nanos() * u128::from(rate) / 1_000_000_000;
        let due = u64::try_from(due).unwrap_or(u64::MAX).saturating_add(1);
        due.saturating_sub(sent).max(1)
    }
}

/// Records of this size that fit into a batch of so many bytes; one fits always.
pub(super) fn records_of_batch(batch_bytes: u64, record_bytes: usize) -> u64 {
    let room = batch_bytes.saturating_sub(u64_of(crate::format::batch::HEADER_BYTES));
    (room / u64_of(record_bytes).max(1)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn without_a_rate_full_batches_go_out_at_once() {
        let closed = Schedule { rate: None, linger: MS(5), batch_records: 10, records: Some(25) };
        assert_eq!(closed.action(MS(0), 0), Action::Send(10));
        assert_eq!(closed.action(MS(0), 20), Action::Send(5));
        assert_eq!(closed.action(MS(0), 25), Action::Done);
        let endless = Schedule { records: None, ..closed };
        assert_eq!(endless.action(MS(0), 1 << 60), Action::Send(10));
    }

    #[test]
    fn a_rate_sets_when_records_are_due() {
        let open =
            Schedule { rate: Some(1_000), linger: MS(5), batch_records: 10, records: Some(1_000) };
        assert_eq!(open.due(0), MS(0));
        assert_eq!(open.due(1_500), MS(1_500));
        // The first batch is full after 9 ms, but its first record waits for 5 ms only.
        assert_eq!(open.action(MS(0), 0), Action::Wait(MS(5)));
        assert_eq!(open.action(MS(5), 0), Action::Send(6));
        assert_eq!(open.action(MS(5), 6), Action::Wait(MS(11)));
        // Behind schedule: full batches, one after the other.
        assert_eq!(open.action(MS(100), 6), Action::Send(10));
        assert_eq!(open.action(MS(100), 96), Action::Wait(MS(101)));
        assert_eq!(open.action(MS(101), 96), Action::Send(6));
        assert_eq!(open.action(MS(5_000), 1_000), Action::Done);
        // A patient one waits until the batch is full.
        let patient = Schedule { linger: MS(50), ..open };
        assert_eq!(patient.action(MS(0), 0), Action::Wait(MS(9)));
        assert_eq!(patient.action(MS(9), 0), Action::Send(10));
    }

    #[test]
    fn a_batch_holds_at_least_one_record() {
        assert_eq!(records_of_batch(1_000, 100), 9);
        assert_eq!(records_of_batch(10, 100), 1);
        assert_eq!(records_of_batch(1_000, 0), 939);
    }
}
