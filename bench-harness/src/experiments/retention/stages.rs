//! The two stages of a deletion, watched in the directory: files get the suffix `.deleted`, and
//! after a while they are gone.

use std::collections::BTreeMap;
use std::pin::pin;
use std::time::{Duration, Instant};

use serde_json::Value;
use uringlog::client::{Alteration, Resource};
use uringlog::format::names::{FileKind, SegmentFile, Suffix};
use uringlog::{ByteCount, Engine, now};

use super::pause;
use crate::engines::reach::NO_LIMIT;
use crate::engines::server::Server;
use crate::engines::sink::Sink;
use crate::engines::{batches, files, library};
use crate::experiments::Failure;
use crate::experiments::measure::{f64_of, u64_of};
use crate::experiments::roll_by_size::programme::{KIB_RECORDS_ONLY, NUMBERED_RECORDS, Programme};
use crate::record::picture::names;
use crate::record::{Kind, Picture, Recorder, Table, Unit, unit};
use crate::run::Context;

const BY_TIME: &str = "the document on segments and indexes, its retention run (Kafka 4.3.1)";
const BY_SIZE: &str = "the document on segment files (Kafka 4.3.1)";
const RULE: &str = "the rule";
/// What a directory goes through. Between the log start's move and the first new name there is
/// hardly time for a look, but when the active segment goes, too, the next one is there by then.
const STAGES: [&str; 4] = ["before", "log start moved", "renamed", "gone"];
/// Nothing waits longer than what is asked for and this.
const GRACE: Duration = Duration::from_secs(60);
/// Several passes: when the log start hasn't moved for so long, it won't.
const QUIET: Duration = Duration::from_millis(800);
/// How much later than it happened something may be seen, or counted in whole milliseconds.
const LATE: Duration = Duration::from_millis(50);

/// By what segments go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rule {
    /// `retention.ms`.
    Time,
    /// `retention.bytes`.
    Size,
}

impl Rule {
    /// As figures name it.
    pub fn name(self) -> &'static str {
        match self {
            Rule::Time => "time",
            Rule::Size => "size",
        }
    }
}

type Listing = Vec<(String, files::Size)>;

/// One look at a directory.
#[derive(Clone, Default, Debug)]
struct Look {
    /// `.log` files by base offset.
    logs: BTreeMap<u64, u64>,
    /// `.log.deleted` files.
    deleted_logs: BTreeMap<u64, u64>,
    /// Files that bear `.deleted`, of any kind.
    deleted_files: usize,
}

impl Look {
    fn of(listing: &Listing) -> Look {
        let mut look = Look::default();
        for (name, size) in listing {
            let Some(file) = SegmentFile::parse(name) else { continue };
            let logs = match file.suffix {
                Suffix::None => &mut look.logs,
                Suffix::Deleted => {
                    look.deleted_files += 1;
                    &mut look.deleted_logs
                }
                _ => continue,
            };
            if file.kind == FileKind::Log {
                logs.insert(file.base.0, size.bytes);
            }
        }
        look
    }

    fn bytes(&self) -> (u64, u64) {
        (self.logs.values().sum(), self.deleted_logs.values().sum())
    }

    /// Whether nothing is left of what lies before the log start. Files follow it late when the
    /// device is slow: sealed segments are synced first.
    fn is_over(&self, log_start: u64) -> bool {
        self.deleted_files == 0 && self.logs.keys().all(|base| log_start <= *base)
    }

    /// Whether it shows more of the first stage than the look before it.
    fn is_first_stage(&self, former: &Look) -> bool {
        former.deleted_files < self.deleted_files
    }
}

/// What a log's directory went through.
#[derive(Default)]
pub struct Stages {
    /// Every segment that there was, by base offset: bytes of its `.log`.
    all: BTreeMap<u64, u64>,
    deleted: BTreeMap<u64, u64>,
    kept: BTreeMap<u64, u64>,
    /// The directory at each of [`STAGES`]; empty when that was not seen.
    listings: [Listing; 4],
    earliest: u64,
    latest: u64,
    latest_after_one_more: u64,
    looks_without_active: u64,
    /// `retention.ms` by the rule of time.
    retention: Duration,
    /// From the newest record's time to the first `.deleted` name.
    renamed_after: Option<Duration>,
    /// From there until the last one is gone.
    gone_after: Option<Duration>,
    /// Bytes that can be read and bytes renamed, whenever they changed, by time.
    bytes: Vec<(Instant, (u64, u64))>,
}

/// A new log of the library; retention is set when it is full.
///
/// # Errors
/// Whatever the log refuses, and a deletion that doesn't come.
pub async fn by_library(
    context: &Context,
    engine: &Engine,
    (topic, rule, programme): (&str, Rule, &Programme),
) -> Result<Stages, Failure> {
    let parameters = &context.parameters;
    let spec = library::spec(context, (topic, 0), |config| {
        programme.configure(config);
        config.retention_ms = None;
        config.file_delete_delay_ms = parameters.number("file_delete_delay_ms");
    });
    let partition = engine.open_or_create(spec).await?;
    let sink = Sink::Library(vec![partition.clone()]);
    let mut watch = Watch::new(&sink);
    watch.play(context, programme).await?;
    let retention_ms = parameters.number("retention_ms");
    let mut config = partition.config();
    match rule {
        Rule::Time => config.retention_ms = Some(retention_ms),
        Rule::Size => {
            config.retention_bytes = Some(ByteCount(parameters.number("retention_bytes")));
        }
    }
    partition.reconfigure(config);
    watch.follow(context, (rule, retention_ms)).await
}

/// A new topic of a server; retention is set when it is full, as the documents do.
///
/// # Errors
/// Whatever the server refuses, and a deletion that doesn't come.
pub async fn by_wire(
    context: &Context,
    server: &Server,
    (topic, rule, programme): (&str, Rule, &Programme),
) -> Result<Stages, Failure> {
    let parameters = &context.parameters;
    let delay = ("file.delete.delay.ms", parameters.number("file_delete_delay_ms"));
    let mut settings = programme.settings().to_vec();
    settings.extend([delay, ("retention.ms", NO_LIMIT)]);
    let sink = Sink::wire(server, (topic, 1), &settings).await?;
    let mut watch = Watch::new(&sink);
    watch.play(context, programme).await?;
    let retention_ms = parameters.number("retention_ms");
    let (name, value) = match rule {
        Rule::Time => ("retention.ms", retention_ms),
        Rule::Size => ("retention.bytes", parameters.number("retention_bytes")),
    };
    let set = Alteration::Set(name.to_owned(), value.to_string());
    let client = server.client().await?;
    client.alter_settings(&Resource::Topic(topic.to_owned()), &[set], false).await?;
    watch.follow(context, (rule, retention_ms)).await
}

/// Looks at a directory again and again.
struct Watch<'a> {
    sink: &'a Sink,
    /// Not later than the newest record's time.
    begun: Instant,
    /// When the log start was last seen to move.
    moved: Instant,
    renamed: Option<Instant>,
    now: Look,
    seen: Stages,
}

impl<'a> Watch<'a> {
    fn new(sink: &'a Sink) -> Watch<'a> {
        let begun = Instant::now();
        let (now, seen) = (Look::default(), Stages::default());
        Watch { sink, begun, moved: begun, renamed: None, now, seen }
    }

    /// Appends everything, looking meanwhile: what is deleted early is not to be missed.
    async fn play(&mut self, context: &Context, programme: &Programme) -> Result<(), Failure> {
        // All records bear the time at which the first is appended.
        self.begun = Instant::now();
        let sink = self.sink;
        let mut playing = pin!(programme.play(context, sink));
        loop {
            tokio::select! {
                played = &mut playing => break played?,
                () = pause() => self.look().await?,
            }
        }
        self.look().await?;
        self.moved = Instant::now();
        Ok(())
    }

    async fn look(&mut self) -> Result<(), Failure> {
        let earliest = self.sink.start(0).await?;
        let listing = files::listing(&self.sink.directory(0))?;
        let (look, at) = (Look::of(&listing), Instant::now());
        let seen = &mut self.seen;
        if earliest != seen.earliest {
            (seen.earliest, self.moved) = (earliest, at);
        }
        if look.bytes() != self.now.bytes() {
            seen.bytes.push((at, self.now.bytes()));
            seen.bytes.push((at, look.bytes()));
        }
        seen.all.extend(look.deleted_logs.iter().chain(&look.logs));
        seen.deleted.extend(&look.deleted_logs);
        seen.looks_without_active += u64::from(look.logs.is_empty());
        if 0 < look.deleted_files && self.renamed.is_none() {
            self.renamed = Some(at);
            seen.renamed_after = Some(at - self.begun);
        }
        if 0 < look.deleted_files {
            seen.gone_after = None;
        } else if let Some(renamed) = self.renamed {
            seen.gone_after = seen.gone_after.or(Some(at - renamed));
        }
        if look.is_first_stage(&self.now) {
            seen.listings[2].clone_from(&listing);
        }
        let number = match (self.renamed, seen.earliest) {
            (None, 0) => 0,
            (None, _) => 1,
            (Some(_), _) => 3,
        };
        seen.listings[number] = listing;
        self.now = look;
        Ok(())
    }

    /// Until what goes is gone and several passes more have changed nothing.
    async fn follow(
        mut self,
        context: &Context,
        (rule, retention_ms): (Rule, u64),
    ) -> Result<Stages, Failure> {
        let delay_ms = context.parameters.number("file_delete_delay_ms");
        let until = Instant::now() + Duration::from_millis(retention_ms + delay_ms) + GRACE;
        self.seen.retention = Duration::from_millis(retention_ms);
        let latest = self.sink.end(0).await?;
        let what = format!("deletion by {}", rule.name());
        let progress = context.progress(u64_of(self.seen.all.len()), &what);
        let mut told = 0;
        loop {
            context.check()?;
            self.look().await?;
            let is_due = self.is_due(context, (rule, latest));
            let is_quiet = QUIET < self.moved.elapsed();
            if is_due && is_quiet && self.now.is_over(self.seen.earliest) {
                break;
            }
            if until < Instant::now() {
                let start = self.seen.earliest;
                let left = self.now.deleted_files;
                let text = format!("{what} stands still: {left} files, log start {start}");
                return Err(Failure::Wrong(text));
            }
            pause().await;
            let deleted = u64_of(self.seen.deleted.len());
            progress.advance(deleted - told);
            told = deleted;
        }
        self.finish(latest).await
    }

    /// Whether everything has gone that is to go; if more does, it is seen afterwards.
    fn is_due(&self, context: &Context, (rule, latest): (Rule, u64)) -> bool {
        let all: Vec<_> = self.seen.all.iter().filter(|it| *it.0 < latest).collect();
        let sizes: Vec<u64> = all.iter().map(|it| *it.1).collect();
        let left = match rule {
            Rule::Time => 0,
            Rule::Size => left_by_size(&sizes, context.parameters.number("retention_bytes")),
        };
        let first = all.get(all.len() - left).map_or(latest, |it| *it.0);
        first <= self.seen.earliest
    }

    async fn finish(self, latest: u64) -> Result<Stages, Failure> {
        let mut seen = self.seen;
        seen.latest = latest;
        // The log's end is where the empty segment begins that was made when all others went.
        seen.all.retain(|base, _| *base < latest);
        seen.kept = self.now.logs;
        let value = batches::bytes(1, 0);
        self.sink.append(0, batches::uniform(&[&value], now())).await?;
        seen.latest_after_one_more = self.sink.end(0).await?;
        Ok(seen)
    }
}

fn bases(of: &BTreeMap<u64, u64>) -> Vec<u64> {
    of.keys().copied().collect()
}

fn sizes(of: &BTreeMap<u64, u64>) -> Vec<u64> {
    of.values().copied().collect()
}

impl Stages {
    /// Figures, checks, tables and series.
    pub fn record(
        &self,
        context: &Context,
        (rule, programme): (Rule, &Programme),
        recorder: &mut Recorder,
    ) {
        programme.declare(recorder);
        recorder.vary("rule", rule.name());
        self.figures(recorder);
        self.check_rule(context, rule, recorder);
        if let Some(expected) = Expected::of(context, rule, programme) {
            self.check_document(&expected, recorder);
        }
        self.tables((rule, programme), recorder);
        self.series(recorder);
        recorder.forget("rule");
    }

    fn figures(&self, recorder: &mut Recorder) {
        let lists: [(&str, Vec<u64>, Unit); 8] = [
            ("base_offsets", bases(&self.all), unit::OFFSET),
            ("log_bytes", sizes(&self.all), unit::BYTES),
            ("deleted_base_offsets", bases(&self.deleted), unit::OFFSET),
            ("deleted_log_bytes", sizes(&self.deleted), unit::BYTES),
            ("kept_base_offsets", bases(&self.kept), unit::OFFSET),
            ("kept_log_bytes", sizes(&self.kept), unit::BYTES),
            ("kept_index_bytes", self.left_of(FileKind::Index), unit::BYTES),
            ("kept_time_index_bytes", self.left_of(FileKind::TimeIndex), unit::BYTES),
        ];
        for (name, values, unit) in lists {
            recorder.figure(name, values, unit);
        }
        recorder.figure("kept_bytes", self.kept.values().sum::<u64>(), unit::BYTES);
        recorder.figure("earliest_offset", self.earliest, unit::OFFSET);
        recorder.figure("latest_offset", self.latest, unit::OFFSET);
        let after = self.latest_after_one_more;
        recorder.figure("latest_offset_after_one_more", after, unit::OFFSET);
        let without = self.looks_without_active;
        recorder.figure("looks_without_an_active_segment", without, unit::COUNT);
        let times = [("renamed_after", self.renamed_after), ("gone_after", self.gone_after)];
        for (name, time) in times {
            if let Some(time) = time {
                recorder.figure(name, time.as_secs_f64(), unit::SECONDS.told());
            }
        }
    }

    /// Bytes of all files of a kind in the end.
    fn left_of(&self, kind: FileKind) -> Vec<u64> {
        let of_kind = |name: &str| SegmentFile::parse(name).is_some_and(|it| it.kind == kind);
        let last = self.listings.iter().rfind(|it| !it.is_empty()).into_iter().flatten();
        last.filter(|it| of_kind(&it.0)).map(|it| it.1.bytes).collect()
    }

    /// What holds whatever is set.
    fn check_rule(&self, context: &Context, rule: Rule, recorder: &mut Recorder) {
        let parameters = &context.parameters;
        let mut expect = |name: &str, holds: bool| recorder.expect(name, (holds, true), RULE);
        let first_kept = self.kept.keys().next().copied();
        expect("the_log_starts_with_a_segment", first_kept == Some(self.earliest));
        expect("offsets_go_on", self.latest_after_one_more == self.latest + 1);
        expect("there_is_always_an_active_segment", self.looks_without_active == 0);
        match rule {
            Rule::Time => {
                expect("all_records_go", self.earliest == self.latest);
                let is_late = self.renamed_after.is_some_and(|it| self.retention <= it + LATE);
                expect("nothing_goes_before_retention_ms", is_late);
            }
            Rule::Size => {
                let limit = parameters.number("retention_bytes");
                let left = left_by_size(&sizes(&self.all), limit);
                let kept = self.kept.keys().filter(|base| **base < self.latest).count();
                expect("the_log_keeps_retention_bytes_and_no_segment_more", left == kept);
                let is_whole = self.deleted.len() + kept == self.all.len();
                expect("every_segment_is_kept_or_deleted", is_whole);
            }
        }
    }

    fn check_document(&self, expected: &Expected, recorder: &mut Recorder) {
        let Expected { source, .. } = *expected;
        let lists = [
            ("base_offsets", bases(&self.all), expected.bases),
            ("deleted_log_bytes", sizes(&self.deleted), expected.deleted),
            ("kept_log_bytes", sizes(&self.kept), expected.kept),
            ("earliest_and_latest", vec![self.earliest, self.latest], &expected.ends[..]),
        ];
        for (name, measured, expected) in lists {
            recorder.expect(name, (measured, Value::from(expected.to_vec())), source);
        }
        if let Some(expected) = expected.time_indexes {
            // There is no `.index`: retention asks for the newest time only.
            let indexes = self.left_of(FileKind::Index).len();
            recorder.expect("kept_indexes", (u64_of(indexes), 0), source);
            let measured = self.left_of(FileKind::TimeIndex);
            let expected = Value::from(expected.to_vec());
            recorder.expect("kept_time_index_bytes", (measured, expected), source);
        }
    }

    /// As the documents list the directory.
    fn tables(&self, (rule, programme): (Rule, &Programme), recorder: &mut Recorder) {
        let stages = self.listings.iter().zip(STAGES).filter(|it| !it.0.is_empty());
        for (listing, stage) in stages {
            let title = format!("{}, by {}: {stage}", programme.title, rule.name());
            let mut table = Table::new(&title, &["bytes", "allocated", "file"]);
            for (name, size) in listing {
                table.row(vec![size.bytes.to_string(), size.allocated.to_string(), name.clone()]);
            }
            recorder.table(table);
        }
        let title = format!("{}, by {}: offsets", programme.title, rule.name());
        let mut table = Table::new(&title, &["earliest", "latest", "latest after one more"]);
        let cells = [self.earliest, self.latest, self.latest_after_one_more];
        table.row(cells.iter().map(u64::to_string).collect());
        recorder.table(table);
    }

    fn series(&self, recorder: &mut Recorder) {
        let past = |at: Instant| recorder.elapsed().saturating_sub(at.elapsed());
        let points: Vec<_> = self.bytes.iter().map(|(at, bytes)| (past(*at), *bytes)).collect();
        let renamed = points.iter().find(|it| 0 < it.1.1).map(|it| it.0);
        let gone = points.iter().rfind(|it| 0 < it.1.1).map(|it| it.0);
        for (at, (readable, deleted)) in points {
            let value = |bytes| (f64_of(bytes), unit::BYTES);
            recorder.sample_at("bytes to be read", at, value(readable));
            recorder.sample_at("bytes renamed", at, value(deleted));
        }
        for (event, at) in [("renamed", renamed), ("gone", gone)] {
            if let Some(at) = at {
                recorder.event_at(event, at, "");
            }
        }
    }
}

/// How many of these segments, the newest ones, `retention.bytes` leaves.
fn left_by_size(sizes: &[u64], limit: u64) -> usize {
    let stays = |from: &usize| {
        let kept: u64 = sizes[*from..].iter().sum();
        // Without the first of these, less than the limit would be left.
        kept - sizes[*from] < limit
    };
    sizes.len() - (0..sizes.len()).find(stays).unwrap_or(sizes.len())
}

/// What a document says.
struct Expected {
    source: &'static str,
    bases: &'static [u64],
    deleted: &'static [u64],
    kept: &'static [u64],
    ends: [u64; 2],
    /// Where the document lists everything that is left.
    time_indexes: Option<&'static [u64]>,
}

impl Expected {
    fn of(context: &Context, rule: Rule, programme: &Programme) -> Option<Expected> {
        let is_two_mib = context.parameters.number("retention_bytes") == 2 << 20;
        if rule == Rule::Time && *programme == KIB_RECORDS_ONLY {
            return Some(Expected {
                source: BY_TIME,
                bases: &[0, 1005, 2010, 3015],
                deleted: &[1_042_252, 1_042_252, 1_042_252, 1_021_531],
                kept: &[0],
                ends: [4000, 4000],
                time_indexes: Some(&[10_485_756]),
            });
        }
        let is_it = rule == Rule::Size && is_two_mib && *programme == NUMBERED_RECORDS;
        is_it.then_some(Expected {
            source: BY_SIZE,
            bases: &[0, 512, 1024, 1536, 2048],
            deleted: &[1_031_522, 1_031_656],
            kept: &[1_032_144, 1_032_144, 911_243],
            ends: [1024, 2500],
            time_indexes: None,
        })
    }
}

/// What the stages look like: by each rule those of the last programme.
pub fn pictures(recorder: &mut Recorder, through: &str, runs: &[(Rule, Programme)]) {
    for (rule, see) in [
        (
            Rule::Time,
            "All bytes move from one line to the other when retention.ms is over (renamed, one \
             segment after the other), stay on disk for file.delete.delay.ms, and are gone: disk \
             space comes back only with the second stage.",
        ),
        (
            Rule::Size,
            "The readable bytes fall to the first sum of whole segments that is not below \
             retention.bytes, and stay above it.",
        ),
    ] {
        let kind = Kind::Timeline {
            series: names(&["bytes to be read", "bytes renamed"]),
            events: names(&["renamed", "gone"]),
        };
        let shown = runs.iter().rfind(|it| it.0 == rule);
        let is_numbered = shown.is_some_and(|it| it.1.numbered);
        let rule = rule.name();
        let title = format!("The two stages of a deletion by {rule}");
        recorder.picture(
            Picture::new(&format!("stages-by-{rule}"), &title, see, kind)
                .only("rule", rule)
                .only("through", through)
                .only("numbered", is_numbered),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_tell_live_files_from_renamed_ones() {
        let file = |name: &str, bytes| (name.to_owned(), files::Size { bytes, allocated: 0 });
        let listing = vec![
            file("00000000000000000000.log.deleted", 7),
            file("00000000000000000000.index.deleted", 8),
            file("00000000000000000005.log", 9),
            file("00000000000000000005.index", 10),
            file("partition.metadata", 5),
        ];
        let look = Look::of(&listing);
        assert_eq!((look.bytes(), look.deleted_files), ((9, 7), 2));
        assert!(look.is_first_stage(&Look::default()));
        assert!(!look.is_first_stage(&look));
        assert!(!look.is_over(5), "there are files still");
        let look = Look::of(&listing[2..].to_vec());
        assert!(look.is_over(5) && !look.is_over(6), "segment 5 is to go first");
    }

    #[test]
    fn size_leaves_at_least_the_limit() {
        let document = [1_031_522, 1_031_656, 1_032_144, 1_032_144, 911_243];
        assert_eq!(left_by_size(&document, 2 << 20), 3);
        for (sizes, limit, expected) in [
            (&[5, 5, 5][..], 10, 2),
            (&[5, 5, 5], 16, 3),
            (&[100, 50, 50], 100, 2),
            (&[5, 5], 0, 0),
        ] {
            assert_eq!(left_by_size(sizes, limit), expected, "{sizes:?} {limit}");
        }
    }
}
