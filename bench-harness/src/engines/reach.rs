//! One way to a topic for work that is the same by the library and through the wire.

use uringlog::{ByteCount, Engine, LogConfig};

use super::server::{self, Server};
use super::sink::Sink;
use super::{EngineName, library};
use crate::experiments::Failure;
use crate::record::Recorder;
use crate::run::Context;

/// Any setting without a limit, as Kafka writes it where -1 isn't allowed.
pub const NO_LIMIT: u64 = i64::MAX.unsigned_abs();

/// Settings of a topic by Kafka's names, of those that [`Reach::topic`] knows.
pub type Settings<'a> = &'a [(&'static str, u64)];

/// How topics are reached.
pub enum Reach<'a> {
    /// An engine in this process.
    Library(&'a Context, &'a Engine),
    /// A server of its own.
    Wire(&'a Server),
}

impl Reach<'_> {
    /// A new topic with settings.
    ///
    /// # Errors
    /// When it is refused.
    ///
    /// # Panics
    /// For a setting that the table below doesn't have.
    pub async fn topic(&self, topic: (&str, u32), settings: Settings<'_>) -> Result<Sink, Failure> {
        match self {
            Reach::Library(context, engine) => {
                let change = |config: &mut LogConfig| {
                    settings.iter().for_each(|setting| configure(config, *setting));
                };
                Sink::library(context, engine, topic, change).await
            }
            Reach::Wire(server) => Sink::wire(server, topic, settings).await,
        }
    }

    /// Whether costs and series are to be measured this way: ours by the library, Kafka's by the
    /// wire.
    pub fn is_measured(&self, context: &Context) -> bool {
        matches!(self, Reach::Library(..)) || context.engine() == Some(EngineName::Kafka)
    }
}

fn configure(config: &mut LogConfig, (name, value): (&str, u64)) {
    match name {
        "segment.bytes" => config.segment_bytes = ByteCount(value),
        "segment.ms" => config.segment_ms = value,
        "segment.jitter.ms" => config.segment_jitter_ms = value,
        "segment.index.bytes" => config.segment_index_bytes = ByteCount(value),
        "index.interval.bytes" => config.index_interval_bytes = ByteCount(value),
        "max.message.bytes" => config.batch_bytes_max = ByteCount(value),
        "retention.ms" => config.retention_ms = (value != NO_LIMIT).then_some(value),
        other => panic!("{other} is not in the table of settings"),
    }
}

/// Has work done by the library and then through the wire, as far as the engine is both and the
/// parameter `through` (`both`, `library`, `wire`) asks for it; figures carry that parameter with
/// `library` or `wire`. Kafka is reached by the wire only.
///
/// # Errors
/// Those of the work, and of starting and stopping what it is done on.
pub fn by_each(
    context: &Context,
    recorder: &mut Recorder,
    mut work: impl AsyncFnMut(&Reach<'_>, &mut Recorder) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let is_library = context.engine().is_some_and(|it| it.of_library().is_some());
    let through = context.parameters.choice("through");
    if is_library && through != "wire" {
        recorder.vary("through", "library");
        library::with_engine(context, library::options(context)?, async |engine| {
            work(&Reach::Library(context, engine), recorder).await
        })?;
    }
    if !is_library || through != "library" {
        recorder.vary("through", "wire");
        let server = Server::start(context, "server", &[])?;
        server::block_on(work(&Reach::Wire(&server), recorder))?;
        server.stop()?;
    }
    Ok(())
}
