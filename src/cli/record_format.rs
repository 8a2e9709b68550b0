//! How `consume` prints a record: kcat's tokens.
//!
//! | token | is replaced by |
//! |---|---|
//! | `%s` `%S` | the value; its length in bytes, -1 for null |
//! | `%k` `%K` | the key; its length in bytes, -1 for null |
//! | `%h` | the headers: `name=value,name=value`, `NULL` for a null value |
//! | `%t` `%p` `%o` | topic, partition, offset |
//! | `%T` | the timestamp in milliseconds since 1970 |
//! | `%U` | the timestamp as people read it, in UTC (not kcat's) |
//! | `%%` | a percent sign |
//! | `\n` `\t` `\r` `\0` `\\` `\xHH` | newline, tab, return, zero byte, backslash, any byte |

use std::io::{self, Write};

use super::command::CommandError;
use super::time;
use crate::format::record::RecordView;

/// What is printed unless the user says otherwise: the value on a line of its own.
pub const DEFAULT: &str = "%s\\n";

/// A parsed format.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordFormat {
    pieces: Vec<Piece>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Piece {
    Literal(Vec<u8>),
    Value,
    ValueLength,
    Key,
    KeyLength,
    Headers,
    Topic,
    Partition,
    Offset,
    Timestamp,
    Utc,
}

/// A record and where it stands.
#[derive(Clone, Copy, Debug)]
pub struct Located<'a> {
    /// The topic's name.
    pub topic: &'a str,
    /// The partition.
    pub partition: i32,
    /// The record's offset.
    pub offset: i64,
    /// The record.
    pub record: RecordView<'a>,
}

impl RecordFormat {
    /// Parses a format.
    ///
    /// # Errors
    /// [`CommandError::Usage`] for a token or escape that doesn't exist.
    pub fn parse(text: &str) -> Result<RecordFormat, CommandError> {
        let mut pieces = Vec::new();
        let mut literal = Vec::new();
        let mut rest = text.chars();
        while let Some(next) = rest.next() {
            match next {
                '%' => match parse_token(rest.next())? {
                    Piece::Literal(bytes) => literal.extend(bytes),
                    token => {
                        push_literal(&mut pieces, &mut literal);
                        pieces.push(token);
                    }
                },
                '\\' => literal.push(parse_escape(&mut rest)?),
                plain => literal.extend(plain.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        push_literal(&mut pieces, &mut literal);
        Ok(RecordFormat { pieces })
    }

    /// Prints one record.
    ///
    /// # Errors
    /// What writing fails with.
    pub fn print(&self, out: &mut impl Write, one: &Located<'_>) -> io::Result<()> {
        self.pieces.iter().try_for_each(|piece| piece.print(out, one))
    }
}

fn push_literal(pieces: &mut Vec<Piece>, literal: &mut Vec<u8>) {
    if !literal.is_empty() {
        pieces.push(Piece::Literal(std::mem::take(literal)));
    }
}

fn parse_token(token: Option<char>) -> Result<Piece, CommandError> {
    Ok(match token {
        Some('s') => Piece::Value,
        Some('S') => Piece::ValueLength,
        Some('k') => Piece::Key,
        Some('K') => Piece::KeyLength,
        Some('h') => Piece::Headers,
        Some('t') => Piece::Topic,
        Some('p') => Piece::Partition,
        Some('o') => Piece::Offset,
        Some('T') => Piece::Timestamp,
        Some('U') => Piece::Utc,
        Some('%') => Piece::Literal(b"%".to_vec()),
        other => {
            let token = other.map(String::from).unwrap_or_default();
            let known = "%s %S %k %K %h %t %p %o %T %U %%";
            let text = format!("the format has no token %{token}; there are {known}");
            return Err(CommandError::Usage(text));
        }
    })
}

fn parse_escape(rest: &mut std::str::Chars<'_>) -> Result<u8, CommandError> {
    Ok(match rest.next() {
        Some('n') => b'\n',
        Some('t') => b'\t',
        Some('r') => b'\r',
        Some('0') => 0,
        Some('\\') => b'\\',
        Some('x') => {
            let digits: String = rest.take(2).collect();
            let byte = u8::from_str_radix(&digits, 16).ok().filter(|_| digits.len() == 2);
            let wrong = || format!("\\x{digits} in the format is no byte; write two hex digits");
            return byte.ok_or_else(|| CommandError::Usage(wrong()));
        }
        other => {
            let escape = other.map(String::from).unwrap_or_default();
            let known = r"\n \t \r \0 \\ \xHH";
            let text = format!("the format has no escape \\{escape}; there are {known}");
            return Err(CommandError::Usage(text));
        }
    })
}

impl Piece {
    fn print(&self, out: &mut impl Write, one: &Located<'_>) -> io::Result<()> {
        let record = &one.record;
        match self {
            Piece::Literal(bytes) => out.write_all(bytes),
            Piece::Value => out.write_all(record.value.unwrap_or_default()),
            Piece::ValueLength => print_length(out, record.value),
            Piece::Key => out.write_all(record.key.unwrap_or_default()),
            Piece::KeyLength => print_length(out, record.key),
            Piece::Headers => print_headers(out, record),
            Piece::Topic => out.write_all(one.topic.as_bytes()),
            Piece::Partition => write!(out, "{}", one.partition),
            Piece::Offset => write!(out, "{}", one.offset),
            Piece::Timestamp => write!(out, "{}", record.timestamp),
            Piece::Utc => out.write_all(time::utc(record.timestamp.0).as_bytes()),
        }
    }
}

fn print_length(out: &mut impl Write, bytes: Option<&[u8]>) -> io::Result<()> {
    match bytes {
        Some(bytes) => write!(out, "{}", bytes.len()),
        None => write!(out, "-1"),
    }
}

fn print_headers(out: &mut impl Write, record: &RecordView<'_>) -> io::Result<()> {
    let mut separator: &[u8] = b"";
    for (name, value) in record.headers {
        out.write_all(separator)?;
        out.write_all(name)?;
        out.write_all(b"=")?;
        out.write_all(value.unwrap_or(b"NULL"))?;
        separator = b",";
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::batch::Codec;
    use crate::format::record::{BatchBuilder, NewRecord, RecordsIter};
    use crate::units::Timestamp;

    fn check(format: &str, record: NewRecord<'_>, expected: &[u8]) {
        let mut builder = BatchBuilder::new(Codec::None);
        builder.push(&record);
        let batch = builder.build();
        let mut records = RecordsIter::new(batch.header(), batch.payload());
        let record = records.next().expect("one record").expect("well-formed");
        let one = Located { topic: "flights", partition: 3, offset: 42, record };
        let mut printed = Vec::new();
        let format = RecordFormat::parse(format).expect(format);
        format.print(&mut printed, &one).expect("memory takes it");
        assert_eq!(printed, expected);
    }

    #[test]
    fn tokens_are_kcats() {
        let headers: [(&[u8], Option<&[u8]>); 2] = [(b"a", Some(b"1")), (b"b", None)];
        let value = NewRecord::value(Timestamp(1_000), b"hello");
        let full = NewRecord { key: Some(b"N14228"), headers: &headers, ..value };
        check(DEFAULT, full, b"hello\n");
        check(
            r"%t-%p@%o %T %k:%K %s:%S [%h]%%\t",
            full,
            b"flights-3@42 1000 N14228:6 hello:5 [a=1,b=NULL]%\t",
        );
        check(r"%k|%K|%S\x00\\", NewRecord { value: None, ..value }, b"|-1|-1\0\\");
        check("%U", value, b"1970-01-01T00:00:01.000Z");
        check("ä%s", value, "ähello".as_bytes());
    }

    #[test]
    fn what_isnt_a_token_is_named() {
        for (format, named) in [("%q", "%q"), ("a%", "%;"), (r"\q", r"\q"), (r"\x1", r"\x1")] {
            let error = RecordFormat::parse(format).expect_err(format).to_string();
            assert!(error.contains(named), "{format}: {error}");
        }
    }
}
