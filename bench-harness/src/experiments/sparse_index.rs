//! What a sparse index holds, how a lookup goes on from it, and what its density costs.
//!
//! [`phenomenon`]: the entries as the file has them, and one lookup step by step. [`times`]: the
//! same from a timestamp, and lookups timed. [`sweep`]: `index.interval.bytes` against batch size.
//! [`search`]: one index on the heap and mapped, with the warm section and without. [`memory`]: the
//! indexes of thousands of partitions.
//!
//! # Figures
//!
//! Of the programme's first segment (`record_size`, `records`, `batch_records`, `small_records`,
//! `numbered`, `segment_bytes`, `index_interval_bytes`; `through` says by what it was reached):
//!
//! | figure | |
//! |---|---|
//! | `entry_offsets`, `entry_positions` | lists: last offset and position of each indexed batch |
//! | `index_entries`, `index_bytes`, `log_bytes` | what its files hold |
//! | `batches`, `records_of_the_segment` | counted in its `.log` |
//! | `dense_index_bytes`, `records_per_entry` | with an entry a record; how sparse it is |
//!
//! Of the lookup of `lookup_offset`: `lookup_segment` (base), `lookup_probed_offsets` (entries that
//! the binary search compares, in order), `lookup_floor_offset` and `lookup_floor_position` (the
//! entry; the segment's base and 0 without one), `lookup_headers` (read from there, the batch's own
//! included), `lookup_scanned_bytes` (from the entry's position to the batch's),
//! `lookup_batch_offset`, `lookup_batch_last_offset`, `lookup_batch_position`,
//! `lookup_batch_bytes`, `lookup_record_in_batch` (0 is its first), `read_begins_at_offset` (what
//! the engine or server gives).
//!
//! Of the lookup at `lookup_ms`, times in ms since the first record: `time_floor_ms`,
//! `time_floor_offset`, `time_walk_from_position`, `time_walk_headers`, `time_batch_offset`,
//! `time_batch_position`, `time_found_offset` (the engine's or server's answer),
//! `time_index_entries`, `time_index_file_bytes`, `time_offset_index_bytes`; latencies
//! `read_at_offset`, `find_timestamp`.
//!
//! For each `sweep_batches` and `sweep_intervals`, of a full segment: `sweep_batch_bytes`,
//! `sweep_log_bytes`, `sweep_index_bytes`, `sweep_index_entries`; over `hot_lookups` lookups
//! `walked_bytes_mean`, `walked_bytes_max` (entry to the end of the header that ends the walk),
//! `walked_headers_mean`, `walk_reads_mean`; latencies `lookup_hot`, `lookup_cold`;
//! `lookup_cold_device_bytes`.
//!
//! For each of `targets` (uniform, tail), `search` (plain, warm-section) and `held` (heap, mmap,
//! mmap-random):
//! `search_pages_mean`, `search_pages_in_all`, `search_hot_mean` (ns), latencies `search_hot`,
//! `search_cold`, `search_cold_device_bytes`; `search_index_bytes`, `clock_cost`.
//!
//! For each `memory_intervals` and `memory_partitions`: `memory_index_bytes` (of one index),
//! `heap_index_memory`, `mapped_index_memory` (bytes, measured), `heap_index_share_of_memory`,
//! `mapped_index_share_of_memory`.

mod fill;
pub mod index;
mod memory;
mod phenomenon;
mod search;
mod sweep;
mod times;

use uringlog::LogConfig;
use uringlog::shard::JournalMode;

use super::Failure;
use super::roll_by_size::programme::{KIB_RECORDS, Programme, TOPIC};
use crate::engines::EngineName;
use crate::engines::library;
use crate::engines::server::{self, Server};
use crate::engines::sink::Sink;
use crate::parameters::{Kind, Parameter, Scaled, flag, number, numbers, same, scaled};
use crate::record::Recorder;
use crate::registry::Experiment;
use crate::run::Context;

/// See the module.
pub const EXPERIMENT: Experiment = Experiment {
    name: "sparse-index",
    question: "Which batches does a sparse index name, what does a lookup go through, and where \
               does index.interval.bytes=4096 lie between memory and scanning?",
    parameters: PARAMETERS,
    engines: EngineName::ALL,
    // What is looked up is in the page cache or dropped from it: both tiers are the same here.
    tiers: &[],
    file_systems: true,
    seconds: Scaled { quick: 3, normal: 25, full: 900 },
    run,
};

const INT_MAX: u64 = (1 << 31) - 1;

const PARAMETERS: &[Parameter] = &[
    number("record_size", same(1024), (0, 1 << 20), "bytes", "value of a record"),
    number("records", same(4000), (1, 10_000_000), "", "records, without the small ones"),
    number("batch_records", same(15), (1, 1_000_000), "", "records in a batch"),
    flag("small_records", true, "begin with 23 small records in batches of one"),
    flag("numbered", false, "a value ends with a hyphen and the record's number"),
    number("segment_bytes", same(1 << 20), (1 << 20, INT_MAX), "bytes", "segment.bytes"),
    number("index_interval_bytes", same(4096), (0, INT_MAX), "bytes", "index.interval.bytes"),
    number("lookup_offset", same(60), (0, 10_000_022), "", "the offset to look up step by step"),
    Parameter {
        name: "through",
        kind: Kind::Choice { default: "both", of: &["both", "library", "wire"] },
        unit: "",
        help: "by what the log is reached; Kafka by the wire only",
    },
    number("time_records", scaled(5000, 100_000, 500_000), (10, 10_000_000), "", "one each ms"),
    number("time_record_size", same(100), (0, 65_536), "bytes", "their values"),
    number("lookup_ms", same(1234), (0, 10_000_000), "ms", "the time to look up step by step"),
    flag("cost", true, "sweep, search and measure memory, too"),
    numbers(
        "sweep_batches",
        Scaled {
            quick: &[100, 1000, 16_384, 1 << 20],
            normal: &[100, 1000, 16_384, 131_072, 1 << 20],
            full: &[100, 1000, 4096, 16_384, 65_536, 262_144, 1 << 20],
        },
        (fill::BATCH_BYTES_MIN, 1 << 20),
        "bytes",
        "lengths of batches, one record in each",
    ),
    numbers(
        "sweep_intervals",
        Scaled {
            quick: &[0, 4096, 65_536, 1 << 20],
            normal: &[0, 1024, 4096, 16_384, 65_536, 262_144, 1 << 20],
            full: &[0, 512, 1024, 2048, 4096, 8192, 16_384, 65_536, 262_144, 1 << 20],
        },
        (0, INT_MAX),
        "bytes",
        "index.interval.bytes",
    ),
    number(
        "sweep_segment_bytes",
        scaled(2 << 20, 32 << 20, 256 << 20),
        (1 << 20, INT_MAX),
        "bytes",
        "segments to look up in",
    ),
    number("hot_lookups", scaled(60, 3000, 30_000), (1, 10_000_000), "", "for each point"),
    number("cold_lookups", scaled(8, 100, 1000), (1, 1_000_000), "", "for each point"),
    number(
        "search_entries",
        scaled(32_768, 655_360, 1_310_720),
        (2, 20_000_000),
        "",
        "entries of the index that is searched in every way",
    ),
    number("searches", scaled(10_000, 1_000_000, 5_000_000), (1, 100_000_000), "", "in memory"),
    numbers(
        "memory_partitions",
        Scaled { quick: &[1000, 10_000], normal: &[1000, 10_000], full: &[100, 1000, 10_000] },
        (1, 60_000),
        "",
        "partitions whose indexes are in memory",
    ),
    numbers(
        "memory_intervals",
        Scaled { quick: &[4096], normal: &[0, 4096, 65_536], full: &[0, 4096, 65_536] },
        (0, INT_MAX),
        "bytes",
        "index.interval.bytes of these",
    ),
    number(
        "memory_segment_bytes",
        same(1 << 20),
        (1 << 20, INT_MAX),
        "bytes",
        "segments of these, with batches of 1,000 bytes",
    ),
];

fn run(context: &Context, recorder: &mut Recorder) -> Result<(), Failure> {
    let programme = asked(context)?;
    let is_library = context.engine().is_some_and(|it| it.of_library().is_some());
    let through = context.parameters.choice("through");
    if is_library && through != "wire" {
        recorder.vary("through", "library");
        by_library(context, &programme, recorder)?;
    }
    if !is_library || through != "library" {
        recorder.vary("through", "wire");
        through_the_wire(context, &programme, recorder)?;
    }
    times::pictures(recorder);
    recorder.vary("through", "library");
    if is_library && context.parameters.flag("cost") {
        sweep::run(context, recorder)?;
        search::run(context, recorder)?;
        memory::run(context, recorder)?;
    }
    Ok(())
}

fn asked(context: &Context) -> Result<Programme, Failure> {
    let parameters = &context.parameters;
    let asked = Programme {
        title: KIB_RECORDS.title,
        record_size: parameters.number("record_size"),
        records: parameters.number("records"),
        batch_records: parameters.number("batch_records"),
        small_records: parameters.flag("small_records"),
        numbered: parameters.flag("numbered"),
        segment_bytes: parameters.number("segment_bytes"),
        index_interval_bytes: parameters.number("index_interval_bytes"),
        partitions: 1,
    };
    asked.check()?;
    Ok(asked)
}

fn by_library(
    context: &Context,
    programme: &Programme,
    recorder: &mut Recorder,
) -> Result<(), Failure> {
    let mut options = library::options(context)?;
    // Nothing here is synced, so nothing would be written to it.
    options.journals.mode = JournalMode::Never;
    library::with_engine(context, options, async |engine| {
        let configure = |config: &mut LogConfig| {
            programme.configure(config);
            config.flush_messages = u64::MAX;
        };
        let sink = Sink::library(context, engine, (TOPIC, 1), configure).await?;
        let times = Sink::library(context, engine, (times::TOPIC, 1), |config| {
            config.segment_bytes.0 = times::segment_bytes(context);
            config.flush_messages = u64::MAX;
        });
        both(context, (&sink, &times.await?), (programme, recorder)).await
    })
}

fn through_the_wire(
    context: &Context,
    programme: &Programme,
    recorder: &mut Recorder,
) -> Result<(), Failure> {
    let server = Server::start(context, "server", &[])?;
    server::block_on(async {
        let sink = Sink::wire(&server, (TOPIC, 1), &programme.settings()).await?;
        let settings = [("segment.bytes", times::segment_bytes(context))];
        let times = Sink::wire(&server, (times::TOPIC, 1), &settings).await?;
        both(context, (&sink, &times), (programme, recorder)).await
    })?;
    server.stop()
}

async fn both(
    context: &Context,
    (sink, times): (&Sink, &Sink),
    (programme, recorder): (&Programme, &mut Recorder),
) -> Result<(), Failure> {
    programme.play(context, sink).await?;
    let offset = context.parameters.number("lookup_offset");
    phenomenon::record(sink, (programme, offset), recorder).await?;
    times::run(context, times, recorder).await
}
