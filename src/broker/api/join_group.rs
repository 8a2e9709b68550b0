//! JoinGroup (11), versions 0 to 9.
//!
//! - The answer waits until all members have joined, or the time to do so is over.
//! - From version 4 on a member without an id gets one, with MEMBER_ID_REQUIRED, and joins again
//!   with it; static members (version 5 on) don't.
//! - In version 0 the session timeout is the rebalance timeout, too.
//! - From version 9 on a leader can be told to keep the assignments that there are.

use kafka_protocol::messages::join_group_request::JoinGroupRequest;
use kafka_protocol::messages::join_group_response::{JoinGroupResponse, JoinGroupResponseMember};

use crate::broker::api::groups::{ask_named, code, kept, own};
use crate::broker::api::text;
use crate::broker::node::Node;
use crate::coordinator::group::answer::Joined;
use crate::coordinator::group::request::{Client, Join};
use crate::coordinator::group::{Answer, Request};
use crate::wire::error::ErrorCode;

/// First version whose members need an id before they join.
const IDS_FROM: i16 = 4;
/// First version that knows leaders which need not assign.
const SKIP_FROM: i16 = 9;

/// Answers a request.
pub async fn answer(
    node: &Node,
    request: JoinGroupRequest,
    (version, client): (i16, Client),
) -> JoinGroupResponse {
    let member = request.member_id.clone();
    let join = join(request, version, client);
    let group = join.group.clone();
    match ask_named(node, &group, Request::Join(join)).await {
        Ok(Answer::Join(joined)) => describe(joined),
        Ok(_) => unreachable!("a join is answered as one"),
        Err(code) => refused(code).with_member_id(member),
    }
}

fn join(request: JoinGroupRequest, version: i16, client: Client) -> Join {
    let instance = kept(request.group_instance_id);
    let random = uuid::Uuid::from_bytes(crate::units::TopicId::random().0);
    let fresh_id = format!("{}-{random}", instance.as_ref().unwrap_or(&client.id));
    let protocols = request.protocols.into_iter();
    Join {
        group: request.group_id.0.to_string(),
        member: request.member_id.to_string(),
        instance,
        client,
        fresh_id,
        needs_id: version >= IDS_FROM,
        can_skip_assignment: version >= SKIP_FROM,
        protocol_type: request.protocol_type.to_string(),
        protocols: protocols.map(|it| (it.name.to_string(), own(&it.metadata))).collect(),
        session_timeout_ms: request.session_timeout_ms,
        rebalance_timeout_ms: match version {
            0 => request.session_timeout_ms,
            _ => request.rebalance_timeout_ms,
        },
    }
}

fn refused(code: ErrorCode) -> JoinGroupResponse {
    JoinGroupResponse::default()
        .with_error_code(code.to_wire())
        .with_generation_id(-1)
        .with_protocol_name(None)
}

fn describe(joined: Joined) -> JoinGroupResponse {
    let members = joined.members.into_iter().map(|member| {
        JoinGroupResponseMember::default()
            .with_member_id(text(&member.id))
            .with_group_instance_id(member.instance.as_deref().map(text))
            .with_metadata(member.metadata)
    });
    JoinGroupResponse::default()
        .with_error_code(joined.error.map_or(ErrorCode::None, code).to_wire())
        .with_generation_id(joined.generation)
        .with_protocol_type(joined.protocol_type.as_deref().map(text))
        .with_protocol_name(joined.protocol.as_deref().map(text))
        .with_leader(text(&joined.leader))
        .with_skip_assignment(joined.skip_assignment)
        .with_member_id(text(&joined.member))
        .with_members(members.collect())
}
