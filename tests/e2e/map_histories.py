"""map_histories.py REEF HISTORY [PART OF A NAME...] - a map whose clients die.

Real processes work on one map (map_history.c) and note what they do; some are
killed, some stand still. What they noted is checked afterwards. With
REEF_SOAK=1: many times as many deaths. With REEF_HISTORY=tree: an ordered map,
whose ranges are scanned, too.
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
KIND = [kind for kind in [os.environ.get("REEF_HISTORY")] if kind]
TTL_MS = 1000
# A worker's status: over tcp who stands still for so long, be it for lack of a
# processor.
FENCED = 3
KEYS = 4000  # a map of more than one subtable, a tree of three levels
WORKERS = 4
KILLS = 8  # in a round: how long a history takes to check grows faster than it
ROUNDS = 15 if SOAK else 1
TRIES = 10


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
            HISTORY, mode, "e2e", self.map, path, str(number), str(KEYS),
            *KIND],
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

    def lives(self, workers, index, fabrics, records):
        """Until one of them has noted so many more, or another in its place:
        who was fenced died, as those that are killed."""
        for _ in range(TRIES):
            worker = workers[index]
            if self.grows(worker, records):
                return worker
            self.ended(worker, fabrics)
            workers[index] = self.history(
                "work", fabrics[index % len(fabrics)])
        raise AssertionError("all are fenced")

    def ended(self, process, fabrics):
        """The status it ended with."""
        status = process.end()
        assert status == 0 or (status == FENCED and "tcp" in fabrics), (
            process.name, status, process.out, process.error)
        return status

    def read(self, fabrics):
        """One who reads all."""
        for _ in range(TRIES):
            read = self.history("read", fabrics[0])
            if self.ended(read, fabrics) == 0:
                return read
        raise AssertionError("all are fenced")

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
        for index in range(WORKERS):
            self.lives(workers, index, fabrics, 100)
        for i in range(KILLS):
            index = self.random.randrange(WORKERS)
            worker = self.lives(workers, index, fabrics,
                                self.random.randrange(1, 400))
            if i < stops:
                worker.send(signal.SIGSTOP)
                # Nobody waits for it.
                self.lives(workers, (index + 1) % WORKERS, fabrics, 400)
                worker.send(signal.SIGCONT)
                continue
            worker.kill()
            workers[index] = self.history("work", fabrics[index % len(fabrics)])
        for index in range(WORKERS):
            # Who has begun knows what a signal to end is.
            worker = self.lives(workers, index, fabrics, 1)
            worker.send(signal.SIGTERM)
            self.ended(worker, fabrics)
        read = self.read(fabrics)
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
    # The last note of one that was killed may be cut off.
    records = [notes[at:at + size]
               for at in range(0, len(notes) - size + 1, size)]
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
