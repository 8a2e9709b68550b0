//! Answers about groups, fitted to every version that is served.

use kafka_protocol::messages::{
    ConsumerGroupDescribeResponse, ConsumerGroupHeartbeatResponse, DeleteGroupsResponse,
    DescribeGroupsResponse, HeartbeatResponse, JoinGroupResponse, LeaveGroupResponse,
    ListGroupsResponse, OffsetCommitResponse, OffsetDeleteResponse, OffsetFetchResponse,
    SyncGroupResponse,
};

use super::StrBytes;
use super::control::Answer;
use super::versions::api;

impl Answer for OffsetCommitResponse {
    const API: i16 = api::OFFSET_COMMIT;

    fn fit(&mut self, version: i16) {
        for topic in &mut self.topics {
            if version < 10 {
                topic.topic_id = uuid::Uuid::nil();
            } else {
                topic.name = Default::default();
            }
        }
    }
}

impl Answer for OffsetFetchResponse {
    const API: i16 = api::OFFSET_FETCH;

    fn fit(&mut self, version: i16) {
        if version < 2 {
            self.error_code = 0;
        }
        if version < 5 {
            let partitions = self.topics.iter_mut().flat_map(|topic| &mut topic.partitions);
            partitions.for_each(|partition| partition.committed_leader_epoch = -1);
        }
        for topic in self.groups.iter_mut().flat_map(|group| &mut group.topics) {
            if version < 10 {
                topic.topic_id = uuid::Uuid::nil();
            } else {
                topic.name = Default::default();
            }
        }
    }
}

impl Answer for JoinGroupResponse {
    const API: i16 = api::JOIN_GROUP;

    /// Before version 7 there is always a protocol, be it without a name.
    fn fit(&mut self, version: i16) {
        if version < 7 {
            self.protocol_type = None;
            self.protocol_name.get_or_insert_with(StrBytes::default);
        }
        if version < 9 {
            self.skip_assignment = false;
        }
        if version < 5 {
            self.members.iter_mut().for_each(|member| member.group_instance_id = None);
        }
    }
}

impl Answer for HeartbeatResponse {
    const API: i16 = api::HEARTBEAT;
}

impl Answer for LeaveGroupResponse {
    const API: i16 = api::LEAVE_GROUP;

    /// Before version 3 one member leaves, and its error is the answer's.
    fn fit(&mut self, version: i16) {
        if version >= 3 {
            return;
        }
        if let Some(only) = self.members.drain(..).next()
            && self.error_code == 0
        {
            self.error_code = only.error_code;
        }
    }
}

impl Answer for SyncGroupResponse {
    const API: i16 = api::SYNC_GROUP;

    fn fit(&mut self, version: i16) {
        if version < 5 {
            self.protocol_type = None;
            self.protocol_name = None;
        }
    }
}

impl Answer for DescribeGroupsResponse {
    const API: i16 = api::DESCRIBE_GROUPS;

    fn fit(&mut self, version: i16) {
        for group in &mut self.groups {
            if version < 6 {
                group.error_message = None;
            }
            if version < 4 {
                group.members.iter_mut().for_each(|member| member.group_instance_id = None);
            }
            if version < 3 {
                group.authorized_operations = super::control::NO_AUTHORIZED_OPERATIONS;
            }
        }
    }
}

impl Answer for ListGroupsResponse {
    const API: i16 = api::LIST_GROUPS;

    fn fit(&mut self, version: i16) {
        for group in &mut self.groups {
            if version < 4 {
                group.group_state = StrBytes::default();
            }
            if version < 5 {
                group.group_type = StrBytes::default();
            }
        }
    }
}

impl Answer for DeleteGroupsResponse {
    const API: i16 = api::DELETE_GROUPS;
}

impl Answer for OffsetDeleteResponse {
    const API: i16 = api::OFFSET_DELETE;
}

impl Answer for ConsumerGroupHeartbeatResponse {
    const API: i16 = api::CONSUMER_GROUP_HEARTBEAT;
}

impl Answer for ConsumerGroupDescribeResponse {
    const API: i16 = api::CONSUMER_GROUP_DESCRIBE;

    fn fit(&mut self, version: i16) {
        if version < 1 {
            // What the field is when nobody says.
            let members = self.groups.iter_mut().flat_map(|group| &mut group.members);
            members.for_each(|member| member.member_type = -1);
        }
    }
}
