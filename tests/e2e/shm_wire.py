"""A client of shm that speaks src/fabric/shm by itself, and says and passes
whatever it is told to: frames over a unix socket, descriptors, a ring.

On shm a node may kill who does not let go of memory, so who misbehaves is a
process of its own: Accomplice."""

import array
import contextlib
import fcntl
import json
import mmap
import os
import signal
import socket
import struct

from hello_wire import TIMEOUT_S, come_in
from pool_processes import LIBC, PR_SET_PDEATHSIG
from pool_wire import BYE, FRAME, Link, frame

CARRIES_FD = 1  # of frame.flags, src/wire/frame.h
MFD_ALLOW_SEALING = 2
F_ADD_SEALS, F_SEAL_SHRINK = 1033, 2
# src/fabric/shm/ring.c
RING_SIZE = 8192
TAIL, HEAD, ASLEEP, ENTRIES_AT = 0, 64, 128, 4096
ENTRIES, ENTRY_SIZE = 32, 128


def memfd(size, seals=F_SEAL_SHRINK):
    """A descriptor of fresh memory."""
    fd = os.memfd_create("hostile", MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    fcntl.fcntl(fd, F_ADD_SEALS, seals)
    return fd


class Passing:
    """A unix socket whose descriptors are kept as they come."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(TIMEOUT_S)
        self.socket.connect(path)
        self.fds = []

    def settimeout(self, seconds):
        self.socket.settimeout(seconds)

    def recv(self, size):
        data, fds, _, _ = socket.recv_fds(self.socket, size, 16)
        self.fds += fds
        return data

    def sendall(self, data, fds=()):
        if fds:
            rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS,
                      array.array("i", fds))
            sent = self.socket.sendmsg([data], [rights])
            data = data[sent:]
        if data:
            self.socket.sendall(data)

    def close(self):
        for fd in self.fds:
            os.close(fd)
        self.fds.clear()
        self.socket.close()


def place_of(extent, nodes):
    """The path, key, read key and node of an extent's memory over shm."""
    node = next(node for node in nodes if node.number == extent.node)
    places = node.addresses.split()
    door = next(i for i, place in enumerate(places)
                if place.startswith("shm:"))
    return (places[door][4:], extent.keys[door], extent.read_keys[door], node)


class Near(Link):
    """A session's link to the node of an extent, over shm."""

    # pylint: disable=super-init-not-called
    def __init__(self, session, extent, nodes):
        self.path, self.key, self.read_key, node = place_of(extent, nodes)
        self.size = extent.size
        self.peer = Passing(self.path)
        try:
            self.wire = come_in(self.peer, "session", session.id, node.secret,
                                b"shm")
        except BaseException:
            self.peer.close()
            raise
        self.sequence = self.number = 0
        self.wait_for(FRAME["CONTROL"])
        os.close(self.peer.fds.pop())

    def pass_with(self, data, *fds):
        self.peer.sendall(data, fds)

    def attach(self, key=None):
        """The status of an ATTACH, and the descriptor."""
        self.send(frame(FRAME["ATTACH"], struct.pack("<Q", key or self.key),
                        7))
        status = struct.unpack_from("<Qi", self.wait_for(
            FRAME["ATTACHED"]))[1]
        return status, self.peer.fds.pop() if status == 0 else -1

    def map(self, key=None, protection=mmap.PROT_READ | mmap.PROT_WRITE):
        """The memory itself."""
        status, fd = self.attach(key)
        assert status == 0, status
        with contextlib.closing(FileLike(fd)):
            return mmap.mmap(fd, self.size, mmap.MAP_SHARED, protection)

    def ring(self, fd=None):
        """Ask for a ring; its memory, once it is in use."""
        made = memfd(RING_SIZE) if fd is None else fd
        with contextlib.closing(FileLike(made)):
            self.pass_with(frame(FRAME["RING"], flags=CARRIES_FD), made)
            self.wait_for(FRAME["BELL"])
            return mmap.mmap(made, RING_SIZE)

    def is_gone(self):
        """Whether the other side has ended this, without waiting."""
        try:
            self.peer.socket.settimeout(0)
            while True:
                kind, _ = self.receive()
                if kind == BYE:
                    return True
        except (BlockingIOError, TimeoutError):
            return False
        finally:
            self.peer.socket.settimeout(TIMEOUT_S)


class FileLike:
    """A descriptor that can be closed."""

    def __init__(self, fd):
        self.fd = fd

    def close(self):
        os.close(self.fd)


class Accomplice:
    """A process that does what `work` says: it is given a function that tells
    the test something, and one that waits for the test's next word. It ends
    with the test."""

    def __init__(self, work):
        told, self.tell = os.pipe()
        self.hears, tells = os.pipe()
        self.pid, parent = 0, os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            status = 1
            try:
                LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
                os.close(self.tell)
                os.close(self.hears)
                if os.getppid() == parent:
                    work(lambda what: os.write(
                        tells, json.dumps(what).encode() + b"\n"),
                         lambda: os.read(told, 1))
                status = 0
            finally:
                os._exit(status)
        os.close(told)
        os.close(tells)
        self.said = b""
        self.status = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)
            self.end()
        os.close(self.tell)
        os.close(self.hears)

    def hear(self):
        """What it tells next."""
        while b"\n" not in self.said:
            more = os.read(self.hears, 4096)
            assert more, "an accomplice has ended"
            self.said += more
        line, self.said = self.said.split(b"\n", 1)
        return json.loads(line)

    def go_on(self):
        os.write(self.tell, b".")

    def stop(self):
        """Let it stand still."""
        os.kill(self.pid, signal.SIGSTOP)
        os.waitpid(self.pid, os.WUNTRACED)

    def end(self):
        """How it ends: minus the signal, or its status."""
        self.status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.status

    def has_ended(self):
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = os.waitstatus_to_exitcode(status)
        return self.status is not None
