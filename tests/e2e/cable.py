"""cable.py REEF WORKER - a node's cable is pulled: nothing answers any more, and
no connection is reset.

Each of three nodes is in a network namespace of its own, at a port of a bridge
in the tests' namespace, and is reached over tcp. The port is taken down. What
the space has goes on with its other copy, nothing is lost, and nobody's session
is ended for it. That nobody waits for tcp to notice is seen in the simulator
(tests/unit/pool/client/test_client_silent.c); here the times are printed. With
REEF_SOAK=1: ten times. Or a client and a node do not reach each other, while
all others reach both.
"""

import os
import re
import shutil
import signal
import subprocess
import sys

from checks import Skipped, run_checks
from pool_processes import Workers, free_port, prepare_child, until

REEF, WORKER = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
ROUNDS = 10 if os.environ.get("REEF_SOAK") == "1" else 2
NODES = (1, 2, 3)
CLIENT = 4  # a machine that lends nothing


def enter_namespace():
    """Begin again in a network that is nobody else's."""
    if os.environ.get("CABLE_IS_INSIDE"):
        return
    os.environ["CABLE_IS_INSIDE"] = "yes"
    user = [] if os.geteuid() == 0 else ["--map-root-user"]
    os.execvp("unshare", ["unshare", "--net", *user, sys.executable,
                          *sys.argv])


def ip(*arguments, inside=()):
    subprocess.run([*inside, "ip", *arguments], check=True)


class Cables(Workers):
    """A pool, and a namespace for each of its nodes."""

    def __init__(self):
        Workers.__init__(self, REEF, WORKER)
        self.hosts = {}

    def __exit__(self, *what):
        for host in self.hosts.values():
            host.kill()
            host.wait()
        for name in ("bridge", *("port%d" % number for number in self.hosts)):
            subprocess.run(["ip", "link", "delete", name], check=False,
                           stderr=subprocess.DEVNULL)
        return Workers.__exit__(self, *what)

    def inside(self, number):
        return ["nsenter", "--net=/proc/%d/ns/net" % self.hosts[number].pid]

    def lay(self):
        ip("link", "set", "lo", "up")
        ip("link", "add", "bridge", "type", "bridge")
        ip("address", "add", "10.77.0.1/24", "dev", "bridge")
        ip("link", "set", "bridge", "up")
        for number in (*NODES, CLIENT):
            # It says so when it is in a namespace of its own.
            self.hosts[number] = host = subprocess.Popen(
                ["unshare", "--net", "sh", "-c", "echo; exec sleep 1000"],
                stdout=subprocess.PIPE, preexec_fn=prepare_child)
            host.stdout.readline()
            port, end = "port%d" % number, "end%d" % number
            ip("link", "add", port, "type", "veth", "peer", "name", end)
            ip("link", "set", port, "master", "bridge", "up")
            ip("link", "set", end, "netns", str(host.pid))
            inside = self.inside(number)
            ip("link", "set", "lo", "up", inside=inside)
            ip("address", "add", "10.77.0.1%d/24" % number, "dev", end,
               inside=inside)
            ip("link", "set", end, "up", inside=inside)

    def host_node(self, number):
        name = "node%d" % number
        return self.start(name, argv=[
            *self.inside(number), REEF, "node",
            "--node-key", self.node_key(name),
            "--run", os.path.join(self.home, "run-" + name),
            "--broker", self.tcp, "--fabrics", "tcp", "--lend", "128M",
            "--node-listen", "10.77.0.1%d:0" % number]).saw("is up.")

    def cut(self, number, other, does="add"):
        """What one host sends to the other is not delivered any more, or
        again; both still reach all others."""
        ip("route", does, "blackhole", "10.77.0.1%d/32" % other,
           inside=self.inside(number))

    def rounds_of(self, worker, least=0):
        """Wait until a worker has done more rounds than that; how many."""
        def told():
            worker.send(signal.SIGUSR1)
            assert worker.child.poll() is None, (worker.out, worker.error)
            return int((re.findall(r"round (\d+)\n", worker.out) or [0])[-1])

        until(worker.name + " goes on", lambda: told() > least)
        return told()

    def space(self):
        return [row for row in self.status()["spaces"]
                if row["name"] == "s"][0]

    def whole(self):
        until("every extent has two copies", lambda: (
            self.space()["extents"] > 0 and self.space()["degraded"] == 0))

    def map(self, *arguments):
        """It may say that it waits."""
        done = self.ask("map", arguments[0], "s", "m", *arguments[1:])
        assert done.returncode == 0, (arguments, done)
        return done.stdout.strip()

    def events(self, pattern):
        return [row["text"] for row in self.status()["events"]
                if re.search(pattern, row["text"])]


def begin(pool):
    if not all(map(shutil.which, ("ip", "nsenter", "unshare"))):
        raise Skipped("ip, nsenter or unshare is not there")
    pool.lay()
    pool.tcp = "tcp:10.77.0.1:%d" % free_port()
    pool.broker("--extent-size", "4M", "--fabrics", "shm,tcp")
    for number in NODES:
        pool.host_node(number)
    pool.do("space", "create", "s", "--copies", "2", "--strict")


def check_client_that_is_cut_off(pool):
    """From one node alone, which the broker and all others reach: it waits, and
    nobody else does. When they reach each other again it goes on, and its
    session has not ended."""
    begin(pool)
    other = pool.worker("churn", "s", 64, 4096, fabrics="tcp", name="other",
                        WORKER_DOUBT="1")
    client = pool.start("client", argv=[
        *pool.inside(CLIENT), WORKER, "churn", "s", "64", "4096"],
                        REEF_FABRICS="tcp", WORKER_DOUBT="1")
    for worker in (client, other):
        worker.saw("busy")
    pool.whole()
    rows = pool.nodes()
    name = max(rows, key=lambda one: rows[one]["extents"])
    number = int(name[4:])
    for cut in ((number, CLIENT), (CLIENT, number)):
        pool.cut(*cut)

    def stands_still():
        """It has said nothing, while the other one did a thousand rounds."""
        said = client.out
        client.send(signal.SIGUSR1)
        pool.rounds_of(other, pool.rounds_of(other) + 1000)
        return client.out == said

    until("the client waits", stands_still)
    assert pool.space()["degraded"] == 0, pool.space()
    for cut in ((number, CLIENT), (CLIENT, number)):
        pool.cut(*cut, does="delete")
    pool.rounds_of(client, pool.rounds_of(client))
    ended = [text for text in pool.events(r"session \w+ ends")
             if "closed" not in text]
    assert not ended, ended
    for worker in (client, other):
        assert worker.stop() == 0, (worker.out, worker.error)


def check_cable_that_is_pulled(pool):
    begin(pool)
    workers = [pool.worker("churn", "s", 64, 4096, fabrics="tcp",
                           name="churn%d" % count, WORKER_DOUBT="1")
               for count in range(2)]
    for count in range(ROUNDS):
        key = "key%d" % count
        pool.map("put", key, "a")
        pool.whole()
        rows = pool.nodes()
        name = max(rows, key=lambda one: rows[one]["extents"])
        ip("link", "set", name.replace("node", "port"), "down")
        # Somebody comes who has no link to it, and somebody has.
        assert pool.map("get", key) == "a"
        pool.map("put", key, "b")
        until("it is missed", lambda: (
            pool.nodes()[name]["state"] == "dead"))
        pool.whole()
        assert pool.map("get", key) == "b"
        ip("link", "set", name.replace("node", "port"), "up")
        pool.node_is(name, "ok")
    print(pool.events("ms after"))
    ended = [text for text in pool.events(r"session \w+ ends")
             if "closed" not in text]
    assert not ended, ended
    assert pool.space()["lost"] == 0, pool.space()
    for worker in workers:
        assert worker.stop() == 0, (worker.out, worker.error)


if __name__ == "__main__":
    enter_namespace()
    sys.exit(run_checks(globals(), Cables, sys.argv[3:]))
