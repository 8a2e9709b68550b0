//! The log's own plans, carried out in eight ways: what the shard's thread hands to its disk is the
//! same in each, the journal's records aside.
//!
//! In a turn each partition gets a batch, and the turn is over when all are acknowledged. One thing
//! is varied at a time: partitions, bytes of a batch, whether acknowledgements wait for a sync, and
//! whether batches of a partition that come together share a plan and its sync.

use std::time::Duration;

use uringlog::Durability;
use uringlog::shard::JournalOptions;

use super::cost::{Cost, Outcome, Ratios, Side, per_operation};
use super::{pictures, point_time};
use crate::experiments::Failure;
use crate::experiments::journal::run::{
    Cell, Limits, Measured, Variant, journal_options, run as run_variant,
};
use crate::experiments::measure::{u64_of, usize_of};
use crate::parameters::Scale;
use crate::record::{Recorder, unit};
use crate::run::Context;

/// Points with more bytes in a turn are left out.
const TURN_BYTES_MAX: u64 = 64 << 20;
/// Partitions beyond which one turn is enough to begin with.
const MANY: u64 = 100;

/// What all ways are compared at.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Point {
    partitions: u64,
    batch_bytes: u64,
    is_synced: bool,
    /// Batches of a partition in a turn.
    batches: u64,
    is_grouped: bool,
}

/// Every point. One that several sweeps have in common is measured once, and recorded for each.
///
/// # Errors
/// Whatever the disk refuses.
pub fn run(context: &Context, recorder: &mut Recorder) -> Result<(), Failure> {
    let points = points(context);
    let mut ratios = Ratios::new("Appends");
    let variants: Vec<Variant> = Variant::all().collect();
    let total = u64_of(points.len() * variants.len());
    let progress = context.progress(total, "plans in every way");
    for (point, sweeps) in points {
        let mut measured = Vec::new();
        for variant in super::in_turn(context, &variants) {
            context.check()?;
            progress.advance(1);
            // Without syncs a journal has nothing to take over.
            if point.is_synced || !variant.has_journal() {
                measured.push((variant, measure(context, (point, variant), recorder)?));
            }
        }
        for (number, sweep) in sweeps.into_iter().enumerate() {
            point.vary(sweep, recorder);
            let outcomes: Vec<Outcome> =
                measured.iter().map(|(way, it)| record(*way, it, recorder)).collect();
            if number == 0 {
                ratios.point(recorder, &point.label(), &outcomes);
            }
        }
    }
    ratios.finish(recorder);
    notes(recorder);
    pictures::plans(recorder);
    pictures::noise(recorder);
    Ok(())
}

/// Points, and which sweeps each is of; the picture of the ring's ratio is over partitions, so that
/// sweep comes first.
fn points(context: &Context) -> Vec<(Point, Vec<&'static str>)> {
    let parameters = &context.parameters;
    let middle = Point {
        partitions: parameters.number("middle_partitions"),
        batch_bytes: parameters.number("middle_batch_bytes"),
        is_synced: true,
        batches: 1,
        is_grouped: true,
    };
    let batches = parameters.number("group_batches");
    // As many bytes in a turn as in the middle.
    let batch_bytes = (middle.batch_bytes / batches).max(128);
    let together = Point { batches, batch_bytes, ..middle };
    let by_partitions = with(parameters.numbers("partitions"), middle.partitions).into_iter();
    let by_partitions = by_partitions.map(|partitions| Point { partitions, ..middle });
    let by_bytes = with(parameters.numbers("batch_bytes"), middle.batch_bytes).into_iter();
    let by_bytes = by_bytes.map(|batch_bytes| Point { batch_bytes, ..middle });
    let by_sync = [false, true].map(|is_synced| Point { is_synced, ..middle });
    let by_group = [false, true].map(|is_grouped| Point { is_grouped, ..together });
    let all = by_partitions
        .map(|it| (it, "partitions"))
        .chain(by_bytes.map(|it| (it, "batch_bytes")))
        .chain(by_sync.map(|it| (it, "sync")))
        .chain(by_group.map(|it| (it, "group_commit")));
    let mut points: Vec<(Point, Vec<&'static str>)> = Vec::new();
    for (point, sweep) in all.filter(|(it, _)| it.turn_bytes() <= TURN_BYTES_MAX) {
        match points.iter_mut().find(|it| it.0 == point) {
            Some((_, sweeps)) => sweeps.push(sweep),
            None => points.push((point, vec![sweep])),
        }
    }
    points
}

/// The sweep's points in order, the middle among them.
fn with(mut points: Vec<u64>, middle: u64) -> Vec<u64> {
    points.push(middle);
    points.sort_unstable();
    points.dedup();
    points
}

impl Point {
    fn turn_bytes(&self) -> u64 {
        self.partitions * self.batch_bytes * self.batches
    }

    fn vary(&self, sweep: &str, recorder: &mut Recorder) {
        recorder.vary("sweep", sweep);
        recorder.vary("partitions", self.partitions);
        recorder.vary("batch_bytes", self.batch_bytes);
        recorder.vary("sync", if self.is_synced { "fdatasync" } else { "none" });
        recorder.vary("batches", self.batches);
        recorder.vary("group_commit", self.is_grouped);
    }

    fn label(&self) -> String {
        let Point { partitions, batch_bytes, .. } = self;
        let sync = if self.is_synced { "" } else { ", no sync" };
        let group = match (self.batches, self.is_grouped) {
            (1, _) => String::new(),
            (batches, true) => format!(", {batches} batches each in one plan"),
            (batches, false) => format!(", {batches} batches each one by one"),
        };
        format!("{partitions} x {batch_bytes} B{sync}{group}")
    }

    fn cell(&self) -> Cell {
        let partitions = u32::try_from(self.partitions).expect("at most 2,000");
        Cell { partitions, batch_bytes: usize_of(self.batch_bytes) }
    }

    /// A quick run shows that the ways work, not how fast they are; and a turn of a thousand syncs
    /// one after the other takes seconds.
    fn first_turns(&self, scale: Scale) -> u32 {
        if scale == Scale::Quick || MANY < self.partitions { 1 } else { 3 }
    }

    fn limits(&self, context: &Context) -> Limits {
        let durability = if self.is_synced { Durability::Device } else { Durability::PageCache };
        Limits {
            bytes: u64::MAX,
            time: point_time(context),
            core: context.parameters.flag("pinned").then_some(0),
            durability,
            batches: u32::try_from(self.batches).expect("at most 128"),
            is_grouped: self.is_grouped,
            is_warmed: false,
            first_turns: self.first_turns(context.scale),
        }
    }
}

fn measure(
    context: &Context,
    (point, variant): (Point, Variant),
    recorder: &mut Recorder,
) -> Result<Measured, Failure> {
    let plan_bytes_max = JournalOptions::default().plan_bytes_max.0;
    let journal = journal_options(context.parameters.number("journal_bytes"), plan_bytes_max);
    let work = (variant, point.cell());
    let measured = run_variant(&context.folder, work, point.limits(context), journal)?;
    // How disturbed the points are, in the order in which they were taken.
    recorder.as_engine("none");
    recorder.sample("cpu_of_others", measured.others, unit::RATIO);
    recorder.counter("bytes_appended", measured.bytes);
    Ok(measured)
}

fn record(variant: Variant, measured: &Measured, recorder: &mut Recorder) -> Outcome {
    let side = match (variant.is_ring(), variant.has_journal()) {
        (true, false) => Side::Ring,
        (true, true) => Side::RingWithJournal,
        (false, false) => Side::Other,
        (false, true) => Side::OtherWithJournal,
    };
    let cost = Cost {
        way: variant.name(),
        side,
        operations: measured.batches,
        bytes: measured.bytes,
        wall: measured.wall.max(Duration::from_nanos(1)),
        cpu: measured.cpu,
        traced: measured.traced,
        workers: measured.workers,
        latency: &measured.latency,
    };
    let outcome = cost.record("append", recorder);
    let counts = [
        ("append_syncs", measured.handed.syncs + measured.handed.durable_writes),
        ("append_chains", measured.ring.chains),
        ("append_entries", measured.ring.sqes),
        ("append_enters", measured.ring.enters),
    ];
    for (name, count) in counts.into_iter().take(if variant.is_ring() { 4 } else { 1 }) {
        per_operation(recorder, name, (count, measured.batches));
    }
    outcome
}

fn notes(recorder: &mut Recorder) {
    recorder.note(
        "uring, plans: `linked` is the ring engine, `journal` the same with its commit journal; \
         `unlinked` hands each step over when the one before it is over. `serial` is the \
         plain-file engine (`pwritev` and fdatasync on the shard's thread), `pwrite` the same \
         with a call for each piece of a write, `pool` the same with syncs on eight threads; \
         `plain-journal` and `pool-journal` have the commit journal without the ring. Latency is \
         that of a turn: all batches that came together are acknowledged. `append_syncs` counts \
         what was handed over: steps that sync, and durable writes of the journal.",
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_is_part_of_a_sweep_once() {
        assert_eq!(with(vec![1, 100], 16), [1, 16, 100]);
        assert_eq!(with(vec![100, 16, 1], 16), [1, 16, 100]);
    }
}
