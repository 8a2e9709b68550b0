//! Kafka's error codes, and why bytes are no request.

use std::fmt;

macro_rules! error_codes {
    ($($(#[$meta:meta])* $name:ident = $code:literal $text:literal,)*) => {
        /// An error code as answers carry it; numbers and names are those of Kafka's `Errors`.
        /// Only codes that this broker sends or its client acts upon have a variant.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum ErrorCode {
            $($(#[$meta])* $name,)*
        }

        impl ErrorCode {
            /// Every code, in the order of their numbers.
            pub const ALL: &'static [ErrorCode] = &[$(ErrorCode::$name,)*];

            /// The number on the wire.
            pub const fn to_wire(self) -> i16 {
                match self {
                    $(ErrorCode::$name => $code,)*
                }
            }

            /// Kafka's name of the code.
            pub const fn name(self) -> &'static str {
                match self {
                    $(ErrorCode::$name => $text,)*
                }
            }

            /// The code with this number, if it is one of [`ErrorCode::ALL`].
            pub const fn from_wire(code: i16) -> Option<ErrorCode> {
                match code {
                    $($code => Some(ErrorCode::$name),)*
                    _ => None,
                }
            }
        }
    };
}

error_codes! {
    /// Something failed that no other code describes.
    UnknownServerError = -1 "UNKNOWN_SERVER_ERROR",
    /// No error.
    None = 0 "NONE",
    /// The offset is below the log start or beyond the log end.
    OffsetOutOfRange = 1 "OFFSET_OUT_OF_RANGE",
    /// The batch's CRC, size or form is wrong.
    CorruptMessage = 2 "CORRUPT_MESSAGE",
    /// This broker has no such topic or partition.
    UnknownTopicOrPartition = 3 "UNKNOWN_TOPIC_OR_PARTITION",
    /// The fetch size is not valid.
    InvalidFetchSize = 4 "INVALID_FETCH_SIZE",
    /// The partition has no leader at the moment.
    LeaderNotAvailable = 5 "LEADER_NOT_AVAILABLE",
    /// Another broker leads the partition.
    NotLeaderOrFollower = 6 "NOT_LEADER_OR_FOLLOWER",
    /// The time that the request allowed is over.
    RequestTimedOut = 7 "REQUEST_TIMED_OUT",
    /// The broker is not available.
    BrokerNotAvailable = 8 "BROKER_NOT_AVAILABLE",
    /// The replica is not available here.
    ReplicaNotAvailable = 9 "REPLICA_NOT_AVAILABLE",
    /// The batch is above `max.message.bytes`.
    MessageTooLarge = 10 "MESSAGE_TOO_LARGE",
    /// The text beside an offset is too long.
    OffsetMetadataTooLarge = 12 "OFFSET_METADATA_TOO_LARGE",
    /// The connection broke before the answer came.
    NetworkException = 13 "NETWORK_EXCEPTION",
    /// The coordinator is still loading.
    CoordinatorLoadInProgress = 14 "COORDINATOR_LOAD_IN_PROGRESS",
    /// There is no coordinator for the key.
    CoordinatorNotAvailable = 15 "COORDINATOR_NOT_AVAILABLE",
    /// Another broker coordinates the key.
    NotCoordinator = 16 "NOT_COORDINATOR",
    /// The topic's name is illegal or it may not be used so.
    InvalidTopicException = 17 "INVALID_TOPIC_EXCEPTION",
    /// The batch is larger than a segment may be.
    RecordListTooLarge = 18 "RECORD_LIST_TOO_LARGE",
    /// Too few replicas are in sync; nothing was appended.
    NotEnoughReplicas = 19 "NOT_ENOUGH_REPLICAS",
    /// Appended, but to too few replicas.
    NotEnoughReplicasAfterAppend = 20 "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
    /// Acks is none of -1, 0 and 1.
    InvalidRequiredAcks = 21 "INVALID_REQUIRED_ACKS",
    /// The generation is not the group's.
    IllegalGeneration = 22 "ILLEGAL_GENERATION",
    /// The member's protocols don't fit those of the group.
    InconsistentGroupProtocol = 23 "INCONSISTENT_GROUP_PROTOCOL",
    /// The group's name is not allowed.
    InvalidGroupId = 24 "INVALID_GROUP_ID",
    /// The member is not in the group.
    UnknownMemberId = 25 "UNKNOWN_MEMBER_ID",
    /// The session timeout is not allowed.
    InvalidSessionTimeout = 26 "INVALID_SESSION_TIMEOUT",
    /// The members are to join again.
    RebalanceInProgress = 27 "REBALANCE_IN_PROGRESS",
    /// The commit is larger than it may be.
    InvalidCommitOffsetSize = 28 "INVALID_COMMIT_OFFSET_SIZE",
    /// The principal may not use the topic.
    TopicAuthorizationFailed = 29 "TOPIC_AUTHORIZATION_FAILED",
    /// The principal may not use the group.
    GroupAuthorizationFailed = 30 "GROUP_AUTHORIZATION_FAILED",
    /// The principal may not do this.
    ClusterAuthorizationFailed = 31 "CLUSTER_AUTHORIZATION_FAILED",
    /// A record's timestamp is outside the allowed range.
    InvalidTimestamp = 32 "INVALID_TIMESTAMP",
    /// The SASL mechanism is not enabled.
    UnsupportedSaslMechanism = 33 "UNSUPPORTED_SASL_MECHANISM",
    /// The request doesn't fit the state of authentication.
    IllegalSaslState = 34 "ILLEGAL_SASL_STATE",
    /// The version of the request is not supported.
    UnsupportedVersion = 35 "UNSUPPORTED_VERSION",
    /// A topic of this name exists.
    TopicAlreadyExists = 36 "TOPIC_ALREADY_EXISTS",
    /// The number of partitions is not allowed.
    InvalidPartitions = 37 "INVALID_PARTITIONS",
    /// The replication factor is not allowed.
    InvalidReplicationFactor = 38 "INVALID_REPLICATION_FACTOR",
    /// The replica assignment is not allowed.
    InvalidReplicaAssignment = 39 "INVALID_REPLICA_ASSIGNMENT",
    /// A configuration's name or value is not allowed.
    InvalidConfig = 40 "INVALID_CONFIG",
    /// This broker is not the controller.
    NotController = 41 "NOT_CONTROLLER",
    /// The request contradicts itself or the protocol.
    InvalidRequest = 42 "INVALID_REQUEST",
    /// The record format can't do this.
    UnsupportedForMessageFormat = 43 "UNSUPPORTED_FOR_MESSAGE_FORMAT",
    /// The request violates a policy.
    PolicyViolation = 44 "POLICY_VIOLATION",
    /// A producer's sequence number was not the next.
    OutOfOrderSequenceNumber = 45 "OUT_OF_ORDER_SEQUENCE_NUMBER",
    /// The sequence number was appended before.
    DuplicateSequenceNumber = 46 "DUPLICATE_SEQUENCE_NUMBER",
    /// The producer's epoch is an old one.
    InvalidProducerEpoch = 47 "INVALID_PRODUCER_EPOCH",
    /// The transaction is not in a state that allows this.
    InvalidTxnState = 48 "INVALID_TXN_STATE",
    /// The transactional id has another producer id.
    InvalidProducerIdMapping = 49 "INVALID_PRODUCER_ID_MAPPING",
    /// The transaction timeout is not allowed.
    InvalidTransactionTimeout = 50 "INVALID_TRANSACTION_TIMEOUT",
    /// Another change of the transaction is under way.
    ConcurrentTransactions = 51 "CONCURRENT_TRANSACTIONS",
    /// Another coordinator has taken over.
    TransactionCoordinatorFenced = 52 "TRANSACTION_COORDINATOR_FENCED",
    /// The principal may not use the id.
    TransactionalIdAuthorizationFailed = 53 "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    /// There is no authorizer.
    SecurityDisabled = 54 "SECURITY_DISABLED",
    /// The operation was not tried.
    OperationNotAttempted = 55 "OPERATION_NOT_ATTEMPTED",
    /// The log's disk failed; the partition is offline.
    KafkaStorageError = 56 "KAFKA_STORAGE_ERROR",
    /// The broker has no such log directory.
    LogDirNotFound = 57 "LOG_DIR_NOT_FOUND",
    /// Nothing is known of the producer id.
    UnknownProducerId = 59 "UNKNOWN_PRODUCER_ID",
    /// The group has members.
    NonEmptyGroup = 68 "NON_EMPTY_GROUP",
    /// There is no such group.
    GroupIdNotFound = 69 "GROUP_ID_NOT_FOUND",
    /// There is no such fetch session.
    FetchSessionIdNotFound = 70 "FETCH_SESSION_ID_NOT_FOUND",
    /// The fetch session's epoch was not the next.
    InvalidFetchSessionEpoch = 71 "INVALID_FETCH_SESSION_EPOCH",
    /// The leader has no listener of this name.
    ListenerNotFound = 72 "LISTENER_NOT_FOUND",
    /// Topics may not be deleted here.
    TopicDeletionDisabled = 73 "TOPIC_DELETION_DISABLED",
    /// The request's leader epoch is an old one.
    FencedLeaderEpoch = 74 "FENCED_LEADER_EPOCH",
    /// The request's leader epoch is newer than ours.
    UnknownLeaderEpoch = 75 "UNKNOWN_LEADER_EPOCH",
    /// The version doesn't allow the codec.
    UnsupportedCompressionType = 76 "UNSUPPORTED_COMPRESSION_TYPE",
    /// The leader doesn't know its high watermark yet.
    OffsetNotAvailable = 78 "OFFSET_NOT_AVAILABLE",
    /// The partition has the leader that it should have.
    ElectionNotNeeded = 84 "ELECTION_NOT_NEEDED",
    /// Nothing is being moved.
    NoReassignmentInProgress = 85 "NO_REASSIGNMENT_IN_PROGRESS",
    /// The member has to join with the id that it is given.
    MemberIdRequired = 79 "MEMBER_ID_REQUIRED",
    /// The group has as many members as it may have.
    GroupMaxSizeReached = 81 "GROUP_MAX_SIZE_REACHED",
    /// Another member has taken the instance id over.
    FencedInstanceId = 82 "FENCED_INSTANCE_ID",
    /// The group consumes the topic.
    GroupSubscribedToTopic = 86 "GROUP_SUBSCRIBED_TO_TOPIC",
    /// A record or its batch breaks a rule.
    InvalidRecord = 87 "INVALID_RECORD",
    /// An open transaction has committed the offset.
    UnstableOffsetCommit = 88 "UNSTABLE_OFFSET_COMMIT",
    /// The quota is used up.
    ThrottlingQuotaExceeded = 89 "THROTTLING_QUOTA_EXCEEDED",
    /// A newer producer has taken the transactional id over.
    ProducerFenced = 90 "PRODUCER_FENCED",
    /// There is no such resource.
    ResourceNotFound = 91 "RESOURCE_NOT_FOUND",
    /// The request names something twice.
    DuplicateResource = 92 "DUPLICATE_RESOURCE",
    /// The credential doesn't meet the rules.
    UnacceptableCredential = 93 "UNACCEPTABLE_CREDENTIAL",
    /// The level of the feature is not allowed.
    InvalidUpdateVersion = 95 "INVALID_UPDATE_VERSION",
    /// This broker has no topic with this id.
    UnknownTopicId = 100 "UNKNOWN_TOPIC_ID",
    /// The cluster has no such broker.
    BrokerIdNotRegistered = 102 "BROKER_ID_NOT_REGISTERED",
    /// The log has another topic id.
    InconsistentTopicId = 103 "INCONSISTENT_TOPIC_ID",
    /// The cluster id is another one.
    InconsistentClusterId = 104 "INCONSISTENT_CLUSTER_ID",
    /// There is no such transactional id.
    TransactionalIdNotFound = 105 "TRANSACTIONAL_ID_NOT_FOUND",
    /// A fetch session mixed names and ids.
    FetchSessionTopicIdError = 106 "FETCH_SESSION_TOPIC_ID_ERROR",
    /// The member's epoch is not the one that it should have.
    FencedMemberEpoch = 110 "FENCED_MEMBER_EPOCH",
    /// A member with this instance id is still there.
    UnreleasedInstanceId = 111 "UNRELEASED_INSTANCE_ID",
    /// The coordinator has no such assignor.
    UnsupportedAssignor = 112 "UNSUPPORTED_ASSIGNOR",
    /// The member's epoch is an old one.
    StaleMemberEpoch = 113 "STALE_MEMBER_EPOCH",
    /// Brokers were asked for what only controllers say, or the other way round.
    MismatchedEndpointType = 114 "MISMATCHED_ENDPOINT_TYPE",
    /// There is no such kind of endpoint.
    UnsupportedEndpointType = 115 "UNSUPPORTED_ENDPOINT_TYPE",
    /// The transaction can only be aborted.
    TransactionAbortable = 120 "TRANSACTION_ABORTABLE",
    /// The regular expression is not valid.
    InvalidRegularExpression = 128 "INVALID_REGULAR_EXPRESSION",
    /// The client should look for the cluster anew.
    RebootstrapRequired = 129 "REBOOTSTRAP_REQUIRED",
}

impl ErrorCode {
    /// Whether this is [`ErrorCode::None`].
    pub const fn is_none(self) -> bool {
        matches!(self, ErrorCode::None)
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name(), self.to_wire())
    }
}

/// Why bytes are no request (or answer) that can be served. The connection ends, as in Kafka: there
/// is no telling where the peer believes its next frame to start.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WireError {
    /// The body ends before a field does.
    #[error("{what} needs {needed} bytes where {left} are left")]
    Truncated {
        /// The field.
        what: &'static str,
        /// Bytes that it would take.
        needed: u64,
        /// Bytes at hand.
        left: u64,
    },
    /// A length below zero that doesn't mean null there, or a varint longer than five bytes.
    #[error("{what} has the length {length}, which is no length")]
    Length {
        /// The field.
        what: &'static str,
        /// As the bytes say.
        length: i64,
    },
    /// More elements or tagged fields than one request may have.
    #[error("{what} has {count} elements, more than the limit of {limit}")]
    TooMany {
        /// The array.
        what: &'static str,
        /// As the bytes say.
        count: u64,
        /// The limit.
        limit: u64,
    },
    /// Text that isn't UTF-8.
    #[error("{0} is not UTF-8")]
    Text(&'static str),
    /// A frame size that is negative, too small for a header, or above the limit.
    #[error("a frame of {size} bytes; allowed are {min} to {max}")]
    FrameSize {
        /// As the prefix says.
        size: i32,
        /// Size of the smallest header.
        min: i32,
        /// The limit.
        max: i32,
    },
    /// An API or a version of it that this side doesn't speak.
    #[error("API {api_key} version {version} is not supported")]
    Unsupported {
        /// The API's number.
        api_key: i16,
        /// The version asked for.
        version: i16,
    },
    /// A message that passed the length checks and still can't be read or written.
    #[error("API {api_key} version {version}: {text}")]
    Malformed {
        /// The API's number.
        api_key: i16,
        /// The version asked for.
        version: i16,
        /// What the codec said.
        text: String,
    },
    /// An answer whose size doesn't fit the 31 bits of a frame's size.
    #[error("an answer of {0} bytes is too large for a frame")]
    AnswerTooLarge(u64),
}

#[cfg(test)]
mod tests {
    use kafka_protocol::error::ParseResponseErrorCode;

    use super::*;

    #[test]
    fn codes_survive_the_wire() {
        for code in ErrorCode::ALL {
            assert_eq!(ErrorCode::from_wire(code.to_wire()), Some(*code));
        }
        assert_eq!(ErrorCode::from_wire(12_345), None);
        assert_eq!(ErrorCode::NotLeaderOrFollower.to_string(), "NOT_LEADER_OR_FOLLOWER (6)");
    }

    #[test]
    fn numbers_are_kafkas() {
        // kafka-protocol names them from Kafka's own list.
        for code in ErrorCode::ALL.iter().filter(|code| !code.is_none()) {
            let theirs = code.to_wire().err().expect("a code of an error");
            assert_eq!(format!("{code:?}"), format!("{theirs:?}"));
        }
    }
}
