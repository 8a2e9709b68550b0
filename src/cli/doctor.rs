//! `uringlog doctor`: what this host offers, and which engine would run.
//!
//! Looking at kernel, limits and file system happens here; what a ring can do is probed by the ring
//! layer and put into words as [`RingFindings`]. The report and the verdict are functions of both.

mod findings;
mod mounts;

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::ring::limits;
use crate::ring::probe::{Punting, probe, punting};
use crate::shard::journals::{JournalProbe, try_journal};
use crate::shard::{JournalMode, NoJournal};

pub use findings::{RingFeature, RingFindings};
pub use mounts::{Mount, mount_of};

/// Exit status when the ring engine can run.
pub const EXIT_RING: u8 = 0;
/// Exit status when `auto` would fall back to plain files.
pub const EXIT_FALLBACK: u8 = 3;

/// Open files that a server with many partitions and connections wants.
const OPEN_FILES_WANTED: u64 = 65_536;
/// Locked memory that the rings of a few shards are charged with by kernels before Linux 5.12.
const MEMLOCK_BYTES_WANTED: u64 = 8 << 20;
/// Capacity of the pipes that answers are spliced through, in bytes.
const PIPE_BYTES_WANTED: u64 = 1 << 20;
/// Pages of the pipes of one shard: 16 pipes of 1 MiB.
const PIPE_PAGES_OF_SHARD: u64 = 16 * 256;
/// Syncs that are timed, and the longest time spent on them.
const SYNC_SAMPLES: usize = 50;
const SYNC_TIME_MAX: Duration = Duration::from_secs(2);
/// Bytes written before each sync.
const SYNC_WRITE_BYTES: usize = 4096;

/// What the host is like.
#[derive(Clone, PartialEq, Debug)]
pub struct Host {
    /// Release of the kernel.
    pub kernel: String,
    /// Machine, as the kernel names it.
    pub machine: String,
    /// Cores that this process may run on.
    pub cores: usize,
    /// Soft limit of locked memory in bytes; `None` is none.
    pub memlock: Option<u64>,
    /// Whether the process may lock memory without limit.
    pub may_lock_memory: bool,
    /// Soft and hard limit of open files; `None` is none.
    pub open_files: (Option<u64>, Option<u64>),
    /// Largest pipe of an ordinary user, in bytes.
    pub pipe_bytes_max: Option<u64>,
    /// Pages in all pipes of an ordinary user before new ones are made small; 0 is no limit.
    pub pipe_pages_max: Option<u64>,
    /// `kernel.io_uring_disabled`; absent in older kernels.
    pub io_uring_disabled: Option<u32>,
}

/// What the directory's file system is like.
#[derive(Clone, Debug)]
pub struct Storage {
    /// The directory that was asked for.
    pub asked: PathBuf,
    /// Whether that exists.
    pub exists: bool,
    /// The directory that was looked at: itself or the nearest one above that exists.
    pub directory: PathBuf,
    /// Its mount.
    pub mount: Option<Mount>,
    /// Bytes free for this user and bytes in all.
    pub free: Option<(u64, u64)>,
    /// Whether an ext4 has a journal; `None` for others and where it can't be seen.
    pub has_journal: Option<bool>,
    /// Times of syncs behind a write of 4 KiB, sorted.
    pub syncs: Result<Vec<Duration>, String>,
    /// What a commit journal would cost, or why `journal.enable=auto` does without.
    pub journal: Result<JournalProbe, NoJournal>,
}

/// The engine that `--engine auto` takes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The ring engine.
    Ring,
    /// The plain-file engine, and why.
    PlainFile(String),
}

impl Verdict {
    /// The process's exit status.
    pub fn exit_status(&self) -> u8 {
        match self {
            Verdict::Ring => EXIT_RING,
            Verdict::PlainFile(_) => EXIT_FALLBACK,
        }
    }
}

/// Examines host and directory, writes the report, and says which engine `auto` takes.
///
/// # Errors
/// When the report can't be written.
pub fn run(directory: &Path, out: &mut impl Write) -> io::Result<Verdict> {
    let storage = examine_storage(directory);
    let writes = punting(&storage.directory).map_err(|error| error.to_string());
    let findings = RingFindings::of(&probe(), writes);
    out.write_all(report(&examine_host(), &storage, &findings).as_bytes())?;
    Ok(verdict(&findings))
}

/// Which engine `auto` takes.
pub fn verdict(findings: &RingFindings) -> Verdict {
    if let Some(refusal) = &findings.refusal {
        return Verdict::PlainFile(refusal.clone());
    }
    match findings.features.iter().find(|feature| feature.is_needed && !feature.works) {
        Some(RingFeature { name, detail, .. }) => {
            Verdict::PlainFile(format!("{name} doesn't work: {detail}"))
        }
        None => Verdict::Ring,
    }
}

/// Looks at the host. What can't be read is left out.
pub fn examine_host() -> Host {
    let system = rustix::system::uname();
    let limits = limits::read();
    Host {
        kernel: system.release().to_string_lossy().into_owned(),
        machine: system.machine().to_string_lossy().into_owned(),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        memlock: limits.memlock,
        may_lock_memory: has_ipc_lock(),
        open_files: (limits.nofile, limits.nofile_hard),
        pipe_bytes_max: limits.pipe_bytes_max,
        pipe_pages_max: limits.pipe_user_pages_soft,
        io_uring_disabled: limits.io_uring_disabled,
    }
}

/// Looks at the file system of `asked`, and times syncs in a file that is removed again.
pub fn examine_storage(asked: &Path) -> Storage {
    let directory = nearest_directory(asked);
    let mountinfo = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mount = mount_of(&mountinfo, &directory);
    let free = rustix::fs::statvfs(&directory).ok().map(|stat| {
        (stat.f_bavail.saturating_mul(stat.f_frsize), stat.f_blocks.saturating_mul(stat.f_frsize))
    });
    let syncs = time_syncs(&directory).map_err(|error| error.to_string());
    let journal = try_journal(&directory, JournalMode::Auto);
    Storage {
        asked: asked.to_owned(),
        exists: asked.is_dir(),
        has_journal: mount.as_ref().and_then(has_journal),
        directory,
        mount,
        free,
        syncs,
        journal,
    }
}

/// The report: one line a finding, advice behind a dash, the verdict last.
pub fn report(host: &Host, storage: &Storage, findings: &RingFindings) -> String {
    let mut out = Lines(String::new());
    report_host(&mut out, host);
    report_ring(&mut out, findings);
    report_storage(&mut out, storage);
    out.line("buffered writes", &buffered_writes(&findings.buffered_writes));
    match verdict(findings) {
        Verdict::Ring => out.line("engine auto", "uring: everything that it needs works"),
        Verdict::PlainFile(why) => out.line("engine auto", &format!("plain-file: {why}")),
    }
    out.0
}

fn buffered_writes(found: &Result<Punting, String>) -> String {
    match found {
        Ok(Punting::Never) => "done in place by the ring".to_owned(),
        Ok(Punting::Sometimes) => {
            "handed to kernel workers when the file's time changes, else done in place".to_owned()
        }
        Ok(Punting::Always) => "handed to kernel workers on this file system".to_owned(),
        Err(why) => format!("not tried: {why}"),
    }
}

struct Lines(String);

impl Lines {
    fn line(&mut self, name: &str, text: &str) {
        writeln!(self.0, "{name:<18}{text}").expect("writing to a string can't fail");
    }
}

fn report_host(out: &mut Lines, host: &Host) {
    out.line("kernel", &format!("{} {}, {} cores", host.kernel, host.machine, host.cores));
    let memlock = match (host.memlock, host.may_lock_memory) {
        (None, _) => "no limit".to_owned(),
        (Some(bytes), true) => format!("{}, not enforced for this process", size(bytes)),
        (Some(bytes), false) if bytes < MEMLOCK_BYTES_WANTED => {
            format!("{} - raise with LimitMEMLOCK= or ulimit -l", size(bytes))
        }
        (Some(bytes), false) => size(bytes),
    };
    out.line("locked memory", &memlock);
    out.line("open files", &open_files(host.open_files));
    if let Some(bytes) = host.pipe_bytes_max {
        let advice = if bytes < PIPE_BYTES_WANTED {
            format!(" - sysctl -w fs.pipe-max-size={PIPE_BYTES_WANTED}")
        } else {
            String::new()
        };
        out.line("pipe size", &format!("up to {}{advice}", size(bytes)));
    }
    match host.pipe_pages_max {
        None => {}
        Some(0) => out.line("pipe pages", "no limit"),
        Some(pages) => out.line("pipe pages", &{
            let shards = pages / PIPE_PAGES_OF_SHARD;
            format!("{pages} for all pipes of a user, enough for {shards} shards")
        }),
    }
    match host.io_uring_disabled {
        Some(0) => out.line("io_uring sysctl", "enabled"),
        Some(1) => out.line("io_uring sysctl", {
            "restricted to a group - sysctl -w kernel.io_uring_disabled=0"
        }),
        Some(_) => {
            out.line("io_uring sysctl", "disabled - sysctl -w kernel.io_uring_disabled=0");
        }
        None => {}
    }
}

/// `serve` raises the soft limit to the hard one, so only the hard one needs advice.
fn open_files((soft, hard): (Option<u64>, Option<u64>)) -> String {
    let shown = |limit: Option<u64>| limit.map_or("no limit".to_owned(), |limit| limit.to_string());
    let advice = match hard {
        Some(hard) if hard < OPEN_FILES_WANTED => " - raise with LimitNOFILE= or ulimit -Hn",
        _ => "",
    };
    if soft == hard {
        return format!("{}{advice}", shown(hard));
    }
    format!("{}, serve raises it to {}{advice}", shown(soft), shown(hard))
}

fn report_ring(out: &mut Lines, findings: &RingFindings) {
    match &findings.refusal {
        Some(refusal) => out.line("io_uring", refusal),
        None => out.line("io_uring", "the ring engine can run"),
    }
    for feature in &findings.features {
        let state = match (feature.works, feature.is_needed) {
            (true, _) => "works",
            (false, true) => "MISSING, needed",
            (false, false) => "missing, not needed",
        };
        let detail = if feature.detail.is_empty() {
            String::new()
        } else {
            format!(" - {}", feature.detail)
        };
        out.line(&format!("  {}", feature.name), &format!("{state}{detail}"));
    }
}

fn report_storage(out: &mut Lines, storage: &Storage) {
    let shown = storage.directory.display();
    let directory = if storage.exists {
        shown.to_string()
    } else {
        format!("{} doesn't exist yet, looking at {shown}", storage.asked.display())
    };
    out.line("directory", &directory);
    match &storage.mount {
        Some(mount) => {
            let Mount { kind, device, point, options } = mount;
            let point = point.display();
            out.line("file system", &format!("{kind} on {device} at {point} ({options})"));
            if mount.is_read_only() {
                out.line("", "read-only - nothing can be stored here");
            }
            if mount.is_memory() {
                out.line("", "in memory - nothing here survives a restart of the host");
            }
            if mount.is_remote() {
                out.line("", "over a network - use a local disk");
            }
        }
        None => out.line("file system", "its mount is not visible"),
    }
    if storage.has_journal == Some(false) {
        out.line("", "ext4 without a journal - names may be lost when the power fails");
    }
    if let Some((free, all)) = storage.free {
        out.line("space", &format!("{} free of {}", size(free), size(all)));
    }
    match &storage.syncs {
        Ok(times) => out.line("fdatasync", &sync_times(times)),
        Err(why) => out.line("fdatasync", &format!("not measured: {why}")),
    }
    out.line("commit journal", &journal(&storage.journal));
}

fn journal(tried: &Result<JournalProbe, NoJournal>) -> String {
    match tried {
        Ok(probed) => {
            let (direct, append) = (probed.in_place.as_micros(), probed.appended.as_micros());
            format!("used: a direct write takes {direct} us, an append with fdatasync {append} us")
        }
        Err(why) => format!("not used: {why}"),
    }
}

fn sync_times(times: &[Duration]) -> String {
    let shown = |time: Option<&Duration>| {
        time.map_or("-".to_owned(), |time| format!("{:.2} ms", time.as_secs_f64() * 1000.0))
    };
    let (median, worst) = (times.get(times.len() / 2), times.last());
    let (median, worst) = (shown(median), shown(worst));
    format!("median {median}, worst {worst} of {} after 4 KiB each", times.len())
}

/// Bytes in the largest unit that divides readably.
fn size(bytes: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match UNITS.into_iter().find(|(unit, _)| bytes >= *unit) {
        Some((unit, name)) => {
            format!("{}.{} {name}", bytes / unit, bytes % unit * 10 / unit)
        }
        None => format!("{bytes} bytes"),
    }
}

/// CAP_IPC_LOCK among the effective capabilities.
fn has_ipc_lock() -> bool {
    const CAP_IPC_LOCK: u64 = 1 << 14;
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & CAP_IPC_LOCK != 0)
}

/// The directory itself, or the nearest one above that exists; links followed, as mounts need.
fn nearest_directory(asked: &Path) -> PathBuf {
    let absolute = std::path::absolute(asked).unwrap_or_else(|_| asked.to_owned());
    let found = absolute.ancestors().find(|path| path.is_dir()).unwrap_or(Path::new("/"));
    fs::canonicalize(found).unwrap_or_else(|_| found.to_owned())
}

fn has_journal(mount: &Mount) -> Option<bool> {
    let device = Path::new(&mount.device).file_name()?.to_str()?;
    let path = format!("/sys/fs/ext4/{device}/journal_task");
    let task = (mount.kind == "ext4").then(|| fs::read_to_string(path).ok())??;
    Some(task.trim().parse::<u32>().is_ok())
}

fn time_syncs(directory: &Path) -> io::Result<Vec<Duration>> {
    let path = directory.join(format!(".uringlog-doctor-{}", std::process::id()));
    let file = File::options().write(true).create_new(true).open(&path)?;
    // The name goes at once: an interrupted run leaves nothing behind.
    fs::remove_file(&path)?;
    let bytes = [0x5a; SYNC_WRITE_BYTES];
    let start = Instant::now();
    let mut times = Vec::with_capacity(SYNC_SAMPLES);
    while times.len() < SYNC_SAMPLES && start.elapsed() < SYNC_TIME_MAX {
        (&file).write_all(&bytes)?;
        let before = Instant::now();
        file.sync_data()?;
        times.push(before.elapsed());
    }
    times.sort_unstable();
    Ok(times)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> Host {
        Host {
            kernel: "6.18.1".to_owned(),
            machine: "x86_64".to_owned(),
            cores: 2,
            memlock: Some(8 << 20),
            may_lock_memory: false,
            open_files: (Some(1024), Some(524_288)),
            pipe_bytes_max: Some(1 << 20),
            pipe_pages_max: Some(16_384),
            io_uring_disabled: Some(0),
        }
    }

    fn storage() -> Storage {
        Storage {
            asked: "/srv/data".into(),
            exists: false,
            directory: "/srv".into(),
            mount: Some(Mount {
                point: "/srv".into(),
                kind: "ext4".to_owned(),
                device: "/dev/vdb".to_owned(),
                options: "rw,noatime".to_owned(),
            }),
            free: Some((3 << 30, 10 << 30)),
            has_journal: Some(false),
            syncs: Ok([1, 2, 30].map(Duration::from_millis).to_vec()),
            journal: Ok(JournalProbe {
                in_place: Duration::from_micros(170),
                appended: Duration::from_micros(390),
            }),
        }
    }

    fn feature(works: bool, is_needed: bool) -> RingFeature {
        let (name, detail) = ("splice".to_owned(), "EINVAL (22)".to_owned());
        RingFeature { name, works, is_needed, detail }
    }

    #[test]
    fn the_report_names_findings_and_advice() {
        let findings = RingFindings {
            refusal: None,
            features: vec![feature(false, false)],
            buffered_writes: Ok(Punting::Always),
        };
        let expected = "\
kernel            6.18.1 x86_64, 2 cores
locked memory     8.0 MiB
open files        1024, serve raises it to 524288
pipe size         up to 1.0 MiB
pipe pages        16384 for all pipes of a user, enough for 4 shards
io_uring sysctl   enabled
io_uring          the ring engine can run
  splice          missing, not needed - EINVAL (22)
directory         /srv/data doesn't exist yet, looking at /srv
file system       ext4 on /dev/vdb at /srv (rw,noatime)
                  ext4 without a journal - names may be lost when the power fails
space             3.0 GiB free of 10.0 GiB
fdatasync         median 2.00 ms, worst 30.00 ms of 3 after 4 KiB each
commit journal    used: a direct write takes 170 us, an append with fdatasync 390 us
buffered writes   handed to kernel workers on this file system
engine auto       uring: everything that it needs works
";
        assert_eq!(report(&host(), &storage(), &findings), expected);
    }

    #[test]
    fn a_journal_that_is_not_used_comes_with_the_reason() {
        let times = |in_place, appended| JournalProbe {
            in_place: Duration::from_micros(in_place),
            appended: Duration::from_micros(appended),
        };
        let check = |why, expected: &str| assert_eq!(journal(&Err(why)), expected);
        check(NoJournal::CopyOnWrite("btrfs"), "not used: btrfs writes no block in place");
        check(
            NoJournal::Slower(times(90, 40)),
            "not used: a direct write takes 90 us here, an append with fdatasync 40 us; \
             journal.enable=true uses the journal all the same",
        );
    }

    #[test]
    fn limits_that_are_too_low_come_with_advice() {
        let low = Host {
            memlock: Some(64 << 10),
            open_files: (Some(256), Some(4096)),
            pipe_bytes_max: Some(4096),
            io_uring_disabled: Some(2),
            ..host()
        };
        let mut out = Lines(String::new());
        report_host(&mut out, &low);
        for advice in ["LimitMEMLOCK=", "LimitNOFILE=", "fs.pipe-max-size=", "_disabled=0"] {
            assert!(out.0.contains(advice), "{advice}: {}", out.0);
        }
    }

    #[test]
    fn the_verdict_follows_what_is_needed() {
        let findings = |refusal, features| {
            let buffered_writes = Ok(Punting::Never);
            RingFindings { refusal, features, buffered_writes }
        };
        let with = |features| findings(None, features);
        assert_eq!(verdict(&with(vec![feature(true, true), feature(false, false)])), Verdict::Ring);
        let missing = verdict(&with(vec![feature(false, true)]));
        let why = "splice doesn't work: EINVAL (22)".to_owned();
        assert_eq!(missing, Verdict::PlainFile(why));
        assert_eq!(missing.exit_status(), 3);
        let refusal = "EPERM (1): seccomp".to_owned();
        let refused = verdict(&findings(Some(refusal.clone()), Vec::new()));
        assert_eq!(refused, Verdict::PlainFile(refusal));
        assert_eq!(Verdict::Ring.exit_status(), 0);
    }

    #[test]
    fn syncs_are_timed_and_nothing_is_left() {
        let directory = tempfile::tempdir().expect("a directory");
        let found = examine_storage(&directory.path().join("not/yet"));
        let times = found.syncs.expect("a directory that can be written");
        assert!(!times.is_empty());
        assert!(!found.exists);
        assert!(examine_storage(directory.path()).exists);
        assert!(times.is_sorted());
        assert_eq!(fs::read_dir(directory.path()).expect("readable").count(), 0);
        assert!(found.mount.is_some());
        assert!(found.free.is_some());
        let host = examine_host();
        assert!(!host.kernel.is_empty());
        assert!(host.cores > 0);
    }

    #[test]
    fn sizes() {
        assert_eq!(size(512), "512 bytes");
        assert_eq!(size(1536), "1.5 KiB");
        assert_eq!(size(64 << 10), "64.0 KiB");
        assert_eq!(size(u64::MAX), "17179869183.9 GiB");
    }
}
