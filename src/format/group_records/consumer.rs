//! Records of groups with the consumer protocol (KIP-848). All values have version 0 and the
//! flexible encoding.

use bytes::Bytes;

use super::RecordError;
use crate::format::compact::{self, CompactError, Reader};
use crate::units::{Timestamp, TopicId};

const VERSION: i16 = 0;
const TAG: u32 = 0;

/// Some partitions of a topic.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TopicPartitions {
    /// The topic.
    pub topic_id: TopicId,
    /// Numbers of its partitions.
    pub partitions: Vec<i32>,
    /// Epochs at which the partitions were assigned, one for each; empty when not known.
    pub epochs: Vec<i32>,
}

/// A member as it subscribes (`ConsumerGroupMemberMetadataValue`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ModernMember {
    /// `group.instance.id` of a static member.
    pub instance: Option<String>,
    /// Its rack.
    pub rack: Option<String>,
    /// The client's own name.
    pub client_id: String,
    /// Where it comes from.
    pub client_host: String,
    /// Topics it subscribes to by name.
    pub topics: Vec<String>,
    /// Topics it subscribes to by a regular expression.
    pub regex: Option<String>,
    /// How long it may take to give partitions up.
    pub rebalance_timeout_ms: i32,
    /// The assignor it prefers.
    pub assignor: Option<String>,
    /// What it said of itself when it speaks the classic protocol.
    pub classic: Option<ClassicMember>,
}

/// A member that speaks the classic protocol in a group with the consumer protocol.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClassicMember {
    /// How long it may be silent.
    pub session_timeout_ms: i32,
    /// Its protocols with what it says about itself for each.
    pub protocols: Vec<(String, Bytes)>,
}

/// What a member has (`ConsumerGroupCurrentMemberAssignmentValue`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CurrentAssignment {
    /// The member's epoch.
    pub epoch: i32,
    /// The one before.
    pub previous_epoch: i32,
    /// 0 stable, 1 revoking, 2 waiting for others to release, 127 unknown.
    pub state: i8,
    /// Partitions that it has.
    pub assigned: Vec<TopicPartitions>,
    /// Partitions that it is to give up.
    pub revoking: Vec<TopicPartitions>,
}

/// Epoch of a target assignment (`ConsumerGroupTargetAssignmentMetadataValue`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TargetEpoch {
    /// The epoch.
    pub epoch: i32,
    /// When it was computed; 0 when that isn't known.
    pub timestamp: Timestamp,
}

/// Topics that a regular expression names (`ConsumerGroupRegularExpressionValue`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RegularExpression {
    /// The topics.
    pub topics: Vec<String>,
    /// Version of the metadata that it was resolved with.
    pub version: i64,
    /// When it was resolved.
    pub timestamp: Timestamp,
}

fn start() -> Vec<u8> {
    VERSION.to_be_bytes().to_vec()
}

fn reader(key: i16, bytes: &[u8]) -> Result<Reader<'_>, RecordError> {
    let mut reader = Reader::new(bytes);
    match reader.i16()? {
        VERSION => Ok(reader),
        version => Err(RecordError::Version { key, version }),
    }
}

fn no_tags(out: &mut Vec<u8>) {
    compact::put_tagged(out, &[]);
}

/// The value of a group's epoch: the hash of its topics' metadata is left out when it is 0.
pub(crate) fn encode_group(epoch: i32, hash: i64) -> Vec<u8> {
    let mut out = start();
    out.extend_from_slice(&epoch.to_be_bytes());
    let tags = if hash == 0 { Vec::new() } else { vec![(TAG, hash.to_be_bytes().to_vec())] };
    compact::put_tagged(&mut out, &tags);
    out
}

/// A group's epoch and the hash of its topics' metadata.
pub(crate) fn decode_group(bytes: &[u8]) -> Result<(i32, i64), RecordError> {
    let mut reader = reader(3, bytes)?;
    let epoch = reader.i32()?;
    let hash = tagged_i64(&mut reader)?;
    reader.end()?;
    Ok((epoch, hash))
}

fn tagged_i64(reader: &mut Reader<'_>) -> Result<i64, CompactError> {
    let mut value = 0;
    reader.tagged(|tag, mut field| {
        if tag == TAG {
            value = field.i64()?;
        }
        Ok(())
    })?;
    Ok(value)
}

impl TargetEpoch {
    /// As a record's value.
    pub fn encode(&self) -> Vec<u8> {
        encode_group(self.epoch, self.timestamp.0)
    }

    /// From a record's value.
    ///
    /// # Errors
    /// [`RecordError`].
    pub fn decode(bytes: &[u8]) -> Result<TargetEpoch, RecordError> {
        let (epoch, timestamp) = decode_group(bytes)?;
        Ok(TargetEpoch { epoch, timestamp: Timestamp(timestamp) })
    }
}

impl ModernMember {
    /// As a record's value.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = start();
        compact::put_nullable_string(&mut out, self.instance.as_deref());
        compact::put_nullable_string(&mut out, self.rack.as_deref());
        compact::put_string(&mut out, &self.client_id);
        compact::put_string(&mut out, &self.client_host);
        compact::put_items(&mut out, &self.topics, |out, topic| compact::put_string(out, topic));
        compact::put_nullable_string(&mut out, self.regex.as_deref());
        out.extend_from_slice(&self.rebalance_timeout_ms.to_be_bytes());
        compact::put_nullable_string(&mut out, self.assignor.as_deref());
        // That there is none is written down: without the tag Kafka takes an empty struct.
        let classic = self.classic.as_ref().map_or_else(|| vec![0], ClassicMember::encode);
        compact::put_tagged(&mut out, &[(TAG, classic)]);
        out
    }

    /// From a record's value.
    ///
    /// # Errors
    /// [`RecordError`].
    pub fn decode(bytes: &[u8]) -> Result<ModernMember, RecordError> {
        let mut reader = reader(5, bytes)?;
        let owned = |text: Option<&str>| text.map(str::to_owned);
        let mut member = ModernMember {
            instance: owned(reader.nullable_string()?),
            rack: owned(reader.nullable_string()?),
            client_id: reader.string()?.to_owned(),
            client_host: reader.string()?.to_owned(),
            topics: texts(&mut reader)?,
            regex: owned(reader.nullable_string()?),
            rebalance_timeout_ms: reader.i32()?,
            assignor: owned(reader.nullable_string()?),
            classic: None,
        };
        reader.tagged(|tag, mut field| {
            // A struct that may be null says first whether it is there.
            if tag == TAG && field.i8()? > 0 {
                member.classic = Some(ClassicMember::decode(&mut field)?);
            }
            Ok(())
        })?;
        reader.end()?;
        Ok(member)
    }
}

fn texts(reader: &mut Reader<'_>) -> Result<Vec<String>, CompactError> {
    reader.items(1, |reader| reader.string().map(str::to_owned))
}

impl ClassicMember {
    fn encode(&self) -> Vec<u8> {
        let mut out = vec![1];
        out.extend_from_slice(&self.session_timeout_ms.to_be_bytes());
        compact::put_items(&mut out, &self.protocols, |out, (name, metadata)| {
            compact::put_string(out, name);
            compact::put_items(out, metadata, |out, byte| out.push(*byte));
            no_tags(out);
        });
        no_tags(&mut out);
        out
    }

    fn decode(reader: &mut Reader<'_>) -> Result<ClassicMember, CompactError> {
        let session_timeout_ms = reader.i32()?;
        let protocols = reader.items(3, |reader| {
            let name = reader.string()?.to_owned();
            let metadata = reader.items(1, Reader::array::<1>)?.concat();
            reader.tagged(|_, _| Ok(()))?;
            Ok((name, Bytes::from(metadata)))
        })?;
        reader.tagged(|_, _| Ok(()))?;
        Ok(ClassicMember { session_timeout_ms, protocols })
    }
}

fn put_partitions(out: &mut Vec<u8>, topics: &[TopicPartitions]) {
    let put_i32 = |out: &mut Vec<u8>, number: &i32| out.extend_from_slice(&number.to_be_bytes());
    compact::put_items(out, topics, |out, topic| {
        out.extend_from_slice(&topic.topic_id.0);
        compact::put_items(out, &topic.partitions, put_i32);
        let mut epochs = Vec::new();
        if !topic.epochs.is_empty() {
            compact::put_items(&mut epochs, &topic.epochs, put_i32);
        }
        let tags = if epochs.is_empty() { Vec::new() } else { vec![(TAG, epochs)] };
        compact::put_tagged(out, &tags);
    });
}

fn partitions(reader: &mut Reader<'_>) -> Result<Vec<TopicPartitions>, CompactError> {
    reader.items(18, |reader| {
        let topic_id = TopicId(reader.array()?);
        let partitions = reader.items(4, Reader::i32)?;
        let mut epochs = Vec::new();
        reader.tagged(|tag, mut field| {
            if tag == TAG {
                epochs = field.nullable_items(4, Reader::i32)?.unwrap_or_default();
            }
            Ok(())
        })?;
        Ok(TopicPartitions { topic_id, partitions, epochs })
    })
}

/// The value of a member's target assignment.
pub(crate) fn encode_target(topics: &[TopicPartitions]) -> Vec<u8> {
    let mut out = start();
    put_partitions(&mut out, topics);
    no_tags(&mut out);
    out
}

/// A member's target assignment.
pub(crate) fn decode_target(bytes: &[u8]) -> Result<Vec<TopicPartitions>, RecordError> {
    let mut reader = reader(7, bytes)?;
    let topics = partitions(&mut reader)?;
    reader.tagged(|_, _| Ok(()))?;
    reader.end()?;
    Ok(topics)
}

impl CurrentAssignment {
    /// As a record's value.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = start();
        out.extend_from_slice(&self.epoch.to_be_bytes());
        out.extend_from_slice(&self.previous_epoch.to_be_bytes());
        out.extend_from_slice(&self.state.to_be_bytes());
        put_partitions(&mut out, &self.assigned);
        put_partitions(&mut out, &self.revoking);
        no_tags(&mut out);
        out
    }

    /// From a record's value.
    ///
    /// # Errors
    /// [`RecordError`].
    pub fn decode(bytes: &[u8]) -> Result<CurrentAssignment, RecordError> {
        let mut reader = reader(8, bytes)?;
        let current = CurrentAssignment {
            epoch: reader.i32()?,
            previous_epoch: reader.i32()?,
            state: reader.i8()?,
            assigned: partitions(&mut reader)?,
            revoking: partitions(&mut reader)?,
        };
        reader.tagged(|_, _| Ok(()))?;
        reader.end()?;
        Ok(current)
    }
}

impl RegularExpression {
    /// As a record's value.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = start();
        compact::put_items(&mut out, &self.topics, |out, topic| compact::put_string(out, topic));
        out.extend_from_slice(&self.version.to_be_bytes());
        out.extend_from_slice(&self.timestamp.0.to_be_bytes());
        no_tags(&mut out);
        out
    }

    /// From a record's value.
    ///
    /// # Errors
    /// [`RecordError`].
    pub fn decode(bytes: &[u8]) -> Result<RegularExpression, RecordError> {
        let mut reader = reader(16, bytes)?;
        let topics = texts(&mut reader)?;
        let (version, timestamp) = (reader.i64()?, Timestamp(reader.i64()?));
        reader.tagged(|_, _| Ok(()))?;
        reader.end()?;
        Ok(RegularExpression { topics, version, timestamp })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::schema::GROUPS;

    fn read(key: i16, bytes: &[u8]) -> String {
        let read = GROUPS.values[&key].decode(VERSION, &bytes[2..]);
        read.expect("the schema's reader takes it").to_json()
    }

    #[test]
    fn epochs_come_back_as_written() {
        for (epoch, hash) in [(3, 0), (4, -9)] {
            let bytes = encode_group(epoch, hash);
            assert_eq!(decode_group(&bytes), Ok((epoch, hash)));
            read(3, &bytes);
        }
        let target = TargetEpoch { epoch: 5, timestamp: Timestamp(1_000) };
        assert_eq!(TargetEpoch::decode(&target.encode()), Ok(target));
        assert_eq!(
            read(6, &target.encode()),
            r#"{"assignmentEpoch":5,"assignmentTimestamp":1000}"#
        );
    }

    #[test]
    fn members_come_back_as_written() {
        let member = ModernMember {
            instance: None,
            rack: Some("r".to_owned()),
            client_id: "c".to_owned(),
            client_host: "/::1".to_owned(),
            topics: vec!["a".to_owned(), "b".to_owned()],
            regex: None,
            rebalance_timeout_ms: 300_000,
            assignor: Some("range".to_owned()),
            classic: None,
        };
        let classic = ClassicMember {
            session_timeout_ms: 45_000,
            protocols: vec![("range".to_owned(), Bytes::from_static(&[1, 2, 3]))],
        };
        // As Kafka 4.3.1 writes it: one tag of one byte says that there is no classic half.
        assert!(member.encode().ends_with(&[1, 0, 1, 0]), "{:?}", member.encode());
        for member in [member.clone(), ModernMember { classic: Some(classic), ..member }] {
            assert_eq!(ModernMember::decode(&member.encode()), Ok(member.clone()));
            read(5, &member.encode());
        }
    }

    #[test]
    fn assignments_come_back_as_written() {
        let topic =
            |epochs| TopicPartitions { topic_id: TopicId([7; 16]), partitions: vec![0, 3], epochs };
        let target = vec![topic(Vec::new())];
        assert_eq!(decode_target(&encode_target(&target)), Ok(target.clone()));
        read(7, &encode_target(&target));
        let current = CurrentAssignment {
            epoch: 4,
            previous_epoch: 3,
            state: 1,
            assigned: vec![topic(vec![2, 4])],
            revoking: target,
        };
        assert_eq!(CurrentAssignment::decode(&current.encode()), Ok(current.clone()));
        assert!(read(8, &current.encode()).contains(r#""assignmentEpochs":[2,4]"#));
        // An empty list is the default there, in spite of the schema's null (`TopicPartitions` of
        // `ConsumerGroupCurrentMemberAssignmentValue`): null is shown, the empty list is not.
        let with_epochs = |epochs: u8| {
            let mut bytes = vec![0; 2 + 4 + 4 + 1];
            bytes.push(2);
            bytes.extend_from_slice(&[1; 16]);
            bytes.extend_from_slice(&[2, 0, 0, 0, 7]);
            bytes.extend_from_slice(&[1, 0, 1, epochs]);
            bytes.extend_from_slice(&[1, 0]);
            read(8, &bytes)
        };
        assert!(with_epochs(0).contains(r#""assignmentEpochs":null"#), "{}", with_epochs(0));
        assert!(!with_epochs(1).contains("assignmentEpochs"), "{}", with_epochs(1));
        let regex = RegularExpression {
            topics: vec!["a".to_owned()],
            version: 9,
            timestamp: Timestamp(1_000),
        };
        assert_eq!(RegularExpression::decode(&regex.encode()), Ok(regex.clone()));
        read(16, &regex.encode());
    }
}
