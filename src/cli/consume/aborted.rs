//! Records of transactions that were aborted, which `--isolation read-committed` leaves out.
//!
//! They stand in the log like any others. A broker that is asked for what is committed says with
//! its batches which transactions were aborted: the producer, and the first offset. Such a one ends
//! with the producer's next control batch.

use std::collections::BTreeSet;

use crate::client::AbortedTransaction;
use crate::format::batch::BatchHeader;

/// Tells the batches of one answer apart, in their order.
#[derive(Clone, Debug)]
pub(super) struct Aborted {
    /// Those that have not begun yet, the last one first.
    later: Vec<AbortedTransaction>,
    /// Producers in the middle of one.
    open: BTreeSet<i64>,
}

impl Aborted {
    pub(super) fn new(told: &[AbortedTransaction]) -> Aborted {
        let mut later = told.to_vec();
        later.sort_by_key(|one| std::cmp::Reverse(one.first_offset));
        Aborted { later, open: BTreeSet::new() }
    }

    /// Whether the batch is not to be shown. Control batches never are.
    pub(super) fn is_hidden(&mut self, header: &BatchHeader) -> bool {
        let last = header.base_offset.saturating_add(i64::from(header.last_offset_delta));
        while let Some(begun) = self.later.pop_if(|one| one.first_offset <= last) {
            self.open.insert(begun.producer_id);
        }
        let producer = header.producer_id.0;
        if header.is_control() {
            self.open.remove(&producer);
            return true;
        }
        header.is_transactional() && self.open.contains(&producer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::batch::Codec;
    use crate::format::record::{BatchBuilder, NewRecord};
    use crate::units::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, Timestamp};

    const TRANSACTIONAL: i16 = 1 << 4;
    const CONTROL: i16 = 1 << 5;

    /// A batch of one record of this producer.
    fn header(base: u64, producer: i64, attributes: i16) -> BatchHeader {
        let builder = BatchBuilder::new(Codec::None);
        let mut builder =
            builder.with_producer(ProducerId(producer), ProducerEpoch(0), Sequence(0));
        builder.push(&NewRecord::value(Timestamp(1), b"value"));
        let mut batch = builder.build();
        batch.assign(Offset(base), LeaderEpoch(0));
        BatchHeader { attributes, ..*batch.header() }
    }

    #[test]
    fn a_transaction_that_was_aborted_is_left_out_until_its_end() {
        let told = [(7, 14), (7, 10), (8, 12)];
        let told = told
            .map(|(producer_id, first_offset)| AbortedTransaction { producer_id, first_offset });
        let mut aborted = Aborted::new(&told);
        for (base, producer, attributes, hidden) in [
            // Before it begins, another transaction of the same producer.
            (9, 7, TRANSACTIONAL, false),
            (10, 7, TRANSACTIONAL, true),
            // Somebody else's, and one of the producer's own without a transaction.
            (11, 9, TRANSACTIONAL, false),
            (12, 8, TRANSACTIONAL, true),
            // The first one's end, and what is committed behind it.
            (13, 7, TRANSACTIONAL | CONTROL, true),
            (13, 7, TRANSACTIONAL, false),
            (13, 8, 0, false),
            (13, 8, TRANSACTIONAL, true),
            (14, 7, TRANSACTIONAL, true),
            (15, 8, TRANSACTIONAL | CONTROL, true),
            (16, 8, TRANSACTIONAL, false),
            (17, 7, TRANSACTIONAL, true),
        ] {
            let found = aborted.is_hidden(&header(base, producer, attributes));
            assert_eq!(found, hidden, "{base} of {producer}");
        }
    }
}
