//! One line of output each, as text and as JSON.

use std::borrow::Cow;
use std::fmt::Write;
use std::path::Path;

use super::contents::{Contents, Shown};
use super::decimal;
use crate::cli::object::{long, number, object, or_null, text};
use crate::format::aborted::AbortedTransaction;
use crate::format::batch::{BatchHeader, Codec};
use crate::format::producer_snapshot::ProducerEntry;
use crate::format::schema::Value;
use crate::units::Offset;

/// What a line is about.
pub enum Item<'a> {
    /// A file begins.
    File(&'a Path),
    /// What a `.log` file's name says.
    LogStart(i64),
    /// `bootstrap.checkpoint` begins.
    Bootstrap,
    /// What the name of a KRaft snapshot says.
    SnapshotEnd {
        /// Records before this offset are in it.
        offset: i64,
        /// Of the last one.
        epoch: i32,
    },
    /// A batch of format 2.
    Batch(&'a BatchItem),
    /// A batch of an old format, or a single record of one.
    OldBatch(&'a OldBatchItem),
    /// A record.
    Record(&'a RecordItem<'a>),
    /// Bytes behind the last batch.
    Trailing {
        /// How many.
        bytes: u64,
        /// The file's name.
        name: Cow<'a, str>,
    },
    /// An entry of an offset index.
    OffsetEntry(i64, i64),
    /// An entry of a time index.
    TimeEntry(i64, i64),
    /// An index without entries.
    Empty(&'a Path),
    /// An index that would not be rebuilt.
    Sane(&'a Path),
    /// A producer of a snapshot.
    Producer(&'a ProducerEntry),
    /// An aborted transaction.
    Aborted(&'a AbortedTransaction),
}

/// A batch of format 2.
pub struct BatchItem {
    pub header: BatchHeader,
    pub magic: i8,
    pub at: u64,
    pub codec: Codec,
    pub is_valid: bool,
}

impl BatchItem {
    pub fn last_offset(&self) -> i64 {
        self.header.base_offset.wrapping_add(self.header.last_offset_delta.into())
    }

    /// How the batch's timestamps are called.
    pub fn time_label(&self) -> &'static str {
        if self.header.is_log_append_time() { "LogAppendTime" } else { "CreateTime" }
    }

    pub fn delete_horizon(&self) -> Option<i64> {
        self.header.has_delete_horizon().then_some(self.header.base_timestamp.0)
    }
}

/// A batch of format 0 or 1.
pub struct OldBatchItem {
    pub last_offset: i64,
    pub at: u64,
    pub size: u64,
    pub magic: i8,
    pub time_label: &'static str,
    pub timestamp: i64,
    pub codec: Codec,
    pub crc: u32,
    pub is_valid: bool,
}

/// A record.
pub struct RecordItem<'a> {
    pub offset: i64,
    pub time_label: &'static str,
    pub timestamp: i64,
    /// -1 of a key that isn't there; of a damaged record of an old format, whatever it says.
    pub key_bytes: i64,
    pub value_bytes: i64,
    pub form: Form<'a>,
    /// Whether only the contents are told.
    pub is_bare: bool,
    pub contents: Option<Contents>,
}

/// What only one format has.
pub enum Form<'a> {
    /// Format 2.
    New { sequence: i32, header_keys: Vec<Cow<'a, str>>, control: Option<Control> },
    /// Formats 0 and 1.
    Old { is_valid: bool, crc: u32 },
}

/// What a control record says.
pub enum Control {
    /// A transaction ended.
    Marker { commits: bool, coordinator_epoch: i32 },
    /// Of KRaft: what it is called, and what it says.
    Kraft(&'static str, Value),
    /// A type that is not known.
    Unknown(i16),
}

/// How Java shows an `OptionalLong` without a number.
const NO_LONG: &str = "OptionalLong.empty";

fn optional(number: Option<i64>) -> String {
    number.map_or(NO_LONG.to_owned(), |it| format!("OptionalLong[{it}]"))
}

fn boolean(it: bool) -> &'static str {
    if it { "true" } else { "false" }
}

impl Item<'_> {
    /// As Kafka's tool prints it, without the line feed.
    pub fn write_text(&self, out: &mut String) {
        let wrote = match self {
            Item::File(path) => write!(out, "Dumping {}", path.display()),
            Item::LogStart(offset) => write!(out, "Log starting offset: {offset}"),
            Item::Bootstrap => write!(out, "KRaft bootstrap snapshot"),
            Item::SnapshotEnd { offset, epoch } => {
                write!(out, "Snapshot end offset: {offset}, epoch: {epoch}")
            }
            Item::Batch(batch) => batch.write_text(out),
            Item::OldBatch(batch) => batch.write_text(out),
            Item::Record(record) => record.write_text(out),
            Item::Trailing { bytes, name } => {
                write!(out, "Found {bytes} invalid bytes at the end of {name}")
            }
            Item::OffsetEntry(offset, position) => {
                write!(out, "offset: {offset} position: {position}")
            }
            Item::TimeEntry(timestamp, offset) => {
                write!(out, "timestamp: {timestamp} offset: {offset}")
            }
            Item::Empty(path) => write!(out, "{} is empty.", path.display()),
            Item::Sane(path) => write!(out, "{} passed sanity check.", path.display()),
            Item::Producer(entry) => write_producer(entry, out),
            Item::Aborted(it) => write!(
                out,
                "version: {} producerId: {} firstOffset: {} lastOffset: {} lastStableOffset: {}",
                it.version, it.producer_id, it.first_offset, it.last_offset, it.last_stable_offset,
            ),
        };
        wrote.expect("a string takes everything");
    }

    /// An object whose `kind` says what it is.
    pub fn to_json(&self) -> Value {
        match self {
            Item::File(path) => object("file", vec![("file", text(path.display()))]),
            Item::LogStart(offset) => object("log", vec![("startOffset", Value::Number(*offset))]),
            Item::Bootstrap => object("bootstrapSnapshot", vec![]),
            Item::SnapshotEnd { offset, epoch } => object(
                "snapshot",
                vec![("endOffset", Value::Number(*offset)), ("epoch", number(*epoch))],
            ),
            Item::Batch(batch) => batch.to_json(),
            Item::OldBatch(batch) => batch.to_json(),
            Item::Record(record) => record.to_json(),
            Item::Trailing { bytes, name } => object(
                "invalidBytes",
                vec![("bytes", long(*bytes)), ("file", Value::Text(name.to_string()))],
            ),
            Item::OffsetEntry(offset, position) => object(
                "offsetEntry",
                vec![("offset", Value::Number(*offset)), ("position", Value::Number(*position))],
            ),
            Item::TimeEntry(timestamp, offset) => object(
                "timeEntry",
                vec![("timestamp", Value::Number(*timestamp)), ("offset", Value::Number(*offset))],
            ),
            Item::Empty(path) => object("emptyIndex", vec![("file", text(path.display()))]),
            Item::Sane(path) => object("saneIndex", vec![("file", text(path.display()))]),
            Item::Producer(entry) => producer_json(entry),
            Item::Aborted(it) => object(
                "abortedTransaction",
                vec![
                    ("version", number(it.version)),
                    ("producerId", Value::Number(it.producer_id.0)),
                    ("firstOffset", Value::Number(it.first_offset)),
                    ("lastOffset", Value::Number(it.last_offset)),
                    ("lastStableOffset", Value::Number(it.last_stable_offset)),
                ],
            ),
        }
    }
}

impl BatchItem {
    /// Up to where the codec's name is asked for. A log has up to millions of these lines, so they
    /// are put together by hand.
    pub fn write_front(&self, out: &mut String) {
        let header = &self.header;
        decimal::put(out, "baseOffset: ", header.base_offset);
        decimal::put(out, " lastOffset: ", self.last_offset());
        decimal::put(out, " count: ", header.record_count);
        decimal::put(out, " baseSequence: ", header.base_sequence.0);
        decimal::put(out, " lastSequence: ", header.last_sequence().0);
        decimal::put(out, " producerId: ", header.producer_id.0);
        decimal::put(out, " producerEpoch: ", header.producer_epoch.0);
        decimal::put(out, " partitionLeaderEpoch: ", header.leader_epoch.0);
        out.push_str(" isTransactional: ");
        out.push_str(boolean(header.is_transactional()));
        out.push_str(" isControl: ");
        out.push_str(boolean(header.is_control()));
        out.push_str(" deleteHorizonMs: ");
        match self.delete_horizon() {
            None => out.push_str(NO_LONG),
            Some(at) => {
                decimal::put(out, "OptionalLong[", at);
                out.push(']');
            }
        }
    }

    fn write_text(&self, out: &mut String) -> std::fmt::Result {
        let header = &self.header;
        self.write_front(out);
        decimal::put(out, " position: ", self.at);
        out.push(' ');
        out.push_str(self.time_label());
        decimal::put(out, ": ", header.max_timestamp.0);
        decimal::put(out, " size: ", header.size.0);
        decimal::put(out, " magic: ", self.magic);
        out.push_str(" compresscodec: ");
        out.push_str(self.codec.name());
        decimal::put(out, " crc: ", header.crc);
        out.push_str(" isvalid: ");
        out.push_str(boolean(self.is_valid));
        Ok(())
    }

    fn to_json(&self) -> Value {
        let header = &self.header;
        object(
            "batch",
            vec![
                ("baseOffset", Value::Number(header.base_offset)),
                ("lastOffset", Value::Number(self.last_offset())),
                ("count", number(header.record_count)),
                ("baseSequence", number(header.base_sequence.0)),
                ("lastSequence", number(header.last_sequence().0)),
                ("producerId", Value::Number(header.producer_id.0)),
                ("producerEpoch", number(header.producer_epoch.0)),
                ("partitionLeaderEpoch", number(header.leader_epoch.0)),
                ("isTransactional", Value::Bool(header.is_transactional())),
                ("isControl", Value::Bool(header.is_control())),
                ("deleteHorizonMs", or_null(self.delete_horizon())),
                ("position", long(self.at)),
                ("timestampType", text(self.time_label())),
                ("maxTimestamp", Value::Number(header.max_timestamp.0)),
                ("size", long(header.size.0)),
                ("magic", number(self.magic)),
                ("codec", text(self.codec.name())),
                ("crc", number(header.crc)),
                ("isValid", Value::Bool(self.is_valid)),
            ],
        )
    }
}

impl OldBatchItem {
    /// What stands before all that has to be read of the record.
    pub fn write_front(last_offset: i64, out: &mut String) {
        decimal::put(out, "offset: ", last_offset);
    }

    fn write_text(&self, out: &mut String) -> std::fmt::Result {
        write!(
            out,
            "offset: {} position: {} {}: {} size: {} magic: {} compresscodec: {} crc: {} \
             isvalid: {}",
            self.last_offset,
            self.at,
            self.time_label,
            self.timestamp,
            self.size,
            self.magic,
            self.codec.name(),
            self.crc,
            self.is_valid,
        )
    }

    fn to_json(&self) -> Value {
        object(
            "oldBatch",
            vec![
                ("lastOffset", Value::Number(self.last_offset)),
                ("position", long(self.at)),
                ("timestampType", text(self.time_label)),
                ("maxTimestamp", Value::Number(self.timestamp)),
                ("size", long(self.size)),
                ("magic", number(self.magic)),
                ("codec", text(self.codec.name())),
                ("crc", number(self.crc)),
                ("isValid", Value::Bool(self.is_valid)),
            ],
        )
    }
}

impl RecordItem<'_> {
    fn write_text(&self, out: &mut String) -> std::fmt::Result {
        if !self.is_bare {
            write!(
                out,
                "| offset: {} {}: {} keySize: {} valueSize: {}",
                self.offset, self.time_label, self.timestamp, self.key_bytes, self.value_bytes,
            )?;
            self.form.write_text(out)?;
        }
        let Some(contents) = &self.contents else { return Ok(()) };
        let mut prefix = if self.is_bare { "| " } else { " " };
        if let Some(key) = &contents.key {
            out.write_str(prefix)?;
            out.write_str("key: ")?;
            key.write_text(out);
            prefix = " ";
        }
        if let Some(value) = &contents.value {
            out.write_str(prefix)?;
            out.write_str("payload: ")?;
            value.write_text(out);
        }
        Ok(())
    }

    fn to_json(&self) -> Value {
        let mut fields = Vec::new();
        if !self.is_bare {
            fields.extend([
                ("offset", Value::Number(self.offset)),
                ("timestampType", text(self.time_label)),
                ("timestamp", Value::Number(self.timestamp)),
                ("keySize", Value::Number(self.key_bytes)),
                ("valueSize", Value::Number(self.value_bytes)),
            ]);
            self.form.add_json(&mut fields);
        }
        if let Some(contents) = &self.contents {
            let shown = |it: &Option<Shown>| it.as_ref().map_or(Value::Null, Shown::to_json);
            fields.push(("key", shown(&contents.key)));
            fields.push(("payload", shown(&contents.value)));
        }
        object("record", fields)
    }
}

impl Form<'_> {
    fn write_text(&self, out: &mut String) -> std::fmt::Result {
        match self {
            Form::New { sequence, header_keys, control } => {
                let keys = header_keys.join(",");
                write!(out, " sequence: {sequence} headerKeys: [{keys}]")?;
                match control {
                    None => Ok(()),
                    Some(Control::Marker { commits, coordinator_epoch }) => {
                        let what = if *commits { "COMMIT" } else { "ABORT" };
                        write!(out, " endTxnMarker: {what} coordinatorEpoch: {coordinator_epoch}")
                    }
                    Some(Control::Kraft(name, value)) => {
                        write!(out, " {name} {}", value.to_json())
                    }
                    Some(Control::Unknown(number)) => {
                        write!(out, " controlType: UNKNOWN({number})")
                    }
                }
            }
            Form::Old { is_valid, crc } => write!(out, " isValid: {is_valid} crc: {crc}"),
        }
    }

    fn add_json(&self, fields: &mut Vec<(&'static str, Value)>) {
        match self {
            Form::New { sequence, header_keys, control } => {
                fields.push(("sequence", number(*sequence)));
                let keys = header_keys.iter().map(text).collect();
                fields.push(("headerKeys", Value::List(keys)));
                match control {
                    None => {}
                    Some(Control::Marker { commits, coordinator_epoch }) => {
                        fields.push(("marker", text(if *commits { "COMMIT" } else { "ABORT" })));
                        fields.push(("coordinatorEpoch", number(*coordinator_epoch)));
                    }
                    Some(Control::Kraft(name, value)) => {
                        fields.push(("control", text(name.trim_end_matches(':'))));
                        fields.push(("data", value.clone()));
                    }
                    Some(Control::Unknown(it)) => fields.push(("controlType", number(*it))),
                }
            }
            Form::Old { is_valid, crc } => {
                fields.push(("isValid", Value::Bool(*is_valid)));
                fields.push(("crc", number(*crc)));
            }
        }
    }
}

fn write_producer(entry: &ProducerEntry, out: &mut String) -> std::fmt::Result {
    write!(
        out,
        "producerId: {} producerEpoch: {} coordinatorEpoch: {} currentTxnFirstOffset: {} \
         lastTimestamp: {}",
        entry.producer_id,
        entry.epoch,
        entry.coordinator_epoch,
        optional(entry.transaction.map(Offset::to_wire)),
        entry.timestamp,
    )?;
    let Some(batch) = &entry.batch else { return Ok(()) };
    write!(
        out,
        " firstSequence: {} lastSequence: {} lastOffset: {} offsetDelta: {} timestamp: {}",
        batch.first_sequence(),
        batch.last_sequence,
        batch.last_offset,
        batch.offset_delta,
        batch.timestamp,
    )
}

fn producer_json(entry: &ProducerEntry) -> Value {
    let mut fields = vec![
        ("producerId", Value::Number(entry.producer_id.0)),
        ("producerEpoch", number(entry.epoch.0)),
        ("coordinatorEpoch", number(entry.coordinator_epoch)),
        ("currentTxnFirstOffset", or_null(entry.transaction.map(Offset::to_wire))),
        ("lastTimestamp", Value::Number(entry.timestamp.0)),
    ];
    if let Some(batch) = &entry.batch {
        fields.extend([
            ("firstSequence", number(batch.first_sequence().0)),
            ("lastSequence", number(batch.last_sequence.0)),
            ("lastOffset", Value::Number(batch.last_offset.to_wire())),
            ("offsetDelta", number(batch.offset_delta)),
            ("timestamp", Value::Number(batch.timestamp.0)),
        ]);
    }
    object("producer", fields)
}

/// The size of a key or value, -1 for none.
pub fn length(bytes: Option<&[u8]>) -> i64 {
    bytes.map_or(-1, |it| i64::try_from(it.len()).expect("a record's sizes have 31 bits"))
}
