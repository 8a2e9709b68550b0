//! FindCoordinator (10), versions 0 to 6.
//!
//! - A key belongs to a partition of an internal topic; the shard that owns it is the coordinator.
//!   The topic is made when somebody first asks. Kafka's answer is COORDINATOR_NOT_AVAILABLE until
//!   it has leaders; ours names the coordinator already.
//! - A key may be empty, as in Kafka.
//! - Any other kind (share groups) is INVALID_REQUEST.
//!
//! From version 4 on a request has many keys, each with an answer of its own.

use kafka_protocol::messages::find_coordinator_request::FindCoordinatorRequest;
use kafka_protocol::messages::find_coordinator_response::{Coordinator, FindCoordinatorResponse};

use crate::broker::api::{broker_id, text};
use crate::broker::coordinators::{Kind, find};
use crate::broker::errors::Refusal;
use crate::broker::node::Node;
use crate::wire::StrBytes;
use crate::wire::error::ErrorCode;
use crate::wire::topics::NodeEndpoint;

/// First version with a list of keys.
const KEYS_FROM: i16 = 4;

const GROUP: i8 = 0;
const TRANSACTION: i8 = 1;

/// Answers a request.
pub async fn answer(
    node: &Node,
    request: FindCoordinatorRequest,
    version: i16,
) -> FindCoordinatorResponse {
    node.served().await;
    let kind = kind(request.key_type);
    if version >= KEYS_FROM {
        let mut coordinators = Vec::with_capacity(request.coordinator_keys.len());
        for key in request.coordinator_keys {
            coordinators.push(coordinator(node, &kind, key).await);
        }
        return FindCoordinatorResponse::default().with_coordinators(coordinators);
    }
    let found = coordinator(node, &kind, request.key).await;
    // Before there were several keys Kafka named the lack of an error, too.
    let message = match found.error_code {
        0 => Some(text("NONE")),
        _ => found.error_message,
    };
    FindCoordinatorResponse::default()
        .with_error_code(found.error_code)
        .with_error_message(message)
        .with_node_id(found.node_id)
        .with_host(found.host)
        .with_port(found.port)
}

fn kind(wire: i8) -> Result<Kind, Refusal> {
    match wire {
        GROUP => Ok(Kind::Groups),
        TRANSACTION => Ok(Kind::Transactions),
        other => {
            let message = format!("coordinators of kind {other} are not supported");
            Err(Refusal::new(ErrorCode::InvalidRequest, message))
        }
    }
}

async fn coordinator(node: &Node, kind: &Result<Kind, Refusal>, key: StrBytes) -> Coordinator {
    let found = match kind {
        Ok(kind) => endpoint(node, *kind, key.as_str()).await,
        Err(refusal) => Err(refusal.clone()),
    };
    match found {
        Ok(NodeEndpoint { id, host, port }) => Coordinator::default()
            .with_key(key)
            .with_node_id(broker_id(id))
            .with_host(text(&host))
            .with_port(i32::from(port))
            .with_error_message(Some(text(""))),
        Err(refused) => {
            node.complain(|| format!("FindCoordinator for {:?}: {refused}", key.as_str()));
            Coordinator::default()
                .with_key(key)
                .with_node_id((-1).into())
                .with_port(-1)
                .with_error_code(refused.code.to_wire())
                .with_error_message(Some(text(&refused.message)))
        }
    }
}

async fn endpoint(node: &Node, kind: Kind, key: &str) -> Result<NodeEndpoint, Refusal> {
    let id = find::coordinator_of(node, kind, key).await?;
    node.shared.brokers.endpoint(id).ok_or_else(|| {
        Refusal::new(ErrorCode::CoordinatorNotAvailable, "the coordinator has no address")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_keys() {
        let code = |wire| kind(wire).map_err(|refusal| refusal.code);
        assert_eq!(code(0), Ok(Kind::Groups));
        assert_eq!(code(1), Ok(Kind::Transactions));
        assert_eq!(code(2), Err(ErrorCode::InvalidRequest));
    }
}
