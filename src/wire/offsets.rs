//! OffsetCommit 10 and OffsetFetch 10, which name topics by id: the requests, which
//! `kafka-protocol` reads up to version 9. Their answers it can write.
//!
//! Bytes have been walked by the guard before, so that every length is right.

use bytes::BytesMut;
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopics,
};
use kafka_protocol::messages::{GroupId, OffsetCommitRequest, OffsetFetchRequest};
use uuid::Uuid;

use super::error::WireError;
use super::read::Reader;

/// The first version with topic ids, of both.
pub const IDS_FROM: i16 = 10;

/// Least bytes of an element of the arrays here.
const ELEMENT_BYTES_MIN: usize = 1;

type Body = Reader<BytesMut>;

/// Reads an OffsetCommit of version 10.
///
/// # Errors
/// [`WireError`].
pub fn decode_commit(body: BytesMut) -> Result<OffsetCommitRequest, WireError> {
    let mut reader = Reader::new(body, true);
    let request = OffsetCommitRequest::default()
        .with_group_id(GroupId(reader.text("group")?))
        .with_generation_id_or_member_epoch(reader.i32("generation")?)
        .with_member_id(reader.text("member")?)
        .with_group_instance_id(reader.nullable_text("instance")?)
        .with_topics(list(&mut reader, "topics", commit_topic)?);
    end(reader)?;
    Ok(request)
}

fn commit_topic(reader: &mut Body) -> Result<OffsetCommitRequestTopic, WireError> {
    let topic = OffsetCommitRequestTopic::default()
        .with_topic_id(topic_id(reader)?)
        .with_partitions(list(reader, "partitions", commit_partition)?);
    reader.skip_tags("topic")?;
    Ok(topic)
}

fn commit_partition(reader: &mut Body) -> Result<OffsetCommitRequestPartition, WireError> {
    let partition = OffsetCommitRequestPartition::default()
        .with_partition_index(reader.i32("partition index")?)
        .with_committed_offset(reader.i64("committed offset")?)
        .with_committed_leader_epoch(reader.i32("committed leader epoch")?)
        .with_committed_metadata(reader.nullable_text("committed metadata")?);
    reader.skip_tags("partition")?;
    Ok(partition)
}

/// Reads an OffsetFetch of version 10.
///
/// # Errors
/// [`WireError`].
pub fn decode_fetch(body: BytesMut) -> Result<OffsetFetchRequest, WireError> {
    let mut reader = Reader::new(body, true);
    let request = OffsetFetchRequest::default()
        .with_groups(list(&mut reader, "groups", fetch_group)?)
        .with_require_stable(reader.i8("require stable")? != 0);
    end(reader)?;
    Ok(request)
}

fn fetch_group(reader: &mut Body) -> Result<OffsetFetchRequestGroup, WireError> {
    let group = OffsetFetchRequestGroup::default()
        .with_group_id(GroupId(reader.text("group")?))
        .with_member_id(reader.nullable_text("member")?)
        .with_member_epoch(reader.i32("member epoch")?)
        .with_topics(nullable_list(reader, "topics", fetch_topic)?);
    reader.skip_tags("group")?;
    Ok(group)
}

fn fetch_topic(reader: &mut Body) -> Result<OffsetFetchRequestTopics, WireError> {
    let partition = |reader: &mut Body| reader.i32("partition index");
    let topic = OffsetFetchRequestTopics::default()
        .with_topic_id(topic_id(reader)?)
        .with_partition_indexes(list(reader, "partition indexes", partition)?);
    reader.skip_tags("topic")?;
    Ok(topic)
}

fn topic_id(reader: &mut Body) -> Result<Uuid, WireError> {
    Ok(Uuid::from_bytes(reader.topic_id("topic id")?.0))
}

fn list<T>(
    reader: &mut Body,
    what: &'static str,
    element: impl FnMut(&mut Body) -> Result<T, WireError>,
) -> Result<Vec<T>, WireError> {
    let null = WireError::Length { what, length: -1 };
    nullable_list(reader, what, element)?.ok_or(null)
}

fn nullable_list<T>(
    reader: &mut Body,
    what: &'static str,
    mut element: impl FnMut(&mut Body) -> Result<T, WireError>,
) -> Result<Option<Vec<T>>, WireError> {
    let Some(count) = reader.array_length(ELEMENT_BYTES_MIN, what)? else { return Ok(None) };
    (0..count).map(|_| element(reader)).collect::<Result<_, _>>().map(Some)
}

fn end(mut reader: Body) -> Result<(), WireError> {
    reader.skip_tags("request")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What Kafka's own client sends.
    #[test]
    fn a_commit_by_topic_id_is_read() {
        let mut body = vec![2, b'g', 0, 0, 0, 3, 2, b'm', 0, 2];
        body.extend_from_slice(&[7; 16]);
        body.extend_from_slice(&[2, 0, 0, 0, 1]);
        body.extend_from_slice(&42_i64.to_be_bytes());
        body.extend_from_slice(&[0, 0, 0, 5, 1, 0, 0, 0]);
        super::super::guard::check_request(8, IDS_FROM, &body).expect("it fits its schema");
        let request = decode_commit(BytesMut::from(&body[..])).expect("readable");
        assert_eq!(request.group_id.0.as_str(), "g");
        assert_eq!(request.generation_id_or_member_epoch, 3);
        let topic = &request.topics[0];
        assert_eq!(topic.topic_id, Uuid::from_bytes([7; 16]));
        assert_eq!(topic.partitions[0].committed_offset, 42);
        assert_eq!(topic.partitions[0].committed_leader_epoch, 5);
        for cut in 0..body.len() {
            super::super::guard::check_request(8, IDS_FROM, &body[..cut]).expect_err("cut");
            decode_commit(BytesMut::from(&body[..cut])).expect_err("cut");
        }
    }

    #[test]
    fn a_fetch_by_topic_id_is_read() {
        let mut body = vec![2, 2, b'g', 0, 0xff, 0xff, 0xff, 0xff, 2];
        body.extend_from_slice(&[7; 16]);
        body.extend_from_slice(&[2, 0, 0, 0, 1, 0, 0, 1, 0]);
        super::super::guard::check_request(9, IDS_FROM, &body).expect("it fits its schema");
        let request = decode_fetch(BytesMut::from(&body[..])).expect("readable");
        assert!(request.require_stable);
        let group = &request.groups[0];
        assert_eq!((group.member_id.as_ref(), group.member_epoch), (None, -1));
        let topics = group.topics.as_ref().expect("not all");
        assert_eq!(topics[0].partition_indexes, [1]);
        for cut in 0..body.len() {
            super::super::guard::check_request(9, IDS_FROM, &body[..cut]).expect_err("cut");
            decode_fetch(BytesMut::from(&body[..cut])).expect_err("cut");
        }
        let all = [2, 2, b'g', 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];
        let request = decode_fetch(BytesMut::from(&all[..])).expect("readable");
        assert_eq!(request.groups[0].topics, None);
    }
}
