//! Bringing a member to its target (`CurrentAssignmentBuilder`).

use std::collections::{BTreeMap, BTreeSet};

use crate::coordinator::group::classic::Timer;
use crate::coordinator::group::consumer::{Change, Held, Member, Partitions, Standing, Turn};
use crate::coordinator::group::error::GroupError;
use crate::units::TopicId;

/// What a member says that it has; `None` when it doesn't say.
pub type Owned<'a> = Option<&'a [(TopicId, Vec<i32>)]>;

impl Turn<'_> {
    /// Brings a member as far towards its target as others and what it still has allow.
    ///
    /// # Errors
    /// FENCED_MEMBER_EPOCH when a later Kafka has left it in a state that isn't known here.
    pub(super) fn reconcile(
        &mut self,
        id: &str,
        has_subscribed: bool,
        owned: Owned<'_>,
    ) -> Result<(), GroupError> {
        let member = self.group.member(id).expect("it was looked up or made").clone();
        let target_epoch = self.group.target_epoch().epoch;
        let next = match member.standing {
            Standing::Stable if member.epoch != target_epoch => {
                self.towards_target(member.clone(), owned)
            }
            Standing::Stable if has_subscribed => self.keep_subscribed(member.clone(), owned),
            Standing::Stable => member.clone(),
            Standing::Revoking if owns(owned, &member.revoking) => match has_subscribed {
                true => self.keep_subscribed(member.clone(), owned),
                false => member.clone(),
            },
            Standing::Revoking | Standing::Waiting => self.towards_target(member.clone(), owned),
            Standing::Unknown if owned.is_none_or(|it| !it.is_empty()) => {
                return Err(GroupError::FencedMemberEpoch);
            }
            Standing::Unknown => {
                self.towards_target(Member { epoch: target_epoch, ..member.clone() }, owned)
            }
        };
        if next != member {
            self.write(Change::Current(next.id.clone(), Some(next.current())));
            self.watch_revoking(id);
        }
        Ok(())
    }

    /// Whoever is to give something up has its rebalance timeout to do so; members with the classic
    /// protocol have other timers.
    pub(super) fn watch_revoking(&mut self, id: &str) {
        let Some(member) = self.group.member(id) else { return };
        if member.standing == Standing::Revoking && !member.is_classic() {
            let timeout = member.said.rebalance_timeout_ms;
            self.start(Timer::Revoke, id, timeout);
        } else {
            self.cancel(Timer::Revoke, id);
        }
    }

    /// Takes away what the member doesn't subscribe to any more.
    fn keep_subscribed(&self, member: Member, owned: Owned<'_>) -> Member {
        let topics = self.group.topics_of(&member, self.topics);
        let mut next = member;
        let gone: Vec<TopicId> =
            next.assigned.keys().filter(|it| !topics.contains(it)).copied().collect();
        if gone.is_empty() {
            return next;
        }
        let mut revoking = next.revoking.clone();
        for topic in gone {
            let partitions = next.assigned.remove(&topic).expect("it was there");
            revoking.entry(topic).or_default().extend(partitions);
        }
        next.previous_epoch = next.epoch;
        if owns(owned, &revoking) {
            next.standing = Standing::Revoking;
            next.revoking = revoking;
        }
        next
    }

    fn towards_target(&self, member: Member, owned: Owned<'_>) -> Member {
        let target = self.subscribed_target(&member);
        let (kept, revoking) = split(&member.assigned, &target);
        if owns(owned, &revoking) {
            return Member {
                previous_epoch: member.epoch,
                standing: Standing::Revoking,
                assigned: kept,
                revoking,
                ..member
            };
        }
        let epoch = self.group.target_epoch().epoch;
        let mut assigned = kept;
        let mut waits = false;
        for (topic, partitions) in target {
            for partition in partitions {
                if assigned.get(&topic).is_some_and(|it| it.contains_key(&partition)) {
                    continue;
                }
                if self.group.is_taken((topic, partition), &member.id) {
                    waits = true;
                } else {
                    assigned.entry(topic).or_default().insert(partition, epoch);
                }
            }
        }
        Member {
            previous_epoch: member.epoch,
            epoch,
            standing: if waits { Standing::Waiting } else { Standing::Stable },
            assigned,
            revoking: Held::new(),
            ..member
        }
    }

    /// A topic that the member doesn't subscribe to any more is no part of its target.
    fn subscribed_target(&self, member: &Member) -> Partitions {
        let topics = self.group.topics_of(member, self.topics);
        let target = self.group.target(&member.id).cloned().unwrap_or_default();
        target.into_iter().filter(|(topic, _)| topics.contains(topic)).collect()
    }
}

/// What the target leaves to a member, and what it takes away.
fn split(assigned: &Held, target: &Partitions) -> (Held, Held) {
    let (mut kept, mut revoking) = (Held::new(), Held::new());
    let nothing = BTreeSet::new();
    for (topic, partitions) in assigned {
        let target = target.get(topic).unwrap_or(&nothing);
        for (partition, epoch) in partitions {
            let side = if target.contains(partition) { &mut kept } else { &mut revoking };
            side.entry(*topic).or_insert_with(BTreeMap::new).insert(*partition, *epoch);
        }
    }
    (kept, revoking)
}

/// Whether a member still has some of the partitions; it is taken to when it doesn't say.
fn owns(owned: Owned<'_>, partitions: &Held) -> bool {
    if partitions.is_empty() {
        return false;
    }
    let Some(owned) = owned else { return true };
    owned.iter().any(|(topic, numbers)| {
        let held = partitions.get(topic);
        held.is_some_and(|held| numbers.iter().any(|it| held.contains_key(it)))
    })
}
