//! The consuming end of end-to-end: follows one partition and reads the stamps.

use std::rc::Rc;
use std::time::Duration;

use uringlog::RecordsIter;
use uringlog::client::{
    ClientError, Connection, FetchFrom, FetchLimits, decode_fetched, encode_fetch,
};
use uringlog::format::batch::BatchHeader;

use super::drive::Run;
use super::send::STAMP_BYTES;
use crate::experiments::measure::usize_of;

/// Fetches from `offset` on, as a consumer does: a request waits at the broker for more.
pub async fn follow(run: Rc<Run>, connection: Connection, (partition, offset): (i32, i64)) {
    let mut next = offset;
    loop {
        match fetch(&run, &connection, (partition, next)).await {
            Ok(records) => next = take(&run, &records).unwrap_or(next),
            Err(error) => return run.failed(&error.to_string()),
        }
    }
}

async fn fetch(
    run: &Run,
    connection: &Connection,
    (partition, offset): (i32, i64),
) -> Result<Vec<u8>, ClientError> {
    let (topic, bytes_max) = (run.plan.topic.clone(), run.plan.fetch_bytes);
    let from = FetchFrom { topic, partition, offset, bytes_max };
    let request = encode_fetch(connection, &[from], FetchLimits::default())?;
    let version = request.header.version;
    let body = connection.send(request).await?.body().await?;
    let mut records = Vec::new();
    for one in decode_fetched(connection, version, body)? {
        one.check()?;
        records.extend_from_slice(&one.records);
    }
    Ok(records)
}

/// Counts each batch by its first record's stamp; gives the offset to go on with.
fn take(run: &Run, mut records: &[u8]) -> Option<i64> {
    let mut next = None;
    while let Ok(header) = BatchHeader::decode(records) {
        let Some((batch, rest)) = records.split_at_checked(usize_of(header.size.0)) else { break };
        records = rest;
        next = header.last_offset().and_then(|last| i64::try_from(last.0 + 1).ok()).or(next);
        let payload = &batch[uringlog::format::batch::HEADER_BYTES..];
        let first = RecordsIter::new(&header, payload).next().and_then(Result::ok);
        if let Some(due) = first.and_then(|it| it.value).and_then(|it| due_of(run.id, it)) {
            run.answered(due, batch.len());
        }
    }
    next
}

/// When the record's batch was due, if it is of this run.
fn due_of(run: u64, value: &[u8]) -> Option<Duration> {
    let stamp = value.get(..STAMP_BYTES)?;
    let (id, due) = stamp.split_at(STAMP_BYTES / 2);
    let number = |bytes: &[u8]| bytes.try_into().ok().map(u64::from_be_bytes);
    (number(id)? == run).then(|| number(due)).flatten().map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_of_other_runs_and_short_values_are_left_alone() {
        let mut value = [7_u64.to_be_bytes(), 1_500_u64.to_be_bytes()].concat();
        value.push(b'x');
        assert_eq!(due_of(7, &value), Some(Duration::from_nanos(1_500)));
        assert_eq!(due_of(8, &value), None);
        assert_eq!(due_of(7, &value[..15]), None);
    }
}
