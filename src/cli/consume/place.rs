//! Where to begin and where to stop.

use std::str::FromStr;

use crate::cli::command::CommandError;
use crate::cli::time::When;

/// Where to begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum From {
    /// At the oldest record.
    Earliest,
    /// Behind the newest record.
    Latest,
    /// At an offset.
    Offset(i64),
    /// At the first record of this time or later.
    Time(When),
}

impl FromStr for From {
    type Err = CommandError;

    /// `earliest`, `latest`, an offset, or a time.
    fn from_str(text: &str) -> Result<From, CommandError> {
        let parsed = match text {
            "earliest" => Some(From::Earliest),
            "latest" => Some(From::Latest),
            _ => offset(text).map(From::Offset).or_else(|| text.parse().ok().map(From::Time)),
        };
        parsed.ok_or_else(|| wrong(text, "begin: earliest, latest, OFFSET"))
    }
}

/// Where to stop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Until {
    /// Before this offset.
    Offset(i64),
    /// Before records of this time or later.
    Time(When),
}

impl FromStr for Until {
    type Err = CommandError;

    /// An offset, or a time.
    fn from_str(text: &str) -> Result<Until, CommandError> {
        let parsed = offset(text).map(Until::Offset).or_else(|| text.parse().ok().map(Until::Time));
        parsed.ok_or_else(|| wrong(text, "stop: OFFSET"))
    }
}

fn offset(text: &str) -> Option<i64> {
    text.parse::<i64>().ok().filter(|number| *number >= 0)
}

fn wrong(text: &str, forms: &str) -> CommandError {
    let times = "2026-11-30T14:00, @MILLISECONDS or 15m (ago)";
    CommandError::Usage(format!("{text:?} is no place to {forms}, {times}"))
}

/// The offset, when the partition has it or ends there.
///
/// # Errors
/// [`CommandError::Usage`].
pub(super) fn in_range(
    offset: i64,
    partition: i32,
    (earliest, latest): (i64, i64),
) -> Result<i64, CommandError> {
    if (earliest..=latest).contains(&offset) {
        return Ok(offset);
    }
    Err(CommandError::Usage(format!(
        "offset {offset} is out of range: partition {partition} has {earliest} to {latest}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_outside_a_partition_are_refused() {
        assert_eq!(in_range(5, 0, (5, 9)).expect("the first"), 5);
        assert_eq!(in_range(9, 0, (5, 9)).expect("the end"), 9);
        for offset in [4, 10] {
            let error = in_range(offset, 3, (5, 9)).expect_err("outside").to_string();
            assert!(error.contains("partition 3 has 5 to 9"), "{error}");
        }
    }

    #[test]
    fn places_to_begin() {
        let parse = |text: &str| text.parse::<From>();
        assert_eq!(parse("earliest").expect("fine"), From::Earliest);
        assert_eq!(parse("latest").expect("fine"), From::Latest);
        assert_eq!(parse("42").expect("fine"), From::Offset(42));
        let time = When::At(1_357_034_400_000);
        assert_eq!(parse("@1357034400000").expect("fine"), From::Time(time));
        assert_eq!(parse("2013-01-01T10:00").expect("fine"), From::Time(time));
        assert_eq!(parse("15m").expect("fine"), From::Time(When::Ago(900_000)));
        for bad in ["", "@", "-1", "@-1", "first", "4 2"] {
            parse(bad).expect_err(bad);
        }
    }

    #[test]
    fn places_to_stop() {
        let parse = |text: &str| text.parse::<Until>();
        assert_eq!(parse("42").expect("fine"), Until::Offset(42));
        assert_eq!(parse("now").expect("fine"), Until::Time(When::Ago(0)));
        for bad in ["latest", "-1", ""] {
            assert!(parse(bad).expect_err(bad).to_string().contains("no place to stop"));
        }
    }
}
