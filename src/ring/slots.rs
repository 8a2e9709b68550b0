//! What the kernel may still touch: a plan under way, with every buffer its entries point at.

use std::ffi::CString;

use smallvec::SmallVec;

use crate::disk::{DiskError, Plan, Step};
use crate::ring::files::FileSlot;
use crate::units::u64_of;

/// A plan under way. It owns the buffers, paths and vectors that the entries of its present chain
/// point at, until the last completion of that chain.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) plan: Plan,
    /// All before this is whole.
    pub(crate) progress: Progress,
    /// The present chain; empty between two chains.
    pub(crate) members: SmallVec<[Member; 8]>,
    /// Members whose completion is still to come.
    pub(crate) pending: usize,
    pub(crate) paths: Vec<CString>,
    pub(crate) vectors: Vec<libc::iovec>,
    /// Times that the plan was tried again after a passing failure.
    pub(crate) retries: u32,
    /// The fault hook was asked about the steps before this one.
    pub(crate) asked: usize,
    /// The fault hook was asked about the bytes of durable writes before this step.
    pub(crate) asked_bytes: usize,
    /// What happens instead of a step, once that step's turn has come.
    pub(crate) detour: Option<(usize, Detour)>,
    /// The write that the fault hook cuts short, the bytes that it still writes, and the errno that
    /// it then fails with.
    pub(crate) cut: Option<(usize, u64, i32)>,
}

/// How far a plan has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Progress {
    /// The step to go on with.
    pub(crate) step: usize,
    /// Bytes of it that are done already.
    pub(crate) done: u64,
}

/// One entry of a chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Member {
    /// The step that it carries out, or a part of it.
    pub(crate) step: usize,
    /// Bytes that it should move, for writes and reads.
    pub(crate) wanted: Option<u64>,
    /// Whether the step is whole once this member is.
    pub(crate) ends_step: bool,
    /// The table slot that it pins.
    pub(crate) pins: Option<FileSlot>,
    /// What the kernel said; `None` until it has.
    pub(crate) result: Option<i32>,
}

/// What happens instead of a step's entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Detour {
    /// The step fails without being submitted.
    Fail(DiskError),
    /// It waits for the fault hook.
    Hold,
    /// It waits that long.
    Delay(std::time::Duration),
    /// It is carried out by a system call.
    Syscall,
}

impl Slot {
    fn new(plan: Plan, vectors: Vec<libc::iovec>) -> Slot {
        Slot {
            plan,
            progress: Progress::default(),
            members: SmallVec::new(),
            pending: 0,
            paths: Vec::new(),
            vectors,
            retries: 0,
            asked: 0,
            asked_bytes: 0,
            detour: None,
            cut: None,
        }
    }

    /// Whether the last entry of the present chain is a durable write.
    pub(crate) fn ends_durably(&self) -> bool {
        let step = self.members.last().map(|member| &self.plan.steps[member.step]);
        matches!(step, Some(Step::WriteDurable { .. }))
    }
}

/// All slots; never more than set at the start.
#[derive(Debug)]
pub(crate) struct Slots {
    slots: Vec<Option<Slot>>,
    free: Vec<usize>,
    /// Vectors of plans that are over, kept to be filled again.
    vectors: Vec<Vec<libc::iovec>>,
}

impl Slots {
    pub(crate) fn new(slots_max: usize) -> Slots {
        Slots {
            slots: std::iter::repeat_with(|| None).take(slots_max).collect(),
            free: (0..slots_max).rev().collect(),
            vectors: Vec::new(),
        }
    }

    /// Whether [`Slots::insert`] finds room.
    pub(crate) fn has_free(&self) -> bool {
        !self.free.is_empty()
    }

    /// Takes a plan in.
    pub(crate) fn insert(&mut self, plan: Plan) -> usize {
        let index = self.free.pop().expect("a free slot was seen");
        let vectors = self.vectors.pop().unwrap_or_default();
        self.slots[index] = Some(Slot::new(plan, vectors));
        index
    }

    pub(crate) fn get(&mut self, index: usize) -> &mut Slot {
        self.slots[index].as_mut().expect("only slots in use are named")
    }

    /// Takes a plan out, with nothing of it left in the kernel.
    pub(crate) fn remove(&mut self, index: usize) -> Slot {
        let mut slot = self.slots[index].take().expect("only slots in use are named");
        assert_eq!(slot.pending, 0, "the kernel still holds the buffers of this slot");
        self.vectors.push(std::mem::take(&mut slot.vectors));
        self.free.push(index);
        slot
    }

    pub(crate) fn in_use(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

/// What an entry is for, as its `user_data` carries it: kind, slot or transfer, member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ticket {
    /// A member of a slot's chain.
    Chain { slot: usize, member: usize },
    /// The clock of held and delayed plans.
    Clock,
    /// A hop of a transfer from the file into its pipe.
    Fill { transfer: usize },
    /// A hop of a transfer from its pipe into the socket.
    Drain { transfer: usize },
    /// A transfer waits for its socket.
    Writable { transfer: usize },
    /// Its wait was given up.
    Cancel,
    /// Only makes the ring's descriptor readable.
    Wake,
}

const KIND_SHIFT: u32 = 56;
const INDEX_SHIFT: u32 = 24;
const MEMBER_MASK: u64 = (1 << INDEX_SHIFT) - 1;
const INDEX_MASK: u64 = (1 << (KIND_SHIFT - INDEX_SHIFT)) - 1;

impl Ticket {
    pub(crate) fn encode(self) -> u64 {
        let (kind, index, member) = match self {
            Ticket::Chain { slot, member } => (1_u64, slot, member),
            Ticket::Clock => (2, 0, 0),
            Ticket::Fill { transfer } => (3, transfer, 0),
            Ticket::Drain { transfer } => (4, transfer, 0),
            Ticket::Writable { transfer } => (5, transfer, 0),
            Ticket::Cancel => (6, 0, 0),
            Ticket::Wake => (7, 0, 0),
        };
        assert!(u64_of(index) <= INDEX_MASK);
        assert!(u64_of(member) <= MEMBER_MASK);
        kind << KIND_SHIFT | u64_of(index) << INDEX_SHIFT | u64_of(member)
    }

    /// # Panics
    /// On a number that [`Ticket::encode`] doesn't make.
    pub(crate) fn decode(user_data: u64) -> Ticket {
        let index = crate::units::usize_of(user_data >> INDEX_SHIFT & INDEX_MASK);
        match user_data >> KIND_SHIFT {
            1 => Ticket::Chain {
                slot: index,
                member: crate::units::usize_of(user_data & MEMBER_MASK),
            },
            2 => Ticket::Clock,
            3 => Ticket::Fill { transfer: index },
            4 => Ticket::Drain { transfer: index },
            5 => Ticket::Writable { transfer: index },
            6 => Ticket::Cancel,
            7 => Ticket::Wake,
            kind => panic!("the kernel returned a ticket of unknown kind {kind}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tickets_come_back_as_they_went() {
        for ticket in [
            Ticket::Chain { slot: 1023, member: 77 },
            Ticket::Clock,
            Ticket::Fill { transfer: 5 },
            Ticket::Drain { transfer: usize::try_from(INDEX_MASK).expect("32 bits") },
            Ticket::Writable { transfer: 0 },
            Ticket::Cancel,
            Ticket::Wake,
        ] {
            assert_eq!(Ticket::decode(ticket.encode()), ticket);
        }
    }
}
