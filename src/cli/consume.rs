//! `uringlog consume`: prints records.

use std::io::Write;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::command::{CommandError, Interrupt};
use super::follower::{Batches, Chunk, Cursor, Left, by_leader, follow};
use super::record_format::{Located, RecordFormat};
use super::topic;
use crate::client::{Client, ClientError, ClientOptions, timestamp};
use crate::format::batch::{BatchHeader, HEADER_BYTES, check_crc};
use crate::format::codec;
use crate::format::record::RecordsIter;
use crate::units::{ByteCount, u64_of};
use crate::wire::error::ErrorCode;

/// Answers that wait to be printed.
const CHUNKS_MAX: usize = 4;
/// Unpacked size of a batch, against bombs.
const BATCH_BYTES_MAX: ByteCount = ByteCount(256 << 20);

/// Where to begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum From {
    /// At the oldest record.
    Earliest,
    /// Behind the newest record.
    Latest,
    /// At an offset.
    Offset(i64),
    /// At the first record of this time (milliseconds since 1970) or later.
    Time(i64),
}

impl std::str::FromStr for From {
    type Err = CommandError;

    /// `earliest`, `latest`, an offset, or `@` and a time in milliseconds.
    fn from_str(text: &str) -> Result<From, CommandError> {
        let number = |digits: &str| digits.parse::<i64>().ok().filter(|number| *number >= 0);
        let parsed = match text {
            "earliest" => Some(From::Earliest),
            "latest" => Some(From::Latest),
            _ => match text.strip_prefix('@') {
                Some(time) => number(time).map(From::Time),
                None => number(text).map(From::Offset),
            },
        };
        parsed.ok_or_else(|| {
            let forms = "earliest, latest, OFFSET or @MILLISECONDS";
            CommandError::Usage(format!("{text:?} is no place to begin: {forms}"))
        })
    }
}

/// What to consume, and how.
#[derive(Clone, Debug)]
pub struct ConsumeOptions {
    /// Brokers to begin with, `host:port` separated by commas.
    pub bootstrap: String,
    /// The topic.
    pub topic: String,
    /// One partition; all of them without one.
    pub partition: Option<i32>,
    /// Where to begin in each partition.
    pub from: From,
    /// How many records to print, all partitions together.
    pub count: Option<u64>,
    /// Whether to go on at the end and wait for more.
    pub follow: bool,
    /// How to print a record.
    pub format: RecordFormat,
}

/// Runs the command: prints to `out` until the ends that the partitions had when it began (unless
/// told to follow), until the count is reached, or until SIGINT.
///
/// # Errors
/// [`CommandError`].
pub async fn run(options: &ConsumeOptions, out: &mut impl Write) -> Result<(), CommandError> {
    let mut interrupt = Interrupt::install()?;
    let client = Client::connect(&options.bootstrap, ClientOptions::default()).await?;
    let cursors = tokio::select! {
        cursors = start(&client, options) => cursors?,
        () = interrupt.wait() => return Ok(()),
    };
    let mut printer = Printer { options, left: options.count.unwrap_or(u64::MAX), out };
    let consumed = tokio::select! {
        result = consume(&client, cursors, &mut printer) => result,
        () = interrupt.wait() => Ok(()),
    };
    printer.flush()?;
    consumed
}

async fn start(client: &Client, options: &ConsumeOptions) -> Result<Vec<Cursor>, CommandError> {
    let found = topic::find(client, &options.topic).await?;
    let mut cursors = Vec::new();
    for partition in found.partitions.iter().map(|partition| partition.index) {
        if options.partition.is_none_or(|only| only == partition) {
            cursors.push(start_one(client, options, partition).await?);
        }
    }
    match options.partition {
        Some(partition) if cursors.is_empty() => {
            let (topic, count) = (&options.topic, found.partitions.len());
            let text = format!("topic {topic} has {count} partitions, none is {partition}");
            Err(CommandError::Usage(text))
        }
        _ => Ok(cursors),
    }
}

async fn start_one(
    client: &Client,
    options: &ConsumeOptions,
    partition: i32,
) -> Result<Cursor, CommandError> {
    let find = async |target| {
        let found = client.list_offsets(&options.topic, partition, target).await;
        found.map(|found| found.offset)
    };
    let latest = find(timestamp::LATEST).await?;
    let next = match options.from {
        From::Earliest => find(timestamp::EARLIEST).await?,
        From::Latest => latest,
        From::Offset(offset) => {
            in_range(offset, partition, (find(timestamp::EARLIEST).await?, latest))?
        }
        From::Time(time) => match find(time).await? {
            // No record is that young.
            -1 => latest,
            offset => offset,
        },
    };
    let end = if options.follow { None } else { Some(latest) };
    Ok(Cursor { partition, next, end })
}

/// The offset, when the partition has it or ends there.
fn in_range(
    offset: i64,
    partition: i32,
    (earliest, latest): (i64, i64),
) -> Result<i64, CommandError> {
    if (earliest..=latest).contains(&offset) {
        return Ok(offset);
    }
    Err(CommandError::Usage(format!(
        "offset {offset} is out of range: partition {partition} has {earliest} to {latest}"
    )))
}

async fn consume<W: Write>(
    client: &Client,
    cursors: Vec<Cursor>,
    printer: &mut Printer<'_, W>,
) -> Result<(), CommandError> {
    let (sender, mut chunks) = mpsc::channel(CHUNKS_MAX);
    let mut tasks: JoinSet<Left> = JoinSet::new();
    let mut waiting: Vec<Cursor> = cursors.into_iter().filter(|one| !one.is_done()).collect();
    let mut progress = Instant::now();
    loop {
        if printer.left == 0 {
            return Ok(());
        }
        if !waiting.is_empty() {
            let topic = &printer.options.topic;
            match by_leader(client, topic, &waiting).await {
                Ok(groups) => {
                    for (connection, own) in groups {
                        tasks.spawn(follow(connection, topic.clone(), own, sender.clone()));
                    }
                    waiting.clear();
                }
                Err(error) => pause(client, error, progress).await?,
            }
        }
        if chunks.is_empty() {
            printer.flush()?;
        }
        tokio::select! {
            // Chunks first: a task that has ended may have left some behind.
            biased;
            Some(chunk) = chunks.recv() => {
                progress = Instant::now();
                printer.print(&chunk)?;
            }
            ended = tasks.join_next() => match ended {
                None if waiting.is_empty() => return Ok(()),
                None => {}
                Some(left) => {
                    let (cursors, error) = left.expect("a task neither panics nor is cancelled");
                    waiting.extend(cursors);
                    if let Some(error) = error {
                        pause(client, named(error, printer.options), progress).await?;
                    }
                }
            },
        }
    }
}

/// Waits before the next try; gives up when there has been no progress for too long.
async fn pause(client: &Client, error: ClientError, progress: Instant) -> Result<(), ClientError> {
    let ClientOptions { timeout, retry_pause, .. } = *client.options();
    if !error.is_retriable() || progress.elapsed() > timeout {
        return Err(error);
    }
    client.forget_leaders();
    tokio::time::sleep(Duration::max(retry_pause, Duration::from_millis(1))).await;
    Ok(())
}

/// Says more about an offset that isn't there.
fn named(error: ClientError, options: &ConsumeOptions) -> ClientError {
    match (error.code(), error) {
        (Some(ErrorCode::OffsetOutOfRange), ClientError::Refused { what, code, .. }) => {
            let from = options.from;
            let message = format!("it begins or ends elsewhere (asked for: {from:?})");
            ClientError::Refused { what, code, message }
        }
        (_, other) => other,
    }
}

struct Printer<'a, W> {
    options: &'a ConsumeOptions,
    left: u64,
    out: &'a mut W,
}

impl<W: Write> Printer<'_, W> {
    fn flush(&mut self) -> Result<(), CommandError> {
        self.out.flush().map_err(CommandError::Output)
    }

    fn print(&mut self, chunk: &Chunk) -> Result<(), CommandError> {
        for batch in Batches::new(&chunk.records) {
            let (header, bytes) = batch.map_err(|error| wrong(chunk, &error))?;
            if !header.is_control() {
                self.print_batch(chunk, &header, bytes)?;
            }
        }
        Ok(())
    }

    fn print_batch(
        &mut self,
        chunk: &Chunk,
        header: &BatchHeader,
        bytes: &[u8],
    ) -> Result<(), CommandError> {
        check_crc(header, bytes).map_err(|error| wrong(chunk, &error))?;
        let codec = header.codec().map_err(|error| wrong(chunk, &error))?;
        let payload = codec::decompress(codec, &bytes[HEADER_BYTES..], BATCH_BYTES_MAX)
            .map_err(|error| wrong(chunk, &error))?;
        for record in RecordsIter::new(header, &payload) {
            let record = record.map_err(|error| wrong(chunk, &error))?;
            let offset = header.base_offset.saturating_add(i64::from(record.offset_delta));
            let is_wanted =
                offset >= chunk.cursor.next && chunk.cursor.end.is_none_or(|end| offset < end);
            if !is_wanted || self.left == 0 {
                continue;
            }
            self.left -= 1;
            let (topic, partition) = (self.options.topic.as_str(), chunk.cursor.partition);
            let one = Located { topic, partition, offset, record };
            self.options.format.print(self.out, &one).map_err(CommandError::Output)?;
        }
        Ok(())
    }
}

fn wrong(chunk: &Chunk, error: &dyn std::fmt::Display) -> CommandError {
    let (partition, next) = (chunk.cursor.partition, chunk.cursor.next);
    let bytes = u64_of(chunk.records.len());
    let place = format!("partition {partition}, in {bytes} bytes fetched from offset {next} on");
    CommandError::Usage(format!("{place}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::record_format;
    use crate::format::batch::Codec;
    use crate::format::record::{BatchBuilder, NewRecord};
    use crate::units::{LeaderEpoch, Offset, Timestamp};

    #[test]
    fn offsets_outside_a_partition_are_refused() {
        assert_eq!(in_range(5, 0, (5, 9)).expect("the first"), 5);
        assert_eq!(in_range(9, 0, (5, 9)).expect("the end"), 9);
        for offset in [4, 10] {
            let error = in_range(offset, 3, (5, 9)).expect_err("outside").to_string();
            assert!(error.contains("partition 3 has 5 to 9"), "{error}");
        }
    }

    #[test]
    fn places_to_begin() {
        let parse = |text: &str| text.parse::<From>();
        assert_eq!(parse("earliest").expect("fine"), From::Earliest);
        assert_eq!(parse("latest").expect("fine"), From::Latest);
        assert_eq!(parse("42").expect("fine"), From::Offset(42));
        assert_eq!(parse("@1357034400000").expect("fine"), From::Time(1_357_034_400_000));
        for bad in ["", "@", "-1", "@-1", "first", "4 2"] {
            parse(bad).expect_err(bad);
        }
    }

    fn chunk(next: i64, end: Option<i64>) -> Chunk {
        let mut records = Vec::new();
        for (base, codec) in [(10, Codec::None), (13, Codec::Zstd)] {
            let mut builder = BatchBuilder::new(codec);
            for value in [&b"a"[..], b"b", b"c"] {
                builder.push(&NewRecord::value(Timestamp(1), value));
            }
            let mut batch = builder.build();
            batch.assign(Offset(base), LeaderEpoch(0));
            records.extend_from_slice(batch.as_bytes());
        }
        Chunk { cursor: Cursor { partition: 0, next, end }, records: records.into() }
    }

    fn print(chunk: &Chunk, count: Option<u64>) -> Result<String, CommandError> {
        let options = ConsumeOptions {
            bootstrap: String::new(),
            topic: "t".to_owned(),
            partition: None,
            from: From::Earliest,
            count,
            follow: false,
            format: RecordFormat::parse("%o%s ").expect("known tokens"),
        };
        let mut out = Vec::new();
        let left = count.unwrap_or(u64::MAX);
        Printer { options: &options, left, out: &mut out }.print(chunk)?;
        Ok(String::from_utf8(out).expect("ASCII"))
    }

    #[test]
    fn records_outside_of_what_is_wanted_are_not_printed() {
        let all = print(&chunk(0, None), None).expect("well-formed");
        assert_eq!(all, "10a 11b 12c 13a 14b 15c ");
        let inner = print(&chunk(12, Some(14)), None).expect("well-formed");
        assert_eq!(inner, "12c 13a ");
        assert_eq!(print(&chunk(11, None), Some(2)).expect("well-formed"), "11b 12c ");
        RecordFormat::parse(record_format::DEFAULT).expect("the default is a format");
    }

    #[test]
    fn a_batch_with_a_wrong_crc_is_named() {
        let good = chunk(0, None);
        let mut bytes = good.records.to_vec();
        bytes[70] ^= 1;
        let bad = Chunk { records: bytes.into(), ..good };
        let error = print(&bad, None).expect_err("the CRC is wrong").to_string();
        assert!(error.contains("CRC-32C"), "{error}");
    }
}
