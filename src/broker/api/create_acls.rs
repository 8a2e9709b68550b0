//! CreateAcls (30), versions 1 to 3: there is no authorizer (error 54 for each).

use kafka_protocol::messages::create_acls_request::CreateAclsRequest;
use kafka_protocol::messages::create_acls_response::{AclCreationResult, CreateAclsResponse};

use crate::broker::api::describe_acls::NO_AUTHORIZER;
use crate::broker::api::text;
use crate::wire::error::ErrorCode;

/// Answers a request.
pub fn answer(request: &CreateAclsRequest) -> CreateAclsResponse {
    let refused = AclCreationResult::default()
        .with_error_code(ErrorCode::SecurityDisabled.to_wire())
        .with_error_message(Some(text(NO_AUTHORIZER)));
    CreateAclsResponse::default().with_results(vec![refused; request.creations.len()])
}
