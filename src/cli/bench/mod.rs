//! `uringlog bench`: how fast a broker takes and gives records, from one client on one thread.

mod consume;

mod produce;

mod schedule;

mod summary;

use std::io::Write;

use super::args;
use super::command::CommandError;
use super::output::Output;
use crate::client::{Client, ClientOptions};

/// Runs the command; SIGINT ends the measurement and shows what there is.
///
/// # Errors
/// [`CommandError`].
pub async fn run(action: &args::Bench, out: &mut impl Write) -> Result<(), CommandError> {
    let (args::Bench::Produce(args::bench::BenchProduce { server, .. })
    | args::Bench::Consume(args::bench::BenchConsume { server, .. })) = action;
    let output = Output::of_process(server.json, server.color);
    let client = Client::connect(&server.server.bootstrap, ClientOptions::default()).await?;
    let summary = match action {
        args::Bench::Produce(options) => produce::run(&client, options).await?,
        args::Bench::Consume(options) => consume::run(&client, options).await?,
    };
    summary.show((&output, out))
}
