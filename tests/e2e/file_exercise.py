"""file_exercise.py REEF EXERCISE [PART OF A NAME...] - files under random calls.

Real processes exercise files (exercise.c), each against a model that outlives
it; they are killed, and the next goes on where the last one was. With
REEF_SOAK=1 for longer; REEF_SEED=N for other calls.
"""

import os
import random
import struct
import sys

from checks import run_checks
from copied_space import Copies
from pool_processes import Workers, until

REEF, EXERCISE = (os.path.abspath(name) for name in sys.argv[1:3])
SOAK = os.environ.get("REEF_SOAK") == "1"
SEED = int(os.environ.get("REEF_SEED", "1"))
CALLS = 40000 if SOAK else 900
KILLS = 60 if SOAK else 3
FENCED = 3


class Exercises(Workers):
    """A pool, and exercises of files in it."""

    def __init__(self, reef):
        super().__init__(reef, EXERCISE)
        self.random = random.Random(SEED)

    def up(self):
        self.start("up", "up", "--ttl", "1s", "--extent-size", "8M",
                   "--lend", "128M").saw("Ctrl-C")

    def exercise(self, model, fabrics, space="e2e"):
        process = self.start("exercise", argv=[
            EXERCISE, "reef", space, os.path.join(self.home, model),
            str(SEED), str(CALLS)], REEF_FABRICS=fabrics)
        process.model = os.path.join(self.home, model)
        return process

    @staticmethod
    def calls(process):
        """How many calls its model has seen (struct exercise: number)."""
        try:
            with open(process.model, "rb") as stream:
                return struct.unpack("=QQQ", stream.read(24))[2]
        except (FileNotFoundError, struct.error):
            return 0

    def reaches(self, process, calls):
        until("call %d of %s" % (calls, process.name), lambda: (
            self.calls(process) >= calls or process.child.poll() is not None))

    def kills(self, model, fabrics, space="e2e"):
        """Exercise, with deaths in the middle."""
        for number in range(KILLS):
            process = self.exercise(model, fabrics, space)
            self.reaches(process, CALLS * (number + 1) // (KILLS + 1) +
                         self.random.randrange(20))
            process.kill()
            # What it was doing cannot happen any more.
            self.gone(process)
        self.finish(model, fabrics, space)

    def finish(self, model, fabrics, space="e2e"):
        for _ in range(10):
            process = self.exercise(model, fabrics, space)
            status = process.end()
            if status != FENCED:
                break
            self.gone(process)
        assert status == 0, (process.out, process.error)
        print("%-4s %s" % (fabrics, process.out.strip().split("\n")[-1]),
              flush=True)


def check_deaths_shm(pool):
    pool.up()
    pool.kills("model", "shm")


def check_deaths_tcp(pool):
    pool.up()
    pool.kills("model", "tcp")


def check_nodes_die(pool):
    """With two copies files outlive a node, and go on at once."""
    copies = Copies(pool, "none")
    process = pool.exercise("model", "tcp", copies.space)
    pool.reaches(process, CALLS // 3)
    victim = copies.busiest()
    copies.nodes[victim].kill()
    status = process.end()
    if status == FENCED:
        pool.gone(process)
    else:
        assert status == 0, (process.out, process.error)
    pool.finish("model", "tcp", copies.space)
    copies.fail_over(victim)
    pool.finish("model", "tcp", copies.space)


def check_it_can_fail(pool):
    """A model that has another byte is told."""
    pool.up()
    pool.finish("model", "shm")
    path = os.path.join(pool.home, "model")
    with open(path, "r+b") as stream:
        whole = bytearray(stream.read())
        # Every byte that was written to a file is odd.
        stream.seek(4096)
        stream.write(bytes(byte ^ 2 * (byte & 1) for byte in whole[4096:]))
    process = pool.exercise("model", "shm")
    assert process.end() == 1 and "instead of" in process.error, (
        process.out, process.error)


if __name__ == "__main__":
    sys.exit(run_checks(globals(), lambda: Exercises(REEF), sys.argv[3:]))
