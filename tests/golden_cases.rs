//! Histories of partitions that Apache Kafka 4.3.1 wrote, repeated: every file of the folder is
//! compared byte for byte at every copy that was taken.
//!
//! Archives as in `dump.rs`; each case prints a line.

mod support {
    pub mod golden;
}

mod golden {
    pub mod driver;
    pub mod timeline;
}

use golden::driver::repeat;
use golden::timeline::Timeline;
use support::golden::Archive;

#[test]
fn histories_leave_the_files_that_kafka_left() {
    let (mut repeated, mut failed) = (0, Vec::new());
    for archive in Archive::all() {
        if archive.name.starts_with("unclean-") {
            continue;
        }
        let root = archive.unpack();
        let timeline = Timeline::read(&root.path());
        let unknown = timeline.unknown_steps();
        if !unknown.is_empty() {
            println!("{}: not repeated, it has {}", archive.name, unknown.join(", "));
            continue;
        }
        let (mut files, mut differences) = (0, Vec::new());
        for history in timeline.histories() {
            let outcome = repeat(history);
            files += outcome.files;
            differences.extend(outcome.differences);
        }
        println!("{}: {files} files compared, {} differ", archive.name, differences.len());
        repeated += 1;
        if !differences.is_empty() {
            failed.push(format!("{}:\n  {}", archive.name, differences.join("\n  ")));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    assert!(10 <= repeated, "only {repeated} cases were repeated");
}
