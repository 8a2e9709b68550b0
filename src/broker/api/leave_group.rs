//! LeaveGroup (13), versions 0 to 5.
//!
//! - Up to version 2 one member leaves, and its error is the answer's. From 3 on many may, each
//!   with its own; a static member may be named by its instance id alone.

use kafka_protocol::messages::leave_group_request::{LeaveGroupRequest, MemberIdentity};
use kafka_protocol::messages::leave_group_response::{LeaveGroupResponse, MemberResponse};

use crate::broker::api::groups::{ask_named, kept, wire};
use crate::broker::node::Node;
use crate::coordinator::group::request::Leave;
use crate::coordinator::group::{Answer, Request};

/// First version with a list of members.
const MEMBERS_FROM: i16 = 3;

/// Answers a request.
pub async fn answer(node: &Node, request: LeaveGroupRequest, version: i16) -> LeaveGroupResponse {
    let group = request.group_id.0.to_string();
    let members = match version {
        MEMBERS_FROM.. => request.members,
        _ => vec![MemberIdentity::default().with_member_id(request.member_id)],
    };
    let names = members.iter();
    let names = names.map(|it| (it.member_id.to_string(), kept(it.group_instance_id.clone())));
    let leave = Leave { group: group.clone(), members: names.collect() };
    match ask_named(node, &group, Request::Leave(leave)).await {
        Ok(Answer::Leave(outcomes)) => {
            let members = members.into_iter().zip(outcomes).map(|(member, outcome)| {
                MemberResponse::default()
                    .with_member_id(member.member_id)
                    .with_group_instance_id(member.group_instance_id)
                    .with_error_code(wire(outcome))
            });
            LeaveGroupResponse::default().with_members(members.collect())
        }
        Ok(_) => unreachable!("a leave is answered as one"),
        Err(code) => LeaveGroupResponse::default().with_error_code(code.to_wire()),
    }
}
