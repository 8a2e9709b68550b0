//! `uringlog topic`: create, list, describe, delete.

use std::io::{self, Write};
use std::time::Duration;

use super::command::CommandError;
use crate::client::{Client, ClientError, ClientOptions, NewTopic, Topic};
use crate::wire::error::ErrorCode;

/// What to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TopicAction {
    /// Creates one topic.
    Create(NewTopic),
    /// Names all topics.
    List,
    /// Shows one topic's partitions and settings.
    Describe(String),
    /// Deletes one topic and its records.
    Delete(String),
}

/// Runs one action and prints what it has to say.
///
/// # Errors
/// [`CommandError`].
pub async fn run(
    bootstrap: &str,
    action: &TopicAction,
    out: &mut impl Write,
) -> Result<(), CommandError> {
    let client = Client::connect(bootstrap, ClientOptions::default()).await?;
    let text = match action {
        TopicAction::Create(topic) => {
            let id = client.create_topic(topic).await?;
            format!("created topic {} ({id})\n", topic.name)
        }
        TopicAction::List => list(&client).await?,
        TopicAction::Describe(name) => describe(&client, name).await?,
        TopicAction::Delete(name) => {
            client.delete_topic(name).await?;
            format!("deleted topic {name}\n")
        }
    };
    let print = |out: &mut dyn io::Write| out.write_all(text.as_bytes()).and_then(|()| out.flush());
    print(out).map_err(CommandError::Output)
}

/// A `name=value` argument.
///
/// # Errors
/// [`CommandError::Usage`] without an equals sign or a name.
pub fn parse_config(text: &str) -> Result<(String, String), CommandError> {
    match text.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() => {
            Ok((name.trim().to_owned(), value.trim().to_owned()))
        }
        _ => Err(CommandError::Usage(format!("{text:?} is no setting of the form NAME=VALUE"))),
    }
}

async fn list(client: &Client) -> Result<String, CommandError> {
    let cluster = client.metadata(None).await?;
    let mut names: Vec<_> = cluster.topics.into_iter().map(|topic| topic.name).collect();
    names.sort();
    Ok(names.iter().map(|name| format!("{name}\n")).collect())
}

async fn describe(client: &Client, name: &str) -> Result<String, CommandError> {
    let topic = find(client, name).await?;
    let configs = client.describe_configs(name).await?;
    let own = configs.iter().filter(|entry| entry.is_set_on_topic()).map(|entry| {
        let value = entry.value.as_deref().unwrap_or("(hidden)");
        format!("  {}={value}\n", entry.name)
    });
    let partitions = topic.partitions.iter().map(|partition| {
        let (index, leader, replicas) = (partition.index, partition.leader, &partition.replicas);
        format!(
            "  partition {index}: leader {leader} (epoch {}), replicas {replicas:?}, \
             in sync {:?}\n",
            partition.leader_epoch, partition.in_sync
        )
    });
    let count = topic.partitions.len();
    let head = format!("topic {name} ({}), {count} partitions\n", topic.id);
    Ok(std::iter::once(head).chain(partitions).chain(own).collect())
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

    #[test]
    fn settings_have_a_name_and_may_have_an_empty_value() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(parse_config("a=b").expect("fine"), pair("a", "b"));
        assert_eq!(parse_config("a=b=c").expect("fine"), pair("a", "b=c"));
        assert_eq!(parse_config("a=").expect("fine"), pair("a", ""));
        parse_config("a").expect_err("no value");
        parse_config("=b").expect_err("no name");
    }
}
