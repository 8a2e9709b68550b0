//! Types and ranges of settings, and Kafka's words for a value that doesn't fit.

use std::fmt;

/// What values a setting takes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Kind {
    /// `true` or `false`.
    Boolean,
    /// 32 bits, within the bounds.
    Int(i32, i32),
    /// 64 bits, within the bounds.
    Long(i64, i64),
    /// A fraction within the bounds.
    Double(f64, f64),
    /// One of the words.
    OneOf(&'static [&'static str]),
    /// Any of the words, each once, separated by commas; may be empty.
    AnyOf(&'static [&'static str]),
    /// Words separated by commas.
    List,
    /// Any text.
    Text,
    /// -1 or a level from 1 to 9.
    GzipLevel,
}

/// Kafka's number of a type in DescribeConfigs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TypeCode(pub i8);

impl Kind {
    /// 0 and above.
    pub const LONG_NOT_NEGATIVE: Kind = Kind::Long(0, i64::MAX);
    /// 1 and above.
    pub const LONG_POSITIVE: Kind = Kind::Long(1, i64::MAX);
    /// Any number of 64 bits.
    pub const LONG: Kind = Kind::Long(i64::MIN, i64::MAX);
    /// 0 and above.
    pub const INT_NOT_NEGATIVE: Kind = Kind::Int(0, i32::MAX);
    /// 1 and above.
    pub const INT_POSITIVE: Kind = Kind::Int(1, i32::MAX);
    /// Any number of 32 bits.
    pub const INT: Kind = Kind::Int(i32::MIN, i32::MAX);

    /// Checks a value and writes it in its one way: without blanks around it, numbers without a
    /// plus sign, booleans in lower case.
    ///
    /// # Errors
    /// What is wrong, in the words that Kafka's clients show behind the name.
    pub fn check(self, text: &str) -> Result<String, String> {
        let text = text.trim();
        match self {
            Kind::Boolean => match text.to_ascii_lowercase().as_str() {
                word @ ("true" | "false") => Ok(word.to_owned()),
                _ => Err("Expected value to be either true or false".to_owned()),
            },
            Kind::Int(least, most) => {
                let number: i32 = text.parse().map_err(|_| "Not a number of type INT")?;
                in_range(number, least, most).map(|()| number.to_string())
            }
            Kind::Long(least, most) => {
                let number: i64 = text.parse().map_err(|_| "Not a number of type LONG")?;
                in_range(number, least, most).map(|()| number.to_string())
            }
            Kind::Double(least, most) => {
                let number: f64 = text.parse().map_err(|_| "Not a number of type DOUBLE")?;
                if number.is_nan() {
                    return Err("Not a number of type DOUBLE".to_owned());
                }
                in_range(number, least, most).map(|()| text.to_owned())
            }
            Kind::OneOf(words) if words.contains(&text) => Ok(text.to_owned()),
            Kind::OneOf(words) => Err(format!("String must be one of: {}", words.join(", "))),
            Kind::AnyOf(words) => any_of(text, words),
            Kind::List => Ok(items(text).collect::<Vec<_>>().join(",")),
            Kind::Text => Ok(text.to_owned()),
            Kind::GzipLevel => match text.parse::<i32>() {
                Ok(level @ (-1 | 1..=9)) => Ok(level.to_string()),
                Ok(_) => Err("Value must be between 1 and 9 or equal to -1".to_owned()),
                Err(_) => Err("Not a number of type INT".to_owned()),
            },
        }
    }

    /// Whether items can be added and taken out.
    pub fn is_list(self) -> bool {
        matches!(self, Kind::AnyOf(_) | Kind::List)
    }

    /// Kafka's number of the type.
    pub fn type_code(self) -> TypeCode {
        TypeCode(match self {
            Kind::Boolean => 1,
            Kind::OneOf(_) | Kind::Text => 2,
            Kind::Int(..) | Kind::GzipLevel => 3,
            Kind::Long(..) => 5,
            Kind::Double(..) => 6,
            Kind::AnyOf(_) | Kind::List => 7,
        })
    }
}

/// The values allowed, for messages and the table of settings.
impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Kind::Boolean => f.write_str("true or false"),
            Kind::Int(least, most) => write!(f, "{least} to {most}"),
            Kind::Long(least, most) => write!(f, "{least} to {most}"),
            Kind::Double(least, most) if most == f64::MAX => write!(f, "{least} or more"),
            Kind::Double(least, most) => write!(f, "{least} to {most}"),
            Kind::OneOf(words) => write!(f, "one of {}", words.join(", ")),
            Kind::AnyOf(words) => write!(f, "any of {}, separated by commas", words.join(", ")),
            Kind::List => f.write_str("words, separated by commas"),
            Kind::Text => f.write_str("text"),
            Kind::GzipLevel => f.write_str("-1 or 1 to 9"),
        }
    }
}

/// The words of a list.
pub fn items(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|item| !item.is_empty())
}

fn any_of(text: &str, words: &[&str]) -> Result<String, String> {
    let mut seen: Vec<&str> = Vec::new();
    for item in items(text) {
        if !words.contains(&item) {
            return Err(format!("String must be one of: {}", words.join(", ")));
        }
        if seen.contains(&item) {
            return Err(format!("List must not contain duplicates: {item}"));
        }
        seen.push(item);
    }
    Ok(seen.join(","))
}

fn in_range<T: PartialOrd + fmt::Display>(number: T, least: T, most: T) -> Result<(), String> {
    if number < least {
        return Err(format!("Value must be at least {least}"));
    }
    if number > most {
        return Err(format!("Value must be no more than {most}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_in_one_way() {
        let check = |kind: Kind, text: &str, expected: &str| {
            assert_eq!(kind.check(text).as_deref(), Ok(expected), "{text:?}");
        };
        check(Kind::Boolean, " TRUE ", "true");
        check(Kind::INT, "+7", "7");
        check(Kind::LONG, " -1", "-1");
        check(Kind::AnyOf(&["compact", "delete"]), " delete , compact", "delete,compact");
        check(Kind::AnyOf(&["compact", "delete"]), "", "");
        check(Kind::GzipLevel, "-1", "-1");
        check(Kind::Double(0.0, 1.0), "0.5", "0.5");
        check(Kind::List, "a, b,,c", "a,b,c");
    }

    #[test]
    fn refusals_have_kafkas_words() {
        let check = |kind: Kind, text: &str, expected: &str| {
            assert_eq!(kind.check(text), Err(expected.to_owned()), "{text:?}");
        };
        check(Kind::Int(1_048_576, i32::MAX), "300", "Value must be at least 1048576");
        check(Kind::Int(1, 17), "18", "Value must be no more than 17");
        check(Kind::INT, "3000000000", "Not a number of type INT");
        check(Kind::LONG, "1e3", "Not a number of type LONG");
        check(Kind::Boolean, "yes", "Expected value to be either true or false");
        check(Kind::OneOf(&["a", "b"]), "c", "String must be one of: a, b");
        check(Kind::AnyOf(&["a", "b"]), "a,a", "List must not contain duplicates: a");
        check(Kind::GzipLevel, "0", "Value must be between 1 and 9 or equal to -1");
        check(Kind::Double(0.0, 1.0), "NaN", "Not a number of type DOUBLE");
        check(Kind::Double(0.0, 1.0), "1.5", "Value must be no more than 1");
    }
}
