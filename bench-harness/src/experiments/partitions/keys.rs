//! Records with keys: a producer takes the key's hash modulo the number of partitions, so most keys
//! belong elsewhere as soon as that number changes. What is stored already stays where it is.

use std::collections::BTreeMap;

use serde_json::Value;
use uringlog::client::{key_hash, partition_of_key};
use uringlog::{BatchBuilder, Codec, NewRecord, now};

use crate::engines::reach::Reach;
use crate::engines::sink::Sink;
use crate::engines::stored;
use crate::experiments::Failure;
use crate::experiments::measure::{f64_of, u64_of, usize_of};
use crate::record::picture::names;
use crate::record::{Kind, Picture, Recorder, Table, unit};
use crate::run::Context;

const RULE: &str = "each key has a record of before and one of after";
/// Keys that the table shows.
const SHOWN: u64 = 10;
/// A batch is sent when its records have so many bytes.
const BATCH_BYTES: usize = 100_000;

/// Growing is meant.
///
/// # Errors
/// Fewer partitions afterwards.
pub fn check(context: &Context) -> Result<(), Failure> {
    let parameters = &context.parameters;
    let before = parameters.number("partitions");
    match parameters.numbers("grown_partitions").into_iter().find(|it| *it < before) {
        None => Ok(()),
        Some(after) => Err(Failure::Usage(format!(
            "grown_partitions={after} is below partitions={before}: a topic can only get more"
        ))),
    }
}

fn key(number: u64) -> Vec<u8> {
    format!("user-{number}").into_bytes()
}

/// Where a key's records were found.
#[derive(Clone, Copy, Default)]
struct Found {
    before: Option<u32>,
    after: Option<u32>,
}

/// A topic for each number of partitions afterwards.
///
/// # Errors
/// Whatever is refused, and records that aren't where they were sent.
pub async fn run(
    context: &Context,
    reach: &Reach<'_>,
    recorder: &mut Recorder,
) -> Result<(), Failure> {
    let parameters = &context.parameters;
    let (before, keys) = (parameters.number("partitions"), parameters.number("keys"));
    let grown = parameters.numbers("grown_partitions");
    let columns = ["partitions", "of them used by keys", "keys moved", "share", "an even hash"];
    let mut table = Table::new("Keys that move when partitions grow", &columns);
    for after in &grown {
        context.check()?;
        recorder.vary("grown_partitions", *after);
        let count = u32::try_from(*after).expect("at most 1,000");
        let sink = reach.topic((&format!("keys-{after}"), count), &[]).await?;
        send(context, &sink, (before, b"before")).await?;
        send(context, &sink, (*after, b"after")).await?;
        let found = read_back(&sink, keys)?;
        let moved = figures(context, (before, *after), (&found, recorder));
        let share = format!("{:.1} %", 100.0 * f64_of(moved) / f64_of(keys));
        let even = format!("{:.1} %", 100.0 * even_share(before, *after));
        let used = spread(&found, count, |it| it.after).iter().filter(|it| 0 < **it).count();
        let growth = format!("{before} -> {after}");
        table.row(vec![growth, used.to_string(), moved.to_string(), share, even]);
        if grown.first() == Some(after) {
            first_keys(context, (*after, &found), recorder);
        }
    }
    recorder.table(table);
    recorder.vary("grown_partitions", Value::from(grown));
    notes(recorder);
    Ok(())
}

/// A record of each key, in one batch after the other for each partition, as a producer does that
/// knows of so many partitions.
async fn send(
    context: &Context,
    sink: &Sink,
    (partitions, value): (u64, &[u8]),
) -> Result<(), Failure> {
    let at = now();
    let empty = || BatchBuilder::new(Codec::None);
    let mut open: Vec<BatchBuilder> = (0..partitions).map(|_| empty()).collect();
    let record = |key: &[u8], batch: &mut BatchBuilder| {
        let record = NewRecord { timestamp: at, key: Some(key), value: Some(value), headers: &[] };
        batch.push(&record);
    };
    for number in 0..context.parameters.number("keys") {
        let key = key(number);
        let partition = partition_of_key(&key, open.len());
        record(&key, &mut open[partition]);
        if BATCH_BYTES <= open[partition].size() {
            context.check()?;
            let full = std::mem::replace(&mut open[partition], empty());
            let partition = u32::try_from(partition).expect("at most 1,000");
            sink.append(partition, full.build()).await?;
        }
    }
    for (partition, batch) in (0..).zip(open).filter(|(_, it)| 0 < it.count()) {
        sink.append(partition, batch.build()).await?;
    }
    Ok(())
}

fn read_back(sink: &Sink, keys: u64) -> Result<Vec<Found>, Failure> {
    let numbers: BTreeMap<Vec<u8>, usize> = (0..keys).map(|it| (key(it), usize_of(it))).collect();
    let mut found = vec![Found::default(); usize_of(keys)];
    for partition in 0..sink.partitions() {
        for batch in stored::batches(&sink.directory(partition))? {
            batch.each_record(|record| {
                let Some(number) = record.key.and_then(|it| numbers.get(it)) else { return };
                let place = match record.value {
                    Some(b"before") => &mut found[*number].before,
                    _ => &mut found[*number].after,
                };
                *place = Some(partition);
            })?;
        }
    }
    Ok(found)
}

fn figures(
    context: &Context,
    (before, after): (u64, u64),
    (found, recorder): (&[Found], &mut Recorder),
) -> u64 {
    let both = found.iter().filter(|it| it.before.is_some() && it.after.is_some()).count();
    recorder.expect("keys_with_both_records", (both, found.len()), RULE);
    let moved = u64_of(found.iter().filter(|it| it.before != it.after).count());
    let count = |it: u64| u32::try_from(it).expect("at most 1,000");
    let spread_before = spread(found, count(before), |it| it.before);
    let spread_after = spread(found, count(after), |it| it.after);
    recorder.figure("keys_per_partition", spread_before, unit::COUNT);
    recorder.figure("keys_per_partition_grown", spread_after, unit::COUNT);
    recorder.figure("moved_keys", moved, unit::COUNT);
    recorder.figure("moved_share", f64_of(moved) / f64_of(u64_of(found.len())), unit::RATIO);
    let example = found.get(context.parameters.length("example_key"));
    if let Some((was, is)) = example.and_then(|it| it.before.zip(it.after)) {
        recorder.figure("example_key_partition", was, unit::COUNT);
        recorder.figure("example_key_partition_grown", is, unit::COUNT);
    }
    moved
}

/// Keys in each partition.
fn spread(found: &[Found], partitions: u32, of: impl Fn(&Found) -> Option<u32>) -> Vec<u64> {
    let mut counts: BTreeMap<u32, u64> = (0..partitions).map(|it| (it, 0)).collect();
    for partition in found.iter().filter_map(of) {
        *counts.entry(partition).or_default() += 1;
    }
    counts.into_values().collect()
}

/// The share of keys that moves if hashes are even: of as many hashes in a row as both numbers
/// divide, those stay that leave the same remainder by both.
fn even_share(before: u64, after: u64) -> f64 {
    let (mut one, mut other) = (before, after);
    while other != 0 {
        (one, other) = (other, one % other);
    }
    let period = before / one * after;
    1.0 - f64_of(before.min(after)) / f64_of(period)
}

fn first_keys(context: &Context, (after, found): (u64, &[Found]), recorder: &mut Recorder) {
    let example = context.parameters.number("example_key");
    let before = context.parameters.number("partitions");
    let title = format!("Keys and their partitions, {before} and then {after}");
    let mut table = Table::new(&title, &["key", "murmur2", "before", "after"]);
    let shown = |it: Option<u32>| it.map_or("none".to_owned(), |it| it.to_string());
    let first = (0..SHOWN.min(u64_of(found.len())))
        .chain((SHOWN <= example && example < u64_of(found.len())).then_some(example));
    for number in first {
        let Found { before, after } = found[usize_of(number)];
        let key = key(number);
        let hash = key_hash(&key).cast_signed().to_string();
        let name = String::from_utf8_lossy(&key).into_owned();
        table.row(vec![name, hash, shown(before), shown(after)]);
    }
    recorder.table(table);
}

/// What growing looks like.
pub fn pictures(context: &Context, recorder: &mut Recorder) {
    let way = if context.parameters.choice("through") == "library" { "library" } else { "wire" };
    recorder.picture(
        Picture::new(
            "moved-keys",
            "Share of the keys that move, by partitions afterwards",
            "Twice the partitions move half of the keys, which is the least; a partition more \
             moves four of five. Engines are equal: the producer decides.",
            Kind::Bars {
                figures: names(&["moved_share"]),
                by: Some("grown_partitions".to_owned()),
            },
        )
        .only("through", way),
    );
}

fn notes(recorder: &mut Recorder) {
    recorder.note(
        "Topics have all their partitions from the beginning; what counts is how many the producer \
         takes the hash by, and that is `partitions` for the first record of each key and \
         `grown_partitions` for the second. Both stay readable, in two partitions, whose order \
         nobody keeps.",
    );
    recorder.note(
        "The document has user-7 in partition 1 before and in 3 after, as an example of the rule: \
         by Kafka's hash no number of partitions up to 12 puts it there.",
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_even_hash_moves_half_when_partitions_double() {
        let close = |before, after, share: f64| (even_share(before, after) - share).abs() < 1e-9;
        assert!(close(4, 8, 0.5) && close(4, 5, 0.8) && close(4, 4, 0.0) && close(4, 6, 2.0 / 3.0));
    }

    /// The document's example can't be had, as the note says.
    #[test]
    fn user_7_is_in_neither_of_the_documents_partitions() {
        let places: Vec<_> = (1..=12).map(|it| partition_of_key(&key(7), it)).collect();
        assert_eq!(places, [0, 0, 2, 0, 4, 2, 2, 4, 2, 4, 7, 8]);
    }

    #[test]
    fn keys_are_counted_by_partition() {
        let found = [Some(1), Some(3), Some(1), None].map(|it| Found { before: it, after: None });
        assert_eq!(spread(&found, 4, |it| it.before), [0, 2, 0, 1]);
    }
}
