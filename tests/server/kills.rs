//! A kill under load loses nothing that was acknowledged and repeats nothing of an idempotent
//! producer; an orderly stop is quick and clean.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::time::Duration;

use kafka_protocol::messages::ProduceRequest;

use crate::support::batch::{self, of};
use crate::support::client::{Client, PRODUCE, only, produce_request};
use crate::support::hosts;
use crate::support::process::{Broker, Launch, directory};
use crate::support::wait;

/// Requests that an idempotent producer has under way, as Kafka's clients do.
const IN_FLIGHT_MAX: usize = 5;
const RECORDS_PER_BATCH: i32 = 10;
const PARTITIONS: i32 = 3;

/// An idempotent producer of one partition: sends again what was not acknowledged.
struct Producer {
    partition: i32,
    id: (i64, i16),
    /// First sequences of the batches under way, in order.
    under_way: VecDeque<i32>,
    next: i32,
    acknowledged: i32,
}

impl Producer {
    fn batch(&self, first: i32) -> Vec<u8> {
        let value = |number: i32| format!("{}/{number}", self.partition);
        let values: Vec<_> = (first..first + RECORDS_PER_BATCH).map(value).collect();
        batch::sequenced(self.id, first, &values)
    }

    fn send(&self, client: &mut Client, first: i32) -> io::Result<()> {
        let batch = self.batch(first).into();
        client.post(&produce_request("topic", self.partition, batch, -1), PRODUCE)
    }

    /// Goes on until the server is gone, or so many records are acknowledged.
    fn run(&mut self, client: &mut Client, until: i32) -> io::Result<()> {
        for first in self.under_way.clone() {
            self.send(client, first)?;
        }
        while self.acknowledged < until {
            while self.under_way.len() < IN_FLIGHT_MAX && self.next < until {
                self.under_way.push_back(self.next);
                self.next += RECORDS_PER_BATCH;
                self.send(client, self.next - RECORDS_PER_BATCH)?;
            }
            let answer = only(client.collect::<ProduceRequest>(PRODUCE)?);
            let first = self.under_way.pop_front().expect("something is under way");
            assert_eq!(answer.error_code, 0, "{answer:?}");
            assert_eq!(answer.base_offset, i64::from(first), "offsets follow the sequence");
            self.acknowledged = first + RECORDS_PER_BATCH;
        }
        Ok(())
    }
}

/// Runs the producers until the server is killed in the middle.
fn kill_under_load(broker: Broker, producers: &mut [Producer]) -> Launch {
    std::thread::scope(|scope| {
        let (told, acknowledgements) = std::sync::mpsc::channel();
        for producer in producers {
            let (mut client, told) = (broker.connect(), told.clone());
            scope.spawn(move || {
                let enough = producer.acknowledged + 20 * RECORDS_PER_BATCH;
                producer.run(&mut client, enough).expect("nobody kills it yet");
                told.send(()).expect("somebody waits");
                producer.run(&mut client, i32::MAX).expect_err("it is killed");
            });
        }
        for _ in 0..PARTITIONS {
            acknowledgements.recv().expect("every producer gets acknowledgements");
        }
        broker.kill()
    })
}

fn assert_each_once(client: &mut Client, producer: &Producer) {
    let stored = batch::consume(client, "topic", producer.partition, 0);
    let known = i64::from(producer.acknowledged);
    let sent = i64::from(producer.next);
    let count = i64::try_from(stored.len()).expect("small");
    assert!((known..=sent).contains(&count), "{known} acknowledged, {count} stored, {sent} sent");
    for (number, (offset, value)) in (0..).zip(&stored) {
        assert_eq!(*offset, number, "offsets are contiguous");
        let wanted = format!("{}/{number}", producer.partition);
        assert_eq!(*value, wanted.as_bytes(), "each once, in order");
    }
}

fn survive(launch: Launch, durability: &str) {
    let launch = launch.with(&["--durability", durability]);
    let mut broker = launch.set("log.segment.bytes=1048576").start();
    let mut client = broker.connect();
    client.create("topic", PARTITIONS, &[]);
    let new = |partition| Producer {
        partition,
        id: client.producer_id(),
        under_way: VecDeque::new(),
        next: 0,
        acknowledged: 0,
    };
    let mut producers: Vec<_> = (0..PARTITIONS).map(new).collect();
    for _ in 0..4 {
        broker = kill_under_load(broker, &mut producers).start();
        let mut client = broker.connect();
        producers.iter().for_each(|producer| assert_each_once(&mut client, producer));
    }
    let mut client = broker.connect();
    for producer in &mut producers {
        // What was under way comes again, whether the kill let it through or not.
        let end = producer.next + 3 * RECORDS_PER_BATCH;
        producer.run(&mut client, end).expect("nobody kills it");
        assert_eq!(client.end("topic", producer.partition), i64::from(end));
        assert_each_once(&mut client, producer);
    }
}

#[test]
fn a_kill_loses_nothing_acknowledged_and_repeats_nothing_in_the_device_tier() {
    hosts().into_iter().for_each(|(_, launch)| survive(launch, "device"));
}

#[test]
fn a_kill_loses_nothing_acknowledged_and_repeats_nothing_in_the_page_cache_tier() {
    hosts().into_iter().for_each(|(_, launch)| survive(launch, "page-cache"));
}

#[test]
fn an_orderly_stop_is_quick_exits_with_zero_and_loses_nothing() {
    for durability in ["device", "page-cache"] {
        for (engine, launch) in hosts() {
            let launch = launch.shards(2).with(&["--durability", durability]);
            let broker = launch.start();
            let mut client = broker.connect();
            client.create("topic", 8, &[]);
            let leaders = client.leaders("topic");
            for (partition, leader) in (0..).zip(&leaders) {
                let mut client = Client::open(*leader);
                (0..20).for_each(|_| {
                    client.accepted("topic", partition, of(&["one", "two"]));
                });
            }
            // Connections that idle, and one that waits, don't hold it up.
            let idle: Vec<_> = (0..20).map(|_| broker.connect()).collect();
            let (stopped, launch) = broker.stop();
            assert!(stopped.status.success(), "{engine}: {}", stopped.output);
            assert!(stopped.took < Duration::from_secs(1), "{engine}: {:?}", stopped.took);
            drop(idle);
            assert_whole_after_a_clean_stop(&launch, 8);
        }
    }
}

fn assert_whole_after_a_clean_stop(launch: &Launch, partitions: i32) {
    let broker = launch.start();
    let mut client = broker.connect();
    let leaders = client.leaders("topic");
    for (partition, leader) in (0..partitions).zip(leaders) {
        let stored = batch::consume(&mut Client::open(leader), "topic", partition, 0);
        let offsets: Vec<_> = stored.iter().map(|(offset, _)| *offset).collect();
        assert_eq!(offsets, (0..40).collect::<Vec<_>>());
    }
}

#[test]
fn a_stop_under_load_acknowledges_nothing_that_it_doesnt_keep() {
    for (engine, launch) in hosts() {
        let broker = launch.start();
        let mut client = broker.connect();
        client.create("topic", 1, &[]);
        let mut loaded = broker.connect();
        let (told, acknowledged) = std::sync::mpsc::channel();
        let load = std::thread::spawn(move || {
            let batch = of(&["x"]);
            loop {
                let request = produce_request("topic", 0, batch.clone().into(), -1);
                match loaded.try_call(&request, PRODUCE).map(only) {
                    Ok(answer) if answer.error_code == 0 => {
                        // The receiver counts until the load ends.
                        let _ = told.send(answer.base_offset);
                    }
                    _ => break,
                }
            }
        });
        let first: Vec<i64> = acknowledged.iter().take(100).collect();
        let (stopped, launch) = broker.stop();
        load.join().expect("it ends with the server");
        assert!(stopped.status.success(), "{engine}: {}", stopped.output);
        assert!(stopped.took < Duration::from_secs(1), "{engine}: {:?}", stopped.took);
        let last = acknowledged.iter().chain(first).max().expect("something was acknowledged");
        let broker = launch.start();
        let stored = batch::consume(&mut broker.connect(), "topic", 0, 0);
        let stored = i64::try_from(stored.len()).expect("small");
        assert!(last < stored, "{engine}: {last} was acknowledged, {stored} are there");
    }
}

/// Recovery may take long, and whoever stops the server meanwhile shouldn't need SIGKILL.
#[test]
fn a_start_can_be_stopped() {
    let directory = directory();
    let partition = directory.path().join("topic-0");
    fs::create_dir(&partition).expect("it is ours");
    // Reading it takes as long as somebody has it open to write.
    let pipe = partition.join("partition.metadata");
    let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU);
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, kind, mode, 0).expect("pipes have names");
    let broker = Launch::at("plain-file", directory.path()).starting();
    let flags = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::NONBLOCK;
    let held = wait::for_some("the server reads it", || {
        rustix::fs::open(&pipe, flags, rustix::fs::Mode::empty()).ok()
    });
    let (stopped, _) = broker.stop();
    assert_eq!(stopped.status.code(), Some(128 + 15), "{}", stopped.output);
    drop(held);
}
