//! UnregisterBroker (64), version 0. All brokers here are shards of this process and alive, so that
//! none of them can be forgotten; of others nothing is known (error 102).

use kafka_protocol::messages::unregister_broker_request::UnregisterBrokerRequest;
use kafka_protocol::messages::unregister_broker_response::UnregisterBrokerResponse;

use crate::broker::api::text;
use crate::broker::node::Shared;
use crate::wire::error::ErrorCode;

/// Answers a request.
pub fn answer(shared: &Shared, request: &UnregisterBrokerRequest) -> UnregisterBrokerResponse {
    let id = request.broker_id.0;
    let is_ours = shared.brokers.iter().any(|(known, _, _)| known.0 == id);
    let (error, message) = if is_ours {
        let message = format!("Broker ID {id} is running, as a shard of the only broker");
        (ErrorCode::InvalidRequest, message)
    } else {
        let message = format!("Broker ID {id} is not currently registered");
        (ErrorCode::BrokerIdNotRegistered, message)
    };
    UnregisterBrokerResponse::default()
        .with_error_code(error.to_wire())
        .with_error_message(Some(text(&message)))
}
