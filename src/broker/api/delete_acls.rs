//! DeleteAcls (31), versions 1 to 3: there is no authorizer (error 54 for each filter).

use kafka_protocol::messages::delete_acls_request::DeleteAclsRequest;
use kafka_protocol::messages::delete_acls_response::{DeleteAclsFilterResult, DeleteAclsResponse};

use crate::broker::api::describe_acls::NO_AUTHORIZER;
use crate::broker::api::text;
use crate::wire::error::ErrorCode;

/// Answers a request.
pub fn answer(request: &DeleteAclsRequest) -> DeleteAclsResponse {
    let refused = DeleteAclsFilterResult::default()
        .with_error_code(ErrorCode::SecurityDisabled.to_wire())
        .with_error_message(Some(text(NO_AUTHORIZER)));
    DeleteAclsResponse::default().with_filter_results(vec![refused; request.filters.len()])
}
