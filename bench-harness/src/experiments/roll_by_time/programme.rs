//! Records some time apart by their timestamps, one in a batch, and where the log is cut.

use std::time::Instant;

use uringlog::{Timestamp, now};

use crate::engines::reach::{NO_LIMIT, Reach};
use crate::engines::{batches, files};
use crate::experiments::Failure;
use crate::experiments::measure::usize_of;
use crate::experiments::roll_by_size::phenomenon::{figures, listing};
use crate::parameters::Parameters;
use crate::record::Recorder;

const DOCUMENT: &str = "the document on segments and indexes (Kafka 4.3.1)";
const RULE: &str = "the rule: older than segment.ms, by the times of the records";

/// What is appended, and the log's setting.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Programme {
    segment_ms: u64,
    records: u64,
    record_gap_ms: u64,
    record_size: u64,
    first_record_size: u64,
    /// `rising`, `falling` or `none`.
    timestamps: String,
}

/// The parameters' defaults with other times.
pub fn others() -> Vec<Programme> {
    ["falling", "none"].map(of_the_document).to_vec()
}

fn of_the_document(timestamps: &str) -> Programme {
    Programme {
        segment_ms: 10_000,
        records: 3,
        record_gap_ms: 10_000,
        record_size: 6,
        first_record_size: 5,
        timestamps: timestamps.to_owned(),
    }
}

impl Programme {
    /// The one that is set.
    pub fn asked(parameters: &Parameters) -> Programme {
        Programme {
            segment_ms: parameters.number("segment_ms"),
            records: parameters.number("records"),
            record_gap_ms: parameters.number("record_gap_ms"),
            record_size: parameters.number("record_size"),
            first_record_size: parameters.number("first_record_size"),
            timestamps: parameters.choice("timestamps").to_owned(),
        }
    }

    /// From now on figures belong to this programme.
    pub fn declare(&self, recorder: &mut Recorder) {
        recorder.vary("segment_ms", self.segment_ms);
        recorder.vary("records", self.records);
        recorder.vary("record_gap_ms", self.record_gap_ms);
        recorder.vary("record_size", self.record_size);
        recorder.vary("first_record_size", self.first_record_size);
        recorder.vary("timestamps", self.timestamps.as_str());
    }

    /// Appends it to a new topic, and reads the files back.
    ///
    /// # Errors
    /// Whatever is refused.
    pub async fn run(
        &self,
        reach: &Reach<'_>,
        number: usize,
        recorder: &mut Recorder,
    ) -> Result<(), Failure> {
        self.declare(recorder);
        let (topic, began) = (format!("segments-in-time-{number}"), Instant::now());
        let settings = [("segment.ms", self.segment_ms), ("retention.ms", NO_LIMIT)];
        let sink = reach.topic((&topic, 1), &settings).await?;
        let last = now();
        let first = self.first_time(last)?;
        for record in 0..self.records {
            let size = if record == 0 { self.first_record_size } else { self.record_size };
            let value = vec![b'v'; usize_of(size)];
            let at = self.timestamp(record, (first, last));
            sink.append(0, batches::uniform(&[&value], at)).await?;
        }
        let took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let folder = sink.directory(0);
        let (segments, end) = (files::segments(&folder)?, sink.end(0).await?);
        if segments.is_empty() {
            return Err(Failure::Wrong(format!("there is no segment in {}", folder.display())));
        }
        figures((&segments, end), recorder);
        let bases: Vec<u64> = segments.iter().map(|it| it.base).collect();
        match self.base_offsets(took_ms) {
            Some(expected) => recorder.expect("base_offsets", (bases, expected), RULE),
            None => recorder.note(
                "Records without a time were appended for longer than segment.ms, so that the \
                 wall clock decided where the log was cut.",
            ),
        }
        if *self == of_the_document("rising") {
            let sizes: Vec<_> = segments
                .iter()
                .map(|it| [it.log, it.index, it.time_index].map(|it| it.map(|it| it.bytes)))
                .map(|it| it.map(Option::unwrap_or_default).to_vec())
                .collect();
            let expected = vec![vec![147, 0, 12], vec![74, 10_485_760, 10_485_756]];
            recorder.expect("bytes_of_log_index_time_index", (sizes, expected), DOCUMENT);
        }
        listing(&folder, &self.title(), recorder)
    }

    fn title(&self) -> String {
        let Programme { segment_ms, records, record_gap_ms, timestamps, .. } = self;
        let times = match timestamps.as_str() {
            "none" => "without times".to_owned(),
            other => format!("{record_gap_ms} ms apart, times {other}"),
        };
        format!("segment.ms={segment_ms}, {records} records, {times}")
    }

    /// Of the oldest record, when the newest one's is `last`.
    fn first_time(&self, last: Timestamp) -> Result<Timestamp, Failure> {
        let gap_ms = if self.timestamps == "none" { 0 } else { self.record_gap_ms };
        batches::first_time(last, (self.records, gap_ms), "record_gap_ms")
    }

    /// The newest one's is `last`: none lies in the future.
    fn timestamp(&self, record: u64, (first, last): (Timestamp, Timestamp)) -> Timestamp {
        let since = (record * self.record_gap_ms).cast_signed();
        match self.timestamps.as_str() {
            "rising" => Timestamp(first.0 + since),
            "falling" => Timestamp(last.0 - since),
            _ => Timestamp::NONE,
        }
    }

    /// Where segments begin; `None` when it isn't the records that decide.
    fn base_offsets(&self, took_ms: u64) -> Option<Vec<u64>> {
        match self.timestamps.as_str() {
            "rising" => {
                // The newest record that isn't older than segment.ms, and all before it.
                let fit = self.segment_ms.checked_div(self.record_gap_ms);
                let fit = fit.map_or(self.records, |it| it + 1);
                Some((0..self.records.div_ceil(fit)).map(|it| it * fit).collect())
            }
            "falling" => Some(vec![0]),
            _ => (took_ms < self.segment_ms).then(|| vec![0]),
        }
    }
}

/// What might surprise.
pub fn notes(recorder: &mut Recorder) {
    recorder.note(
        "Nothing waits for 10 s: age is the time of the batch that comes minus the time of the \
         segment's first batch, whatever the wall clock says. Three records 10 s apart show that \
         the limit itself is not too old yet: the second one still goes to the first segment.",
    );
    recorder.note(
        "The document gives 147 bytes for the closed segment and 74 for the active one, not the \
         records: values of 5, 6 and 6 bytes in batches of one make exactly these.",
    );
    recorder.note(
        "Records with falling times never roll a segment. Records without times are measured by \
         the wall clock since their segment was made: none of these runs takes so long.",
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_end_with_the_last_record_that_is_young_enough() {
        let document = of_the_document("rising");
        assert_eq!(document.base_offsets(0), Some(vec![0, 2]));
        let close = Programme { record_gap_ms: 3000, records: 9, ..document.clone() };
        assert_eq!(close.base_offsets(0), Some(vec![0, 4, 8]));
        let together = Programme { record_gap_ms: 0, ..document.clone() };
        assert_eq!(together.base_offsets(0), Some(vec![0]));
        let apart = Programme { record_gap_ms: 10_001, ..document };
        assert_eq!(apart.base_offsets(0), Some(vec![0, 1, 2]));
        assert_eq!(of_the_document("falling").base_offsets(0), Some(vec![0]));
        assert_eq!(of_the_document("none").base_offsets(10_000), None);
    }

    #[test]
    fn no_time_lies_in_the_future() {
        let last = Timestamp(100_000);
        let times = |timestamps: &str| {
            let programme = of_the_document(timestamps);
            let first = programme.first_time(last).expect("long after 1970");
            [0, 1, 2].map(|it| programme.timestamp(it, (first, last)).0)
        };
        assert_eq!(times("rising"), [80_000, 90_000, 100_000]);
        assert_eq!(times("falling"), [100_000, 90_000, 80_000]);
        assert_eq!(times("none"), [-1; 3]);
    }
}
