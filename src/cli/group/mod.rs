//! `uringlog group`: consumer groups, their members, offsets and lag.

pub(super) mod lag;

mod reset;

pub mod selection;

use std::io::Write;

use serde_json::{Value, json};

use super::args;
use super::command::CommandError;
use super::output::{self, Cell, Output, Table, Tone, left, right};
use crate::client::{
    Client, ClientError, ClientOptions, GroupDescription, GroupListing, GroupMember, TopicPartition,
};
use crate::units::u64_of;
use crate::wire::error::ErrorCode;

const NOT_FOUND: i16 = ErrorCode::GroupIdNotFound.to_wire();

/// Runs the command.
///
/// # Errors
/// [`CommandError`].
pub async fn run(action: &args::Group, out: &mut impl Write) -> Result<(), CommandError> {
    use args::Group as Action;
    let server = server_of(action);
    let output = Output::of_process(server.json, server.color);
    let client = Client::connect(&server.server.bootstrap, ClientOptions::default()).await?;
    match action {
        Action::List { state, .. } => list(&client, state.as_deref(), (&output, out)).await,
        Action::Describe { groups, .. } => describe(&client, groups, (&output, out)).await,
        Action::Members { group, .. } => {
            let found = find(&client, group).await?;
            if !output.json {
                output::print(out, &heading(&found))?;
            }
            output.show(out, &members_table(&found), &members_json(&found))
        }
        Action::Reset(options) => reset::run(&client, options, (&output, out)).await,
        Action::Delete { groups, .. } => {
            for group in groups {
                client.delete_group(group).await?;
                let line = format!("deleted group {group}");
                output.line(out, &line, &json!({"group": group, "deleted": true}))?;
            }
            Ok(())
        }
        Action::DeleteOffsets { group, topic, .. } => {
            let partitions = reset::selected(&client, topic).await?;
            let deleted = client.delete_offsets(group, &partitions).await?;
            show_deleted(group, &deleted, (&output, out))
        }
    }
}

fn server_of(action: &args::Group) -> &args::Server {
    use args::Group as Action;
    match action {
        Action::Reset(reset) => &reset.server,
        Action::List { server, .. }
        | Action::Describe { server, .. }
        | Action::Members { server, .. }
        | Action::Delete { server, .. }
        | Action::DeleteOffsets { server, .. } => server,
    }
}

/// The group, or an error with Kafka's code for one that isn't there.
async fn find(client: &Client, group: &str) -> Result<GroupDescription, CommandError> {
    let what = || format!("describe group {group:?}");
    let absent = || ClientError::check(NOT_FOUND, what).expect_err("not 0");
    Ok(client.describe_group(group).await?.ok_or_else(absent)?)
}

async fn list<W: Write>(
    client: &Client,
    state: Option<&str>,
    (output, out): (&Output, &mut W),
) -> Result<(), CommandError> {
    let mut groups = client.list_groups().await?;
    groups.retain(|one| state.is_none_or(|state| one.state.eq_ignore_ascii_case(state)));
    output.show(out, &groups_table(&groups), &groups_json(&groups))
}

fn groups_table(groups: &[GroupListing]) -> Table {
    let mut table = Table::new(&[
        left("GROUP"),
        left("STATE"),
        left("TYPE"),
        left("PROTOCOL"),
        right("COORDINATOR"),
    ]);
    let or_dash = |text: &str| Cell::from(if text.is_empty() { "-" } else { text });
    for one in groups {
        table.row([
            Cell::from(one.id.as_str()),
            or_dash(&one.state).toned(tone(&one.state)),
            or_dash(&one.kind),
            or_dash(&one.protocol_type),
            Cell::from(one.coordinator),
        ]);
    }
    table
}

fn tone(state: &str) -> Tone {
    match state {
        "Stable" => Tone::Good,
        "Empty" | "Dead" => Tone::Dim,
        _ => Tone::Warning,
    }
}

fn groups_json(groups: &[GroupListing]) -> Value {
    let known = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    let group = |one: &GroupListing| {
        json!({
            "group": one.id,
            "state": known(&one.state),
            "type": known(&one.kind),
            "protocol_type": known(&one.protocol_type),
            "coordinator": one.coordinator,
        })
    };
    groups.iter().map(group).collect()
}

async fn describe<W: Write>(
    client: &Client,
    names: &[String],
    (output, out): (&Output, &mut W),
) -> Result<(), CommandError> {
    let mut names = names.to_vec();
    let is_all = names.is_empty();
    if is_all {
        names = client.list_groups().await?.into_iter().map(|one| one.id).collect();
    }
    let mut groups = Vec::new();
    for name in &names {
        match find(client, name).await {
            Ok(group) => {
                let lags = lag::lags(client, &group).await?;
                groups.push((group, lags));
            }
            // It has gone since it was listed, or is no group of consumers.
            Err(CommandError::Client(error)) if is_all && error.wire_code() == Some(NOT_FOUND) => {}
            Err(error) => return Err(error),
        }
    }
    if !output.json && !is_all {
        let headings: String = groups.iter().map(|(group, _)| heading(group)).collect();
        output::print(out, &headings)?;
    }
    output.show(out, &lag::table(&groups), &lag::json(&groups))
}

fn heading(group: &GroupDescription) -> String {
    let (id, state, kind) = (&group.id, &group.state, group.kind);
    let members = output::counted(u64_of(group.members.len()), ("member", "members"));
    let assignor = match group.assignor.as_str() {
        "" => String::new(),
        assignor => format!(", assignor {assignor}"),
    };
    let coordinator = &group.coordinator;
    format!("group {id} ({kind}): {state}, {members}{assignor}, coordinator {coordinator}\n")
}

fn members_table(group: &GroupDescription) -> Table {
    let mut table = Table::new(&[
        left("MEMBER"),
        left("INSTANCE"),
        left("CLIENT"),
        left("HOST"),
        right("PARTITIONS"),
        left("ASSIGNED"),
    ]);
    for one in &group.members {
        table.row([
            Cell::from(one.id.as_str()),
            Cell::from(one.instance.as_deref().unwrap_or("-")),
            Cell::from(one.client_id.as_str()),
            Cell::from(one.host.as_str()),
            Cell::from(one.assigned.len()),
            Cell::from(short(&one.assigned)),
        ]);
    }
    table
}

/// `flights:0-2,5 weather:0`
fn short(partitions: &[TopicPartition]) -> String {
    let mut sorted = partitions.to_vec();
    sorted.sort();
    let topics = sorted.chunk_by(|one, next| one.topic == next.topic);
    let topic = |own: &[TopicPartition]| {
        let runs = own.chunk_by(|one, next| one.partition + 1 == next.partition);
        let run = |run: &[TopicPartition]| match run {
            [one] => one.partition.to_string(),
            [first, .., last] => format!("{}-{}", first.partition, last.partition),
            [] => String::new(),
        };
        format!("{}:{}", own[0].topic, runs.map(run).collect::<Vec<_>>().join(","))
    };
    topics.map(topic).collect::<Vec<_>>().join(" ")
}

fn members_json(group: &GroupDescription) -> Value {
    let partition = |at: &TopicPartition| json!({"topic": at.topic, "partition": at.partition});
    let member = |one: &GroupMember| {
        json!({
            "member": one.id,
            "instance": one.instance,
            "client": one.client_id,
            "host": one.host,
            "assigned": one.assigned.iter().map(partition).collect::<Vec<_>>(),
        })
    };
    json!({
        "group": group.id,
        "type": group.kind,
        "state": group.state,
        "assignor": group.assignor,
        "coordinator": group.coordinator,
        "members": group.members.iter().map(member).collect::<Vec<_>>(),
    })
}

/// Prints what was forgotten; fails with the first that was refused.
fn show_deleted<W: Write>(
    group: &str,
    deleted: &[(TopicPartition, i16)],
    (output, out): (&Output, &mut W),
) -> Result<(), CommandError> {
    for (at, code) in deleted {
        ClientError::check(*code, || {
            format!("delete the offset of partition {} of topic {:?}", at.partition, at.topic)
        })?;
    }
    let all: Vec<_> = deleted.iter().map(|(at, _)| at.clone()).collect();
    let json: Vec<_> =
        all.iter().map(|at| json!({"topic": at.topic, "partition": at.partition})).collect();
    let line = format!("deleted offsets of group {group}: {}", short(&all));
    output.line(out, &line, &json!({"group": group, "deleted": json}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_listed_with_what_is_known() {
        let listing = |id: &str, state: &str, kind: &str| GroupListing {
            id: id.to_owned(),
            protocol_type: "consumer".to_owned(),
            state: state.to_owned(),
            kind: kind.to_owned(),
            coordinator: 1,
        };
        let groups = [listing("flights", "Stable", "classic"), listing("old", "", "")];
        let expected = "\
GROUP    STATE   TYPE     PROTOCOL  COORDINATOR
flights  Stable  classic  consumer            1
old      -       -        consumer            1
";
        assert_eq!(groups_table(&groups).render(false, false), expected);
        assert_eq!(groups_json(&groups)[1]["state"], Value::Null);
    }

    #[test]
    fn assignments_are_short() {
        let all = [("b", 1), ("a", 5), ("a", 0), ("a", 1), ("a", 2)];
        let all = all.map(|(topic, partition)| TopicPartition::new(topic, partition));
        assert_eq!(short(&all), "a:0-2,5 b:1");
        assert_eq!(short(&[]), "");
    }

    #[test]
    fn members_and_what_they_read() {
        let member = |id: &str, instance: Option<&str>, partitions: &[i32]| GroupMember {
            id: id.to_owned(),
            instance: instance.map(str::to_owned),
            client_id: "app".to_owned(),
            host: "10.0.0.1".to_owned(),
            assigned: partitions.iter().map(|at| TopicPartition::new("t", *at)).collect(),
        };
        let group = GroupDescription {
            id: "g".to_owned(),
            kind: "classic",
            state: "Stable".to_owned(),
            assignor: "range".to_owned(),
            coordinator: "h:1".to_owned(),
            members: vec![member("m-1", None, &[0, 1]), member("m-2", Some("i"), &[])],
        };
        let expected = "\
MEMBER  INSTANCE  CLIENT  HOST      PARTITIONS  ASSIGNED
m-1     -         app     10.0.0.1           2  t:0-1
m-2     i         app     10.0.0.1           0
";
        assert_eq!(members_table(&group).render(false, false), expected);
        let head = "group g (classic): Stable, 2 members, assignor range, coordinator h:1\n";
        assert_eq!(heading(&group), head);
    }
}
