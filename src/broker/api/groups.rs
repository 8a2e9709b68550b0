//! What the APIs of groups have in common.

use std::net::IpAddr;

use bytes::Bytes;

use crate::broker::node::Node;
use crate::coordinator::group::request::{Client, Identity};
use crate::coordinator::group::{Answer, GroupError, Request};
use crate::wire::StrBytes;
use crate::wire::error::ErrorCode;

/// Puts a request to the coordinator of a group.
///
/// # Errors
/// As [`Store::ask`](crate::broker::coordinators::Store::ask); INVALID_GROUP_ID for no name, where
/// one must be.
pub(super) async fn ask(node: &Node, group: &str, request: Request) -> Result<Answer, ErrorCode> {
    node.served().await;
    node.coordinators.groups.ask(node, group, request).await
}

/// Like [`ask`], for requests that need a group's name.
///
/// # Errors
/// As [`ask`], and INVALID_GROUP_ID.
pub(super) async fn ask_named(
    node: &Node,
    group: &str,
    request: Request,
) -> Result<Answer, ErrorCode> {
    if group.is_empty() {
        return Err(ErrorCode::InvalidGroupId);
    }
    ask(node, group, request).await
}

/// The code of what a group coordinator refuses.
pub(super) fn code(error: GroupError) -> ErrorCode {
    match error {
        GroupError::CoordinatorNotAvailable => ErrorCode::CoordinatorNotAvailable,
        GroupError::UnknownServerError => ErrorCode::UnknownServerError,
        GroupError::OffsetMetadataTooLarge => ErrorCode::OffsetMetadataTooLarge,
        GroupError::IllegalGeneration => ErrorCode::IllegalGeneration,
        GroupError::InconsistentGroupProtocol => ErrorCode::InconsistentGroupProtocol,
        GroupError::InvalidGroupId => ErrorCode::InvalidGroupId,
        GroupError::UnknownMemberId => ErrorCode::UnknownMemberId,
        GroupError::InvalidSessionTimeout => ErrorCode::InvalidSessionTimeout,
        GroupError::RebalanceInProgress => ErrorCode::RebalanceInProgress,
        GroupError::InvalidCommitOffsetSize => ErrorCode::InvalidCommitOffsetSize,
        GroupError::NonEmptyGroup => ErrorCode::NonEmptyGroup,
        GroupError::GroupIdNotFound => ErrorCode::GroupIdNotFound,
        GroupError::MemberIdRequired => ErrorCode::MemberIdRequired,
        GroupError::GroupMaxSizeReached => ErrorCode::GroupMaxSizeReached,
        GroupError::FencedInstanceId => ErrorCode::FencedInstanceId,
        GroupError::GroupSubscribedToTopic => ErrorCode::GroupSubscribedToTopic,
        GroupError::InvalidRequest(_) => ErrorCode::InvalidRequest,
        GroupError::UnsupportedAssignor => ErrorCode::UnsupportedAssignor,
        GroupError::FencedMemberEpoch => ErrorCode::FencedMemberEpoch,
        GroupError::StaleMemberEpoch => ErrorCode::StaleMemberEpoch,
        GroupError::UnreleasedInstanceId => ErrorCode::UnreleasedInstanceId,
        GroupError::InvalidRegularExpression => ErrorCode::InvalidRegularExpression,
        GroupError::UnsupportedVersion => ErrorCode::UnsupportedVersion,
        GroupError::UnstableOffsetCommit => ErrorCode::UnstableOffsetCommit,
    }
}

/// The number of an outcome on the wire.
pub(super) fn wire(outcome: Result<(), GroupError>) -> i16 {
    outcome.err().map_or(ErrorCode::None, code).to_wire()
}

/// A null, or a text that is kept.
pub(super) fn kept(text: Option<StrBytes>) -> Option<String> {
    text.map(|text| text.to_string())
}

/// Bytes that a group keeps: a copy, since a slice would keep the request's whole frame.
pub(super) fn own(bytes: &[u8]) -> Bytes {
    Bytes::copy_from_slice(bytes)
}

/// A member as a request names it.
pub(super) fn identity(
    group: &str,
    (member, instance): (&StrBytes, Option<StrBytes>),
    generation: i32,
) -> Identity {
    Identity {
        group: group.to_owned(),
        member: member.to_string(),
        instance: kept(instance),
        generation,
    }
}

/// Who sends a request.
pub fn client(id: Option<&StrBytes>, address: IpAddr) -> Client {
    let id = id.map(|id| id.to_string()).unwrap_or_default();
    Client { id, host: host(address) }
}

/// An address as Java prints one: a slash before it, and no part of it left out.
fn host(address: IpAddr) -> String {
    match address.to_canonical() {
        IpAddr::V4(address) => format!("/{address}"),
        IpAddr::V6(address) => {
            let parts = address.segments().map(|part| format!("{part:x}"));
            format!("/{}", parts.join(":"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_printed_as_java_does() {
        let printed = |text: &str| host(text.parse().expect("an address"));
        assert_eq!(printed("127.0.0.1"), "/127.0.0.1");
        assert_eq!(printed("::ffff:10.0.0.1"), "/10.0.0.1");
        assert_eq!(printed("::1"), "/0:0:0:0:0:0:0:1");
    }
}
