"""rights.py REEF RIGHTS - what a token does not allow cannot be done.

Another user with a token (rights.c), against a pool of real processes.
"""

import os
import re
import signal
import sys

from checks import run_checks
from pool_processes import Workers

REEF, RIGHTS = (os.path.abspath(name) for name in sys.argv[1:3])


class Tenants(Workers):
    """A pool with a space of its owner's, and a second user."""

    def __enter__(self):
        self.start("up", "up", "--lend", "128M", "--extent-size",
                   "4M").saw("Ctrl-C")
        self.do("space", "create", "work")
        file = os.path.join(self.home, "fred")
        self.do("user", "add", "fred", file)
        self.fred = {"REEF_CREDENTIAL": file}
        assert "made" in self.work("make", "work")
        return self

    def token(self, rights):
        return self.do("space", "token", "work", rights).strip()


def check_read_token_reads(pool):
    for kind in ("shm", "tcp"):
        out = pool.work("read", "work", fabrics=kind,
                        RIGHTS_TOKEN=pool.token("read"), **pool.fred)
        assert "error" not in out, out
        pried = int(re.search(r"pried (\d+)", out).group(1))
        assert (pried > 1) == (kind == "shm"), (kind, out)


def check_second_token_adds_to_the_first(pool):
    for kind in ("shm", "tcp"):
        out = pool.work("read", "work", fabrics=kind,
                        RIGHTS_TOKEN=pool.token("read"),
                        RIGHTS_MORE=pool.token("write"), **pool.fred)
        assert "error" not in out and "wrote" in out, out


def check_revoked_token_leaves_nothing(pool):
    """Not even to a process that keeps what it had mapped."""
    token = pool.token("write")
    before = pool.status()
    keeper = pool.worker("keep", "work", fabrics="shm", RIGHTS_TOKEN=token,
                         **pool.fred).saw("keeps")
    assert int(re.search(r"keeps (\d+)", keeper.out).group(1)) > 0, keeper.out
    pool.do("space", "revoke", "work")
    assert "closed" in pool.work("word", "work")
    keeper.send(signal.SIGTERM)
    assert keeper.end() == 0, (keeper.out, keeper.error)
    assert "saw 0" in keeper.out, keeper.out
    for kind in ("shm", "tcp"):
        out = pool.work("read", "work", fabrics=kind,
                        RIGHTS_TOKEN=pool.token("read"), **pool.fred)
        assert "error" not in out, out
    after = pool.status()
    assert [row["used"] for row in before["nodes"]] == [
        row["used"] for row in after["nodes"]], (before, after)


if __name__ == "__main__":
    sys.exit(run_checks(globals(), lambda: Tenants(REEF, RIGHTS),
                        sys.argv[3:]))
