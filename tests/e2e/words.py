"""words.py REEF WORDS - words of a space with two copies go up, and never down.

Programs raise words by CAS and FAA, over shm and tcp (words.c), while the space
is saved again and again, and nodes and the broker are killed, stand still, and
come back: no word is ever less than somebody has seen it, and each counts what
was done. At the end the space is dropped, and its last image says what the
words were when it was made. With REEF_SOAK=1: minutes of it, and of more pools.

$WORDS_SEED makes the same choices again, $WORDS_STRIKES says how many, and
$WORDS_KINDS what the names of the strikes have in them.
"""

import os
import random
import re
import signal
import sys
import threading
import time

from checks import run_checks
from copied_space import NAMES, Copies
from pool_processes import Pool, until

REEF, WORDS = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
SOAK = os.environ.get("REEF_SOAK") == "1"
STRIKES = int(os.environ.get("WORDS_STRIKES", "60" if SOAK else "3"))
KINDS = os.environ.get("WORDS_KINDS", "strike_")
SEED = int(os.environ.get("WORDS_SEED", "0") or
           random.SystemRandom().getrandbits(32))
COUNT = 6  # of the words
SIZE = 1500 << 10  # of their blocks: not all in one extent


class Saver(threading.Thread):
    """Saves the space every 50 ms, to one file after the other."""

    def __init__(self, words):
        super().__init__()
        self.words, self.ended = words, threading.Event()
        self.saved, self.said, self.last = 0, set(), None
        self.error = None
        self.start()

    def run(self):
        try:
            while not self.ended.wait(0.05):
                self.save()
        except Exception as error:  # pylint: disable=broad-except
            self.error = error

    def save(self):
        path = os.path.join(self.words.pool.home, "image%d" % (self.saved % 2))
        done = self.words.pool.ask("space", "save", "s", path)
        if done.returncode == 0:
            self.saved += 1
            self.last = path
        else:
            self.said.add(done.stderr.strip()[-60:])

    def stop(self):
        self.ended.set()
        self.join()
        assert not self.error, self.error


class Words:
    """The space, and who raises its words."""

    def __init__(self, pool, keep, names=NAMES):
        self.pool, self.names = pool, names
        self.random = random.Random(SEED)
        self.copies = Copies(pool, keep, names=names)
        self.run("make", COUNT, SIZE)
        self.copies.whole()
        self.begin()

    def begin(self):
        self.first = self.sum()
        self.raisers = [
            self.pool.start("raise-" + fabric, argv=[
                WORDS, "raise", "s", str(COUNT)], REEF_FABRICS=fabric)
            for fabric in ("shm", "tcp", "shm")]
        for process in self.raisers:
            process.saw("busy")

    def run(self, mode, *arguments):
        process = self.pool.start(mode, argv=[
            WORDS, mode, "s", *map(str, arguments)])
        assert process.end() == 0, (mode, process.out, process.error)
        return process.out

    def sum(self):
        return int(re.search(r"sum (\d+)", self.run("sum", COUNT)).group(1))

    def go_on(self):
        """All of them do, and none has seen anything wrong."""
        for process in self.raisers:
            said = process.out.count("\n")
            process.send(signal.SIGUSR1)
            until(process.name + " goes on", lambda process=process, said=said:
                  process.out.count("\n") > said or
                  process.child.poll() is not None)
            assert process.child.poll() is None, (process.name, process.out,
                                                  process.error)

    def end(self):
        """They stop; the words say how often they were raised."""
        raised = doubts = 0
        for process in self.raisers:
            assert process.stop() == 0, (process.name, process.out,
                                         process.error)
            told = re.findall(r"raised (\d+) doubts (\d+)", process.out)[-1]
            raised, doubts = raised + int(told[0]), doubts + int(told[1])
        value = self.sum() - self.first
        assert raised <= value <= raised + doubts, (raised, doubts, value)
        return raised, doubts

    def pause(self, most):
        time.sleep(self.random.uniform(0, most))

    # --- strikes ---

    def keeps(self, name):
        keep = self.copies.keep
        return (keep if isinstance(keep, str) else keep[name]) != "none"

    def kill_node(self, name):
        self.copies.nodes[name].kill()

    def start_node(self, name):
        self.copies.nodes[name] = self.copies.node(name)

    def strike_node(self):
        """It is missed, or back before that, or somewhere in between."""
        name = self.random.choice(self.names)
        self.kill_node(name)
        self.pause(self.random.choice((0, 0.05, 1.5, 3)))
        self.start_node(name)

    def strike_node_twice(self):
        """It registers anew, and again while its memory is copied."""
        name = self.random.choice(self.names)
        for _ in range(self.random.randrange(2, 5)):
            self.kill_node(name)
            self.start_node(name)
            self.pause(0.2)

    def strike_broker(self):
        self.copies.broker.kill()
        self.pause(0.2)
        self.copies.broker = self.copies.start_broker()

    def strike_both(self):
        """A node and the broker."""
        name = self.random.choice(self.names)
        self.kill_node(name)
        self.pause(self.random.choice((0, 0.02, 1.2)))
        self.strike_broker()
        self.pause(0.5)
        self.start_node(name)

    def strike_still(self):
        """A node stands still."""
        name = self.random.choice(self.names)
        child = self.copies.nodes[name].child
        child.send_signal(signal.SIGSTOP)
        self.pause(self.random.choice((0.1, 2, 5)))
        child.send_signal(signal.SIGCONT)
        self.pool.node_is(name, "ok")

    def strike_client(self):
        """A node comes back, and one of those who have to let go of memory
        before it is copied stands still."""
        name = self.random.choice(self.names)
        still = self.random.choice(self.raisers)
        self.kill_node(name)
        self.start_node(name)
        self.pause(0.1)
        still.send(signal.SIGSTOP)
        self.pause(2)
        still.send(signal.SIGCONT)

    def strike_halt(self):
        """A node comes back, and while its memory is copied the broker stands
        still for so long that nodes come to it anew."""
        name = self.random.choice(self.names)
        self.kill_node(name)
        self.start_node(name)
        self.pause(0.15)
        self.copies.broker.send(signal.SIGSTOP)
        time.sleep(self.random.uniform(0.8, 1.3))
        self.copies.broker.send(signal.SIGCONT)

    def strike_pair(self):
        """One that keeps its memory and another, at about the same time; and
        perhaps the broker."""
        held = [name for name in self.names if self.keeps(name)]
        if not held:
            return
        one = self.random.choice(held)
        pair = [one, self.random.choice(
            [name for name in self.names if name != one])]
        self.random.shuffle(pair)
        for name in pair:
            self.kill_node(name)
            self.pause(0.01)
        if self.random.randrange(3) == 0:
            self.strike_broker()
        self.pause(self.random.choice((0, 0.2, 2)))
        self.random.shuffle(pair)
        for name in pair:
            self.start_node(name)
            self.pause(self.random.choice((0, 0.2, 2)))

    def settle(self):
        """All is well again, before the next strike."""
        for name in self.names:
            self.pool.node_is(name, "ok")
        self.copies.whole()
        assert self.copies.row()["lost"] == 0, self.copies.row()
        self.go_on()


def attack(pool, keep, names=NAMES):
    words = Words(pool, keep, names)
    kinds = [name for name in dir(words)
             if name.startswith("strike_") and KINDS in name]
    saver = Saver(words)
    done = []
    try:
        for _ in range(STRIKES):
            done.append(words.random.choice(kinds))
            getattr(words, done[-1])()
            words.settle()
    except BaseException:
        print("seed %d:" % SEED, done)
        raise
    finally:
        saver.stop()
    raised = words.end()
    restored(words, saver)
    print("%d strikes, %d saves (%s); raised %d, doubts %d" % (
        len(done), saver.saved, "; ".join(sorted(saver.said)), *raised))


def restored(words, saver):
    """What an image says, and that it goes on from there."""
    before = words.sum()
    if not saver.last:
        saver.save()
    pool, image = words.pool, saver.last
    pool.do("space", "drop", "s")
    assert "restored" in pool.do("space", "restore", image)
    words.copies.whole()
    assert words.first <= words.sum() <= before, (words.first, before)
    words.begin()
    words.go_on()
    words.end()


def check_nodes_that_keep_nothing(pool):
    attack(pool, "none")


def check_one_of_two_is_held(pool):
    attack(pool, {"one": "holder", "two": "none"}, NAMES[:2])


if SOAK:
    def check_two_nodes(pool):
        attack(pool, "none", NAMES[:2])

    def check_nodes_that_are_held(pool):
        attack(pool, "holder")

    def check_one_of_three_is_held(pool):
        attack(pool, {"one": "holder", "two": "none", "three": "none"})


if __name__ == "__main__":
    sys.exit(run_checks(globals(), lambda: Pool(REEF), sys.argv[3:]))
