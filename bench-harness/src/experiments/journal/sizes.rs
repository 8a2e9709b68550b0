//! Sizes as they are written on a command line and in a table.

/// Reads `4096`, `16k`, `64m`, `1g`: powers of two.
pub fn bytes(text: &str) -> Result<u64, String> {
    let wrong = || format!("want a number of bytes, such as 4096, 16k or 64m, not {text:?}");
    let (digits, unit) = match text.trim().to_ascii_lowercase() {
        text if text.ends_with('k') => (text, 1 << 10),
        text if text.ends_with('m') => (text, 1 << 20),
        text if text.ends_with('g') => (text, 1 << 30),
        text => (text, 1_u64),
    };
    let digits = digits.trim_end_matches(['k', 'm', 'g']);
    let count: u64 = digits.parse().map_err(|_| wrong())?;
    count.checked_mul(unit).ok_or_else(wrong)
}

/// As [`bytes()`], or `none` for no limit.
pub fn limit(text: &str) -> Result<u64, String> {
    if text == "none" { Ok(u64::MAX) } else { bytes(text) }
}

/// A size for people.
pub fn shown(bytes: usize) -> String {
    match bytes {
        _ if bytes >= 1 << 20 && bytes.is_multiple_of(1 << 20) => format!("{} MB", bytes >> 20),
        _ if bytes >= 1 << 10 && bytes.is_multiple_of(1 << 10) => format!("{} KB", bytes >> 10),
        _ => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_shown() {
        for (text, count) in [("7", 7), ("16k", 16 << 10), ("64M", 64 << 20), ("1g", 1 << 30)] {
            assert_eq!(bytes(text), Ok(count));
        }
        assert_eq!(limit("none"), Ok(u64::MAX));
        for wrong in ["", "k", "-1", "1.5m", "16kk9", "99999999999999999g"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
        assert_eq!(
            (shown(1 << 20), shown(16 << 10), shown(100)),
            ("1 MB".into(), "16 KB".into(), "100 B".into())
        );
    }
}
