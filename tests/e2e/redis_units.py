"""redis_units.py REEF LISTS - what doors do at once: EXEC and commands on
several keys, while others look, and doors die within.

LISTS is the program of redis_lists.c. Histories of transactions over lists go
through two doors and a native client; keys that are always changed together are
read through another door. With REEF_SOAK=1: more of it.
"""

import os
import random
import subprocess
import sys
import threading
import time

from checks import run_checks
from redis_servers import Servers
from redis_wire import Closed, request, tree

REEF, LISTS = (os.path.abspath(name) for name in sys.argv[1:3])
SOAK = os.environ.get("REEF_SOAK") == "1"
NULL = (b"*-1\r\n", b"$-1\r\n")


class Clients:
    """Threads that work until told to stop; the first thing that is wrong
    ends all of them."""

    def __init__(self):
        self.threads, self.wrong = [], []
        self.stop = threading.Event()
        self.lost = 0

    def add(self, doors, work, *arguments):
        """work(wire, *arguments) does a bit. A door that dies is waited
        for."""
        def run():
            while not self.stop.is_set():
                try:
                    with doors[0].wire() as wire:
                        while not self.stop.is_set():
                            work(wire, *arguments)
                except (OSError, Closed):
                    self.lost += 1
                    time.sleep(0.002)
                except Exception as error:  # pylint: disable=broad-except
                    self.wrong.append(repr(error))
                    self.stop.set()

        self.threads.append(threading.Thread(target=run))
        self.threads[-1].start()

    def end(self):
        self.stop.set()
        for thread in self.threads:
            thread.join()
        assert not self.wrong, self.wrong


def ask_all(wire, requests):
    """Send them at once; the answers."""
    wire.send(b"".join(request(*words) for words in requests))
    return [wire.reply() for _ in requests]


def is_loading(answers):
    return any(answer.startswith(b"-LOADING") for answer in answers)


# --- lists ---


class Historian:
    """Makes transactions on lists by a door, and writes down what it saw."""

    def __init__(self, number):
        self.number, self.rng = number, random.Random(number)
        self.done, self.lines = 0, []

    def ops(self):
        keys = [self.done // 20 + self.rng.randrange(4)
                for _ in range(self.rng.randrange(1, 5))]
        return [("a", key, self.number * 10000000 + self.done * 8 + i + 1)
                if self.rng.random() < 0.5 else ("r", key)
                for i, key in enumerate(keys)]

    def work(self, wire):
        """One transaction: a plain command, MGET, or MULTI and EXEC."""
        ops, called = self.ops(), time.monotonic_ns()
        self.done += 1
        reads = all(op[0] == "r" for op in ops)
        words = [("APPEND", "l%d" % op[1], "%d," % op[2]) if op[0] == "a" else
                 ("GET", "l%d" % op[1]) for op in ops]
        try:
            if reads and self.rng.random() < 0.5:
                answers = [wire.ask("MGET", *(word[1] for word in words))]
            elif len(ops) == 1 and self.rng.random() < 0.5:
                answers = [b"*1\r\n" + wire.ask(*words[0])]
            else:
                answers = ask_all(wire, [("MULTI",), *words, ("EXEC",)])
        except (OSError, Closed):
            self.note(called, "unknown", ops, None)
            raise
        if is_loading(answers):
            self.note(called, "refused", ops, None)
        elif answers[-1].startswith(b"-ERR reef: connection lost"):
            self.note(called, "unknown", ops, None)
        else:
            assert answers[-1].startswith(b"*"), answers
            self.note(called, "done", ops, tree(answers[-1])[1])

    def note(self, called, result, ops, answer):
        parts = []
        for i, op in enumerate(ops):
            if op[0] == "a":
                parts.append("a:%d:%d" % op[1:])
            else:
                value = answer[i][1] if answer else b""
                value = b"" if value == b"-1" else value
                parts.append("r:%d:%s" % (op[1], value.decode()))
        self.lines.append("%d %d %d %s %s\n" % (
            self.number, called, time.monotonic_ns(), result,
            " ".join(parts)))


def read_to_the_end(door, historians):
    """All lists, in one transaction."""
    last = Historian(999)
    most = max(one.done for one in historians) // 20 + 5
    ops = [("r", key) for key in range(most)]
    called = time.monotonic_ns()
    with door.wire() as wire:
        answer = wire.ask("MGET", *("l%d" % op[1] for op in ops))
    last.note(called, "done", ops, tree(answer)[1])
    return last.lines


def judge(lines):
    judged = subprocess.run([LISTS, "judge"], input="".join(lines),
                            stdout=subprocess.PIPE, text=True, check=False)
    assert judged.returncode == 0, judged.stdout
    return judged.stdout.strip()


def make_lists(pool, doors, count, meanwhile):
    """Histories by two doors and a native client."""
    clients = Clients()
    historians = [Historian(i + 1) for i in range(4)]
    native = pool.start("native", argv=[LISTS, "native", "redis", "db0",
                                        str(count), "77"])
    for i, historian in enumerate(historians):
        clients.add(doors[i % 2], historian.work)
    try:
        while not clients.stop.is_set() and (
                min(one.done for one in historians) < count):
            meanwhile()
    finally:
        clients.end()
    assert native.end() == 0, native.error
    lines = sum((one.lines for one in historians), [])
    lines += native.out.splitlines(keepends=True)
    lines += read_to_the_end(doors[1][0], historians)
    return judge(lines)


def check_lists(pool):
    """Transactions of doors and native clients are strictly serializable."""
    pool.up()
    doors = [[pool.door("one")], [pool.door("two", "--redis-threads", "2")]]
    print(make_lists(pool, doors, 8000 if SOAK else 600,
                     lambda: time.sleep(0.01)))


def check_lists_killed(pool):
    """The same while a door is killed."""
    pool.up("--ttl", "1s")
    doors = [[pool.door("one")], [pool.door("two")]]
    rng, kills = random.Random(5), [0]

    def kill():
        time.sleep(rng.uniform(0.02, 0.2))
        doors[0][0].process.kill()
        doors[0][0] = pool.door("one", port=doors[0][0].port)
        kills[0] += 1

    said = make_lists(pool, doors, 6000 if SOAK else 500, kill)
    print("%d kills, %s" % (kills[0], said))


# --- all of it or nothing ---

KEYS = ["unit:%d" % i for i in range(12)]


def change_together(wire, rng, serial):
    """Change all keys in one of several ways."""
    serial[0] += 1
    value = "%d" % serial[0]
    pairs = [word for key in KEYS for word in (key, value)]
    which = rng.randrange(4)
    if which == 0:
        answers = [wire.ask("MSET", *pairs)]
    elif which == 1:
        answers = [wire.ask("DEL", *KEYS)]
    elif which == 2:
        answers = ask_all(wire, [("MULTI",), *(("SET", key, value)
                                               for key in KEYS), ("EXEC",)])
    else:
        answers = ask_all(wire, [("MULTI",), *(("INCR", key) for key in KEYS),
                                 ("EXEC",)])
    assert is_loading(answers) or answers[-1][:1] in b"+:*" or (
        b"connection lost" in answers[-1]), answers


def look_together(wire, rng, seen):
    """All keys are the same, however they are read."""
    if rng.random() < 0.5:
        answer = wire.ask("MGET", *KEYS)
    else:
        answer = ask_all(wire, [("MULTI",), *(("GET", key) for key in KEYS),
                                ("EXEC",)])[-1]
    if answer.startswith(b"-LOADING"):
        return
    values = {value for _, value in tree(answer)[1]}
    assert len(values) == 1, answer
    count = wire.ask("EXISTS", *KEYS)
    assert count in (b":0\r\n", b":%d\r\n" % len(KEYS)), count
    seen[0] += 1


def check_killed_in_exec(pool):
    """A door is killed within EXEC, MSET and DEL: readers at another door see
    all of it, or nothing."""
    pool.up("--ttl", "1s")
    dying, staying = [pool.door("dying")], [pool.door("staying")]
    clients, seen, serial = Clients(), [0], [0]
    rng, kills = random.Random(9), 200 if SOAK else 15
    for i in range(2):
        clients.add(dying, change_together, random.Random(i), serial)
        clients.add(staying, look_together, random.Random(10 + i), seen)
    try:
        for _ in range(kills):
            time.sleep(rng.uniform(0.005, 0.06))
            if clients.stop.is_set():
                break
            dying[0].process.kill()
            dying[0] = pool.door("dying", port=dying[0].port)
    finally:
        clients.end()
    print("%d kills, %d changes, %d looks" % (kills, serial[0], seen[0]))
    assert seen[0] > kills and serial[0] > kills


# --- money ---


def transfer(wire, rng, done):
    """Move money between two accounts by WATCH, as the books have it."""
    one, other = rng.sample(range(8), 2)
    names = ["account:%d" % one, "account:%d" % other]
    answers = ask_all(wire, [("WATCH", *names), ("GET", names[0]),
                             ("GET", names[1])])
    have = [int(tree(answer)[1]) for answer in answers[1:]]
    amount = rng.randrange(1, 20)
    if have[0] < amount:
        wire.ask("UNWATCH")
        return
    answer = ask_all(wire, [("MULTI",), ("SET", names[0], have[0] - amount),
                            ("SET", names[1], have[1] + amount),
                            ("EXEC",)])[-1]
    done[answer in NULL] += 1


def add_up(wire, done):
    values = tree(wire.ask("MGET", *("account:%d" % i for i in range(8))))[1]
    assert sum(int(value) for _, value in values) == 800, values
    done[2] += 1


def check_transfers(pool):
    """WATCH on two keys at two doors: no money is made or lost."""
    pool.up()
    doors = [[pool.door("one")], [pool.door("far", REEF_FABRICS="tcp")]]
    clients, done = Clients(), [0, 0, 0]
    with doors[0][0].wire() as wire:
        assert wire.ask("MSET", *(word for i in range(8) for word in (
            "account:%d" % i, 100))) == b"+OK\r\n"
    for i in range(4):
        clients.add(doors[i % 2], transfer, random.Random(i), done)
    clients.add(doors[0], add_up, done)
    wanted = 20000 if SOAK else 800
    while not clients.stop.is_set() and (done[0] < wanted or done[2] < 100):
        time.sleep(0.01)
    clients.end()
    print("%d transfers, %d refused, %d sums" % tuple(done))


# --- limits ---


def check_limits(pool):
    """Too much at once is refused, and nothing is done."""
    pool.up(lend="512M")
    door = pool.door("door", "--redis-threads", "1")
    with door.wire(timeout=120) as wire:
        assert wire.ask("SET", "k0", "before") == b"+OK\r\n"
        keys = ["k%d" % i for i in range(65537)]
        for words in (["MSET", *(word for key in keys
                                 for word in (key, "v"))],
                      ["MSET", *(word for key in keys[:5]
                                 for word in (key, b"v" * (60 << 20)))],
                      ["DEL", *keys], ["MGET", *keys]):
            answer = wire.ask(*words)
            assert answer.startswith(b"-ERR reef: more than 65536"), (
                words[0], answer[:200])
        assert wire.ask("MSET", "k1", "v", b"k" * 65537, "v")[:8] == (
            b"-ERR key")
        # Within EXEC, too; and it is as if it had not begun.
        wire.ask("MULTI")
        wire.send(request("SELECT", 1) + request("SELECT", 0) +
                  b"".join(request("SET", key, "v") for key in keys) +
                  request("SELECT", 2))
        for _ in range(len(keys) + 3):
            assert wire.reply() == b"+QUEUED\r\n"
        answer = wire.ask("EXEC")
        assert answer.startswith(b"-ERR reef: more than 65536"), answer[:200]
        assert wire.ask("DBSIZE") == b":1\r\n"
        assert wire.ask("GET", "k0") == b"$6\r\nbefore\r\n"
        # One less is fine.
        assert wire.ask("MSET", *(word for key in keys[1:]
                                  for word in (key, "v"))) == b"+OK\r\n"
        assert wire.ask("DEL", *keys[1:]) == b":65536\r\n"


def check_full_exec(pool):
    """No room within EXEC: nothing of it happened. DEL needs no room, and makes
    it for the next EXEC."""
    pool.up(lend="64M")
    door = pool.door()
    value = b"v" * 100000
    with door.wire(timeout=60) as wire:
        kept = 0
        while wire.ask("SET", "k%d" % kept, value) == b"+OK\r\n":
            kept += 1
        answers = ask_all(wire, [
            ("MULTI",), ("SET", "k0", "other"), ("DEL", "k1"),
            *(("SET", "new%d" % i, value) for i in range(8)), ("EXEC",)])
        assert answers[-1].startswith(b"-EXECABORT ") and (
            b"OOM" in answers[-1]), answers[-1]
        assert wire.ask("STRLEN", "k0") == b":100000\r\n"
        assert wire.ask("EXISTS", "k1", "new0", "new7") == b":1\r\n"
        assert wire.ask("DBSIZE") == b":%d\r\n" % kept
        # As many as lie together, so that small blocks find room, too.
        assert wire.ask("DEL", *("k%d" % i for i in range(1, 65))) == (
            b":64\r\n")
        answers = ask_all(wire, [("MULTI",), ("DEL", "k65", "k66"),
                                 ("INCR", "n"), ("EXEC",)])
        assert answers[-1] == b"*2\r\n:2\r\n:1\r\n", answers


def check_expiry(pool):
    """A key that expires before EXEC is not there in it; what EXEC puts with a
    time that has passed is gone."""
    pool.up()
    door = pool.door()
    with door.wire() as wire:
        wire.ask("SET", "short", "v", "PX", 30)
        wire.ask("MULTI")
        wire.ask("EXISTS", "short", "none")
        wire.ask("SET", "past", "v", "PXAT", 1)
        wire.ask("GET", "past")
        wire.ask("SET", "long", "v", "EX", 100)
        wire.ask("TTL", "long")
        time.sleep(0.06)
        assert wire.ask("EXEC") == (
            b"*5\r\n:0\r\n+OK\r\n$-1\r\n+OK\r\n:100\r\n")
        assert wire.ask("EXISTS", "past", "long") == b":1\r\n"


if __name__ == "__main__":
    sys.exit(run_checks(globals(), lambda: Servers(REEF), sys.argv[3:]))
