//! What shows through Kafka's output of the Java that printed it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::format::compact::CompactError;
pub use crate::format::java_text::text;
use crate::format::schema::SchemaError;
use crate::format::varint::VarintError;

/// A path as `java.io.File` keeps it: slashes that stand for nothing are gone, dots stay.
pub fn file(path: &Path) -> PathBuf {
    let bytes = path.as_os_str().as_bytes();
    let mut kept: Vec<u8> = Vec::with_capacity(bytes.len());
    for byte in bytes {
        if *byte != b'/' || kept.last() != Some(&b'/') {
            kept.push(*byte);
        }
    }
    if 1 < kept.len() && kept.last() == Some(&b'/') {
        kept.pop();
    }
    PathBuf::from(OsStr::from_bytes(&kept))
}

/// Why a record isn't one, as the code says that Kafka generates from its schemas.
pub fn reason(error: &SchemaError) -> String {
    match error {
        SchemaError::Field { field, error } => field_reason(field, *error),
        other => plain_reason(other),
    }
}

/// The same of a field.
pub fn field_reason(field: &str, error: CompactError) -> String {
    match error {
        CompactError::Truncated | CompactError::Varint(VarintError::Truncated) => "null".to_owned(),
        CompactError::Null => format!("non-nullable field {field} was serialized as null"),
        CompactError::LongText(bytes) => format!("string field {field} had invalid length {bytes}"),
        CompactError::Length { announced, left } => format!(
            "Error reading byte array of {announced} byte(s): only {left} byte(s) available"
        ),
        CompactError::Items { announced, left } => format!(
            "Tried to allocate a collection of size {announced}, but there are only {left} bytes \
             remaining."
        ),
        other => other.to_string(),
    }
}

fn plain_reason(error: &SchemaError) -> String {
    match error {
        SchemaError::Bytes(
            CompactError::Truncated | CompactError::Varint(VarintError::Truncated),
        ) => "null".to_owned(),
        other => other.to_string(),
    }
}

/// Buckets of a map that nothing is in yet.
const BUCKETS_MIN: usize = 16;

/// Values by text, in the order in which a Java `HashMap` goes through them that was filled by
/// `computeIfAbsent`: by bucket, and the newest first of those in one. It grows when it is asked
/// for something while more than three quarters of its buckets' number are in it.
#[derive(Debug)]
pub struct HashMap<V> {
    entries: Vec<(String, V)>,
    buckets: usize,
}

impl<V> Default for HashMap<V> {
    fn default() -> HashMap<V> {
        HashMap { entries: Vec::new(), buckets: BUCKETS_MIN }
    }
}

impl<V: Default> HashMap<V> {
    /// The value under this key.
    pub fn entry(&mut self, key: &str) -> &mut V {
        if self.buckets / 4 * 3 < self.entries.len() {
            self.buckets *= 2;
        }
        let at = self.entries.iter().rposition(|(known, _)| known == key).unwrap_or_else(|| {
            self.entries.push((key.to_owned(), V::default()));
            self.entries.len() - 1
        });
        &mut self.entries[at].1
    }

    /// All of them.
    pub fn in_order(&self) -> Vec<&(String, V)> {
        let mut entries: Vec<_> = self.entries.iter().rev().collect();
        entries.sort_by_key(|(key, _)| spread_hash(key) & (self.buckets - 1));
        entries
    }
}

fn spread_hash(text: &str) -> usize {
    let units = text.encode_utf16();
    let hash = units.fold(0_u32, |sum, it| sum.wrapping_mul(31).wrapping_add(u32::from(it)));
    usize::try_from(hash ^ (hash >> 16)).expect("32 bits fit")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_in_the_order_of_a_java_map() {
        // `"a".hashCode()` is 97, `"b"` 98, `"q"` 113: buckets 1, 2, 1 of 16.
        let mut map = HashMap::<u8>::default();
        for name in ["b", "a", "q", "a"] {
            *map.entry(name) += 1;
        }
        let pairs: Vec<_> = map.in_order().iter().map(|it| (it.0.as_str(), it.1)).collect();
        assert_eq!(pairs, [("q", 1), ("a", 2), ("b", 1)]);
    }

    #[test]
    fn a_map_grows_when_it_is_asked_again() {
        // 97 and 113 share a bucket of 16, but none of 32.
        let names = ["q", "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];
        let mut map = HashMap::<u8>::default();
        for name in names {
            map.entry(name);
        }
        assert_eq!(map.in_order()[0].0, "a");
        assert_eq!(map.in_order()[1].0, "q");
        map.entry("l");
        assert_eq!(map.in_order()[12].0, "q");
    }

    #[test]
    fn a_path_loses_slashes_only() {
        for (path, expected) in
            [("a//b/", "a/b"), ("./a", "./a"), ("/", "/"), ("//a/./b", "/a/./b"), ("", "")]
        {
            assert_eq!(file(Path::new(path)), Path::new(expected));
        }
    }
}
