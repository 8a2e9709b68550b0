//! Strings whose bytes are no UTF-8, as Java shows them.

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
}
