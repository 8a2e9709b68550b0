"""Requests written and answers read by hand: what no client library would send.

Only the fixed (not flexible) versions, but for ConsumerGroupHeartbeat, which has no other.
"""

import socket
import struct

from archives import crc32c

PRODUCE, METADATA, CREATE_TOPICS, DELETE_RECORDS, INIT_PRODUCER_ID = 0, 3, 19, 21, 22
ADD_PARTITIONS_TO_TXN, END_TXN, CREATE_PARTITIONS = 24, 26, 37
OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR = 8, 9, 10
JOIN, HEARTBEAT, LEAVE, SYNC, LIST_GROUPS = 11, 12, 13, 14, 16
CONSUMER_HEARTBEAT = 68


def i8(value):
    return struct.pack(">b", value)


def i16(value):
    return struct.pack(">h", value)


def i32(value):
    return struct.pack(">i", value)


def i64(value):
    return struct.pack(">q", value)


def text(value):
    return i16(-1) if value is None else i16(len(value.encode())) + value.encode()


def blob(value):
    return i32(len(value)) + value


def array(items):
    return i32(len(items)) + b"".join(items)


def varint(value):
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def compact(value):
    return b"\0" if value is None else varint(len(value.encode()) + 1) + value.encode()


def compact_array(items):
    return b"\0" if items is None else varint(len(items) + 1) + b"".join(items)


class Answer:
    def __init__(self, data):
        self.data = data
        self.at = 0

    def take(self, form):
        size = struct.calcsize(form)
        (value,) = struct.unpack_from(form, self.data, self.at)
        self.at += size
        return value

    def i16(self):
        return self.take(">h")

    def i32(self):
        return self.take(">i")

    def i64(self):
        return self.take(">q")

    def bytes(self, size):
        self.at += max(size, 0)
        return self.data[self.at - size : self.at] if size >= 0 else None

    def text(self):
        found = self.bytes(self.i16())
        return None if found is None else found.decode()

    def blob(self):
        return self.bytes(self.i32())

    def varint(self):
        value = shift = 0
        while True:
            byte = self.take(">B")
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def compact(self):
        size = self.varint() - 1
        return None if size < 0 else self.bytes(size).decode()


class Connection:
    def __init__(self, bootstrap, timeout=120):
        host, port = bootstrap.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.number = 0
        self.is_flexible = False

    def send(self, key, version, body, is_flexible=False, client="raw"):
        self.number += 1
        self.is_flexible = is_flexible
        head = i16(key) + i16(version) + i32(self.number) + text(client)
        frame = head + (b"\0" if is_flexible else b"") + body
        self.socket.sendall(i32(len(frame)) + frame)

    def receive(self):
        size = struct.unpack(">i", self.exactly(4))[0]
        answer = Answer(self.exactly(size))
        answer.i32()
        if self.is_flexible:
            answer.varint()
        return answer

    def ask(self, *request, **more):
        self.send(*request, **more)
        return self.receive()

    def exactly(self, size):
        found = b""
        while len(found) < size:
            part = self.socket.recv(size - len(found))
            if not part:
                raise ConnectionError("the server has closed the connection")
            found += part
        return found

    def close(self):
        self.socket.close()


def coordinator(connection, name, kind=0):
    """The address of a group's coordinator (1: a transactional id's), or None when there is none
    yet."""
    answer = connection.ask(FIND_COORDINATOR, 1, text(name) + i8(kind))
    answer.i32()
    code, _, _ = answer.i16(), answer.text(), answer.i32()
    host, port = answer.text(), answer.i32()
    return f"{host}:{port}" if code == 0 else None


class Joined:
    def __init__(self, answer):
        answer.i32()
        self.error = answer.i16()
        self.generation = answer.i32()
        self.protocol = answer.text()
        self.leader = answer.text()
        self.member = answer.text()
        self.members = []
        for _ in range(answer.i32()):
            self.members.append((answer.text(), answer.text(), answer.blob()))


def join_body(group, member="", instance=None, metadata=b"meta", session=30_000, protocol="range"):
    one = text(protocol) + blob(metadata)
    # Whoever doesn't sync within the time for a rebalance is put out.
    head = text(group) + i32(session) + i32(max(session, 60_000)) + text(member) + text(instance)
    return head + text("consumer") + array([one])


def join(connection, group, **more):
    """JoinGroup 5; joins again with the id that it is told."""
    joined = Joined(connection.ask(JOIN, 5, join_body(group, **more)))
    if joined.error == 79:
        more["member"] = joined.member
        joined = Joined(connection.ask(JOIN, 5, join_body(group, **more)))
    return joined


def sync(connection, group, joined, assignments=(), instance=None, generation=None):
    generation = joined.generation if generation is None else generation
    given = [text(member) + blob(data) for member, data in assignments]
    body = text(group) + i32(generation) + text(joined.member) + text(instance) + array(given)
    answer = connection.ask(SYNC, 3, body)
    answer.i32()
    return answer.i16(), answer.blob()


def heartbeat(connection, group, generation, member, instance=None):
    body = text(group) + i32(generation) + text(member) + text(instance)
    answer = connection.ask(HEARTBEAT, 3, body)
    answer.i32()
    return answer.i16()


def leave(connection, group, member, instance=None):
    return leave_all(connection, group, [(member, instance)])


def leave_all(connection, group, members):
    """LeaveGroup 3 of ids and instances: the code of the group, and of each."""
    body = text(group) + array([text(member) + text(instance) for member, instance in members])
    answer = connection.ask(LEAVE, 3, body)
    answer.i32()
    top = answer.i16()
    return [top] + [(answer.text(), answer.text(), answer.i16())[2] for _ in range(answer.i32())]


def commit(connection, group, topic, offset, **more):
    """OffsetCommit 7 of partition 0, or of another one; its error code."""
    partition = i32(more.get("partition", 0)) + i64(offset) + i32(-1)
    partition += text(more.get("metadata", ""))
    body = text(group) + i32(more.get("generation", -1)) + text(more.get("member", ""))
    body += text(more.get("instance")) + array([text(topic) + array([partition])])
    answer = connection.ask(OFFSET_COMMIT, 7, body)
    answer.i32()
    assert answer.i32() == 1
    answer.text()
    assert answer.i32() == 1
    answer.i32()
    return answer.i16()


def committed(connection, group, topic, partition=0):
    body = text(group) + array([text(topic) + array([i32(partition)])])
    answer = connection.ask(OFFSET_FETCH, 5, body)
    answer.i32()
    answer.i32()
    answer.text()
    answer.i32()
    answer.i32()
    return answer.i64()


def groups(connection):
    answer = connection.ask(LIST_GROUPS, 2, b"")
    answer.i32()
    code = answer.i16()
    return code, {(answer.text(), answer.text())[0] for _ in range(answer.i32())}


def consumer_heartbeat(connection, group, member, epoch, topics=None, **more):
    """ConsumerGroupHeartbeat 0 (KIP-848): error, message, member, epoch."""
    owned = more.get("owned", [] if epoch == 0 else None)
    body = compact(group) + compact(member) + i32(epoch) + compact(more.get("instance"))
    body += compact(None) + i32(more.get("rebalance", 60_000 if epoch == 0 else -1))
    names = None if topics is None else [compact(it) for it in topics]
    body += compact_array(names) + compact(more.get("assignor")) + compact_array(owned) + b"\0"
    answer = connection.ask(CONSUMER_HEARTBEAT, 0, body, is_flexible=True)
    answer.i32()
    return answer.i16(), answer.compact(), answer.compact(), answer.i32()


def init_body(name, timeout_ms=60_000):
    return text(name) + i32(timeout_ms)


def init_producer(connection, name, timeout_ms=60_000):
    """InitProducerId 1: error, producer id, epoch."""
    return initialised(connection.ask(INIT_PRODUCER_ID, 1, init_body(name, timeout_ms)))


def initialised(answer):
    answer.i32()
    return answer.i16(), answer.i64(), answer.i16()


def add_partition(connection, name, producer, epoch, topic, partition):
    """AddPartitionsToTxn 0: the partition's error."""
    body = text(name) + i64(producer) + i16(epoch)
    body += array([text(topic) + array([i32(partition)])])
    return last_code(connection.ask(ADD_PARTITIONS_TO_TXN, 0, body))


def last_code(answer):
    """Of an answer that ends with the error of its only partition."""
    answer.at = len(answer.data) - 2
    return answer.i16()


def end_transaction(connection, name, producer, epoch, commits):
    """EndTxn 1."""
    body = text(name) + i64(producer) + i16(epoch) + i8(commits)
    return last_code(connection.ask(END_TXN, 1, body))


def create_topics(connection, topics, is_trial=False):
    """CreateTopics 4 of names and numbers of partitions: error codes in the order of names."""
    asked = [text(name) + i32(count) + i16(1) + array([]) * 2 for name, count in topics]
    answer = connection.ask(CREATE_TOPICS, 4, array(asked) + i32(60_000) + i8(is_trial))
    answer.i32()
    found = [(answer.text(), answer.i16(), answer.text()) for _ in range(answer.i32())]
    return [code for _, code, _ in sorted(found, key=lambda it: it[0])]


def create_partitions(connection, topic, count, is_trial=True):
    """CreatePartitions 1."""
    asked = array([text(topic) + i32(count) + i32(-1)])
    answer = connection.ask(CREATE_PARTITIONS, 1, asked + i32(60_000) + i8(is_trial))
    answer.i32()
    assert answer.i32() == 1
    answer.text()
    return answer.i16()


def delete_records(connection, topic, partition, offset):
    """DeleteRecords 1."""
    asked = array([text(topic) + array([i32(partition) + i64(offset)])])
    return last_code(connection.ask(DELETE_RECORDS, 1, asked + i32(60_000)))


def batch(value, now_ms, producer=-1, epoch=-1, sequence=-1, is_transactional=False):
    """A batch of one record, as it is stored."""
    record = b"\0" + zigzag(0) + zigzag(0) + zigzag(-1) + zigzag(len(value)) + value + zigzag(0)
    record = zigzag(len(record)) + record
    attributes = 1 << 4 if is_transactional else 0
    rest = i16(attributes) + i32(0) + i64(now_ms) + i64(now_ms)
    rest += i64(producer) + i16(epoch) + i32(sequence) + i32(1) + record
    rest = i32(-1) + i8(2) + struct.pack(">I", crc32c(rest)) + rest
    return i64(0) + i32(len(rest)) + rest


def zigzag(value):
    return varint(value << 1 ^ value >> 63)


def produce(connection, topic, partition, records, transaction=None, **more):
    """Produce 7: error, base offset."""
    topics = array([text(topic) + array([i32(partition) + blob(records)])])
    body = text(transaction) + i16(-1) + i32(30_000) + topics
    answer = connection.ask(PRODUCE, 7, body, **more)
    assert answer.i32() == 1
    answer.text()
    assert answer.i32() == 1
    answer.i32()
    return answer.i16(), answer.i64()


def produce_twice(connection, topic, records):
    """Produce 7 with two elements for partition 0 of a topic: the error codes."""
    parts = array([i32(0) + blob(records)] * 2)
    body = text(None) + i16(-1) + i32(30_000) + array([text(topic) + parts])
    answer = connection.ask(PRODUCE, 7, body)
    codes = []
    for _ in range(answer.i32()):
        answer.text()
        for _ in range(answer.i32()):
            answer.i32()
            codes.append(answer.i16())
            answer.bytes(24)
    return codes


def brokers(connection):
    """Metadata 1 of no topics: the addresses of all brokers."""
    answer = connection.ask(METADATA, 1, array([]))
    found = []
    for _ in range(answer.i32()):
        answer.i32()
        found.append(f"{answer.text()}:{answer.i32()}")
        answer.text()
    return found
