//! Who writes to a directory while a tool reads it.

use std::fs;
use std::os::linux::fs::MetadataExt;
use std::path::Path;

/// Says which process holds the `.lock` of a log directory. Asked without touching the file:
/// `/proc/locks` names its inode.
pub fn of(directory: &Path) -> Option<String> {
    let lock = fs::metadata(directory.join(".lock")).ok()?;
    let locks = fs::read_to_string("/proc/locks").ok()?;
    let held = holder(&locks, lock.st_ino())?;
    Some(format!(
        "process {held} holds this directory: what it writes while this looks may seem damaged"
    ))
}

/// The same of the log directory that a partition's folder lies in.
pub fn of_partition(folder: &Path) -> Option<String> {
    of(std::path::absolute(folder).ok()?.parent()?)
}

fn holder(locks: &str, inode: u64) -> Option<String> {
    let inode = inode.to_string();
    locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, _, _, "WRITE", process, file, ..] = words[..] else { return None };
        (file.rsplit(':').next()? == inode).then(|| process.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_is_that_of_the_file() {
        let locks = "1: POSIX  ADVISORY  WRITE 2089 fe:00:131 0 EOF\n\
                     2: POSIX  ADVISORY  READ 7 fe:00:132 0 EOF\n\
                     2: -> POSIX  ADVISORY  WRITE 8 fe:00:133 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 411 fe:00:132 0 EOF\n";
        assert_eq!(holder(locks, 131).as_deref(), Some("2089"));
        assert_eq!(holder(locks, 132).as_deref(), Some("411"));
        assert_eq!(holder(locks, 133), None, "it only waits");
    }
}
