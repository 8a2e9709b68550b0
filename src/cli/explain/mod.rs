//! `uringlog explain`: a partition's folder as a picture, the way to an offset or a time through
//! it, and what retention and rolling will do next.

pub mod args;
mod config;
mod lookup;
mod outlook;
mod picture;
mod segments;
mod time;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

pub use config::of_topic as configs;
use segments::Segment;

use crate::broker::config::{ConfigError, ServerConfig, TopicConfigError, TopicConfigs};
use crate::cli::holder;
use crate::cli::log_file::LogFileError;
use crate::cli::output::plural;
use crate::format::names::{PartitionDirectory, SegmentFile};

/// What the command line says.
#[derive(Clone, PartialEq, Debug)]
pub struct ExplainOptions {
    /// A partition's folder, a file in it, or a log directory.
    pub path: PathBuf,
    /// The offset to look up.
    pub offset: Option<i64>,
    /// The time to look up, in ms since 1970.
    pub timestamp: Option<i64>,
    /// Topic configs that count instead of what is known.
    pub configs: BTreeMap<String, String>,
    /// The time of the explanation, in ms since 1970.
    pub now: i64,
}

/// Why nothing is explained.
#[derive(Debug, thiserror::Error)]
pub enum ExplainError {
    /// A folder that can't be read.
    #[error("cannot read {}: {error}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// As the system says.
        error: io::Error,
    },
    /// Nothing that this explains.
    #[error(
        "{}: no .log file is here, and no folder named like a partition (topic-0) with one; name \
         the folder of a partition, a file in it, or a log directory",
        .0.display()
    )]
    NoLog(PathBuf),
    /// A file, but none of a segment.
    #[error(
        "{}: its name is none of a segment's file (00000000000000000000.log); name such a file, \
         the folder of a partition, or a log directory; `uringlog dump` shows other files of Kafka",
        .0.display()
    )]
    NoSegment(PathBuf),
    /// A file that isn't what its name says.
    #[error(transparent)]
    File(#[from] LogFileError),
    /// The defaults.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A topic config of the command line.
    #[error(transparent)]
    TopicConfig(#[from] TopicConfigError),
    /// Standard output can't be written.
    #[error("cannot write to standard output: {0}")]
    Output(#[from] io::Error),
}

/// Explains.
///
/// # Errors
/// [`ExplainError`].
pub fn run(options: &ExplainOptions, out: &mut dyn Write) -> Result<(), ExplainError> {
    let (folder, segment) = place(&options.path)?;
    let segments = segments::read(&folder)?;
    if segments.is_empty() {
        return list(&folder, out);
    }
    let server = ServerConfig::defaults();
    let topics = TopicConfigs::new(&server);
    topics.validate(&options.configs)?;
    let known = config::of_topic(&folder);
    let mut overrides = known.clone().unwrap_or_default();
    overrides.extend(options.configs.clone());
    let config = topics.resolve(&overrides);
    picture::draw(&folder, &segments, segment, out)?;
    if let Some(held) = holder::of_partition(&folder) {
        writeln!(out, "{held}")?;
    }
    writeln!(out)?;
    picture::settings(&config, (known.is_some(), &options.configs), out)?;
    if let Some(offset) = options.offset {
        writeln!(out)?;
        lookup::offset(&segments, offset, out)?;
    }
    if let Some(timestamp) = options.timestamp {
        writeln!(out)?;
        lookup::timestamp(&segments, timestamp, out)?;
    }
    writeln!(out)?;
    outlook::retention(&folder, &segments, (&config, options.now), out)?;
    writeln!(out)?;
    outlook::roll(&segments, (&config, options.now), out)?;
    Ok(())
}

/// The partition's folder, and the segment if one of its files was named.
fn place(path: &Path) -> Result<(PathBuf, Option<i64>), ExplainError> {
    let name = path.file_name().and_then(|it| it.to_str()).unwrap_or_default();
    match SegmentFile::parse(name) {
        Some(file) if path.is_file() => {
            let parent = path.parent().filter(|it| !it.as_os_str().is_empty());
            let folder = parent.unwrap_or(Path::new(".")).to_owned();
            Ok((folder, Some(file.base.to_wire())))
        }
        _ if path.is_file() => Err(ExplainError::NoSegment(path.to_owned())),
        _ => Ok((path.to_owned(), None)),
    }
}

/// The partitions of a log directory.
fn list(folder: &Path, out: &mut dyn Write) -> Result<(), ExplainError> {
    let unreadable = |error| ExplainError::Read { path: folder.to_owned(), error };
    let mut partitions = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && PartitionDirectory::parse(&name).is_ok() {
            let segments = segments::read(&path)?;
            partitions.push((name, segments.len(), segments.iter().map(Segment::bytes).sum()));
        }
    }
    // Folders elsewhere may have such names, too.
    if partitions.iter().all(|it| it.1 == 0) {
        return Err(ExplainError::NoLog(folder.to_owned()));
    }
    partitions.sort();
    let count = plural(partitions.len(), "partition");
    writeln!(out, "{count}; name one of them to have it explained:")?;
    for (name, count, bytes) in partitions {
        let bytes: u64 = bytes;
        let (place, count) = (folder.join(name), plural(count, "segment"));
        writeln!(out, "  {}: {count}, {}", place.display(), picture::size(bytes))?;
    }
    Ok(())
}
