//! Names: topics, the files of a segment, the directories of partitions.
//!
//! ```text
//! orders-7/                                             a live partition
//!   00000000000000001005.log                            base offset, 20 digits, then the kind
//!   00000000000000001005.index.deleted                  and a suffix while the file is in transit
//! orders-7.4cd425dd6f3f453690f3e77b9ad4f67b-delete/     a partition awaiting removal
//! ```
//!
//! The rules are those of Kafka's `Topic`, `LocalLog` and `LogFileUtils`.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use crate::units::{Offset, PartitionId};

/// Longest topic name in bytes.
pub const TOPIC_NAME_BYTES_MAX: usize = 249;
/// Longest file name that Linux file systems take, in bytes.
pub const DIRECTORY_NAME_BYTES_MAX: usize = 255;
/// The topic that holds topics, ids and configs as KRaft records.
pub const CLUSTER_METADATA: &str = "__cluster_metadata";
/// Topics that the broker keeps for itself (`Topic.INTERNAL_TOPICS`).
const INTERNAL_TOPICS: [&str; 3] =
    ["__consumer_offsets", "__transaction_state", "__share_group_state"];

const OFFSET_DIGITS: usize = 20;
const UNIQUE_DIGITS: usize = 32;

/// Why a text is no topic name. The text is what clients show.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TopicNameError {
    /// No character at all.
    #[error("Topic name is invalid: the empty string is not allowed")]
    Empty,
    /// `.` or `..`, which are directories already.
    #[error("Topic name is invalid: '.' or '..' is not allowed")]
    Dots,
    /// More than [`TOPIC_NAME_BYTES_MAX`] bytes; says how many.
    #[error("Topic name is invalid: its length is {0}, at most {TOPIC_NAME_BYTES_MAX} is allowed")]
    Long(usize),
    /// A character outside the set; the name is shown escaped.
    #[error(
        "Topic name is invalid: '{0}' contains one or more characters other than ASCII \
         alphanumerics, '.', '_' and '-'"
    )]
    Character(String),
}

/// A topic's name that keeps Kafka's rules: 1 to 249 of `[a-zA-Z0-9._-]`, not `.` or `..`. Cheap to
/// clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicName(Arc<str>);

impl TopicName {
    /// Checks the rules and takes the name.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn new(name: &str) -> Result<TopicName, TopicNameError> {
        if name.is_empty() {
            return Err(TopicNameError::Empty);
        }
        if name == "." || name == ".." {
            return Err(TopicNameError::Dots);
        }
        if name.len() > TOPIC_NAME_BYTES_MAX {
            return Err(TopicNameError::Long(name.len()));
        }
        if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte)) {
            return Err(TopicNameError::Character(name.escape_debug().to_string()));
        }
        Ok(TopicName(name.into()))
    }

    /// The metadata topic's name.
    pub fn cluster_metadata() -> TopicName {
        TopicName(CLUSTER_METADATA.into())
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether clients may not produce to it as to an ordinary topic.
    pub fn is_internal(&self) -> bool {
        INTERNAL_TOPICS.contains(&self.as_str())
    }

    /// Whether two names differ at most by `.` against `_`, which metric names can't tell apart:
    /// creation of the second one is refused (`Topic.hasCollision`).
    pub fn collides_with(&self, other: &TopicName) -> bool {
        let same = |(a, b): (u8, u8)| a == b || (b"._".contains(&a) && b"._".contains(&b));
        self.0.len() == other.0.len() && self.0.bytes().zip(other.0.bytes()).all(same)
    }
}

impl fmt::Display for TopicName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for TopicName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

impl Borrow<str> for TopicName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// What a file of a segment holds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum FileKind {
    /// `.log`: record batches.
    Log,
    /// `.index`: offset to position.
    Index,
    /// `.timeindex`: timestamp to offset.
    TimeIndex,
    /// `.txnindex`: aborted transactions.
    TxnIndex,
    /// `.snapshot`: producer state; the number is the end offset of the state, exclusive.
    Snapshot,
}

impl FileKind {
    const ALL: [FileKind; 5] = [
        FileKind::Log,
        FileKind::Index,
        FileKind::TimeIndex,
        FileKind::TxnIndex,
        FileKind::Snapshot,
    ];

    /// The extension without its dot.
    pub fn extension(self) -> &'static str {
        match self {
            FileKind::Log => "log",
            FileKind::Index => "index",
            FileKind::TimeIndex => "timeindex",
            FileKind::TxnIndex => "txnindex",
            FileKind::Snapshot => "snapshot",
        }
    }
}

/// What is under way with a file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Suffix {
    /// Nothing: the file is in use.
    None,
    /// `.deleted`: awaits its removal.
    Deleted,
    /// `.cleaned`: being written by a cleaner.
    Cleaned,
    /// `.swap`: complete, about to replace others.
    Swap,
}

impl Suffix {
    const ALL: [Suffix; 4] = [Suffix::None, Suffix::Deleted, Suffix::Cleaned, Suffix::Swap];

    /// The text behind the extension, its dot included.
    pub fn as_str(self) -> &'static str {
        match self {
            Suffix::None => "",
            Suffix::Deleted => ".deleted",
            Suffix::Cleaned => ".cleaned",
            Suffix::Swap => ".swap",
        }
    }
}

/// Name of one file of a segment; prints as the file name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SegmentFile {
    /// The number in the name: the segment's base offset.
    pub base: Offset,
    /// What the file holds.
    pub kind: FileKind,
    /// What is under way with it.
    pub suffix: Suffix,
}

impl SegmentFile {
    /// The name of a file in use.
    pub fn new(base: Offset, kind: FileKind) -> SegmentFile {
        SegmentFile { base, kind, suffix: Suffix::None }
    }

    /// The same file with another suffix.
    pub fn with(self, suffix: Suffix) -> SegmentFile {
        SegmentFile { suffix, ..self }
    }

    /// Reads a file name; `None` when it isn't exactly a name that this type prints.
    pub fn parse(name: &str) -> Option<SegmentFile> {
        let (digits, rest) = name.split_at_checked(OFFSET_DIGITS)?;
        let base = Offset(decimal(digits)?);
        let rest = rest.strip_prefix('.')?;
        let kind = FileKind::ALL.into_iter().find(|kind| {
            let tail = rest.strip_prefix(kind.extension());
            tail.is_some_and(|tail| tail.is_empty() || tail.starts_with('.'))
        })?;
        let tail = &rest[kind.extension().len()..];
        let suffix = Suffix::ALL.into_iter().find(|suffix| suffix.as_str() == tail)?;
        (base <= Offset::MAX).then_some(SegmentFile { base, kind, suffix })
    }
}

impl fmt::Display for SegmentFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SegmentFile { base, kind, suffix } = self;
        write!(f, "{:0OFFSET_DIGITS$}.{}{}", base.0, kind.extension(), suffix.as_str())
    }
}

/// Whether a partition's directory is in use.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum DirectoryState {
    /// `topic-partition`.
    Live,
    /// `-delete`: the topic is gone, the files await their removal.
    Deleted(Unique),
    /// `-future`: a copy that was to replace one in another log directory.
    Future(Unique),
    /// `-stray`: the metadata doesn't know the partition.
    Stray(Unique),
}

/// The random number in a directory's name that keeps names apart: 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Unique(pub u128);

/// A partition's directory; prints as its name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PartitionDirectory {
    /// The topic. Shortened at its end in the name of a deleted or stray directory when that would
    /// exceed 255 bytes: `partition.metadata` inside tells which topic it was.
    pub topic: TopicName,
    /// The partition.
    pub partition: PartitionId,
    /// What the directory is.
    pub state: DirectoryState,
}

/// Why a name is not that of a partition's directory.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DirectoryNameError {
    /// No `-` that would set the partition apart.
    #[error("no '-' sets a partition number apart")]
    NoPartition,
    /// What follows the last `-` is no number from 0 to 2147483647 without leading zeros.
    #[error("{0:?} is no partition number")]
    Partition(String),
    /// Before the last `-` stands no topic name.
    #[error(transparent)]
    Topic(#[from] TopicNameError),
    /// A name that ends in `-delete`, `-future` or `-stray` has no `.` and 32 hexadecimal digits.
    #[error("no '.' and 32 hexadecimal digits before the last '-'")]
    Unique,
}

impl PartitionDirectory {
    /// The directory of a partition in use.
    pub fn live(topic: TopicName, partition: PartitionId) -> PartitionDirectory {
        PartitionDirectory { topic, partition, state: DirectoryState::Live }
    }

    /// Reads a directory's name.
    ///
    /// # Errors
    /// What about it isn't as Kafka names its directories.
    pub fn parse(name: &str) -> Result<PartitionDirectory, DirectoryNameError> {
        type State = fn(Unique) -> DirectoryState;
        let suffixes: [(&str, State); 3] = [
            ("-delete", DirectoryState::Deleted),
            ("-future", DirectoryState::Future),
            ("-stray", DirectoryState::Stray),
        ];
        for (suffix, state) in suffixes {
            if let Some(front) = name.strip_suffix(suffix) {
                let (live, unique) = front.rsplit_once('.').ok_or(DirectoryNameError::Unique)?;
                let unique = parse_unique(unique).ok_or(DirectoryNameError::Unique)?;
                return Ok(PartitionDirectory { state: state(unique), ..parse_live(live)? });
            }
        }
        parse_live(name)
    }
}

impl fmt::Display for PartitionDirectory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PartitionDirectory { topic, partition, state } = self;
        let tail = match state {
            DirectoryState::Live => format!("-{partition}"),
            DirectoryState::Deleted(Unique(n)) => format!("-{partition}.{n:032x}-delete"),
            DirectoryState::Future(Unique(n)) => format!("-{partition}.{n:032x}-future"),
            DirectoryState::Stray(Unique(n)) => format!("-{partition}.{n:032x}-stray"),
        };
        let kept = match state {
            DirectoryState::Deleted(_) | DirectoryState::Stray(_) => {
                topic.as_str().len().min(DIRECTORY_NAME_BYTES_MAX - tail.len())
            }
            DirectoryState::Live | DirectoryState::Future(_) => topic.as_str().len(),
        };
        write!(f, "{}{tail}", &topic.as_str()[..kept])
    }
}

fn parse_live(name: &str) -> Result<PartitionDirectory, DirectoryNameError> {
    let (topic, number) = name.rsplit_once('-').ok_or(DirectoryNameError::NoPartition)?;
    let wrong = || DirectoryNameError::Partition(number.escape_debug().to_string());
    let partition = decimal(number).and_then(|n| i32::try_from(n).ok()).ok_or_else(wrong)?;
    if number.len() > 1 && number.starts_with('0') {
        return Err(wrong());
    }
    Ok(PartitionDirectory::live(TopicName::new(topic)?, PartitionId(partition.unsigned_abs())))
}

fn parse_unique(digits: &str) -> Option<Unique> {
    let is_ours = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    if digits.len() != UNIQUE_DIGITS || !digits.bytes().all(is_ours) {
        return None;
    }
    u128::from_str_radix(digits, 16).ok().map(Unique)
}

/// Digits only; the standard parser would take a plus sign.
fn decimal(digits: &str) -> Option<u64> {
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn topic_names_keep_kafkas_rules() {
        for good in ["a", "w.dots_and-dashes-1", "...", &"x".repeat(249)] {
            assert_eq!(TopicName::new(good).expect("valid").as_str(), good);
        }
        assert_eq!(TopicName::new(""), Err(TopicNameError::Empty));
        assert_eq!(TopicName::new(".."), Err(TopicNameError::Dots));
        assert_eq!(TopicName::new(&"x".repeat(250)), Err(TopicNameError::Long(250)));
        for bad in ["a/b", "é", "a b", "a\0", "a\n"] {
            assert!(matches!(TopicName::new(bad), Err(TopicNameError::Character(_))), "{bad:?}");
        }
    }

    #[test]
    fn dots_and_underscores_collide() {
        let name = |text| TopicName::new(text).expect("valid");
        assert!(name("a.b_c").collides_with(&name("a_b.c")));
        assert!(!name("a.b").collides_with(&name("a-b")));
        assert!(!name("a.b").collides_with(&name("a.bc")));
        assert!(name("__consumer_offsets").is_internal());
    }

    #[test]
    fn segment_file_names() {
        let file = SegmentFile::new(Offset(1005), FileKind::TimeIndex).with(Suffix::Deleted);
        assert_eq!(file.to_string(), "00000000000000001005.timeindex.deleted");
        for bad in [
            "1005.log",
            "00000000000000001005.log2",
            "00000000000000001005.log.gone",
            "00000000000000001005",
            "+0000000000000001005.log",
            "99999999999999999999.log",
            "09223372036854775808.log",
            "0000000000000000100é.log",
        ] {
            assert_eq!(SegmentFile::parse(bad), None, "{bad}");
        }
        let last = SegmentFile::new(Offset::MAX, FileKind::Log);
        assert_eq!(SegmentFile::parse("09223372036854775807.log"), Some(last));
    }

    #[test]
    fn directory_names_as_kafka_writes_them() {
        let parse = |name| PartitionDirectory::parse(name);
        let dots = parse("w.dots_and-dashes-1-1").expect("valid");
        assert_eq!(dots.topic.as_str(), "w.dots_and-dashes-1");
        assert_eq!((dots.partition, dots.state), (PartitionId(1), DirectoryState::Live));
        let gone = parse("w-gone-1.4cd425dd6f3f453690f3e77b9ad4f67b-delete").expect("valid");
        assert_eq!((gone.topic.as_str(), gone.partition), ("w-gone", PartitionId(1)));
        let unique = Unique(0x4cd4_25dd_6f3f_4536_90f3_e77b_9ad4_f67b);
        assert_eq!(gone.state, DirectoryState::Deleted(unique));
        assert_eq!(parse("my-delete-0").expect("valid").topic.as_str(), "my-delete");
        assert_eq!(parse("x-stray"), Err(DirectoryNameError::Unique));
        assert_eq!(parse("data"), Err(DirectoryNameError::NoPartition));
        for bad in ["a-", "a-01", "a-+1", "a-2147483648"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        assert!(matches!(parse("-1"), Err(DirectoryNameError::Topic(TopicNameError::Empty))));
    }

    #[test]
    fn long_topics_are_shortened_in_deleted_directories() {
        let topic = TopicName::new(&"t".repeat(249)).expect("valid");
        let state = DirectoryState::Deleted(Unique(1));
        let name = PartitionDirectory { topic, partition: PartitionId(12), state }.to_string();
        assert_eq!(name.len(), DIRECTORY_NAME_BYTES_MAX);
        let again = PartitionDirectory::parse(&name).expect("valid");
        assert_eq!((again.partition, again.state), (PartitionId(12), state));
    }

    proptest! {
        #[test]
        fn names_survive_a_round_trip(
            base in 0..=Offset::MAX.0,
            kind in prop::sample::select(FileKind::ALL.to_vec()),
            suffix in prop::sample::select(Suffix::ALL.to_vec()),
            topic in "[a-zA-Z0-9_-][a-zA-Z0-9._-]{0,60}",
            partition in 0..=i32::MAX.unsigned_abs(),
            unique in any::<u128>(),
            which in 0_usize..4,
        ) {
            let file = SegmentFile { base: Offset(base), kind, suffix };
            prop_assert_eq!(SegmentFile::parse(&file.to_string()), Some(file));
            let unique = Unique(unique);
            let state = [
                DirectoryState::Live,
                DirectoryState::Deleted(unique),
                DirectoryState::Future(unique),
                DirectoryState::Stray(unique),
            ][which];
            let topic = TopicName::new(&topic).expect("valid");
            let directory = PartitionDirectory { topic, partition: PartitionId(partition), state };
            prop_assert_eq!(PartitionDirectory::parse(&directory.to_string()), Ok(directory));
        }

        #[test]
        fn any_text_is_parsed_without_a_panic(text in "\\PC*") {
            let _ = SegmentFile::parse(&text);
            let _ = PartitionDirectory::parse(&text);
            let _ = TopicName::new(&text);
        }
    }
}
