//! DescribeGroups (15), versions 0 to 6.
//!
//! - A group that isn't there is "Dead" without an error up to version 5, and GROUP_ID_NOT_FOUND
//!   from 6 on.
//! - What members have is shown of stable groups only.
//! - A group that is named again is described once. Kafka: as often as it is named.

use kafka_protocol::messages::describe_groups_request::DescribeGroupsRequest;
use kafka_protocol::messages::describe_groups_response::{
    DescribeGroupsResponse, DescribedGroup, DescribedGroupMember,
};

use crate::broker::api::groups::ask_named;
use crate::broker::api::{AUTHORIZED_OPERATIONS_NONE, GROUP_OPERATIONS, once, operations, text};
use crate::broker::node::Node;
use crate::coordinator::group::answer;
use crate::coordinator::group::{Answer, Request};
use crate::wire::error::ErrorCode;

/// First version with an error for groups that are not there.
const NOT_FOUND_FROM: i16 = 6;

/// Kafka's word for the state of a group that isn't there.
const DEAD: &str = "Dead";

/// Answers a request.
pub async fn answer(
    node: &Node,
    request: DescribeGroupsRequest,
    version: i16,
) -> DescribeGroupsResponse {
    let mut groups = Vec::new();
    for group in once(request.groups) {
        let name = group.0.to_string();
        let described = DescribedGroup::default()
            .with_group_id(group)
            .with_authorized_operations(AUTHORIZED_OPERATIONS_NONE);
        groups.push(match ask_named(node, &name, Request::Describe(name.clone())).await {
            Ok(Answer::Describe(Some(found))) => {
                let asked = request.include_authorized_operations;
                describe(described, found)
                    .with_authorized_operations(operations(asked, GROUP_OPERATIONS))
            }
            Ok(Answer::Describe(None)) => {
                let asked = request.include_authorized_operations && version < NOT_FOUND_FROM;
                missing(described, &name, version)
                    .with_authorized_operations(operations(asked, GROUP_OPERATIONS))
            }
            Ok(_) => unreachable!("a description is answered as one"),
            Err(code) => described.with_error_code(code.to_wire()),
        });
    }
    DescribeGroupsResponse::default().with_groups(groups)
}

fn missing(described: DescribedGroup, name: &str, version: i16) -> DescribedGroup {
    let described = described.with_group_state(text(DEAD));
    if version < NOT_FOUND_FROM {
        return described;
    }
    described
        .with_error_code(ErrorCode::GroupIdNotFound.to_wire())
        .with_error_message(Some(text(&format!("Group {name} not found."))))
}

fn describe(described: DescribedGroup, group: answer::DescribedGroup) -> DescribedGroup {
    let members = group.members.into_iter().map(|member| {
        DescribedGroupMember::default()
            .with_member_id(text(&member.id))
            .with_group_instance_id(member.instance.as_deref().map(text))
            .with_client_id(text(&member.client_id))
            .with_client_host(text(&member.client_host))
            .with_member_metadata(member.metadata)
            .with_member_assignment(member.assignment)
    });
    described
        .with_group_state(text(group.state))
        .with_protocol_type(text(&group.protocol_type))
        .with_protocol_data(text(&group.protocol))
        .with_members(members.collect())
}
