//! What a cleaning pass has to know of transactions (`CleanedTransactionMetadata`): which records
//! were given up, and which markers nobody needs any more.

use std::collections::{BTreeMap, BTreeSet};

use crate::format::batch::BatchHeader;
use crate::format::control;
use crate::format::record::{RecordError, RecordsIter};
use crate::log::producers::Ended;
use crate::units::{Offset, ProducerId};

/// Batches in their order tell this; it tells what may go.
#[derive(Debug, Default)]
pub struct CleanedTransactions {
    /// Aborted ones that begin further on, by first offset.
    ahead: BTreeMap<(Offset, ProducerId), Ended>,
    ongoing_aborted: BTreeMap<ProducerId, Seen>,
    ongoing_committed: BTreeSet<ProducerId>,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    aborted: Ended,
    /// Whether a batch of it was seen in this pass.
    has_batches: bool,
}

impl CleanedTransactions {
    /// Adds the aborted transactions of a segment, from its `.txnindex`.
    pub fn add(&mut self, aborted: impl Iterator<Item = Ended>) {
        self.ahead.extend(aborted.map(|it| ((it.first_offset, it.producer_id), it)));
    }

    /// A batch of records goes by; returns whether it belongs to an aborted transaction.
    pub fn data(&mut self, producer_id: ProducerId, last: Offset, is_transactional: bool) -> bool {
        self.begin_up_to(last);
        if !is_transactional {
            return false;
        }
        match self.ongoing_aborted.get_mut(&producer_id) {
            Some(seen) => {
                seen.has_batches = true;
                true
            }
            None => {
                self.ongoing_committed.insert(producer_id);
                false
            }
        }
    }

    /// An abort marker goes by. `Ok` when it may go, since none of its records is left; otherwise
    /// the entry of its transaction, which the cleaned `.txnindex` must have.
    ///
    /// # Errors
    /// The transaction whose records were seen.
    pub fn aborted(&mut self, producer_id: ProducerId, last: Offset) -> Result<(), Ended> {
        self.begin_up_to(last);
        match self.ongoing_aborted.remove(&producer_id) {
            Some(Seen { aborted, has_batches: true }) => Err(aborted),
            _ => Ok(()),
        }
    }

    /// A commit marker goes by; returns whether it may go.
    pub fn committed(&mut self, producer_id: ProducerId, last: Offset) -> bool {
        self.begin_up_to(last);
        !self.ongoing_committed.remove(&producer_id)
    }

    /// A control batch goes by. `Ok` when it may go, since nothing of its transaction is left, or
    /// its own record is gone already; otherwise the entry that an aborted transaction keeps.
    ///
    /// # Errors
    /// The outer one for a record that is none.
    pub fn control(
        &mut self,
        header: &BatchHeader,
        payload: &[u8],
        last: Offset,
    ) -> Result<Result<(), Option<Ended>>, RecordError> {
        self.begin_up_to(last);
        let Some(record) = RecordsIter::new(header, payload).next() else { return Ok(Ok(())) };
        Ok(match control::kind(record?.key) {
            Ok(control::ABORT) => self.aborted(header.producer_id, last).map_err(Some),
            Ok(control::COMMIT) => {
                if self.committed(header.producer_id, last) {
                    Ok(())
                } else {
                    Err(None)
                }
            }
            _ => Err(None),
        })
    }

    fn begin_up_to(&mut self, offset: Offset) {
        while let Some(first) = self.ahead.first_entry().filter(|it| it.key().0 <= offset) {
            let aborted = first.remove();
            let seen = Seen { aborted, has_batches: false };
            self.ongoing_aborted.entry(aborted.producer_id).or_insert(seen);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: ProducerId = ProducerId(7);

    fn aborted(first: u64, last: u64) -> Ended {
        Ended {
            producer_id: ID,
            first_offset: Offset(first),
            last_offset: Offset(last),
            last_stable_offset: Offset(last + 1),
        }
    }

    #[test]
    fn a_marker_stays_as_long_as_its_records_were_there() {
        let mut transactions = CleanedTransactions::default();
        transactions.add([aborted(3, 5), aborted(8, 9)].into_iter());
        assert!(!transactions.data(ID, Offset(2), true), "an earlier, committed one");
        assert!(!transactions.committed(ID, Offset(2)), "its records were seen");
        assert!(transactions.data(ID, Offset(4), true));
        assert_eq!(transactions.aborted(ID, Offset(5)), Err(aborted(3, 5)));
        assert!(!transactions.data(ProducerId(1), Offset(6), false));
        // Of the second one, nothing but the marker is left.
        assert_eq!(transactions.aborted(ID, Offset(9)), Ok(()));
        assert!(transactions.committed(ID, Offset(10)), "nothing of it was seen");
    }
}
