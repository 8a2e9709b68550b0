//! The log as a library, on the engine of a cell.

use std::path::PathBuf;

use uringlog::{Engine, EngineOptions, LogConfig, PartitionId, PartitionSpec, TopicName, edge};

use crate::experiments::{DoingTo, Failure};
use crate::run::Context;

/// Options of the cell's engine on the folder `data` of the cell.
///
/// # Errors
/// [`Failure::Skipped`] for an engine that is no library.
pub fn options(context: &Context) -> Result<EngineOptions, Failure> {
    let (kind, _) = of_library(context)?;
    Ok(EngineOptions::new(directory(context), kind))
}

/// Where [`options`] has the data.
pub fn directory(context: &Context) -> PathBuf {
    context.folder.join("data")
}

fn of_library(context: &Context) -> Result<(uringlog::EngineKind, uringlog::EdgeKind), Failure> {
    let engine = context.engine().expect("an experiment on the library has cells for its engines");
    let skipped = || Failure::Skipped(format!("{engine} is no library"));
    engine.of_library().ok_or_else(skipped)
}

/// Opens the engine, has the work done, and closes it; all on this thread, on the runtime that the
/// engine needs.
///
/// # Errors
/// Those of the engine, of the work, and a partition that could not be closed.
pub fn with_engine<T>(
    context: &Context,
    options: EngineOptions,
    work: impl AsyncFnOnce(&Engine) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let (_, edge) = of_library(context)?;
    let folder = context.folder.clone();
    let done = edge::run(edge, async {
        let engine = Engine::open_directory(options)?;
        let done = work(&engine).await;
        let failed = engine.close().await;
        // What went wrong first says more than what could not be closed because of it.
        let done = done?;
        match failed.first() {
            None => Ok(done),
            Some((path, why)) => {
                Err(Failure::Wrong(format!("{} could not be closed: {why}", path.display())))
            }
        }
    });
    done.doing_to("start an event loop for the engine in", &folder)?
}

/// A partition of the cell's tier, with settings changed.
///
/// # Panics
/// When `topic` is no valid name.
pub fn spec(
    context: &Context,
    (topic, partition): (&str, u32),
    change: impl FnOnce(&mut LogConfig),
) -> PartitionSpec {
    let topic = TopicName::new(topic).expect("topics of experiments have valid names");
    let mut spec = PartitionSpec::new(topic, context.durability());
    spec.partition = PartitionId(partition);
    change(&mut spec.config);
    spec
}
