"""program_postgres.py REEF [PART OF A NAME...] - a real Postgres 15 under `reef
pages --verify`: read and written by pgbench, killed, and its pool with it.

Not one page of the pool may differ from the disk. Postgres does not run as root:
then everything here runs as its user. With REEF_SOAK=1 for longer.
"""

import contextlib
import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import time

from checks import Skipped, run_checks
from pool_processes import TIMEOUT_S, Pool, has_ended, prepare_child, until

REEF = os.path.abspath(sys.argv[1])
SOAK = os.environ.get("REEF_SOAK") == "1"
PROGRAMS = "/usr/lib/postgresql/15/bin/"
SECONDS = 60 if SOAK else 1
ROUNDS = 6 if SOAK else 1
CONFIGURATION = """
listen_addresses = ''
shared_buffers = 1MB
max_wal_size = 64MB
dynamic_shared_memory_type = mmap
checkpoint_timeout = 30s
fsync = off
logging_collector = off
"""
BALANCED = """select (select sum(abalance) from pgbench_accounts) =
    (select sum(delta) from pgbench_history) and
    (select sum(bbalance) from pgbench_branches) =
    (select sum(tbalance) from pgbench_tellers)"""


class Postgres(Pool):
    """A pool, and a server whose data directory is read through it."""

    def __init__(self, reef):
        super().__init__(reef)
        self.directory = os.path.join(self.home, "data")
        self.cover = "t%d" % os.getpid()
        self.server = self.pool = None
        self.hits = self.differed = 0

    def __exit__(self, *error):
        if self.server:
            self.crash()
        for process in self.processes:
            process.kill()
        with contextlib.suppress(json.JSONDecodeError, FileNotFoundError):
            os.unlink(self.show()["table"])
        return super().__exit__(*error)

    def up(self):
        if not os.path.exists(PROGRAMS + "postgres"):
            raise Skipped("no Postgres 15")
        if os.geteuid() == 0:
            raise Skipped("no user postgres")
        self.pool = self.start("up", "up", "--ttl", "1s", "--lend",
                               "256M").saw("Ctrl-C")

    def program(self, name, *words):
        done = subprocess.run(
            [PROGRAMS + name, *words], text=True, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env=self.environment(LC_ALL="C", PGHOST=self.home),
            timeout=TIMEOUT_S + SECONDS, preexec_fn=prepare_child)
        assert done.returncode == 0, (name, words, done.stdout)
        return done.stdout

    def make(self):
        self.program("initdb", "-D", self.directory, "-N", "-A", "trust",
                     "--no-locale")
        with open(os.path.join(self.directory, "postgresql.conf"), "a",
                  encoding="ascii") as stream:
            stream.write(CONFIGURATION)
            stream.write("unix_socket_directories = '%s'\n" % self.home)

    def serve(self):
        """Start it, as unchanged as it is."""
        self.server = self.start(
            "postgres", "pages", "--verify", "--cover", self.cover, "--dir",
            self.directory, "--", PROGRAMS + "postgres", "-D", self.directory,
            LC_ALL="C")
        until("the server answers", lambda: subprocess.run(
            [PROGRAMS + "pg_isready", "-q", "-h", self.home],
            check=False).returncode == 0 or
              self.server.child.poll() is not None)
        assert self.server.child.poll() is None, self.server.error

    def children(self):
        path = "/proc/%d/task/%d/children" % ((self.server.child.pid,) * 2)
        with open(path, encoding="ascii") as stream:
            return [int(word) for word in stream.read().split()]

    def crash(self):
        """All of it at once, as if the power had gone."""
        pids = []
        with contextlib.suppress(FileNotFoundError):
            pids = self.children()
        for pid in [self.server.child.pid, *pids]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.server.kill()
        until("its processes are gone", lambda: all(map(has_ended, pids)))
        self.server = None

    def show(self):
        return json.loads(self.ask("pages", "--show", "--cover",
                                   self.cover).stdout)

    def is_right(self):
        """Nothing differed; what there is adds up."""
        told = self.show()
        self.hits += told["hits"]
        assert told["differed"] == 0, told
        assert "not what is on disk" not in self.server.error
        assert self.ask_server(BALANCED) == "t"

    def ask_server(self, text, base="bench"):
        return self.program("psql", "-XAtq", "-d", base, "-c", text).strip()

    def bench(self, *words):
        return self.program("pgbench", "-n", "-c", "4", "-j", "2", "-T",
                            str(SECONDS), *words, "bench")

    def bench_beside(self):
        return self.start("pgbench", argv=[
            PROGRAMS + "pgbench", "-n", "-c", "4", "-j", "2", "-T",
            str(SECONDS * 20), "bench"], LC_ALL="C", PGHOST=self.home)

    def grows(self, what, more):
        before = self.show()[what]
        until("more " + what, lambda: self.show()[what] > before + more)


def check_kills(pool):
    """Read and write, lose the pool, lose the server; again."""
    pool.up()
    pool.make()
    pool.serve()
    pool.program("createdb", "bench")
    pool.program("pgbench", "-i", "-q", "bench")
    for _ in range(ROUNDS):
        pool.bench()
        pool.bench("-S")
        pool.is_right()
        # The lender takes memory back; the pool dies, and comes back.
        beside = pool.bench_beside()
        for _ in range(ROUNDS):
            pool.grows("hits", 100)
            pool.do("node", "reclaim", next(iter(pool.nodes())), "250M")
        pool.grows("hits", 200)
        pool.pool.kill()
        pool.grows("failures", 3)
        pool.up()
        pool.grows("hits", 200)
        # A backend dies, and the server starts all of them anew.
        os.kill(pool.children()[-1], signal.SIGKILL)
        beside.kill()
        until("it is there again", lambda: subprocess.run(
            [PROGRAMS + "pg_isready", "-q", "-h", pool.home],
            check=False).returncode == 0)
        pool.is_right()
        beside = pool.bench_beside()
        pool.grows("hits", 200)
        told = pool.show()
        assert told["differed"] == 0, told
        pool.crash()
        beside.end()
        pool.serve()
        pool.is_right()
    # After a clean end the pages are still there.
    pool.bench()
    assert pool.server.stop(signal.SIGINT) == 0, pool.server.error
    pool.serve()
    pool.bench("-S")
    told = pool.show()
    assert told["validated"] > 2 * told["renewed"], told
    pool.is_right()
    print("%d pages compared" % pool.hits)
    assert pool.hits > 1000, pool.hits


def become_postgres():
    """Go on as the user whose server it is, if there is one."""
    if os.geteuid() or not shutil.which("setpriv"):
        return
    with contextlib.suppress(KeyError):
        pwd.getpwnam("postgres")
        os.execvp("setpriv", ["setpriv", "--reuid=postgres",
                              "--regid=postgres", "--clear-groups",
                              sys.executable, *sys.argv])


if __name__ == "__main__":
    become_postgres()
    sys.exit(run_checks(globals(), lambda: Postgres(REEF), sys.argv[2:]))
