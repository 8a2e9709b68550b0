//! What the indexes of very many partitions take of the machine's memory: read to the heap, or
//! mapped and looked up in.

use std::fs::{self, File};
use std::path::Path;

use serde_json::Value;
use uringlog::shard::JournalMode;

use super::fill::{Shape, fill};
use super::index::{Search, floor};
use crate::engines::library;
use crate::experiments::measure::{f64_of, u64_of, usize_of};
use crate::experiments::page_cache::{Resident, memory};
use crate::experiments::{Doing, DoingTo, Failure};
use crate::record::picture::names;
use crate::record::{Better, Kind, Picture, Recorder, Table, Unit, unit};
use crate::run::Context;
use crate::sys;

const BATCH_BYTES: u64 = 1000;
const RESIDENT: Unit = Unit { name: "bytes", better: Better::Lower };
/// Lookups in each mapped index, over all of it: every page is met.
const LOOKUPS: u32 = 64;

/// Every interval, every number of partitions.
///
/// # Errors
/// Whatever the log refuses, and files that can't be made.
pub fn run(context: &Context, recorder: &mut Recorder) -> Result<(), Failure> {
    let parameters = &context.parameters;
    let (intervals, counts) =
        (parameters.numbers("memory_intervals"), parameters.numbers("memory_partitions"));
    let mut table = Table::new(
        "Memory for the indexes of many partitions",
        &[
            "index.interval.bytes",
            "partitions",
            "bytes of an index",
            "heap",
            "mapped",
            "% of memory",
        ],
    );
    // The most first: what the allocator keeps of a smaller number would not count for a larger.
    let mut falling = counts.clone();
    falling.sort_unstable_by(|one, other| other.cmp(one));
    for interval in &intervals {
        recorder.vary("memory_intervals", *interval);
        let index = index(context, *interval)?;
        recorder.figure("memory_index_bytes", u64_of(index.len()), unit::BYTES);
        for count in &falling {
            context.check()?;
            recorder.vary("memory_partitions", *count);
            let (heap, mapped) = measure(context, &index, *count)?;
            let share = f64_of(heap) / f64_of(memory().max(1));
            recorder.figure("heap_index_memory", heap, RESIDENT);
            recorder.figure("mapped_index_memory", mapped, RESIDENT);
            recorder.figure("heap_index_share_of_memory", share, unit::RATIO);
            let mapped_share = f64_of(mapped) / f64_of(memory().max(1));
            recorder.figure("mapped_index_share_of_memory", mapped_share, unit::RATIO);
            let numbers = [*interval, *count, u64_of(index.len()), heap, mapped];
            let cells = numbers.iter().map(u64::to_string);
            table.row(cells.chain([format!("{:.3}", 100.0 * share)]).collect());
        }
    }
    recorder.table(table);
    recorder.vary("memory_intervals", Value::from(intervals.clone()));
    recorder.vary("memory_partitions", Value::from(counts));
    recorder.picture(Picture::new(
        "memory",
        "Memory for indexes against partitions",
        "Straight lines: twice the partitions, twice the memory. Mapped indexes take whole pages \
         of 4 KiB, so that small ones lie far above those on the heap; from some pages on the two \
         meet.",
        Kind::Scaling {
            figures: names(&["heap_index_memory", "mapped_index_memory"]),
            against: "memory_partitions".to_owned(),
        },
    ));
    notes(recorder);
    Ok(())
}

/// The `.index` of a sealed segment with this interval.
fn index(context: &Context, interval: u64) -> Result<Vec<u8>, Failure> {
    let segment_bytes = context.parameters.number("memory_segment_bytes");
    let shape = Shape { batch_bytes: BATCH_BYTES, interval, segment_bytes, sealed: 1 };
    let mut options = library::options(context)?;
    options.directory = context.folder.join(format!("memory-{interval}"));
    options.journals.mode = JournalMode::Never;
    library::with_engine(context, options, async |engine| {
        let filled = fill(context, engine, ("memory", shape)).await?;
        Ok(filled.sealed.into_iter().next().expect("one was asked for").index)
    })
}

/// Bytes of memory for so many copies of an index, on the heap and mapped.
fn measure(context: &Context, index: &[u8], count: u64) -> Result<(u64, u64), Failure> {
    let folder = context.folder.join("indexes");
    fs::create_dir_all(&folder).doing_to("make the folder", &folder)?;
    let progress = context.progress(3 * count, "indexes of many partitions");
    let path = |number: u64| folder.join(format!("{number}.index"));
    for number in 0..count {
        context.check()?;
        fs::write(path(number), index).doing_to("write", &path(number))?;
        progress.advance(1);
    }
    sys::give_back_free_memory();
    let before = Resident::now();
    let mut heap: Vec<Vec<u8>> = Vec::with_capacity(usize_of(count));
    for number in 0..count {
        context.check()?;
        heap.push(fs::read(path(number)).doing_to("read", &path(number))?);
        progress.advance(1);
    }
    let on_heap = Resident::now().anonymous.saturating_sub(before.anonymous);
    drop(std::hint::black_box(heap));
    let before = Resident::now();
    let mut mapped = Vec::with_capacity(usize_of(count));
    for number in 0..count {
        context.check()?;
        mapped.push(map(&path(number))?);
        progress.advance(1);
    }
    let in_maps = Resident::now().files.saturating_sub(before.files);
    drop(std::hint::black_box(mapped));
    fs::remove_dir_all(&folder).doing_to("remove", &folder)?;
    Ok((on_heap, in_maps))
}

/// Maps an index and looks at all of it, as fetches of old and new offsets do in time.
fn map(path: &Path) -> Result<memmap2::Mmap, Failure> {
    let file = File::open(path).doing_to("open", path)?;
    let mapped =
        sys::map(&file).doing("map an index; vm.max_map_count bounds how many there are")?;
    for page in mapped.chunks(super::index::PAGE_BYTES) {
        std::hint::black_box(page[0]);
    }
    for step in 0..LOOKUPS {
        let target = u32::MAX / LOOKUPS * step;
        std::hint::black_box(floor(&mapped, target, Search::Warm, |_| {}));
    }
    Ok(mapped)
}

fn notes(recorder: &mut Recorder) {
    recorder.note(
        "Memory for indexes is measured page by page (smaps_rollup) around reading or mapping so \
         many copies of one sealed segment's index, after the allocator has given back what it had \
         free. Kafka maps active indexes at their full 10 MiB: address space, not memory, until \
         entries are written.",
    );
    recorder.note(
        "The log keeps the index of an active segment on the heap for as long as it is active, and \
         those of sealed segments only while they are read, 32 MiB a shard at most.",
    );
}
