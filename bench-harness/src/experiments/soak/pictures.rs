//! What the report draws.

use super::findings::{DELETED, DESCRIPTORS, KEPT, MAX, MEMORY, P50, P99, THREADS};
use crate::record::picture::names;
use crate::record::{Kind, Picture, Recorder};

/// Declares all pictures. First of all, so that a run that breaks off has them, too.
pub fn declare(recorder: &mut Recorder) {
    let timeline = |series: &[&str], events: &[&str]| Kind::Timeline {
        series: names(series),
        events: names(events),
    };
    recorder.picture(Picture::new(
        "memory",
        "Memory of the server over the soak",
        "Resident memory, page cache left out. It should rise to a level and stay there; a line \
         that goes on rising is a leak, or a heap that has not met its limit yet.",
        timeline(&[MEMORY], &[]),
    ));
    recorder.picture(Picture::new(
        "descriptors",
        "Descriptors and threads of the server over the soak",
        "Open files come and go with segments, in a band; a band that climbs says that deleted \
         segments are still held open.",
        timeline(&[DESCRIPTORS, THREADS], &[]),
    ));
    recorder.picture(Picture::new(
        "latency-drift",
        "Latency of produce-to-consume in each slice of time",
        "Level lines mean no drift: the last minutes are as the first ones. Single peaks of the \
         maximum are stalls; a median that climbs is work that grows with what was written.",
        timeline(&[P50, P99, MAX], &[]),
    ));
    recorder.picture(Picture::new(
        "logs",
        "Logs on disk, with the passes of retention that deleted something",
        "A saw: logs grow as they are written, and each pass (the first ones are marked) cuts \
         them back to retention.bytes and less than a segment for each partition. Its upper edge \
         is level when deleting keeps up.",
        timeline(&[KEPT], &[DELETED]),
    ));
    recorder.picture(Picture::new(
        "latency-heat",
        "Latency of produce-to-consume over the soak",
        "All latencies, the frequent ones hot. The band should be as high and as wide on the \
         right as on the left.",
        Kind::HeatMap { latency: "produce_to_consume_latency".to_owned() },
    ));
    recorder.picture(Picture::new(
        "percentiles",
        "Latency by percentile over the whole soak",
        "To the consumer, and to the acknowledgement, which comes first or last: what a read \
         waits for is not what an acknowledgement promises.",
        Kind::Percentiles {
            latencies: names(&["produce_to_consume_latency", "produce_to_consume_acknowledged"]),
        },
    ));
}
