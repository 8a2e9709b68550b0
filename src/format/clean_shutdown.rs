//! `.kafka_cleanshutdown`: the marker whose existence says that every log was closed in order.

/// Name of the file.
pub const FILE_NAME: &str = ".kafka_cleanshutdown";

/// What a broker that has no epoch writes.
pub const EPOCH_NONE: i64 = -1;

/// Writes the marker; no newline, as Kafka.
pub fn print(broker_epoch: i64) -> String {
    format!("{{\"version\":0,\"brokerEpoch\":{broker_epoch}}}")
}

/// Reads the broker epoch. `None` when the content makes no sense, which is no fault: only the
/// file's existence counts.
pub fn parse(bytes: &[u8]) -> Option<i64> {
    let marker: serde_json::Value = serde_json::from_slice(bytes).ok()?;
    marker.get("brokerEpoch")?.as_i64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_marker_as_kafka_writes_it() {
        assert_eq!(print(17), r#"{"version":0,"brokerEpoch":17}"#);
        assert_eq!(parse(print(EPOCH_NONE).as_bytes()), Some(EPOCH_NONE));
        assert_eq!(parse(br#"{"version":1,"brokerEpoch":3,"more":[]}"#), Some(3));
        assert_eq!(parse(b""), None);
        assert_eq!(parse(br#"{"brokerEpoch":"x"}"#), None);
    }
}
