//! What a member does next: decisions on plain data, apart from what carries them out.

use crate::client::TopicPartition;

/// Error codes that a member meets, by Kafka's names.
pub mod code {
    /// The coordinator is still loading.
    pub const COORDINATOR_LOAD_IN_PROGRESS: i16 = 14;
    /// There is no coordinator at the moment.
    pub const COORDINATOR_NOT_AVAILABLE: i16 = 15;
    /// Another broker coordinates the group.
    pub const NOT_COORDINATOR: i16 = 16;
    /// The generation is an old one.
    pub const ILLEGAL_GENERATION: i16 = 22;
    /// The coordinator doesn't know the member.
    pub const UNKNOWN_MEMBER_ID: i16 = 25;
    /// The group is being rebalanced.
    pub const REBALANCE_IN_PROGRESS: i16 = 27;
    /// The member is to join again with the id that it was given.
    pub const MEMBER_ID_REQUIRED: i16 = 79;
    /// Another member has taken over the name.
    pub const FENCED_INSTANCE_ID: i16 = 82;
}

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
    match code {
        0 => Verdict::Fine,
        code::REBALANCE_IN_PROGRESS => Verdict::Rejoin,
        code::MEMBER_ID_REQUIRED => Verdict::RejoinAs,
        code::ILLEGAL_GENERATION => Verdict::Lost,
        code::UNKNOWN_MEMBER_ID => Verdict::Forgotten,
        code::NOT_COORDINATOR | code::COORDINATOR_NOT_AVAILABLE => Verdict::Elsewhere,
        code::COORDINATOR_LOAD_IN_PROGRESS => Verdict::Wait,
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
            // INCONSISTENT_GROUP_PROTOCOL, GROUP_AUTHORIZATION_FAILED, FENCED_INSTANCE_ID.
            (23, Verdict::Fatal),
            (30, Verdict::Fatal),
            (code::FENCED_INSTANCE_ID, Verdict::Fatal),
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
