//! rskafka against a bootstrap server: every codec by assignment, bounds, deletion of records.
//! What is printed is described in ../checks.py. The client has no groups and no transactions.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Debug;
use std::time::{SystemTime, UNIX_EPOCH};

use chrono::DateTime;
use rskafka::client::partition::{Compression, OffsetAt, PartitionClient, UnknownTopicHandling};
use rskafka::client::{Client, ClientBuilder};
use rskafka::record::Record;

const PARTITIONS: i32 = 6;
const BATCH: usize = 1000;
const TIMEOUT_MS: i32 = 10_000;
const CODECS: [(&str, Compression); 5] = [
    ("none", Compression::NoCompression),
    ("gzip", Compression::Gzip),
    ("snappy", Compression::Snappy),
    ("lz4", Compression::Lz4),
    ("zstd", Compression::Zstd),
];

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Counts what failed.
#[derive(Default)]
struct Report {
    failed: usize,
}

impl Report {
    fn equal<T: PartialEq + Debug>(&mut self, what: &str, got: T, wanted: T) {
        if got == wanted {
            println!("ok\t{what}");
        } else {
            self.fail(what, &format!("got {got:?}, wanted {wanted:?}"));
        }
    }

    fn fail(&mut self, what: &str, detail: &str) {
        self.failed += 1;
        println!("FAIL\t{what}\t{}", detail.replace(['\n', '\t'], " "));
    }
}

fn now_millis() -> Outcome<i64> {
    Ok(i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis())?)
}

fn record(number: usize, first: i64) -> Outcome<Record> {
    let stamp = first + i64::try_from(number)?;
    let headers = if number % 5 == 0 {
        BTreeMap::from([("number".to_owned(), number.to_string().into_bytes())])
    } else {
        BTreeMap::new()
    };
    Ok(Record {
        key: (number % 7 != 3).then(|| format!("key-{}", number % 1000).into_bytes()),
        value: (number % 101 != 50).then(|| format!("value {number}").into_bytes()),
        headers,
        timestamp: DateTime::from_timestamp_millis(stamp).ok_or("a time out of range")?,
    })
}

async fn topic(client: &Client, label: &str) -> Outcome<String> {
    let name = format!("{label}-{}", SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos());
    let controller = client.controller_client()?;
    controller.create_topic(&name, PARTITIONS, 1, TIMEOUT_MS).await?;
    Ok(name)
}

/// Every record from an offset up to the high watermark.
async fn read(partition: &PartitionClient, mut offset: i64) -> Outcome<Vec<Record>> {
    let mut found = Vec::new();
    loop {
        let (records, watermark) = partition.fetch_records(offset, 1..1 << 20, 1000).await?;
        // A fetch begins with the batch that holds the offset.
        for it in records.into_iter().filter(|it| offset <= it.offset) {
            offset = it.offset + 1;
            found.push(it.record);
        }
        if watermark <= offset {
            return Ok(found);
        }
    }
}

async fn codec(client: &Client, of: (&str, Compression), many: usize) -> Outcome<bool> {
    let name = topic(client, of.0).await?;
    let first = now_millis()? - 3_600_000;
    let mut same = true;
    let mut moved = 0;
    for index in 0..PARTITIONS {
        let partition = client.partition_client(&name, index, UnknownTopicHandling::Retry).await?;
        let numbers = (0..many).filter(|it| i32::try_from(it % 6) == Ok(index));
        let sent = numbers.map(|it| record(it, first)).collect::<Outcome<Vec<_>>>()?;
        for batch in sent.chunks(BATCH) {
            partition.produce(batch.to_vec(), of.1).await?;
        }
        let got = read(&partition, 0).await?;
        moved += got.len();
        same &= got == sent;
    }
    println!("moved\t{moved}");
    Ok(same && moved == many)
}

async fn bounds(client: &Client, report: &mut Report) -> Outcome<()> {
    let name = topic(client, "bounds").await?;
    let partition = client.partition_client(&name, 0, UnknownTopicHandling::Retry).await?;
    let first = now_millis()? - 3_600_000;
    let sent = (0..500).map(|it| record(it, first)).collect::<Outcome<Vec<_>>>()?;
    let offsets = partition.produce(sent.clone(), Compression::Zstd).await?;
    report.equal("offsets that producing answers", offsets, (0..500).collect());
    report.equal("latest offset", partition.get_offset(OffsetAt::Latest).await?, 500);
    let at = DateTime::from_timestamp_millis(first + 40).ok_or("a time out of range")?;
    let offset = partition.get_offset(OffsetAt::Timestamp(at)).await?;
    report.equal("the offset at a time", offset, 40);
    partition.delete_records(100, TIMEOUT_MS).await?;
    report.equal("earliest offset", partition.get_offset(OffsetAt::Earliest).await?, 100);
    let left = read(&partition, 100).await?;
    report.equal("what is left after a deletion of records", &left[..], &sent[100..]);
    let below = read(&partition, 5).await;
    report.equal("a fetch below the log start is refused", below.is_err(), true);
    let controller = client.controller_client()?;
    controller.delete_topic(&name, TIMEOUT_MS).await?;
    let topics = client.list_topics().await?;
    report.equal("a deleted topic is gone", topics.iter().any(|it| it.name == name), false);
    Ok(())
}

async fn run(bootstrap: String, count: usize, report: &mut Report) -> Outcome<()> {
    let client = ClientBuilder::new(vec![bootstrap]).build().await?;
    for of in CODECS {
        let what = format!("produce and read, {}", of.0);
        match codec(&client, of, count.div_ceil(CODECS.len())).await {
            Ok(same) => report.equal(&what, same, true),
            Err(error) => report.fail(&what, &error.to_string()),
        }
    }
    bounds(&client, report).await
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let bootstrap = arguments.next().ok_or("no bootstrap address")?;
    let count = arguments.next().ok_or("no number of records")?.parse()?;
    println!("version\t0.6.0");
    println!("none\tgroups\tthe client has none");
    println!("none\ttransactions\tthe client has none");
    let mut report = Report::default();
    if let Err(error) = run(bootstrap, count, &mut report).await {
        report.fail("the program", &error.to_string());
    }
    std::process::exit(i32::from(report.failed > 0))
}
