//! Archives of directories that Apache Kafka wrote: tar in zstd, a folder of the case's name.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// One case.
pub struct Archive {
    pub name: String,
    path: PathBuf,
}

/// A case's folder, unpacked.
pub struct Unpacked {
    directory: TempDir,
    name: String,
}

impl Unpacked {
    pub fn path(&self) -> PathBuf {
        self.directory.path().join(&self.name)
    }
}

impl Archive {
    /// All archives of the repository, and those in `GOLDEN_DIR`.
    pub fn all() -> Vec<Archive> {
        let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/kafka");
        let more = std::env::var_os("GOLDEN_DIR").map(PathBuf::from);
        let mut archives: Vec<Archive> =
            [Some(own), more].into_iter().flatten().flat_map(of).collect();
        archives.sort_by(|a, b| a.name.cmp(&b.name));
        archives
    }

    /// Into a temporary folder.
    pub fn unpack(&self) -> Unpacked {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let file = fs::File::open(&self.path).expect("the archive is readable");
        let mut decoder = zstd::Decoder::new(file).expect("zstd");
        decoder.window_log_max(27).expect("a larger window than usual");
        tar::Archive::new(decoder).unpack(directory.path()).expect("a whole archive");
        Unpacked { directory, name: self.name.clone() }
    }
}

fn of(folder: PathBuf) -> Vec<Archive> {
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{folder:?}: {error}"));
    let archive = |path: PathBuf| {
        let name = path.file_name()?.to_str()?.strip_suffix(".tar.zst")?.to_owned();
        Some(Archive { name, path })
    };
    entries.filter_map(|entry| archive(entry.expect("an entry").path())).collect()
}
