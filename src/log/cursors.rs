//! The offsets that a log counts with, and the order that they always keep.
//!
//! ```text
//! log_start <= high_watermark <= log_end <= next      durable_end <= log_end
//! ```
//!
//! Each cursor has one setter, and each setter asserts the order.

use crate::units::Offset;

/// Where a log begins, ends, and how far it has come on the way to the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cursors {
    /// First offset still readable.
    pub log_start: Offset,
    /// First offset that consumers may not read yet.
    pub high_watermark: Offset,
    /// First offset that no finished plan has written.
    pub log_end: Offset,
    /// First offset not assigned yet.
    pub next: Offset,
    /// First offset not known to be on the device.
    pub durable_end: Offset,
    /// Kafka's recovery point: everything before it, indexes included, is on the device.
    pub recovery_point: Offset,
}

impl Cursors {
    /// The cursors of a log whose records, from `log_start` to `log_end`, are all on the device.
    pub(super) fn recovered(log_start: Offset, log_end: Offset, recovery_point: Offset) -> Cursors {
        let cursors = Cursors {
            log_start,
            high_watermark: log_end,
            log_end,
            next: log_end,
            durable_end: log_end,
            recovery_point,
        };
        cursors.assert_order();
        cursors
    }

    pub(super) fn set_log_start(&mut self, to: Offset) {
        assert!(self.log_start <= to, "the log start never goes back");
        self.log_start = to;
        self.assert_order();
    }

    pub(super) fn set_high_watermark(&mut self, to: Offset) {
        assert!(self.high_watermark <= to, "what was shown stays shown");
        self.high_watermark = to;
        self.assert_order();
    }

    pub(super) fn set_log_end(&mut self, to: Offset) {
        assert!(self.log_end <= to, "what was written stays written");
        self.log_end = to;
        self.assert_order();
    }

    /// Forward when a batch is staged; back to the log end when staged batches are given up.
    pub(super) fn set_next(&mut self, to: Offset) {
        self.next = to;
        self.assert_order();
    }

    pub(super) fn set_durable_end(&mut self, to: Offset) {
        assert!(self.durable_end <= to, "what is durable stays durable");
        self.durable_end = to;
        self.assert_order();
    }

    pub(super) fn set_recovery_point(&mut self, to: Offset) {
        assert!(self.recovery_point <= to, "the recovery point only advances");
        self.recovery_point = to;
        self.assert_order();
    }

    fn assert_order(&self) {
        assert!(self.log_start <= self.high_watermark);
        assert!(self.high_watermark <= self.log_end);
        assert!(self.log_end <= self.next);
        assert!(self.durable_end <= self.log_end);
        assert!(self.recovery_point <= self.log_end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_append_moves_one_cursor_after_the_other() {
        let mut cursors = Cursors::recovered(Offset(3), Offset(5), Offset(4));
        cursors.set_next(Offset(9));
        cursors.set_log_end(Offset(9));
        cursors.set_durable_end(Offset(9));
        cursors.set_high_watermark(Offset(9));
        cursors.set_log_start(Offset(9));
        cursors.set_recovery_point(Offset(9));
        assert_eq!(cursors, Cursors::recovered(Offset(9), Offset(9), Offset(9)));
    }

    #[test]
    #[should_panic(expected = "self.high_watermark <= self.log_end")]
    fn nothing_is_shown_before_it_is_written() {
        let mut cursors = Cursors::recovered(Offset(0), Offset(5), Offset(0));
        cursors.set_next(Offset(9));
        cursors.set_high_watermark(Offset(9));
    }

    #[test]
    #[should_panic(expected = "self.durable_end <= self.log_end")]
    fn nothing_is_durable_before_it_is_written() {
        let mut cursors = Cursors::recovered(Offset(0), Offset(5), Offset(0));
        cursors.set_next(Offset(9));
        cursors.set_durable_end(Offset(6));
    }
}
