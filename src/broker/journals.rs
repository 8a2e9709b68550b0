//! The commit journals at the start: what the last run left in them is put in place before anything
//! else reads the directory.

use std::collections::BTreeMap;

use crate::broker::config::TopicConfigs;
use crate::broker::directory::DataDirectory;
use crate::broker::server::{ServerOptions, StartError};
use crate::log::{Durability, JournalReplay};
use crate::shard::JournalFile;
use crate::shard::journals::{prepare_journals, probe_line, remove_journals, replay_journals};

/// What the shards start with.
pub(crate) struct Journals {
    /// Whether the last run has left nothing to replay.
    pub were_empty: bool,
    /// One for each shard; none where journals aren't used.
    pub files: Vec<JournalFile>,
    /// How acknowledgements are made durable here, in a line.
    pub line: String,
}

/// Replays the journals that are there, those of shards beyond so many as well, and says what came
/// of it.
///
/// # Errors
/// [`StartError::Journal`]: records may be in a journal and nowhere else.
pub(crate) fn replayed(
    directory: &DataDirectory,
    shards: usize,
) -> Result<JournalReplay, StartError> {
    let shards = u32::try_from(shards).expect("shards are at most SHARDS_MAX");
    let replayed = replay_journals(directory.path(), directory.id(), shards)?;
    if replayed.is_lossy() {
        tracing::error!("{replayed}");
    } else if !replayed.is_uneventful() {
        tracing::info!("{replayed}");
    }
    Ok(replayed)
}

/// Replays the journals that are there, whatever the settings say now, and makes new ones ready.
///
/// # Errors
/// [`StartError::Journal`]: records may be in a journal and nowhere else, so the broker doesn't
/// serve without them.
pub(crate) fn journals(
    directory: &DataDirectory,
    options: &ServerOptions,
) -> Result<Journals, StartError> {
    let (root, id) = (directory.path(), directory.id());
    let shards = u32::try_from(options.shards).expect("shards are at most SHARDS_MAX");
    let replayed = replayed(directory, options.shards)?;
    let were_empty = replayed.is_uneventful();
    let tier = match TopicConfigs::new(&options.config).resolve(&BTreeMap::new()).durability() {
        Durability::Device => "durability:",
        Durability::PageCache => "durability: the page cache; in the device tier",
    };
    match prepare_journals(root, (id, shards), options.config.journal) {
        Ok((files, probed)) => {
            let line = format!("{tier} {}", probe_line(&files, probed));
            Ok(Journals { were_empty, files, line })
        }
        Err(reason) => {
            if let Err(error) = remove_journals(root, id) {
                tracing::warn!("{}: empty journals can't be removed: {error}", root.display());
            }
            let line = format!("{tier} each plan syncs its own file; no journal: {reason}");
            Ok(Journals { were_empty, files: Vec::new(), line })
        }
    }
}
