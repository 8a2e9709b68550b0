//! The log is stopped, and everything is read off it.

use std::time::{Duration, Instant};

use uringlog::disk::faults::FaultHook;
use uringlog::shard::JournalMode;
use uringlog::{Cursors, Durability, Engine, Offset, Partition, now};

use super::Programme;
use super::consumer::Consumer;
use crate::engines::{batches, library};
use crate::experiments::Failure;
use crate::experiments::measure::usize_of;
use crate::record::picture::names;
use crate::record::{Kind, Picture, Recorder, Table, unit};
use crate::run::Context;

const TOPIC: &str = "moments";
const DOCUMENT: &str = "what the document says that each offset means";
/// A sync that is to be held begins within this.
const HELD_MAX: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// All offsets at one moment.
struct Moment {
    name: &'static str,
    cursors: Cursors,
    position: u64,
    readable: u64,
}

/// Appends, stops, looks; three times.
///
/// # Errors
/// Whatever the log refuses.
pub fn run(
    context: &Context,
    programme: &Programme,
    recorder: &mut Recorder,
) -> Result<(), Failure> {
    let hook = FaultHook::new();
    let mut options = library::options(context)?;
    options.directory = context.folder.join("moments");
    options.faults = Some(hook.clone());
    // An append of the device tier is to wait for a sync of its own file.
    options.journals.mode = JournalMode::Never;
    let moments = library::with_engine(context, options, async |engine| {
        let seen = moments(context, engine, (programme, &hook)).await;
        // Whatever went wrong: a held sync would keep the engine from closing.
        hook.release_syncs();
        seen
    })?;
    for moment in &moments {
        moment.record(recorder);
        check(moment, (programme, context.durability()), recorder);
    }
    recorder.forget("moment");
    table(&moments, recorder);
    recorder.picture(Picture::new(
        "offsets-at-moments",
        "Offsets at three moments",
        "In the device tier the high watermark stands still while the sync of the last records is \
         held, though they have offsets already: no consumer gets them. In the page-cache tier it \
         is at the end at once, and what is on the device is behind it.",
        Kind::Bars {
            figures: names(&["next_offset", "high_watermark", "durable_end_offset", "position"]),
            by: Some("moment".to_owned()),
        },
    ));
    Ok(())
}

async fn moments(
    context: &Context,
    engine: &Engine,
    (programme, hook): (&Programme, &FaultHook),
) -> Result<[Moment; 3], Failure> {
    let spec = library::spec(context, (TOPIC, 0), |config| config.retention_ms = None);
    let partition = engine.open_or_create(spec).await?;
    let mut consumer = Consumer::new(&partition);
    let value = batches::bytes(usize_of(programme.record_size), context.seed);
    let acknowledged = programme.records - programme.unsynced;
    for count in programme.batches(acknowledged) {
        context.check()?;
        let due = append(&partition, &value, count)?;
        partition.reached(due).await?;
    }
    while consumer.position < programme.consumed {
        let left = programme.consumed - consumer.position;
        if consumer.take(left).await? == 0 {
            return Err(Failure::Wrong("an acknowledged record can't be read".to_owned()));
        }
    }
    let moved = partition.advance_log_start(Offset(programme.deleted));
    moved.map_err(|error| Failure::Wrong(error.to_string()))?;
    let first = Moment::of("acknowledged", &partition, &consumer).await?;
    hook.hold_syncs();
    let mut due = partition.cursors().next;
    for count in programme.batches(programme.unsynced) {
        due = append(&partition, &value, count)?;
    }
    stopped(context, (&partition, hook), due).await?;
    let second = Moment::of("held", &partition, &consumer).await?;
    hook.release_syncs();
    partition.reached(due).await?;
    let third = Moment::of("released", &partition, &consumer).await?;
    Ok([first, second, third])
}

fn append(partition: &Partition, value: &[u8], count: u64) -> Result<Offset, Failure> {
    let values = vec![value; usize_of(count)];
    Ok(partition.append(batches::uniform(&values, now()))?.due)
}

/// Until a sync stands still, or there is nothing that waits for one.
async fn stopped(
    context: &Context,
    (partition, hook): (&Partition, &FaultHook),
    due: Offset,
) -> Result<(), Failure> {
    let until = Instant::now() + HELD_MAX;
    while partition.cursors().high_watermark < due && hook.syncs_waiting() == 0 {
        context.check()?;
        if until < Instant::now() {
            return Err(Failure::Wrong("no sync begins".to_owned()));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Ok(())
}

impl Moment {
    async fn of(
        name: &'static str,
        partition: &Partition,
        consumer: &Consumer,
    ) -> Result<Moment, Failure> {
        let mut other = Consumer::new(partition);
        let mut readable = 0;
        loop {
            let taken = other.take(u64::MAX).await?;
            readable += taken;
            if taken == 0 {
                break;
            }
        }
        Ok(Moment { name, cursors: partition.cursors(), position: consumer.position, readable })
    }

    fn record(&self, recorder: &mut Recorder) {
        recorder.vary("moment", self.name);
        let Cursors { log_start, high_watermark, log_end, next, durable_end, recovery_point } =
            self.cursors;
        for (name, offset) in [
            ("log_start_offset", log_start),
            ("high_watermark", high_watermark),
            ("log_end_offset", log_end),
            ("next_offset", next),
            ("durable_end_offset", durable_end),
            ("recovery_point", recovery_point),
            ("position", Offset(self.position)),
        ] {
            recorder.figure(name, offset.0, unit::OFFSET);
        }
        recorder.figure("readable_records", self.readable, unit::COUNT);
    }
}

fn check(
    moment: &Moment,
    (programme, durability): (&Programme, Durability),
    recorder: &mut Recorder,
) {
    let cursors = moment.cursors;
    let acknowledged = programme.records - programme.unsynced;
    let is_device = durability == Durability::Device;
    let (visible, next) = match moment.name {
        "acknowledged" => (acknowledged, acknowledged),
        "held" if is_device => (acknowledged, programme.records),
        _ => (programme.records, programme.records),
    };
    let mut expect = |name: &str, measured: u64, expected: u64| {
        let name = format!("{name}_{}", moment.name);
        recorder.expect(&name, (measured, expected), DOCUMENT);
    };
    expect("log_start_offset", cursors.log_start.0, programme.deleted);
    expect("high_watermark", cursors.high_watermark.0, visible);
    expect("next_offset", cursors.next.0, next);
    expect("position", moment.position, programme.consumed);
    expect("readable_records", moment.readable, visible - programme.deleted);
    if is_device {
        expect("durable_end_offset", cursors.durable_end.0, visible);
    }
}

/// As the document lists the offsets: who keeps it, and what it means.
fn table(moments: &[Moment; 3], recorder: &mut Recorder) {
    let columns = ["offset", "kept by", "acknowledged", "held", "released", "means"];
    let mut table = Table::new("The offsets of a partition", &columns);
    type Value = fn(&Moment) -> u64;
    let rows: [(&str, &str, Value, &str); 7] = [
        ("log start", "broker", |it| it.cursors.log_start.0, "first record that can be read"),
        (
            "high watermark",
            "leader",
            |it| it.cursors.high_watermark.0,
            "consumers read up to here: acknowledged as the tier promises",
        ),
        ("log end", "broker", |it| it.cursors.log_end.0, "end of what is known to be written"),
        ("next", "broker", |it| it.cursors.next.0, "what the next record gets"),
        ("durable end", "broker", |it| it.cursors.durable_end.0, "what is on the device ends here"),
        (
            "recovery point",
            "broker",
            |it| it.cursors.recovery_point.0,
            "a restart need not look at what lies before it",
        ),
        ("position", "consumer", |it| it.position, "what the consumer gets next"),
    ];
    for (name, keeper, value, means) in rows {
        let values = moments.iter().map(|it| value(it).to_string());
        let cells = [name.to_owned(), keeper.to_owned()].into_iter().chain(values);
        table.row(cells.chain([means.to_owned()]).collect());
    }
    recorder.table(table);
}
