use super::*;
use crate::units::{BrokerId, ByteCount, LeaderEpoch, TopicId};

fn request(id: i32, epoch: i32, partitions: &[(&str, i32)]) -> FetchRequest {
    let mut request = FetchRequest {
        replica: BrokerId(-1),
        replica_epoch: -1,
        wait_max_ms: 0,
        bytes_min: 1,
        bytes_max: 1_000,
        isolation_level: 0,
        session_id: id,
        session_epoch: epoch,
        topics: TopicGroups::new(),
        partitions: SmallVec::new(),
        forgotten: Vec::new(),
        rack: StrBytes::new(),
        cluster_id: None,
    };
    for (topic, index) in partitions {
        request.topics.push(TopicGroup { key: key(topic), partitions: 1 });
        request.partitions.push(FetchPartition {
            index: *index,
            leader_epoch: LeaderEpoch::NONE,
            offset: 0,
            last_fetched_epoch: LeaderEpoch::NONE,
            log_start: -1,
            bytes_max: 100,
        });
    }
    request
}

fn key(topic: &str) -> TopicKey {
    TopicKey::Name(StrBytes::from_string(topic.to_owned()))
}

fn told(index: i32, high_watermark: i64, bytes: u64) -> PartitionAnswer {
    let records = if bytes == 0 { Records::Empty } else { Records::Slice(ByteCount(bytes)) };
    PartitionAnswer {
        error: ErrorCode::None,
        high_watermark,
        last_stable: high_watermark,
        log_start: 0,
        records,
        ..PartitionAnswer::refused(index, ErrorCode::None)
    }
}

/// One request with its answer, in which every partition has this high watermark and these bytes;
/// the outcome is the session and what was named.
fn exchange(
    sessions: &mut Sessions,
    (mut request, new_id): (FetchRequest, i32),
    (high_watermark, bytes): (i64, u64),
    now_ms: u64,
) -> Result<(i32, Vec<i32>), ErrorCode> {
    let context = sessions.begin(&mut request, false, now_ms)?;
    let answers: Vec<PartitionAnswer> =
        request.partitions.iter().map(|it| told(it.index, high_watermark, bytes)).collect();
    let chosen = sessions.select(context, &request, &answers)?;
    let id = sessions.commit(context, (&request, &answers), (new_id, false, now_ms));
    let is_chosen = |at: usize| chosen.as_ref().is_none_or(|chosen| chosen[at]);
    let named = answers.iter().enumerate().filter(|(at, _)| is_chosen(*at));
    Ok((id, named.map(|(_, answer)| answer.index).collect()))
}

#[test]
fn an_incremental_answer_names_what_is_new() {
    let mut sessions = Sessions::new(10);
    let full = request(0, 0, &[("t", 0), ("t", 1)]);
    assert_eq!(exchange(&mut sessions, (full, 7), (5, 0), 0), Ok((7, vec![0, 1])));
    let again = |epoch| (request(7, epoch, &[]), 0);
    assert_eq!(exchange(&mut sessions, again(1), (5, 0), 0), Ok((7, vec![])));
    assert_eq!(exchange(&mut sessions, again(2), (6, 0), 0), Ok((7, vec![0, 1])));
    assert_eq!(exchange(&mut sessions, again(3), (6, 10), 0), Ok((7, vec![0, 1])));
    assert_eq!(exchange(&mut sessions, again(4), (6, 0), 0), Ok((7, vec![])));
}

#[test]
fn partitions_come_and_go_with_a_request() {
    let mut sessions = Sessions::new(10);
    exchange(&mut sessions, (request(0, 0, &[("t", 0)]), 7), (5, 0), 0).expect("a session");
    let mut change = request(7, 1, &[("u", 4)]);
    change
        .forgotten
        .push(crate::wire::fetch::ForgottenTopic { key: key("t"), partitions: vec![0] });
    assert_eq!(exchange(&mut sessions, (change, 0), (5, 0), 0), Ok((7, vec![4])));
    let mut last = request(7, 2, &[]);
    last.forgotten.push(crate::wire::fetch::ForgottenTopic { key: key("u"), partitions: vec![4] });
    let outcome = exchange(&mut sessions, (last, 0), (5, 0), 0);
    assert_eq!(outcome, Ok((NONE, vec![])), "an empty session ends");
    assert_eq!((sessions.count(), sessions.partitions), (0, 0));
}

#[test]
fn wrong_sessions_and_epochs_are_refused() {
    let mut sessions = Sessions::new(10);
    exchange(&mut sessions, (request(0, 0, &[("t", 0)]), 7), (5, 0), 0).expect("a session");
    let mut outcome = |id, epoch| exchange(&mut sessions, (request(id, epoch, &[]), 0), (5, 0), 0);
    assert_eq!(outcome(8, 1), Err(ErrorCode::FetchSessionIdNotFound));
    assert_eq!(outcome(7, 2), Err(ErrorCode::InvalidFetchSessionEpoch));
    assert_eq!(outcome(7, 1), Ok((7, vec![])));
    assert_eq!(outcome(7, 1), Err(ErrorCode::InvalidFetchSessionEpoch), "it has been used");
    let by_id = sessions.begin(&mut request(7, 2, &[]), true, 0);
    assert_eq!(by_id, Err(ErrorCode::FetchSessionTopicIdError));
    assert_eq!(outcome_of_end(&mut sessions), Ok((NONE, vec![0])));
    assert_eq!(sessions.count(), 0);
}

fn outcome_of_end(sessions: &mut Sessions) -> Result<(i32, Vec<i32>), ErrorCode> {
    exchange(sessions, (request(7, -1, &[("t", 0)]), 9), (5, 0), 0)
}

#[test]
fn a_request_that_is_overtaken_gets_no_answer_of_the_session() {
    let mut sessions = Sessions::new(10);
    exchange(&mut sessions, (request(0, 0, &[("t", 0)]), 7), (5, 0), 0).expect("a session");
    let mut slow = request(7, 1, &[]);
    let context = sessions.begin(&mut slow, false, 0).expect("the next epoch");
    exchange(&mut sessions, (request(7, 2, &[]), 0), (5, 0), 0).expect("the one after");
    let outcome = sessions.select(context, &slow, &[told(0, 6, 0)]);
    assert_eq!(outcome, Err(ErrorCode::InvalidFetchSessionEpoch));
}

#[test]
fn a_partition_that_gave_records_goes_to_the_end() {
    let mut sessions = Sessions::new(10);
    let full = request(0, 0, &[("t", 0), ("t", 1), ("u", 0)]);
    exchange(&mut sessions, (full, 7), (5, 0), 0).expect("a session");
    let mut next = request(7, 1, &[]);
    let context = sessions.begin(&mut next, false, 0).expect("the next epoch");
    let answers = [told(0, 5, 10), told(1, 5, 0), told(0, 5, 0)];
    let chosen = sessions.select(context, &next, &answers).expect("nobody overtook it");
    assert_eq!(chosen, Some(vec![true, false, false]));
    sessions.commit(context, (&next, &answers), (0, false, 0));
    let mut after = request(7, 2, &[]);
    sessions.begin(&mut after, false, 0).expect("the next epoch");
    let groups = after.topics.iter();
    let keys = groups.flat_map(|group| std::iter::repeat_n(&group.key, group.partitions));
    let order: Vec<_> =
        keys.zip(&after.partitions).map(|(key, it)| (key.clone(), it.index)).collect();
    assert_eq!(order, [(key("t"), 1), (key("u"), 0), (key("t"), 0)]);
}

#[test]
fn room_is_made_by_stale_sessions_and_by_old_smaller_ones() {
    let mut sessions = Sessions::new(2);
    let mut full = |new_id, count: i32, now_ms| {
        let partitions: Vec<_> = (0..count).map(|index| ("t", index)).collect();
        let outcome = exchange(&mut sessions, (request(0, 0, &partitions), new_id), (5, 0), now_ms);
        (outcome.expect("a full request").0, sessions.count())
    };
    assert_eq!(full(1, 3, 0), (1, 1));
    assert_eq!(full(2, 5, 100_000), (2, 2));
    assert_eq!(full(3, 9, 110_000), (NONE, 2), "both are in use");
    assert_eq!(full(3, 1, 120_001), (3, 2), "the first one is stale");
    assert_eq!(sessions.partitions, 6);
    // The second one is old, but used; it goes for a larger one only.
    exchange(&mut sessions, (request(2, 1, &[]), 0), (5, 0), 220_000).expect("the next epoch");
    exchange(&mut sessions, (request(3, 1, &[]), 0), (5, 0), 220_000).expect("the next epoch");
    let mut full = |new_id, count: i32| {
        let partitions: Vec<_> = (0..count).map(|index| ("t", index)).collect();
        let full = request(0, 0, &partitions);
        exchange(&mut sessions, (full, new_id), (5, 0), 230_000).expect("a full request").0
    };
    assert_eq!(full(4, 4), NONE);
    assert_eq!(full(5, 6), 5);
}

#[test]
fn without_room_there_are_no_sessions() {
    let mut sessions = Sessions::new(0);
    let full = request(0, 0, &[("t", 0)]);
    assert_eq!(exchange(&mut sessions, (full, 7), (5, 0), 0), Ok((NONE, vec![0])));
    let mut sessions = Sessions::new(1);
    assert_eq!(exchange(&mut sessions, (request(0, 0, &[]), 7), (5, 0), 0), Ok((NONE, vec![])));
}

#[test]
fn topics_by_id_have_sessions_too() {
    let mut sessions = Sessions::new(1);
    let mut full = request(0, 0, &[("t", 0)]);
    full.topics[0].key = TopicKey::Id(TopicId([7; 16]));
    let context = sessions.begin(&mut full, true, 0).expect("a full request");
    let id = sessions.commit(context, (&full, &[told(0, 5, 0)]), (9, true, 0));
    assert_eq!(id, 9);
    let mut next = request(9, 1, &[]);
    sessions.begin(&mut next, true, 0).expect("the next epoch");
    assert_eq!(next.topics[0].key, TopicKey::Id(TopicId([7; 16])));
}

#[test]
fn epochs_go_round_without_becoming_a_full_requests() {
    assert_eq!(next(1), 2);
    assert_eq!(next(i32::MAX), 1);
}
