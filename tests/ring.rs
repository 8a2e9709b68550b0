//! The ring: plans as chains, and file ranges to sockets, whoever stalls or vanishes meanwhile.

use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use bytes::{Bytes, BytesMut};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use uringlog::disk::faults::FaultHook;
use uringlog::disk::{
    Aligned, Disk, DiskError, FileId, Lane, Place, Plan, PlanTag, Step, StepFailure, errors,
};
use uringlog::ring::{RingDisk, RingOptions, SendError, SendFinished};
use uringlog::units::{ByteCount, Position};

const FILE: FileId = FileId { owner: 1, number: 1 };
const PIPES_MAX: usize = 2;

fn contents(length: usize) -> Vec<u8> {
    let mut state = 1_u32;
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_be_bytes()[0]
    };
    std::iter::repeat_with(next).take(length).collect()
}

fn plan(steps: Vec<Step>) -> Plan {
    Plan { tag: PlanTag { owner: 1, lane: Lane::Append, number: 0 }, steps: steps.into() }
}

/// A ring with one open file of these bytes.
fn ring(directory: &Path, bytes: &[u8]) -> RingDisk {
    let options = RingOptions {
        entries: 64,
        cq_entries: 128,
        files_max: 4,
        pipes_max: PIPES_MAX,
        ..RingOptions::default()
    };
    let mut disk = RingDisk::new(options).expect("io_uring");
    let place = Place { directory: Arc::from(directory), name: "f".into() };
    let parts = [Bytes::copy_from_slice(bytes)].into_iter().collect();
    let finished = disk.run(plan(vec![
        Step::Create { file: FILE, place },
        Step::Write { file: FILE, at: Position(0), parts },
    ]));
    assert_eq!(finished.result, Ok(()));
    disk
}

/// Our end, non-blocking as the shard keeps it, and the client's.
fn connection() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let client = TcpStream::connect(listener.local_addr().expect("an address")).expect("connects");
    let (ours, _) = listener.accept().expect("accepted");
    ours.set_nonblocking(true).expect("a flag");
    (ours, client)
}

fn send(disk: &mut RingDisk, range: (u64, u64), socket: &TcpStream, token: u64) {
    let (at, length) = range;
    disk.send_slice(FILE, Position(at), ByteCount(length), socket.as_fd(), token);
}

/// Reads until the end, on a thread of its own.
fn reader(mut client: TcpStream) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        client.read_to_end(&mut bytes).expect("a whole answer");
        bytes
    })
}

/// Waits for the next transfer to be over, woken by the ring's descriptor alone.
fn next(disk: &mut RingDisk) -> SendFinished {
    disk.enter();
    loop {
        if let Some(finished) = disk.reap_send() {
            return finished;
        }
        assert!(wait(disk, 20), "no transfer ended and the descriptor stayed silent");
    }
}

/// Waits until the descriptor is readable.
fn wait(disk: &RingDisk, seconds: i64) -> bool {
    let descriptor = disk.descriptor();
    let mut polled = [PollFd::new(&descriptor, PollFlags::IN)];
    let timeout = Timespec { tv_sec: seconds, tv_nsec: 0 };
    loop {
        match poll(&mut polled, Some(&timeout)) {
            Ok(count) => return 0 < count,
            // Work of the ring interrupts blocking calls of its thread.
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => panic!("poll: {errno}"),
        }
    }
}

#[test]
fn ranges_at_odd_positions_arrive_whole() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let bytes = contents(3_000_001);
    let mut disk = ring(directory.path(), &bytes);
    let ranges = [
        (0, 0),
        (0, 1),
        (4095, 2),
        (1, 4095),
        (100, 65_536),
        (777, 255 * 4096),
        (4095, 1 << 20),
        (3, 2_500_000),
        (0, 3_000_001),
    ];
    let (ours, client) = connection();
    let reader = reader(client);
    let mut expected = Vec::new();
    for (token, (at, length)) in (0..).zip(ranges) {
        send(&mut disk, (at, length), &ours, token);
        assert_eq!(next(&mut disk), SendFinished { token, result: Ok(()) });
        let range =
            usize::try_from(at).expect("small")..usize::try_from(at + length).expect("small");
        expected.extend_from_slice(&bytes[range]);
    }
    drop(ours);
    assert!(reader.join().expect("the reader ends") == expected);
    assert_eq!((disk.sends_under_way(), disk.pipes_open()), (0, 1));
    assert!(20 < disk.counters().splices);
}

#[test]
fn stalled_readers_keep_no_pipe_from_a_live_one() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let bytes = contents(8_000_000);
    let mut disk = ring(directory.path(), &bytes);
    let length = 8_000_000 - 13;
    let stalled: Vec<_> = (0..12_u64).map(|_| connection()).collect();
    for (token, (ours, _)) in (0..).zip(&stalled) {
        send(&mut disk, (13, length), ours, token);
    }
    disk.enter();
    for round in 100..110 {
        let (ours, client) = connection();
        let reader = reader(client);
        send(&mut disk, (13, length), &ours, round);
        assert_eq!(next(&mut disk), SendFinished { token: round, result: Ok(()) });
        drop(ours);
        assert!(reader.join().expect("the reader ends") == bytes[13..]);
        assert!(disk.pipes_open() <= PIPES_MAX);
    }
    assert_eq!(disk.sends_under_way(), 12, "the others still wait");
    let (ours, clients): (Vec<_>, Vec<_>) = stalled.into_iter().unzip();
    let readers: Vec<_> = clients.into_iter().map(reader).collect();
    let mut tokens: Vec<u64> = Vec::new();
    for _ in 0..12 {
        let finished = next(&mut disk);
        assert_eq!(finished.result, Ok(()));
        tokens.push(finished.token);
    }
    tokens.sort_unstable();
    assert_eq!(tokens, (0..12).collect::<Vec<u64>>());
    drop(ours);
    for reader in readers {
        assert!(reader.join().expect("the reader ends") == bytes[13..]);
    }
}

#[test]
fn a_client_that_vanishes_ends_its_transfer_only() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let bytes = contents(8_000_000);
    let mut disk = ring(directory.path(), &bytes);
    let (lost, mut vanishing) = connection();
    let (ours, client) = connection();
    send(&mut disk, (1, 7_999_999), &lost, 1);
    disk.enter();
    let mut first = [0; 1000];
    vanishing.read_exact(&mut first).expect("the first bytes come");
    // Unread bytes make this a reset.
    drop(vanishing);
    let reader = reader(client);
    send(&mut disk, (1, 7_999_999), &ours, 2);
    let mut results = [next(&mut disk), next(&mut disk)];
    results.sort_by_key(|finished| finished.token);
    assert!(matches!(results[0].result, Err(SendError::Socket(_))), "{results:?}");
    assert_eq!(results[1].result, Ok(()));
    drop(ours);
    assert!(reader.join().expect("the reader ends") == bytes[1..]);
    assert_eq!(disk.sends_under_way(), 0);
}

#[test]
fn what_can_not_be_sent_is_refused_with_its_reason() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut disk = ring(directory.path(), &contents(5000));
    let (ours, client) = connection();
    send(&mut disk, (4000, 2000), &ours, 1);
    assert_eq!(next(&mut disk).result, Err(SendError::FileEnded));
    let unknown = FileId { owner: 9, number: 9 };
    disk.send_slice(unknown, Position(0), ByteCount(1), ours.as_fd(), 2);
    assert!(matches!(next(&mut disk).result, Err(SendError::File(_))));
    send(&mut disk, (0, 1), &client, 3);
    assert_eq!(next(&mut disk).result, Err(SendError::Blocking));
}

#[test]
fn a_ring_is_dropped_in_spite_of_stalled_readers() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut disk = ring(directory.path(), &contents(8_000_000));
    let stalled: Vec<_> = (0..5_u64).map(|_| connection()).collect();
    for (ours, _) in &stalled {
        send(&mut disk, (0, 8_000_000), ours, 0);
    }
    disk.enter();
    assert!(wait(&disk, 20), "something happens");
    assert_eq!(disk.reap_send(), None);
    drop(disk);
}

fn place(directory: &tempfile::TempDir, name: &str) -> Place {
    Place { directory: Arc::from(directory.path()), name: name.into() }
}

fn write(at: u64, parts: &[&'static [u8]]) -> Step {
    let parts = parts.iter().map(|part| Bytes::from_static(part)).collect();
    Step::Write { file: FILE, at: Position(at), parts }
}

fn small_ring(faults: Option<FaultHook>) -> RingDisk {
    let options =
        RingOptions { entries: 8, cq_entries: 16, files_max: 4, faults, ..RingOptions::default() };
    RingDisk::new(options).expect("io_uring")
}

#[test]
fn a_plan_is_one_chain() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut disk = small_ring(None);
    assert!(disk.is_all_in_chains(), "this kernel has FTRUNCATE");
    let finished = disk.run(plan(vec![
        Step::Create { file: FILE, place: place(&directory, "f") },
        Step::Allocate { file: FILE, length: ByteCount(9) },
        write(1, &[b"ab", b"", b"cde"]),
        write(6, &[b"fg"]),
        write(8, &[]),
        Step::Sync { file: FILE },
    ]));
    assert_eq!(finished.result, Ok(()));
    let counters = disk.counters();
    // Where a failed FTRUNCATE doesn't break its link, it ends a chain.
    let chains = if disk.links().truncate { 1 } else { 2 };
    assert_eq!((counters.chains, counters.sqes), (chains, 6));
    assert_eq!((counters.linked_sqes, counters.syncs), (6 - chains, 1));
    let append = vec![write(1, &[b"ab"]), write(3, &[b"cd"]), Step::Sync { file: FILE }];
    assert_eq!(disk.run(plan(append)).result, Ok(()));
    assert_eq!(disk.counters().chains, chains + 1, "an append is one chain");
    assert_eq!(disk.counters().linked_sqes, 6 - chains + 2);
    assert_eq!(disk.run(plan(vec![write(1, &[b"abcde"])])).result, Ok(()));
    let read = Step::Read { file: FILE, at: Position(0), bytes: BytesMut::zeroed(9) };
    let finished = disk.run(plan(vec![read]));
    assert_eq!(finished.result, Ok(()));
    let Step::Read { bytes, .. } = &finished.plan.steps[0] else { panic!("a read") };
    assert_eq!(&bytes[..], b"\0abcdefg\0");
}

#[test]
fn a_plan_longer_than_the_queue_runs_as_several_chains() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut disk = small_ring(None);
    let mut steps = vec![Step::Create { file: FILE, place: place(&directory, "f") }];
    steps.extend((0..100).map(|at| write(at, &[b"xyz"])));
    steps.push(Step::SyncDirectory { directory: Arc::from(directory.path()) });
    steps.push(Step::Close { file: FILE });
    assert_eq!(disk.run(plan(steps)).result, Ok(()));
    assert!(10 < disk.counters().chains);
    assert_eq!((disk.files_open(), disk.under_way()), (0, 0));
    let written = std::fs::read(directory.path().join("f")).expect("it was written");
    assert_eq!(written.len(), 102);
}

#[test]
fn more_plans_than_slots_wait_their_turn() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut disk = small_ring(None);
    for _ in 0..50 {
        disk.submit(plan(vec![
            Step::CreateDirectory { place: place(&directory, "d") },
            Step::Remove { place: place(&directory, "absent") },
            Step::SyncDirectory { directory: Arc::from(directory.path()) },
        ]));
    }
    disk.enter();
    let mut count = 0;
    while let Some(finished) = disk.reap(true) {
        assert_eq!(finished.result, Ok(()));
        count += 1;
    }
    assert_eq!((count, disk.counters().waited, disk.under_way()), (50, 42, 0));
}

#[test]
fn a_failure_ends_the_plan_and_names_its_step() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut disk = small_ring(None);
    let check = |disk: &mut RingDisk, steps, step, error| {
        let failure = StepFailure { step, partial: false, error };
        assert_eq!(disk.run(plan(steps)).result, Err(failure));
    };
    let absent = Step::Open { file: FILE, place: place(&directory, "absent") };
    let make = Step::CreateDirectory { place: place(&directory, "d") };
    check(&mut disk, vec![absent, make], 0, DiskError::NotFound);
    assert!(!directory.path().join("d").exists(), "what is behind a failure never runs");
    let made = Step::CreateDirectory { place: place(&directory, "d") };
    check(&mut disk, vec![made, write(0, &[b"x"])], 1, errors::not_open());
    let inside = Place { directory: Arc::from(Path::new("/nowhere")), name: "d".into() };
    let make = Step::CreateDirectory { place: inside };
    let remove = Step::RemoveDirectory { place: place(&directory, "d") };
    check(&mut disk, vec![make, remove], 0, DiskError::NotFound);
    assert!(directory.path().join("d").exists(), "what is behind a failure never runs");
    assert_eq!(disk.files_open(), 0);
}

#[test]
fn the_file_table_is_bounded_and_its_slots_are_used_again() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut disk = small_ring(None);
    let file = |number| FileId { owner: 1, number };
    let create = |number| Step::Create { file: file(number), place: place(&directory, "f") };
    let finished = disk.run(plan((0..5).map(create).collect()));
    let failure = StepFailure { step: 4, partial: false, error: errors::table_full() };
    assert_eq!(finished.result, Err(failure));
    for number in 5..50 {
        let close = Step::Close { file: file(if number < 9 { number - 5 } else { number - 4 }) };
        assert_eq!(disk.run(plan(vec![close, create(number)])).result, Ok(()));
    }
    assert_eq!(disk.files_open(), 4);
}

#[test]
fn held_syncs_wait_and_their_writes_do_not() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let hook = FaultHook::new();
    let mut disk = small_ring(Some(hook.clone()));
    hook.hold_syncs();
    disk.submit(plan(vec![
        Step::Create { file: FILE, place: place(&directory, "f") },
        write(0, &[b"abc"]),
        Step::Sync { file: FILE },
        Step::Rename { from: place(&directory, "f"), to: place(&directory, "g") },
    ]));
    disk.enter();
    while hook.syncs_waiting() == 0 {
        assert!(disk.reap(false).is_none());
    }
    assert_eq!(std::fs::read(directory.path().join("f")).expect("it is there"), b"abc");
    hook.release_syncs();
    assert_eq!(disk.reap(true).expect("it was let go").result, Ok(()));
    assert_eq!(std::fs::read(directory.path().join("g")).expect("it is there"), b"abc");
    assert_eq!(hook.syncs_waiting(), 0);
}

#[test]
fn dropping_a_disk_waits_for_the_kernel_and_not_for_the_hook() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let hook = FaultHook::new();
    let mut disk = small_ring(Some(hook.clone()));
    hook.hold_syncs();
    disk.submit(plan(vec![
        Step::Create { file: FILE, place: place(&directory, "f") },
        write(0, &[b"abc"]),
        Step::Sync { file: FILE },
    ]));
    disk.enter();
    drop(disk);
    assert_eq!(std::fs::read(directory.path().join("f")).expect("it is there"), b"abc");
    assert_eq!(hook.syncs_waiting(), 0);
}

/// Makes a file of 64 KiB, and opens it for direct writing under the number 2.
fn direct_file(disk: &mut RingDisk, directory: &tempfile::TempDir) -> FileId {
    let direct = FileId { owner: 1, number: 2 };
    let finished = disk.run(plan(vec![
        Step::Create { file: FILE, place: place(directory, "f") },
        write(0, &[&[1; 65_536]]),
        Step::Sync { file: FILE },
        Step::OpenDirect { file: direct, place: place(directory, "f") },
    ]));
    assert_eq!(finished.result, Ok(()), "direct I/O must be possible in {directory:?} (TMPDIR)");
    direct
}

fn filled(byte: u8) -> Box<Aligned> {
    let mut buffer = Box::new(Aligned::new(8192));
    buffer.set_length(8192);
    buffer.memory_mut().fill(byte);
    buffer
}

/// Writes it durably; returns it, and how many durable and how many fixed writes that took.
fn write_durably(
    disk: &mut RingDisk,
    file: FileId,
    buffer: Box<Aligned>,
) -> (Box<Aligned>, (u64, u64)) {
    let before = disk.counters();
    let step = Step::WriteDurable { file, at: Position(4096), buffer };
    let finished = disk.run(plan(vec![step]));
    assert_eq!(finished.result, Ok(()));
    let after = disk.counters();
    assert_eq!(after.syncs, before.syncs, "the write carries its sync");
    assert_eq!(after.sqes, before.sqes + 1);
    let step = finished.plan.steps.into_iter().next().expect("one");
    let Step::WriteDurable { buffer, .. } = step else { panic!("a durable write") };
    let durable = after.durable_writes - before.durable_writes;
    (buffer, (durable, after.fixed_writes - before.fixed_writes))
}

#[test]
fn a_durable_write_is_one_entry_and_a_registered_one_names_its_buffer() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut disk = small_ring(None);
    let file = direct_file(&mut disk, &directory);
    let (mut buffer, counts) = write_durably(&mut disk, file, filled(2));
    assert_eq!(counts, (1, 0));
    disk.register(&mut buffer);
    assert_eq!(buffer.registration(), Some(0));
    disk.register(&mut buffer);
    assert_eq!(buffer.registration(), Some(0), "once is enough");
    buffer.memory_mut().fill(3);
    let (buffer, counts) = write_durably(&mut disk, file, buffer);
    assert_eq!(counts, (1, 1));
    let bytes = std::fs::read(directory.path().join("f")).expect("it is there");
    assert_eq!(bytes[4096..12_288], [3; 8192], "what the buffer holds now, not when registered");
    // What takes its place after it is gone, most likely at the same address, is another buffer.
    drop(buffer);
    let (buffer, counts) = write_durably(&mut disk, file, filled(4));
    assert_eq!((buffer.registration(), counts), (None, (1, 0)));
    let bytes = std::fs::read(directory.path().join("f")).expect("it is there");
    assert_eq!(bytes[4096..12_288], [4; 8192]);
}

#[test]
fn a_buffer_of_another_ring_and_one_too_many_are_written_all_the_same() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (mut disk, mut other) = (small_ring(None), small_ring(None));
    let file = direct_file(&mut disk, &directory);
    let mut foreign = filled(5);
    other.register(&mut foreign);
    let mut ours: Vec<_> = (0..9).map(|_| filled(6)).collect();
    ours.iter_mut().for_each(|buffer| disk.register(buffer));
    let numbers: Vec<_> = ours.iter().map(|buffer| buffer.registration()).collect();
    let expected: Vec<_> = (0..8).map(Some).chain([None]).collect();
    assert_eq!(numbers, expected, "a ring has eight places");
    assert_eq!(foreign.registration(), Some(0));
    let (_, counts) = write_durably(&mut disk, file, foreign);
    assert_eq!(counts, (1, 0));
    let bytes = std::fs::read(directory.path().join("f")).expect("it is there");
    assert_eq!(bytes[4096..12_288], [5; 8192]);
    let last = ours.pop().expect("nine");
    assert_eq!(write_durably(&mut disk, file, last).1, (1, 0));
    let eighth = ours.pop().expect("eight");
    assert_eq!(write_durably(&mut disk, file, eighth).1, (1, 1));
}

#[test]
fn a_durable_write_ends_its_chain() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut disk = small_ring(None);
    let file = direct_file(&mut disk, &directory);
    let before = disk.counters();
    let finished = disk.run(plan(vec![
        write(0, &[b"head"]),
        Step::WriteDurable { file, at: Position(4096), buffer: filled(2) },
        write(4, &[b"tail"]),
        Step::Close { file },
    ]));
    assert_eq!(finished.result, Ok(()));
    let after = disk.counters();
    assert_eq!((after.chains - before.chains, after.linked_sqes - before.linked_sqes), (2, 2));
    assert_eq!(after.durable_writes - before.durable_writes, 1);
}

/// The write is in the kernel when its ring goes: the ring waits for it.
#[test]
fn a_ring_is_dropped_with_a_registered_write_under_way() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut disk = small_ring(None);
    let file = direct_file(&mut disk, &directory);
    let mut buffer = filled(2);
    disk.register(&mut buffer);
    disk.submit(plan(vec![Step::WriteDurable { file, at: Position(4096), buffer }]));
    disk.enter();
    drop(disk);
    let bytes = std::fs::read(directory.path().join("f")).expect("it is there");
    assert_eq!(bytes[4096..12_288], [2; 8192]);
}

#[test]
fn a_direct_file_that_can_not_be_opened_takes_no_place() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut disk = small_ring(None);
    for number in 1..20 {
        let file = FileId { owner: 1, number };
        let open = Step::OpenDirect { file, place: place(&directory, "absent") };
        let failure = StepFailure { step: 0, partial: false, error: DiskError::NotFound };
        assert_eq!(disk.run(plan(vec![open])).result, Err(failure));
    }
    assert_eq!(disk.files_open(), 0);
}
