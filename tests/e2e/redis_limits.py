"""redis_limits.py REEF - what one client can cost the others of a door: memory,
time and guesses.

Nothing here goes by the clock: what others are served meanwhile is counted.
"""

import os
import re
import select
import sys
import threading

from checks import run_checks
from growth import MIB, Growth, resident
from pool_processes import until
from redis_servers import Servers
from redis_wire import request, tree

REEF = os.path.abspath(sys.argv[1])


def stat(wire, name):
    """A number of INFO stats."""
    return int(re.search(rb"%s:(\d+)" % name, wire.ask("INFO", "stats"))[1])


def ask_meanwhile(slow, wire, *words):
    """How many requests of `wire` are answered before `slow` gets the first
    byte of an answer."""
    served = 0
    while not select.select([slow.socket], [], [], 0)[0]:
        assert wire.ask(*words)[:1] != b"-"
        served += 1
        assert served < 10_000_000
    return served


def send_some(wire, data):
    """Send as much as the door takes: it may stop reading."""
    wire.socket.setblocking(False)
    sent, refused = 0, 0
    while sent < len(data) and refused < 5:
        try:
            sent += wire.socket.send(data[sent:sent + 65536])
            refused = 0
        except BlockingIOError:
            select.select([], [wire.socket], [], 0.01)
            refused += 1
        except OSError:
            return sent
    wire.socket.setblocking(True)
    wire.socket.settimeout(60)
    return sent


# --- memory ---


def check_names(pool):
    """What a client says of itself is short."""
    pool.up()
    door = pool.door()
    with door.wire() as wire:
        for words in (("CLIENT", "SETNAME"), ("HELLO", 3, "SETNAME"),
                      ("CLIENT", "SETINFO", "lib-name"),
                      ("CLIENT", "SETINFO", "lib-ver")):
            assert wire.ask(*words, b"n" * 257)[:4] == b"-ERR", words
            assert wire.ask(*words, b"n" * 256)[:1] in b"+%", words
        assert wire.ask("CLIENT", "GETNAME").count(b"n") == 256


def check_lists_of_clients(pool):
    """A transaction that lists the clients three thousand times."""
    pool.up()
    door = pool.door()
    with door.wire() as wire, door.wire() as greedy:
        greedy.ask("CLIENT", "SETNAME", b"n" * MIB)
        greedy.ask("CLIENT", "SETNAME", b"n" * 256)
        count = 3000
        with Growth(door.process) as growth:
            send_some(greedy, request("MULTI") + b"CLIENT LIST\r\n" * count +
                      request("EXEC"))
            for _ in range(200):
                assert wire.ask("PING") == b"+PONG\r\n"
            assert greedy.reply() == b"+OK\r\n"
            for _ in range(count):
                assert greedy.reply() == b"+QUEUED\r\n"
            assert greedy.line() == b"*%d\r\n" % count
            growth.is_below(48 * MIB)
        for _ in range(count):
            assert b"cmd=" in greedy.reply()
        # A list of the same one, over and over.
        number = greedy.ask("CLIENT", "ID")[1:-2]
        answer = greedy.ask("CLIENT", "LIST", "ID", *[number] * 1000)
        assert answer.count(b"id=%s " % number) == 1000, answer[:300]
        with Growth(door.process) as growth:
            answer = greedy.ask("CLIENT", "LIST", "ID", *[number] * 200_000)
            assert answer[:4] == b"-ERR", answer[:100]
            growth.is_below(256 * MIB)


# A thread keeps so much of buffers for the next who needs one.
KEPT = 64 * MIB
LARGE = b"v" * (8 * MIB)
LARGE_ANSWER = b"$%d\r\n%s\r\n" % (len(LARGE), LARGE)


def check_unread_mgets(pool):
    """Large answers are made as they are read."""
    pool.up(lend="512M")
    door = pool.door("door", "--redis-threads", "1", MALLOC_PERTURB_="0")
    value = LARGE
    crowd = [door.wire() for _ in range(4)]
    with door.wire() as wire:
        assert wire.ask("SET", "big", value) == b"+OK\r\n"
        with Growth(door.process) as growth:
            for one in crowd:
                one.send(request("MGET", *["big"] * 50))
            for _ in range(300):
                assert wire.ask("PING") == b"+PONG\r\n"
            # One of them does read.
            assert crowd[0].line() == b"*50\r\n"
            for _ in range(50):
                assert crowd[0].reply() == LARGE_ANSWER
            growth.is_below((4 + 4) * len(value) + KEPT)
        for one in crowd:
            one.close()


def check_unread_gets(pool):
    """Small answers first, so that many are made together, then large ones."""
    pool.up(lend="512M")
    door = pool.door("door", "--redis-threads", "1", MALLOC_PERTURB_="0")
    value = LARGE
    small, big = request("GET", "small"), request("GET", "big")
    with door.wire() as wire, door.wire() as greedy:
        assert wire.ask("SET", "big", value) == b"+OK\r\n"
        assert wire.ask("SET", "small", "s") == b"+OK\r\n"
        with Growth(door.process) as growth:
            greedy.send(small * 1024 + big * 64 + small * 3)
            for _ in range(300):
                assert wire.ask("PING") == b"+PONG\r\n"
            for _ in range(1024):
                assert greedy.reply() == b"$1\r\ns\r\n"
            for _ in range(64):
                assert greedy.reply() == LARGE_ANSWER
            for _ in range(3):
                assert greedy.reply() == b"$1\r\ns\r\n"
            growth.is_below(4 * len(value) + KEPT)


def check_order(pool):
    """Answers stay in order, and changes where they stand, when some have to
    wait for others to be read."""
    pool.up(lend="512M")
    put_in_order(pool.door("near", "--redis-threads", "1"))
    put_in_order(pool.door("far", "--redis-threads", "1", REEF_FABRICS="tcp"))


def put_in_order(door):
    with door.wire() as wire, door.wire() as slow:
        values = [b"%d" % i * (200_000 + i) for i in range(4)]
        words, answers = [], []
        for turn in range(6):
            for i, value in enumerate(values):
                words.append(("SET", "k%d" % i, value[turn:]))
                answers.append(b"+OK\r\n")
            for i in range(40):
                value = values[i % 4][turn:]
                words.append(("GET", "k%d" % (i % 4)))
                answers.append(b"$%d\r\n%s\r\n" % (len(value), value))
            words.append(("GET", "none"))
            answers.append(b"$-1\r\n")
            words.append(("MGET", "k0", "none", "k1"))
            answers.append(b"*3\r\n$%d\r\n%s\r\n$-1\r\n$%d\r\n%s\r\n" % (
                len(values[0][turn:]), values[0][turn:],
                len(values[1][turn:]), values[1][turn:]))
            words.append(("DEL", "k0", "k1", "k2", "k3"))
            answers.append(b":4\r\n")
        sender = threading.Thread(target=lambda: slow.send(
            b"".join(request(*one) for one in words)))
        sender.start()
        for _ in range(50):
            assert wire.ask("PING") == b"+PONG\r\n"
        for one, answer in zip(words, answers):
            assert slow.reply() == answer, one[:2]
        sender.join()


def check_conflict_late(pool):
    """EXEC meets a conflict after much was answered: all of it is taken
    back."""
    pool.up(lend="512M")
    door = pool.door("door", "--redis-threads", "1")
    pattern = b"*" + b"a" * 300 + b"b"
    with door.wire() as wire, door.wire() as slow:
        for i in range(4):
            assert wire.ask("SET", b"a" * 60000 + b"%d" % i, "v") == b"+OK\r\n"
        assert wire.ask("SET", "big", b"v" * 3 * MIB) == b"+OK\r\n"
        for is_changed in (True, False):
            wire.ask("DEL", "w")
            assert slow.ask("WATCH", "w") == b"+OK\r\n"
            slow.send(request("MULTI") + request("GET", "big") * 2 +
                      request("KEYS", pattern) + request("SET", "w", 1) +
                      request("EXEC") + request("PING"))
            if is_changed:
                until("it runs", lambda: b"cmd=keys" in wire.ask(
                    "CLIENT", "LIST"))
                assert wire.ask("SET", "w", 2) == b"+OK\r\n"
            assert slow.exactly(5 + 4 * 9).count(b"QUEUED") == 4
            answer = slow.reply()
            assert answer == b"*-1\r\n" if is_changed else (
                answer.endswith(b"*0\r\n+OK\r\n")), answer[-50:]
            assert slow.reply() == b"+PONG\r\n"
            assert wire.ask("GET", "w") == b"$1\r\n%d\r\n" % (1 + is_changed)


def check_unread_transaction(pool):
    """EXEC has its answers until it is committed, and no more than them."""
    pool.up(lend="512M")
    door = pool.door("door", "--redis-threads", "1", MALLOC_PERTURB_="0")
    value = LARGE
    with door.wire() as wire, door.wire() as greedy:
        assert wire.ask("SET", "big", value) == b"+OK\r\n"
        with Growth(door.process) as growth:
            greedy.send(request("MULTI") + request("GET", "big") * 16 +
                        request("MGET", *["big"] * 16) + request("EXEC"))
            for _ in range(300):
                assert wire.ask("PING") == b"+PONG\r\n"
            assert greedy.exactly(5 + 9 * 17) == (
                b"+OK\r\n" + b"+QUEUED\r\n" * 17)
            assert greedy.line() == b"*17\r\n"
            for _ in range(16):
                assert greedy.reply() == LARGE_ANSWER
            assert greedy.line() == b"*16\r\n"
            for _ in range(16):
                assert greedy.reply() == LARGE_ANSWER
            assert greedy.ask("PING") == b"+PONG\r\n"
            growth.is_below((32 + 4) * len(value) + KEPT)


def check_budget(pool):
    """All clients together have a budget; who takes most of it goes first."""
    pool.up(lend="512M")
    door = pool.door("door", "--redis-memory-max", "64M",
                     MALLOC_PERTURB_="0")
    value = b"v" * (4 * MIB)
    with door.wire() as wire:
        assert wire.ask("SET", "big", value) == b"+OK\r\n"
        asked = (
            # Answers, half-sent requests, transactions, what is watched.
            request("GET", "big") * 4,
            request("MGET", *["big"] * 8),
            b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$4194304\r\n" + value[:-1],
            b"*1000000\r\n" + b"$1\r\na\r\n" * 500_000,
            request("MULTI") + request("SET", "k", value),
            request("WATCH", *(b"%d" % i for i in range(40000))),
        )
        for one in asked:
            crowd = [door.wire() for _ in range(30)]
            with Growth(door.process) as growth:
                for greedy in crowd:
                    send_some(greedy, one)
                    assert wire.ask("PING") == b"+PONG\r\n"
                growth.is_below(160 * MIB)
            for greedy in crowd:
                greedy.close()
            assert wire.ask("GET", "big")[-9:] == value[-7:] + b"\r\n"
        assert stat(wire, b"evicted_clients")
        assert wire.ask("CONFIG", "GET", "maxmemory-clients").endswith(
            b"$8\r\n67108864\r\n")


def check_no_evict(pool):
    """Who asked not to be closed is closed last, however much it has."""
    pool.up()
    door = pool.door("door", "--redis-memory-max", "48M", "--redis-threads",
                     "1", MALLOC_PERTURB_="0")

    def queue(wire, size):
        """A transaction of that size."""
        wire.send(request("MULTI") + request("SET", "k", b"v" * size))
        assert wire.reply() + wire.reply() == b"+OK\r\n+QUEUED\r\n"

    with door.wire() as kept, door.wire() as other, door.wire() as wire:
        assert kept.ask("CLIENT", "NO-EVICT", "on") == b"+OK\r\n"
        queue(kept, 28 * MIB)
        queue(other, 12 * MIB)
        assert stat(wire, b"evicted_clients") == 0
        send_some(wire, request("MULTI") + request("SET", "k", b"v" * 16 * MIB))
        # The largest of the others goes, and then all fit.
        with door.wire() as last:
            until("one is gone", lambda: stat(last, b"evicted_clients") == 1)
        assert kept.ask("DISCARD") == b"+OK\r\n"


def check_keys_too_long(pool):
    """An answer of KEYS that is too long is an error, and no more than that."""
    pool.up()
    door = pool.door("door", "--redis-output-max", "1M", "--redis-output-soft",
                     "64K")
    with door.wire() as wire:
        for i in range(20):
            assert wire.ask("SET", b"%d" % i * 30000, "v") == b"+OK\r\n"
        assert tree(wire.ask("KEYS", "1*"))[1]
        for i in range(20, 50):
            assert wire.ask("SET", b"%d" % i * 30000, "v") == b"+OK\r\n"
        assert wire.ask("KEYS", "*").startswith(b"-ERR the answer is larger")
        cursor, met = b"0", 0
        while True:
            answer = tree(wire.ask("SCAN", cursor))[1]
            cursor, met = answer[0][1], met + len(answer[1][1])
            if cursor == b"0":
                break
        assert met == 50, met


# --- time ---


def fill(wire, count, name=b"key:%d"):
    for at in range(0, count, 1000):
        wire.send(b"".join(request("SET", name % i, "v")
                           for i in range(at, min(at + 1000, count))))
        assert wire.exactly(5 * min(1000, count - at)).count(b"+OK") == min(
            1000, count - at)


def check_patterns(pool):
    """A pattern that takes long to match lets others run."""
    pool.up()
    door = pool.door("door", "--redis-threads", "1")
    with door.wire() as wire, door.wire() as slow:
        for i in range(4):
            assert wire.ask("SET", b"a" * 60000 + b"%d" % i, "v") == b"+OK\r\n"
        pattern = b"*" + b"a" * 300 + b"b"
        for words in (("KEYS", pattern),
                      ("SCAN", 0, "COUNT", 1000, "MATCH", pattern)):
            slow.send(request(*words))
            served = ask_meanwhile(slow, wire, "GET", "key")
            print("%d while %s matches" % (served, words[0]))
            assert served > 20, served
            assert slow.reply().endswith(b"*0\r\n")
        slow.send(request("MULTI") + request("KEYS", pattern) +
                  request("EXEC"))
        assert slow.reply() + slow.reply() == b"+OK\r\n+QUEUED\r\n"
        assert ask_meanwhile(slow, wire, "PING") > 20
        assert slow.reply() == b"*1\r\n*0\r\n"


def check_long_commands(pool):
    """Commands on very many keys let others run."""
    pool.up(lend="512M")
    door = pool.door("door", "--redis-threads", "1")
    count = 40_000
    keys = [b"key:%d" % i for i in range(count)]
    pairs = [word for key in keys for word in (key, b"v")]
    with door.wire() as wire, door.wire(timeout=120) as slow:
        for words, answer in (
                (["MSET", *pairs], b"+OK\r\n"),
                (["EXISTS", *keys], b":%d\r\n" % count),
                (["KEYS", "key:*"], None),
                (["SCAN", 0, "COUNT", 10 * count], None),
                (["DEL", *keys], b":%d\r\n" % count),
                (["MSETNX", *pairs], b":1\r\n"),
                (["FLUSHDB"], b"+OK\r\n")):
            # The last byte is sent by itself, so that receiving it all is not
            # what takes long.
            whole = request(*words)
            slow.send(whole[:-1])
            before = stat(wire, b"reef_pauses")
            slow.send(whole[-1:])
            served = ask_meanwhile(slow, wire, "PING")
            pauses = stat(wire, b"reef_pauses") - before
            print("%d while %s runs, %d pauses" % (served, words[0], pauses))
            assert pauses > 3, (words[0], pauses)
            got = slow.reply()
            assert got == answer if answer else got.count(b"key:") == count


def check_pipelines(pool):
    """So do pipelines, of one who reads all at once."""
    pool.up()
    door = pool.door("door", "--redis-threads", "1")
    with door.wire() as wire, door.wire(timeout=120) as slow:
        assert wire.ask("SET", "k", b"v" * 8000) == b"+OK\r\n"
        count = 30_000
        got = []
        reader = threading.Thread(target=lambda: got.append(
            len(slow.exactly(count * 8008))))
        slow.send(request("GET", "k"))
        assert slow.exactly(8008)
        served = 0
        reader.start()
        sender = threading.Thread(target=lambda: slow.send(
            request("GET", "k") * count))
        sender.start()
        while reader.is_alive():
            assert wire.ask("PING") == b"+PONG\r\n"
            served += 1
        sender.join()
        reader.join()
        print("%d while %d are read" % (served, count))
        assert got and served > 50, served


def check_killed_meanwhile(pool):
    """Who is killed, or leaves, within a long command leaves nothing."""
    pool.up()
    door = pool.door("door", "--redis-threads", "1")
    pattern = b"*" + b"a" * 500 + b"b"
    with door.wire() as wire:
        for i in range(8):
            assert wire.ask("SET", b"a" * 60000 + b"%d" % i, "v") == b"+OK\r\n"
        before = resident(door.process)
        for how in ("kill", "leave", "reset"):
            crowd = [door.wire() for _ in range(20)]
            for one in crowd:
                one.send(request("KEYS", pattern))
                wire.ask("PING")
            if how == "kill":
                assert wire.ask("CLIENT", "KILL", "TYPE", "normal")[:1] == b":"
            for one in crowd:
                one.close()
            until("they are gone", lambda: re.search(
                rb"connected_clients:1\r", wire.ask("INFO", "clients")))
        assert resident(door.process) - before < 32 * MIB
        crowd = [door.wire() for _ in range(5)]
        for one in crowd:
            one.send(request("KEYS", pattern))
        assert wire.ask("PING") == b"+PONG\r\n"
    # And the door ends in spite of them.
    assert door.process.stop() == 0, door.process.error
    for one in crowd:
        one.close()


def check_fenced_meanwhile(pool):
    """The door's session ends while long commands are under way."""
    pool.up(lend="512M")
    door = pool.door("door", "--redis-threads", "1", REEF_FABRICS="tcp")
    pattern = b"*" + b"a" * 300 + b"b"
    with door.wire() as wire, door.wire() as slow, door.wire() as unread:
        for i in range(8):
            assert wire.ask("SET", b"a" * 60000 + b"%d" % i, "v") == b"+OK\r\n"
        assert wire.ask("SET", "big", LARGE) == b"+OK\r\n"
        unread.send(request("MGET", *["big"] * 10))
        slow.send(request("KEYS", pattern))
        until("it runs", lambda: b"cmd=keys" in wire.ask("CLIENT", "LIST"))
        row, = pool.status()["sessions"]
        pool.do("session", "end", "%08x" % row["session"])
        until("it works again", lambda: (
            wire.ask("APPEND", "k", "") == b":0\r\n"))
        assert slow.reply()[:1] in b"*-"
        # What was sent before the end stays; an error is an element.
        assert unread.line() == b"*10\r\n"
        for _ in range(10):
            answer = unread.reply()
            assert answer == LARGE_ANSWER or answer[:1] == b"-", answer[:99]
        for one in (slow, unread):
            assert one.ask("GET", "big") == LARGE_ANSWER


# --- guesses ---


def with_password(pool, *arguments, word="secret-word", **more):
    path = os.path.join(pool.home, "password")
    with open(path, "w", encoding="ascii") as stream:
        stream.write(word + "\n")
    os.chmod(path, 0o600)
    return pool.door("door", "--redis-password-file", path, *arguments, **more)


def check_guesses(pool):
    """Who guesses waits longer and longer; others do not."""
    pool.up()
    door = with_password(pool, "--redis-threads", "1")
    guess = request("AUTH", "wrong")
    with door.wire(tcp=True) as guesser:
        send_some(guesser, guess * 2000)
        # Another address: the socket.
        with door.wire() as wire:
            assert wire.ask("AUTH", "secret-word") == b"+OK\r\n"
            for _ in range(500):
                assert wire.ask("PING") == b"+PONG\r\n"
        guesser.socket.settimeout(0.05)
        got = b""
        try:
            while True:
                more = guesser.socket.recv(65536)
                if not more:
                    break
                got += more
        except TimeoutError:
            pass
        print("%d guesses meanwhile" % got.count(b"WRONGPASS"))
        assert 0 < got.count(b"WRONGPASS") < 20, got.count(b"WRONGPASS")


def check_guessing_crowd(pool):
    """A crowd gets no more guesses than one, and costs little."""
    pool.up()
    door = with_password(pool, "--redis-threads", "2")
    crowd = [door.wire(tcp=True) for _ in range(300)]
    with Growth(door.process) as growth:
        for one in crowd:
            one.send(request("HELLO", 3, "AUTH", "default", "wrong"))
        with door.wire() as wire:
            assert wire.ask("AUTH", "secret-word") == b"+OK\r\n"
            for _ in range(500):
                assert wire.ask("PING") == b"+PONG\r\n"
            checked = stat(wire, b"acl_access_denied_auth")
            refused = stat(wire, b"reef_auth_refused")
        print("%d checked, %d refused" % (checked, refused))
        assert checked < 64 and refused > 100, (checked, refused)
        growth.is_below(32 * MIB)
    for one in crowd:
        one.close()
    with door.wire() as wire:
        assert wire.ask("AUTH", "secret-word") == b"+OK\r\n"
        assert tree(wire.ask("CONFIG", "GET", "requirepass"))[1][1][1] == b""


def check_password_changed(pool):
    """The password is changed while the door runs, and counts at once for who
    comes; at the next start that of the file counts again."""
    pool.up()
    door = with_password(pool)
    with door.wire() as wire, door.wire() as other:
        assert other.ask("CONFIG", "SET", "requirepass", "x")[:7] == b"-NOAUTH"
        assert wire.ask("AUTH", "secret-word") == b"+OK\r\n"
        assert wire.ask("CONFIG", "SET", "requirepass", b"p" * 512)[:4] == (
            b"-ERR")
        assert wire.ask("CONFIG", "SET", "requirepass", "new-word",
                        "timeout", "nonsense")[:4] == b"-ERR"
        assert wire.ask("CONFIG", "SET", "requirepass", "new-word") == (
            b"+OK\r\n")
        assert wire.ask("PING") == b"+PONG\r\n"
        assert other.ask("AUTH", "secret-word")[:10] == b"-WRONGPASS"
        assert other.ask("AUTH", "new-word") == b"+OK\r\n"
        assert b"new-word" not in wire.ask("CONFIG", "GET", "*")
        with door.wire() as third:
            assert third.ask("PING")[:7] == b"-NOAUTH"
            assert wire.ask("CONFIG", "SET", "requirepass", "") == b"+OK\r\n"
            assert third.ask("PING") == b"+PONG\r\n"
        with door.wire() as fourth:
            assert fourth.ask("PING") == b"+PONG\r\n"
        assert wire.ask("CONFIG", "SET", "requirepass", "again") == b"+OK\r\n"
    assert door.process.stop() == 0
    assert "-word" not in door.process.out + door.process.error
    door = pool.door("door", "--redis-password-file",
                     os.path.join(pool.home, "password"), port=door.port)
    with door.wire() as wire:
        assert wire.ask("AUTH", "again")[:10] == b"-WRONGPASS"
        assert wire.ask("AUTH", "secret-word") == b"+OK\r\n"


if __name__ == "__main__":
    sys.exit(run_checks(globals(), lambda: Servers(REEF), sys.argv[2:]))
