//! What the counters of `/metrics` say about how the work is done.

use kafka_protocol::messages::ProduceRequest;
use uringlog::units::Timestamp;

use crate::support::batch::{self, of};
use crate::support::client::{Client, PRODUCE, only, produce_request};
use crate::support::process::{Broker, Launch};

const COUNTED: [&str; 7] = [
    "batches",
    "plans",
    "ring_chains",
    "ring_linked_sqes",
    "ring_sqes",
    "ring_enters",
    "ring_syncs",
];

/// Pipelined batches that share one plan and one `io_uring_enter`, at the least. Measured: 32 at a
/// depth of 64.
const SHARED: u64 = 8;

/// What some work adds to the counters.
struct Costs(Vec<u64>);

impl Costs {
    fn of(broker: &Broker, work: impl FnOnce()) -> Costs {
        let counts = || COUNTED.map(|name| broker.count(name));
        let before = counts();
        work();
        Costs(counts().iter().zip(before).map(|(after, before)| after - before).collect())
    }

    fn get(&self, name: &str) -> u64 {
        let at = COUNTED.iter().position(|it| *it == name).expect("a counter of the list");
        self.0[at]
    }
}

fn started(engine: &str, durability: &str) -> (Broker, Client) {
    // The journal's costs are counted in tests of its own.
    let broker = Launch::new(engine).journal(false).with(&["--durability", durability]).start();
    let mut client = broker.connect();
    client.create("topic", 1, &[("index.interval.bytes", "0")]);
    // The first batch makes what is made once.
    client.accepted("topic", 0, of(&["first"]));
    (broker, client)
}

#[test]
fn every_plan_of_the_ring_engine_is_one_chain_of_linked_entries() {
    for durability in ["device", "page-cache"] {
        let (broker, mut client) = started("uring", durability);
        let start = batch::now();
        let costs = Costs::of(&broker, || {
            // Each later than the one before, so that each has a time index entry.
            for later in 1..=100 {
                let at = Timestamp(start.0 + later);
                client.accepted("topic", 0, batch::at(at, &["x"]));
            }
        });
        let plans = costs.get("plans");
        assert_eq!(costs.get("batches"), 100);
        assert_eq!(plans, 100, "one at a time, each batch is a plan");
        assert_eq!(costs.get("ring_chains"), plans, "{durability}: one chain per plan");
        // Log, index and time index; in the device tier the sync as well.
        let links = if durability == "device" { 3 } else { 2 };
        assert_eq!(costs.get("ring_linked_sqes"), links * plans, "{durability}");
        let syncs = if durability == "device" { plans } else { 0 };
        assert_eq!(costs.get("ring_syncs"), syncs, "{durability}");
        assert_eq!(costs.get("ring_sqes"), costs.get("ring_linked_sqes") + plans);
    }
}

#[test]
fn the_plain_file_engine_uses_no_storage_ring() {
    let (broker, mut client) = started("plain-file", "device");
    let costs = Costs::of(&broker, || {
        client.accepted("topic", 0, of(&["x"]));
    });
    assert_eq!(costs.get("plans"), 1);
    assert_eq!((costs.get("ring_sqes"), costs.get("ring_enters")), (0, 0));
}

/// Batches sent ahead of their answers, so many at a time.
fn pipeline(client: &mut Client, rounds: usize, depth: usize) {
    let batch: bytes::Bytes = of(&["x".repeat(1_000)]).into();
    for _ in 0..rounds {
        for _ in 0..depth {
            let request = produce_request("topic", 0, batch.clone(), -1);
            client.post(&request, PRODUCE).expect("the server reads");
        }
        for _ in 0..depth {
            let answer = client.collect::<ProduceRequest>(PRODUCE).expect("the server answers");
            assert_eq!(only(answer).error_code, 0);
        }
    }
}

#[test]
fn pipelined_batches_share_plans_syncs_and_system_calls() {
    for durability in ["device", "page-cache"] {
        let (broker, mut client) = started("uring", durability);
        let costs = Costs::of(&broker, || pipeline(&mut client, 50, 64));
        let batches = costs.get("batches");
        assert_eq!(batches, 50 * 64);
        let plans = costs.get("plans");
        assert!(SHARED * plans <= batches, "{durability}: {plans} plans for {batches} batches");
        let enters = costs.get("ring_enters");
        assert!(SHARED * enters <= batches, "{durability}: {enters} enters for {batches} batches");
        assert!(costs.get("ring_syncs") <= plans, "{durability}: a plan has one sync at most");
    }
}

#[test]
fn a_warm_fetch_of_a_mebibyte_travels_by_splice_with_the_defaults() {
    let broker = Launch::new("uring").start();
    let mut client = broker.connect();
    client.create("topic", 1, &[]);
    let sent = batch::large(1, 1 << 20);
    // One record of 1 MiB is above the limit of a batch; two of half a MiB are not.
    assert!(1_048_588 < sent.len());
    let halves: Vec<_> = (0..2).map(|seed| batch::large(seed, (1 << 19) + 100)).collect();
    for half in &halves {
        client.accepted("topic", 0, half.clone());
    }
    let counts = || ["slices_spliced", "slices_copied", "ring_splices"].map(|it| broker.count(it));
    let before = counts();
    for _ in 0..10 {
        let answer = client.fetch("topic", 0, 0, 2 << 20);
        let records = answer.records.expect("records");
        assert!(1 << 20 <= records.len());
        let values: Vec<_> = halves.iter().map(|half| batch::records(half).remove(0).1).collect();
        let stored: Vec<_> = batch::records(&records).into_iter().map(|(_, value)| value).collect();
        assert!(stored == values, "what was sent comes back");
    }
    let [spliced, copied, splices] = counts();
    assert_eq!(spliced - before[0], 10, "every answer's records are one slice, spliced");
    assert_eq!(copied, before[1], "nothing was read and sent");
    assert!(20 <= splices - before[2], "two hops each at the least");
}
