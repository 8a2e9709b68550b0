"""The cases that Differ.java sends to both brokers: requests as JSON, every field that any version
has. A case's test is sent at each version, after its own "before"; "{n}" is the number of the run, so
that each has topics, groups and transactional ids of its own.

Prints the program as JSON.
"""

import base64
import json

TOPIC = "t-{n}"
GROUP = "g-{n}"
TXN = "x-{n}"
NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"


def step(api, request, save=None, **more):
    made = {"api": api, "request": request, **more}
    if save:
        made["save"] = save
    return made


def create_topic(name=TOPIC, partitions=2, configs=(), **more):
    topic = {
        "name": name,
        "numPartitions": partitions,
        "replicationFactor": 1,
        "assignments": [],
        "configs": [{"name": key, "value": value} for key, value in configs],
        **more,
    }
    request = {"topics": [topic], "timeoutMs": 10000, "validateOnly": False}
    return step("CREATE_TOPICS", request, {"topicId": "/topics/0/topicId"})


def produce(records="3", topic=TOPIC, partition=0, transactional_id=None, acks=-1, **more):
    return step(
        "PRODUCE",
        {
            "transactionalId": transactional_id,
            "acks": acks,
            "timeoutMs": 5000,
            "topicData": [
                {
                    "name": topic,
                    "topicId": "$topicId",
                    "partitionData": [{"index": partition, "records": f"$records:{records}"}],
                }
            ],
        },
        **more,
    )


# Produce by name: the version that any topic, known or not, can be written in.
BY_NAME = {"version": 11}


def fetch(topic=TOPIC, offset=0, isolation=0, session=0, session_epoch=-1, partition=0, **more):
    return step(
        "FETCH",
        {
            "clusterId": None,
            "replicaId": -1,
            "replicaState": {"replicaId": -1, "replicaEpoch": -1},
            "maxWaitMs": 100,
            "minBytes": 1,
            "maxBytes": 1 << 20,
            "isolationLevel": isolation,
            "sessionId": session,
            "sessionEpoch": session_epoch,
            "topics": [
                {
                    "topic": topic,
                    "topicId": "$topicId",
                    "partitions": [
                        {
                            "partition": partition,
                            "currentLeaderEpoch": -1,
                            "fetchOffset": offset,
                            "lastFetchedEpoch": -1,
                            "logStartOffset": -1,
                            "partitionMaxBytes": 1 << 20,
                            "replicaDirectoryId": NO_ID,
                            "highWatermark": (1 << 63) - 1,
                        }
                    ],
                }
            ],
            "forgottenTopicsData": [],
            "rackId": "",
        },
        **more,
    )


def list_offsets(*timestamps, isolation=0, partition=0, epoch=-1):
    partitions = [
        {
            "partitionIndex": partition,
            "currentLeaderEpoch": epoch,
            "timestamp": it,
            "maxNumOffsets": 1,
        }
        for it in timestamps
    ]
    return step(
        "LIST_OFFSETS",
        {
            "replicaId": -1,
            "isolationLevel": isolation,
            "topics": [{"name": TOPIC, "partitions": partitions}],
            "timeoutMs": 5000,
        },
    )


def metadata(topics, auto_create=False):
    named = None if topics is None else [{"topicId": NO_ID, "name": it} for it in topics]
    return step(
        "METADATA",
        {
            "topics": named,
            "allowAutoTopicCreation": auto_create,
            "includeClusterAuthorizedOperations": True,
            "includeTopicAuthorizedOperations": True,
        },
    )


def find_coordinator(kind, key, **more):
    keys = {"key": key, "keyType": kind, "coordinatorKeys": [key]}
    return step("FIND_COORDINATOR", keys, **more)


SUBSCRIPTION = base64.b64encode(b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff").decode()
ASSIGNMENT = base64.b64encode(b"\0\0\0\0\0\1\0\1t\0\0\0\1\0\0\0\0\xff\xff\xff\xff").decode()


def join(member="", protocols=("range",), instance=None, session_ms=30000, group=GROUP, **more):
    return step(
        "JOIN_GROUP",
        {
            "groupId": group,
            "sessionTimeoutMs": session_ms,
            "rebalanceTimeoutMs": 30000,
            "memberId": member,
            "groupInstanceId": instance,
            "protocolType": "consumer",
            "protocols": [{"name": it, "metadata": SUBSCRIPTION} for it in protocols],
            "reason": None,
        },
        **more,
    )


def sync(member="$member", generation="$generation", group=GROUP, **more):
    return step(
        "SYNC_GROUP",
        {
            "groupId": group,
            "generationId": generation,
            "memberId": member,
            "groupInstanceId": None,
            "protocolType": "consumer",
            "protocolName": "range",
            "assignments": [{"memberId": member, "assignment": ASSIGNMENT}],
        },
        **more,
    )


def group_of_one(with_sync=True):
    """A group with one member, stable or waiting for its assignment."""
    joined = [
        find_coordinator(0, GROUP),
        join(save={"member": "/memberId"}),
        join("$member", save={"generation": "/generationId"}),
    ]
    return joined + ([sync()] if with_sync else [])


def heartbeat(member="$member", generation="$generation"):
    return step(
        "HEARTBEAT",
        {
            "groupId": GROUP,
            "generationId": generation,
            "memberId": member,
            "groupInstanceId": None,
        },
    )


def leave(member="$member"):
    identity = {"memberId": member, "groupInstanceId": None, "reason": None}
    return step("LEAVE_GROUP", {"groupId": GROUP, "memberId": member, "members": [identity]})


def offset_commit(offset=2, member="", generation=-1, topic=TOPIC, partition=0, text="m", **more):
    return step(
        "OFFSET_COMMIT",
        {
            "groupId": GROUP,
            "generationIdOrMemberEpoch": generation,
            "memberId": member,
            "groupInstanceId": None,
            "retentionTimeMs": -1,
            "topics": [
                {
                    "name": topic,
                    "topicId": "$topicId",
                    "partitions": [
                        {
                            "partitionIndex": partition,
                            "committedOffset": offset,
                            "committedLeaderEpoch": -1,
                            "commitTimestamp": -1,
                            "committedMetadata": text,
                        }
                    ],
                }
            ],
        },
        **more,
    )


def offset_fetch(topics=(TOPIC,), partitions=(0, 1), **more):
    asked = [
        {"name": it, "topicId": "$topicId", "partitionIndexes": list(partitions)} for it in topics
    ]
    group = {"groupId": GROUP, "memberId": None, "memberEpoch": -1, "topics": asked}
    return step(
        "OFFSET_FETCH",
        {"groupId": GROUP, "topics": asked, "groups": [group], "requireStable": False},
        **more,
    )


def init_producer(transactional_id=None, timeout_ms=10000, **more):
    return step(
        "INIT_PRODUCER_ID",
        {
            "transactionalId": transactional_id,
            "transactionTimeoutMs": timeout_ms,
            "producerId": -1,
            "producerEpoch": -1,
            "enable2Pc": False,
            "keepPreparedTxn": False,
        },
        {"pid": "/producerId", "epoch": "/producerEpoch"},
        **more,
    )


PRODUCER = {"producerId": "$pid", "producerEpoch": "$epoch"}


def add_partitions(topic=TOPIC, partitions=(0,), **more):
    topics = [{"name": topic, "partitions": list(partitions)}]
    one = {"transactionalId": TXN, **PRODUCER, "verifyOnly": False, "topics": topics}
    return step(
        "ADD_PARTITIONS_TO_TXN",
        {
            "transactions": [one],
            "v3AndBelowTransactionalId": TXN,
            "v3AndBelowProducerId": "$pid",
            "v3AndBelowProducerEpoch": "$epoch",
            "v3AndBelowTopics": topics,
        },
        **more,
    )


def end_txn(committed=True, **more):
    return step(
        "END_TXN", {"transactionalId": TXN, **PRODUCER, "committed": committed}, **more
    )


# A producer of the first protocol of transactions: its versions keep the epoch.
V1 = {"version": 4}


def open_transaction():
    return [
        create_topic(),
        find_coordinator(1, TXN),
        init_producer(TXN, version=4),
        add_partitions(version=3),
        produce("2,pid,epoch,0,txn", transactional_id=TXN, **BY_NAME),
    ]


def configs(kind, name, keys=None, synonyms=True, documentation=False):
    resource = {"resourceType": kind, "resourceName": name, "configurationKeys": keys}
    return step(
        "DESCRIBE_CONFIGS",
        {
            "resources": [resource],
            "includeSynonyms": synonyms,
            "includeDocumentation": documentation,
        },
    )


def alter(kind, name, *changes, validate=False, **more):
    entries = [{"name": key, "configOperation": op, "value": value} for key, op, value in changes]
    resource = {"resourceType": kind, "resourceName": name, "configs": entries}
    request = {"resources": [resource], "validateOnly": validate}
    return step("INCREMENTAL_ALTER_CONFIGS", request, **more)


def alter_all(kind, name, *changes):
    entries = [{"name": key, "value": value} for key, value in changes]
    resource = {"resourceType": kind, "resourceName": name, "configs": entries}
    return step("ALTER_CONFIGS", {"resources": [resource], "validateOnly": False})


def create_partitions(count, name=TOPIC, validate=False, assignments=None):
    topic = {"name": name, "count": count, "assignments": assignments}
    request = {"topics": [topic], "timeoutMs": 10000, "validateOnly": validate}
    return step("CREATE_PARTITIONS", request)


def delete_records(offset, name=TOPIC, partition=0, **more):
    topic = {"name": name, "partitions": [{"partitionIndex": partition, "offset": offset}]}
    return step("DELETE_RECORDS", {"topics": [topic], "timeoutMs": 10000}, **more)


def quota(value, key="producer_byte_rate", remove=False, entity="user", name="alice"):
    entry = {
        "entity": [{"entityType": entity, "entityName": name}],
        "ops": [{"key": key, "value": value, "remove": remove}],
    }
    return step("ALTER_CLIENT_QUOTAS", {"entries": [entry], "validateOnly": False})


def consumer_heartbeat(member="member-{n}", epoch=0, topics=(TOPIC,), owned=(), **more):
    return step(
        "CONSUMER_GROUP_HEARTBEAT",
        {
            "groupId": GROUP,
            "memberId": member,
            "memberEpoch": epoch,
            "instanceId": None,
            "rackId": None,
            "rebalanceTimeoutMs": 30000,
            "subscribedTopicNames": None if topics is None else list(topics),
            "subscribedTopicRegex": None,
            "serverAssignor": None,
            "topicPartitions": list(owned),
            **more,
        },
        save={"memberEpoch": "/memberEpoch"},
    )


def case(name, test, before=(), after=()):
    return {"case": name, "before": list(before), "test": test, "after": list(after)}


WITH_RECORDS = [create_topic(), produce()]


def topics_and_records():
    unknown = "no-such-topic"
    strange = {"name": "bad name!", "numPartitions": 1, "replicationFactor": 1}
    yield case("a new topic", create_topic("new-{n}", 3, [("retention.ms", "1000")]))
    yield case("a topic that is there", create_topic(), [create_topic()])
    yield case("a name with a blank", create_topic(**strange))
    yield case("too many replicas", create_topic(replicationFactor=3))
    yield case("no partitions", create_topic(partitions=0))
    yield case("an unknown config", create_topic(configs=[("no.such.config", "1")]))
    yield case("a config out of range", create_topic(configs=[("segment.bytes", "300")]))
    by_name = {"name": TOPIC, "topicId": NO_ID}
    for name, topic in (("a topic", TOPIC), ("an unknown topic", unknown)):
        asked = {"topics": [{**by_name, "name": topic}], "topicNames": [topic], "timeoutMs": 5000}
        yield case(f"deletion of {name}", step("DELETE_TOPICS", asked), [create_topic()])
    yield case("metadata of a topic", metadata([TOPIC]), [create_topic()])
    yield case("metadata of an unknown topic", metadata([unknown]))
    yield case("metadata of no topics", metadata([]))
    yield case("metadata of an invalid name", metadata(["bad name!"]))
    yield case("a topic made by metadata", metadata(["auto-{n}"], True))
    yield case("a batch", produce(), [create_topic()])
    yield case("a batch to an unknown topic", produce(topic=unknown), [create_topic()])
    yield case("a batch to an unknown partition", produce(partition=9), [create_topic()])
    yield case("acks that nobody knows", produce(acks=5), [create_topic()])
    idempotent = [create_topic(), init_producer()]
    yield case("an idempotent batch", produce("3,pid,epoch,0"), idempotent)
    again = [*idempotent, produce("3,pid,epoch,0")]
    yield case("the same batch again", produce("3,pid,epoch,0"), again)
    yield case("a batch out of sequence", produce("3,pid,epoch,7"), again)
    yield case("a fetch", fetch(), WITH_RECORDS)
    yield case("a fetch at the end", fetch(offset=3), WITH_RECORDS)
    yield case("a fetch behind the end", fetch(offset=99), WITH_RECORDS)
    yield case("a fetch of an unknown partition", fetch(partition=9), WITH_RECORDS)
    yield case("a fetch of committed records", fetch(isolation=1), WITH_RECORDS)
    yield case("a new session", fetch(session_epoch=0), WITH_RECORDS)
    yield case("an unknown session", fetch(session=77, session_epoch=3), WITH_RECORDS)
    for time in (-1, -2, -3, -4, -5, -6, -7, 1_700_000_000_001, 1_900_000_000_000):
        yield case(f"offset of time {time}", list_offsets(time), WITH_RECORDS)
    yield case("offset in an unknown partition", list_offsets(-1, partition=9), WITH_RECORDS)
    yield case("offset with a fenced epoch", list_offsets(-1, epoch=5), WITH_RECORDS)
    for epoch in (0, 3):
        asked = {"partition": 0, "currentLeaderEpoch": -1, "leaderEpoch": epoch}
        topics = [{"topic": TOPIC, "partitions": [asked]}]
        request = {"replicaId": -2, "topics": topics}
        yield case(f"end of epoch {epoch}", step("OFFSET_FOR_LEADER_EPOCH", request), WITH_RECORDS)
    yield case("deletion of records", delete_records(2), WITH_RECORDS)
    yield case("deletion of all records", delete_records(-1), WITH_RECORDS)
    yield case("deletion behind the end", delete_records(9), WITH_RECORDS)
    yield case("a fetch of deleted records", fetch(), [*WITH_RECORDS, delete_records(2)])


def administration():
    made = [create_topic()]
    yield case("configs of a topic", configs(2, TOPIC, documentation=True), made)
    yield case("some configs of a topic", configs(2, TOPIC, ["retention.ms", "no.such"]), made)
    yield case("configs of an unknown topic", configs(2, "no-such-topic"))
    yield case("configs of another broker", configs(4, "99"))
    yield case("configs of a group", configs(32, GROUP))
    changed = alter(2, TOPIC, ("retention.ms", 0, "5000"), ("cleanup.policy", 2, "compact"))
    yield case("changed configs", changed, made)
    yield case("configs after a change", configs(2, TOPIC, ["retention.ms"]), [*made, changed])
    yield case("a change that is refused", alter(2, TOPIC, ("segment.bytes", 0, "1")), made)
    yield case("a change of an unknown topic", alter(2, "no-such", ("retention.ms", 0, "1")))
    yield case("an operation on no list", alter(2, TOPIC, ("retention.ms", 2, "1")), made)
    yield case("configs replaced", alter_all(2, TOPIC, ("retention.ms", "7000")), made)
    yield case("more partitions", create_partitions(5), made)
    yield case("fewer partitions", create_partitions(1), made)
    yield case("as many partitions", create_partitions(2), made)
    yield case("more partitions of an unknown topic", create_partitions(5, "no-such-topic"))
    yield case("partitions only looked at", create_partitions(5, validate=True), made)
    topics = [{"topic": TOPIC, "partitions": [0, 1]}]
    yield case("log directories", step("DESCRIBE_LOG_DIRS", {"topics": topics}), WITH_RECORDS)
    elect = {"electionType": 0, "topicPartitions": topics, "timeoutMs": 5000}
    yield case("an election that isn't needed", step("ELECT_LEADERS", elect), made)
    asked = {"partitionIndex": 0, "replicas": [1]}
    move = {"timeoutMs": 5000, "topics": [{"name": TOPIC, "partitions": [asked]}]}
    move["allowReplicationFactorChange"] = True
    yield case("a move to where it is", step("ALTER_PARTITION_REASSIGNMENTS", move), made)
    away = {**move, "topics": [{"name": TOPIC, "partitions": [{**asked, "replicas": [7]}]}]}
    yield case("a move to nobody", step("ALTER_PARTITION_REASSIGNMENTS", away), made)
    listed = {"timeoutMs": 5000, "topics": [{"name": TOPIC, "partitionIndexes": [0]}]}
    yield case("moves under way", step("LIST_PARTITION_REASSIGNMENTS", listed), made)
    yield case("a quota", quota(1000000.0))
    yield case("a quota of no meaning", quota(1.0, key="no_such_rate"))
    component = {"entityType": "user", "matchType": 0, "match": "alice"}
    asked = {"components": [component], "strict": False}
    yield case("quotas of a user", step("DESCRIBE_CLIENT_QUOTAS", asked), [quota(1000000.0)])
    for kind in (1, 2):
        cluster = {"includeClusterAuthorizedOperations": True, "endpointType": kind}
        cluster["includeFencedBrokers"] = False
        yield case(f"the cluster, endpoints of type {kind}", step("DESCRIBE_CLUSTER", cluster))
    asked = {"topics": [{"name": TOPIC}], "responsePartitionLimit": 1, "cursor": None}
    yield case("partitions, page by page", step("DESCRIBE_TOPIC_PARTITIONS", asked), made)
    producers = {"topics": [{"name": TOPIC, "partitionIndexes": [0, 9]}]}
    idempotent = [*made, init_producer(), produce("3,pid,epoch,0", **BY_NAME)]
    yield case("producers", step("DESCRIBE_PRODUCERS", producers), idempotent)
    update = {"feature": "no.such.feature", "maxVersionLevel": 3, "allowDowngrade": False}
    request = {"timeoutMs": 5000, "featureUpdates": [{**update, "upgradeType": 1}]}
    request["validateOnly"] = False
    yield case("an unknown feature", step("UPDATE_FEATURES", request))
    quorum = {"topicName": "__cluster_metadata", "partitions": [{"partitionIndex": 0}]}
    yield case("the quorum", step("DESCRIBE_QUORUM", {"topics": [quorum]}))
    acls = {"resourceTypeFilter": 1, "resourceNameFilter": None, "patternTypeFilter": 1}
    acls |= {"principalFilter": None, "hostFilter": None, "operation": 1, "permissionType": 1}
    yield case("access rules", step("DESCRIBE_ACLS", acls))
    scram = {"users": [{"name": "nobody"}]}
    yield case("credentials", step("DESCRIBE_USER_SCRAM_CREDENTIALS", scram))
    yield case("resources with configs", step("LIST_CONFIG_RESOURCES", {"resourceTypes": [2]}))


def groups():
    yield case("a group's coordinator", find_coordinator(0, GROUP))
    yield case("a transaction's coordinator", find_coordinator(1, TXN))
    yield case("a coordinator of nothing", find_coordinator(9, GROUP))
    ready = [find_coordinator(0, GROUP)]
    yield case("a first member", join(), ready)
    yield case("a first static member", join(instance="i"), ready)
    yield case("an unknown member", join("nobody"), ready)
    yield case("a session too long", join(session_ms=99_999_999), ready)
    yield case("a session too short", join(session_ms=1), ready)
    yield case("a group without a name", join(group=""), ready)
    joined = [*ready, join(save={"member": "/memberId"})]
    yield case("a member that is known", join("$member"), joined)
    yield case("a protocol that nobody shares", join(protocols=("other",)), group_of_one())
    yield case("an assignment", sync(), group_of_one(with_sync=False))
    yield case("an assignment of another generation", sync(generation=9), group_of_one(False))
    yield case("an assignment by a stranger", sync("stranger"), group_of_one(False))
    yield case("a heartbeat", heartbeat(), group_of_one())
    yield case("a heartbeat while it waits", heartbeat(), group_of_one(False))
    yield case("a stranger's heartbeat", heartbeat("stranger"), group_of_one())
    yield case("a heartbeat of another generation", heartbeat(generation=9), group_of_one())
    yield case("a heartbeat to no group", heartbeat("a", 1), ready)
    yield case("a member leaves", leave(), group_of_one())
    yield case("a stranger leaves", leave("stranger"), group_of_one())
    described = step("DESCRIBE_GROUPS", {"groups": [GROUP], "includeAuthorizedOperations": True})
    yield case("a group", described, group_of_one())
    yield case("an unknown group", described, ready)
    listed = step("LIST_GROUPS", {"statesFilter": ["Stable"], "typesFilter": ["consumer"]})
    yield case("groups of a kind", listed, group_of_one())
    deleted = step("DELETE_GROUPS", {"groupsNames": [GROUP]})
    yield case("deletion of a group in use", deleted, group_of_one())
    yield case("deletion of an unknown group", deleted, ready)
    committed = [create_topic(), *ready, offset_commit()]
    yield case("deletion of an empty group", deleted, committed)
    yield case("a commit without a group", offset_commit(), [create_topic(), *ready])
    yield case("a member's commit", offset_commit(member="$member", generation="$generation"),
               [create_topic(), *group_of_one()])
    yield case("a stranger's commit", offset_commit(member="who", generation=1),
               [create_topic(), *group_of_one()])
    yield case("a commit of another generation", offset_commit(member="$member", generation=9),
               [create_topic(), *group_of_one()])
    yield case("a commit for an unknown topic", offset_commit(topic="no-such-topic"), committed)
    yield case("a commit for an unknown partition", offset_commit(partition=9), committed)
    yield case("a commit with much metadata", offset_commit(text="x" * 5000), committed)
    yield case("committed offsets", offset_fetch(), committed)
    yield case("committed offsets of no group", offset_fetch(), [create_topic(), *ready])
    gone = {"groupId": GROUP, "topics": [{"name": TOPIC, "partitions": [{"partitionIndex": 0}]}]}
    yield case("deletion of an offset", step("OFFSET_DELETE", gone), committed)
    yield case("deletion of an offset of no group", step("OFFSET_DELETE", gone), ready)


def groups_of_consumers():
    ready = [create_topic(), find_coordinator(0, GROUP)]
    described = {"groupIds": [GROUP], "includeAuthorizedOperations": True}
    yield case("a consumer joins", consumer_heartbeat(), ready)
    yield case("a consumer of an unknown epoch", consumer_heartbeat(epoch=5), ready)
    yield case("a consumer without topics", consumer_heartbeat(topics=None), ready)
    yield case("an assignor that nobody knows", consumer_heartbeat(serverAssignor="no"), ready)
    yield case("a bad expression", consumer_heartbeat(topics=None, subscribedTopicRegex="(["),
               ready)
    joined = [*ready, consumer_heartbeat()]
    again = consumer_heartbeat(epoch="$memberEpoch", topics=None, topicPartitions=None)
    yield case("a consumer's next heartbeat", again, joined)
    yield case("a consumer leaves", consumer_heartbeat(epoch=-1, topics=None), joined)
    yield case("a consumer group", step("CONSUMER_GROUP_DESCRIBE", described), joined)
    yield case("an unknown consumer group", step("CONSUMER_GROUP_DESCRIBE", described), ready)
    yield case("a classic member in it", join(), joined)


def transactions():
    ready = [create_topic(), find_coordinator(1, TXN)]
    yield case("a producer id", init_producer())
    yield case("a transactional producer", init_producer(TXN), ready)
    yield case("a transaction's time too long", init_producer(TXN, 99_999_999), ready)
    started = [*ready, init_producer(TXN, version=4)]
    yield case("a partition joins", add_partitions(), started)
    yield case("an unknown partition joins", add_partitions("no-such-topic"), started)
    yield case("a commit", end_txn(), open_transaction())
    yield case("an abort", end_txn(False), open_transaction())
    yield case("the end of nothing", end_txn(), started)
    yield case("records before the commit", fetch(isolation=1), open_transaction())
    aborted = [*open_transaction(), end_txn(False, **V1)]
    yield case("records after the abort", fetch(isolation=1), aborted)
    yield case("the stable end", list_offsets(-1, isolation=1), open_transaction())
    described = step("DESCRIBE_TRANSACTIONS", {"transactionalIds": [TXN]})
    yield case("a transaction", described, open_transaction())
    yield case("an unknown transaction", described, ready)
    listed = {"stateFilters": ["NoSuchState"], "producerIdFilters": [], "durationFilter": -1}
    listed["transactionalIdPattern"] = None
    yield case("transactions of no state", step("LIST_TRANSACTIONS", listed), ready)
    group = {"transactionalId": TXN, **PRODUCER, "groupId": GROUP}
    yield case("a group joins", step("ADD_OFFSETS_TO_TXN", group), started)
    partition = {
        "partitionIndex": 0,
        "committedOffset": 2,
        "committedLeaderEpoch": -1,
        "committedMetadata": "",
    }
    commit = {**group, "generationId": -1, "memberId": "", "groupInstanceId": None}
    commit["topics"] = [{"name": TOPIC, "partitions": [partition]}]
    joined = [*started, find_coordinator(0, GROUP), step("ADD_OFFSETS_TO_TXN", group, **V1)]
    yield case("offsets in a transaction", step("TXN_OFFSET_COMMIT", commit), joined)
    marker = {**PRODUCER, "transactionResult": True, "coordinatorEpoch": 0}
    marker["topics"] = [{"name": TOPIC, "partitionIndexes": [0]}]
    marker["transactionVersion"] = 1
    yield case("markers by hand", step("WRITE_TXN_MARKERS", {"markers": [marker]}),
               open_transaction())


CASES = [
    *topics_and_records(),
    *administration(),
    *groups(),
    *groups_of_consumers(),
    *transactions(),
]

if __name__ == "__main__":
    print(json.dumps(CASES))
