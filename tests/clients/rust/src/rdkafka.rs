//! rdkafka against a bootstrap server: every codec, by assignment and by group, three members,
//! commits, a time, transactions.

mod checks;

use std::collections::HashSet;
use std::time::{Duration, Instant};

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Header, Headers, Message, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use checks::{CODECS, Outcome, PARTITIONS, Report, Sent, arguments, name, records};

const PATIENCE: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(20);

struct Run {
    bootstrap: String,
    report: Report,
}

fn number(partition: usize) -> i32 {
    i32::try_from(partition).expect("few partitions")
}

fn as_sent(message: &BorrowedMessage<'_>) -> Outcome<Sent> {
    let text = |bytes: Option<&[u8]>| bytes.map(|it| String::from_utf8(it.to_vec())).transpose();
    let header = message.headers().map(|headers| headers.get(0).value);
    Ok(Sent {
        partition: usize::try_from(message.partition())?,
        key: text(message.key())?,
        value: text(message.payload())?,
        header: text(header.flatten())?,
        time: message.timestamp().to_millis().ok_or("a record without a time")?,
    })
}

/// Puts records into the producer's queue, waiting while it is full.
fn queue(producer: &BaseProducer, topic: &str, records: &[Sent]) -> Outcome<()> {
    for one in records {
        let mut record: BaseRecord<'_, str, str> = BaseRecord::to(topic);
        record = record.partition(number(one.partition)).timestamp(one.time);
        record.key = one.key.as_deref();
        record.payload = one.value.as_deref();
        if let Some(value) = &one.header {
            let header = Header { key: "number", value: Some(value) };
            record = record.headers(OwnedHeaders::new().insert(header));
        }
        loop {
            match producer.send(record) {
                Ok(()) => break,
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), back)) => {
                    record = back;
                    producer.poll(POLL);
                }
                Err((error, _)) => return Err(error.into()),
            }
        }
    }
    Ok(())
}

impl Run {
    fn config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &self.bootstrap);
        config
    }

    async fn topic(&self, label: &str) -> Outcome<String> {
        let name = name(label);
        let admin: AdminClient<DefaultClientContext> = self.config().create()?;
        let wanted = NewTopic::new(&name, number(PARTITIONS), TopicReplication::Fixed(1));
        for made in admin.create_topics(&[wanted], &AdminOptions::new()).await? {
            made.map_err(|(topic, code)| format!("{topic}: {code}"))?;
        }
        Ok(name)
    }

    fn produce(&self, topic: &str, codec: &str, records: &[Sent]) -> Outcome<()> {
        let mut config = self.config();
        config.set("compression.type", codec).set("enable.idempotence", "true");
        let producer: BaseProducer = config.create()?;
        queue(&producer, topic, records)?;
        Ok(producer.flush(PATIENCE)?)
    }

    fn member(&self, group: &str, protocol: &str) -> Outcome<BaseConsumer> {
        let mut config = self.config();
        config
            .set("group.id", group)
            .set("group.protocol", protocol)
            .set("auto.offset.reset", "earliest")
            .set("enable.auto.commit", "false")
            .set("isolation.level", "read_committed");
        Ok(config.create()?)
    }

    /// Reads until there are so many records.
    fn read(&self, consumer: &BaseConsumer, many: usize) -> Outcome<Vec<Sent>> {
        let (mut found, deadline) = (Vec::new(), Instant::now() + PATIENCE);
        while found.len() < many && Instant::now() < deadline {
            if let Some(message) = consumer.poll(POLL) {
                found.push(as_sent(&message?)?);
            }
        }
        Ok(found)
    }

    async fn codec(&mut self, codec: &str, many: usize) -> Outcome<()> {
        let topic = self.topic(codec).await?;
        let sent = records(many);
        self.produce(&topic, codec, &sent)?;
        let member = self.member(&name("group"), "classic")?;
        member.subscribe(&[&topic])?;
        let received = self.read(&member, many)?;
        self.report.same(&format!("produce and read, {codec}"), &sent, &received);
        Ok(())
    }

    async fn assignment(&mut self) -> Outcome<()> {
        let topic = self.topic("assigned").await?;
        let sent = records(6000);
        self.produce(&topic, "none", &sent)?;
        let consumer = self.member(&name("group"), "classic")?;
        let mut from = TopicPartitionList::new();
        for partition in 0..PARTITIONS {
            from.add_partition_offset(&topic, number(partition), Offset::Offset(10))?;
        }
        consumer.assign(&from)?;
        let received = self.read(&consumer, sent.len() - 60)?;
        self.report.same("consume by assignment", &sent[60..], &received);
        let mut times = TopicPartitionList::new();
        times.add_partition_offset(&topic, 2, Offset::Offset(sent[400 * PARTITIONS + 2].time - 1))?;
        let found = consumer.offsets_for_times(times, PATIENCE)?;
        let offset = found.elements()[0].offset();
        self.report.equal("the offset at a time", offset, Offset::Offset(400));
        let mut from = TopicPartitionList::new();
        from.add_partition_offset(&topic, 2, offset)?;
        consumer.assign(&from)?;
        let received = self.read(&consumer, 600)?;
        let wanted: Vec<_> = sent.iter().filter(|it| it.partition == 2).skip(400).collect();
        let is_same = received.iter().collect::<Vec<_>>() == wanted;
        self.report.equal("read from that time on", is_same, true);
        Ok(())
    }

    /// Polls all members until they share the partitions so; what they read goes into `seen`.
    fn share(
        &mut self,
        what: &str,
        members: &[BaseConsumer],
        wanted: &[usize],
        seen: &mut HashSet<Option<String>>,
    ) -> Outcome<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut sizes = Vec::new();
            for member in members {
                if let Some(message) = member.poll(POLL) {
                    seen.insert(as_sent(&message?)?.value);
                }
                sizes.push(member.assignment()?.count());
            }
            sizes.sort_unstable();
            if sizes == wanted || Instant::now() > deadline {
                self.report.equal(what, &sizes[..], wanted);
                return Ok(());
            }
        }
    }

    async fn sharing(&mut self, protocol: &str) -> Outcome<()> {
        let (topic, group) = (self.topic("shared").await?, name("group"));
        let mut sent = records(9000);
        for (at, one) in sent.iter_mut().enumerate() {
            one.value = Some(at.to_string());
        }
        let mut seen = HashSet::new();
        let what = |text: &str| format!("{text}, {protocol}");
        self.produce(&topic, "none", &sent[..3000])?;
        let mut members = Vec::new();
        for _ in 0..3 {
            let member = self.member(&group, protocol)?;
            member.subscribe(&[&topic])?;
            members.push(member);
        }
        let three = what("three members share the partitions");
        self.share(&three, &members, &[2, 2, 2], &mut seen)?;
        self.produce(&topic, "none", &sent[3000..6000])?;
        drop(members.remove(0));
        let two = what("a member leaves, the others take over");
        self.share(&two, &members, &[3, 3], &mut seen)?;
        self.produce(&topic, "none", &sent[6000..])?;
        let deadline = Instant::now() + PATIENCE;
        while seen.len() < sent.len() && Instant::now() < deadline {
            for member in &members {
                if let Some(message) = member.poll(POLL) {
                    seen.insert(as_sent(&message?)?.value);
                }
            }
        }
        println!("moved\t{}", seen.len());
        self.report.equal(&what("nothing is lost over rebalances"), seen.len(), sent.len());
        for member in members {
            member.commit_consumer_state(rdkafka::consumer::CommitMode::Sync)?;
        }
        let ends = vec![Offset::Offset(1500); PARTITIONS];
        let committed = self.committed(&group, &topic)?;
        self.report.equal(&what("committed offsets are the ends"), committed, ends);
        Ok(())
    }

    fn committed(&self, group: &str, topic: &str) -> Outcome<Vec<Offset>> {
        let mut asked = TopicPartitionList::new();
        asked.add_partition_range(topic, 0, number(PARTITIONS) - 1);
        let found = self.member(group, "classic")?.committed_offsets(asked, PATIENCE)?;
        Ok(found.elements().iter().map(|it| it.offset()).collect())
    }

    async fn transactions(&mut self) -> Outcome<()> {
        let (topic, source) = (self.topic("committed").await?, self.topic("source").await?);
        let (sent, group) = (records(4000), name("group"));
        self.produce(&source, "none", &sent[..60])?;
        let mut config = self.config();
        let producer: BaseProducer = config.set("transactional.id", name("t")).create()?;
        producer.init_transactions(PATIENCE)?;
        let member = self.member(&group, "classic")?;
        for (number, part) in sent.chunks(1000).enumerate() {
            producer.begin_transaction()?;
            queue(&producer, &topic, part)?;
            if number == 3 {
                let mut offsets = TopicPartitionList::new();
                offsets.add_partition_offset(&source, 0, Offset::Offset(7))?;
                let metadata = member.group_metadata().ok_or("no metadata of the group")?;
                producer.send_offsets_to_transaction(&offsets, &metadata, PATIENCE)?;
            }
            match number {
                1 => {
                    producer.flush(PATIENCE)?;
                    producer.abort_transaction(PATIENCE)?;
                }
                _ => producer.commit_transaction(PATIENCE)?,
            }
        }
        let reader = self.member(&name("group"), "classic")?;
        reader.subscribe(&[&topic])?;
        let received = self.read(&reader, 3000)?;
        let wanted = [&sent[..1000], &sent[2000..]].concat();
        let what = "committed transactions are read, aborted ones not";
        self.report.same(what, &wanted, &received);
        let committed = self.committed(&group, &source)?[0];
        let what = "offsets sent with a transaction are committed";
        self.report.equal(what, committed, Offset::Offset(7));
        Ok(())
    }

    async fn all(&mut self, count: usize) {
        for codec in CODECS {
            if let Err(error) = self.codec(codec, count.div_ceil(CODECS.len())).await {
                self.report.fail(&format!("produce and read, {codec}"), &error.to_string());
            }
        }
        if let Err(error) = self.assignment().await {
            self.report.fail("consume by assignment", &error.to_string());
        }
        for protocol in ["classic", "consumer"] {
            if let Err(error) = self.sharing(protocol).await {
                self.report.fail(&format!("a group, {protocol}"), &error.to_string());
            }
        }
        if let Err(error) = self.transactions().await {
            self.report.fail("transactions", &error.to_string());
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome<()> {
    let (bootstrap, count) = arguments()?;
    println!("version\t0.39.0, librdkafka {}", rdkafka::util::get_rdkafka_version().1);
    let mut run = Run { bootstrap, report: Report::default() };
    run.all(count).await;
    std::process::exit(i32::from(run.report.failed > 0))
}
