//! DeleteTopics (20), versions 1 to 6: by name, and by name or id from version 6 on.
//!
//! The answer leaves when the topic is gone from the metadata log and its directories have their
//! `-delete` names; the files follow after `file.delete.delay.ms`.

use kafka_protocol::messages::delete_topics_request::{DeleteTopicState, DeleteTopicsRequest};
use kafka_protocol::messages::delete_topics_response::{
    DeletableTopicResult, DeleteTopicsResponse,
};
use uuid::Uuid;

use crate::broker::api::{text, topic_name};
use crate::broker::errors::Refusal;
use crate::broker::image::{Image, Topic};
use crate::broker::node::Node;
use crate::units::TopicId;
use crate::wire::error::ErrorCode;

/// First version that names topics by id too.
const STATES_FROM: i16 = 6;

/// Answers a request.
pub async fn answer(
    node: &Node,
    request: DeleteTopicsRequest,
    version: i16,
) -> DeleteTopicsResponse {
    node.served().await;
    let wanted = wanted(request, version);
    let image = node.image();
    let mut found: Vec<_> = wanted.iter().map(|state| find(&image, state)).collect();
    refuse_repeated(&mut found);
    let ids = found.iter().filter_map(|found| found.as_ref().ok()).map(|topic| topic.id);
    let mut outcomes = node.delete_topics(ids.collect()).await.into_iter();
    let results = wanted.into_iter().zip(found).map(|(state, found)| {
        let (result, outcome) = match found {
            Ok(topic) => {
                let outcome = outcomes.next().expect("every topic is answered");
                let result = DeletableTopicResult::default()
                    .with_name(Some(topic_name(&topic.name)))
                    .with_topic_id(Uuid::from_bytes(topic.id.0));
                (result, outcome)
            }
            Err(refusal) => {
                let result = DeletableTopicResult::default()
                    .with_name(state.name)
                    .with_topic_id(state.topic_id);
                (result, Err(refusal))
            }
        };
        match outcome {
            Ok(()) => result,
            Err(refusal) => result
                .with_error_code(refusal.code.to_wire())
                .with_error_message(Some(text(&refusal.message))),
        }
    });
    DeleteTopicsResponse::default().with_responses(results.collect())
}

/// The topics of a request, as version 6 names them.
fn wanted(request: DeleteTopicsRequest, version: i16) -> Vec<DeleteTopicState> {
    if version >= STATES_FROM {
        return request.topics;
    }
    let by_name = |name| DeleteTopicState::default().with_name(Some(name));
    request.topic_names.into_iter().map(by_name).collect()
}

fn find(image: &Image, state: &DeleteTopicState) -> Wanted {
    let id = TopicId(state.topic_id.into_bytes());
    match (&state.name, id == TopicId::ZERO) {
        (Some(name), true) => image.topic(name.as_str()).cloned().ok_or_else(|| {
            Refusal::new(ErrorCode::UnknownTopicOrPartition, "there is no topic of this name")
        }),
        (None, false) => image.topic_by_id(id).cloned().ok_or_else(|| {
            Refusal::new(ErrorCode::UnknownTopicId, "there is no topic with this id")
        }),
        (Some(_), false) | (None, true) => Err(Refusal::new(
            ErrorCode::InvalidRequest,
            "a topic is named by its name or by its id, one of the two",
        )),
    }
}

type Wanted = Result<std::sync::Arc<Topic>, Refusal>;

/// A topic that a request names more than once is not deleted, as in Kafka.
fn refuse_repeated(found: &mut [Wanted]) {
    let mut times = std::collections::HashMap::new();
    for topic in found.iter().flatten() {
        *times.entry(topic.id).or_insert(0) += 1;
    }
    for wanted in found {
        if wanted.as_ref().is_ok_and(|topic| 1 < times[&topic.id]) {
            *wanted = Err(Refusal::new(
                ErrorCode::InvalidRequest,
                "the request names the topic more than once",
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::image::Overrides;
    use crate::format::names::TopicName;

    fn topic(id: u8) -> Wanted {
        Ok(std::sync::Arc::new(Topic {
            name: TopicName::new("topic").expect("a legal name"),
            id: TopicId([id; 16]),
            leader_epochs: Vec::new(),
            overrides: Overrides::new(),
        }))
    }

    #[test]
    fn a_topic_that_is_named_twice_is_refused_both_times() {
        let mut found = [topic(1), topic(2), topic(1)];
        refuse_repeated(&mut found);
        let codes = found.map(|wanted| wanted.map(|topic| topic.id).map_err(|it| it.code));
        let refused = Err(ErrorCode::InvalidRequest);
        assert_eq!(codes, [refused, Ok(TopicId([2; 16])), refused]);
    }
}
