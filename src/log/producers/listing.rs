//! Which producers a `.snapshot` lists, and in which order: as Kafka's table would give them.

use super::Producers;
use crate::format::producer_snapshot::{self, ProducerEntry};
use crate::units::Timestamp;

impl Producers {
    /// What a snapshot of this moment holds, in the order in which they came.
    pub fn entries(&self) -> Vec<ProducerEntry> {
        let listed = self.producers.iter().filter(|(_, producer)| !producer.is_unlisted);
        let mut listed: Vec<_> = listed.collect();
        listed.sort_by_key(|(_, producer)| producer.arrival);
        listed.into_iter().map(|(id, producer)| producer.entry(*id)).collect()
    }

    /// The `.snapshot` file of this moment.
    pub fn snapshot(&self) -> Vec<u8> {
        producer_snapshot::encode(&self.entries(), self.listed_max)
    }

    /// What a start would find that reads the snapshot which was just written. What is known of the
    /// producers' batches is kept.
    pub fn reload(&mut self, now: Timestamp, expiration_ms: u64) {
        let entries = producer_snapshot::in_order(&self.entries(), self.listed_max);
        let loaded = Producers::of_entries(&entries, now, expiration_ms);
        for (id, producer) in &mut self.producers {
            if let Some(it) = loaded.producers.get(id) {
                (producer.arrival, producer.is_unlisted) = (it.arrival, it.is_unlisted);
            }
        }
        self.arrivals = loaded.arrivals;
        (self.listed, self.listed_max) = (loaded.listed, loaded.listed_max);
    }
}
