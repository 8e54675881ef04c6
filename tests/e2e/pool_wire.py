"""A client that speaks the protocols of src/wire by itself, and says whatever
it is told to: batches, requests, and bytes that are neither."""

import collections
import os
import re
import socket
import struct

from hello_wire import BYE, TIMEOUT_S, come_in

# src/wire/frame.h
FRAMES = (
    "HELLO CHALLENGE PROOF WELCOME BYE PING PONG ATTACH ATTACHED WITHDRAW "
    "DETACH BATCH BATCH_DONE MESSAGE QUEUE_PAIR BATCH_PART CONTROL CREDIT RING "
    "BELL")
FRAME = {name: number for number, name in enumerate(FRAMES.split(), 1)}
READ, WRITE, CAS, FAA, FLUSH, SEND = range(1, 7)  # include/reef/reef.h

# src/wire/pool.h


def pool_version():
    """What that says: whoever raises it need not come here."""
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)),
                           "../../src/wire/pool.h"), encoding="ascii") as file:
        return int(re.search(r"define REEF_POOL_VERSION (\d+)",
                             file.read()).group(1))


POOL_VERSION = pool_version()
REQUEST, ANSWER, NOTE = range(1, 4)
KINDS = (
    "SESSION_OPEN SESSION_RESUME SESSION_CLOSE SPACE_OPEN SPACE_CLOSE "
    "SPACE_EXTENTS SPACE_DROP SPACE_QUOTA SPACE_REVOKE SPACE_TOKEN EXTENT_ADD "
    "EXTENT_REMOVE NAME_BIND NAME_REPLACE NAME_UNBIND NAME_LOOKUP NAME_LIST "
    "STATUS LIST USER_ADD USER_REMOVE NODE_DRAIN NODE_RECLAIM NODE_REMOVE "
    "SESSION_END SETTING NODE_REGISTER NODE_EXTENTS NODE_READY NODE_PULSE "
    "EXTENT_CREATE EXTENT_DROP EXTENT_CLOSE EXTENT_REOPEN EXTENT_PULL FENCE "
    "NOTICE RECOVER TIME HURRY SPACE_FORGET SETTLE END JANITOR CONFIRM "
    "USER_ROTATE USER_LIMIT NODE_ADD SPACE_SAVE SPACE_RESTORE")
KIND = {name: number for number, name in enumerate(KINDS.split(), 1)}
MUTATING = {KIND[name] for name in (
    "SPACE_OPEN SPACE_DROP SPACE_QUOTA SPACE_REVOKE EXTENT_ADD EXTENT_REMOVE "
    "NAME_BIND NAME_REPLACE NAME_UNBIND USER_ADD USER_REMOVE NODE_DRAIN "
    "NODE_REMOVE SETTING SPACE_FORGET USER_ROTATE USER_LIMIT NODE_ADD "
    "SPACE_RESTORE").split()}
CREATE = 1  # of space_open.flags
ROW_EXTENT, ROW_NODE, ROW_LINK = 1, 2, 9

Token = collections.namedtuple("Token", "space rights era secret")
NO_TOKEN = Token(0, 0, 0, bytes(32))
Extent = collections.namedtuple(
    "Extent", "number ordinal space node epoch state size copy twin keys "
    "read_keys")
Node = collections.namedtuple("Node", "number secret addresses incarnation")


def text(value):
    """A text as messages have it."""
    return struct.pack("<H", len(value)) + value


def space_open(name=b"", flags=0, space=0, token=NO_TOKEN):
    return text(name) + struct.pack(
        "<IBBQIIBI32s", flags, 0, 0, 0, 0, token.space or space, token.rights,
        token.era, token.secret)


def rows_of(data):
    """The extents and nodes among rows (src/wire/row.h)."""
    extents, nodes = [], []
    while data:
        if data[0] == ROW_EXTENT:
            form = "<IIIIIBQQIB4Q4Q"
            fields = struct.unpack_from(form, data, 1)
            extents.append(Extent(*fields[:9], fields[10:14], fields[14:]))
            data = data[1 + struct.calcsize(form):]
            continue
        assert data[0] == ROW_NODE, data[0]
        form = "<IBQQQQQIQBQ32s"
        fields = struct.unpack_from(form, data, 1)
        data = data[1 + struct.calcsize(form):]
        texts = []
        for _ in range(2):
            size = struct.unpack_from("<H", data)[0]
            texts.append(data[2:2 + size].decode())
            data = data[2 + size:]
        nodes.append(Node(fields[0], fields[11], texts[1], fields[2]))
    return extents, nodes


def frame(kind, payload=b"", tag=0, length=None, flags=0):
    """A frame, or one that lies about its length."""
    return struct.pack("<IBBHQ", len(payload) if length is None else length,
                       kind, flags, 0, tag) + payload


def operation(kind, key, offset=0, length=8):
    return struct.pack("<BBHIQQ", kind, 0, 0, length, key, offset)


def batch(operations, data=b"", count=None, tag=1):
    """A BATCH, or one that lies about how many operations it has."""
    return frame(FRAME["BATCH"], struct.pack(
        "<II", len(operations) if count is None else count, 0) +
                 b"".join(operations) + data, tag)


def message(kind, body=b"", sequence=0, number=1, version=POOL_VERSION,
            type=REQUEST):  # pylint: disable=redefined-builtin
    """A message of the pool, in a BATCH that SENDs it."""
    said = struct.pack("<BBHIiIQ", version, type, kind, number, 0, sequence,
                       0) + body
    return batch([operation(SEND, 0, 0, len(said))], said)


class Link:
    """A connection that was let in."""

    def __init__(self, port, identity, session, key):
        self.peer = socket.create_connection(("127.0.0.1", port), TIMEOUT_S)
        try:
            self.wire = come_in(self.peer, identity, session, key)
        except BaseException:
            self.peer.close()
            raise
        self.sequence = self.number = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.peer.close()

    def send(self, data):
        self.peer.sendall(data)

    def receive(self):
        """Kind and payload of the next frame. A peer that goes has said
        BYE."""
        try:
            header = self.wire.take(16)
            length, kind = struct.unpack("<IB", header[:5]) if header else (
                0, BYE)
            payload = self.wire.take(length)
            if kind == FRAME["PING"]:
                self.send(frame(FRAME["PONG"]))
        except ConnectionError:
            return BYE, b""
        return kind, payload or b""

    def wait_for(self, *kinds):
        kind, payload = self.receive()
        while kind not in kinds:
            assert kind != BYE, payload
            kind, payload = self.receive()
        return payload

    def end_reason(self):
        """Wait until the other side ends this, and tell why; None: it does
        not say."""
        payload = self.wait_for(BYE)
        return struct.unpack("<I", payload[:4])[0] if payload else None

    def run(self, operations, data=b""):
        """How many operations of a batch were done, and the status."""
        self.send(batch(operations, data))
        return struct.unpack("<Ii", self.wait_for(FRAME["BATCH_DONE"])[-8:])

    def read(self, key, offset, length):
        """What is there, in a word or a few."""
        self.send(batch([operation(READ, key, offset, length)]))
        said = self.wait_for(FRAME["BATCH_DONE"])
        assert len(said) == length + 8, said
        return said[:length]

    def post(self, kind, body=b"", **more):
        """Send a request; its number."""
        self.number += 1
        if kind in MUTATING:
            self.sequence += 1
        self.send(message(kind, body, self.sequence if kind in MUTATING else 0,
                          self.number, **more))
        return self.number

    def answer(self):
        """Number, status and body of the next answer."""
        while True:
            said = self.wait_for(FRAME["MESSAGE"])
            _, kind, _, number, status = struct.unpack("<BBHIi", said[:12])
            if kind == ANSWER:
                return number, status, said[24:]

    def ask(self, kind, body=b"", **more):
        """Send a request; status and body of its answer."""
        asked = self.post(kind, body, **more)
        number = 0
        while number != asked:
            number, status, body = self.answer()
        return status, body


class Session(Link):
    """A session at a broker, of the user whose credential that is."""

    provisional = 0x8000
    renewals = 0

    def __init__(self, port, credential):
        """A credential is the user's number, era and key."""
        Session.provisional = 0x8000 | (Session.provisional + 1) & 0x7fff
        super().__init__(port, "user:%d:%d" % credential[:2],
                         Session.provisional << 16 | 1, credential[2])

    def open(self, program=b"hostile"):
        """Ask for a session; the status."""
        status, body = self.ask(KIND["SESSION_OPEN"],
                                text(program) + struct.pack("<II", 1, 0))
        if status == 0:
            (self.id, self.secret, self.ttl_ns, self.renewal_key,
             self.table_key) = struct.unpack_from("<I32sQQQ", body)
        return status

    def opened(self):
        status = self.open()
        assert status == 0, status
        return self

    def open_space(self, name=b"", flags=0, space=0, token=NO_TOKEN):
        """Status, number, extents and nodes of a space."""
        status, body = self.ask(KIND["SPACE_OPEN"],
                                space_open(name, flags, space, token))
        if status:
            return status, 0, [], []
        form = "<IBQBBQIII"
        return (0, struct.unpack_from("<I", body)[0],
                *rows_of(body[struct.calcsize(form):]))

    def add_extent(self, space, size=0):
        """Status, extents and nodes of memory for a space."""
        status, body = self.ask(KIND["EXTENT_ADD"],
                                struct.pack("<IQI", space, size, 0))
        return (status, *rows_of(body if status == 0 else b""))

    def renew(self, epoch=None, waiting=0):
        """Say that it lives, and uses nothing older than that epoch, or than
        the present one (src/wire/table.h); the status."""
        if epoch is None:
            epoch = self.epoch()
        self.renewals += 1
        return self.run([operation(WRITE, self.renewal_key, 0, 16)],
                        struct.pack("<QQ", self.renewals << 32 |
                                    epoch & (2 ** 32 - 1), waiting))[1]

    def epoch(self):
        return struct.unpack("<Q", self.read(self.table_key, 24, 8))[0]


class Memory(Link):
    """A session's link to the node of an extent, and the key of that."""

    def __init__(self, session, extent, nodes):
        node = next(node for node in nodes if node.number == extent.node)
        places = node.addresses.split()
        door = next(i for i, place in enumerate(places)
                    if place.startswith("tcp:"))
        self.port = int(places[door].rsplit(":", 1)[1])
        self.door = door
        self.key, self.size = extent.keys[door], extent.size
        super().__init__(self.port, "session", session.id, node.secret)
