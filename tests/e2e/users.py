"""users.py REEF - users of a pool as its owner deals with them.

What an ordinary user's credential can take, what it cannot, and what becomes of
it when it has leaked. Waits have a bound; nothing is expected to take a certain
time.
"""

import contextlib
import errno
import json
import os
import pty
import shutil
import signal
import struct
import subprocess
import sys

from checks import run_checks
from hello_wire import crowd_in, is_let_in, key_of
from pool_processes import Pool, free_port, prepare_child, until
from pool_wire import KIND, Session, text

REEF = os.path.abspath(sys.argv[1])
SLOTS = 32


class Users(Pool):
    """A pool in one process, with a user called fred."""

    def up(self, *arguments, **more):
        return self.start("up", "up", "--lend", "64M", "--extent-size", "4M",
                          *arguments, **more).saw("is up.")

    def path(self, name):
        return os.path.join(self.home, name)

    def fred(self, name="fred"):
        """Make fred; what makes a command his."""
        self.do("user", "add", "fred", self.path(name))
        return {"REEF_CREDENTIAL": self.path(name)}

    def user(self, name="fred"):
        """The user's row; None: there is none."""
        for row in json.loads(self.do("user", "list", "--json")):
            if row["name"] == name:
                return row
        return None

    def holder(self, space, mark, **more):
        """A session that goes on until it is ended."""
        process = self.start(
            "holder", "lock", "--space", space, "l-" + mark, "--", "sh", "-c",
            "echo > %s; exec sleep 600" % self.path(mark), **more)
        until("it holds", lambda: os.path.exists(self.path(mark)))
        return process

    def space(self, name):
        for row in self.status()["spaces"]:
            if row["name"] == name:
                return row
        return None


# --- limits ---


def check_limits(pool):
    pool.up()
    fred = pool.fred()
    pool.do("user", "limit", "fred", "spaces=1", "sessions=2", "names=9",
            "bytes=8M")
    pool.do("space", "create", "a", **fred)
    error = pool.refused("space", "create", "b", **fred)
    assert "fred has 1 of 1 spaces" in error and "EDQUOT" in error, error
    row = pool.user()
    assert row["spaces"] == {"use": 1, "limit": 1, "own": True}, row
    assert row["links"]["limit"] == 1280 and not row["links"]["own"], row
    assert "1/1" in pool.do("user", "list"), pool.do("user", "list")
    assert "own" in pool.do("user", "limit", "fred")
    # Sessions: two hold, the third is not let in; the owner is.
    one = pool.holder("a", "one", **fred)
    pool.holder("a", "two", **fred)
    error = pool.refused("lock", "--space", "a", "third", "true", status=125,
                         **fred)
    assert "fred has 2 of 2 sessions" in error, error
    pool.do("lock", "owners", "true")
    one.stop(signal.SIGTERM)
    until("there is room again", lambda: pool.ask(
        "lock", "--space", "a", "third", "true", **fred).returncode == 0)
    # Memory, over all spaces; and no limit any more.
    pool.do("user", "limit", "fred", "spaces=none", "names=default")
    assert pool.user()["spaces"]["limit"] is None
    assert pool.user()["names"]["limit"] == 65536
    pool.do("space", "create", "b", **fred)
    assert pool.user()["bytes"]["use"] <= 8 << 20, pool.user()
    for order, said in (
            (("fred", "spaces=0"), "none"), (("fred", "eggs=3"), "eggs=3"),
            (("fred", "spaces"), "WHAT=NUMBER"),
            (("fred", "spaces=many"), "many")):
        assert said in pool.refused("user", "limit", *order, status=2), order
    pool.refused("user", "limit", "nix", text="no user \"nix\"")
    pool.refused("user", "limit", "fred", "spaces=9", text="may not", **fred)


@contextlib.contextmanager
def standing_still(process):
    """A process that meets all that was said meanwhile in one moment."""
    process.send(signal.SIGSTOP)
    yield
    process.send(signal.SIGCONT)


def check_links(pool):
    """A user who comes by many links at once, all proven in one moment."""
    port = free_port()
    up = pool.up("--listen", "tcp:127.0.0.1:%d" % port)
    pool.fred()
    pool.do("user", "limit", "fred", "links=4")
    with open(pool.path("fred"), encoding="ascii") as stream:
        key = key_of(stream.read())
    sessions = [(0x8000 + i) << 16 | 1 for i in range(12)]
    count, reasons = crowd_in(port, "user:1:0", sessions, key,
                              standing_still(up))
    assert count == 4 and reasons == {errno.EDQUOT}, (count, reasons)
    until("the links are gone", lambda: pool.user()["links"]["use"] == 0)
    assert is_let_in(port, "user:1:0", 0x90000001, key)
    assert up.child.poll() is None


def check_full_table(pool):
    """A user who leaves sessions without end, and nobody's lease runs out: the
    owner is let in, and so is all that starts again with the broker."""
    port = free_port()
    more = ("--ttl", "1h", "--listen", "tcp:127.0.0.1:%d" % port)
    up = pool.up(*more, REEF_REDIS="yes")
    pool.fred()
    with open(pool.run + "/owner.credential", encoding="ascii") as stream:
        owner = key_of(stream.read())
    with open(pool.path("fred"), encoding="ascii") as stream:
        key = key_of(stream.read())
    with Session(port, (0, 0, owner)) as session:
        status, _ = session.opened().ask(
            KIND["SETTING"], text(b"sessions_max") + struct.pack(
                "<QI", SLOTS, 0))
        assert status == 0, status
    count = status = 0
    while not status:
        assert count < 2 * SLOTS
        with Session(port, (1, 0, key)) as session:
            status = session.open()
            count += status == 0
    assert status == -errno.ENOSPC and count > SLOTS // 2, (status, count)
    pool.do("space", "create", "a")
    pool.do("lock", "l", "true")
    assert up.stop() == 0, up.error
    pool.up(*more, REEF_REDIS="yes")
    until("the janitor came", pool.janitor)
    assert pool.user()["sessions"]["use"] == count
    pool.do("space", "drop", "a")
    pool.do("user", "remove", "fred", "--force", "--yes")


def check_limits_are_settings(pool):
    """What reef.conf says holds for everybody who has no limit of their own,
    and stays when it is not said again."""
    up = pool.up("--user-spaces", "1", "--user-bytes", "32M")
    fred = pool.fred()
    pool.do("space", "create", "a", **fred)
    assert "1 of 1 spaces" in pool.refused("space", "create", "b", **fred)
    assert up.stop() == 0
    pool.up()
    assert pool.user()["bytes"]["limit"] == 32 << 20, pool.user()
    assert pool.user()["spaces"] == {"use": 1, "limit": 1, "own": False}


# --- names that are the owner's ---


def check_names_of_doors(pool):
    pool.up("--redis-space", "front")
    fred = pool.fred()
    for name in ("redis", "sync", "front"):
        pool.refused("space", "create", name, text="only the pool's owner",
                     **fred)
    assert "see --space" in pool.refused("lock", "l", "true", status=125,
                                         **fred)
    pool.do("space", "create", "mine", **fred)
    pool.do("lock", "--space", "mine", "l", "true", **fred)
    # Nor does a door of the owner serve what another user could read.
    error = pool.refused("redis", "--redis-space", "mine")
    assert "belongs to another user" in error, error
    error = pool.refused("redis", "--redis-space", "sync", **fred)
    assert "belongs to another user" in error, error
    pool.do("lock", "l", "true")


# --- credentials that leaked ---


def check_rotate(pool):
    pool.up()
    fred = pool.fred()
    new = {"REEF_CREDENTIAL": pool.path("new")}
    pool.do("space", "create", "mine", **fred)
    holders = [pool.holder("mine", "shm", **fred),
               pool.holder("mine", "tcp", REEF_FABRICS="tcp", **fred)]
    # A file that is there is not lost, and nothing happens.
    pool.refused("user", "rotate", "fred", pool.path("fred"), text="exists")
    pool.do("status", **fred)
    pool.do("user", "rotate", "fred", pool.path("new"), "--after", "1h")
    assert os.stat(pool.path("new")).st_mode & 0o777 == 0o600
    pool.refused("status", text="does not take this credential", **fred)
    pool.do("space", "list", **new)
    assert pool.user()["era"] == 1
    assert all(holder.child.poll() is None for holder in holders)
    shown = pool.do("user", "rotate", "fred", "--now")
    assert shown.startswith("reef-user-"), shown
    for holder in holders:
        assert holder.end() != 0, holder.error
    pool.refused("status", text="does not take this credential", **new)
    pool.refused("user", "rotate", "nix", text="no user \"nix\"")
    pool.refused("user", "rotate", "fred", "--now", "--after", "1s", status=2)


def check_rotate_owner(pool):
    """The owner's credential leaked: what runs beside the broker goes on with
    the new one."""
    up = pool.up("--ttl", "1s", REEF_REDIS="yes")
    until("the janitor came", pool.janitor)
    before = pool.janitor()
    leaked = {"REEF_CREDENTIAL": pool.path("leaked")}
    shutil.copy(pool.run + "/owner.credential", pool.path("leaked"))
    pool.do("status", **leaked)
    pool.do("user", "rotate", "owner", pool.path("new"), "--now")
    pool.refused("status", text="does not take this credential", **leaked)
    pool.do("space", "create", "a")
    pool.do("space", "list", REEF_CREDENTIAL=pool.path("new"))

    def is_back():
        now = pool.janitor()
        return now and now["session"] != before["session"]

    until("the janitor is back", is_back)
    until("the door is back", lambda: [
        row for row in pool.status()["sessions"]
        if row["name"] == "redis" and row["state"] == "alive"])
    pool.refused("user", "add", "owner", status=2)
    assert up.stop() == 0
    pool.up()
    pool.refused("status", text="does not take this credential", **leaked)
    pool.do("space", "drop", "a")


def check_rotate_and_restart(pool):
    """A program that does nothing learns, too, that its credential is void,
    also from a broker that it comes back to."""
    broker = pool.broker("--ttl", "1s")
    leaked = {"REEF_CREDENTIAL": pool.path("leaked")}
    shutil.copy(pool.run + "/owner.credential", pool.path("leaked"))
    idle = pool.start("idle", "janitor", "--pool", pool.tcp[len("tcp:"):],
                      "--fabrics", "tcp", **leaked)
    until("it came", lambda: [
        row for row in json.loads(pool.do("status", "--json"))["sessions"]
        if row["pid"] == idle.child.pid])
    pool.do("user", "rotate", "owner", pool.path("new"), "--after", "1h")
    assert idle.child.poll() is None
    broker.kill()
    pool.broker("--ttl", "1s")
    assert idle.end() == 1 and "fenced" in idle.error, idle.error


def check_new_pool_key(pool):
    """The pool's key itself leaked: a new one makes everything void that was
    derived from the old one, and what is in the journal stays."""
    up = pool.up()
    fred = pool.fred()
    pool.do("space", "create", "a")
    token = pool.do("space", "token", "a")
    assert up.stop() == 0
    os.remove(pool.data + "/pool.key")
    pool.up()
    pool.refused("status", text="does not take this credential", **fred)
    assert pool.space("a") and pool.do("space", "token", "a") != token
    pool.do("user", "rotate", "fred", pool.path("new"))
    pool.do("status", REEF_CREDENTIAL=pool.path("new"))


def check_new_pool_key_with_nodes(pool):
    """The same where nodes lend by themselves: their keys are void, too, so
    they are removed and added anew."""
    broker = pool.broker()
    fred = pool.fred()
    node = pool.node("near", "--lend", "64M")
    pool.node_is("near", "ok")
    pool.do("space", "create", "a")
    assert broker.stop() == 0
    node.kill()
    os.remove(pool.data + "/pool.key")
    pool.broker()
    old = pool.start("old", "node", "--node-key", pool.path("near.key"),
                     "--run", pool.path("run-old"), "--lend", "64M",
                     "--broker", "shm:%s/broker.sock" % pool.run)
    assert old.end() == 1, old.error
    pool.do("node", "remove", "near")
    os.remove(pool.path("near.key"))
    pool.node("near", "--lend", "64M")
    pool.node_is("near", "ok")
    pool.refused("status", text="does not take this credential", **fred)
    pool.do("user", "rotate", "fred", pool.path("new"))
    pool.do("status", REEF_CREDENTIAL=pool.path("new"))
    assert pool.space("a")


# --- removal ---


def answer(pool, reply, *arguments):
    """Run `reef ARGUMENTS` for somebody who sits there and answers."""
    master, slave = pty.openpty()
    with subprocess.Popen(
            [REEF, *arguments], stdin=slave, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, env=pool.environment(),
            preexec_fn=prepare_child) as process:
        os.write(master, reply)
        out, _ = process.communicate(timeout=60)
    os.close(master)
    os.close(slave)
    return process.returncode, out.decode()


def check_remove(pool):
    pool.up()
    fred = pool.fred()
    pool.do("space", "create", "mine", **fred)
    pool.do("map", "put", "mine", "m", "key", "value", **fred)
    holder = pool.holder("mine", "held", REEF_FABRICS="tcp", **fred)
    assert "--force" in pool.refused("user", "remove", "fred")
    assert "--yes" in pool.refused("user", "remove", "fred", "--force",
                                   status=2)
    status, out = answer(pool, b"n\n", "user", "remove", "fred", "--force")
    assert status == 1 and "1 sessions" in out and "1 spaces" in out, out
    assert pool.user() and holder.child.poll() is None
    status, out = answer(pool, b"y\n", "user", "remove", "fred", "--force")
    assert status == 0, out
    assert holder.end() != 0, holder.error
    assert pool.user() is None
    pool.refused("status", text="does not take this credential", **fred)
    # What was in the space is there, and is the owner's to drop.
    assert pool.space("mine")["user"] == 0, pool.status()
    assert pool.do("map", "get", "mine", "m", "key") == "value\n"
    pool.do("space", "drop", "mine")
    # Another fred is somebody else.
    other = pool.fred("other")
    assert pool.user()["user"] == 2
    pool.do("space", "create", "mine", **other)
    pool.do("user", "remove", "fred", "--force", "--yes")
    assert pool.user() is None


if __name__ == "__main__":
    sys.exit(run_checks(globals(), lambda: Users(REEF), sys.argv[2:]))
