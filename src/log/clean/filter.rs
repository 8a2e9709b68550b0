//! What is left of a batch (`Cleaner#cleanInto`, `MemoryRecords#filterTo`).

use bytes::BytesMut;

use super::map::OffsetMap;
use super::transactions::CleanedTransactions;
use crate::format::batch::{self, BatchError, BatchHeader, Codec, HEADER_BYTES};
use crate::format::codec::{self, CodecError, Levels};
use crate::format::record::{self, NewRecord, RecordError, RecordView, RecordsIter};
use crate::log::producers::{Ended, Producers};
use crate::units::{ByteCount, Offset, ProducerEpoch, ProducerId, Timestamp, u64_of};

/// Why a batch can't be cleaned: the log is damaged there.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FilterError {
    /// Its header.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// Its packed records.
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// A record.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// Offsets that make no sense.
    #[error("the batch has offsets that no batch on disk can have")]
    Offsets,
    /// It goes beyond the segment's end.
    #[error("the batch is longer than the rest of its segment")]
    Torn,
}

/// What stays of a batch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Kept {
    /// All of it, as it is.
    Whole,
    /// These bytes in its place.
    Rewritten(BytesMut),
    /// Nothing.
    Nothing,
}

/// Which batch is the last of its producer: what it says must not be forgotten while the producer
/// is known, or it could send an old sequence again.
pub trait LastOfProducers {
    /// The last offset of the producer's last data batch, if it has one, and its epoch.
    fn last(&self, producer_id: ProducerId) -> Option<(Option<Offset>, ProducerEpoch)>;
}

/// What a pass over the batches of a log keeps.
pub struct Filter<'a> {
    /// Newest offsets by key.
    pub map: &'a OffsetMap,
    /// Known producers.
    pub producers: &'a dyn LastOfProducers,
    /// Where this round ends.
    pub upper: Offset,
    /// The time.
    pub now: Timestamp,
    /// `delete.retention.ms`: how long tombstones and markers stay after they could go.
    pub delete_retention_ms: u64,
    /// Largest payload that is unpacked.
    pub unpacked_max: ByteCount,
    /// What is known of transactions at this point of the pass.
    pub transactions: CleanedTransactions,
    /// Aborted transactions whose markers stay, for the cleaned `.txnindex`.
    pub aborted: Vec<Ended>,
    /// What it has seen.
    pub seen: Seen,
}

impl LastOfProducers for Producers {
    fn last(&self, producer_id: ProducerId) -> Option<(Option<Offset>, ProducerEpoch)> {
        self.last_data(producer_id)
    }
}

/// What a filter has seen and kept.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Seen {
    /// Bytes of unpacked records.
    pub unpacked: u64,
    /// Records that came by.
    pub records: u64,
    /// Of them, those that stay.
    pub kept: u64,
    /// Records without a key, which no compacted log may have.
    pub keyless: u64,
}

impl Seen {
    /// Adds what another part of the pass has seen.
    pub fn add(&mut self, more: Seen) {
        self.unpacked += more.unpacked;
        self.records += more.records;
        self.kept += more.kept;
        self.keyless += more.keyless;
    }
}

/// How a batch as a whole is judged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Judged {
    /// Whether it belongs to what may go: an aborted transaction, a marker without records.
    is_discardable: bool,
    /// Whether none of its records stays.
    loses_records: bool,
    /// Whether its header stays if no record does.
    keeps_header: bool,
}

impl Filter<'_> {
    /// Judges the next batch of the pass.
    ///
    /// # Errors
    /// [`FilterError`].
    pub fn next(&mut self, header: &BatchHeader, bytes: &[u8]) -> Result<Kept, FilterError> {
        let codec = header.codec()?;
        let packed = bytes.get(HEADER_BYTES..).unwrap_or_default();
        let payload = codec::decompress(codec, packed, self.unpacked_max)?;
        self.seen.unpacked += u64_of(payload.len());
        let judged = self.judge(header, &payload)?;
        let mut kept = Vec::new();
        let (mut count, mut has_tombstones) = (0_i32, false);
        for record in RecordsIter::new(header, &payload) {
            let record = record?;
            count += 1;
            if self.keeps(header, judged, &record)? {
                has_tombstones |= !header.is_control() && record.value.is_none();
                kept.push(record);
            }
        }
        self.seen.records += u64::from(count.unsigned_abs());
        self.seen.kept += u64_of(kept.len());
        let is_marker_to_go = header.is_control() && judged.is_discardable;
        let needs_horizon = !header.has_delete_horizon() && (has_tombstones || is_marker_to_go);
        if kept.is_empty() {
            return Ok(match judged.keeps_header {
                // It was emptied before.
                true if count == 0 => Kept::Whole,
                true => Kept::Rewritten(empty(header)),
                false => Kept::Nothing,
            });
        }
        if kept.len() == usize::try_from(count).unwrap_or(0) && !needs_horizon {
            return Ok(Kept::Whole);
        }
        let horizon = match needs_horizon {
            true => Some(self.horizon()),
            false => header.has_delete_horizon().then_some(header.base_timestamp),
        };
        Ok(Kept::Rewritten(rewrite(header, codec, &kept, horizon)?))
    }

    fn horizon(&self) -> Timestamp {
        let retention_ms = i64::try_from(self.delete_retention_ms).unwrap_or(i64::MAX);
        Timestamp(self.now.0.saturating_add(retention_ms))
    }

    fn judge(&mut self, header: &BatchHeader, payload: &[u8]) -> Result<Judged, FilterError> {
        let last = header.last_offset().ok_or(FilterError::Offsets)?;
        let is_discardable = match header.is_control() {
            true => match self.transactions.control(header, payload, last)? {
                Ok(()) => true,
                Err(stays) => {
                    self.aborted.extend(stays);
                    false
                }
            },
            false => self.transactions.data(header.producer_id, last, header.is_transactional()),
        };
        let is_over = header.has_delete_horizon() && header.base_timestamp <= self.now;
        let loses_records = is_discardable && (!header.is_control() || is_over);
        let keeps_header = self.is_last_of_producer(header, last) || last + 1 == self.upper;
        Ok(Judged { is_discardable, loses_records, keeps_header })
    }

    fn is_last_of_producer(&self, header: &BatchHeader, last: Offset) -> bool {
        if header.producer_id <= ProducerId::NONE {
            return false;
        }
        match self.producers.last(header.producer_id) {
            Some((Some(offset), _)) => offset == last,
            Some((None, epoch)) => header.is_control() && epoch == header.producer_epoch,
            None => false,
        }
    }

    fn keeps(
        &mut self,
        header: &BatchHeader,
        judged: Judged,
        record: &RecordView<'_>,
    ) -> Result<bool, FilterError> {
        if judged.loses_records {
            return Ok(false);
        }
        if header.is_control() {
            return Ok(true);
        }
        let base = header.base().ok_or(FilterError::Offsets)?;
        let delta = u64::try_from(record.offset_delta).map_err(|_| FilterError::Offsets)?;
        let offset = base + delta;
        if self.map.latest() < Some(offset) {
            return Ok(true);
        }
        let Some(key) = record.key else {
            self.seen.keyless += 1;
            return Ok(false);
        };
        let is_newest = self.map.get(key) <= Some(offset);
        let is_expired = record.value.is_none()
            && header.has_delete_horizon()
            && header.base_timestamp <= self.now;
        Ok(is_newest && !is_expired)
    }
}

/// A header without records: it says that the producer has come this far, or that the log has.
fn empty(header: &BatchHeader) -> BytesMut {
    let flags =
        header.attributes & (batch::LOG_APPEND_TIME | batch::TRANSACTIONAL | batch::CONTROL);
    let header = BatchHeader {
        attributes: flags,
        base_timestamp: Timestamp::NONE,
        record_count: 0,
        ..*header
    };
    batch::encode(&header, &[])
}

/// The same batch with these records only. Times count from the first record, or from the horizon.
fn rewrite(
    header: &BatchHeader,
    codec: Codec,
    kept: &[RecordView<'_>],
    horizon: Option<Timestamp>,
) -> Result<BytesMut, FilterError> {
    let first = kept.first().map_or(Timestamp::NONE, |record| record.timestamp);
    let base_timestamp = horizon.unwrap_or(first);
    let mut payload = Vec::new();
    let mut max_timestamp = Timestamp::NONE;
    for kept in kept {
        let headers: Vec<_> = kept.headers.collect();
        let record = NewRecord {
            timestamp: kept.timestamp,
            key: kept.key,
            value: kept.value,
            headers: &headers,
        };
        max_timestamp = max_timestamp.max(kept.timestamp);
        let delta = kept.timestamp.0.wrapping_sub(base_timestamp.0);
        record::encode(&mut payload, kept.offset_delta, delta, &record);
    }
    let horizon_flag = if horizon.is_some() { batch::DELETE_HORIZON } else { 0 };
    let attributes = (header.attributes & !batch::DELETE_HORIZON) | horizon_flag;
    let header = BatchHeader {
        attributes,
        base_timestamp,
        max_timestamp: match header.is_log_append_time() {
            true => header.max_timestamp,
            false => max_timestamp,
        },
        record_count: i32::try_from(kept.len()).expect("as many as there were at most"),
        ..*header
    };
    let packed = codec::compress(codec, Levels::default(), &payload)?;
    Ok(batch::encode(&header, &packed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::batch::RecordBatch;
    use crate::format::record::BatchBuilder;
    use crate::units::{LeaderEpoch, Sequence};

    struct Nobody;

    impl LastOfProducers for Nobody {
        fn last(&self, _: ProducerId) -> Option<(Option<Offset>, ProducerEpoch)> {
            None
        }
    }

    struct Last(Offset);

    impl LastOfProducers for Last {
        fn last(&self, _: ProducerId) -> Option<(Option<Offset>, ProducerEpoch)> {
            Some((Some(self.0), ProducerEpoch(0)))
        }
    }

    fn map(newest: &[(&[u8], u64)], latest: u64) -> OffsetMap {
        let mut map = OffsetMap::new(ByteCount(1 << 12), 900, (1, 2));
        for (key, offset) in newest {
            assert!(map.put(key, Offset(*offset)));
        }
        map.advance(Offset(latest));
        map
    }

    fn filter<'a>(map: &'a OffsetMap, producers: &'a dyn LastOfProducers) -> Filter<'a> {
        Filter {
            map,
            producers,
            upper: Offset(1_000),
            now: Timestamp(50_000),
            delete_retention_ms: 1_000,
            unpacked_max: ByteCount(1 << 20),
            transactions: CleanedTransactions::default(),
            aborted: Vec::new(),
            seen: Seen::default(),
        }
    }

    fn batch(base: u64, codec: Codec, records: &[(&[u8], Option<&[u8]>)]) -> RecordBatch {
        let mut builder =
            BatchBuilder::new(codec).with_producer(ProducerId(5), ProducerEpoch(0), Sequence(3));
        for (at, (key, value)) in (0_i64..).zip(records) {
            builder.push(&NewRecord {
                timestamp: Timestamp(1_000 + at),
                key: Some(key),
                value: *value,
                headers: &[(b"h", None)],
            });
        }
        let mut batch = builder.build();
        batch.assign(Offset(base), LeaderEpoch(4));
        batch
    }

    fn read(bytes: &BytesMut) -> (BatchHeader, Vec<(i32, i64)>) {
        let batch = RecordBatch::decode(bytes.clone()).expect("a batch");
        let header = *batch.header();
        let codec = header.codec().expect("a codec");
        let payload =
            codec::decompress(codec, batch.payload(), ByteCount(1 << 20)).expect("records");
        let records = RecordsIter::new(&header, &payload).map(|it| {
            let it = it.expect("a record");
            (it.offset_delta, it.timestamp.0)
        });
        (header, records.collect())
    }

    #[test]
    fn the_newest_of_each_key_stays_where_it_was() {
        let map = map(&[(b"a", 12), (b"b", 11)], 20);
        for codec in [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
            let records: [(&[u8], _); 3] =
                [(b"a", Some(&b"1"[..])), (b"b", Some(b"2")), (b"a", Some(b"3"))];
            let batch = batch(10, codec, &records);
            let kept = filter(&map, &Nobody).next(batch.header(), batch.as_bytes());
            let Kept::Rewritten(bytes) = kept.expect("whole") else { panic!("one record goes") };
            let (header, records) = read(&bytes);
            assert_eq!(records, [(1, 1_001), (2, 1_002)]);
            assert_eq!((header.base_offset, header.last_offset_delta), (10, 2));
            assert_eq!((header.base_sequence, header.leader_epoch), (Sequence(3), LeaderEpoch(4)));
            assert_eq!(header.codec(), Ok(codec));
            assert_eq!(header.base_timestamp, Timestamp(1_001));
        }
    }

    #[test]
    fn what_the_map_has_not_seen_stays_whole() {
        let map = map(&[(b"a", 3)], 9);
        let batch = batch(10, Codec::None, &[(b"a", Some(b"1"))]);
        let kept = filter(&map, &Nobody).next(batch.header(), batch.as_bytes());
        assert_eq!(kept, Ok(Kept::Whole));
    }

    #[test]
    fn a_tombstone_gets_a_horizon_and_goes_behind_it() {
        let map = map(&[(b"a", 10)], 20);
        let batch = batch(10, Codec::None, &[(b"a", None)]);
        let mut filter = filter(&map, &Nobody);
        let kept = filter.next(batch.header(), batch.as_bytes()).expect("whole");
        let Kept::Rewritten(bytes) = kept else { panic!("it gets a horizon") };
        let (header, records) = read(&bytes);
        assert!(header.has_delete_horizon());
        assert_eq!(header.base_timestamp, Timestamp(51_000));
        assert_eq!(records, [(0, 1_000)], "times read as before");
        assert_eq!(filter.next(&header, &bytes), Ok(Kept::Whole), "a horizon is given once");
        filter.now = Timestamp(51_000);
        assert_eq!(filter.next(&header, &bytes), Ok(Kept::Nothing));
    }

    #[test]
    fn the_last_batch_of_a_producer_and_of_the_round_leaves_its_header() {
        let map = map(&[(b"a", 15)], 20);
        let batch = batch(10, Codec::Gzip, &[(b"a", Some(b"1"))]);
        let (header, bytes) = (batch.header(), batch.as_bytes());
        assert_eq!(filter(&map, &Nobody).next(header, bytes), Ok(Kept::Nothing));
        let kept = filter(&map, &Last(Offset(10))).next(header, bytes);
        let Ok(Kept::Rewritten(emptied)) = kept else { panic!("its header stays") };
        assert_eq!(emptied.len(), HEADER_BYTES);
        let (left, records) = read(&emptied);
        assert_eq!((left.record_count, left.base_offset, records.len()), (0, 10, 0));
        assert_eq!((left.base_timestamp, left.max_timestamp), (Timestamp(-1), Timestamp(1_000)));
        let again = filter(&map, &Last(Offset(10))).next(&left, &emptied);
        assert_eq!(again, Ok(Kept::Whole));
        let mut last = filter(&map, &Nobody);
        last.upper = Offset(11);
        assert!(matches!(last.next(header, bytes), Ok(Kept::Rewritten(_))));
    }
}
