//! What is measured, in which order, and how long that takes: decided before anything runs.

use std::time::Duration;

use uringlog::client::Acks;

use crate::engines::EngineName;
use crate::experiments::load::{self, Kind};
use crate::experiments::measure::f64_of;
use crate::parameters::Parameters;
use crate::run::Context;

/// A load's shape: the base, or the base with one factor changed.
#[derive(Clone, PartialEq, Debug)]
pub struct Shape {
    /// `nothing`, or the factor's parameter.
    pub varied: &'static str,
    pub batch_records: u64,
    pub partitions: u64,
    /// As the parameter names it.
    pub acks: String,
}

impl Shape {
    fn base(parameters: &Parameters) -> Shape {
        Shape {
            varied: "nothing",
            batch_records: parameters.number("batch_records"),
            partitions: parameters.number("partitions"),
            acks: parameters.choice("acks").to_owned(),
        }
    }

    pub fn acks(&self) -> Acks {
        load::acks(&self.acks).expect("the parameter allows nothing else")
    }

    /// In words.
    pub fn shown(&self, parameters: &Parameters) -> String {
        let Shape { batch_records, partitions, acks, .. } = self;
        format!(
            "partitions {partitions}, batches of {batch_records} records of {} bytes, acks {acks}",
            parameters.number("record_bytes")
        )
    }
}

/// What is sent, as parameters name it.
pub fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::Produce => "produce",
        Kind::Fetch => "fetch",
        Kind::EndToEnd => "produce-to-consume",
    }
}

/// The same as part of a figure's name.
pub fn figure_name(kind: Kind) -> String {
    name(kind).replace('-', "_")
}

/// One load in one shape: its maximum, then shares of that.
#[derive(Clone, PartialEq, Debug)]
pub struct Sweep {
    pub kind: Kind,
    pub shape: Shape,
    /// Rising.
    pub percents: Vec<u64>,
}

/// Everything that one cell measures. One factor is varied at a time: batch size, partitions and
/// acks here; engine, tier and file system are cells of their own.
pub fn sweeps(context: &Context) -> Vec<Sweep> {
    let is_full = context.scale == crate::parameters::Scale::Full;
    of_parameters(&context.parameters, is_full)
}

pub fn of_parameters(parameters: &Parameters, is_full: bool) -> Vec<Sweep> {
    let base = Shape::base(parameters);
    let varies = match parameters.choice("vary") {
        "always" => true,
        "never" => false,
        _ => is_full,
    };
    let mut shapes = vec![base.clone()];
    if varies {
        let others = |name: &str, not: u64| {
            let points = parameters.numbers(name);
            points.into_iter().filter(move |it| *it != not)
        };
        shapes.extend(
            others("batch_records_sweep", base.batch_records).map(|batch_records| Shape {
                varied: "batch_records",
                batch_records,
                ..base.clone()
            }),
        );
        shapes.extend(others("partitions_sweep", base.partitions).map(|partitions| Shape {
            varied: "partitions",
            partitions,
            ..base.clone()
        }));
        shapes.extend(ACKS.iter().filter(|it| **it != base.acks).map(|acks| Shape {
            varied: "acks",
            acks: (*acks).to_owned(),
            ..base.clone()
        }));
    }
    let kinds = kinds(parameters.choice("loads"));
    let pairs = shapes.iter().flat_map(|shape| kinds.iter().map(move |kind| (shape, *kind)));
    // A fetch has no acks.
    let pairs = pairs.filter(|(shape, kind)| shape.varied != "acks" || *kind != Kind::Fetch);
    pairs
        .map(|(shape, kind)| {
            let is_base = shape.varied == "nothing";
            let name = if is_base { "percents" } else { "varied_percents" };
            let mut percents = parameters.numbers(name);
            percents.sort_unstable();
            percents.dedup();
            Sweep { kind, shape: shape.clone(), percents }
        })
        .collect()
}

/// What acks may be.
pub const ACKS: &[&str] = &["all", "1", "0"];

fn kinds(loads: &str) -> Vec<Kind> {
    let all = [Kind::Produce, Kind::Fetch, Kind::EndToEnd];
    all.into_iter().filter(|it| loads == "all" || loads == name(*it)).collect()
}

/// The parameter that says how long the engine's server is warmed up.
pub fn warm_up_of(context: &Context) -> &'static str {
    match context.engine() {
        Some(EngineName::Kafka) => "java_warm_up_seconds",
        _ => "server_warm_up_seconds",
    }
}

/// About how long a cell takes.
pub fn estimate(parameters: &Parameters, warm_up: &str, sweeps: &[Sweep]) -> Duration {
    /// Connections, topics and last answers.
    const BESIDE_EACH: Duration = Duration::from_millis(60);
    const SERVER: Duration = Duration::from_millis(400);
    let seconds = |name: &str| Duration::from_secs_f64(parameters.decimal(name));
    let is_given = 0 < parameters.number("rate");
    let maximum = if is_given { Duration::ZERO } else { seconds("maximum_seconds") };
    let point = seconds("warm_up_seconds") + seconds("seconds") + BESIDE_EACH;
    let of = |sweep: &Sweep| {
        let points = u32::try_from(sweep.percents.len()).unwrap_or(u32::MAX);
        maximum + BESIDE_EACH + point * points
    };
    SERVER + seconds(warm_up) + sweeps.iter().map(of).sum::<Duration>()
}

/// Times that keep what is written below a limit: both shortened alike, and whether they are.
pub fn within(
    (warm_up, counted): (Duration, Duration),
    bytes_per_second: f64,
    bytes_max: u64,
) -> (Duration, Duration, bool) {
    let share = f64_of(bytes_max) / (bytes_per_second * (warm_up + counted).as_secs_f64());
    if 1.0 <= share || !share.is_finite() {
        return (warm_up, counted, false);
    }
    (warm_up.mul_f64(share), counted.mul_f64(share), true)
}

/// How many requests the schedule has at a rate: those due before its end.
pub fn scheduled(rate: f64, length: Duration) -> u64 {
    let mut count = 0;
    // As the schedule does it: counting up would take as long as the schedule has requests.
    let mut step = 1_u64 << 62;
    while 0 < step {
        let last = count + step - 1;
        let due = f64_of(last) / rate;
        if due < 1e15 && Duration::from_secs_f64(due) < length {
            count += step;
        }
        step /= 2;
    }
    count
}

/// How many bytes of records a request moves to the server.
pub fn batch_bytes(shape: &Shape, parameters: &Parameters) -> u64 {
    crate::engines::batches::length(shape.batch_records, parameters.number("record_bytes"))
}

/// The percent of these that is nearest to one.
pub fn nearest(percents: &[u64], to: u64) -> Option<u64> {
    percents.iter().copied().min_by_key(|it| it.abs_diff(to))
}

/// Bytes of a list of batches as a count of requests, one at least.
pub fn requests_for(bytes: u64, batch: u64) -> u64 {
    bytes.div_ceil(batch.max(1)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::end_to_end::EXPERIMENT;
    use crate::parameters::Scale;

    fn parameters(scale: Scale, settings: &[&str]) -> Parameters {
        let settings: Vec<_> = settings.iter().map(|it| it.parse().expect("a setting")).collect();
        Parameters::new(&EXPERIMENT, scale, &settings).expect("values within bounds")
    }

    #[test]
    fn one_factor_is_varied_at_a_time() {
        let set = ["vary=always", "batch_records_sweep=1,10", "partitions_sweep=4,16"];
        let parameters = parameters(Scale::Quick, &set);
        let sweeps = of_parameters(&parameters, false);
        let base = Shape::base(&parameters);
        let differs = |it: &Shape| {
            [
                it.batch_records != base.batch_records,
                it.partitions != base.partitions,
                it.acks != base.acks,
            ]
        };
        for Sweep { shape, .. } in &sweeps {
            let differing = differs(shape).iter().filter(|it| **it).count();
            assert_eq!(differing, usize::from(shape.varied != "nothing"), "{shape:?}");
        }
        let of = |varied: &str| sweeps.iter().filter(|it| it.shape.varied == varied).count();
        // Three loads; a fetch has no acks, of which there are two others.
        let counts = ["nothing", "batch_records", "partitions", "acks"].map(of);
        assert_eq!(counts, [3, 3, 3, 4]);
    }

    #[test]
    fn quick_runs_vary_nothing_and_one_load_can_be_chosen() {
        let chosen = parameters(Scale::Quick, &["loads=fetch", "percents=100,10,10"]);
        let sweeps = of_parameters(&chosen, false);
        assert_eq!(sweeps.len(), 1);
        assert_eq!((sweeps[0].kind, &sweeps[0].percents), (Kind::Fetch, &vec![10, 100]));
        assert!(9 < of_parameters(&parameters(Scale::Full, &[]), true).len());
    }

    #[test]
    fn the_table_of_experiments_has_the_time_of_the_plan() {
        for scale in [Scale::Quick, Scale::Normal, Scale::Full] {
            let parameters = parameters(scale, &[]);
            let sweeps = of_parameters(&parameters, scale == Scale::Full);
            let planned = estimate(&parameters, "server_warm_up_seconds", &sweeps).as_secs_f64();
            let told = f64_of(EXPERIMENT.seconds.of(scale));
            let (low, high) = (0.9 * planned - 1.0, 1.1 * planned + 1.0);
            assert!((low..high).contains(&told), "{scale:?}: {planned} s planned, {told} s told");
        }
    }

    #[test]
    fn a_limit_on_bytes_shortens_the_times() {
        let times = (Duration::from_secs(1), Duration::from_secs(3));
        assert_eq!(within(times, 100.0, 400), (times.0, times.1, false));
        let (warm_up, counted, is_cut) = within(times, 100.0, 200);
        assert_eq!((warm_up.as_millis(), counted.as_millis(), is_cut), (500, 1500, true));
    }

    #[test]
    fn a_schedule_has_what_is_due_before_its_end() {
        let of = |rate, ms| scheduled(rate, Duration::from_millis(ms));
        assert_eq!((of(1000.0, 1000), of(1000.0, 1001), of(3.0, 1000)), (1000, 1001, 3));
        assert_eq!((of(0.5, 1000), of(7.0, 0)), (1, 0));
    }

    #[test]
    fn the_nearest_percent_is_found() {
        assert_eq!(nearest(&[10, 40, 100], 50), Some(40));
        assert_eq!(nearest(&[], 50), None);
    }
}
