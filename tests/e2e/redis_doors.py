"""redis_doors.py REEF WORKER HISTORY - doors that are killed, crowded, flooded and
cut off from their pool.

HISTORY is the program of redis_history.c. Doors are killed while clients write
and read: what was acknowledged is there. Hostile and slow clients cost only
themselves. With REEF_SOAK=1: more of it.
"""

import os
import random
import re
import resource
import signal
import socket
import sys
import threading
import time

from checks import run_checks
from pool_processes import Workers, until
from redis_servers import Server, Servers, free_port
from redis_wire import Closed, request, tree
from redis_writers import write_while

REEF, WORKER, HISTORY = (os.path.abspath(name) for name in sys.argv[1:4])
SOAK = os.environ.get("REEF_SOAK") == "1"
MIB = 1 << 20


class Doors(Servers, Workers):
    """A pool, doors, and programs that use the same map without one."""

    def __init__(self, reef):
        Workers.__init__(self, reef, WORKER)

    def history(self, mode, count, seed, *clients):
        return self.start("history", argv=[
            HISTORY, mode, "redis", "db0", str(count), str(seed), *clients])

    def again(self, door, **more):
        """The same door, after it was killed."""
        return self.door(door.name, port=door.port, **more)


def ended(history):
    assert history.end() == 0, (history.out[-3000:], history.error)
    return history.out


def resident(process):
    """Bytes of memory that a process has for itself, without what it maps of
    the pool."""
    with open("/proc/%d/status" % process.child.pid,
              encoding="ascii") as stream:
        return int(re.search(r"RssAnon:\s+(\d+)", stream.read()).group(1)
                   ) * 1024


# --- together ---


def check_counted(pool):
    """Two doors and native clients add to one key by compare and set: no
    increment is lost."""
    pool.up()
    one, two = pool.door("one"), pool.door("two")
    count = 3000 if SOAK else 300
    clients = (one.path, two.path, "native", one.path, two.path, "native")
    out = ended(pool.history("count", count, 1, *clients))
    assert "sum %d " % (count * len(clients)) in out, out
    with two.wire() as wire:
        assert wire.ask("GET", "counter") == b"$4\r\n%d\r\n" % (
            count * len(clients)) or SOAK


def check_histories(pool):
    pool.up()
    doors = [pool.door("one"), pool.door("two", "--redis-threads", "2"),
             pool.door("far", REEF_FABRICS="tcp")]
    for seed in range(40 if SOAK else 2):
        with doors[0].wire() as wire:
            wire.ask("FLUSHALL")
        out = ended(pool.history(
            "history", 3000, seed, *(door.path for door in doors), "native",
            doors[1].path, "native", *[doors[2].path] * 3))
        assert " linearizable" in out, out
    # Clients of the far door have waited for its round trips together.
    with doors[2].wire() as wire:
        stats = wire.ask("INFO", "stats")
    assert int(re.search(rb"reef_batched_commands:(\d+)", stats)[1]), stats


# --- killed ---


def check_history_killed(pool):
    """Doors are killed while histories are made."""
    pool.up("--ttl", "1s")
    more = ({}, {"REEF_FABRICS": "tcp"})
    doors = [pool.door("one"), pool.door("far", **more[1])]
    history = pool.history("history", 60000 if SOAK else 12000, 7,
                           doors[0].path, doors[1].path, "native",
                           doors[0].path, doors[1].path, doors[1].path)
    rng, kills = random.Random(3), 0
    while history.child.poll() is None and kills < 60:
        time.sleep(rng.uniform(0.01, 0.1))
        which = rng.randrange(2)
        doors[which].process.kill()
        doors[which] = pool.again(doors[which], **more[which])
        kills += 1
    out = ended(history)
    assert " linearizable" in out, out
    print("%d kills: %s" % (kills, out.strip()))


def room(pool, doors, least=0):
    """End the doors; the room there is then, with one who recovers what is
    left of them. Once it is at least so much."""
    for door in doors:
        assert door.process.stop() == 0, door.process.error
    watcher = pool.worker("churn", "redis", 1, 64).saw("busy")
    pool.only(watcher)
    count = pool.room_is_back(least, "redis")
    assert watcher.stop() == 0, watcher.error
    return count


def check_killed(pool):
    """SIGKILL, over and over, while clients write: what was acknowledged is
    there and whole, and no memory is lost in the end."""
    pool.up("--ttl", "1s", lend="512M")
    doors = [pool.door("one"), pool.door("two")]
    with doors[0].wire() as wire:
        wire.ask("SET", "first", 1)
        wire.ask("FLUSHALL")
    before = room(pool, doors)
    doors = [pool.again(door) for door in doors]
    rng, kills = random.Random(1), 200 if SOAK else 8

    def kill():
        for _ in range(kills):
            time.sleep(rng.uniform(0.02, 0.25))
            which = rng.randrange(2)
            doors[which].process.kill()
            doors[which] = pool.again(doors[which])

    print("%d kills," % kills, write_while(doors, kill))
    with doors[0].wire() as wire:
        assert wire.ask("FLUSHALL") == b"+OK\r\n"
    # How slabs fit between others' makes a small difference.
    room(pool, doors, before * 15 // 16)


def check_supervised(pool):
    """The door of `reef up` comes back by itself, and ends with it."""
    port = free_port()
    up = pool.start("up", "up", "--redis", "--lend", "64M", "--redis-listen",
                    "127.0.0.1:%d" % port, "--redis-memory-max",
                    "77M").saw("redis-cli")
    door = Server("door", up, os.path.join(pool.run, "redis.sock"), port).ready()
    with door.wire(tcp=True) as wire:
        wire.ask("SET", "k", "v")
        assert wire.ask("CONFIG", "GET", "maxmemory-clients").endswith(
            b"\r\n%d\r\n" % (77 * MIB))
        for _ in range(3):
            with door.wire(tcp=True) as other:
                pid = int(re.search(rb"process_id:(\d+)", other.ask(
                    "INFO", "server")).group(1))
            os.kill(pid, signal.SIGKILL)
            until("another door", lambda pid=pid: answers_other(door, pid))
    with door.wire(tcp=True) as wire:
        assert wire.ask("GET", "k") == b"$1\r\nv\r\n"
    assert up.stop() == 0, up.error
    assert not door.answers()


def answers_other(door, pid):
    try:
        with door.wire(tcp=True) as wire:
            answer = wire.ask("INFO", "server")
            found = re.search(rb"process_id:(\d+)", answer)
            return found and int(found.group(1)) != pid
    except (OSError, Closed):
        return False


# --- the pool goes away ---


def check_pool_gone(pool):
    """The pool ends and another begins: the door says so meanwhile, and goes
    on; clients stay connected, or are told."""
    up = pool.up()
    door = pool.door()
    with door.wire() as wire:
        assert wire.ask("SET", "k", "v") == b"+OK\r\n"
        up.stop()
        answer = wire.ask("SET", "k", "w")
        assert answer[:1] == b"-", answer
        assert wire.ask("PING") == b"+PONG\r\n"
    pool.up()
    until("it has the new pool", lambda: works(door))
    with door.wire() as wire:
        assert wire.ask("GET", "k") == b"$-1\r\n"


def works(door):
    try:
        with door.wire() as wire:
            return wire.ask("SET", "probe", 1) == b"+OK\r\n" and wire.ask(
                "DEL", "probe") == b":1\r\n"
    except (OSError, Closed):
        return False


def check_fenced(pool):
    """An operator ends the door's session: the same process has another one
    soon, its clients stay connected, and nothing is lost."""
    pool.up()
    door = pool.door("door", "--redis-threads", "3", REEF_FABRICS="tcp")
    wires = [door.wire() for _ in range(6)]
    for i, wire in enumerate(wires):
        assert wire.ask("SET", "k%d" % i, i) == b"+OK\r\n"
    for _ in range(2):
        # The one before it may not be recovered yet.
        until("its session is the only one", lambda: (
            len(pool.status()["sessions"]) == 1))
        row, = pool.status()["sessions"]
        pool.do("session", "end", "%08x" % row["session"])
        for i, wire in enumerate(wires):
            until("it works again", lambda w=wire, i=i: (
                w.ask("APPEND", "k%d" % i, "") == b":1\r\n"))
            assert wire.ask("GET", "k%d" % i) == b"$1\r\n%d\r\n" % i
    for wire in wires:
        wire.close()


def check_space_dropped(pool):
    """An operator drops the space under doors in use: each thread makes or
    opens it anew, says so in its log, and serves on; clients stay connected,
    and all doors have one space."""
    pool.up()
    doors = [pool.door("one", "--redis-threads", "2"), pool.door("two")]
    wires = [door.wire() for door in doors for _ in range(4)]
    for i in range(3):
        for wire in wires:
            assert wire.ask("SELECT", 2) == b"+OK\r\n"
            assert wire.ask("SET", "old", i) == b"+OK\r\n"
            assert wire.ask("SELECT", 0) == b"+OK\r\n"
            assert wire.ask("SET", "old", i) == b"+OK\r\n"
        pool.do("space", "drop", "redis")
        for wire in wires:
            until("it works again", lambda w=wire: (
                w.ask("SET", "new", 7) == b"+OK\r\n"))
        for wire in wires:
            # In a transaction, too, which runs in the space itself.
            assert wire.ask("MULTI") == b"+OK\r\n"
            assert wire.ask("GET", "old") == b"+QUEUED\r\n"
            assert wire.ask("GET", "new") == b"+QUEUED\r\n"
            assert wire.ask("EXEC") == b"*2\r\n$-1\r\n$1\r\n7\r\n"
            assert wire.ask("SELECT", 2) == b"+OK\r\n"
            assert wire.ask("GET", "old") == b"$-1\r\n"
            assert wire.ask("SELECT", 0) == b"+OK\r\n"
        assert wires[0].ask("FLUSHALL") == b"+OK\r\n"
    for wire in wires:
        wire.close()
    for door in doors:
        assert "was dropped" in door.process.error, door.process.error
        assert door.process.stop() == 0, door.process.error


def check_space_dropped_then_any(pool):
    """The first that comes after the space was dropped may be any command."""
    pool.up()
    door = pool.door()
    for words in (["FLUSHALL"], ["FLUSHDB"], ["DBSIZE"], ["INFO", "keyspace"],
                  ["KEYS", "*"], ["MSET", "a", "1", "b", "2"], ["GET", "k"]):
        with door.wire() as wire:
            until("it works", lambda to=wire: (
                to.ask("SET", "k", "v") == b"+OK\r\n"))
            pool.do("space", "drop", "redis")
            until("%s is answered" % words, lambda to=wire, w=words: (
                to.ask(*w)[:1] != b"-"))


def check_broker_gone(pool):
    """Without its broker the door serves what it knows; with it, all."""
    broker = pool.broker()
    pool.node("one", "--lend", "64M")
    pool.node_is("one", "ok")
    door = pool.door()
    with door.wire() as wire:
        assert wire.ask("SET", "k", "v") == b"+OK\r\n"
        broker.kill()
        for i in range(100):
            assert wire.ask("SET", "k", i) == b"+OK\r\n"
            assert wire.ask("GET", "k").endswith(b"\r\n%d\r\n" % i)
        pool.broker()
        until("it works", lambda: works(door))
        assert wire.ask("GET", "k") == b"$2\r\n99\r\n"


def check_node_gone(pool):
    """A node dies with its memory: who needs it gets an error, others are
    served meanwhile."""
    pool.broker("--node-ttl", "3s", "--ttl", "1s")
    node = pool.node("one", "--lend", "64M")
    pool.node_is("one", "ok")
    door = pool.door()
    with door.wire() as wire, door.wire() as other:
        assert wire.ask("SET", "k", "v") == b"+OK\r\n"
        node.kill()
        # While this one waits for the memory, others are answered.
        wire.send(request("SET", "k", "w"))
        assert other.ask("PING") == b"+PONG\r\n"
        # Memory that is mapped can be written until the door has noticed.
        answer = wire.reply()
        assert answer[:1] == b"-" or answer == b"+OK\r\n", answer
        until("an error", lambda: (
            wire.ask("SET", "k", "w")[:1] == b"-"))
        assert wire.ask("PING") == b"+PONG\r\n"
    assert door.answers()


# --- crowds ---


def check_idle_crowd(pool):
    """Ten thousand connections that say nothing cost little, and the rest are
    served."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(10000, hard - 200)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted + 150), hard))
    pool.up()
    door = pool.door("door", "--redis-clients-max", "20000")
    before = resident(door.process)
    crowd = []
    try:
        for i in range(wanted):
            one = socket.socket(socket.AF_UNIX)
            while True:
                try:
                    one.connect(door.path)
                    break
                except BlockingIOError:
                    time.sleep(0.001)
            crowd.append(one)
            if i % 100 == 0:
                one.sendall(b"PING\r\n")
                assert one.recv(10) == b"+PONG\r\n"
        with door.wire() as wire:
            for i in range(200):
                assert wire.ask("SET", "k", i) == b"+OK\r\n"
            assert clients(wire) >= wanted, clients(wire)
            listed = tree(wire.ask("CLIENT", "LIST"))[1]
            assert listed.count(b"\n") >= wanted
        each = (resident(door.process) - before) / wanted
        print("%d connections, %d bytes each" % (wanted, each))
        assert each < 8192, each
    finally:
        for one in crowd:
            one.close()
    with door.wire() as wire:
        until("they are gone", lambda: clients(wire) < 20)


def clients(wire):
    """How many are connected, who asks among them."""
    return int(re.search(rb"connected_clients:(\d+)", wire.ask(
        "INFO", "clients")).group(1))


def check_clients_max(pool):
    pool.up()
    door = pool.door("door", "--redis-clients-max", "5")
    wires = [door.wire()]
    # Who asked whether it is ready has left, but was it noticed?
    until("no other is there", lambda: clients(wires[0]) == 1)
    wires += [door.wire() for _ in range(4)]
    for wire in wires:
        assert wire.ask("PING") == b"+PONG\r\n"
    with door.wire() as sixth:
        assert sixth.rest() == b"-ERR max number of clients reached\r\n"
    assert wires[0].ask("INFO", "stats").count(
        b"rejected_connections:1\r\n") == 1
    wires.pop().close()
    until("there is room", lambda: door.answers())
    for wire in wires:
        assert wire.ask("PING") == b"+PONG\r\n"
        wire.close()


# --- those who ask too much ---


def check_slow_reader(pool):
    """Who does not read is not read from, costs a bounded amount, and gets all
    in the end."""
    pool.up()
    door = pool.door()
    value = b"v" * MIB
    with door.wire() as wire, door.wire() as slow:
        assert wire.ask("SET", "big", value) == b"+OK\r\n"
        before = resident(door.process)
        asked = request("GET", "big") * 2000
        slow.socket.setblocking(False)
        sent = 0
        end = time.monotonic() + 2
        while sent < len(asked) and time.monotonic() < end:
            try:
                sent += slow.socket.send(asked[sent:sent + 4096])
            except BlockingIOError:
                time.sleep(0.01)
        for _ in range(100):
            assert wire.ask("GET", "big") == b"$%d\r\n%s\r\n" % (MIB, value)
        grown = resident(door.process) - before
        assert grown < 400 * MIB, grown
        slow.socket.setblocking(True)
        slow.socket.settimeout(30)
        for _ in range(50):
            assert slow.reply() == b"$%d\r\n%s\r\n" % (MIB, value)


def check_slow_sender(pool):
    """Who takes long over a large value does not keep the pool's memory
    meanwhile."""
    pool.up()
    door = pool.door()
    value = b"v" * (4 * MIB)
    asked = request("SET", "big", value)
    with door.wire() as wire, door.wire() as slow:
        for one in (wire, slow):
            assert one.ask("SET", "big", 1) == b"+OK\r\n"
        number = int(slow.ask("CLIENT", "ID")[1:])
        slow.send(asked[:2 * MIB])

        def is_in_a_buffer():
            line = wire.ask("CLIENT", "LIST", "ID", number)
            return int(re.search(rb"tot-mem=(\d+)", line).group(1)) > 4 * MIB

        until("it is in a buffer", is_in_a_buffer)
        slow.send(asked[2 * MIB:])
        assert slow.reply() == b"+OK\r\n"
        assert wire.ask("GET", "big") == b"$%d\r\n%s\r\n" % (len(value), value)


def check_never_reads(pool):
    """A crowd of those, gone all at once."""
    pool.up()
    door = pool.door()
    with door.wire() as wire:
        wire.ask("SET", "big", b"v" * MIB)
        before = resident(door.process)
        crowd = [door.wire() for _ in range(40)]
        for one in crowd:
            one.send(request("GET", "big") * 100)
        for _ in range(100):
            assert wire.ask("PING") == b"+PONG\r\n"
        for one in crowd:
            one.close()
        until("their memory is back", lambda: (
            resident(door.process) - before < 64 * MIB))


def check_half_closed(pool):
    """Who says that it has said all still gets its answers."""
    pool.up()
    door = pool.door()
    value = b"v" * (3 * MIB)
    for tcp in (False, True):
        with door.wire(tcp) as wire:
            wire.send(request("SET", "k", value) + request("GET", "k") * 5)
            wire.socket.shutdown(socket.SHUT_WR)
            whole = wire.rest()
            assert len(whole) == 5 + 5 * (len(value) + 12), len(whole)
    with door.wire() as wire:
        wire.socket.shutdown(socket.SHUT_RD)
        wire.send(request("GET", "k") * 20)
    assert door.answers()


def check_nonsense(pool):
    """Bytes by chance, on many connections, some of them nearly right."""
    pool.up()
    door = pool.door()
    rng = random.Random(11)
    words = [b"*3\r\n", b"$3\r\n", b"SET", b"\r\n", b"*1\r\n", b"$-1\r\n",
             b"*1000000\r\n", b"$536870912\r\n", b"GET a\r\n", b"\0", b"\"",
             b"*2147483647\r\n", b"$5\r\nhello\r\n", b"MULTI\r\n", b"EXEC\r\n",
             b"'", b"\xff" * 9, b"*-9\r\n", b":5\r\n", b"+x\r\n", b"_\r\n",
             b"$0\r\n\r\n", b"HELLO 3\r\n", b"*0\r\n", b"WATCH a\r\n"]
    before = resident(door.process)
    for _ in range(3000 if SOAK else 400):
        with door.wire(tcp=rng.random() < 0.5) as wire:
            try:
                for _ in range(rng.randrange(1, 30)):
                    wire.send(rng.choice(words) if rng.random() < 0.8
                              else rng.randbytes(rng.randrange(1, 100)))
            except OSError:
                pass
    assert door.answers()
    until("memory is back", lambda: (
        resident(door.process) - before < 64 * MIB))


def check_announced(pool):
    """What is announced and does not come costs little."""
    pool.up()
    # Meson's tests have malloc touch all that it gives.
    door = pool.door(MALLOC_PERTURB_="0")
    before = resident(door.process)
    crowd = [door.wire() for _ in range(60)]
    for one in crowd:
        one.send(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$60000000\r\nonly this")
    many = [door.wire() for _ in range(60)]
    for one in many:
        one.send(b"*1048576\r\n$1\r\na\r\n")
    assert door.answers()
    with door.wire() as wire:
        until("all of it is read", lambda: 120 == sum(
            b"cmd=client|list" not in line and b" qbuf=0 " not in line
            for line in wire.ask("CLIENT", "LIST").splitlines()
            if line.startswith(b"id=")))
    grown = resident(door.process) - before
    assert grown < 64 * MIB, grown
    for one in crowd + many:
        one.close()


def check_giants(pool):
    """Counts and sizes at their limits."""
    pool.up(lend="1G")
    door = pool.door()
    with door.wire(timeout=120) as wire:
        # Very many keys in one request.
        keys = [b"k%d" % i for i in range(20000)]
        wire.send(request("MSET", *(word for key in keys
                                    for word in (key, key))))
        assert wire.reply() == b"+OK\r\n"
        answer = tree(wire.ask("MGET", *keys))
        assert [value for _, value in answer[1]] == keys
        assert wire.ask("EXISTS", *keys) == b":%d\r\n" % len(keys)
        assert len(tree(wire.ask("KEYS", "*"))[1]) == len(keys)
        assert wire.ask("DEL", *keys) == b":%d\r\n" % len(keys)
        # Watching very many is not slow, either.
        many = [b"w%d" % i for i in range(50000)]
        assert wire.ask("WATCH", *many) == b"+OK\r\n"
        assert wire.ask("WATCH", *many) == b"+OK\r\n"
        assert wire.ask("MULTI") == b"+OK\r\n"
        assert wire.ask("SET", "w7", 1) == b"+QUEUED\r\n"
        assert wire.ask("EXEC") == b"*1\r\n+OK\r\n"
        # A long queue.
        wire.ask("MULTI")
        wire.send(request("INCR", "n") * 50000)
        assert wire.exactly(9 * 50000) == b"+QUEUED\r\n" * 50000
        answer = wire.ask("EXEC")
        assert answer.startswith(b"*50000\r\n:1\r\n"), answer[:50]
        assert answer.endswith(b":50000\r\n")
        # The longest value, and one byte more; the longest key.
        value = b"v" * (64 * MIB)
        assert wire.ask("SET", "max", value) == b"+OK\r\n"
        assert wire.ask("STRLEN", "max") == b":%d\r\n" % len(value)
        assert wire.ask("APPEND", "max", "x")[:1] == b"-"
        assert wire.ask("SETRANGE", "max", 64 * MIB, "x")[:1] == b"-"
        assert wire.ask("GET", "max")[-100:-2] == value[-98:]
        assert wire.ask("SET", b"k" * 65536, "v") == b"+OK\r\n"
        assert wire.ask("GET", b"k" * 65536) == b"$1\r\nv\r\n"
        assert wire.ask("SET", b"k" * 65537, "v")[:1] == b"-"
        assert wire.ask("DEL", "max", b"k" * 65536) == b":2\r\n"
        assert wire.ask("PING") == b"+PONG\r\n"
    with door.wire(timeout=60) as wire:
        try:
            wire.send(b"*3\r\n$3\r\nSET\r\n$3\r\nmax\r\n$%d\r\n" % (
                64 * MIB + 1))
            wire.send(b"v" * (64 * MIB + 1) + b"\r\n")
            assert wire.reply()[:1] == b"-"
        except (Closed, OSError):
            pass
    assert door.answers()


def check_databases(pool):
    pool.up()
    door = pool.door("door", "--redis-databases", "200")
    with door.wire() as wire:
        for i in range(200):
            assert wire.ask("SELECT", i) == b"+OK\r\n", i
            assert wire.ask("SET", "k", i) == b"+OK\r\n", i
        assert wire.ask("SELECT", 200) == b"-ERR DB index is out of range\r\n"
        for i in range(200):
            wire.ask("SELECT", i)
            assert wire.ask("GET", "k").endswith(b"\r\n%d\r\n" % i)
        assert wire.ask("FLUSHALL") == b"+OK\r\n"
        wire.ask("SELECT", 150)
        assert wire.ask("GET", "k") == b"$-1\r\n"


def check_full(pool):
    """No room: an error that says so, and everything else goes on."""
    pool.up(lend="64M")
    door = pool.door()
    value = b"v" * 100000
    with door.wire(timeout=60) as wire:
        kept = 0
        while True:
            answer = wire.ask("SET", "k%d" % kept, value)
            if answer != b"+OK\r\n":
                break
            kept += 1
            assert kept < 1000
        assert answer.startswith(b"-OOM "), answer
        assert kept > 100, kept
        for i in range(kept):
            assert wire.ask("STRLEN", "k%d" % i) == b":100000\r\n", i
        assert wire.ask("SET", "k%d" % kept, value)[:4] == b"-OOM"
        assert wire.ask("APPEND", "k0", value)[:4] == b"-OOM"
        assert wire.ask("STRLEN", "k0") == b":100000\r\n"
        assert wire.ask("MSET", "x", value, "y", value)[:4] == b"-OOM"
        assert wire.ask("PING") == b"+PONG\r\n"
        for i in range(0, kept, 2):
            assert wire.ask("DEL", "k%d" % i) == b":1\r\n"
        # There is room again, over and over.
        for i in range(3 * kept):
            answer = wire.ask("SET", "again%d" % (i % (kept // 3)), value)
            assert answer == b"+OK\r\n", (i, answer)
        assert wire.ask("FLUSHALL") == b"+OK\r\n"
        # How blocks fit between others makes a small difference.
        for i in range(kept * 15 // 16):
            answer = wire.ask("SET", "k%d" % i, value)
            assert answer == b"+OK\r\n", (i, kept, answer)


def check_churn(pool):
    """Far more is written than there is memory, by several at once."""
    pool.up(lend="128M")
    doors = [pool.door("one"), pool.door("two")]
    wrong = []

    def work(index):
        rng = random.Random(index)
        with doors[index % 2].wire(timeout=60) as wire:
            for i in range(4000 if SOAK else 150):
                answer = wire.ask("SET", "k%d" % rng.randrange(20),
                                  b"v" * rng.randrange(1, MIB))
                if answer != b"+OK\r\n":
                    wrong.append((index, i, answer))
                    return

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong


# --- who may come in ---


def check_password(pool):
    pool.up()
    path = os.path.join(pool.home, "password")
    with open(path, "w", encoding="ascii") as stream:
        stream.write("secret-word\n")
    os.chmod(path, 0o600)
    door = pool.door("door", "--redis-password-file", path)
    with door.wire() as wire:
        refused = b"-NOAUTH Authentication required.\r\n"
        for words in (("PING",), ("GET", "k"), ("INFO",), ("MULTI",), ("CLIENT", "LIST")):
            assert wire.ask(*words) == refused, words
        assert wire.ask("AUTH", "wrong") == (
            b"-WRONGPASS invalid username-password pair or user is "
            b"disabled.\r\n")
        assert wire.ask("AUTH", "secret-wor")[:10] == b"-WRONGPASS"
        assert wire.ask("AUTH", "secret-word\n")[:10] == b"-WRONGPASS"
        assert wire.ask("HELLO", 3).startswith(
            b"-NOAUTH HELLO must be called with the client already "
            b"authenticated")
        assert wire.ask("AUTH", "other", "secret-word")[:10] == b"-WRONGPASS"
        assert wire.ask("GET", "k") == refused
        assert wire.ask("AUTH", "secret-word") == b"+OK\r\n"
        assert wire.ask("SET", "k", "v") == b"+OK\r\n"
        assert b"secret-word" not in wire.ask("CONFIG", "GET", "*")
        assert b"secret-word" not in wire.ask("INFO", "everything")
        assert b"secret-word" not in wire.ask("CLIENT", "LIST")
        assert wire.ask("RESET") == b"+RESET\r\n"
        assert wire.ask("GET", "k") == refused
    with door.wire() as wire:
        assert wire.ask("HELLO", 3, "AUTH", "default",
                        "secret-word").startswith(b"%")
        assert wire.ask("GET", "k") == b"$1\r\nv\r\n"
    with door.wire() as wire:
        wire.send(b"*11\r\n")
        assert wire.rest().startswith(
            b"-ERR Protocol error: unauthenticated multibulk length")
    with door.wire() as wire:
        wire.send(b"*1\r\n$16385\r\n")
        assert wire.rest().startswith(
            b"-ERR Protocol error: unauthenticated bulk length")
    for name in (door.process.out, door.process.error):
        assert "secret-word" not in name


def check_protected(pool):
    """Nobody listens to the world without a password."""
    pool.up()
    door = pool.start("door", "redis", "--redis-listen",
                      "0.0.0.0:%d" % free_port())
    assert door.end() != 0
    assert "password" in door.error, door.error


if __name__ == "__main__":
    sys.exit(run_checks(globals(), lambda: Doors(REEF), sys.argv[4:]))
