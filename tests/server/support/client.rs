//! A raw connection: frames by hand, and a few requests in the codec of `kafka-protocol`, which
//! shares no code with ours.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::fetch_response::PartitionData;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::produce_response::PartitionProduceResponse;
use kafka_protocol::messages::{
    CreateTopicsRequest, DeleteTopicsRequest, FetchRequest, InitProducerIdRequest,
    ListOffsetsRequest, MetadataRequest, MetadataResponse, ProduceRequest, ProduceResponse,
    RequestHeader, ResponseHeader, TopicName,
};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Request, StrBytes};

use super::wait::PATIENCE;

/// The newest version that names topics.
pub const PRODUCE: i16 = 12;
/// Version of Fetch that the tests speak.
pub const FETCH: i16 = 12;

/// One connection.
pub struct Client {
    stream: TcpStream,
    correlation_id: i32,
}

/// How a connection went on after something was sent.
#[derive(PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The server closed it without another byte.
    Closed,
    /// An answer came: what stands behind the size.
    Answer(Bytes),
}

pub fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

fn topic_name(name: &str) -> TopicName {
    TopicName(text(name))
}

/// A frame as it goes over the wire, size included.
pub fn frame(api_key: i16, version: i16, has_tags: bool, body: &[u8]) -> Vec<u8> {
    let mut inner = BytesMut::new();
    inner.put_i16(api_key);
    inner.put_i16(version);
    inner.put_i32(7);
    inner.put_i16(-1);
    if has_tags {
        inner.put_u8(0);
    }
    inner.put_slice(body);
    let mut bytes = i32::try_from(inner.len()).expect("small").to_be_bytes().to_vec();
    bytes.extend_from_slice(&inner);
    bytes
}

/// A request as it goes over the wire, size included.
pub fn encode<R: Request>(request: &R, version: i16, correlation_id: i32) -> BytesMut {
    let header = RequestHeader::default()
        .with_request_api_key(R::KEY)
        .with_request_api_version(version)
        .with_correlation_id(correlation_id)
        .with_client_id(Some(text("tests")));
    let mut bytes = BytesMut::from(&[0; 4][..]);
    header.encode(&mut bytes, R::header_version(version)).expect("a header of that version");
    request.encode(&mut bytes, version).expect("a request of that version");
    let size = i32::try_from(bytes.len() - 4).expect("small").to_be_bytes();
    bytes[..4].copy_from_slice(&size);
    bytes
}

/// A Produce request for one partition.
pub fn produce_request(topic: &str, partition: i32, batch: Bytes, acks: i16) -> ProduceRequest {
    let data = PartitionProduceData::default().with_index(partition).with_records(Some(batch));
    let topic =
        TopicProduceData::default().with_name(topic_name(topic)).with_partition_data(vec![data]);
    let patience = i32::try_from(PATIENCE.as_millis()).expect("a minute");
    ProduceRequest::default().with_acks(acks).with_timeout_ms(patience).with_topic_data(vec![topic])
}

/// A Fetch request for one partition that doesn't wait.
pub fn fetch_request(topic: &str, partition: i32, offset: i64, bytes_max: i32) -> FetchRequest {
    let wanted = FetchPartition::default()
        .with_partition(partition)
        .with_fetch_offset(offset)
        .with_partition_max_bytes(bytes_max);
    let topic = FetchTopic::default().with_topic(topic_name(topic)).with_partitions(vec![wanted]);
    FetchRequest::default()
        .with_max_wait_ms(0)
        .with_min_bytes(0)
        .with_max_bytes(bytes_max)
        .with_topics(vec![topic])
}

impl Client {
    pub fn open(port: u16) -> Client {
        Client::try_open(port).expect("the server accepts")
    }

    pub fn try_open(port: u16) -> io::Result<Client> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Client { stream, correlation_id: 0 })
    }

    /// The socket.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Sends bytes as they are.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// What stands behind the size of the next frame.
    pub fn receive(&mut self) -> io::Result<Bytes> {
        let mut size = [0; 4];
        self.stream.read_exact(&mut size)?;
        let size = usize::try_from(i32::from_be_bytes(size)).expect("an answer has a size");
        let mut bytes = vec![0; size];
        self.stream.read_exact(&mut bytes)?;
        Ok(bytes.into())
    }

    /// Sends bytes and waits for what becomes of the connection.
    pub fn outcome(&mut self, bytes: &[u8]) -> Outcome {
        // The server may close before it has read everything.
        let _ = self.send(bytes);
        match self.receive() {
            Ok(answer) => Outcome::Answer(answer),
            Err(error) => {
                let closed = [ErrorKind::UnexpectedEof, ErrorKind::ConnectionReset];
                assert!(closed.contains(&error.kind()), "neither answered nor closed: {error}");
                Outcome::Closed
            }
        }
    }

    /// Sends a request without waiting for its answer.
    pub fn post<R: Request>(&mut self, request: &R, version: i16) -> io::Result<()> {
        self.correlation_id += 1;
        let bytes = encode(request, version, self.correlation_id);
        self.send(&bytes)
    }

    /// The answer to the oldest request that was posted with this version.
    pub fn collect<R: Request>(&mut self, version: i16) -> io::Result<R::Response> {
        let mut bytes = self.receive()?;
        let header = <R::Response as HeaderVersion>::header_version(version);
        ResponseHeader::decode(&mut bytes, header).expect("a header");
        let answer = R::Response::decode(&mut bytes, version).expect("an answer of that version");
        assert!(bytes.is_empty(), "{} bytes too many in the answer", bytes.len());
        Ok(answer)
    }

    /// One request, one answer.
    pub fn try_call<R: Request>(&mut self, request: &R, version: i16) -> io::Result<R::Response> {
        self.post(request, version)?;
        self.collect::<R>(version)
    }

    pub fn call<R: Request>(&mut self, request: &R, version: i16) -> R::Response {
        self.try_call(request, version).expect("the server answers")
    }

    /// Metadata of one topic, without creating it, or of all.
    pub fn try_metadata(&mut self, topic: Option<&str>) -> io::Result<MetadataResponse> {
        let wanted = |name| MetadataRequestTopic::default().with_name(Some(topic_name(name)));
        let topics = topic.map(|name| vec![wanted(name)]);
        self.try_call(&MetadataRequest::default().with_topics(topics), 9)
    }

    /// The port of the leader of each partition of a topic.
    pub fn leaders(&mut self, topic: &str) -> Vec<u16> {
        let answer = self.try_metadata(Some(topic)).expect("the server answers");
        let port = |leader| {
            let broker = answer.brokers.iter().find(|broker| broker.node_id == leader);
            u16::try_from(broker.expect("a leader is a broker").port).expect("a port")
        };
        let mut partitions = answer.topics[0].partitions.clone();
        partitions.sort_by_key(|partition| partition.partition_index);
        partitions.iter().map(|partition| port(partition.leader_id)).collect()
    }

    /// Error code of making a topic with these configs.
    pub fn try_create(&mut self, topic: &str, partitions: i32, configs: &[(&str, &str)]) -> i16 {
        let config = |(name, value): &(&str, &str)| {
            CreatableTopicConfig::default().with_name(text(name)).with_value(Some(text(value)))
        };
        let topic = CreatableTopic::default()
            .with_name(topic_name(topic))
            .with_num_partitions(partitions)
            .with_replication_factor(1)
            .with_configs(configs.iter().map(config).collect());
        let request =
            CreateTopicsRequest::default().with_topics(vec![topic]).with_timeout_ms(30_000);
        self.call(&request, 5).topics[0].error_code
    }

    /// Makes a topic.
    pub fn create(&mut self, topic: &str, partitions: i32, configs: &[(&str, &str)]) {
        assert_eq!(self.try_create(topic, partitions, configs), 0, "{topic} is created");
    }

    /// Deletes a topic.
    pub fn delete(&mut self, topic: &str) {
        let request = DeleteTopicsRequest::default()
            .with_topic_names(vec![topic_name(topic)])
            .with_timeout_ms(30_000);
        assert_eq!(self.call(&request, 5).responses[0].error_code, 0, "{topic} is deleted");
    }

    /// The answer for one batch to one partition.
    pub fn produce(
        &mut self,
        topic: &str,
        partition: i32,
        batch: impl Into<Bytes>,
    ) -> PartitionProduceResponse {
        let request = produce_request(topic, partition, batch.into(), -1);
        only(self.call(&request, PRODUCE))
    }

    /// Base offset of a batch that has to be accepted.
    pub fn accepted(&mut self, topic: &str, partition: i32, batch: impl Into<Bytes>) -> i64 {
        let answer = self.produce(topic, partition, batch);
        assert_eq!(answer.error_code, 0, "{topic}-{partition}: {answer:?}");
        answer.base_offset
    }

    /// What one partition gives from an offset on.
    pub fn fetch(
        &mut self,
        topic: &str,
        partition: i32,
        offset: i64,
        bytes_max: i32,
    ) -> PartitionData {
        let request = fetch_request(topic, partition, offset, bytes_max);
        let mut answer = self.call(&request, FETCH);
        assert_eq!(answer.error_code, 0);
        answer.responses.remove(0).partitions.remove(0)
    }

    /// Error code and offset for a timestamp (-1: the end, -2: the start, -3: of the largest).
    pub fn list_offset(&mut self, topic: &str, partition: i32, timestamp: i64) -> (i16, i64) {
        let wanted = ListOffsetsPartition::default()
            .with_partition_index(partition)
            .with_timestamp(timestamp);
        let topic =
            ListOffsetsTopic::default().with_name(topic_name(topic)).with_partitions(vec![wanted]);
        let request = ListOffsetsRequest::default().with_topics(vec![topic]);
        let answer = self.call(&request, 7);
        let found = &answer.topics[0].partitions[0];
        (found.error_code, found.offset)
    }

    /// Where a partition ends.
    pub fn end(&mut self, topic: &str, partition: i32) -> i64 {
        let (error, offset) = self.list_offset(topic, partition, -1);
        assert_eq!(error, 0, "the end of {topic}-{partition}");
        offset
    }

    /// A new producer's id and epoch.
    pub fn producer_id(&mut self) -> (i64, i16) {
        let request = InitProducerIdRequest::default()
            .with_transactional_id(None)
            .with_transaction_timeout_ms(60_000);
        let answer = self.call(&request, 2);
        assert_eq!(answer.error_code, 0, "a producer id");
        (answer.producer_id.0, answer.producer_epoch)
    }
}

/// The answer for the only partition.
pub fn only(mut answer: ProduceResponse) -> PartitionProduceResponse {
    answer.responses.remove(0).partition_responses.remove(0)
}
