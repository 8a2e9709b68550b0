//! `uringlog topic`: list, create, describe, alter, trim, delete.

use std::io::Write;
use std::time::Duration;

use serde_json::{Value, json};

use super::args;
use super::command::CommandError;
use super::consume::From;
use super::output::{self, Cell, Output, Table, Tone, left, right};
use super::time;
use crate::client::{
    Alteration, Asker, Client, ClientError, ClientOptions, NewTopic, Resource, Setting, Topic,
    TopicPartition, timestamp,
};
use crate::format::names::TopicName;
use crate::units::u64_of;
use crate::wire::error::ErrorCode;

/// Runs one action and prints what it has to say.
///
/// # Errors
/// [`CommandError`].
pub async fn run(action: &args::Topic, out: &mut impl Write) -> Result<(), CommandError> {
    use args::Topic as Action;
    let server = server_of(action);
    let output = Output::of_process(server.json, server.color);
    let client = Client::connect(&server.server.bootstrap, ClientOptions::default()).await?;
    match action {
        Action::Create(create) => {
            for name in &create.names {
                create_one(&client, (name, create), (&output, out)).await?;
            }
            Ok(())
        }
        Action::List { internal, .. } => list(&client, *internal, (&output, out)).await,
        Action::Describe { names, .. } => describe(&client, names, (&output, out)).await,
        Action::Delete { names, if_exists, .. } => {
            for name in names {
                delete_one(&client, (name, *if_exists), (&output, out)).await?;
            }
            Ok(())
        }
        Action::AddPartitions { name, total, .. } => {
            client.add_partitions(name.as_str(), *total).await?;
            let count = u64::try_from(*total).expect("the command line wants 1 or more");
            let count = output::counted(count, ("partition", "partitions"));
            let line = format!("topic {name} has {count}");
            output.line(out, &line, &json!({"topic": name.as_str(), "partitions": total}))
        }
        Action::Alter { name, set, unset, .. } => {
            alter(&client, name, (set, unset)).await?;
            let line = format!("altered topic {name}");
            output.line(out, &line, &json!({"topic": name.as_str(), "altered": true}))
        }
        Action::Trim { name, partition, before, .. } => {
            let partition = partition.map(super::wire_number);
            trim(&client, (name.as_str(), partition, *before), (&output, out)).await
        }
    }
}

fn server_of(action: &args::Topic) -> &args::Server {
    use args::Topic as Action;
    match action {
        Action::Create(create) => &create.server,
        Action::List { server, .. }
        | Action::Describe { server, .. }
        | Action::Delete { server, .. }
        | Action::AddPartitions { server, .. }
        | Action::Alter { server, .. }
        | Action::Trim { server, .. } => server,
    }
}

async fn create_one<W: Write>(
    client: &Client,
    (name, create): (&TopicName, &args::clients::CreateTopic),
    (output, out): (&Output, &mut W),
) -> Result<(), CommandError> {
    let topic = NewTopic {
        name: name.to_string(),
        partitions: create.partitions.unwrap_or(-1),
        replication_factor: create.replication_factor.unwrap_or(-1),
        configs: create.config.clone(),
    };
    let (line, id) = match client.create_topic(&topic).await {
        Ok(id) => (format!("created topic {name} ({id})"), Some(id.to_string())),
        Err(error)
            if create.if_not_exists && error.code() == Some(ErrorCode::TopicAlreadyExists) =>
        {
            (format!("topic {name} exists"), None)
        }
        Err(error) => return Err(error.into()),
    };
    output.line(out, &line, &json!({"topic": name.as_str(), "created": id.is_some(), "id": id}))
}

async fn delete_one<W: Write>(
    client: &Client,
    (name, if_exists): (&TopicName, bool),
    (output, out): (&Output, &mut W),
) -> Result<(), CommandError> {
    let (line, deleted) = match client.delete_topic(name.as_str()).await {
        Ok(()) => (format!("deleted topic {name}"), true),
        Err(error) if if_exists && error.code() == Some(ErrorCode::UnknownTopicOrPartition) => {
            (format!("there is no topic {name}"), false)
        }
        Err(error) => return Err(error.into()),
    };
    output.line(out, &line, &json!({"topic": name.as_str(), "deleted": deleted}))
}

async fn alter(
    client: &Client,
    name: &TopicName,
    (set, unset): (&[(String, String)], &[String]),
) -> Result<(), CommandError> {
    let set = set.iter().map(|(name, value)| Alteration::Set(name.clone(), value.clone()));
    let unset = unset.iter().map(|name| Alteration::Unset(name.clone()));
    let alterations: Vec<_> = set.chain(unset).collect();
    Ok(client.alter_settings(&Resource::Topic(name.to_string()), &alterations, false).await?)
}

async fn list<W: Write>(
    client: &Client,
    internal: bool,
    (output, out): (&Output, &mut W),
) -> Result<(), CommandError> {
    let mut topics = client.metadata(None).await?.topics;
    topics.retain(|topic| internal || !is_internal(&topic.name));
    topics.sort_by(|one, other| one.name.cmp(&other.name));
    output.show(out, &topics_table(&topics), &topics.iter().map(summary).collect())
}

/// Whether the topic is the broker's own.
pub(super) fn is_internal(name: &str) -> bool {
    TopicName::new(name).is_ok_and(|name| name.is_internal())
}

fn replicas(topic: &Topic) -> usize {
    topic.partitions.iter().map(|partition| partition.replicas.len()).max().unwrap_or(0)
}

fn topics_table(topics: &[Topic]) -> Table {
    let mut table =
        Table::new(&[left("TOPIC"), right("PARTITIONS"), right("REPLICAS"), left("ID")]);
    for topic in topics {
        table.row([
            Cell::from(topic.name.as_str()),
            Cell::from(topic.partitions.len()),
            Cell::from(replicas(topic)),
            Cell::from(topic.id.to_string()).toned(Tone::Dim),
        ]);
    }
    table
}

fn summary(topic: &Topic) -> Value {
    json!({
        "topic": topic.name,
        "id": topic.id.to_string(),
        "partitions": topic.partitions.len(),
        "replication_factor": replicas(topic),
        "internal": is_internal(&topic.name),
    })
}

async fn describe<W: Write>(
    client: &Client,
    names: &[TopicName],
    (output, out): (&Output, &mut W),
) -> Result<(), CommandError> {
    let mut described = Vec::new();
    for name in names {
        let topic = find(client, name.as_str()).await?;
        let resource = Resource::Topic(name.to_string());
        let mut settings = client.settings(&resource).await?;
        settings.retain(|setting| setting.source == "DYNAMIC_TOPIC_CONFIG");
        let ends = ends(client, &topic).await?;
        described.push((topic, settings, ends));
    }
    if output.json {
        let json = described.iter().map(|(topic, settings, ends)| detail(topic, settings, ends));
        return output.show(out, &Table::new(&[]), &json.collect());
    }
    for (topic, settings, ends) in &described {
        let head = heading(topic, settings);
        let table = partitions_table(topic, ends).render(output.colour, output.wrap);
        output::print(out, &format!("{head}{table}"))?;
    }
    Ok(())
}

/// Log start offset and high watermark of each partition, where they can be had.
type Ends = Vec<(Option<i64>, Option<i64>)>;

async fn ends(client: &Client, topic: &Topic) -> Result<Ends, CommandError> {
    let with_leader = topic.partitions.iter().filter(|one| one.leader >= 0);
    let wanted: Vec<_> =
        with_leader.map(|one| TopicPartition::new(&topic.name, one.index)).collect();
    let starts = client.lookup_offsets(&wanted, timestamp::EARLIEST, Asker::Consumer).await?;
    let ends = client.lookup_offsets(&wanted, timestamp::LATEST, Asker::Consumer).await?;
    let of = |list: &[crate::client::Lookup], index: i32| {
        let found = list.iter().find(|(at, _)| at.partition == index)?;
        found.1.as_ref().ok().map(|found| found.offset)
    };
    let each = topic.partitions.iter().map(|one| (of(&starts, one.index), of(&ends, one.index)));
    Ok(each.collect())
}

fn heading(topic: &Topic, settings: &[Setting]) -> String {
    let count = output::counted(u64_of(topic.partitions.len()), ("partition", "partitions"));
    let mut text = format!("topic {} ({}), {count}\n", topic.name, topic.id);
    for setting in settings {
        let value = setting.value.as_deref().unwrap_or("(hidden)");
        text.push_str(&format!("  {}={value}\n", setting.name));
    }
    text
}

fn partitions_table(topic: &Topic, ends: &Ends) -> Table {
    let mut table = Table::new(&[
        right("PARTITION"),
        right("LEADER"),
        right("EPOCH"),
        left("REPLICAS"),
        left("IN-SYNC"),
        right("LOG-START"),
        right("HIGH-WATERMARK"),
    ]);
    for (one, (start, end)) in topic.partitions.iter().zip(ends) {
        let has_leader = one.leader >= 0;
        let is_whole = one.in_sync.len() == one.replicas.len();
        table.row([
            Cell::from(one.index),
            match has_leader {
                true => Cell::from(one.leader),
                false => Cell::from("none").toned(Tone::Bad),
            },
            Cell::known(Some(i64::from(one.leader_epoch)).filter(|epoch| *epoch >= 0)),
            Cell::from(numbers(&one.replicas)),
            Cell::from(numbers(&one.in_sync)).toned(match is_whole {
                true => Tone::Plain,
                false => Tone::Warning,
            }),
            Cell::known(*start),
            Cell::known(*end),
        ]);
    }
    table
}

fn numbers(ids: &[i32]) -> String {
    ids.iter().map(i32::to_string).collect::<Vec<_>>().join(",")
}

fn detail(topic: &Topic, settings: &[Setting], ends: &Ends) -> Value {
    let partition = |(one, (start, end)): (&crate::client::Partition, &(_, _))| {
        json!({
            "partition": one.index,
            "leader": one.leader,
            "leader_epoch": one.leader_epoch,
            "replicas": one.replicas,
            "in_sync": one.in_sync,
            "log_start_offset": start,
            "high_watermark": end,
        })
    };
    let configs: serde_json::Map<String, Value> =
        settings.iter().map(|one| (one.name.clone(), json!(one.value))).collect();
    json!({
        "topic": topic.name,
        "id": topic.id.to_string(),
        "configs": configs,
        "partitions": topic.partitions.iter().zip(ends).map(partition).collect::<Vec<_>>(),
    })
}

async fn trim<W: Write>(
    client: &Client,
    (name, partition, before): (&str, Option<i32>, From),
    (output, out): (&Output, &mut W),
) -> Result<(), CommandError> {
    let topic = find(client, name).await?;
    let mut table = Table::new(&[left("TOPIC"), right("PARTITION"), right("LOG-START")]);
    let mut json = Vec::new();
    for one in partitions_of(&topic, partition)? {
        let find = async |target| client.list_offsets(name, one.partition, target).await;
        let offset = match before {
            From::Earliest => find(timestamp::EARLIEST).await?.offset,
            From::Latest => -1,
            From::Offset(offset) => offset,
            // No record is that young: all of them go.
            From::Time(when) => find(when.ms(time::now_ms())).await?.offset,
        };
        let start = client.delete_records(&one, offset).await?;
        table.row([Cell::from(name), Cell::from(one.partition), Cell::from(start)]);
        json.push(json!({
            "topic": name, "partition": one.partition, "log_start_offset": start,
        }));
    }
    output.show(out, &table, &Value::Array(json))
}

/// All partitions of a topic, or the one that is asked for.
///
/// # Errors
/// [`CommandError::Usage`] when the topic doesn't have it.
pub(super) fn partitions_of(
    topic: &Topic,
    only: Option<i32>,
) -> Result<Vec<TopicPartition>, CommandError> {
    let indexes = topic.partitions.iter().map(|one| one.index);
    let wanted = indexes.filter(|index| only.is_none_or(|only| only == *index));
    let found: Vec<_> = wanted.map(|index| TopicPartition::new(&topic.name, index)).collect();
    match only {
        Some(partition) if found.is_empty() => {
            let (topic, count) = (&topic.name, topic.partitions.len());
            let count = output::counted(u64_of(count), ("partition", "partitions"));
            let text = format!("topic {topic} has {count}, none is {partition}");
            Err(CommandError::Usage(text))
        }
        _ => Ok(found),
    }
}

/// A topic with its partitions.
///
/// # Errors
/// [`CommandError::Client`]; [`ErrorCode::UnknownTopicOrPartition`] when there is no such topic.
pub(super) async fn find(client: &Client, name: &str) -> Result<Topic, CommandError> {
    let cluster = client.metadata(Some(&[name])).await?;
    let what = || format!("look for topic {name:?}");
    let found = cluster.topics.into_iter().find(|topic| topic.name == name);
    let Some(topic) = found else {
        let code = ErrorCode::UnknownTopicOrPartition.to_wire();
        return Err(ClientError::check(code, what).expect_err("not 0").into());
    };
    ClientError::check(topic.error_code, what)?;
    Ok(topic)
}

/// Like [`find`], for a client whose question creates the topic where the broker allows that: it
/// is not there at once.
///
/// # Errors
/// As [`find`], once waiting is no use.
pub(super) async fn find_created(client: &Client, name: &str) -> Result<Topic, CommandError> {
    const TRIES: u32 = 50;
    const PAUSE: Duration = Duration::from_millis(100);
    for _ in 0..TRIES {
        match find(client, name).await {
            Err(CommandError::Client(error)) if is_coming(&error) => {}
            other => return other,
        }
        tokio::time::sleep(PAUSE).await;
    }
    find(client, name).await
}

fn is_coming(error: &ClientError) -> bool {
    let coming = [ErrorCode::UnknownTopicOrPartition, ErrorCode::LeaderNotAvailable];
    error.code().is_some_and(|code| coming.contains(&code))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Partition;
    use crate::units::TopicId;

    fn topic() -> Topic {
        let partition = |index, leader, in_sync: &[i32]| Partition {
            index,
            error_code: 0,
            leader,
            leader_epoch: 3,
            replicas: vec![1, 2],
            in_sync: in_sync.to_vec(),
        };
        Topic {
            name: "flights".to_owned(),
            id: TopicId([0; 16]),
            error_code: 0,
            partitions: vec![partition(0, 1, &[1, 2]), partition(1, -1, &[])],
        }
    }

    #[test]
    fn partitions_stand_below_each_other() {
        let ends = vec![(Some(0), Some(123_456)), (None, None)];
        let expected = "\
PARTITION  LEADER  EPOCH  REPLICAS  IN-SYNC  LOG-START  HIGH-WATERMARK
        0       1      3  1,2       1,2              0          123456
        1    none      3  1,2                        -               -
";
        assert_eq!(partitions_table(&topic(), &ends).render(false, false), expected);
    }

    #[test]
    fn a_list_is_a_table() {
        let text = topics_table(&[topic()]).render(false, false);
        assert!(
            text.starts_with("TOPIC    PARTITIONS  REPLICAS  ID\nflights           2         2")
        );
    }

    #[test]
    fn a_partition_that_is_not_there_is_named() {
        assert_eq!(partitions_of(&topic(), None).expect("all").len(), 2);
        assert_eq!(partitions_of(&topic(), Some(1)).expect("one").len(), 1);
        let error = partitions_of(&topic(), Some(2)).expect_err("not there").to_string();
        assert_eq!(error, "topic flights has 2 partitions, none is 2");
    }
}
