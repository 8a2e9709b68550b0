//! Carries a load out: connections, the schedule, and the wait for the last answers.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::{Semaphore, mpsc};
use uringlog::client::{
    Acks, Client, ClientOptions, Connection, ConnectionOptions, NewTopic, timestamp,
};

use super::alarm::Alarm;
use super::tally::{Measured, Tally};
use super::{consume, send};
use crate::experiments::Failure;
use crate::experiments::measure::{self, f64_of, u64_of, usize_of};

/// What a connection is told to send, by turns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Batches, until they are acknowledged.
    Produce,
    /// Reads at offsets spread over what the partitions hold.
    Fetch,
    /// Batches, until a consumer that follows has them.
    EndToEnd,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::Produce => "produce",
            Kind::Fetch => "fetch",
            Kind::EndToEnd => "end-to-end",
        }
    }
}

/// How fast requests are sent.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Pace {
    /// So many a second, whatever becomes of them.
    Rate(f64),
    /// The next as soon as one is answered, with as many under way as the connections allow; ends
    /// after so many requests at the latest.
    Closed { requests_max: u64 },
}

/// Which partitions a connection serves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// Its number modulo that of the partitions.
    OnePartition,
    /// All whose number modulo that of the connections is its own, by turns; at least one. They
    /// need to have the same leader.
    ItsShare,
}

/// What is sent where, how fast and for how long.
#[derive(Clone, Debug)]
pub struct Plan {
    pub kind: Kind,
    /// Host and port of any broker.
    pub bootstrap: String,
    /// Created when it isn't there, with these settings by Kafka's names.
    pub topic: String,
    pub topic_settings: Vec<(String, String)>,
    pub partitions: i32,
    pub pace: Pace,
    pub connections: i32,
    pub reach: Reach,
    /// Requests under way on one connection.
    pub in_flight: usize,
    pub batch_records: usize,
    /// Of a record's value; [`send::STAMP_BYTES`] at least.
    pub record_bytes: usize,
    pub acks: Acks,
    /// Bytes that one fetch may bring.
    pub fetch_bytes: i32,
    /// What is scheduled before this is over doesn't count.
    pub warm_up: Duration,
    /// And what is scheduled in the time after it does.
    pub counted: Duration,
}

/// What all tasks of a run share; one thread.
pub struct Run {
    pub plan: Plan,
    /// Tells this run's batches from others in the topic.
    pub id: u64,
    /// The schedule's zero.
    start: Instant,
    tally: RefCell<Tally>,
    /// Free places under way, when the next request waits for one.
    places: Semaphore,
    alarm: Alarm,
}

/// Is told how long the load has gone on, and may look at what came of it; an error ends it.
pub type Watch<'a> = &'a mut dyn FnMut(Duration, &mut Tally) -> Result<(), Failure>;

/// How often it is.
const WATCH_EVERY: Duration = Duration::from_millis(50);

/// Longest wait for answers after the last request.
pub const DRAIN: Duration = Duration::from_secs(10);

/// How long a new topic may take to be there.
const NEW_TOPIC_MAX: Duration = Duration::from_secs(10);

/// Carries the load out, on the thread of the caller's `LocalSet`.
///
/// # Errors
/// When it can't begin. What ends it early stands in [`Measured::broken_off`], beside what had
/// been measured by then.
pub async fn drive(plan: Plan, watch: Watch<'_>) -> Result<Measured, Failure> {
    let client = Client::connect(&plan.bootstrap, ClientOptions::default()).await?;
    create_topic(&client, &plan).await?;
    let mut connections = Vec::new();
    for number in 0..plan.connections {
        let partitions = partitions_of(&plan, number);
        connections.push((connect(&client, &plan, partitions[0]).await?, partitions));
    }
    let ends = ends(&client, &plan).await?;
    let places = plan.in_flight * usize_of(u64::from(plan.connections.unsigned_abs()));
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let run = Rc::new(Run {
        start: Instant::now(),
        id: u64::try_from(since_1970.as_nanos()).unwrap_or(u64::MAX),
        tally: RefCell::new(Tally::new()),
        places: Semaphore::new(places),
        alarm: Alarm::new()?,
        plan,
    });
    if run.plan.kind == Kind::EndToEnd {
        for (partition, end) in (0..).zip(ends.iter().copied()) {
            let connection = connect(&client, &run.plan, partition).await?;
            tokio::task::spawn_local(consume::follow(run.clone(), connection, (partition, end)));
        }
    }
    let mut queues = Vec::new();
    for (connection, partitions) in connections {
        let (queue, due) = mpsc::unbounded_channel();
        queues.push(queue);
        let end_of = |it: &i32| ends[usize::try_from(*it).expect("not negative")];
        let partitions = partitions.iter().map(|it| (*it, end_of(it))).collect();
        tokio::task::spawn_local(send::serve(run.clone(), connection, partitions, due));
    }
    Ok(measured(&run, queues, watch).await)
}

async fn measured(
    run: &Run,
    queues: Vec<mpsc::UnboundedSender<Duration>>,
    watch: Watch<'_>,
) -> Measured {
    let cpu = measure::thread_cpu();
    let whole = async {
        match run.plan.pace {
            Pace::Rate(rate) => schedule(run, queues, rate).await,
            Pace::Closed { requests_max } => closed(run, queues, requests_max).await,
        }
        let cpu = measure::thread_cpu() - cpu;
        let wall = run.start.elapsed();
        drain(run).await;
        (cpu, wall)
    };
    let (ended, broken_off) = tokio::select! {
        biased;
        ended = whole => (Some(ended), None),
        failure = watched(run, watch) => (None, Some(failure)),
    };
    let (cpu, wall) = ended.unwrap_or_else(|| (measure::thread_cpu() - cpu, run.start.elapsed()));
    let tally = run.tally.replace(Tally::new());
    let (plan, after) = (run.plan.clone(), run.start.elapsed());
    Measured { plan, cpu, wall, after, tally, broken_off }
}

/// Ends with what the watch says.
async fn watched(run: &Run, watch: Watch<'_>) -> Failure {
    loop {
        tokio::time::sleep(WATCH_EVERY).await;
        let seen = watch(run.start.elapsed(), &mut run.tally.borrow_mut());
        if let Err(failure) = seen {
            return failure;
        }
    }
}

impl Run {
    fn length(&self) -> Duration {
        self.plan.warm_up + self.plan.counted
    }

    fn counts(&self, due: Duration) -> bool {
        self.plan.warm_up <= due
    }

    /// A request's answer has come, or its batch has.
    pub fn answered(&self, due: Duration, bytes: usize) {
        self.places.add_permits(1);
        let now = self.start.elapsed();
        let of = (u64_of(bytes), self.counts(due));
        let mut tally = self.tally.borrow_mut();
        tally.answered((now, now.saturating_sub(due)), of);
        if self.counts(now) && now < self.length() {
            tally.arrived(of.0);
        }
    }

    /// A batch is acknowledged that a consumer has yet to get, or has got.
    pub fn acknowledged(&self, due: Duration) {
        if self.counts(due) {
            let now = self.start.elapsed();
            self.tally.borrow_mut().acknowledged((now, now.saturating_sub(due)));
        }
    }

    /// A request failed.
    pub fn failed(&self, error: &str) {
        self.places.add_permits(1);
        self.tally.borrow_mut().failed(error);
    }
}

/// Hands each request to its connection when it is due.
async fn schedule(run: &Run, queues: Vec<mpsc::UnboundedSender<Duration>>, rate: f64) {
    for (number, queue) in (0..).zip(queues.iter().cycle()) {
        let due = Duration::from_secs_f64(f64_of(number) / rate);
        if run.length() <= due {
            return;
        }
        run.alarm.until(run.start + due).await;
        let late = run.start.elapsed().saturating_sub(due);
        run.tally.borrow_mut().scheduled(late, run.counts(due));
        // A connection that has ended says so in the tally.
        let _ = queue.send(due);
    }
}

/// Hands out a request for each place that is free.
async fn closed(run: &Run, queues: Vec<mpsc::UnboundedSender<Duration>>, requests_max: u64) {
    for (_, queue) in (0..requests_max).zip(queues.iter().cycle()) {
        let left = run.length().saturating_sub(run.start.elapsed());
        let Ok(place) = tokio::time::timeout(left, run.places.acquire()).await else { return };
        place.expect("the semaphore is never closed").forget();
        let due = run.start.elapsed();
        if run.length() <= due {
            return;
        }
        run.tally.borrow_mut().scheduled(Duration::ZERO, run.counts(due));
        let _ = queue.send(due);
        // tokio makes a task give way now and then by itself, but a timeout sees that only when
        // there is nothing to acquire.
        tokio::task::yield_now().await;
    }
}

async fn drain(run: &Run) {
    let until = Instant::now() + DRAIN;
    while 0 < run.tally.borrow().open() && Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Partitions that the connection serves.
fn partitions_of(plan: &Plan, connection: i32) -> Vec<i32> {
    let share =
        (connection..plan.partitions).step_by(usize_of(u64::from(plan.connections.unsigned_abs())));
    match plan.reach {
        Reach::ItsShare if connection < plan.partitions => share.collect(),
        Reach::ItsShare | Reach::OnePartition => vec![connection % plan.partitions],
    }
}

async fn create_topic(client: &Client, plan: &Plan) -> Result<(), Failure> {
    let known = client.metadata(Some(&[plan.topic.as_str()])).await?;
    if known.topics.iter().any(|topic| topic.error_code == 0) {
        return Ok(());
    }
    let (name, partitions) = (plan.topic.clone(), plan.partitions);
    let configs = plan.topic_settings.clone();
    let topic = NewTopic { name, partitions, replication_factor: -1, configs };
    client.create_topic(&topic).await?;
    Ok(())
}

/// A connection of one's own to the partition's leader. A broker may need a moment before it knows
/// of a topic that its controller has just made.
async fn connect(client: &Client, plan: &Plan, partition: i32) -> Result<Connection, Failure> {
    let until = Instant::now() + NEW_TOPIC_MAX;
    let leader = loop {
        match client.leader(&plan.topic, partition).await {
            Ok(leader) => break leader,
            Err(error) if error.is_retriable() && Instant::now() < until => {
                client.forget_leaders();
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(error) => return Err(error.into()),
        }
    };
    let set = ConnectionOptions {
        client_id: "bench-harness".to_owned(),
        in_flight_max: plan.in_flight,
        ..ConnectionOptions::default()
    };
    Ok(Connection::open(leader.address(), &set).await?)
}

/// Where each partition ends now.
async fn ends(client: &Client, plan: &Plan) -> Result<Vec<i64>, Failure> {
    let mut ends = Vec::new();
    for partition in 0..plan.partitions {
        let found = client.list_offsets(&plan.topic, partition, timestamp::LATEST).await?;
        ends.push(found.offset);
    }
    Ok(ends)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(partitions: i32, connections: i32, reach: Reach) -> Plan {
        Plan {
            kind: Kind::Produce,
            bootstrap: String::new(),
            topic: String::new(),
            topic_settings: Vec::new(),
            partitions,
            pace: Pace::Rate(1.0),
            connections,
            reach,
            in_flight: 1,
            batch_records: 1,
            record_bytes: send::STAMP_BYTES,
            acks: Acks::All,
            fetch_bytes: 1,
            warm_up: Duration::ZERO,
            counted: Duration::ZERO,
        }
    }

    #[test]
    fn connections_share_the_partitions() {
        let of = |partitions, connections, reach| {
            let plan = plan(partitions, connections, reach);
            (0..connections).map(|it| partitions_of(&plan, it)).collect::<Vec<_>>()
        };
        assert_eq!(of(5, 2, Reach::ItsShare), [vec![0, 2, 4], vec![1, 3]]);
        assert_eq!(of(2, 3, Reach::ItsShare), [[0], [1], [0]]);
        assert_eq!(of(5, 2, Reach::OnePartition), [[0], [1]]);
        assert_eq!(of(1, 3, Reach::OnePartition), [[0], [0], [0]]);
    }
}
