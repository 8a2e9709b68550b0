//! ListTransactions (66), versions 0 to 2: the transactional ids that this shard coordinates.
//!
//! - States that nobody knows are named in the answer.
//! - Only transactions that have been open for longer than `duration_filter` (version 1 on).
//! - Only ids that a pattern matches as a whole (version 2 on); a pattern that is none is
//!   INVALID_REGULAR_EXPRESSION. Ours are of the crate `regex`, which knows what RE2 knows.

use std::collections::BTreeSet;

use kafka_protocol::messages::TransactionalId;
use kafka_protocol::messages::list_transactions_request::ListTransactionsRequest;
use kafka_protocol::messages::list_transactions_response::{
    ListTransactionsResponse, TransactionState,
};
use regex::{Regex, RegexBuilder};

use crate::broker::api::text;
use crate::broker::node::Node;
use crate::coordinator::transactions::{Answer, Filter, Listed, Request, State};
use crate::units::ProducerId;
use crate::wire::StrBytes;
use crate::wire::error::ErrorCode;

/// Largest compiled pattern, in bytes: a client's pattern may not take more.
const PATTERN_BYTES_MAX: usize = 1 << 20;

/// Answers a request.
pub async fn answer(node: &Node, request: ListTransactionsRequest) -> ListTransactionsResponse {
    node.served().await;
    let pattern = match pattern(request.transactional_id_pattern.as_deref()) {
        Ok(pattern) => pattern,
        Err(code) => return ListTransactionsResponse::default().with_error_code(code.to_wire()),
    };
    let (filter, unknown) = filter(&request);
    let ask = || Request::List(filter.clone());
    let answers = match node.coordinators.transactions.ask_all(ask).await {
        Ok(answers) => answers,
        Err(code) => return ListTransactionsResponse::default().with_error_code(code.to_wire()),
    };
    let listed = answers.into_iter().flat_map(|answer| match answer {
        Answer::Listed(listed) => listed,
        other => unreachable!("no answer to this question: {other:?}"),
    });
    let matches = |it: &Listed| pattern.as_ref().is_none_or(|pattern| pattern.is_match(&it.id));
    ListTransactionsResponse::default()
        .with_unknown_state_filters(unknown)
        .with_transaction_states(listed.filter(matches).map(|it| state(&it)).collect())
}

fn state(it: &Listed) -> TransactionState {
    TransactionState::default()
        .with_transactional_id(TransactionalId(text(&it.id)))
        .with_producer_id(it.producer_id.0.into())
        .with_transaction_state(text(it.state.name()))
}

fn filter(request: &ListTransactionsRequest) -> (Filter, Vec<StrBytes>) {
    let (mut states, mut unknown) = (BTreeSet::new(), Vec::new());
    for name in &request.state_filters {
        match State::ALL.into_iter().find(|state| state.name() == name.as_str()) {
            Some(state) => drop(states.insert(state)),
            None => unknown.push(name.clone()),
        }
    }
    let filter = Filter {
        producer_ids: request.producer_id_filters.iter().map(|id| ProducerId(id.0)).collect(),
        states: (!request.state_filters.is_empty()).then_some(states),
        duration_ms: request.duration_filter,
    };
    (filter, unknown)
}

fn pattern(text: Option<&str>) -> Result<Option<Regex>, ErrorCode> {
    let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(None) };
    let whole = format!("^(?:{text})$");
    let pattern = RegexBuilder::new(&whole).size_limit(PATTERN_BYTES_MAX).build();
    pattern.map(Some).map_err(|_| ErrorCode::InvalidRegularExpression)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_the_whole_id() {
        let matches = |text, id: &str| {
            pattern(Some(text)).map(|it| it.is_none_or(|pattern| pattern.is_match(id)))
        };
        assert_eq!(matches("a|b", "a"), Ok(true));
        assert_eq!(matches("a|b", "ab"), Ok(false));
        assert_eq!(matches("a.*", "abc"), Ok(true));
        assert_eq!(matches("", "abc"), Ok(true));
        assert_eq!(matches("(", "abc"), Err(ErrorCode::InvalidRegularExpression));
        assert_eq!(matches("a{1000}{1000}", "a"), Err(ErrorCode::InvalidRegularExpression));
    }

    #[test]
    fn states_that_nobody_knows_are_named() {
        let request = ListTransactionsRequest::default()
            .with_state_filters(vec![text("Ongoing"), text("Lost")]);
        let (found, unknown) = filter(&request);
        assert_eq!(found.states, Some([State::Ongoing].into()));
        assert_eq!(unknown, [text("Lost")]);
        let (found, _) = filter(&ListTransactionsRequest::default());
        assert_eq!(found.states, None);
    }
}
