//! One index, searched in every way: on the heap or mapped, with the warm section or without.
//!
//! The bytes are those of an `.index` that the engine wrote: an entry for every batch.

use std::collections::BTreeSet;
use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

use memmap2::Advice;
use uringlog::format::index::OFFSET_ENTRY_BYTES;
use uringlog::shard::JournalMode;

use super::fill::{Shape, fill};
use super::index::{Search, WARM_BYTES, floor, mean, page, targets};
use crate::engines::library;
use crate::experiments::measure::{f64_of, u64_of};
use crate::experiments::{Doing, DoingTo, Failure, page_cache};
use crate::record::picture::names;
use crate::record::{Better, Kind, Latency, Picture, Recorder, Table, Unit, unit};
use crate::run::Context;
use crate::sys;

const BATCH_BYTES: u64 = 100;
const MEAN_COUNT: Unit = Unit { name: "count", better: Better::Exact };

/// Where the bytes of the index are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Held {
    /// Read whole, as this log does it.
    Heap,
    /// Mapped, as Kafka does it: a page that is not there comes with what the device reads ahead.
    Mapped,
    /// Mapped, and the kernel told that pages are wanted one by one (`MADV_RANDOM`).
    MappedRandom,
}

impl Held {
    const ALL: [Held; 3] = [Held::Heap, Held::Mapped, Held::MappedRandom];

    fn name(self) -> &'static str {
        match self {
            Held::Heap => "heap",
            Held::Mapped => "mmap",
            Held::MappedRandom => "mmap-random",
        }
    }

    /// Makes the bytes of the file available, and gives them to `search`.
    fn with<T>(self, file: &File, search: impl FnOnce(&[u8]) -> T) -> Result<T, Failure> {
        match self {
            Held::Heap => {
                let mut bytes = Vec::new();
                std::io::Read::read_to_end(&mut &*file, &mut bytes).doing("read an index")?;
                Ok(search(&bytes))
            }
            Held::Mapped => Ok(search(&sys::map(file).doing("map an index")?)),
            Held::MappedRandom => {
                let mapped = sys::map(file).doing("map an index")?;
                mapped.advise(Advice::Random).doing("advise on a mapped index")?;
                Ok(search(&mapped))
            }
        }
    }
}

/// Makes the index, and searches it.
///
/// # Errors
/// Whatever the log refuses.
pub fn run(context: &Context, recorder: &mut Recorder) -> Result<(), Failure> {
    let entries = context.parameters.number("search_entries");
    // No entry for the first batch; the next one after that segment is in the active one.
    let segment_bytes = (entries + 1) * BATCH_BYTES;
    let shape = Shape { batch_bytes: BATCH_BYTES, interval: 0, segment_bytes, sealed: 1 };
    let mut options = library::options(context)?;
    options.directory = context.folder.join("search");
    options.journals.mode = JournalMode::Never;
    let directory = options.directory.clone();
    let path = library::with_engine(context, options, async |engine| {
        let filled = fill(context, engine, ("search", shape)).await?;
        let contents = &filled.sealed[0];
        let found = u64_of(contents.index.len() / OFFSET_ENTRY_BYTES);
        recorder.expect(
            "search_index_entries",
            (found, entries),
            "an entry a batch, but the first",
        );
        recorder.figure("search_index_bytes", u64_of(contents.index.len()), unit::BYTES);
        Ok(contents.log.with_extension("index"))
    })?;
    every_way(context, (&path, entries), recorder)?;
    pictures(recorder);
    std::fs::remove_dir_all(&directory).doing_to("remove", &directory)
}

fn every_way(
    context: &Context,
    (path, entries): (&Path, u64),
    recorder: &mut Recorder,
) -> Result<(), Failure> {
    let index = std::fs::read(path).doing_to("read", path)?;
    page_cache::sync_file(path)?;
    let mut table = Table::new(
        "One index, searched in every way",
        &["targets", "search", "pages a search", "pages in all", "held", "hot ns", "cold p50 us"],
    );
    let warm = u64_of(WARM_BYTES / OFFSET_ENTRY_BYTES).min(entries);
    let ranges = [("uniform", 0..entries + 1), ("tail", entries + 1 - warm..entries + 1)];
    for (name, range) in &ranges {
        recorder.vary("targets", *name);
        for search in Search::ALL {
            recorder.vary("search", search.name());
            let pages = pages(context, (&index, search), range, recorder);
            for held in Held::ALL {
                context.check()?;
                recorder.vary("held", held.name());
                let hot = hot(context, (path, search, held), range, recorder)?;
                let cold = cold(context, (path, search, held), range, recorder)?;
                let cold = f64_of(cold.total().value_at_quantile(0.5)) / 1e3;
                let cells = [format!("{hot:.0}"), format!("{cold:.1}")];
                let named = [(*name).to_owned(), search.name().to_owned()];
                let row = named.into_iter().chain(pages.clone()).chain([held.name().to_owned()]);
                table.row(row.chain(cells).collect());
            }
            recorder.forget("held");
        }
    }
    recorder.table(table);
    ["targets", "search"].into_iter().for_each(|it| recorder.forget(it));
    let clock = clock_cost();
    recorder.figure("clock_cost", clock.as_secs_f64() * 1e9, unit::NS.told());
    notes(recorder);
    Ok(())
}

/// Pages of the index that a search looks at, and all of them together.
fn pages(
    context: &Context,
    (index, search): (&[u8], Search),
    range: &Range<u64>,
    recorder: &mut Recorder,
) -> [String; 2] {
    let count = context.parameters.number("searches").min(10_000);
    let (mut all, mut counts) = (BTreeSet::new(), Vec::new());
    for target in relative(count, range, context.seed) {
        let mut own = BTreeSet::new();
        floor(index, target, search, |entry| {
            own.insert(page(entry));
        });
        counts.push(u64_of(own.len()));
        all.extend(own);
    }
    recorder.figure("search_pages_mean", mean(&counts), MEAN_COUNT);
    recorder.figure("search_pages_in_all", u64_of(all.len()), unit::COUNT);
    [format!("{:.1}", mean(&counts)), all.len().to_string()]
}

fn relative(count: u64, range: &Range<u64>, seed: u64) -> Vec<u32> {
    let targets = targets(count, range.clone(), seed).into_iter();
    targets.map(|it| u32::try_from(it).expect("an index has fewer entries than 2^31")).collect()
}

/// Nanoseconds of a search in a loop; and latencies one by one, which include the clock's.
fn hot(
    context: &Context,
    (path, search, held): (&Path, Search, Held),
    range: &Range<u64>,
    recorder: &mut Recorder,
) -> Result<f64, Failure> {
    let targets = relative(context.parameters.number("searches"), range, context.seed);
    let file = File::open(path).doing_to("open", path)?;
    let (latency, took) = held.with(&file, |bytes| {
        let mut found = 0_u64;
        let mut one = |target: u32| {
            let entry = floor(bytes, std::hint::black_box(target), search, |_| {});
            found = found.wrapping_add(entry.map_or(0, |it| u64::from(it.position)));
        };
        targets.iter().take(1000).for_each(|it| one(*it));
        let started = Instant::now();
        targets.iter().for_each(|it| one(*it));
        let took = started.elapsed();
        let mut latency = Latency::new();
        for target in &targets {
            let started = Instant::now();
            one(*target);
            latency.record(started.elapsed());
        }
        std::hint::black_box(found);
        (latency, took)
    })?;
    let mean = took.as_secs_f64() * 1e9 / f64_of(u64_of(targets.len()));
    recorder.latency("search_hot", &latency);
    recorder.figure("search_hot_mean", mean, unit::NS);
    Ok(mean)
}

/// The first search in an index of which nothing is in memory: reading it whole, or mapping it and
/// meeting pages that are not there.
fn cold(
    context: &Context,
    (path, search, held): (&Path, Search, Held),
    range: &Range<u64>,
    recorder: &mut Recorder,
) -> Result<Latency, Failure> {
    let count = context.parameters.number("cold_lookups");
    let mut latency = Latency::new();
    let before = page_cache::device_bytes();
    for target in relative(count, range, context.seed) {
        context.check()?;
        page_cache::drop_file(path)?;
        let file = File::open(path).doing_to("open", path)?;
        let started = Instant::now();
        let found = held.with(&file, |bytes| floor(bytes, target, search, |_| {}))?;
        std::hint::black_box(found);
        latency.record(started.elapsed());
    }
    let bytes = page_cache::device_bytes() - before;
    recorder.latency("search_cold", &latency);
    let told = unit::BYTES.told();
    recorder.figure("search_cold_device_bytes", f64_of(bytes) / f64_of(count.max(1)), told);
    Ok(latency)
}

/// What asking the clock twice takes: part of every single latency here.
fn clock_cost() -> Duration {
    const TIMES: u32 = 10_000;
    let started = Instant::now();
    for _ in 0..TIMES {
        std::hint::black_box(Instant::now());
    }
    started.elapsed() / TIMES
}

fn pictures(recorder: &mut Recorder) {
    for (targets, where_) in [("uniform", "anywhere"), ("tail", "among the newest")] {
        recorder.picture(
            Picture::new(
                &format!("search-cold-{targets}"),
                &format!("First search in a cold index, for an offset {where_}"),
                "On the heap the whole file is read, whatever is searched. Mapped, each page that \
                 is missing comes with all that the device reads ahead around it, which may be as \
                 much. Mapped at random a search waits for a page a step, and among the newest \
                 the warm section makes that two or three.",
                Kind::Percentiles { latencies: names(&["search_cold"]) },
            )
            .only("targets", targets),
        );
    }
    recorder.picture(Picture::new(
        "search-hot",
        "A search in memory",
        "Where the bytes are in memory anyhow, mapping and warm section buy little, if anything. A \
         search among the newest is faster since the processor's \
         caches hold what it looks at.",
        Kind::Bars { figures: names(&["search_hot_mean"]), by: Some("targets".to_owned()) },
    ));
    recorder.picture(Picture::new(
        "search-pages",
        "Pages that all searches together look at",
        "Among the newest the warm section needs the last three pages of the index; without it \
         the middle of the whole, of its upper half and so on have to stay in memory, too.",
        Kind::Bars { figures: names(&["search_pages_in_all"]), by: Some("targets".to_owned()) },
    ));
}

fn notes(recorder: &mut Recorder) {
    recorder.note(
        "The document on offsets says 8,192 entries are kept warm; it is 8,192 bytes, so 1,024 \
         entries of an offset index and 682 of a time index (Kafka's AbstractIndex).",
    );
    recorder.note(
        "What a missing page of a mapped file brings in is the device's read_ahead_kb (below \
         /sys/block), 128 KiB by default and megabytes on some machines; search_cold_device_bytes \
         tells. Mapped at random, it is the page alone: what the warm section saves is seen there, \
         and where memory is so short that pages of indexes are evicted.",
    );
    recorder.note(
        "search_hot_mean is of a loop without a clock in it; the latencies of single hot searches \
         include the clock's own cost, which clock_cost tells.",
    );
}
