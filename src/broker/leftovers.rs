//! At the start: partition directories that the metadata knows no more, or never did.
//!
//! A topic that was deleted just before a crash is deleted to the end. Everything else is somebody
//! else's: it is named and left alone, whatever it costs in space.

use std::fs;

use crate::broker::directory::{DirectoryError, Found, PartitionKey, deleted_name};
use crate::broker::image::Image;
use crate::broker::node::Shared;
use crate::format::names::TopicName;

/// Foreign directories that are named one by one; the rest is counted.
const NAMED_MAX: usize = 20;

/// What to do with a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Ours,
    Delete,
    Foreign,
}

/// Gives directories of deleted topics their `-delete` names, and names the foreign ones.
///
/// # Errors
/// When a directory can't be renamed: its topic may have been made anew and needs the place.
pub fn settle(shared: &Shared, image: &Image) -> Result<(), DirectoryError> {
    let root = &shared.directory;
    let mut foreign = Vec::new();
    for (key, found) in &shared.found {
        let place = root.join(format!("{}-{}", key.0, key.1));
        match fate(key, found, image) {
            Fate::Ours => {}
            Fate::Delete => {
                let renamed = fs::rename(&place, root.join(deleted_name(key)));
                renamed.map_err(|error| DirectoryError::File { path: place, error })?;
            }
            Fate::Foreign => foreign.push(place),
        }
    }
    for place in foreign.iter().take(NAMED_MAX) {
        tracing::warn!("{}: no topic of this broker; it is left alone", place.display());
    }
    if foreign.len() > NAMED_MAX {
        tracing::warn!("{} more such directories are left alone", foreign.len() - NAMED_MAX);
    }
    Ok(())
}

fn fate((name, partition): &PartitionKey, found: &Found, image: &Image) -> Fate {
    if *name == TopicName::cluster_metadata() {
        return Fate::Ours;
    }
    if found.topic_id.is_some_and(|id| image.was_deleted(id)) {
        return Fate::Delete;
    }
    match image.topic(name.as_str()) {
        Some(topic) if *partition < crate::units::PartitionId(topic.partition_count()) => {
            // A directory of another topic with this name comes up when the partition is opened.
            Fate::Ours
        }
        _ => Fate::Foreign,
    }
}
