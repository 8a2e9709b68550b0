//! Records and batches.

use uringlog::format::batch::{BatchHeader, Codec};
use uringlog::format::codec::Levels;
use uringlog::format::record::{BatchBuilder, NewRecord, RecordsIter};
use uringlog::log::validate::validate;
use uringlog::log::{Durability, LogConfig};
use uringlog::units::Timestamp;

use crate::support::{self, START};

/// Item 3.
#[test]
fn a_header_without_a_name_and_a_number_that_does_not_end_are_refused() {
    let header = BatchHeader { record_count: 1, ..*support::batch(1, 1, START).header() };
    let is_read = |record: &[u8]| {
        let records: Vec<_> = RecordsIter::new(&header, record).collect();
        assert_eq!(records.len(), 1);
        records[0].is_ok()
    };
    // Attributes, both deltas, null key, null value, one header with a name of two bytes, null.
    assert!(is_read(&[20, 0, 0, 0, 1, 1, 2, 4, b'h', b'1', 1]));
    assert!(!is_read(&[16, 0, 0, 0, 1, 1, 2, 1, 1]), "its name is null");
    assert!(!is_read(&[18, 0, 0, 0, 1, 1, 2, 4, b'h', 1]), "its name ends with the record");
    // A time of eleven bytes, an offset of six.
    let mut long = vec![32, 0];
    long.extend([0xff; 10]);
    long.extend([1, 0, 1, 1, 0]);
    assert!(!is_read(&long));
    assert!(!is_read(&[22, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 1, 1, 0]));
}

/// Item 8.
#[test]
fn another_level_is_no_reason_to_compress_anew() {
    let levels = [(Codec::Gzip, 1, 9), (Codec::Zstd, 1, 19)];
    for (codec, sent_level, wanted_level) in levels {
        let sent_levels = Levels { gzip: sent_level, zstd: sent_level };
        let mut builder = BatchBuilder::new(codec).with_levels(sent_levels);
        for number in 0..500_u32 {
            let value = number.wrapping_mul(2_654_435_761).to_string();
            builder.push(&NewRecord::value(Timestamp(START.0), value.as_bytes()));
        }
        let sent = builder.build();
        let bytes = sent.as_bytes().to_vec();
        let config = LogConfig {
            compression: Some(codec),
            gzip_level: wanted_level,
            zstd_level: wanted_level,
            ..LogConfig::defaults(Durability::PageCache)
        };
        let stored = validate(sent, &config, START).expect("valid").batch;
        assert_eq!(stored.as_bytes(), bytes, "{codec:?}");
    }
}
