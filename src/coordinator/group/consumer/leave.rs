//! Members that leave, or are out.

use std::rc::Rc;

use crate::coordinator::group::consumer::member::EPOCH_AWAY;
use crate::coordinator::group::consumer::{Change, Member, Standing, Turn};
use crate::coordinator::group::error::GroupError;
use crate::coordinator::group::request::ConsumerHeartbeat;

impl Turn<'_> {
    /// A member leaves; a static one may come back and keeps its place until its session ends
    /// (`consumerGroupLeave`). Whether it has to be taken out.
    ///
    /// # Errors
    /// Why it isn't the member that it names.
    pub fn leave(&mut self, beat: &ConsumerHeartbeat) -> Result<bool, GroupError> {
        let id: Rc<str> = beat.member.as_str().into();
        self.leaving(&id, beat.instance.as_deref())?;
        let is_away = beat.instance.is_some() && beat.epoch == EPOCH_AWAY;
        if is_away {
            self.go_away(&id);
        }
        Ok(!is_away)
    }

    /// Whether a request comes from the member that it names.
    pub(super) fn leaving(&self, id: &str, instance: Option<&str>) -> Result<(), GroupError> {
        let member = match instance {
            None => self.group.member(id),
            Some(instance) => self.group.instance(instance),
        };
        match member {
            None => Err(GroupError::UnknownMemberId),
            Some(member) if &*member.id != id => Err(GroupError::FencedInstanceId),
            Some(_) => Ok(()),
        }
    }

    fn go_away(&mut self, id: &Rc<str>) {
        let mut member = self.group.member(id).expect("it was checked").clone();
        member.epoch = EPOCH_AWAY;
        member.revoking.clear();
        for epoch in member.assigned.values_mut().flat_map(|it| it.values_mut()) {
            *epoch = 0;
        }
        self.write(Change::Current(id.clone(), Some(member.current())));
    }

    /// Takes members out; the others get what they had (`consumerGroupFenceMembers`).
    pub fn fence(&mut self, ids: &[Rc<str>]) {
        if ids.is_empty() {
            return;
        }
        let regexes: Vec<String> =
            ids.iter().filter_map(|id| self.group.member(id)?.regex().map(str::to_owned)).collect();
        for id in ids {
            self.stop_timers_of(id);
            self.remove(id);
        }
        for regex in regexes {
            if self.group.users_of(&regex) == 0 && self.group.regexes().contains_key(&regex) {
                self.write(Change::Regex(regex, None));
            }
        }
        self.group.seen = Some(self.topics.version());
        let hash = self.hash();
        self.write(Change::Epoch(self.group.epoch().saturating_add(1), hash));
    }

    /// Takes a member out of the records.
    pub(super) fn remove(&mut self, id: &str) {
        let id: Rc<str> = id.into();
        self.write(Change::Current(id.clone(), None));
        self.write(Change::Target(id.clone(), None));
        self.write(Change::Member(id, None));
    }

    /// Whether a member has to go that has not given up what it is to give up.
    pub fn has_not_revoked(&self, id: &str) -> bool {
        self.group.member(id).map(|it: &Member| it.standing) == Some(Standing::Revoking)
    }
}
