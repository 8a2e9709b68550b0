//! `partition.metadata`: which topic a partition's directory belongs to.
//!
//! ```text
//! version: 0
//! topic_id: kD7F0aVNRkO1yHkMyR0M0A      no newline at the end
//! ```

use crate::format::id::{self, IdError};
use crate::units::TopicId;

/// Name of the file.
pub const FILE_NAME: &str = "partition.metadata";

/// Why the file can't be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PartitionMetadataError {
    /// Not UTF-8.
    #[error("partition.metadata is not text")]
    NotText,
    /// The first line isn't `version: N` with N of 0 or more.
    #[error("partition.metadata doesn't begin with a version")]
    Version,
    /// The second line isn't `topic_id: ...`.
    #[error("partition.metadata has no topic id in its second line")]
    NoId,
    /// The topic id doesn't parse.
    #[error("partition.metadata: {0}")]
    Id(#[from] IdError),
    /// The id is the one that means none.
    #[error("partition.metadata has the topic id that means none")]
    Zero,
}

/// Reads the file. A version above 0 is taken, as Kafka does.
///
/// # Errors
/// [`PartitionMetadataError`].
pub fn parse(bytes: &[u8]) -> Result<TopicId, PartitionMetadataError> {
    let text = str::from_utf8(bytes).map_err(|_| PartitionMetadataError::NotText)?;
    let mut lines = text.lines();
    let version = lines.next().and_then(|line| value(line, "version"));
    let is_number = |word: &str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_digit());
    if !version.is_some_and(is_number) {
        return Err(PartitionMetadataError::Version);
    }
    let text = lines.next().and_then(|line| value(line, "topic_id"));
    let topic_id = TopicId(id::decode(text.ok_or(PartitionMetadataError::NoId)?)?);
    if topic_id == TopicId::ZERO {
        return Err(PartitionMetadataError::Zero);
    }
    Ok(topic_id)
}

/// Writes the file.
pub fn print(topic_id: TopicId) -> String {
    format!("version: 0\ntopic_id: {}", id::encode(topic_id.0))
}

fn value<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let (key, value) = line.split_once(':')?;
    (key == name).then_some(value.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_as_kafka_writes_it() {
        let topic_id = TopicId([7; 16]);
        let text = print(topic_id);
        assert_eq!(text.len(), 43);
        assert_eq!(parse(text.as_bytes()), Ok(topic_id));
        let newer = text.replace("version: 0", "version:   1") + "\n";
        assert_eq!(parse(newer.as_bytes()), Ok(topic_id));
    }

    #[test]
    fn each_fault_is_told_apart() {
        use PartitionMetadataError::*;
        let check = |text: &str, fault| assert_eq!(parse(text.as_bytes()), Err(fault), "{text}");
        check("", Version);
        check("version: -1\ntopic_id: x", Version);
        check("version: 0", NoId);
        check("version: 0\nid: AAAAAAAAAAAAAAAAAAAAAQ", NoId);
        check("version: 0\ntopic_id: abc", Id(IdError::Length(3)));
        check("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", Zero);
        assert_eq!(parse(&[0xff]), Err(NotText));
    }
}
