//! A calibration loop: the same work before, between and after the cells. What it varies by is the
//! machine's noise, not the engines'.

use std::fs::File;
use std::hint::black_box;
use std::io::Write;
use std::path::Path;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::experiments::{DoingTo, Failure};

/// Rounds of arithmetic: some milliseconds on a processor of today.
const ROUNDS: u64 = 2_000_000;
/// Appends, each with an fdatasync.
const SYNCS: usize = 5;
const SYNC_BYTES: usize = 4096;

/// One pass of the loop; a line of `noise.jsonl`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Noise {
    /// `before`, `between` or `after`.
    pub when: String,
    /// Label of the file system that was synced to.
    pub file_system: String,
    /// Seconds since the run began.
    pub seconds: f64,
    /// Fixed arithmetic, in nanoseconds.
    pub cpu_ns: u64,
    /// The median of a few appends of 4 KiB with an fdatasync each, in nanoseconds.
    pub sync_ns: u64,
}

/// One pass in a folder on the file system under test.
///
/// # Errors
/// When the folder can't be written to.
pub fn measure(folder: &Path) -> Result<(u64, u64), Failure> {
    let started = Instant::now();
    let mut state = 1u64;
    for round in 0..ROUNDS {
        state = black_box(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(round));
    }
    let cpu = nanoseconds(started);
    let path = folder.join("calibration");
    let outcome = syncs(&path).doing_to("write and sync", &path);
    drop(std::fs::remove_file(&path));
    Ok((cpu, outcome?))
}

fn syncs(path: &Path) -> std::io::Result<u64> {
    let mut file = File::create(path)?;
    let mut took = Vec::new();
    for _ in 0..SYNCS {
        let started = Instant::now();
        file.write_all(&[1; SYNC_BYTES])?;
        file.sync_data()?;
        took.push(nanoseconds(started));
    }
    took.sort_unstable();
    Ok(took[SYNCS / 2])
}

fn nanoseconds(started: Instant) -> u64 {
    u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_measures_both_and_leaves_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let (cpu, sync) = measure(folder.path()).expect("it can be written to");
        assert!(0 < cpu && 0 < sync);
        assert_eq!(std::fs::read_dir(folder.path()).expect("it").count(), 0);
        let refused = measure(&folder.path().join("none")).expect_err("no such folder");
        assert!(refused.to_string().contains("none"), "{refused}");
    }
}
