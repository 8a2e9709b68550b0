//! FindCoordinator (10), versions 0 to 6.
//!
//! There are no groups and no transactions yet, and no client may hang on that:
//! - A group's coordinator is the first shard. Clients with assigned partitions ask for it as soon
//!   as they have a group id, and are content. Joining a group or committing fails at once, with
//!   the client's own message that the broker doesn't support the request: those APIs are not
//!   advertised. COORDINATOR_NOT_AVAILABLE would be retried in silence, for ever.
//! - A transactional id is refused with the one code that every client takes as final,
//!   TRANSACTIONAL_ID_AUTHORIZATION_FAILED; the reason stands in the message and in our log.
//! - Any other kind (share groups) is INVALID_REQUEST.
//!
//! From version 4 on a request has many keys, each with an answer of its own.

use kafka_protocol::messages::find_coordinator_request::FindCoordinatorRequest;
use kafka_protocol::messages::find_coordinator_response::{Coordinator, FindCoordinatorResponse};

use crate::broker::api::{broker_id, text};
use crate::broker::errors::Refusal;
use crate::broker::node::Node;
use crate::wire::StrBytes;
use crate::wire::error::ErrorCode;

/// First version with a list of keys.
const KEYS_FROM: i16 = 4;

const GROUP: i8 = 0;
const TRANSACTION: i8 = 1;

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
        let coordinators = keys.map(|key| coordinator(node, key, kind)).collect();
        return FindCoordinatorResponse::default().with_coordinators(coordinators);
    }
    let found = coordinator(node, request.key, kind);
    FindCoordinatorResponse::default()
        .with_error_code(found.error_code)
        .with_error_message(found.error_message)
        .with_node_id(found.node_id)
        .with_host(found.host)
        .with_port(found.port)
}

fn coordinator(node: &Node, key: StrBytes, kind: i8) -> Coordinator {
    let answer = Coordinator::default();
    let refused = match refusal(kind) {
        None => {
            let (id, host, port) =
                node.shared.brokers.iter().next().expect("there is at least one shard");
            return answer
                .with_error_message(None)
                .with_key(key)
                .with_node_id(broker_id(id))
                .with_host(text(host))
                .with_port(i32::from(port));
        }
        Some(refusal) => refusal,
    };
    node.complain(|| format!("FindCoordinator for {:?}: {refused}", key.as_str()));
    answer
        .with_key(key)
        .with_node_id((-1).into())
        .with_port(-1)
        .with_error_code(refused.code.to_wire())
        .with_error_message(Some(text(&refused.message)))
}

fn refusal(kind: i8) -> Option<Refusal> {
    match kind {
        GROUP => None,
        TRANSACTION => {
            Some(Refusal::new(ErrorCode::TransactionalIdAuthorizationFailed, NO_TRANSACTIONS))
        }
        other => {
            let message = format!("coordinators of kind {other} are not supported");
            Some(Refusal::new(ErrorCode::InvalidRequest, message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_groups_have_a_coordinator() {
        assert_eq!(refusal(GROUP), None);
        let code = |kind| refusal(kind).map(|refusal| refusal.code);
        assert_eq!(code(TRANSACTION), Some(ErrorCode::TransactionalIdAuthorizationFailed));
        assert_eq!(code(2), Some(ErrorCode::InvalidRequest));
    }
}
