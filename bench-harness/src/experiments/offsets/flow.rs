//! The offsets over time, while records are produced at a steady rate, consumed by one consumer
//! that keeps up and one that pauses, and taken away by `retention.bytes`.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::time::sleep;
use uringlog::{AppendError, ByteCount, Cursors, Durability, Engine, Offset, Partition, edge, now};

use super::consumer::Consumer;
use crate::engines::{batches, library};
use crate::experiments::Failure;
use crate::experiments::measure::{f64_of, u64_of, usize_of};
use crate::record::picture::names;
use crate::record::{Better, Kind, Latency, Picture, Recorder, Unit, unit};
use crate::run::Context;

const TOPIC: &str = "flow";
const RULE: &str = "the tier's promise";
/// Points of the series.
const SAMPLES: u32 = 300;
/// How often retention looks; the shard's chores come every 200 ms anyway.
const CHECK_MS: u64 = 100;
/// Batches that may be open; a slower device than the rate asks for makes the producer wait.
const OPEN_BATCHES_MAX: u64 = 64;
const LOOK_EVERY: Duration = Duration::from_millis(10);
const RECORDS: Unit = Unit { name: "records", better: Better::None };

/// What producer, consumers and the one who draws share.
struct Flow {
    partition: Partition,
    batch_records: u64,
    /// When each batch was appended.
    appended: RefCell<Vec<Instant>>,
    acknowledged: RefCell<Latency>,
    consumed: RefCell<Latency>,
    failed: Cell<Option<AppendError>>,
    position: Cell<u64>,
    slow_position: Cell<u64>,
    resets: Cell<u64>,
    is_over: Cell<bool>,
    seen: RefCell<Seen>,
}

/// What was seen of the offsets.
#[derive(Default)]
struct Seen {
    samples: Vec<Sample>,
    readable_before_durable: u64,
    appended_before_readable: u64,
    lag: u64,
    out_of_order: u64,
    log_start: u64,
    log_start_moves: u64,
}

#[derive(Clone, Copy)]
struct Sample {
    at: Instant,
    cursors: Cursors,
    position: u64,
    slow_position: u64,
}

impl Sample {
    /// What always holds, whatever happens.
    fn is_in_order(&self) -> bool {
        let Cursors { log_start, high_watermark, log_end, next, durable_end, recovery_point } =
            self.cursors;
        let is_log = log_start <= high_watermark && high_watermark <= log_end && log_end <= next;
        let is_disk = recovery_point <= durable_end && durable_end <= log_end;
        let positions = [self.position, self.slow_position];
        is_log && is_disk && positions.iter().all(|it| *it <= high_watermark.0)
    }
}

impl Seen {
    fn keep(&mut self, sample: Sample) {
        self.take(sample);
        self.samples.push(sample);
    }

    fn take(&mut self, sample: Sample) {
        let Cursors { log_start, high_watermark, next, durable_end, .. } = sample.cursors;
        let distance = |to: Offset, from: u64| to.0.saturating_sub(from);
        let most = |seen: &mut u64, value: u64| *seen = value.max(*seen);
        most(&mut self.readable_before_durable, distance(high_watermark, durable_end.0));
        most(&mut self.appended_before_readable, distance(next, high_watermark.0));
        most(&mut self.lag, distance(high_watermark, sample.slow_position));
        self.out_of_order += u64::from(!sample.is_in_order());
        self.log_start_moves += u64::from(self.log_start < log_start.0);
        self.log_start = log_start.0;
    }
}

/// Figures, series, latencies.
///
/// # Errors
/// Whatever the log refuses.
pub fn run(context: &Context, recorder: &mut Recorder) -> Result<(), Failure> {
    let mut options = library::options(context)?;
    options.directory = context.folder.join("flow");
    options.retention_check_ms = CHECK_MS;
    options.first_retention_ms = CHECK_MS;
    let flow = library::with_engine(context, options, async |engine| {
        let flow = Flow::open(context, engine).await?;
        tokio::try_join!(
            flow.produce(context),
            flow.consume(context),
            flow.consume_slowly(context),
            flow.watch(context)
        )?;
        Ok(flow)
    })?;
    flow.record(context, recorder);
    pictures(recorder);
    Ok(())
}

impl Flow {
    async fn open(context: &Context, engine: &Engine) -> Result<Rc<Flow>, Failure> {
        let parameters = &context.parameters;
        let spec = library::spec(context, (TOPIC, 0), |config| {
            config.segment_bytes = ByteCount(parameters.number("segment_bytes"));
            config.retention_bytes = Some(ByteCount(parameters.number("retention_bytes")));
            config.batch_bytes_max = config.segment_bytes;
        });
        Ok(Rc::new(Flow {
            partition: engine.open_or_create(spec).await?,
            batch_records: parameters.number("flow_batch_records"),
            appended: RefCell::default(),
            acknowledged: RefCell::default(),
            consumed: RefCell::default(),
            failed: Cell::default(),
            position: Cell::default(),
            slow_position: Cell::default(),
            resets: Cell::default(),
            is_over: Cell::default(),
            seen: RefCell::default(),
        }))
    }

    fn sample(&self) -> Sample {
        Sample {
            at: Instant::now(),
            cursors: self.partition.cursors(),
            position: self.position.get(),
            slow_position: self.slow_position.get(),
        }
    }

    /// At the rate asked for, without waiting for acknowledgements, unless too many are open.
    async fn produce(self: &Rc<Self>, context: &Context) -> Result<(), Failure> {
        let parameters = &context.parameters;
        let value = batches::bytes(parameters.length("record_size"), context.seed);
        let values = vec![value.as_slice(); usize_of(self.batch_records)];
        let rate = f64_of(parameters.number("rate")) / f64_of(self.batch_records);
        let interval = Duration::from_secs_f64(1.0 / rate);
        let whole = Duration::from_secs_f64(parameters.decimal("seconds"));
        let progress = context.progress(whole.as_secs(), "offsets over time");
        let (started, mut due, mut told) = (Instant::now(), Instant::now(), 0);
        while started.elapsed() < whole {
            context.check()?;
            sleep(due.saturating_duration_since(Instant::now())).await;
            due += interval;
            let appended = self.partition.append(batches::uniform(&values, now()))?;
            self.appended.borrow_mut().push(Instant::now());
            self.seen.borrow_mut().take(self.sample());
            let reached = self.partition.reached(appended.due);
            edge::spawn(self.clone().acknowledge(Instant::now(), reached));
            let Cursors { next, high_watermark, .. } = self.partition.cursors();
            if OPEN_BATCHES_MAX * self.batch_records < next.0 - high_watermark.0 {
                self.partition.reached(appended.due).await?;
            }
            let passed = started.elapsed().as_secs().min(whole.as_secs());
            progress.advance(passed - told);
            told = passed;
        }
        self.partition.reached(self.partition.cursors().next).await?;
        self.is_over.set(true);
        Ok(())
    }

    async fn acknowledge(
        self: Rc<Self>,
        appended: Instant,
        reached: impl Future<Output = Result<(), AppendError>>,
    ) {
        match reached.await {
            Ok(()) => self.acknowledged.borrow_mut().record(appended.elapsed()),
            Err(error) => self.failed.set(Some(error)),
        }
    }

    /// Gets each record as soon as it can be read.
    async fn consume(&self, context: &Context) -> Result<(), Failure> {
        let mut consumer = Consumer::new(&self.partition);
        loop {
            context.check()?;
            let before = consumer.position;
            let taken = consumer.take(u64::MAX).await?;
            self.position.set(consumer.position);
            if 0 < taken {
                self.note_consumed(before, consumer.position);
            }
            if taken == 0 && self.is_over.get() {
                return Ok(());
            }
            if taken == 0 {
                // When nothing comes any more, nothing wakes it.
                tokio::select! {
                    () = self.partition.changed(Offset(consumer.position)) => {}
                    () = sleep(LOOK_EVERY) => {}
                }
            }
        }
    }

    /// The batches between two positions have come.
    fn note_consumed(&self, from: u64, to: u64) {
        let (appended, mut consumed) = (self.appended.borrow(), self.consumed.borrow_mut());
        for batch in from / self.batch_records..to / self.batch_records {
            consumed.record(appended[usize_of(batch)].elapsed());
        }
    }

    /// Gets all there are, and then does something else for a while.
    async fn consume_slowly(&self, context: &Context) -> Result<(), Failure> {
        let mut consumer = Consumer::new(&self.partition);
        while !self.is_over.get() {
            context.check()?;
            let taken = consumer.take(u64::MAX).await?;
            self.slow_position.set(consumer.position);
            self.resets.set(consumer.resets);
            if taken == 0 {
                let until =
                    Instant::now() + Duration::from_millis(context.parameters.number("pause_ms"));
                while Instant::now() < until && !self.is_over.get() {
                    sleep(LOOK_EVERY.min(until - Instant::now())).await;
                }
            }
            // With no pause it is to leave the others time.
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    async fn watch(&self, context: &Context) -> Result<(), Failure> {
        let every = Duration::from_secs_f64(context.parameters.decimal("seconds")) / SAMPLES;
        while !self.is_over.get() {
            context.check()?;
            if let Some(error) = self.failed.take() {
                return Err(error.into());
            }
            self.seen.borrow_mut().keep(self.sample());
            sleep(every).await;
        }
        Ok(())
    }

    fn record(&self, context: &Context, recorder: &mut Recorder) {
        let seen = self.seen.borrow();
        let produced = u64_of(self.appended.borrow().len()) * self.batch_records;
        let told = unit::COUNT.told();
        for (name, count) in [
            ("readable_before_durable_max", seen.readable_before_durable),
            ("appended_before_readable_max", seen.appended_before_readable),
            ("consumer_lag_max", seen.lag),
            ("records_produced", produced),
            ("records_consumed", self.position.get()),
            ("log_start_moves", seen.log_start_moves),
            ("consumer_resets", self.resets.get()),
        ] {
            recorder.figure(name, count, told);
        }
        recorder.latency("append_to_acknowledged", &self.acknowledged.borrow());
        recorder.latency("append_to_consumed", &self.consumed.borrow());
        recorder.expect("offsets_out_of_order", (seen.out_of_order, 0), RULE);
        recorder.expect("all_records_are_consumed", (self.position.get(), produced), RULE);
        let is_early = 0 < seen.readable_before_durable;
        let may_be = context.durability() == Durability::PageCache;
        recorder.expect("records_can_be_read_before_they_are_durable", (is_early, may_be), RULE);
        self.series(&seen, recorder);
    }

    fn series(&self, seen: &Seen, recorder: &mut Recorder) {
        let mut log_start = 0;
        for sample in &seen.samples {
            let at = recorder.elapsed().saturating_sub(sample.at.elapsed());
            let Cursors { log_start: start, high_watermark, log_end, next, durable_end, .. } =
                sample.cursors;
            let distance = |to: Offset, from: u64| to.0.saturating_sub(from);
            for (name, offset) in [
                ("next offset", next.0),
                ("log end", log_end.0),
                ("high watermark", high_watermark.0),
                ("position", sample.position),
                ("position of a slow consumer", sample.slow_position),
                ("recovery point", sample.cursors.recovery_point.0),
                ("log start", start.0),
            ] {
                recorder.sample_at(name, at, (f64_of(offset), unit::OFFSET));
            }
            for (name, records) in [
                ("appended, not readable", distance(next, high_watermark.0)),
                ("readable, not durable", distance(high_watermark, durable_end.0)),
                ("readable, not consumed", distance(high_watermark, sample.slow_position)),
            ] {
                recorder.sample_at(name, at, (f64_of(records), RECORDS));
            }
            if log_start < start.0 {
                recorder.event_at("log start moves", at, "");
                log_start = start.0;
            }
        }
    }
}

fn pictures(recorder: &mut Recorder) {
    recorder.picture(Picture::new(
        "offsets-over-time",
        "A partition's offsets over time",
        "The log's end, the high watermark and a consumer that keeps up climb as one line; one \
         that pauses climbs in stairs below it. The recovery point climbs with each segment that \
         is synced, or with each sync. The log start follows in steps of whole segments, where \
         marked.",
        Kind::Timeline {
            series: names(&[
                "next offset",
                "log end",
                "high watermark",
                "position",
                "position of a slow consumer",
                "recovery point",
                "log start",
            ]),
            events: names(&["log start moves"]),
        },
    ));
    recorder.picture(Picture::new(
        "distances-over-time",
        "What is appended, readable, durable, consumed: the distances between",
        "Device tier: nothing that can be read is not durable, so that line lies at zero, and what \
         was appended stays unreadable for the time of a sync. Page-cache tier: what can be read \
         runs ahead of what is durable until a segment is closed and synced.",
        Kind::Timeline {
            series: names(&["appended, not readable", "readable, not durable"]),
            events: names(&["log start moves"]),
        },
    ));
    recorder.picture(Picture::new(
        "lag-over-time",
        "Lag of a consumer that pauses",
        "A saw: up while it pauses, at the rate of the producer, down when it reads.",
        Kind::Timeline { series: names(&["readable, not consumed"]), events: Vec::new() },
    ));
    recorder.picture(Picture::new(
        "append-to-consumed",
        "From append to acknowledgement, and to the consumer",
        "The consumer gets a record when its producer gets the acknowledgement, and not before: \
         the lines of an engine differ by what reading takes. In the device tier both wait for the \
         sync.",
        Kind::Percentiles { latencies: names(&["append_to_acknowledged", "append_to_consumed"]) },
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(offsets: [u64; 6], position: u64, slow_position: u64) -> Sample {
        let [log_start, durable_end, recovery_point, high_watermark, log_end, next] =
            offsets.map(Offset);
        let cursors =
            Cursors { log_start, high_watermark, log_end, next, durable_end, recovery_point };
        Sample { at: Instant::now(), cursors, position, slow_position }
    }

    #[test]
    fn distances_and_moves_are_kept() {
        let mut seen = Seen::default();
        seen.take(sample([0, 4, 2, 8, 8, 10], 8, 5));
        seen.take(sample([3, 8, 2, 8, 8, 9], 8, 8));
        assert_eq!((seen.readable_before_durable, seen.appended_before_readable), (4, 2));
        assert_eq!((seen.lag, seen.log_start_moves, seen.out_of_order), (3, 1, 0));
        // A consumer that got what it may not read yet, and a log end before the high watermark.
        seen.take(sample([3, 8, 2, 8, 8, 9], 9, 8));
        seen.take(sample([3, 7, 2, 8, 7, 9], 8, 8));
        assert_eq!(seen.out_of_order, 2);
    }
}
