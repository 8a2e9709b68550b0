//! Each setting of a log swept, by the library: what becomes of segments, indexes and old records.
//!
//! Records that are an hour apart, by their timestamps, stand in for days of real time.

use std::time::{Duration, Instant};

use serde_json::Value;
use uringlog::shard::JournalMode;
use uringlog::{Engine, LogConfig, Partition, Timestamp, now};

use super::each;
use crate::engines::files::{self, Segment};
use crate::engines::{batches, library};
use crate::experiments::Failure;
use crate::experiments::measure::u64_of;
use crate::record::picture::names;
use crate::record::{Better, Picture};
use crate::record::{Kind, Recorder, Table, Unit, unit};
use crate::run::Context;

const HOUR_MS: i64 = 3_600_000;
/// Records that are an hour apart: two weeks.
const HOURLY: i64 = 336;
/// Bytes appended where sizes are swept.
const VOLUME: u64 = 16 << 20;
/// Values of these batches, one in each.
const VALUE_BYTES: usize = 16_000;
/// Where retention is swept, a segment spans a day.
const DAY_HOURS: u64 = 24;
const RULE: &str = "the rule";
const HOURS: Unit = Unit { name: "hours", better: Better::None };

/// Every sweep, and the table of what came of it.
///
/// # Errors
/// Whatever the log refuses.
pub fn run(context: &Context, recorder: &mut Recorder) -> Result<(), Failure> {
    let mut table = Table::new(
        "What each setting does",
        &["setting", "value", "segments", "bytes of closed indexes", "readable from offset"],
    );
    by_size(context, recorder, &mut table)?;
    by_hours(context, recorder, &mut table)?;
    by_index(context, recorder, &mut table)?;
    by_retention(context, recorder, &mut table)?;
    recorder.table(table);
    recorder.note(
        "Sweeps over hours are of records whose timestamps are an hour apart, 336 of them; \
         nothing waits for real hours. A segment.ms of n hours closes segments of n + 1 such \
         records, since a segment rolls when it is older than that, not when it is as old.",
    );
    Ok(())
}

fn row(table: &mut Table, setting: &str, value: u64, found: &Found) {
    let cells = [value, u64_of(found.segments.len()), found.closed_index_bytes(), found.log_start];
    let cells = cells.iter().map(u64::to_string);
    table.row([setting.to_owned()].into_iter().chain(cells).collect());
}

/// What lies on disk, and from where it can be read.
struct Found {
    segments: Vec<Segment>,
    log_start: u64,
}

impl Found {
    fn of(partition: &Partition) -> Result<Found, Failure> {
        let segments = files::segments(partition.directory())?;
        Ok(Found { segments, log_start: partition.cursors().log_start.0 })
    }

    fn closed_index_bytes(&self) -> u64 {
        let closed = self.segments.split_last().map_or(&[][..], |it| it.1);
        closed.iter().filter_map(|it| it.index).map(|it| it.bytes).sum()
    }
}

/// A new log with these settings, filled and looked at.
fn filled(
    context: &Context,
    name: &str,
    change: impl FnOnce(&mut LogConfig),
    fill: impl AsyncFnOnce(&Partition) -> Result<(), Failure>,
) -> Result<Found, Failure> {
    let mut options = library::options(context)?;
    options.directory = context.folder.join(name);
    options.first_retention_ms = RETENTION_MS;
    options.retention_check_ms = RETENTION_MS;
    // Nothing here is synced, so nothing would be written to it.
    options.journals.mode = JournalMode::Never;
    let spec = library::spec(context, ("settings", 0), |config| {
        config.retention_ms = None;
        config.flush_messages = u64::MAX;
        change(config);
    });
    library::with_engine(context, options, async |engine: &Engine| {
        let partition = engine.open_or_create(spec).await?;
        fill(&partition).await?;
        Found::of(&partition)
    })
}

/// How often retention looks, where it is to be seen.
const RETENTION_MS: u64 = 50;

async fn volume(context: &Context, partition: &Partition, bytes: u64) -> Result<(), Failure> {
    let value = batches::bytes(VALUE_BYTES, context.seed);
    let batch = batches::uniform(&[&value], now());
    let mut appended = 0;
    while appended < bytes {
        context.check()?;
        let due = partition.append(batches::copy(&batch))?.due;
        partition.reached(due).await?;
        appended += u64_of(batch.as_bytes().len());
    }
    Ok(())
}

/// An hour apart, the last one half an hour ago: no age is a whole number of hours.
async fn hourly(partition: &Partition) -> Result<(), Failure> {
    let last = now().0 - HOUR_MS / 2;
    for hour in 0..HOURLY {
        let at = Timestamp(last - (HOURLY - 1 - hour) * HOUR_MS);
        let due = partition.append(batches::uniform(&[b"an hour"], at))?.due;
        partition.reached(due).await?;
    }
    Ok(())
}

fn by_size(context: &Context, recorder: &mut Recorder, table: &mut Table) -> Result<(), Failure> {
    each(context, recorder, "segment_bytes", |bytes, recorder| {
        let found = filled(
            context,
            &format!("segment-bytes-{bytes}"),
            |config| config.segment_bytes.0 = bytes,
            async |partition| volume(context, partition, VOLUME).await,
        )?;
        let batch = batches::length(1, u64_of(VALUE_BYTES));
        let expected = VOLUME.div_ceil(batch).div_ceil(bytes / batch);
        recorder.expect("segments", (u64_of(found.segments.len()), expected), RULE);
        recorder.figure("segments", u64_of(found.segments.len()), unit::COUNT);
        row(table, "segment.bytes", bytes, &found);
        Ok(())
    })
}

fn by_hours(context: &Context, recorder: &mut Recorder, table: &mut Table) -> Result<(), Failure> {
    each(context, recorder, "segment_hours", |hours, recorder| {
        let found = filled(
            context,
            &format!("segment-hours-{hours}"),
            |config| config.segment_ms = hours * HOUR_MS.unsigned_abs(),
            async |partition| hourly(partition).await,
        )?;
        let expected = HOURLY.unsigned_abs().div_ceil(hours + 1);
        recorder.expect("segments", (u64_of(found.segments.len()), expected), RULE);
        recorder.figure("segments", u64_of(found.segments.len()), unit::COUNT);
        row(table, "segment.ms, in hours", hours, &found);
        Ok(())
    })
}

fn by_index(context: &Context, recorder: &mut Recorder, table: &mut Table) -> Result<(), Failure> {
    let batch = batches::length(1, u64_of(VALUE_BYTES));
    // Two segments, of which the first one's index is looked at.
    let (segment, volume_bytes) = (4 << 20, (4 << 20) + 2 * batch);
    each(context, recorder, "index_interval_bytes", |interval, recorder| {
        let found = filled(
            context,
            &format!("interval-{interval}"),
            |config| {
                config.segment_bytes.0 = segment;
                config.index_interval_bytes.0 = interval;
            },
            async |partition| volume(context, partition, volume_bytes).await,
        )?;
        // An entry when more than the interval was appended since the last one, never for the
        // first batch.
        let entries = (segment / batch - 1) / (interval / batch + 1);
        recorder.expect("closed_index_bytes", (found.closed_index_bytes(), 8 * entries), RULE);
        recorder.figure("closed_index_bytes", found.closed_index_bytes(), unit::BYTES);
        row(table, "index.interval.bytes", interval, &found);
        Ok(())
    })?;
    each(context, recorder, "index_bytes", |bytes, recorder| {
        let found = filled(
            context,
            &format!("index-{bytes}"),
            |config| {
                config.index_interval_bytes.0 = 0;
                config.segment_index_bytes.0 = bytes;
            },
            async |partition| volume(context, partition, VOLUME).await,
        )?;
        // No batch finds room for an entry in a full index, and the first needs none.
        let fit = bytes / 8 + 1;
        let expected = VOLUME.div_ceil(batch).div_ceil(fit);
        recorder.expect("segments", (u64_of(found.segments.len()), expected), RULE);
        recorder.figure("segments", u64_of(found.segments.len()), unit::COUNT);
        row(table, "segment.index.bytes", bytes, &found);
        Ok(())
    })
}

/// On one log: shorter and shorter, whatever order they are given in.
fn by_retention(
    context: &Context,
    recorder: &mut Recorder,
    table: &mut Table,
) -> Result<(), Failure> {
    let asked = context.parameters.numbers("retention_hours");
    let mut points = asked.clone();
    points.sort_unstable_by(|one, other| other.cmp(one));
    let swept = filled(
        context,
        "retention",
        |config| config.segment_ms = DAY_HOURS * HOUR_MS.unsigned_abs(),
        async |partition| {
            hourly(partition).await?;
            for hours in points {
                recorder.vary("retention_hours", hours);
                let mut config = partition.config();
                config.retention_ms = Some(hours * HOUR_MS.unsigned_abs());
                partition.reconfigure(config);
                let expected = first_kept(hours);
                await_passes(context, partition, expected).await?;
                let found = Found::of(partition)?;
                recorder.expect("log_start_offset", (found.log_start, expected), RULE);
                recorder.figure("log_start_offset", found.log_start, unit::OFFSET);
                let oldest = HOURLY.unsigned_abs() - found.log_start;
                recorder.figure("oldest_record_age", oldest, HOURS);
                row(table, "retention.ms, in hours", hours, &found);
            }
            Ok(())
        },
    );
    recorder.vary("retention_hours", Value::from(asked));
    swept.map(drop)
}

/// A segment goes when its newest record is older than that. The active one is never asked: all of
/// it would have to be older.
fn first_kept(hours: u64) -> u64 {
    let (count, span) = (HOURLY.unsigned_abs(), DAY_HOURS + 1);
    // Record n is count - 1 - n hours and a half old.
    let is_gone = |segment: &u64| hours <= count - segment * span;
    (1..=count / span).filter(is_gone).map(|it| it * span).max().unwrap_or_default()
}

/// Until retention has moved the log's start as far as it is to and the files have followed, and
/// one pass more, which must not move it further.
async fn await_passes(
    context: &Context,
    partition: &Partition,
    expected: u64,
) -> Result<(), Failure> {
    const MOST: Duration = Duration::from_secs(10);
    let pass = Duration::from_millis(2 * RETENTION_MS);
    let until = Instant::now() + MOST;
    while Instant::now() < until {
        context.check()?;
        let segments = files::segments(partition.directory())?;
        let is_gone = segments.first().is_some_and(|it| expected <= it.base);
        if expected <= partition.cursors().log_start.0 && is_gone {
            break;
        }
        tokio::time::sleep(pass / 4).await;
    }
    tokio::time::sleep(pass).await;
    Ok(())
}

/// What the sweeps look like.
pub fn pictures(recorder: &mut Recorder) {
    let figures = || names(&["segments"]);
    for (parameter, setting) in
        [("segment_bytes", "segment.bytes"), ("segment_hours", "segment.ms, in hours")]
    {
        recorder.picture(Picture::new(
            &format!("segments-by-{}", parameter.replace('_', "-")),
            &format!("Segments against {setting}"),
            "A line with slope -1: twice the setting, half the segments, which is half the \
                 files and half as fine a retention. Engines lie on each other.",
            Kind::Scaling { figures: figures(), against: parameter.to_owned() },
        ));
    }
    recorder.picture(Picture::new(
        "lifetime-by-retention",
        "Age of the oldest record against retention.ms",
        "The oldest record outlives retention.ms by up to the span of a segment, a day here: \
             the line lies above the diagonal.",
        Kind::Scaling {
            figures: names(&["oldest_record_age"]),
            against: "retention_hours".to_owned(),
        },
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 336 records, 25 in a segment, the newest half an hour old.
    #[test]
    fn whole_segments_go_when_their_newest_record_is_old_enough() {
        // The newest record of segment 12 is number 324, 11.5 hours old; of segment 11, 36.5.
        assert_eq!([first_kept(11), first_kept(12), first_kept(36)], [325, 300, 300]);
        assert_eq!([first_kept(37), first_kept(335)], [275, 0]);
    }
}
