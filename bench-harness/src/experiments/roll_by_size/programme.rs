//! What is appended: the programmes of the documents, and whatever is set.

use uringlog::{LogConfig, Timestamp, now};

use crate::engines::batches;
use crate::engines::sink::Sink;
use crate::experiments::Failure;
use crate::experiments::measure::{u64_of, usize_of};
use crate::parameters::Parameters;
use crate::record::Recorder;
use crate::run::Context;

/// Values of the small records: 22 of the one, one of the other. In a batch of their own they take
/// 106 and 116 bytes.
const SMALL: [(usize, usize); 2] = [(22, 38), (1, 48)];
/// The largest batch that Kafka's formats allow to be named.
const BATCH_BYTES_MAX: u64 = (1 << 31) - 1;

/// A sequence of batches, and the log that takes them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Programme {
    /// What it is called in tables.
    pub title: &'static str,
    pub record_size: u64,
    pub records: u64,
    pub batch_records: u64,
    pub small_records: bool,
    pub numbered: bool,
    pub segment_bytes: u64,
    pub index_interval_bytes: u64,
    pub partitions: u64,
}

/// 4,000 records of 1 KiB behind 23 small ones: the parameters' defaults.
pub const KIB_RECORDS: Programme = Programme {
    title: "4,000 x 1,024 B behind 23 small records",
    record_size: 1024,
    records: 4000,
    batch_records: 15,
    small_records: true,
    numbered: false,
    segment_bytes: 1 << 20,
    index_interval_bytes: 4096,
    partitions: 1,
};

/// The same records without the small ones, as in the retention run.
pub const KIB_RECORDS_ONLY: Programme =
    Programme { title: "4,000 x 1,024 B", small_records: false, ..KIB_RECORDS };

/// 2,500 records of about 2,000 B. Sizes tell that a value has 2,000 bytes and, behind one byte
/// more, the record's number in decimal.
pub const NUMBERED_RECORDS: Programme = Programme {
    title: "2,500 x about 2,000 B, 32 in a batch",
    record_size: 2000,
    records: 2500,
    batch_records: 32,
    small_records: false,
    numbered: true,
    ..KIB_RECORDS
};

/// 20,000 records of 200 B over two partitions; 78 of them fill a batch of 16 KiB.
pub const TWO_PARTITIONS: Programme = Programme {
    title: "20,000 x 200 B into two partitions",
    record_size: 200,
    records: 20_000,
    batch_records: 78,
    small_records: false,
    partitions: 2,
    ..KIB_RECORDS
};

/// Those that are run beside the first one.
pub fn others() -> Vec<Programme> {
    vec![KIB_RECORDS_ONLY, NUMBERED_RECORDS, TWO_PARTITIONS]
}

impl Programme {
    /// The one that is set.
    ///
    /// # Errors
    /// A batch that doesn't fit a segment.
    pub fn asked(parameters: &Parameters) -> Result<Programme, Failure> {
        let asked = Programme {
            title: KIB_RECORDS.title,
            record_size: parameters.number("record_size"),
            records: parameters.number("records"),
            batch_records: parameters.number("batch_records"),
            small_records: parameters.flag("small_records"),
            numbered: parameters.flag("numbered"),
            segment_bytes: parameters.number("segment_bytes"),
            index_interval_bytes: parameters.number("index_interval_bytes"),
            partitions: parameters.number("partitions"),
        };
        let title = if asked == KIB_RECORDS { asked.title } else { "as set" };
        asked.check()?;
        Ok(Programme { title, ..asked })
    }

    /// Whether its batches fit its segments.
    ///
    /// # Errors
    /// One that does not, with the remedy.
    pub fn check(&self) -> Result<(), Failure> {
        let records = self.batch_records.min(self.records);
        let values = self.record_size.saturating_mul(records);
        let bytes = match values {
            ..BATCH_BYTES_MAX => self.largest_batch(),
            _ => values,
        };
        if self.segment_bytes < bytes {
            return Err(Failure::Usage(format!(
                "batch_records={records} of record_size={} make batches of {bytes} bytes, and \
                 segment_bytes is {}: lower one of the two, or raise segment_bytes",
                self.record_size, self.segment_bytes
            )));
        }
        Ok(())
    }

    /// Its bytes: the last records have the longest numbers.
    fn largest_batch(&self) -> u64 {
        let records = self.batch_records.min(self.records);
        let values: Vec<Vec<u8>> =
            (self.records - records..self.records).map(|it| self.value(it, &[])).collect();
        let values: Vec<&[u8]> = values.iter().map(Vec::as_slice).collect();
        u64_of(batches::uniform(&values, Timestamp(0)).as_bytes().len())
    }

    /// Of a record: `filling` as far as it goes, zeros behind it.
    fn value(&self, number: u64, filling: &[u8]) -> Vec<u8> {
        let mut value = filling.to_vec();
        value.resize(usize_of(self.record_size), 0);
        if self.numbered {
            value.extend(format!("-{number}").bytes());
        }
        value
    }

    /// Of a topic through the wire, by Kafka's names.
    pub fn settings(&self) -> [(&'static str, u64); 3] {
        [
            ("segment.bytes", self.segment_bytes),
            ("index.interval.bytes", self.index_interval_bytes),
            ("max.message.bytes", self.segment_bytes),
        ]
    }

    /// The same for the library.
    pub fn configure(&self, config: &mut LogConfig) {
        config.segment_bytes.0 = self.segment_bytes;
        config.index_interval_bytes.0 = self.index_interval_bytes;
        config.batch_bytes_max.0 = self.segment_bytes;
    }

    /// How many partitions it wants.
    pub fn partition_count(&self) -> u32 {
        u32::try_from(self.partitions).expect("at most 1,000")
    }

    /// Appends everything, batches by turns over the partitions, each acknowledged before the next.
    ///
    /// # Errors
    /// Whatever is refused.
    pub async fn play(&self, context: &Context, sink: &Sink) -> Result<(), Failure> {
        let now = now();
        let mut turns = (0..self.partition_count()).cycle();
        let mut next = || turns.next().expect("there is a partition");
        if self.small_records {
            for (count, length) in SMALL {
                let value = batches::bytes(length, context.seed);
                for _ in 0..count {
                    sink.append(next(), batches::uniform(&[&value], now)).await?;
                }
            }
        }
        let filling = batches::bytes(usize_of(self.record_size), context.seed);
        let progress = context.progress(self.records, self.title);
        let mut at = 0;
        while at < self.records {
            context.check()?;
            let count = self.batch_records.min(self.records - at);
            let values: Vec<Vec<u8>> =
                (at..at + count).map(|it| self.value(it, &filling)).collect();
            let values: Vec<&[u8]> = values.iter().map(Vec::as_slice).collect();
            sink.append(next(), batches::uniform(&values, now)).await?;
            at += count;
            progress.advance(count);
        }
        Ok(())
    }

    /// From now on figures belong to this programme.
    pub fn declare(&self, recorder: &mut Recorder) {
        recorder.vary("record_size", self.record_size);
        recorder.vary("records", self.records);
        recorder.vary("batch_records", self.batch_records);
        recorder.vary("small_records", self.small_records);
        recorder.vary("numbered", self.numbered);
        recorder.vary("segment_bytes", self.segment_bytes);
        recorder.vary("index_interval_bytes", self.index_interval_bytes);
        recorder.vary("partitions", self.partitions);
    }
}

/// Of every programme.
pub const TOPIC: &str = "segments";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_as_long_as_in_the_documents() {
        for (programme, expected) in [
            (KIB_RECORDS, 15_556),
            (NUMBERED_RECORDS, 61 + 32 * 2014),
            (TWO_PARTITIONS, 61 + 64 * 209 + 14 * 210),
        ] {
            assert_eq!(programme.largest_batch(), expected, "{}", programme.title);
        }
        for (count, length) in SMALL {
            let bytes = batches::length(1, u64_of(length));
            assert_eq!(bytes, if count == 1 { 116 } else { 106 });
        }
    }

    #[test]
    fn a_batch_that_fits_no_segment_is_refused() {
        let huge = Programme { record_size: 1 << 20, batch_records: 1, ..KIB_RECORDS };
        let text = huge.check().expect_err("larger than the segment").to_string();
        assert!(text.contains("segment_bytes is 1048576: lower one"), "{text}");
        let many = Programme { record_size: 1 << 20, batch_records: 1_000_000, ..KIB_RECORDS };
        let many = Programme { records: 1_000_000, ..many };
        assert!(many.check().is_err());
        KIB_RECORDS.check().expect("it fits");
    }
}
