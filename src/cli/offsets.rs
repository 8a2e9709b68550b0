//! `uringlog offsets`: where partitions begin and end, and what offset a time has.

use std::collections::BTreeMap;
use std::io::Write;

use serde_json::{Value, json};

use super::args;
use super::command::CommandError;
use super::output::{Cell, Output, Table, left, right};
use super::{time, topic};
use crate::client::{Asker, Client, ClientError, ClientOptions, TopicPartition, timestamp};

/// What one partition has.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Ends {
    earliest: Option<i64>,
    latest: Option<i64>,
    /// Offset and time of the record with the largest timestamp.
    newest: Option<(i64, i64)>,
    /// For each time asked for: the offset, and its record's time.
    at: Vec<Option<(i64, i64)>>,
}

/// Runs the command.
///
/// # Errors
/// [`CommandError`].
pub async fn run(options: &args::Offsets, out: &mut impl Write) -> Result<(), CommandError> {
    let output = Output::of_process(options.server.json, options.server.color);
    let bootstrap = &options.server.server.bootstrap;
    let client = Client::connect(bootstrap, ClientOptions::default()).await?;
    let wanted = wanted(&client, options).await?;
    let now = time::now_ms();
    let times: Vec<i64> = options.at.iter().map(|when| when.ms(now)).collect();
    let ends = look(&client, &wanted, &times).await?;
    let rows: Vec<_> = wanted.into_iter().zip(ends).collect();
    output.show(out, &table(&rows, &times), &json(&rows, &times))
}

async fn wanted(
    client: &Client,
    options: &args::Offsets,
) -> Result<Vec<TopicPartition>, CommandError> {
    let mut wanted = Vec::new();
    for name in &options.topics {
        let found = topic::find(client, name.as_str()).await?;
        wanted.extend(topic::partitions_of(&found, options.partition.map(super::wire_number))?);
    }
    if options.topics.is_empty() {
        for found in client.metadata(None).await?.topics {
            if !topic::is_internal(&found.name) {
                wanted.extend(topic::partitions_of(&found, None)?);
            }
        }
    }
    wanted.sort();
    Ok(wanted)
}

async fn look(
    client: &Client,
    wanted: &[TopicPartition],
    times: &[i64],
) -> Result<Vec<Ends>, CommandError> {
    let find = async |target| {
        let found = client.lookup_offsets(wanted, target, Asker::Consumer).await?;
        let pair = |(at, result): (TopicPartition, Result<_, ClientError>)| Ok((at, result?));
        found.into_iter().map(pair).collect::<Result<BTreeMap<_, _>, ClientError>>()
    };
    let earliest = find(timestamp::EARLIEST).await?;
    let latest = find(timestamp::LATEST).await?;
    // Brokers before Kafka 3.0 don't know this question.
    let newest = find(timestamp::MAX).await.unwrap_or_default();
    let mut by_time = Vec::new();
    for time in times {
        by_time.push(find(*time).await?);
    }
    let known = |offset: i64| Some(offset).filter(|offset| *offset >= 0);
    let ends = wanted.iter().map(|at| Ends {
        earliest: earliest.get(at).and_then(|it| known(it.offset)),
        latest: latest.get(at).and_then(|it| known(it.offset)),
        newest: newest.get(at).filter(|it| it.offset >= 0).map(|it| (it.offset, it.timestamp)),
        at: by_time
            .iter()
            .map(|found| found.get(at).filter(|it| it.offset >= 0))
            .map(|found| found.map(|it| (it.offset, it.timestamp)))
            .collect(),
    });
    Ok(ends.collect())
}

fn table(rows: &[(TopicPartition, Ends)], times: &[i64]) -> Table {
    let mut columns = vec![left("TOPIC"), right("PARTITION")];
    if times.is_empty() {
        columns.extend([right("EARLIEST"), right("LATEST"), right("RECORDS")]);
        columns.extend([right("NEWEST"), left("NEWEST-TIME")]);
    } else {
        columns.extend([left("TIME"), right("OFFSET"), left("RECORD-TIME")]);
    }
    let mut table = Table::new(&columns);
    for (at, ends) in rows {
        let place = [Cell::from(at.topic.as_str()), Cell::from(at.partition)];
        if times.is_empty() {
            let span = ends.earliest.zip(ends.latest).map(|(first, end)| end - first);
            let newest = ends.newest.map_or(-1, |(_, time)| time);
            let cells = [
                Cell::known(ends.earliest),
                Cell::known(ends.latest),
                Cell::known(span),
                Cell::known(ends.newest.map(|(offset, _)| offset)),
                Cell::from(time::utc(newest)),
            ];
            table.row(place.into_iter().chain(cells));
            continue;
        }
        for (time, found) in times.iter().zip(&ends.at) {
            let cells = [
                Cell::from(time::utc(*time)),
                Cell::known(found.map(|(offset, _)| offset)),
                Cell::from(time::utc(found.map_or(-1, |(_, time)| time))),
            ];
            table.row(place.clone().into_iter().chain(cells));
        }
    }
    table
}

fn json(rows: &[(TopicPartition, Ends)], times: &[i64]) -> Value {
    let found = |(time, found): (&i64, &Option<(i64, i64)>)| {
        json!({
            "time": time,
            "offset": found.map(|(offset, _)| offset),
            "timestamp": found.map(|(_, time)| time),
        })
    };
    let row = |(at, ends): &(TopicPartition, Ends)| {
        json!({
            "topic": at.topic,
            "partition": at.partition,
            "earliest": ends.earliest,
            "latest": ends.latest,
            "max_timestamp": ends.newest.map(|(offset, time)| {
                json!({"offset": offset, "timestamp": time})
            }),
            "at": times.iter().zip(&ends.at).map(found).collect::<Vec<_>>(),
        })
    };
    rows.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<(TopicPartition, Ends)> {
        let full = Ends {
            earliest: Some(5),
            latest: Some(1_005),
            newest: Some((1_004, 1_700_000_000_123)),
            at: vec![Some((7, 1_700_000_000_000))],
        };
        let empty = Ends { earliest: Some(0), latest: Some(0), newest: None, at: vec![None] };
        vec![(TopicPartition::new("t", 0), full), (TopicPartition::new("t", 1), empty)]
    }

    #[test]
    fn ends_and_the_newest_record() {
        let expected = "\
TOPIC  PARTITION  EARLIEST  LATEST  RECORDS  NEWEST  NEWEST-TIME
t              0         5    1005     1000    1004  2023-11-14T22:13:20.123Z
t              1         0       0        0       -  -
";
        assert_eq!(table(&rows(), &[]).render(false, false), expected);
    }

    #[test]
    fn offsets_of_a_time() {
        let expected = "\
TOPIC  PARTITION  TIME                      OFFSET  RECORD-TIME
t              0  1970-01-01T00:00:00.009Z       7  2023-11-14T22:13:20.000Z
t              1  1970-01-01T00:00:00.009Z       -  -
";
        assert_eq!(table(&rows(), &[9]).render(false, false), expected);
        let json = json(&rows(), &[9]);
        assert_eq!(json[0]["at"][0]["offset"], 7);
        assert_eq!(json[1]["at"][0]["offset"], Value::Null);
        assert_eq!(json[0]["max_timestamp"]["offset"], 1004);
    }
}
