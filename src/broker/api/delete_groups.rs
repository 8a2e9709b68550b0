//! DeleteGroups (42), versions 0 to 2: groups without members, with all their offsets.

use kafka_protocol::messages::delete_groups_request::DeleteGroupsRequest;
use kafka_protocol::messages::delete_groups_response::{
    DeletableGroupResult, DeleteGroupsResponse,
};

use crate::broker::api::groups::{ask, wire};
use crate::broker::node::Node;
use crate::coordinator::group::{Answer, Request};

/// Answers a request.
pub async fn answer(node: &Node, request: DeleteGroupsRequest) -> DeleteGroupsResponse {
    let mut results = Vec::with_capacity(request.groups_names.len());
    for group in request.groups_names {
        let name = group.0.to_string();
        let error = match ask(node, &name, Request::Delete(name.clone())).await {
            Ok(Answer::Delete(outcome)) => wire(outcome),
            Ok(_) => unreachable!("a deletion is answered as one"),
            Err(code) => code.to_wire(),
        };
        results.push(DeletableGroupResult::default().with_group_id(group).with_error_code(error));
    }
    DeleteGroupsResponse::default().with_results(results)
}
