//! Heartbeat (12), versions 0 to 4.
//!
//! - REBALANCE_IN_PROGRESS asks the member to join again.
//! - While the group is being loaded everything is in order, as in Kafka: the member would
//!   otherwise look for another coordinator.

use kafka_protocol::messages::heartbeat_request::HeartbeatRequest;
use kafka_protocol::messages::heartbeat_response::HeartbeatResponse;

use crate::broker::api::groups::{ask_named, identity, wire};
use crate::broker::node::Node;
use crate::coordinator::group::{Answer, Request};
use crate::wire::error::ErrorCode;

/// Answers a request.
pub async fn answer(node: &Node, request: HeartbeatRequest) -> HeartbeatResponse {
    let group = request.group_id.0.to_string();
    let member = (&request.member_id, request.group_instance_id);
    let identity = identity(&group, member, request.generation_id);
    let error = match ask_named(node, &group, Request::Heartbeat(identity)).await {
        Ok(Answer::Heartbeat(outcome)) => wire(outcome),
        Ok(_) => unreachable!("a heartbeat is answered as one"),
        Err(ErrorCode::CoordinatorLoadInProgress) => ErrorCode::None.to_wire(),
        Err(code) => code.to_wire(),
    };
    HeartbeatResponse::default().with_error_code(error)
}
