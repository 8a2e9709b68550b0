//! How long a record really lives: a segment goes as a whole, when its newest record is old enough,
//! so that its oldest one lives longer by what the segment spans.
//!
//! Each log takes a record every so often; `segment.ms` decides how much time a segment spans.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::Value;
use uringlog::{Engine, Offset, Partition, now};

use super::{MS, pause};
use crate::engines::{batches, files, library};
use crate::experiments::Failure;
use crate::experiments::measure::{f64_of, u64_of, usize_of};
use crate::record::picture::names;
use crate::record::{Kind, Picture, Recorder, Table, unit};
use crate::run::Context;

const TOPIC: &str = "lifetimes";
const RULE: &str = "the rule";
/// A log is watched until so many segments are gone.
const SEGMENTS: usize = 2;
/// Nothing waits longer than what is asked for and this.
const GRACE: Duration = Duration::from_secs(60);
/// Points of a series for each span.
const SAMPLES: u64 = 200;

/// A log that takes records steadily, and what became of them.
pub struct Stream {
    span_ms: u64,
    partition: Partition,
    /// Their times, by offset.
    appended: Vec<i64>,
    /// Base offsets of all segments so far.
    bases: BTreeSet<u64>,
    log_start: u64,
    gone: Vec<Gone>,
    next_at: Instant,
    ages: Vec<Age>,
}

/// How old the oldest record was at a time.
struct Age {
    at: Instant,
    ms: u64,
    /// Whether a segment has just gone, or is about to.
    is_end: bool,
}

/// A segment that went: times in ms.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Gone {
    /// Age of its oldest record then.
    oldest: u64,
    /// Age of its newest.
    newest: u64,
}

impl Gone {
    fn span(self) -> u64 {
        self.oldest - self.newest
    }
}

/// Ages of the records that went, segment by segment: bounds are base offsets, the last one is
/// where the log starts now.
fn gone(appended: &[i64], bounds: &[u64], now: i64) -> Vec<Gone> {
    let age = |offset: u64| (now - appended[usize_of(offset)]).max(0).unsigned_abs();
    let segments = bounds.windows(2).filter(|it| it[0] < it[1]);
    segments.map(|it| Gone { oldest: age(it[0]), newest: age(it[1] - 1) }).collect()
}

/// All spans at once, until of each log some segments are gone.
///
/// # Errors
/// Whatever a log refuses, and segments that don't go.
pub async fn run(context: &Context, engine: &Engine) -> Result<Vec<Stream>, Failure> {
    let parameters = &context.parameters;
    let retention_ms = parameters.number("lifetime_retention_ms");
    let spans = parameters.numbers("span_ms");
    let mut streams = Vec::new();
    for (number, span_ms) in (0u32..).zip(&spans) {
        let spec = library::spec(context, (TOPIC, number), |config| {
            config.segment_ms = *span_ms;
            config.retention_ms = Some(retention_ms);
            config.file_delete_delay_ms = parameters.number("file_delete_delay_ms");
        });
        let partition = engine.open_or_create(spec).await?;
        streams.push(Stream::new(*span_ms, partition));
    }
    let longest = spans.iter().max().copied().unwrap_or_default();
    let most = retention_ms + (u64_of(SEGMENTS) + 1) * longest;
    let until = Instant::now() + Duration::from_millis(most) + GRACE;
    let progress = context.progress(u64_of(SEGMENTS * streams.len()), "lifetimes of records");
    let records = u32::try_from(parameters.number("span_records")).expect("at most 1,000");
    while streams.iter().any(|it| it.gone.len() < SEGMENTS) {
        context.check()?;
        for stream in streams.iter_mut().filter(|it| it.gone.len() < SEGMENTS) {
            let before = stream.gone.len();
            stream.turn(records).await?;
            progress.advance(u64_of(stream.gone.len() - before));
        }
        if until < Instant::now() {
            let text = "segments outlive retention.ms by a minute".to_owned();
            return Err(Failure::Wrong(text));
        }
        pause().await;
    }
    Ok(streams)
}

impl Stream {
    fn new(span_ms: u64, partition: Partition) -> Stream {
        Stream {
            span_ms,
            partition,
            appended: Vec::new(),
            bases: BTreeSet::new(),
            log_start: 0,
            gone: Vec::new(),
            next_at: Instant::now(),
            ages: Vec::new(),
        }
    }

    async fn turn(&mut self, records: u32) -> Result<(), Failure> {
        if self.next_at <= Instant::now() {
            let at = now();
            let due = self.partition.append(batches::uniform(&[b"a record"], at))?.due;
            self.partition.reached(due).await?;
            self.appended.push(at.0);
            let segments = files::segments(self.partition.directory())?;
            self.bases.extend(segments.iter().map(|it| it.base));
            self.next_at += Duration::from_millis(self.span_ms) / records;
        }
        let (at, Offset(log_start)) = (now(), self.partition.cursors().log_start);
        let has_moved = self.log_start < log_start;
        self.sample(at.0, has_moved);
        if has_moved {
            let bounds: Vec<u64> = self.bases.range(self.log_start..log_start).copied().collect();
            let bounds = [bounds, vec![log_start]].concat();
            self.gone.extend(gone(&self.appended, &bounds, at.0));
            self.log_start = log_start;
            self.sample(at.0, true);
        }
        Ok(())
    }

    fn sample(&mut self, now: i64, is_end: bool) {
        let oldest = self.appended.get(usize_of(self.log_start));
        let ms = oldest.map_or(0, |it| (now - it).max(0).unsigned_abs());
        self.ages.push(Age { at: Instant::now(), ms, is_end });
    }
}

/// Figures, the table and the series.
pub fn record(context: &Context, streams: &[Stream], recorder: &mut Recorder) {
    let retention_ms = context.parameters.number("lifetime_retention_ms");
    let columns =
        ["span of a segment, ms", "segments gone", "newest lived, ms", "oldest lived, ms"];
    let title = format!("Lifetimes of records, retention.ms {retention_ms}");
    let mut table = Table::new(&title, &columns);
    for stream in streams {
        recorder.vary("span_ms", stream.span_ms);
        let of = |value: fn(Gone) -> u64| stream.gone.iter().map(move |it| value(*it));
        let span = of(Gone::span).max().unwrap_or_default();
        let newest = of(|it| it.newest).min().unwrap_or_default();
        let oldest = of(|it| it.oldest).max().unwrap_or_default();
        recorder.figure("segments_that_went", u64_of(stream.gone.len()), unit::COUNT.told());
        recorder.figure("segment_span", span, MS);
        recorder.figure("newest_record_lifetime", newest, MS);
        recorder.figure("oldest_record_lifetime", oldest, MS);
        let early = stream.gone.iter().filter(|it| it.newest <= retention_ms).count();
        recorder.expect("segments_gone_before_their_time", (u64_of(early), 0), RULE);
        let cells = [span, u64_of(stream.gone.len()), newest, oldest];
        table.row(cells.iter().map(u64::to_string).collect());
        series(stream, recorder);
    }
    recorder.vary("span_ms", Value::from(context.parameters.numbers("span_ms")));
    recorder.table(table);
    pictures(context, recorder);
}

fn series(stream: &Stream, recorder: &mut Recorder) {
    let every = usize_of(u64_of(stream.ages.len()).div_ceil(SAMPLES).max(1));
    let mut former = 0;
    for (number, age) in stream.ages.iter().enumerate() {
        let at = recorder.elapsed().saturating_sub(age.at.elapsed());
        if age.is_end || number % every == 0 {
            recorder.sample_at("age of the oldest record", at, (f64_of(age.ms), MS));
        }
        if age.is_end && age.ms < former {
            recorder.event_at("segment goes", at, "");
        }
        former = age.ms;
    }
}

fn pictures(context: &Context, recorder: &mut Recorder) {
    recorder.picture(Picture::new(
        "lifetime-by-span",
        "Lifetime of a segment's oldest and newest record against what it spans",
        "The newest record of a segment lives for retention.ms and until the next pass, whatever \
         the segment spans; the oldest one longer by that span: its line leaves the other's as \
         soon as the span is worth mentioning beside retention.ms.",
        Kind::Scaling {
            figures: names(&["oldest_record_lifetime", "newest_record_lifetime"]),
            against: "span_ms".to_owned(),
        },
    ));
    let Some(longest) = context.parameters.numbers("span_ms").into_iter().max() else { return };
    recorder.picture(
        Picture::new(
            "age-over-time",
            "Age of the oldest record that can be read",
            "It grows as time goes by, beyond retention.ms, until the oldest segment's newest \
             record is that old; then it falls by what the segment spans, and grows again.",
            Kind::Timeline {
                series: names(&["age of the oldest record"]),
                events: names(&["segment goes"]),
            },
        )
        .only("span_ms", longest),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_those_of_each_segments_ends() {
        let appended = [100, 110, 120, 130, 140, 150];
        // Two segments went at once: of three records and of two.
        let both = gone(&appended, &[0, 3, 5], 1000);
        assert_eq!(both, [Gone { oldest: 900, newest: 880 }, Gone { oldest: 870, newest: 860 }]);
        assert_eq!(both[0].span(), 20);
        assert!(gone(&appended, &[3], 1000).is_empty());
    }
}
