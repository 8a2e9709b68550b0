//! Where do the offsets of a partition stand: log start, high watermark, log end, recovery point,
//! and a consumer's position; and what may a consumer read when an acknowledgement promises a sync?
//!
//! [`moments`] stops the log at three moments and reads all offsets off it, [`flow`] draws them
//! over time while records are produced, consumed and taken away, [`wire`] asks a server.
//!
//! # Figures
//!
//! With the parameter `moment`: `acknowledged` (all records but the last `unsynced_records` are
//! appended and acknowledged), `held` (these are appended, too, while every sync is held up),
//! `released` (syncs go on). Each is an offset, read off the log:
//!
//! - `log_start_offset`: the first record that can be read, behind `deleted_records`.
//! - `high_watermark`: consumers read up to here.
//! - `log_end_offset`: where the written log ends, as far as the engine knows; `next_offset`: what
//!   the next record will get. Kafka's LEO moves when a batch is in the page cache, before its
//!   sync, so between the two.
//! - `durable_end_offset`: what is on the device ends here. `recovery_point`: so does what a
//!   restart need not look at, indexes included.
//! - `position`: what the consumer gets next, after `consumed_records`.
//! - `readable_records` (count): what another consumer really gets from the log start on.
//!
//! Over time: series `log start`, `high watermark`, `log end`, `next offset`, `recovery point`,
//! `position`, `position of a slow consumer`, and their distances `appended, not readable`,
//! `readable, not durable`, `readable, not consumed` (the lag of the slow consumer). Figures
//! `readable_before_durable_max`, `appended_before_readable_max`, `consumer_lag_max`,
//! `records_produced`, `records_consumed`, `log_start_moves`, `consumer_resets`; latencies
//! `append_to_acknowledged` and `append_to_consumed`.
//!
//! Through the wire (`through` is `wire`): `log_start_offset` and `high_watermark` as Fetch answers
//! them, `earliest_offset` and `latest_offset` as ListOffsets does, `position`, `committed_offset`,
//! one batch behind it, as OffsetFetch does, and `recovery_point_after_stop`, read from the
//! checkpoint file that a clean stop leaves.

mod consumer;
mod flow;
mod moments;
mod wire;

use super::Failure;
use crate::engines::{EngineName, Tier};
use crate::parameters::{Kind, Parameter, Parameters, Scaled, number};
use crate::record::Recorder;
use crate::registry::Experiment;
use crate::run::Context;

/// See the module.
pub const EXPERIMENT: Experiment = Experiment {
    name: "offsets",
    question: "Where do a partition's offsets stand while it is written, read and shortened, and \
               what may a consumer read when the acknowledgement promises a sync?",
    parameters: PARAMETERS,
    engines: EngineName::ALL,
    tiers: Tier::ALL,
    file_systems: true,
    seconds: Scaled { quick: 2, normal: 11, full: 70 },
    run,
};

const PARAMETERS: &[Parameter] = &[
    number("records", Scaled::same(10), (1, 1_000_000), "", "records of the log that is stopped"),
    number("batch_records", Scaled::same(1), (1, 10_000), "", "records in a batch of it"),
    number("record_size", Scaled::same(1000), (0, 1 << 16), "bytes", "value of a record"),
    number(
        "unsynced_records",
        Scaled::same(2),
        (0, 1_000_000),
        "",
        "last ones, whose sync is held",
    ),
    number("consumed_records", Scaled::same(5), (0, 1_000_000), "", "records that a consumer got"),
    number("deleted_records", Scaled::same(1), (0, 1_000_000), "", "records that are then deleted"),
    Parameter {
        name: "through",
        kind: Kind::Choice { default: "both", of: &["both", "library", "wire"] },
        unit: "",
        help: "by what the log is reached; Kafka by the wire only",
    },
    Parameter {
        name: "seconds",
        kind: Kind::Decimal {
            default: Scaled { quick: 1.2, normal: 10.0, full: 60.0 },
            min: 0.1,
            max: 3600.0,
        },
        unit: "s",
        help: "how long offsets are watched over time",
    },
    number("rate", Scaled::same(4000), (1, 1_000_000), "records/s", "records produced meanwhile"),
    number("flow_batch_records", Scaled::same(10), (1, 1000), "", "records in a batch meanwhile"),
    number(
        "segment_bytes",
        Scaled { quick: 1 << 20, normal: 4 << 20, full: 4 << 20 },
        (1 << 20, (1 << 31) - 1),
        "bytes",
        "segment.bytes meanwhile",
    ),
    number(
        "retention_bytes",
        Scaled { quick: 2 << 20, normal: 8 << 20, full: 8 << 20 },
        (0, 1 << 40),
        "bytes",
        "retention.bytes meanwhile",
    ),
    number(
        "pause_ms",
        Scaled { quick: 100, normal: 500, full: 500 },
        (0, 60_000),
        "ms",
        "how long a slow consumer pauses when it has read everything",
    ),
];

fn run(context: &Context, recorder: &mut Recorder) -> Result<(), Failure> {
    let programme = Programme::asked(&context.parameters)?;
    let is_library = context.engine().is_some_and(|it| it.of_library().is_some());
    let through = context.parameters.choice("through");
    if is_library && through != "wire" {
        recorder.vary("through", "library");
        moments::run(context, &programme, recorder)?;
        flow::run(context, recorder)?;
    }
    if !is_library || through != "library" {
        recorder.vary("through", "wire");
        wire::run(context, &programme, recorder)?;
    }
    notes(recorder);
    Ok(())
}

/// What happens to the log that is stopped.
struct Programme {
    records: u64,
    batch_records: u64,
    record_size: u64,
    unsynced: u64,
    consumed: u64,
    deleted: u64,
}

impl Programme {
    /// The one that is set; what isn't set is made smaller where the log is too short for it.
    ///
    /// # Errors
    /// Numbers that contradict each other.
    fn asked(parameters: &Parameters) -> Result<Programme, Failure> {
        let within = |name: &str, most: u64| {
            let value = parameters.number(name);
            if parameters.is_any_set(&[name]) { value } else { value.min(most) }
        };
        let records = parameters.number("records");
        let unsynced = within("unsynced_records", records);
        let consumed = within("consumed_records", records.saturating_sub(unsynced));
        let programme = Programme {
            records,
            batch_records: parameters.number("batch_records"),
            record_size: parameters.number("record_size"),
            unsynced,
            consumed,
            deleted: within("deleted_records", consumed),
        };
        programme.check()?;
        Ok(programme)
    }

    fn check(&self) -> Result<(), Failure> {
        const BATCH_BYTES_MAX: u64 = 1 << 20;
        let Programme { records, unsynced, consumed, deleted, .. } = *self;
        if records < unsynced || records - unsynced < consumed || consumed < deleted {
            return Err(Failure::Usage(format!(
                "records={records}, unsynced_records={unsynced}, consumed_records={consumed}, \
                 deleted_records={deleted}: only acknowledged records can be consumed \
                 ({} at most), and no more are deleted than were consumed",
                records.saturating_sub(unsynced)
            )));
        }
        // Around a record there are at most a few dozen bytes.
        let bytes = self.batch_records * (self.record_size + 32) + 64;
        if BATCH_BYTES_MAX < bytes {
            return Err(Failure::Usage(format!(
                "batch_records={} of record_size={} make batches of {bytes} bytes, and {} is the \
                 most: lower one of the two",
                self.batch_records, self.record_size, BATCH_BYTES_MAX
            )));
        }
        Ok(())
    }

    /// What the consumer has committed: all but its last batch.
    fn committed(&self) -> u64 {
        self.consumed.saturating_sub(self.batch_records)
    }

    /// Records of each batch, so that a number of records is appended.
    fn batches(&self, records: u64) -> Vec<u64> {
        let whole = std::iter::repeat_n(self.batch_records, fit(records, self.batch_records));
        let rest = records % self.batch_records;
        whole.chain((0 < rest).then_some(rest)).collect()
    }
}

fn fit(records: u64, batch: u64) -> usize {
    super::measure::usize_of(records / batch)
}

fn notes(recorder: &mut Recorder) {
    recorder.note(
        "The document's picture of offsets has a high watermark behind the log end because \
         followers lag. Here a partition has one replica: what the high watermark waits for is the \
         sync that the device tier promises, and in the page-cache tier nothing.",
    );
    recorder.note(
        "The committed offset is a group's, so a server is asked for it: the consumer has \
         committed what it got before its last batch, as one that commits from time to time.",
    );
    recorder.note(
        "A held sync is a fault hook's: the write is done, the sync of it doesn't begin. The log \
         that is stopped has no commit journal, so that each append of the device tier waits for a \
         sync of its own; over time there is one, as by default.",
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: Programme = Programme {
        records: 10,
        batch_records: 1,
        record_size: 1000,
        unsynced: 2,
        consumed: 5,
        deleted: 1,
    };

    #[test]
    fn records_are_cut_into_batches() {
        assert_eq!(DOCUMENT.batches(3), [1, 1, 1]);
        let by_four = Programme { batch_records: 4, ..DOCUMENT };
        assert_eq!(by_four.batches(8), [4, 4]);
        assert_eq!(by_four.batches(10), [4, 4, 2]);
        assert!(by_four.batches(0).is_empty());
    }

    #[test]
    fn contradictions_are_refused() {
        DOCUMENT.check().expect("the default");
        for wrong in [
            Programme { unsynced: 11, ..DOCUMENT },
            Programme { consumed: 9, ..DOCUMENT },
            Programme { deleted: 6, ..DOCUMENT },
        ] {
            let text = wrong.check().expect_err("a contradiction").to_string();
            assert!(text.contains("only acknowledged records can be consumed"), "{text}");
        }
        let large = Programme { batch_records: 1000, record_size: 1 << 16, ..DOCUMENT };
        let text = large.check().expect_err("too large").to_string();
        assert!(text.contains("lower one of the two"), "{text}");
    }
}
