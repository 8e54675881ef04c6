"""tenants_copies.py REEF WORKER - a user who means harm, where memory has two
copies and spaces are saved.

Mallory (tenants.py) has tokens of alice's space, which has two copies on three
nodes. She does not acknowledge what changes, saves without an end, and forges
what only nodes and the owner say. Another one has the key of a node, and
nothing else. Alice and bob are at work, and must not notice, nor lose anything,
even when a node dies meanwhile.

The attacks are made one after the other, on one pool.
"""

import contextlib
import errno
import hmac
import os
import random
import struct
import sys
import threading
import time

from copied_space import Copies
from growth import MIB, Growth
from hello_wire import Refused, derive, fields_of
from pool_processes import until
from pool_wire import (
    CREATE, FRAME, KIND, NO_TOKEN, NOTE, READ, ROW_EXTENT, WRITE, Link, Memory,
    message, operation, rows_of, text)
from tenants import (
    EAUTH, EFENCED, EKEY, GROWTH_MAX, OWNERS, Tenants, is_refused,
    run_attacks)

ESTALE, EFOREIGN, EOLDER = errno.ESTALE, 5019, 5020
BEGIN, LOOK, SESSIONS, END, TELL = range(1, 6)  # src/wire/body.h
CLOSED = 2
LIVE = 1  # src/wire/states.h
STRICT = 4  # of space_open.flags
NO_ORDINAL = 1 << 18  # of what has none


class CopyTenants(Tenants):
    """Three nodes; alice and bob have spaces with two copies."""

    pause_us = 500

    def environment(self, **more):
        return super().environment(REEF_TTL="2s", **more)

    def __enter__(self):
        self.tokens = {}
        self.copies = Copies(self, "none", "alice", is_made=False)
        self.up, self.port = self.copies.broker, int(
            self.tcp.rsplit(":", 1)[1])
        for name in ("alice", "bob", "mallory"):
            self.do("user", "add", name, self.path(name))
        self.tenants = [self.tenant("alice", "shm"), self.tenant("bob", "tcp")]
        self.sessions = [self.session_of(tenant)["session"]
                         for tenant in self.tenants]
        self.do("space", "create", "mallory", "--copies", "2",
                **self.of("mallory"))
        self.do("map", "put", "mallory", "m", "key", "value",
                **self.of("mallory"))
        self.copies.whole()
        return self

    def tenant(self, name, fabric):
        self.do("space", "create", name, "--copies", "2", **self.of(name))
        self.do("map", "put", name, "m", "key", "of " + name, **self.of(name))
        return self.worker("churn", name, 64, 8192, fabrics=fabric, name=name,
                           WORKER_PAUSE=str(self.pause_us), WORKER_DOUBT="1",
                           **self.of(name)).saw("busy")

    def nobody_noticed(self):
        for tenant in self.tenants:
            assert self.rounds_of(tenant) < self.rounds_of(tenant)
            assert "error" not in tenant.out, tenant.out
        told = self.status()
        assert not any(row["lost"] for row in told["spaces"]), told["spaces"]
        alive = [row["session"] for row in told["sessions"]
                 if row["state"] == "alive"]
        assert all(session in alive for session in self.sessions), told
        assert all(row["state"] == "ok" for row in told["nodes"]
                   if row["name"] in self.copies.nodes), told["nodes"]
        assert self.up.child.poll() is None

    def node_of(self, extents):
        """The name of the node that has the first that is no arbiter."""
        node = next(filter(is_primary, extents)).node
        return next(row["name"] for row in self.status()["nodes"]
                    if row["node"] == node)

    def guest(self, stack, rights):
        """A session of hers in alice's space."""
        if rights not in self.tokens:
            self.tokens[rights] = self.token("alice", rights)
        session = stack.enter_context(self.mallory())
        opened = session.open_space(b"alice", token=self.tokens[rights])
        assert opened[0] == 0, opened
        return session, *opened[1:]


@contextlib.contextmanager
def attack(pool):
    """Within it the broker stays small; after it nobody has noticed."""
    with Growth(pool.up) as growth, contextlib.ExitStack() as stack:
        yield stack
        pool.nobody_noticed()
    growth.is_below(GROWTH_MAX)


def save(session, space, step, number=0, after=0):
    """A SPACE_SAVE: its status, number and state."""
    status, body = session.ask(KIND["SPACE_SAVE"], struct.pack(
        "<IBQI", space, step, number, after))
    return (status, *(struct.unpack_from("<QB", body) if len(body) >= 9
                      else (0, 0)))


def close_all(session, space):
    """Begin a save, and wait until all is closed to others; its number."""
    status, number, state = save(session, space, BEGIN)
    assert status == 0, status

    def is_closed():
        nonlocal state
        status, _, state = save(session, space, LOOK, number)
        session.renew()
        return status or state == CLOSED

    until("it is closed", is_closed)
    assert state == CLOSED, state
    return number


def extents_of(session, space):
    status, body = session.ask(KIND["SPACE_EXTENTS"],
                               struct.pack("<IQI", space, 0, 0))
    assert status == 0, status
    return rows_of(body[12:])


def is_primary(extent):
    """It arbitrates nothing: a save closes what is read."""
    return extent.ordinal < NO_ORDINAL


# --- saving ---


def attack_saves_of_others(pool):
    """To save is for who may manage a space. What is hers she may save, but by
    the session and the number that began it."""
    with attack(pool) as stack:
        for rights in ("read", "write"):
            guest, space, _, _ = pool.guest(stack, rights)
            for step in range(8):
                assert save(guest, space, step, 1)[0] == -errno.EACCES, step
            guest.post(KIND["SESSION_CLOSE"])
        session, space, _ = pool.memory(stack)
        other = stack.enter_context(pool.mallory())
        assert other.open_space(b"mallory")[0] == 0
        for step in (0, 6, 255):
            assert save(session, space, step)[0] == -errno.EINVAL, step
        for step in (LOOK, SESSIONS, END):
            assert save(session, space, step, 5)[0] == -ESTALE, step
        assert save(session, 2 ** 32 - 1, BEGIN)[0] in (
            -errno.ENOENT, -errno.EACCES)
        number = close_all(session, space)
        assert save(session, space, BEGIN)[1] == number
        assert save(other, space, BEGIN)[0] == -errno.EBUSY
        for step in (LOOK, SESSIONS, END):
            assert save(other, space, step, number)[0] == -ESTALE, step
            assert save(session, space, step, number + 1)[0] == -ESTALE
        # What is cut off, or too long, is none.
        for body in (b"", struct.pack("<IB", space, END), struct.pack(
                "<IBQIB", space, END, number, 0, 0)):
            session.send(message(KIND["SPACE_SAVE"], body, number=999))
        assert save(session, space, LOOK, number)[2] == CLOSED
        assert save(session, space, END, number)[0] == 0
        assert save(session, space, END, number)[0] == 0
        # She may tell what she likes of her own space alone.
        for error in (0, 1, 2 ** 31, 2 ** 32 - 1):
            assert save(session, space, TELL, 0, error)[0] == 0
        pool.leave([session, other])


def attack_keys_of_a_save(pool):
    """The keys that a save reads by are the saver's alone, read only, and void
    once it has ended."""
    with attack(pool) as stack:
        session, space, _ = pool.memory(stack)
        other = stack.enter_context(pool.mallory())
        assert other.open_space(b"mallory")[0] == 0
        number = close_all(session, space)
        extents, nodes = extents_of(session, space)
        rest, _ = extents_of(other, space)
        assert not any(any(extent.keys) for extent in rest
                       if is_primary(extent)), rest
        links = [stack.enter_context(Memory(session, extent, nodes))
                 for extent in extents if is_primary(extent)]
        assert links, extents
        for link in links:
            assert link.run([operation(READ, link.key)]) == (1, 0)
            status = link.run([operation(WRITE, link.key)], bytes(8))
            assert status == (0, -errno.EACCES), status
        assert save(session, space, END, number)[0] == 0
        for link in links:
            until("the key is void", lambda link=link: link.run(
                [operation(READ, link.key)]) == (0, -EKEY))
        pool.leave([session, other])


def attack_endless_save(pool):
    """She looks how far her save is, for ever, and begins another when it has
    ended: a node is drained all the same."""
    with attack(pool) as stack:
        session, space, _ = pool.memory(stack)
        number = close_all(session, space)
        extents, _ = extents_of(session, space)
        name = pool.node_of(extents)
        pool.do("node", "drain", name)

        def is_drained():
            nonlocal number
            session.renew()
            if save(session, space, LOOK, number)[0]:
                number = save(session, space, BEGIN)[1]
            return pool.nodes()[name]["state"] == "drained"

        until("the node is drained", is_drained)
        pool.do("node", "undrain", name)
        pool.leave([session])
        pool.node_is(name, "ok")


def attack_restores(pool):
    """To restore is for the owner alone."""
    with attack(pool) as stack:
        session, space, _ = pool.memory(stack)
        for number in (0, space, pool.token("alice", "read").space):
            for step in range(6):
                status, _ = session.ask(KIND["SPACE_RESTORE"], struct.pack(
                    "<IBIIIIQQ", number, step, 1, 0, 1, pool.sessions[0],
                    4 * MIB, 2 ** 40) + text(b"mine"))
                assert status == -errno.EPERM, (number, step, status)
        pool.leave([session])


# --- copies ---


def attack_copies(pool):
    """Counts of copies that there are not; and strict where there is no
    room."""
    with attack(pool) as stack:
        session = stack.enter_context(pool.mallory())

        def make(copies, flags=CREATE, keeping=0):
            return session.ask(KIND["SPACE_OPEN"], text(b"many") + struct.pack(
                "<IBBQIIBI32s", flags, 0, keeping, 0, copies, *NO_TOKEN))[0]

        for copies in (3, 255, 256, 2 ** 31, 2 ** 32 - 1):
            for flags in (CREATE, CREATE | STRICT):
                status = make(copies, flags)
                assert status == -errno.EINVAL, (copies, flags, status)
        assert make(2, keeping=2) == -errno.EINVAL  # revocable
        assert make(2, keeping=200) == -errno.EINVAL
        assert session.open_space(b"many")[0] == -errno.ENOENT
        pool.leave([session])


def acknowledge(session, epoch, waiting=0):
    """Renew, and acknowledge that pool epoch, without looking."""
    session.renewals += 1
    return session.run(
        [operation(WRITE, session.renewal_key, 0, 32)], struct.pack(
            "<QQQQ", session.renewals << 32 | session.epoch() & (2 ** 32 - 1),
            waiting, epoch, 0))[1]


def ways_to_lag():
    """What she says that she has let go of, whenever she renews."""
    dice = random.Random(7)
    yield lambda session: session.renew()
    yield lambda session: acknowledge(session, 0)
    yield lambda session: acknowledge(session, 2 ** 64 - 1)
    yield lambda session: acknowledge(session, dice.getrandbits(64))
    yield lambda session: acknowledge(session, 1)


class Repeating(threading.Thread):
    """Does each of these again and again, whatever comes of it: nothing that
    this program waits for makes it look dead."""

    def __init__(self, works):
        super().__init__()
        self.works, self.over = works, threading.Event()

    def __enter__(self):
        self.start()
        return self

    def run(self):
        while not self.over.wait(0.05):
            for work in self.works:
                with contextlib.suppress(AssertionError, OSError):
                    work()

    def __exit__(self, *_):
        self.over.set()
        self.join()


def attack_never_lets_go(pool):
    """In alice's space, by a token, she acknowledges nothing, or what is not
    yet, while a node dies: alice goes on with the other copy, and mallory's
    sessions end. Who has closed the space is not waited for, and what it knew
    of that copy is void."""
    with attack(pool) as stack:
        guests = [(pool.guest(stack, rights)[0], way)
                  for way in ways_to_lag() for rights in ("read", "write")]
        friend, space, extents, nodes = pool.guest(stack, "write")
        twin = next(filter(is_primary, extents)).twin
        left = stack.enter_context(Memory(friend, next(
            extent for extent in extents if extent.number == twin), nodes))
        assert left.run([operation(READ, left.key)]) == (1, 0)
        assert friend.ask(KIND["SPACE_CLOSE"], struct.pack(
            "<I", space))[0] == 0
        for session, _ in guests:  # a flood, for the time before
            session.send(message(KIND["HURRY"], number=0, type=NOTE) * 500)
            for _ in range(500):
                session.wait_for(FRAME["BATCH_DONE"])

        def is_over():
            time.sleep(0.1)
            return (pool.nodes()[name]["state"] == "dead" and
                    pool.copies.row()["degraded"] == 0)

        with Repeating([
                *(lambda session=session, way=way: way(session)
                  for session, way in guests), friend.renew,
                lambda: left.run([operation(READ, left.key)])]):
            name = pool.node_of(extents)
            pool.copies.nodes[name].kill()
            until("all has two copies again", is_over)
        # Also who is late with its lease, on a machine with much to do.
        for session, _ in guests:
            assert session.ask(KIND["TIME"])[0] == -EFENCED
        assert friend.ask(KIND["TIME"])[0] == 0
        for kind, data in ((READ, b""), (WRITE, bytes(8))):
            assert left.run([operation(kind, left.key)], data) == (0, -EKEY)
        friend.post(KIND["SESSION_CLOSE"])
        print("failovers: %s ms" % pool.copies.failovers())
        pool.copies.come_back(name)
    until("her sessions end", lambda: pool.user()["sessions"]["use"] == 0)


# --- who has the key of a node ---


def processor_seconds(process):
    """What it has used so far."""
    with open("/proc/%d/stat" % process.child.pid, encoding="ascii") as stream:
        fields = stream.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Impostor(Link):
    """A node that is none: it has the key of one, and lends what it says."""

    def __init__(self, pool, name, number=None):
        with open(pool.node_key(name), encoding="ascii") as stream:
            self.node, self.key = fields_of(stream.read(), "I")
        proof = hmac.digest(self.key, b"broker".ljust(16, b"\0"), "sha256")
        super().__init__(pool.port, "node:%d" % (number or self.node),
                         0x9f000001 + (self.node << 16), proof)

    def register(self, pool=0):
        """Status and rest of the answer."""
        return self.ask(KIND["NODE_REGISTER"], struct.pack(
            "<QQQ", 1, 1, 64 * MIB) + text(b"tcp:127.0.0.1:9") + struct.pack(
                "<QQQQQQIII", 0, 0, 0, 0, 0, pool, 0, 0, 0))

    def tell(self, rows):
        """The status of NODE_EXTENTS."""
        return self.ask(KIND["NODE_EXTENTS"], b"".join(rows))[0]


def row_of(extent, number=None, copy=None, epoch=None, size=None):
    """An extent as a node tells of it."""
    keys = [2 ** 64 - 1 - i for i in range(8)]
    return struct.pack(
        "<BIIIIIBQQIB8Q", ROW_EXTENT, number or extent.number, 0, extent.space,
        extent.node, epoch or extent.epoch, LIVE, size or extent.size,
        copy or extent.copy, 0, 0, *keys)


def attack_node_of_another_machine(pool):
    """It claims memory that others have, answers nothing, and asks for what
    sessions, the owner and other nodes ask for."""
    with attack(pool) as stack:
        guest, space, extents, _ = pool.guest(stack, "read")
        node = stack.enter_context(Impostor(pool, "four"))
        for number in (1, 2, 3, 99):
            try:
                stack.enter_context(Impostor(pool, "four", number))
                raise AssertionError(number)
            except Refused as refused:
                assert refused.reason == EAUTH, refused.reason
        for kind in ("NODE_READY", "NODE_EXTENTS"):
            assert node.ask(KIND[kind])[0] == -ESTALE, kind
        assert node.ask(KIND["NODE_PULSE"], bytes(36))[0] == -ESTALE
        for kind, body in (OWNERS | {
                "SESSION_OPEN": text(b"node") + bytes(8),
                "SPACE_SAVE": struct.pack("<IBQI", space, BEGIN, 0, 0),
                "SPACE_RESTORE": bytes(37) + text(b"n"),
                "SPACE_EXTENTS": struct.pack("<IQI", space, 0, 0)}).items():
            status, _ = node.ask(KIND[kind], body)
            assert status in (-errno.EPERM, -EFENCED), (kind, status)
        for foreign in (1, 2 ** 64 - 1):
            status, _ = node.register(pool=foreign)
            assert status == -EFOREIGN, status
        status, _ = node.register()
        assert status == 0, status
        assert node.tell([row_of(extent) for extent in extents]) == 0
        for extent in extents:
            assert node.tell([row_of(extent, epoch=extent.epoch + 1)]) == 0
        assert node.tell([row_of(extents[0], copy=2 ** 63)]) == -EOLDER
        whole = row_of(extents[0])
        for rows in (whole[:-1], whole + b"\1", b"\x02" + bytes(40), b"\0"):
            node.send(message(KIND["NODE_EXTENTS"], rows, number=999))
        # What it says that it has, and nobody knows, it is told to drop.
        for first in range(1, 20001, 400):
            status = node.tell([row_of(extents[0], number=first + i)
                                for i in range(400)])
            assert status == 0, status
            guest.renew()
        coming = struct.unpack("<Q", guest.read(guest.table_key, 56, 8))[0]
        assert coming < 5000, coming
        # It is ready, or so it says, and pulses; nothing that it was told of
        # is its.
        until("it is ready", lambda: node.ask(KIND["NODE_READY"])[0] == 0)
        for extent in extents_of(guest, space)[0]:
            assert extent.node in (1, 2, 3), extent
        guest.post(KIND["SESSION_CLOSE"])
    # Its link is lost, with all that it was to drop: that costs nothing.
    before = processor_seconds(pool.up)
    pool.node_is("four", "dead")
    spent = processor_seconds(pool.up) - before
    assert spent < 2, spent
    pool.do("node", "remove", "four")


def attack_pulls(pool):
    """To copy an extent is for the node that was told to, with a key that its
    source alone could have made: neither a tenant's nor another node's will
    do, nor does a stranger get further than the hello."""
    with attack(pool) as stack:
        guest, _, extents, nodes = pool.guest(stack, "write")
        with open(pool.node_key("five"), encoding="ascii") as stream:
            node, node_key = fields_of(stream.read(), "I")
        for extent in extents:
            link = stack.enter_context(Memory(guest, extent, nodes))
            secret = next(node.secret for node in nodes
                          if node.number == extent.node)
            for epoch in (extent.epoch, extent.epoch + 1):
                name = "pull:%d:%d" % (extent.number, epoch)
                keys = [secret, node_key, bytes(32), guest.secret,
                        pool.credential()[2],
                        derive(node_key, "pull", extent.number, epoch),
                        derive(secret, "pull", extent.number, epoch)]
                for key in keys:
                    for session in (0x9f000001, guest.id, pool.sessions[0]):
                        assert is_refused(link.port, name, session, key), name
            for name in ("pull:", "pull:0:0", "pull:-1:1", "pull:1:1:1",
                         "pull: 1:1", "pull:%d:" % extent.number, "p" * 63):
                assert is_refused(link.port, name, 0x9f000001, bytes(32)), name
        guest.post(KIND["SESSION_CLOSE"])
    pool.do("node", "remove", "five")


if __name__ == "__main__":
    sys.exit(run_attacks(globals(), CopyTenants, sys.argv[3:]))
