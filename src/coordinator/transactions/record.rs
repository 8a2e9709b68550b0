//! Records of `__transaction_state`, byte for byte as Kafka 4.3 writes them.
//!
//! ```text
//! key    type i16 = 0 | transactional id: length i16, text
//! value  version i16 = 1 | producer id i64 | epoch i16 | timeout i32 | state i8
//!        | partitions: count uvarint+1 or 0 (null: Empty) { topic compact | partitions compact i32
//!          | tags } | updated i64 | started i64
//!        | tags, -1 and 0 left out: 0 previous producer id i64, 1 next producer id i64,
//!          2 version of the client i16
//! ```
//!
//! Topics and partitions stand in the order in which Java walks over its hash maps.

use std::collections::{BTreeMap, BTreeSet};

use crate::coordinator::hash::java_hash;
use crate::coordinator::transactions::TransactionalId;
use crate::coordinator::transactions::state::{
    State, TopicPartition, Transaction, TransactionVersion,
};
use crate::format::compact;
use crate::format::names::TopicName;
use crate::format::schema::{SchemaError, TRANSACTIONS, Value};
use crate::units::{PartitionId, ProducerEpoch, ProducerId, Timestamp};

const KEY_TYPE: i16 = 0;
const VALUE_VERSION: i16 = 1;

/// A record that was read back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// Whose it is.
    pub id: TransactionalId,
    /// What it says; nothing when the id was forgotten.
    pub transaction: Option<Transaction>,
}

/// Why bytes are no record of `__transaction_state`.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LoadError {
    /// The key or the value is too short to say what it is.
    #[error("no key, or one without a type, or a value without a version")]
    Short,
    /// The key is of another kind, which a newer broker has written.
    #[error("a key of type {0} is not known")]
    KeyType(i16),
    /// Key or value can't be read.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// A field has a value that it can't have.
    #[error("field {0} has a value that it can't have")]
    Field(&'static str),
}

/// The key of an id's records.
fn encode_key(id: &str) -> Vec<u8> {
    let mut key = KEY_TYPE.to_be_bytes().to_vec();
    // Java's length of a text is 16 bits, and so is that of a request's field.
    let length = i16::try_from(id.len()).expect("requests carry no longer id");
    key.extend_from_slice(&length.to_be_bytes());
    key.extend_from_slice(id.as_bytes());
    key
}

/// The value that a state has.
pub(super) fn encode_value(it: &Transaction) -> Vec<u8> {
    let mut value = VALUE_VERSION.to_be_bytes().to_vec();
    value.extend_from_slice(&it.producer_id.0.to_be_bytes());
    value.extend_from_slice(&it.epoch.0.to_be_bytes());
    value.extend_from_slice(&it.timeout_ms.to_be_bytes());
    value.extend_from_slice(&it.state.to_wire().to_be_bytes());
    if it.state == State::Empty {
        compact::put_nullable_string(&mut value, None);
    } else {
        compact::put_items(&mut value, &by_topic(&it.partitions), |out, (topic, numbers)| {
            compact::put_string(out, topic.as_str());
            compact::put_items(out, numbers, |out, number| {
                out.extend_from_slice(&number.0.to_be_bytes());
            });
            compact::put_tagged(out, &[]);
        });
    }
    value.extend_from_slice(&it.updated.0.to_be_bytes());
    value.extend_from_slice(&it.started.0.to_be_bytes());
    let mut tagged = Vec::new();
    let mut tag = |number, is_there: bool, bytes: &[u8]| {
        if is_there {
            tagged.push((number, bytes.to_vec()));
        }
    };
    let (previous, next) = (it.previous_producer_id, it.next_producer_id);
    tag(0, previous != ProducerId::NONE, &previous.0.to_be_bytes());
    tag(1, next != ProducerId::NONE, &next.0.to_be_bytes());
    tag(2, it.version != TransactionVersion::Zero, &it.version.level().to_be_bytes());
    compact::put_tagged(&mut value, &tagged);
    value
}

/// The value of a state takes no more than this, which costs less to find out than the value.
pub(super) fn value_bytes_max(it: &Transaction) -> usize {
    /// All but the partitions: 38 bytes, five for their count, up to 31 of tags.
    const FIXED: usize = 80;
    /// As if each were of a topic of its own: two lengths, the number, a byte for tags.
    const PER_PARTITION: usize = 2 + 5 + size_of::<i32>() + 1;
    let bytes = it.partitions.iter().map(|it| PER_PARTITION + it.topic.as_str().len());
    FIXED + bytes.sum::<usize>()
}

/// The partitions of each topic, in Java's order of both.
fn by_topic(partitions: &BTreeSet<TopicPartition>) -> Vec<(&TopicName, Vec<PartitionId>)> {
    let hash = |it: &&TopicPartition| {
        let number = 31_u32.wrapping_add(it.partition.0).wrapping_mul(31);
        number.wrapping_add(java_hash(it.topic.as_str()).cast_unsigned())
    };
    let mut topics: BTreeMap<&TopicName, Vec<PartitionId>> = BTreeMap::new();
    for it in in_java_order(partitions.iter().collect(), hash) {
        topics.entry(&it.topic).or_default().push(it.partition);
    }
    let topics = topics.into_iter().collect();
    in_java_order(topics, |(topic, _)| java_hash(topic.as_str()).cast_unsigned())
}

/// The order in which a Java `HashMap` of so many items is walked over, when no two share a bucket.
fn in_java_order<T>(mut items: Vec<T>, hash: impl Fn(&T) -> u32) -> Vec<T> {
    const BUCKETS_MIN: usize = 16;
    // It doubles when more than three quarters are full.
    let buckets = (items.len() * 4).div_ceil(3).next_power_of_two().max(BUCKETS_MIN);
    let mask = u32::try_from(buckets - 1).expect("a transaction has a bounded number");
    items.sort_by_key(|item| {
        let hash = hash(item);
        (hash ^ (hash >> 16)) & mask
    });
    items
}

impl Record {
    /// Key and value; no value for an id that is forgotten.
    pub fn encode(&self) -> (Vec<u8>, Option<Vec<u8>>) {
        (encode_key(&self.id), self.transaction.as_ref().map(encode_value))
    }

    /// Reads a record of the topic.
    ///
    /// # Errors
    /// [`LoadError`].
    pub fn decode(key: Option<&[u8]>, value: Option<&[u8]>) -> Result<Record, LoadError> {
        let (kind, key) = prefixed(key.unwrap_or_default())?;
        if kind != KEY_TYPE {
            return Err(LoadError::KeyType(kind));
        }
        let key = TRANSACTIONS.keys[&KEY_TYPE].decode(0, key)?;
        let id = text(&key, "transactionalId")?.into();
        let Some(value) = value else { return Ok(Record { id, transaction: None }) };
        let (version, value) = prefixed(value)?;
        let value = TRANSACTIONS.values[&KEY_TYPE].decode(version, value)?;
        Ok(Record { id, transaction: Some(transaction(&value)?) })
    }
}

fn prefixed(bytes: &[u8]) -> Result<(i16, &[u8]), LoadError> {
    let (prefix, rest) = bytes.split_first_chunk().ok_or(LoadError::Short)?;
    Ok((i16::from_be_bytes(*prefix), rest))
}

fn transaction(value: &Value) -> Result<Transaction, LoadError> {
    let number = |name| number(value, name);
    let tagged = |name, default| match value.get(name) {
        Some(_) => number(name),
        None => Ok(default),
    };
    let epoch = i16::try_from(number("producerEpoch")?);
    let timeout = i32::try_from(number("transactionTimeoutMs")?);
    let state = i8::try_from(number("transactionStatus")?).ok().and_then(State::from_wire);
    let version = i16::try_from(tagged("clientTransactionVersion", 0)?).ok();
    let version = version.and_then(TransactionVersion::of_level);
    Ok(Transaction {
        producer_id: ProducerId(number("producerId")?),
        previous_producer_id: ProducerId(tagged("previousProducerId", -1)?),
        next_producer_id: ProducerId(tagged("nextProducerId", -1)?),
        epoch: ProducerEpoch(epoch.map_err(|_| LoadError::Field("producerEpoch"))?),
        last_epoch: ProducerEpoch(-1),
        timeout_ms: timeout.map_err(|_| LoadError::Field("transactionTimeoutMs"))?,
        state: state.ok_or(LoadError::Field("transactionStatus"))?,
        partitions: partitions(value)?,
        started: Timestamp(number("transactionStartTimestampMs")?),
        updated: Timestamp(number("transactionLastUpdateTimestampMs")?),
        version: version.ok_or(LoadError::Field("clientTransactionVersion"))?,
    })
}

fn partitions(value: &Value) -> Result<BTreeSet<TopicPartition>, LoadError> {
    const TOPICS: LoadError = LoadError::Field("transactionPartitions");
    let mut found = BTreeSet::new();
    let topics = match value.get("transactionPartitions") {
        Some(Value::List(topics)) => topics.as_slice(),
        Some(Value::Null) | None => &[],
        Some(_) => return Err(TOPICS),
    };
    for topic in topics {
        let name = TopicName::new(text(topic, "topic")?).map_err(|_| TOPICS)?;
        let Some(Value::List(numbers)) = topic.get("partitionIds") else { return Err(TOPICS) };
        for number in numbers {
            let Value::Number(number) = number else { return Err(TOPICS) };
            let partition = PartitionId(u32::try_from(*number).map_err(|_| TOPICS)?);
            found.insert(TopicPartition { topic: name.clone(), partition });
        }
    }
    Ok(found)
}

fn number(value: &Value, name: &'static str) -> Result<i64, LoadError> {
    match value.get(name) {
        Some(Value::Number(number)) => Ok(*number),
        _ => Err(LoadError::Field(name)),
    }
}

fn text<'a>(value: &'a Value, name: &'static str) -> Result<&'a str, LoadError> {
    match value.get(name) {
        Some(Value::Text(text)) => Ok(text),
        _ => Err(LoadError::Field(name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_value_takes_more_than_is_said() {
        let mut it = Transaction::new(ProducerId(i64::MAX), i32::MAX, Timestamp(i64::MAX));
        it.state = State::Ongoing;
        it.epoch = ProducerEpoch(i16::MAX);
        (it.previous_producer_id, it.next_producer_id) = (it.producer_id, it.producer_id);
        it.version = TransactionVersion::Two;
        assert!(encode_value(&it).len() <= value_bytes_max(&it));
        for (length, partition) in (1..=249).zip((0..300).rev().cycle()) {
            let topic = TopicName::new(&"t".repeat(length)).expect("a name");
            let add =
                |number| TopicPartition { topic: topic.clone(), partition: PartitionId(number) };
            it.partitions.extend([add(partition), add(u32::MAX >> 1)]);
            let (bytes, most) = (encode_value(&it).len(), value_bytes_max(&it));
            assert!(bytes <= most, "{bytes} bytes, {most} at most");
        }
    }
}
