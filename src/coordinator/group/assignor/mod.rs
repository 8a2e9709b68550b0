//! Who is to have what: the assignors of the consumer protocol. Each takes what the members
//! subscribe to and what they had, and gives every partition of every topic with a subscriber to
//! one of them.

mod mixed;
mod range;
mod uniform;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use crate::coordinator::group::consumer::Partitions;
use crate::units::TopicId;

/// An assignor of Kafka's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Assignor {
    /// As many partitions for everybody, and as few moves as that allows.
    Uniform,
    /// Of each topic a range, so that partitions of the same number come together.
    Range,
}

impl Assignor {
    /// Kafka's name.
    pub fn name(self) -> &'static str {
        match self {
            Assignor::Uniform => "uniform",
            Assignor::Range => "range",
        }
    }

    /// The one with that name.
    pub fn named(name: &str) -> Option<Assignor> {
        [Assignor::Uniform, Assignor::Range].into_iter().find(|it| it.name() == name)
    }
}

/// A member, as assignors see it.
#[derive(Clone, Debug)]
pub struct Subscriber<'a> {
    pub id: &'a str,
    pub instance: Option<&'a str>,
    pub topics: BTreeSet<TopicId>,
    /// What it was to have until now.
    pub has: Option<&'a Partitions>,
}

/// The members of a group, sorted by id.
#[derive(Clone, Debug)]
pub struct Subscribers<'a> {
    pub members: Vec<Subscriber<'a>>,
    /// How many partitions each topic has that somebody subscribes to.
    pub partitions: BTreeMap<TopicId, u32>,
    /// Whether all subscribe to the same.
    pub are_same: bool,
}

/// What each member is to have, in their order.
pub fn assign(assignor: Assignor, subscribers: &Subscribers<'_>) -> Vec<Partitions> {
    match assignor {
        Assignor::Range => range::assign(subscribers),
        Assignor::Uniform if subscribers.are_same => uniform::assign(subscribers),
        Assignor::Uniform => mixed::assign(subscribers),
    }
}

/// The numbers of a topic's partitions.
fn numbers(count: u32) -> impl Iterator<Item = i32> {
    (0..count).map(|number| i32::try_from(number).expect("partition numbers fit 31 bits"))
}
