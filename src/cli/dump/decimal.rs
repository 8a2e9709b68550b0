//! Decimal numbers behind their labels, without the machinery of `write!`: a shallow dump of small
//! batches spends its time on nothing else.

/// Appends a label and a number.
pub fn put(out: &mut String, label: &str, number: impl itoa::Integer) {
    out.push_str(label);
    out.push_str(itoa::Buffer::new().format(number));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_look_as_display_shows_them() {
        for number in [0_i64, 1, 9, 10, 99, 100, -1, -10, 1_795_991_000_000, i64::MIN, i64::MAX] {
            let mut text = String::new();
            put(&mut text, "n: ", number);
            assert_eq!(text, format!("n: {number}"));
        }
        let mut text = String::new();
        put(&mut text, "", u64::MAX);
        assert_eq!(text, u64::MAX.to_string());
    }
}
