//! From the completions of a chain to what follows: on with the plan, or its outcome.

use rustix::io::Errno;

use crate::disk::aligned::whole_blocks;
use crate::disk::errors;
use crate::disk::{DiskError, Step, StepFailure};
use crate::ring::slots::{Member, Slot};

/// What follows from the completions of a whole chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// The plan goes on from the slot's progress.
    Again,
    /// It is over.
    Over(Result<(), StepFailure>),
}

/// Judges a chain whose completions are all in. Moves the slot's progress.
pub(crate) fn judge(slot: &mut Slot) -> Verdict {
    for index in 0..slot.members.len() {
        let member = slot.members[index];
        let result = member.result.expect("all completions are in");
        let step = &slot.plan.steps[member.step];
        match u32::try_from(result) {
            Err(_) if errors::is_fine(step, -result) => advance(slot),
            Err(_) => {
                assert_rest_is_canceled(slot, index);
                return failed(slot, cause(slot, index));
            }
            Ok(_) if member.wanted.is_none_or(|wanted| wanted == 0) => {
                if member.ends_step {
                    advance(slot);
                }
            }
            Ok(0) => {
                assert_rest_is_canceled(slot, index);
                return ended(slot);
            }
            Ok(bytes) => {
                let moved = moved(step, u64::from(bytes));
                slot.progress.done += moved;
                if let Some((_, _, errno)) = slot.cut.filter(|(step, ..)| *step == member.step) {
                    return failed(slot, errno);
                }
                if !member.ends_step || Some(moved) != member.wanted {
                    assert_rest_is_canceled(slot, index);
                    return again(slot, &member, moved);
                }
                advance(slot);
            }
        }
    }
    if slot.progress.step < slot.plan.steps.len() { Verdict::Again } else { Verdict::Over(Ok(())) }
}

/// How much of a step `bytes` carry out: of a durable write, whole blocks only, since direct I/O
/// can't go on inside one.
fn moved(step: &Step, bytes: u64) -> u64 {
    match step {
        Step::WriteDurable { .. } => whole_blocks(bytes),
        _ => bytes,
    }
}

/// A step of which a part is done goes on; one that gets no block through again and again fails.
fn again(slot: &mut Slot, member: &Member, moved: u64) -> Verdict {
    if moved == 0 {
        slot.retries += 1;
    }
    if slot.retries <= errors::TRANSIENT_RETRIES_MAX {
        return Verdict::Again;
    }
    let step = &slot.plan.steps[member.step];
    let done = slot.progress.done;
    Verdict::Over(Err(errors::failure(member.step, step, done, errors::input_output())))
}

/// The promise of a plan, checked: nothing behind a failure ran. Other members of the same step are
/// the closing of a directory whose sync failed.
fn assert_rest_is_canceled(slot: &Slot, index: usize) {
    let canceled = Some(-Errno::CANCELED.raw_os_error());
    let failed = slot.members[index];
    for member in slot.members[index + 1..].iter().filter(|it| it.step != failed.step) {
        let is_culprit = member.result != canceled && failed.result == canceled;
        assert!(member.result == canceled || is_culprit, "{member:?} ran behind {failed:?}");
    }
}

fn advance(slot: &mut Slot) {
    slot.progress.step += 1;
    slot.progress.done = 0;
}

/// A write or read that moved nothing: the end of the file, or a device that takes no more.
fn ended(slot: &Slot) -> Verdict {
    let step = &slot.plan.steps[slot.progress.step];
    let error = match step {
        Step::Read { .. } => DiskError::UnexpectedEnd,
        _ => errors::input_output(),
    };
    Verdict::Over(Err(errors::failure(slot.progress.step, step, slot.progress.done, error)))
}

/// The errno behind a failed member. An entry that the kernel finds fault with before the chain
/// begins cancels all of it, those in front included; then the culprit is further back.
fn cause(slot: &Slot, index: usize) -> i32 {
    let canceled = -Errno::CANCELED.raw_os_error();
    let results = slot.members[index..].iter().filter_map(|member| member.result);
    let mut failures = results.filter(|result| *result < 0);
    failures.find(|result| *result != canceled).map_or(-canceled, |result| -result)
}

fn failed(slot: &mut Slot, errno: i32) -> Verdict {
    let (index, done) = (slot.progress.step, slot.progress.done);
    let step = &slot.plan.steps[index];
    let error = errors::classify(errno);
    if errors::is_retried(step, done, error, slot.retries) {
        slot.retries += 1;
        return Verdict::Again;
    }
    Verdict::Over(Err(errors::failure(index, step, done, error)))
}
