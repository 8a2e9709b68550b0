//! Requests about groups.

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::{
    ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest, DeleteGroupsRequest,
    DescribeGroupsRequest, GroupId, HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest,
    ListGroupsRequest, OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequest,
    SyncGroupRequest, consumer_group_heartbeat_request, join_group_request, leave_group_request,
    offset_commit_request, offset_delete_request, offset_fetch_request, sync_group_request,
};
use kafka_protocol::protocol::{Encodable, StrBytes};
use uringlog::wire::control::Request;
use uringlog::wire::versions::api;
use uuid::Uuid;

use super::{Sample, id, name};

/// Version of OffsetCommit and OffsetFetch that names topics by id.
const IDS: i16 = 10;

/// A filled request of an API of groups.
pub fn sample(key: i16, version: i16) -> Option<(Sample, Option<Request>)> {
    macro_rules! control {
        ($variant:ident, $message:expr) => {{
            let message = $message;
            (Sample::new(key, version, &message), Some(Request::$variant(message)))
        }};
    }
    Some(match key {
        api::OFFSET_COMMIT => {
            let message = offset_commit(version);
            let mut named = message.clone();
            named.topics.iter_mut().for_each(|topic| topic.topic_id = Uuid::nil());
            (with_ids(key, version, &named), Some(Request::OffsetCommit(message)))
        }
        api::OFFSET_FETCH => {
            let message = offset_fetch(version);
            let mut named = message.clone();
            let topics =
                named.groups.iter_mut().flat_map(|group| group.topics.iter_mut().flatten());
            topics.for_each(|topic| topic.topic_id = Uuid::nil());
            (with_ids(key, version, &named), Some(Request::OffsetFetch(message)))
        }
        api::JOIN_GROUP => control!(JoinGroup, join(version)),
        api::HEARTBEAT => control!(Heartbeat, heartbeat(version)),
        api::LEAVE_GROUP => control!(LeaveGroup, leave(version)),
        api::SYNC_GROUP => control!(SyncGroup, sync(version)),
        api::DESCRIBE_GROUPS => control!(DescribeGroups, describe(version)),
        api::LIST_GROUPS => control!(ListGroups, list(version)),
        api::DELETE_GROUPS => {
            let request = DeleteGroupsRequest::default();
            control!(DeleteGroups, request.with_groups_names(vec![group(), group()]))
        }
        api::OFFSET_DELETE => control!(OffsetDelete, offset_delete()),
        api::CONSUMER_GROUP_HEARTBEAT => {
            control!(ConsumerGroupHeartbeat, consumer_heartbeat(version))
        }
        api::CONSUMER_GROUP_DESCRIBE => {
            let request = ConsumerGroupDescribeRequest::default();
            let request = request.with_include_authorized_operations(true);
            control!(ConsumerGroupDescribe, request.with_group_ids(vec![group(), group()]))
        }
        _ => return None,
    })
}

/// The version that the crate lacks has an id in the place of each topic's name.
fn with_ids<M: Encodable>(key: i16, version: i16, named: &M) -> Sample {
    if version < IDS {
        return Sample::new(key, version, named);
    }
    let mut body = BytesMut::new();
    named.encode(&mut body, IDS - 1).expect("the version before it");
    Sample { api_key: key, version, body: replace_names(&body) }
}

/// Topics without a name have an empty one: its length byte gives way to the id. No other text of
/// these requests is empty.
fn replace_names(body: &[u8]) -> Bytes {
    const EMPTY: u8 = 1;
    let mut replaced = BytesMut::new();
    for byte in body {
        if *byte == EMPTY {
            replaced.put_slice(id(9).as_bytes());
        } else {
            replaced.put_u8(*byte);
        }
    }
    replaced.freeze()
}

fn group() -> GroupId {
    GroupId(word("group"))
}

fn word(text: &'static str) -> StrBytes {
    StrBytes::from_static_str(text)
}

/// No byte of it is 1; see [`replace_names`].
fn offset_commit(version: i16) -> OffsetCommitRequest {
    let mut partition = offset_commit_request::OffsetCommitRequestPartition::default()
        .with_partition_index(3)
        .with_committed_offset(42)
        .with_committed_metadata(Some(word("text")));
    if version >= 6 {
        partition.committed_leader_epoch = 6;
    }
    let mut topic = offset_commit_request::OffsetCommitRequestTopic::default()
        .with_partitions(vec![partition.clone(), partition]);
    if version < IDS {
        topic.name = name("topic");
    } else {
        topic.topic_id = id(9);
    }
    let mut request = OffsetCommitRequest::default()
        .with_group_id(group())
        .with_generation_id_or_member_epoch(5)
        .with_member_id(word("member"))
        .with_topics(vec![topic.clone(), topic]);
    if (2..=4).contains(&version) {
        request.retention_time_ms = 9;
    }
    if version >= 7 {
        request.group_instance_id = Some(word("instance"));
    }
    request
}

/// No byte of it is 1 from version 10 on; see [`replace_names`].
fn offset_fetch(version: i16) -> OffsetFetchRequest {
    let request = OffsetFetchRequest::default();
    if version < 8 {
        let topic = offset_fetch_request::OffsetFetchRequestTopic::default()
            .with_name(name("topic"))
            .with_partition_indexes(vec![1, 2]);
        return request
            .with_group_id(group())
            .with_topics(Some(vec![topic.clone(), topic]))
            .with_require_stable(version >= 7);
    }
    let mut topic = offset_fetch_request::OffsetFetchRequestTopics::default()
        .with_partition_indexes(vec![3, 2]);
    if version < IDS {
        topic.name = name("topic");
    } else {
        topic.topic_id = id(9);
    }
    let mut wanted = offset_fetch_request::OffsetFetchRequestGroup::default()
        .with_group_id(group())
        .with_topics(Some(vec![topic.clone(), topic]));
    if version >= 9 {
        wanted.member_id = Some(word("member"));
        wanted.member_epoch = 4;
    }
    request.with_groups(vec![wanted.clone(), wanted]).with_require_stable(version < IDS)
}

fn join(version: i16) -> JoinGroupRequest {
    let protocol = |name| {
        join_group_request::JoinGroupRequestProtocol::default()
            .with_name(word(name))
            .with_metadata(Bytes::from_static(&[1, 2, 3]))
    };
    let mut request = JoinGroupRequest::default()
        .with_group_id(group())
        .with_session_timeout_ms(6_000)
        .with_member_id(word("member"))
        .with_protocol_type(word("consumer"))
        .with_protocols(vec![protocol("range"), protocol("sticky")]);
    request.rebalance_timeout_ms = if version >= 1 { 7_000 } else { -1 };
    if version >= 5 {
        request.group_instance_id = Some(word("instance"));
    }
    if version >= 8 {
        request.reason = Some(word("reason"));
    }
    request
}

fn heartbeat(version: i16) -> HeartbeatRequest {
    let request = HeartbeatRequest::default()
        .with_group_id(group())
        .with_generation_id(4)
        .with_member_id(word("member"));
    request.with_group_instance_id((version >= 3).then(|| word("instance")))
}

fn leave(version: i16) -> LeaveGroupRequest {
    let request = LeaveGroupRequest::default().with_group_id(group());
    if version < 3 {
        return request.with_member_id(word("member"));
    }
    let member = leave_group_request::MemberIdentity::default()
        .with_member_id(word("member"))
        .with_group_instance_id(Some(word("instance")))
        .with_reason((version >= 5).then(|| word("reason")));
    request.with_members(vec![member.clone(), member])
}

fn sync(version: i16) -> SyncGroupRequest {
    let assignment = sync_group_request::SyncGroupRequestAssignment::default()
        .with_member_id(word("member"))
        .with_assignment(Bytes::from_static(&[1, 2, 3]));
    SyncGroupRequest::default()
        .with_group_id(group())
        .with_generation_id(4)
        .with_member_id(word("member"))
        .with_group_instance_id((version >= 3).then(|| word("instance")))
        .with_protocol_type((version >= 5).then(|| word("consumer")))
        .with_protocol_name((version >= 5).then(|| word("range")))
        .with_assignments(vec![assignment.clone(), assignment])
}

fn describe(version: i16) -> DescribeGroupsRequest {
    DescribeGroupsRequest::default()
        .with_groups(vec![group(), group()])
        .with_include_authorized_operations(version >= 3)
}

fn list(version: i16) -> ListGroupsRequest {
    let mut request = ListGroupsRequest::default();
    if version >= 4 {
        request.states_filter = vec![word("Stable"), word("Empty")];
    }
    if version >= 5 {
        request.types_filter = vec![word("classic")];
    }
    request
}

fn offset_delete() -> OffsetDeleteRequest {
    let partition =
        offset_delete_request::OffsetDeleteRequestPartition::default().with_partition_index(3);
    let topic = offset_delete_request::OffsetDeleteRequestTopic::default()
        .with_name(name("topic"))
        .with_partitions(vec![partition.clone(), partition]);
    OffsetDeleteRequest::default().with_group_id(group()).with_topics(vec![topic.clone(), topic])
}

fn consumer_heartbeat(version: i16) -> ConsumerGroupHeartbeatRequest {
    let owned = consumer_group_heartbeat_request::TopicPartitions::default()
        .with_topic_id(id(7))
        .with_partitions(vec![1, 2]);
    ConsumerGroupHeartbeatRequest::default()
        .with_group_id(group())
        .with_member_id(word("member"))
        .with_member_epoch(4)
        .with_instance_id(Some(word("instance")))
        .with_rack_id(Some(word("rack")))
        .with_rebalance_timeout_ms(7_000)
        .with_subscribed_topic_names(Some(vec![name("topic"), name("other")]))
        .with_subscribed_topic_regex((version >= 1).then(|| word("to.*")))
        .with_server_assignor(Some(word("range")))
        .with_topic_partitions(Some(vec![owned.clone(), owned]))
}
