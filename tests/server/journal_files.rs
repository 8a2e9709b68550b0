//! Journals that are not as they were left: missing, cut, of somebody else, damaged, or impossible
//! to make. The server says which and what to do, or serves by the slower way and says so; nothing
//! is lost in silence.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::PathBuf;

use uringlog::format::journal::{BLOCK_BYTES, RECORDS_START, Superblock};

use crate::support::ENGINES;
use crate::support::batch::{self, of};
use crate::support::client::Client;
use crate::support::files::{contents, journals, names};
use crate::support::load::Load;
use crate::support::mount::Mount;
use crate::support::process::{Broker, Launch};

const NOBODY: u32 = 65_534;
/// What says how many journals there are.
const COUNT: &str = "commit-journals";
/// Where the version stands in a superblock.
const VERSION_AT: usize = 8;

/// Two shards with acknowledged records in their journals, killed.
struct Killed {
    launch: Launch,
    load: Load,
}

impl Killed {
    fn new(engine: &str) -> Killed {
        let launch = Launch::new(engine).shards(2).journal(true);
        let broker = launch.start();
        let mut load = Load::create(&broker, ("topic", 6), 10);
        load.produce(&broker, 5);
        broker.kill();
        assert_eq!(journals(&launch), ["shard-0.journal", "shard-1.journal"]);
        Killed { launch, load }
    }

    fn path(&self, shard: u32) -> PathBuf {
        self.launch.place().join(format!("shard-{shard}.journal"))
    }

    fn read(&self, shard: u32) -> Vec<u8> {
        fs::read(self.path(shard)).expect("it is there")
    }

    /// A start is refused with these words, and nothing is changed by it.
    fn assert_refused(&self, words: &[&str]) {
        let before = contents(self.launch.place());
        let output = self.launch.refusal();
        for word in words {
            assert!(output.contains(word), "`{word}` is missing in:\n{output}");
        }
        assert!(contents(self.launch.place()) == before, "it is left as it was");
    }

    /// It serves, everything acknowledged is there, and so it goes on.
    fn assert_serves(&mut self) -> Broker {
        let broker = self.launch.start();
        self.load.check(&broker);
        self.load.produce(&broker, 1);
        broker
    }

    /// A journal was damaged: it is said, the file is kept, and the next start finds nothing amiss.
    fn assert_set_aside(&mut self, shard: u32) {
        let damaged = self.read(shard);
        let broker = self.assert_serves();
        let output = broker.output();
        let name = format!("shard-{shard}.journal");
        for word in [name.as_str(), "damaged from record", "may be missing"] {
            assert!(output.contains(word), "`{word}` is missing in:\n{output}");
        }
        let kept = names(self.launch.place(), |it| it.starts_with(&format!("{name}.damaged-")));
        assert_eq!(kept.len(), 1);
        assert!(output.contains(&kept[0]), "{output}");
        let kept = fs::read(self.launch.place().join(&kept[0])).expect("it is there");
        assert!(kept == damaged, "it is kept as it was");
        assert!(broker.output().contains("durability: one journal write"));
        broker.kill();
        let broker = self.assert_serves();
        assert!(!broker.output().contains("damaged"), "{}", broker.output());
    }
}

#[test]
fn a_journal_that_is_missing_is_named_and_may_be_put_back() {
    for engine in ENGINES {
        let mut killed = Killed::new(engine);
        for shard in [1, 0] {
            let path = killed.path(shard);
            let aside = path.with_extension("aside");
            fs::rename(&path, &aside).expect("it is there");
            let words = format!("shard-{shard}.journal is missing");
            killed.assert_refused(&[&words, "Put the file back", "commit-journals"]);
            fs::rename(&aside, &path).expect("it is there");
        }
        killed.assert_serves();
    }
}

/// After a stop in order they hold nothing, and nothing says that they have to be there.
#[test]
fn journals_of_a_clean_directory_may_go() {
    let mut killed = Killed::new("plain-file");
    assert!(killed.launch.place().join(COUNT).exists());
    let (stopped, _) = killed.assert_serves().stop();
    assert!(stopped.status.success(), "{}", stopped.output);
    assert!(killed.launch.place().join(".kafka_cleanshutdown").exists());
    assert!(!killed.launch.place().join(COUNT).exists());
    fs::remove_file(killed.path(1)).expect("it is there");
    killed.assert_serves();
    assert_eq!(journals(&killed.launch), ["shard-0.journal", "shard-1.journal"]);
}

/// Nor does it matter what they look like.
#[test]
fn journals_of_a_clean_directory_may_be_damaged() {
    for (engine, length) in ENGINES.into_iter().zip([0, 100]) {
        let mut killed = Killed::new(engine);
        assert!(killed.assert_serves().stop().0.status.success());
        fs::write(killed.path(0), vec![0; length]).expect("it is ours");
        let file = fs::File::options().write(true).open(killed.path(1)).expect("it is there");
        file.set_len(RECORDS_START).expect("it is ours");
        // Surplus ones, too, must not stand in the way after a crash.
        fs::write(killed.path(7), vec![9; length]).expect("it is ours");
        let broker = killed.assert_serves();
        assert!(!broker.output().contains("damaged"), "{}", broker.output());
        broker.kill();
        killed.assert_serves();
    }
}

#[test]
fn a_journal_in_the_place_of_another_shards_is_refused() {
    let mut killed = Killed::new("uring");
    let own = killed.read(1);
    fs::copy(killed.path(0), killed.path(1)).expect("both are ours");
    killed.assert_refused(&["shard-1.journal", "the journal of shard 0", "put it back"]);
    fs::write(killed.path(1), own).expect("it is ours");
    killed.assert_serves();
}

/// Whatever the settings say now.
#[test]
fn when_all_journals_are_gone_it_takes_a_decision_to_serve_what_is_in_the_files() {
    for (engine, is_used) in ENGINES.into_iter().zip([true, false]) {
        let mut killed = Killed::new(engine);
        let first = killed.launch.clone();
        killed.launch = Launch::at(engine, first.place()).shards(2).journal(is_used);
        fs::remove_file(killed.path(0)).expect("it is there");
        fs::remove_file(killed.path(1)).expect("it is there");
        killed.assert_refused(&["shard-0.journal is missing", "there were 2", "remove"]);
        fs::remove_file(killed.launch.place().join(COUNT)).expect("it is there");
        // The page cache has survived, so that nothing is missing after all.
        killed.assert_serves();
    }
}

#[test]
fn a_number_of_journals_that_makes_no_sense_is_refused() {
    let mut killed = Killed::new("uring");
    let path = killed.launch.place().join(COUNT);
    for wrong in ["", "7\n2\n", "0\ntwo\n"] {
        fs::write(&path, wrong).expect("it is ours");
        killed.assert_refused(&[COUNT, "doesn't say how many journals there are", "Remove it if"]);
    }
    fs::remove_file(&path).expect("it is there");
    killed.assert_serves();
}

#[test]
fn a_journal_that_is_cut_off_is_used_as_far_as_it_goes_and_kept() {
    for (engine, length) in ENGINES.into_iter().zip([RECORDS_START, RECORDS_START + 5 * 4096]) {
        let mut killed = Killed::new(engine);
        let file = fs::File::options().write(true).open(killed.path(1)).expect("it is there");
        file.set_len(length).expect("it is ours");
        killed.assert_set_aside(1);
    }
}

/// The middle of what the last run has written.
#[test]
fn a_flipped_bit_in_a_record_is_found_and_the_journal_kept() {
    for (engine, shard) in ENGINES.into_iter().zip([0, 1]) {
        let mut killed = Killed::new(engine);
        let mut bytes = killed.read(shard);
        let used = bytes.iter().rposition(|byte| *byte != 0).expect("it has records");
        let start = usize::try_from(RECORDS_START).expect("small");
        let middle = start + (used - start) / 2 / BLOCK_BYTES * BLOCK_BYTES;
        // Behind the checksum; every record has more bytes than that.
        bytes[middle + 60] ^= 0x10;
        fs::write(killed.path(shard), &bytes).expect("it is ours");
        killed.assert_set_aside(shard);
    }
}

/// The older superblock alone would have the newest records pass for nothing.
#[test]
fn a_damaged_newest_superblock_is_found() {
    let killed = Killed::new("plain-file");
    let mut bytes = killed.read(0);
    let newest = Superblock::newest(&bytes).expect("a journal");
    let at = usize::try_from(newest.block()).expect("0 or 1") * BLOCK_BYTES;
    bytes[at + 20] ^= 1;
    fs::write(killed.path(0), &bytes).expect("it is ours");
    killed.assert_refused(&["shard-0.journal", "its first blocks are damaged"]);
}

#[test]
fn a_journal_of_another_directory_is_refused() {
    let killed = Killed::new("uring");
    let other = Killed::new("uring");
    fs::copy(other.path(0), killed.path(0)).expect("both are ours");
    killed.assert_refused(&["shard-0.journal", "belongs to the data directory", "move it away"]);
}

#[test]
fn a_journal_of_another_version_is_refused() {
    let killed = Killed::new("plain-file");
    let mut bytes = killed.read(1);
    for block in [0, BLOCK_BYTES] {
        bytes[block + VERSION_AT..][..4].copy_from_slice(&7_u32.to_be_bytes());
    }
    fs::write(killed.path(1), &bytes).expect("it is ours");
    let words =
        ["shard-1.journal", "version 7", "knows version 1", "move the file and commit-journals"];
    killed.assert_refused(&words);
}

#[test]
fn what_has_a_journals_name_and_is_none_is_refused() {
    let killed = Killed::new("plain-file");
    let bytes = killed.read(0);
    let noise: Vec<u8> = (0..bytes.len()).map(|at| (at % 251) as u8).collect();
    for content in [noise, Vec::new(), vec![0; bytes.len()]] {
        fs::write(killed.path(0), content).expect("it is ours");
        killed.assert_refused(&["shard-0.journal", "doesn't begin as a journal does"]);
    }
}

/// A server of an ordinary user, which may not write what root has made read-only.
#[test]
fn a_journal_that_may_not_be_written_is_refused() {
    let own = fs::metadata("/proc/self").expect("Linux has it").uid();
    assert_eq!(own, 0, "this test needs root, to run the server as another user");
    let killed = Killed::new("plain-file");
    let binary = killed.launch.place().join("binary");
    fs::copy(env!("CARGO_BIN_EXE_uringlog"), &binary).expect("there is room for a copy");
    give_away(killed.launch.place());
    chown(killed.path(1), Some(0), Some(0)).expect("we are root");
    let user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    let launch = killed.launch.clone().binary(binary).wrapped(user);
    let output = launch.refusal();
    for word in ["shard-1.journal", "permission denied"] {
        assert!(output.contains(word), "`{word}` is missing in:\n{output}");
    }
    chown(killed.path(1), Some(NOBODY), Some(NOBODY)).expect("we are root");
    let broker = launch.start();
    let mut load = killed.load;
    load.check(&broker);
}

fn give_away(path: &std::path::Path) {
    chown(path, Some(NOBODY), Some(NOBODY)).expect("we are root");
    if path.is_dir() {
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(path, mode).expect("we are root");
        for entry in fs::read_dir(path).expect("it is there") {
            give_away(&entry.expect("an entry").path());
        }
    }
}

#[test]
fn a_directory_in_a_journals_place_makes_the_server_do_without() {
    for engine in ENGINES {
        let launch = Launch::new(engine).journal(true);
        let path = launch.place().join("shard-0.journal");
        fs::create_dir(&path).expect("it is ours");
        let broker = launch.start();
        assert_does_without(&broker);
        assert!(path.is_dir(), "it is left alone");
        let broker = broker.kill().start();
        assert_eq!(batch::consume(&mut broker.connect(), "topic", 0, 0).len(), 2);
    }
}

#[test]
fn a_disk_without_room_for_the_journal_makes_the_server_do_without() {
    for engine in ENGINES {
        let mount = Mount::tmpfs("size=12m");
        let data = mount.path().join("data");
        let launch = Launch::at(engine, &data).journal(true).set("journal.bytes=33554432");
        let broker = launch.clone().wrapped(mount.wrapper()).start();
        assert_does_without(&broker);
        assert!(broker.output().contains("space"), "{}", broker.output());
        let left = names(&mount.outside("data"), |name| name.contains("journal"));
        assert_eq!(left, [""; 0], "{engine}: nothing of it takes space");
    }
}

fn assert_does_without(broker: &Broker) {
    let mut client: Client = broker.connect();
    client.create("topic", 1, &[]);
    client.accepted("topic", 0, of(&["one"]));
    client.accepted("topic", 0, of(&["two"]));
    assert_eq!(broker.count("journal_records"), 0);
    assert_eq!(broker.gauge("journal_serving"), 0);
    let output = broker.output();
    assert!(output.contains("each plan syncs its own file; no journal: "), "{output}");
}
