//! Members that speak the classic protocol in a group with the consumer protocol, while its
//! clients are changed over one by one. To them a rebalance is to join again: the coordinator
//! assigns, and nobody leads.

use std::rc::Rc;

use bytes::Bytes;

use crate::coordinator::group::answer::{Joined, Synced};
use crate::coordinator::group::classic::{CONSUMER, Timer};
use crate::coordinator::group::consumer::{Member, Standing, Turn};
use crate::coordinator::group::error::GroupError;
use crate::coordinator::group::request::{Identity, Join, Sync};
use crate::format::consumer_protocol::{Subscription, encode_assignment};
use crate::format::group_records::{ClassicMember, ModernMember};
use crate::units::TopicId;

impl Turn<'_> {
    /// A member joins (`classicGroupJoinToConsumerGroup`).
    ///
    /// # Errors
    /// Why it can't; MEMBER_ID_REQUIRED with the id to come back with stands in the answer.
    pub fn join(&mut self, join: &Join) -> Result<Joined, GroupError> {
        self.check_room(&join.member)?;
        let subscription = self.subscription(join)?;
        let is_unknown = join.member.is_empty();
        if is_unknown && join.needs_id && join.instance.is_none() {
            return Ok(Joined::refused(&join.fresh_id, GroupError::MemberIdRequired));
        }
        let id: Rc<str> =
            if is_unknown { join.fresh_id.as_str().into() } else { join.member.as_str().into() };
        let said = said(join, &subscription);
        self.check_fits(&id, &said)?;
        let is_new = self.take_place(&id, join)?;
        let has_subscribed = self.subscribe(&id, said, is_new);
        self.retarget();
        let owned = self.with_ids(&subscription);
        self.reconcile(&id, has_subscribed, Some(&owned))?;
        self.cancel(Timer::Rejoin, &id);
        self.heard_of(&id);
        self.start(Timer::Resync, &id, join.rebalance_timeout_ms);
        let member = self.group.member(&id).expect("it is a member now");
        Ok(Joined {
            error: None,
            member: id.to_string(),
            generation: member.epoch,
            protocol_type: Some(CONSUMER.to_owned()),
            protocol: join.protocols.first().map(|(name, _)| name.clone()),
            leader: String::new(),
            skip_assignment: false,
            members: Vec::new(),
        })
    }

    /// Finds or makes the member's place, whether it is new.
    fn take_place(&mut self, id: &Rc<str>, join: &Join) -> Result<bool, GroupError> {
        let Some(instance) = &join.instance else { return Ok(self.group.member(id).is_none()) };
        let known = self.group.instance(instance).map(|it| it.id.clone());
        match known {
            None if join.member.is_empty() => Ok(true),
            None => Err(GroupError::UnknownMemberId),
            Some(old) if join.member.is_empty() => {
                self.replace(&old, id);
                Ok(false)
            }
            Some(known) if known != *id => Err(GroupError::FencedInstanceId),
            Some(_) => Ok(false),
        }
    }

    fn subscription(&self, join: &Join) -> Result<Subscription, GroupError> {
        let inconsistent = GroupError::InconsistentGroupProtocol;
        if join.protocol_type != CONSUMER {
            return Err(inconsistent);
        }
        let classic: Vec<&ClassicMember> =
            self.group.members().filter_map(|it| it.said.classic.as_ref()).collect();
        let for_all = |name: &str| {
            classic.iter().all(|it| it.protocols.iter().any(|(known, _)| known == name))
        };
        if !join.protocols.iter().any(|(name, _)| for_all(name)) {
            return Err(inconsistent);
        }
        let (_, metadata) = join.protocols.first().ok_or(inconsistent)?;
        Subscription::decode(metadata).map_err(|_| inconsistent)
    }

    fn with_ids(&self, subscription: &Subscription) -> Vec<(TopicId, Vec<i32>)> {
        let owned = subscription.owned.iter();
        let known = owned.filter_map(|(name, partitions)| {
            let (id, _) = self.topics.by_name(name)?;
            Some((id, partitions.clone()))
        });
        known.collect()
    }

    /// The member that a request comes from, if it speaks the classic protocol and knows its epoch.
    fn classic_member(&self, identity: &Identity) -> Result<&Member, GroupError> {
        self.leaving(&identity.member, identity.instance.as_deref())?;
        let member = self.group.member(&identity.member).filter(|it| it.is_classic());
        let member = member.ok_or(GroupError::UnknownMemberId)?;
        if member.epoch != identity.generation {
            return Err(GroupError::IllegalGeneration);
        }
        Ok(member)
    }

    /// A member wants its assignment (`classicGroupSyncToConsumerGroup`).
    ///
    /// # Errors
    /// Why it has none.
    pub fn sync(&mut self, sync: &Sync) -> Result<Synced, GroupError> {
        let member = self.classic_member(&sync.identity)?.clone();
        let classic = member.said.classic.as_ref().expect("it was checked");
        let first = classic.protocols.first();
        let is_other_type = sync.protocol_type.as_deref().is_some_and(|it| it != CONSUMER);
        let is_other = |name: &String| first.is_none_or(|(first, _)| first != name);
        if is_other_type || sync.protocol.as_ref().is_some_and(is_other) {
            return Err(GroupError::InconsistentGroupProtocol);
        }
        let is_behind = member.epoch < self.group.target_epoch().epoch;
        if is_behind && member.standing != Standing::Revoking {
            self.expect_rejoin(&member);
            return Err(GroupError::RebalanceInProgress);
        }
        self.cancel(Timer::Resync, &member.id);
        self.heard_of(&member.id);
        let version = first.and_then(|(_, metadata)| Subscription::decode(metadata).ok());
        let version = version.map_or(0, |it| it.version);
        Ok(Synced {
            protocol_type: sync.protocol_type.clone(),
            protocol: sync.protocol.clone(),
            assignment: Bytes::from(encode_assignment(version, &self.named(&member))),
        })
    }

    fn named(&self, member: &Member) -> Vec<(String, Vec<i32>)> {
        let known = member.assigned.iter().filter_map(|(topic, partitions)| {
            let (name, _) = self.topics.by_id(*topic)?;
            Some((name.to_owned(), partitions.keys().copied().collect()))
        });
        known.collect()
    }

    /// A member says that it is there; it is to join again when there is something to give up or
    /// to get (`classicGroupHeartbeatToConsumerGroup`).
    ///
    /// # Errors
    /// What it has to do, or why it isn't a member.
    pub fn classic_heartbeat(&mut self, identity: &Identity) -> Result<(), GroupError> {
        let member = self.classic_member(identity)?.clone();
        self.heard_of(&member.id);
        let is_behind = member.epoch < self.group.target_epoch().epoch;
        let may_go_on = match member.standing {
            Standing::Revoking => true,
            Standing::Waiting => !self.waits(&member),
            Standing::Stable | Standing::Unknown => false,
        };
        if is_behind || may_go_on {
            self.expect_rejoin(&member);
            return Err(GroupError::RebalanceInProgress);
        }
        Ok(())
    }

    /// Whether others still have something of what the member is to get.
    fn waits(&self, member: &Member) -> bool {
        let target = self.group.target(&member.id).into_iter().flatten();
        let mut wanted = target.flat_map(|(topic, it)| it.iter().map(|number| (*topic, *number)));
        wanted.any(|partition| self.group.is_taken(partition, &member.id))
    }

    fn expect_rejoin(&mut self, member: &Member) {
        let timer = Timer::Rejoin(self.group.id.clone(), member.id.clone());
        if !self.timers.runs(&timer) {
            self.start(Timer::Rejoin, &member.id, member.said.rebalance_timeout_ms);
        }
    }

    /// Members leave, of either protocol; each has its outcome
    /// (`classicGroupLeaveToConsumerGroup`). The ids of those that may are given back: whoever
    /// calls takes them out.
    pub fn leavers(
        &self,
        members: &[(String, Option<String>)],
    ) -> (Vec<Result<(), GroupError>>, Vec<Rc<str>>) {
        let mut ids: Vec<Rc<str>> = Vec::new();
        let mut outcomes = Vec::with_capacity(members.len());
        for (id, instance) in members {
            // An administrator removes a static member by its instance id.
            let named = instance.as_deref().and_then(|it| self.group.instance(it));
            let id = match (id.as_str(), named) {
                ("", Some(member)) => member.id.clone(),
                (id, _) => id.into(),
            };
            let outcome = self.leaving(&id, instance.as_deref());
            if outcome.is_ok() && !ids.contains(&id) {
                ids.push(id);
            }
            outcomes.push(outcome);
        }
        (outcomes, ids)
    }
}

fn said(join: &Join, subscription: &Subscription) -> ModernMember {
    let mut topics = subscription.topics.clone();
    topics.sort();
    topics.dedup();
    ModernMember {
        instance: join.instance.clone(),
        rack: subscription.rack.clone().filter(|rack| !rack.is_empty()),
        client_id: join.client.id.clone(),
        client_host: join.client.host.clone(),
        topics,
        regex: Some(String::new()),
        rebalance_timeout_ms: join.rebalance_timeout_ms,
        assignor: None,
        classic: Some(ClassicMember {
            session_timeout_ms: join.session_timeout_ms,
            protocols: join.protocols.clone(),
        }),
    }
}
