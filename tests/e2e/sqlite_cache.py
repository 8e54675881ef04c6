#!/usr/bin/env python3
"""sqlite_cache.py REEF EXTENSION COARSE [CHECK]... - databases of SQLite on disk,
whose pages are cached in a pool: the VFS reefcache, by Debian's sqlite3 and by
python3's module, beside programs that know nothing of it. COARSE: coarse_times.c,
to preload."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

from checks import Skipped, run_checks
from pool_processes import TIMEOUT_S, Pool, Taker, prepare_child, until

REEF, EXTENSION, COARSE = map(os.path.abspath, sys.argv[1:4])
WORKER = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                      "sqlite_worker.py")
# Debian's, which loads extensions; another may stand before it.
PYTHON = "/usr/bin/python3"
SOAK = 10 if os.environ.get("REEF_SOAK") else 1


class Databases(Pool):
    """A pool, and programs with databases."""

    def up(self, lend="128M"):
        return self.start("up", "up", "--lend", lend).saw("is up.")

    @property
    def path(self):
        return os.path.join(self.home, "x.db")

    def shell(self, *lines, status=0, load=True, **more):
        """What the sqlite3 shell printed."""
        script = "\n".join([".load %s" % EXTENSION] * load + [*lines, ""])
        done = subprocess.run(
            ["sqlite3", ":memory:"], input=script, cwd=self.home, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
            timeout=TIMEOUT_S, env=self.environment(**more),
            preexec_fn=prepare_child)
        assert done.returncode == status, (lines, done)
        return done.stdout

    def plain(self, sql):
        """What a sqlite3 that knows nothing of the pool prints."""
        return subprocess.run(
            ["sqlite3", "-cmd", ".timeout 60000", self.path, sql], text=True,
            stdout=subprocess.PIPE, check=True, timeout=TIMEOUT_S,
            env=self.environment(), preexec_fn=prepare_child).stdout

    def worker(self, mode, *arguments, **more):
        return self.start("worker-" + mode, argv=[
            PYTHON, WORKER, EXTENSION, mode, self.path, *map(str, arguments)],
            **more)

    def work(self, mode, *arguments, **more):
        """A worker to its end; what it printed."""
        worker = self.worker(mode, *arguments, **more)
        assert worker.end() == 0, (mode, worker.out, worker.error)
        return worker.out

    def make(self, journal="delete"):
        self.work("make")
        assert self.plain("pragma journal_mode=" + journal).strip() == journal

    def whole(self):
        assert self.plain("pragma integrity_check") == "ok\n"
        assert self.plain("select count(distinct v) from t") == "1\n"


class Reader:
    """A process that has a database open and reads it when asked."""

    def __init__(self, pool, *words, **more):
        self.child = subprocess.Popen(
            [PYTHON, WORKER, EXTENSION, "hold", pool.path, *words],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=pool.environment(**more), preexec_fn=prepare_child)
        assert self.child.stdout.readline() == "open\n"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.child.kill()
        self.child.wait()
        self.child.stdin.close()
        self.child.stdout.close()

    def do(self, line):
        """Execute a statement."""
        self.child.stdin.write(line + "\n")
        self.child.stdin.flush()
        answer = self.child.stdout.readline()
        assert answer, "the reader has ended: %s" % self.child.wait(TIMEOUT_S)
        return json.loads(answer)

    def read(self):
        """The number that all rows have, and what is told of the cache."""
        value, torn, stats = self.do("read")
        assert not torn, (value, torn)
        return value, stats

    def close(self):
        """Close the database, and end."""
        self.child.stdin.close()
        assert self.child.wait(TIMEOUT_S) == 0

    def caches(self):
        """Read until it does so from the pool alone."""
        def is_warm():
            before = self.read()[1]
            after = self.read()[1]
            return (after["caching"] and after["hits"] > before["hits"] and
                    after["misses"] == before["misses"])
        until("reads are hits", is_warm)


def need_python(pool):
    done = subprocess.run([PYTHON, WORKER, EXTENSION, "can", ""],
                          capture_output=True, text=True, check=False,
                          env=pool.environment(), timeout=TIMEOUT_S)
    if done.returncode:
        raise Skipped("python3 loads no extension: " + done.stderr[-200:])


def check_shell(pool):
    """As a user types it; and what reads the same file knows nothing of it."""
    pool.up()
    said = pool.shell(
        ".open file:x.db?vfs=reefcache", "pragma journal_mode;",
        "create table t (a, b);",
        "insert into t select value, hex(zeroblob(500)) from "
        "generate_series(1, 2000);", "select count(*), sum(a) from t;",
        "pragma mmap_size=10000000;", "select file from pragma_database_list;",
        "select reef_stats() ->> 'caching', reef_stats() ->> 'cover';", ".vfsname")
    assert "2000|2001000\n0\n" in said, said
    assert "1|sqlite-4096\n" in said and "reefcache/unix" in said, said
    assert pool.plain("select count(*) from t; pragma integrity_check") == (
        "2000\nok\n")
    said = pool.shell(
        ".open file:x.db?vfs=reefcache", "select sum(a) from t;",
        "select reef_stats() ->> 'hits' > 200, reef_stats() ->> 'misses';",
        "select reef_prime();", "attach 'file:y.db?vfs=reefcache' as y;",
        "create table y.t (a);", "select reef_stats('y') ->> 'vfs';")
    assert said == "2001000\n1|0\n0\nreefcache\n", said
    # A pool in which nothing is yet is filled at once.
    pool.plain("update t set a = a + 1")
    said = pool.shell(
        ".open file:x.db?vfs=reefcache&reef_cover=other&reef_size=8M",
        "select reef_prime() > 200;", "select sum(a) from t;",
        "select reef_stats() ->> 'misses' = reef_stats() ->> 'fills', "
        "reef_stats() ->> 'size_max';")
    assert said == "1\n2003000\n1|8388608\n", said


def check_refused(pool):
    """What is wrong is said; a pool that is not there costs nothing else."""
    said = pool.shell(".open file:x.db?vfs=reefcache", "create table t (a);",
                      "insert into t values (1);", "select a from t;",
                      "select reef_stats() ->> 'why';")
    assert said == "1\nNo such file or directory\n", said
    assert "unable to open" in pool.shell(
        ".open file:x.db?vfs=reefcache&reef_size=much", "select 1 from t;",
        status=1)
    assert "not opened by vfs=reef" in pool.shell("select reef_stats();",
                                                  status=1)
    said = pool.shell(
        ".open file:x.db?vfs=reefcache&reef_pool=reef://127.0.0.1:1",
        "select a from t;", "select reef_stats() ->> 'why';")
    assert said == "1\nPermission denied\n", said


def check_random(pool):
    """Random work, beside the same on the default VFS."""
    need_python(pool)
    pool.up()
    hits = 0
    for seed, (journal, size) in enumerate(
            (("delete", 4096), ("wal", 4096), ("truncate", 1024),
             ("wal", 16384), ("persist", 512))):
        for turn in range(SOAK):
            hits += int(pool.work("random", seed + 10 * turn, journal, size,
                                  100))
            for name in ("x.db", "x.db.plain"):
                for end in ("", "-wal", "-shm", "-journal"):
                    path = os.path.join(pool.home, name + end)
                    if os.path.exists(path):
                        os.remove(path)
    assert hits > 500, hits


def check_random_beside(pool):
    """One database, changed with the extension and without it: journals, sizes
    of pages, backups that are restored, times that are set back."""
    need_python(pool)
    pool.up()
    hits = 0
    for seed in range(SOAK):
        if os.path.exists(pool.path):
            os.remove(pool.path)
        pool.make()
        hits += int(pool.work("beside", seed, 40))
    assert hits > 100, hits


def watched(pool, journal, writers, kills=0):
    """Readers by the cache beside writers, of which some are killed."""
    need_python(pool)
    pool.up()
    pool.make(journal)
    count = 20 * SOAK
    watchers = [pool.worker("watch", 100 * SOAK) for _ in range(2)]
    bumpers = [pool.worker("bump", kind, who, count)
               for who, kind in enumerate(writers)]
    for bumper in bumpers[:kills]:
        bumper.saw("committed 3 ").kill()
    for bumper in bumpers[kills:]:
        assert bumper.end() == 0, (bumper.out, bumper.error)
    for watcher in watchers:
        assert watcher.end() == 0, (watcher.out, watcher.error)
    pool.whole()
    for who, bumper in enumerate(bumpers):
        told = bumper.out.count("committed")
        there = int(pool.plain(
            "select count(*) from done where who = %d" % who))
        assert told <= there <= told + 1, (who, told, there)
    return json.loads(watchers[0].out)


def check_processes(pool):
    """Several processes, some of which are killed in the middle."""
    stats = watched(pool, "delete", ["cached"] * 4, kills=2)
    assert stats["hits"] > 0, stats


def check_processes_wal(pool):
    """The same with a WAL."""
    stats = watched(pool, "wal", ["cached"] * 4, kills=2)
    assert stats["hits"] > 0, stats


def check_plain_writers(pool):
    """Writers without the extension change the file beside."""
    watched(pool, "delete", ["plain", "cached", "plain"], kills=1)


def check_plain_writers_wal(pool):
    """The same with a WAL: only the times of the file tell."""
    watched(pool, "wal", ["plain", "cached", "plain"], kills=1)


def check_plain_beside_reader(pool):
    """One reader, and one who writes without the extension before each read:
    never a stale page; between them, hits."""
    need_python(pool)
    pool.up()
    for journal in ("delete", "wal"):
        if os.path.exists(pool.path):
            os.remove(pool.path)
        pool.make(journal)
        with Reader(pool) as reader:
            value, _ = reader.read()
            assert value == 0
            for number in range(1, 6):
                reader.caches()
                pool.plain("update t set v = v + 1; "
                           "pragma wal_checkpoint(truncate)")
                value, _ = reader.read()
                assert value == number, (journal, number, value)
            assert reader.read()[1]["foreign"] >= 5


def check_plain_same_tick(pool):
    """Writes with and without the extension, quicker than the times of files
    tell them apart; by the kernel's clock, and by a coarse one."""
    need_python(pool)
    pool.up()
    for journal, preload in (("wal", ""), ("wal", COARSE), ("delete", COARSE)):
        if os.path.exists(pool.path):
            os.remove(pool.path)
        pool.make(journal)
        stats = json.loads(pool.work("tick", 150 * SOAK,
                                     LD_PRELOAD=preload))
        assert stats["fills"] > 50, stats


def check_checkpoint_of_another(pool):
    """Two bring pages from the WAL into the file, one of them without the
    extension, while the other has a snapshot open, or before it closes: what
    it notes then is not that the first one's pages are in the pool."""
    need_python(pool)
    pool.up()
    pool.make("wal")
    with Reader(pool) as one:
        one.caches()
        pool.plain("update t set v = v + 1")
        one.do("begin")
        one.do("select count(*) from done")
        pool.plain("pragma wal_checkpoint")
        one.do("insert into done values (1, 1)")
        one.do("commit")
        one.do("pragma wal_checkpoint")
        with Reader(pool) as other:
            assert other.read()[0] == 1
            other.caches()
        # A checkpoint does not cost the pages that it does not write.
        one.do("insert into done values (1, 2)")
        one.do("pragma wal_checkpoint")
        with Reader(pool) as other:
            value, stats = other.read()
            assert value == 1 and stats["misses"] < 5, (value, stats)
        one.caches()
        # The last who closes it brings the rest of the WAL into the file.
        pool.plain("update t set v = v + 1; pragma wal_checkpoint; "
                   "insert into done values (2, 2)")
        one.close()
    assert not os.path.exists(pool.path + "-wal")
    with Reader(pool) as other:
        assert other.read()[0] == 2
    pool.whole()


def check_another_by_that_name(pool):
    """A file takes the name of one that is open and that nobody has read yet,
    as a backup does that is restored: each is read as it is, and neither's
    pages are the other's, though both have had as many changes."""
    need_python(pool)
    pool.up()
    pool.make()
    backup = pool.path + ".backup"
    shutil.copy(pool.path, backup)
    pool.plain("update t set v = 1")
    subprocess.run(["sqlite3", backup, "update t set v = 2"], check=True,
                   timeout=TIMEOUT_S)
    with Reader(pool, "late") as one, Reader(pool) as two:
        two.caches()
        os.rename(backup, pool.path)
        until("an older state", lambda: time.time() - os.stat(
            pool.path).st_ctime > 0.1)
        one.do("select reef_prime()")
        assert one.read()[0] == 1
        assert two.read()[0] == 1
        with Reader(pool) as other:
            assert other.read()[0] == 2
            other.caches()
            assert other.read()[0] == 2


def check_pool_killed(pool):
    """The pool dies as by a loss of power: the database goes on, and is whole;
    the next pool is filled anew."""
    need_python(pool)
    up = pool.up()
    pool.make()
    with Reader(pool) as reader:
        reader.caches()
        bumper = pool.worker("bump", "cached", 1, 12)
        bumper.saw("committed 3 ")
        up.kill()
        assert bumper.end() == 0, (bumper.out, bumper.error)
        assert reader.read()[0] == 12
        pool.whole()
        pool.up()
        pool.work("bump", "cached", 2, 3)
        assert reader.read()[0] == 15
        reader.caches()
    pool.whole()


def check_revoked(pool):
    """The lender takes its memory back in the middle: slower, nothing wrong."""
    need_python(pool)
    pool.up()
    pool.make()
    node, = pool.nodes()
    with Reader(pool) as reader:
        bumper = pool.worker("bump", "cached", 1, 14)
        watcher = pool.worker("watch", 40)
        for number in (2, 5, 8):
            bumper.saw("committed %d " % number)
            reader.read()
            pool.do("node", "reclaim", node, "64M")
        assert bumper.end() == 0, (bumper.out, bumper.error)
        assert watcher.end() == 0, (watcher.out, watcher.error)
        assert reader.read()[0] == 14
        reader.caches()
    pool.whole()


def check_revoked_all_the_time(pool):
    """All of it, every 50 ms, under readers and writers, and under whoever
    primes: nothing wrong; and in the end the pool is full again."""
    need_python(pool)
    pool.start("up", "up", "--lend", "128M", "--extent-size", "8M",
               "--revoke-notice", "20ms").saw("is up.")
    for journal in ("delete", "wal"):
        if os.path.exists(pool.path):
            os.remove(pool.path)
        pool.make(journal)
        with Taker(pool, "128M") as taker, Reader(pool) as one:
            workers = [pool.worker("watch", 60 * SOAK) for _ in range(2)]
            workers += [pool.worker("bump", kind, who, 10 * SOAK)
                        for who, kind in enumerate(("cached", "cached"))]
            primed = 0
            while any(worker.child.poll() is None for worker in workers):
                primed += one.do("prime")[0]
                one.read()
            for worker in workers:
                assert worker.end() == 0, (worker.out, worker.error)
            assert taker.taken and primed, (taker.taken, primed)
            assert one.read()[0] == 20 * SOAK
        pool.plain("pragma wal_checkpoint(truncate)")
        with Reader(pool) as one:
            assert one.read()[0] == 20 * SOAK
            one.caches()
        pool.whole()


def check_stopped(pool):
    """A writer that stands still for longer than its session lasts, and goes
    on, or does not: over tcp, where it is not killed for it."""
    need_python(pool)
    pool.start("up", "up", "--lend", "128M", "--ttl",
               "500ms").saw("is up.")
    pool.make()
    tcp = {"REEF_FABRICS": "tcp"}
    with Reader(pool, **tcp) as reader:
        reader.caches()
        bumper = pool.worker("bump", "cached", 1, 10, **tcp)
        for number in (1, 4):
            bumper.saw("committed %d " % number)
            bumper.send(signal.SIGSTOP)
            until("its session has ended", lambda: bumper.child.pid not in [
                row["pid"] for row in pool.status()["sessions"]
                if row["state"] == "alive"])
            bumper.send(signal.SIGCONT)
        assert bumper.end() == 0, (bumper.out, bumper.error)
        assert reader.read()[0] == 10
        reader.caches()
    pool.whole()


if __name__ == "__main__":
    sys.exit(run_checks(globals(), lambda: Databases(REEF), sys.argv[4:]))
