//! A small Kafka client on tokio: what the command line, the harness and the tests need, no more.
//!
//! It speaks to any Kafka broker from 2.4 on. [`Connection`] is the core: requests go out without
//! waiting for answers, which come back matched by correlation id, so that a load generator can
//! keep to its own schedule. [`Client`] adds what a user expects: it finds leaders and tries again
//! when they change.

mod error;

pub mod apis;

mod connection;

mod keys;

mod produce;

mod fetch;

mod cluster;

mod cluster_admin;

mod cluster_records;

mod groups;

mod lookup;

mod resources;

mod nodes;

pub mod member;

pub use cluster::{Broker, Client, ClientOptions, Cluster, Partition, Topic};
pub use cluster_admin::{ConfigEntry, FoundOffset, NewTopic, ProducerIdentity, timestamp};
pub use cluster_records::Target;
pub use connection::{Answering, Connection, ConnectionOptions, Encoded};
pub use error::ClientError;
pub use fetch::{
    AbortedTransaction, FetchFrom, FetchLimits, Fetched, Isolation, decode_fetched, encode_fetch,
};
pub use groups::{Committed, GroupDescription, GroupListing, GroupMember, TopicPartition};
pub use keys::{key_hash, partition_of_key};
pub use lookup::{Asker, Lookup};
pub use nodes::{ClusterDescription, Feature, LogDirectory, Node, features};
pub use produce::{Acks, Produced, decode_produced, encode_produce};
pub use resources::{Alteration, Resource, Setting};
