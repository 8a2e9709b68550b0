//! `uringlog consume`: prints records.

mod aborted;

mod follower;

mod group;

mod place;

mod print;

mod reading;

use std::collections::BTreeMap;
use std::io::Write;

pub(super) use self::follower::Batches;
use self::follower::{Cursor, Source};
use self::place::in_range;
pub use self::place::{From, Until};
use self::print::Printer;
pub use self::print::Style;
use self::reading::Reading;
use super::args::clients::With;
use super::command::{CommandError, Interrupt};
use super::record_format::RecordFormat;
use super::{time, topic};
use crate::client::member::Protocol;
use crate::client::{Asker, Client, ClientOptions, Isolation, TopicPartition, timestamp};

/// What to consume, and how.
#[derive(Clone, Debug)]
pub struct ConsumeOptions {
    /// Brokers to begin with, `host:port` separated by commas.
    pub bootstrap: String,
    /// The topics, each once.
    pub topics: Vec<String>,
    /// One partition; all of them without one.
    pub partition: Option<i32>,
    /// Where to begin in each partition.
    pub from: From,
    /// Where to stop.
    pub until: Option<Until>,
    /// How many records to print, all partitions together.
    pub count: Option<u64>,
    /// Whether to go on at the end and wait for more.
    pub follow: bool,
    /// Which records of transactions to print.
    pub isolation: Isolation,
    /// How to print a record.
    pub style: Style,
    /// The group to be a member of.
    pub group: Option<GroupOptions>,
}

impl ConsumeOptions {
    /// Where the partition's topic stands among the topics; nowhere, when it isn't read.
    fn place(&self, at: &TopicPartition) -> Option<usize> {
        self.topics.iter().position(|topic| *topic == at.topic)
    }
}

/// How to be a member of a group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupOptions {
    /// The group.
    pub id: String,
    /// How members and coordinator speak, and who shares out partitions how.
    pub protocol: Protocol,
    /// A name of its own in the group.
    pub instance: Option<String>,
    /// Whether to show how far the group is, on standard error.
    pub shows_lag: bool,
}

/// Runs the command: prints to `out` until the ends that the partitions had when it began (unless
/// told to follow), until the count is reached, or until SIGINT.
///
/// # Errors
/// [`CommandError`].
pub async fn run(options: &ConsumeOptions, out: &mut impl Write) -> Result<(), CommandError> {
    let mut interrupt = Interrupt::install()?;
    let client = Client::connect(&options.bootstrap, ClientOptions::default()).await?;
    let before = match options.until {
        Some(Until::Time(when)) => Some(when.ms(time::now_ms())),
        Some(Until::Offset(_)) | None => None,
    };
    let left = options.count.unwrap_or(u64::MAX);
    let (topics, style) = (options.topics.as_slice(), &options.style);
    let mut printer = Printer { topics, style, left, before, out };
    if let Some(group) = &options.group {
        let own = group::Own { client, options, group };
        return group::run(own, &mut printer, interrupt).await;
    }
    let cursors = tokio::select! {
        cursors = start(&client, options) => cursors?,
        () = interrupt.wait() => return Ok(()),
    };
    let mut reading = Reading::start(client, Source::of(options), cursors);
    let consumed = tokio::select! {
        result = consume(&mut reading, &mut printer) => result,
        () = interrupt.wait() => Ok(()),
    };
    printer.flush()?;
    consumed
}

async fn consume<W: Write>(
    reading: &mut Reading,
    printer: &mut Printer<'_, W>,
) -> Result<(), CommandError> {
    while printer.left > 0 {
        if reading.is_idle() {
            printer.flush()?;
        }
        let Some(chunk) = reading.next().await? else { break };
        printer.print(&chunk)?;
    }
    Ok(())
}

async fn start(client: &Client, options: &ConsumeOptions) -> Result<Vec<Cursor>, CommandError> {
    let mut cursors = Vec::new();
    for topic in &options.topics {
        let found = topic::find(client, topic).await?;
        for at in topic::partitions_of(&found, options.partition)? {
            cursors.extend(start_one(client, options, &at).await?);
        }
    }
    Ok(cursors)
}

async fn start_one(
    client: &Client,
    options: &ConsumeOptions,
    at: &TopicPartition,
) -> Result<Option<Cursor>, CommandError> {
    let Some(topic) = options.place(at) else { return Ok(None) };
    let partition = at.partition;
    let find = async |target| {
        let found = client.list_offsets(&at.topic, partition, target).await;
        found.map(|found| found.offset)
    };
    let latest = latest(client, options, std::slice::from_ref(at)).await?[at];
    let next = match options.from {
        From::Earliest => find(timestamp::EARLIEST).await?,
        From::Latest => latest,
        From::Offset(offset) => {
            in_range(offset, partition, (find(timestamp::EARLIEST).await?, latest))?
        }
        From::Time(when) => match find(when.ms(time::now_ms())).await? {
            // No record is that young.
            -1 => latest,
            offset => offset,
        },
    };
    Ok(Some(Cursor { topic, partition, next, end: end(options, latest) }))
}

/// The ends of partitions for one who reads in this way: high watermarks, or last stable offsets.
async fn latest(
    client: &Client,
    options: &ConsumeOptions,
    wanted: &[TopicPartition],
) -> Result<BTreeMap<TopicPartition, i64>, CommandError> {
    let asker = match options.isolation {
        Isolation::ReadUncommitted => Asker::Consumer,
        Isolation::ReadCommitted => Asker::Committed,
    };
    let found = client.lookup_offsets(wanted, timestamp::LATEST, asker).await?;
    let ends = found.into_iter().map(|(at, found)| Ok((at, found?.offset)));
    ends.collect()
}

/// Where a partition is done that ends at `latest` now.
fn end(options: &ConsumeOptions, latest: i64) -> Option<i64> {
    match (options.until, options.follow) {
        (Some(Until::Offset(offset)), true) => Some(offset),
        (Some(Until::Offset(offset)), false) => Some(offset.min(latest)),
        (_, true) => None,
        (_, false) => Some(latest),
    }
}

/// The format that puts these before the value.
///
/// # Panics
/// Never: its tokens are known.
pub fn format_with(with: &[With]) -> RecordFormat {
    let has = |one: With| with.contains(&one) || (with.contains(&With::All) && one != With::Topic);
    let tokens = [
        (With::Timestamp, "%U\\t"),
        (With::Topic, "%t\\t"),
        (With::Partition, "%p\\t"),
        (With::Offset, "%o\\t"),
        (With::Key, "%k\\t"),
        (With::Headers, "%h\\t"),
    ];
    let wanted = tokens.iter().filter(|(one, _)| has(*one)).map(|(_, token)| *token);
    let text: String = wanted.chain(["%s\\n"]).collect();
    RecordFormat::parse(&text).expect("the tokens above are known")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(until: Option<Until>, follow: bool) -> ConsumeOptions {
        ConsumeOptions {
            bootstrap: String::new(),
            topics: vec!["t".to_owned()],
            partition: None,
            from: From::Earliest,
            until,
            count: None,
            follow,
            isolation: Isolation::default(),
            style: Style::Json,
            group: None,
        }
    }

    #[test]
    fn a_partition_ends_where_it_ended_or_where_it_is_told() {
        assert_eq!(end(&options(None, false), 9), Some(9));
        assert_eq!(end(&options(None, true), 9), None);
        assert_eq!(end(&options(Some(Until::Offset(5)), false), 9), Some(5));
        assert_eq!(end(&options(Some(Until::Offset(15)), false), 9), Some(9));
        assert_eq!(end(&options(Some(Until::Offset(15)), true), 9), Some(15));
    }

    #[test]
    fn fields_stand_before_the_value_in_one_order() {
        let expected = |text: &str| RecordFormat::parse(text).expect("known tokens");
        assert_eq!(format_with(&[]), expected("%s\\n"));
        let some = format_with(&[With::Key, With::Timestamp]);
        assert_eq!(some, expected("%U\\t%k\\t%s\\n"));
        assert_eq!(format_with(&[With::All]), expected("%U\\t%p\\t%o\\t%k\\t%h\\t%s\\n"));
    }
}
