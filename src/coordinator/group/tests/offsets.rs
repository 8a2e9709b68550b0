//! Committed offsets.

use super::world::{GROUP, Logged, World, identity, marker, new_offset};
use crate::coordinator::group::answer::Answer;
use crate::coordinator::group::request::{
    Commit, DeleteOffsets, Fetch, NewOffset, Request, TransactionalCommit, WantedOffset,
};
use crate::coordinator::group::{GroupError, GroupSettings};
use crate::coordinator::{Coordinator, Record};
use crate::format::batch::Codec;
use crate::format::record::{BatchBuilder, NewRecord};
use crate::units::{ProducerEpoch, ProducerId, Timestamp, TopicId, byte_count};

const PRODUCER: ProducerId = ProducerId(7);

fn commit_transactional(world: &mut World, offset: i64) -> Result<(), GroupError> {
    let commit = TransactionalCommit {
        identity: identity("", -1),
        producer_id: PRODUCER,
        producer_epoch: ProducerEpoch(0),
        offsets: vec![new_offset("flights", 0, offset)],
    };
    match world.ask(Request::CommitTransactional(commit)) {
        Answer::Commit(outcomes) => outcomes.and_then(|it| it[0]),
        other => panic!("{other:?} is no answer to a commit"),
    }
}

#[test]
fn a_group_without_members_takes_offsets_from_anybody() {
    let mut world = World::new();
    assert_eq!(world.fetch(false), Ok(None));
    assert_eq!(world.commit(identity("", -1), 5), Ok(()));
    assert_eq!(world.fetch(false), Ok(Some(5)));
    world.restart();
    assert_eq!(world.fetch(false), Ok(Some(5)));
}

#[test]
fn members_commit_with_their_generation_and_strangers_do_not() {
    let mut world = World::new();
    assert_eq!(world.commit(identity("m", 3), 5), Err(GroupError::GroupIdNotFound));
    let older = Commit {
        identity: identity("m", 3),
        knows_group_errors: false,
        retention_ms: -1,
        offsets: Vec::new(),
    };
    let answer = world.ask(Request::Commit(older));
    assert_eq!(answer, Answer::Commit(Err(GroupError::IllegalGeneration)));
    let joined = world.stable(1).remove(0);
    let generation = joined.generation;
    assert_eq!(world.commit(identity(&joined.member, generation), 5), Ok(()));
    let old = world.commit(identity(&joined.member, generation - 1), 6);
    assert_eq!(old, Err(GroupError::IllegalGeneration));
    let stranger = world.commit(identity("stranger", generation), 6);
    assert_eq!(stranger, Err(GroupError::UnknownMemberId));
    assert_eq!(world.commit(identity("", -1), 6), Err(GroupError::UnknownMemberId));
    assert_eq!(world.fetch(false), Ok(Some(5)));
}

#[test]
fn a_commit_keeps_the_session_alive_and_waits_for_the_assignment() {
    let mut world = World::new();
    let joined = world.stable(1).remove(0);
    for offset in 0..4 {
        world.wait(9_000);
        let committed = world.commit(identity(&joined.member, joined.generation), offset);
        assert_eq!(committed, Ok(()));
    }
    let ticket = world.join(&joined.member);
    let again = world.joined(ticket);
    let refused = world.commit(identity(&again.member, again.generation), 9);
    assert_eq!(refused, Err(GroupError::RebalanceInProgress));
}

#[test]
fn metadata_and_commits_have_limits() {
    let settings = GroupSettings { offsets_max: 2, ..GroupSettings::for_tests() };
    let mut world = World::with(settings);
    let commit = |offsets| {
        Request::Commit(Commit {
            identity: identity("", -1),
            knows_group_errors: true,
            retention_ms: -1,
            offsets,
        })
    };
    let mut long = new_offset("flights", 0, 1);
    long.metadata = Some("x".repeat(4097));
    let outcomes = world.ask(commit(vec![long, new_offset("flights", 1, 2)]));
    let expected = vec![Err(GroupError::OffsetMetadataTooLarge), Ok(())];
    assert_eq!(outcomes, Answer::Commit(Ok(expected)));
    let more = vec![new_offset("flights", 2, 1), new_offset("flights", 3, 1)];
    let refused = Answer::Commit(Err(GroupError::InvalidCommitOffsetSize));
    assert_eq!(world.ask(commit(more)), refused);
}

/// Kafka 4.3 writes a commit as one batch, and refuses it as a whole when the log would.
#[test]
fn a_commit_is_as_large_as_a_batch_may_be_and_no_larger() {
    let offsets = (0..300).map(|partition| {
        let offset = new_offset("flights", partition, 1);
        NewOffset {
            metadata: Some("m".repeat(usize::try_from(partition).expect("small"))),
            ..offset
        }
    });
    let commit = Request::Commit(Commit {
        identity: identity("", -1),
        knows_group_errors: true,
        retention_ms: -1,
        offsets: offsets.collect(),
    });
    let settings = GroupSettings { offsets_max: 1_000, ..GroupSettings::for_tests() };
    let mut world = World::with(settings.clone());
    world.ask(commit.clone());
    let mut batch = BatchBuilder::new(Codec::None);
    for logged in &world.log {
        let Logged::Record(Record { key, value }, _) = logged else { panic!("{logged:?}") };
        let (key, value, timestamp) = (Some(key.as_slice()), value.as_deref(), Timestamp(5));
        batch.push(&NewRecord { timestamp, key, value, headers: &[] });
    }
    assert_eq!(batch.count(), 300);
    let outcome = |bytes_max: usize| {
        let mut world = World::with(settings.clone());
        world.machine.limit_batches(byte_count(bytes_max));
        let Answer::Commit(outcomes) = world.ask(commit.clone()) else { panic!("no commit") };
        assert_eq!(world.log.is_empty(), outcomes.is_err());
        assert_eq!(world.fetch(false), Ok(outcomes.is_ok().then_some(1)));
        outcomes.map(|it| it.len())
    };
    assert_eq!(outcome(batch.size()), Ok(300));
    assert_eq!(outcome(batch.size() - 1), Err(GroupError::UnknownServerError));
}

#[test]
fn an_offset_of_a_topic_with_another_id_is_none() {
    let mut world = World::new();
    let mut offset = new_offset("flights", 0, 5);
    offset.topic_id = TopicId([1; 16]);
    world.ask(Request::Commit(Commit {
        identity: identity("", -1),
        knows_group_errors: true,
        retention_ms: -1,
        offsets: vec![offset],
    }));
    let mut fetch = |topic_id| {
        let wanted = WantedOffset { topic: "flights".into(), topic_id, partition: 0 };
        let wanted = Some(vec![wanted]);
        let group = GROUP.to_owned();
        match world.ask(Request::Fetch(Fetch {
            group,
            member: None,
            wanted,
            require_stable: false,
        })) {
            Answer::Fetch(Ok(fetched)) => {
                fetched[0].committed.clone().map(|it| it.map(|it| it.offset))
            }
            other => panic!("{other:?} is no answer to a fetch"),
        }
    };
    assert_eq!(fetch(TopicId([1; 16])), Ok(Some(5)));
    assert_eq!(fetch(TopicId::ZERO), Ok(Some(5)));
    assert_eq!(fetch(TopicId([2; 16])), Ok(None));
}

#[test]
fn offsets_of_a_transaction_count_when_it_is_committed() {
    for restarts in [false, true] {
        let mut world = World::new();
        assert_eq!(world.commit(identity("", -1), 1), Ok(()));
        assert_eq!(commit_transactional(&mut world, 5), Ok(()));
        if restarts {
            world.restart();
        }
        assert_eq!(world.fetch(false), Ok(Some(1)));
        assert_eq!(world.fetch(true), Err(GroupError::UnstableOffsetCommit));
        assert_eq!(world.ask(Request::EndTransaction(marker(PRODUCER, true))), Answer::Done);
        if restarts {
            world.restart();
        }
        assert_eq!(world.fetch(true), Ok(Some(5)));
        world.machine.offsets.check();
    }
}

#[test]
fn offsets_of_an_aborted_transaction_never_count() {
    let mut world = World::new();
    assert_eq!(commit_transactional(&mut world, 5), Ok(()));
    assert_eq!(world.ask(Request::EndTransaction(marker(PRODUCER, false))), Answer::Done);
    assert_eq!(world.fetch(true), Ok(None));
    world.machine.offsets.check();
}

#[test]
fn a_later_commit_beats_a_transactions_whose_marker_comes_after_it() {
    for restarts in [false, true] {
        let mut world = World::new();
        assert_eq!(commit_transactional(&mut world, 5), Ok(()));
        assert_eq!(world.commit(identity("", -1), 9), Ok(()));
        world.ask(Request::EndTransaction(marker(PRODUCER, true)));
        if restarts {
            world.restart();
        }
        assert_eq!(world.fetch(true), Ok(Some(9)));
    }
}

#[test]
fn a_transaction_with_an_old_generation_is_refused() {
    let mut world = World::new();
    let joined = world.stable(1).remove(0);
    let mut commit = TransactionalCommit {
        identity: identity(&joined.member, joined.generation - 1),
        producer_id: PRODUCER,
        producer_epoch: ProducerEpoch(0),
        offsets: vec![new_offset("flights", 0, 5)],
    };
    let answer = world.ask(Request::CommitTransactional(commit.clone()));
    assert_eq!(answer, Answer::Commit(Err(GroupError::IllegalGeneration)));
    commit.identity = identity("stranger", joined.generation);
    let answer = world.ask(Request::CommitTransactional(commit));
    assert_eq!(answer, Answer::Commit(Err(GroupError::UnknownMemberId)));
}

#[test]
fn offsets_of_subscribed_topics_stay_and_others_may_be_deleted() {
    let mut world = World::new();
    let delete = |topic: &str| {
        let group = GROUP.to_owned();
        Request::DeleteOffsets(DeleteOffsets { group, partitions: vec![(topic.to_owned(), 0)] })
    };
    let unknown = Answer::DeleteOffsets(Err(GroupError::GroupIdNotFound));
    assert_eq!(world.ask(delete("flights")), unknown);
    assert_eq!(world.commit(identity("", -1), 1), Ok(()));
    let joined = world.stable(1).remove(0);
    let used = Answer::DeleteOffsets(Ok(vec![Err(GroupError::GroupSubscribedToTopic)]));
    assert_eq!(world.ask(delete("flights")), used);
    assert_eq!(world.ask(delete("other")), Answer::DeleteOffsets(Ok(vec![Ok(())])));
    assert_eq!(world.leave(&joined.member, None), Ok(()));
    assert_eq!(world.ask(delete("flights")), Answer::DeleteOffsets(Ok(vec![Ok(())])));
    assert_eq!(world.fetch(false), Ok(None));
    world.restart();
    assert_eq!(world.fetch(false), Ok(None));
}

#[test]
fn offsets_expire_their_retention_time_after_the_group_became_empty() {
    let mut world = World::new();
    let retention = world.settings.retention_ms;
    let joined = world.stable(1).remove(0);
    let member = identity(&joined.member, joined.generation);
    assert_eq!(world.commit(member.clone(), 1), Ok(()));
    // In use: it stays for ever.
    let start = world.now;
    while world.now.0 < start.0 + retention + 3_600_000 {
        world.wait(9_000);
        assert_eq!(world.heartbeat(&joined), Ok(()));
    }
    assert_eq!(world.fetch(false), Ok(Some(1)));
    assert_eq!(world.leave(&joined.member, None), Ok(()));
    world.wait(retention - 600_000);
    assert_eq!(world.fetch(false), Ok(Some(1)));
    world.wait(1_200_000);
    assert_eq!(world.fetch(false), Ok(None));
    assert!(world.machine.groups.is_empty());
    assert!(world.reloaded().groups.is_empty());
}

#[test]
fn offsets_of_a_group_that_never_had_members_expire_after_their_commit() {
    let mut world = World::new();
    let retention = world.settings.retention_ms;
    assert_eq!(world.commit(identity("", -1), 1), Ok(()));
    world.wait(retention / 2);
    assert_eq!(world.commit(identity("", -1), 2), Ok(()));
    world.wait(retention - 600_000);
    assert_eq!(world.fetch(false), Ok(Some(2)));
    world.wait(1_200_000);
    assert_eq!(world.fetch(false), Ok(None));
    assert!(world.machine.groups.is_empty());
}

#[test]
fn offsets_of_deleted_topics_go() {
    let mut world = World::new();
    assert_eq!(world.commit(identity("", -1), 1), Ok(()));
    assert_eq!(commit_transactional(&mut world, 5), Ok(()));
    let gone = vec![("flights".to_owned(), TopicId([1; 16]))];
    assert_eq!(world.ask(Request::TopicsDeleted(gone.into())), Answer::Done);
    assert_eq!(world.fetch(true), Ok(None));
    world.machine.offsets.check();
    world.restart();
    world.ask(Request::EndTransaction(marker(PRODUCER, true)));
    assert_eq!(world.fetch(true), Ok(None));
}
