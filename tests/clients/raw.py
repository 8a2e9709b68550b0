"""Requests written and answers read by hand: what no client library would send.

Only the fixed (not flexible) versions, but for ConsumerGroupHeartbeat, which has no other.
"""

import socket
import struct

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

    def send(self, key, version, body, is_flexible=False):
        self.number += 1
        self.is_flexible = is_flexible
        head = i16(key) + i16(version) + i32(self.number) + text("raw")
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


def coordinator(connection, group):
    """The address of a group's coordinator, or None when there is none yet."""
    answer = connection.ask(FIND_COORDINATOR, 1, text(group) + b"\0")
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
    body = text(group) + array([text(member) + text(instance)])
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
