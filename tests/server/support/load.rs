//! Producers that write down what was acknowledged, and the check that it is there: each record
//! once, at its offset, whatever happened in between.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use kafka_protocol::messages::ProduceRequest;

use super::batch;
use super::client::{Client, PRODUCE, only, produce_request};
use super::process::{Broker, Launch};
use super::wait;

/// Kafka's code of a request that reached a shard before all of it was open.
const NOT_LEADER_OR_FOLLOWER: i16 = 6;
/// Every so many values is so long.
const LARGE_EVERY: usize = 16;
const LARGE_BYTES: usize = 300_000;
/// Batches that a producer has under way.
const IN_FLIGHT_MAX: usize = 8;

/// The values of all producers of a test differ.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// What one partition was sent, and what it has acknowledged.
#[derive(Default)]
pub struct Ledger {
    acknowledged: BTreeMap<i64, String>,
    sent: HashSet<String>,
    /// First offset that hasn't been checked yet.
    unchecked: i64,
}

impl Ledger {
    /// How many records were acknowledged.
    pub fn acknowledged(&self) -> usize {
        self.acknowledged.len()
    }

    fn send(&mut self, value_bytes: usize) -> String {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let value = format!("{number}/{}", "x".repeat(value_bytes));
        self.sent.insert(value.clone());
        value
    }

    fn acknowledge(&mut self, offset: i64, value: String) {
        let other = self.acknowledged.insert(offset, value);
        assert_eq!(other, None, "offset {offset} was given twice");
    }

    /// Checks what is stored from `from` on.
    fn check(&self, what: &str, from: i64, stored: &[(i64, Vec<u8>)]) {
        let mut seen = HashSet::new();
        for ((offset, value), wanted) in stored.iter().zip(from..) {
            assert_eq!(*offset, wanted, "{what}: offsets are contiguous");
            let value = str::from_utf8(value).expect("what was sent is text");
            assert!(self.sent.contains(value), "{what}: nobody sent {offset}");
            assert!(seen.insert(value), "{what}: {value} is there twice");
        }
        let stored: BTreeMap<i64, &[u8]> =
            stored.iter().map(|(offset, value)| (*offset, &value[..])).collect();
        for (offset, value) in self.acknowledged.range(from..) {
            let found = stored.get(offset).copied();
            assert_eq!(found, Some(value.as_bytes()), "{what}: offset {offset} was acknowledged");
        }
    }
}

/// The partitions of one topic.
pub struct Load {
    topic: &'static str,
    /// Length of the values to come, roughly.
    pub value_bytes: usize,
    /// Whether some are so large that they don't go by the journal.
    pub has_large: bool,
    partitions: Vec<Ledger>,
}

impl Load {
    /// Makes the topic.
    pub fn create(
        broker: &Broker,
        (topic, partitions): (&'static str, i32),
        value_bytes: usize,
    ) -> Load {
        broker.connect().create(topic, partitions, &[]);
        let partitions = (0..partitions).map(|_| Ledger::default()).collect();
        Load { topic, value_bytes, has_large: false, partitions }
    }

    /// The partitions.
    pub fn partitions(&self) -> &[Ledger] {
        &self.partitions
    }

    /// Produces to each partition over a connection of its own until so many more records are
    /// acknowledged in all, then goes on until the server is killed.
    pub fn kill(&mut self, broker: Broker, records: usize) -> Launch {
        let leaders = leaders(&broker, self.topic);
        let (topic, value_bytes, has_large) = (self.topic, self.value_bytes, self.has_large);
        let count = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for ((partition, ledger), port) in (0..).zip(&mut self.partitions).zip(leaders) {
                let count = &count;
                scope.spawn(move || {
                    let mut producer =
                        Producer { topic, partition, value_bytes, has_large, ledger, count };
                    // Whatever happened to the connection, the check is what is stored.
                    drop(Client::try_open(port).and_then(|mut client| producer.run(&mut client)));
                });
            }
            let enough = u64::try_from(records).expect("small");
            let deadline = Instant::now() + wait::PATIENCE;
            while count.load(Ordering::Relaxed) < enough {
                assert!(Instant::now() < deadline, "too few are acknowledged");
                std::thread::sleep(Duration::from_millis(1));
            }
            broker.kill()
        })
    }

    /// Produces one record to a partition; the error code.
    pub fn try_produce(&mut self, client: &mut Client, partition: i32) -> i16 {
        let ledger = &mut self.partitions[usize::try_from(partition).expect("it is there")];
        let value = ledger.send(self.value_bytes);
        let answer = client.produce(self.topic, partition, batch::of(&[&value]));
        if answer.error_code == 0 {
            ledger.acknowledge(answer.base_offset, value);
        }
        answer.error_code
    }

    /// Produces this many records to each partition, one after the other.
    pub fn produce(&mut self, broker: &Broker, records: usize) {
        let leaders = leaders(broker, self.topic);
        for ((partition, ledger), port) in (0..).zip(&mut self.partitions).zip(leaders) {
            let mut client = Client::open(port);
            for _ in 0..records {
                let value = ledger.send(self.value_bytes);
                let offset = client.accepted(self.topic, partition, batch::of(&[&value]));
                ledger.acknowledge(offset, value);
            }
        }
    }

    /// What wasn't looked at before is as it should be.
    pub fn check_new(&mut self, broker: &Broker) {
        let leaders = leaders(broker, self.topic);
        for ((partition, ledger), port) in (0..).zip(&mut self.partitions).zip(leaders) {
            let (what, from) = (format!("{}-{partition}", self.topic), ledger.unchecked);
            let stored = batch::consume(&mut Client::open(port), self.topic, partition, from);
            ledger.check(&what, from, &stored);
            ledger.unchecked = stored.last().map_or(from, |(offset, _)| offset + 1);
        }
    }

    /// Everything is as it should be.
    pub fn check(&mut self, broker: &Broker) {
        self.partitions.iter_mut().for_each(|ledger| ledger.unchecked = 0);
        self.check_new(broker);
    }
}

/// The ports of the leaders, once all shards serve.
pub fn leaders(broker: &Broker, topic: &str) -> Vec<u16> {
    wait::for_some("the topic is served", || {
        let mut client = broker.connect();
        let metadata = client.try_metadata(Some(topic)).ok()?;
        let found = metadata.topics.first().is_some_and(|it| it.error_code == 0);
        let ports = found.then(|| client.leaders(topic))?;
        let serves = |(partition, port): (i32, &u16)| {
            Client::open(*port).list_offset(topic, partition, -1).0 == 0
        };
        (0..).zip(&ports).all(serves).then_some(ports)
    })
}

struct Producer<'a> {
    topic: &'static str,
    partition: i32,
    value_bytes: usize,
    has_large: bool,
    ledger: &'a mut Ledger,
    count: &'a AtomicU64,
}

impl Producer<'_> {
    fn next_bytes(&self) -> usize {
        let is_large = self.has_large && self.ledger.sent.len().is_multiple_of(LARGE_EVERY);
        if is_large { LARGE_BYTES } else { self.value_bytes }
    }

    /// Goes on until the connection ends.
    fn run(&mut self, client: &mut Client) -> io::Result<()> {
        let mut under_way = VecDeque::new();
        loop {
            while under_way.len() < IN_FLIGHT_MAX {
                let value = self.ledger.send(self.next_bytes());
                let batch: Bytes = batch::of(&[&value]).into();
                under_way.push_back(value);
                client.post(&produce_request(self.topic, self.partition, batch, -1), PRODUCE)?;
            }
            let answer = only(client.collect::<ProduceRequest>(PRODUCE)?);
            let value = under_way.pop_front().expect("something is under way");
            if answer.error_code == 0 {
                self.ledger.acknowledge(answer.base_offset, value);
                self.count.fetch_add(1, Ordering::Relaxed);
            } else {
                assert_eq!(answer.error_code, NOT_LEADER_OR_FOLLOWER, "{answer:?}");
            }
        }
    }
}

/// Random numbers that repeat with their seed (xorshift).
pub struct Random(u64);

impl Random {
    /// From a seed.
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Below a limit.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit.max(1)
    }
}
