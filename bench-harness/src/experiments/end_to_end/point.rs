//! Carries out the maximum and the points of a sweep.

use std::time::Duration;

use super::programme::{self, Shape, Sweep};
use super::record::{self, Point};
use crate::engines::server::{self, Server};
use crate::engines::usage::Usage;
use crate::experiments::Failure;
use crate::experiments::load::served::{Observed, observe};
use crate::experiments::load::{Kind, Pace, Plan, Reach, Tally};
use crate::experiments::measure::f64_of;
use crate::record::{Recorder, unit};
use crate::run::Context;
use crate::run::terminal::Task;

/// Batches up to this are taken by topics without a setting.
const BATCH_BYTES_DEFAULT: u64 = 1 << 20;
/// What is written beforehand takes as long as it takes.
const FILL_MAX: Duration = Duration::from_secs(3600);
const MIB: u64 = 1 << 20;

/// Load that nobody looks at.
///
/// # Errors
/// Whatever the server refuses.
pub fn warm_up(context: &Context, server: &mut Server) -> Result<(), Failure> {
    let sweeps = programme::sweeps(context);
    let Some(sweep) = sweeps.first() else { return Ok(()) };
    let counted = seconds(context, programme::warm_up_of(context));
    let topic = "warm-up".to_owned();
    let plan = plan(context, server, (Kind::EndToEnd, &sweep.shape, topic.clone()));
    let plan = Plan { counted, ..closed(context, plan) };
    let observed = observe(context, server, (plan, counted), &mut |_, _, _| ())?;
    observed.measured.broken_off.map_or(Ok(()), Err)?;
    delete(server, &topic)
}

/// The maximum of the sweep, then its points; each is recorded as soon as it is there. Returns the
/// throughput of the maximum, when it was looked for.
///
/// # Errors
/// Whatever the server refuses, and its end.
pub fn sweep(
    context: &Context,
    (number, server): (usize, &mut Server),
    (sweep, recorder): (&Sweep, &mut Recorder),
    progress: &Task,
) -> Result<Option<f64>, Failure> {
    record::begin(recorder, sweep);
    let mut table = record::table(context, sweep);
    let topic = format!("{}-{number}", programme::name(sweep.kind));
    let mut steps = Steps { context, server, sweep, topic, maximum: None };
    let outcome = steps.all(recorder, &mut table, progress);
    let maximum = steps.maximum;
    recorder.table(table);
    record::end(context, recorder);
    outcome.map(|()| maximum)
}

struct Steps<'a> {
    context: &'a Context,
    server: &'a mut Server,
    sweep: &'a Sweep,
    topic: String,
    maximum: Option<f64>,
}

impl Steps<'_> {
    fn all(
        &mut self,
        recorder: &mut Recorder,
        table: &mut crate::record::Table,
        progress: &Task,
    ) -> Result<(), Failure> {
        if self.sweep.kind == Kind::Fetch {
            self.fill()?;
        }
        let given = self.context.parameters.number("rate");
        let rate = if 0 < given { f64_of(given) } else { self.maximum(recorder, table)? };
        progress.advance(1);
        for percent in self.sweep.percents.clone() {
            recorder.vary("percent", percent);
            let outcome = self.point((percent, rate), recorder, table);
            recorder.forget("percent");
            outcome?;
            progress.advance(1);
        }
        if self.sweep.kind == Kind::Fetch { delete(self.server, &self.topic) } else { Ok(()) }
    }

    /// What fetches read from.
    fn fill(&mut self) -> Result<(), Failure> {
        let parameters = &self.context.parameters;
        let batch = programme::batch_bytes(&self.sweep.shape, parameters);
        let requests_max =
            programme::requests_for(parameters.number("fetch_data_mib") * MIB, batch);
        let mut shape = self.sweep.shape.clone();
        "all".clone_into(&mut shape.acks);
        let what = (Kind::Produce, &shape, self.topic.clone());
        let plan = plan(self.context, self.server, what);
        let pace = Pace::Closed { requests_max };
        let plan = Plan { pace, warm_up: Duration::ZERO, counted: FILL_MAX, ..plan };
        let every = Duration::from_secs(1);
        let filled = observe(self.context, self.server, (plan, every), &mut |_, _, _| ())?;
        filled.measured.broken_off.map_or(Ok(()), Err)
    }

    /// Requests a second.
    fn maximum(
        &mut self,
        recorder: &mut Recorder,
        table: &mut crate::record::Table,
    ) -> Result<f64, Failure> {
        let parameters = &self.context.parameters;
        let topic = self.topic_of("maximum");
        let what = (self.sweep.kind, &self.sweep.shape, topic.clone());
        let plan = closed(self.context, plan(self.context, self.server, what));
        let batch = programme::batch_bytes(&self.sweep.shape, parameters);
        let most = parameters.number("point_mib_max") * MIB;
        let requests_max = match self.sweep.kind {
            Kind::Fetch => u64::MAX,
            Kind::Produce | Kind::EndToEnd => programme::requests_for(most, batch),
        };
        let plan = Plan { pace: Pace::Closed { requests_max }, ..plan };
        let observed = self.observed(plan, "maximum", recorder)?;
        let point = Point { percent: None, offered: None, rate_given: 0, observed: &observed };
        let rate = observed.measured.answered_rate();
        record::point(recorder, self.sweep, &point, table);
        let bytes = observed.measured.bytes_rate();
        observed.measured.broken_off.map_or(Ok(()), Err)?;
        self.emptied(&topic)?;
        if rate <= 0.0 {
            return Err(Failure::Wrong(format!(
                "no request that counts was answered while the maximum of {} was looked for; \
                 raise --set maximum_seconds",
                programme::name(self.sweep.kind)
            )));
        }
        self.maximum = Some(bytes);
        Ok(rate)
    }

    fn point(
        &mut self,
        (percent, maximum): (u64, f64),
        recorder: &mut Recorder,
        table: &mut crate::record::Table,
    ) -> Result<(), Failure> {
        let parameters = &self.context.parameters;
        let rate = maximum * f64_of(percent) / 100.0;
        let topic = self.topic_of(&percent.to_string());
        let what = (self.sweep.kind, &self.sweep.shape, topic.clone());
        let mut plan = Plan { pace: Pace::Rate(rate), ..plan(self.context, self.server, what) };
        if self.sweep.kind != Kind::Fetch {
            let batch = programme::batch_bytes(&self.sweep.shape, parameters);
            let times = (plan.warm_up, plan.counted);
            let most = parameters.number("point_mib_max") * MIB;
            let (warm_up, counted, is_cut) = programme::within(times, rate * f64_of(batch), most);
            plan = Plan { warm_up, counted, ..plan };
            if is_cut {
                recorder.note(
                    "Points that would have written more than point_mib_max are as much shorter.",
                );
            }
        }
        let scheduled = programme::scheduled(rate, plan.warm_up + plan.counted);
        let label = format!("{percent} %");
        let observed = self.observed(plan, &label, recorder)?;
        let point = Point {
            percent: Some(percent),
            offered: Some(rate),
            rate_given: self.context.parameters.number("rate"),
            observed: &observed,
        };
        record::point(recorder, self.sweep, &point, table);
        observed.measured.broken_off.map_or(Ok(()), Err)?;
        let had = observed.measured.tally.scheduled_count();
        recorder.figure("scheduled_requests", had, unit::COUNT.told());
        // A difference, so that all points are one line of the report.
        let source = "an open loop offers what its rate says, whatever becomes of it";
        recorder.expect("requests_beside_the_schedule", (had.abs_diff(scheduled), 0), source);
        self.emptied(&topic)
    }

    /// A fetch reads what was written for all points; others begin anew.
    fn topic_of(&self, point: &str) -> String {
        match self.sweep.kind {
            Kind::Fetch => self.topic.clone(),
            Kind::Produce | Kind::EndToEnd => format!("{}-{point}", self.topic),
        }
    }

    fn emptied(&mut self, topic: &str) -> Result<(), Failure> {
        if self.sweep.kind == Kind::Fetch { Ok(()) } else { delete(self.server, topic) }
    }

    fn observed(
        &mut self,
        plan: Plan,
        label: &str,
        recorder: &mut Recorder,
    ) -> Result<Observed, Failure> {
        /// Looks at the server's process in a point.
        const LOOKS: u32 = 10;
        let every = (plan.warm_up + plan.counted) / LOOKS;
        let every = every.clamp(Duration::from_millis(20), Duration::from_secs(1));
        let event = format!("{} {label}", programme::name(self.sweep.kind));
        let begun = recorder.elapsed();
        recorder.event_at("load", begun, &event);
        recorder.flush();
        let mut before: Option<Usage> = None;
        let mut each = |elapsed: Duration, _: &mut Tally, samples: &[Usage]| {
            for usage in samples {
                record::sample(recorder, begun + elapsed, (before, usage));
                before = Some(*usage);
            }
        };
        let observed = observe(self.context, self.server, (plan, every), &mut each)?;
        recorder.flush();
        Ok(observed)
    }
}

fn seconds(context: &Context, name: &str) -> Duration {
    Duration::from_secs_f64(context.parameters.decimal(name))
}

fn plan(context: &Context, server: &Server, of: (Kind, &Shape, String)) -> Plan {
    let (kind, shape, topic) = of;
    let parameters = &context.parameters;
    let number = |name: &str| i32::try_from(parameters.number(name)).expect("bounded by the table");
    let batch = programme::batch_bytes(shape, parameters);
    let mut topic_settings = Vec::new();
    if BATCH_BYTES_DEFAULT < batch {
        topic_settings.push(("max.message.bytes".to_owned(), batch.to_string()));
    }
    Plan {
        kind,
        bootstrap: server.address.clone(),
        topic,
        topic_settings,
        partitions: i32::try_from(shape.partitions).expect("bounded by the table"),
        // To be changed by the caller.
        pace: Pace::Closed { requests_max: u64::MAX },
        connections: number("connections"),
        reach: Reach::ItsShare,
        in_flight: parameters.length("in_flight"),
        batch_records: usize::try_from(shape.batch_records).expect("usize is 64 bits"),
        record_bytes: parameters.length("record_bytes"),
        acks: shape.acks(),
        fetch_bytes: number("fetch_bytes"),
        warm_up: seconds(context, "warm_up_seconds"),
        counted: seconds(context, "seconds"),
    }
}

/// A fifth of the search for a maximum doesn't count.
fn closed(context: &Context, plan: Plan) -> Plan {
    let whole = seconds(context, "maximum_seconds");
    Plan { warm_up: whole / 5, counted: whole / 5 * 4, ..plan }
}

fn delete(server: &mut Server, topic: &str) -> Result<(), Failure> {
    let deleted = server::block_on(async {
        server.client().await?.delete_topic(topic).await.map_err(Failure::from)
    });
    deleted.map_err(|failure| match server.ending(Duration::from_secs(2)) {
        Some(how) => Failure::Wrong(how),
        None => failure,
    })
}
