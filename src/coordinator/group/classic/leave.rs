//! LeaveGroup.

use crate::coordinator::group::classic::group::State;
use crate::coordinator::group::classic::turn::Turn;
use crate::coordinator::group::error::GroupError;

impl Turn<'_> {
    /// Members leave (`classicGroupLeaveToClassicGroup`); each has its outcome.
    pub fn leave(&mut self, members: &[(String, Option<String>)]) -> Vec<Result<(), GroupError>> {
        let outcomes: Vec<_> =
            members.iter().map(|(id, instance)| self.leave_one(id, instance.as_deref())).collect();
        if outcomes.iter().any(Result::is_ok) {
            match self.group.state() {
                State::Stable | State::Completing => self.prepare_rebalance(),
                State::Preparing { .. } => self.complete_if_due(),
                State::Empty => {}
            }
        }
        outcomes
    }

    fn leave_one(&mut self, id: &str, instance: Option<&str>) -> Result<(), GroupError> {
        if id.is_empty() {
            // An administrator removes a static member by its instance id.
            let member = instance.and_then(|it| self.group.instance(it));
            let member = member.ok_or(GroupError::UnknownMemberId)?;
            self.remove(&member);
            return Ok(());
        }
        if !self.group.pending.contains(id) {
            self.group.check_member(id, instance)?;
        }
        self.remove(id);
        Ok(())
    }
}
