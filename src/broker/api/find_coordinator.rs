//! FindCoordinator (10), versions 0 to 6.
//!
//! There are no groups and no transactions yet:
//! - A group has no coordinator: COORDINATOR_NOT_AVAILABLE. Clients with assigned partitions ask
//!   for
//!   one as soon as they have a group id, and read on whatever they hear. It must not be named:
//!   librdkafka 2.16 crashes when it finds a coordinator that has no OffsetFetch and wants a stored
//!   offset. Codes that clients take as final (GROUP_AUTHORIZATION_FAILED) reach applications with
//!   assigned partitions as an error, too. So a client that joins a group waits, and the reason
//!   stands in the message and in our log.
//! - A transactional id is refused with the one code that every client takes as final,
//!   TRANSACTIONAL_ID_AUTHORIZATION_FAILED; the reason stands there, too.
//! - Any other kind (share groups) is INVALID_REQUEST.
//!
//! From version 4 on a request has many keys, each with an answer of its own.

use kafka_protocol::messages::find_coordinator_request::FindCoordinatorRequest;
use kafka_protocol::messages::find_coordinator_response::{Coordinator, FindCoordinatorResponse};

use crate::broker::api::text;
use crate::broker::errors::Refusal;
use crate::broker::node::Node;
use crate::wire::StrBytes;
use crate::wire::error::ErrorCode;

/// First version with a list of keys.
const KEYS_FROM: i16 = 4;

const GROUP: i8 = 0;
const TRANSACTION: i8 = 1;

/// What the client and the log are told of a group.
const NO_GROUPS: &str = "this broker has no consumer groups yet; assign partitions to the \
                         consumer (kcat without -G, kafka-console-consumer with --partition)";

/// What the client and the log are told of a transactional id.
pub(super) const NO_TRANSACTIONS: &str =
    "this broker has no transactions yet; produce without transactional.id";

/// Answers a request.
pub fn answer(
    node: &Node,
    request: FindCoordinatorRequest,
    version: i16,
) -> FindCoordinatorResponse {
    let kind = request.key_type;
    if version >= KEYS_FROM {
        let keys = request.coordinator_keys.into_iter();
        let coordinators = keys.map(|key| no_coordinator(node, key, kind)).collect();
        return FindCoordinatorResponse::default().with_coordinators(coordinators);
    }
    let found = no_coordinator(node, request.key, kind);
    FindCoordinatorResponse::default()
        .with_error_code(found.error_code)
        .with_error_message(found.error_message)
        .with_node_id(found.node_id)
        .with_host(found.host)
        .with_port(found.port)
}

fn no_coordinator(node: &Node, key: StrBytes, kind: i8) -> Coordinator {
    let refused = refusal(kind);
    let line = || format!("FindCoordinator for {:?}: {refused}", key.as_str());
    // Clients with assigned partitions that have a group id ask every second, for ever.
    if kind == GROUP {
        node.mention(line)
    } else {
        node.complain(line)
    }
    Coordinator::default()
        .with_key(key)
        .with_node_id((-1).into())
        .with_port(-1)
        .with_error_code(refused.code.to_wire())
        .with_error_message(Some(text(&refused.message)))
}

fn refusal(kind: i8) -> Refusal {
    match kind {
        GROUP => Refusal::new(ErrorCode::CoordinatorNotAvailable, NO_GROUPS),
        TRANSACTION => Refusal::new(ErrorCode::TransactionalIdAuthorizationFailed, NO_TRANSACTIONS),
        other => {
            let message = format!("coordinators of kind {other} are not supported");
            Refusal::new(ErrorCode::InvalidRequest, message)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_has_a_coordinator() {
        let code = |kind| refusal(kind).code;
        assert_eq!(code(GROUP), ErrorCode::CoordinatorNotAvailable);
        assert_eq!(code(TRANSACTION), ErrorCode::TransactionalIdAuthorizationFailed);
        assert_eq!(code(2), ErrorCode::InvalidRequest);
    }
}
