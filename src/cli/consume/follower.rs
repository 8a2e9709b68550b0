//! Reading partitions from their leaders, each leader by a task of its own.
//!
//! A task asks one leader for all of its partitions with one request at a time and hands batches on
//! through a bounded channel. When a leader changes or goes away the task ends and gives its
//! partitions back, to be asked for elsewhere.

use bytes::Bytes;
use tokio::sync::mpsc;

use super::ConsumeOptions;
use crate::client::{
    AbortedTransaction, Client, ClientError, Connection, FetchFrom, FetchLimits, Fetched,
    Isolation, decode_fetched, encode_fetch,
};
use crate::format::batch::{BatchError, BatchHeader};
use crate::units::usize_of;

/// Bytes of one partition in one answer, but for a first batch that is larger.
const PARTITION_BYTES_MAX: i32 = 4 << 20;
/// How long a leader waits for new records before it answers that there are none.
const WAIT_MAX_MS: i32 = 500;

/// What is read, and how.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Source {
    /// What a cursor's `topic` counts in.
    pub topics: Vec<String>,
    pub isolation: Isolation,
}

impl Source {
    pub(super) fn of(options: &ConsumeOptions) -> Source {
        Source { topics: options.topics.clone(), isolation: options.isolation }
    }
}

/// Where reading a partition stands.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Cursor {
    /// Which of the topics that are read.
    pub topic: usize,
    pub partition: i32,
    /// The next offset to be read.
    pub next: i64,
    /// Where reading ends; without one it goes on for ever.
    pub end: Option<i64>,
}

impl Cursor {
    pub(super) fn is_done(&self) -> bool {
        self.end.is_some_and(|end| self.next >= end)
    }
}

/// Batches of one partition.
#[derive(Debug)]
pub(super) struct Chunk {
    /// As it was before.
    pub cursor: Cursor,
    /// First offset behind it.
    pub next: i64,
    /// Transactions among them that were aborted.
    pub aborted: Vec<AbortedTransaction>,
    pub records: Bytes,
}

/// What a task leaves behind: partitions that aren't done, and why they aren't.
pub(super) type Left = (Vec<Cursor>, Option<ClientError>);

/// Reads until all cursors are done, the receiver is gone, or something fails.
pub(super) async fn follow(
    connection: Connection,
    source: Source,
    mut cursors: Vec<Cursor>,
    chunks: mpsc::Sender<Chunk>,
) -> Left {
    while !cursors.is_empty() {
        let fetched = match fetch(&connection, &source, &cursors).await {
            Ok(fetched) => fetched,
            Err(error) => return (cursors, Some(error)),
        };
        for one in fetched {
            let is_of = |cursor: &Cursor| {
                cursor.partition == one.partition && source.topics[cursor.topic] == *one.topic
            };
            let own = cursors.iter_mut().find(|cursor| is_of(cursor));
            let Some(cursor) = own else { continue };
            match advance(cursor, one) {
                Ok(Some(chunk)) => {
                    if chunks.send(chunk).await.is_err() {
                        return (cursors, None);
                    }
                }
                Ok(None) => {}
                Err(error) => return (cursors, Some(error)),
            }
        }
        cursors.retain(|cursor| !cursor.is_done());
    }
    (cursors, None)
}

async fn fetch(
    connection: &Connection,
    source: &Source,
    cursors: &[Cursor],
) -> Result<Vec<Fetched>, ClientError> {
    let from: Vec<_> = cursors
        .iter()
        .map(|cursor| FetchFrom {
            topic: source.topics[cursor.topic].clone(),
            partition: cursor.partition,
            offset: cursor.next,
            bytes_max: PARTITION_BYTES_MAX,
        })
        .collect();
    let isolation = source.isolation;
    let limits = FetchLimits { wait_max_ms: WAIT_MAX_MS, isolation, ..FetchLimits::default() };
    let request = encode_fetch(connection, &from, limits)?;
    let version = request.header.version;
    let body = connection.send(request).await?.body().await?;
    decode_fetched(connection, version, body)
}

/// Moves the cursor behind what came.
fn advance(cursor: &mut Cursor, fetched: Fetched) -> Result<Option<Chunk>, ClientError> {
    fetched.check()?;
    let before = *cursor;
    for batch in Batches::new(&fetched.records) {
        let (header, _) = batch.map_err(|error| {
            let (partition, at) = (cursor.partition, cursor.next);
            ClientError::Argument(format!("partition {partition} behind offset {at}: {error}"))
        })?;
        let last = header.base_offset.saturating_add(i64::from(header.last_offset_delta));
        cursor.next = cursor.next.max(last.saturating_add(1));
    }
    let has_more = cursor.next > before.next;
    let Fetched { records, aborted, .. } = fetched;
    Ok(has_more.then_some(Chunk { cursor: before, next: cursor.next, aborted, records }))
}

/// The whole batches of an answer; one that is cut at its end is left for the next answer.
#[derive(Clone, Copy, Debug)]
pub(in crate::cli) struct Batches<'a> {
    rest: &'a [u8],
}

impl<'a> Batches<'a> {
    pub(in crate::cli) fn new(records: &'a [u8]) -> Batches<'a> {
        Batches { rest: records }
    }
}

impl<'a> Iterator for Batches<'a> {
    type Item = Result<(BatchHeader, &'a [u8]), BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        let header = match BatchHeader::decode(self.rest) {
            Ok(header) => header,
            Err(BatchError::Truncated { .. }) => return None,
            Err(error) => {
                self.rest = &[];
                return Some(Err(error));
            }
        };
        let (batch, rest) = self.rest.split_at_checked(usize_of(header.size.0))?;
        self.rest = rest;
        Some(Ok((header, batch)))
    }
}

/// The leaders of these partitions, with those that each leads.
pub(super) async fn by_leader(
    client: &Client,
    topics: &[String],
    cursors: &[Cursor],
) -> Result<Vec<(Connection, Vec<Cursor>)>, ClientError> {
    let mut groups: Vec<(Connection, Vec<Cursor>)> = Vec::new();
    for cursor in cursors {
        let connection = client.leader(&topics[cursor.topic], cursor.partition).await?;
        let own = groups.iter_mut().find(|(other, _)| other.address() == connection.address());
        match own {
            Some((_, list)) => list.push(*cursor),
            None => groups.push((connection, vec![*cursor])),
        }
    }
    Ok(groups)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::batch::Codec;
    use crate::format::record::{BatchBuilder, NewRecord};
    use crate::units::{LeaderEpoch, Offset, Timestamp};
    use crate::wire::StrBytes;

    fn batch(base: u64, records: usize) -> Vec<u8> {
        let mut builder = BatchBuilder::new(Codec::None);
        for _ in 0..records {
            builder.push(&NewRecord::value(Timestamp(1), b"value"));
        }
        let mut batch = builder.build();
        batch.assign(Offset(base), LeaderEpoch(0));
        batch.as_bytes().to_vec()
    }

    fn fetched(records: Vec<u8>) -> Fetched {
        Fetched {
            topic: StrBytes::from_static_str("t"),
            partition: 0,
            error_code: 0,
            high_watermark: 9,
            last_stable: 9,
            log_start: 0,
            aborted: Vec::new(),
            records: Bytes::from(records),
        }
    }

    #[test]
    fn a_cut_batch_waits_for_the_next_answer() {
        let whole = [batch(3, 2), batch(5, 4)].concat();
        let mut cursor = Cursor { topic: 0, partition: 0, next: 4, end: Some(9) };
        let cut = whole[..whole.len() - 1].to_vec();
        let chunk = advance(&mut cursor, fetched(cut)).expect("well-formed").expect("a batch");
        assert_eq!((chunk.cursor.next, cursor.next), (4, 5));
        assert!(!cursor.is_done());
        advance(&mut cursor, fetched(whole)).expect("well-formed").expect("the rest");
        assert_eq!(cursor.next, 9);
        assert!(cursor.is_done());
        assert!(advance(&mut cursor, fetched(Vec::new())).expect("nothing").is_none());
    }

    #[test]
    fn bytes_that_are_no_batch_are_an_error() {
        let mut wrong = batch(0, 1);
        wrong[16] = 1;
        let mut cursor = Cursor { topic: 0, partition: 0, next: 0, end: None };
        let error = advance(&mut cursor, fetched(wrong)).expect_err("magic 1");
        assert!(error.to_string().contains("magic 1"), "{error}");
    }
}
