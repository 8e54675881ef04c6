"""scene.py REEF SCENE - memory that always comes back.

Processes change the keys of a map (scene.c) as fast as they can, over shared
memory and tcp, and one of them is killed again and again, more often than the
pool has room for what the dead leave behind. With REEF_SOAK=1: for ten minutes,
twice as often, and some stand still for up to three leases.

What is asserted is the pool's doing, by its own clock: no call finds it full, no
session waits for its recovery longer than a lease and a second, and two leases
after the end memory in use is that of the live keys again. Nor do the pool's
own processes grow with the sessions that come and go. How quick clients are is
told, not asserted.
"""

import json
import os
import random
import re
import signal
import struct
import sys
import time

from checks import run_checks
from pool_processes import Pool, until

REEF, SCENE = (os.path.abspath(name) for name in sys.argv[1:3])
SOAK = os.environ.get("REEF_SOAK") == "1"
LEASE_S = 2
LENT = 2 << 30
EXTENT = 64 << 20
KEYS, SIZE = 400, 60000
WORKERS = 5
# What may be in use in the end: the map's own blocks, one process's keys, in
# chunks that it claimed or adopted, and some slack.
BOUND = 6 * EXTENT
PAUSE_S = 0.1 if SOAK else 0.2
KILLS = 6000 if SOAK else 75
FENCED = 3
SHOTS = 100000 if SOAK else 500
AT_ONCE = 64 if SOAK else 16
# How much more memory the pool's processes may have after all sessions than
# after the first fifth of them: some slack, and what the janitor knows of each
# extent that is in use only then.
GROWTH = (8 << 20) + LENT // EXTENT * (512 << 10)
COUNTS = ("calls", "full", "in_doubt", "sessions", "refused")


class Scene(Pool):
    """A pool that lends 2 GiB, and those who use it."""

    def __init__(self):
        super().__init__(REEF)
        self.random = random.Random(int(os.environ.get("SCENE_SEED", "1")))
        self.watcher = None

    def up(self):
        self.start("up", "up", "--ttl", "%ds" % LEASE_S, "--lend",
                   str(LENT)).saw("Ctrl-C")
        self.watcher = self.start("watch", "status", "--json", "--watch")

    def scene(self, mode, number, *arguments):
        """One of the programs; every other is on tcp."""
        return self.start(
            "%s-%d" % (mode, number), argv=[
                SCENE, mode, "work", "map",
                os.path.join(self.home, "counts-%d" % number),
                *map(str, arguments)],
            REEF_FABRICS=("shm", "tcp")[number % 2])

    def tally(self):
        """What all calls came to, those of the killed included."""
        total = dict.fromkeys(COUNTS, 0)
        for name in os.listdir(self.home):
            if not name.startswith("counts-"):
                continue
            with open(os.path.join(self.home, name), "rb") as stream:
                values = struct.iter_unpack("=Q", stream.read(8 * len(COUNTS)))
            for key, (value,) in zip(COUNTS, values):
                total[key] += value
        return total

    def forget(self, worker):
        """Its files are read, and a soak has many."""
        self.processes.remove(worker)
        os.unlink(worker.out_path)
        os.unlink(worker.error_path)

    def seen(self):
        """What the watcher saw, about once a second."""
        lines = self.watcher.out.split("\n")
        return [json.loads(line) for line in lines[:-1]]


def seconds(status):
    """The pool's time."""
    return status["uptime_ns"] / 1e9


def used(status):
    return sum(row["used"] for row in status["nodes"])


def fenced(status):
    return {row["session"] for row in status["sessions"]
            if row["state"] == "fenced"}


def others(status):
    """All sessions but the janitor's."""
    return [row for row in status["sessions"] if row["name"] == "scene"]


def print_full(status):
    """What the pool was like when a call found it full: who holds memory back,
    and what waits."""
    print("full at %.1f s: %d MiB in use" % (
        seconds(status), used(status) >> 20))
    for row in status["sessions"]:
        print("  session %08x, process %d, is %s, silent for %.2f s, has %d "
              "KiB waiting, holds for %.2f s, %s" % (
                  row["session"], row["pid"], row["state"],
                  row["renewed_ns"] / 1e9, row["waiting"] >> 10,
                  row["holds_ns"] / 1e9, row["fabric"]))
    for event in status["events"][-20:]:
        print("  %.2f s before: %s" % (event["age_ns"] / 1e9, event["text"]))


def find_lateness(samples):
    """How late the watcher's looks, a second apart, were at most. A machine that
    is busy with other things lets the pool wait as long."""
    times = [seconds(status) for status in samples]
    return max(later - sooner - 1 for sooner, later in zip(times, times[1:]))


def find_fenced_times(samples):
    """How long each session was FENCED, by the pool's events; where those were
    too many to be remembered, by the samples that saw it so."""
    began, ended, last = {}, {}, {}
    for status in samples:
        now = seconds(status)
        for event in status["events"]:
            found = re.match(r"session (\w+) is (fenced|recovered)$",
                             event["text"])
            if found:
                place = began if found.group(2) == "fenced" else ended
                place.setdefault(int(found.group(1), 16),
                                 now - event["age_ns"] / 1e9)
        for session in fenced(status):
            began.setdefault(session, now)
            last[session] = now
    return {session: ended.get(session, last.get(session, at)) - at
            for session, at in began.items()}


def print_samples(samples, every):
    """A table of what was seen."""
    for status in samples[::every]:
        print("%6.1f s %5d MiB in use, %3d sessions, %3d fenced" % (
            seconds(status), used(status) >> 20, len(status["sessions"]),
            len(fenced(status))))


# --- the scene ---


class Crowd:
    """Those who change the keys."""

    def __init__(self, pool):
        self.pool, self.stopped, self.kills, self.full = pool, {}, 0, 0
        self.workers = [self.begin(i) for i in range(WORKERS)]

    def begin(self, index):
        return self.pool.scene("change", index, KEYS, SIZE)

    def ended(self, worker):
        """It ended as it may: by itself, fenced, or killed, by us or by a
        fence, which on shm is the end of a process."""
        status = worker.end()
        assert status in (0, FENCED, -signal.SIGKILL, -signal.SIGTERM), (
            worker.name, status, worker.out, worker.error)

    def kill_one(self):
        index = self.pool.random.randrange(WORKERS)
        if index not in self.stopped:
            self.workers[index].kill()
            self.kills += 1
        for i, worker in enumerate(self.workers):
            if worker.child.poll() is not None:
                self.ended(worker)
                self.pool.forget(worker)
                self.stopped.pop(i, None)
                self.workers[i] = self.begin(i)

    def note_full(self):
        """Show how it was, the first few times that the pool was full."""
        full = self.pool.tally()["full"]
        if full > self.full and self.full < 3:
            print_full(json.loads(self.pool.do("status", "--json")))
        self.full = full

    def stop_one(self):
        """Let go who has stood still long enough; stop another."""
        now = time.monotonic()
        for index, until_s in list(self.stopped.items()):
            if now >= until_s:
                self.workers[index].send(signal.SIGCONT)
                del self.stopped[index]
        if not self.stopped and self.pool.random.randrange(20) == 0:
            index = self.pool.random.randrange(WORKERS)
            self.workers[index].send(signal.SIGSTOP)
            self.stopped[index] = now + self.pool.random.uniform(
                0, 3 * LEASE_S)

    def end(self):
        for index in self.stopped:
            self.workers[index].send(signal.SIGCONT)
        for worker in self.workers:
            worker.send(signal.SIGTERM)
        for worker in self.workers:
            self.ended(worker)


def await_ends(pool):
    """Until all sessions are over; who was killed on tcp ends with its lease.
    The pool as it is then, and how long that took."""
    began = seconds(pool.status())

    def are_over():
        status = pool.status()
        return not others(status) and status

    status = until("all sessions' ends", are_over)
    return status, seconds(status) - began


def await_memory(pool, late):
    """Until no more is in use than may be, or two leases are over. The pool as
    it is then, and how long that took."""
    began = seconds(pool.status())
    while True:
        status = pool.status()
        took = seconds(status) - began
        if used(status) <= BOUND or took > 2 * LEASE_S + late:
            return status, took
        time.sleep(0.05)


def check_scene(pool):
    pool.up()
    crowd = Crowd(pool)
    until("all are busy", lambda: pool.tally()["sessions"] >= WORKERS)
    began = time.monotonic()
    while crowd.kills < KILLS:
        time.sleep(PAUSE_S)
        if SOAK:
            crowd.stop_one()
        crowd.note_full()
        crowd.kill_one()
    took = time.monotonic() - began
    crowd.end()
    before, over = await_ends(pool)
    # Live blocks do not move, and five processes put them wherever there was
    # room. Put them once more: then an extent that stays has something in it
    # that nobody gave back.
    rewrite = pool.scene("rewrite", 0, KEYS)
    assert rewrite.end() == 0, (rewrite.out, rewrite.error)
    late = find_lateness(pool.seen())
    status, back = await_memory(pool, late)
    samples, tally = pool.seen(), pool.tally()
    longest = max(find_fenced_times(samples + [status]).values(), default=0)
    print_samples(samples, 10 if SOAK else 2)
    print("%d kills in %.0f s, %.0f calls/s: %s" % (
        crowd.kills, took, tally["calls"] / took, tally))
    print("%d MiB in use at most; after the end sessions were over in %.1f s, "
          "with %d MiB; %d MiB in use %.1f s later; fenced for %.2f s at most; "
          "looks were late by %.2f s at most" % (
              max(map(used, samples)) >> 20, over, used(before) >> 20,
              used(status) >> 20, back, longest, late))
    assert tally["full"] == tally["refused"] == 0, tally
    assert longest <= LEASE_S + 1 + late, longest
    assert used(status) <= BOUND, used(status)


# --- slots ---


def find_children(pid):
    found = []
    for name in os.listdir("/proc/%d/task" % pid):
        with open("/proc/%d/task/%s/children" % (pid, name),
                  encoding="ascii") as stream:
            found += map(int, stream.read().split())
    return found


def find_own_memory(pool):
    """How much memory of their own the pool's processes have, by name: `reef
    up`, which is broker and node, and the janitor. What is lent is shared."""
    pid = pool.processes[0].child.pid
    memory = {}
    for one in [pid] + find_children(pid):
        with open("/proc/%d/status" % one, encoding="utf-8") as stream:
            found = re.search(r"RssAnon:\s+(\d+) kB", stream.read())
        memory["up" if one == pid else "janitor"] = int(found.group(1)) << 10
    return memory


def check_one_shots(pool):
    """Sessions that come, put a key and go; in a soak many more than there are
    slots."""
    pool.up()
    shots = [pool.scene("put", i, SHOTS // AT_ONCE) for i in range(AT_ONCE)]
    before = None
    while any(shot.child.poll() is None for shot in shots):
        if not before and pool.tally()["sessions"] >= SHOTS // 5:
            before = find_own_memory(pool)
        time.sleep(0.05)
    after = find_own_memory(pool)
    for shot in shots:
        assert shot.end() == 0, (shot.out, shot.error)
    samples, tally = pool.seen(), pool.tally()
    print_samples(samples, 10 if SOAK else 2)
    print("%s, at most %d MiB in use, fenced for %.2f s at most" % (
        tally, max(map(used, samples)) >> 20,
        max(find_fenced_times(samples).values(), default=0)))
    print("KiB of the pool's own, before and after: %s" % {
        name: (before[name] >> 10, after[name] >> 10) for name in before})
    assert tally["refused"] == tally["full"] == 0, tally
    for name, bytes_before in before.items():
        assert after[name] <= bytes_before + GROWTH, (name, before, after)


if __name__ == "__main__":
    sys.exit(run_checks(globals(), Scene, sys.argv[3:]))
