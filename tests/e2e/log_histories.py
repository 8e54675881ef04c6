"""log_histories.py REEF HISTORY [PART OF A NAME...] - a log whose clients die.

Real processes append to one log, read it, and share a reader of it
(log_history.c), and note what they do; they are killed, one after the other.
What they noted is checked afterwards:

  what was acknowledged stands at its position, alone, and in the order of time;
  all who read it saw the same;
  of what was appended each entry was acknowledged by the group once, at most
  one who was killed meanwhile may have done so unnoted, and nothing is left;
  nobody was given what had been acknowledged before it asked;
  nobody who read was stuck behind the dead (log_history.c looks).

All of it with order by numbers, and with order by cuts.

With REEF_SOAK=1: many times as many deaths.
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
TTL_MS = 1000
# A worker's status: over tcp who stands still for so long, be it for lack of a
# processor.
FENCED = 3
MODES = ["append", "append", "read", "member", "member"]
KILLS = 10  # in a round
ROUNDS = 20 if SOAK else 1
RECORD = struct.Struct("=QQQQQ")
TRIED, APPENDED, SEEN, GIVEN, TRIED_DONE, DONE = range(6)


def records_of(path):
    with open(path, "rb") as stream:
        notes = stream.read()
    # One who is killed may leave a part of a record.
    whole = len(notes) // RECORD.size * RECORD.size
    return list(RECORD.iter_unpack(notes[:whole]))


def check(histories, died):
    """What is wrong with the notes; None: nothing. died: the files of those
    that did not end by themselves."""
    appended, tried, seen, done, maybe = {}, set(), {}, {}, set()
    order, given = [], []
    for path in histories:
        calls = {}
        for kind, value, position, called, now in records_of(path):
            if kind == TRIED:
                tried.add(value)
                calls[value] = now
            elif kind == APPENDED:
                if position in appended:
                    return "two entries at %d" % position
                appended[position] = value
                order.append((calls[value], now, position))
            elif kind == SEEN or kind == GIVEN:
                if seen.setdefault(position, value) != value:
                    return "%d is not the same for all" % position
                if kind == GIVEN:
                    given.append((position, called))
            elif kind == TRIED_DONE and path in died:
                maybe.add(position)
            elif kind == DONE:
                if position in done:
                    return "%d is acknowledged twice" % position
                done[position] = now
    for position, value in appended.items():
        if position in seen and seen[position] != value:
            return "%d is not what was appended" % position
        if position not in done and position not in maybe:
            return "%d was never acknowledged" % position
    if not set(seen.values()) <= tried:
        return "an entry that nobody appended"
    if len(set(seen.values())) != len(seen):
        return "an entry at two positions"
    for position, called in given:
        if position in done and done[position] < called:
            return "%d is given after it was acknowledged" % position
    # What begins after another has returned stands behind it.
    order.sort(key=lambda one: one[2])
    least = float("inf")
    for called, now, position in reversed(order):
        if called > least:
            return "%d stands before what was there first" % position
        least = min(least, now)
    return None


class Histories(Pool):
    """A pool, its workers, and their files."""

    def __init__(self, reef):
        super().__init__(reef)
        self.files = []
        self.died = set()
        self.count = 0
        self.log = ""
        self.random = random.Random(SEED)

    def up(self):
        self.start("up", "up", "--ttl", "%dms" % TTL_MS, "--extent-size", "4M",
                   "--lend", "256M").saw("Ctrl-C")

    def history(self, mode, fabrics):
        self.count += 1
        path = os.path.join(self.home, "history-%d" % self.count)
        self.files.append(path)
        process = self.start(mode, argv=[
            HISTORY, mode, "e2e", self.log, path, str(self.count)],
            REEF_FABRICS=fabrics)
        process.path = path
        return process

    def grows(self, process, records):
        """Until it has noted so many more, or has ended."""
        def size():
            try:
                return os.path.getsize(process.path)
            except FileNotFoundError:
                return 0
        goal = size() + records * RECORD.size
        until("notes of " + process.name, lambda: (
            size() >= goal or process.child.poll() is not None))

    def ended(self, process, fabric):
        status = process.end()
        assert status == 0 or (status == FENCED and fabric == "tcp"), (
            process.name, status, process.out, process.error)
        if status:
            self.died.add(process.path)
        return status

    def deaths(self, fabrics):
        fabric = [fabrics[i % len(fabrics)] for i in range(len(MODES))]
        workers = [self.history(mode, fabric[i])
                   for i, mode in enumerate(MODES)]
        for i in range(KILLS):
            index = i % len(MODES)
            self.grows(workers[index], self.random.randrange(20, 400))
            workers[index].kill()
            self.died.add(workers[index].path)
            workers[index] = self.history(MODES[index], fabric[index])
        # Who has begun knows what a signal to end is. Appenders end last, as
        # others wait for what they append.
        for index, worker in reversed(list(enumerate(workers))):
            self.grows(worker, 1)
            worker.send(signal.SIGTERM)
            self.ended(worker, fabric[index])
        self.do("log", "seal", "e2e", self.log)
        while self.ended(self.history("drain", fabrics[0]), fabrics[0]):
            pass

    def rounds(self, fabrics, name="log"):
        for number in range(ROUNDS):
            self.log = "%s%d" % (name, number)
            self.files, self.died = [], set()
            self.deaths(fabrics)
            wrong = check(self.files, self.died)
            assert not wrong, wrong
            self.do("log", "drop", "e2e", self.log)
        print("%s, %s: %d processes killed; the last log had %d notes" % (
            name, ",".join(fabrics), ROUNDS * KILLS,
            sum(len(records_of(path)) for path in self.files)), flush=True)


def falsify(pool):
    """An acknowledgement that is taken out of the notes is missed, and one that
    is there twice is found."""
    path = next(path for path in pool.files if path not in pool.died and any(
        one[0] == DONE for one in records_of(path)))
    records = records_of(path)
    last = max(i for i, one in enumerate(records) if one[0] == DONE)
    for wrong in (records[:last] + records[last + 1:],
                  records + [records[last]]):
        with open(path, "wb") as stream:
            for record in wrong:
                stream.write(RECORD.pack(*record))
        assert check(pool.files, pool.died), "it was not found"


def check_deaths_shm(pool):
    pool.up()
    pool.rounds(["shm"])
    falsify(pool)


def check_deaths_tcp(pool):
    pool.up()
    pool.rounds(["tcp"])


def check_cuts_shm(pool):
    pool.up()
    pool.rounds(["shm"], "cuts")


def check_cuts_tcp(pool):
    pool.up()
    pool.rounds(["tcp"], "cuts")


if __name__ == "__main__":
    sys.exit(run_checks(globals(), lambda: Histories(REEF), sys.argv[3:]))
