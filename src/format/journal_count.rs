//! `commit-journals`: how many commit journals a data directory has while a program uses them, so
//! that one that goes missing is missed. Two lines: a version, and the number.

/// Name of the file, at the root of the data directory.
pub const FILE_NAME: &str = "commit-journals";
/// A longer file is none of ours.
pub const BYTES_MAX: u64 = 64;

const VERSION: &str = "0";

/// Writes it.
pub fn print(count: u32) -> String {
    format!("{VERSION}\n{count}\n")
}

/// Reads the number; `None` when the content makes no sense.
pub fn parse(bytes: &[u8]) -> Option<u32> {
    let text = std::str::from_utf8(bytes).ok()?;
    let (version, count) = text.strip_suffix('\n')?.split_once('\n')?;
    (version == VERSION).then(|| count.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_comes_back_as_it_went_and_nothing_else_does() {
        for count in [0, 1, 64, u32::MAX] {
            assert_eq!(parse(print(count).as_bytes()), Some(count));
        }
        for wrong in ["", "0\n", "0\n2", "1\n2\n", "0\n-2\n", "0\n2\n3\n", "0\n4294967296\n"] {
            assert_eq!(parse(wrong.as_bytes()), None, "{wrong:?}");
        }
    }
}
