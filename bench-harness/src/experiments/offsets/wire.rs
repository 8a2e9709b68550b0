//! What a server says of the offsets, and what it leaves of them when it stops.

use std::path::Path;

use uringlog::client::{Client, Committed, FetchFrom, FetchLimits, TopicPartition};
use uringlog::format::checkpoint;
use uringlog::now;

use super::Programme;
use super::consumer::end_of;
use crate::engines::batches;
use crate::engines::server::{self, Server};
use crate::engines::sink::Sink;
use crate::experiments::measure::usize_of;
use crate::experiments::{DoingTo, Failure};
use crate::record::{Recorder, Table, unit};
use crate::run::Context;

const TOPIC: &str = "offsets";
/// The group that the consumer commits for.
const GROUP: &str = "offsets";
/// Where brokers keep recovery points; written at a clean stop, and from time to time.
const CHECKPOINT: &str = "recovery-point-offset-checkpoint";
const DOCUMENT: &str = "what the document says that each offset means";
const FETCH_BYTES: i32 = 1 << 20;

/// What the server said.
struct Answers {
    log_start: i64,
    high_watermark: i64,
    earliest: u64,
    latest: u64,
    committed: i64,
    position: u64,
}

/// Produces all records, consumes some of them, stops the server.
///
/// # Errors
/// Whatever the server refuses.
pub fn run(
    context: &Context,
    programme: &Programme,
    recorder: &mut Recorder,
) -> Result<(), Failure> {
    let server = Server::start(context, "server", &[])?;
    let answers = server::block_on(answers(context, &server, programme))?;
    let checkpoint = server.data.join(CHECKPOINT);
    server.stop()?;
    let recovery_point = recovery_point(&checkpoint)?;
    let Answers { earliest, latest, committed, position, .. } = answers;
    recorder.figure("log_start_offset", answers.log_start, unit::OFFSET);
    recorder.figure("high_watermark", answers.high_watermark, unit::OFFSET);
    recorder.figure("earliest_offset", earliest, unit::OFFSET);
    recorder.figure("latest_offset", latest, unit::OFFSET);
    recorder.figure("committed_offset", committed, unit::OFFSET);
    recorder.figure("position", position, unit::OFFSET);
    recorder.figure("recovery_point_after_stop", recovery_point, unit::OFFSET);
    recorder.expect("latest_offset", (latest, programme.records), DOCUMENT);
    recorder.expect("high_watermark", (answers.high_watermark, programme.records), DOCUMENT);
    recorder.expect("position", (position, programme.consumed), DOCUMENT);
    recorder.expect("committed_offset", (committed, programme.committed()), DOCUMENT);
    let after_stop = (recovery_point, programme.records);
    recorder.expect("recovery_point_after_stop", after_stop, DOCUMENT);
    let mut table = Table::new("What a server says of offsets", &["offset", "asked by", "value"]);
    for (name, by, value) in [
        ("log start", "Fetch", answers.log_start.to_string()),
        ("earliest", "ListOffsets", earliest.to_string()),
        ("high watermark", "Fetch", answers.high_watermark.to_string()),
        ("latest", "ListOffsets", latest.to_string()),
        ("committed", "OffsetFetch", committed.to_string()),
        ("position", "the consumer", position.to_string()),
        ("recovery point", "its file, after a clean stop", recovery_point.to_string()),
    ] {
        table.row(vec![name.to_owned(), by.to_owned(), value]);
    }
    recorder.table(table);
    Ok(())
}

async fn answers(
    context: &Context,
    server: &Server,
    programme: &Programme,
) -> Result<Answers, Failure> {
    let sink = Sink::wire(server, (TOPIC, 1), &[]).await?;
    let value = batches::bytes(usize_of(programme.record_size), context.seed);
    for count in programme.batches(programme.records) {
        context.check()?;
        let values = vec![value.as_slice(); usize_of(count)];
        sink.append(0, batches::uniform(&values, now())).await?;
    }
    let client = server.client().await?;
    let mut position = 0;
    loop {
        context.check()?;
        let offset = i64::try_from(position).expect("records are few");
        let topic = TOPIC.to_owned();
        let from = FetchFrom { topic, partition: 0, offset, bytes_max: FETCH_BYTES };
        let fetched = client.fetch(&from, FetchLimits::default()).await?;
        // All of a batch comes; only so many of its records are taken.
        let end = end_of(&fetched.records)?.unwrap_or(position);
        if end <= position && position < programme.consumed {
            return Err(Failure::Wrong("an acknowledged record can't be read".to_owned()));
        }
        position = position.max(end.min(programme.consumed));
        if position == programme.consumed {
            let committed = committed(&client, programme.committed()).await?;
            return Ok(Answers {
                committed,
                log_start: fetched.log_start,
                high_watermark: fetched.high_watermark,
                earliest: sink.start(0).await?,
                latest: sink.end(0).await?,
                position,
            });
        }
    }
}

/// Commits an offset for a group, and asks what it has committed: a group without members, as the
/// consumer was given its partition.
async fn committed(client: &Client, offset: u64) -> Result<i64, Failure> {
    let at = TopicPartition::new(TOPIC, 0);
    let offset = i64::try_from(offset).expect("records are few");
    let place = [at.clone()];
    let commit = Committed { at, offset, leader_epoch: -1, metadata: String::new() };
    client.commit_offsets(GROUP, &[commit]).await?;
    let found = client.committed_offsets_of(GROUP, &place).await?;
    let nothing = || Failure::Wrong("what was committed is not there".to_owned());
    found.first().map(|it| it.offset).ok_or_else(nothing)
}

/// Of the topic's only partition.
fn recovery_point(path: &Path) -> Result<u64, Failure> {
    let bytes = std::fs::read(path).doing_to("read", path)?;
    let wrong = |what: String| Failure::Wrong(format!("{}: {what}", path.display()));
    let offsets = checkpoint::parse_offsets(&bytes).map_err(|error| wrong(error.to_string()))?;
    let of_topic = offsets.iter().find(|it| it.topic.as_str() == TOPIC);
    let found = of_topic.ok_or_else(|| wrong(format!("it has no entry for {TOPIC}")))?;
    Ok(found.offset.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recovery_point_is_read_from_the_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(CHECKPOINT);
        let of = |text: &str| {
            std::fs::write(&path, text).expect("a file");
            recovery_point(&path)
        };
        assert_eq!(of("0\n2\nother 0 7\noffsets 0 10\n").expect("an entry"), 10);
        let text = of("0\n1\nother 0 7\n").expect_err("no entry").to_string();
        assert!(text.contains("it has no entry for offsets"), "{text}");
        of("1\n0\n").expect_err("another version");
    }
}
