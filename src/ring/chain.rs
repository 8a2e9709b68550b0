//! From the steps of a plan to a chain of linked entries. Nothing here enters the kernel.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use io_uring::squeue::{Entry, Flags};
use io_uring::{opcode, types};

use crate::disk::errors;
use crate::disk::faults::{FaultHook, SyncFault, WriteFault};
use crate::disk::plain::{DIRECTORY_MODE, FILE_MODE, WRITE_PARTS_MAX, parts_bytes, path_of};
use crate::disk::plan::Parts;
use crate::disk::{FileId, Place, Step};
use crate::ring::durable::{Buffers, push_durable};
use crate::ring::files::{FileSlot, FileTable};
use crate::ring::links::Links;
use crate::ring::setup::FileMode;
use crate::ring::slots::{Detour, Member, Slot, Ticket};
use crate::units::{ByteCount, u64_of, usize_of};

/// Bytes that one entry moves at most; the kernel cuts at 2 GiB less a page.
pub(super) const ENTRY_BYTES_MAX: u64 = 1 << 30;

/// Entries that one step makes at most: open, sync and close of a directory.
pub(crate) const STEP_ENTRIES_MAX: usize = 3;

/// What the builder needs besides the slot.
pub(crate) struct Means<'a> {
    pub(crate) files: &'a mut FileTable,
    pub(crate) mode: FileMode,
    pub(crate) links: Links,
    /// The table slot for directories that the plan syncs.
    pub(crate) scratch: FileSlot,
    pub(crate) faults: Option<&'a FaultHook>,
    /// The buffers that durable writes need not pin.
    pub(crate) buffers: &'a Buffers,
    /// Entries that a chain may have; at least [`STEP_ENTRIES_MAX`].
    pub(crate) entries_max: usize,
}

/// Upper bound of the entries that [`build`] would make now.
pub(crate) fn entries_bound(slot: &Slot, entries_max: usize) -> usize {
    let rest = &slot.plan.steps[slot.progress.step..];
    let all = rest.iter().map(|step| match step {
        Step::SyncDirectory { .. } => STEP_ENTRIES_MAX,
        _ => 1,
    });
    all.sum::<usize>().min(entries_max)
}

/// Makes the next chain of a slot's plan, into `entries`; or says what is to happen instead of the
/// step that is next.
pub(crate) fn build(
    (index, slot): (usize, &mut Slot),
    means: &mut Means<'_>,
    entries: &mut Vec<Entry>,
) -> Result<(), Detour> {
    assert!(entries.is_empty());
    assert_eq!(slot.pending, 0, "one chain of a plan at a time");
    slot.members.clear();
    slot.paths.clear();
    slot.vectors.clear();
    slot.vectors.reserve(parts_of(&slot.plan.steps));
    for step in slot.progress.step..slot.plan.steps.len() {
        if means.entries_max < entries.len() + STEP_ENTRIES_MAX {
            break;
        }
        if let Some(detour) = detour_at(slot, step, means) {
            if entries.is_empty() {
                return Err(detour);
            }
            slot.detour = Some((step, detour));
            break;
        }
        let ends_chain = means.links.ends_chain(&slot.plan.steps[step]);
        match push(slot, step, means, entries) {
            Ok(is_cut) if is_cut || ends_chain => break,
            Ok(_) => {}
            Err(detour) if entries.is_empty() => return Err(detour),
            Err(_) => break,
        }
    }
    link(index, slot, entries);
    Ok(())
}

/// Links the entries to a chain, gives each its ticket and pins what they name.
fn link(index: usize, slot: &mut Slot, entries: &mut [Entry]) {
    assert_eq!(slot.members.len(), entries.len());
    let last = entries.len() - 1;
    for (member, entry) in entries.iter_mut().enumerate() {
        entry.set_user_data(Ticket::Chain { slot: index, member }.encode());
        if member != last {
            // `flags` adds to what the entry has, a fixed file above all.
            *entry = entry.clone().flags(Flags::IO_LINK);
        }
    }
    slot.pending = entries.len();
}

/// What the fault hook, or a kernel that lacks an operation, puts in the place of a step.
fn detour_at(slot: &mut Slot, step: usize, means: &Means<'_>) -> Option<Detour> {
    if let Some((_, detour)) = slot.detour.take_if(|(at, _)| *at == step) {
        return Some(detour);
    }
    if let Some(faults) = means.faults.filter(|_| slot.asked <= step) {
        slot.asked = step + 1;
        let detour = ask(slot, step, faults);
        if detour.is_some() {
            return detour;
        }
    }
    let step = &slot.plan.steps[step];
    let by_syscall = matches!(step, Step::SetModified { .. })
        || (means.mode == FileMode::Registered && sets_table_or_length(step));
    by_syscall.then_some(Detour::Syscall)
}

fn ask(slot: &mut Slot, step: usize, faults: &FaultHook) -> Option<Detour> {
    match &slot.plan.steps[step] {
        Step::Write { .. } => match faults.before_write() {
            WriteFault::None => None,
            WriteFault::Short { bytes: 0, errno } => Some(Detour::Fail(errors::classify(errno))),
            WriteFault::Short { bytes, errno } => {
                slot.cut = Some((step, bytes, errno));
                None
            }
        },
        // A durable write is a sync first: its bytes are asked about when it is let go.
        Step::Sync { .. } | Step::WriteDurable { .. } => match faults.before_sync() {
            SyncFault::None => None,
            SyncFault::Hold => Some(Detour::Hold),
            SyncFault::Delay(by) => Some(Detour::Delay(by)),
            SyncFault::Fail(errno) => Some(Detour::Fail(errors::classify(errno))),
        },
        _ => None,
    }
}

fn sets_table_or_length(step: &Step) -> bool {
    matches!(
        step,
        Step::Create { .. }
            | Step::Open { .. }
            | Step::OpenDirect { .. }
            | Step::Close { .. }
            | Step::Allocate { .. }
            | Step::Truncate { .. }
    )
}

/// Pushes the entries of one step. `Ok(true)`: only a part of it, so the chain ends here.
fn push(
    slot: &mut Slot,
    step: usize,
    means: &mut Means<'_>,
    entries: &mut Vec<Entry>,
) -> Result<bool, Detour> {
    match &slot.plan.steps[step] {
        Step::Write { .. } => return push_write(slot, step, means, entries),
        Step::WriteDurable { .. } => return push_durable(slot, step, means, entries),
        Step::Read { .. } => return push_read(slot, step, means, entries),
        Step::SyncDirectory { .. } => {
            push_sync_directory(slot, step, means.scratch, entries);
            return Ok(false);
        }
        _ => {}
    }
    let (entry, pins) = whole_entry(slot, step, means)?;
    slot.members.push(Member { step, wanted: None, ends_step: true, pins, result: None });
    pin(means.files, pins);
    entries.push(entry);
    Ok(false)
}

/// The one entry of a step that happens as a whole or not at all.
fn whole_entry(
    slot: &mut Slot,
    step: usize,
    means: &mut Means<'_>,
) -> Result<(Entry, Option<FileSlot>), Detour> {
    let paths = &mut slot.paths;
    Ok(match &slot.plan.steps[step] {
        Step::Create { file, place } => open_entry((*file, place), libc::O_CREAT, paths, means)?,
        Step::Open { file, place } => open_entry((*file, place), 0, paths, means)?,
        Step::OpenDirect { file, place } => {
            open_entry((*file, place), libc::O_DIRECT, paths, means)?
        }
        Step::Allocate { file, length } | Step::Truncate { file, length } => {
            let fixed = fixed(*file, means)?;
            (opcode::Ftruncate::new(types::Fixed(fixed), length.0).build(), Some(fixed))
        }
        Step::Sync { file } => {
            let fixed = fixed(*file, means)?;
            let flags = types::FsyncFlags::DATASYNC;
            (opcode::Fsync::new(types::Fixed(fixed)).flags(flags).build(), Some(fixed))
        }
        Step::Forget { file } => {
            let fixed = fixed(*file, means)?;
            // Length 0: to the end of the file.
            let advice = libc::POSIX_FADV_DONTNEED;
            (opcode::Fadvise::new(types::Fixed(fixed), 0, advice).build(), Some(fixed))
        }
        Step::Close { file } => {
            let fixed = fixed(*file, means)?;
            (opcode::Close::new(types::Fixed(fixed)).build(), Some(fixed))
        }
        Step::CreateDirectory { place } => {
            let path = keep(paths, &path_of(place));
            (opcode::MkDirAt::new(CWD, path).mode(DIRECTORY_MODE).build(), None)
        }
        Step::Rename { from, to } => {
            let from = keep(paths, &path_of(from));
            let to = keep(paths, &path_of(to));
            (opcode::RenameAt::new(CWD, from, CWD, to).build(), None)
        }
        Step::Remove { place } => {
            (opcode::UnlinkAt::new(CWD, keep(paths, &path_of(place))).build(), None)
        }
        Step::RemoveDirectory { place } => {
            let path = keep(paths, &path_of(place));
            (opcode::UnlinkAt::new(CWD, path).flags(libc::AT_REMOVEDIR).build(), None)
        }
        Step::SetModified { .. } => unreachable!("no operation of the ring's"),
        Step::Write { .. }
        | Step::WriteDurable { .. }
        | Step::Read { .. }
        | Step::SyncDirectory { .. } => unreachable!("these have functions of their own"),
    })
}

const CWD: types::Fd = types::Fd(libc::AT_FDCWD);

fn open_entry(
    (file, place): (FileId, &Place),
    more: i32,
    paths: &mut Vec<CString>,
    means: &mut Means<'_>,
) -> Result<(Entry, Option<FileSlot>), Detour> {
    let fixed = means.files.reserve(file).ok_or(Detour::Fail(errors::table_full()))?;
    let path = keep(paths, &path_of(place));
    // No O_CLOEXEC: a file of the table has no descriptor that could be inherited.
    let entry = opcode::OpenAt::new(CWD, path)
        .flags(libc::O_RDWR | more)
        .mode(FILE_MODE)
        .file_index(Some(destination(fixed)))
        .build();
    Ok((entry, Some(fixed)))
}

fn push_write(
    slot: &mut Slot,
    step: usize,
    means: &mut Means<'_>,
    entries: &mut Vec<Entry>,
) -> Result<bool, Detour> {
    let done = done_of(slot, step);
    let Step::Write { file, at, parts } = &slot.plan.steps[step] else { unreachable!("a write") };
    let fixed = fixed(*file, means)?;
    let at = (*at + ByteCount(done)).0;
    let rest = parts_bytes(parts) - done;
    let cut = slot.cut.filter(|(cut_step, ..)| *cut_step == step);
    let bytes_max = cut.map_or(ENTRY_BYTES_MAX, |(_, bytes, _)| bytes.min(ENTRY_BYTES_MAX));
    let (from, wanted) = vectors_from(parts, (done, rest.min(bytes_max)), &mut slot.vectors);
    let vectors = &slot.vectors[from..];
    let entry = match vectors {
        [one] => {
            let length = u32::try_from(one.iov_len).expect("an entry moves at most 1 GiB");
            let start = one.iov_base.cast_const().cast();
            opcode::Write::new(types::Fixed(fixed), start, length).offset(at).build()
        }
        _ => {
            let count = u32::try_from(vectors.len()).expect("at most IOV_MAX parts");
            let start = vectors.as_ptr();
            opcode::Writev::new(types::Fixed(fixed), start, count).offset(at).build()
        }
    };
    let is_whole = wanted == rest;
    let member =
        Member { step, wanted: Some(wanted), ends_step: is_whole, pins: Some(fixed), result: None };
    slot.members.push(member);
    pin(means.files, Some(fixed));
    entries.push(entry);
    Ok(!is_whole || cut.is_some())
}

fn push_read(
    slot: &mut Slot,
    step: usize,
    means: &mut Means<'_>,
    entries: &mut Vec<Entry>,
) -> Result<bool, Detour> {
    let done = done_of(slot, step);
    let Step::Read { file, at, bytes } = &mut slot.plan.steps[step] else { unreachable!("a read") };
    let fixed = fixed(*file, means)?;
    let at = (*at + ByteCount(done)).0;
    let rest = &mut bytes[usize_of(done)..];
    let wanted = u64_of(rest.len()).min(ENTRY_BYTES_MAX);
    let length = u32::try_from(wanted).expect("an entry moves at most 1 GiB");
    let entry =
        opcode::Read::new(types::Fixed(fixed), rest.as_mut_ptr(), length).offset(at).build();
    let is_whole = wanted == u64_of(rest.len());
    let member =
        Member { step, wanted: Some(wanted), ends_step: is_whole, pins: Some(fixed), result: None };
    slot.members.push(member);
    pin(means.files, Some(fixed));
    entries.push(entry);
    Ok(!is_whole)
}

/// Each slot has one table slot for the directories that it syncs, one after the other.
fn push_sync_directory(slot: &mut Slot, step: usize, fixed: FileSlot, entries: &mut Vec<Entry>) {
    let Step::SyncDirectory { directory } = &slot.plan.steps[step] else {
        unreachable!("a directory's sync")
    };
    let path = keep(&mut slot.paths, directory);
    let open = opcode::OpenAt::new(CWD, path)
        .flags(libc::O_RDONLY | libc::O_DIRECTORY)
        .file_index(Some(destination(fixed)));
    entries.push(open.build());
    entries.push(opcode::Fsync::new(types::Fixed(fixed)).build());
    entries.push(opcode::Close::new(types::Fixed(fixed)).build());
    for ends_step in [false, false, true] {
        slot.members.push(Member { step, wanted: None, ends_step, pins: None, result: None });
    }
}

pub(super) fn fixed(file: FileId, means: &Means<'_>) -> Result<FileSlot, Detour> {
    means.files.slot_of(file).ok_or(Detour::Fail(errors::not_open()))
}

pub(super) fn pin(files: &mut FileTable, slot: Option<FileSlot>) {
    if let Some(slot) = slot {
        files.pin(slot);
    }
}

pub(super) fn done_of(slot: &Slot, step: usize) -> u64 {
    if slot.progress.step == step { slot.progress.done } else { 0 }
}

fn destination(slot: FileSlot) -> types::DestinationSlot {
    types::DestinationSlot::try_from_slot_target(slot).expect("a table has fewer than 2^32 files")
}

/// Keeps a path as long as the slot, and gives the pointer that an entry takes.
fn keep(paths: &mut Vec<CString>, path: &Path) -> *const libc::c_char {
    let path = CString::new(path.as_os_str().as_bytes()).expect("paths have no NUL inside");
    // The string's bytes stay where they are when the vector grows.
    let pointer = path.as_ptr();
    paths.push(path);
    pointer
}

fn parts_of(steps: &[Step]) -> usize {
    let parts = steps.iter().map(|step| match step {
        Step::Write { parts, .. } => parts.len(),
        _ => 0,
    });
    parts.sum()
}

/// Appends the vectors of the `bytes` bytes behind the first `done`, as many as one entry takes.
/// Returns where they begin and how many bytes they are.
fn vectors_from(
    parts: &Parts,
    (done, bytes): (u64, u64),
    vectors: &mut Vec<libc::iovec>,
) -> (usize, u64) {
    let from = vectors.len();
    let (mut skip, mut left) = (usize_of(done), usize_of(bytes));
    for part in parts {
        let piece = &part[skip.min(part.len())..];
        skip -= part.len() - piece.len();
        let piece = &piece[..left.min(piece.len())];
        left -= piece.len();
        if !piece.is_empty() {
            assert!(vectors.len() < vectors.capacity(), "entries point into this memory");
            let start = piece.as_ptr().cast_mut().cast();
            vectors.push(libc::iovec { iov_base: start, iov_len: piece.len() });
        }
        if left == 0 || vectors.len() - from == WRITE_PARTS_MAX {
            break;
        }
    }
    (from, bytes - u64_of(left))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::{Bytes, BytesMut};

    use super::*;
    use crate::disk::{Aligned, BLOCK_BYTES, DiskError, Lane, Plan, PlanTag, StepFailure};
    use crate::ring::slots::Slots;
    use crate::ring::verdict::{Verdict, judge};
    use crate::units::Position;

    const FILE: FileId = FileId { owner: 1, number: 1 };
    const CANCELED: i32 = -libc::ECANCELED;

    fn write() -> Step {
        let parts = [Bytes::from_static(b"0123"), Bytes::from_static(b"456789")];
        Step::Write { file: FILE, at: Position(0), parts: parts.into_iter().collect() }
    }

    fn read() -> Step {
        Step::Read { file: FILE, at: Position(0), bytes: BytesMut::zeroed(10) }
    }

    fn rename() -> Step {
        let place = || Place { directory: Arc::from(Path::new("/")), name: "a".into() };
        Step::Rename { from: place(), to: place() }
    }

    /// Builds the first chain of a plan, answers it, and returns the verdict and the progress.
    fn judged(steps: Vec<Step>, results: &[i32]) -> (Verdict, usize, u64) {
        let mut slots = Slots::new(1);
        let tag = PlanTag { owner: 1, lane: Lane::Append, number: 0 };
        slots.insert(Plan { tag, steps: steps.into() });
        let mut files = FileTable::new(4, 1);
        files.reserve(FILE).expect("a slot");
        let all = Links {
            open: true,
            truncate: true,
            sync: false,
            rename: true,
            close: true,
            short: true,
        };
        let mut means = Means {
            files: &mut files,
            mode: FileMode::Direct,
            links: all,
            scratch: 4,
            faults: None,
            buffers: &Buffers::default(),
            entries_max: 8,
        };
        let slot = slots.get(0);
        let mut entries = Vec::new();
        build((0, slot), &mut means, &mut entries).expect("no detour");
        assert_eq!(entries.len(), results.len(), "{entries:?}");
        for (member, result) in slot.members.iter_mut().zip(results) {
            member.result = Some(*result);
        }
        let verdict = judge(slot);
        (verdict, slot.progress.step, slot.progress.done)
    }

    fn over(step: usize, partial: bool, error: DiskError) -> Verdict {
        Verdict::Over(Err(StepFailure { step, partial, error }))
    }

    #[test]
    fn a_whole_chain_is_a_whole_plan() {
        let steps = vec![write(), read(), Step::Sync { file: FILE }];
        assert_eq!(judged(steps, &[10, 10, 0]), (Verdict::Over(Ok(())), 3, 0));
    }

    #[test]
    fn a_short_write_goes_on_behind_what_was_written() {
        let steps = vec![rename(), write(), Step::Sync { file: FILE }];
        assert_eq!(judged(steps, &[0, 7, CANCELED]), (Verdict::Again, 1, 7));
        assert_eq!(judged(vec![write()], &[0]).0, over(0, false, errors::input_output()));
        assert_eq!(judged(vec![read()], &[0]).0, over(0, false, DiskError::UnexpectedEnd));
    }

    #[test]
    fn a_passing_failure_is_tried_again_unless_it_is_a_sync() {
        let steps = vec![write(), Step::Sync { file: FILE }];
        assert_eq!(judged(steps, &[-libc::EAGAIN, CANCELED]), (Verdict::Again, 0, 0));
        let steps = vec![write(), Step::Sync { file: FILE }];
        let again = DiskError::Transient(libc::EINTR);
        assert_eq!(judged(steps, &[10, -libc::EINTR]).0, over(1, true, again));
    }

    #[test]
    fn the_culprit_is_found_behind_canceled_entries() {
        let steps = vec![write(), rename()];
        let verdict = judged(steps, &[CANCELED, -libc::EINVAL]).0;
        assert_eq!(verdict, over(0, false, DiskError::Io(libc::EINVAL)));
    }

    #[test]
    fn a_sync_that_breaks_no_link_ends_its_chain() {
        let steps = vec![write(), Step::Sync { file: FILE }, rename()];
        assert_eq!(judged(steps, &[10, 0]), (Verdict::Again, 2, 0));
    }

    fn durable(blocks: usize) -> Step {
        let mut buffer = Box::new(Aligned::new(blocks * BLOCK_BYTES));
        buffer.set_length(blocks * BLOCK_BYTES);
        Step::WriteDurable { file: FILE, at: Position(4096), buffer }
    }

    #[test]
    fn a_short_durable_write_goes_on_at_a_block() {
        assert_eq!(judged(vec![durable(3)], &[12288]), (Verdict::Over(Ok(())), 1, 0));
        assert_eq!(judged(vec![durable(3)], &[9000]), (Verdict::Again, 0, 8192));
        assert_eq!(judged(vec![durable(3)], &[512]), (Verdict::Again, 0, 0));
        assert_eq!(judged(vec![durable(3)], &[0]).0, over(0, true, errors::input_output()));
    }

    #[test]
    fn a_durable_write_ends_its_chain_and_is_never_tried_again() {
        let verdict = judged(vec![write(), durable(1), rename()], &[10, 4096]);
        assert_eq!(verdict, (Verdict::Again, 2, 0));
        let again = DiskError::Transient(libc::EAGAIN);
        assert_eq!(judged(vec![durable(1)], &[-libc::EAGAIN]).0, over(0, true, again));
    }

    #[test]
    #[should_panic(expected = "ran behind")]
    fn a_link_that_did_not_hold_stops_everything() {
        judged(vec![rename(), write()], &[-libc::ENOENT, 10]);
    }
}
