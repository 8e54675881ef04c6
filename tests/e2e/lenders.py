"""lenders.py REEF - what a node holds, in the hands of somebody else.

A node that was broken into can lie about its own memory. With the keys in its
files, and whatever is derived from them, nobody is a user, another node, a
session at another node, or the broker towards one.
"""

import os
import re
import socket
import sys

from checks import run_checks
from hello_wire import derive, is_believed, is_let_in, key_of
from pool_processes import Pool

REEF = os.path.abspath(sys.argv[1])
PROVISIONAL = 0x80010001
UNUSED = 0x0fff0001  # a session that has never been
LABELS = ("user", "node", "session", "space", "broker", "link", "pull")


def keys_in(*places):
    """Every key in these files, and in those of these folders."""
    keys = []
    for place in places:
        paths = [place] if os.path.isfile(place) else [
            os.path.join(folder, name)
            for folder, _, names in os.walk(place) for name in names
            if os.path.isfile(os.path.join(folder, name))]
        for path in paths:
            with open(path, "rb") as stream:
                text = stream.read().decode("utf-8", "replace")
            keys += [key_of(word) for word in re.findall(
                r"reef-[a-z]+-[a-z2-7]{40,}", text)]
    return keys


def derived_from(keys, *fields):
    """The keys, and what can be made of them in one step and in two."""
    forms = [(), *fields]
    once = [derive(key, label, *form)
            for key in keys for label in LABELS for form in forms]
    twice = [derive(key, label, *form)
             for key in once for label in LABELS for form in forms]
    return list(keys) + once + twice


def port_of(addresses):
    return int(re.search(r"tcp:127\.0\.0\.1:(\d+)", addresses).group(1))


class Theft:
    """A pool of two nodes, and the keys of the first."""

    def __init__(self, pool):
        pool.broker()
        one = pool.node("one", "--lend", "64M")
        pool.node("two", "--lend", "64M")
        pool.node_is("one", "ok")
        pool.node_is("two", "ok")
        rows = pool.nodes()
        self.broker = port_of(pool.tcp)
        self.own, self.other = (
            port_of(rows[name]["addresses"]) for name in ("one", "two"))
        self.number, self.others_number = (
            rows[name]["node"] for name in ("one", "two"))
        self.session = pool.janitor()["session"]
        self.keys = keys_in(*one.places)
        assert self.keys, one.places

    def is_let_in(self, port, identity, session, *fields):
        """Whether any key that can be made of the stolen ones opens that."""
        return any(is_let_in(port, identity, session, key)
                   for key in derived_from(self.keys, *fields))


def check_stolen_key_is_that_node(pool):
    """The attack works where it may: at its broker, and at itself."""
    theft = Theft(pool)
    assert theft.is_let_in(theft.broker, "node:%d" % theft.number, PROVISIONAL)
    assert theft.is_let_in(theft.own, "session", UNUSED, (UNUSED,))


def check_stolen_key_is_no_user(pool):
    theft = Theft(pool)
    pool.do("user", "add", "fred", os.path.join(pool.home, "fred"))
    assert not theft.is_let_in(theft.broker, "user:0:0", PROVISIONAL, (0, 0))
    assert not theft.is_let_in(theft.broker, "user:1:0", PROVISIONAL, (1, 0))


def check_stolen_key_is_no_other_node(pool):
    theft = Theft(pool)
    for port in (theft.broker, theft.other):
        assert not theft.is_let_in(port, "node", PROVISIONAL)
        assert not theft.is_let_in(port, "node:%d" % theft.others_number,
                                   PROVISIONAL, (theft.others_number,))


def check_stolen_key_is_no_session(pool):
    """Neither a session at another node, nor who copies an extent there."""
    theft = Theft(pool)
    pool.do("space", "create", "s")
    assert not theft.is_let_in(theft.other, "session", theft.session,
                               (theft.session,), (theft.others_number,))
    assert not theft.is_let_in(theft.other, "pull:1:2", PROVISIONAL, (1, 2))


def check_false_broker(pool):
    """A node does not believe whoever holds another node's key."""
    pool.broker()
    one = pool.node("one", "--lend", "64M")
    pool.node_is("one", "ok")
    stolen = keys_in(*one.places)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(20)
        pool.node("two", "--lend", "64M",
                    broker="tcp:127.0.0.1:%d" % listener.getsockname()[1])
        for key in [derive(stolen[0], "broker"), stolen[0],
                    derive(stolen[0], "node"),
                    derive(derive(stolen[0], "node", 2), "broker")]:
            assert not is_believed(listener, key)


if __name__ == "__main__":
    sys.exit(run_checks(globals(), lambda: Pool(REEF), sys.argv[2:]))
