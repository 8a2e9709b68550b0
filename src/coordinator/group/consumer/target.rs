//! The target assignment (`TargetAssignmentBuilder`).

use crate::coordinator::group::assignor::{self, Subscriber, Subscribers};
use crate::coordinator::group::consumer::{Change, Turn};
use crate::coordinator::group::settings::OWN_ASSIGNMENT_INTERVAL;
use crate::format::group_records::TargetEpoch;

impl Turn<'_> {
    /// The group's epoch grows when `must` says so, or when the topics that it looks at are not
    /// those that its last epoch was for.
    pub(super) fn follow_topics(&mut self, must: bool) {
        let version = self.topics.version();
        if !must && self.group.seen == Some(version) {
            return;
        }
        self.group.seen = Some(version);
        let hash = self.hash();
        if must || hash != self.group.hash() {
            self.write(Change::Epoch(self.group.epoch().saturating_add(1), hash));
        }
    }

    pub(super) fn hash(&self) -> i64 {
        super::hash::of_topics(self.group.names(), self.topics)
    }

    /// Computes the target of the group's epoch, unless the last one is that, or is too young.
    pub(super) fn retarget(&mut self) {
        let last = self.group.target_epoch();
        if last.epoch >= self.group.epoch() || self.is_too_young(last) {
            return;
        }
        let epoch = self.group.epoch();
        let targets = {
            let subscribers = self.subscribers();
            let assignors = &self.settings.consumer.assignors;
            let preferred = self.group.preferred_assignor();
            let known = preferred.and_then(|name| assignors.iter().find(|it| it.name() == name));
            assignor::assign(*known.unwrap_or(&assignors[0]), &subscribers)
        };
        for (id, target) in self.group.member_ids().into_iter().zip(targets) {
            if self.group.target(&id) != Some(&target) {
                self.write(Change::Target(id, Some(target)));
            }
        }
        self.write(Change::TargetEpoch(TargetEpoch { epoch, timestamp: self.now }));
    }

    fn is_too_young(&self, last: TargetEpoch) -> bool {
        let settings = &self.settings.consumer;
        let of_all = (settings.assignment_interval_ms, settings.assignment_interval_bounds);
        let interval_ms = i64::from(self.own(OWN_ASSIGNMENT_INTERVAL, of_all));
        let since = last.timestamp.0;
        since != 0 && interval_ms != 0 && self.now.0 < since.saturating_add(interval_ms)
    }

    fn subscribers(&self) -> Subscribers<'_> {
        let mut counts = std::collections::BTreeMap::new();
        let mut subscribers = Vec::with_capacity(self.group.len());
        for member in self.group.members() {
            let topics = self.group.topics_of(member, self.topics);
            for topic in &topics {
                let (_, count) = self.topics.by_id(*topic).expect("it was found by its name");
                counts.insert(*topic, count);
            }
            subscribers.push(Subscriber {
                id: &member.id,
                instance: member.said.instance.as_deref(),
                topics,
                has: self.group.target(&member.id),
            });
        }
        let same = |a: &super::Member, b: &super::Member| {
            a.regex() == b.regex() && a.said.topics == b.said.topics
        };
        let mut members = self.group.members();
        let first = members.next();
        let is_mixed = |it: &super::Member| it.regex().is_some() && !it.said.topics.is_empty();
        let are_same =
            first.is_none_or(|first| !is_mixed(first) && members.all(|it| same(first, it)));
        Subscribers { members: subscribers, partitions: counts, are_same }
    }
}
