//! The requests of transactions, each to the shard that answers it; what asks for another try is
//! tried again.

use bytes::Bytes;
use kafka_protocol::messages::add_offsets_to_txn_request::AddOffsetsToTxnRequest;
use kafka_protocol::messages::add_partitions_to_txn_request::{
    AddPartitionsToTxnRequest, AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction,
};
use kafka_protocol::messages::describe_producers_request::TopicRequest;
use kafka_protocol::messages::describe_producers_response::ProducerState;
use kafka_protocol::messages::describe_transactions_response::TransactionState;
use kafka_protocol::messages::offset_fetch_request::OffsetFetchRequestTopic;
use kafka_protocol::messages::txn_offset_commit_request::{
    TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
};
use kafka_protocol::messages::write_txn_markers_request::{
    WritableTxnMarker, WritableTxnMarkerTopic,
};
use kafka_protocol::messages::{
    DescribeProducersRequest, DescribeTransactionsRequest, EndTxnRequest, FindCoordinatorRequest,
    GroupId, InitProducerIdRequest, ListTransactionsRequest, OffsetFetchRequest, TopicName,
    TransactionalId, TxnOffsetCommitRequest, WriteTxnMarkersRequest,
};

use crate::support::batch;
use crate::support::client::{Client, FETCH, fetch_request, only, produce_request, text};
use crate::support::process::Broker;
use crate::support::wait;

/// COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR (just after the topic
/// was made), CONCURRENT_TRANSACTIONS.
const AGAIN: [i16; 4] = [14, 15, 16, 51];

const GROUPS: i8 = 0;
const TRANSACTIONS: i8 = 1;

/// Id and epoch of a producer.
pub type Producer = (i64, i16);

pub fn named(name: &str) -> TransactionalId {
    TransactionalId(text(name))
}

fn topic_name(name: &str) -> TopicName {
    TopicName(text(name))
}

/// A server with transactions.
pub struct Cluster {
    pub broker: Broker,
}

impl Cluster {
    pub fn new(broker: Broker) -> Cluster {
        Cluster { broker }
    }

    fn coordinator_of(&self, kind: i8, key: &str) -> Client {
        Client::open(self.port_of(kind, key))
    }

    fn port_of(&self, kind: i8, key: &str) -> u16 {
        let request = FindCoordinatorRequest::default()
            .with_key_type(kind)
            .with_coordinator_keys(vec![text(key)]);
        let mut client = self.broker.connect();
        let port = wait::for_some("a coordinator", || {
            let found = client.call(&request, 4).coordinators.remove(0);
            (!AGAIN.contains(&found.error_code)).then_some(found.port)
        });
        u16::try_from(port).expect("a port")
    }

    /// Where the coordinator of a transactional id listens.
    pub fn coordinator_port(&self, name: &str) -> u16 {
        self.port_of(TRANSACTIONS, name)
    }

    /// A connection to the coordinator of a transactional id.
    pub fn coordinator(&self, name: &str) -> Client {
        self.coordinator_of(TRANSACTIONS, name)
    }

    /// A connection to the leader of a partition.
    pub fn leader(&self, topic: &str, partition: usize) -> Client {
        Client::open(self.broker.connect().leaders(topic)[partition])
    }

    fn leads(&self, topic: &str, partition: i32) -> Client {
        self.leader(topic, usize::try_from(partition).expect("a partition"))
    }

    /// InitProducerId of a new client.
    pub fn init(&self, name: &str, timeout_ms: i32) -> Producer {
        let request = InitProducerIdRequest::default()
            .with_transactional_id(Some(named(name)))
            .with_transaction_timeout_ms(timeout_ms)
            .with_producer_id((-1).into())
            .with_producer_epoch(-1);
        let mut client = self.coordinator(name);
        wait::for_some("a producer id", || {
            let answer = client.call(&request, 5);
            let code = answer.error_code;
            assert!(code == 0 || AGAIN.contains(&code), "InitProducerId for {name}: {code}");
            (code == 0).then_some((answer.producer_id.0, answer.producer_epoch))
        })
    }

    /// Error code of a batch.
    pub fn produce(
        &self,
        (name, version): (&str, i16),
        (topic, partition): (&str, i32),
        batch: Vec<u8>,
    ) -> i16 {
        let request = produce_request(topic, partition, Bytes::from(batch), -1);
        let request = request.with_transactional_id(Some(named(name)));
        let mut client = self.leads(topic, partition);
        wait::for_some("an answer to a batch", || {
            // NOT_ENOUGH_REPLICAS: the coordinator could not be asked.
            let code = only(client.call(&request, version)).error_code;
            (!AGAIN.contains(&code) && code != 19).then_some(code)
        })
    }

    /// AddPartitionsToTxn 3: the error codes.
    pub fn add(&self, name: &str, producer: Producer, what: (&str, &[i32])) -> Vec<i16> {
        let topic = AddPartitionsToTxnTopic::default()
            .with_name(topic_name(what.0))
            .with_partitions(what.1.to_vec());
        let request = AddPartitionsToTxnRequest::default()
            .with_v3_and_below_transactional_id(named(name))
            .with_v3_and_below_producer_id(producer.0.into())
            .with_v3_and_below_producer_epoch(producer.1)
            .with_v3_and_below_topics(vec![topic]);
        let mut client = self.coordinator(name);
        wait::for_some("partitions are added", || {
            let mut answer = client.call(&request, 3);
            let added = answer.results_by_topic_v3_and_below.remove(0).results_by_partition;
            let codes: Vec<i16> = added.iter().map(|it| it.partition_error_code).collect();
            codes.iter().all(|code| !AGAIN.contains(code)).then_some(codes)
        })
    }

    /// AddPartitionsToTxn 4 of a broker that only asks: the error code.
    pub fn verify(&self, name: &str, producer: Producer, (topic, partition): (&str, i32)) -> i16 {
        let topic = AddPartitionsToTxnTopic::default()
            .with_name(topic_name(topic))
            .with_partitions(vec![partition]);
        let transaction = AddPartitionsToTxnTransaction::default()
            .with_transactional_id(named(name))
            .with_producer_id(producer.0.into())
            .with_producer_epoch(producer.1)
            .with_verify_only(true)
            .with_topics(vec![topic]);
        let request = AddPartitionsToTxnRequest::default().with_transactions(vec![transaction]);
        let mut answer = self.coordinator(name).call(&request, 4);
        let mut of_transaction = answer.results_by_transaction.remove(0);
        assert_eq!(of_transaction.transactional_id, named(name));
        let mut of_topic = of_transaction.topic_results.remove(0);
        of_topic.results_by_partition.remove(0).partition_error_code
    }

    /// EndTxn: the producer that the answer names, or the error code.
    pub fn end(
        &self,
        (name, version): (&str, i16),
        producer: Producer,
        commits: bool,
    ) -> Result<Producer, i16> {
        let request = EndTxnRequest::default()
            .with_transactional_id(named(name))
            .with_producer_id(producer.0.into())
            .with_producer_epoch(producer.1)
            .with_committed(commits);
        let mut client = self.coordinator(name);
        wait::for_some("the end of a transaction", || {
            let answer = client.call(&request, version);
            match answer.error_code {
                0 => Some(Ok((answer.producer_id.0, answer.producer_epoch))),
                code if AGAIN.contains(&code) => None,
                code => Some(Err(code)),
            }
        })
    }

    /// What is known of an id, when the coordinator has read its log.
    pub fn describe(&self, name: &str) -> TransactionState {
        let request =
            DescribeTransactionsRequest::default().with_transactional_ids(vec![named(name)]);
        let mut client = self.coordinator(name);
        wait::for_some("the coordinator is loaded", || {
            let state = client.call(&request, 0).transaction_states.remove(0);
            (!AGAIN.contains(&state.error_code)).then_some(state)
        })
    }

    /// The ids of all shards in these states, sorted.
    pub fn list(&self, states: &[&str]) -> Vec<String> {
        let states = states.iter().map(|it| text(it)).collect();
        let request = ListTransactionsRequest::default().with_state_filters(states);
        let mut found = Vec::new();
        for port in self.broker.ports() {
            let answer = Client::open(*port).call(&request, 0);
            assert_eq!(answer.error_code, 0);
            let ids = answer.transaction_states.iter();
            found.extend(ids.map(|it| it.transactional_id.to_string()));
        }
        found.sort();
        found
    }

    /// What a partition knows of producers.
    pub fn producers(&self, topic: &str, partition: i32) -> Vec<ProducerState> {
        let wanted = TopicRequest::default()
            .with_name(topic_name(topic))
            .with_partition_indexes(vec![partition]);
        let request = DescribeProducersRequest::default().with_topics(vec![wanted]);
        let mut answer = self.leads(topic, partition).call(&request, 0);
        let found = answer.topics.remove(0).partitions.remove(0);
        assert_eq!(found.error_code, 0);
        found.active_producers
    }

    /// WriteTxnMarkers by an operator: the error code.
    pub fn write_marker(
        &self,
        topic: &str,
        partition: i32,
        (producer, commits): (Producer, bool),
    ) -> i16 {
        let wanted = WritableTxnMarkerTopic::default()
            .with_name(topic_name(topic))
            .with_partition_indexes(vec![partition]);
        let marker = WritableTxnMarker::default()
            .with_producer_id(producer.0.into())
            .with_producer_epoch(producer.1)
            .with_transaction_result(commits)
            .with_coordinator_epoch(0)
            .with_topics(vec![wanted]);
        let request = WriteTxnMarkersRequest::default().with_markers(vec![marker]);
        let mut answer = self.leader(topic, 0).call(&request, 1);
        answer.markers.remove(0).topics.remove(0).partitions.remove(0).error_code
    }

    /// Last stable offset, where readers of committed records stop.
    pub fn stable(&self, topic: &str, partition: i32) -> i64 {
        let request = fetch_request(topic, partition, 0, 1 << 20).with_isolation_level(1);
        let mut answer = self.leads(topic, partition).call(&request, FETCH);
        answer.responses.remove(0).partitions.remove(0).last_stable_offset
    }

    /// Waits until no transaction is open on a partition.
    pub fn settled(&self, topic: &str, partition: i32) {
        wait::until("no transaction is open", || {
            self.stable(topic, partition) == self.leads(topic, partition).end(topic, partition)
        });
    }

    /// What a reader of committed records sees of a partition.
    pub fn committed(&self, topic: &str, partition: i32) -> Vec<String> {
        let request = fetch_request(topic, partition, 0, 8 << 20).with_isolation_level(1);
        let mut answer = self.leads(topic, partition).call(&request, FETCH);
        let found = answer.responses.remove(0).partitions.remove(0);
        assert_eq!(found.error_code, 0);
        let aborted = found.aborted_transactions.unwrap_or_default();
        let aborted: Vec<_> =
            aborted.iter().map(|it| (it.producer_id.0, it.first_offset)).collect();
        let values = batch::committed(&found.records.unwrap_or_default(), &aborted);
        values.into_iter().map(|it| String::from_utf8(it).expect("text")).collect()
    }

    /// AddOffsetsToTxn: the error code.
    pub fn add_offsets(&self, name: &str, producer: Producer, group: &str) -> i16 {
        let request = AddOffsetsToTxnRequest::default()
            .with_transactional_id(named(name))
            .with_producer_id(producer.0.into())
            .with_producer_epoch(producer.1)
            .with_group_id(GroupId(text(group)));
        let mut client = self.coordinator(name);
        wait::for_some("offsets are added", || {
            let code = client.call(&request, 3).error_code;
            (!AGAIN.contains(&code)).then_some(code)
        })
    }

    /// TxnOffsetCommit of somebody who is no member: the error code.
    pub fn commit_offset(
        &self,
        (name, version): (&str, i16),
        producer: Producer,
        ((group, topic, partition), offset): ((&str, &str, i32), i64),
    ) -> i16 {
        let partition = TxnOffsetCommitRequestPartition::default()
            .with_partition_index(partition)
            .with_committed_offset(offset);
        let topic = TxnOffsetCommitRequestTopic::default()
            .with_name(topic_name(topic))
            .with_partitions(vec![partition]);
        let request = TxnOffsetCommitRequest::default()
            .with_transactional_id(named(name))
            .with_group_id(GroupId(text(group)))
            .with_producer_id(producer.0.into())
            .with_producer_epoch(producer.1)
            .with_topics(vec![topic]);
        let mut client = self.coordinator_of(GROUPS, group);
        wait::for_some("offsets are committed", || {
            let mut answer = client.call(&request, version);
            let code = answer.topics.remove(0).partitions.remove(0).error_code;
            (!AGAIN.contains(&code)).then_some(code)
        })
    }

    /// OffsetFetch: error code and offset.
    pub fn offset(&self, (group, topic, partition): (&str, &str, i32), stable: bool) -> (i16, i64) {
        let wanted = OffsetFetchRequestTopic::default()
            .with_name(topic_name(topic))
            .with_partition_indexes(vec![partition]);
        let request = OffsetFetchRequest::default()
            .with_group_id(GroupId(text(group)))
            .with_require_stable(stable)
            .with_topics(Some(vec![wanted]));
        let mut answer = self.coordinator_of(GROUPS, group).call(&request, 7);
        let found = answer.topics.remove(0).partitions.remove(0);
        (found.error_code, found.committed_offset)
    }
}
