//! What the histories have left, for a Kafka that is to be started on it (`scripts/take-back`):
//! with `GOLDEN_KEEP` naming a folder, every partition is copied there when its history is over,
//! beside a file of its settings.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use uringlog::units::Offset;

/// Where a case's partitions are kept, if at all.
#[derive(Clone, Debug)]
pub struct Keep {
    folder: Option<PathBuf>,
    case: String,
}

impl Keep {
    pub fn of(case: &str) -> Keep {
        let folder = std::env::var_os("GOLDEN_KEEP").map(PathBuf::from);
        Keep { folder, case: case.to_owned() }
    }

    /// Copies a partition that was closed. Its log start is named when no file says it.
    pub fn partition(
        &self,
        from: &Path,
        configs: &BTreeMap<String, String>,
        log_start: Option<Offset>,
    ) {
        let Some(folder) = &self.folder else { return };
        let name = from.file_name().expect("a partition's name").to_string_lossy();
        let name = format!("{}-{name}", self.case);
        let to = folder.join(&name);
        fs::create_dir_all(&to).expect("a new folder");
        for entry in fs::read_dir(from).expect("a folder") {
            let path = entry.expect("an entry").path();
            fs::copy(&path, to.join(path.file_name().expect("a name"))).expect("copied");
        }
        let mut settings = String::new();
        for (name, value) in configs {
            writeln!(settings, "{name}={value}").expect("a string takes it");
        }
        if let Some(Offset(log_start)) = log_start {
            writeln!(settings, "log-start={log_start}").expect("a string takes it");
        }
        fs::write(folder.join(format!("{name}.settings")), settings).expect("writable");
    }
}
