//! `meta.properties`: whose log directory this is. Text in the manner of Java's properties.
//!
//! ```text
//! #
//! #Mon Nov 30 00:31:23 UTC 2026
//! node.id=1
//! directory.id=dT3bNLxjTLafqbbGhVPDqQ
//! version=1
//! cluster.id=4L6g3nShT-eMCtK--X86sw
//! ```

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::format::id::{self, IdError};
use crate::units::{BrokerId, Timestamp};

/// Name of the file.
pub const FILE_NAME: &str = "meta.properties";

/// A log directory's own id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirectoryId(pub [u8; 16]);

/// As the file has it.
impl std::fmt::Display for DirectoryId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&id::encode(self.0))
    }
}

/// What the file says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MetaProperties {
    /// Usually 22 characters of base64, but any text is taken.
    pub cluster_id: String,
    /// The broker that owns the directory.
    pub node_id: BrokerId,
    /// `None` in a directory that an older Kafka formatted.
    pub directory_id: Option<DirectoryId>,
}

/// Why the file can't be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MetaPropertiesError {
    /// Not UTF-8.
    #[error("meta.properties is not text")]
    NotText,
    /// A version other than 1. Version 0 belongs to ZooKeeper's times.
    #[error("meta.properties has version {0:?}, only 1 is supported")]
    Version(String),
    /// A key without which the directory has no owner.
    #[error("meta.properties has no {0}")]
    Missing(&'static str),
    /// Not a number of 0 or more.
    #[error("node.id {0:?} of meta.properties is not a number from 0 to 2147483647")]
    NodeId(String),
    /// The directory's id doesn't parse.
    #[error("directory.id of meta.properties: {0}")]
    DirectoryId(#[from] IdError),
    /// An id that Kafka keeps for "lost", "unassigned" and the like.
    #[error("directory.id of meta.properties is one of the reserved ids")]
    Reserved,
}

/// Reads the file.
///
/// # Errors
/// [`MetaPropertiesError`].
pub fn parse(bytes: &[u8]) -> Result<MetaProperties, MetaPropertiesError> {
    let text = str::from_utf8(bytes).map_err(|_| MetaPropertiesError::NotText)?;
    let mut pairs = pairs(text);
    let version = pairs.remove("version").ok_or(MetaPropertiesError::Missing("version"))?;
    if version != "1" {
        return Err(MetaPropertiesError::Version(version));
    }
    let node_id = pairs.remove("node.id").ok_or(MetaPropertiesError::Missing("node.id"))?;
    let number = node_id.parse::<i32>().ok().filter(|id| *id >= 0);
    let number = number.ok_or(MetaPropertiesError::NodeId(node_id))?;
    let directory_id = pairs.remove("directory.id").map(|text| id::decode(&text)).transpose()?;
    if directory_id.is_some_and(id::is_reserved) {
        return Err(MetaPropertiesError::Reserved);
    }
    Ok(MetaProperties {
        cluster_id: pairs
            .remove("cluster.id")
            .filter(|id| !id.is_empty())
            .ok_or(MetaPropertiesError::Missing("cluster.id"))?,
        node_id: BrokerId(number),
        directory_id: directory_id.map(DirectoryId),
    })
}

/// Writes the file; `now` goes into its second line.
pub fn print(properties: &MetaProperties, now: Timestamp) -> String {
    let mut text = format!("#\n#{}\n", date(now));
    let _ = writeln!(text, "node.id={}", properties.node_id);
    if let Some(DirectoryId(bytes)) = properties.directory_id {
        let _ = writeln!(text, "directory.id={}", id::encode(bytes));
    }
    let _ = writeln!(text, "version=1\ncluster.id={}", escaped(&properties.cluster_id));
    text
}

/// Java's properties, as far as such a file uses them: comments, `=`, `:` or blanks between key and
/// value, a backslash before a character that would mean something else. The last value of a key
/// counts.
fn pairs(text: &str) -> BTreeMap<String, String> {
    let lines = text.lines().map(str::trim_start);
    lines.filter(|line| !line.is_empty() && !line.starts_with(['#', '!'])).map(pair).collect()
}

fn pair(line: &str) -> (String, String) {
    let mut is_escaped = false;
    let end = line.find(|character: char| {
        let ends = !is_escaped && matches!(character, '=' | ':' | ' ' | '\t');
        is_escaped = !is_escaped && character == '\\';
        ends
    });
    let (key, rest) = line.split_at(end.unwrap_or(line.len()));
    let rest = rest.trim_start_matches([' ', '\t']);
    let value = rest.strip_prefix(['=', ':']).unwrap_or(rest).trim_start_matches([' ', '\t']);
    (unescaped(key), unescaped(value))
}

fn unescaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => out.extend(characters.next()),
            other => out.push(other),
        }
    }
    out
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        if matches!(character, '=' | ':' | '#' | '!' | '\\' | ' ') {
            out.push('\\');
        }
        out.push(character);
    }
    out
}

/// A moment as Java's `Date` prints it, in UTC: `Mon Nov 30 00:31:23 UTC 2026`.
fn date(now: Timestamp) -> String {
    const WEEKDAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [(&str, u64); 12] = [
        ("Jan", 31),
        ("Feb", 28),
        ("Mar", 31),
        ("Apr", 30),
        ("May", 31),
        ("Jun", 30),
        ("Jul", 31),
        ("Aug", 31),
        ("Sep", 30),
        ("Oct", 31),
        ("Nov", 30),
        ("Dec", 31),
    ];
    /// The year 9999: nothing later makes sense, and the loops below end.
    const SECONDS_MAX: u64 = 253_402_300_799;
    let seconds = u64::try_from(now.0 / 1000).unwrap_or(0).min(SECONDS_MAX);
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let weekday = WEEKDAYS[usize::try_from(days % 7).expect("below seven")];
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let (mut year, mut day) = (1970, days);
    while day >= 365 + u64::from(is_leap(year)) {
        day -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let mut month = "Jan";
    for (name, length) in MONTHS {
        month = name;
        let length = length + u64::from(name == "Feb" && is_leap(year));
        if day < length {
            break;
        }
        day -= length;
    }
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{weekday} {month} {:02} {hour:02}:{minute:02}:{second:02} UTC {year}", day + 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sample() -> MetaProperties {
        MetaProperties {
            cluster_id: "4L6g3nShT-eMCtK--X86sw".into(),
            node_id: BrokerId(1),
            directory_id: Some(DirectoryId([9; 16])),
        }
    }

    #[test]
    fn the_file_as_kafka_writes_it() {
        let text = print(&sample(), Timestamp(1_796_000_000_123));
        let expected = "#\n#Mon Nov 30 00:53:20 UTC 2026\nnode.id=1\n\
                        directory.id=CQkJCQkJCQkJCQkJCQkJCQ\nversion=1\n\
                        cluster.id=4L6g3nShT-eMCtK--X86sw\n";
        assert_eq!(text, expected);
        assert_eq!(parse(text.as_bytes()), Ok(sample()));
    }

    #[test]
    fn dates_of_leap_years_and_edges() {
        assert_eq!(date(Timestamp(0)), "Thu Jan 01 00:00:00 UTC 1970");
        assert_eq!(date(Timestamp(-1)), "Thu Jan 01 00:00:00 UTC 1970");
        assert_eq!(date(Timestamp(951_782_400_000)), "Tue Feb 29 00:00:00 UTC 2000");
        assert_eq!(date(Timestamp(1_735_689_599_000)), "Tue Dec 31 23:59:59 UTC 2024");
        assert!(date(Timestamp(i64::MAX)).ends_with("9999"));
    }

    #[test]
    fn javas_ways_of_writing_a_pair() {
        let text = "! note\n  node.id : 3\nversion 1\ncluster.id = a\\=b\\:c\nfoo\n\
                    directory.id=CQkJCQkJCQkJCQkJCQkJCQ";
        let read = parse(text.as_bytes()).expect("valid");
        assert_eq!((read.node_id, read.cluster_id.as_str()), (BrokerId(3), "a=b:c"));
    }

    #[test]
    fn each_fault_is_told_apart() {
        use MetaPropertiesError::*;
        let text = print(&sample(), Timestamp(0));
        let check = |from: &str, to: &str, fault| {
            assert_eq!(parse(text.replace(from, to).as_bytes()), Err(fault), "{to}");
        };
        check("version=1", "version=0", Version("0".into()));
        check("version=1", "", Missing("version"));
        check("node.id=1", "node.id=-1", NodeId("-1".into()));
        check("node.id=1", "node.id=x", NodeId("x".into()));
        check("node.id=1", "", Missing("node.id"));
        check("4L6g3nShT-eMCtK--X86sw", "", Missing("cluster.id"));
        check("CQkJCQkJCQkJCQkJCQkJCQ", "x", DirectoryId(IdError::Length(1)));
        check("CQkJCQkJCQkJCQkJCQkJCQ", "AAAAAAAAAAAAAAAAAAAAAQ", Reserved);
        assert_eq!(parse(&[0xfe]), Err(NotText));
    }

    proptest! {
        #[test]
        fn any_cluster_id_survives(cluster_id in "[!-~]{1,40}", node in 0..=i32::MAX) {
            let written =
                MetaProperties { cluster_id, node_id: BrokerId(node), directory_id: None };
            let text = print(&written, Timestamp(0));
            prop_assert_eq!(parse(text.as_bytes()), Ok(written));
        }

        #[test]
        fn garbage_is_refused_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes);
        }
    }
}
