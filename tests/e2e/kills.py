"""kills.py REEF WORKER KILLS [PART OF A NAME...] - who holds, reads or waits dies.

Pools of real processes, in which the program `kills` (tests/kills) kills the
workers that it started, 50 in all, and as many as the other objects ask for.
With REEF_SOAK=1: 1,000 and more.
"""

import os
import re
import subprocess
import sys

from checks import run_checks
from pool_processes import Workers

REEF, WORKER, KILLS = (os.path.abspath(name) for name in sys.argv[1:4])
SOAK = os.environ.get("REEF_SOAK") == "1"
SEED = int(os.environ.get("REEF_SEED", "1"))
TTL_MS = 300
# No measurement: what nobody may wait for on the busiest machine.
LIMIT_MS = 60 * TTL_MS
BLOCK = 16 << 10  # of which it is counted how many there is room for
# How many of 1,000 kills; of 50 in all a twentieth, on two fabrics.
LOCKS = {"shift": 300, "mcs": 240, "rw": 300, "spin": 160}
OTHERS = {"election": 60, "lease": 60, "barrier": 80}


def share(kills):
    """Of one fabric, of two."""
    return kills // 2 if SOAK else (kills + 39) // 40


class Deaths(Workers):
    """A pool whose sessions are short, and one who does no more than to live:
    what the dead had is recovered by whoever has their space open."""

    def up(self):
        # A session has a chunk, and when it dies that waits for an epoch.
        self.start("up", "up", "--ttl", "%dms" % TTL_MS, "--extent-size", "4M",
                   "--lend", "256M" if SOAK else "64M").saw("Ctrl-C")
        self.do("space", "create", "kills")
        self.room = self.capacity("kills", BLOCK)
        self.survivor = self.worker("hold", "kills", 1).saw("holds")

    def deaths(self, kind, kills, fabrics, *more, status=0):
        """Run it to its end; what it printed."""
        process = self.start("kills", argv=[
            KILLS, kind, str(kills), "ttl=%d" % TTL_MS, "limit=%d" % LIMIT_MS,
            "seed=%d" % SEED, "fabrics=" + fabrics, *more])
        try:
            code = process.child.wait(60 + (kills + 10) * LIMIT_MS / 1000)
        except subprocess.TimeoutExpired:
            code = None
        assert code == status, "%s %s ends with %s:\n%s%s" % (
            kind, fabrics, code, process.out, process.error)
        return process.out

    def show(self, kind, kills, fabrics, *more):
        print("%-7s %s" % (fabrics, self.deaths(
            kind, kills, fabrics, *more).strip()), flush=True)

    def memory_is_back(self):
        """Also from one who recovered it, and does no more than to live."""
        self.only(self.survivor)
        self.room_is_back(self.room * 7 // 8, "kills", BLOCK)
        assert self.survivor.stop() == 0, self.survivor.out


def locks(pool, fabrics):
    pool.up()
    for kind, kills in LOCKS.items():
        pool.show(kind, share(kills), fabrics)
    pool.memory_is_back()


def check_locks_shm(pool):
    locks(pool, "shm")


def check_locks_tcp(pool):
    locks(pool, "tcp")


def check_locks_mixed(pool):
    """Those who have no fabric in common do without messages."""
    pool.up()
    for kind in ("shift", "mcs", "rw") if SOAK else ("shift",):
        pool.show(kind, 100 if SOAK else 4, "shm,tcp")


def check_locks_full(pool):
    """With fewer places than there are who want it."""
    pool.up()
    for kind in ("shift", "mcs", "rw") if SOAK else ("mcs", "rw"):
        pool.show(kind, 100 if SOAK else 4, "shm", "places=2", "workers=8")


def check_stops(pool):
    """Over tcp whoever stands still is fenced; over shm nobody is, unless
    leases kill."""
    pool.up()
    stops = "stops=%d" % (20 if SOAK else 1)
    for kind in ("shift", "mcs", "rw") if SOAK else ("shift",):
        pool.show(kind, 0, "tcp", stops, "fences=1")
        pool.show(kind, 0, "shm", stops)


def check_election(pool):
    pool.up()
    for fabrics in ("shm", "tcp"):
        pool.show("election", share(OTHERS["election"]), fabrics)


def check_lease(pool):
    pool.up()
    for fabrics in ("shm", "tcp"):
        pool.show("lease", share(OTHERS["lease"]), fabrics)


def check_barrier(pool):
    pool.up()
    for fabrics in ("shm", "tcp"):
        pool.show("barrier", share(OTHERS["barrier"]), fabrics)


def check_it_can_fail(pool):
    """Without a lock it is seen that there is none; with one that forgets to
    tell who inherits, that nobody was told; and who passes a barrier early."""
    pool.up()
    out = pool.deaths("nothing", 5, "shm", status=1)
    assert re.search(r"FAILED nothing.*(holds it|found|updates)", out), out
    out = pool.deaths("mcs", 20, "shm", "mutant=LOCK_FORGET_INHERITED", status=1)
    assert "was not told" in out, out
    out = pool.deaths("barrier", 0, "shm", "mutant=BARRIER_NO_LAST_STEP", status=1)
    assert re.search(r"passed round \d+, and \d+ is at", out), out


if __name__ == "__main__":
    sys.exit(run_checks(globals(), lambda: Deaths(REEF, WORKER), sys.argv[4:]))
