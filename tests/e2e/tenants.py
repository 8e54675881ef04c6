"""tenants.py REEF WORKER - an ordinary user who means harm, and two at work.

Mallory has a credential and no scruples: she speaks the wire protocol by
herself (pool_wire.py), half-sends, hoards, forges, and does not listen. Alice,
over shm, and bob, over tcp, check every byte of theirs all the while
(worker.c): they must not notice. Whatever mallory is refused must be refused by
the error that is named here.

The attacks are made one after the other, on one pool.
"""

import contextlib
import errno
import json
import os
import random
import re
import signal
import socket
import struct
import sys
import time

from checks import run_each
from growth import KIB, MIB, Growth, resident
from hello_wire import Refused, fields_of
from pool_processes import Workers, free_port, until
from pool_wire import (
    ANSWER, BYE, CAS, CREATE, FAA, FLUSH, FRAME, KIND, NOTE, POOL_VERSION, READ,
    ROW_LINK, SEND, WRITE, Link, Memory, Session, Token, batch, frame, message,
    operation, text)

REEF, WORKER = (os.path.abspath(name) for name in sys.argv[1:3])
# include/reef/error.h
EKEY, EFENCED, EAUTH, EVERSION, EPROTO, ENOTDURABLE = (
    5004, 5005, 5008, 5009, 5010, 5011)
LIMITS = {"sessions": 48, "links": 64, "spaces": 12, "extents": 8, "names": 300}
NODE_TTL_S = 3
UNUSED = 2 * MIB  # where nothing is in mallory's memory
GROWTH_MAX = 64 * MIB  # of the servers, in any attack
LEFT_MAX = 40 * MIB  # after all of them: an allocator keeps what it had once


class Tenants(Workers):
    """A pool in one process; alice and bob at work in it, and mallory."""

    pause_us = 0  # of the tenants, so often (worker.c)

    def __enter__(self):
        self.port = free_port()
        self.up = self.start(
            "up", "up", "--lend", "160M", "--extent-size", "4M", "--ttl", "3s",
            "--node-ttl", "%ds" % NODE_TTL_S, "--unread", "16M", "--listen",
            "tcp:127.0.0.1:%d" % self.port).saw("is up.")
        for name in ("alice", "bob", "mallory"):
            self.do("user", "add", name, self.path(name))
        self.do("user", "limit", "mallory",
                *("%s=%d" % limit for limit in LIMITS.items()))
        self.tenants = [self.tenant("alice", "shm"), self.tenant("bob", "tcp")]
        self.sessions = [self.session_of(tenant)["session"]
                         for tenant in self.tenants]
        # She has memory with something in it: nobody gives that back.
        self.do("space", "create", "mallory", **self.of("mallory"))
        self.do("map", "put", "mallory", "m", "key", "value",
                **self.of("mallory"))
        self.resident, self.rounds = resident(self.up), 0
        return self

    def path(self, name):
        return os.path.join(self.home, name)

    def of(self, name):
        """What makes a command that user's."""
        return {"REEF_CREDENTIAL": self.path(name)}

    def tenant(self, name, fabric):
        self.do("space", "create", name, **self.of(name))
        self.do("map", "put", name, "m", "key", "of " + name, **self.of(name))
        return self.worker("churn", name, 64, 8192, fabrics=fabric, name=name,
                           WORKER_PAUSE=str(self.pause_us),
                           **self.of(name)).saw("busy")

    def credential(self, name="mallory"):
        with open(self.path(name), encoding="ascii") as stream:
            return fields_of(stream.read(), "II")

    def mallory(self):
        """A session of hers."""
        return Session(self.port, self.credential()).opened()

    def memory(self, stack):
        """A session of hers, in her space, and a link to its memory."""
        session = stack.enter_context(self.mallory())
        status, space, extents, nodes = session.open_space(b"mallory")
        assert status == 0, status
        return session, space, stack.enter_context(
            Memory(session, extents[0], nodes))

    def leave(self, sessions):
        """End all that she has, so that the next attack begins with none."""
        for session in sessions:
            session.post(KIND["SESSION_CLOSE"])
        until("her sessions end", lambda: self.user()["sessions"]["use"] == 0)

    def token(self, name, rights):
        """A token for a tenant's space, given by that tenant."""
        told = self.do("space", "token", name, rights, **self.of(name))
        return Token(*fields_of(told, "IBI"))

    def user(self, name="mallory"):
        return next(row for row in json.loads(self.do(
            "user", "list", "--json")) if row["name"] == name)

    def files(self):
        """How many descriptors the servers have."""
        return len(os.listdir("/proc/%d/fd" % self.up.child.pid))

    def rounds_of(self, tenant):
        """How far a tenant is, by a round that ends after now."""
        said = len(re.findall(r"round \d", tenant.out))
        tenant.send(signal.SIGUSR1)
        until(tenant.name + " goes on", lambda: (
            tenant.child.poll() is not None or
            len(re.findall(r"round \d+\n", tenant.out)) > said))
        assert tenant.child.poll() is None, (tenant.name, tenant.out)
        return int(re.findall(r"round (\d+)\n", tenant.out)[-1])

    def nobody_noticed(self):
        for tenant in self.tenants:
            assert self.rounds_of(tenant) < self.rounds_of(tenant)
            assert "error" not in tenant.out, tenant.out
            assert tenant.error == "", tenant.error
        told = self.status()
        assert [row["state"] for row in told["nodes"]] == ["ok"], told["nodes"]
        assert not any(row["lost"] for row in told["spaces"]), told["spaces"]
        alive = [row["session"] for row in told["sessions"]
                 if row["state"] == "alive"]
        assert all(session in alive for session in self.sessions), told
        assert self.up.child.poll() is None


@contextlib.contextmanager
def attack(pool):
    """Within it the servers stay small; after it nobody has noticed."""
    with Growth(pool.up) as growth, contextlib.ExitStack() as stack:
        yield stack
        pool.nobody_noticed()
    growth.is_below(GROWTH_MAX)


# --- who comes first ---


def attack_names_of_doors(pool):
    """Names that programs take without being told are the owner's, before and
    after the owner has come."""
    with attack(pool) as stack:
        session = stack.enter_context(pool.mallory())
        for name in (b"redis", b"sync"):
            status = session.open_space(name, CREATE)[0]
            assert status == -errno.EPERM, (name, status)
        pool.do("lock", "owners", "true")
        status = session.open_space(b"sync", CREATE)[0]
        assert status == -errno.EACCES, status


# --- half-sent ---


def attack_half_sent(pool):
    """WRITEs that do not end keep memory in use, and revocations by the hundred
    wait for it: pulses of the node find their way nevertheless."""
    with attack(pool) as stack:
        first, space, memory = pool.memory(stack)
        links, halves = [first], [memory]
        for _ in range(15):
            session, _, memory = pool.memory(stack)
            links.append(session)
            halves.append(memory)
        for half in halves:
            half.send(batch([operation(WRITE, half.key, UNUSED, MIB)],
                            bytes(MIB))[:4 * KIB])
        met, end = set(), time.monotonic() + NODE_TTL_S + 1
        while time.monotonic() < end:
            for link in links:
                for _ in range(64):
                    link.post(KIND["SPACE_REVOKE"], struct.pack("<I", space))
            for link in links:
                for _ in range(64):
                    met.add(link.answer()[1])
                link.renew()
        assert met == {0, -errno.EBUSY}, met
        assert {half.end_reason() for half in halves} == {None}
        pool.leave(links)


def attack_settles(pool):
    """She has lost links without end, and asks for each of them whether it is
    settled; some of them are to a life of the node that never was."""
    with attack(pool) as stack:
        sessions, met = [], set()
        for _ in range(16):
            session = stack.enter_context(pool.mallory())
            _, _, _, nodes = session.open_space(b"mallory")
            sessions.append(session)
        lives = (nodes[0].incarnation, nodes[0].incarnation ^ 1)
        for count in range(8):
            for session in sessions:
                for number in range(64):
                    session.post(KIND["SETTLE"], struct.pack(
                        "<BIIQB", ROW_LINK, nodes[0].number,
                        64 * count + number + 1, lives[number % 2], 0))
            for session in sessions:
                for _ in range(64):
                    met.add(session.answer()[1])
                session.renew()
        assert met == {0, -errno.EBUSY}, met
        pool.leave(sessions)


# --- greedy ---


def take_all(ask, limit):
    """Ask until it is refused, and see that it is by the limit."""
    for count in range(2 * limit):
        status = ask(count)
        if status:
            assert status == -errno.EDQUOT, (ask, count, status)
            return
    raise AssertionError((ask, "is never refused"))


def bind(session, space, name):
    """Bind a name; the status."""
    assert session.renew() == 0
    return session.ask(KIND["NAME_BIND"], struct.pack("<I", space) +
                       text(name) + struct.pack("<Q", 1))[0]


def attack_greedy(pool):
    """She takes of everything until she is told that it is enough; the owner,
    and others, still get theirs."""
    with attack(pool) as stack:
        session = stack.enter_context(pool.mallory())
        spaces, others = [], []

        def open_space(count):
            session.renew()
            status, space, _, _ = session.open_space(b"g%d" % count, CREATE)
            spaces.append(space)
            return status

        def open_link(_):
            try:
                others.append(stack.enter_context(
                    Session(pool.port, pool.credential())))
                session.renew()
            except Refused as refused:
                return -refused.reason
            return 0

        def open_session(_):
            assert session.renew() == 0 and open_link(0) == 0
            return others[-1].open()

        take_all(open_space, LIMITS["spaces"])
        take_all(lambda _: session.add_extent(spaces[0])[0], LIMITS["extents"])
        take_all(lambda count: bind(session, spaces[0], b"name %d" % count),
                 LIMITS["names"])
        take_all(open_session, LIMITS["sessions"])
        take_all(open_link, LIMITS["links"])
        use = pool.user()
        assert all(use[what]["use"] <= limit and use[what]["limit"] == limit
                   for what, limit in LIMITS.items()), use
        pool.do("lock", "owners", "true")
        pool.do("space", "create", "more", **pool.of("alice"))
        for space in spaces[:-1]:
            session.renew()
            status, _ = session.ask(KIND["SPACE_DROP"],
                                    struct.pack("<I", space))
            assert status == 0, status
        pool.leave([session, *others])
    until("her links are gone", lambda: pool.user()["links"]["use"] == 0)


# --- forging ---


def attack_read_token(pool):
    """With a token to read, and the key that it gave her, she writes."""
    with attack(pool) as stack:
        session = stack.enter_context(pool.mallory())
        status, space, extents, nodes = session.open_space(
            b"alice", token=pool.token("alice", "read"))
        assert status == 0 and extents, status
        assert not any(any(extent.read_keys) for extent in extents), extents
        for extent in extents:
            memory = stack.enter_context(Memory(session, extent, nodes))
            key = memory.key
            before = memory.read(key, 0, 64)
            for forged, data in (
                    (operation(WRITE, key), bytes(8)),
                    (operation(CAS, key), bytes(8) + before[:8]),
                    (operation(FAA, key), b"\1" + bytes(7)),
                    (operation(WRITE, key, 0, 0), b"")):
                assert memory.run([forged], data) == (0, -errno.EACCES)
                assert memory.run([operation(READ, key), forged], data) == (
                    1, -errno.EACCES)
        for kind, body in (
                ("EXTENT_ADD", struct.pack("<IQI", space, 0, 0)),
                ("NAME_BIND", struct.pack("<I", space) + text(b"n") +
                 struct.pack("<Q", 1)),
                ("SPACE_TOKEN", struct.pack("<IB", space, 2)),
                ("SPACE_REVOKE", struct.pack("<I", space)),
                ("SPACE_QUOTA", struct.pack("<IQ", space, 1)),
                ("SPACE_FORGET", struct.pack("<I", space)),
                ("EXTENT_REMOVE", struct.pack("<II", space,
                                              extents[0].number)),
                ("SPACE_DROP", struct.pack("<I", space))):
            status, _ = session.ask(KIND[kind], body)
            assert status == -errno.EACCES, (kind, status)
        # What everybody reads at the broker is nobody's to write, either.
        assert session.run([operation(WRITE, session.table_key)],
                           bytes(8)) == (0, -errno.EACCES)


def attack_keys(pool):
    """Keys, offsets and lengths that are not hers."""
    with attack(pool) as stack:
        _, _, memory = pool.memory(stack)
        key, size = memory.key, memory.size
        dice = random.Random(1)
        keys = [key ^ 1 << bit for bit in range(64)] + [
            dice.getrandbits(64) | 1 for _ in range(1000)]
        for forged in keys:
            memory.send(batch([operation(READ, forged)]))
        for _ in keys:
            said = memory.wait_for(FRAME["BATCH_DONE"])
            assert struct.unpack("<Ii", said) == (0, -EKEY), said
        memory.send(frame(FRAME["ATTACH"], struct.pack("<Q", key ^ 2), 7))
        said = memory.wait_for(FRAME["ATTACHED"])
        assert struct.unpack("<Qi", said[:12]) == (key ^ 2, -EKEY), said
        for offset in (size, size - 4, 2 ** 64 - 8, 2 ** 64 - 1, 2 ** 63):
            for kind, data in ((READ, b""), (WRITE, bytes(8)), (FLUSH, b"")):
                assert memory.run([operation(kind, key, offset)], data) == (
                    0, -errno.ERANGE), (kind, offset)
        for offset in (size, 2 ** 64 - 8):
            for kind, data in ((CAS, bytes(16)), (FAA, bytes(8))):
                assert memory.run([operation(kind, key, offset)], data) == (
                    0, -errno.ERANGE), (kind, offset)
        assert memory.run([operation(READ, key, 8, size)]) == (
            0, -errno.ERANGE)
        assert memory.run([operation(FLUSH, key)]) == (0, -ENOTDURABLE)


def malformed_frames(key):
    """Frames that no good client sends (src/wire/frame.h, batch.h)."""
    read = operation(READ, key)
    yield from (
        frame(FRAME["BATCH"], length=2 ** 32 - 1),
        frame(FRAME["BATCH"], length=2 ** 30 + 1),
        frame(FRAME["BATCH"], bytes(8)),
        batch([read], count=0), batch([read], count=2),
        batch([read] * 257), batch([read], count=2 ** 32 - 1),
        batch([read], bytes(8)),
        batch([operation(WRITE, key)]),
        batch([operation(WRITE, key)], bytes(7)),
        batch([operation(WRITE, key, 0, 2 ** 32 - 1)], bytes(8)),
        batch([operation(READ, key, 0, (16 << 20) + 1)]),
        batch([operation(CAS, key, 0, 16)], bytes(16)),
        batch([operation(CAS, key, 4)], bytes(16)),
        batch([operation(FAA, key, 4)], bytes(8)),
        batch([operation(0, key)]), batch([operation(7, key)]),
        batch([operation(READ, 0)]),
        batch([operation(SEND, key)], bytes(8)),
        batch([operation(SEND, 0, 0, 64 * KIB + 1)], bytes(64 * KIB + 1)),
        batch([b"\1\2" + read[2:]]), batch([b"\1\0\1\0" + read[4:]]),
        frame(FRAME["PING"], flags=1), frame(FRAME["PING"], b"p"),
        frame(FRAME["PING"])[:6] + b"\1\0" + bytes(8),
        frame(0), frame(21), frame(255),
        frame(FRAME["ATTACH"], bytes(8)), frame(FRAME["DETACH"], bytes(7)))
    for name in ("HELLO", "CHALLENGE", "PROOF", "WELCOME", "ATTACHED",
                 "WITHDRAW", "BATCH_DONE", "BATCH_PART", "MESSAGE",
                 "QUEUE_PAIR", "CONTROL", "CREDIT", "RING", "BELL"):
        yield frame(FRAME[name], bytes(8))


def attack_malformed(pool):
    """Each costs her a link, at the broker and at the node, and no more."""
    with attack(pool) as stack:
        session, space, memory = pool.memory(stack)
        _, _, extents, nodes = session.open_space(b"mallory")
        for forged in malformed_frames(memory.key):
            session.renew()
            with Memory(session, extents[0], nodes) as link:
                link.send(forged)
                assert link.end_reason() == EPROTO, forged[:64]
            with Session(pool.port, pool.credential()) as link:
                link.send(forged)
                assert link.end_reason() == EPROTO, forged[:64]
        # Good ones with a byte that is not, or without their end.
        dice = random.Random(2)
        good = batch([operation(READ, memory.key, 0, 64),
                      operation(WRITE, memory.key, UNUSED)], bytes(8))
        asked = message(KIND["SPACE_EXTENTS"], struct.pack("<IQI", space, 0, 0))
        for _ in range(150):
            session.renew()
            for whole, make in (
                    (good, lambda: Memory(session, extents[0], nodes)),
                    (asked, lambda: Session(pool.port, pool.credential()))):
                forged = bytearray(whole)
                forged[dice.randrange(len(forged))] ^= 1 << dice.randrange(8)
                with make() as link:
                    link.send(forged[:dice.randrange(1, 2 * len(forged))])
                    link.peer.shutdown(socket.SHUT_WR)
                    while link.receive()[0] != BYE:
                        pass


def attack_messages(pool):
    """What is no request is dropped, and what is none of this version, or of no
    kind, is told so (src/pool/rpc.h, src/wire/pool.h)."""
    with attack(pool) as stack:
        session = stack.enter_context(pool.mallory())
        for kind in (0, max(KIND.values()) + 1, 2 ** 16 - 1):
            assert session.ask(kind)[0] == -EVERSION, kind
        for version in (0, POOL_VERSION - 1, POOL_VERSION + 1, 255):
            assert session.ask(KIND["TIME"], version=version)[0] == -EVERSION
        dice = random.Random(3)
        for forged in (
                message(KIND["TIME"], b"too long", number=9),
                message(KIND["SPACE_OPEN"], b"\xff\xff", number=9),
                message(KIND["NAME_LOOKUP"], bytes(5), number=9),
                message(KIND["SETTLE"], b"\xff" * 40, number=9),
                message(KIND["TIME"], type=ANSWER, number=9),
                message(KIND["TIME"], type=NOTE, number=9),
                message(KIND["TIME"], type=77, number=9),
                message(KIND["TIME"], number=0),
                message(KIND["HURRY"], number=9),
                batch([operation(SEND, 0, 0, 0)]),
                *(batch([operation(SEND, 0, 0, size)], dice.randbytes(size))
                  for size in range(1, 200))):
            session.send(forged)
        # The next one is answered, and before it at most what chance has made
        # a request of another version.
        asked, number = session.post(KIND["TIME"]), 0
        while number != asked:
            number, status, _ = session.answer()
            assert status == (0 if number == asked else -EVERSION), status


def attack_fields(pool):
    """Requests that are well formed, and ask for what cannot be."""
    with attack(pool) as stack:
        session, space, _ = pool.memory(stack)
        for size in (1, 4095, 4097, 2 ** 32 + 4096, 2 ** 63, 2 ** 64 - 4096):
            status = session.add_extent(space, size)[0]
            assert status == -errno.EINVAL, (size, status)
        status = session.add_extent(space, 2 ** 32)[0]
        assert status == -errno.ENOSPC, status
        for name, wanted in (
                (b"n" * 60000, -errno.ENAMETOOLONG), (b"a\0b", -errno.EINVAL),
                (b"\x1b[31m", -errno.EINVAL), (b"\xc2\x9b31m", -errno.EINVAL),
                (b"\xff\xfe", -errno.EINVAL)):
            status = session.open_space(name, CREATE)[0]
            assert status == wanted, (name[:8], status)
            status = bind(session, space, name)
            assert status == wanted, (name[:8], status)
        for kind, body, wanted in (
                ("SPACE_REVOKE", struct.pack("<I", 2 ** 32 - 1), errno.ENOENT),
                ("SPACE_DROP", struct.pack("<I", 0), errno.ENOENT),
                ("SPACE_TOKEN", struct.pack("<IB", space, 0), errno.EINVAL),
                ("SPACE_TOKEN", struct.pack("<IB", space, 255), errno.EACCES),
                ("LIST", struct.pack("<BI", 200, 0), errno.EINVAL),
                ("SETTLE", b"", errno.EINVAL),
                ("SESSION_OPEN", text(b"again") + bytes(8), errno.EBUSY)):
            status, _ = session.ask(KIND[kind], body)
            assert status == -wanted, (kind, status)


# --- who does not listen ---


class Deaf:
    """Asks the same over and over, and reads no answer."""

    def __init__(self, link, question):
        self.link, self.question, self.rest = link, question, b""
        link.peer.setblocking(False)

    def ask(self):
        """Send as much as is taken; whether that was anything."""
        self.rest = self.rest or self.question
        try:
            sent = self.link.peer.send(self.rest)
        except (BlockingIOError, ConnectionError):
            return False
        self.rest = self.rest[sent:]
        return True


def attack_unread(pool):
    """She asks for much, on many links, and reads nothing."""
    with attack(pool) as stack:
        session, space, memory = pool.memory(stack)
        for count in range(250):
            status = bind(session, space, b"%0100d" % count)
            assert status == 0, status
        _, _, extents, nodes = session.open_space(b"mallory")
        before = pool.files()
        much = batch([operation(READ, memory.key, 0, memory.size)] * 16) * 64
        listing = message(KIND["NAME_LIST"], struct.pack("<I", space) +
                          text(b"") + text(b"")) * 64
        deaf = []
        for _ in range(16):
            session.renew()
            deaf.append(Deaf(stack.enter_context(
                Memory(session, extents[0], nodes)), much))
            other = stack.enter_context(pool.mallory())
            assert other.open_space(b"mallory")[0] == 0
            deaf.append(Deaf(other, listing))
        # Until nothing is taken of anybody for a while, within a bound: a
        # broker ignores what it cannot even refuse, and reads on.
        idle = passes = 0
        while idle < 20 and passes < 100:
            idle = 0 if sum(each.ask() for each in deaf) else idle + 1
            passes += 1
            time.sleep(0.01)
        until("the node and the broker end these links",
              lambda: pool.files() <= before)


# --- what is not hers ---


def attack_spaces_of_others(pool):
    """Without a token, or with one that is another space's, or altered."""
    reading = pool.token("alice", "read")
    other = pool.token("bob", "write")
    forged = [
        None, other, other._replace(space=reading.space),
        reading._replace(rights=2), reading._replace(rights=3),
        reading._replace(rights=7), reading._replace(rights=255),
        reading._replace(era=reading.era + 1),
        reading._replace(secret=bytes(32)),
        reading._replace(secret=pool.credential()[2]),
        *(reading._replace(secret=bytes(
            byte ^ (i == at) for i, byte in enumerate(reading.secret)))
          for at in range(32))]
    with attack(pool) as stack:
        session = stack.enter_context(pool.mallory())
        assert session.open_space(space=reading.space)[0] == -errno.EACCES
        for token in forged:
            status, _, extents, nodes = session.open_space(
                b"alice", **({"token": token} if token else {}))
            assert status == -errno.EACCES, (status, token and token[:3])
            assert not extents + nodes, (extents, nodes)
        for kind, body in (
                ("SPACE_EXTENTS", "<IQI"), ("EXTENT_ADD", "<IQI"),
                ("SPACE_TOKEN", "<IB"), ("SPACE_DROP", "<I"),
                ("SPACE_REVOKE", "<I"), ("SPACE_FORGET", "<I"),
                ("EXTENT_REMOVE", "<II"), ("NAME_LOOKUP", "<IH"),
                ("NAME_LIST", "<IHH")):
            fields = [reading.space] + [0] * (len(body) - 2)
            if kind == "NAME_LOOKUP":
                body, fields = "<IH1s", [reading.space, 1, b"m"]
            if kind == "SPACE_TOKEN":
                fields[1] = 1
            status, _ = session.ask(KIND[kind], struct.pack(body, *fields))
            assert status == -errno.EACCES, (kind, status)


OWNERS = {
    "USER_ADD": text(b"eve"), "USER_REMOVE": struct.pack("<II", 1, 1),
    "USER_ROTATE": struct.pack("<IQ", 0, 0),
    "USER_LIMIT": struct.pack("<IBQ", 3, 0, 2 ** 64 - 1),
    "NODE_ADD": text(b"eve"), "NODE_DRAIN": struct.pack("<II", 1, 0),
    "NODE_RECLAIM": struct.pack("<IQ", 1, MIB),
    "NODE_REMOVE": struct.pack("<I", 1), "SESSION_END": struct.pack("<I", 1),
    "SETTING": text(b"sessions_max") + struct.pack("<QI", 1, 0),
    "JANITOR": b""}
NODES = {
    "NODE_REGISTER": struct.pack("<QQQ", 1, 1, MIB) + text(b"") + bytes(60),
    "NODE_EXTENTS": b"", "NODE_READY": b"",
    "NODE_PULSE": struct.pack("<QQQIQ", 1, 1, 1, 1, 1)}
BROKERS = {
    "EXTENT_CREATE": struct.pack("<IIIQQ", 1, 1, 1, MIB, 1),
    "EXTENT_DROP": struct.pack("<I", 1),
    "EXTENT_CLOSE": struct.pack("<II", 1, 0),
    "EXTENT_REOPEN": struct.pack("<II", 1, 9),
    "EXTENT_PULL": struct.pack("<IIIQQIIQ", 1, 1, 9, MIB, 1, 0, 0, 1) + text(b"") +
                   bytes(64),
    "FENCE": struct.pack("<I", 1), "END": struct.pack("<II", 1, 1),
    "RECOVER": struct.pack("<I", 1) + bytes(128),
    "CONFIRM": struct.pack("<QQ", 1, 1)}


def is_refused(port, identity, session, key):
    try:
        with Link(port, identity, session, key):
            return False
    except Refused as refused:
        assert refused.reason == EAUTH, refused.reason
        return True


def attack_requests_of_others(pool):
    """What only the owner, a node or the broker may ask for; and to be one of
    these, or a tenant's session."""
    with attack(pool) as stack:
        session, _, memory = pool.memory(stack)
        for kind, body in (OWNERS | NODES).items():
            status, _ = session.ask(KIND[kind], body)
            assert status == -errno.EPERM, (kind, status)
        for kind, body in BROKERS.items():
            status, _ = session.ask(KIND[kind], body)
            assert status == -errno.ENOSYS, (kind, status)
        for kind, body in (OWNERS | NODES | BROKERS).items():
            status, _ = memory.ask(KIND[kind], body)
            assert status == -errno.EPERM, (kind, status)
        number, era, key = pool.credential()
        for identity in ("user:0:0", "user:1:0", "user:%d:%d" % (
                number, era + 1), "user:99:0", "node:1", "session", "owner"):
            assert is_refused(pool.port, identity, 0x9f000001, key), identity
        secret = next(node.secret for node in session.open_space(
            b"mallory")[3])
        for victim in pool.sessions:
            assert is_refused(memory.port, "session", victim, secret)
            status, _ = session.ask(KIND["SESSION_RESUME"], struct.pack(
                "<I32s", victim, session.secret) + text(b"") + bytes(4))
            assert status == -EAUTH, status
        for identity in ("pull:1:1", "broker", "node:1", "user:0:0"):
            assert is_refused(memory.port, identity, session.id, secret)


# --- who holds back what others freed ---


def attack_pinned_epoch(pool):
    """She says that she still uses an old epoch, for ever; and that she lacks
    memory, so that others might be taken for it (lease.c, rule 10)."""
    pool.do("space", "create", "tight", "16M", **pool.of("bob"))
    with attack(pool) as stack:
        pinner = stack.enter_context(pool.mallory())
        crier = stack.enter_context(pool.mallory())
        epoch = pinner.epoch()
        writer = pool.worker("later", "tight", 900, 8192, fabrics="tcp",
                             **pool.of("bob"))
        statuses, count = {0}, 0

        def is_ended():
            nonlocal count
            count += 1
            assert crier.renew(waiting=1 << 63) == 0
            try:
                pinner.send(batch([operation(
                    WRITE, pinner.renewal_key, 0, 16)], struct.pack(
                        "<QQ", count << 32 | epoch & (2 ** 32 - 1), 0)))
                kind, payload = pinner.receive()
            except ConnectionError:
                return True
            if kind == FRAME["BATCH_DONE"]:
                statuses.add(struct.unpack("<Ii", payload)[1])
            return kind == BYE or len(statuses) > 1

        until("who pins is ended", is_ended)
        # Her word is nobody's any more, nor is her session.
        assert statuses <= {0, -EKEY}, statuses
        assert pinner.ask(KIND["TIME"])[0] == -EFENCED
        writer.saw("busy")
        assert writer.stop() == 0, (writer.out, writer.error)
        events = [row["text"] for row in pool.status()["events"]]
        assert any("held memory back" in said and "%08x" % pinner.id in said
                   for said in events), events
    pool.do("space", "drop", "tight", **pool.of("bob"))


# --- who leaves ruins ---


def ruin(memory, dice, way):
    """Write over a whole extent, or over words of it."""
    if way < 3:
        data = (dice.randbytes(memory.size), b"\xff" * memory.size,
                bytes(memory.size))[way]
        assert memory.run([operation(WRITE, memory.key, 0, memory.size)],
                          data) == (1, 0)
        return
    for _ in range(10):
        words = [operation(WRITE, memory.key, dice.randrange(
            0, memory.size // 8, 8)) for _ in range(200)]
        data = b"".join(struct.pack("<Q", dice.choice(
            [dice.getrandbits(64), 1 << 63, 0, 1, 64])) for _ in words)
        assert memory.run(words, data) == (200, 0)


def attack_ruins(pool):
    """She ruins her own memory under a program of hers, which dies: whoever
    clears up after the dead meets that, and goes on."""
    until("there is a janitor", pool.janitor)
    before, dice = pool.janitor(), random.Random(4)
    with attack(pool) as stack:
        for way in range(6):
            pool.do("space", "create", "ruins", **pool.of("mallory"))
            pool.do("map", "put", "ruins", "m", "key", "value",
                    **pool.of("mallory"))
            holder = pool.worker("hold", "ruins", 50, fabrics="shm",
                                 **pool.of("mallory")).saw("holds")
            session = stack.enter_context(pool.mallory())
            _, space, extents, nodes = session.open_space(b"ruins")
            for extent in extents:
                with Memory(session, extent, nodes) as memory:
                    ruin(memory, dice, way)
            holder.kill()
            pool.gone(holder)
            session.renew()
            status, _ = session.ask(KIND["SPACE_DROP"],
                                    struct.pack("<I", space))
            assert status == 0, status
        dead = pool.worker("hold", "alice", 50, fabrics="shm",
                           **pool.of("alice")).saw("holds")
        dead.kill()
        pool.gone(dead)
        assert pool.janitor()["session"] == before["session"]


# --- the end of it ---


def accomplice(pool, stack):
    """A friend of hers, whom the node lets in: a link of eve's."""
    pool.do("user", "add", "eve", pool.path("eve"))
    pool.do("space", "create", "eve", **pool.of("eve"))
    pool.do("map", "put", "eve", "m", "key", "value", **pool.of("eve"))
    session = stack.enter_context(Session(pool.port, pool.credential("eve")))
    _, _, extents, nodes = session.opened().open_space(b"eve")
    return stack.enter_context(Memory(session, extents[0], nodes))


def attack_after_rotation(pool):
    """Her credential is made void, and she is removed. She tells eve all that
    she knows: keys of her own memory, and of alice's, by a token."""
    old = pool.credential()
    with attack(pool) as stack:
        eve = accomplice(pool, stack)
        session, _, memory = pool.memory(stack)
        status, _, extents, _ = session.open_space(
            b"alice", token=pool.token("alice", "read"))
        assert status == 0, status
        known = [memory.key] + [extent.keys[memory.door] for extent in extents]
        for key in known:
            assert eve.run([operation(READ, key)]) == (1, 0)
        pool.do("user", "rotate", "mallory", pool.path("new"), "--now")
        assert is_refused(pool.port, "user:%d:%d" % old[:2], 0x9f000001, old[2])
        assert is_refused(pool.port, "user:%d:%d" % (old[0], old[1] + 1),
                          0x9f000001, old[2])
        assert memory.end_reason() == EFENCED
        assert session.ask(KIND["TIME"])[0] == -EFENCED
        assert session.open() == -EAUTH
        for key in known:
            until("what she knew is void", lambda key=key: eve.run(
                [operation(READ, key)]) == (0, -EKEY))
        new = pool.credential("new")
        again = stack.enter_context(Session(pool.port, new)).opened()
        # While its keys are changed, an extent has none.
        until("it is open again", lambda: any(
            again.open_space(b"mallory")[2][0].keys))
        _, _, extents, nodes = again.open_space(b"mallory")
        key = stack.enter_context(Memory(again, extents[0], nodes)).key
        assert eve.run([operation(READ, key)]) == (1, 0)
        pool.do("user", "remove", "--force", "mallory", "--yes")
        assert again.ask(KIND["TIME"])[0] == -EFENCED
        assert is_refused(pool.port, "user:%d:%d" % new[:2], 0x9f000001, new[2])
        assert eve.run([operation(READ, key)]) == (0, -EKEY)
        pool.do("user", "remove", "--force", "eve", "--yes")


def attack_nothing_is_left(pool):
    """After all of it, the tenants have what they had."""
    with attack(pool):
        for name in ("alice", "bob"):
            assert pool.do("map", "get", name, "m", "key", **pool.of(
                name)) == "of %s\n" % name
        until("only the tenants are left", lambda: sorted(
            row["session"] for row in pool.status()["sessions"]) == sorted(
                pool.sessions))
        left = resident(pool.up) - pool.resident
        print("%.1f MiB left" % (left / MIB))
        assert left < LEFT_MAX, left
    for tenant in pool.tenants:
        assert tenant.stop() == 0, (tenant.out, tenant.error)
        assert "lost 0" in tenant.out and tenant.error == "", tenant.out
    assert pool.up.stop() == 0, pool.up.error


def run_attacks(names, make_pool, wanted, prefix="attack_"):
    """Make the attacks of a module one after the other, on one pool; the
    status. wanted: parts of names; none: all of them."""
    with make_pool(REEF, WORKER) as pool:
        return run_each(
            [(name, attack) for name, attack in names.items()
             if name.startswith(prefix) and
             (not wanted or any(word in name for word in wanted))],
            lambda: contextlib.nullcontext(pool))


if __name__ == "__main__":
    sys.exit(run_attacks(globals(), Tenants, sys.argv[3:]))
