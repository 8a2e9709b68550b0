//! Printing records.

use std::io::{self, Write};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use super::aborted::Aborted;
use super::follower::{Batches, Chunk};
use crate::cli::command::CommandError;
use crate::cli::record_format::{Located, RecordFormat};
use crate::format::batch::{BatchHeader, HEADER_BYTES, check_crc};
use crate::format::codec;
use crate::format::record::RecordsIter;
use crate::units::{ByteCount, u64_of};

/// Unpacked size of a batch, against bombs.
const BATCH_BYTES_MAX: ByteCount = ByteCount(256 << 20);

/// How a record is printed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Style {
    /// In tokens.
    Format(RecordFormat),
    /// As a line of JSON.
    Json,
}

pub(super) struct Printer<'a, W> {
    /// What a cursor's `topic` counts in.
    pub topics: &'a [String],
    pub style: &'a Style,
    /// Records that may still be printed.
    pub left: u64,
    /// Records of this time or later are left out.
    pub before: Option<i64>,
    pub out: &'a mut W,
}

impl<W: Write> Printer<'_, W> {
    pub(super) fn flush(&mut self) -> Result<(), CommandError> {
        self.out.flush().map_err(CommandError::Output)
    }

    /// Prints what is wanted of a chunk; returns the first offset behind what was looked at.
    pub(super) fn print(&mut self, chunk: &Chunk) -> Result<i64, CommandError> {
        let mut position = chunk.cursor.next;
        let mut aborted = Aborted::new(&chunk.aborted);
        for batch in Batches::new(&chunk.records) {
            let (header, bytes) = batch.map_err(|error| wrong(chunk, &error))?;
            if !aborted.is_hidden(&header) {
                self.print_batch(chunk, (&header, bytes), &mut position)?;
            }
        }
        Ok(if self.left == 0 { position } else { chunk.next })
    }

    fn print_batch(
        &mut self,
        chunk: &Chunk,
        (header, bytes): (&BatchHeader, &[u8]),
        position: &mut i64,
    ) -> Result<(), CommandError> {
        check_crc(header, bytes).map_err(|error| wrong(chunk, &error))?;
        let codec = header.codec().map_err(|error| wrong(chunk, &error))?;
        let payload = codec::decompress(codec, &bytes[HEADER_BYTES..], BATCH_BYTES_MAX)
            .map_err(|error| wrong(chunk, &error))?;
        for record in RecordsIter::new(header, &payload) {
            let record = record.map_err(|error| wrong(chunk, &error))?;
            let offset = header.base_offset.saturating_add(i64::from(record.offset_delta));
            let is_wanted =
                offset >= chunk.cursor.next && chunk.cursor.end.is_none_or(|end| offset < end);
            if !is_wanted || self.left == 0 {
                continue;
            }
            *position = offset.saturating_add(1);
            if self.before.is_some_and(|before| record.timestamp.0 >= before) {
                continue;
            }
            self.left -= 1;
            let (topic, partition) = (&self.topics[chunk.cursor.topic], chunk.cursor.partition);
            let one = Located { topic, partition, offset, record };
            self.print_one(&one).map_err(CommandError::Output)?;
        }
        Ok(())
    }

    fn print_one(&mut self, one: &Located<'_>) -> io::Result<()> {
        match self.style {
            Style::Format(format) => format.print(self.out, one),
            Style::Json => writeln!(self.out, "{}", record_json(one)),
        }
    }
}

fn record_json(one: &Located<'_>) -> Value {
    let record = &one.record;
    let header = |(name, value): (&[u8], Option<&[u8]>)| {
        json!({
            "name": String::from_utf8_lossy(name), "value": bytes_json(value),
        })
    };
    json!({
        "topic": one.topic,
        "partition": one.partition,
        "offset": one.offset,
        "timestamp": record.timestamp.0,
        "key": bytes_json(record.key),
        "value": bytes_json(record.value),
        "headers": record.headers.map(header).collect::<Vec<_>>(),
    })
}

/// Text as it is; what isn't text as an object with its base64.
fn bytes_json(bytes: Option<&[u8]>) -> Value {
    match bytes.map(|bytes| (bytes, std::str::from_utf8(bytes))) {
        None => Value::Null,
        Some((_, Ok(text))) => json!(text),
        Some((bytes, Err(_))) => json!({"base64": BASE64_STANDARD.encode(bytes)}),
    }
}

fn wrong(chunk: &Chunk, error: &dyn std::fmt::Display) -> CommandError {
    let (partition, next) = (chunk.cursor.partition, chunk.cursor.next);
    let bytes = u64_of(chunk.records.len());
    let place = format!("partition {partition}, in {bytes} bytes fetched from offset {next} on");
    CommandError::Usage(format!("{place}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::super::follower::Cursor;
    use super::*;
    use crate::cli::record_format;
    use crate::format::batch::Codec;
    use crate::format::record::{BatchBuilder, NewRecord};
    use crate::units::{LeaderEpoch, Offset, Timestamp};

    fn chunk(next: i64, end: Option<i64>) -> Chunk {
        let mut records = Vec::new();
        for (base, codec) in [(10, Codec::None), (13, Codec::Zstd)] {
            let mut builder = BatchBuilder::new(codec);
            for (delta, value) in (0..).zip([&b"a"[..], b"b", b"c"]) {
                builder.push(&NewRecord::value(Timestamp(100 + delta), value));
            }
            let mut batch = builder.build();
            batch.assign(Offset(base), LeaderEpoch(0));
            records.extend_from_slice(batch.as_bytes());
        }
        let cursor = Cursor { topic: 0, partition: 0, next, end };
        Chunk { cursor, next: 16, aborted: Vec::new(), records: records.into() }
    }

    fn print(
        chunk: &Chunk,
        count: Option<u64>,
        before: Option<i64>,
    ) -> Result<(String, i64), CommandError> {
        let style = Style::Format(RecordFormat::parse("%o%s ").expect("known tokens"));
        let mut out = Vec::new();
        let left = count.unwrap_or(u64::MAX);
        let topics = &["t".to_owned()];
        let mut printer = Printer { topics, style: &style, left, before, out: &mut out };
        let position = printer.print(chunk)?;
        Ok((String::from_utf8(out).expect("ASCII"), position))
    }

    #[test]
    fn records_outside_of_what_is_wanted_are_not_printed() {
        let check = |chunk: &Chunk, count, before, expected: &str, position| {
            let printed = print(chunk, count, before).expect("well-formed");
            assert_eq!(printed, (expected.to_owned(), position));
        };
        check(&chunk(0, None), None, None, "10a 11b 12c 13a 14b 15c ", 16);
        check(&chunk(12, Some(14)), None, None, "12c 13a ", 16);
        check(&chunk(11, None), Some(2), None, "11b 12c ", 13);
        check(&chunk(0, None), None, Some(101), "10a 13a ", 16);
        RecordFormat::parse(record_format::DEFAULT).expect("the default is a format");
    }

    #[test]
    fn a_batch_with_a_wrong_crc_is_named() {
        let good = chunk(0, None);
        let mut bytes = good.records.to_vec();
        bytes[70] ^= 1;
        let bad = Chunk { records: bytes.into(), ..good };
        let error = print(&bad, None, None).expect_err("the CRC is wrong").to_string();
        assert!(error.contains("CRC-32C"), "{error}");
    }

    #[test]
    fn json_keeps_null_text_and_bytes_apart() {
        let headers: [(&[u8], Option<&[u8]>); 2] = [(b"a", Some(b"1")), (b"b", None)];
        let mut builder = BatchBuilder::new(Codec::None);
        let value = NewRecord::value(Timestamp(5), &[0xff, 0x00]);
        builder.push(&NewRecord { headers: &headers, ..value });
        let batch = builder.build();
        let mut records = RecordsIter::new(batch.header(), batch.payload());
        let record = records.next().expect("one").expect("well-formed");
        let json = record_json(&Located { topic: "t", partition: 3, offset: 42, record });
        let expected = json!({
            "topic": "t", "partition": 3, "offset": 42, "timestamp": 5,
            "key": null, "value": {"base64": "/wA="},
            "headers": [{"name": "a", "value": "1"}, {"name": "b", "value": null}],
        });
        assert_eq!(json, expected);
    }
}
