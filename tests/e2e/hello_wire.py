"""The hello of src/wire/hello.h, spoken by somebody who is not libreef: it
tells whether a key proves to be what it is said to be."""

import base64
import contextlib
import hashlib
import hmac
import os
import socket
import struct

HELLO, CHALLENGE, PROOF, WELCOME, BYE = range(1, 6)
TIMEOUT_S = 20


class Refused(Exception):
    """Somebody was not let in; why, in .reason."""

    def __init__(self, reason):
        super().__init__(reason)
        self.reason = reason


def fields_of(text, form):
    """The fields and the key in a text of src/pool/keys.h: they stand between
    the version and the checksum."""
    digits = text.strip().rsplit("-", 1)[1].upper()
    payload = base64.b32decode(digits + "=" * (-len(digits) % 8))
    return (*struct.unpack_from("<" + form, payload, 1), payload[-36:-4])


def key_of(text):
    return fields_of(text, "")[0]


def derive(key, label, *numbers):
    """As src/pool/keys.h (2) has it, with fields of 32 bits."""
    return hmac.digest(key, label.encode().ljust(16, b"\0") + struct.pack(
        "<%dI" % len(numbers), *numbers), hashlib.sha256)


class Wire:
    """One end of a connection, up to the WELCOME."""

    def __init__(self, peer):
        self.peer = peer
        self.peer.settimeout(TIMEOUT_S)
        self.said = b""
        self.reason = None  # of a BYE

    def send(self, kind, payload):
        frame = struct.pack("<IBBHQ", len(payload), kind, 0, 0, 0) + payload
        self.said += frame
        self.peer.sendall(frame)

    def take(self, size):
        taken = b""
        while len(taken) < size:
            more = self.peer.recv(size - len(taken))
            if not more:
                return None
            taken += more
        return taken

    def receive(self):
        """Kind and payload of the next frame; what was said is noted. A peer
        that goes has said BYE."""
        header = self.take(16)
        if not header:
            return BYE, b""
        length, kind = struct.unpack("<IB", header[:5])
        payload = self.take(length)
        if payload is None:
            return BYE, b""
        self.said += header + payload
        return kind, payload

    def prove(self, key, label, kind, payload=b""):
        """Send a payload and the proof over all that was said before it."""
        size = len(payload) + 32
        header = struct.pack("<IBBHQ", size, kind, 0, 0, 0)
        proof = hmac.digest(key, label.encode().ljust(16, b"\0") + self.said +
                            header + payload, hashlib.sha256)
        self.send(kind, payload + proof)


def knock(peer, identity, session, fabric=b"tcp"):
    """Say over a connection who one is; the wire after the CHALLENGE."""
    wire = Wire(peer)
    wire.send(HELLO, struct.pack(
        "<IHHIIQIIII32s8s64s", 0x46454552, 1, 1, session, 0, 0, 256,
        1 << 24, 1 << 16, 0, os.urandom(32), fabric, identity.encode()))
    kind, _ = wire.receive()
    assert kind == CHALLENGE, kind
    return wire


def is_welcome(wire):
    """Whether the proof that was sent is taken. Why not is in wire.reason."""
    kind, payload = wire.receive()
    assert kind in (WELCOME, BYE), kind
    if kind == BYE and payload:
        wire.reason = struct.unpack("<I", payload[:4])[0]
    return kind == WELCOME


def is_let_in(port, identity, session, key):
    """Connect to a port of this machine, and tell whether the key was taken
    for that identity's."""
    with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as peer:
        wire = knock(peer, identity, session)
        wire.prove(key, "reef connector", PROOF)
        return is_welcome(wire)


def come_in(peer, identity, session, key, fabric=b"tcp"):
    """The wire of a connection that is let in; or raise Refused."""
    wire = knock(peer, identity, session, fabric)
    wire.prove(key, "reef connector", PROOF)
    if not is_welcome(wire):
        raise Refused(wire.reason)
    return wire


def crowd_in(port, identity, sessions, key, meanwhile):
    """Connect as each of the sessions, prove the key over all connections
    inside `meanwhile`, and tell how many are let in while all are open, and why
    others are not."""
    with contextlib.ExitStack() as stack:
        wires = [knock(stack.enter_context(socket.create_connection(
            ("127.0.0.1", port), TIMEOUT_S)), identity, session)
                 for session in sessions]
        with meanwhile:
            for wire in wires:
                wire.prove(key, "reef connector", PROOF)
        welcome = [is_welcome(wire) for wire in wires]
        return sum(welcome), {
            wire.reason for wire, is_in in zip(wires, welcome) if not is_in}


def is_believed(listener, key):
    """Accept whoever connects next, and tell whether it takes the key for the
    one of whom it looked for."""
    peer, _ = listener.accept()
    with peer:
        wire = Wire(peer)
        kind, _ = wire.receive()
        assert kind == HELLO, kind
        wire.prove(key, "reef acceptor", CHALLENGE,
                   struct.pack("<H6x32s", 1, os.urandom(32)))
        kind, _ = wire.receive()
        assert kind in (PROOF, BYE), kind
        return kind == PROOF
