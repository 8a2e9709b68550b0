//! Offsets of many partitions at once: one request for each leader.

use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::{BrokerId, ListOffsetsRequest, TopicName};

use super::cluster::Client;
use super::cluster_admin::FoundOffset;
use super::connection::Connection;
use super::error::ClientError;
use super::groups::{TopicPartition, text};

/// What a consumer sends for its replica id.
const CONSUMER: BrokerId = BrokerId(-1);
/// What Kafka calls a debugging consumer: it is shown what lies behind the high watermark too.
const DEBUGGING: BrokerId = BrokerId(-2);

/// Who asks for an offset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asker {
    /// A consumer: what isn't below the high watermark isn't there.
    Consumer,
    /// A consumer of whole transactions: what isn't below the last stable offset isn't there.
    Committed,
    /// Someone who looks for the log end offset. A broker that doesn't know this kind of asker
    /// answers as for a consumer.
    Debugger,
}

/// What was found for one partition.
pub type Lookup = (TopicPartition, Result<FoundOffset, ClientError>);

impl Client {
    /// The first offset at or after `target` (milliseconds, or one of
    /// [`timestamp`](super::timestamp)'s) in each of the partitions. The partitions of one topic
    /// should stand together; the answers come in their order.
    ///
    /// # Errors
    /// [`ClientError`] when a leader can't be asked; that a partition has an error stands in its
    /// place of the list.
    pub async fn lookup_offsets(
        &self,
        wanted: &[TopicPartition],
        target: i64,
        asker: Asker,
    ) -> Result<Vec<Lookup>, ClientError> {
        let what = "looking for offsets".to_owned();
        self.retried(what, move || self.try_lookup_offsets(wanted, target, asker)).await
    }

    async fn try_lookup_offsets(
        &self,
        wanted: &[TopicPartition],
        target: i64,
        asker: Asker,
    ) -> Result<Vec<Lookup>, ClientError> {
        let mut leaders: Vec<(Connection, Vec<TopicPartition>)> = Vec::new();
        for one in wanted {
            let connection = self.leader(&one.topic, one.partition).await?;
            let own = leaders.iter_mut().find(|(it, _)| it.address() == connection.address());
            match own {
                Some((_, list)) => list.push(one.clone()),
                None => leaders.push((connection, vec![one.clone()])),
            }
        }
        let mut found = Vec::new();
        for (connection, own) in &leaders {
            found.extend(lookup_at(connection, own, (target, asker)).await?);
        }
        let place = |at: &TopicPartition| wanted.iter().position(|one| one == at);
        found.sort_by_key(|(at, _)| place(at));
        Ok(found)
    }
}

async fn lookup_at(
    connection: &Connection,
    wanted: &[TopicPartition],
    (target, asker): (i64, Asker),
) -> Result<Vec<Lookup>, ClientError> {
    let request = request(wanted, target, asker);
    let answer = connection.call(&request).await?;
    let mut found = Vec::new();
    for topic in &answer.topics {
        for one in &topic.partitions {
            let at = TopicPartition::new(&topic.name, one.partition_index);
            let what = || {
                format!("look for an offset in partition {} of topic {:?}", at.partition, at.topic)
            };
            let result = ClientError::check(one.error_code, what).map(|()| FoundOffset {
                offset: one.offset,
                timestamp: one.timestamp,
                leader_epoch: one.leader_epoch,
            });
            match result {
                Err(error) if error.is_retriable() => return Err(error),
                result => found.push((at, result)),
            }
        }
    }
    Ok(found)
}

fn request(wanted: &[TopicPartition], target: i64, asker: Asker) -> ListOffsetsRequest {
    let partition = |one: &TopicPartition| {
        ListOffsetsPartition::default()
            .with_partition_index(one.partition)
            .with_current_leader_epoch(-1)
            .with_timestamp(target)
    };
    let topic = |own: &[TopicPartition]| {
        ListOffsetsTopic::default()
            .with_name(TopicName(text(&own[0].topic)))
            .with_partitions(own.iter().map(partition).collect())
    };
    let topics = wanted.chunk_by(|one, next| one.topic == next.topic).map(topic).collect();
    let (replica, isolation) = match asker {
        Asker::Consumer => (CONSUMER, 0),
        Asker::Committed => (CONSUMER, 1),
        Asker::Debugger => (DEBUGGING, 0),
    };
    ListOffsetsRequest::default()
        .with_replica_id(replica)
        .with_isolation_level(isolation)
        .with_topics(topics)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_request_names_each_topic_once() {
        let wanted = [("a", 0), ("a", 1), ("b", 0)].map(|(t, p)| TopicPartition::new(t, p));
        let request = request(&wanted, -1, Asker::Debugger);
        assert_eq!(request.replica_id, BrokerId(-2));
        let topics: Vec<_> =
            request.topics.iter().map(|it| (it.name.as_str(), it.partitions.len())).collect();
        assert_eq!(topics, [("a", 2), ("b", 1)]);
        assert_eq!(request.topics[0].partitions[1].timestamp, -1);
    }
}
