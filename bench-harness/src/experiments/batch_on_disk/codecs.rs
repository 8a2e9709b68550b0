//! What codecs save and cost: batches that producers packed, and those that `compression.type` has
//! the log pack.

use std::time::{Duration, Instant};

use uringlog::{BatchBuilder, Codec, LogConfig, NewRecord, RecordBatch, Timestamp, now};

use super::{SETTINGS, shown_way};
use crate::engines::reach::Reach;
use crate::engines::sink::Sink;
use crate::engines::{batches, stored};
use crate::experiments::Failure;
use crate::experiments::measure::{f64_of, u64_of};
use crate::parameters::Parameters;
use crate::record::picture::names;
use crate::record::{Better, Kind, Latency, Picture, Recorder, Table, Unit, unit};
use crate::run::Context;

const CODECS: [Codec; 5] = [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];
/// Sizes that a library for packing decides: they may change with its version.
const PACKED: Unit = Unit { name: "bytes", better: Better::Lower };

/// Both ways to pack.
///
/// # Errors
/// Whatever is refused, and records that don't come back.
pub async fn run(
    context: &Context,
    reach: &Reach<'_>,
    recorder: &mut Recorder,
) -> Result<(), Failure> {
    by_producers(context, reach, recorder).await?;
    recorder.forget("codec");
    by_the_log(context, reach, recorder).await?;
    recorder.forget("compression_type");
    Ok(())
}

fn values(parameters: &Parameters, seed: u64) -> Vec<Vec<u8>> {
    let (size, kind) = (parameters.length("codec_record_size"), parameters.choice("codec_values"));
    (0..parameters.number("codec_records")).map(|it| value(kind, size, seed ^ it)).collect()
}

/// Of exactly so many bytes; JSON is cut where it has to be.
fn value(kind: &str, size: usize, seed: u64) -> Vec<u8> {
    match kind {
        "zeros" => vec![0; size],
        "random" => batches::bytes(size, seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
        _ => {
            let digits =
                batches::bytes(size.div_ceil(32), seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let field = |(number, it): (usize, &u8)| {
                format!(
                    "{{\"field\":{number},\"reading\":{}.{},\"unit\":\"hPa\"}},",
                    900 + u16::from(*it),
                    it
                )
            };
            let text: String = digits.iter().enumerate().map(field).collect();
            let mut text = text.into_bytes();
            text.resize(size, b' ');
            text
        }
    }
}

fn packed(values: &[Vec<u8>], codec: Codec, timestamp: Timestamp) -> RecordBatch {
    let mut batch = BatchBuilder::new(codec);
    for value in values {
        batch.push(&NewRecord::value(timestamp, value));
    }
    batch.build()
}

async fn by_producers(
    context: &Context,
    reach: &Reach<'_>,
    recorder: &mut Recorder,
) -> Result<(), Failure> {
    let values = values(&context.parameters, context.seed);
    let at = now();
    let plain = packed(&values, Codec::None, at);
    let columns = ["codec", "bytes stored", "of", "ratio", "pack MB/s", "unpack MB/s"];
    let mut table = Table::new("Batches as producers pack them", &columns);
    for codec in CODECS {
        context.check()?;
        recorder.vary("codec", codec.name());
        let (batch, pack) = timed(context, || Ok(packed(&values, codec, at)))?;
        let sink = reach.topic((&format!("packed-{}", codec.name()), 1), SETTINGS).await?;
        sink.append(0, batch).await?;
        let stored = stored::batches(&sink.directory(0))?;
        let Some(stored) = stored.first() else {
            return Err(Failure::Wrong("the batch is not in the file".to_owned()));
        };
        let (records, unpack) = timed(context, || stored.records())?;
        recorder.expect("codec", (stored.codec()?, codec.name()), "kept as it came");
        let is_same = records == plain.payload();
        recorder.expect("records_come_back", (is_same, true), "what was packed");
        let unpacked = u64_of(plain.as_bytes().len());
        let ratio = f64_of(unpacked) / f64_of(stored.bytes());
        recorder.figure("packed_bytes", stored.bytes(), PACKED);
        recorder.figure("unpacked_bytes", unpacked, unit::BYTES);
        recorder.figure("packed_ratio", ratio, unit::RATIO);
        let rate = |took: Duration| f64_of(u64_of(records.len())) / took.as_secs_f64();
        let mut cells = vec![codec.name().to_owned(), stored.bytes().to_string()];
        cells.extend([unpacked.to_string(), format!("{ratio:.2}")]);
        for (name, took) in [("pack_rate", pack), ("unpack_rate", unpack)] {
            if reach.is_measured(context) {
                recorder.figure(name, rate(took).round(), unit::BYTES_PER_SECOND);
            }
            cells.push(format!("{:.0}", rate(took) / 1e6));
        }
        table.row(cells);
    }
    recorder.table(table);
    Ok(())
}

/// The median of so many rounds, and what came of the last one.
fn timed<T>(
    context: &Context,
    mut work: impl FnMut() -> Result<T, Failure>,
) -> Result<(T, Duration), Failure> {
    let mut latency = Latency::new();
    let mut made = work()?;
    for _ in 0..context.parameters.number("codec_rounds") {
        context.check()?;
        let began = Instant::now();
        made = work()?;
        latency.record(began.elapsed());
    }
    let median = latency.total().value_at_quantile(0.5);
    Ok((made, Duration::from_nanos(median)))
}

/// Only by the library: the topic's setting is a word there, and elsewhere settings are numbers.
async fn by_the_log(
    context: &Context,
    reach: &Reach<'_>,
    recorder: &mut Recorder,
) -> Result<(), Failure> {
    let Reach::Library(_, engine) = reach else { return Ok(()) };
    let values = values(&context.parameters, context.seed);
    let plain = packed(&values, Codec::None, now());
    let columns = ["compression.type", "codec in the file", "bytes stored", "median append, us"];
    let mut table = Table::new("Batches without a codec, as the log packs them", &columns);
    for codec in CODECS {
        recorder.vary("compression_type", codec.name());
        let name = format!("repacked-{}", codec.name());
        let change = |config: &mut LogConfig| {
            config.compression = Some(codec);
            config.batch_bytes_max.0 = 2 * super::VALUES_BYTES_MAX;
        };
        let sink = Sink::library(context, engine, (&name, 1), change).await?;
        let mut latency = Latency::new();
        for _ in 0..context.parameters.number("codec_rounds") {
            context.check()?;
            let copy = batches::copy(&plain);
            let began = Instant::now();
            sink.append(0, copy).await?;
            latency.record(began.elapsed());
        }
        let stored = stored::batches(&sink.directory(0))?;
        let Some(first) = stored.first() else {
            return Err(Failure::Wrong("the batch is not in the file".to_owned()));
        };
        recorder.expect("repacked_codec", (first.codec()?, codec.name()), "compression.type");
        let is_same = first.records()? == plain.payload();
        recorder.expect("records_come_back", (is_same, true), "what was appended");
        recorder.figure("repacked_bytes", first.bytes(), PACKED);
        recorder.latency("append_repacked", &latency);
        let median = latency.total().value_at_quantile(0.5) / 1000;
        let mut cells = vec![codec.name().to_owned(), first.codec()?.to_owned()];
        cells.extend([first.bytes().to_string(), median.to_string()]);
        table.row(cells);
    }
    recorder.table(table);
    Ok(())
}

/// What the codecs look like.
pub fn pictures(context: &Context, recorder: &mut Recorder) {
    let by = || Some("codec".to_owned());
    recorder.picture(
        Picture::new(
            "codec-bytes",
            "Bytes of a stored batch by codec",
            "Lower is better: how much each codec saves of the batch without one, which depends on \
             the values (codec_values). Engines store what the producer packed, so their bars are \
             equal.",
            Kind::Bars { figures: names(&["packed_bytes"]), by: by() },
        )
        .only("through", shown_way(context)),
    );
    recorder.picture(Picture::new(
        "codec-rates",
        "Packing and unpacking by codec",
        "Higher is better: what a producer and a consumer pay for the bytes saved. Without a codec \
         only bytes are copied.",
        Kind::Bars { figures: names(&["pack_rate", "unpack_rate"]), by: by() },
    ));
    recorder.picture(Picture::new(
        "repacking",
        "Median append where compression.type has the log pack",
        "Lower is better: the broker pays for packing once more, on the thread that appends; the \
         first bar is an append that stores the batch as it came.",
        Kind::Bars {
            figures: names(&["append_repacked_p50"]),
            by: Some("compression_type".to_owned()),
        },
    ));
    recorder.note(
        "A log keeps a producer's codec and bytes; only another compression.type makes the broker \
         pack anew. Sizes of packed batches depend on the libraries that pack: Kafka's clients \
         get others for the same records.",
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_their_size_and_differ() {
        for kind in ["json", "random", "zeros"] {
            for size in [0, 1, 33, 1000] {
                assert_eq!(value(kind, size, 5).len(), size, "{kind}");
            }
        }
        assert_ne!(value("json", 1000, 5), value("json", 1000, 6));
        assert_ne!(value("random", 1000, 5), value("random", 1000, 6));
        let sizes = ["zeros", "json", "random"].map(|kind| {
            let values: Vec<_> = (0..10).map(|it| value(kind, 1000, it)).collect();
            packed(&values, Codec::Zstd, Timestamp(0)).as_bytes().len()
        });
        assert!(sizes[0] < sizes[1] && 2 * sizes[1] < sizes[2], "{sizes:?}");
    }
}
