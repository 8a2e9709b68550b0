//! What members of classic groups of consumers put into `metadata` and `assignment`
//! (`ConsumerProtocolSubscription`, `ConsumerProtocolAssignment`), versions 0 to 3. What newer
//! versions have behind that is passed over.

use crate::format::compact::{CompactError, Reader};

/// First version of a subscription with the partitions that the member has.
const OWNED_FROM: i16 = 1;
/// First version with the generation that they are of.
const GENERATION_FROM: i16 = 2;
/// First version with a rack.
const RACK_FROM: i16 = 3;
/// Newest version of an assignment.
const ASSIGNMENT_VERSION: i16 = 3;
/// Version of subscriptions that are written: without a rack.
const SUBSCRIPTION_VERSION: i16 = 2;
/// What a member that has had no assignment yet calls its generation.
const NO_GENERATION: i32 = -1;

/// Topics with partitions.
pub type NamedPartitions = Vec<(String, Vec<i32>)>;

/// What a member subscribes to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Subscription {
    /// Version that the member writes.
    pub version: i16,
    /// Its topics.
    pub topics: Vec<String>,
    /// The partitions that it has; none before version 1.
    pub owned: NamedPartitions,
    /// The generation that these are of; -1 when the member doesn't say.
    pub generation: i32,
    /// Its rack.
    pub rack: Option<String>,
}

impl Subscription {
    /// From a member's metadata.
    ///
    /// # Errors
    /// [`CompactError`].
    pub fn decode(metadata: &[u8]) -> Result<Subscription, CompactError> {
        let mut reader = Reader::new(metadata);
        let version = reader.i16()?;
        let topics = items(&mut reader, 2, |reader| reader.plain_string().map(str::to_owned))?;
        skip_bytes(&mut reader)?;
        let owned = if version >= OWNED_FROM { partitions(&mut reader)? } else { Vec::new() };
        let generation = if version >= GENERATION_FROM { reader.i32()? } else { NO_GENERATION };
        let rack = if version >= RACK_FROM { reader.nullable_plain_string()? } else { None };
        Ok(Subscription { version, topics, owned, generation, rack: rack.map(str::to_owned) })
    }
}

/// What a member is to have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Assignment {
    /// Its partitions.
    pub partitions: NamedPartitions,
    /// Whether an assignor has put something of its own beside them.
    pub has_user_data: bool,
}

impl Assignment {
    /// From a member's assignment; an empty one is none.
    ///
    /// # Errors
    /// [`CompactError`].
    pub fn decode(assignment: &[u8]) -> Result<Assignment, CompactError> {
        if assignment.is_empty() {
            return Ok(Assignment { partitions: Vec::new(), has_user_data: false });
        }
        let mut reader = Reader::new(assignment);
        let _version = reader.i16()?;
        let partitions = partitions(&mut reader)?;
        let has_user_data = skip_bytes(&mut reader)?;
        Ok(Assignment { partitions, has_user_data })
    }
}

/// An assignment for a member that writes subscriptions of this version.
///
/// # Panics
/// When a topic's name is longer than 32,767 bytes.
pub fn encode_assignment(version: i16, partitions: &[(String, Vec<i32>)]) -> Vec<u8> {
    let mut out = version.clamp(0, ASSIGNMENT_VERSION).to_be_bytes().to_vec();
    put_partitions(&mut out, partitions);
    put_no_user_data(&mut out);
    out
}

/// A subscription: topics, and the partitions that the member has, of a generation.
///
/// # Panics
/// When a topic's name is longer than 32,767 bytes.
pub fn encode_subscription(
    topics: &[String],
    owned: &[(String, Vec<i32>)],
    generation: i32,
) -> Vec<u8> {
    let mut out = SUBSCRIPTION_VERSION.to_be_bytes().to_vec();
    put_count(&mut out, topics.len());
    topics.iter().for_each(|topic| put_text(&mut out, topic));
    put_no_user_data(&mut out);
    put_partitions(&mut out, owned);
    out.extend_from_slice(&generation.to_be_bytes());
    out
}

/// The topics that a member subscribes to.
///
/// # Errors
/// [`CompactError`].
pub fn subscribed_topics(metadata: &[u8]) -> Result<Vec<String>, CompactError> {
    let mut reader = Reader::new(metadata);
    let _version = reader.i16()?;
    items(&mut reader, 2, |reader| reader.plain_string().map(str::to_owned))
}

fn put_partitions(out: &mut Vec<u8>, partitions: &[(String, Vec<i32>)]) {
    put_count(out, partitions.len());
    for (topic, numbers) in partitions {
        put_text(out, topic);
        put_count(out, numbers.len());
        numbers.iter().for_each(|number| out.extend_from_slice(&number.to_be_bytes()));
    }
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    let length = i16::try_from(text.len()).expect("a topic's name is short");
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}

fn put_no_user_data(out: &mut Vec<u8>) {
    out.extend_from_slice(&(-1_i32).to_be_bytes());
}

fn put_count(out: &mut Vec<u8>, count: usize) {
    let count = i32::try_from(count).expect("what is assigned fits a record");
    out.extend_from_slice(&count.to_be_bytes());
}

fn items<'a, T>(
    reader: &mut Reader<'a>,
    bytes_min: usize,
    mut item: impl FnMut(&mut Reader<'a>) -> Result<T, CompactError>,
) -> Result<Vec<T>, CompactError> {
    let count = usize::try_from(reader.i32()?).unwrap_or(0);
    if reader.left() / bytes_min < count {
        return Err(CompactError::Truncated);
    }
    (0..count).map(|_| item(reader)).collect()
}

fn partitions(reader: &mut Reader<'_>) -> Result<NamedPartitions, CompactError> {
    items(reader, 6, |reader| {
        let topic = reader.plain_string()?.to_owned();
        Ok((topic, items(reader, 4, Reader::i32)?))
    })
}

/// Whether there is anything.
fn skip_bytes(reader: &mut Reader<'_>) -> Result<bool, CompactError> {
    let length = usize::try_from(reader.i32()?).unwrap_or(0);
    reader.take(length).map(|bytes| !bytes.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_are_read_whatever_stands_behind_them() {
        let metadata = [0, 3, 0, 0, 0, 2, 0, 1, b'a', 0, 2, b'b', b'c', 0xff, 0xff, 0xff, 0xff, 9];
        let topics = subscribed_topics(&metadata);
        assert_eq!(topics, Ok(vec!["a".to_owned(), "bc".to_owned()]));
        assert_eq!(subscribed_topics(&metadata[..9]), Err(CompactError::Truncated));
        assert!(subscribed_topics(&[]).is_err());
    }

    #[test]
    fn a_subscription_has_what_its_version_has() {
        let topics = [0, 0, 0, 1, 0, 1, b'a', 0xff, 0xff, 0xff, 0xff];
        let owned = [0, 0, 0, 1, 0, 1, b'a', 0, 0, 0, 1, 0, 0, 0, 7];
        let rest = [0, 0, 0, 4, 0, 1, b'r'];
        let first = [&[0, 0][..], &topics].concat();
        let read = Subscription::decode(&first).expect("version 0");
        assert_eq!((read.topics.len(), read.owned.len(), read.rack), (1, 0, None));
        assert_eq!(read.generation, NO_GENERATION);
        let last = [&[0, 3][..], &topics, &owned, &rest].concat();
        let read = Subscription::decode(&last).expect("version 3");
        assert_eq!(read.owned, [("a".to_owned(), vec![7])]);
        assert_eq!((read.generation, read.rack.as_deref()), (4, Some("r")));
        for length in 0..last.len() {
            assert!(Subscription::decode(&last[..length]).is_err(), "{length}");
        }
    }

    #[test]
    fn an_assignment_comes_back_as_written() {
        let partitions = vec![("a".to_owned(), vec![0, 3]), ("bc".to_owned(), vec![1])];
        let bytes = encode_assignment(9, &partitions);
        assert_eq!(bytes[..2], [0, 3]);
        let read = Assignment::decode(&bytes).expect("it was written");
        assert_eq!((read.partitions, read.has_user_data), (partitions, false));
        assert_eq!(Assignment::decode(&[]).map(|it| it.partitions), Ok(Vec::new()));
    }
}
