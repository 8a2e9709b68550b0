//! InitProducerId (22), versions 0 to 5.
//!
//! - Without a transactional id every call gives a new producer id with epoch 0, whatever id and
//!   epoch the client names from version 3 on; one of the two without the other is error 42.
//! - With one it is refused for now, see [`find_coordinator`](super::find_coordinator).
//! - Ids come from blocks that the controller has written to the metadata log before anybody uses
//!   them, so that none is ever given twice.

use kafka_protocol::messages::init_producer_id_request::InitProducerIdRequest;
use kafka_protocol::messages::init_producer_id_response::InitProducerIdResponse;

use crate::broker::api::find_coordinator::NO_TRANSACTIONS;
use crate::broker::errors::Refusal;
use crate::broker::node::Node;
use crate::units::ProducerId;
use crate::wire::error::ErrorCode;

/// Answers a request.
pub async fn answer(node: &Node, request: InitProducerIdRequest) -> InitProducerIdResponse {
    node.served().await;
    let given = match check(&request) {
        Ok(()) => node.new_producer_id().await,
        Err(refusal) => Err(refusal),
    };
    match given {
        Ok(ProducerId(id)) => {
            InitProducerIdResponse::default().with_producer_id(id.into()).with_producer_epoch(0)
        }
        Err(refusal) => {
            node.complain(|| format!("InitProducerId: {refusal}"));
            InitProducerIdResponse::default()
                .with_error_code(refusal.code.to_wire())
                .with_producer_id((-1).into())
                .with_producer_epoch(-1)
        }
    }
}

fn check(request: &InitProducerIdRequest) -> Result<(), Refusal> {
    if request.transactional_id.is_some() {
        let code = ErrorCode::TransactionalIdAuthorizationFailed;
        return Err(Refusal::new(code, NO_TRANSACTIONS));
    }
    if (request.producer_id.0 < 0) != (request.producer_epoch < 0) {
        let message = "a producer names both its id and its epoch, or neither";
        return Err(Refusal::new(ErrorCode::InvalidRequest, message));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use kafka_protocol::messages::TransactionalId;

    use crate::broker::api::text;

    fn code(request: InitProducerIdRequest) -> Option<ErrorCode> {
        check(&request).err().map(|refusal| refusal.code)
    }

    #[test]
    fn id_and_epoch_come_together_and_transactions_are_refused() {
        let request = InitProducerIdRequest::default()
            .with_transactional_id(None)
            .with_producer_id((-1).into())
            .with_producer_epoch(-1);
        assert_eq!(code(request.clone()), None);
        assert_eq!(code(request.clone().with_producer_epoch(0)), Some(ErrorCode::InvalidRequest));
        assert_eq!(
            code(request.with_transactional_id(Some(TransactionalId(text("t"))))),
            Some(ErrorCode::TransactionalIdAuthorizationFailed)
        );
    }
}
