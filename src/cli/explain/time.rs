//! Times and spans as people read them.

const SECOND_MS: i64 = 1_000;
const MINUTE_MS: i64 = 60 * SECOND_MS;
const HOUR_MS: i64 = 60 * MINUTE_MS;
const DAY_MS: i64 = 24 * HOUR_MS;

/// A time in UTC to the millisecond; what it isn't says so.
pub fn utc(ms: i64) -> String {
    if ms < 0 {
        return "no time".to_owned();
    }
    let (days, rest) = (ms.div_euclid(DAY_MS), ms.rem_euclid(DAY_MS));
    let (year, month, day) = civil(days);
    let (hour, minute) = (rest / HOUR_MS, rest % HOUR_MS / MINUTE_MS);
    let (second, milli) = (rest % MINUTE_MS / SECOND_MS, rest % SECOND_MS);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{milli:03}")
}

/// Year, month and day of a day counted from 1970: the calendar repeats every 400 years, and a
/// year that begins in March has its leap day at the end.
fn civil(days: i64) -> (i64, i64, i64) {
    const ERA_DAYS: i64 = 146_097;
    // 0000-03-01 lies so many days before 1970-01-01.
    let shifted = days + 719_468;
    let (era, of_era) = (shifted.div_euclid(ERA_DAYS), shifted.rem_euclid(ERA_DAYS));
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + 400 * era + i64::from(month <= 2);
    (year, month, day)
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
