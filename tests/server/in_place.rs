//! A batch is not copied between the socket's buffer and the file: the write's bytes are those of
//! the frame.

use std::sync::Arc;

use bytes::{BufMut, BytesMut};
use uringlog::disk::plain::PlainDisk;
use uringlog::disk::{Disk, Step};
use uringlog::format::batch::RecordBatch;
use uringlog::log::{Durability, LogConfig, LogSpec, PartitionLog};
use uringlog::units::{LeaderEpoch, TopicId};
use uringlog::wire::frame;
use uringlog::wire::produce::ProduceFrame;

use crate::support::batch;
use crate::support::client::{PRODUCE, encode, produce_request};

const FILES_MAX: usize = 16;

/// A new log in an empty directory.
fn log(directory: &std::path::Path) -> PartitionLog {
    let spec = LogSpec {
        number: 0,
        directory: Arc::from(directory.join("topic-0")),
        topic_id: TopicId([7; 16]),
        config: LogConfig::defaults(Durability::Device),
        leader_epoch: LeaderEpoch(3),
        jitter_seed: 0,
    };
    let mut disk = PlainDisk::new(FILES_MAX, None);
    let (mut log, plan) = PartitionLog::create(spec, batch::now());
    let finished = disk.run(plan);
    assert_eq!(finished.result, Ok(()));
    log.complete(finished, batch::now());
    log
}

/// What was received for one request: the frame without its size, in one buffer.
fn received(values: &[Vec<u8>]) -> BytesMut {
    let request = produce_request("topic", 0, batch::of(values).into(), -1);
    let whole = encode(&request, PRODUCE, 1);
    let mut buffer = BytesMut::with_capacity(whole.len());
    buffer.put_slice(&whole[4..]);
    buffer
}

#[test]
fn the_bytes_of_the_write_lie_in_the_receive_buffers() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut log = log(directory.path());
    let mut memory = Vec::new();
    let mut sizes = Vec::new();
    for size in [10, 1_000, 100_000] {
        let buffer = received(&[vec![1; size], vec![2; size]]);
        memory.push(buffer.as_ptr_range());
        let (header, body) = frame::split(buffer).expect("a request");
        let mut produce = ProduceFrame::walk(body, header.version).expect("a Produce request");
        let bytes = produce.partitions.remove(0).batch;
        sizes.push(bytes.len());
        let batch = RecordBatch::decode(bytes).expect("a batch");
        log.append(batch, batch::now()).expect("it is accepted");
    }
    let plan = log.plan(batch::now()).expect("three batches are staged");
    let parts = plan.steps.iter().find_map(|step| match step {
        Step::Write { parts, .. } if parts.len() == sizes.len() => Some(parts),
        _ => None,
    });
    let parts = parts.expect("one write of all three batches");
    for ((part, memory), size) in parts.iter().zip(memory).zip(sizes) {
        assert_eq!(part.len(), size);
        let own = part.as_ptr_range();
        assert!(memory.start <= own.start && own.end <= memory.end, "it was copied");
    }
}
