//! The roll that neither size nor age asks for: one of the indexes has no room for another entry.

use uringlog::{Timestamp, now};

use crate::engines::reach::{NO_LIMIT, Reach};
use crate::engines::{batches, files};
use crate::experiments::Failure;
use crate::experiments::measure::usize_of;
use crate::record::{Recorder, Table, unit};
use crate::run::Context;

const RULE: &str = "the rule: 8 and 12 bytes an entry, one time entry kept free, none for the \
                    first batch";

/// A log for each kind of times.
///
/// # Errors
/// Whatever is refused.
pub async fn run(
    context: &Context,
    reach: &Reach<'_>,
    recorder: &mut Recorder,
) -> Result<(), Failure> {
    let parameters = &context.parameters;
    let bytes = parameters.number("segment_index_bytes");
    let records = parameters.number("index_records");
    let columns = ["times", "base offset", ".log", ".index", ".timeindex"];
    let mut table = Table::new(&format!("segment.index.bytes={bytes}, an entry a batch"), &columns);
    for times in ["rising", "equal"] {
        context.check()?;
        recorder.vary("index_timestamps", times);
        let settings = [
            ("segment.index.bytes", bytes),
            ("index.interval.bytes", 0),
            ("retention.ms", NO_LIMIT),
        ];
        let sink = reach.topic((&format!("full-index-{times}"), 1), &settings).await?;
        let last = now();
        for record in 0..records {
            let before = if times == "rising" { records - record } else { 0 };
            let at = Timestamp(last.0 - before.cast_signed());
            sink.append(0, batches::uniform(&[b"record"], at)).await?;
        }
        let segments = files::segments(&sink.directory(0))?;
        let size = |size: Option<files::Size>| size.unwrap_or_default().bytes;
        for it in &segments {
            let sizes = [it.base, size(it.log), size(it.index), size(it.time_index)];
            let cells = sizes.iter().map(u64::to_string);
            table.row([times.to_owned()].into_iter().chain(cells).collect());
        }
        let bases: Vec<u64> = segments.iter().map(|it| it.base).collect();
        let closed = segments.split_last().map_or(&[][..], |it| it.1);
        let indexes: Vec<u64> = closed.iter().map(|it| size(it.index)).collect();
        let time_indexes: Vec<u64> = closed.iter().map(|it| size(it.time_index)).collect();
        recorder.expect(
            "full_index_base_offsets",
            (bases.clone(), base_offsets((times, bytes), records)),
            RULE,
        );
        recorder.figure("full_index_base_offsets", bases, unit::OFFSET);
        recorder.figure("full_index_closed_index_bytes", indexes, unit::BYTES);
        recorder.figure("full_index_closed_time_index_bytes", time_indexes, unit::BYTES);
    }
    recorder.forget("index_timestamps");
    recorder.table(table);
    recorder.note(
        "With segment.index.bytes=120 an offset index has room for 15 entries and a time index \
         for 10, of which the last is kept for the segment's end. Times that rise fill the time \
         index first; of equal times only one entry is written, and the offset index fills first.",
    );
    Ok(())
}

fn base_offsets((times, bytes): (&str, u64), records: u64) -> Vec<u64> {
    let entries = if times == "rising" { (bytes / 12 - 1).min(bytes / 8) } else { bytes / 8 };
    let fit = usize_of(entries + 1);
    (0..records).step_by(fit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_that_fills_first_decides() {
        assert_eq!(base_offsets(("rising", 120), 30), [0, 10, 20]);
        assert_eq!(base_offsets(("equal", 120), 33), [0, 16, 32]);
        assert_eq!(base_offsets(("rising", 48), 9), [0, 4, 8]);
    }
}
