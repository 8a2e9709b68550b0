//! SaslAuthenticate (36), versions 0 to 2: as SaslHandshake.

use kafka_protocol::messages::sasl_authenticate_response::SaslAuthenticateResponse;

use crate::broker::api::text;
use crate::wire::error::ErrorCode;

/// Kafka's words, which count every client of a plain listener as authenticated.
const MESSAGE: &str = "SaslAuthenticate request received after successful authentication";

/// Answers a request, whatever it proves.
pub fn answer() -> SaslAuthenticateResponse {
    SaslAuthenticateResponse::default()
        .with_error_code(ErrorCode::IllegalSaslState.to_wire())
        .with_error_message(Some(text(MESSAGE)))
}
