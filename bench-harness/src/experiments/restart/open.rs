//! Opens what a server left, in this process, as a start does it: journals first, then every
//! partition, with what the checkpoint says.

use std::path::Path;
use std::time::{Duration, Instant};

use uringlog::format::{clean_shutdown, partition_metadata, properties};
use uringlog::log::{JournalReplay, Opening, RecoveryReport};
use uringlog::shard::JournalMode;
use uringlog::shard::journals::replay_journals;
use uringlog::{LogConfig, Offset};

use super::scene::{Scene, TOPIC, recovery_points};
use crate::engines::library;
use crate::experiments::measure::u64_of;
use crate::experiments::{DoingTo, Failure};
use crate::run::Context;

/// What opening found and did.
pub struct Opened {
    pub journals: JournalReplay,
    /// Of each partition.
    pub reports: Vec<RecoveryReport>,
    /// Journals and partitions.
    pub took: Duration,
}

impl Opened {
    /// A count over all partitions.
    pub fn sum(&self, of: impl Fn(&RecoveryReport) -> u64) -> u64 {
        self.reports.iter().map(of).sum()
    }

    /// Bytes of torn tails.
    pub fn cut_off(&self) -> u64 {
        self.sum(|it| it.truncated.iter().map(|torn| torn.bytes.0).sum())
    }

    /// Segments whose indexes were built anew.
    pub fn rebuilt(&self) -> u64 {
        self.sum(|it| u64_of(it.indexes_rebuilt.len()))
    }

    /// Records of the journals that a replay looked at.
    pub fn journal_records(&self) -> u64 {
        self.journals.journals.iter().map(|it| it.records).sum()
    }

    /// Bytes of batches that the journals had and the files didn't.
    pub fn journal_written(&self) -> u64 {
        self.journals.journals.iter().map(|it| it.written.0).sum()
    }
}

/// Opens every partition of a directory on the cell's engine, and closes it in order.
///
/// # Errors
/// What can't be opened.
pub fn open(
    context: &Context,
    (data, partitions): (&Path, u32),
    configure: impl Fn(&mut LogConfig),
) -> Result<Opened, Failure> {
    // One shard, as the server has it.
    const SHARDS: u32 = 1;
    let path = data.join(properties::FILE_NAME);
    let bytes = std::fs::read(&path).doing_to("read", &path)?;
    let known = properties::parse(&bytes).ok().and_then(|it| it.directory_id);
    let id = known.ok_or_else(|| wrong(&path, "no directory id"))?;
    let is_marked = data.join(clean_shutdown::FILE_NAME).exists();
    let points = recovery_points(data, partitions);
    let started = Instant::now();
    let replayed = replay_journals(data, id, SHARDS);
    let journals = replayed.map_err(|error| wrong(data, &error.to_string()))?;
    let replay = started.elapsed();
    let is_clean = is_marked && journals.is_uneventful();
    let mut options = library::options(context)?;
    options.directory = data.into();
    options.journals.mode = JournalMode::Never;
    let (reports, took) = library::with_engine(context, options, async |engine| {
        let (started, mut reports) = (Instant::now(), Vec::new());
        for (number, point) in (0..partitions).zip(points) {
            let mut spec = library::spec(context, (TOPIC, number), &configure);
            let name = Scene::directory(data, number).join(partition_metadata::FILE_NAME);
            let bytes = std::fs::read(&name).doing_to("read", &name)?;
            let topic_id = partition_metadata::parse(&bytes);
            spec.topic_id = topic_id.map_err(|error| wrong(&name, &error.to_string()))?;
            let opening = Opening {
                clean: is_clean,
                recovery_point: point.map(Offset),
                log_start: None,
                leader_epoch_bump: true,
            };
            reports.push(engine.open(spec, opening)?.1);
        }
        Ok((reports, started.elapsed()))
    })?;
    Ok(Opened { journals, reports, took: replay + took })
}

fn wrong(path: &Path, what: &str) -> Failure {
    Failure::Wrong(format!("{}: {what}", path.display()))
}
