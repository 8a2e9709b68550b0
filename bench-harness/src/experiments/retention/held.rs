//! One record from the future holds its segment, and with it every later one.

use std::time::{Duration, Instant};

use uringlog::{ByteCount, Engine, Timestamp, now};

use super::{MS, pause};
use crate::engines::{batches, library};
use crate::experiments::Failure;
use crate::record::{Recorder, Table, unit};
use crate::run::Context;

const TOPIC: &str = "held";
const RULE: &str = "the rule";
const RECORDS: u64 = 8;
/// Each segment has room for so many of them, one in a batch.
const RECORDS_OF_A_SEGMENT: u64 = 2;
/// All records but the one from the future are so old.
const OLD_MS: i64 = 3_600_000;
/// The record is to be held for longer than that.
const WAIT_MS_MIN: u64 = 1_100;
/// Nothing waits longer than what is asked for and this.
const GRACE: Duration = Duration::from_secs(60);

/// What became of the log.
pub struct Held {
    /// Where it started before the last of it went: while the record held it.
    held_from: u64,
    end: u64,
    /// Where it starts since then.
    released_to: u64,
    /// From the record's time until it could no longer be read.
    released_after_ms: i64,
}

/// A log of four segments, of two records each.
///
/// # Errors
/// Whatever the log refuses, and a segment that doesn't go in the end.
pub async fn run(context: &Context, engine: &Engine) -> Result<Held, Failure> {
    let parameters = &context.parameters;
    let wait_ms = parameters.number("future_ms") + parameters.number("lifetime_retention_ms");
    if wait_ms < WAIT_MS_MIN {
        return Err(Failure::Usage(format!(
            "future_ms and lifetime_retention_ms are {wait_ms} ms together, too little to see what \
             is held meanwhile: raise them to {WAIT_MS_MIN} ms"
        )));
    }
    let value = b"an old record";
    let length = batches::length(1, u64::try_from(value.len()).expect("it is short"));
    let spec = library::spec(context, (TOPIC, 0), |config| {
        config.segment_bytes = ByteCount(length * RECORDS_OF_A_SEGMENT);
        config.retention_ms = None;
        config.file_delete_delay_ms = parameters.number("file_delete_delay_ms");
    });
    let partition = engine.open_or_create(spec).await?;
    let future_ms = i64::try_from(parameters.number("future_ms")).expect("at most an hour");
    let started = now();
    let future = Timestamp(started.0 + future_ms);
    for number in 0..RECORDS {
        let is_it = number == parameters.number("future_record");
        let at = if is_it { future } else { Timestamp(started.0 - OLD_MS) };
        let due = partition.append(batches::uniform(&[value], at))?.due;
        partition.reached(due).await?;
    }
    let mut config = partition.config();
    config.retention_ms = Some(parameters.number("lifetime_retention_ms"));
    partition.reconfigure(config);
    let until = Instant::now() + Duration::from_millis(wait_ms) + GRACE;
    let end = partition.cursors().log_end.0;
    let (mut held_from, mut released_to) = (0, 0);
    while released_to < end && Instant::now() < until {
        context.check()?;
        let log_start = partition.cursors().log_start.0;
        if released_to < log_start {
            (held_from, released_to) = (released_to, log_start);
        }
        pause().await;
    }
    Ok(Held { held_from, end, released_to, released_after_ms: now().0 - future.0 })
}

impl Held {
    /// Figures, checks and the table.
    pub fn record(&self, context: &Context, recorder: &mut Recorder) {
        let parameters = &context.parameters;
        let record = parameters.number("future_record");
        recorder.figure("held_from_offset", self.held_from, unit::OFFSET);
        recorder.figure("held_records", self.end - self.held_from, unit::COUNT);
        recorder.figure("earliest_after_release", self.released_to, unit::OFFSET);
        recorder.figure("released_after", self.released_after_ms, MS);
        let segment = record / RECORDS_OF_A_SEGMENT * RECORDS_OF_A_SEGMENT;
        recorder.expect("held_from_offset", (self.held_from, segment), RULE);
        recorder.expect("earliest_after_release", (self.released_to, RECORDS), RULE);
        let wait_ms = parameters.number("lifetime_retention_ms");
        let is_late = u64::try_from(self.released_after_ms).is_ok_and(|it| wait_ms < it);
        recorder.expect("the_record_lives_for_retention_ms", (is_late, true), RULE);
        let columns = ["record from the future", "log starts at", "records held", "released after"];
        let mut table = Table::new("Eight old records, one of them from the future", &columns);
        table.row(vec![
            format!("offset {record}, {} ms ahead", parameters.number("future_ms")),
            self.held_from.to_string(),
            (self.end - self.held_from).to_string(),
            format!("{} ms behind its time", self.released_after_ms),
        ]);
        recorder.table(table);
    }
}
