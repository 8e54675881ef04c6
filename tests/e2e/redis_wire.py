"""The Redis protocol, raw: what a server answers, byte for byte.

A reply is kept as the bytes that came; `tree` takes them apart where something
in them must differ between two servers."""

import socket

TIMEOUT_S = 30


class Closed(Exception):
    """The server has closed the connection."""


def request(*words):
    """A request as clients send it."""
    words = [word if isinstance(word, bytes) else str(word).encode()
             for word in words]
    return b"*%d\r\n" % len(words) + b"".join(
        b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


class Wire:
    """One connection, by TCP ((host, port)) or unix socket (a path)."""

    def __init__(self, address, timeout=TIMEOUT_S):
        family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
        self.socket = socket.socket(family, socket.SOCK_STREAM)
        self.socket.settimeout(timeout)
        self.socket.connect(address)
        if family == socket.AF_INET:
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.socket.close()

    def send(self, data):
        self.socket.sendall(data)

    def more(self):
        try:
            data = self.socket.recv(1 << 18)
        except ConnectionResetError:
            data = b""
        if not data:
            raise Closed(self.buffer)
        self.buffer += data

    def line(self):
        while True:
            end = self.buffer.find(b"\r\n")
            if end >= 0:
                line, self.buffer = (self.buffer[:end + 2],
                                     self.buffer[end + 2:])
                return line
            self.more()

    def exactly(self, size):
        parts, have = [self.buffer], len(self.buffer)
        while have < size:
            data = self.socket.recv(min(size - have + 4096, 1 << 20))
            if not data:
                raise Closed(b"".join(parts))
            parts.append(data)
            have += len(data)
        whole = b"".join(parts)
        self.buffer = whole[size:]
        return whole[:size]

    def reply(self):
        """The bytes of one whole reply."""
        line = self.line()
        kind, number = line[:1], line[1:-2]
        if kind in b"+-:_#,(":
            return line
        if kind in b"$=!":
            size = int(number)
            return line if size < 0 else line + self.exactly(size + 2)
        if kind in b"*~>":
            count = int(number)
        elif kind in b"%|":
            count = 2 * int(number)
        else:
            raise ValueError("no reply: %r" % line)
        return line + b"".join(self.reply() for _ in range(count))

    def ask(self, *words):
        self.send(request(*words))
        return self.reply()

    def rest(self):
        """All that still comes, until the server closes."""
        parts = [self.buffer]
        self.buffer = b""
        while True:
            try:
                data = self.socket.recv(1 << 18)
            except ConnectionResetError:
                data = b""
            if not data:
                return b"".join(parts)
            parts.append(data)


def tree(raw):
    """A reply taken apart: (kind, bytes) or (kind, [trees])."""
    value, at = _tree(raw, 0)
    assert at == len(raw), raw
    return value


def _tree(raw, at):
    end = raw.index(b"\r\n", at)
    kind, number = raw[at:at + 1], raw[at + 1:end]
    at = end + 2
    if kind in b"$=!" and int(number) >= 0:
        size = int(number)
        return (kind, raw[at:at + size]), at + size + 2
    if kind in b"*~>%|" and int(number) >= 0:
        count = int(number) * (2 if kind in b"%|" else 1)
        items = []
        for _ in range(count):
            item, at = _tree(raw, at)
            items.append(item)
        return (kind, items), at
    return (kind, number), at


def words_of(line):
    """The words of a line, quoted as redis-cli takes them."""
    words, at, size = [], 0, len(line)
    escapes = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0"}
    while at < size:
        if line[at].isspace():
            at += 1
            continue
        word, quoted = b"", False
        while at < size and (quoted or not line[at].isspace()):
            char = line[at]
            if char == '"':
                quoted = not quoted
                at += 1
            elif quoted and char == "\\" and line[at + 1] == "x":
                word += bytes([int(line[at + 2:at + 4], 16)])
                at += 4
            elif quoted and char == "\\":
                word += escapes.get(line[at + 1], line[at + 1].encode())
                at += 2
            else:
                word += char.encode()
                at += 1
        words.append(word)
    return words
