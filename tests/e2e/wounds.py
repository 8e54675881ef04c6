"""wounds.py REEF - what a pool keeps is damaged, mixed up, or does not fit.

Folders of other pools, images that were cut off or are of another version, full
disks, two pools in one folder, deaths in the middle of saving, reading and
taking over: what is refused is refused in clear words and changes nothing, and
what was acknowledged is there, or its loss is said by name.
"""

import os
import random
import shutil
import signal
import sys
import time

from checks import run_checks
from pool_processes import Pool, until

REEF = os.path.abspath(sys.argv[1])
SOAK = os.environ.get("REEF_SOAK") == "1"
ROUNDS = 100 if SOAK else 6
FLAGS = ("--lend", "64M", "--ttl", "5s", "--node-ttl", "2s", "--extent-size",
         "4M", "--no-redis")
IMAGE = ("--keep", "image", *FLAGS)
BOTH = ("--keep", "holder,image", *FLAGS)
KEYS = 20


class Wounded(Pool):
    def __init__(self):
        super().__init__(REEF)
        self.random = random.Random(5)

    def up(self, *flags, **more):
        return self.start("up", "up", *flags, **more).saw("is up.")

    def fill(self, value, keys=KEYS, **more):
        self.do("space", "create", "work", **more)
        self.put(value, keys, **more)

    def put(self, value, keys=KEYS, **more):
        for key in range(keys):
            self.do("map", "put", "work", "m", "k%d" % key, value, **more)

    def verify(self, value, keys=KEYS, **more):
        for key in range(keys):
            assert self.do("map", "get", "work", "m", "k%d" % key,
                           **more) == value + "\n"

    def folder(self):
        return os.path.join(self.data, "node-1")

    def image(self):
        return os.path.join(self.folder(), "image")

    def files(self):
        """All that is in the data folder, but for the locks."""
        found = {}
        for at, _, names in os.walk(self.data):
            for name in names:
                with open(os.path.join(at, name), "rb") as stream:
                    found[os.path.join(at, name)] = stream.read()
        return found


def check_image_of_another_pool_is_refused(pool):
    up = pool.up(*IMAGE)
    pool.fill("1")
    assert up.stop() == 0, up.error
    with Wounded() as other:
        theirs = other.up(*IMAGE)
        other.fill("2")
        assert theirs.stop() == 0, theirs.error
        shutil.copytree(pool.folder(), other.folder(), dirs_exist_ok=True)
        before = other.files()
        for _ in range(2):
            other.refused("up", *IMAGE, text="another pool")
        # The journal is read, and may be written anew.
        after = other.files()
        assert after[other.image()] == before[other.image()], "it was changed"
        assert os.path.exists(os.path.join(other.folder(), "clean"))
        # Without the foreign image it starts, and says what it lacks.
        os.unlink(os.path.join(other.folder(), "clean"))
        theirs = other.up(*IMAGE)
        assert "space work has lost" in theirs.error, theirs.error
    pool.up(*IMAGE)
    pool.verify("1")


def check_holder_of_another_pool_is_refused(pool):
    """The data folder is gone, the holder is not."""
    up = pool.up(*BOTH)
    pool.fill("1")
    up.kill()
    assert len(pool.holders()) == 1, pool.holders()
    kept = pool.data + "-kept"
    os.rename(pool.data, kept)
    for _ in range(2):
        pool.refused("up", *BOTH, text="another pool")
        assert len(pool.holders()) == 1, pool.holders()
    shutil.rmtree(pool.data)
    os.rename(kept, pool.data)
    pool.up(*BOTH)
    pool.verify("1")


def check_folder_of_before_is_refused_while_a_holder_has_more(pool):
    """Somebody brings back what they copied after an earlier stop, image and
    journal; the holder has what came later."""
    up = pool.up(*BOTH)
    pool.fill("1")
    assert up.stop() == 0, up.error
    before, after = pool.data + "-before", pool.data + "-after"
    shutil.copytree(pool.data, before)
    up = pool.up(*BOTH)
    pool.put("2")
    up.kill()
    os.rename(pool.data, after)
    os.rename(before, pool.data)
    for _ in range(2):
        pool.refused("up", *BOTH, text="nothing was changed")
        assert len(pool.holders()) == 1, pool.holders()
        assert os.path.exists(os.path.join(pool.folder(), "clean"))
    shutil.rmtree(pool.data)
    os.rename(after, pool.data)
    pool.up(*BOTH)
    pool.verify("2")


def check_image_that_is_not_whole_is_refused(pool):
    up = pool.up(*IMAGE)
    pool.fill("1")
    assert up.stop() == 0, up.error
    with open(pool.image(), "rb") as stream:
        good = stream.read()

    def refuse(bad):
        with open(pool.image(), "wb") as stream:
            stream.write(bad)
        pool.refused("up", *IMAGE, text="nothing was changed")
        with open(pool.image(), "rb") as stream:
            assert stream.read() == bad, "it was changed"
        assert os.path.exists(os.path.join(pool.folder(), "clean"))

    for size in (0, 1, 4095, 4096, 8192, len(good) // 2, len(good) - 1):
        refuse(good[:size])
    refuse(good + b"\0")
    chance = pool.random
    for at in [0, 8, 9, 16, 100, 4096, 4100, len(good) - 1] + [
            chance.randrange(len(good)) for _ in range(ROUNDS)]:
        refuse(good[:at] + bytes([good[at] ^ 1 << chance.randrange(8)]) +
               good[at + 1:])
    with open(pool.image(), "wb") as stream:
        stream.write(good)
    pool.up(*IMAGE)
    pool.verify("1")


def check_another_keep_takes_what_the_last_one_left(pool):
    """`keep` says what becomes of the memory from now on. What was kept before
    is there all the same, until a clean stop with `none`."""
    lives = (("holder,image", "kill"), ("image", "stop"), ("holder", "stop"),
             ("image", "kill"), ("none", "kill"), ("holder,image", "stop"),
             ("none", "stop"))
    for number, (keep, end) in enumerate(lives):
        up = pool.up("--keep", keep, *FLAGS)
        assert "has lost" not in up.error, (keep, up.error)
        if number:
            pool.verify(str(number - 1), 1)
            pool.put(str(number), 1)
        else:
            pool.fill("0", 1)
        if end == "kill":
            up.kill()
        else:
            assert up.stop() == 0, (keep, up.error)
    pool.nothing_is_held()
    assert not os.path.exists(os.path.join(pool.folder(), "clean"))
    up = pool.up(*BOTH)
    assert "space work has lost" in up.error, up.error


def check_mark_without_image_is_refused(pool):
    up = pool.up(*IMAGE)
    pool.fill("1")
    assert up.stop() == 0, up.error
    os.rename(pool.image(), pool.image() + "-away")
    pool.refused("up", *IMAGE, text="nothing was changed")
    os.rename(pool.image() + "-away", pool.image())
    pool.up(*IMAGE)
    pool.verify("1")


def full_disk(pool, size):
    """Words that run a program with a small disk for its data."""
    os.makedirs(pool.data, exist_ok=True)
    return ["unshare", "--mount", "--map-root-user", "sh", "-c",
            "mount -t tmpfs -o size=%s,mode=700 tmpfs '%s' && exec \"$@\"" % (
                size, pool.data), "sh", REEF]


def check_full_disk_at_a_start_is_named(pool):
    up = pool.start("up", argv=[*full_disk(pool, "4k"), "up", *BOTH])
    assert up.end() == 1
    assert pool.data + ": No space left on device" in up.error, up.error


def check_full_disk_at_a_stop_leaves_it_to_the_holder(pool):
    """Nothing is lost while the holder lives."""
    up = pool.start("up", argv=[*full_disk(pool, "3m"), "up", *BOTH]).saw(
        "is up.")
    pool.do("space", "create", "work", REEF_FABRICS="tcp")
    big = pool.random.randbytes(200000).hex()
    for key in range(3 * KEYS):
        pool.do("map", "put", "work", "m", "k%d" % key, big[key:100000 + key],
                REEF_FABRICS="tcp")
    up.stop()
    assert "stays with its holder" in up.error, up.error
    assert len(pool.holders()) == 1, pool.holders()


def check_full_disk_leaves_the_image_of_before(pool):
    """While it saves every so often: it is told, in the events too, and what
    was half written goes."""
    up = pool.start("up", argv=[*full_disk(pool, "3m"), "up", *IMAGE,
                                "--save-every", "50ms"]).saw("is up.")
    tcp = {"REEF_FABRICS": "tcp"}
    pool.do("space", "create", "work", **tcp)
    pool.do("map", "put", "work", "m", "a", "1", **tcp)
    until("it is saved", lambda: any(
        "(work) was saved" in row["text"] for row in pool.status()["events"]))
    big = pool.random.randbytes(1000000).hex()
    for key in range(40):
        pool.do("map", "put", "work", "m", "k%d" % key,
                big[key * 1000:100000 + key * 1000], **tcp)
    until("it is told", lambda: "space work was not saved" in up.error)
    until("it is an event", lambda: any(
        row["text"].startswith("saving space") and "space left" in row["text"]
        for row in pool.status()["events"]))
    folder = "/proc/%d/root%s/saved" % (up.child.pid, pool.data)
    names = os.listdir(os.path.join(folder, os.listdir(folder)[0]))
    assert any(name.endswith(".image") for name in names), names


def check_two_pools_in_one_folder(pool):
    pool.up(*BOTH)
    pool.fill("1")
    run = os.path.join(pool.home, "run-other")
    for flags in (BOTH, IMAGE):
        pool.refused("up", *flags, "--run", run, text="open already")
        pool.refused("up", *flags, text="")
    pool.verify("1")


def check_killed_while_it_reads_or_saves(pool):
    """A stop, or a start, that does not come to its end."""
    up = pool.up(*BOTH)
    pool.fill("1")
    for number in range(ROUNDS):
        # A clean stop, which is killed on its way or comes to its end.
        up.send(signal.SIGTERM)
        if number % 2:
            time.sleep(pool.random.random() * 0.03)
            up.kill()
        else:
            assert up.end() == 0, up.error
        # A start that is killed on its way.
        for _ in range(3):
            up = pool.start("up", "up", *BOTH)
            time.sleep(pool.random.random() * 0.03)
            up.kill()
        up = pool.up(*BOTH)
        assert "has lost" not in up.error, up.error
        pool.verify("1")


def check_signals_while_it_saves_change_nothing(pool):
    up = pool.up(*IMAGE)
    pool.fill("1")
    for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGINT,
                   signal.SIGHUP, signal.SIGTERM):
        up.send(number)
        time.sleep(0.002)
        if up.child.poll() is not None:
            break
    assert up.end() == 0, up.error
    pool.up(*IMAGE)
    pool.verify("1")


def check_holder_killed_during_take_over(pool):
    """All is there, or it is said that it is lost; and then nothing is half
    there."""
    up = pool.up(*BOTH)
    pool.fill("0")
    lost = 0
    for number in range(1, ROUNDS + 1):
        up.kill()
        holder = pool.holders()[0]
        up = pool.start("up", "up", *BOTH)
        time.sleep(pool.random.random() * 0.05)
        os.kill(holder, signal.SIGKILL)
        up.saw("is up.")
        if "space work has lost" in up.error:
            lost += 1
            pool.do("space", "drop", "work")
            pool.fill(str(number))
            continue
        pool.verify(str(number - 1))
        pool.put(str(number))
    print("%d holders killed, %d too early" % (ROUNDS, lost))


def check_space_dropped_while_it_is_saved(pool):
    pool.up(*BOTH, "--save-every", "5ms")
    for number in range(ROUNDS):
        pool.fill(str(number))
        saver = pool.start("save", "space", "save", "work",
                           os.path.join(pool.home, "image"))
        time.sleep(pool.random.random() * 0.02)
        pool.do("space", "drop", "work")
        saver.end()
    pool.fill("last")
    pool.verify("last")
    assert pool.status()["stuck"] == 0, pool.status()


if __name__ == "__main__":
    sys.exit(run_checks(globals(), Wounded, sys.argv[2:]))
