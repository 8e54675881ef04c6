"""bank.py REEF BANK [PART OF A NAME...] - transactions whose coordinators die.

Real processes move money between accounts, in a map and in a tree, by
transactions (bank.c), others sum all of it up at one moment; all of them are
killed, one after the other. Each sum that is told must be what was there at
the beginning, so no half of a transaction is ever seen; and nobody waits for
the dead: those who are left go on after each death.

With REEF_SOAK=1: many times as many deaths.
"""

import os
import random
import signal
import sys

from checks import run_checks
from pool_processes import Pool, until

REEF, BANK = (os.path.abspath(name) for name in sys.argv[1:3])
SOAK = os.environ.get("REEF_SOAK") == "1"
SEED = int(os.environ.get("REEF_SEED", "1"))
TTL_MS = 1000
FENCED = 3  # over tcp who stands still for so long, be it for lack of a processor
MODES = ["move", "move", "sum", "move"]
KILLS = 200 if SOAK else 10
STEPS = 5  # that who is left makes after a death


class Bank(Pool):
    """A pool, and the processes of a bank."""

    def __init__(self, reef):
        super().__init__(reef)
        self.count = 0
        self.random = random.Random(SEED)

    def up(self):
        self.start("up", "up", "--ttl", "%dms" % TTL_MS, "--extent-size", "4M",
                   "--lend", "256M").saw("Ctrl-C")

    def process(self, mode, fabric):
        self.count += 1
        path = os.path.join(self.home, "bank-%d" % self.count)
        process = self.start(mode, argv=[
            BANK, mode, "e2e", path, str(self.count)], REEF_FABRICS=fabric)
        process.path = path
        return process

    def once(self, mode, fabric):
        process = self.process(mode, fabric)
        assert process.end() == 0, (mode, process.error)

    def is_alive(self, process, fabric):
        """One that has ended was fenced, which is nobody's fault over tcp."""
        if process.child.poll() is None:
            return True
        status = process.end()
        assert status == FENCED and fabric == "tcp", (
            process.name, status, process.error)
        return False

    def goes_on(self, process, fabric, steps):
        """Until it has made so many steps more, or was fenced."""
        def size():
            try:
                return os.path.getsize(process.path)
            except FileNotFoundError:
                return 0
        goal = size() + steps
        until("steps of " + process.name, lambda: (
            size() >= goal or not self.is_alive(process, fabric)))

    def deaths(self, fabric):
        self.once("open", fabric)
        workers = [self.process(mode, fabric) for mode in MODES]
        for i in range(KILLS):
            index = i % len(MODES)
            self.goes_on(workers[index], fabric, self.random.randrange(1, 20))
            workers[index].kill()
            workers[index] = self.process(MODES[index], fabric)
            other = (index + 1 + self.random.randrange(len(MODES) - 1)) % len(
                MODES)
            if not self.is_alive(workers[other], fabric):
                workers[other] = self.process(MODES[other], fabric)
            self.goes_on(workers[other], fabric, STEPS)
        for worker in workers:
            self.goes_on(worker, fabric, 1)
            if self.is_alive(worker, fabric):
                worker.send(signal.SIGTERM)
                status = worker.end()
                assert status == 0 or (status == FENCED and fabric == "tcp"), (
                    worker.name, status, worker.error)
        self.once("look", fabric)
        print("%s: %d processes killed" % (fabric, KILLS), flush=True)


def check_deaths_shm(bank):
    bank.up()
    bank.deaths("shm")


def check_deaths_tcp(bank):
    bank.up()
    bank.deaths("tcp")


if __name__ == "__main__":
    sys.exit(run_checks(globals(), lambda: Bank(REEF), sys.argv[3:]))
