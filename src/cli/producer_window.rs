//! Batches on their way: which partition a record goes to, how many requests are under way, and
//! what happens when one of them fails.
//!
//! With a producer id (every Kafka gives one) up to [`IN_FLIGHT_MAX`] batches are under way. When
//! one fails in a way that another try may mend, nothing new is sent until the answers to all are
//! there; then those that failed are sent again one by one, in their order. The sequence numbers
//! let the broker tell a batch that it has already, so nothing is stored twice or out of order.
//! Without an id one batch is under way at a time.

use std::collections::VecDeque;

use bytes::Bytes;

use super::command::CommandError;
use crate::client::{
    Acks, Answering, Client, ClientError, ProducerIdentity, Target, decode_produced,
    encode_produce, partition_of_key, timestamp,
};
use crate::format::batch::Codec;
use crate::format::record::{BatchBuilder, NewRecord};
use crate::units::{Sequence, u64_of};
use crate::wire::error::ErrorCode;

/// Batches under way. A broker remembers five of each producer and partition.
const IN_FLIGHT_MAX: usize = 5;

/// Where records go.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub topic: String,
    /// At least one.
    pub partitions: Vec<i32>,
    pub acks: Acks,
    pub codec: Codec,
}

/// The producing side of the command.
pub(super) struct Window {
    client: Client,
    place: Place,
    batch_bytes: usize,
    identity: Option<ProducerIdentity>,
    /// For each of the place's partitions.
    slots: Vec<Slot>,
    /// Slot of records without a key, until its batch is sent.
    keyless: usize,
    in_flight: VecDeque<InFlight>,
    records: u64,
    bytes: u64,
    batches: u64,
}

struct Slot {
    open: BatchBuilder,
    next: Sequence,
}

struct InFlight {
    partition: i32,
    batch: Bytes,
    records: u32,
    sent: Result<Sent, ClientError>,
}

struct Sent {
    version: i16,
    answering: Answering,
}

impl Window {
    /// Asks for a producer id, unless there are no answers to be had anyway.
    pub(super) async fn start(
        client: Client,
        place: Place,
        batch_bytes: usize,
    ) -> Result<Window, CommandError> {
        if place.partitions.is_empty() {
            let text = format!("topic {} has no partitions", place.topic);
            return Err(CommandError::Usage(text));
        }
        let identity = match place.acks {
            Acks::None => None,
            Acks::Leader | Acks::All => match client.init_producer_id().await {
                Ok(identity) => Some(identity),
                Err(ClientError::Unsupported { .. }) => None,
                Err(error) => return Err(error.into()),
            },
        };
        let codec = place.codec;
        let slot = |_: &i32| Slot { open: BatchBuilder::new(codec), next: Sequence(0) };
        let slots = place.partitions.iter().map(slot).collect();
        Ok(Window {
            client,
            place,
            batch_bytes,
            identity,
            slots,
            keyless: 0,
            in_flight: VecDeque::new(),
            records: 0,
            bytes: 0,
            batches: 0,
        })
    }

    /// Records that the broker has acknowledged (or, without acks, that were sent).
    pub(super) fn records(&self) -> u64 {
        self.records
    }

    /// Bytes of their batches.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Their batches.
    pub(super) fn batches(&self) -> u64 {
        self.batches
    }

    /// Adds a record to its partition's batch, and sends that first when it would become too large.
    pub(super) async fn push(&mut self, record: &NewRecord<'_>) -> Result<(), CommandError> {
        let mut slot = self.slot_of(record.key);
        let open = &self.slots[slot].open;
        if open.count() > 0 && open.size() + record.bytes_max() > self.batch_bytes {
            self.send(slot).await?;
            slot = self.slot_of(record.key);
        }
        self.slots[slot].open.push(record);
        Ok(())
    }

    fn slot_of(&self, key: Option<&[u8]>) -> usize {
        match key {
            Some(key) => partition_of_key(key, self.slots.len()),
            None => self.keyless,
        }
    }

    /// Sends what has been collected.
    pub(super) async fn flush(&mut self) -> Result<(), CommandError> {
        for slot in 0..self.slots.len() {
            if self.slots[slot].open.count() > 0 {
                self.send(slot).await?;
            }
        }
        Ok(())
    }

    /// Sends what has been collected and waits for all answers.
    pub(super) async fn finish(&mut self) -> Result<(), CommandError> {
        self.flush().await?;
        while let Some(oldest) = self.in_flight.pop_front() {
            self.settle(oldest).await?;
        }
        if self.place.acks == Acks::None {
            self.delivered().await?;
        }
        Ok(())
    }

    /// Without acks nothing tells whether a batch has left yet, and the end of the process would
    /// take it along. A broker answers what comes behind the batches on their connection after it
    /// has taken them, so one question for each partition is enough.
    async fn delivered(&self) -> Result<(), CommandError> {
        for partition in &self.place.partitions {
            self.client.list_offsets(&self.place.topic, *partition, timestamp::LATEST).await?;
        }
        Ok(())
    }

    async fn send(&mut self, slot: usize) -> Result<(), CommandError> {
        let in_flight_max = if self.identity.is_some() { IN_FLIGHT_MAX } else { 1 };
        while self.in_flight.len() >= in_flight_max {
            let oldest = self.in_flight.pop_front().expect("at least one is under way");
            self.settle(oldest).await?;
        }
        let (batch, records) = self.close(slot);
        let partition = self.place.partitions[slot];
        if self.place.acks == Acks::None {
            self.client.produce(self.target(partition), batch.clone()).await?;
            self.count(&batch, records);
            return Ok(());
        }
        let sent = self.try_send(partition, batch.clone()).await;
        self.in_flight.push_back(InFlight { partition, batch, records, sent });
        Ok(())
    }

    /// Takes the slot's batch, with the next sequence numbers.
    fn close(&mut self, slot: usize) -> (Bytes, u32) {
        let own = &mut self.slots[slot];
        let mut builder = std::mem::replace(&mut own.open, BatchBuilder::new(self.place.codec));
        let records = u32::try_from(builder.count()).expect("a count is not negative");
        if let Some(identity) = self.identity {
            builder = builder.with_producer(identity.id, identity.epoch, own.next);
            own.next = own.next.plus(records);
        }
        if slot == self.keyless {
            self.keyless = (slot + 1) % self.slots.len();
        }
        (builder.build().freeze(), records)
    }

    async fn try_send(&self, partition: i32, batch: Bytes) -> Result<Sent, ClientError> {
        let connection = self.client.leader(&self.place.topic, partition).await?;
        let timeout = self.client.options().timeout.as_millis();
        let timeout = i32::try_from(timeout).unwrap_or(i32::MAX);
        let place = (self.place.topic.as_str(), partition);
        let request = encode_produce(&connection, place, batch, (self.place.acks, timeout))?;
        let version = request.header.version;
        Ok(Sent { version, answering: connection.send(request).await? })
    }

    /// Waits for the oldest batch's answer; see to it that it and those behind it get through.
    async fn settle(&mut self, oldest: InFlight) -> Result<(), CommandError> {
        let (batch, records, partition) = (oldest.batch.clone(), oldest.records, oldest.partition);
        match self.outcome(oldest).await {
            Ok(()) => self.count(&batch, records),
            Err(error) if error.is_retriable() => {
                let mut failed = vec![(partition, batch, records)];
                while let Some(next) = self.in_flight.pop_front() {
                    let again = (next.partition, next.batch.clone(), next.records);
                    match self.outcome(next).await {
                        Ok(()) => self.count(&again.1, again.2),
                        Err(error) if error.is_retriable() || is_gap(&error) => failed.push(again),
                        Err(error) => return Err(error.into()),
                    }
                }
                self.send_again(failed).await?;
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    async fn send_again(&mut self, failed: Vec<(i32, Bytes, u32)>) -> Result<(), CommandError> {
        for (partition, batch, records) in failed {
            match self.client.produce(self.target(partition), batch.clone()).await {
                Err(error) if error.code() != Some(ErrorCode::DuplicateSequenceNumber) => {
                    return Err(error.into());
                }
                Ok(_) | Err(_) => self.count(&batch, records),
            }
        }
        Ok(())
    }

    async fn outcome(&self, one: InFlight) -> Result<(), ClientError> {
        let sent = one.sent?;
        let connection = sent.answering.connection().clone();
        let timeout = self.client.options().timeout;
        let body = match tokio::time::timeout(timeout, sent.answering.body()).await {
            Ok(body) => body?,
            Err(_) => {
                let what = format!("producing to partition {}", one.partition);
                let last = format!("{} doesn't answer", connection.address());
                return Err(ClientError::Timeout { what, after: timeout, last });
            }
        };
        match decode_produced(&connection, sent.version, body) {
            Err(error) if error.code() == Some(ErrorCode::DuplicateSequenceNumber) => Ok(()),
            other => other.map(drop),
        }
    }

    fn target(&self, partition: i32) -> Target<'_> {
        Target { topic: &self.place.topic, partition, acks: self.place.acks }
    }

    fn count(&mut self, batch: &Bytes, records: u32) {
        self.records += u64::from(records);
        self.bytes += u64_of(batch.len());
        self.batches += 1;
    }
}

/// Whether a batch was refused only because one before it is missing.
fn is_gap(error: &ClientError) -> bool {
    error.code() == Some(ErrorCode::OutOfOrderSequenceNumber)
}
