//! From one protocol to the other while members are there (`group.consumer.migration.policy`): a
//! classic group becomes one with the consumer protocol when a member with that joins, and classic
//! again when the last one leaves.

use std::collections::BTreeSet;
use std::rc::Rc;

use bytes::Bytes;

use crate::coordinator::group::classic::{self, ClassicGroup};
use crate::coordinator::group::consumer::{Change, ConsumerGroup, Member, Standing};
use crate::coordinator::group::error::GroupError;
use crate::coordinator::group::machine::{GroupCoordinator, GroupOutput};
use crate::coordinator::group::topics::Topics;
use crate::format::consumer_protocol::{Assignment, Subscription, encode_assignment};
use crate::format::group_records::{ClassicMember, MemberMetadata, ModernMember};
use crate::units::Timestamp;

impl GroupCoordinator {
    /// Makes a classic group one with the consumer protocol: members keep what they have, and who
    /// waits is to join again (`convertToConsumerGroup`).
    ///
    /// # Errors
    /// GROUP_ID_NOT_FOUND when it can't be, UNKNOWN_SERVER_ERROR when what a member says doesn't
    /// fit a record; nothing has changed then.
    pub(super) fn upgrade(
        &mut self,
        id: &Rc<str>,
        now: Timestamp,
        out: &mut GroupOutput,
    ) -> Result<(), GroupError> {
        let settings = &self.settings.consumer;
        let classic = self.groups.get(id).expect("it was looked up");
        let fits = classic.len() <= settings.members_max;
        if !settings.can_upgrade || !classic.is_consumer() || !fits {
            return Err(GroupError::GroupIdNotFound);
        }
        let generation = classic.generation;
        let members: Option<Vec<Member>> =
            classic.members().map(|it| modern(it, classic, &*self.topics)).collect();
        let mut members = members.ok_or(GroupError::GroupIdNotFound)?;
        let record = |it: &Member| Change::Member(it.id.clone(), Some(it.said.clone())).record(id);
        if !members.iter().all(|member| self.settings.fits(&record(member))) {
            return Err(GroupError::UnknownServerError);
        }
        keep_one_owner(&mut members);
        self.turn(id, now, out, |turn| turn.send_away());
        let tombstone = self.remove_group(id);
        out.write(vec![tombstone]);
        self.consumers.insert(id.clone(), ConsumerGroup::new(id.clone()));
        self.consumer_turn(id, now, out, |turn| turn.begin(generation, members));
        Ok(())
    }

    /// Whether a group without these members may be a classic one.
    pub(super) fn may_become_classic(&self, group: &str, leaving: &[Rc<str>]) -> bool {
        let Some(group) = self.consumers.get(group) else { return false };
        let mut rest = group.members().filter(|it| !leaving.contains(&it.id)).peekable();
        let is_somebody = rest.peek().is_some();
        let count = group.len() - leaving.len();
        self.settings.consumer.can_downgrade
            && is_somebody
            && count <= self.settings.members_max
            && rest.all(Member::is_classic)
            && self.settings.fits(&self.as_classic(group, leaving, Timestamp::NONE).as_record())
    }

    /// The group without the members that leave.
    fn as_classic(
        &self,
        group: &ConsumerGroup,
        leaving: &[Rc<str>],
        now: Timestamp,
    ) -> ClassicGroup {
        let stays = group.members().filter(|it| !leaving.contains(&it.id));
        let members = stays.map(|member| classic_member(member, group, &*self.topics)).collect();
        ClassicGroup::converted(group.id.clone(), group.epoch(), members, now)
    }

    /// Makes a group a classic one without the members that leave. The others keep their targets;
    /// they are to join again, unless everybody is where the target wants it
    /// (`convertToClassicGroup`).
    pub(super) fn downgrade(
        &mut self,
        name: &str,
        leaving: &[Rc<str>],
        (now, out): (Timestamp, &mut GroupOutput),
    ) {
        self.consumer_turn(name, now, out, |turn| turn.stop_timers());
        let group = self.consumers.remove(name).expect("it was looked up");
        self.write_all(out, group.tombstones());
        let joins_again = !leaving.is_empty() || group.state() != "Stable";
        let id = group.id.clone();
        let classic = self.as_classic(&group, leaving, now);
        self.groups.insert(id.clone(), classic);
        self.turn(&id, now, out, |turn| turn.converted(joins_again));
    }
}

/// Assignors of clients may give a partition to many; here the first one keeps it.
fn keep_one_owner(members: &mut [Member]) {
    let mut taken = BTreeSet::new();
    for member in members {
        for (topic, partitions) in &mut member.assigned {
            partitions.retain(|partition, _| taken.insert((*topic, *partition)));
        }
        member.assigned.retain(|_, partitions| !partitions.is_empty());
    }
}

/// A classic member as one of the other protocol; `None` when what it says can't be read, or an
/// assignor of its own has to know more than the partitions.
fn modern(member: &classic::Member, group: &ClassicGroup, topics: &dyn Topics) -> Option<Member> {
    let assignment = Assignment::decode(&member.assignment).ok()?;
    if assignment.has_user_data {
        return None;
    }
    let first = member.protocols.first().map(|(name, _)| name.clone());
    let protocol = group.protocol.clone().or(first)?;
    let subscription = Subscription::decode(&member.metadata(&protocol)).ok()?;
    let mut names = subscription.topics;
    names.sort();
    names.dedup();
    let mut modern = Member::new(
        member.id.clone(),
        ModernMember {
            instance: member.instance.clone(),
            rack: subscription.rack.filter(|rack| !rack.is_empty()),
            client_id: member.client_id.clone(),
            client_host: member.client_host.clone(),
            topics: names,
            regex: Some(String::new()),
            rebalance_timeout_ms: member.rebalance_timeout_ms,
            assignor: None,
            classic: Some(ClassicMember {
                session_timeout_ms: member.session_timeout_ms,
                protocols: member.protocols.clone(),
            }),
        },
    );
    (modern.epoch, modern.previous_epoch) = (group.generation, group.generation);
    modern.standing = Standing::Stable;
    for (name, numbers) in assignment.partitions {
        let Some((topic, _)) = topics.by_name(&name) else { continue };
        let numbers = numbers.into_iter().map(|number| (number, group.generation));
        modern.assigned.entry(topic).or_default().extend(numbers);
    }
    Some(modern)
}

fn classic_member(member: &Member, group: &ConsumerGroup, topics: &dyn Topics) -> classic::Member {
    let said = member.said.classic.clone().expect("all speak the classic protocol");
    let version = said.protocols.first().and_then(|(_, it)| Subscription::decode(it).ok());
    let version = version.map_or(0, |it| it.version);
    let target = group.target(&member.id).into_iter().flatten();
    let named: Vec<(String, Vec<i32>)> = target
        .filter_map(|(topic, numbers)| {
            let (name, _) = topics.by_id(*topic)?;
            Some((name.to_owned(), numbers.iter().copied().collect()))
        })
        .collect();
    let metadata = MemberMetadata {
        id: member.id.to_string(),
        instance: member.said.instance.clone(),
        client_id: member.said.client_id.clone(),
        client_host: member.said.client_host.clone(),
        rebalance_timeout_ms: member.said.rebalance_timeout_ms,
        session_timeout_ms: said.session_timeout_ms,
        subscription: Bytes::new(),
        assignment: Bytes::from(encode_assignment(version, &named)),
    };
    classic::Member::new(member.id.clone(), metadata, said.protocols)
}
