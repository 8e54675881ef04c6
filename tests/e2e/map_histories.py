"""map_histories.py REEF HISTORY [PART OF A NAME...] - a map whose clients die.

Real processes work on one map (map_history.c) and note what they do; some are
killed, some stand still. What they noted is checked afterwards. With
REEF_SOAK=1: many times as many deaths.
"""

import os
import random
import signal
import struct
import sys

from checks import run_checks
from pool_processes import Pool, until

REEF, HISTORY = (os.path.abspath(name) for name in sys.argv[1:3])
SOAK = os.environ.get("REEF_SOAK") == "1"
SEED = int(os.environ.get("REEF_SEED", "1"))
TTL_MS = 300
KEYS = 4000  # a map of more than one subtable
WORKERS = 4
KILLS = 8  # in a round: how long a history takes to check grows faster than it
ROUNDS = 15 if SOAK else 1


class Histories(Pool):
    """A pool, its workers, and their files."""

    def __init__(self, reef):
        super().__init__(reef)
        self.files = []
        self.count = 0
        self.map = ""
        self.random = random.Random(SEED)

    def up(self):
        self.start("up", "up", "--ttl", "%dms" % TTL_MS, "--extent-size", "4M",
                   "--lend", "128M").saw("Ctrl-C")

    def history(self, mode, fabrics):
        number = self.count = self.count + 1
        path = os.path.join(self.home, "history-%d" % number)
        self.files.append(path)
        process = self.start(mode, argv=[
            HISTORY, mode, "e2e", self.map, path, str(number), str(KEYS)],
            REEF_FABRICS=fabrics)
        process.path = path
        return process

    def grows(self, process, records):
        """Until it has noted so many more."""
        def size():
            try:
                return os.path.getsize(process.path)
            except FileNotFoundError:
                return 0
        goal = size() + records * 100
        until("calls of " + process.name, lambda: (
            size() >= goal or process.child.poll() is not None))
        return process.child.poll() is None

    def check(self, *files):
        done = self.start("check", argv=[HISTORY, "check", *files])
        status = done.end()
        return status, done.out

    def rounds(self, fabrics, stops=0):
        for number in range(ROUNDS):
            self.map = "map%d" % number
            self.files = []
            self.deaths(fabrics, stops)

    def deaths(self, fabrics, stops):
        workers = [self.history("work", fabrics[i % len(fabrics)])
                   for i in range(WORKERS)]
        for worker in workers:
            assert self.grows(worker, 100), (worker.out, worker.error)
        for i in range(KILLS):
            index = self.random.randrange(WORKERS)
            worker = workers[index]
            assert self.grows(worker, self.random.randrange(1, 400)), (
                worker.out, worker.error)
            if i < stops:
                other = workers[(index + 1) % WORKERS]
                worker.send(signal.SIGSTOP)
                # Nobody waits for it.
                assert self.grows(other, 400), (other.out, other.error)
                worker.send(signal.SIGCONT)
                continue
            worker.kill()
            workers[index] = self.history("work", fabrics[index % len(fabrics)])
        for worker in workers:
            status = worker.stop()
            # Over tcp who stood still may have been fenced.
            assert status == 0 or (stops and status == 3), (
                worker.out, worker.error)
        read = self.history("read", fabrics[0])
        assert read.end() == 0, (read.out, read.error)
        status, out = self.check(*self.files)
        assert status == 0 and ": linearizable" in out, out[-4000:]
        print("%-8s %s; %s" % (",".join(fabrics), out.strip(),
                               read.out.strip()), flush=True)


def check_deaths_shm(pool):
    pool.up()
    pool.rounds(["shm"])


def check_deaths_tcp(pool):
    pool.up()
    pool.rounds(["tcp"])


def check_deaths_mixed(pool):
    """Some over shared memory, some over tcp, and some stand still."""
    pool.up()
    pool.rounds(["shm", "tcp"], stops=2)


def check_it_can_fail(pool):
    """A put that was answered, and is taken out of the notes: then whoever saw
    its value saw what nobody had put."""
    pool.up()
    pool.rounds(["shm"])
    size = struct.calcsize("=Q") + 80
    with open(pool.files[0], "rb") as stream:
        notes = stream.read()
    assert len(notes) % size == 0, len(notes)
    records = [notes[at:at + size] for at in range(0, len(notes), size)]
    path = pool.files[0] + "-wrong"
    wrong = 0
    with open(path, "wb") as stream:
        for record in records:
            number, key, client, kind = struct.unpack_from("=QQII", record)
            if kind == 2 and key < 48:  # a put, where they collide
                record = struct.pack("=QQII", number, key, client, 1) + \
                    record[24:]
                wrong += 1
            stream.write(record)
    assert wrong, "no put to take out"
    status, out = pool.check(path, *pool.files[1:])
    assert status == 1 and "NOT linearizable" in out, out[-1000:]


if __name__ == "__main__":
    sys.exit(run_checks(globals(), lambda: Histories(REEF), sys.argv[3:]))
