//! The internal topics that coordinators keep their state in.

use std::sync::Arc;

use crate::broker::config::InternalTopicConfig;
use crate::broker::errors::Refusal;
use crate::broker::image::{Overrides, Topic};
use crate::broker::mail::NewTopic;
use crate::broker::node::Node;
use crate::format::names::TopicName;
use crate::wire::error::ErrorCode;

/// What is coordinated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Consumer groups.
    Groups,
    /// Transactions.
    Transactions,
}

impl Kind {
    /// Name of the topic that has the records.
    pub fn topic_name(self) -> &'static str {
        match self {
            Kind::Groups => "__consumer_offsets",
            Kind::Transactions => "__transaction_state",
        }
    }

    fn config(self, node: &Node) -> InternalTopicConfig {
        let config = &node.shared.config.coordinators;
        match self {
            Kind::Groups => config.offsets_topic,
            Kind::Transactions => config.transaction_topic,
        }
    }

    /// What Kafka sets for the topic when it makes it
    /// (`GroupCoordinatorService#groupMetadataTopicConfigs`,
    /// `TransactionStateManager#transactionTopicConfigs`).
    fn overrides(self, config: InternalTopicConfig) -> Overrides {
        let segment_bytes = config.segment_bytes.to_string();
        let fixed: &[(&str, &str)] = match self {
            Kind::Groups => &[("cleanup.policy", "compact"), ("compression.type", "producer")],
            Kind::Transactions => &[
                ("cleanup.policy", "compact"),
                ("compression.type", "uncompressed"),
                ("min.insync.replicas", "1"),
                ("unclean.leader.election.enable", "false"),
            ],
        };
        let fixed = fixed.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        fixed.chain([("segment.bytes".to_owned(), segment_bytes)]).collect()
    }
}

/// The topic as it is; `None` before somebody needed it.
pub fn get(node: &Node, kind: Kind) -> Option<Arc<Topic>> {
    node.image().topic(kind.topic_name()).cloned()
}

/// The topic, made if it isn't there.
///
/// # Errors
/// COORDINATOR_NOT_AVAILABLE when it can't be made; the reason is for the log, and the next
/// request tries again.
pub async fn get_or_make(node: &Node, kind: Kind) -> Result<Arc<Topic>, Refusal> {
    if let Some(topic) = get(node, kind) {
        return Ok(topic);
    }
    let config = kind.config(node);
    let name = TopicName::new(kind.topic_name()).expect("a legal name");
    let overrides = kind.overrides(config);
    let new = NewTopic { name, partitions: config.partitions, overrides, first_shard: None };
    let made = node.create_topics(vec![new]).await.pop().expect("every topic is answered");
    match (made, get(node, kind)) {
        // Somebody else may have been faster.
        (Ok(topic), _) | (Err(_), Some(topic)) => Ok(topic),
        (Err(refusal), None) => {
            let message = format!("{} can't be made: {}", kind.topic_name(), refusal.message);
            Err(Refusal::new(ErrorCode::CoordinatorNotAvailable, message))
        }
    }
}
