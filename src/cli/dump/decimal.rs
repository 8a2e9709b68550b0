//! Decimal numbers behind their labels, without the machinery of `write!`: a shallow dump of small
//! batches spends its time on nothing else.

/// Digits of the longest number of 64 bits.
const DIGITS_MAX: usize = 20;

/// Appends a label and a number.
pub fn put(out: &mut String, label: &str, number: impl Into<i64>) {
    let number = number.into();
    out.push_str(label);
    if number < 0 {
        out.push('-');
    }
    digits(out, number.unsigned_abs());
}

/// The same for what has no sign.
pub fn put_u64(out: &mut String, label: &str, number: u64) {
    out.push_str(label);
    digits(out, number);
}

fn digits(out: &mut String, mut number: u64) {
    let mut text = [b'0'; DIGITS_MAX];
    let mut first = DIGITS_MAX - 1;
    while 10 <= number {
        text[first] = b'0' + (number % 10).to_le_bytes()[0];
        number /= 10;
        first -= 1;
    }
    text[first] = b'0' + number.to_le_bytes()[0];
    out.push_str(str::from_utf8(&text[first..]).expect("digits are ASCII"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_look_as_display_shows_them() {
        for number in [0, 1, 9, 10, 99, 100, -1, -10, 1_795_991_000_000, i64::MIN, i64::MAX] {
            let mut text = String::new();
            put(&mut text, "n: ", number);
            assert_eq!(text, format!("n: {number}"));
        }
        let mut text = String::new();
        put_u64(&mut text, "", u64::MAX);
        assert_eq!(text, u64::MAX.to_string());
    }
}
