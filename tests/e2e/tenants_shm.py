"""tenants_shm.py REEF WORKER - the same user who means harm, on shm.

Mallory is a process of the same machine, and speaks what src/fabric/shm says
by herself (shm_wire.py): she passes descriptors, scribbles in her ring, keeps
what she has mapped, and does not let go. Alice, over shm, and bob, over tcp,
are at work as in tenants.py, and must not notice.

Whatever a node may answer with a kill is done by an accomplice. With a token
of alice's space an accomplice holds memory that alice works on.
"""

import contextlib
import errno
import hashlib
import mmap
import os
import random
import signal
import struct
import sys
import time

from growth import KIB
from hello_wire import Refused, knock
from pool_processes import until
from pool_wire import FRAME, SEND, batch, frame, operation
from shm_wire import (
    ASLEEP, CARRIES_FD, ENTRIES, ENTRIES_AT, HEAD, RING_SIZE, TAIL,
    Accomplice, Near, Passing, memfd, place_of)
from tenants import EKEY, EPROTO, Tenants, attack, run_attacks

FILES_MAX = 24  # more descriptors of the servers, after an attack


class ShmTenants(Tenants):
    """The tenants' pool, and mallory's ways into its memory over shm. Much of
    it is waiting, so the tenants work at leisure."""

    pause_us = 1000

    def near(self, stack, name=b"mallory", **more):
        """A session of hers in a space, and a link to its first extent."""
        session = stack.enter_context(self.mallory())
        status, _, extents, nodes = session.open_space(name, **more)
        assert status == 0, status
        return session, extents, nodes, stack.enter_context(
            Near(session, extents[0], nodes))

    def links(self, stack):
        """As many links as she asks for, to her own memory: a function that
        makes one, instead of the last."""
        session, extents, nodes, link = self.near(stack)
        link.peer.close()

        def make():
            assert session.renew() == 0
            return Near(session, extents[0], nodes)

        return make

    def few_files(self, before):
        until("her descriptors are gone",
              lambda: self.files() <= before + FILES_MAX)

    def revoke(self, name="alice"):
        """Revoke a tenant's tokens; it ends within a bound."""
        self.do("space", "revoke", name, **self.of(name))


# --- malformed, and half-sent ---


def wrong_frames(key):
    """Frames that no good client of shm sends (src/fabric/shm/frames.c)."""
    word = struct.pack("<Q", key)
    yield from (
        frame(FRAME["ATTACH"]), frame(FRAME["ATTACH"], word[:7]),
        frame(FRAME["ATTACH"], word + b"x"), frame(FRAME["DETACH"], word),
        frame(FRAME["DETACH"], bytes(8)), frame(FRAME["DETACH"]),
        frame(FRAME["MESSAGE"], b"m", tag=1),
        frame(FRAME["MESSAGE"], bytes(64 * KIB + 1)),
        frame(FRAME["PING"], bytes(1025)),
        frame(FRAME["PING"], flags=CARRIES_FD), frame(FRAME["PING"], flags=2),
        frame(FRAME["RING"]), frame(FRAME["RING"], flags=CARRIES_FD),
        frame(FRAME["BELL"]), frame(FRAME["ATTACH"], word, flags=CARRIES_FD),
        frame(FRAME["PING"], length=2 ** 32 - 1),
        batch([operation(SEND, 0, 0, 8)], bytes(8)),
        frame(0), frame(21), frame(255))
    for name in ("HELLO", "CHALLENGE", "PROOF", "WELCOME", "ATTACHED",
                 "WITHDRAW", "BATCH_DONE", "BATCH_PART", "QUEUE_PAIR",
                 "CONTROL", "CREDIT"):
        yield frame(FRAME[name], bytes(8))


def attack_shm_malformed(pool):
    """Each costs her the link, and no more."""
    with attack(pool) as stack:
        before, link = pool.files(), pool.links(stack)
        with link() as good:
            key = good.key
            status, _ = good.attach(key ^ 1)
            assert status == -EKEY, status
        for forged in wrong_frames(key):
            with link() as near:
                near.send(forged)
                assert near.end_reason() == EPROTO, forged[:32]
        dice = random.Random(5)
        good = (frame(FRAME["ATTACH"], struct.pack("<Q", key)) +
                frame(FRAME["DETACH"], struct.pack("<Q", key)) +
                frame(FRAME["PING"], b"ping"))
        for _ in range(100):
            forged = bytearray(good)
            forged[dice.randrange(len(forged))] ^= 1 << dice.randrange(8)
            with link() as near:
                near.send(forged[:dice.randrange(1, len(forged))])
        pool.few_files(before)


def attack_shm_half_sent(pool):
    """Halves of frames, and of hellos, that never end; alice's memory is
    revoked meanwhile."""
    with attack(pool) as stack:
        before = pool.files()
        halves = []
        for size in (1, 15, 16, 20):
            _, _, _, near = pool.near(stack, b"alice",
                                      token=pool.token("alice", "read"))
            near.send(frame(FRAME["MESSAGE"], bytes(1000))[:size])
            halves.append(near)
        path = halves[0].path
        for size in range(0, 100, 7):
            half = stack.enter_context(contextlib.closing(Passing(path)))
            half.sendall(frame(FRAME["HELLO"], bytes(200))[:size] or b"\0")
        pool.revoke()
        assert not any(half.is_gone() for half in halves)
    pool.few_files(before)


# --- descriptors ---


def attack_shm_descriptors(pool):
    """Descriptors that nobody asked for, and rings that are none."""
    with attack(pool) as stack:
        before, link = pool.files(), pool.links(stack)
        null = os.open("/dev/null", os.O_RDWR)
        stack.callback(os.close, null)
        ping, ring = frame(FRAME["PING"]), frame(FRAME["RING"],
                                                 flags=CARRIES_FD)
        for data, fds in (
                (ping, [null] * 5), (ping, [null] * 200),
                (frame(FRAME["PING"], flags=CARRIES_FD), [null]),
                (frame(FRAME["ATTACH"], bytes(8), flags=CARRIES_FD), [null]),
                (frame(FRAME["MESSAGE"], b"m", flags=CARRIES_FD), [null]),
                (ring, [null]), (ring + ring, [memfd(RING_SIZE)] * 2),
                (ring, [memfd(RING_SIZE, 0)]), (ring, [memfd(RING_SIZE - 1)]),
                (ring, [os.open(pool.path("ring"), os.O_RDWR | os.O_CREAT)])):
            with link() as near:
                near.pass_with(data, *fds)
                assert near.end_reason() == EPROTO, (data, fds)
            for fd in set(fds) - {null}:
                os.close(fd)
        # A few come with every frame, and with half a hello.
        near = stack.enter_context(link())
        near.pass_with(ping, null, null, null, null)
        for _ in range(100):
            half = stack.enter_context(contextlib.closing(Passing(near.path)))
            half.sendall(ping[:3], [null] * 4)
        pool.nobody_noticed()
    pool.few_files(before)


def attack_shm_hoard(pool):
    """Accomplices take descriptors without end; the first lets them lie in its
    socket. The node has no more than before."""
    with attack(pool) as stack:
        session, extents, nodes, link = pool.near(
            stack, b"alice", token=pool.token("alice", "write"))
        link.peer.close()
        before = pool.files()

        def leave_unread(tell, wait):
            near = Near(session, extents[0], nodes)
            near.send(frame(FRAME["ATTACH"], struct.pack("<Q", near.key)) *
                      1000)
            tell("asked")
            wait()

        def keep(tell, wait):
            near = Near(session, extents[0], nodes)
            fds = [near.attach()[1] for _ in range(500)]
            tell(len(fds))
            wait()

        for work in (leave_unread, keep):
            with Accomplice(work) as accomplice:
                accomplice.hear()
                pool.nobody_noticed()
                assert pool.files() <= before + FILES_MAX
                accomplice.go_on()
                assert accomplice.end() == 0
            session.renew()
    pool.few_files(before)


# --- rings ---


def wake(near, times=1):
    """Have the node look at a ring, unless it has already."""
    with contextlib.suppress(ConnectionError):
        near.send(frame(FRAME["BELL"]) * times)


def attack_shm_ring(pool):
    """Her ring says what cannot be."""
    with attack(pool) as stack:
        link = pool.links(stack)
        entry = ENTRIES_AT
        for words in (
                [(TAIL, 2 ** 63)], [(TAIL, ENTRIES + 1)], [(TAIL, 2 ** 64 - 1)],
                [(entry, 121), (TAIL, 1)], [(entry, 2 ** 32 - 1), (TAIL, 1)]):
            with link() as near, near.ring() as ring:
                for at, value in words:
                    struct.pack_into("<Q", ring, at, value)
                wake(near)
                assert near.end_reason() == EPROTO, words
        # What waits for a message that never comes, or is nobody's word, is
        # left where it is.
        dice = random.Random(6)
        kept = [pool.near(stack)[3] for _ in range(4)]
        rings = [stack.enter_context(near.ring()) for near in kept]
        for near, ring in zip(kept, rings):
            struct.pack_into("<II", ring, entry, 8, 99)
            struct.pack_into("<Q", ring, TAIL, 1)
            wake(near, 100)
        end = time.monotonic() + 0.5
        while time.monotonic() < end:
            for ring in rings:
                struct.pack_into("<I", ring, ASLEEP, dice.choice((0, 1, 2, 7)))
                struct.pack_into("<Q", ring, HEAD, dice.getrandbits(64))
        pool.nobody_noticed()
        assert not any(near.is_gone() for near in kept)
        for ring in rings:
            ring[ENTRIES_AT:] = dice.randbytes(RING_SIZE - ENTRIES_AT)
            struct.pack_into("<Q", ring, TAIL, ENTRIES)
        for near in kept:
            wake(near)
            assert near.end_reason() == EPROTO


# --- who does not let go ---


def hold(pool, stack, rights, then):
    """An accomplice that has all of alice's memory mapped, by a token of these
    rights, and goes on as `then` says."""
    session, extents, nodes, link = pool.near(
        stack, b"alice", token=pool.token("alice", rights))
    link.peer.close()

    def work(tell, wait):
        near = Near(session, extents[0], nodes)
        protection = mmap.PROT_READ
        if rights == "write":
            protection |= mmap.PROT_WRITE
        held = []
        for extent in extents:
            near.key, near.size = place_of(extent, nodes)[1], extent.size
            status, fd = near.attach()
            assert status == 0, status
            held.append((near.key, fd, mmap.mmap(
                fd, near.size, mmap.MAP_SHARED, protection)))
        tell("holds")
        then(session, near, held, tell, wait)

    accomplice = stack.enter_context(Accomplice(work))
    assert accomplice.hear() == "holds"
    return accomplice


def renew_for_ever(session, *_):
    while session.renew() == 0:
        time.sleep(0.1)
    signal.pause()


def attack_shm_does_not_let_go(pool):
    """One goes on as if nothing were asked of it, one reads nothing, one stands
    still: the revocation ends, and they do."""
    with attack(pool) as stack:
        stubborn = hold(pool, stack, "read", renew_for_ever)
        stopped = hold(pool, stack, "write", renew_for_ever)
        stopped.stop()
        pool.revoke()
        assert stubborn.end() == -signal.SIGKILL, stubborn.status
        assert stopped.end() == -signal.SIGKILL, stopped.status
        assert "does not let go of memory" in pool.up.error, pool.up.error


def digests(held):
    """What is seen of memory, and of its descriptors."""
    return [hashlib.sha256(seen).hexdigest() for _, fd, mapped in held
            for seen in (mapped, mmap.mmap(
                fd, len(mapped), mmap.MAP_SHARED, mmap.PROT_READ))]


def leave_and_look(session, near, held, tell, wait):
    """Answer as one should, but keep the memory; tell what is seen of it."""
    left = set()
    for _ in range(2):
        wait()
        tell(digests(held))
    while len(left) < len(held):
        key = near.wait_for(FRAME["WITHDRAW"])
        near.send(frame(FRAME["DETACH"], key))
        left.add(key)
    while wait():
        session.renew()
        tell(digests(held))
        for _, _, mapped in held:
            with contextlib.suppress(TypeError):  # mapped for reading only
                mapped[:64 * KIB] = b"\xa5" * (64 * KIB)


def attack_shm_keeps_what_was_revoked(pool):
    """They say that they let go, and do not: they see old memory only, and
    what they write is nobody's."""
    with attack(pool) as stack:
        reader = hold(pool, stack, "read", leave_and_look)
        writer = hold(pool, stack, "write", leave_and_look)

        def look(accomplice):
            accomplice.go_on()
            return accomplice.hear()

        for accomplice in (reader, writer):
            first = look(accomplice)
            pool.nobody_noticed()
            assert look(accomplice) != first  # what alice does can be seen
        pool.revoke()
        seen = look(reader)
        pool.nobody_noticed()
        assert look(reader) == seen
        # They have old memory in common, and ruin it for each other alone.
        look(writer)
        ruined = look(writer)
        pool.nobody_noticed()
        assert look(writer) == ruined


# --- greedy ---


def attack_shm_links(pool):
    """Links that are opened and not left, sessions up to their limit, and
    half-open connections by the hundred; others still come in."""
    with attack(pool) as stack:
        before = pool.files()
        session, extents, nodes, link = pool.near(stack)
        link.peer.close()

        def work(tell, wait):
            links = []
            try:
                while len(links) < 100:
                    links.append(Near(session, extents[0], nodes))
                    links[-1].attach()
            except Refused as refused:
                tell([len(links), refused.reason])
            wait()

        with Accomplice(work) as accomplice:
            assert accomplice.hear() == [2, errno.EBUSY]
        near = [pool.near(stack)[3] for _ in range(30)]
        halves = [stack.enter_context(contextlib.closing(Passing(
            near[0].path))) for _ in range(560)]
        refused = 0
        for half in halves:
            try:
                knock(half, "session", 0x9f000001, b"shm")
            except (AssertionError, OSError):
                refused += 1
        assert refused >= 40, refused
        assert pool.do("map", "get", "alice", "m", "key", REEF_FABRICS="shm",
                       **pool.of("alice")) == "of alice\n"
        pool.nobody_noticed()
    pool.few_files(before)


if __name__ == "__main__":
    sys.exit(run_attacks(globals(), ShmTenants, sys.argv[3:], "attack_shm_"))
