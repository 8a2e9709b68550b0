//! What members of classic groups of consumers put into `metadata` and `assignment`
//! (`ConsumerProtocolSubscription`, `ConsumerProtocolAssignment`): as far as a coordinator reads it.

use crate::format::compact::{CompactError, Reader};

/// The topics that a member subscribes to. What newer versions have behind them doesn't matter
/// here.
///
/// # Errors
/// [`CompactError`].
pub fn subscribed_topics(metadata: &[u8]) -> Result<Vec<String>, CompactError> {
    let mut reader = Reader::new(metadata);
    let _version = reader.i16()?;
    let count = reader.i32()?;
    let mut topics = Vec::new();
    for _ in 0..count {
        let length = usize::try_from(reader.i16()?).map_err(|_| CompactError::Null)?;
        let name = str::from_utf8(reader.take(length)?).map_err(|_| CompactError::Utf8)?;
        topics.push(name.to_owned());
    }
    Ok(topics)
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
}
