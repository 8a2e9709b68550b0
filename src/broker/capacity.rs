//! How many files and partitions fit: the settings, cut down to what the process may open.
//!
//! The active segment of every partition keeps its files open. A table that is full when a segment
//! rolls takes the partition out of service, so sealed segments get a share of it only, and no more
//! partitions are made than fit the rest.

use crate::broker::config::ServerConfig;
use crate::ring::limits;
use crate::shard::EngineKind;
use crate::units::usize_of;

/// Files of an active segment: `.log` and its two indexes.
const FILES_PER_PARTITION: u32 = 3;

/// Sealed segments may take one file in so many.
const SEALED_SHARE: u32 = 4;

/// Fewer files than this are not worth a start: what asks for them says what is wrong.
const FILES_MIN: u32 = 64;

/// Cuts `uringlog.ring.files.max` and `uringlog.partitions.max` down to what fits.
pub fn fit(config: &mut ServerConfig, kind: EngineKind, shards: usize) {
    let descriptors = limits::read().nofile;
    let files = files_fit(config, descriptors, (kind, shards));
    if files < config.ring_files_max {
        let wanted = config.ring_files_max;
        tracing::info!("a shard opens at most {files} files, not {wanted}: RLIMIT_NOFILE is lower");
        config.ring_files_max = files;
    }
    let fits = partitions_fit(files, shards);
    if fits < config.partitions_max {
        tracing::info!("at most {fits} partitions are made: more don't fit the open files");
        config.partitions_max = fits;
    }
}

/// Sealed segments whose files one shard may keep open.
pub fn sealed_files_max(config: &ServerConfig) -> usize {
    usize_of(u64::from(config.ring_files_max / SEALED_SHARE))
}

/// The kernel takes no file table that is larger than the limit of descriptors, entries of plans
/// included; its files are no descriptors. Plain files are, so all shards share them, and sockets
/// need some.
fn files_fit(
    config: &ServerConfig,
    descriptors: Option<u64>,
    (kind, shards): (EngineKind, usize),
) -> u32 {
    let Some(descriptors) = descriptors else { return config.ring_files_max };
    let descriptors = u32::try_from(descriptors).unwrap_or(u32::MAX);
    let fits = match kind {
        EngineKind::Ring => descriptors.saturating_sub(config.ring_entries),
        EngineKind::PlainFile => {
            let shards = u32::try_from(shards).expect("shards are at most SHARDS_MAX");
            (descriptors - descriptors / 4) / shards
        }
    };
    config.ring_files_max.min(fits.max(FILES_MIN))
}

fn partitions_fit(files: u32, shards: usize) -> u32 {
    let shards = u32::try_from(shards).expect("shards are at most SHARDS_MAX");
    ((files - files / SEALED_SHARE) / FILES_PER_PARTITION).saturating_mul(shards)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_thousand_partitions_fit_the_defaults() {
        let config = ServerConfig::defaults();
        let files = files_fit(&config, None, (EngineKind::Ring, 1));
        assert_eq!(files, 65_536);
        assert!(10_000 <= partitions_fit(files, 1));
        assert_eq!(sealed_files_max(&config), 16_384);
    }

    #[test]
    fn the_process_may_allow_less() {
        let config = ServerConfig::defaults();
        let fit = |descriptors, kind, shards| files_fit(&config, Some(descriptors), (kind, shards));
        assert_eq!(fit(4_096, EngineKind::Ring, 8), 4_096 - config.ring_entries);
        assert_eq!(fit(4_096, EngineKind::PlainFile, 8), 384);
        assert_eq!(fit(1 << 40, EngineKind::Ring, 1), config.ring_files_max);
        assert_eq!(fit(10, EngineKind::Ring, 1), FILES_MIN);
        // Active and sealed segments together stay below the table.
        let sealed = 4_096 / SEALED_SHARE;
        assert!(partitions_fit(4_096, 1) * FILES_PER_PARTITION + sealed <= 4_096);
    }
}
