//! Under a real clock: a log that gets records all the time rolls; one that gets none never does,
//! however old its segment is, until the next record comes.

use std::time::{Duration, Instant};

use uringlog::now;

use crate::engines::reach::{NO_LIMIT, Reach};
use crate::engines::{batches, files};
use crate::experiments::Failure;
use crate::experiments::measure::{f64_of, u64_of};
use crate::record::figure::Better;
use crate::record::picture::names;
use crate::record::{Kind, Picture, Recorder, Table, Unit, unit};
use crate::run::Context;

const RULE: &str = "the rule: only an append rolls";
const MS: Unit = Unit { name: "ms", better: Better::None };
const SEGMENTS: Unit = Unit { name: "segments", better: Better::None };
/// Records of the busy log in each segment.ms.
const RECORDS_A_SPAN: u32 = 10;
const BUSY: u32 = 0;
const IDLE: u32 = 1;

/// Both logs, side by side.
///
/// # Errors
/// Whatever is refused.
pub async fn run(
    context: &Context,
    reach: &Reach<'_>,
    recorder: &mut Recorder,
) -> Result<(), Failure> {
    let segment = Duration::from_millis(context.parameters.number("idle_segment_ms"));
    let whole = segment * u32::try_from(context.parameters.number("idle_spans")).expect("few");
    let settings =
        [("segment.ms", context.parameters.number("idle_segment_ms")), ("retention.ms", NO_LIMIT)];
    let sink = reach.topic(("busy-and-idle", 2), &settings).await?;
    let count = |partition: u32| -> Result<u64, Failure> {
        Ok(u64_of(files::segments(&sink.directory(partition))?.len()))
    };
    let is_shown = reach.is_measured(context);
    let began = Instant::now();
    sink.append(IDLE, batches::uniform(&[b"the only one"], now())).await?;
    let spans = context.parameters.number("idle_spans");
    let total = spans * u64::from(RECORDS_A_SPAN);
    let progress = context.progress(total, "a busy and an idle log");
    let (mut before, mut records) = (1, 0);
    // However slow the machine is, the busy log gets records over more than one segment.ms.
    while began.elapsed() < whole || records < 2 * RECORDS_A_SPAN {
        context.check()?;
        sink.append(BUSY, batches::uniform(&[b"one of many"], now())).await?;
        let (busy, idle) = (count(BUSY)?, count(IDLE)?);
        if is_shown {
            recorder.sample("segments, busy log", f64_of(busy), SEGMENTS);
            recorder.sample("segments, idle log", f64_of(idle), SEGMENTS);
            if before < busy {
                recorder.event_at("roll", recorder.elapsed(), "");
            }
        }
        before = busy;
        records += 1;
        progress.advance(1);
        tokio::time::sleep(segment / RECORDS_A_SPAN).await;
    }
    let (busy, idle) = (count(BUSY)?, count(IDLE)?);
    let age = u64::try_from(began.elapsed().as_millis()).expect("a short time");
    sink.append(IDLE, batches::uniform(&[b"the next one"], now())).await?;
    let after = count(IDLE)?;
    if is_shown {
        recorder.sample("segments, idle log", f64_of(after), SEGMENTS);
        recorder.event_at("next record of the idle log", recorder.elapsed(), "");
    }
    record((busy, idle, after, age), recorder);
    Ok(())
}

fn record((busy, idle, after, age): (u64, u64, u64, u64), recorder: &mut Recorder) {
    recorder.expect("idle_segments", (idle, 1), RULE);
    recorder.expect("idle_segments_after_append", (after, 2), RULE);
    recorder.expect("the_busy_log_rolled", (1 < busy, true), RULE);
    recorder.figure("busy_segments", busy, unit::COUNT.told());
    recorder.figure("idle_segments", idle, unit::COUNT);
    recorder.figure("idle_segments_after_append", after, unit::COUNT);
    recorder.figure("idle_record_age_ms", age, MS);
    let mut table = Table::new("A busy and an idle log", &["log", "when", "segments"]);
    for (log, when, segments) in [
        ("busy", "at the end".to_owned(), busy),
        ("idle", format!("its record is {age} ms old"), idle),
        ("idle", "after one more record".to_owned(), after),
    ] {
        table.row(vec![log.to_owned(), when, segments.to_string()]);
    }
    recorder.table(table);
    recorder.picture(Picture::new(
        "busy-and-idle",
        "Segments of a busy log and of an idle one",
        "The busy log's line climbs a step about every segment.ms, at a mark each; the idle one's \
         stays at one segment, however long that is, and takes its step when its next record \
         comes.",
        Kind::Timeline {
            series: names(&["segments, busy log", "segments, idle log"]),
            events: names(&["roll", "next record of the idle log"]),
        },
    ));
}
