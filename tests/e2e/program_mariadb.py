"""program_mariadb.py REEF [PART OF A NAME...] - a real MariaDB under `reef pages
--verify`: read and written, killed, and its pool with it.

Not one page of the pool may differ from the disk. It has a data directory of its
own without tables of users. With REEF_SOAK=1 for longer.
"""

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys

from checks import Skipped, run_checks
from pool_processes import TIMEOUT_S, Pool, prepare_child, until

REEF = os.path.abspath(sys.argv[1])
SERVER = shutil.which("mariadbd") or "/usr/sbin/mariadbd"
SOAK = os.environ.get("REEF_SOAK") == "1"
ROUNDS = 10 if SOAK else 1
ROWS = 40000
# More rows than its buffers have room for.
MAKE = """create database b; use b;
create table t (k int primary key, v int, pad char(250)) engine=innodb;
insert into t select seq, 100, repeat('x', 250) from seq_1_to_%d""" % ROWS
SUM = "select sum(v), sum(length(pad)) from t"
PAGE = "16K"


class MariaDB(Pool):
    """A pool, and a server whose data directory is read through it."""

    def __init__(self, reef):
        super().__init__(reef)
        self.directory = os.path.join(self.home, "data")
        self.socket = os.path.join(self.home, "socket")
        self.words = "--cover", "t%d" % os.getpid(), "--page", PAGE
        self.server = self.pool = None
        self.hits = 0

    def __exit__(self, *error):
        for process in self.processes:
            process.kill()
        with contextlib.suppress(json.JSONDecodeError, FileNotFoundError):
            os.unlink(self.show()["table"])
        return super().__exit__(*error)

    def up(self):
        if not os.path.exists(SERVER) or not shutil.which("mariadb"):
            raise Skipped("no MariaDB")
        self.pool = self.start("up", "up", "--ttl", "1s", "--lend",
                               "256M").saw("Ctrl-C")

    def serve(self):
        os.makedirs(self.directory, exist_ok=True)
        self.server = self.start(
            "mariadbd", "pages", "--verify", *self.words, "--dir",
            self.directory, "--", SERVER, "--no-defaults",
            *["--user=root"] * (os.geteuid() == 0),
            "--datadir=" + self.directory, "--socket=" + self.socket,
            "--pid-file=" + os.path.join(self.home, "pid"),
            "--skip-grant-tables", "--skip-networking",
            "--innodb-buffer-pool-size=6M", "--innodb-log-file-size=4M",
            "--innodb-flush-log-at-trx-commit=2")
        until("the server answers", lambda: self.client(
            "select 1", base="").returncode == 0 or
              self.server.child.poll() is not None)
        assert self.server.child.poll() is None, self.server.error

    def words_of(self, text, base):
        return ["mariadb", "--no-defaults", "-S", self.socket, "-NB", "-e",
                text, *[base] * bool(base)]

    def client(self, text, base="b"):
        return subprocess.run(
            self.words_of(text, base), text=True, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env=self.environment(), timeout=TIMEOUT_S,
            preexec_fn=prepare_child)

    def sql(self, text, base="b"):
        done = self.client(text, base)
        assert done.returncode == 0, (text, done.stdout)
        return done.stdout.split()

    def moves(self, seed):
        """Numbers go from row to row, in transactions, beside what follows."""
        dice = random.Random(seed)
        path = os.path.join(self.home, "moves%d" % seed)
        with open(path, "w", encoding="ascii") as stream:
            for _ in range(20000):
                stream.write(
                    "start transaction; update t set v = v - 1 where k = %d;"
                    "update t set v = v + 1 where k = %d; commit;\n" %
                    tuple(sorted(dice.sample(range(1, ROWS + 1), 2))))
        return self.start("mariadb", argv=self.words_of(
            "source " + path, "b"))

    def show(self):
        return json.loads(self.ask("pages", "--show", *self.words).stdout)

    def grows(self, what, more):
        before = self.show()[what]
        until("more " + what, lambda: self.show()[what] > before + more)

    def is_right(self):
        """Nothing differed; what there is adds up."""
        assert self.sql(SUM) == [str(100 * ROWS), str(250 * ROWS)]
        assert self.sql("check table t")[-1] == "OK"
        told = self.show()
        self.hits += told["hits"]
        assert told["differed"] == 0, told
        assert "not what is on disk" not in self.server.error


def check_kills(pool):
    """Read and write, lose memory and the pool, lose the server; again."""
    pool.up()
    pool.serve()
    pool.sql(MAKE, base="")
    for number in range(ROUNDS):
        beside = [pool.moves(2 * number + i) for i in range(2)]
        pool.grows("hits", 100)
        pool.do("node", "reclaim", next(iter(pool.nodes())), "250M")
        pool.grows("hits", 100)
        pool.pool.kill()
        pool.grows("failures", 1)
        pool.up()
        pool.grows("hits", 100)
        told = pool.show()
        assert told["differed"] == 0 and told["told"] > 0, told
        pool.server.child.send_signal(signal.SIGKILL)
        pool.server.end()
        for process in beside:
            process.kill()
        pool.serve()
        pool.is_right()
    pool.sql("shutdown")
    assert pool.server.end() == 0, pool.server.error
    pool.serve()
    pool.is_right()
    print("%d pages compared" % pool.hits)
    assert pool.hits > 500, pool.hits


if __name__ == "__main__":
    sys.exit(run_checks(globals(), lambda: MariaDB(REEF), sys.argv[2:]))
