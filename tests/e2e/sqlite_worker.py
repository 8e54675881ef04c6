"""sqlite_worker.py EXTENSION MODE DATABASE [ARGUMENT]... - a program that uses a
database by the VFS reefcache, for sqlite_cache.py. Its python3 is Debian's, whose
module sqlite3 loads extensions."""

import hashlib
import json
import os
import random
import sqlite3
import sys
import time

EXTENSION, MODE, DATABASE = sys.argv[1:4]
ROWS = 400  # of the tables that bump and watch use
BUSY_S = 60


def plain(path=DATABASE):
    db = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None)
    db.text_factory = bytes
    db.execute("pragma synchronous=off")  # processes die here, not machines
    return db


def cached(path=DATABASE, more="", is_late=False):
    """A connection by the VFS, that keeps nearly no pages itself. is_late: it
    has executed nothing yet."""
    loader = sqlite3.connect(":memory:")
    loader.enable_load_extension(True)
    loader.load_extension(EXTENSION)
    loader.close()
    db = sqlite3.connect("file:%s?vfs=reefcache%s" % (path, more), uri=True,
                         timeout=BUSY_S, isolation_level=None)
    db.text_factory = bytes
    if not is_late:
        db.execute("pragma synchronous=off")
        db.execute("pragma cache_size=4")
    return db


def stats(db):
    return json.loads(db.execute("select reef_stats()").fetchone()[0])


def digest(db):
    """All that is in a database."""
    total = hashlib.sha256()
    for name, in db.execute("select name from sqlite_schema where "
                            "type = 'table' order by 1").fetchall():
        for row in db.execute("select rowid, * from %s order by rowid" %
                              name.decode()):
            total.update(repr(row).encode())
    return total.hexdigest()


def steps(rng):
    """Statements by chance; the same for both databases."""
    table = rng.choice(("a", "b"))
    key = rng.randrange(3000)
    return rng.choice((
        [("insert or replace into %s values (?, ?)" % table,
          (key, rng.randbytes(rng.choice((10, 300, 5000)))))],
        [("update %s set v = v || 'x' where k between ? and ?" % table,
          (key, key + 50))],
        [("delete from %s where k between ? and ?" % table,
          (key, key + rng.choice((3, 400))))],
        [("begin", ()), ("update %s set v = 'gone'" % table, ()),
         ("rollback", ())],
        [("begin", ()), ("insert or replace into a values (?, 'both')", (key,)),
         ("savepoint s", ()), ("delete from b where k > ?", (key,)),
         (rng.choice(("rollback to s", "release s")), ()), ("commit", ())],
        [("select sum(length(v)) from %s where k > ?" % table, (key,))],
        [("select k, length(v) from %s where k between ? and ?" % table,
          (key, key + 20))],
        [(rng.choice(("vacuum", "reindex", "analyze",
                      "pragma wal_checkpoint(truncate)",
                      "pragma incremental_vacuum(5)")), ())]))


def run_random(seed, journal, page_size, count):
    """Random work on two databases, of which one is cached: each answer is the
    same."""
    rng = random.Random(seed)
    databases = [plain(DATABASE + ".plain"), cached()]
    for db in databases:
        db.execute("pragma page_size=%s" % page_size)
        db.execute("pragma auto_vacuum=incremental")
        db.execute("pragma journal_mode=%s" % journal)
        db.execute("create table a (k integer primary key, v)")
        db.execute("create table b (k integer primary key, v)")
        db.executemany("insert into a values (?, zeroblob(700))",
                       [(k,) for k in range(0, 3000, 9)])
    hits = 0
    for step in range(int(count)):
        for sql, values in steps(rng):
            answers = [db.execute(sql, values).fetchall() for db in databases]
            assert "checkpoint" in sql or answers[0] == answers[1], (step, sql)
        if step % 40 == 39:
            hits += stats(databases[1])["hits"]
            databases[1].close()
            databases[1] = cached()
            assert digest(databases[0]) == digest(databases[1]), step
    assert digest(databases[0]) == digest(databases[1])
    print(hits + stats(databases[1])["hits"])


def change_beside(rng, db, other):
    """What people do to a database that is in use, by one or the other."""
    one = rng.choice((db, other))
    what = rng.randrange(8)
    if what < 3:
        one.execute("insert or replace into t values (?, ?, ?)", (
            rng.randrange(ROWS), rng.random(),
            rng.randbytes(rng.choice((9, 900, 9000)))))
    elif what == 3:
        one.execute("pragma journal_mode=%s" % rng.choice((
            "wal", "delete", "persist"))).fetchall()
    elif what == 4:
        one.execute("pragma wal_checkpoint(%s)" % rng.choice((
            "passive", "truncate"))).fetchall()
    elif what == 5:
        other.execute("pragma page_size=%d" % rng.choice((1024, 4096)))
        one.execute("vacuum")
    elif what == 6:
        with sqlite3.connect(":memory:") as backup:
            other.backup(backup)
            backup.execute("update t set v = v + 1 where k % 7 = 0")
            backup.commit()
            backup.backup(other)
    else:
        os.utime(DATABASE, ns=(0, rng.randrange(10 ** 18)))


def run_beside(seed, count):
    """A database that is changed with the extension and without it, in all ways;
    whoever reads it with it finds what the other one does."""
    rng = random.Random(int(seed))
    readers, beside, hits = [cached(), cached()], plain(), 0
    for db in (*readers, beside):
        db.execute("pragma busy_timeout=1")
    for step in range(int(count)):
        try:
            change_beside(rng, readers[0], beside)
        except sqlite3.OperationalError as error:
            assert "locked" in str(error), error
        if rng.randrange(3) == 0:
            time.sleep(0.06)  # its state is noted
        want = digest(beside)
        for db in readers:
            assert digest(db) == want, (seed, step)
        if step % 20 == 19:
            hits += stats(readers[1])["hits"]
            readers[1].close()
            readers[1] = cached()
    print(hits)


def make():
    """Tables for bump and watch: every row has the same number."""
    db = plain()
    db.execute("create table t (k integer primary key, v, pad)")
    db.executemany("insert into t values (?, 0, zeroblob(900))",
                   [(k,) for k in range(ROWS)])
    db.execute("create table done (who, number)")


def bump(db, who, number):
    """One transaction over all rows."""
    db.execute("begin immediate")
    db.execute("update t set v = v + 1")
    db.execute("insert into done values (?, ?)", (who, number))
    db.execute("commit")


def run_bump(kind, who, count):
    """Transactions, each told when it is committed."""
    who = int(who)
    db = cached() if kind == "cached" else plain()
    db.execute("pragma wal_autocheckpoint=20")
    for number in range(int(count)):
        bump(db, who, number)
        value, = db.execute("select min(v) from t").fetchone()
        print("committed %d %d" % (number, value), flush=True)
    print("end", flush=True)


def look(db):
    rows = db.execute("select v from t where v != (select v from t where "
                      "k = 0)").fetchall()
    value, = db.execute("select max(v) from t").fetchone()
    return value, rows


def run_watch(count):
    """Read while others write: all rows are of one transaction, no number goes
    back, and what is committed when the lock is taken is there."""
    db, beside = cached(), plain()
    last = 0
    for step in range(int(count)):
        db.execute("begin immediate" if step % 8 == 0 else "begin")
        value, rows = look(db)
        assert not rows, (step, value, rows[:3])
        assert value >= last, (step, value, last)
        if step % 8 == 0:  # nobody commits meanwhile
            assert look(beside) == (value, []), (step, value, look(beside))
            assert digest(db) == digest(beside), step
        db.execute("commit")
        last = value
    print(json.dumps(stats(db)), flush=True)


def run_tick(count):
    """Write by turns with and without the cache, within a tick of the clock
    that files have: each write is seen at once."""
    writers = cached(), plain(), plain()
    reader = cached()
    for step in range(int(count)):
        for turn, db in enumerate(writers):
            value = 3 * step + turn
            db.execute("update t set v = ? where k = 9", (value,))
            db.execute("pragma wal_checkpoint").fetchall()
            found, = reader.execute("select v from t where k = 9").fetchone()
            assert found == value, (step, turn, found, value)
    print(json.dumps(stats(reader)))


def prime(db):
    """How many pages came into the pool. A lock that others have is not waited
    for there."""
    try:
        return db.execute("select reef_prime()").fetchone()[0]
    except sqlite3.OperationalError as error:
        assert "locked" in str(error), error
        return 0


def run_hold(late=False):
    """Read when told to, or execute a statement; a line for each. late: the
    file is open, and was not looked at."""
    db = cached(is_late=bool(late))
    print("open", flush=True)
    for line in sys.stdin:
        if line == "read\n":
            value, rows = look(db)
            print(json.dumps([value, len(rows), stats(db)]), flush=True)
        elif line == "prime\n":
            print(json.dumps([prime(db)]), flush=True)
        else:
            print(json.dumps(db.execute(line).fetchall()), flush=True)
    db.close()


if MODE == "can":
    cached(":memory:")
elif MODE == "make":
    make()
else:
    {"random": run_random, "beside": run_beside, "bump": run_bump,
     "watch": run_watch, "tick": run_tick, "hold": run_hold}[MODE](*sys.argv[4:])
