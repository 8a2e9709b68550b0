//! Records of `__remote_log_metadata` as Kafka's classes for them show themselves (`toString`).

use std::collections::BTreeMap;

use crate::format::schema::Value;

const SEGMENT_STATES: [&str; 4] = [
    "COPY_SEGMENT_STARTED",
    "COPY_SEGMENT_FINISHED",
    "DELETE_SEGMENT_STARTED",
    "DELETE_SEGMENT_FINISHED",
];
const PARTITION_STATES: [&str; 3] =
    ["DELETE_PARTITION_MARKED", "DELETE_PARTITION_STARTED", "DELETE_PARTITION_FINISHED"];

/// What Kafka's classes refuse of a record that is well formed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RemoteFault {
    /// A state that has no name.
    #[error("state can not be null")]
    SegmentState,
    /// The same of a partition, where Java's exception has no text.
    #[error("null")]
    PartitionState,
    #[error("Unexpected start offset = {0}. StartOffset for a remote segment cannot be negative")]
    Start(i64),
    #[error(
        "Unexpected end offset = {end}. EndOffset for a remote segment cannot be less than \
         startOffset = {start}"
    )]
    End { start: i64, end: i64 },
    #[error("segmentLeaderEpochs can not be null or empty")]
    NoEpochs,
}

/// The record of this number as text. Its fields are those of its field list.
///
/// # Errors
/// [`RemoteFault`].
pub fn text(kind: i16, data: &Value) -> Result<String, RemoteFault> {
    match kind {
        0 => segment(data),
        1 => update(data),
        2 => partition(data),
        _ => snapshot(data),
    }
}

fn segment(data: &Value) -> Result<String, RemoteFault> {
    let (start, end) = (number(data, "startOffset"), number(data, "endOffset"));
    if start < 0 {
        return Err(RemoteFault::Start(start));
    }
    if end < start {
        return Err(RemoteFault::End { start, end });
    }
    let epochs = epochs(data)?;
    let state = segment_state(data)?;
    Ok(format!(
        "RemoteLogSegmentMetadata{{remoteLogSegmentId={}, startOffset={start}, endOffset={end}, \
         brokerId={}, maxTimestampMs={}, eventTimestampMs={}, segmentLeaderEpochs={epochs}, \
         segmentSizeInBytes={}, customMetadata={}, state={state}, txnIdxEmpty={}}}",
        segment_id(data),
        number(data, "brokerId"),
        number(data, "maxTimestampMs"),
        number(data, "eventTimestampMs"),
        number(data, "segmentSizeInBytes"),
        custom(data),
        has_no_transactions(data),
    ))
}

fn update(data: &Value) -> Result<String, RemoteFault> {
    Ok(format!(
        "RemoteLogSegmentMetadataUpdate{{remoteLogSegmentId={}, customMetadata={}, state={}, \
         eventTimestampMs={}, brokerId={}}}",
        segment_id(data),
        custom(data),
        segment_state(data)?,
        number(data, "eventTimestampMs"),
        number(data, "brokerId"),
    ))
}

fn partition(data: &Value) -> Result<String, RemoteFault> {
    let state = named(&PARTITION_STATES, number(data, "remotePartitionDeleteState"));
    Ok(format!(
        "RemotePartitionDeleteMetadata{{topicPartition={}, state={}, eventTimestampMs={}, \
         brokerId={}}}",
        topic_partition(data),
        state.ok_or(RemoteFault::PartitionState)?,
        number(data, "eventTimestampMs"),
        number(data, "brokerId"),
    ))
}

fn snapshot(data: &Value) -> Result<String, RemoteFault> {
    let state = segment_state(data)?;
    Ok(format!(
        "RemoteLogSegmentMetadataSnapshot{{segmentId={}, startOffset={}, endOffset={}, \
         maxTimestampMs={}, segmentLeaderEpochs={}, segmentSizeInBytes={}, customMetadata={}, \
         state={state}, txnIdxEmpty={}}}",
        string(data, "segmentId"),
        number(data, "startOffset"),
        number(data, "endOffset"),
        number(data, "maxTimestampMs"),
        epochs(data)?,
        number(data, "segmentSizeInBytes"),
        custom(data),
        has_no_transactions(data),
    ))
}

fn segment_id(data: &Value) -> String {
    let id = data.get("remoteLogSegmentId").unwrap_or(&Value::Null);
    let (partition, id) = (topic_partition(id), string(id, "id"));
    format!("RemoteLogSegmentId{{topicIdPartition={partition}, id={id}}}")
}

fn topic_partition(holder: &Value) -> String {
    let it = holder.get("topicIdPartition").unwrap_or(&Value::Null);
    format!("{}:{}-{}", string(it, "id"), string(it, "name"), number(it, "partition"))
}

/// As a Java map shows itself, by epoch; of an epoch that comes twice the last one counts.
fn epochs(data: &Value) -> Result<String, RemoteFault> {
    let Some(Value::List(entries)) = data.get("segmentLeaderEpochs") else {
        return Err(RemoteFault::NoEpochs);
    };
    let pair = |entry: &Value| (number(entry, "leaderEpoch"), number(entry, "offset"));
    let epochs: BTreeMap<i64, i64> = entries.iter().map(pair).collect();
    if epochs.is_empty() {
        return Err(RemoteFault::NoEpochs);
    }
    let pairs: Vec<String> = epochs.iter().map(|(epoch, at)| format!("{epoch}={at}")).collect();
    Ok(format!("{{{}}}", pairs.join(", ")))
}

fn custom(data: &Value) -> String {
    match data.get("customMetadata") {
        Some(Value::Bytes(bytes)) => format!("Optional[CustomMetadata{{{} bytes}}]", bytes.len()),
        _ => "Optional.empty".to_owned(),
    }
}

fn segment_state(data: &Value) -> Result<&'static str, RemoteFault> {
    let number = number(data, "remoteLogSegmentState");
    named(&SEGMENT_STATES, number).ok_or(RemoteFault::SegmentState)
}

fn named(names: &[&'static str], number: i64) -> Option<&'static str> {
    names.get(usize::try_from(number).ok()?).copied()
}

fn has_no_transactions(data: &Value) -> bool {
    data.get("txnIndexEmpty") == Some(&Value::Bool(true))
}

fn number(data: &Value, name: &str) -> i64 {
    match data.get(name) {
        Some(Value::Number(it)) => *it,
        _ => 0,
    }
}

fn string<'a>(data: &'a Value, name: &str) -> &'a str {
    match data.get(name) {
        Some(Value::Text(text)) => text,
        _ => "",
    }
}
