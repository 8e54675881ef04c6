"""lives.py REEF HISTORY - what clients see across the lives of a pool.

Nodes, brokers and whole pools are killed, one of them or all at once, while
programs work on a map (map_history.c) and redis-benchmark and others on doors:
who kept running is not hurt beyond waiting, what was acknowledged is there, and
what was seen can have been. Then pools end in worse ways: with another boot of
their machine. Nodes of a space with two copies die for good, or come back. With
REEF_SOAK=1: hundreds of kills.
"""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time

from checks import run_checks
from copied_space import Copies
from map_histories import REEF, SOAK, Histories
from pool_processes import free_port, until
from redis_servers import Server
from redis_wire import Closed

ROUNDS = 25 if SOAK else 1
KILLS = 8  # in a round
DOOR_KILLS = 120 if SOAK else 8
KEEP = ("--keep", "holder,image")
LEND = (*KEEP, "--lend", "64M")
BROKER = ("--ttl", "2s", "--node-ttl", "2s", "--extent-size", "4M")
BENCHMARK = shutil.which("redis-benchmark")
BOOT_ID = "/proc/sys/kernel/random/boot_id"


class Lives(Histories):
    """A pool whose nodes have holders."""

    def up(self, *more):
        if self.tcp.endswith(":0"):
            self.tcp = "tcp:127.0.0.1:%d" % free_port()
        return self.start("up", "up", "--no-redis", *LEND, *BROKER, *more)

    def up_and_node(self, names=("up", "two"), running=None):
        """Start one or both: alone a broker waits for whom it had."""
        running = running or {}
        if "up" in names:
            running["up"] = self.up()
            if "two" not in running:
                running["up"].saw("is up.")
        if "two" in names:
            running["two"] = self.node("two", *LEND)
        running["up"].saw("is up.")
        return running

    def door(self, name, fabrics):
        path, port = os.path.join(self.home, name + ".sock"), free_port()
        process = self.start(name, "redis", "--redis-listen",
                             "127.0.0.1:%d" % port, "--redis-unix", path,
                             REEF_FABRICS=fabrics)
        return Server(name, process, path, port).ready()

    def benchmark(self, door, before):
        """Load for a door; it ends at the first answer that is an error."""
        if before and before.child.poll() is None:
            return before
        return self.start("benchmark", argv=[
            BENCHMARK, "-s", door.path, "-t", "set,get,incr", "-c", "4", "-d",
            "512", "-r", "1000", "-l", "-q"])

    def finish(self, workers):
        """None of them was hurt, and what they saw can have been."""
        for worker in workers:
            self.grows(worker, 20)
            worker.send(signal.SIGTERM)
        for worker in workers:
            assert worker.end() == 0, (worker.name, worker.out, worker.error)
        read = self.history("read", "shm")
        assert read.end() == 0, (read.out, read.error)
        status, out = self.check(*self.files)
        assert status == 0 and ": linearizable" in out, out[-4000:]
        print("%s; %s" % (out.strip(), read.out.strip()), flush=True)

    def histories(self, strike, kills=KILLS):
        """Rounds of work, in which strike() kills and starts again."""
        for number in range(ROUNDS):
            self.map = "map%d" % number
            self.files = []
            workers = [self.history("work", kind)
                       for kind in ("shm", "tcp", "shm", "tcp")]
            for worker in workers:
                assert self.grows(worker, 50), (worker.out, worker.error)
            for kill in range(kills):
                strike(kill)
                # All of them go on.
                for worker in workers:
                    assert self.grows(worker, self.random.randrange(1, 40)), (
                        worker.name, worker.child.poll(), worker.out,
                        worker.error)
            self.finish(workers)
        print("%d kills" % (ROUNDS * kills), flush=True)


def check_histories_broker_and_node(pool):
    """The broker, the node, and both at once; the node first or last."""
    running = {"broker": pool.broker(*BROKER), "one": pool.node("one", *LEND)}

    def start(name):
        running[name] = (pool.broker(*BROKER) if name == "broker"
                         else pool.node("one", *LEND))

    def strike(kill):
        names = (("one",), ("broker",), ("one", "broker"),
                 ("broker", "one"))[kill % 4]
        for name in names:
            running[name].kill()
        for name in sorted(names, reverse=kill % 8 > 3):
            start(name)

    pool.histories(strike)


def check_histories_up_and_another_node(pool):
    """A pool in one process and a second node: either, and both."""
    running = pool.up_and_node()

    def strike(kill):
        names = (("up",), ("two",), ("up", "two"))[kill % 3]
        for name in names:
            running[name].kill()
        pool.up_and_node(names, running)

    pool.histories(strike)


def copies_are_killed(pool, keep):
    """One node after the other of a space with two copies. It is missed, or
    comes back before that, or somewhere in between; then all of the memory has
    two copies again, before the next one dies."""
    copies = Copies(pool, keep, "e2e")
    took = []

    def strike(kill):
        name = copies.busiest()
        copies.nodes[name].kill()
        if kill % 3 == 0:
            copies.fail_over(name)
        elif kill % 3 == 1:
            time.sleep(pool.random.uniform(0, 1.5))
        copies.come_back(name)
        copies.whole()
        took.extend(copies.failovers()[-1:])

    pool.histories(strike, KILLS // 2 if SOAK else 3)
    took.sort()
    assert took, pool.status()["events"]
    print("%s: failover after a node was given up: median %d ms, worst %s ms" % (
        keep, took[len(took) // 2], took[-5:]))


def check_histories_copies_that_keep_nothing(pool):
    copies_are_killed(pool, "none")


def check_histories_copies_that_are_held(pool):
    copies_are_killed(pool, "holder")


class Setter(threading.Thread):
    """Sets keys of its own at a door, each to higher numbers. What was said OK
    to must be there, or what was asked last."""

    def __init__(self, door, name):
        super().__init__()
        self.door, self.prefix = door, name
        self.ended = threading.Event()
        self.said, self.asked, self.error = {}, {}, None
        self.start()

    def set_next(self, wire, number):
        key = "%s%d" % (self.prefix, number % 64)
        self.asked[key] = number
        answer = wire.ask("SET", key, str(number))
        if answer == b"+OK\r\n":
            self.said[key] = number
        else:
            # Nothing happened, or it may have: its link was lost.
            assert answer.startswith((b"-LOADING", b"-ERR reef: connection "
                                      b"lost")), answer

    def run(self):
        number = 0
        try:
            with self.door.wire() as wire:
                while not self.ended.is_set():
                    number += 1
                    self.set_next(wire, number)
        except (AssertionError, OSError, Closed) as error:
            self.error = error

    def go_on(self, count=20):
        def total():
            return sum(self.said.values())
        before = total()
        until("%s goes on" % self.prefix,
              lambda: self.error or total() > before + count)
        assert not self.error, self.error

    def verify(self):
        self.ended.set()
        self.join()
        assert not self.error, self.error
        with self.door.wire() as wire:
            for key, said in self.said.items():
                got = wire.ask("GET", key)
                assert got.startswith(b"$"), (key, got, said)
                value = int(got.split(b"\r\n")[1])
                assert said <= value <= self.asked[key], (
                    key, said, value, self.asked[key])


def check_doors_across_lives(pool):
    """redis-benchmark works beside those whose answers are counted; the whole
    pool dies, and its second node with it."""
    running = pool.up_and_node()
    doors = [pool.door("door-" + kind, kind) for kind in ("shm", "tcp")]
    setters = [Setter(door, door.name) for door in doors]
    loads = [None for door in doors]
    for kill in range(DOOR_KILLS):
        for index, door in enumerate(doors):
            loads[index] = pool.benchmark(door, loads[index])
        for setter in setters:
            setter.go_on()
        names = (("up",), ("up", "two"), ("two",), ("two", "up"))[kill % 4]
        for name in names:
            running[name].kill()
        pool.up_and_node(names, running)
    for setter in setters:
        setter.go_on()
    for load in loads:
        load.kill()
    for setter in setters:
        setter.verify()
    for door in doors:
        assert door.process.stop() == 0, (door.process.out, door.process.error)
    print("%d kills, %d kept" % (DOOR_KILLS, sum(
        len(setter.said) for setter in setters)))


# --- another boot ---

def other_boot(number):
    """Words that run a program on a machine that was booted again, as far as
    it can tell: in a mount namespace of its own."""
    identity = "00000000-0000-4000-8000-%012d" % number
    return ["unshare", "--mount", "--map-root-user", "sh", "-c",
            "printf '%%s\\n' %s > \"$0\" && mount --bind \"$0\" %s && "
            "exec \"$@\"" % (identity, BOOT_ID)]


def boots_can_differ(pool):
    """Whether this machine lets us."""
    path = os.path.join(pool.home, "boot")
    done = subprocess.run([*other_boot(7), path, "cat", BOOT_ID],
                          capture_output=True, text=True, check=False)
    return done.returncode == 0 and done.stdout.endswith("007\n")


def check_stop_and_start_on_another_boot(pool):
    """Ctrl-C and start: all is there, whatever the machine calls its boot."""
    assert boots_can_differ(pool), "no mount namespace of one's own"
    for boot in range(1, 4):
        words = other_boot(boot)
        path = os.path.join(pool.home, "boot-%d" % boot)
        up = pool.start("up", argv=[*words, path, REEF, "up", *LEND, *BROKER,
                                    "--no-redis"]).saw("is up.")
        if boot == 1:
            pool.do("space", "create", "work", REEF_FABRICS="tcp")
        else:
            assert "has again what it lent before" in up.out, up.out
            got = pool.do("map", "get", "work", "things", "a",
                          REEF_FABRICS="tcp")
            assert got == "%d\n" % (boot - 1), (boot, got)
        pool.do("map", "put", "work", "things", "a", str(boot),
                REEF_FABRICS="tcp")
        assert up.stop(signal.SIGINT) == 0, up.error
        pool.nothing_is_held()


if __name__ == "__main__":
    sys.exit(run_checks(globals(), lambda: Lives(REEF), sys.argv[3:]))
