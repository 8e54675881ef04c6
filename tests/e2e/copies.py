"""copies.py REEF WORKER - a space with two copies while its nodes are killed.

Three nodes, programs that use the space over shm and tcp, and keys in a map.
One node after the other is killed, and the broker, too; nothing is lost, and
nobody is hurt beyond waiting.
"""

import os
import re
import sys

from checks import run_checks
from pool_processes import Workers, until

REEF, WORKER = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
NAMES = ("one", "two", "three")


class Copies:
    """A pool of three nodes with such a space."""

    def __init__(self, pool, keep):
        self.pool, self.keep = pool, keep
        self.broker = pool.broker("--extent-size", "4M")
        self.nodes = {name: self.node(name) for name in NAMES}
        pool.do("space", "create", "s", "--copies", "2", "--strict")

    def node(self, name):
        return self.pool.node(name, "--lend", "128M", "--keep", self.keep)

    def row(self):
        return [row for row in self.pool.status()["spaces"]
                if row["name"] == "s"][0]

    def whole(self):
        until("every extent has two copies", lambda: (
            self.row()["extents"] > 0 and self.row()["degraded"] == 0))

    def events(self, pattern):
        return [row["text"] for row in self.pool.status()["events"]
                if re.search(pattern, row["text"])]

    def ask(self, *arguments):
        """It may say that it waits."""
        done = self.pool.ask("map", arguments[0], "s", "m", *arguments[1:])
        assert done.returncode == 0, (arguments, done)
        return done.stdout.strip()

    def put(self, key, value):
        self.ask("put", key, value)

    def get(self, key):
        return self.ask("get", key)


def fail_over(pool, keep, kills_broker=False, names=NAMES):
    copies = Copies(pool, keep)
    workers = [pool.worker("churn", "s", 64, 4096, fabrics=fabrics,
                           name="churn-" + fabrics, WORKER_DOUBT="1")
               for fabrics in ("shm", "tcp")]
    copies.put("first", "1")
    copies.whole()
    for name in names:
        copies.nodes[name].kill()
        # What a client asks for is there, before and after it is known.
        assert copies.get("first") == "1"
        copies.put(name, "while " + name + " was away")
        if kills_broker:
            copies.broker.kill()
            copies.broker = pool.broker("--extent-size", "4M")
        until("%s is missed" % name, lambda name=name: (
            pool.nodes()[name]["state"] in ("away", "dead")))
        copies.whole()
        for other in names[:names.index(name) + 1]:
            assert copies.get(other) == "while " + other + " was away"
        copies.nodes[name] = copies.node(name)
        pool.node_is(name, "ok")
        assert copies.row()["lost"] == 0, copies.row()
    for worker in workers:
        assert worker.stop() == 0, (worker.out, worker.error)
    return copies


def check_nodes_that_keep_nothing(pool):
    copies = fail_over(pool, "none", names=NAMES[:2])
    told = copies.events("with the copy that is left")
    assert told, pool.status()["events"]
    print("failovers:", [int(re.search(r"(\d+) ms after", text).group(1))
                         for text in told], "ms")
    assert copies.events("has a second copy again")


def check_nodes_that_keep_their_memory(pool):
    fail_over(pool, "holder", names=NAMES[:1])


def check_broker_that_dies_with_each_node(pool):
    fail_over(pool, "none", kills_broker=True, names=NAMES[:1])


if __name__ == "__main__":
    sys.exit(run_checks(globals(), lambda: Workers(REEF, WORKER),
                        sys.argv[3:]))
