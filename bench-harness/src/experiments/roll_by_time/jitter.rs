//! Many partitions whose segments began together: without `segment.jitter.ms` they all roll in the
//! same turn, with it one after the other. Every append is timed, and the files say which rolled.
//!
//! In a turn every partition gets a batch of one record, all with the turn's time; so the base
//! offset of a segment is the number of the turn that began it.

use std::time::{Duration, Instant};

use serde_json::Value;
use uringlog::{Engine, Partition, Timestamp, now};

use crate::engines::{batches, files, library};
use crate::experiments::measure::{f64_of, u64_of, usize_of};
use crate::experiments::roll_by_size::cost::one_turn;
use crate::experiments::{DoingTo, Failure};
use crate::record::figure::Better;
use crate::record::picture::names;
use crate::record::{Kind, Latency, Picture, Recorder, Table, Unit, unit};
use crate::run::Context;

const RULE: &str = "the rule: older than segment.ms minus a draw below segment.jitter.ms";
const MS: Unit = Unit { name: "ms", better: Better::None };
const PARTITIONS: Unit = Unit { name: "partitions", better: Better::None };

/// A turn, and what was measured in it.
struct Turn {
    /// When it began.
    at: Duration,
    /// Of each partition, until its acknowledgement.
    took: Vec<Duration>,
}

/// Every value of the sweep.
///
/// # Errors
/// Whatever the log refuses.
pub fn run(context: &Context, recorder: &mut Recorder) -> Result<(), Failure> {
    let sweep = context.parameters.numbers("jitter_ms");
    let columns = ["segment.jitter.ms", "first roll after, ms", "rolls", "most in one turn"];
    let mut table = Table::new("Segments that began together", &columns);
    for jitter in &sweep {
        recorder.vary("jitter_ms", *jitter);
        let mut options = library::options(context)?;
        options.directory = context.folder.join(format!("jitter-{jitter}"));
        let row = library::with_engine(context, options.clone(), async |engine| {
            point(context, engine, (*jitter, recorder)).await
        })?;
        table.row(row);
        std::fs::remove_dir_all(&options.directory).doing_to("remove", &options.directory)?;
    }
    recorder.vary("jitter_ms", Value::from(sweep.clone()));
    recorder.table(table);
    pictures(recorder, &sweep);
    Ok(())
}

async fn point(
    context: &Context,
    engine: &Engine,
    (jitter, recorder): (u64, &mut Recorder),
) -> Result<Vec<String>, Failure> {
    let mut partitions = Vec::new();
    let count = u32::try_from(context.parameters.number("jitter_partitions")).expect("bounded");
    for number in 0..count {
        let spec = library::spec(context, ("jitter", number), |config| {
            config.segment_ms = context.parameters.number("jitter_segment_ms");
            config.segment_jitter_ms = jitter;
            config.retention_ms = None;
        });
        partitions.push(engine.open_or_create(spec).await?);
    }
    let begun = recorder.elapsed();
    let turns = turns(context, &partitions).await?;
    // Of each partition, the turns in which it rolled.
    let mut rolled = Vec::new();
    for partition in &partitions {
        let segments = files::segments(partition.directory())?;
        rolled.push(segments.iter().skip(1).map(|it| it.base).collect::<Vec<u64>>());
    }
    let row = figures(context, (jitter, &rolled), recorder);
    let together = together(&rolled, turns.len());
    latencies((&turns, &rolled), recorder);
    for (turn, rolling) in turns.iter().zip(&together) {
        let at = begun + turn.at;
        recorder.sample_at("partitions that roll", at, (f64_of(*rolling), PARTITIONS));
    }
    Ok(row)
}

async fn turns(context: &Context, partitions: &[Partition]) -> Result<Vec<Turn>, Failure> {
    let parameters = &context.parameters;
    let (count, gap) = (parameters.number("jitter_turns"), parameters.number("jitter_gap_ms"));
    let value = batches::bytes(parameters.length("jitter_record_size"), context.seed);
    let first = batches::first_time(now(), (count, gap), "jitter_gap_ms")?;
    let progress = context.progress(count, "partitions that began together");
    let mut turns = Vec::new();
    let began = Instant::now();
    for turn in 0..count {
        context.check()?;
        let since = (turn * gap).cast_signed();
        let batch = batches::uniform(&[&value], Timestamp(first.0 + since));
        let copies = partitions.iter().map(|_| batches::copy(&batch)).collect();
        let at = began.elapsed();
        turns.push(Turn { at, took: one_turn(partitions, copies).await? });
        progress.advance(1);
    }
    Ok(turns)
}

/// How many partitions rolled in each turn.
fn together(rolled: &[Vec<u64>], turns: usize) -> Vec<u64> {
    let mut together = vec![0; turns];
    for turn in rolled.iter().flatten() {
        together[usize_of(*turn)] += 1;
    }
    together
}

fn figures(
    context: &Context,
    (jitter, rolled): (u64, &[Vec<u64>]),
    recorder: &mut Recorder,
) -> Vec<String> {
    let parameters = &context.parameters;
    let (segment, gap) =
        (parameters.number("jitter_segment_ms"), parameters.number("jitter_gap_ms"));
    let first: Vec<u64> = rolled.iter().filter_map(|it| it.first()).map(|it| it * gap).collect();
    let rolls = u64_of(rolled.iter().map(Vec::len).sum());
    let most = together(rolled, parameters.length("jitter_turns")).into_iter().max();
    let most = most.unwrap_or_default();
    let range = first.iter().min().zip(first.iter().max());
    let (earliest, limit) = (segment - jitter.min(segment), segment + gap);
    let is_kept = range.is_none_or(|(least, greatest)| earliest < *least && *greatest <= limit);
    recorder.expect("every_first_roll_is_due", (is_kept, true), RULE);
    if jitter == 0 && range.is_some() {
        let all = parameters.number("jitter_partitions");
        recorder.expect("most_that_roll_together", (most, all), RULE);
    }
    let shown = range.map_or("none".to_owned(), |(least, most)| format!("{least} to {most}"));
    recorder.figure("first_roll_ms", first, MS);
    let count = if jitter == 0 { unit::COUNT } else { unit::COUNT.told() };
    recorder.figure("rolls", rolls, count);
    recorder.figure("most_that_roll_together", most, count);
    vec![jitter.to_string(), shown, rolls.to_string(), most.to_string()]
}

fn latencies((turns, rolled): (&[Turn], &[Vec<u64>]), recorder: &mut Recorder) {
    let (mut rolling, mut other) = (Latency::new(), Latency::new());
    let (mut turn_rolling, mut turn_other) = (Latency::new(), Latency::new());
    for (number, turn) in turns.iter().enumerate() {
        let is_rolling = |partition: usize| rolled[partition].contains(&u64_of(number));
        let mut any = false;
        for (partition, took) in turn.took.iter().enumerate() {
            let rolls = is_rolling(partition);
            any |= rolls;
            let kind = if rolls { &mut rolling } else { &mut other };
            kind.record_at(turn.at, *took);
        }
        let slowest = turn.took.iter().max().copied().unwrap_or_default();
        let kind = if any { &mut turn_rolling } else { &mut turn_other };
        kind.record_at(turn.at, slowest);
    }
    recorder.latency("append_that_rolls", &rolling);
    recorder.latency("other_append", &other);
    recorder.latency("turn_that_rolls", &turn_rolling);
    recorder.latency("other_turn", &turn_other);
}

fn pictures(recorder: &mut Recorder, sweep: &[u64]) {
    for jitter in sweep.first().into_iter().chain(sweep.last().filter(|_| 1 < sweep.len())) {
        recorder.picture(
            Picture::new(
                &format!("rolls-over-time-jitter-{jitter}"),
                &format!("Partitions that roll in a turn, segment.jitter.ms={jitter}"),
                "Without jitter all partitions roll in the same turn, one tall peak for each \
                 segment.ms; with it the first peak spreads over as long as the jitter says.",
                Kind::Timeline { series: names(&["partitions that roll"]), events: Vec::new() },
            )
            .only("jitter_ms", *jitter),
        );
        recorder.picture(
            Picture::new(
                &format!("turn-latency-jitter-{jitter}"),
                &format!("A turn over all partitions, segment.jitter.ms={jitter}"),
                "How far the turns that roll lie above the others is what rolls cost all \
                 partitions of that turn; with jitter there are more such turns, and each is \
                 cheaper.",
                Kind::Percentiles { latencies: names(&["turn_that_rolls", "other_turn"]) },
            )
            .only("jitter_ms", *jitter),
        );
    }
    recorder.picture(Picture::new(
        "turn-by-jitter",
        "The slowest turn by jitter",
        "What the worst turn takes: with jitter fewer partitions make files in the same turn, and \
         the bar is lower.",
        Kind::Bars { figures: names(&["turn_that_rolls_max"]), by: Some("jitter_ms".to_owned()) },
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rolls_are_counted_by_turn() {
        assert_eq!(together(&[vec![2, 4], vec![2], vec![]], 5), [0, 0, 2, 0, 1]);
    }
}
