//! What a member does next: decisions on plain data, apart from what carries them out.

use crate::client::TopicPartition;
use crate::wire::error::ErrorCode;

/// What an answer's error code means for a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// All is well.
    Fine,
    /// Join again; id and partitions stay.
    Rejoin,
    /// Join again with the id that came with the answer.
    RejoinAs,
    /// Join again: the partitions are somebody else's by now. The id stays.
    Lost,
    /// Join again as somebody new, and the partitions are somebody else's by now.
    Forgotten,
    /// Look for the coordinator and try again.
    Elsewhere,
    /// Try again a little later.
    Wait,
    /// There is no going on.
    Fatal,
}

/// What to do after this error code, whatever was asked.
pub fn verdict(code: i16) -> Verdict {
    match ErrorCode::from_wire(code) {
        Some(ErrorCode::None) => Verdict::Fine,
        // A stale epoch is told to a commit that crossed the heartbeat which brings the next one.
        Some(ErrorCode::RebalanceInProgress | ErrorCode::StaleMemberEpoch) => Verdict::Rejoin,
        Some(ErrorCode::MemberIdRequired) => Verdict::RejoinAs,
        Some(ErrorCode::IllegalGeneration | ErrorCode::FencedMemberEpoch) => Verdict::Lost,
        Some(ErrorCode::UnknownMemberId) => Verdict::Forgotten,
        Some(ErrorCode::NotCoordinator | ErrorCode::CoordinatorNotAvailable) => Verdict::Elsewhere,
        Some(ErrorCode::CoordinatorLoadInProgress) => Verdict::Wait,
        _ => Verdict::Fatal,
    }
}

/// What a new assignment changes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Change {
    /// Partitions to let go of.
    pub revoked: Vec<TopicPartition>,
    /// Partitions to begin with.
    pub added: Vec<TopicPartition>,
    /// Whether to join once more, so that what was let go of finds its new reader (KIP-429).
    pub rejoin: bool,
}

/// Compares what a member has with what it shall have. One that is not cooperative has let go of
/// everything before it joined.
pub fn change(
    owned: &[TopicPartition],
    assigned: &[TopicPartition],
    is_cooperative: bool,
) -> Change {
    let without = |list: &[TopicPartition], other: &[TopicPartition]| {
        list.iter().filter(|one| !other.contains(one)).cloned().collect::<Vec<_>>()
    };
    let revoked = without(owned, assigned);
    let rejoin = is_cooperative && !revoked.is_empty();
    Change { added: without(assigned, owned), revoked, rejoin }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partitions(numbers: &[i32]) -> Vec<TopicPartition> {
        numbers.iter().map(|number| TopicPartition::new("t", *number)).collect()
    }

    #[test]
    fn codes_say_what_to_do() {
        for (code, expected) in [
            (0, Verdict::Fine),
            (14, Verdict::Wait),
            (15, Verdict::Elsewhere),
            (16, Verdict::Elsewhere),
            (22, Verdict::Lost),
            (25, Verdict::Forgotten),
            (27, Verdict::Rejoin),
            (79, Verdict::RejoinAs),
            (110, Verdict::Lost),
            (113, Verdict::Rejoin),
            // INCONSISTENT_GROUP_PROTOCOL, GROUP_AUTHORIZATION_FAILED, FENCED_INSTANCE_ID.
            (23, Verdict::Fatal),
            (30, Verdict::Fatal),
            (82, Verdict::Fatal),
            // UNRELEASED_INSTANCE_ID, UNSUPPORTED_ASSIGNOR.
            (111, Verdict::Fatal),
            (112, Verdict::Fatal),
        ] {
            assert_eq!(verdict(code), expected, "{code}");
        }
    }

    #[test]
    fn who_lets_go_cooperatively_joins_once_more() {
        let more = change(&partitions(&[0, 1]), &partitions(&[1, 2]), true);
        assert_eq!(more.revoked, partitions(&[0]));
        assert_eq!(more.added, partitions(&[2]));
        assert!(more.rejoin);
        assert!(!change(&partitions(&[0]), &partitions(&[0, 1]), true).rejoin);
        assert_eq!(change(&partitions(&[0]), &partitions(&[0]), true), Change::default());
        let eager = change(&[], &partitions(&[0]), false);
        assert_eq!((eager.added, eager.rejoin), (partitions(&[0]), false));
    }
}
