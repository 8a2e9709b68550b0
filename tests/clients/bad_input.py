"""What ordinary clients don't do, or not so much of it: thousands of groups, a thousand members,
strangers, generations that are over, giant metadata, records for internal topics, the same thing
twice, epochs that are used up, clients that die in transactions. Every step notes the error code that
it got; `--beside HOST:PORT` runs the same steps against another broker (a real
Kafka) and compares.
"""

import time
import uuid
from itertools import count

import lib
import raw
from raw import Connection

GROUPS = 10_000
MEMBERS = 1_000
EMPTY_S = 60
# Requests sent ahead of their answers.
DEPTH = 64
# The epochs of a producer id that a client may be given: the next one is for fencing it.
EPOCHS = 32_767
# COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR.
LOADING = (14, 15, 16)
NOT_LEADER = (6,)
CONCURRENT = 51


class Steps:
    """Answers of one broker, by what was asked."""

    def __init__(self, bootstrap):
        self.bootstrap = bootstrap
        self.connection = Connection(bootstrap)
        self.found = {}
        self.step = ""
        # The connection to each coordinator.
        self.kept = {}
        self.run = uuid.uuid4().hex[:8]

    def note(self, what, answer):
        self.found.setdefault(self.step, {})[what] = answer

    def group(self, part):
        return f"{part}-{self.run}"

    def address(self, group):
        """Of a group's coordinator, once it has loaded the group's partition."""
        where = lambda: raw.coordinator(self.connection, group)  # noqa: E731
        address = lib.wait_until(where, f"the coordinator of {group}")
        if address not in self.kept:
            self.kept[address] = Connection(address)
        loaded = lambda: raw.heartbeat(self.kept[address], group, 1, "m") not in LOADING  # noqa: E731
        lib.wait_until(loaded, f"the coordinator of {group}")
        return address

    def to(self, group):
        return self.kept[self.address(group)]

    def transactions(self, name):
        """A connection to the coordinator of a transactional id, which has loaded it."""
        where = lambda: raw.coordinator(self.connection, name, 1)  # noqa: E731
        one = Connection(lib.wait_until(where, f"the coordinator of {name}"))
        ready = lambda: raw.init_producer(one, name)[0] not in (*LOADING, CONCURRENT)  # noqa: E731
        lib.wait_until(ready, f"the coordinator of {name}")
        return one

    def leader(self, topic, records, **more):
        """A connection to the leader of partition 0, by writing to it."""
        for address in raw.brokers(self.connection):
            one = Connection(address)
            if raw.produce(one, topic, 0, records, **more)[0] not in NOT_LEADER:
                return one
        raise LookupError(f"nobody leads {topic}-0")

    def listed(self):
        """The groups of every coordinator that is known."""
        return set().union(*(raw.groups(one)[1] for one in self.kept.values()))

    def attempt(self, step):
        self.step, began = step.__name__.replace("_", " "), time.monotonic()
        try:
            step(self)
        except Exception as error:  # noqa: BLE001 - the failure is the answer
            self.note("it comes to its end", f"{type(error).__name__}: {error}")
            self.connection, self.kept = Connection(self.bootstrap), {}
        print(f"  {self.bootstrap} {step.__name__}: {time.monotonic() - began:.1f} s", flush=True)


def codes(answers):
    return dict(sorted({code: answers.count(code) for code in set(answers)}.items()))


def many_groups(steps):
    """10,000 groups with a member each, and 10,000 of the consumer protocol."""
    names = [steps.group(f"many{number}") for number in range(GROUPS)]
    own = {name: steps.to(name) for name in names}
    joined = {name: raw.join(own[name], name, session=300_000) for name in names}
    steps.note("joins", codes([it.error for it in joined.values()]))
    synced = [
        raw.sync(own[name], name, it, [(it.member, b"given")]) for name, it in joined.items()
    ]
    steps.note("syncs", codes([code for code, _ in synced]))
    steps.note("what they got", codes([given for _, given in synced]))
    sent = [
        raw.commit(own[name], name, "plain", 7, generation=it.generation, member=it.member)
        for name, it in joined.items()
    ]
    steps.note("commits", codes(sent))
    steps.note("listed", len(steps.listed() & set(names)))
    found = [raw.committed(own[name], name, "plain") for name in names]
    steps.note("committed", codes(found))
    left = [raw.leave(own[name], name, it.member)[-1] for name, it in joined.items()]
    steps.note("leaves", codes(left))


def many_consumer_groups(steps):
    beat = raw.consumer_heartbeat
    names = [steps.group(f"next{number}") for number in range(GROUPS)]
    own = {name: steps.to(name) for name in names}
    first = {name: beat(own[name], name, "", 0, ["plain"]) for name in names}
    steps.note("joins", codes([it[0] for it in first.values()]))
    steps.note("listed", len(steps.listed() & set(names)))
    again = [beat(own[name], name, it[2], it[3])[0] for name, it in first.items()]
    steps.note("heartbeats", codes(again))
    left = [beat(own[name], name, it[2], -1)[0] for name, it in first.items()]
    steps.note("leaves", codes(left))


def many_members(steps):
    """1,000 members share a group, and then vanish."""
    group = steps.group("crowd")
    address = steps.address(group)
    sockets = [Connection(address) for _ in range(MEMBERS)]
    # Their ids first, so that all of them join in one round.
    named = []
    for one in sockets:
        one.send(raw.JOIN, 5, raw.join_body(group, session=10_000))
    for one in sockets:
        named.append(raw.Joined(one.receive()))
    steps.note("told their ids", codes([it.error for it in named]))
    for one, it in zip(sockets, named):
        one.send(raw.JOIN, 5, raw.join_body(group, member=it.member, session=10_000))
    joined = [raw.Joined(one.receive()) for one in sockets]
    # Those that the first round missed are in the next one.
    for _ in range(5):
        newest = max(it.generation for it in joined)
        late = [n for n, it in enumerate(joined) if it.generation < newest]
        if not late:
            break
        for n in late:
            body = raw.join_body(group, member=joined[n].member, session=10_000)
            sockets[n].send(raw.JOIN, 5, body)
        for n in late:
            joined[n] = raw.Joined(sockets[n].receive())
    steps.note("joins", codes([it.error for it in joined]))
    leader = next(n for n, it in enumerate(joined) if it.member == it.leader)
    steps.note("the leader sees", len(joined[leader].members))
    given = [(it.member, it.member.encode()) for it in joined]
    for one, it in zip(sockets, joined):
        mine = given if it.member == it.leader else []
        parts = [raw.text(member) + raw.blob(data) for member, data in mine]
        body = raw.text(group) + raw.i32(it.generation) + raw.text(it.member) + raw.text(None)
        one.send(raw.SYNC, 3, body + raw.array(parts))
    right = 0
    for one, it in zip(sockets, joined):
        answer = one.receive()
        answer.i32()
        right += answer.i16() == 0 and answer.blob() == it.member.encode()
    steps.note("each got its own", right)
    for one in sockets:
        one.close()
    generation, member = joined[leader].generation, joined[leader].member
    gone = lib.wait_until(
        lambda: raw.commit(steps.to(group), group, "plain", 1) == 0,
        "the members that vanished to be put out",
        EMPTY_S,
        0.5,
    )
    steps.note("a stranger may commit when they have vanished", gone)
    code = raw.heartbeat(steps.to(group), group, generation, member)
    steps.note("the leader's heartbeat then", code)


def many_consumer_members(steps):
    group = steps.group("next-crowd")
    one = steps.to(group)
    joined = [raw.consumer_heartbeat(one, group, "", 0, ["plain"]) for _ in range(MEMBERS)]
    steps.note("joins", codes([it[0] for it in joined]))
    again = [raw.consumer_heartbeat(one, group, it[2], it[3]) for it in joined]
    steps.note("heartbeats", codes([it[0] for it in again]))
    left = [raw.consumer_heartbeat(one, group, it[2], -1)[0] for it in joined]
    steps.note("leaves", codes(left))


def strangers(steps):
    group = steps.group("own")
    one = steps.to(group)
    joined = raw.join(one, group)
    raw.sync(one, group, joined, [(joined.member, b"")])
    member, generation = joined.member, joined.generation
    own = {"member": member, "generation": generation}
    for what, more in (
        ("a commit of its own", own),
        ("a stranger's commit without a name", {}),
        ("a stranger's commit", {**own, "member": "stranger"}),
        ("a commit of an old generation", {**own, "generation": generation - 1}),
        ("a commit of a generation to come", {**own, "generation": generation + 1}),
        ("a member's commit without a generation", {"member": member}),
        ("a commit with somebody's instance", {**own, "instance": "nobody"}),
        ("a commit to a partition that isn't", {**own, "partition": 99}),
        ("a commit of a negative offset", {**own, "offset": -5}),
        ("a commit with 4,096 bytes of metadata", {**own, "metadata": "m" * 4096}),
        ("a commit with 4,097 bytes of metadata", {**own, "metadata": "m" * 4097}),
    ):
        offset = more.pop("offset", 3) if "offset" in more else 3
        steps.note(what, raw.commit(one, group, "plain", offset, **more))
    steps.note("a commit to no topic", raw.commit(one, group, "missing", 1, **own))
    steps.note("a commit to no group", raw.commit(steps.to("x"), "", "plain", 1))
    beat = raw.heartbeat
    steps.note("a stranger's heartbeat", beat(one, group, generation, "stranger"))
    steps.note("a heartbeat without a name", beat(one, group, generation, ""))
    steps.note("a heartbeat of another generation", beat(one, group, generation + 1, member))
    nowhere = steps.group("no")
    steps.note("a heartbeat to no group", beat(steps.to(nowhere), nowhere, 1, member))
    steps.note("a heartbeat to a group without a name", beat(one, "", 1, member))
    steps.note("a stranger leaves", raw.leave(one, group, "stranger"))
    code, _ = raw.sync(one, group, joined, generation=generation + 3)
    steps.note("a sync of another generation", code)
    steps.note("a join with another protocol", raw.join(one, group, protocol="other").error)
    for session in (1, 5_999, 1_800_001):
        times = steps.group("times")
        code = raw.join(steps.to(times), times, session=session).error
        steps.note(f"a join with a session of {session} ms", code)
    steps.note("a join to a group without a name", raw.join(one, "").error)
    steps.note("a join of a member that isn't", raw.join(one, group, member="stranger").error)


def fenced(steps):
    group = steps.group("static")
    one, two = steps.to(group), Connection(steps.address(group))
    first = raw.join(one, group, instance="i")
    raw.sync(one, group, first, [(first.member, b"")], instance="i")
    second = raw.join(two, group, instance="i")
    steps.note("a static member's second self joins", second.error)
    code = raw.heartbeat(one, group, first.generation, first.member, "i")
    steps.note("the first one's heartbeat", code)
    own = {"member": first.member, "generation": first.generation, "instance": "i"}
    steps.note("the first one's commit", raw.commit(one, group, "plain", 1, **own))
    steps.note("the first one's join", raw.join(one, group, member=first.member, instance="i").error)
    code, _ = raw.sync(one, group, first, instance="i")
    steps.note("the first one's sync", code)
    steps.note("the first one leaves", raw.leave(one, group, first.member, "i"))
    steps.note("an unknown instance leaves", raw.leave(one, group, "", "nobody"))
    steps.note("the second one's leave by name", raw.leave(two, group, "", "i"))


def consumer_members(steps):
    group, beat = steps.group("next-own"), raw.consumer_heartbeat
    one = steps.to(group)
    code, _, member, epoch = beat(one, group, "", 0, ["plain"])
    steps.note("a consumer joins", code)
    own = {"member": member, "generation": epoch}
    steps.note("its commit", raw.commit(one, group, "plain", 1, **own))
    nowhere = steps.group("no")
    stale = {**own, "generation": epoch + 9}
    steps.note("its commit of an epoch to come", raw.commit(one, group, "plain", 1, **stale))
    steps.note("a commit without a name", raw.commit(one, group, "plain", 1))
    for what, answer in (
        ("a heartbeat of an epoch to come", beat(one, group, member, epoch + 9)),
        ("a stranger's heartbeat", beat(one, group, "stranger", epoch)),
        ("a heartbeat to no group", beat(steps.to(nowhere), nowhere, member, 3)),
        ("a join without topics", beat(one, group, "", 0)),
        ("a join with an assignor that isn't", beat(one, group, "", 0, ["plain"], assignor="no")),
        ("a join without a time to rebalance", beat(one, group, "", 0, ["plain"], rebalance=-1)),
        ("a heartbeat of a negative epoch", beat(one, group, member, -7)),
        ("a static leave without an instance", beat(one, group, member, -2)),
    ):
        steps.note(what, answer[0])
    _, _, static, _ = beat(one, group, "", 0, ["plain"], instance="i")
    steps.note("an instance that is taken", beat(one, group, "", 0, ["plain"], instance="i")[0])
    steps.note("an instance's stranger", beat(one, group, "other", 3, instance="i")[0])
    steps.note("it leaves for a while", beat(one, group, static, -2, instance="i")[0])
    steps.note("and comes back", beat(one, group, "", 0, ["plain"], instance="i")[0])
    topics = raw.i16(0) + raw.array([raw.text("plain")]) + raw.i32(-1)
    classic = raw.join(one, group, metadata=topics)
    steps.note("a classic member joins the consumers", classic.error)
    steps.note("it leaves for good", beat(one, group, member, -1)[0])
    steps.note("its heartbeat then", beat(one, group, member, epoch)[0])


def giant(steps):
    """The group's record of 64 KB fits, that of 1 MB does not. A member with 8 MB to say of itself
    is refused when it joins, since no record could ever hold it (README, limits); Kafka lets it join
    and refuses each sync."""
    for what, size in (("64 KB", 64 << 10), ("512 KB", 512 << 10), ("8 MB", 8 << 20)):
        group = steps.group(f"giant-{size}")
        one = Connection(steps.address(group))
        try:
            big = raw.join(one, group, metadata=b"x" * size)
            steps.note(f"a join with {what} of metadata", big.error)
            if big.error:
                continue
            code, _ = raw.sync(one, group, big, [(big.member, b"y" * size)])
            steps.note(f"a sync with {what} of assignment", code)
        except ConnectionError:
            steps.note(f"a join with {what} of metadata", "closed")
        finally:
            one.close()
    topics = [f"topic-{number}" for number in range(20_000)]
    group = steps.group("wide")
    answer = raw.consumer_heartbeat(steps.to(group), group, "", 0, topics)
    steps.note("a consumer of 20,000 topics that aren't", answer[0])
    name = "g" * 30_000
    steps.note("a group with a long name", raw.commit(steps.to(name), name, "plain", 1))


def now_ms():
    return int(time.time() * 1000)


def internal_topics(steps):
    """Clients write to their own topics alone; an admin client may write to all, as with Kafka."""
    steps.to(steps.group("any"))
    steps.transactions(steps.group("any"))
    record = raw.batch(b"not yours", now_ms())
    by_admin = {"client": "__admin_client"}
    for topic in ("__consumer_offsets", "__transaction_state"):
        # A batch that no broker takes, so that nobody has to read what it holds.
        broken = record[:17] + b"\0\0\0\0" + record[21:]
        leader = steps.leader(topic, broken, **by_admin)
        steps.note(f"a batch for {topic}", raw.produce(leader, topic, 0, record)[0])
        code, _ = raw.produce(leader, topic, 0, broken, **by_admin)
        steps.note(f"a damaged one of an admin client for {topic}", code)
        steps.note(f"deletion of records of {topic}", raw.delete_records(leader, topic, 0, 0))
        found = raw.create_topics(steps.connection, [(topic, 3)])
        steps.note(f"creation of {topic}", found)
        found = raw.create_partitions(steps.connection, topic, 100)
        steps.note(f"more partitions of {topic}, only looked at", found)
    name = steps.group("inside")
    one = steps.transactions(name)
    _, producer, epoch = raw.init_producer(one, name)
    added = raw.add_partition(one, name, producer, epoch, "__consumer_offsets", 0)
    steps.note("an internal partition joins a transaction", added)
    steps.note("creation of __cluster_metadata",
               raw.create_topics(steps.connection, [("__cluster_metadata", 1)]))
    code, _ = raw.produce(Connection(steps.bootstrap), "__cluster_metadata", 0, record)
    steps.note("a batch for __cluster_metadata", code)


def duplicates(steps):
    """The same thing twice in one request."""
    names = [(steps.group("one"), 1), (steps.group("one"), 1), (steps.group("two"), 1)]
    steps.note("a topic made twice", raw.create_topics(steps.connection, names, True))
    group = steps.group("twins")
    one = steps.to(group)
    first = raw.join(one, group)
    raw.sync(one, group, first, [(first.member, b"")])
    other = Connection(steps.address(group))
    again = raw.join(other, group, member=first.member)
    steps.note("two connections with one member's id", again.error)
    steps.note("which stay one member", len(again.members))
    code, _ = raw.sync(other, group, again, [(again.member, b"")])
    steps.note("which one of them leads", code)
    code = raw.heartbeat(one, group, again.generation, first.member)
    steps.note("the first one's heartbeat", code)
    twice = [(first.member, b"a"), (first.member, b"b")]
    again = raw.join(other, group, member=first.member)
    _, given = raw.sync(other, group, again, twice)
    steps.note("an assignment given twice", given)
    steps.note("a member leaves twice", raw.leave_all(one, group, [(first.member, None)] * 2))
    record = raw.batch(b"twice", now_ms())
    found = raw.produce_twice(steps.leader("plain", record), "plain", record)
    # Kafka takes the last of the batches and answers once; here both are taken.
    steps.note("a partition twice in Produce", codes(found[:1]))


def epochs(steps):
    """A transactional id whose epochs are used up goes on with another producer id."""
    name = steps.group("epochs")
    one = steps.transactions(name)
    code, first, epoch = raw.init_producer(one, name)
    steps.note("the epoch goes up by one", (code, epoch))
    ids, seen, body = {}, [], raw.init_body(name)
    for _ in range(EPOCHS // DEPTH):
        for _ in range(DEPTH):
            one.send(raw.INIT_PRODUCER_ID, 1, body)
        for _ in range(DEPTH):
            seen.append(raw.initialised(one.receive()))
    for code, producer, epoch in seen:
        ids.setdefault(producer, []).append(epoch)
        assert code == 0, (code, producer, epoch)
    while first in ids and len(ids) == 1:
        _, producer, epoch = raw.init_producer(one, name)
        ids.setdefault(producer, []).append(epoch)
    steps.note("the last epoch of an id", max(ids[first]))
    (second,) = set(ids) - {first}
    steps.note("the first epoch of the next one", min(ids[second]))
    code = raw.end_transaction(one, name, first, max(ids[first]), True)
    steps.note("the old id ends a transaction", code)
    code = raw.add_partition(one, name, first, max(ids[first]), "plain", 0)
    steps.note("the old id begins one", code)
    newest = (second, max(ids[second]))
    steps.note("the new one begins one", raw.add_partition(one, name, *newest, "plain", 0))
    record = raw.batch(b"anew", now_ms(), *newest, 0, True)
    leader = steps.leader("plain", raw.batch(b"x", now_ms()))
    steps.note("and writes", raw.produce(leader, "plain", 0, record, name)[0])
    steps.note("and commits", raw.end_transaction(one, name, *newest, True))


def dead_clients(steps):
    """Transactions that nobody ends are ended by the coordinator, and their producers are told."""
    name = steps.group("dead")
    one = steps.transactions(name)
    for timeout in (0, -1, 900_001):
        code, *_ = raw.init_producer(one, steps.group("times"), timeout)
        steps.note(f"a transaction's time of {timeout} ms", code)
    _, producer, epoch = raw.init_producer(one, name, 1_000)
    steps.note("a partition joins", raw.add_partition(one, name, producer, epoch, "plain", 0))
    batch = lambda: raw.batch(b"left", now_ms(), producer, epoch, next(numbers), True)  # noqa: E731
    numbers = count()
    leader = steps.leader("plain", raw.batch(b"x", now_ms()))
    steps.note("a batch", raw.produce(leader, "plain", 0, batch(), name)[0])
    add = lambda: raw.add_partition(one, name, producer, epoch, "plain", 1)  # noqa: E731
    code = lib.wait_until(lambda: {0: None, CONCURRENT: None}.get(it := add(), it),
                          "the transaction to be aborted", EMPTY_S, 0.5)
    steps.note("a partition joins when its time is over", code)
    steps.note("its batch then", raw.produce(leader, "plain", 0, batch(), name)[0])
    steps.note("its commit then", raw.end_transaction(one, name, producer, epoch, True))
    code, _, later = raw.init_producer(one, name)
    steps.note("it begins anew", (code, epoch < later))


# What Kafka 4.3.1 answers, as --beside shows; but for giant metadata, where limits are our own, and
# for more partitions of internal topics, with which Kafka looks for groups elsewhere after a restart.
EXPECTED = {
    "strangers": {
        "a commit of its own": 0,
        "a stranger's commit without a name": 25,
        "a stranger's commit": 25,
        "a commit of an old generation": 22,
        "a commit of a generation to come": 22,
        "a member's commit without a generation": 22,
        "a commit with somebody's instance": 25,
        "a commit to a partition that isn't": 3,
        "a commit of a negative offset": 0,
        "a commit with 4,096 bytes of metadata": 0,
        "a commit with 4,097 bytes of metadata": 12,
        "a commit to no topic": 3,
        "a commit to no group": 0,
        "a stranger's heartbeat": 25,
        "a heartbeat without a name": 25,
        "a heartbeat of another generation": 22,
        "a heartbeat to no group": 25,
        "a heartbeat to a group without a name": 24,
        "a stranger leaves": [0, 25],
        "a sync of another generation": 22,
        "a join with another protocol": 23,
        "a join with a session of 1 ms": 26,
        "a join with a session of 5999 ms": 26,
        "a join with a session of 1800001 ms": 26,
        "a join to a group without a name": 24,
        "a join of a member that isn't": 25,
    },
    "fenced": {
        "a static member's second self joins": 0,
        "the first one's heartbeat": 82,
        "the first one's commit": 82,
        "the first one's join": 82,
        "the first one's sync": 82,
        "the first one leaves": [0, 82],
        "an unknown instance leaves": [0, 25],
        "the second one's leave by name": [0, 0],
    },
    "consumer members": {
        "a consumer joins": 0,
        "its commit": 35,
        "its commit of an epoch to come": 35,
        "a commit without a name": 25,
        "a heartbeat of an epoch to come": 110,
        "a stranger's heartbeat": 25,
        "a heartbeat to no group": 69,
        "a join without topics": 42,
        "a join with an assignor that isn't": 112,
        "a join without a time to rebalance": 42,
        "a heartbeat of a negative epoch": 42,
        "a static leave without an instance": 42,
        "an instance that is taken": 111,
        "an instance's stranger": 82,
        "it leaves for a while": 0,
        "and comes back": 0,
        "a classic member joins the consumers": 0,
        "it leaves for good": 0,
        "its heartbeat then": 25,
    },
    "giant": {
        "a join with 64 KB of metadata": 0,
        "a sync with 64 KB of assignment": 0,
        "a join with 512 KB of metadata": 0,
        "a sync with 512 KB of assignment": -1,
        "a join with 8 MB of metadata": -1,
        "a consumer of 20,000 topics that aren't": 0,
        "a group with a long name": 0,
    },
    "internal topics": {
        "a batch for __consumer_offsets": 17,
        "a damaged one of an admin client for __consumer_offsets": 2,
        "deletion of records of __consumer_offsets": 17,
        "creation of __consumer_offsets": [36],
        "more partitions of __consumer_offsets, only looked at": 37,
        "a batch for __transaction_state": 17,
        "a damaged one of an admin client for __transaction_state": 2,
        "deletion of records of __transaction_state": 17,
        "creation of __transaction_state": [36],
        "more partitions of __transaction_state, only looked at": 37,
        "an internal partition joins a transaction": 29,
        "creation of __cluster_metadata": [42],
        "a batch for __cluster_metadata": 3,
    },
    "duplicates": {
        "a topic made twice": [42, 0],
        "two connections with one member's id": 0,
        "which stay one member": 1,
        "which one of them leads": 0,
        "the first one's heartbeat": 0,
        "an assignment given twice": b"b",
        "a member leaves twice": [0, 0, 25],
        "a partition twice in Produce": {0: 1},
    },
    "epochs": {
        "the epoch goes up by one": (0, 1),
        "the last epoch of an id": EPOCHS - 1,
        "the first epoch of the next one": 0,
        "the old id ends a transaction": 49,
        "the old id begins one": 49,
        "the new one begins one": 0,
        "and writes": 0,
        "and commits": 0,
    },
    "dead clients": {
        "a transaction's time of 0 ms": 50,
        "a transaction's time of -1 ms": 50,
        "a transaction's time of 900001 ms": 50,
        "a partition joins": 0,
        "a batch": 0,
        "a partition joins when its time is over": 47,
        "its batch then": 47,
        "its commit then": 47,
        "it begins anew": (0, True),
    },
    "many members": {
        "told their ids": {79: MEMBERS},
        "joins": {0: MEMBERS},
        "the leader sees": MEMBERS,
        "each got its own": MEMBERS,
        "a stranger may commit when they have vanished": True,
        "the leader's heartbeat then": 25,
    },
    "many consumer members": {
        "joins": {0: MEMBERS}, "heartbeats": {0: MEMBERS}, "leaves": {0: MEMBERS},
    },
    "many groups": {
        "joins": {0: GROUPS},
        "syncs": {0: GROUPS},
        "what they got": {b"given": GROUPS},
        "commits": {0: GROUPS},
        "listed": GROUPS,
        "committed": {7: GROUPS},
        "leaves": {0: GROUPS},
    },
    "many consumer groups": {
        "joins": {0: GROUPS}, "listed": GROUPS, "heartbeats": {0: GROUPS}, "leaves": {0: GROUPS},
    },
}

STEPS = (strangers, fenced, consumer_members, giant, internal_topics, duplicates, epochs, dead_clients,
         many_members, many_consumer_members,
         many_groups, many_consumer_groups)


def body(arguments):
    found = []
    for bootstrap in filter(None, (arguments.bootstrap, arguments.beside)):
        made = lib.run([lib.KAFKA, "topics", "--bootstrap-server", bootstrap, "--create",
                        "--if-not-exists", "--topic", "plain", "--partitions", "3"])
        assert made.returncode == 0, made
        steps = Steps(bootstrap)
        for step in STEPS:
            if not arguments.steps or step.__name__ in arguments.steps:
                steps.attempt(step)
        found.append(steps.found)
    report = lib.Report("bad input")
    expected = found[1] if arguments.beside else EXPECTED
    for step, answers in found[0].items():
        for what in dict.fromkeys([*expected[step], *answers]):
            got, wanted = (it.get(what, "not asked") for it in (answers, expected[step]))
            report.equal(f"{step}: {what}", got, wanted)
    return report.finish()


def more_options(parser):
    parser.add_argument("--beside", metavar="HOST:PORT", help="another broker, whose answers count")
    parser.add_argument("--steps", type=lambda it: it.split(","), help="these steps alone")


if __name__ == "__main__":
    lib.main(lambda: body(lib.options(__doc__, more_options)))
