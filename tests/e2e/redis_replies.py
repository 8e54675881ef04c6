"""redis_replies.py REEF - the door answers what a redis-server answers, byte for
byte.

The same requests go to both, over raw sockets. Nothing but what must differ
between two servers is left out of the comparison: see `agree`.
"""

import os
import random
import re
import sys
import threading
import time

import redis_odd as odd
import redis_scripts as scripts
from checks import run_checks
from redis_servers import Servers, fields, skip, without_redis
from redis_wire import Closed, Wire, request, tree, words_of

REEF = os.path.abspath(sys.argv[1])
SOAK = os.environ.get("REEF_SOAK") == "1"
# Numbers that go with the time, in seconds or milliseconds.
NEAR = 5000


class Both(Servers):
    """A redis-server and a door, and connections to both."""

    def __init__(self, reef):
        super().__init__(reef)
        self.theirs = self.ours = self.other = None

    def begin(self):
        self.theirs = self.redis()
        if os.environ.get("REEF_E2E_SELF"):
            # Is the test itself right? Then two of the same agree.
            self.ours = self.redis(name="second")
        else:
            self.up()
            self.ours = self.door()

    def begin_two(self):
        """And another door into the same pool."""
        self.begin()
        if not os.environ.get("REEF_E2E_SELF"):
            self.other = self.door("other")

    def flush(self):
        for server in (self.theirs, self.ours):
            with server.wire() as wire:
                assert wire.ask("FLUSHALL") == b"+OK\r\n", server.name


def kinds(value):
    """What kind of reply it is, without what is in it."""
    kind, inside = value
    if isinstance(inside, list):
        return kind, [kinds(item) for item in inside]
    return kind, None


def near(one, other):
    """The same, but for numbers that go with the time."""
    if one[0] != other[0]:
        return False
    if isinstance(one[1], list):
        return len(one[1]) == len(other[1]) and all(
            map(near, one[1], other[1]))
    if one[0] == b":":
        first, second = int(one[1]), int(other[1])
        return (first < 0) == (second < 0) and abs(first - second) <= NEAR
    return one[1] == other[1]


def agree(mode, theirs, ours):
    if mode == "?":
        return kinds(tree(theirs)) == kinds(tree(ours))
    if mode == "<":
        return near(tree(theirs), tree(ours))
    if mode == "~":
        one, other = tree(theirs), tree(ours)
        return one[0] == other[0] and sorted(one[1]) == sorted(other[1])
    return theirs == ours


def steps_of(text):
    """(connection, mode, line) of each line of a script."""
    for line in text.splitlines():
        line = line.strip()
        if not line:
            continue
        connection = 0
        if line.startswith("@2 "):
            connection, line = 1, line[3:]
        mode = ""
        if line[:2] in ("~ ", "? ", "< ", "! "):
            mode, line = line[0], line[2:]
        yield connection, mode, line


class Pair:
    """The same connection to both."""

    def __init__(self, both, protocol=2, tcp=False, other=False):
        self.wires = [server.wire(tcp) for server in (
            both.theirs, other and both.other or both.ours)]
        if protocol == 3:
            for wire in self.wires:
                assert wire.ask("HELLO", 3).startswith(b"%"), "HELLO 3"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for wire in self.wires:
            wire.close()

    def ask(self, *words):
        """What each answers; None: it has closed."""
        answers = []
        for wire in self.wires:
            try:
                answers.append(wire.ask(*words))
            except (Closed, OSError) as error:
                answers.append(repr(error).encode())
        return answers

    def same(self, *words, mode=""):
        theirs, ours = self.ask(*words)
        assert agree(mode, theirs, ours), "%r: redis %r, door %r" % (
            words, theirs[-500:], ours[-500:])
        return theirs


def shorten(raw):
    return raw if len(raw) <= 300 else raw[:200] + b"..." + raw[-100:]


def run_script(both, name, text, protocol):
    """The differences, as lines."""
    both.flush()
    wrong = []
    with Pair(both, protocol) as first, Pair(both, protocol) as second:
        for connection, mode, line in steps_of(text):
            pair = (first, second)[connection]
            theirs, ours = pair.ask(*words_of(line))
            if mode == "!":
                theirs, ours = (answer + wire.rest() for answer, wire in zip(
                    (theirs, ours), pair.wires))
            if not agree(mode, theirs, ours):
                wrong.append("  %s, RESP%d: %s\n    redis %r\n    door  %r" % (
                    name, protocol, line, shorten(theirs), shorten(ours)))
    return wrong


def run_scripts(both, table):
    both.begin()
    wrong, count = [], 0
    for name, text in table.items():
        for protocol in (2, 3):
            wrong += run_script(both, name, text, protocol)
            count += len(list(steps_of(text)))
    assert not wrong, "%d of %d replies differ:\n%s" % (
        len(wrong), count, "\n".join(wrong))


def check_strings(both):
    run_scripts(both, scripts.STRINGS)


def check_keys(both):
    run_scripts(both, scripts.KEYS)


def check_transactions(both):
    run_scripts(both, scripts.TRANSACTIONS)


def check_connections(both):
    run_scripts(both, scripts.CONNECTIONS)


def check_odd(both):
    run_scripts(both, odd.ODD)


def check_arity(both):
    """Every command with none to six words."""
    lines = []
    for name in scripts.COMMANDS:
        if name in ("quit", "multi", "time", "reset", "randomkey"):
            continue
        words = name.replace("|", " ")
        for count in range(7):
            if name in ("info", "command", "client|list", "client|info",
                        "client|id", "hello", "command|count", "command|list",
                        "command|docs", "command|info") and count == 0:
                continue
            if name == "info" or name == "memory|usage":
                continue
            lines.append(words + " k" * count)
            # Anything may be a cursor.
            if name != "scan":
                lines.append(words + " 100000" * count)
    text = "\n".join(
        ("< " if "ttl" in line or "idletime" in line else "") + line
        for line in lines)
    run_scripts(both, {"arity": text})


def check_command_info(both):
    """What COMMAND says of each command is what Redis's says."""
    both.begin()
    wrong = []
    for protocol in (2, 3):
        with Pair(both, protocol) as pair:
            for name in scripts.COMMANDS:
                for verb in ("INFO", "DOCS"):
                    theirs, ours = pair.ask("COMMAND", verb, name)
                    if verb == "INFO":
                        theirs, ours = (repr(of_ours(tree(raw)))
                                        for raw in (theirs, ours))
                    else:
                        theirs, ours = (repr(without_subcommands(tree(raw)))
                                        for raw in (theirs, ours))
                    if theirs != ours:
                        wrong.append("  %s %s, RESP%d\n    redis %s\n"
                                     "    door  %s" % (verb, name, protocol,
                                                       theirs, ours))
    assert not wrong, "%d differ:\n%s" % (len(wrong), "\n".join(wrong))


def of_ours(value):
    """COMMAND INFO in any order of flags, without subcommands that the door
    does not have."""
    kind, inside = value
    if not isinstance(inside, list):
        return value
    if len(inside) == 10 and inside[9][1]:
        # A container: its subcommands are asked for by themselves.
        return kind, [of_ours(item) for item in inside[:9]]
    items = [of_ours(item) for item in inside]
    if all(item[0] in (b"+", b"$") for item in items):
        items = sorted(items)
    return kind, items


def without_subcommands(value):
    """COMMAND DOCS without subcommands, and without prose, which is anybody's
    own."""
    kind, inside = value
    if not isinstance(inside, list):
        return value
    items, skipping = [], False
    for item in inside:
        if skipping:
            skipping = False
        elif item[1] in (b"subcommands", b"summary", b"complexity",
                         b"history"):
            skipping = True
        else:
            items.append(without_subcommands(item))
    return kind, items


# --- bytes ---


def say(wire, data, piece, rng):
    """Send in pieces; the server sees them together, or not."""
    if not piece:
        wire.send(data)
        return
    at = 0
    try:
        while at < len(data):
            size = rng.randint(1, piece)
            wire.send(data[at:at + size])
            at += size
            if rng.random() < 0.3:
                time.sleep(0)
    except (BrokenPipeError, ConnectionResetError):
        # It did not want to hear more.
        pass


def answer_to(server, data, piece=0, tcp=False, ends=True):
    """All that comes back. ends: say that no more follows; of answers that
    wait then to be sent, Redis's are lost."""
    with server.wire(tcp) as wire:
        def speak():
            say(wire, data, piece, random.Random(1))
            if ends:
                try:
                    wire.socket.shutdown(1)
                except OSError:
                    pass

        speaker = threading.Thread(target=speak)
        speaker.start()
        try:
            return wire.rest()
        except TimeoutError:
            return b"(did not close)"
        finally:
            speaker.join()


def check_raw(both):
    """Good and bad bytes, whole and in pieces."""
    both.begin()
    wrong = []
    for name, data in {**scripts.RAW, **odd.RAW}.items():
        for piece in (0, 1, 7):
            # Whether Redis sends what it had to say before it hangs up on
            # a browser is chance.
            if piece and (len(data) > 20000 or name.startswith("http")):
                continue
            both.flush()
            theirs, ours = (answer_to(server, data, piece)
                            for server in (both.theirs, both.ours))
            if theirs != ours:
                wrong.append("  %s by %d: redis %r, door %r" % (
                    name, piece, shorten(theirs), shorten(ours)))
    assert not wrong, "%d differ:\n%s" % (len(wrong), "\n".join(wrong))


def check_pieces(both):
    """One long pipeline, a byte at a time and otherwise, by TCP and unix."""
    both.begin()
    lines = [line for table in (scripts.STRINGS, scripts.KEYS)
             for text in table.values()
             for _, mode, line in steps_of(text) if not mode]
    data = b"".join(request(*words_of(line)) for line in lines)
    data += request("QUIT")
    for piece, tcp in ((0, False), (0, True), (1, False), (13, True),
                       (5000, False)):
        answers = []
        for server in (both.theirs, both.ours):
            both.flush()
            answers.append(answer_to(server, data, piece, tcp,
                                     ends=False))
        assert answers[0] == answers[1], "by %d: %s" % (
            piece, first_difference(*answers))


def first_difference(one, other):
    at = next((i for i, (a, b) in enumerate(zip(one, other)) if a != b),
              min(len(one), len(other)))
    return "of %d and %d bytes, at %d: redis %r, door %r" % (
        len(one), len(other), at, one[max(0, at - 60):at + 100],
        other[max(0, at - 60):at + 100])


def check_big(both):
    """Values of many sizes, about the limits of buffers; and big keys."""
    both.begin()
    rng = random.Random(5)
    sizes = [0, 1, 43, 44, 45, 255, 4095, 4096, 16383, 16384, 16385, 32767,
             32768, 32769, 65535, 65536, 65537, 1 << 20, (1 << 20) + 1,
             5 << 20]
    for protocol in (2, 3):
        with Pair(both, protocol, tcp=protocol == 3) as pair:
            for size in sizes:
                value = rng.randbytes(size)
                pair.same("SET", "big", value)
                pair.same("GET", "big")
                pair.same("STRLEN", "big")
                pair.same("APPEND", "big", value[:1000])
                pair.same("GETRANGE", "big", size // 2, -1)
                pair.same("SETRANGE", "big", size, b"x" * 100)
                pair.same("GET", "big")
                pair.same("GETSET", "big", "small")
                pair.same("ECHO", value)
                if size < 65536:
                    pair.same("SET", b"k" + value, "v")
                    pair.same("GET", b"k" + value)
                    pair.same("DEL", b"k" + value)
                pair.same("MSET", "a", value, "b", value, "c", "1")
                pair.same("MGET", "a", "b", "c", "a", "nothere")
                pair.same("MULTI")
                pair.same("SET", "m", value)
                pair.same("GET", "m")
                pair.same("EXEC")


def check_pipeline(both):
    """Thousands of requests before the first answer is read."""
    both.begin()
    rng = random.Random(7)
    big = rng.randbytes(100000)
    parts = []
    for i in range(20000):
        key = "k%d" % rng.randrange(500)
        parts.append(request(*rng.choice((
            ("SET", key, i), ("GET", key), ("INCR", "n%d" % (i % 7)),
            ("APPEND", "a%d" % (i % 50), "x"), ("DEL", key), ("PING",),
            ("MGET", key, "k1", "k2"), ("NOSUCH", key)))))
        if i % 1000 == 0:
            parts.append(request("SET", "big", big) + request("GET", "big"))
    data = b"".join(parts) + request("QUIT")
    answers = []
    for server in (both.theirs, both.ours):
        with server.wire() as wire:
            writer = threading.Thread(target=wire.send, args=(data,))
            writer.start()
            answers.append(wire.rest())
            writer.join()
    assert answers[0] == answers[1], first_difference(*answers)


# --- chance ---

FUTURE = 33177117420


def random_request(rng):
    key = lambda: "k%d" % rng.randrange(6)
    value = lambda: rng.choice((
        rng.randrange(-20, 20), "v%d" % rng.randrange(5), "", "3.5",
        9223372036854775807, "x" * rng.randrange(60), "\x00\x01"))
    number = lambda: rng.choice((
        0, 1, -1, 5, -3, 100, 2 ** 63 - 1, -2 ** 63, 2 ** 63, "x", "", "1.5"))
    seconds = lambda: rng.choice((100, 1000, -1, 0, "x", 5000))
    at = lambda: rng.choice((FUTURE, FUTURE + 7, 1, 5, "x", FUTURE - 1))
    flag = lambda: rng.choice(((), (), ("NX",), ("XX",), ("GT",), ("LT",),
                               ("XX", "GT"), ("NX", "GT"), ("FOO",)))
    option = lambda: rng.choice((
        (), (), (), ("NX",), ("XX",), ("GET",), ("KEEPTTL",), ("EX", seconds()),
        ("EXAT", at()), ("NX", "GET"), ("XX", "EX", 500), ("GET", "KEEPTTL"),
        ("PX", 500000), ("NX", "XX"), ("PXAT", FUTURE * 1000)))
    choose = (
        lambda: ("GET", key()), lambda: ("SET", key(), value(), *option()),
        lambda: ("SETNX", key(), value()), lambda: ("GETSET", key(), value()),
        lambda: ("GETDEL", key()),
        lambda: ("GETEX", key(), *rng.choice((
            (), ("PERSIST",), ("EX", seconds()), ("EXAT", at())))),
        lambda: ("SETEX", key(), seconds(), value()),
        lambda: ("MGET", key(), key(), key()),
        lambda: ("MSET", key(), value(), key(), value()),
        lambda: ("MSETNX", key(), value(), key(), value()),
        lambda: ("APPEND", key(), value()), lambda: ("STRLEN", key()),
        lambda: ("GETRANGE", key(), rng.randrange(-9, 9), rng.randrange(-9, 9)),
        lambda: ("SETRANGE", key(), rng.randrange(-1, 12), value()),
        lambda: ("INCR", key()), lambda: ("DECR", key()),
        lambda: ("INCRBY", key(), number()), lambda: ("DECRBY", key(), number()),
        lambda: ("INCRBYFLOAT", key(), rng.choice((1.5, -0.25, 3, "x", 1e10))),
        lambda: ("DEL", key(), key()), lambda: ("UNLINK", key()),
        lambda: ("EXISTS", key(), key()), lambda: ("TYPE", key()),
        lambda: ("EXPIRE", key(), seconds(), *flag()),
        lambda: ("EXPIREAT", key(), at(), *flag()),
        lambda: ("PEXPIREAT", key(), at(), *flag()),
        lambda: ("TTL", key()), lambda: ("PTTL", key()),
        lambda: ("EXPIRETIME", key()), lambda: ("PERSIST", key()),
        lambda: ("RENAME", key(), key()), lambda: ("RENAMENX", key(), key()),
        lambda: ("COPY", key(), key(), *rng.choice((
            (), ("REPLACE",), ("DB", rng.randrange(3)),
            ("DB", 1, "REPLACE")))),
        lambda: ("TOUCH", key(), key()), lambda: ("DBSIZE",),
        lambda: ("KEYS", rng.choice(("*", "k[1-3]", "k?", "nothere"))),
        lambda: ("SELECT", rng.choice((0, 0, 1, 2))),
        lambda: ("OBJECT", "ENCODING", key()),
        lambda: ("MULTI",), lambda: ("EXEC",), lambda: ("EXEC",),
        lambda: ("DISCARD",), lambda: ("WATCH", key()), lambda: ("UNWATCH",))
    if rng.random() < 0.002:
        return (rng.choice(("FLUSHDB", "FLUSHALL")),)
    return rng.choice(choose)()


def random_story(both, seed, count):
    """Two connections in turn, to two doors. What Redis leaves open (the rest of a float's
    digits, how an object came to be encoded) is left out."""
    rng = random.Random(seed)
    both.flush()
    story = []
    with Pair(both, rng.choice((2, 3))) as first, \
            Pair(both, rng.choice((2, 3)), tcp=True, other=True) as second:
        for _ in range(count):
            which = rng.randrange(2)
            words = random_request(rng)
            story.append((which, words))
            theirs, ours = (first, second)[which].ask(*words)
            if theirs == ours or words[0] == "OBJECT" and (
                    is_raw(theirs) and is_raw(ours)):
                continue
            if words[0] == "EXEC" and theirs in (b"*-1\r\n", b"_\r\n") and (
                    came_and_went(story, which)):
                return
            mode = "<"
            if words[0] == "KEYS" and theirs[:1] == b"*":
                mode = "~"
            if words[0] == "EXEC" and theirs[:1] == b"*":
                one, other = (flat(tree(raw)) for raw in (theirs, ours))
                if one == other:
                    continue
            assert agree(mode, theirs, ours), (
                "seed %d, step %d: redis %r, door %r after %s" % (
                    seed, len(story), theirs, ours, story[-40:]))


def came_and_went(story, which):
    """Does the transaction watch a key, which others change? One that was not
    there, came and went again looks to the door as if nothing had been
    (docs/REDIS.md)."""
    watched = {words[1] for connection, words in story[-300:]
               if connection == which and words[0] == "WATCH"}
    return any(connection != which and watched & set(words[1:])
               for connection, words in story[-300:])


def is_raw(raw):
    return raw in (b"$3\r\nraw\r\n", b"$6\r\nembstr\r\n", b"$3\r\nint\r\n")


def flat(value):
    """The words of a reply in any order, numbers that go with time and
    encodings apart."""
    kind, inside = value
    if isinstance(inside, list):
        return sorted(sum((flat(item) for item in inside), []))
    if kind == b":" and 1000 < abs(int(inside)) < 10 ** 15:
        return [(kind, b"time")]
    if inside in (b"raw", b"embstr", b"int"):
        return [(kind, b"encoding")]
    return [(kind, inside)]


def check_chance(both):
    both.begin_two()
    for seed in range(200 if SOAK else 6):
        random_story(both, seed, 1500)


def watch_until_gone(wire, key):
    """Watch a key that expires soon, but was there when that began."""
    life_ms = 20
    while True:
        wire.ask("SET", key, 1, "PX", life_ms)
        wire.ask("WATCH", key)
        if wire.ask("EXISTS", key) == b":1\r\n":
            return
        wire.ask("UNWATCH")
        life_ms *= 2


def check_expiry(both):
    """Keys that expire are gone for every command."""
    both.begin()
    for protocol in (2, 3):
        both.flush()
        with Pair(both, protocol) as pair:
            for i in range(30):
                pair.same("SET", "e%d" % i, i, "PX", 1 + i)
            pair.same("SET", "stays", 1)
            for wire in pair.wires:
                while wire.ask("EXISTS", "e29") != b":0\r\n":
                    time.sleep(0.001)
            for line in ("GET e1", "STRLEN e2", "APPEND e3 x", "INCR e4",
                         "SET e5 x XX", "SETNX e6 x", "TTL e7", "PERSIST e8",
                         "EXPIRE e9 100", "RENAME e10 x", "COPY e11 x",
                         "GETDEL e12", "GETEX e13", "EXISTS e14", "TYPE e15",
                         "OBJECT ENCODING e16", "MGET e17 e18", "DEL e19",
                         "SETRANGE e20 2 x", "GETRANGE e21 0 -1", "TOUCH e22",
                         "SET e23 x KEEPTTL", "TTL e23", "GETSET e24 x",
                         "TTL e3", "TTL e4", "TTL e20", "MSETNX e25 1 e26 2",
                         "TTL e25", "INCRBYFLOAT e27 1.5", "TTL e27",
                         "RENAMENX stays e28", "GET e28", "TTL e28"):
                pair.same(*words_of(line))
            pair.same("KEYS", "*", mode="~")
            for wire in pair.wires:
                watch_until_gone(wire, "w")
                with Wire(wire.socket.getpeername()) as other:
                    while other.ask("EXISTS", "w") != b":0\r\n":
                        time.sleep(0.001)
            pair.same("MULTI")
            pair.same("PING")
            theirs, ours = pair.ask("EXEC")
            assert theirs == ours, (theirs, ours)


def scan_all(wire, *options):
    cursor, seen, rounds = b"0", [], 0
    while True:
        kind, (next_cursor, keys) = tree(wire.ask("SCAN", cursor, *options))
        assert kind == b"*" and next_cursor[0] == b"$" and keys[0] == b"*"
        seen += [key for _, key in keys[1]]
        cursor, rounds = next_cursor[1], rounds + 1
        assert cursor.isdigit() and rounds < 100000, cursor
        if cursor == b"0":
            return set(seen)


def check_scan(both):
    """All keys, by every option, while others come and go."""
    both.begin()
    for server in (both.theirs, both.ours):
        with server.wire() as wire:
            wire.send(b"".join(request("SET", "key:%d" % i, i)
                               for i in range(5000)))
            for _ in range(5000):
                assert wire.reply() == b"+OK\r\n"
    with Pair(both) as pair:
        for options in ((), ("COUNT", 1), ("COUNT", 100000),
                        ("MATCH", "key:1*"), ("MATCH", "*7", "COUNT", 500),
                        ("TYPE", "string"), ("TYPE", "list"),
                        ("MATCH", "nothing", "COUNT", 37)):
            if options == ("COUNT", 1) and not SOAK:
                options = ("COUNT", 3)
            theirs, ours = (scan_all(wire, *options) for wire in pair.wires)
            assert theirs == ours, (options, len(theirs), len(ours))
        pair.same("DBSIZE")
    wanted = {b"key:%d" % i for i in range(5000)}
    stop = threading.Event()

    def churn():
        with both.ours.wire() as wire:
            i = 0
            while not stop.is_set():
                wire.ask("SET", "other:%d" % i, "x" * 100)
                wire.ask("DEL", "other:%d" % (i - 200))
                i += 1

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        with both.ours.wire() as wire:
            for _ in range(3):
                assert wanted <= scan_all(wire, "COUNT", 50)
    finally:
        stop.set()
        thread.join()


# --- what can only be looked at ---

INFO_FIELDS = {
    "server": "redis_version redis_mode os arch_bits process_id run_id "
              "tcp_port uptime_in_seconds uptime_in_days server_time_usec",
    "clients": "connected_clients maxclients blocked_clients",
    "memory": "used_memory used_memory_human used_memory_rss used_memory_peak "
              "maxmemory maxmemory_policy",
    "persistence": "loading rdb_changes_since_last_save "
                   "rdb_last_save_time rdb_last_bgsave_status aof_enabled",
    "stats": "total_connections_received total_commands_processed "
             "instantaneous_ops_per_sec total_net_input_bytes "
             "total_net_output_bytes rejected_connections expired_keys "
             "evicted_keys keyspace_hits keyspace_misses",
    "replication": "role connected_slaves master_replid master_repl_offset",
    "cpu": "used_cpu_sys used_cpu_user",
    "cluster": "cluster_enabled",
}


def info_of(wire, *sections):
    text = tree(wire.ask("INFO", *sections))[1].decode()
    found, section = {}, None
    for line in text.split("\r\n"):
        if line.startswith("# "):
            section = found.setdefault(line[2:].lower(), {})
        elif line:
            name, value = line.split(":", 1)
            section[name] = value
    return found


def check_info(both):
    both.begin()
    for server in (both.theirs, both.ours):
        with server.wire() as wire:
            wire.ask("SET", "a", 1)
            wire.ask("SET", "b", 1, "EX", 100)
            wire.ask("GET", "a")
            wire.ask("GET", "nothere")
            wire.ask("NOSUCH")
            found = info_of(wire)
            for section, names in INFO_FIELDS.items():
                missing = set(names.split()) - set(found[section])
                assert not missing, (server.name, section, missing)
                alone = info_of(wire, section)
                assert set(alone) == {section}, (section, alone)
            assert found["replication"]["role"] == "master"
            assert found["cluster"]["cluster_enabled"] == "0"
            assert found["server"]["redis_version"] == "7.0.15"
            assert int(found["clients"]["connected_clients"]) >= 1
            assert int(found["stats"]["total_commands_processed"]) >= 5
            assert int(found["stats"]["keyspace_hits"]) >= 1
            assert int(found["stats"]["keyspace_misses"]) >= 1
            match = re.fullmatch(r"keys=(\d+),expires=(\d+),avg_ttl=\d+",
                                 found["keyspace"]["db0"])
            assert match and match.group(1) == "2", found["keyspace"]
            assert "ERR" in info_of(wire, "errorstats")["errorstats"][
                "errorstat_ERR"] or info_of(wire, "errorstats")


def check_client_list(both):
    """CLIENT LIST has Redis's fields in Redis's order."""
    both.begin()
    for tcp in (False, True):
        with Pair(both, tcp=tcp) as pair:
            pair.same("CLIENT", "SETNAME", "me")
            pair.same("SELECT", 3)
            infos = [tree(raw)[1].decode()
                     for raw in pair.ask("CLIENT", "INFO")]
            theirs, ours = map(fields, infos)
            assert list(theirs) == list(ours), (list(theirs), list(ours))
            for name in ("name", "db", "sub", "psub", "multi", "user", "cmd",
                         "flags", "resp", "redir"):
                assert theirs.get(name) == ours.get(name), (name, infos)
            for wire, info in zip(pair.wires, (theirs, ours)):
                number = int(tree(wire.ask("CLIENT", "ID"))[1])
                assert number == int(info["id"]), info
                listed = tree(wire.ask("CLIENT", "LIST"))[1].decode()
                assert any("id=%d " % number in line
                           for line in listed.splitlines()), listed


def check_client_kill(both):
    both.begin()
    for server in (both.theirs, both.ours):
        with server.wire(tcp=True) as wire, server.wire(tcp=True) as victim:
            number = int(tree(victim.ask("CLIENT", "ID"))[1])
            assert wire.ask("CLIENT", "KILL", "ID", number) == b":1\r\n"
            try:
                answer = victim.ask("PING")
                raise AssertionError((server.name, answer))
            except (Closed, OSError):
                pass
            assert wire.ask("CLIENT", "KILL", "ID", number) == b":0\r\n"
        with server.wire(tcp=True) as wire, server.wire(tcp=True) as victim:
            victim.ask("PING")
            address = "%s:%d" % victim.socket.getsockname()
            assert wire.ask("CLIENT", "KILL", address) == b"+OK\r\n"
            assert victim.rest() == b""
            own = "%s:%d" % wire.socket.getsockname()
            assert wire.ask("CLIENT", "KILL", "ADDR", own) == b":0\r\n"
            assert wire.ask("CLIENT", "KILL", "ADDR", own, "SKIPME",
                            "no") == b":1\r\n"
            assert wire.rest() == b""


def check_rename_race(both):
    """A rename whose key another door deletes meanwhile: what it would have
    taken the place of is still there."""
    both.up()
    value = "y" * 20000
    with both.door().wire() as one, both.door("other").wire() as other:
        for _ in range(20000 if SOAK else 2000):
            one.ask("SET", "to", "old")
            one.ask("SET", "from", value)
            one.send(request("RENAME", "from", "to"))
            other.send(request("DEL", "from"))
            renamed, deleted = one.reply(), other.reply()
            found = tree(one.ask("GET", "to"))[1].decode()
            assert (renamed, deleted, found) in (
                (b"+OK\r\n", b":0\r\n", value),
                (b"-ERR no such key\r\n", b":1\r\n", "old")), (
                    renamed, deleted, found[:20])


def check_newer(both):
    """What clients of later versions send at their start."""
    both.begin()
    with both.ours.wire() as wire:
        for line in scripts.NEWER:
            answer = wire.ask(*words_of(line))
            assert answer == b"+OK\r\n", (line, answer)


if __name__ == "__main__":
    WHY = without_redis()
    if WHY:
        skip(WHY)
    sys.exit(run_checks(globals(), lambda: Both(REEF), sys.argv[2:]))
