//! Times and spans as people write them. What time it is now is an argument.

use std::str::FromStr;

/// Milliseconds of each.
pub(super) const SECOND_MS: i64 = 1_000;
pub(super) const MINUTE_MS: i64 = 60 * SECOND_MS;
pub(super) const HOUR_MS: i64 = 60 * MINUTE_MS;
pub(super) const DAY_MS: i64 = 24 * HOUR_MS;

const SHORT_UNITS: &[(&str, i64)] = &[
    ("ms", 1),
    ("s", SECOND_MS),
    ("m", MINUTE_MS),
    ("min", MINUTE_MS),
    ("h", HOUR_MS),
    ("d", DAY_MS),
    ("w", 7 * DAY_MS),
];

const FORMS: &str =
    "2026-11-30, 2026-11-30T14:00[:00[.000]][Z|+01:00], @MILLISECONDS, now, or 15m (ago)";

/// A point in time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    /// Milliseconds since 1970.
    At(i64),
    /// So many milliseconds before now.
    Ago(i64),
}

impl When {
    /// In milliseconds since 1970.
    pub fn ms(self, now: i64) -> i64 {
        match self {
            When::At(ms) => ms,
            When::Ago(span) => now.saturating_sub(span).max(0),
        }
    }
}

impl FromStr for When {
    type Err = String;

    fn from_str(text: &str) -> Result<When, String> {
        let wrong = || format!("{text:?} is no time; write {FORMS}");
        if text == "now" {
            return Ok(When::Ago(0));
        }
        if let Some(ms) = text.strip_prefix('@') {
            let ms = digits(ms).ok_or_else(wrong)?;
            return Ok(When::At(ms));
        }
        if let Ok(Span(ms)) = text.parse() {
            return Ok(When::Ago(ms));
        }
        calendar(text).map(When::At).ok_or_else(wrong)
    }
}

/// A span of time in milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span(pub i64);

impl FromStr for Span {
    type Err = String;

    /// `90s`, `1d12h`, or ISO 8601 with days and less: `P1DT12H`.
    fn from_str(text: &str) -> Result<Span, String> {
        let parsed = match text.strip_prefix(['P', 'p']) {
            Some(iso) => iso_span(iso),
            None => units(text, SHORT_UNITS),
        };
        parsed.map(Span).ok_or_else(|| format!("{text:?} is no span; write 90s, 15m, 2h, 1d"))
    }
}

/// The time now, in milliseconds since 1970.
pub fn now_ms() -> i64 {
    crate::shard::now().0
}

/// A time in UTC to the millisecond, in the form of RFC 3339; a dash for what is no time.
pub fn utc(ms: i64) -> String {
    if ms < 0 {
        return "-".to_owned();
    }
    let (year, month, day) = civil(ms.div_euclid(DAY_MS));
    let rest = ms.rem_euclid(DAY_MS);
    let (hour, minute) = (rest / HOUR_MS, rest % HOUR_MS / MINUTE_MS);
    let (second, milli) = (rest % MINUTE_MS / SECOND_MS, rest % SECOND_MS);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

fn digits(text: &str) -> Option<i64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}

/// Numbers with their units, each at most once and without anything between: `1d12h`.
fn units(text: &str, known: &[(&str, i64)]) -> Option<i64> {
    let mut rest = text;
    let (mut total, mut seen) = (0_i64, Vec::new());
    while !rest.is_empty() {
        let end = rest.find(|it: char| !it.is_ascii_digit())?;
        let (number, behind) = rest.split_at(end);
        let end = behind.find(|it: char| it.is_ascii_digit()).unwrap_or(behind.len());
        let (unit, behind) = behind.split_at(end);
        let (_, size) = known.iter().find(|(name, _)| *name == unit)?;
        if seen.contains(&unit) {
            return None;
        }
        seen.push(unit);
        total = total.checked_add(digits(number)?.checked_mul(*size)?)?;
        rest = behind;
    }
    (!seen.is_empty()).then_some(total)
}

fn iso_span(text: &str) -> Option<i64> {
    let upper = text.to_ascii_uppercase();
    let (days, time) = match upper.split_once('T') {
        Some((days, time)) if !time.is_empty() => (days, time),
        Some(_) => return None,
        None => (upper.as_str(), ""),
    };
    let in_days = match days {
        "" if time.is_empty() => return None,
        "" => 0,
        days => units(days, &[("D", DAY_MS), ("W", 7 * DAY_MS)])?,
    };
    let in_time = match time {
        "" => 0,
        time => units(time, &[("H", HOUR_MS), ("M", MINUTE_MS), ("S", SECOND_MS)])?,
    };
    in_days.checked_add(in_time)
}

/// A date, perhaps a time, perhaps a zone; UTC without one.
fn calendar(text: &str) -> Option<i64> {
    let (date, time) = match text.split_once(['T', ' ']) {
        Some((date, time)) => (date, time),
        None => (text, "00:00"),
    };
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    if !(1..=12).contains(&month) || !(1970..=9999).contains(&year) {
        return None;
    }
    let days = days_of(year, month, day);
    // A day that the month doesn't have is another month's.
    if civil(days) != (year, month, day) {
        return None;
    }
    let (clock, zone_ms) = zone(time)?;
    Some(days * DAY_MS + clock_ms(clock)? - zone_ms)
}

/// The clock, and how far the zone is ahead of UTC.
fn zone(time: &str) -> Option<(&str, i64)> {
    if let Some(clock) = time.strip_suffix(['Z', 'z']) {
        return Some((clock, 0));
    }
    let Some(at) = time.find(['+', '-']) else { return Some((time, 0)) };
    let (clock, zone) = time.split_at(at);
    let sign = if zone.starts_with('-') { -1 } else { 1 };
    let [hours, minutes] = numbers(&zone[1..], ':', [2, 2])?;
    (hours <= 18 && minutes < 60).then_some((clock, sign * (hours * HOUR_MS + minutes * MINUTE_MS)))
}

fn clock_ms(clock: &str) -> Option<i64> {
    let (whole, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
    let [hour, minute, second] = match whole.matches(':').count() {
        1 => {
            let [hour, minute] = numbers(whole, ':', [2, 2])?;
            [hour, minute, 0]
        }
        _ => numbers(whole, ':', [2, 2, 2])?,
    };
    let milli = match fraction.len() {
        1..=9 => digits(&format!("{fraction:0<3}")[..3])?,
        _ => return None,
    };
    digits(fraction)?;
    let is_valid = hour < 24 && minute < 60 && second < 60;
    is_valid.then_some(hour * HOUR_MS + minute * MINUTE_MS + second * SECOND_MS + milli)
}

/// Numbers of so many digits with `between` between them.
fn numbers<const N: usize>(text: &str, between: char, lengths: [usize; N]) -> Option<[i64; N]> {
    let mut found = [0; N];
    let mut parts = text.split(between);
    for (number, length) in found.iter_mut().zip(lengths) {
        *number = digits(parts.next().filter(|part| part.len() == length)?)?;
    }
    parts.next().is_none().then_some(found)
}

/// Days from 1970 to a day of the calendar, which repeats every 400 years; a year that begins in
/// March has its leap day at the end.
fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let month_from_march = (month + 9) % 12;
    let of_year = (153 * month_from_march + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// The day of the calendar, so many days from 1970.
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let of_era_years = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * of_era_years + of_era_years / 4 - of_era_years / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (of_era_years + 400 * era + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        for (text, ms) in [
            ("@0", 0),
            ("@1700000000123", 1_700_000_000_123),
            ("1970-01-01", 0),
            ("2000-02-29", 951_782_400_000),
            ("2023-11-14T22:13:20.123Z", 1_700_000_000_123),
            ("2023-11-14 22:13:20.123", 1_700_000_000_123),
            ("2023-11-14T22:13:20.1", 1_700_000_000_100),
            ("2023-11-14T23:13+01:00", 1_699_999_980_000),
            ("2023-11-14T16:43-05:30", 1_699_999_980_000),
            ("2100-03-01T00:00", 4_107_542_400_000),
        ] {
            assert_eq!(text.parse(), Ok(When::At(ms)), "{text}");
        }
        for bad in [
            "",
            "@",
            "@-1",
            "@1x",
            "yesterday",
            "2023-02-29",
            "2023-13-01",
            "2023-00-10",
            "2023-1-1",
            "2023-11-14T",
            "2023-11-14T25:00",
            "2023-11-14T22:60",
            "2023-11-14T2:00",
            "2023-11-14T22:13:20.",
            "2023-11-14T22:13+1:00",
            "2023-11-14T22:13+99:00",
            "15",
            "-15m",
            "15x",
            "15m ago",
            "99999999999999999999",
            "1969-12-31",
        ] {
            let error = bad.parse::<When>().expect_err(bad);
            assert!(error.contains("2026-11-30T14:00"), "{error}");
        }
    }

    #[test]
    fn spans_are_added_up() {
        for (text, ms) in [
            ("90s", 90_000),
            ("15m", 900_000),
            ("15min", 900_000),
            ("1d12h", 129_600_000),
            ("250ms", 250),
            ("2w", 1_209_600_000),
            ("PT1H30M", 5_400_000),
            ("P1D", 86_400_000),
            ("P1DT1S", 86_401_000),
        ] {
            assert_eq!(text.parse(), Ok(Span(ms)), "{text}");
        }
        for bad in ["", "P", "PT", "P1", "1", "s", "1y", "1s1s", "PT1D", "-1s", "1.5h", "1h 5m"] {
            bad.parse::<Span>().expect_err(bad);
        }
    }

    #[test]
    fn ago_is_before_now_and_after_1970() {
        assert_eq!("15m".parse::<When>().map(|it| it.ms(1_000_000)), Ok(100_000));
        assert_eq!(When::Ago(5).ms(3), 0);
        assert_eq!("now".parse::<When>().map(|it| it.ms(7)), Ok(7));
    }

    #[test]
    fn times_are_printed_as_they_are_read() {
        for ms in [0, 951_782_399_999, 951_782_400_000, 1_700_000_000_123, 4_107_542_400_000] {
            assert_eq!(utc(ms).parse(), Ok(When::At(ms)), "{}", utc(ms));
        }
        assert_eq!(utc(1_700_000_000_123), "2023-11-14T22:13:20.123Z");
        assert_eq!(utc(-1), "-");
    }
}
