"""web.py REEF SCHEMA - metrics and status over HTTP, and what strangers, slow
ones and crowds can do there."""

import contextlib
import json
import os
import re
import resource
import select
import signal
import socket
import sys
import threading

from checks import run_checks
from pool_processes import until
from schema import faults
from web_pool import Watched, Watcher, descriptors, server_of

REEF = os.path.abspath(sys.argv[1])
API = ("status", "nodes", "spaces", "sessions", "extents", "events")
HEAD_MAX = 16384
SLOW_HEAD = b"GET /health HTTP/1.1\r\nX: " + b"y" * 1000


def check_metrics_are_openmetrics_and_true(pool):
    pool.up()
    odd = 'a"b\\c\u00e9'
    pool.do("space", "create", odd, "8M")
    pool.do("map", "put", odd, "m", "k", "v")
    found = pool.metrics()
    assert len({name.split("{")[0] for name in found}) >= 65, sorted(found)
    assert found['reef_nodes{state="ok"}'] == 1, found
    assert found["reef_lender_capacity_bytes"] == 64 << 20, found
    assert found["reef_server_alive"] == 1
    row = next(row for row in pool.status()["spaces"] if row["name"] == odd)
    label = '{space="a\\"b\\\\c??",id="%d"}' % row["space"]
    assert found["reef_space_quota_bytes" + label] == 8 << 20, sorted(found)
    # A name has no newline: so no label has.
    pool.refused("space", "create", "a\nb", text="control characters")
    until("the space's memory is seen", lambda: pool.metrics()[
        "reef_space_used_bytes" + label] == row["used"])


def check_who_comes_after_another_is_answered(pool):
    """Each comes to an empty room, while the server looks for whom it has had
    for too long."""
    pool.up()
    for _ in range(3000):
        assert pool.get("/health")[0] == 200


def check_the_api_is_what_status_prints(pool):
    pool.up()
    pool.do("space", "create", "s")
    pool.do("map", "put", "s", "m", "k", "v")
    told = {}
    for name in API:
        status, headers, body = pool.get("/api/v1/" + name)
        assert status == 200 and headers["Content-Type"] == (
            "application/json"), (name, status, headers, body)
        told[name] = json.loads(body)
    pairs = [("status", told["status"])]
    for name in API[1:]:
        assert list(told[name]) == [name] and told[name][name], told[name]
        pairs += [(name[:-1], row) for row in told[name][name]]
    assert not faults(*pairs), faults(*pairs)
    assert told["status"]["pool"] == pool.status()["pool"]
    assert told["extents"]["extents"][0]["size"] == 4 << 20, told["extents"]


def check_a_server_that_stands_still_is_told_of(pool):
    """HTTP goes on: health and metrics say it, watchers are told, and whoever
    asks for what only the broker knows holds up nobody who does not."""
    up = pool.up()
    assert pool.get("/health")[::2] == (200, "ok\n")
    assert pool.get("/ready")[::2] == (200, "ok\n")
    assert pool.metrics()["reef_server_alive"] == 1
    pool.get("/api/v1/status")
    with Watcher(pool.port) as watcher:
        watcher.until_status()
        up.send(signal.SIGSTOP)
        # One after the other: together they wait for the broker once, and are
        # through before the server is five seconds late.
        for _ in range(20):
            assert pool.get("/api/v1/spaces")[0] == 503
        assert pool.get("/health")[0] == 200
        until("it is seen", lambda: pool.get("/health")[0] == 503)
        assert "stands still" in pool.get("/ready")[2]
        status, _, body = pool.get("/api/v1/status")
        assert status in (200, 503), body
        found = pool.metrics()
        assert found["reef_server_alive"] == 0, found
        assert found["reef_server_beat_age_seconds"] >= 5, found
        assert not any(name.startswith("reef_nodes") for name in found), found
        for _ in range(60):
            fields = watcher.message()
            if fields.get("event") == "trouble":
                break
        assert "error" in json.loads(fields["data"]), fields
        up.send(signal.SIGCONT)
        watcher.until_status()
    until("it goes on", lambda: pool.get("/health")[0] == 200)
    until("the broker answers", lambda: (
        pool.get("/api/v1/status")[0] == 200))
    until("and is measured", lambda: "reef_broker_uptime_seconds" in (
        pool.metrics()))


def check_a_node_tells_of_itself(pool):
    pool.broker()
    node = pool.node("n", "--lend", "64M", "--http", "127.0.0.1:0")
    port = pool.http_port(node)
    assert pool.get("/health", port=port)[0] == 200
    until("it is ready", lambda: pool.get("/ready", port=port)[0] == 200)
    until("it is registered", lambda: pool.metrics(port)[
        "reef_lender_registered"] == 1)
    found = pool.metrics(port)
    assert found["reef_lender_capacity_bytes"] == 64 << 20, found
    assert not any(name.startswith("reef_node_") for name in found), found
    status, _, body = pool.get("/api/v1/status", port=port)
    assert status == 404 and "broker" in body, body


def check_strangers_are_refused(pool):
    pool.up()
    for host in ("evil.example", "evil.example:%d" % pool.port, "",
                 "localhost.evil.example", "127.0.0.1.evil.example",
                 "[::1", "[::1]x", "127.0.0.1:x", "[localhost]", "x" * 300):
        assert pool.get("/metrics", Host=host)[0] in (400, 403), host
    name = socket.gethostname()
    for host in ("localhost", "127.0.0.1", "[::1]:%d" % pool.port, name,
                 "LOCALHOST:%d" % pool.port, "10.1.2.3", name.split(".")[0]):
        assert pool.get("/health", Host=host)[0] == 200, host
    for lines in (b"Host: localhost\r\nHost: evil.example\r\n",
                  b"Host: localhost\r\nHost: localhost\r\n"):
        assert b" 403 " in pool.raw(
            b"GET /health HTTP/1.1\r\n%s\r\n" % lines).split(b"\r\n")[0], lines
    # What a browser says of the page that has it ask.
    own = "http://127.0.0.1:%d" % pool.port
    for headers, status in (
            ({"Origin": own}, 200), ({"Origin": "https" + own[4:]}, 200),
            ({"Origin": "http://evil.example"}, 403), ({"Origin": "null"}, 403),
            ({"Origin": own + "1"}, 403), ({"Origin": own[:-1]}, 403),
            ({"Origin": ""}, 403), ({"Origin": "http"}, 403),
            ({"Sec-Fetch-Site": "cross-site"}, 403),
            ({"Sec-Fetch-Site": "same-site"}, 403),
            ({"Sec-Fetch-Site": "same-origin"}, 200)):
        assert pool.get("/api/v1/status", **headers)[0] == status, headers
    assert b" 403 " in pool.raw(
        b"GET /health HTTP/1.0\r\n\r\n").split(b"\r\n")[0]
    for method in "POST", "PUT", "DELETE", "OPTIONS", "PATCH":
        status, headers, _ = pool.get("/api/v1/status", method)
        assert status == 405 and headers["Allow"] == "GET, HEAD", method
    status, headers, body = pool.get("/metrics", "HEAD")
    assert status == 200 and not body and int(headers["Content-Length"]) > 99
    for path in ("/index.html", "/page", "/api", "/api/v1", "/api/v1/",
                 "/api/v1/../v1/status", "/metrics/", "/../etc/passwd", "/%2e%2e/etc/passwd",
                 "//metrics", "/api/v2/status"):
        assert pool.get(path)[0] == 404, path
    assert pool.get("/health?x=1")[0] == 200


def credential_of(pool, path):
    with open(path, encoding="ascii") as stream:
        return {"Authorization": "Bearer " + stream.read().strip()}


def owner_of(pool):
    return credential_of(pool, os.path.join(pool.run, "owner.credential"))


def check_orders_need_a_credential(pool):
    pool.up()
    pool.do("space", "create", "s p")
    era = pool.status()["spaces"][0]["era"]
    node = pool.status()["nodes"][0]["name"]
    paths = ["/api/v1/nodes/%s/drain" % node, "/api/v1/spaces/s%20p/revoke",
             "/api/v1/sessions/00010001/fence"]
    ada = os.path.join(pool.home, "ada")
    pool.do("user", "add", "ada", ada)
    with Watched(REEF) as other:
        other.up()
        stranger = owner_of(other)
        for path in paths:
            for headers, status, text in (
                    ({}, 401, "credential"),
                    ({"Authorization": "Basic YTpi"}, 401, "credential"),
                    ({"Authorization": "Bearer x"}, 401, "credential"),
                    ({"Authorization": "Bearer " + "x" * 5000}, 401, ""),
                    (stranger, 403, "another pool's")):
                got = pool.get(path, "POST", **headers)
                assert got[0] == status and text in got[2], (path, got)
                assert status != 401 or got[1]["WWW-Authenticate"] == "Bearer"
        # A user who is not the owner is told no by the broker.
        got = pool.get(paths[0], "POST", **credential_of(pool, ada))
        assert got[0] == 403 and "may not" in got[2], got
    told = pool.status()
    assert told["nodes"][0]["state"] == "ok", told["nodes"]
    assert told["spaces"][0]["era"] == era, told["spaces"]
    # By GET nothing is done, and a Host of somebody else's does not order.
    assert pool.get(paths[0], **owner_of(pool))[0] == 404
    assert pool.get(paths[0], "POST", Host="evil.example",
                    **owner_of(pool))[0] == 403
    for path in ("/api/v1/nodes/none/drain", "/api/v1/spaces/none/revoke",
                 "/api/v1/sessions/00010001/fence"):
        got = pool.get(path, "POST", **owner_of(pool))
        assert got[0] == 404 and "no such" in got[2], (path, got)
    for path in ("/api/v1/nodes//drain", "/api/v1/nodes/%s/remove" % node,
                 "/api/v1/nodes/../nodes/drain/..", "/drain"):
        assert pool.get(path, "POST", **owner_of(pool))[0] in (404, 405), path
    assert pool.get("/api/v1/nodes/%s/drain" % ("x" * 400), "POST",
                    **owner_of(pool))[0] == 400
    # A body is not looked at, and has a bound.
    head = ("POST %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: %s\r\n"
            "Content-Length: %d\r\n\r\n")
    token = owner_of(pool)["Authorization"]
    got = pool.raw((head % (paths[2], token, 9)).encode() + b"anything\n")
    assert got.startswith(b"HTTP/1.1 404 "), got
    got = pool.raw((head % (paths[0], token, 1 << 30)).encode() + b"x" * (
        1 << 20))
    assert not got, got
    assert pool.status()["nodes"][0]["state"] == "ok"


def check_orders_are_done(pool):
    pool.up()
    pool.do("space", "create", "s p")
    pool.do("map", "put", "s p", "m", "k", "v")
    space = next(row for row in pool.status()["spaces"]
                 if row["name"] == "s p")
    node = pool.status()["nodes"][0]["name"]
    status, headers, body = pool.get(
        "/api/v1/spaces/s%20p/revoke", "POST",
        Authorization=owner_of(pool)["Authorization"].replace("B", "b", 1))
    assert status == 200 and headers["Content-Type"] == (
        "application/json"), (status, body)
    told = json.loads(body)
    assert told == {"done": "revoke", "space": "s p"}, told
    assert not faults(("order", told)), faults(("order", told))
    assert next(row["era"] for row in pool.status()["spaces"]
                if row["name"] == "s p") == space["era"] + 1
    janitor = until("the janitor", pool.janitor)
    got = pool.get("/api/v1/sessions/%08x/fence" % janitor["session"], "POST",
                   **owner_of(pool))
    assert got[0] == 200, got
    until("its end", lambda: (pool.janitor() or {}).get(
        "session") != janitor["session"])
    got = pool.get("/api/v1/nodes/%s/drain" % node, "POST", **owner_of(pool))
    assert got[0] == 200, got
    assert pool.status()["nodes"][0]["state"] in ("draining", "drained")


def check_a_key_is_explained(pool):
    pool.up()
    pool.do("space", "create", "s p")
    pool.do("map", "put", "s p", "m", "k&=", "v" * 100)
    ask = "/api/v1/explain?space=s%20p&map=m&key="
    told = {}
    for key, name in (("k%26%3D", "there"), ("absent", "absent")):
        status, headers, body = pool.get(ask + key)
        assert status == 200 and headers["Content-Type"] == (
            "application/json"), (status, body)
        told[name] = json.loads(body)
        assert not faults(("explain", told[name])), (
            faults(("explain", told[name])))
    there, absent = told["there"], told["absent"]
    extents = json.loads(pool.get("/api/v1/extents")[2])["extents"]
    space = next(row["space"] for row in pool.status()["spaces"]
                 if row["name"] == "s p")
    assert there["there"] and there["value_size"] == 100, there
    assert there["near"] and not there["slow"] and not there["pins"], there
    assert {"extent": there["extent"], "space": space, "node": there["node"]}.items() <= next(
        row for row in extents if row["extent"] == there["extent"]).items()
    assert not absent["there"] and len(absent["slow"]) == 1, absent
    # Its node is drained: that is why.
    pool.do("node", "drain", there["node_name"])
    told = json.loads(pool.get(ask + "k%26%3D")[2])
    assert any("drained" in why for why in told["slow"]), told
    # Whatever a key is made of, and however long it becomes in JSON.
    for byte in b"\x01", b"\xff", b'"':
        got = pool.raw(b"GET " + ask.encode() + byte * 15000 +
                       b" HTTP/1.0\r\nHost: localhost\r\n\r\n")
        head, _, body = got.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.0 200 ") or head.startswith(
            b"HTTP/1.1 200 "), head
        assert not json.loads(body)["there"], body
    for query in ("", "?space=s", "?space=s&map=m", "?space=&map=m&key=k",
                  "?space=s&map=m&key=a%00b"):
        assert pool.get("/api/v1/explain" + query)[0] == 400, query
    for query in ("?space=none&map=m&key=k", "?space=s%20p&map=none&key=k",
                  "?space=--json&map=--&key=-h"):
        got = pool.get("/api/v1/explain" + query)
        assert got[0] == 404 and "no" in got[2], (query, got)
    assert pool.get("/api/v1/explain?space=s&map=m&key=k", "POST",
                    )[0] == 405
    status, headers, body = pool.get(ask + "k", "HEAD")
    assert status == 200 and not body and int(headers["Content-Length"]) > 9


def check_bad_heads_are_bounded(pool):
    pool.up()
    # Of no meaning at all: whether it is answered is not waited for.
    with socket.create_connection(("127.0.0.1", pool.port)) as peer:
        peer.sendall(b"\0" * 100 + b"\r\n\r\n")
        assert pool.get("/health")[0] == 200
    for data in (b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n",
                 b"GET /" + b"a" * (2 * HEAD_MAX) + b" HTTP/1.1\r\n\r\n",
                 b"GET / HTTP/1.1\r\nHost: localhost\r\n" +
                 b"X: y\r\n" * HEAD_MAX + b"\r\n",
                 b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " +
                 b"y" * (4 * HEAD_MAX) + b"\r\n\r\n"):
        answer = pool.raw(data).split(b"\r\n")[0]
        assert not answer or re.match(rb"HTTP/1.[01] (4|5)\d\d ", answer), (
            data[:30], answer)
    assert pool.get("/health")[0] == 200


def check_who_asks_slowly_shuts_out_nobody(pool):
    """They take all connections that there are, and send a byte of a head now
    and then. They are ended, so others come in."""
    pool.up()
    slow, is_over = [], threading.Event()

    def send_slowly():
        for number in range(1000):
            for peer in slow:
                with contextlib.suppress(OSError):
                    peer.send(SLOW_HEAD[number:number + 1])
            if is_over.wait(0.5):
                return

    with contextlib.ExitStack() as stack:
        for _ in range(200):
            peer = stack.enter_context(socket.create_connection(
                ("127.0.0.1", pool.port), timeout=60))
            peer.setblocking(False)
            slow.append(peer)
        sender = threading.Thread(target=send_slowly)
        sender.start()
        try:
            for _ in range(3):
                assert pool.get("/health")[0] == 200
        finally:
            is_over.set()
            sender.join()


def check_who_stays_after_an_answer_is_ended(pool):
    """A request that is refused because too many are waiting leaves its
    connection open: the next one on it has its time, too."""
    pool.up()
    ask = b"GET /api/v1/explain?space=s&map=m&key=k HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with contextlib.ExitStack() as stack:
        # So that half of the connections are taken, and times are short.
        for _ in range(64):
            stack.enter_context(Watcher(pool.port))
        peers = [stack.enter_context(socket.create_connection(
            ("127.0.0.1", pool.port), timeout=60)) for _ in range(30)]
        for peer in peers:
            peer.sendall(ask)
        stays = [peer for peer in peers if peer.recv(12) == b"HTTP/1.1 503"]
        assert stays, "nobody was refused"
        for number in range(100):
            with contextlib.suppress(OSError):
                stays[0].sendall(SLOW_HEAD[number:number + 1])
            if stays[0] in select.select(stays[:1], [], [], 0.3)[0]:
                try:
                    if not stays[0].recv(65536):
                        break
                except ConnectionResetError:
                    break
        assert number < 99, "it is still open"


def check_what_is_said_twice_is_refused(pool):
    """So nobody in front of the server takes the other one."""
    pool.up()
    pool.do("space", "create", "s")
    era = pool.status()["spaces"][0]["era"]
    own, token = b"http://localhost", owner_of(pool)["Authorization"].encode()
    head = (b"POST /api/v1/spaces/s/revoke HTTP/1.1\r\nHost: localhost\r\n"
            b"Authorization: %s\r\n" % token)
    for lines in (b"Origin: http://evil.example\r\nOrigin: %s\r\n" % own,
                  b"Origin: %s\r\nOrigin: %s\r\n" % (own, own),
                  b"Sec-Fetch-Site: cross-site\r\nSec-Fetch-Site: none\r\n",
                  b"Authorization: %s\r\n" % token,
                  b"Content-Length: 0\r\nContent-Length: 2\r\n",
                  b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"):
        got = pool.raw(head + lines + b"\r\n0\r\n\r\n")
        assert re.match(rb"HTTP/1.1 40[03] ", got), (lines, got)
    # A path ends where it ends.
    for path in b"/health%00", b"/health%00x", b"/%00", b"/x%00/health":
        got = pool.raw(b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n" % path)
        assert re.match(rb"HTTP/1.1 40[04] ", got), (path, got)
    got = pool.raw(head.replace(b"/revoke", b"/revoke%00x") + b"\r\n")
    assert re.match(rb"HTTP/1.1 400 ", got), got
    assert pool.status()["spaces"][0]["era"] == era
    assert pool.raw(head + b"\r\n").startswith(b"HTTP/1.1 200 ")


def check_it_is_started_again(pool):
    up = pool.up()
    pid = server_of(up)
    os.kill(pid, signal.SIGKILL)
    until("another", lambda: has_other(up, pid))
    assert pool.status()["nodes"]
    # It ends with the server.
    up.kill()
    until("its end", lambda: not os.path.exists("/proc/%d" % pid))


def has_other(up, pid):
    try:
        return server_of(up) != pid
    except (AssertionError, FileNotFoundError):
        return False


def check_the_broker_is_asked_once_a_second(pool):
    """A hundred who ask at once cost what one does: they get one answer."""
    pool.up()
    pool.get("/api/v1/status")
    told = {pool.get("/api/v1/status")[2] for _ in range(100)}
    ages = {json.loads(one)["uptime_ns"] for one in told}
    # As many answers as seconds passed, by the broker's own clock.
    assert len(ages) <= 2 + (max(ages) - min(ages)) // 10**9, len(ages)


def check_what_sessions_did_is_counted(pool):
    """By their own words, which the broker adds up when they renew or close, and
    which stay when they are gone."""
    pool.up()
    pool.do("space", "create", "s")

    def counted():
        return pool.status()["counters"]

    before = counted()
    for number in range(5):
        pool.do("map", "put", "s", "m", "k%d" % number, "v" * 1000)
    for number in range(7):
        pool.do("map", "get", "s", "m", "k%d" % (number % 5))
    for _ in range(3):
        pool.refused("map", "get", "s", "m", "absent")
    until("hits", lambda: counted()["hits"] == before["hits"] + 7)
    until("misses", lambda: counted()["misses"] == before["misses"] + 3)
    after = counted()
    assert sum(after["operations"]["shm"].values()) > 22, after
    assert after["written_bytes"] >= before["written_bytes"] + 5000, after
    assert after["read_bytes"] >= before["read_bytes"] + 7000, after
    assert not sum(after["operations"]["tcp"].values()), after
    assert not sum(after["operations"]["verbs"].values()), after
    assert sum(after["latencies"]) > 0 and after["latency_ns"] > 0, after
    assert after["commits"] > before["commits"], after
    for name in after:
        if isinstance(after[name], int):
            assert after[name] >= before[name], name
    # Another fabric is another row.
    pool.do("map", "get", "s", "m", "k1", "--fabrics", "tcp")
    until("tcp", lambda: counted()["operations"]["tcp"]["read"] > 0)
    until("its hit", lambda: counted()["hits"] == after["hits"] + 1)


def check_watchers_see_the_pool_change(pool):
    pool.up()
    node = pool.status()["nodes"][0]["name"]
    with Watcher(pool.port) as watcher:
        assert (watcher.status, watcher.type) == (200, "text/event-stream")
        assert watcher.message() == {"retry": "1000"}
        told, status = watcher.until_status()
        pairs = [("event", json.loads(one["data"])) for one in told]
        pairs.append(("status", json.loads(status["data"])))
        assert told and not faults(*pairs), faults(*pairs)
        start, newest = map(int, status["id"].split("-"))
        assert [one["id"] for one in told][-1] == status["id"], told
        # What happens next comes as an event, and with the status.
        pool.do("node", "drain", node)
        seen = []
        for _ in range(60):
            more, status = watcher.until_status()
            seen += more
            if seen:
                break
        numbers = [json.loads(one["data"])["event"] for one in seen]
        assert numbers and numbers == list(
            range(newest + 1, newest + 1 + len(numbers))), (newest, seen)
    # Who comes back is told what it missed, once, and nothing else.
    for last, first in (("%d-%d" % (start, newest), newest + 1),
                        ("%d-%d" % (start + 1, newest), 1), (None, 1)):
        with Watcher(pool.port, last) as watcher:
            told, _ = watcher.until_status()
            assert json.loads(told[0]["data"])["event"] == first, (last, told)
    for last in ("x", "1", "1-", "-1", "1-2-3", "1-2 ", "1" * 99, "-1--1",
                 "1-+2", "1-%d" % 2**64, "%d-1" % 2**64, "1-" + "9" * 5000):
        with Watcher(pool.port, last.strip() or "x") as watcher:
            assert watcher.status == (200 if last == "1-2 " else 400), last


def check_slow_watchers_are_bounded(pool):
    """They read nothing. What is kept for each has a bound, the others see the
    pool as ever, and those beyond the bound are refused."""
    up = pool.up()
    pid = server_of(up)
    slow = [Watcher(pool.port) for _ in range(63)]
    try:
        with Watcher(pool.port) as quick:
            quick.until_status()
            with Watcher(pool.port) as refused:
                assert refused.status == 503, refused.status
            assert pool.get("/health")[0] == 200
        before = memory_of(pid)
        with until("its place is free", lambda: watch_if_room(pool)) as quick:
            for _ in range(3):
                quick.until_status()
        assert memory_of(pid) <= before + (16 << 20), before
        assert descriptors(pid) <= 128 + 64
    finally:
        for one in slow:
            one.close()
    until("there is room for watchers",
          lambda: watch_if_room(pool)).close()


def watch_if_room(pool):
    watcher = Watcher(pool.port)
    if watcher.status == 200:
        return watcher
    watcher.close()
    return None


def memory_of(pid):
    with open("/proc/%d/statm" % pid, encoding="ascii") as stream:
        return int(stream.read().split()[1]) * resource.getpagesize()


def check_addresses_that_are_none(pool):
    for address in "nonsense", "127.0.0.1", "127.0.0.1:99999", ":", "a:b":
        pool.refused("up", "--http", address, status=2, text="http")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        up = pool.start("taken", "up", "--lend", "64M", "--extent-size", "4M",
                        "--http", "127.0.0.1:%d" % taken.getsockname()[1])
        assert up.end() == 1, up.out
        assert "HTTP" in up.error and "in use" in up.error, up.error
    # None unless it is asked for.
    up = pool.start("plain", "up", "--lend", "64M", "--extent-size", "4M")
    up.saw("is up.")
    assert "http://" not in up.out


if __name__ == "__main__":
    sys.exit(run_checks(globals(), lambda: Watched(REEF), sys.argv[3:]))
