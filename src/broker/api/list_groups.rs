//! ListGroups (16), versions 0 to 5: the groups that this shard coordinates.
//!
//! - By state from version 4 on and by type from 5 on, both without regard to case. A state or a
//!   type that doesn't exist matches nothing.

use kafka_protocol::messages::GroupId;
use kafka_protocol::messages::list_groups_request::ListGroupsRequest;
use kafka_protocol::messages::list_groups_response::{self, ListGroupsResponse};

use crate::broker::api::text;
use crate::broker::node::Node;
use crate::coordinator::group::answer::ListedGroup;
use crate::coordinator::group::{Answer, Request};
use crate::wire::StrBytes;

/// Answers a request.
pub async fn answer(node: &Node, request: ListGroupsRequest) -> ListGroupsResponse {
    node.served().await;
    let answers = match node.coordinators.groups.ask_all(|| Request::List).await {
        Ok(answers) => answers,
        Err(code) => return ListGroupsResponse::default().with_error_code(code.to_wire()),
    };
    let listed = answers.into_iter().flat_map(|answer| match answer {
        Answer::List(listed) => listed,
        _ => unreachable!("a list is answered as one"),
    });
    let is_wanted = |group: &ListedGroup| {
        matches(&request.states_filter, group.state)
            && matches(&request.types_filter, group.kind.name())
    };
    let groups = listed.filter(is_wanted).map(|group| {
        list_groups_response::ListedGroup::default()
            .with_group_id(GroupId(text(&group.group)))
            .with_protocol_type(text(&group.protocol_type))
            .with_group_state(text(group.state))
            .with_group_type(text(group.kind.name()))
    });
    ListGroupsResponse::default().with_groups(groups.collect())
}

fn matches(filter: &[StrBytes], word: &str) -> bool {
    filter.is_empty() || filter.iter().any(|it| it.trim().eq_ignore_ascii_case(word))
}
