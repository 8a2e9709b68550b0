//! `uringlog group describe`: how far a group is, partition by partition.
//!
//! Five offsets: the log start offset, what the group has committed, the position of its reader
//! where that is known, the high watermark, and the log end offset. A broker isn't told positions
//! between commits, so a process knows those of its own reading only: `consume --group --lag` shows
//! them, and from outside there is a dash.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::cli::command::CommandError;
use crate::cli::output::{Cell, Table, Tone, left, right};
use crate::client::{Asker, Client, GroupDescription, TopicPartition, timestamp};

/// A partition that a group reads or has offsets of.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(in crate::cli) struct Lag {
    pub topic: String,
    pub partition: i32,
    pub log_start: Option<i64>,
    pub committed: Option<i64>,
    pub position: Option<i64>,
    pub high_watermark: Option<i64>,
    pub log_end: Option<i64>,
    /// The member that reads it, and where that comes from.
    pub reader: Option<(String, String)>,
}

impl Lag {
    /// Records that can be read and that the group hasn't committed.
    pub(in crate::cli) fn lag(&self) -> Option<i64> {
        let from = self.committed?.max(self.log_start.unwrap_or(0));
        Some((self.high_watermark? - from).max(0))
    }
}

/// What the group reads or has offsets of, with the offsets as they are now.
///
/// # Errors
/// [`CommandError`].
pub(in crate::cli) async fn lags(
    client: &Client,
    group: &GroupDescription,
) -> Result<Vec<Lag>, CommandError> {
    let committed = client.committed_offsets(&group.id).await?;
    let mut rows: BTreeMap<TopicPartition, Lag> = BTreeMap::new();
    for one in &committed {
        entry(&mut rows, &one.at).committed = Some(one.offset);
    }
    for member in &group.members {
        for at in &member.assigned {
            entry(&mut rows, at).reader = Some((member.id.clone(), member.host.clone()));
        }
    }
    let wanted = with_leader(client, rows.keys()).await?;
    for (target, asker, set) in QUESTIONS {
        for (at, found) in client.lookup_offsets(&wanted, *target, *asker).await? {
            let offset = found.ok().map(|found| found.offset).filter(|offset| *offset >= 0);
            set(entry(&mut rows, &at), offset);
        }
    }
    Ok(rows.into_values().collect())
}

/// What is asked for each partition, and where the answer goes.
type Question = (i64, Asker, fn(&mut Lag, Option<i64>));

const QUESTIONS: &[Question] = &[
    (timestamp::EARLIEST, Asker::Consumer, |lag, offset| lag.log_start = offset),
    (timestamp::LATEST, Asker::Consumer, |lag, offset| lag.high_watermark = offset),
    (timestamp::LATEST, Asker::Debugger, |lag, offset| lag.log_end = offset),
];

fn entry<'a>(rows: &'a mut BTreeMap<TopicPartition, Lag>, at: &TopicPartition) -> &'a mut Lag {
    let new = || Lag { topic: at.topic.clone(), partition: at.partition, ..Lag::default() };
    rows.entry(at.clone()).or_insert_with(new)
}

/// Those whose leader can be asked: a topic may be gone while the group still has its offsets.
async fn with_leader(
    client: &Client,
    all: impl Iterator<Item = &TopicPartition>,
) -> Result<Vec<TopicPartition>, CommandError> {
    let all: Vec<_> = all.cloned().collect();
    let names: Vec<&str> = all
        .chunk_by(|one, next| one.topic == next.topic)
        .map(|own| own[0].topic.as_str())
        .collect();
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let cluster = client.metadata(Some(&names)).await?;
    let led: Vec<_> = cluster
        .topics
        .iter()
        .flat_map(|topic| topic.partitions.iter().map(move |one| (topic, one)))
        .filter(|(_, one)| one.leader >= 0)
        .map(|(topic, one)| TopicPartition::new(&topic.name, one.index))
        .collect();
    Ok(all.into_iter().filter(|at| led.contains(at)).collect())
}

/// The table of one group or of several.
pub(in crate::cli) fn table(groups: &[(GroupDescription, Vec<Lag>)]) -> Table {
    let mut table = Table::new(&[
        left("GROUP"),
        left("TOPIC"),
        right("PARTITION"),
        right("LOG-START"),
        right("COMMITTED"),
        right("POSITION"),
        right("HIGH-WATERMARK"),
        right("LOG-END"),
        right("LAG"),
        left("MEMBER"),
        left("HOST"),
    ]);
    for (group, lags) in groups {
        for one in lags {
            let (member, host) = one.reader.clone().unwrap_or(("-".to_owned(), "-".to_owned()));
            table.row([
                Cell::from(group.id.as_str()),
                Cell::from(one.topic.as_str()),
                Cell::from(one.partition),
                Cell::known(one.log_start),
                Cell::known(one.committed),
                Cell::known(one.position),
                Cell::known(one.high_watermark),
                Cell::known(one.log_end),
                Cell::known(one.lag()).toned(match one.lag() {
                    Some(0) => Tone::Good,
                    Some(_) => Tone::Warning,
                    None => Tone::Dim,
                }),
                Cell::from(member),
                Cell::from(host),
            ]);
        }
    }
    table
}

/// The same for programs.
pub(in crate::cli) fn json(groups: &[(GroupDescription, Vec<Lag>)]) -> Value {
    let partition = |one: &Lag| {
        json!({
            "topic": one.topic,
            "partition": one.partition,
            "log_start_offset": one.log_start,
            "committed_offset": one.committed,
            "position": one.position,
            "high_watermark": one.high_watermark,
            "log_end_offset": one.log_end,
            "lag": one.lag(),
            "member": one.reader.as_ref().map(|(member, _)| member),
            "host": one.reader.as_ref().map(|(_, host)| host),
        })
    };
    let group = |(group, lags): &(GroupDescription, Vec<Lag>)| {
        json!({
            "group": group.id,
            "type": group.kind,
            "state": group.state,
            "assignor": group.assignor,
            "coordinator": group.coordinator,
            "members": group.members.len(),
            "lag": lags.iter().filter_map(Lag::lag).sum::<i64>(),
            "partitions": lags.iter().map(partition).collect::<Vec<_>>(),
        })
    };
    groups.iter().map(group).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lag(log_start: i64, committed: Option<i64>, high_watermark: i64) -> Lag {
        Lag {
            topic: "t".to_owned(),
            log_start: Some(log_start),
            committed,
            high_watermark: Some(high_watermark),
            log_end: Some(high_watermark + 1),
            ..Lag::default()
        }
    }

    #[test]
    fn lag_is_what_is_still_to_be_read() {
        assert_eq!(lag(0, Some(40), 100).lag(), Some(60));
        assert_eq!(lag(0, Some(100), 100).lag(), Some(0));
        // What was deleted meanwhile can't be read any more.
        assert_eq!(lag(90, Some(40), 100).lag(), Some(10));
        // A log that is shorter than what was committed: cut, or made anew.
        assert_eq!(lag(0, Some(140), 100).lag(), Some(0));
        assert_eq!(lag(0, None, 100).lag(), None);
        assert_eq!(Lag { committed: Some(4), ..Lag::default() }.lag(), None);
    }

    #[test]
    fn five_offsets_stand_side_by_side() {
        let group = GroupDescription {
            id: "g".to_owned(),
            kind: "classic",
            state: "Empty".to_owned(),
            assignor: String::new(),
            coordinator: "h:1".to_owned(),
            members: Vec::new(),
        };
        let reader = Some(("m-1".to_owned(), "h".to_owned()));
        let read = Lag { reader, position: Some(42), ..lag(5, Some(40), 100) };
        let groups = [(group, vec![read, Lag { partition: 1, ..lag(0, None, 7) }])];
        let shown = table(&groups).render(false, false);
        let lines: Vec<Vec<&str>> =
            shown.lines().map(|line| line.split_whitespace().collect()).collect();
        let names = "GROUP TOPIC PARTITION LOG-START COMMITTED POSITION HIGH-WATERMARK LOG-END LAG";
        assert_eq!(lines[0].join(" "), format!("{names} MEMBER HOST"));
        assert_eq!(lines[1].join(" "), "g t 0 5 40 42 100 101 60 m-1 h");
        assert_eq!(lines[2].join(" "), "g t 1 0 - - 7 8 - - -");
        let json = json(&groups);
        assert_eq!(json[0]["lag"], 60);
        assert_eq!(json[0]["partitions"][0]["log_end_offset"], 101);
        assert_eq!(json[0]["partitions"][1]["committed_offset"], Value::Null);
    }
}
