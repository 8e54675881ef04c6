"""copies.py REEF WORKER - a space with two copies while its nodes are killed.

Three nodes, programs that use the space over shm and tcp, and keys in a map.
One node after the other is killed, and the broker, too; nothing is lost, and
nobody is hurt beyond waiting. With REEF_SOAK=1: more of it.
"""

import os
import re
import signal
import sys

from checks import run_checks
from copied_space import Copies
from pool_processes import Workers, until
from redis_servers import Servers
from redis_writers import write_while

REEF, WORKER = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
SOAK = os.environ.get("REEF_SOAK") == "1"
EXTENT = 4 << 20  # as copied_space.py has it


class Doors(Servers, Workers):
    """A pool, programs that use it, and doors into it."""

    def __init__(self):
        Workers.__init__(self, REEF, WORKER)


def fail_over(pool, keep, kills_broker=False, rounds=1):
    copies = Copies(pool, keep)
    workers = [pool.worker("churn", "s", 64, 4096, fabrics=fabrics,
                           name="churn-" + fabrics, WORKER_DOUBT="1")
               for fabrics in ("shm", "tcp")]
    copies.put("first", "1")
    copies.whole()
    times = []
    for count in range(rounds):
        name = copies.busiest()
        copies.nodes[name].kill()
        # What a client asks for is there, before and after it is known.
        copies.has("first", "1")
        copies.put("while%d" % count, name)
        if kills_broker:
            copies.broker.kill()
            copies.broker = copies.start_broker()
        copies.fail_over(name)
        copies.has("while%d" % count, name)
        times += copies.failovers()[-1:]
        copies.come_back(name)
    if times:
        times.sort()
        print("%d kills; from given up to going on: %d ms, at most %d ms" % (
            rounds, times[len(times) // 2], times[-1]))
    for worker in workers:
        assert worker.stop() == 0, (worker.out, worker.error)
    return copies


def check_nodes_that_keep_nothing(pool):
    copies = fail_over(pool, "none", rounds=100 if SOAK else 2)
    assert copies.events("has a second copy again"), copies.events("")


def check_nodes_that_keep_their_memory(pool):
    fail_over(pool, "holder", rounds=80 if SOAK else 2)


def check_broker_that_dies_with_each_node(pool):
    fail_over(pool, "none", kills_broker=True, rounds=20 if SOAK else 2)


def check_node_that_stands_still(pool):
    """It says nothing, as a machine without power: no connection is reset. Who
    has something under way there goes on with the other copy all the same, and
    nobody's session is ended for it."""
    copies = Copies(pool, "none")
    workers = [pool.worker("churn", "s", 64, 4096, fabrics=fabrics,
                           name="churn-" + fabrics, WORKER_DOUBT="1")
               for fabrics in ("shm", "tcp")]
    copies.put("key", "value")
    copies.whole()
    for _ in range(10 if SOAK else 1):
        name = copies.busiest()
        copies.nodes[name].child.send_signal(signal.SIGSTOP)
        copies.has("key", "value")
        copies.fail_over(name)
        copies.nodes[name].child.send_signal(signal.SIGCONT)
        pool.node_is(name, "ok")
    print("failovers:", copies.failovers(), "ms")
    assert not copies.events("did not let go"), copies.events("ends")
    assert not copies.events("held memory back"), copies.events("ends")
    for worker in workers:
        assert worker.stop() == 0, (worker.out, worker.error)


def memory_of(process):
    """The memory that a node lends: for each extent a file of its own."""
    folder = "/proc/%d/fd" % process.child.pid
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        try:
            is_extent = (os.readlink(path).startswith("/memfd:")
                         and os.stat(path).st_size == EXTENT)
        except FileNotFoundError:  # a link that was closed since
            continue
        if is_extent:
            yield path


def scribble(process, value, junk):
    """Change a word behind a value where one node has it. How often was it
    there?"""
    found = 0
    for path in memory_of(process):
        with open(path, "r+b", buffering=0) as memory:
            at = memory.read().find(value)
            if at >= 0:
                os.pwrite(memory.fileno(), junk, at + 7 & ~7)
                found += 1
    return found


def check_doctor_compares_copies(pool):
    copies = Copies(pool, "none")
    pool.do("space", "create", "single")
    value = b"a value that is long enough to be found"
    copies.put("key", value.decode())
    copies.whole()

    def look(*arguments):
        done = pool.ask("doctor", *arguments)
        return [line for line in done.stdout.splitlines() if "copies" in line]

    assert re.search(r"^ok +copies of s: \d+ extents?, \d+ MiB, the same",
                     look("--copies")[0]), look("--copies")
    assert look("--space", "s") == look("--copies")
    assert not look("--space", "single")
    nodes = [name for name in copies.nodes
             if scribble(copies.nodes[name], value, b"12345678")]
    assert len(nodes) == 2, nodes
    # Both have it anew: then they are the same again.
    assert look("--copies")[0].startswith("ok"), look("--copies")
    assert scribble(copies.nodes[nodes[0]], b"12345678", b"?" * 8) == 1
    said = look("--copies")
    assert re.search(r"^warn +copies of s: extent \d+: 1 word from 0x[0-9a-f]+ "
                     r"to 0x[0-9a-f]+ \(read from node \d, not the same on "
                     r"node \d\)$", said[0]), said


def check_image_of_a_space_with_copies(pool):
    """It is saved also while a node is away, and comes back with two copies,
    or with one if asked."""
    copies = Copies(pool, "none")
    image = os.path.join(pool.home, "s.image")
    copies.put("key", "value")
    copies.whole()
    name = copies.busiest()
    copies.nodes[name].kill()
    assert "saved" in pool.do("space", "save", "s", image)
    copies.fail_over(name)
    copies.come_back(name)
    copies.put("key", "another")
    for flags, count in (((), 2), (("--copies", "1"), 1),
                         (("--copies", "2"), 2)):
        pool.do("space", "drop", "s")
        assert "restored" in pool.do("space", "restore", image, *flags)
        assert copies.row()["copies"] == count, copies.row()
        assert copies.row()["lost"] == 0, copies.row()
        copies.has("key", "value")
        if count > 1:
            copies.whole()
    assert "1 or 2 copies" in pool.refused(
        "space", "restore", image, "other", "--copies", "3", status=2)
    # A node with one copy of it may go.
    name = copies.busiest()
    copies.nodes[name].kill()
    copies.has("key", "value")


def check_doors(pool):
    """Clients of Redis write by two doors, one near and one far, while a node
    after the other is killed."""
    copies = Copies(pool, "none", "redis", is_made=False)
    doors = [pool.door("near", "--redis-copies", "2"),
             pool.door("far", "--redis-copies", "2", REEF_FABRICS="tcp")]
    for door in doors:
        assert "nothing yet; 2 copies" in door.process.saw("found").out

    def kill():
        for _ in range(30 if SOAK else 2):
            copies.whole()
            name = copies.busiest()
            copies.nodes[name].kill()
            copies.fail_over(name)
            copies.come_back(name)

    print(write_while(doors, kill))
    assert copies.row()["lost"] == 0, copies.row()
    for door in doors:
        assert door.process.child.poll() is None, door.process.error


def check_door_of_one_node(pool):
    """A door in a pool with too few nodes says so, and serves. Another node
    is all it takes. A space that is there keeps what it has."""
    pool.broker("--extent-size", "4M")
    pool.node("one", "--lend", "64M")
    pool.node_is("one", "ok")
    for count in ("0", "3", "two"):
        assert "redis-copies" in pool.refused(
            "redis", "--redis-copies", count, status=2)
    door = pool.door("first", "--redis-copies", "2")
    assert "nothing yet; degraded: one copy of 2" in door.process.saw(
        "found").out
    with door.wire() as wire:
        assert wire.ask("SET", "k", "v") == b"+OK\r\n"

    def row(name="redis"):
        return [row for row in pool.status()["spaces"]
                if row["name"] == name][0]

    assert row()["copies"] == 2 and row()["degraded"] > 0, row()
    again = pool.door("again", "--redis-copies", "2")
    assert re.search(r"in 1 database; degraded: one copy of 2",
                     again.process.saw("found").out), again.process.out
    pool.node("two", "--lend", "64M")
    until("two copies", lambda: row()["degraded"] == 0)
    again = pool.door("whole")
    assert "in 1 database; 2 copies" in again.process.saw("found").out
    pool.do("space", "create", "plain")
    other = pool.door("other", "--redis-space", "plain", "--redis-copies", "2")
    assert "one copy, not 2: the space was made with one" in (
        other.process.saw("found").out)
    assert row("plain")["copies"] == 1, row("plain")


if __name__ == "__main__":
    sys.exit(run_checks(globals(), Doors, sys.argv[3:]))
