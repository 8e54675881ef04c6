"""crowd.py REEF SESSIONS - HTTP in front of a pool that is busy: a crowd outside,
a crowd of sessions inside, and what a watcher costs. Figures are printed."""

import contextlib
import os
import resource
import socket
import sys

from checks import run_checks
from pool_processes import until
from web_pool import Watched, Watcher, descriptors, server_of

REEF, SESSIONS = (os.path.abspath(path) for path in sys.argv[1:3])
SOAK = bool(os.environ.get("REEF_SOAK"))
CONNECTIONS = 10000
INSIDE = 1000 if SOAK else 40
SCRAPE_MAX = 200000
SECONDS = 20 if SOAK else 4
TICKS = os.sysconf("SC_CLK_TCK")


def processor_s(pid):
    """Seconds that a process has been on the processor."""
    with open("/proc/%d/stat" % pid, encoding="ascii") as stream:
        fields = stream.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


class Crowded(Watched):
    def run_sessions(self, *arguments):
        return self.start("sessions-" + arguments[0],
                          argv=[SESSIONS, *map(str, arguments)])

    def operations_of(self, process):
        for row in self.status()["sessions"]:
            if row["pid"] == process.child.pid:
                return row["operations"]
        return 0

    def renewed(self, process, count):
        """Its operations and its seconds on the processor, at the moment when it
        tells of more than so many: sessions tell now and then."""
        until("it has done something", lambda: (
            self.operations_of(process) > count))
        return self.operations_of(process), processor_s(process.child.pid)

    def work_of(self, process, meanwhile):
        """Operations for a second on the processor, while that is done."""
        begun = self.renewed(process, self.operations_of(process))
        meanwhile()
        until("it was on the processor", lambda: (
            processor_s(process.child.pid) > begun[1] + 1))
        ended = self.renewed(process, self.operations_of(process))
        return (ended[0] - begun[0]) / (ended[1] - begun[1])


def connect(port, number):
    peer = socket.socket()
    peer.setblocking(False)
    peer.connect_ex(("127.0.0.1", port))
    if number % 2:
        with contextlib.suppress(OSError):
            peer.send(b"GET /metrics HTTP/1.1\r\nHo")
    return peer


def answers(pool):
    try:
        return pool.get("/health")[0] == 200
    except OSError:
        return False


def check_ten_thousand_outside_do_not_slow_those_inside(pool):
    """They say nothing, or half a head. Who works in the pool meanwhile does as
    much for its time on the processor as before."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    count = min(CONNECTIONS, most - 200)
    up = pool.up()
    pool.do("space", "create", "s")
    load = pool.run_sessions("load", "s", "m")
    until("it works", lambda: pool.operations_of(load))
    before = descriptors(up.child.pid)
    crowd = []

    def gather():
        crowd.extend(connect(pool.port, number) for number in range(count))

    try:
        calm = pool.work_of(load, lambda: None)
        crowded = pool.work_of(load, gather)
        print("  %d connections: %.2f of what was done without" % (
            count, crowded / calm))
        assert crowded > calm / 2, (crowded, calm)
        assert load.child.poll() is None, load.error
        pool.do("map", "put", "s", "other", "k", "v")
        assert pool.do("map", "get", "s", "other", "k") == "v\n"
        assert pool.status()["nodes"][0]["state"] == "ok"
        assert descriptors(up.child.pid) <= before + 16
        assert descriptors(server_of(up)) <= 128 + 64
    finally:
        for peer in crowd:
            peer.close()
    until("there is room again", lambda: answers(pool))


def scrape(pool):
    """The text, and how long the server took to make it."""
    before = pool.metrics()
    until("another one", lambda: pool.metrics()["reef_http_asked_total"] >
          before["reef_http_asked_total"] + 1)
    body = pool.get("/metrics")[2]
    after = pool.metrics()
    return body, (after["reef_http_ask_seconds_total"] -
                  before["reef_http_ask_seconds_total"]) / (
                      after["reef_http_asked_total"] -
                      before["reef_http_asked_total"])


def check_a_scrape_does_not_grow_with_sessions(pool):
    pool.up()
    few, few_s = scrape(pool)
    held = pool.run_sessions("hold", INSIDE)
    until("all are in", lambda: "ready" in held.out or held.child.poll())
    assert held.child.poll() is None, held.error
    until("all are seen", lambda: (
        pool.metrics()['reef_sessions{state="alive"}'] >= INSIDE))
    many, many_s = scrape(pool)
    print("  a scrape: %d bytes in %.2f ms; with %d sessions %d in %.2f ms" % (
        len(few), few_s * 1e3, INSIDE, len(many), many_s * 1e3))
    assert len(many.splitlines()) == len(few.splitlines())
    assert len(many) < SCRAPE_MAX and len(many) < 1.1 * len(few), len(many)


def asked_while(pool, meanwhile):
    """How often the broker was asked for others than us, and how many seconds
    passed by its own clock."""
    begun = pool.metrics()
    meanwhile()
    ended = pool.metrics()
    return (ended["reef_http_asked_total"] - begun["reef_http_asked_total"] - 1,
            ended["reef_broker_uptime_seconds"] -
            begun["reef_broker_uptime_seconds"])


def check_what_a_watcher_costs_is_bounded(pool):
    """Without one the broker is asked for nothing; with sixteen as often as with
    one: once a second."""
    up = pool.up()
    pid = server_of(up)
    start = pool.status()["uptime_ns"]
    asked, _ = asked_while(pool, lambda: until("some seconds", lambda: (
        pool.status()["uptime_ns"] > start + 3 * 10**9)))
    assert asked <= 1, asked
    for count in 1, 16:
        with contextlib.ExitStack() as stack:
            watchers = [stack.enter_context(Watcher(pool.port))
                        for _ in range(count)]

            def watch(seconds=SECONDS):
                for _ in range(seconds):
                    for watcher in watchers:
                        watcher.until_status()

            watch(1)
            used = [processor_s(one) for one in (up.child.pid, pid)]
            asked, passed = asked_while(pool, watch)
            used = [processor_s(one) - before for one, before in zip(
                (up.child.pid, pid), used)]
            print("  %d watchers: %.2f %% of a processor in the server, %.2f %% "
                  "in HTTP" % (count, *(100 * one / passed for one in used)))
            assert SECONDS - 1 <= asked <= passed + 2, (asked, passed)


if __name__ == "__main__":
    sys.exit(run_checks(globals(), lambda: Crowded(REEF), sys.argv[3:]))
