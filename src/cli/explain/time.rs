//! Times and spans as people read them.

use crate::cli::time::{self, DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS};

/// A time in UTC to the millisecond, as a sentence has it; what it isn't says so.
pub fn utc(ms: i64) -> String {
    if ms < 0 {
        return "no time".to_owned();
    }
    time::utc(ms).replace('T', " ").trim_end_matches('Z').to_owned()
}

/// A span in its two largest units.
pub fn span(ms: i64) -> String {
    let ms = ms.max(0);
    let units = [(DAY_MS, "d"), (HOUR_MS, "h"), (MINUTE_MS, "min"), (SECOND_MS, "s"), (1, "ms")];
    let mut left = ms;
    let mut parts = Vec::new();
    for (length, name) in units {
        let count = left / length;
        left %= length;
        if count != 0 {
            parts.push(format!("{count} {name}"));
        } else if !parts.is_empty() {
            break;
        }
        if parts.len() == 2 {
            break;
        }
    }
    if parts.is_empty() { "0 ms".to_owned() } else { parts.join(" ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        for (ms, text) in [
            (0, "1970-01-01 00:00:00.000"),
            (951_782_399_999, "2000-02-28 23:59:59.999"),
            (951_782_400_000, "2000-02-29 00:00:00.000"),
            (1_700_000_000_123, "2023-11-14 22:13:20.123"),
            (4_107_542_400_000, "2100-03-01 00:00:00.000"),
            (-1, "no time"),
        ] {
            assert_eq!(utc(ms), text);
        }
    }

    #[test]
    fn spans_have_two_units() {
        for (ms, text) in [
            (0, "0 ms"),
            (999, "999 ms"),
            (61_005, "1 min 1 s"),
            (3_600_000, "1 h"),
            (604_800_001, "7 d"),
            (90_061_000, "1 d 1 h"),
        ] {
            assert_eq!(span(ms), text);
        }
    }
}
