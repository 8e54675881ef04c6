"""images.py REEF LIBRARY - spaces are saved while they are used, and restored.

Writers change pairs of keys, one after the other: an image in which the second
is ahead of the first, or further behind than one, is not of one moment. Whoever
saves is killed and stopped: nobody else waits for long. What is not whole is
refused. With REEF_SOAK=1: more of it.
"""

import json
import os
import random
import re
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time

from checks import run_checks
from pool_processes import SmallDisk, free_port, until
from redis_servers import Servers
from redis_wire import Closed

REEF, LIBRARY = (os.path.abspath(name) for name in sys.argv[1:3])
SOAK = os.environ.get("REEF_SOAK") == "1"
PAIRS = 32
THREADS = 4
PAD = "x" * 3000


class Images(Servers):
    def __init__(self):
        Servers.__init__(self, REEF)

    def environment(self, **more):
        return Servers.environment(self, **{"REEF_KEEP": "image", **more})

    def pool(self, *arguments, **more):
        return self.up("--extent-size", "2M", "--ttl", "2s", *arguments,
                       **more)

    def path(self, name):
        return os.path.join(self.home, name)

    def sessions_are_gone(self):
        """Until all sessions but the janitor's were recovered."""
        until("nobody is left", lambda: not self.status()["sessions"])

    def restore(self, *arguments):
        self.sessions_are_gone()
        told = self.do("space", "restore", *arguments)
        assert told.startswith("restored "), told
        return told

    def is_recovered(self):
        until("all that was left is recovered",
              lambda: not self.status()["stuck"])


class Writers:
    """Threads that set x to 1, y to 1, x to 2, ..."""

    def __init__(self, door, patient=False):
        self.patient = patient
        self.ended = threading.Event()
        self.counts = [0] * PAIRS
        self.errors = []
        self.threads = [
            threading.Thread(target=self.write, args=(door, index))
            for index in range(THREADS)]
        for thread in self.threads:
            thread.start()

    def write_pair(self, wire, index):
        number = self.counts[index] + 1
        for key in ("x%d", "y%d"):
            answer = wire.ask("SET", key % index, "%d:%s" % (number, PAD))
            # Nothing happened: whoever saves may stand still for longer than
            # the door waits.
            while self.patient and answer.startswith(b"-LOADING"):
                time.sleep(0.05)
                answer = wire.ask("SET", key % index, "%d:%s" % (number, PAD))
            assert answer == b"+OK\r\n", answer
        self.counts[index] = number

    def write(self, door, first):
        try:
            with door.wire() as wire:
                while not self.ended.is_set():
                    for index in range(first, PAIRS, THREADS):
                        self.write_pair(wire, index)
        except Exception as error:  # pylint: disable=broad-except
            self.errors.append(error)

    def have_all_written(self):
        before = list(self.counts)
        until("writers go on", lambda: self.errors or all(
            now > then for now, then in zip(self.counts, before)))

    def stop(self):
        self.ended.set()
        for thread in self.threads:
            thread.join()
        assert not self.errors, self.errors


def number_of(wire, key):
    answer = wire.ask("GET", key)
    return 0 if answer.startswith((b"$-1", b"_")) else int(
        answer.split(b"\r\n", 1)[1].split(b":")[0])


def verify_pairs(door, least=0):
    with door.wire() as wire:
        for index in range(PAIRS):
            x, y = number_of(wire, "x%d" % index), number_of(wire,
                                                             "y%d" % index)
            assert x - 1 <= y <= x, (index, x, y)
            assert x >= least, (index, x, least)


def check_a_space_in_use_is_saved_at_one_moment(place):
    place.pool()
    door = place.door()
    with door.wire() as wire:
        # The table and what is in it are spread over many extents.
        for number in range(3000):
            wire.ask("SET", "k%d" % number, PAD)
    writers = Writers(door)
    floors = []
    rounds = 20 if SOAK else 3
    for number in range(rounds):
        writers.have_all_written()
        floors.append(min(writers.counts))
        told = place.do("space", "save", "redis", place.path("i%d" % number),
                        REEF_FABRICS=("tcp", "shm")[number % 2])
        assert re.search(r"saved redis: .* others waited for [\d.]+ ms",
                         told), told
    writers.have_all_written()
    writers.stop()
    door.process.stop()
    for number in range(rounds):
        place.do("space", "drop", "redis")
        place.restore(place.path("i%d" % number))
        door = place.door()
        verify_pairs(door, floors[number])
        door.process.stop()
        place.is_recovered()


def check_an_image_is_restored_in_another_pool(place):
    place.pool()
    door = place.door()
    with door.wire() as wire:
        for number in range(200):
            wire.ask("SET", "k%d" % number, "%d:%s" % (number, PAD))
    # The door is alive in the image, with all that it holds.
    place.do("space", "save", "redis", place.path("image"))
    with Images() as other:
        other.pool()
        other.restore(place.path("image"), "elsewhere")
        there = other.door("door", "--redis-space", "elsewhere")
        with there.wire() as wire:
            for number in range(200):
                assert number_of(wire, "k%d" % number) == number
            for number in range(400):
                assert wire.ask("SET", "k%d" % number, "0:" + PAD) == (
                    b"+OK\r\n")
            assert wire.ask("DBSIZE") == b":400\r\n"
        other.is_recovered()
        # What is there now has numbers of its own, and is saved like any.
        other.do("space", "save", "elsewhere", other.path("image"))
        there.process.stop()


# A program of its own, as its session has to end: a time of the clock, and the
# token of a lease.
DRAW = """
import ctypes, sys
reef = ctypes.CDLL(sys.argv[1])
def call(name, *arguments):
    rc = getattr(reef, name)(*arguments)
    assert rc == 0, (name, rc)
def opened(name, *arguments):
    out = ctypes.c_void_p()
    call(name, *arguments, ctypes.byref(out))
    return out
handle = opened("reef_open", None, None)
space = opened("reef_space_open", handle, b"s", None)
clock = opened("reef_clock_open", space, b"clock", 0)
lease = opened("reef_lease_open", space, b"lease", None)
time, token = ctypes.c_uint64(), ctypes.c_uint64()
call("reef_clock_next", clock, 1000, ctypes.byref(time))
call("reef_lease_take", lease, ctypes.c_uint64(10**10), ctypes.byref(token))
print(time.value + 1000, token.value)
if len(sys.argv) > 2:
    sys.stdin.read()
reef.reef_close(handle)
"""


def draw(place):
    """The last time that was drawn, and a token."""
    done = subprocess.run(
        [sys.executable, "-c", DRAW, LIBRARY], env=place.environment(),
        capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return [int(word) for word in done.stdout.split()]


def check_sync_objects_go_on_after_a_restore(place):
    """A clock goes on above all that it gave out, also since it was saved, and
    a lease with higher tokens; one that was held is free."""
    place.pool()
    place.do("space", "create", "s")
    place.do("name", "bind", "s", "plain", "7")
    first = draw(place)
    holder = place.start("holder", argv=[sys.executable, "-c", DRAW, LIBRARY,
                                         "wait"]).saw(" ")
    place.do("space", "save", "s", place.path("image"))
    holder.kill()
    place.sessions_are_gone()
    later = draw(place)
    assert later[0] > first[0] and later[1] > first[1], (first, later)
    place.do("space", "drop", "s")
    place.restore(place.path("image"))
    again = draw(place)
    assert again[0] > later[0] and again[1] > later[1], (later, again)
    assert "plain" in place.do("name", "list", "s")


def check_what_is_not_whole_is_refused(place):
    place.pool()
    door = place.door()
    with door.wire() as wire:
        wire.ask("SET", "k", "v")
    image = place.path("image")
    place.do("space", "save", "redis", image)
    assert stat.S_IMODE(os.stat(image).st_mode) == 0o600
    place.refused("space", "restore", image, text="EEXIST")
    place.refused("space", "restore", image, "other", text="EEXIST")
    place.refused("space", "restore", place.path("none"), text="no file")
    told = place.refused("space", "save", "none", image,
                         text="no space \"none\"")
    assert "folder" not in told, told
    told = place.refused("space", "save", "redis", place.path("none/image"),
                         text="no folder for " + place.path("none/image"))
    assert "no space" not in told, told
    place.refused("space", "save", "redis", status=2, text="usage")
    place.refused("space", "save", "redis", image, "soon", status=2,
                  text="not a duration")
    place.refused("space", "restore", place.home, text="")
    door.process.stop()
    place.do("space", "drop", "redis")
    place.sessions_are_gone()
    with open(image, "rb") as stream:
        good = stream.read()
    flips = [0, 8, 100, 4095, 4096, 4200, 8192 + 8, len(good) - 1]
    for at in flips:
        bad = bytearray(good)
        bad[at] ^= 16
        with open(image, "wb") as stream:
            stream.write(bad)
        place.refused("space", "restore", image, text="damaged")
    for size in (0, 4095, 4096, len(good) // 2, len(good) - 1):
        with open(image, "wb") as stream:
            stream.write(good[:size])
        place.refused("space", "restore", image, text="damaged")
    assert not place.status()["spaces"]
    with open(image, "wb") as stream:
        stream.write(good)
    place.restore(image)


def check_full_disk_is_called_so(place):
    place.pool()
    place.do("space", "create", "s")
    with open(place.path("noise"), "wb") as stream:
        stream.write(os.urandom(4 << 20))
    place.do("file", "put", "s", "f", place.path("noise"))
    os.mkdir(place.path("disk"))
    disk = SmallDisk(place, place.path("disk"), "1m")
    path = place.path("disk/image")
    save = place.start("save", argv=disk.run(REEF, "space", "save", "s", path))
    assert save.end() == 1, (save.out, save.error)
    assert path + ": No space left on device" in save.error, save.error
    assert "node list" not in save.error, save.error
    disk.resize("16m")
    save = place.start("save", argv=disk.run(REEF, "space", "save", "s", path))
    assert save.end() == 0, save.error


def check_a_user_saves_only_what_they_manage(place):
    place.pool()
    place.do("space", "create", "owned")
    key = place.path("ann.key")
    place.do("user", "add", "ann", key)
    ann = {"REEF_CREDENTIAL": key}
    place.refused("space", "save", "owned", place.path("image"), text="may not",
                  **ann)
    place.do("space", "create", "hers", **ann)
    place.do("space", "save", "hers", place.path("image"), **ann)
    place.do("space", "drop", "hers", **ann)
    place.refused("space", "restore", place.path("image"), text="EPERM", **ann)
    place.restore(place.path("image"))


def check_nothing_but_a_file_is_replaced(place):
    """A device, a pipe or a folder of that name stays what it is; where a link
    leads to a file, that file is replaced."""
    place.pool()
    place.do("space", "create", "a")
    os.mkfifo(place.path("pipe"))
    os.mkdir(place.path("folder"))
    for name in ("pipe", "folder", "folder/", ""):
        path = name and place.path(name)
        before = path and os.lstat(path)
        done = place.ask("space", "save", "a", path)
        assert done.returncode == 1, (name, done)
        assert "control characters" not in done.stderr, done.stderr
        assert not path or os.lstat(path).st_ino == before.st_ino, name
        assert place.ask("space", "restore", path).returncode == 1, name
    with open(place.path("file"), "wb") as stream:
        stream.write(b"of before")
    os.symlink("file", place.path("link"))
    place.do("space", "save", "a", place.path("link"))
    assert os.path.islink(place.path("link"))
    with open(place.path("file"), "rb") as stream:
        assert stream.read(9) != b"of before"
    place.do("space", "drop", "a")
    place.restore(place.path("link"))


def check_who_saves_may_die_or_stand_still(place):
    place.pool()
    door = place.door()
    with door.wire() as wire:
        for number in range(2000):
            wire.ask("SET", "k%d" % number, PAD)
    writers = Writers(door, patient=True)
    chance = random.Random(7)
    for number in range(40 if SOAK else 6):
        saver = place.start("save", "space", "save", "redis",
                            place.path("image"))
        time.sleep(chance.random() * 0.03)
        if saver.child.poll() is None:
            saver.send(signal.SIGSTOP if number % 3 == 0 else signal.SIGKILL)
        writers.have_all_written()
        saver.kill()
    writers.stop()
    # What was written beside it is not taken for an image, nor in the way.
    place.do("space", "save", "redis", place.path("image"))
    door.process.stop()
    place.do("space", "drop", "redis")
    place.restore(place.path("image"))
    verify_pairs(place.door())


# --- a node's own image ---

def fill(door, count=500):
    with door.wire() as wire:
        for number in range(count):
            wire.ask("SET", "k%d" % number, "%d:%s" % (number, PAD))


def verify(door, count=500):
    with door.wire() as wire:
        assert wire.ask("DBSIZE") == b":%d\r\n" % count, wire.ask("DBSIZE")
        for number in range(count):
            assert number_of(wire, "k%d" % number) == number


def node_folder(place, number=1):
    return os.path.join(place.data, "node-%d" % number)


def check_a_pool_that_was_stopped_has_all_again(place):
    up = place.pool()
    for number in range(3):
        door = place.door()
        if number == 0:
            fill(door)
        verify(door)
        door.process.stop()
        assert up.stop(signal.SIGINT if number else signal.SIGTERM) == 0
        assert re.search(r"saved \d+ extents?, .* MiB \([\d.]+ s", up.out), up.out
        assert "clean" in os.listdir(node_folder(place))
        up = place.pool()
        assert "has again what it lent before" in up.out, up.out
        # The image is believed once: what is lent from now on is newer.
        assert "clean" not in os.listdir(node_folder(place))
    # A folder that was brought elsewhere is as good.
    up.stop()
    with Images() as other:
        os.makedirs(os.path.dirname(other.data), exist_ok=True)
        shutil.move(place.data, other.data)
        other.pool()
        verify(other.door())


def check_clients_that_run_on_find_it_again(place):
    """A door that stays while the pool is stopped and started waits, and goes
    on."""
    place.tcp = "tcp:127.0.0.1:%d" % free_port()
    up = place.pool()
    door = place.door("door", REEF_FABRICS="tcp")
    fill(door)
    up.stop()
    place.pool()
    until("the door is back", lambda: answers_key(door))
    verify(door)


def answers_key(door):
    try:
        with door.wire() as wire:
            return wire.ask("GET", "k0").startswith(b"$")
    except (OSError, Closed):
        return False


def check_an_unclean_end_is_told_by_name(place):
    up = place.pool()
    door = place.door()
    fill(door)
    place.do("space", "save", "redis", place.path("image"))
    door.process.stop()
    up.kill()
    up = place.pool()
    assert "space redis has lost" in up.error, up.error
    place.do("space", "drop", "redis")
    place.restore(place.path("image"))
    verify(place.door())


def check_nothing_is_kept_without_a_keep(place):
    up = place.pool("--keep", "none")
    fill(place.door())
    assert up.stop() == 0
    assert "saved" not in up.out
    assert not os.path.exists(node_folder(place))
    place.refused("up", "--keep", "maybe", status=2, text="keep")


def check_a_damaged_image_is_refused(place):
    up = place.pool()
    door = place.door()
    fill(door)
    door.process.stop()
    up.stop()
    image = os.path.join(node_folder(place), "image")
    with open(image, "r+b") as stream:
        stream.seek(8192 + 64)
        byte = stream.read(1)
        stream.seek(-1, 1)
        stream.write(bytes([byte[0] ^ 4]))
    for _ in range(2):
        place.refused("up", "--extent-size", "2M", "--lend", "256M",
                      text="damaged; nothing was changed")
    with open(image, "r+b") as stream:
        stream.seek(8192 + 64)
        stream.write(byte)
    place.pool()
    verify(place.door())


def check_a_space_is_saved_every_so_often(place):
    place.pool()
    door = place.door()
    saver = place.start("saver", "space", "save", "redis", place.path("image"),
                        "10ms").saw("saved redis")
    with door.wire() as wire:
        wire.ask("SET", "k", "7:x")
    count = saver.out.count("saved")
    until("it is saved again", lambda: saver.out.count("saved") > count + 1)
    saver.kill()
    door.process.stop()
    place.do("space", "drop", "redis")
    place.restore(place.path("image"))
    with place.door().wire() as wire:
        assert number_of(wire, "k") == 7


# --- saved every so often by the pool itself ---

FOREIGN = "0123456789abcdef"  # a pool


def saved(place):
    """The images that the pool has made by itself: paths by space."""
    folder = os.path.join(place.data, "saved")
    found = {}
    for at, _, names in os.walk(folder):
        for name in names:
            if name.endswith(".image") and not at.endswith(FOREIGN):
                found[name.rsplit("-", 1)[0]] = os.path.join(at, name)
    return found


def is_saved_again(place, *spaces):
    """Until each has an image that was begun after this."""
    before = {name: os.stat(path).st_ino
              for name, path in saved(place).items()}

    def are_new():
        now = {name: os.stat(path).st_ino
               for name, path in saved(place).items() if os.path.exists(path)}
        return all(name in now and now[name] != before.get(name)
                   for name in spaces)
    for _ in range(2):
        until("new images of %s" % (spaces,), are_new)
        before = {name: os.stat(path).st_ino
                  for name, path in saved(place).items()}


def check_pool_goes_back_to_what_it_saved(place):
    """After an unclean end without a holder every space is as it was at one
    moment, also one with memory on a node that was not hurt."""
    up = place.pool("--save-every", "100ms")
    other = place.node("other", "--lend", "256M", "--keep", "image")
    door = place.door()
    fill(door, 1500)
    # Both nodes have some of it.
    assert all(row["used"] for row in place.nodes().values()), place.nodes()
    place.do("space", "create", "small")
    place.do("map", "put", "small", "m", "a", "1")
    writers = Writers(door)
    writers.have_all_written()
    is_saved_again(place, "redis", "small")
    floor = min(writers.counts)
    is_saved_again(place, "redis")
    place.do("map", "put", "small", "m", "b", "2")
    writers.stop()
    door.process.kill()
    up.kill()
    assert other.child.poll() is None
    up = place.pool("--save-every", "1h")
    assert "space redis went back, as a whole" in up.error, up.error
    assert up.error.count("went back") == up.error.count("has lost"), up.error
    door = place.door()
    verify_pairs(door, floor)
    with door.wire() as wire:
        for number in range(1500):
            assert number_of(wire, "k%d" % number) == number
    assert place.do("map", "get", "small", "m", "a") == "1\n"
    assert all(row["lost"] == 0 for row in place.status()["spaces"])
    place.is_recovered()


def check_pool_killed_while_it_goes_back_does_it_again(place):
    up = place.pool("--save-every", "50ms")
    door = place.door()
    fill(door)
    is_saved_again(place, "redis")
    door.process.kill()
    up.kill()
    chance = random.Random(3)
    for _ in range(12 if SOAK else 4):
        up = place.start("up", "up", "--lend", "256M", "--no-redis",
                         "--extent-size", "2M", "--ttl", "300ms",
                         "--save-every", "1h")
        time.sleep(0.3 + chance.random() * 0.5)
        up.kill()
    place.pool("--save-every", "1h")
    verify(place.door())


def check_saved_images_are_bounded(place):
    """One of each space; those of spaces that were dropped go, and so does what
    somebody left half written. Another pool's stay."""
    place.pool("--save-every", "30ms")
    for name in ("a", "b/../c"):
        place.do("space", "create", name)
        place.do("map", "put", name, "m", "k", "1")
    until("both are saved", lambda: len(saved(place)) == 2)
    events = [row["text"] for row in place.status()["events"]]
    assert len([text for text in events
                if text.endswith("(a) was saved")]) == 1, events
    folder = os.path.dirname(list(saved(place).values())[0])
    assert os.listdir(os.path.join(place.data, "saved")) == [
        os.path.basename(folder)]
    with open(os.path.join(folder, "gone-0000000000000000.image.new"),
              "wb") as stream:
        stream.write(b"half")
    told = json.loads(place.ask("doctor", "--json").stdout)["findings"]
    assert any(row["name"] == "saved spaces of pool " + os.path.basename(
        folder) and ": 2 images" in row["found"] for row in told), told
    foreign = os.path.join(place.data, "saved", FOREIGN)
    os.mkdir(foreign)
    shutil.copy(saved(place)["a"], foreign)
    until("what is half written is gone", lambda: not any(
        name.startswith("gone") for name in os.listdir(folder)))
    # A few of those that were dropped stay for a day.
    place.do("space", "drop", "a")
    time.sleep(0.2)
    os.utime(saved(place)["a"], (0, 0))
    until("what is old is gone", lambda: "a" not in saved(place))
    for number in range(7):
        place.do("space", "create", "d%d" % number)
        until("it is saved", lambda: "d%d" % number in saved(place))
        place.do("space", "drop", "d%d" % number)
    until("the oldest are gone", lambda: len(saved(place)) == 5)
    assert {"b____c", "d6", "d3"} <= set(saved(place)), saved(place)
    assert len(os.listdir(foreign)) == 1


def check_space_lost_while_used_is_left(place):
    """Others may have gone on with what was left of it: it does not go back
    behind their backs at a later start."""
    up = place.pool("--save-every", "50ms", "--node-ttl", "500ms")
    other = place.node("other", "--lend", "256M", "--keep", "none")
    door = place.door()
    fill(door, 1500)
    assert all(row["used"] for row in place.nodes().values()), place.nodes()
    is_saved_again(place, "redis")
    door.process.stop()
    other.kill()
    until("it is said", lambda: "is not saved any more" in up.error)
    assert up.stop() == 0
    up = place.pool("--save-every", "50ms")
    assert "went back" not in up.error, up.error
    assert "space redis has lost" in up.error, up.error
    # By hand it does.
    image = saved(place)["redis"]
    place.do("space", "drop", "redis")
    place.restore(image)
    verify(place.door(), 1500)


def savers(place):
    """Processes that save for this pool."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/cmdline" % name, "rb") as stream:
                words = stream.read().split(b"\0")
        except OSError:
            continue
        if words[1:2] == [b"saver"] and any(
                place.home.encode() in word for word in words):
            found.append(int(name))
    return found


def stop_between_sessions(place, saver):
    """Stop a saver while it has no session: one that it had would stay, as
    nobody lacks the memory that it holds back."""
    for _ in range(200):
        os.kill(saver, signal.SIGSTOP)
        if not any(row["name"] == "reef saver"
                   for row in place.status()["sessions"]):
            return
        os.kill(saver, signal.SIGCONT)
        time.sleep(0.01)
    raise AssertionError("the saver has a session all the time")


def check_saver_started_again_leaves_what_is_used(place):
    """It dies while the pool runs, and some of a space was lost meanwhile:
    others use the rest of it."""
    up = place.pool("--save-every", "50ms", "--node-ttl", "500ms")
    other = place.node("other", "--lend", "256M", "--keep", "none")
    door = place.door()
    fill(door, 1500)
    is_saved_again(place, "redis")
    door.process.stop()
    first = savers(place)
    stop_between_sessions(place, first[0])
    other.kill()
    until("some of it is lost", lambda: any(
        row["lost"] for row in place.status()["spaces"]))
    place.sessions_are_gone()
    os.kill(first[0], signal.SIGKILL)
    until("it is said", lambda: "is not saved any more" in up.error)
    assert savers(place) != first
    assert "went back" not in up.error, up.error


def check_damaged_image_does_not_take_the_space_away(place):
    up = place.pool("--save-every", "50ms")
    door = place.door()
    fill(door)
    is_saved_again(place, "redis")
    door.process.kill()
    up.kill()
    path = saved(place)["redis"]
    with open(path, "r+b") as stream:
        stream.seek(8192 + 64)
        byte = stream.read(1)
        stream.seek(-1, 1)
        stream.write(bytes([byte[0] ^ 4]))
    up = place.pool("--save-every", "50ms")
    assert "space redis does not go back" in up.error, up.error
    assert [row["name"] for row in place.status()["spaces"]] == ["redis"]


def check_redis_saves_by_itself(place):
    place.pool()
    door = place.door("door", "--redis-save", place.path("door.image"))
    with door.wire() as wire:
        begun = int(wire.ask("LASTSAVE")[1:])
        wire.ask("SET", "k", "7:x")
        assert wire.ask("SAVE") == b"+OK\r\n"
        assert int(wire.ask("LASTSAVE")[1:]) >= begun
        wire.ask("SET", "k", "8:x")
        assert wire.ask("BGSAVE") == b"+Background saving started\r\n"
        busy = wire.ask("BGSAVE", "SCHEDULE")
        assert busy.startswith((b"+Background", b"-ERR Background save")), busy
        until("it was saved", lambda: (
            b"rdb_bgsave_in_progress:0" in wire.ask("INFO", "persistence")))
        assert b"rdb_last_bgsave_status:ok" in wire.ask("INFO", "persistence")
        assert wire.ask("BGSAVE", "x").startswith(b"-ERR syntax")
    assert "nothing yet" in door.process.out
    door.process.stop()
    place.do("space", "drop", "redis")
    place.restore(place.path("door.image"))
    door = place.door("door", "--redis-save", place.path("none/image"))
    assert "MiB in 1 database\n" in door.process.out, door.process.out
    with door.wire() as wire:
        assert number_of(wire, "k") == 8
        assert wire.ask("SAVE").startswith(b"-ERR The space was not saved")
        assert b"rdb_last_bgsave_status:err" in wire.ask("INFO", "persistence")


sys.exit(run_checks(globals(), Images, sys.argv[3:]))
