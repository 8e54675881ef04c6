"""program_pages.py REEF LIBRARY WRITE_PATHS PAGE_CHURN [PART OF A NAME...] -
programs whose files are read through a pool: `reef pages`.

With REEF_SOAK=1 for longer, and each call of the library is missed in turn.
"""

import collections
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import time

from checks import Skipped, run_checks
from pool_processes import TIMEOUT_S, Pool, Taker, prepare_child, until

REEF, LIBRARY, WRITE_PATHS, CHURN = map(os.path.abspath, sys.argv[1:5])
SOAK = os.environ.get("REEF_SOAK") == "1"
SEED = int(os.environ.get("REEF_SEED", "1"))
PAGE = 8192
CHURN_PAGES = 256
HITS = 20000 if SOAK else 500
UNSEEN = "unseen"  # a way that no preloaded library sees


class Programs(Pool):
    """A pool, and programs that read a directory through it."""

    def __init__(self, reef):
        super().__init__(reef)
        self.directory = os.path.join(self.home, "files")
        os.mkdir(self.directory)
        # Each has a table of its own in shared memory.
        self.cover = "t%d-%d" % (os.getpid(), id(self))
        self.server = None

    def __exit__(self, *error):
        for process in self.processes:
            process.kill()
        shown = self.ask("pages", "--show", "--cover", self.cover)
        if shown.returncode == 0:
            os.unlink(json.loads(shown.stdout)["table"])
        return super().__exit__(*error)

    def up(self, *more):
        self.server = self.start("up", "up", "--ttl", "1s", "--extent-size",
                                 "8M", "--lend", "256M", *more).saw("Ctrl-C")

    def pages(self, *words, mode="--verify", name="program", **more):
        """Start a program under `reef pages`."""
        return self.start(name, "pages", *[mode] * bool(mode), "--cover",
                          self.cover, "--dir", self.directory, "--", *words,
                          **more)

    def run_pages(self, *words, mode="--verify", **more):
        """The same to its end; what it printed."""
        return self.do("pages", *[mode] * bool(mode), "--cover", self.cover,
                       "--dir", self.directory, "--", *words, **more)

    def show(self):
        """What they did; nothing, as long as none has begun."""
        done = self.ask("pages", "--show", "--cover", self.cover)
        if done.returncode:
            return collections.defaultdict(int)
        return json.loads(done.stdout)

    def make(self, name, size, seed=SEED):
        path = os.path.join(self.directory, name)
        with open(path, "wb") as stream:
            stream.write(random.Random(seed).randbytes(size))
        return path

    def settle(self, *paths):
        """Files that were written a moment ago are not cached."""
        until("an older state", lambda: all(
            time.time() - os.stat(path).st_mtime > 0.1 for path in paths))


def ways(text):
    """What each way to write has left wrong: a page and one, or 0."""
    return {line.split()[0]: int(line.split()[1])
            for line in text.splitlines()}


def check_every_way_to_write(pool):
    """Whatever way a file is written, nobody reads what was there before."""
    pool.up()
    process = pool.pages(WRITE_PATHS, pool.directory, mode="--trust")
    # It sees the one that is not seen, so it can see.
    assert process.end() == 1, (process.out, process.error)
    found = ways(process.out)
    assert len(found) > 40 and found.pop(UNSEEN), found
    assert not any(found.values()), found
    told = pool.show()
    assert told["hits"] > 1000 and told["told"] > 80, told


def check_verify_serves_the_disk(pool):
    """What is compared is right, and the file that was not is not cached."""
    pool.up()
    process = pool.pages(WRITE_PATHS, pool.directory)
    assert process.end() == 0, (process.out, process.error)
    assert not any(ways(process.out).values()), process.out
    assert "/unseen is not what is on disk" in process.error, process.error
    assert process.error.count("\n") == 1, process.error
    told = pool.show()
    assert told["differed"] == 1 and told["verified"] > 1000, told


def without(library, name):
    """The library, which does not define that function any more."""
    (begin,) = struct.unpack_from("<Q", library, 40)
    size, count = struct.unpack_from("<HH", library, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", library, begin + i * size)
                for i in range(count)]
    symbols = next(row for row in sections if row[1] == 11)  # SHT_DYNSYM
    names = sections[symbols[6]][4]
    changed = bytearray(library)
    for at in range(symbols[4], symbols[4] + symbols[5], 24):
        text = names + struct.unpack_from("<I", library, at)[0]
        if library[text:library.index(0, text)] == name.encode():
            struct.pack_into("<H", changed, at + 6, 0)  # st_shndx: undefined
    assert changed != library, name
    return bytes(changed)


def check_missing_calls_are_found(pool):
    """Without one of its calls the library leaves old pages."""
    pool.up()
    with open(LIBRARY, "rb") as stream:
        whole = stream.read()
    missed, place = {}, os.path.join(pool.home, "integrations", "pages")
    os.makedirs(place)
    shutil.copy(REEF, pool.home)
    # What the program itself calls; pwrite is what the others stand beside.
    for name in ("pwritev64", "pwritev64v2", "write", "writev", "ftruncate64",
                 "truncate64", "fallocate64", "copy_file_range", "sendfile64",
                 "splice", "open64", "creat64", "fopen64", "fdopen",
                 "freopen64", "dprintf", "dup2", "dup", "fcntl64", "ioctl",
                 "posix_spawn_file_actions_addopen", "mmap64", "aio_write64",
                 "lio_listio64", "syscall"):
        with open(os.path.join(place, "reef_pages.so"), "wb") as stream:
            stream.write(without(whole, name))
        shutil.rmtree(pool.directory)
        os.mkdir(pool.directory)
        done = subprocess.run(
            [os.path.join(pool.home, "reef"), "pages", "--trust", "--cover",
             pool.cover, "--dir", pool.directory, "--", WRITE_PATHS,
             pool.directory], check=False, timeout=TIMEOUT_S, text=True,
            capture_output=True, env=pool.environment(
                LD_LIBRARY_PATH=os.path.join(os.path.dirname(REEF), "src")),
            preexec_fn=prepare_child)
        missed[name] = [way for way, page in ways(done.stdout).items()
                        if page and way != UNSEEN] or (
                            done.returncode == 2 and done.stderr)
        print("without %s: %s" % (name, missed[name]))
    assert all(missed.values()), missed


def check_grep(pool):
    """grep -r: the second one's pages are in the pool; what others change
    meanwhile is seen."""
    pool.up()
    paths = [pool.make("f%d" % i, 40 * PAGE + 100 * i, i) for i in range(4)]
    with open(paths[2], "ab") as stream:
        stream.write(b"needle in f2\n")
    pool.settle(*paths)
    words = "grep", "-rac", "needle", pool.directory
    want = subprocess.run(words, check=True, stdout=subprocess.PIPE,
                          text=True).stdout
    assert sorted(pool.run_pages(*words).split()) == sorted(want.split())
    assert pool.show()["fills"] >= 160
    assert sorted(pool.run_pages(*words).split()) == sorted(want.split())
    told = pool.show()
    assert told["hits"] >= 150 and told["renewed"] == 0, told
    assert told["differed"] == 0, told
    with open(paths[1], "r+b") as stream:
        stream.seek(5 * PAGE)
        stream.write(b"\nneedle in f1\n")
    pool.settle(*paths)
    found = pool.run_pages(*words, mode="--trust")
    assert "f1:1" in found and "f2:1" in found, found
    assert pool.show()["renewed"] == 1, pool.show()


BESIDE = """
import mmap, os, subprocess, sys, time
path = sys.argv[1]
plain = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
fd = os.open(path, os.O_RDWR)
disk = mmap.mmap(fd, 0, mmap.MAP_PRIVATE, mmap.PROT_READ)
def look():
    for at in range(0, len(disk), 8192):
        assert os.pread(fd, 8192, at) == disk[at:at + 8192], at
def write_plain(page):
    subprocess.run(["dd", "if=/dev/urandom", "of=" + path, "bs=8192",
                    "seek=%d" % page, "count=1", "conv=notrunc",
                    "status=none"], check=True, env=plain)
def settle():
    time.sleep(0.1)  # what is older than a tick is noted
    look()
    look()
for turn in range(3):
    settle()
    {}
    look()
"""


def others_write(pool, what, told):
    """A program that reads and writes a file; what it does beside one that
    knows nothing of the pool."""
    pool.up()
    path = pool.make("file", 10 * PAGE)
    pool.settle(path)
    process = pool.pages(sys.executable, "-c", BESIDE.replace("{}", what),
                         path, mode="--trust")
    assert process.end() == 0, (process.out, process.error)
    counts = pool.show()
    assert counts["hits"] > 20 and counts["told"] >= told, counts
    assert counts["foreign"] >= 3, counts


def check_others_write_again(pool):
    """Several times in a row, and it is read each time."""
    others_write(pool, "write_plain(1); look(); write_plain(2); look(); "
                 "write_plain(3); look()", 0)


def check_others_write_before(pool):
    """Then the program writes, before it reads."""
    others_write(pool, "write_plain(1); os.pwrite(fd, bytes(8192), 0)", 0)


def check_others_write_after(pool):
    """The program has written, and has not read since."""
    others_write(pool, "os.pwrite(fd, bytes(8192), 0); write_plain(1)", 3)


def check_tables(pool):
    """The last who uses a table leaves it small; who is killed cannot, and
    `reef doctor` says so."""
    pool.up()
    path = pool.make("file", 10 * PAGE)
    pool.settle(path)
    words = sys.executable, "-c", """
import os, sys
os.pread(os.open(%r, os.O_RDONLY), %d, 0)
os.kill(os.getpid(), int(sys.argv[1]))""" % (path, 10 * PAGE)
    pool.run_pages(*words, "0")
    table = pool.show()["table"]

    def is_small():
        return os.stat(table).st_blocks * 512 <= 65536
    assert is_small() and pool.show()["fills"] == 10, pool.show()
    assert pool.pages(*words, "9").end() == -signal.SIGKILL
    assert not is_small() and pool.show()["hits"] == 10, pool.show()
    assert table in pool.ask("doctor").stdout
    pool.run_pages(*words, "0")
    assert is_small() and pool.show()["hits"] == 10, pool.show()
    assert table not in pool.ask("doctor").stdout


def check_another_life(pool):
    """What was noted before the machine's last start does not count: it may
    never have reached the disk."""
    if os.geteuid() or not shutil.which("unshare"):
        raise Skipped("it needs root, and unshare")
    pool.up()
    path = pool.make("file", 10 * PAGE)
    pool.settle(path)
    words = sys.executable, "-c", """
import os
os.pread(os.open(%r, os.O_RDONLY), %d, 0)""" % (path, 10 * PAGE)
    pool.run_pages(*words)
    pool.run_pages(*words)
    assert pool.show()["hits"] == 10, pool.show()
    life = os.path.join(pool.home, "life")
    with open(life, "w", encoding="ascii") as stream:
        stream.write("11111111-2222-3333-4444-555555555555\n")
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", "mount --bind %s /proc/sys/kernel/random/"
         "boot_id && exec \"$@\"" % life, "sh", REEF, "pages", "--trust",
         "--cover", pool.cover, "--dir", pool.directory, "--", *words],
        env=pool.environment(REEF_FABRICS="tcp"), capture_output=True, text=True,
        check=False,
        timeout=TIMEOUT_S)
    assert done.returncode == 0, done
    told = pool.show()
    assert (told["hits"], told["renewed"], told["fills"]) == (0, 1, 10), told


TWINS = """
cd {home} && mkdir one two && mkfs.ext4 -q -I 256 one.img 8M &&
mount -o loop one.img one && cp files/file one && umount one &&
cp one.img two.img && mount -o loop one.img one &&
mount -o loop,ro,noload two.img two && exec "$@" """
SEES_TWINS = """
import mmap, os, time
time.sleep(0.1)  # what was written a moment ago is not cached
files = [os.open(name + "/file", flags) for name, flags in (
    ("one", os.O_RDWR), ("two", os.O_RDONLY))]
disks = [mmap.mmap(fd, 0, mmap.MAP_PRIVATE, mmap.PROT_READ) for fd in files]
for turn in range(9):
    for fd, disk in zip(files, disks):
        for at in range(0, len(disk), 8192):
            assert os.pread(fd, 8192, at) == disk[at:at + 8192], (turn, at)
    os.pwrite(files[0], bytes([turn]) * 8192, 8192 * turn)
"""


def check_twins(pool):
    """A disk and its copy, both mounted: all that tells the files apart is the
    device."""
    if os.geteuid() or not shutil.which("mkfs.ext4"):
        raise Skipped("it needs root, and mkfs.ext4")
    pool.make("file", 10 * PAGE)
    pool.up()
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", TWINS.replace("{home}", pool.home), "sh",
         REEF, "pages", "--trust", "--cover", pool.cover, "--dir",
         pool.home, "--", sys.executable, "-c", SEES_TWINS],
        env=pool.environment(REEF_FABRICS="tcp"), capture_output=True,
        text=True, check=False, timeout=TIMEOUT_S)
    if "mount:" in done.stderr:
        raise Skipped("no loop devices: " + done.stderr[-200:])
    assert done.returncode == 0, done
    told = pool.show()
    assert told["hits"] > 100 and not told["foreign"], told


def check_without_a_pool(pool):
    """A program does not notice that there is none, or none any more."""
    path = pool.make("file", 30 * PAGE)
    pool.settle(path)
    words = "dd", "if=" + path, "of=/dev/null", "bs=80K", "status=none"
    pool.run_pages(*words)
    assert pool.show()["failures"] > 0 and pool.show()["why"], pool.show()
    for status, word in (127, "no-such-program"), (126, pool.directory):
        pool.refused("pages", "--cover", pool.cover, "--", word,
                     status=status)
    pool.refused("pages", status=2, text="a command is wanted")
    pool.refused("pages", "--page", "5000", "--", "true", status=2,
                 text="power of two")
    pool.refused("pages", "--verify", "--trust", "--", "true", status=2)
    pool.refused("pages", "--dir", path + ".none", "--", "true", status=1)
    assert pool.ask("pages", "--cover", pool.cover, "--", "sh", "-c",
                    "exit 7").returncode == 7
    pool.up()
    pool.run_pages(*words)
    assert pool.show()["fills"] == 30, pool.show()


CLOSER = """
import os, sys, time
source, place = sys.argv[1:]
want = open(source, "rb").read()
fd = os.open(source, os.O_RDONLY)
for i in range(40):
    assert os.pread(fd, 8192, 8192 * i) == want[8192 * i:][:8192]
os.closerange(3, 500)
# They get the numbers that others had.
files = [os.open("%s/own%d" % (place, i), os.O_CREAT | os.O_RDWR)
         for i in range(100)]
fd = os.open(source, os.O_RDONLY)
end = time.monotonic() + 1
while time.monotonic() < end:
    for i in range(40):
        assert os.pread(fd, 8192, 8192 * i) == want[8192 * i:][:8192]
    time.sleep(0.01)
for one in files:
    assert os.fstat(one).st_size == 0 and os.lseek(one, 0, 1) == 0, one
print("untouched")
"""


def check_a_space_of_another(pool):
    """Who may not use the space is told so, and reads from the disk."""
    pool.up()
    pool.do("space", "create", "cache")
    pool.do("user", "add", "anna", os.path.join(pool.home, "anna"))
    done = pool.ask("pages", "--cover", pool.cover, "--credential",
                    os.path.join(pool.home, "anna"), "--", "sh", "-c", "exit 7")
    assert done.returncode == 7, done
    assert "is another user's" in done.stderr and "--space" in done.stderr, (
        done.stderr)
    assert not pool.ask("pages", "--cover", pool.cover, "--", "true").stderr


def check_all_closed(pool):
    """A program that closes what is not its own, as daemons do, has its files
    for itself afterwards."""
    pool.up()
    path = pool.make("file", 40 * PAGE)
    pool.settle(path)
    for fabrics in "shm", "tcp":
        process = pool.pages(sys.executable, "-c", CLOSER, path, pool.home,
                             mode="--trust", REEF_FABRICS=fabrics)
        assert process.end() == 0, (process.out, process.error)
        assert process.out == "untouched\n", process.out


class Churn:
    """Processes that read and write one file together."""

    def __init__(self, pool, fabrics):
        self.pool, self.fabrics = pool, fabrics
        self.path = pool.make("churn", CHURN_PAGES * PAGE)
        self.locks = os.path.join(pool.home, "locks")
        with open(self.locks, "wb"):
            pass
        pool.settle(self.path)
        self.count = 0

    def start(self, *words):
        self.count += 1
        return self.pool.pages(
            CHURN, self.path, self.locks, str(1000 * SEED + self.count),
            *words,
            mode="--trust", name="churn", REEF_FABRICS=self.fabrics)

    def goes_on(self, *workers, hits=HITS):
        """There are more hits, and nobody has read what was wrong."""
        before = self.pool.show()["hits"]
        until("more hits", lambda: (
            self.pool.show()["hits"] > before + hits or
            any(worker.child.poll() is not None for worker in workers)))
        for worker in workers:
            assert worker.child.poll() is None, (worker.out, worker.error)

    @staticmethod
    def ends(*workers):
        for worker in workers:
            assert worker.stop() == 0, (worker.out, worker.error)
            print(worker.out, end="")


def check_deaths(pool):
    """Processes are killed and stopped in the middle of anything."""
    pool.up()
    churn = Churn(pool, "tcp")
    dice = random.Random(SEED)
    first = churn.start()
    for number in range(24 if SOAK else 2):
        # Who dies in a write that is not told leaves the file uncached, as
        # long as others go on.
        victim = churn.start(*["told"] * (1 - number % 2))
        churn.goes_on(first, victim)
        if number % 2:
            pid = victim.child.pid
            victim.send(signal.SIGSTOP)
            # Longer than a session lives in silence.
            until("its session ends", lambda pid=pid: not any(
                row["pid"] == pid for row in pool.status()["sessions"]))
            victim.send(signal.SIGCONT)
            churn.goes_on(first, victim)
            churn.ends(victim)
        else:
            time.sleep(dice.random() / 50)
            victim.kill()
    churn.goes_on(first)
    churn.ends(first)
    told = pool.show()
    assert told["told"] > 100, told


def check_the_pool_dies(pool):
    """Memory that is taken back makes it slower alone. Without the pool they go
    on, and with the next one pages are there again."""
    pool.up()
    churn = Churn(pool, "shm tcp")
    workers = [churn.start() for _ in range(2)]
    for _ in range(6 if SOAK else 1):
        churn.goes_on(*workers)
        pool.do("node", "reclaim", next(iter(pool.nodes())), "250M")
        churn.goes_on(*workers)
        before = pool.show()["failures"]
        pool.server.kill()
        until("they notice", lambda before=before: (
            pool.show()["failures"] > before + 1))
        pool.up()
    churn.goes_on(*workers)
    churn.ends(*workers)


def check_memory_is_taken_all_the_time(pool):
    """All of it, every 50 ms, under readers and writers: what they read is what
    is on disk, and the pool is full again when it may be."""
    pool.up("--revoke-notice", "20ms")
    churn = Churn(pool, "shm tcp")
    workers = [churn.start() for _ in range(3)]
    churn.goes_on(*workers)
    with Taker(pool, "256M") as taker:
        until("memory was taken", lambda: (
            taker.taken > (200 if SOAK else 5) or
            any(worker.child.poll() is not None for worker in workers)))
    churn.goes_on(*workers)
    churn.ends(*workers)


if __name__ == "__main__":
    if not SOAK:
        del check_missing_calls_are_found
    sys.exit(run_checks(globals(), lambda: Programs(REEF), sys.argv[5:]))
