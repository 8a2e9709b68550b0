//! EndTxn (26), versions 0 to 5: commit or abort.
//!
//! - The answer leaves when the decision is durable; the markers follow.
//! - Version 5 speaks transaction version 2: every end raises the producer's epoch, and the answer
//!   says what the producer is from here on.
//! - PRODUCER_FENCED from version 2 on, INVALID_PRODUCER_EPOCH before.

use kafka_protocol::messages::end_txn_request::EndTxnRequest;
use kafka_protocol::messages::end_txn_response::EndTxnResponse;

use crate::broker::api::transactions::{fenced_as, producer, refusal};
use crate::broker::errors::Refusal;
use crate::broker::node::Node;
use crate::coordinator::transactions::{Answer, End, Producer, Request, TransactionVersion};
use crate::wire::error::ErrorCode;

/// First version that speaks transaction version 2.
const RAISES_FROM: i16 = 5;

/// First version whose clients know PRODUCER_FENCED.
const FENCED_FROM: i16 = 2;

/// Answers a request.
pub async fn answer(node: &Node, request: EndTxnRequest, version: i16) -> EndTxnResponse {
    node.served().await;
    match end(node, &request, version).await {
        Ok(Producer { id, epoch }) => {
            EndTxnResponse::default().with_producer_id(id.0.into()).with_producer_epoch(epoch.0)
        }
        Err(refusal) => {
            let id = request.transactional_id.0.as_str();
            if refusal.code != ErrorCode::ConcurrentTransactions {
                node.complain(|| format!("EndTxn for {id:?}: {refusal}"));
            }
            let code = fenced_as(refusal.code, version >= FENCED_FROM);
            EndTxnResponse::default().with_error_code(code.to_wire())
        }
    }
}

async fn end(node: &Node, request: &EndTxnRequest, version: i16) -> Result<Producer, Refusal> {
    let id = request.transactional_id.0.as_str();
    let end = End {
        id: id.into(),
        producer: producer(request.producer_id.0, request.producer_epoch),
        commits: request.committed,
        version: match version {
            ..RAISES_FROM => TransactionVersion::Zero,
            RAISES_FROM.. => TransactionVersion::Two,
        },
    };
    let asked = |fresh| Request::End { request: end.clone(), fresh };
    match node.ask_with_producer_id(id, asked).await? {
        Answer::Producer(producer) => Ok(producer),
        Answer::Refused(refused) => Err(refusal(&refused)),
        other => unreachable!("no answer to this question: {other:?}"),
    }
}
