"""sync.py REEF - `reef lock` and `reef elect` as a user runs them.

Real processes that are killed, ended and interrupted while they hold locks and
lead. Waits have a bound, and nothing is expected to take a certain time.
"""

import json
import os
import signal
import sys

from checks import run_checks
from pool_processes import Pool, has_ended, until

REEF = os.path.abspath(sys.argv[1])
TTL = ("--ttl", "1s")


class Sync(Pool):
    """A pool in one process, and commands that it runs under locks."""

    def up(self):
        return self.start("up", "up", "--lend", "64M", "--extent-size", "4M",
                          *TTL).saw("is up.")

    def path(self, name):
        return os.path.join(self.home, name)

    def text(self, name):
        """What a command left; "" if it left nothing yet."""
        try:
            with open(self.path(name), encoding="utf-8") as stream:
                return stream.read()
        except FileNotFoundError:
            return ""

    def holder(self, name, *arguments, script="", verb="lock", **more):
        """Hold NAME until it is ended; leaves the pid of its command in NAME
        of the home."""
        mark = self.path(name)
        return self.start(
            name, verb, *arguments, "--", "sh", "-c",
            "%s echo $$ >%s.tmp; mv %s.tmp %s; exec sleep 600" % (
                script, mark, mark, mark), **more)

    def began(self, name):
        """The pid of the command of a holder, once it runs."""
        return int(until("%s holds" % name, lambda: self.text(name)))

    def row(self, verb, name):
        return json.loads(self.do(verb, "--json", name))


# --- locks ---


def check_lock_counts(pool):
    """Several processes increment a number in a file, each time under the
    lock; on shm and on tcp."""
    pool.up()
    path, workers, rounds = pool.path("count"), 4, 8
    with open(path, "w", encoding="utf-8") as stream:
        stream.write("0\n")
    step = 'read n <"$1"; sleep 0.00$((n % 3)); echo $((n + 1)) >"$1"'
    loop = ('i=0; while [ $i -lt %d ]; do "$0" lock count -- sh -c \'%s\' - '
            '"$1" || exit 1; i=$((i + 1)); done' % (rounds, step))
    started = [pool.start(
        "worker", argv=["sh", "-c", loop, REEF, path],
        **({"REEF_FABRICS": "tcp"} if i % 2 else {})) for i in range(workers)]
    for worker in started:
        assert worker.end() == 0, worker.error
        assert worker.error == "", worker.error
    assert int(pool.text("count")) == workers * rounds, pool.text("count")


def lock_killed(pool, **more):
    pool.up()
    first = pool.holder("first", "x", **more)
    command = pool.began("first")
    second = pool.holder(
        "second", "x", script='echo "<$REEF_LOCK_INHERITED>";', **more)
    until("it waits", lambda: pool.row("lock", "x")["waiters"] == 1)
    first.kill()
    pool.began("second")
    assert second.out == "<1>\n", second.out
    # What was run by the one that was killed ended with it.
    until("the command is gone", lambda: has_ended(command))
    # It has been repaired: the next one does not inherit.
    assert second.stop() == 128 + signal.SIGTERM, second.error
    third = pool.do("lock", "x", "--", "sh", "-c",
                    'echo "<$REEF_LOCK_INHERITED>"', **more)
    assert third == "<>\n", third


def check_lock_killed(pool):
    lock_killed(pool)


def check_lock_killed_tcp(pool):
    lock_killed(pool, REEF_FABRICS="tcp")


def check_lock_fenced(pool):
    """The session ends while the command runs: it gets SIGTERM, and SIGKILL
    if that is of no use."""
    pool.up()
    tcp = {"REEF_FABRICS": "tcp"}
    polite = pool.holder("polite", "a", script="trap 'exit 3' TERM;", **tcp)
    stubborn = pool.holder("stubborn", "--grace", "200ms", "b",
                           script="trap '' TERM;", **tcp)
    pids = pool.began("polite"), pool.began("stubborn")
    for name in "ab":
        pool.do("session", "end", "%08x" % pool.row("lock", name)["session"])
    for process, pid in zip((polite, stubborn), pids):
        assert process.end() == 124, process.error
        assert "the lock is lost" in process.error, process.error
        assert has_ended(pid)
    # On the machine of the node the session's process is killed, and its
    # command with it.
    near = pool.holder("near", "c")
    pid = pool.began("near")
    pool.do("session", "end", "%08x" % pool.row("lock", "c")["session"])
    assert near.end() == -signal.SIGKILL, near.error
    until("the command is gone", lambda: has_ended(pid))
    for name in "abc":
        pool.do("lock", name, "--", "true")


def check_lock_signals(pool):
    pool.up()
    holder = pool.holder("holder", "x")
    pid = pool.began("holder")
    waiter = pool.start("waiter", "lock", "x", "--", "true")
    until("it waits", lambda: pool.row("lock", "x")["waiters"] == 1)
    assert waiter.stop(signal.SIGINT) == 128 + signal.SIGINT, waiter.error
    until("it left", lambda: pool.row("lock", "x")["waiters"] == 0)
    assert holder.stop() == 128 + signal.SIGTERM, holder.error
    assert has_ended(pid)
    assert pool.row("lock", "x")["session"] == 0
    assert waiter.error == holder.error == ""
    # A command may do as it likes with a signal that is passed on.
    caught = pool.start("caught", "lock", "x", "--", "sh", "-c",
                        "trap 'exit 9' HUP; echo ready; "
                        "while :; do sleep 0.05; done").saw("ready")
    assert caught.stop(signal.SIGHUP) == 9, caught.error


def check_lock_status(pool):
    pool.refused("lock", "x", "--", "true", status=125, text="reef up")
    pool.refused("lock", status=1, text="reef up")
    pool.up()
    pool.refused("lock", text="there is no space \"sync\"")
    assert pool.ask("lock", "x", "--", "sh", "-c", "exit 7").returncode == 7
    pool.refused("lock", "x", "--", "no-such-command", status=127)
    pool.refused("lock", "x", "--", pool.home, status=126)
    pool.refused("lock", "--kind", "odd", "x", "--", "true", status=2)
    pool.refused("lock", "--timeout", "soon", "x", "--", "true", status=2)
    pool.refused("lock", "--exit-code", "256", "x", "--", "true", status=2)
    pool.refused("lock", "--kind", "mcs", "--shared", "m", "--", "true",
                 status=125)
    pool.refused("lock", "--space", "other", text="there is no space")
    holder = pool.holder("holder", "x")
    pool.began("holder")
    told = pool.refused("lock", "--no-wait", "x", "--", "true",
                        text="reef lock: x: others hold it")
    assert told.count("\n") == 1, told
    told = pool.refused("lock", "--timeout", "50ms", "--exit-code", "99", "x",
                        "--", "true", status=99, text="not had in time")
    assert told.count("\n") == 1, told
    # The same name in another space is another lock.
    pool.do("lock", "--space", "other", "x", "--", "true")
    # Nothing of ours is open in the command.
    out = pool.do("lock", "fd", "--", "ls", "/proc/self/fd")
    assert out.split() == ["0", "1", "2", "3"], out
    out = pool.do("lock", "--shared", "r", "--", REEF, "lock", "--shared", "r",
                  "--", REEF, "lock", "--json", "r")
    assert json.loads(out)["readers"] == 2, out
    assert "held by" in pool.do("lock")
    names = [json.loads(line)["lock"]
             for line in pool.do("lock", "--json").splitlines()]
    assert names == ["fd", "m", "r", "x"], names
    assert holder.stop() == 128 + signal.SIGTERM
    pool.do("lock", "--drop", "x")
    pool.refused("lock", "x", text="there is no lock")
    pool.refused("lock", "--drop", "x", text="there is no lock")


# --- elections ---


def elect(pool, name, **more):
    return pool.holder(name, "--as", name, "e", verb="elect",
                       script='echo "term $REEF_TERM";', **more)


def check_elect(pool):
    """Leaders are killed: the next one leads, with a higher term."""
    pool.up()
    watch = pool.start("watch", "elect", "--watch", "e").saw("nobody leads")
    names = ["anna", "ben", "carl", "dora"]
    candidates = {name: elect(pool, name, **(
        {"REEF_FABRICS": "tcp"} if name in ("ben", "carl") else {}))
        for name in names}
    terms = []
    for _ in range(len(names) - 1):
        leader = until("somebody leads", lambda: next(
            (name for name in candidates if pool.text(name)), None))
        watch.saw(": %s (session" % leader)
        row = pool.row("elect", "e")
        assert row["leader"] == leader, row
        candidates[leader].saw("term %d\n" % row["term"])
        terms.append(row["term"])
        command = pool.began(leader)
        # One at a time.
        assert sum(bool(pool.text(name)) for name in candidates) == 1
        candidates.pop(leader).kill()
        until("the command is gone", lambda: has_ended(command))
        os.remove(pool.path(leader))
    assert terms == sorted(set(terms)), terms
    last, = candidates
    pool.began(last)
    pool.refused("elect", "--no-wait", "e", "--", "true",
                 text="reef elect: e: another leads")
    pool.refused("elect", "--drop", "e", text="has a leader")
    assert candidates[last].stop() == 128 + signal.SIGTERM
    row = pool.row("elect", "e")
    assert row["session"] == 0 and row["leader"] == "", row
    assert "led by" in pool.do("elect")
    assert watch.stop(signal.SIGINT) == 0, watch.error
    assert watch.out.endswith("nobody leads\n"), watch.out
    pool.do("elect", "--drop", "e")
    pool.refused("elect", "e", text="there is no election")


def check_elect_fenced(pool):
    """Leadership is lost: the command ends, and the status says so."""
    pool.up()
    leader = elect(pool, "anna", REEF_FABRICS="tcp")
    pid = pool.began("anna")
    pool.do("session", "end", "%08x" % pool.row("elect", "e")["session"])
    assert leader.end() == 124, leader.error
    assert "leadership is lost" in leader.error, leader.error
    assert has_ended(pid)
    assert pool.ask("elect", "e", "--", "sh", "-c", "exit 5").returncode == 5


def check_stopped(pool):
    """A leader that stands still for longer than its session lasts finds out
    when it goes on; by then another has led."""
    pool.up()
    leader = elect(pool, "anna", REEF_FABRICS="tcp")
    pid = pool.began("anna")
    leader.send(signal.SIGSTOP)
    second = elect(pool, "ben")
    pool.began("ben")
    leader.send(signal.SIGCONT)
    assert leader.end() == 124, leader.error
    assert has_ended(pid)
    assert pool.row("elect", "e")["leader"] == "ben"
    assert second.stop() == 128 + signal.SIGTERM, second.error


if __name__ == "__main__":
    sys.exit(run_checks(globals(), lambda: Sync(REEF), sys.argv[2:]))
