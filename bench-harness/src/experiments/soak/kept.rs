//! What lies on disk of a topic while it is written and deleted.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;

/// Logs of a topic, those not counted that are about to be deleted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Kept {
    /// Of all `.log` files.
    pub bytes: u64,
    /// How many there are.
    pub segments: u64,
}

impl Kept {
    /// As it is now. Files that go while it is looked at are left out.
    pub fn of(data: &Path, topic: &str) -> Kept {
        let mut kept = Kept::default();
        let Ok(entries) = fs::read_dir(data) else { return kept };
        for directory in entries.flatten().filter(|it| is_partition(&it.file_name(), topic)) {
            let Ok(files) = fs::read_dir(directory.path()) else { continue };
            let is_log = |it: &fs::DirEntry| it.path().extension() == Some(OsStr::new("log"));
            for file in files.flatten().filter(is_log) {
                let Ok(metadata) = file.metadata() else { continue };
                kept.bytes += metadata.len();
                kept.segments += 1;
            }
        }
        kept
    }
}

fn is_partition(name: &OsStr, topic: &str) -> bool {
    let number = name.to_str().and_then(|it| it.strip_prefix(topic)?.strip_prefix('-'));
    number.is_some_and(|it| it.parse::<u32>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_of_the_topic_are_counted() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, bytes: usize| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().expect("it has one")).expect("a folder");
            fs::write(path, vec![1; bytes]).expect("a file");
        };
        write("soak-0/00000000000000000000.log", 10);
        write("soak-0/00000000000000000000.index", 8);
        write("soak-1/00000000000000000007.log", 20);
        write("soak-1/00000000000000000000.log.deleted", 40);
        write("soak-other-1/00000000000000000000.log", 80);
        write("other-0/00000000000000000000.log", 160);
        assert_eq!(Kept::of(folder.path(), "soak"), Kept { bytes: 30, segments: 2 });
        assert_eq!(Kept::of(&folder.path().join("none"), "soak"), Kept::default());
    }
}
