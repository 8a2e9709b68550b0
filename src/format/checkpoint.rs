//! Checkpoint files: small text files that Kafka rewrites as a whole.
//!
//! ```text
//! 0                   version
//! 2                   how many entries follow
//! orders 0 1005       topic, partition, offset        (recovery point, log start, high watermark)
//! orders 1 42         or: leader epoch, start offset  (leader-epoch-checkpoint)
//! ```
//!
//! An empty file has no entries: Kafka creates these files before it has anything to say.

use std::fmt::Write;

use crate::format::names::{TopicName, TopicNameError};
use crate::units::{LeaderEpoch, Offset, PartitionId, u64_of};

/// The only version.
const VERSION: &str = "0";

/// An offset of a partition, as the files at the root of a log directory keep it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartitionOffset {
    /// The topic.
    pub topic: TopicName,
    /// The partition.
    pub partition: PartitionId,
    /// What it means depends on the file: recovery point, log start or high watermark.
    pub offset: Offset,
}

/// Where a leader epoch begins in the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EpochStart {
    /// The epoch.
    pub epoch: LeaderEpoch,
    /// First offset that was or will be written in it.
    pub start: Offset,
}

/// A checkpoint file that can't be read: the line, counted from 1, and what is wrong with it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}: {fault}")]
pub struct CheckpointError {
    /// Line, counted from 1.
    pub line: u64,
    /// What is wrong there.
    #[source]
    pub fault: CheckpointFault,
}

/// What is wrong with a line of a checkpoint file. Kafka takes the directory offline for a wrong
/// version or count, and reads the file as empty when a number doesn't parse.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CheckpointFault {
    /// Not UTF-8.
    #[error("the file is not text")]
    NotText,
    /// Another version.
    #[error("version {0:?} is not supported, only 0 is")]
    Version(String),
    /// The second line is missing or no number.
    #[error("{0:?} is no number of entries")]
    Count(String),
    /// Fewer lines than the count says.
    #[error("{expected} entries are announced, only {present} are there")]
    Missing {
        /// As the second line says.
        expected: u64,
        /// As there are.
        present: u64,
    },
    /// More lines than the count says.
    #[error("{expected} entries are announced, more are there")]
    Surplus {
        /// As the second line says.
        expected: u64,
    },
    /// Not the right number of words.
    #[error("the line has {present} words instead of {expected}")]
    Words {
        /// Words of an entry.
        expected: usize,
        /// Words of the line.
        present: usize,
    },
    /// A word that should be a number in range and isn't.
    #[error("{0:?} is no number in range")]
    Number(String),
    /// A word that should be a topic and isn't.
    #[error(transparent)]
    Topic(#[from] TopicNameError),
}

/// Reads a file of partition offsets.
///
/// # Errors
/// The first line that is wrong.
pub fn parse_offsets(bytes: &[u8]) -> Result<Vec<PartitionOffset>, CheckpointError> {
    parse(bytes, |[topic, partition, offset]| {
        let partition = i64::from(number::<i32>(partition)?);
        Ok(PartitionOffset {
            topic: TopicName::new(topic)?,
            partition: PartitionId(in_range(partition)?),
            offset: Offset(in_range(number::<i64>(offset)?)?),
        })
    })
}

/// Writes a file of partition offsets.
pub fn print_offsets(entries: &[PartitionOffset]) -> String {
    print(entries, |text, PartitionOffset { topic, partition, offset }| {
        writeln!(text, "{topic} {partition} {}", offset.to_wire())
    })
}

/// Reads a leader-epoch-checkpoint. The order of the entries is the caller's to check.
///
/// # Errors
/// The first line that is wrong.
pub fn parse_epochs(bytes: &[u8]) -> Result<Vec<EpochStart>, CheckpointError> {
    parse(bytes, |[epoch, start]| {
        let epoch: i32 = in_range(i64::from(number::<i32>(epoch)?).max(-1))?;
        if epoch < 0 {
            return Err(CheckpointFault::Number(epoch.to_string()));
        }
        let start = Offset(in_range(number::<i64>(start)?)?);
        Ok(EpochStart { epoch: LeaderEpoch(epoch), start })
    })
}

/// Writes a leader-epoch-checkpoint.
pub fn print_epochs(entries: &[EpochStart]) -> String {
    print(entries, |text, EpochStart { epoch, start }| {
        writeln!(text, "{epoch} {}", start.to_wire())
    })
}

fn parse<T, const WORDS: usize>(
    bytes: &[u8],
    entry: impl Fn([&str; WORDS]) -> Result<T, CheckpointFault>,
) -> Result<Vec<T>, CheckpointError> {
    let failed = |line: usize, fault| CheckpointError { line: u64_of(line), fault };
    let text = str::from_utf8(bytes).map_err(|_| failed(1, CheckpointFault::NotText))?;
    let mut lines = text.lines().enumerate().map(|(at, line)| (at + 1, line.trim()));
    let Some((_, version)) = lines.next() else { return Ok(Vec::new()) };
    if version != VERSION {
        return Err(failed(1, CheckpointFault::Version(shown(version))));
    }
    let (_, count) = lines.next().unwrap_or((2, ""));
    let expected: u64 =
        decimal(count).ok_or_else(|| failed(2, CheckpointFault::Count(shown(count))))?;
    let mut entries = Vec::new();
    for (line, text) in lines {
        let present = u64_of(entries.len());
        if text.is_empty() && present == expected {
            continue;
        }
        if present == expected {
            return Err(failed(line, CheckpointFault::Surplus { expected }));
        }
        let words = words(text).map_err(|fault| failed(line, fault))?;
        entries.push(entry(words).map_err(|fault| failed(line, fault))?);
    }
    let present = u64_of(entries.len());
    if present < expected {
        return Err(failed(entries.len() + 3, CheckpointFault::Missing { expected, present }));
    }
    Ok(entries)
}

fn print<T>(
    entries: &[T],
    line: impl Fn(&mut String, &T) -> Result<(), std::fmt::Error>,
) -> String {
    let mut text = format!("{VERSION}\n{}\n", entries.len());
    for entry in entries {
        line(&mut text, entry).expect("writing to a string can't fail");
    }
    text
}

fn words<const WORDS: usize>(line: &str) -> Result<[&str; WORDS], CheckpointFault> {
    let mut words = [""; WORDS];
    let mut present = 0;
    for word in line.split_whitespace() {
        if let Some(place) = words.get_mut(present) {
            *place = word;
        }
        present += 1;
    }
    if present == WORDS {
        Ok(words)
    } else {
        Err(CheckpointFault::Words { expected: WORDS, present })
    }
}

fn number<T: std::str::FromStr>(word: &str) -> Result<T, CheckpointFault> {
    word.parse().map_err(|_| CheckpointFault::Number(shown(word)))
}

fn in_range<T: TryFrom<i64>>(value: i64) -> Result<T, CheckpointFault> {
    T::try_from(value).map_err(|_| CheckpointFault::Number(value.to_string()))
}

fn decimal(digits: &str) -> Option<u64> {
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

/// What a message shows of a word: garbage may be long.
fn shown(word: &str) -> String {
    const SHOWN_CHARACTERS_MAX: usize = 40;
    word.chars().take(SHOWN_CHARACTERS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fault(text: &str) -> (u64, CheckpointFault) {
        let error = parse_offsets(text.as_bytes()).expect_err("wrong");
        (error.line, error.fault)
    }

    #[test]
    fn kafkas_files() {
        assert_eq!(parse_offsets(b""), Ok(vec![]));
        assert_eq!(parse_offsets(b"0\n0\n"), Ok(vec![]));
        let entries = parse_offsets(b"0\n2\nw-three 4 12\nmy.topic 0 0\n").expect("valid");
        assert_eq!(entries[0].topic.as_str(), "w-three");
        assert_eq!((entries[0].partition, entries[0].offset), (PartitionId(4), Offset(12)));
        assert_eq!(print_offsets(&entries), "0\n2\nw-three 4 12\nmy.topic 0 0\n");
        let epochs = parse_epochs(b"0\n2\n0 0\n4 17").expect("valid");
        assert_eq!(epochs[1], EpochStart { epoch: LeaderEpoch(4), start: Offset(17) });
        assert_eq!(print_epochs(&epochs[..1]), "0\n1\n0 0\n");
        assert!(parse_epochs(b"0\n1\n-1 0\n").is_err());
    }

    #[test]
    fn each_fault_has_its_line() {
        use CheckpointFault::*;
        assert_eq!(fault("1\n0\n"), (1, Version("1".into())));
        assert_eq!(fault("0\n"), (2, Count("".into())));
        assert_eq!(fault("0\n-1\n"), (2, Count("-1".into())));
        assert_eq!(fault("0\n2\na 0 0\n"), (4, Missing { expected: 2, present: 1 }));
        assert_eq!(fault("0\n1\na 0 0\nb 0 0\n"), (4, Surplus { expected: 1 }));
        assert_eq!(fault("0\n1\na 0\n"), (3, Words { expected: 3, present: 2 }));
        assert_eq!(fault("0\n1\na 0 0 0\n"), (3, Words { expected: 3, present: 4 }));
        assert_eq!(fault("0\n1\na 0 x\n"), (3, Number("x".into())));
        assert_eq!(fault("0\n1\na 0 -5\n"), (3, Number("-5".into())));
        assert_eq!(fault("0\n1\n.. 0 0\n"), (3, Topic(TopicNameError::Dots)));
        assert_eq!(fault("0\n18446744073709551615\na 0 0\n").0, 4);
        assert_eq!(parse_offsets(&[b'0', b'\n', 0xff]).expect_err("no text").fault, NotText);
    }

    proptest! {
        #[test]
        fn offsets_survive_a_round_trip(
            rows in prop::collection::vec(("[a-z_-]{1,20}", 0_u32..1000, 0..=Offset::MAX.0), 0..20),
        ) {
            let entry = |(topic, partition, offset): (String, u32, u64)| PartitionOffset {
                topic: TopicName::new(&topic).expect("valid"),
                partition: PartitionId(partition),
                offset: Offset(offset),
            };
            let entries: Vec<_> = rows.into_iter().map(entry).collect();
            prop_assert_eq!(parse_offsets(print_offsets(&entries).as_bytes()), Ok(entries));
        }

        #[test]
        fn garbage_is_refused_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse_offsets(&bytes);
            let _ = parse_epochs(&bytes);
        }
    }
}
