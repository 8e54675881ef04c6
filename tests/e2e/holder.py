"""holder.py REEF WORKER - memory that outlasts its node's process.

Nodes, brokers and whole pools are killed, with writers in them over shm and
tcp: what was acknowledged is there, and nobody who kept running is hurt. Who
stood still meanwhile is ended before others use that memory. With REEF_SOAK=1:
a thousand kills.
"""

import json
import os
import random
import re
import signal
import socket
import struct
import sys
import time

from checks import Skipped, run_checks
from pool_processes import SmallDisk, Workers, until
from shm_wire import Accomplice

REEF, WORKER = (os.path.abspath(name) for name in sys.argv[1:3])
SOAK = os.environ.get("REEF_SOAK") == "1"
POOL_KILLS = 250 if SOAK else 10
NODE_KILLS = 500 if SOAK else 20
BOTH_KILLS = 250 if SOAK else 10
LEND = ("--keep", "holder,image", "--lend", "64M")
HOLDER = ("--keep", "holder", "--lend", "64M")
HOLDER_MAGIC, HOLDER_TAKE = 0x32646c68, 1  # src/pool/node/holder_wire.h
NOBODY = 65534
BROKER = ("--ttl", "4s", "--node-ttl", "2s", "--extent-size", "4M")


class Kept(Workers):
    """A pool whose nodes have holders."""

    def up(self, *lend):
        return self.start("up", "up", *(lend or LEND), *BROKER).saw("Ctrl-C")

    def has_value(self, key, value):
        told = self.do("map", "get", "work", "things", key)
        assert told == value + "\n", (key, told)

    def nothing_is_held(self):
        super().nothing_is_held()
        assert not os.path.exists(os.path.join(self.run, "hold.sock")), (
            os.listdir(self.run))

    def doctor_says(self):
        """What the doctor says of this pool's holders."""
        names = ["holder %d" % pid for pid in self.holders()]
        told = json.loads(self.ask("doctor", "--json").stdout)
        return [finding["found"] for finding in told["findings"]
                if finding["name"] in names]

    def doctor_finds(self, name):
        """What the doctor found of one thing."""
        told = json.loads(self.ask("doctor", "--json").stdout)
        found = [finding["found"] for finding in told["findings"]
                 if finding["name"] == name]
        assert len(found) == 1, (name, told["findings"])
        return found[0]

    def writers(self):
        """Workers that write, read and check, over shm and tcp."""
        workers = [self.worker("churn", "work", 50, 4096, fabrics=kind,
                               name="%s-writer" % kind, WORKER_DOUBT="1")
                   for kind in ("shm", "tcp")]
        for worker in workers:
            worker.saw("busy")
        return workers


def finish(workers):
    """Stop them; how many rounds they did, all of them well."""
    total = 0
    for worker in workers:
        assert worker.stop() == 0, (worker.name, worker.out, worker.error)
        assert worker.error == "", worker.error
        total += int(re.search(r"rounds (\d+)", worker.out).group(1))
    return total


def check_pool_killed_keeps_all(pool):
    up = pool.up()
    pool.do("space", "create", "work")
    took = 0.0
    for i in range(POOL_KILLS):
        pool.do("map", "put", "work", "things", "key%d" % i, "value%d" % i)
        up.kill()
        assert len(pool.holders()) == 1, pool.holders()
        begun = time.monotonic()
        up = pool.up()
        took += time.monotonic() - begun
    for i in range(POOL_KILLS):
        pool.has_value("key%d" % i, "value%d" % i)
    assert "from its holder" in up.out, up.out
    print("pool killed %d times, everything there; up again in %.2f s" % (
        POOL_KILLS, took / POOL_KILLS))


def check_clean_stop_saves_and_the_holder_goes(pool):
    """Then a kill loses nothing either of what came from the image."""
    up = pool.up()
    pool.do("space", "create", "work")
    pool.do("map", "put", "work", "things", "a", "1")
    said = pool.doctor_says()
    assert len(said) == 1 and re.match(
        r"has [1-9]\d* MiB in \d+ extents? of node 1 of pool [0-9a-f]{16}$",
        said[0]), said
    assert up.stop() == 0, up.error
    pool.nothing_is_held()
    said = pool.doctor_finds("image of node-1")
    assert "the next start reads it" in said, said
    up = pool.up()
    assert "has again what it lent before" in up.out, up.out
    said = pool.doctor_finds("image of node-1")
    assert "nobody reads it" in said, said
    pool.has_value("a", "1")
    pool.do("map", "put", "work", "things", "a", "2")
    up.kill()
    said = pool.doctor_finds("socket %s/hold.sock" % pool.run)
    assert said == "somebody serves there", said
    said = pool.doctor_says()
    assert len(said) == 1 and "waits for its next start" in said[0], said
    up = pool.up()
    assert "from its holder" in up.out, up.out
    pool.has_value("a", "2")
    assert up.stop() == 0, up.error
    pool.nothing_is_held()


def check_image_that_cannot_be_saved_leaves_it_to_the_holder(pool):
    up = pool.up()
    pool.do("space", "create", "work")
    pool.do("map", "put", "work", "things", "a", "1")
    folder = os.path.join(pool.data, "node-1")
    os.mkdir(os.path.join(folder, "image"))
    os.mkdir(os.path.join(folder, "image", "in-the-way"))
    assert up.stop() == 1, up.error
    assert "stays with its holder" in up.error, up.error
    for text in ("was not saved: ", "keeps it for 600 s", "start it again"):
        assert text in up.error, (text, up.error)
    assert len(pool.holders()) == 1, pool.holders()
    os.rmdir(os.path.join(folder, "image", "in-the-way"))
    os.rmdir(os.path.join(folder, "image"))
    pool.up()
    pool.has_value("a", "1")


def check_full_disk_is_told_with_what_to_do(pool):
    """The status of the stop says that nothing was saved. What it says is
    what helps: room, a start and a stop."""
    os.makedirs(pool.data, mode=0o700)
    disk = SmallDisk(pool, pool.data, "6m")
    up = pool.start("up", argv=disk.run(REEF, "up", *LEND, *BROKER,
                                        "--keep-for", "77s")).saw("Ctrl-C")
    pool.do("space", "create", "work")
    with open(os.path.join(pool.home, "noise"), "wb") as stream:
        stream.write(os.urandom(10 << 20))
    pool.do("file", "put", "work", "f", os.path.join(pool.home, "noise"))
    assert up.stop() == 1, (up.out, up.error)
    for text in ("was not saved: No space left on device", "for 77 s",
                 "MiB in " + pool.data, "start it again, and stop it"):
        assert text in up.error, (text, up.error)
    need = int(re.search(r"free (\d+) MiB", up.error).group(1))
    disk.resize("%dm" % (need + 6))
    up = pool.start("up", argv=disk.run(REEF, "up", *LEND,
                                        *BROKER)).saw("Ctrl-C")
    assert "from its holder" in up.out, up.out
    assert up.stop() == 0, up.error
    pool.nothing_is_held()


def check_holder_alone_waits_for_a_while(pool):
    up = pool.up(*HOLDER)
    pool.do("space", "create", "work")
    pool.do("map", "put", "work", "things", "a", "1")
    assert up.stop() == 0, up.error
    assert len(pool.holders()) == 1, pool.holders()
    up = pool.up(*HOLDER, "--keep-for", "1s")
    pool.has_value("a", "1")
    # It was started by the first, and waits for as long as that one said.
    os.kill(pool.holders()[0], signal.SIGKILL)
    pool.do("map", "put", "work", "things", "b", "2" * 5000)
    pool.do("space", "create", "more")
    pool.do("map", "put", "more", "things", "b", "2")
    until("another is there", lambda: len(pool.holders()) == 1)
    up.kill()
    pool.nothing_is_held()
    pool.up(*HOLDER)
    refused = pool.ask("map", "get", "work", "things", "a")
    assert refused.returncode == 1, refused


def check_holder_that_gives_up_saves(pool):
    """Nobody comes for as long as it was told to wait: the next start has all
    from the image that it left, once."""
    up = pool.up(*LEND, "--keep-for", "1s")
    pool.do("space", "create", "work")
    for number in range(3):
        pool.do("map", "put", "work", "things", "a", str(number))
        up.kill()
        pool.nothing_is_held()
        folder = os.path.join(pool.data, "node-1")
        assert "clean" in os.listdir(folder), os.listdir(folder)
        up = pool.up(*LEND, "--keep-for", "1s")
        assert "has again what it lent before" in up.out, up.out
        assert "clean" not in os.listdir(folder), os.listdir(folder)
        pool.has_value("a", str(number))


def check_holder_that_gives_up_ends_mappers(pool):
    """One that stands still has the memory mapped, and could change it after
    it was saved; one that closed its session goes on."""
    pool.broker(*BROKER)
    node = pool.node("one", *LEND, "--keep-for", "1s")
    pool.do("space", "create", "work")
    stopped = start_mapper(pool, node)
    stopped.send(signal.SIGSTOP)
    until("it stands still", lambda: stands_still(stopped.child.pid))
    others = pool.writers()
    node.kill()
    until("it is ended", lambda: stopped.child.poll() is not None)
    assert stopped.child.poll() == -signal.SIGKILL, stopped.child.poll()
    until("nothing stays behind", lambda: not pool.holders())
    node = pool.node("one", *LEND)
    assert "has again what it lent before" in node.out, node.out
    finish(others)
    assert pool.status()["spaces"][0]["lost"] == 0, pool.status()


def check_node_comes_while_the_holder_gives_up(pool):
    """It has the memory from the holder or from the image that this one leaves,
    whichever of them comes first."""
    up = pool.up(*LEND, "--keep-for", "1s")
    pool.do("space", "create", "work")
    found = set()
    for number in range(40 if SOAK else 6):
        pool.do("map", "put", "work", "things", "a", str(number))
        up.kill()
        time.sleep(random.uniform(0.8, 1.05))
        up = pool.up(*LEND, "--keep-for", "1s")
        found.add("from its holder" in up.out)
        assert "has lost" not in up.error, up.error
        pool.has_value("a", str(number))
    print("came in time, or too late: %s" % found)


def check_second_holder_knows_who_was_let_in(pool):
    """The holder dies, and is replaced though nothing changes; then the node
    dies. Who stood still is ended all the same."""
    pool.broker(*BROKER)
    node = pool.node("one", *LEND)
    pool.do("space", "create", "work")
    stopped = start_mapper(pool, node)
    first = pool.holders()
    assert len(first) == 1, first
    os.kill(first[0], signal.SIGKILL)
    until("another is there", lambda: (
        pool.holders() and pool.holders() != first))
    until("it has everything", lambda: (
        "another has the memory now" in node.error))
    stopped.send(signal.SIGSTOP)
    until("it stands still", lambda: stands_still(stopped.child.pid))
    node.kill()
    node = pool.node("one", *LEND)
    until("it is ended", lambda: stopped.child.poll() is not None)
    assert stopped.child.poll() == -signal.SIGKILL, stopped.child.poll()
    finish(pool.writers())
    assert pool.status()["spaces"][0]["lost"] == 0, pool.status()


def check_node_killed_under_writers(pool):
    pool.broker(*BROKER)
    node = pool.node("one", *LEND)
    pool.do("space", "create", "work")
    workers = pool.writers()
    for _ in range(NODE_KILLS):
        node.kill()
        node = pool.node("one", *LEND)
        pool.node_is("one", "ok")
        time.sleep(random.uniform(0, 0.05))
    assert pool.status()["spaces"][0]["lost"] == 0, pool.status()
    print("node killed %d times, %d rounds of work" % (
        NODE_KILLS, finish(workers)))


def check_broker_and_node_killed_at_once(pool):
    broker = pool.broker(*BROKER)
    node = pool.node("one", *LEND)
    pool.do("space", "create", "work")
    workers = pool.writers()
    for number in range(BOTH_KILLS):
        node.kill()
        broker.kill()
        broker = pool.broker(*BROKER)
        node = pool.node("one", *LEND)
        time.sleep(random.uniform(0, 0.05))
        # Who never gets a turn loses patience, and is right: now and then
        # somebody waits until the memory can be reached.
        if number % 5 == 4:
            pool.do("map", "put", "work", "things", "k", str(number))
    pool.node_is("one", "ok")
    assert pool.status()["spaces"][0]["lost"] == 0, pool.status()
    print("both killed %d times, %d rounds of work" % (
        BOTH_KILLS, finish(workers)))


def lose_one_of_three(pool, *lend):
    """A pool with two more nodes, of which one is killed with the broker."""
    up = pool.up(*lend)
    pool.do("space", "create", "work")
    pool.do("map", "put", "work", "things", "a", "1")
    pool.node("six", *lend)
    lost = pool.node("seven", *lend)
    lost.kill()
    up.kill()


def check_pool_comes_back_without_one_of_three(pool):
    """The node that was killed with its broker comes back in another life, as
    the witness that it was: the third is not waited for."""
    lose_one_of_three(pool, *HOLDER)
    up = pool.up(*HOLDER)
    assert "from its holder" in up.out, up.out
    pool.has_value("a", "1")
    pool.do("map", "put", "work", "things", "b", "2")
    assert "too few nodes follow" not in up.error, up.error
    pool.node_is("seven", "away")


def check_pool_waits_if_one_of_three_forgot(pool):
    """As before, but nothing was kept: who came back may have followed another
    broker, as the third does, perhaps. An operator is told what to do."""
    nothing = ("--keep", "none", "--lend", "64M")
    lose_one_of_three(pool, *nothing)
    up = pool.start("up", "up", *nothing, *BROKER)
    until("it says whom it waits for", lambda: (
        "it waits for: seven. Start them" in up.error))
    states = dict(line.split()[:2]
                  for line in pool.do("node", "list").splitlines() if line)
    assert states["six"] == "ok" and states["seven"] == "silent", states
    pool.do("node", "remove", "seven")
    pool.do("map", "put", "work", "others", "b", "2")


def mapped_by(process):
    """What a process has mapped that is as large as an extent and shared."""
    found = set()
    with open("/proc/%d/maps" % process.child.pid, encoding="utf-8") as maps:
        for line in maps:
            words = line.split()
            begin, end = (int(word, 16) for word in words[0].split("-"))
            if words[1] == "rw-s" and end - begin >= 4 << 20:
                found.add(tuple(words[3:5]))
    return found


def stands_still(pid):
    """Whether every thread of it does: until then it may see its node die,
    and let go."""
    for thread in os.listdir("/proc/%d/task" % pid):
        with open("/proc/%d/task/%s/stat" % (pid, thread),
                  encoding="utf-8") as stream:
            if stream.read().rsplit(")", 1)[1].split()[0] != "T":
                return False
    return True


def start_mapper(pool, node):
    """A worker that came to the broker by tcp, and has the node's memory
    mapped: where shm does not answer at once, tcp may have been quicker."""
    for _ in range(20):
        worker = pool.worker(
            "churn", "work", 50, 4096, WORKER_DOUBT="1",
            REEF_POOL=pool.tcp.replace("tcp:", "reef://"),
            REEF_CREDENTIAL=os.path.join(pool.run, "owner.credential"))
        worker.saw("busy")
        assert pool.session_of(worker)["fabric"] != "shm", pool.status()
        if mapped_by(worker) & mapped_by(node):
            return worker
        finish([worker])
    raise AssertionError("no worker has the node's memory mapped")


def check_stopped_client_of_the_old_life_is_ended(pool):
    """It has memory mapped, and says nothing: it could write there later. Its
    broker, which it came to by tcp, could not end it."""
    pool.broker(*BROKER)
    node = pool.node("one", *LEND)
    pool.do("space", "create", "work")
    stopped = start_mapper(pool, node)
    others = pool.writers()
    stopped.send(signal.SIGSTOP)
    until("it stands still", lambda: stands_still(stopped.child.pid))
    node.kill()
    node = pool.node("one", *LEND)
    until("it is ended", lambda: stopped.child.poll() is not None)
    assert stopped.child.poll() == -signal.SIGKILL, stopped.child.poll()
    finish(others)
    assert node.stop() == 0, node.error
    until("nothing stays behind", lambda: not pool.holders())


# --- others on this machine ---


def look_around(places, address):
    """What another user meets at each place, and at a holder's socket: the
    name of an error, or what was got."""
    def open_one(path):
        with open(path, "rb") as stream:
            return "read %d" % len(stream.read(16))

    def ask():
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as peer:
            peer.settimeout(60)
            peer.connect(address)
            peer.send(struct.pack("<II104x", HOLDER_MAGIC, HOLDER_TAKE))
            told, fds, _, _ = socket.recv_fds(peer, 4096, 16)
            return "got %d and %d" % (len(told), len(fds))

    met = []
    for look in [lambda path=path: open_one(path) for path in places] + [ask]:
        try:
            met.append(look())
        except OSError as error:
            met.append(type(error).__name__)
    return met


def check_another_user(pool):
    """Somebody else of this machine finds every door closed; and behind one
    that was left open a holder that speaks with its own user alone."""
    if os.geteuid() != 0:
        raise Skipped("only root can be somebody else")
    up = pool.up(*HOLDER)
    pool.do("space", "create", "work")
    pool.do("map", "put", "work", "things", "a", "1")
    address = os.path.join(pool.run, "hold.sock")
    places = ["/proc/%d/%s" % (pid, name) for pid in (
        up.child.pid, *pool.holders()) for name in ("mem", "environ")]
    places += filter(os.path.isfile, (
        os.path.join(folder, name) for start in (pool.data, pool.run)
        for folder, _, names in os.walk(start) for name in names))

    def look():
        def work(tell, wait):
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            for _ in range(40):
                met = look_around(places, address)
            tell(met)
        with Accomplice(work) as stranger:
            return set(stranger.hear())

    for path in (pool.home, os.path.dirname(pool.run)):
        os.chmod(path, 0o755)
    assert look() == {"PermissionError"}
    os.chmod(pool.run, 0o755)
    os.chmod(address, 0o777)
    met = look()
    assert met <= {"PermissionError", "got 0 and 0", "BrokenPipeError",
                   "ConnectionResetError"} and len(met) > 1, met
    up.kill()
    met = look()
    assert not any(what.startswith("got") and what != "got 0 and 0"
                   for what in met), met
    # Nor does a node come to a place where another could wait for it.
    refused = pool.start("up", "up", *HOLDER, *BROKER)
    assert refused.end() != 0, refused.out
    os.chmod(pool.run, 0o700)
    up = pool.up(*HOLDER)
    assert "from its holder" in up.out, up.out
    pool.has_value("a", "1")


if __name__ == "__main__":
    sys.exit(run_checks(globals(), lambda: Kept(REEF, WORKER), sys.argv[3:]))
