//! The classic protocol (`ClassicGroup` and what `GroupMetadataManager` does with it).
//!
//! ```text
//!            first member            delay over / all have joined          leader's assignments
//!   Empty ----------------> Preparing ----------------------> Completing ----------------> Stable
//!     ^                       |   ^                               |                          |
//!     +--- nobody has joined -+   +------- a member joins, leaves or is gone ----------------+
//! ```
//!
//! A join is answered when all members have joined, or the rebalance timeout of the slowest is
//! over: who is missing by then is out. Static members may be missing: they keep their place until
//! their session ends.

mod group;
mod join;
mod leave;
mod rebalance;
mod sync;
mod turn;

pub(super) use group::{CONSUMER, ClassicGroup, Member, State};
pub(super) use turn::{Timer, Turn, group_record};
