//! The consumer protocol (KIP-848): the coordinator assigns (`ConsumerGroup` and what
//! `GroupMetadataManager` does with it).
//!
//! ```text
//!   group epoch      grows when members come, go, subscribe to something else, or topics change
//!       |
//!   target epoch     the group epoch that the target assignment was computed for
//!       |
//!   member epoch     the target epoch that the member has come to
//!
//!   Stable ----- the target takes something away ----> Revoking --- given up --+
//!     ^  ^                                                                     |
//!     |  +------------- everything that is to come is free -------------------+
//!     |                                                                        |
//!     +---- others have given up ----- Waiting <------- others still have it --+
//! ```
//!
//! A partition that the target gives to another member is given to it when its owner has given it
//! up, so that nobody else has it meanwhile. Whoever doesn't give up within its rebalance timeout,
//! or is silent for the session timeout, is out.
//!
//! Everything that a group knows stands in records: a change is a [`Change`], written and applied,
//! and reading the log applies the same changes.

mod change;
mod classic;
mod group;
mod hash;
mod heartbeat;
mod leave;
mod member;
mod reconcile;
mod regex;
mod target;
mod turn;

pub(super) use change::{Change, partitions};
pub(super) use group::ConsumerGroup;
pub(super) use heartbeat::{check as check_heartbeat, leaves};
pub(super) use member::{Held, Member, Standing};
pub(super) use regex::is_valid;
pub(super) use turn::Turn;

/// Partitions by topic; no topic is there without one.
pub(super) type Partitions =
    std::collections::BTreeMap<crate::units::TopicId, std::collections::BTreeSet<i32>>;
