"""A pool of three nodes with a space that has two copies, for tests to kill."""

import re

from pool_processes import until

NAMES = ("one", "two", "three")


class Copies:
    """A pool of three nodes, or others, with such a space, unless somebody else
    makes it. What they keep is the same for all, or told for each."""

    def __init__(self, pool, keep, space="s", is_made=True, names=NAMES):
        self.pool, self.keep, self.space = pool, keep, space
        self.broker = self.start_broker()
        self.nodes = {name: self.node(name) for name in names}
        if is_made:
            pool.do("space", "create", space, "--copies", "2", "--strict")

    def start_broker(self):
        return self.pool.broker("--extent-size", "4M", "--node-ttl", "3s")

    def node(self, name):
        keep = self.keep if isinstance(self.keep, str) else self.keep[name]
        return self.pool.node(name, "--lend", "128M", "--keep", keep)

    def row(self):
        return [row for row in self.pool.status()["spaces"]
                if row["name"] == self.space][0]

    def busiest(self):
        """The node with most extents: with none of them there would be no
        failover."""
        nodes = self.pool.nodes()
        name = max(self.nodes, key=lambda name: nodes[name]["extents"])
        assert nodes[name]["extents"] > 0, nodes
        return name

    def fail_over(self, name):
        """A node that was killed is missed, and the space gets all of its
        copies again."""
        until("%s is missed" % name, lambda: (
            self.pool.nodes()[name]["state"] in ("away", "dead")))
        self.whole()

    def come_back(self, name):
        self.nodes[name] = self.node(name)
        self.pool.node_is(name, "ok")
        assert self.row()["lost"] == 0, self.row()

    def whole(self):
        until("every extent has two copies", lambda: (
            self.row()["extents"] > 0 and self.row()["degraded"] == 0))

    def failovers(self):
        """How long the last of them took after their nodes were given up, in
        milliseconds."""
        return [int(re.search(r"(\d+) ms after", text).group(1))
                for text in self.events("with the copy that is left")]

    def events(self, pattern):
        return [row["text"] for row in self.pool.status()["events"]
                if re.search(pattern, row["text"])]

    def ask(self, *arguments):
        """It may say that it waits."""
        done = self.pool.ask("map", arguments[0], self.space, "m",
                             *arguments[1:])
        assert done.returncode == 0, (arguments, done)
        return done.stdout.strip()

    def put(self, key, value):
        self.ask("put", key, value)

    def get(self, key):
        return self.ask("get", key)

    def has(self, key, value):
        got = self.get(key)
        assert got == value, (key, value, got)
