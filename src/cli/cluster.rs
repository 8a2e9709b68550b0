//! `uringlog cluster`: brokers, features, API versions, log directories.

use std::io::Write;

use serde_json::{Value, json};

use super::args;
use super::command::CommandError;
use super::output::{self, Cell, Output, Table, Tone, left, right};
use crate::client::apis::api_name;
use crate::client::{
    Client, ClientError, ClientOptions, ClusterDescription, Feature, LogDirectory, Node,
    TopicPartition, features,
};

/// Runs the command.
///
/// # Errors
/// [`CommandError`].
pub async fn run(action: &args::Cluster, out: &mut impl Write) -> Result<(), CommandError> {
    use args::Cluster as Action;
    let (Action::Describe { server }
    | Action::Features { server }
    | Action::ApiVersions { server, .. }
    | Action::LogDirs { server, .. }) = action;
    let output = Output::of_process(server.json, server.color);
    let client = Client::connect(&server.server.bootstrap, ClientOptions::default()).await?;
    match action {
        Action::Describe { .. } => {
            let cluster = client.describe_cluster().await?;
            if !output.json {
                output::print(out, &heading(&cluster))?;
            }
            output.show(out, &brokers_table(&cluster), &cluster_json(&cluster))
        }
        Action::Features { .. } => {
            let features = features(&client.any_connection().await?).await?;
            output.show(out, &features_table(&features), &features_json(&features))
        }
        Action::ApiVersions { broker, .. } => {
            let connection = match broker {
                Some(id) => client.broker(*id).await?,
                None => client.any_connection().await?,
            };
            let mut apis = connection.spoken().to_vec();
            apis.sort_unstable();
            output.show(out, &apis_table(&apis), &apis_json(&apis))
        }
        Action::LogDirs { broker, partitions, .. } => {
            let found = log_directories(&client, *broker).await?;
            let table = if *partitions { sizes_table(&found) } else { dirs_table(&found) };
            output.show(out, &table, &dirs_json(&found))
        }
    }
}

fn heading(cluster: &ClusterDescription) -> String {
    let id = cluster.id.as_deref().unwrap_or("without an id");
    format!("cluster {id}, controller {}\n", cluster.controller)
}

fn brokers_table(cluster: &ClusterDescription) -> Table {
    let mut table =
        Table::new(&[right("BROKER"), left("ADDRESS"), left("RACK"), left("ROLE"), left("STATE")]);
    for broker in &cluster.brokers {
        let is_controller = broker.id == cluster.controller;
        table.row([
            Cell::from(broker.id),
            Cell::from(broker.address.as_str()),
            Cell::from(broker.rack.as_deref().unwrap_or("-")),
            Cell::from(if is_controller { "controller" } else { "broker" }),
            match broker.fenced {
                true => Cell::from("fenced").toned(Tone::Bad),
                false => Cell::from("up").toned(Tone::Good),
            },
        ]);
    }
    table
}

fn cluster_json(cluster: &ClusterDescription) -> Value {
    let broker = |one: &Node| {
        json!({
            "id": one.id, "address": one.address, "rack": one.rack, "fenced": one.fenced,
        })
    };
    json!({
        "cluster_id": cluster.id,
        "controller": cluster.controller,
        "brokers": cluster.brokers.iter().map(broker).collect::<Vec<_>>(),
    })
}

fn features_table(features: &[Feature]) -> Table {
    let mut table =
        Table::new(&[left("FEATURE"), right("LEVEL"), right("LOWEST"), right("HIGHEST")]);
    for one in features {
        let level = Cell::from(one.level);
        table.row([
            Cell::from(one.name.as_str()),
            if one.level < one.supported.1 { level.toned(Tone::Warning) } else { level },
            Cell::from(one.supported.0),
            Cell::from(one.supported.1),
        ]);
    }
    table
}

fn features_json(features: &[Feature]) -> Value {
    let feature = |one: &Feature| {
        json!({
            "feature": one.name,
            "level": one.level,
            "supported_min": one.supported.0,
            "supported_max": one.supported.1,
        })
    };
    features.iter().map(feature).collect()
}

fn apis_table(apis: &[(i16, i16, i16)]) -> Table {
    let mut table = Table::new(&[right("KEY"), left("API"), right("LOWEST"), right("HIGHEST")]);
    for (key, min, max) in apis {
        let name = Cell::from(api_name(*key));
        table.row([Cell::from(*key), name, Cell::from(*min), Cell::from(*max)]);
    }
    table
}

fn apis_json(apis: &[(i16, i16, i16)]) -> Value {
    let api = |(key, min, max): &(i16, i16, i16)| {
        json!({
            "key": key, "api": api_name(*key), "min": min, "max": max,
        })
    };
    apis.iter().map(api).collect()
}

type Found = Vec<(i32, LogDirectory)>;

async fn log_directories(client: &Client, only: Option<i32>) -> Result<Found, ClientError> {
    let ids: Vec<i32> = match only {
        Some(id) => vec![id],
        None => client.describe_cluster().await?.brokers.iter().map(|one| one.id).collect(),
    };
    let mut found = Vec::new();
    for id in ids {
        let directories = client.log_directories(id).await?;
        found.extend(directories.into_iter().map(|directory| (id, directory)));
    }
    Ok(found)
}

fn state(directory: &LogDirectory) -> Cell {
    match directory.error_code {
        0 => Cell::from("up").toned(Tone::Good),
        code => Cell::from(format!("error {code}")).toned(Tone::Bad),
    }
}

fn dirs_table(found: &Found) -> Table {
    let mut table = Table::new(&[
        right("BROKER"),
        left("DIRECTORY"),
        left("STATE"),
        right("PARTITIONS"),
        right("SIZE"),
        right("FREE"),
        right("TOTAL"),
    ]);
    for (broker, one) in found {
        let size: i64 = one.partitions.iter().map(|(_, size)| size).sum();
        table.row([
            Cell::from(*broker),
            Cell::from(one.path.as_str()),
            state(one),
            Cell::from(one.partitions.len()),
            Cell::from(output::bytes(size)),
            Cell::from(output::bytes(one.usable)),
            Cell::from(output::bytes(one.total)),
        ]);
    }
    table
}

fn sizes_table(found: &Found) -> Table {
    let mut table = Table::new(&[
        left("TOPIC"),
        right("PARTITION"),
        right("SIZE"),
        right("BROKER"),
        left("DIRECTORY"),
    ]);
    let each = found.iter().flat_map(|(broker, one)| {
        one.partitions.iter().map(move |(at, size)| (at, *size, *broker, one.path.as_str()))
    });
    let mut rows: Vec<_> = each.collect();
    rows.sort();
    for (at, size, broker, path) in rows {
        table.row([
            Cell::from(at.topic.as_str()),
            Cell::from(at.partition),
            Cell::from(output::bytes(size)),
            Cell::from(broker),
            Cell::from(path),
        ]);
    }
    table
}

fn dirs_json(found: &Found) -> Value {
    let known = |bytes: i64| Some(bytes).filter(|bytes| *bytes >= 0);
    let directory = |(broker, one): &(i32, LogDirectory)| {
        let partition = |(at, size): &(TopicPartition, i64)| {
            json!({
                "topic": at.topic, "partition": at.partition, "bytes": size,
            })
        };
        json!({
            "broker": broker,
            "directory": one.path,
            "error_code": one.error_code,
            "total_bytes": known(one.total),
            "usable_bytes": known(one.usable),
            "partitions": one.partitions.iter().map(partition).collect::<Vec<_>>(),
        })
    };
    found.iter().map(directory).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brokers_and_the_controller() {
        let node = |id, fenced| Node { id, address: format!("h:{id}"), rack: None, fenced };
        let cluster = ClusterDescription {
            id: Some("abc".to_owned()),
            controller: 2,
            brokers: vec![node(1, false), node(2, false), node(3, true)],
        };
        assert_eq!(heading(&cluster), "cluster abc, controller 2\n");
        let expected = "\
BROKER  ADDRESS  RACK  ROLE        STATE
     1  h:1      -     broker      up
     2  h:2      -     controller  up
     3  h:3      -     broker      fenced
";
        assert_eq!(brokers_table(&cluster).render(false, false), expected);
    }

    #[test]
    fn directories_and_what_lies_in_them() {
        let directory = LogDirectory {
            path: "/data".to_owned(),
            error_code: 0,
            total: 2_000_000_000,
            usable: -1,
            partitions: vec![
                (TopicPartition::new("t", 1), 500),
                (TopicPartition::new("t", 0), 1_000),
            ],
        };
        let found = vec![(1, directory)];
        let expected = "\
BROKER  DIRECTORY  STATE  PARTITIONS    SIZE  FREE   TOTAL
     1  /data      up              2  1.5 kB     -  2.0 GB
";
        assert_eq!(dirs_table(&found).render(false, false), expected);
        let expected = "\
TOPIC  PARTITION    SIZE  BROKER  DIRECTORY
t              0  1.0 kB       1  /data
t              1   500 B       1  /data
";
        assert_eq!(sizes_table(&found).render(false, false), expected);
    }

    #[test]
    fn apis_have_kafkas_names() {
        let text = apis_table(&[(0, 0, 13), (1_000, 0, 1)]).render(false, false);
        assert!(text.contains("   0  Produce"), "{text}");
        assert!(text.contains("1000  API 1000"), "{text}");
    }
}
