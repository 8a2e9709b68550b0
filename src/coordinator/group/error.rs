//! Why a group coordinator refuses something; the names are those of Kafka's codes.

/// Why something is refused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, thiserror::Error)]
pub enum GroupError {
    /// No more groups fit this partition.
    #[error("the partition has as many groups as it may have")]
    CoordinatorNotAvailable,
    /// A group's state would be larger than a record may be.
    #[error("the group's records would be larger than a batch may be")]
    UnknownServerError,
    /// The text beside an offset is too long.
    #[error("the offset's metadata is longer than offset.metadata.max.bytes")]
    OffsetMetadataTooLarge,
    /// The generation is not the group's.
    #[error("the generation is not the group's")]
    IllegalGeneration,
    /// No protocol that all members have.
    #[error("the member's protocols don't fit those of the group")]
    InconsistentGroupProtocol,
    /// No name.
    #[error("the group's name is not allowed")]
    InvalidGroupId,
    /// Not a member.
    #[error("the member is not in the group")]
    UnknownMemberId,
    /// Outside of what the broker allows.
    #[error(
        "the session timeout is not between group.min.session.timeout.ms and \
         group.max.session.timeout.ms"
    )]
    InvalidSessionTimeout,
    /// The members are to join again.
    #[error("the group is rebalancing")]
    RebalanceInProgress,
    /// Too many offsets, or too much text beside them.
    #[error("the commit is larger than it may be")]
    InvalidCommitOffsetSize,
    /// Only groups without members may be deleted.
    #[error("the group has members")]
    NonEmptyGroup,
    /// There is no such group.
    #[error("there is no group of this name")]
    GroupIdNotFound,
    /// The member has to come back with the id that it is given.
    #[error("the member has to join with the id that it is given")]
    MemberIdRequired,
    /// The group has as many members as it may have.
    #[error("the group has as many members as group.max.size allows")]
    GroupMaxSizeReached,
    /// Another member has taken the instance id over.
    #[error("another member has this group.instance.id")]
    FencedInstanceId,
    /// Offsets of topics that the group consumes stay.
    #[error("the group is subscribed to the topic")]
    GroupSubscribedToTopic,
    /// A request that makes no sense.
    #[error("{0}")]
    InvalidRequest(&'static str),
    /// No such assignor.
    #[error("the assignor is not one of group.consumer.assignors")]
    UnsupportedAssignor,
    /// The member has to give everything up and join anew.
    #[error("the member's epoch is not the one that it was given; it must join again")]
    FencedMemberEpoch,
    /// The member has to take the newer epoch first.
    #[error("the member's epoch is not its current one")]
    StaleMemberEpoch,
    /// Another member has this name and has not left.
    #[error("another member has this group.instance.id and has not left")]
    UnreleasedInstanceId,
    /// No regular expression.
    #[error("the regular expression is not valid")]
    InvalidRegularExpression,
    /// The request has to have a newer version.
    #[error("members with the consumer protocol need version 9 of this request")]
    UnsupportedVersion,
    /// A transaction that is still open has committed this offset.
    #[error("an open transaction has committed the offset")]
    UnstableOffsetCommit,
}
