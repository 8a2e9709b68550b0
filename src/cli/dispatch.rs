//! From parsed arguments to what the client commands run with.

use std::io;

use super::args::clients::AssignorChoice;
use super::args::{self, Command, Input};
use super::command::{self, CommandError};
use super::consume::Style;
use super::{
    bench, cluster, config, consume, group, manual, offsets, output, produce, topic, wire_number,
};
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
    };
    command::run(async move { produce::run(&options).await })
}

fn consume(consume: args::Consume) -> Result<(), CommandError> {
    let style = match (consume.json, consume.with.is_empty()) {
        (true, _) => Style::Json,
        (false, true) => Style::Format(consume.format),
        (false, false) => Style::Format(consume::format_with(&consume.with)),
    };
    let assignor = consume.assignor.map(|choice| match choice {
        AssignorChoice::Range => Assignor::Range,
        AssignorChoice::RoundRobin => Assignor::RoundRobin,
        AssignorChoice::CooperativeSticky => Assignor::CooperativeSticky,
    });
    let (instance, shows_lag) = (consume.instance, consume.lag);
    let group = consume.group;
    let options = consume::ConsumeOptions {
        bootstrap: consume.server.bootstrap,
        topic: consume.topic.to_string(),
        partition: consume.partition.map(wire_number),
        from: consume.from,
        until: consume.until,
        count: consume.count,
        follow: consume.follow,
        isolation: consume.isolation.into(),
        style,
        group: group.map(|id| consume::GroupOptions { id, assignor, instance, shows_lag }),
    };
    command::run(async move { consume::run(&options, &mut io::stdout().lock()).await })
}
