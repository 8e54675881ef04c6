"""Clients of Redis that write, and know what was acknowledged to them."""

import hashlib
import random
import threading
import time

from redis_wire import Closed, tree


def body(key, serial, size):
    """A value that shows what it is and that it is whole."""
    head = b"%s %d %d " % (key, serial, size)
    seed = hashlib.sha256(head).digest()
    return head + (seed * (size // 32 + 1))[:size]


def is_whole(key, value):
    parts = value.split(b" ", 3)
    return len(parts) == 4 and parts[0] == key and value == body(
        key, int(parts[1]), int(parts[2]))


class Writer(threading.Thread):
    """Sets its own keys to ever newer values, and knows what was
    acknowledged."""

    def __init__(self, doors, name, seed):
        super().__init__()
        self.doors, self.key_name, self.rng = doors, name, random.Random(seed)
        self.acknowledged, self.tried, self.wrong = {}, {}, []
        self.stop = threading.Event()
        self.rounds = self.lost_connections = 0

    def run(self):
        while not self.stop.is_set() and not self.wrong:
            try:
                with self.rng.choice(self.doors).wire() as wire:
                    self.work(wire)
            except (OSError, Closed):
                self.lost_connections += 1
                time.sleep(0.005)
            except Exception as error:  # pylint: disable=broad-except
                self.wrong.append(repr(error))

    def work(self, wire):
        while not self.stop.is_set() and not self.wrong:
            key = b"%s:%d" % (self.key_name, self.rng.randrange(40))
            if self.rng.random() < 0.4:
                self.look(key, wire.ask("GET", key))
                continue
            serial = self.tried.get(key, 0) + 1
            size = self.rng.choice((10, 100, 3000, 40000, 300000))
            self.tried[key] = serial
            answer = wire.ask("SET", key, body(key, serial, size))
            if answer == b"+OK\r\n":
                self.acknowledged[key] = serial
                self.rounds += 1
            elif not answer.startswith(b"-LOADING"):
                self.wrong.append(answer)

    def look(self, key, answer):
        if answer.startswith(b"-LOADING"):
            return
        value = tree(answer)[1] if answer != b"$-1\r\n" else None
        least = self.acknowledged.get(key, 0)
        if value is None:
            if least:
                self.wrong.append("%r is gone, was %d" % (key, least))
            return
        if not is_whole(key, value):
            self.wrong.append("%r is damaged: %r" % (key, value[:100]))
        elif not least <= int(value.split(b" ")[1]) <= self.tried[key]:
            self.wrong.append("%r: %r, acknowledged %d" % (
                key, value[:60], least))


def write_while(doors, work, count=4):
    """Have clients write while work() runs. What was acknowledged is there
    then, and whole. What they did, in words."""
    writers = [Writer(doors, b"w%d" % i, i) for i in range(count)]
    for writer in writers:
        writer.start()
    try:
        work()
    finally:
        for writer in writers:
            writer.stop.set()
        for writer in writers:
            writer.join()
    with doors[0].wire() as wire:
        for writer in writers:
            assert not writer.wrong, writer.wrong
            for key in writer.tried:
                writer.look(key, wire.ask("GET", key))
            assert not writer.wrong, writer.wrong
    return "%d writes, %d connections lost" % (
        sum(writer.rounds for writer in writers),
        sum(writer.lost_connections for writer in writers))
