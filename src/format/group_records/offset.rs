//! An offset that a group has committed (`OffsetCommitValue`).

use super::{RecordError, put_text};
use crate::format::compact::{self, Reader};
use crate::units::{Timestamp, TopicId};

/// Version written.
const VERSION: i16 = 4;
/// Version written when the client has set its own retention time.
const VERSION_WITH_EXPIRY: i16 = 1;
const TOPIC_ID_TAG: u32 = 0;

/// An offset that a group has committed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CommittedOffset {
    /// The offset, as the client named it.
    pub offset: i64,
    /// Leader epoch of the last record consumed; -1 for none.
    pub leader_epoch: i32,
    /// The client's own text.
    pub metadata: String,
    /// When it was committed.
    pub commit_timestamp: Timestamp,
    /// When it expires, if the client has said so; -1 otherwise.
    pub expire_timestamp: Timestamp,
    /// Id of the topic; zero when it isn't known.
    pub topic_id: TopicId,
}

impl CommittedOffset {
    /// As a record's value.
    pub fn encode(&self) -> Vec<u8> {
        let expires = self.expire_timestamp != Timestamp::NONE;
        let version = if expires { VERSION_WITH_EXPIRY } else { VERSION };
        let mut out = version.to_be_bytes().to_vec();
        out.extend_from_slice(&self.offset.to_be_bytes());
        if expires {
            put_text(&mut out, &self.metadata);
            out.extend_from_slice(&self.commit_timestamp.0.to_be_bytes());
            out.extend_from_slice(&self.expire_timestamp.0.to_be_bytes());
            return out;
        }
        out.extend_from_slice(&self.leader_epoch.to_be_bytes());
        compact::put_string(&mut out, &self.metadata);
        out.extend_from_slice(&self.commit_timestamp.0.to_be_bytes());
        let tags = match self.topic_id {
            TopicId::ZERO => Vec::new(),
            TopicId(id) => vec![(TOPIC_ID_TAG, id.to_vec())],
        };
        compact::put_tagged(&mut out, &tags);
        out
    }

    /// From a record's value, versions 0 to 4.
    ///
    /// # Errors
    /// [`RecordError`].
    pub fn decode(bytes: &[u8]) -> Result<CommittedOffset, RecordError> {
        let mut reader = Reader::new(bytes);
        let version = reader.i16()?;
        if !(0..=VERSION).contains(&version) {
            return Err(RecordError::Version { key: 1, version });
        }
        let offset = reader.i64()?;
        let leader_epoch = if version >= 3 { reader.i32()? } else { -1 };
        let metadata = match version {
            4.. => reader.string()?,
            _ => reader.plain_string()?,
        };
        let metadata = metadata.to_owned();
        let commit_timestamp = Timestamp(reader.i64()?);
        let expire_timestamp =
            if version == 1 { Timestamp(reader.i64()?) } else { Timestamp::NONE };
        let mut topic_id = TopicId::ZERO;
        if version >= 4 {
            reader.tagged(|tag, mut field| {
                if tag == TOPIC_ID_TAG {
                    topic_id = TopicId(field.array()?);
                }
                Ok(())
            })?;
        }
        reader.end()?;
        Ok(CommittedOffset {
            offset,
            leader_epoch,
            metadata,
            commit_timestamp,
            expire_timestamp,
            topic_id,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::schema::GROUPS;

    fn committed() -> CommittedOffset {
        CommittedOffset {
            offset: 42,
            leader_epoch: 3,
            metadata: "m".to_owned(),
            commit_timestamp: Timestamp(1_000),
            expire_timestamp: Timestamp::NONE,
            topic_id: TopicId([7; 16]),
        }
    }

    #[test]
    fn every_version_that_is_written_comes_back() {
        let without_id = CommittedOffset { topic_id: TopicId::ZERO, ..committed() };
        let expiring = CommittedOffset {
            expire_timestamp: Timestamp(2_000),
            leader_epoch: -1,
            ..without_id.clone()
        };
        for (committed, version) in [(committed(), 4), (without_id, 4), (expiring, 1)] {
            let bytes = committed.encode();
            assert_eq!(bytes[..2], [0, version]);
            assert_eq!(CommittedOffset::decode(&bytes), Ok(committed));
            let read = GROUPS.values[&1].decode(i16::from(version), &bytes[2..]);
            read.expect("the schema's reader takes it");
        }
    }

    #[test]
    fn versions_of_older_kafkas_are_read() {
        let mut bytes = vec![0, 3];
        bytes.extend_from_slice(&42_i64.to_be_bytes());
        bytes.extend_from_slice(&3_i32.to_be_bytes());
        bytes.extend_from_slice(&[0, 1, b'm']);
        bytes.extend_from_slice(&1_000_i64.to_be_bytes());
        let expected = CommittedOffset { topic_id: TopicId::ZERO, ..committed() };
        assert_eq!(CommittedOffset::decode(&bytes), Ok(expected));
    }
}
