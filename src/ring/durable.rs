//! Durable writes: direct, in place, and over when the bytes are on the device.
//!
//! The kernel pins the pages of such a write for its time. A buffer that is *registered* is pinned
//! once, for as long as the ring lives, and its writes name it by number. Three things keep a
//! number from ever standing for other memory than it was given for: it lives inside the buffer
//! itself, so a new buffer at the same address has none; the ring notes whose it is, by an identity
//! that no two buffers of a process share; and a buffer neither moves nor grows. A buffer without a
//! number of this ring is written by the ordinary operation.

use io_uring::squeue::Entry;
use io_uring::{opcode, types};

use crate::disk::aligned::{check_alignment, whole_blocks};
use crate::disk::errors;
use crate::disk::faults::WriteFault;
use crate::disk::{Aligned, Step};
use crate::ring::chain::{ENTRY_BYTES_MAX, Means, done_of, fixed, pin};
use crate::ring::disk::RingDisk;
use crate::ring::files::FileSlot;
use crate::ring::slots::{Detour, Member, Slot};
use crate::units::{ByteCount, u64_of, usize_of};

/// Buffers that one ring can register in its life. A place is not used again: nothing tells the
/// ring when a buffer is dropped.
const BUFFERS_MAX: u16 = 8;

/// The registered buffers, by number.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    /// Never longer than [`BUFFERS_MAX`].
    registered: Vec<Registered>,
    /// The kernel has the table that the numbers count in.
    has_table: bool,
    /// A refusal was reported.
    has_complained: bool,
}

/// What the kernel has pinned under a number.
#[derive(Clone, Copy, Debug)]
struct Registered {
    identity: u64,
    address: usize,
    bytes: usize,
}

impl Buffers {
    /// The number that the kernel knows this buffer by, if it does.
    fn number_of(&self, buffer: &Aligned) -> Option<u16> {
        let number = buffer.registration()?;
        let registered = self.registered.get(usize::from(number))?;
        if registered.identity != buffer.identity() {
            // Another ring gave it that number.
            return None;
        }
        assert_eq!(registered.address, buffer.bytes().as_ptr().addr(), "a buffer never moves");
        assert!(buffer.length() <= registered.bytes, "a buffer never grows");
        Some(number)
    }
}

impl RingDisk {
    /// Registers a buffer; where that is refused, it stays as it is, and the first refusal is
    /// reported.
    pub(super) fn register_buffer(&mut self, buffer: &mut Aligned) {
        if self.buffers.number_of(buffer).is_some() || buffer.capacity() == 0 {
            return;
        }
        match self.try_register(buffer) {
            Ok(number) => buffer.set_registration(Some(number)),
            Err(why) if !self.buffers.has_complained => {
                self.buffers.has_complained = true;
                tracing::info!(
                    "a write buffer of {} bytes can't be registered with io_uring ({why}); it is \
                     pinned for each write instead, which costs some CPU. A higher memlock limit \
                     (`ulimit -l`) helps when memory is what was refused",
                    buffer.capacity()
                );
            }
            Err(_) => {}
        }
    }

    fn try_register(&mut self, buffer: &mut Aligned) -> std::io::Result<u16> {
        let number = u16::try_from(self.buffers.registered.len()).expect("at most BUFFERS_MAX");
        if number == BUFFERS_MAX {
            return Err(std::io::Error::other("all places of the ring are taken"));
        }
        if !self.buffers.has_table {
            self.ring.submitter().register_buffers_sparse(u32::from(BUFFERS_MAX))?;
            self.buffers.has_table = true;
        }
        let memory = buffer.memory_mut();
        let (address, bytes) = (memory.as_ptr().addr(), memory.len());
        let vector = libc::iovec { iov_base: memory.as_mut_ptr().cast(), iov_len: bytes };
        let submitter = self.ring.submitter();
        // SAFETY: `buffer` owns the memory and is borrowed for this call, in which the kernel pins
        // its pages; from then on it holds them itself, until the ring ends, whoever frees the
        // buffer. It only ever reads them, and only in writes of a buffer that a slot owns until
        // their last completion (`number_of` finds no number for any other).
        unsafe { submitter.register_buffers_update(u32::from(number), &[vector], None) }?;
        let identity = buffer.identity();
        self.buffers.registered.push(Registered { identity, address, bytes });
        Ok(number)
    }
}

/// Pushes the one entry of a durable write. `Ok(true)`: only a part of it. The chain ends with it
/// in any case.
pub(super) fn push_durable(
    slot: &mut Slot,
    step: usize,
    means: &mut Means<'_>,
    entries: &mut Vec<Entry>,
) -> Result<bool, Detour> {
    ask_about_bytes(slot, step, means);
    let done = done_of(slot, step);
    let Step::WriteDurable { file, at, buffer } = &slot.plan.steps[step] else {
        unreachable!("a durable write")
    };
    let fixed = fixed(*file, means)?;
    check_alignment(*at).map_err(Detour::Fail)?;
    let cut = slot.cut.filter(|(cut_step, ..)| *cut_step == step);
    let bytes_max = cut.map_or(ENTRY_BYTES_MAX, |(_, bytes, _)| whole_blocks(bytes));
    if let Some((_, _, errno)) = cut.filter(|_| bytes_max == 0) {
        return Err(Detour::Fail(errors::classify(errno)));
    }
    let rest = &buffer.bytes()[usize_of(done)..];
    let wanted = u64_of(rest.len()).min(bytes_max);
    let bytes = &rest[..usize_of(wanted.min(ENTRY_BYTES_MAX))];
    entries.push(entry(fixed, (*at + ByteCount(done)).0, bytes, means.buffers.number_of(buffer)));
    let is_whole = bytes.len() == rest.len();
    slot.members.push(Member {
        step,
        wanted: Some(u64_of(bytes.len())),
        ends_step: is_whole,
        pins: Some(fixed),
        result: None,
    });
    pin(means.files, Some(fixed));
    Ok(!is_whole)
}

/// The bytes must stay where they are until the entry's completion: they belong to the slot's plan.
fn entry(file: FileSlot, at: u64, bytes: &[u8], number: Option<u16>) -> Entry {
    let length = u32::try_from(bytes.len()).expect("an entry moves at most 1 GiB");
    let (file, start) = (types::Fixed(file), bytes.as_ptr());
    match number {
        Some(number) => opcode::WriteFixed::new(file, start, length, number)
            .offset(at)
            .rw_flags(libc::RWF_DSYNC)
            .build(),
        None => {
            opcode::Write::new(file, start, length).offset(at).rw_flags(libc::RWF_DSYNC).build()
        }
    }
}

/// Asks the fault hook once, when nothing holds the write any more.
fn ask_about_bytes(slot: &mut Slot, step: usize, means: &Means<'_>) {
    let Some(faults) = means.faults.filter(|_| slot.asked_bytes <= step) else { return };
    slot.asked_bytes = step + 1;
    if let WriteFault::Short { bytes, errno } = faults.before_write() {
        slot.cut = Some((step, bytes, errno));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::BLOCK_BYTES;

    /// Words of an entry; `rw_flags` is the eighth (`struct io_uring_sqe`).
    fn words(entry: &Entry) -> [u32; 16] {
        // SAFETY: an entry of 64 bytes is plain words, owned by the caller and only copied.
        unsafe { std::mem::transmute_copy(entry) }
    }

    #[test]
    fn every_durable_write_carries_the_flag_that_makes_it_one() {
        let mut buffer = Aligned::new(2 * BLOCK_BYTES);
        buffer.set_length(2 * BLOCK_BYTES);
        let flag = u32::try_from(libc::RWF_DSYNC).expect("a small flag");
        for (number, code) in [(None, opcode::Write::CODE), (Some(3), opcode::WriteFixed::CODE)] {
            let entry = entry(7, 1 << 33, buffer.bytes(), number);
            assert_eq!(entry.get_opcode(), u32::from(code));
            let words = words(&entry);
            assert_eq!((words[1], words[3], words[6], words[7]), (7, 2, 8192, flag));
        }
    }

    #[test]
    fn a_number_counts_for_its_own_buffer_only() {
        let mut ours = Aligned::new(BLOCK_BYTES);
        ours.set_registration(Some(0));
        let registered = Registered {
            identity: ours.identity(),
            address: ours.bytes().as_ptr().addr(),
            bytes: ours.capacity(),
        };
        let buffers = Buffers { registered: vec![registered], ..Buffers::default() };
        assert_eq!(buffers.number_of(&ours), Some(0));
        let mut foreign = Aligned::new(BLOCK_BYTES);
        assert_eq!(buffers.number_of(&foreign), None);
        for number in [0, 1] {
            foreign.set_registration(Some(number));
            assert_eq!(buffers.number_of(&foreign), None, "another ring gave it {number}");
        }
    }
}
