//! `uringlog group reset`: where to, and whether that can be.

use std::collections::BTreeMap;
use std::io::Write;

use serde_json::{Value, json};

use super::selection::{Selection, parse_plan};
use crate::cli::args::group::Reset;
use crate::cli::command::CommandError;
use crate::cli::output::{self, Cell, Output, Table, Tone, left, right};
use crate::cli::{time, topic};
use crate::client::{
    Asker, Client, Committed, FoundOffset, GroupDescription, TopicPartition, timestamp,
};

/// Where to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Goal {
    Earliest,
    Latest,
    Current,
    Offset(i64),
    /// The first record of this time or later.
    Time(i64),
    Shift(i64),
}

/// What is known of a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Known {
    log_start: i64,
    high_watermark: i64,
    committed: Option<i64>,
    /// Offset of the goal's time, when there is a record that young.
    by_time: Option<i64>,
}

/// What becomes of a partition.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Planned {
    at: TopicPartition,
    before: Option<i64>,
    after: i64,
    /// What the person should know.
    note: &'static str,
}

const BELOW_START: &str = "wanted is below the log start";
const BEYOND_END: &str = "wanted is beyond the high watermark";
const NO_RECORD: &str = "no record is that young";
const NEVER_COMMITTED: &str = "nothing was committed";

/// The offset that a goal means, moved into what the partition has; why it can't be found.
fn target(goal: Goal, known: Known) -> Result<(i64, &'static str), &'static str> {
    let wanted = match goal {
        Goal::Earliest => known.log_start,
        Goal::Latest => known.high_watermark,
        Goal::Current => match known.committed {
            Some(committed) => committed,
            // As Kafka's tool does.
            None => return Ok((known.high_watermark, NEVER_COMMITTED)),
        },
        Goal::Offset(offset) => offset,
        Goal::Time(_) => match known.by_time {
            Some(offset) => offset,
            None => return Ok((known.high_watermark, NO_RECORD)),
        },
        Goal::Shift(by) => {
            let committed = known.committed.ok_or("there is no committed offset to shift")?;
            committed.saturating_add(by)
        }
    };
    Ok(if wanted < known.log_start {
        (known.log_start, BELOW_START)
    } else if wanted > known.high_watermark {
        (known.high_watermark, BEYOND_END)
    } else {
        (wanted, "")
    })
}

/// Whether a group's offsets may be set from outside.
///
/// # Errors
/// [`CommandError::Usage`] for one with members, who would commit over it.
fn check_idle(group: &GroupDescription) -> Result<(), CommandError> {
    if !group.has_members() {
        return Ok(());
    }
    let (id, state) = (&group.id, &group.state);
    let members = match group.members.len() {
        1 => "a member".to_owned(),
        count => format!("{count} members"),
    };
    Err(CommandError::Usage(format!(
        "group {id:?} is {state}: it has {members} and would go on from where it is; stop them \
         first (uringlog group members {id} shows them)"
    )))
}

/// Runs the command.
///
/// # Errors
/// [`CommandError`].
pub(super) async fn run<W: Write>(
    client: &Client,
    options: &Reset,
    (output, out): (&Output, &mut W),
) -> Result<(), CommandError> {
    if let Some(group) = client.describe_group(&options.group).await? {
        check_idle(&group)?;
    }
    let committed = client.committed_offsets(&options.group).await?;
    let goals = goals(client, options, &committed).await?;
    if goals.is_empty() {
        let text = format!(
            "group {:?} has no offsets, so there is nothing to reset; name topics with --topic",
            options.group
        );
        return Err(CommandError::Usage(text));
    }
    let planned = plan(client, &goals, &committed).await?;
    if options.execute {
        let offsets = planned.iter().map(|one| Committed {
            at: one.at.clone(),
            offset: one.after,
            leader_epoch: -1,
            metadata: String::new(),
        });
        client.commit_offsets(&options.group, &offsets.collect::<Vec<_>>()).await?;
    }
    if options.csv {
        return output::print(out, &csv(&planned));
    }
    output.show(out, &table(&planned), &json(&options.group, &planned, options.execute))?;
    if !options.execute && !output.json {
        output::say("nothing was changed; add --execute to do it");
    }
    Ok(())
}

fn goal(options: &Reset, now: i64) -> Option<Goal> {
    let time = options.to_time.map(|when| Goal::Time(when.ms(now)));
    let ago = options.by_duration.map(|span| Goal::Time(now.saturating_sub(span.0).max(0)));
    let flags = [
        (options.to_earliest, Goal::Earliest),
        (options.to_latest, Goal::Latest),
        (options.to_current, Goal::Current),
    ];
    let flag = flags.iter().find(|(is_set, _)| *is_set).map(|(_, goal)| *goal);
    let offset = options.to_offset.map(Goal::Offset);
    flag.or(offset).or(time).or(ago).or(options.shift_by.map(Goal::Shift))
}

/// The partitions with their goals, in order.
async fn goals(
    client: &Client,
    options: &Reset,
    committed: &[Committed],
) -> Result<Vec<(TopicPartition, Goal)>, CommandError> {
    if let Some(path) = &options.from_file {
        let text = std::fs::read_to_string(path)
            .map_err(|source| CommandError::Input { name: path.display().to_string(), source })?;
        let plan = parse_plan(&text, &options.group)
            .map_err(|why| CommandError::Usage(format!("{}: {why}", path.display())))?;
        return Ok(plan.into_iter().map(|(at, offset)| (at, Goal::Offset(offset))).collect());
    }
    let goal = goal(options, time::now_ms()).expect("the command line asks for one of them");
    let mut partitions: Vec<_> = committed.iter().map(|one| one.at.clone()).collect();
    if !options.topic.is_empty() {
        partitions = selected(client, &options.topic).await?;
    } else if !options.all_topics && topics(&partitions) > 1 {
        let text = "the group has offsets in several topics; name them with --topic, or say \
                    --all-topics";
        return Err(CommandError::Usage(text.to_owned()));
    }
    partitions.sort();
    partitions.dedup();
    Ok(partitions.into_iter().map(|at| (at, goal)).collect())
}

fn topics(partitions: &[TopicPartition]) -> usize {
    partitions.chunk_by(|one, next| one.topic == next.topic).count()
}

/// The partitions that are meant.
///
/// # Errors
/// [`CommandError`] for a topic or partition that isn't there.
pub(super) async fn selected(
    client: &Client,
    selections: &[Selection],
) -> Result<Vec<TopicPartition>, CommandError> {
    let mut found = Vec::new();
    for selection in selections {
        let topic = topic::find(client, &selection.topic).await?;
        match &selection.partitions {
            None => found.extend(topic::partitions_of(&topic, None)?),
            Some(partitions) => {
                for partition in partitions {
                    found.extend(topic::partitions_of(&topic, Some(*partition))?);
                }
            }
        }
    }
    Ok(found)
}

async fn plan(
    client: &Client,
    goals: &[(TopicPartition, Goal)],
    committed: &[Committed],
) -> Result<Vec<Planned>, CommandError> {
    check_topics(client, goals).await?;
    let wanted: Vec<_> = goals.iter().map(|(at, _)| at.clone()).collect();
    let starts = offsets(client, &wanted, timestamp::EARLIEST).await?;
    let ends = offsets(client, &wanted, timestamp::LATEST).await?;
    let time = goals.iter().find_map(|(_, goal)| match goal {
        Goal::Time(time) => Some(*time),
        _ => None,
    });
    let by_time = match time {
        Some(time) => offsets(client, &wanted, time).await?,
        None => BTreeMap::new(),
    };
    let mut planned = Vec::new();
    for (at, goal) in goals {
        let committed = committed.iter().find(|one| one.at == *at).map(|one| one.offset);
        let known = Known {
            log_start: starts.get(at).map_or(0, |found| found.offset),
            high_watermark: ends.get(at).map_or(0, |found| found.offset),
            committed,
            by_time: by_time.get(at).map(|found| found.offset).filter(|offset| *offset >= 0),
        };
        let (after, note) = target(*goal, known).map_err(|why| {
            let (topic, partition) = (&at.topic, at.partition);
            CommandError::Usage(format!("partition {partition} of topic {topic}: {why}"))
        })?;
        planned.push(Planned { at: at.clone(), before: committed, after, note });
    }
    Ok(planned)
}

/// Fails for a topic or partition that isn't there, which would else be asked for until time is up.
async fn check_topics(
    client: &Client,
    goals: &[(TopicPartition, Goal)],
) -> Result<(), CommandError> {
    for own in goals.chunk_by(|one, next| one.0.topic == next.0.topic) {
        let topic = topic::find(client, &own[0].0.topic).await?;
        for (at, _) in own {
            topic::partitions_of(&topic, Some(at.partition))?;
        }
    }
    Ok(())
}

async fn offsets(
    client: &Client,
    wanted: &[TopicPartition],
    target: i64,
) -> Result<BTreeMap<TopicPartition, FoundOffset>, CommandError> {
    let mut found = BTreeMap::new();
    for (at, result) in client.lookup_offsets(wanted, target, Asker::Consumer).await? {
        found.insert(at, result?);
    }
    Ok(found)
}

fn csv(planned: &[Planned]) -> String {
    let line = |one: &Planned| format!("{},{},{}\n", one.at.topic, one.at.partition, one.after);
    planned.iter().map(line).collect()
}

fn table(planned: &[Planned]) -> Table {
    let mut table = Table::new(&[
        left("TOPIC"),
        right("PARTITION"),
        right("BEFORE"),
        right("AFTER"),
        right("CHANGE"),
        left("NOTE"),
    ]);
    for one in planned {
        let change = one.before.map(|before| one.after - before);
        let shown = match change {
            Some(0) => Cell::from("0").toned(Tone::Dim),
            Some(change) => Cell::from(format!("{change:+}")),
            None => Cell::known(None),
        };
        table.row([
            Cell::from(one.at.topic.as_str()),
            Cell::from(one.at.partition),
            Cell::known(one.before),
            Cell::from(one.after),
            shown,
            Cell::from(one.note).toned(Tone::Warning),
        ]);
    }
    table
}

fn json(group: &str, planned: &[Planned], executed: bool) -> Value {
    let partition = |one: &Planned| {
        json!({
            "topic": one.at.topic,
            "partition": one.at.partition,
            "before": one.before,
            "after": one.after,
            "note": Some(one.note).filter(|note| !note.is_empty()),
        })
    };
    json!({
        "group": group,
        "executed": executed,
        "partitions": planned.iter().map(partition).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::GroupMember;

    const KNOWN: Known =
        Known { log_start: 10, high_watermark: 100, committed: Some(40), by_time: Some(70) };

    #[test]
    fn goals_are_moved_into_what_there_is() {
        for (goal, expected) in [
            (Goal::Earliest, (10, "")),
            (Goal::Latest, (100, "")),
            (Goal::Current, (40, "")),
            (Goal::Offset(50), (50, "")),
            (Goal::Offset(10), (10, "")),
            (Goal::Offset(100), (100, "")),
            (Goal::Offset(9), (10, BELOW_START)),
            (Goal::Offset(101), (100, BEYOND_END)),
            (Goal::Time(5), (70, "")),
            (Goal::Shift(-5), (35, "")),
            (Goal::Shift(60), (100, "")),
            (Goal::Shift(-31), (10, BELOW_START)),
            (Goal::Shift(i64::MAX), (100, BEYOND_END)),
            (Goal::Shift(i64::MIN), (10, BELOW_START)),
        ] {
            assert_eq!(target(goal, KNOWN), Ok(expected), "{goal:?}");
        }
    }

    #[test]
    fn what_was_never_committed_or_is_not_there_yet() {
        let never = Known { committed: None, by_time: None, ..KNOWN };
        assert_eq!(target(Goal::Current, never), Ok((100, NEVER_COMMITTED)));
        assert_eq!(target(Goal::Time(5), never), Ok((100, NO_RECORD)));
        target(Goal::Shift(1), never).expect_err("nothing to shift");
    }

    #[test]
    fn a_group_with_members_is_left_alone() {
        let member = GroupMember {
            id: "m".to_owned(),
            instance: None,
            client_id: "c".to_owned(),
            host: "h".to_owned(),
            assigned: Vec::new(),
        };
        let group = |members| GroupDescription {
            id: "g".to_owned(),
            kind: "classic",
            state: "Stable".to_owned(),
            assignor: "range".to_owned(),
            coordinator: "h:1".to_owned(),
            members,
        };
        check_idle(&group(Vec::new())).expect("nobody is there");
        let error = check_idle(&group(vec![member])).expect_err("somebody is there").to_string();
        assert!(error.contains("Stable: it has a member and") && error.contains("stop them"));
    }

    #[test]
    fn plans_are_shown_and_can_be_read_again() {
        let one = |partition, before, after, note| Planned {
            at: TopicPartition::new("t", partition),
            before,
            after,
            note,
        };
        let planned =
            [one(0, Some(40), 10, ""), one(1, None, 100, NO_RECORD), one(2, Some(7), 7, "")];
        let expected = "\
TOPIC  PARTITION  BEFORE  AFTER  CHANGE  NOTE
t              0      40     10     -30
t              1       -    100       -  no record is that young
t              2       7      7       0
";
        assert_eq!(table(&planned).render(false, false), expected);
        let read = parse_plan(&csv(&planned), "g").expect("it reads what it writes");
        let expected: Vec<_> = planned.iter().map(|one| (one.at.clone(), one.after)).collect();
        assert_eq!(read, expected);
    }
}
