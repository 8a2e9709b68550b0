//! What shows through Kafka's output of the Java that printed it.

use std::borrow::Cow;

const REPLACEMENT: char = '\u{fffd}';

/// Bytes as `new String(bytes, UTF_8)` reads them. As Rust does it lossily, but for the three bytes
/// of a surrogate, for which Java puts one replacement instead of three.
pub fn text(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = str::from_utf8(bytes) {
        return Cow::Borrowed(text);
    }
    let (mut out, mut rest) = (String::with_capacity(bytes.len()), bytes);
    loop {
        match str::from_utf8(rest) {
            Ok(text) => {
                out.push_str(text);
                return Cow::Owned(out);
            }
            Err(error) => {
                let (valid, behind) = rest.split_at(error.valid_up_to());
                out.push_str(&String::from_utf8_lossy(valid));
                out.push(REPLACEMENT);
                let skipped = surrogate(behind).or(error.error_len()).unwrap_or(behind.len());
                rest = &behind[skipped..];
            }
        }
    }
}

/// How many bytes of a surrogate stand first, if one does.
fn surrogate(bytes: &[u8]) -> Option<usize> {
    match bytes {
        [0xed, 0xa0..=0xbf, 0x80..=0xbf, ..] => Some(3),
        [0xed, 0xa0..=0xbf, ..] => Some(2),
        _ => None,
    }
}

/// The order in which a Java `HashMap<String, ...>` goes through these keys, put into it in their
/// own order.
pub fn map_order<'a>(keys: impl ExactSizeIterator<Item = &'a String>) -> Vec<&'a String> {
    let mut buckets = 16_usize;
    while buckets / 4 * 3 < keys.len() {
        buckets *= 2;
    }
    let mut keys: Vec<&String> = keys.collect();
    keys.sort_by_key(|key| spread_hash(key) & (buckets - 1));
    keys
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
    fn malformed_utf_8_is_replaced_as_in_java() {
        for (bytes, expected) in [
            (&b"plain"[..], "plain"),
            (b"a\xffb", "a\u{fffd}b"),
            (b"\xed\xa0\x80b", "\u{fffd}b"),
            (b"\xed\xa0", "\u{fffd}"),
            (b"\xed\xa0b", "\u{fffd}b"),
            (b"\xe2\x82", "\u{fffd}"),
            (b"\xc0\x80", "\u{fffd}\u{fffd}"),
            (b"\xf4\x90\x80\x80", "\u{fffd}\u{fffd}\u{fffd}\u{fffd}"),
        ] {
            assert_eq!(text(bytes), expected, "{bytes:x?}");
        }
    }

    #[test]
    fn names_come_in_the_order_of_a_java_map() {
        // `"a".hashCode()` is 97, `"b"` 98, `"q"` 113: buckets 1, 2, 1 of 16.
        let names: Vec<String> = ["b", "a", "q"].iter().map(|it| (*it).to_owned()).collect();
        assert_eq!(map_order(names.iter()), ["a", "q", "b"]);
    }
}
