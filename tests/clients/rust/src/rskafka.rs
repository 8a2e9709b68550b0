//! rskafka against a bootstrap server: every codec by assignment, bounds, a time, deletion of
//! records. The client has no groups and no transactions.

mod checks;

use std::collections::BTreeMap;

use chrono::DateTime;
use rskafka::client::partition::{Compression, OffsetAt, PartitionClient, UnknownTopicHandling};
use rskafka::client::{Client, ClientBuilder};
use rskafka::record::Record;

use checks::{CODECS, Outcome, PARTITIONS, Report, Sent, arguments, name, records};

const BATCH: usize = 1000;
const TIMEOUT_MS: i32 = 10_000;

fn compression(codec: &str) -> Compression {
    match codec {
        "gzip" => Compression::Gzip,
        "snappy" => Compression::Snappy,
        "lz4" => Compression::Lz4,
        "zstd" => Compression::Zstd,
        _ => Compression::NoCompression,
    }
}

fn to_send(one: &Sent) -> Outcome<Record> {
    let header = one.header.iter().map(|it| ("number".to_owned(), it.clone().into_bytes()));
    Ok(Record {
        key: one.key.clone().map(String::into_bytes),
        value: one.value.clone().map(String::into_bytes),
        headers: header.collect::<BTreeMap<_, _>>(),
        timestamp: DateTime::from_timestamp_millis(one.time).ok_or("a time out of range")?,
    })
}

fn as_sent(partition: usize, one: Record) -> Outcome<Sent> {
    let text = |bytes: Option<Vec<u8>>| bytes.map(String::from_utf8).transpose();
    Ok(Sent {
        partition,
        key: text(one.key)?,
        value: text(one.value)?,
        header: text(one.headers.get("number").cloned())?,
        time: one.timestamp.timestamp_millis(),
    })
}

async fn topic(client: &Client, label: &str) -> Outcome<String> {
    let name = name(label);
    let partitions = i32::try_from(PARTITIONS)?;
    client.controller_client()?.create_topic(&name, partitions, 1, TIMEOUT_MS).await?;
    Ok(name)
}

async fn partition_of(client: &Client, topic: &str, number: usize) -> Outcome<PartitionClient> {
    let number = i32::try_from(number)?;
    Ok(client.partition_client(topic, number, UnknownTopicHandling::Retry).await?)
}

/// Every record from an offset up to the high watermark.
async fn read(partition: &PartitionClient, from: i64) -> Outcome<Vec<Record>> {
    let (mut found, mut next) = (Vec::new(), from);
    loop {
        let (records, watermark) = partition.fetch_records(next, 1..1 << 20, 1000).await?;
        for it in records {
            // A fetch begins with the batch that holds the offset.
            if next <= it.offset {
                next = it.offset + 1;
                found.push(it.record);
            }
        }
        if watermark <= next {
            return Ok(found);
        }
    }
}

async fn codec(client: &Client, codec: &str, many: usize, report: &mut Report) -> Outcome<()> {
    let topic = topic(client, codec).await?;
    let sent = records(many);
    let mut received = Vec::new();
    for number in 0..PARTITIONS {
        let partition = partition_of(client, &topic, number).await?;
        let own = sent.iter().filter(|it| it.partition == number);
        let own = own.map(to_send).collect::<Outcome<Vec<_>>>()?;
        for batch in own.chunks(BATCH) {
            partition.produce(batch.to_vec(), compression(codec)).await?;
        }
        for record in read(&partition, 0).await? {
            received.push(as_sent(number, record)?);
        }
    }
    report.same(&format!("produce and read, {codec}"), &sent, &received);
    Ok(())
}

async fn bounds(client: &Client, report: &mut Report) -> Outcome<()> {
    let topic = topic(client, "bounds").await?;
    let partition = partition_of(client, &topic, 0).await?;
    let sent = records(500).iter().map(to_send).collect::<Outcome<Vec<_>>>()?;
    let offsets = partition.produce(sent.clone(), Compression::Zstd).await?;
    report.equal("offsets that producing answers", offsets, (0..500).collect());
    report.equal("latest offset", partition.get_offset(OffsetAt::Latest).await?, 500);
    let at = OffsetAt::Timestamp(sent[40].timestamp);
    report.equal("the offset at a time", partition.get_offset(at).await?, 40);
    report.equal("read from that time on", &read(&partition, 40).await?[..], &sent[40..]);
    partition.delete_records(100, TIMEOUT_MS).await?;
    report.equal("earliest offset", partition.get_offset(OffsetAt::Earliest).await?, 100);
    let left = read(&partition, 100).await?;
    report.equal("what is left after a deletion of records", &left[..], &sent[100..]);
    let below = read(&partition, 5).await;
    report.equal("a fetch below the log start is refused", below.is_err(), true);
    client.controller_client()?.delete_topic(&topic, TIMEOUT_MS).await?;
    let topics = client.list_topics().await?;
    report.equal("a deleted topic is gone", topics.iter().any(|it| it.name == topic), false);
    Ok(())
}

async fn run(bootstrap: String, count: usize, report: &mut Report) -> Outcome<()> {
    let client = ClientBuilder::new(vec![bootstrap]).build().await?;
    for one in CODECS {
        if let Err(error) = codec(&client, one, count.div_ceil(CODECS.len()), report).await {
            report.fail(&format!("produce and read, {one}"), &error.to_string());
        }
    }
    bounds(&client, report).await
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome<()> {
    let (bootstrap, count) = arguments()?;
    println!("version\t0.6.0");
    println!("none\tgroups\tthe client has none");
    println!("none\ttransactions\tthe client has none");
    let mut report = Report::default();
    if let Err(error) = run(bootstrap, count, &mut report).await {
        report.fail("the program", &error.to_string());
    }
    std::process::exit(i32::from(report.failed > 0))
}
