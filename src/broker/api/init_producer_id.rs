//! InitProducerId (22), versions 0 to 5.
//!
//! - Without a transactional id every call gives a new producer id with epoch 0, whatever id and
//!   epoch the client names from version 3 on; one of the two without the other is error 42.
//! - With one the coordinator of that id answers: who has it from here on. A transaction that is
//!   still open is aborted first, and the client is told CONCURRENT_TRANSACTIONS meanwhile.
//! - A producer that is shut out hears PRODUCER_FENCED from version 4 on, INVALID_PRODUCER_EPOCH
//!   before.
//! - Ids come from blocks that the controller has written to the metadata log before anybody uses
//!   them, so that none is ever given twice.

use kafka_protocol::messages::init_producer_id_request::InitProducerIdRequest;
use kafka_protocol::messages::init_producer_id_response::InitProducerIdResponse;

use crate::broker::api::transactions::{fenced_as, refusal};
use crate::broker::errors::Refusal;
use crate::broker::node::Node;
use crate::coordinator::transactions::{Answer, Init, Producer, Request};
use crate::units::{ProducerEpoch, ProducerId};
use crate::wire::error::ErrorCode;

/// First version whose clients know PRODUCER_FENCED.
const FENCED_FROM: i16 = 4;

/// Answers a request.
pub async fn answer(
    node: &Node,
    request: InitProducerIdRequest,
    version: i16,
) -> InitProducerIdResponse {
    node.served().await;
    match given(node, &request).await {
        Ok(Producer { id, epoch }) => InitProducerIdResponse::default()
            .with_producer_id(id.0.into())
            .with_producer_epoch(epoch.0),
        Err(refusal) => {
            if refusal.code != ErrorCode::ConcurrentTransactions {
                node.complain(|| format!("InitProducerId: {refusal}"));
            }
            let code = fenced_as(refusal.code, version >= FENCED_FROM);
            InitProducerIdResponse::default()
                .with_error_code(code.to_wire())
                .with_producer_id((-1).into())
                .with_producer_epoch(-1)
        }
    }
}

async fn given(node: &Node, request: &InitProducerIdRequest) -> Result<Producer, Refusal> {
    let expected = expected(request)?;
    let Some(id) = &request.transactional_id else {
        let id = node.new_producer_id().await?;
        return Ok(Producer { id, epoch: ProducerEpoch(0) });
    };
    let init =
        Init { id: id.as_str().into(), timeout_ms: request.transaction_timeout_ms, expected };
    let asked = |fresh| Request::Init { request: init.clone(), fresh };
    match node.ask_with_producer_id(id.as_str(), asked).await? {
        Answer::Producer(producer) => Ok(producer),
        Answer::Refused(refused) => Err(refusal(&refused)),
        other => unreachable!("no answer to this question: {other:?}"),
    }
}

/// Who the client says that it is.
fn expected(request: &InitProducerIdRequest) -> Result<Option<Producer>, Refusal> {
    let (id, epoch) = (request.producer_id.0, request.producer_epoch);
    match (id, epoch) {
        (-1, -1) => Ok(None),
        (-1, _) | (_, -1) => {
            let message = "a producer names both its id and its epoch, or neither";
            Err(Refusal::new(ErrorCode::InvalidRequest, message))
        }
        _ => Ok(Some(Producer { id: ProducerId(id), epoch: ProducerEpoch(epoch) })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_and_epoch_come_together() {
        let named = |id: i64, epoch| {
            let request = InitProducerIdRequest::default()
                .with_transactional_id(None)
                .with_producer_id(id.into())
                .with_producer_epoch(epoch);
            expected(&request).map_err(|refusal| refusal.code)
        };
        assert_eq!(named(-1, -1), Ok(None));
        assert_eq!(named(-1, 0), Err(ErrorCode::InvalidRequest));
        assert_eq!(named(7, -1), Err(ErrorCode::InvalidRequest));
        let producer = Producer { id: ProducerId(7), epoch: ProducerEpoch(3) };
        assert_eq!(named(7, 3), Ok(Some(producer)));
    }
}
