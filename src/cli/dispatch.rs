//! From parsed arguments to what the client commands run with.

use std::io;

use super::args::clients::{AssignorChoice, ProtocolChoice};
use super::args::{self, Command, Input};
use super::command::{self, CommandError};
use super::consume::Style;
use super::{
    bench, cluster, config, consume, group, manual, offsets, output, produce, topic, wire_number,
};
use crate::client::member::Protocol;
use crate::client::member::assign::Assignor;

/// Runs a command that speaks to a broker, or that is about the command line; `None` for the
/// others.
pub(super) fn run(command: Command) -> Result<Result<(), CommandError>, Box<Command>> {
    let out = || io::BufWriter::new(io::stdout().lock());
    Ok(match command {
        Command::Topic(own) => command::run(async move { topic::run(&own, &mut out()).await }),
        Command::Group(own) => command::run(async move { group::run(&own, &mut out()).await }),
        Command::Offsets(own) => command::run(async move { offsets::run(&own, &mut out()).await }),
        Command::Config(own) => command::run(async move { config::run(&own, &mut out()).await }),
        Command::Cluster(own) => command::run(async move { cluster::run(&own, &mut out()).await }),
        Command::Bench(own) => command::run(async move { bench::run(&own, &mut out()).await }),
        Command::Produce(own) => produce(own),
        Command::Consume(own) => consume(own),
        Command::Completions(own) => manual::completions(own.shell, &mut out()),
        Command::Man(own) => manual::pages(&own.dir).map(|pages| {
            output::say(&format!("{pages} pages in {}", own.dir.display()));
        }),
        other => return Err(Box::new(other)),
    })
}

fn produce(produce: args::Produce) -> Result<(), CommandError> {
    let options = produce::ProduceOptions {
        bootstrap: produce.server.bootstrap,
        topic: produce.topic.to_string(),
        partition: produce.partition.map(wire_number),
        key_separator: produce.key_separator,
        acks: produce.acks.into(),
        codec: produce.codec.into(),
        headers: produce.header,
        batch_bytes: crate::units::usize_of(u64::from(produce.batch_bytes)),
        input: match produce.file {
            Input::StandardInput => None,
            Input::File(path) => Some(path),
        },
        json: produce.json,
    };
    command::run(async move { produce::run(&options).await })
}

fn consume(consume: args::Consume) -> Result<(), CommandError> {
    let style = match (consume.json, consume.with.is_empty()) {
        (true, _) => Style::Json,
        (false, true) => Style::Format(consume.format),
        (false, false) => Style::Format(consume::format_with(&consume.with)),
    };
    let protocol = protocol(consume.protocol, consume.assignor)?;
    let (instance, shows_lag) = (consume.instance, consume.lag);
    let mut topics = Vec::new();
    for topic in consume.topics.iter().map(ToString::to_string) {
        if !topics.contains(&topic) {
            topics.push(topic);
        }
    }
    let group = consume.group;
    let options = consume::ConsumeOptions {
        bootstrap: consume.server.bootstrap,
        topics,
        partition: consume.partition.map(wire_number),
        from: consume.from,
        until: consume.until,
        count: consume.count,
        follow: consume.follow,
        isolation: consume.isolation.into(),
        style,
        group: group.map(|id| consume::GroupOptions { id, protocol, instance, shows_lag }),
    };
    command::run(async move { consume::run(&options, &mut io::stdout().lock()).await })
}

/// How to be a member; some ways of sharing out partitions belong to one of the protocols only.
fn protocol(
    protocol: Option<ProtocolChoice>,
    assignor: Option<AssignorChoice>,
) -> Result<Protocol, CommandError> {
    let is_classic = protocol != Some(ProtocolChoice::Consumer);
    let classic = |assignor| Ok(Protocol::Classic(vec![assignor]));
    match (is_classic, assignor) {
        (true, None) => Ok(Protocol::classic()),
        (true, Some(AssignorChoice::Range)) => classic(Assignor::Range),
        (true, Some(AssignorChoice::RoundRobin)) => classic(Assignor::RoundRobin),
        (true, Some(AssignorChoice::CooperativeSticky)) => classic(Assignor::CooperativeSticky),
        (true, Some(AssignorChoice::Uniform)) => Err(CommandError::Usage(
            "uniform is a broker's way to share out partitions; add --protocol consumer".to_owned(),
        )),
        (false, None) => Ok(Protocol::Consumer(None)),
        (false, Some(AssignorChoice::Range)) => Ok(Protocol::Consumer(Some("range".to_owned()))),
        (false, Some(AssignorChoice::Uniform)) => {
            Ok(Protocol::Consumer(Some("uniform".to_owned())))
        }
        (false, Some(AssignorChoice::RoundRobin | AssignorChoice::CooperativeSticky)) => {
            Err(CommandError::Usage(
                "with --protocol consumer the broker shares out partitions: --assignor uniform or \
                 range"
                    .to_owned(),
            ))
        }
    }
}
