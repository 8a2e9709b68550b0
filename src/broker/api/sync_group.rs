//! SyncGroup (14), versions 0 to 5.
//!
//! - The leader brings the assignments of all members; the others wait for it.
//! - From version 5 on a member says which protocol it believes in: INCONSISTENT_GROUP_PROTOCOL
//!   when the group has another.

use kafka_protocol::messages::sync_group_request::SyncGroupRequest;
use kafka_protocol::messages::sync_group_response::SyncGroupResponse;

use crate::broker::api::groups::{ask_named, code, identity, kept, own};
use crate::broker::api::text;
use crate::broker::node::Node;
use crate::coordinator::group::request::Sync;
use crate::coordinator::group::{Answer, Request};
use crate::wire::error::ErrorCode;

/// First version in which a member says which protocol it believes in.
const PROTOCOL_FROM: i16 = 5;

/// Answers a request.
pub async fn answer(node: &Node, request: SyncGroupRequest, version: i16) -> SyncGroupResponse {
    let is_silent = request.protocol_type.is_none() || request.protocol_name.is_none();
    if version >= PROTOCOL_FROM && is_silent {
        let code = ErrorCode::InconsistentGroupProtocol.to_wire();
        return SyncGroupResponse::default().with_error_code(code);
    }
    let group = request.group_id.0.to_string();
    let member = (&request.member_id, request.group_instance_id);
    let assignments = request.assignments.into_iter();
    let assignments = assignments.map(|it| (it.member_id.to_string(), own(&it.assignment)));
    let sync = Sync {
        identity: identity(&group, member, request.generation_id),
        protocol_type: kept(request.protocol_type),
        protocol: kept(request.protocol_name),
        assignments: assignments.collect(),
    };
    let refused = |code: ErrorCode| SyncGroupResponse::default().with_error_code(code.to_wire());
    match ask_named(node, &group, Request::Sync(sync)).await {
        Ok(Answer::Sync(Ok(synced))) => SyncGroupResponse::default()
            .with_protocol_type(synced.protocol_type.as_deref().map(text))
            .with_protocol_name(synced.protocol.as_deref().map(text))
            .with_assignment(synced.assignment),
        Ok(Answer::Sync(Err(error))) => refused(code(error)),
        Ok(_) => unreachable!("a sync is answered as one"),
        Err(code) => refused(code),
    }
}
