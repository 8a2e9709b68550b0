//! ConsumerGroupHeartbeat.

use std::rc::Rc;

use crate::coordinator::group::answer::{Beat, listed};
use crate::coordinator::group::consumer::member::{EPOCH_AWAY, without_epochs};
use crate::coordinator::group::consumer::{Change, Member, Turn, is_valid};
use crate::coordinator::group::error::GroupError;
use crate::coordinator::group::request::ConsumerHeartbeat;
use crate::coordinator::group::settings::OWN_HEARTBEAT_INTERVAL;
use crate::format::group_records::{ModernMember, TEXT_BYTES_MAX};

/// Epoch of a member that leaves.
const EPOCH_LEAVE: i32 = -1;

/// Longest text of a subscription: all names together. A record must fit a batch.
const SUBSCRIPTION_BYTES_MAX: usize = 256 << 10;

/// Whether the request makes sense (`throwIfConsumerGroupHeartbeatRequestIsInvalid`).
///
/// # Errors
/// INVALID_REQUEST.
pub fn check(beat: &ConsumerHeartbeat) -> Result<(), GroupError> {
    let invalid = |why| Err(GroupError::InvalidRequest(why));
    let needs_member = beat.brings_id || beat.epoch > 0 || beat.epoch == EPOCH_LEAVE;
    let is_empty = |text: &Option<String>| text.as_deref() == Some("");
    match () {
        () if needs_member && beat.member.is_empty() => invalid("MemberId can't be empty."),
        () if beat.group.is_empty() => invalid("GroupId can't be empty."),
        () if is_empty(&beat.instance) => invalid("InstanceId can't be empty."),
        () if is_empty(&beat.rack) => invalid("RackId can't be empty."),
        () if beat.epoch < EPOCH_AWAY => invalid("MemberEpoch is invalid."),
        () if beat.epoch == EPOCH_AWAY && beat.instance.is_none() => {
            invalid("InstanceId can't be null.")
        }
        () if beat.epoch == 0 => check_first(beat),
        () => Ok(()),
    }?;
    let texts = [&beat.member, &beat.client.id, &beat.group];
    let optional = [&beat.instance, &beat.rack, &beat.regex, &beat.assignor];
    let mut all = texts.into_iter().chain(optional.into_iter().flatten());
    let names: usize = beat.topics.iter().flatten().map(String::len).sum();
    if all.any(|text| TEXT_BYTES_MAX < text.len()) || SUBSCRIPTION_BYTES_MAX < names {
        return invalid("A text is longer than it may be.");
    }
    Ok(())
}

fn check_first(beat: &ConsumerHeartbeat) -> Result<(), GroupError> {
    let invalid = |why| Err(GroupError::InvalidRequest(why));
    if beat.rebalance_timeout_ms == -1 {
        return invalid("RebalanceTimeoutMs must be provided in first request.");
    }
    if beat.owned.as_ref().is_none_or(|owned| !owned.is_empty()) {
        return invalid("TopicPartitions must be empty when (re-)joining.");
    }
    if beat.topics.is_none() && beat.regex.is_none() {
        return invalid(
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when \
             (re-)joining.",
        );
    }
    Ok(())
}

/// Whether a member leaves with this.
pub fn leaves(beat: &ConsumerHeartbeat) -> bool {
    beat.epoch == EPOCH_LEAVE || beat.epoch == EPOCH_AWAY
}

/// Who a request comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Who {
    New,
    Known,
    /// A static member that comes back under another id, or after it has left.
    Replaces(Rc<str>),
}

impl Turn<'_> {
    /// A member says that it is there, what it subscribes to and what it has; it learns what it is
    /// to have (`consumerGroupHeartbeat`).
    ///
    /// # Errors
    /// Why it isn't a member, or can't be one. Nothing has changed then.
    pub fn heartbeat(&mut self, beat: &ConsumerHeartbeat) -> Result<Beat, GroupError> {
        let id: Rc<str> = match beat.member.as_str() {
            "" => beat.fresh_id.as_str().into(),
            member => member.into(),
        };
        self.check_room(&id)?;
        let who = match &beat.instance {
            None => self.who_dynamic(&id, beat),
            Some(instance) => self.who_static(&id, instance, beat),
        }?;
        self.check_regex(beat)?;
        if let Who::Replaces(old) = &who {
            self.replace(old, &id);
        }
        let before = self.group.member(&id).map(|it| it.assigned.clone()).unwrap_or_default();
        let has_subscribed = self.subscribe(&id, self.updated(&id, beat), who == Who::New);
        self.retarget();
        self.reconcile(&id, has_subscribed, beat.owned.as_deref())?;
        self.heard_of(&id);
        let member = self.group.member(&id).expect("it is a member now");
        let has_changed = member.assigned != before;
        let assignment = (beat.epoch == 0 || is_full(beat) || has_changed)
            .then(|| listed(&without_epochs(&member.assigned)));
        let settings = &self.settings.consumer;
        let of_all = (settings.heartbeat_interval_ms, settings.heartbeat_interval_bounds);
        Ok(Beat {
            member: id.to_string(),
            epoch: member.epoch,
            interval_ms: self.own(OWN_HEARTBEAT_INTERVAL, of_all),
            assignment,
        })
    }

    pub(super) fn check_room(&self, member: &str) -> Result<(), GroupError> {
        let is_full = self.settings.consumer.members_max <= self.group.len();
        if is_full && self.group.member(member).is_none() {
            return Err(GroupError::GroupMaxSizeReached);
        }
        Ok(())
    }

    fn who_dynamic(&self, id: &str, beat: &ConsumerHeartbeat) -> Result<Who, GroupError> {
        match self.group.member(id) {
            None if beat.epoch == 0 => Ok(Who::New),
            None => Err(GroupError::UnknownMemberId),
            Some(member) => check_epoch(member, beat).map(|()| Who::Known),
        }
    }

    fn who_static(
        &self,
        id: &str,
        instance: &str,
        beat: &ConsumerHeartbeat,
    ) -> Result<Who, GroupError> {
        let known = self.group.instance(instance);
        if beat.epoch == 0 {
            return match known {
                None if self.group.member(id).is_some() => Ok(Who::Known),
                None => Ok(Who::New),
                // Of two members with one name the first stays, unless it has left.
                Some(known) if known.epoch != EPOCH_AWAY && !known.is_classic() => {
                    Err(GroupError::UnreleasedInstanceId)
                }
                Some(known) => Ok(Who::Replaces(known.id.clone())),
            };
        }
        let known = known.ok_or(GroupError::UnknownMemberId)?;
        if &*known.id != id {
            return Err(GroupError::FencedInstanceId);
        }
        check_epoch(known, beat).map(|()| Who::Known)
    }

    fn check_regex(&self, beat: &ConsumerHeartbeat) -> Result<(), GroupError> {
        let Some(regex) = beat.regex.as_deref().filter(|it| !it.is_empty()) else { return Ok(()) };
        let is_known = self.group.regexes().contains_key(regex);
        if is_known || is_valid(regex) { Ok(()) } else { Err(GroupError::InvalidRegularExpression) }
    }

    /// Gives the place of a static member, with what it has, to another id.
    pub(super) fn replace(&mut self, old: &str, new: &Rc<str>) {
        let member = self.group.member(old).expect("it was looked up").clone();
        let target = self.group.target(old).cloned().unwrap_or_default();
        self.stop_timers_of(old);
        self.remove(old);
        let member = Member { id: new.clone(), epoch: 0, previous_epoch: 0, ..member };
        self.write(Change::Member(new.clone(), Some(member.said.clone())));
        self.write(Change::Target(new.clone(), Some(target)));
        self.write(Change::Current(new.clone(), Some(member.current())));
    }

    /// What the member says about itself from now on: what a request leaves out stays.
    fn updated(&self, id: &str, beat: &ConsumerHeartbeat) -> ModernMember {
        let known = self.group.member(id).map(|it| it.said.clone());
        let before = known.unwrap_or_else(nothing);
        let topics = beat.topics.clone().map(|mut topics| {
            topics.sort();
            topics.dedup();
            topics
        });
        ModernMember {
            instance: beat.instance.clone().or(before.instance),
            rack: beat.rack.clone().or(before.rack),
            client_id: beat.client.id.clone(),
            client_host: beat.client.host.clone(),
            topics: topics.unwrap_or(before.topics),
            regex: beat.regex.clone().or(before.regex),
            rebalance_timeout_ms: match beat.rebalance_timeout_ms {
                -1 => before.rebalance_timeout_ms,
                timeout => timeout,
            },
            assignor: beat.assignor.clone().or(before.assignor),
            classic: None,
        }
    }

    /// Keeps what a member says about itself, and what follows for the group's epoch. Whether its
    /// subscription has changed.
    pub(super) fn subscribe(&mut self, id: &Rc<str>, said: ModernMember, is_new: bool) -> bool {
        let before = self.group.member(id).map_or_else(nothing, |it| it.said.clone());
        let names_differ = before.topics != said.topics;
        if is_new || before != said {
            self.write(Change::Member(id.clone(), Some(said.clone())));
        }
        let regex = |said: &ModernMember| said.regex.clone().filter(|it| !it.is_empty());
        let (old, new) = (regex(&before), regex(&said));
        let regex_differs = old != new;
        let topics_differ = self.follow_regexes(old.as_deref(), new.as_deref());
        self.follow_topics(is_new || names_differ || topics_differ);
        names_differ || regex_differs
    }
}

/// A full request: so members ask for their assignment again.
fn is_full(beat: &ConsumerHeartbeat) -> bool {
    let subscribes = beat.topics.is_some() || beat.regex.is_some();
    beat.rebalance_timeout_ms != -1 && subscribes && beat.owned.is_some()
}

/// What a member is before it has said anything.
fn nothing() -> ModernMember {
    ModernMember {
        instance: None,
        rack: None,
        client_id: String::new(),
        client_host: String::new(),
        topics: Vec::new(),
        regex: Some(String::new()),
        rebalance_timeout_ms: -1,
        assignor: None,
        classic: None,
    }
}

/// The epoch must be the member's, or the one before if the answer with the newer one may have
/// been lost: the member has nothing then that it wasn't given.
fn check_epoch(member: &Member, beat: &ConsumerHeartbeat) -> Result<(), GroupError> {
    if beat.epoch == 0 || beat.epoch == member.epoch {
        return Ok(());
    }
    let owned = beat.owned.as_deref();
    let is_given = owned.is_some_and(|owned| {
        owned.iter().all(|(topic, partitions)| {
            let assigned = member.assigned.get(topic);
            partitions.iter().all(|it| assigned.is_some_and(|held| held.contains_key(it)))
        })
    });
    if beat.epoch < member.epoch && beat.epoch == member.previous_epoch && is_given {
        return Ok(());
    }
    Err(GroupError::FencedMemberEpoch)
}
