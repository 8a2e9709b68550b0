//! What the page cache holds of a file is dropped, and what memory and devices gave is counted.

use std::fs::{self, File};
use std::path::Path;

use rustix::fs::{Advice, fadvise};

use super::{DoingTo, Failure};

/// Drops what the page cache holds of a file, as far as nobody has it mapped. Bytes that are not on
/// the device yet stay: sync them first. File systems that live in memory keep everything.
///
/// # Errors
/// A file that can't be opened.
pub fn drop_file(path: &Path) -> Result<(), Failure> {
    let file = File::open(path).doing_to("open", path)?;
    fadvise(&file, 0, None, Advice::DontNeed).doing_to("drop the page cache of", path)
}

/// Brings a file to the device, so that [`drop_file`] drops all of it.
///
/// # Errors
/// A file that can't be synced.
pub fn sync_file(path: &Path) -> Result<(), Failure> {
    File::open(path).and_then(|it| it.sync_all()).doing_to("sync", path)
}

/// Bytes that this process had devices read so far, its kernel workers included.
pub fn device_bytes() -> u64 {
    let text = fs::read_to_string("/proc/self/io").unwrap_or_default();
    text.lines()
        .find_map(|it| it.strip_prefix("read_bytes:")?.trim().parse().ok())
        .unwrap_or_default()
}

/// Memory that a process really has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Resident {
    /// Its own: heap and stacks, in bytes.
    pub anonymous: u64,
    /// Of mapped files, in bytes.
    pub files: u64,
}

impl Resident {
    /// Of this process, counted page by page.
    pub fn now() -> Resident {
        parse(&fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default())
    }
}

fn parse(text: &str) -> Resident {
    let bytes = |name: &str| {
        let kib = text.lines().find_map(|it| it.strip_prefix(name)?.trim().strip_suffix(" kB"));
        kib.and_then(|it| it.trim().parse::<u64>().ok()).unwrap_or_default() << 10
    };
    let anonymous = bytes("Anonymous:");
    Resident { anonymous, files: bytes("Rss:").saturating_sub(anonymous) }
}

/// Of the machine, in bytes.
pub fn memory() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|it| it.strip_prefix("MemTotal:"));
    let kib = line.and_then(|it| it.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or_default() << 10
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_from_the_kernels_text() {
        let text = "55 - 7f [rollup]\nRss:               3488 kB\nAnonymous:           96 kB\n";
        assert_eq!(parse(text), Resident { anonymous: 96 << 10, files: 3392 << 10 });
        let now = Resident::now();
        assert!(0 < now.anonymous && 0 < now.files, "{now:?}");
        assert!(now.anonymous < memory());
    }

    #[test]
    fn a_dropped_file_is_read_from_its_device_again() {
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("a folder");
        let path = folder.path().join("file");
        fs::write(&path, vec![7; 1 << 20]).expect("a file");
        sync_file(&path).expect("synced");
        let before = device_bytes();
        drop_file(&path).expect("dropped");
        assert_eq!(fs::read(&path).expect("it is there"), vec![7; 1 << 20]);
        let kind = super::super::measure::file_system(folder.path()).expect("a name");
        let read = device_bytes() - before;
        assert!(kind == "tmpfs" || kind == "overlay" || 1 << 20 <= read, "{read} bytes of {kind}");
    }
}
