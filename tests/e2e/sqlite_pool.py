"""sqlite_pool.py REEF EXTENSION [PART OF A NAME...] - databases in a pool.

Python's SQLite with the VFS `reef`: several processes on one database, which
are killed. With REEF_SOAK=1 for longer.

sqlite_pool.py STORY EXTENSION ...: one process that uses databases.
"""

import ctypes
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time

BUSY_S = 60
SOAK = os.environ.get("REEF_SOAK") == "1"
PROCESSES = 8 if SOAK else 4
KILLS = 60 if SOAK else 3
LOG = []  # why the pool's VFS failed, in a story


@ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)
def tell_log(_, code, text):
    """What SQLite's log is told by the VFS."""
    if text.startswith(b"reef: "):
        LOG.append("%d %s" % (code, text.decode()))


def keep_log():
    library = ctypes.CDLL("libsqlite3.so.0")
    library.sqlite3_shutdown()
    assert library.sqlite3_config(16, tell_log, None) == 0  # ..._CONFIG_LOG
    library.sqlite3_initialize()


def connect(extension, name, timeout=BUSY_S):
    """A database of the pool; the extension stays with the process."""
    first = sqlite3.connect(":memory:")
    first.enable_load_extension(True)
    first.load_extension(extension)
    first.close()
    return sqlite3.connect("file:%s?vfs=reef" % name, uri=True,
                           timeout=timeout, isolation_level=None)


def move(database, number, count, chance):
    """Move an amount between accounts, and note that in a table."""
    one, other = chance.sample(range(50), 2)
    amount = chance.randrange(1, 10)
    database.execute("BEGIN IMMEDIATE")
    database.execute(
        "UPDATE account SET amount = amount - ? WHERE id = ?", (amount, one))
    database.execute(
        "UPDATE account SET amount = amount + ? WHERE id = ?", (amount, other))
    database.execute(
        "INSERT INTO move VALUES (?, ?, ?, ?, ?)",
        (number, count, one, other, "x" * chance.randrange(3000)))
    database.execute("COMMIT")


def work(extension, name, number, journal):
    """Move amounts; tell what was committed, once it was. Whoever was taken
    for dead, because it stood still, opens the database anew."""
    keep_log()
    database = None
    chance = random.Random(int(number))
    for count in range(1 << 30):
        if not database:  # that is possible at once
            database = connect(extension, name)
            database.execute("PRAGMA journal_mode=%s" % journal)
        try:
            move(database, int(number), count, chance)
        except sqlite3.OperationalError as error:
            assert any("is fenced" in line for line in LOG), (error, LOG)
            LOG.clear()
            database.close()
            database = None
            continue
        print(count, flush=True)


def make(extension):
    database = connect(extension, "bank")
    database.execute("CREATE TABLE account (id INTEGER PRIMARY KEY, amount)")
    database.execute("CREATE TABLE move (process, count, one, other, text)")
    database.executemany("INSERT INTO account VALUES (?, 100)",
                         [(i,) for i in range(50)])
    database.close()


def tell(extension):
    """The bank is whole; print each move."""
    database = connect(extension, "bank")
    assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert database.execute(
        "SELECT sum(amount) FROM account").fetchone() == (5000,)
    for row in database.execute("SELECT process, count FROM move"):
        print(*row)
    database.close()


def sql(extension):
    """Ordinary work: temporary tables, indexes, vacuum, attached databases."""
    database = connect(extension, "work")
    database.execute("PRAGMA cache_size = 20")
    database.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, text)")
    database.execute("BEGIN")
    database.executemany("INSERT INTO t VALUES (?, ?)", (
        (i, "%d" % (i * 7919 % 20011) * 20) for i in range(20011)))
    database.execute("COMMIT")
    database.execute("CREATE INDEX by_text ON t (text)")
    database.execute("CREATE TEMPORARY TABLE copy AS "
                     "SELECT * FROM t ORDER BY text DESC")
    assert database.execute("SELECT count(*) FROM copy").fetchone() == (
        20011,)
    database.execute("DELETE FROM t WHERE id % 3 = 0")
    database.execute("VACUUM")
    assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    database.execute("ATTACH 'file:/sqlite/other?vfs=reef' AS other")
    database.execute("CREATE TABLE other.u AS SELECT * FROM t LIMIT 100")
    assert database.execute("SELECT count(*) FROM other.u").fetchone() == (
        100,)
    assert '"vfs":"reef"' in database.execute(
        "SELECT reef_stats()").fetchone()[0]
    database.close()


def wal(extension):
    """WAL needs the database for itself."""
    database = connect(extension, "wal")
    assert database.execute("PRAGMA journal_mode=wal").fetchone() == (
        "delete",)
    database.execute("PRAGMA locking_mode=exclusive")
    assert database.execute("PRAGMA journal_mode=wal").fetchone() == ("wal",)
    database.execute("CREATE TABLE t (a)")
    database.execute("INSERT INTO t VALUES (1)")
    database.close()
    database = connect(extension, "wal")
    database.execute("PRAGMA locking_mode=exclusive")
    assert database.execute("SELECT a FROM t").fetchone() == (1,)
    database.close()


def locks(extension):
    """One writes, others read what was committed."""
    writer = connect(extension, "locks", 0)
    reader = connect(extension, "locks", 0)
    writer.execute("CREATE TABLE t (a)")
    writer.execute("BEGIN IMMEDIATE")
    writer.execute("INSERT INTO t VALUES (1)")
    assert reader.execute("SELECT count(*) FROM t").fetchone() == (0,)
    refused(reader, "BEGIN IMMEDIATE")
    writer.execute("COMMIT")
    writer.execute("BEGIN EXCLUSIVE")
    refused(reader, "SELECT count(*) FROM t")
    writer.execute("ROLLBACK")
    reader.execute("BEGIN")
    assert reader.execute("SELECT count(*) FROM t").fetchone() == (1,)
    writer.execute("BEGIN IMMEDIATE")
    writer.execute("INSERT INTO t VALUES (2)")
    refused(writer, "COMMIT")
    reader.execute("COMMIT")
    writer.execute("COMMIT")
    assert reader.execute("SELECT count(*) FROM t").fetchone() == (2,)
    writer.close()
    reader.close()


def run(*words):
    subprocess.run(words, check=True, timeout=BUSY_S,
                   stdout=subprocess.DEVNULL)


def keep_results(database):
    """Attach the results of a table, computed anew."""
    database.execute("ATTACH 'file:results?vfs=reef' AS kept")
    database.execute("CREATE TABLE IF NOT EXISTS kept.results "
                     "(day INTEGER PRIMARY KEY, total)")
    database.execute("INSERT OR REPLACE INTO kept.results "
                     "SELECT k / 10, sum(v) FROM t GROUP BY 1")


def results(extension, reef):
    """Memory that is kept is not taken back. What is taken is an error, with
    its reason, of whoever asks for it, and of nobody else; then the space is
    dropped, and the same process computes it anew."""
    keep_log()
    connect(extension, "first").close()
    table = sqlite3.connect("file::memory:", uri=True, isolation_level=None)
    table.execute("CREATE TABLE t (k INTEGER PRIMARY KEY, v)")
    table.executemany("INSERT INTO t VALUES (?, ?)",
                      [(k, 7 * k) for k in range(1000)])
    look = "SELECT count(*), sum(total) FROM kept.results"
    want = (100, 7 * 999 * 500)
    keep_results(table)
    for is_kept in True, False, False:
        assert table.execute(look).fetchone() == want
        run(reef, "node", "reclaim", "lender", "256M")
        try:
            end = time.monotonic() + (0.3 if is_kept else BUSY_S)
            while time.monotonic() < end:
                assert table.execute(look).fetchone() == want
            assert is_kept, "nothing was taken"
        except sqlite3.OperationalError as error:
            assert not is_kept and "I/O" in str(error), error
            assert "the memory is gone" in LOG[-1], LOG
        assert table.execute("SELECT sum(v) FROM t").fetchone() == want[1:]
        table.execute("DETACH kept")
        run(reef, "space", "drop", "sqlite")
        run(reef, "space", "create", "sqlite", "revocable")
        keep_results(table)
    assert table.execute(look).fetchone() == want


def refused(database, statement):
    try:
        database.execute(statement)
    except sqlite3.OperationalError as error:
        assert "locked" in str(error), error
    else:
        raise AssertionError("%s was not refused" % statement)


def wrong_names(extension):
    """No pool, and names that are none: it cannot be opened."""
    for name in ("none", "a/b", "/x/y/z"):
        try:
            connect(extension, name).execute("SELECT 1 FROM sqlite_master")
        except sqlite3.OperationalError as error:
            assert "unable to open" in str(error), error
        else:
            raise AssertionError("%s was opened" % name)


STORIES = {story.__name__: story for story in (
    work, make, tell, sql, wal, locks, results, wrong_names)}
if len(sys.argv) > 1 and sys.argv[1] in STORIES:
    STORIES[sys.argv[1]](*sys.argv[2:])
    sys.exit(0)

# pylint: disable=wrong-import-position
from checks import run_checks  # noqa: E402
from pool_processes import Workers, until  # noqa: E402

REEF, EXTENSION = (os.path.abspath(name) for name in sys.argv[1:3])
PYTHON = "/usr/bin/python3"  # another may come first, that loads no extensions


class Databases(Workers):
    """A pool, and processes with databases in it."""

    def __init__(self, reef):
        super().__init__(reef, EXTENSION)
        self.random = random.Random(1)
        self.count = 0

    def up(self, *more):
        self.start("up", "up", "--ttl", "1s", "--extent-size", "8M",
                   "--lend", "256M", *more).saw("Ctrl-C")

    def story(self, name, *words, **more):
        return self.start(name, argv=[
            PYTHON, os.path.abspath(__file__), name, EXTENSION, *words], **more)

    def ends_well(self, name, *words):
        process = self.story(name, *words)
        assert process.end() == 0, (process.out, process.error)
        return process.out

    def worker(self, journal, fabrics):
        self.count += 1
        process = self.story("work", "bank", str(self.count), journal,
                             REEF_FABRICS=fabrics)
        process.number = self.count
        return process

    @staticmethod
    def told(process):
        """How many commits it has told."""
        return process.out.count("\n")

    def advances(self, process, count):
        goal = self.told(process) + count
        until("%d commits of %s" % (goal, process.name), lambda: (
            self.told(process) >= goal or process.child.poll() is not None))
        assert process.child.poll() is None, (process.out, process.error)

    def deaths(self, journal, fabrics):
        self.ends_well("make")
        workers = [self.worker(journal, fabrics) for _ in range(PROCESSES)]
        everybody = list(workers)
        for _ in range(KILLS):
            index = self.random.randrange(PROCESSES)
            self.advances(workers[index], self.random.randrange(1, 8))
            workers[index].kill()
            workers[index] = self.worker(journal, fabrics)
            everybody.append(workers[index])
        for worker in workers:
            self.advances(worker, 1)
            worker.kill()
        self.is_whole(everybody)

    def is_whole(self, workers):
        """The database is whole, and has every move that was told."""
        found = set(self.ends_well("tell").split("\n"))
        commits = 0
        for worker in workers:
            for line in worker.out.split():
                assert "%d %s" % (worker.number, line) in found, (
                    worker.name, line)
                commits += 1
            assert worker.error == "", worker.error
        print("%d commits of %d processes" % (commits, len(workers)),
              flush=True)


def check_deaths_delete(pool):
    pool.up()
    pool.deaths("delete", "shm")


def check_deaths_persist(pool):
    pool.up()
    pool.deaths("persist", "tcp")


def check_stopped(pool):
    """Who stood still for too long is fenced, and opens the database anew: over
    tcp, where it is not killed for it."""
    pool.up()
    pool.ends_well("make")
    workers = [pool.worker("persist", "tcp") for _ in range(2)]
    for worker in workers:
        pool.advances(worker, 2)
    session = pool.session_of(workers[0])["session"]
    workers[0].send(signal.SIGSTOP)
    until("its session ends", lambda: session not in [
        row["session"] for row in pool.status()["sessions"]
        if row["state"] == "alive"])
    pool.advances(workers[1], 2)
    workers[0].send(signal.SIGCONT)
    pool.advances(workers[0], 2)
    for worker in workers:
        worker.kill()
    pool.is_whole(workers)


def check_sql(pool):
    pool.up()
    pool.ends_well("sql")
    # The files are those of `reef file`.
    listed = pool.do("file", "list", "sqlite")
    assert "work" in listed and "other" in listed, listed
    assert "-journal" not in listed and "~temporary" not in listed, listed


def check_wal(pool):
    pool.up()
    pool.ends_well("wal")


def check_locks(pool):
    pool.up()
    pool.ends_well("locks")


def check_results_are_taken_back(pool):
    pool.up("--name", "lender", "--revoke-notice", "100ms")
    pool.ends_well("results", REEF)


def check_bad_input(pool):
    pool.ends_well("wrong_names")


if __name__ == "__main__":
    sys.exit(run_checks(globals(), lambda: Databases(REEF), sys.argv[3:]))
