//! Recovery without serving: what a start does to a directory, and then what a stop does.

use std::fmt;
use std::path::PathBuf;

use crate::broker::directory::DataDirectory;
use crate::broker::journals::{Journals, replayed};
use crate::broker::mail::Opened;
use crate::broker::placement::SHARDS_MAX;
use crate::broker::server::{self, Server, ServerOptions, StartError, StopError};
use crate::broker::{capacity, metadata_log};
use crate::format::properties;
use crate::log::JournalReplay;
use crate::shard::journals::{are_journals_empty, check_journals};
use crate::shard::now;

/// Retention is nothing that recovery should run into.
const NEVER_MS: u64 = u64::MAX;

/// Why a directory could not be recovered.
#[derive(Debug, thiserror::Error)]
pub enum RecoverError {
    /// The directory is none that a broker has used.
    #[error("{}: no data directory: it has no {}", .0.display(), properties::FILE_NAME)]
    NoData(PathBuf),
    /// Nothing says which partitions there are.
    #[error(
        "{}: it has no __cluster_metadata-0, so no partition in it is known; nothing was changed",
        .0.display()
    )]
    NoMetadata(PathBuf),
    /// Not even the journals say which partitions there are.
    #[error(
        "{}: __cluster_metadata-0 has no records, so no partition is known; what the journals had \
         is in place ({journals}), but no partition was recovered", .directory.display()
    )]
    EmptyMetadata {
        /// The directory.
        directory: PathBuf,
        /// What the journals had.
        journals: JournalReplay,
    },
    /// It can't be opened.
    #[error(transparent)]
    Start(#[from] StartError),
    /// It can't be closed in order.
    #[error("recovered, but not closed in order: {0}; recover again, or serve")]
    Stop(#[from] StopError),
}

/// What was found and done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Recovery {
    /// The last stop was in order: nothing was changed.
    Clean,
    /// The directory is now as a stop in order leaves it.
    Done {
        /// What the journals had.
        journals: JournalReplay,
        /// What each partition's files were like.
        partitions: Vec<Opened>,
    },
}

impl Recovery {
    /// Whether something that was stored could not be kept. A torn tail alone is what nobody was
    /// told to be stored.
    pub fn is_lossy(&self) -> bool {
        let Recovery::Done { journals, partitions } = self else { return false };
        let has_lost = |(_, it): &Opened| !(it.damages.is_empty() && it.gaps.is_empty());
        journals.is_lossy() || partitions.iter().any(has_lost)
    }
}

impl fmt::Display for Recovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Recovery::Done { journals, partitions } = self else {
            return writeln!(f, "clean: the last stop was in order, nothing was changed");
        };
        match journals.journals.is_empty() {
            true => writeln!(f, "no journal")?,
            false => writeln!(f, "{journals}")?,
        }
        for ((topic, partition), report) in partitions {
            writeln!(f, "{topic}-{partition}: {report}")?;
        }
        let count = partitions.len();
        let loss = if self.is_lossy() { "; not everything could be kept, see above" } else { "" };
        writeln!(f, "recovered: {count} partitions are closed in order{loss}")
    }
}

/// Does to a data directory what a start and a stop in order would do, without a port: journals are
/// replayed, every partition that the metadata log knows is recovered and closed. Of the options,
/// those about addresses count for nothing.
///
/// # Errors
/// [`RecoverError`]; recovering again, or a start, begins anew.
pub fn recover(mut options: ServerOptions) -> Result<Recovery, RecoverError> {
    server::check(&options)?;
    if !options.directory.join(properties::FILE_NAME).is_file() {
        return Err(RecoverError::NoData(options.directory));
    }
    let chosen = server::choose(options.engine)?;
    capacity::fit(&mut options.config, chosen.kind, options.shards);
    options.config.first_task_delay_ms = NEVER_MS;
    options.config.retention_check_ms = NEVER_MS;
    options.config.cleaner.is_enabled = false;
    let opened = DataDirectory::open(&options.directory, options.config.node_id, now());
    let directory = opened.map_err(StartError::from)?;
    let (root, id) = (directory.path(), directory.id());
    check_journals(root, id).map_err(StartError::from)?;
    if directory.was_clean && are_journals_empty(root, id).map_err(StartError::from)? {
        return Ok(Recovery::Clean);
    }
    if !metadata_log::is_made(&directory.partitions().map_err(StartError::from)?) {
        return Err(RecoverError::NoMetadata(options.directory));
    }
    directory.begin().map_err(StartError::from)?;
    // They stay, empty, for the next server, however many shards it has.
    let replayed = replayed(&directory, SHARDS_MAX)?;
    if !metadata_log::is_there(&directory.partitions().map_err(StartError::from)?) {
        let directory = options.directory;
        return Err(RecoverError::EmptyMetadata { directory, journals: replayed });
    }
    let were_empty = replayed.is_uneventful();
    let journals = Journals { were_empty, files: Vec::new(), line: String::new() };
    let (server, partitions) = Server::open(options, chosen, (directory, journals), None)?;
    server.stop()?;
    Ok(Recovery::Done { journals: replayed, partitions })
}
