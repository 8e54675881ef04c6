"""web_pool.py - a pool that serves HTTP, and who asks it there."""

import contextlib
import http.client
import os
import re
import socket

from pool_processes import Pool


class Watched(Pool):
    """A pool whose servers serve HTTP."""

    def up(self, *arguments, **more):
        process = self.start("up", "up", "--lend", "64M", "--extent-size", "4M",
                             "--http", "127.0.0.1:0", *arguments, **more)
        process.saw("is up.")
        self.port = self.http_port(process)
        return process

    @staticmethod
    def http_port(process):
        return int(re.search(r"http://127.0.0.1:(\d+)/",
                             process.saw("http://").out).group(1))

    def get(self, path, method="GET", port=None, **headers):
        """Status, headers and body."""
        connection = http.client.HTTPConnection("127.0.0.1", port or self.port,
                                                timeout=60)
        with contextlib.closing(connection):
            connection.request(method, path, headers=headers)
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), (
                answer.read().decode())

    def raw(self, data):
        """What comes back after these bytes, until it is closed."""
        with socket.create_connection(("127.0.0.1", self.port),
                                      timeout=60) as peer:
            got = b""
            # Who sends too much may be cut off before all is sent.
            with contextlib.suppress(OSError):
                peer.sendall(data)
                peer.shutdown(socket.SHUT_WR)
            with contextlib.suppress(ConnectionResetError):
                while True:
                    more = peer.recv(65536)
                    if not more:
                        break
                    got += more
            return got

    def metrics(self, port=None):
        """The values, by name and labels."""
        status, headers, body = self.get("/metrics", port=port)
        assert status == 200, body
        assert headers["Content-Type"].startswith(
            "application/openmetrics-text"), headers
        return parse_metrics(body)


def parse_metrics(text):
    """By the rules of OpenMetrics, as far as they are used here."""
    lines = text.split("\n")
    assert lines[-2:] == ["# EOF", ""], lines[-3:]
    values, types, family = {}, {}, None
    for line in lines[:-2]:
        if line.startswith("# "):
            _, what, name, rest = line.split(" ", 3)
            if what == "TYPE":
                assert name not in types, "twice: " + name
                types[name] = rest
                family = name
            assert name == family, line
            if what == "UNIT":
                assert name.endswith("_" + rest), line
            continue
        match = re.fullmatch(
            r'([a-z_0-9]+)((?:\{(?:[a-z]+="(?:[^"\\\n]|\\["\\n])*",?)+\})?) '
            r'(-?[\d.e+-]+)', line)
        assert match, line
        suffixes = {"counter": ("_total",), "info": ("_info",),
                    "histogram": ("_bucket", "_sum", "_count")}
        assert match.group(1) in [family + suffix for suffix in suffixes.get(
            types[family], ("",))], (line, family)
        key = match.group(1) + match.group(2)
        assert key not in values, "twice: " + key
        values[key] = float(match.group(3))
    return values


class Watcher:
    """Server-sent events, one after the other."""

    def __init__(self, port, last_id=None):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        head = "GET /events HTTP/1.1\r\nHost: localhost\r\n"
        if last_id:
            head += "Last-Event-ID: %s\r\n" % last_id
        self.socket.sendall(head.encode() + b"\r\n")
        answer = http.client.HTTPResponse(self.socket)
        answer.begin()
        self.status, self.type = answer.status, answer.getheader("Content-Type")
        self.stream = answer

    def __enter__(self):
        return self

    def __exit__(self, *ignored):
        self.close()

    def close(self):
        self.stream.close()
        self.socket.close()

    def message(self):
        """The next one, as a dictionary of its fields."""
        fields = {}
        while True:
            line = self.stream.readline().decode().rstrip("\n")
            if not line and fields:
                return fields
            name, _, value = line.partition(": ")
            assert name and name not in fields, (line, fields)
            fields[name] = value

    def until_status(self):
        """Events up to the next status, and that."""
        told = []
        for _ in range(1000):
            fields = self.message()
            if fields.get("event") == "status":
                return told, fields
            if fields.get("event") == "event":
                told.append(fields)
        raise AssertionError("no status")


def descriptors(pid):
    return len(os.listdir("/proc/%d/fd" % pid))


def server_of(up):
    """The process that serves HTTP."""
    with open("/proc/{0}/task/{0}/children".format(up.child.pid),
              encoding="ascii") as stream:
        for pid in stream.read().split():
            with open("/proc/%s/cmdline" % pid, "rb") as words:
                if b"\0http\0" in words.read():
                    return int(pid)
    raise AssertionError("none serves HTTP")
