//! DescribeAcls (29), versions 1 to 3: there is no authorizer (error 54).

use kafka_protocol::messages::describe_acls_response::DescribeAclsResponse;

use crate::broker::api::text;
use crate::wire::error::ErrorCode;

/// Kafka's words for it.
pub(super) const NO_AUTHORIZER: &str = "No Authorizer is configured.";

/// Answers a request, whatever it asks for.
pub fn answer() -> DescribeAclsResponse {
    DescribeAclsResponse::default()
        .with_error_code(ErrorCode::SecurityDisabled.to_wire())
        .with_error_message(Some(text("No Authorizer is configured on the broker")))
}
