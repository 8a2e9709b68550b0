//! SaslHandshake (17), versions 0 and 1: the listener is a plain one, so SASL has no place here
//! (error 34), as a stock broker answers.

use kafka_protocol::messages::sasl_handshake_response::SaslHandshakeResponse;

use crate::wire::error::ErrorCode;

/// Answers a request, whatever mechanism it names.
pub fn answer() -> SaslHandshakeResponse {
    SaslHandshakeResponse::default().with_error_code(ErrorCode::IllegalSaslState.to_wire())
}
