"""mount.py REEF EXERCISE [PART OF A NAME...] - `reef mount` as programs see it.

Needs /dev/fuse. With REEF_SOAK=1 the exerciser runs for longer.
"""

import errno
import fcntl
import json
import mmap
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import time

from checks import Skipped, run_checks
from pool_processes import TIMEOUT_S, Workers, prepare_child, until

REEF, EXERCISE = (os.path.abspath(name) for name in sys.argv[1:3])
SOAK = os.environ.get("REEF_SOAK") == "1"
SEED = os.environ.get("REEF_SEED", "1")
CALLS = 30000 if SOAK else 900
GONE = 3


class Mounts(Workers):
    """A pool, and directories that show its files."""

    def __init__(self, reef):
        super().__init__(reef, EXERCISE)
        self.places = []
        if not (os.access("/dev/fuse", os.R_OK | os.W_OK) and
                shutil.which("fusermount3")):
            raise Skipped("no /dev/fuse, or no fusermount3")
        self.server = None

    def __exit__(self, *error):
        for place in self.places:
            subprocess.run(["fusermount3", "-u", "-z", "-q", place],
                           check=False, stderr=subprocess.DEVNULL)
        return super().__exit__(*error)

    def up(self):
        self.server = self.start("up", "up", "--ttl", "1s", "--extent-size",
                                 "8M", "--lend", "256M", "--name", "lender",
                                 "--revoke-notice", "100ms").saw("Ctrl-C")

    def take_back(self, space, size):
        """The lender takes memory back that a space has."""
        def lost():
            row, = [one for one in self.status()["spaces"]
                    if one["name"] == space]
            return row["lost"]
        before = lost()
        self.do("node", "reclaim", "lender", size)
        until("memory is lost", lambda: lost() > before)

    def mount(self, name, *more, **variables):
        place = os.path.join(self.home, name)
        os.makedirs(place, exist_ok=True)
        self.places.append(place)
        process = self.start("mount", "mount", place, *more, **variables)
        process.saw("is mounted at")
        return process, place

    def cover(self, *words):
        """What was read through the cover that these words mount."""
        return json.loads(self.do("pages", "--show", "--page", "4K",
                                  "--cover", words[words.index("--cover") + 1]))

    def unmounted(self, process, place, status=0):
        assert process.end() == status, (process.out, process.error)
        assert not os.path.ismount(place)

    def exercise(self, place):
        return self.start("exercise", argv=[
            EXERCISE, "in", place, os.path.join(self.home, "model"), SEED,
            str(CALLS)])


def run(*words, cwd=None, feed=None):
    return subprocess.run(words, cwd=cwd, check=True, capture_output=True,
                          timeout=TIMEOUT_S, input=feed).stdout


def check_coreutils(pool):
    """cp, diff, tar, sort, find, mv, rm, and two mounts that see one tree."""
    pool.up()
    first, one = pool.mount("one")
    second, two = pool.mount("two")
    source = os.path.dirname(os.path.abspath(__file__))
    run("cp", "-r", source, os.path.join(one, "e2e"))
    run("diff", "-r", source, os.path.join(two, "e2e"))
    run("tar", "cf", os.path.join(two, "all.tar"), "e2e", cwd=one)
    run("tar", "xf", "../all.tar", cwd=run_in(two, "again"))
    run("diff", "-r", source, os.path.join(one, "again", "e2e"))
    numbers = b"".join(b"%d\n" % (i * 7919 % 200003) for i in range(200003))
    assert run("sort", "-n", "-S", "300K", "-T", one, feed=numbers) == \
        b"".join(b"%d\n" % i for i in range(200003))
    run("mv", os.path.join(one, "e2e"), os.path.join(one, "moved"))
    assert sorted(os.listdir(two)) == ["again", "all.tar", "moved"]
    run("rm", "-r", os.path.join(two, "moved"), os.path.join(two, "again"))
    # What is copied has attributes for the directory itself, too.
    bin_ = run_in(pool.home, "bin")
    os.chmod(bin_, 0o750)
    run("cp", "-a", bin_ + "/.", one)
    assert os.stat(one).st_mode & 0o7777 == 0o750, os.stat(one)
    assert os.stat(one).st_mtime_ns == os.stat(bin_).st_mtime_ns
    assert os.listdir(one) == ["all.tar"]
    pool.unmounted(first.send(signal.SIGINT), one)
    pool.unmounted(second.send(signal.SIGTERM), two)


def run_in(place, name):
    path = os.path.join(place, name)
    os.mkdir(path)
    return path


def check_calls(pool):
    """What a file system has besides bytes."""
    pool.up()
    process, one = pool.mount("one")
    path = os.path.join(one, "file")
    with open(path, "wb") as stream:
        stream.write(b"x" * 100000)
    os.chmod(path, 0o640)
    os.chown(path, 1234, 4321)
    os.utime(path, ns=(5, 1234567890123456789))
    found = os.stat(path)
    assert (found.st_mode & 0o7777, found.st_uid, found.st_gid,
            found.st_size, found.st_mtime_ns) == (
                0o640, 1234, 4321, 100000, 1234567890123456789), found
    # `reef file` has the same files.
    assert pool.do("file", "cat", "files", "file") == "x" * 100000
    os.symlink("file", os.path.join(one, "link"))
    assert os.readlink(os.path.join(one, "link")) == "file"
    fails(errno.EPERM, os.link, path, os.path.join(one, "hard"))
    fails(errno.ENOENT, os.stat, os.path.join(one, "none"))
    fails(errno.ENAMETOOLONG, os.mkdir, os.path.join(one, "n" * 256))
    folder = run_in(one, "folder")
    fails(errno.EEXIST, os.mkdir, folder)
    fails(errno.ENOTDIR, os.rmdir, path)
    fails(errno.EISDIR, os.unlink, folder)
    fails(errno.EISDIR, os.rename, path, folder)
    fails(errno.EISDIR, open, folder, "wb")
    inner = run_in(folder, "inner")
    fails(errno.ENOTEMPTY, os.rmdir, folder)
    # A folder stays where it was made; mv copies it then.
    fails(errno.EXDEV, os.rename, inner, os.path.join(one, "outer"))
    run("mv", inner, os.path.join(one, "outer"))
    os.rename(path, os.path.join(folder, "file"))
    os.rename(os.path.join(folder, "file"), path)
    # A folder takes an empty one's place.
    os.rename(os.path.join(one, "outer"), folder)
    with open(path, "rb") as stream:
        assert os.lseek(stream.fileno(), 0, os.SEEK_DATA) == 0
        assert os.lseek(stream.fileno(), 0, os.SEEK_HOLE) == 100000
    fails(errno.EFBIG, os.truncate, path, 1 << 50)
    room = os.statvfs(one)
    assert room.f_bavail > 0 and room.f_namemax == 255, room
    pool.unmounted(process.send(signal.SIGTERM), one)


def fails(number, call, *arguments):
    try:
        call(*arguments)
    except OSError as error:
        assert error.errno == number, (call, arguments, error)
    else:
        raise AssertionError("%r did not fail" % (arguments,))


def check_append_is_asked_for(pool):
    """Whether a program appends is what it said last, not when it opened."""
    pool.up()
    disk = run_in(pool.home, "disk")
    for words in ((), ("--cache", disk, "--cover", "t%d" % os.getpid())):
        process, one = pool.mount("one", *words)
        path = os.path.join(one, "file")
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        os.write(fd, b"abcd" * 4096)
        flags = fcntl.fcntl(fd, fcntl.F_GETFL)
        fcntl.fcntl(fd, fcntl.F_SETFL, flags & ~os.O_APPEND)
        os.pwrite(fd, b"x", 0)
        assert os.fstat(fd).st_size == 16384, os.fstat(fd)
        fcntl.fcntl(fd, fcntl.F_SETFL, flags)
        os.pwrite(fd, b"y", 0)
        assert os.pread(fd, 16386, 0) == \
            b"xbcd" + b"abcd" * 4095 + b"y"
        os.close(fd)
        pool.unmounted(process.send(signal.SIGTERM), one)
    os.unlink(pool.cover(*words)["table"])


def check_quota(pool):
    """Full is ENOSPC, and what was there is as it was."""
    pool.up()
    pool.do("space", "create", "small", "24M")
    process, one = pool.mount("one", "--space", "small")
    path = os.path.join(one, "file")
    with open(path, "wb", buffering=0) as stream:
        stream.write(b"kept")
        try:
            for _ in range(64):
                stream.write(b"x" * (1 << 20))
            raise AssertionError("it never was full")
        except OSError as error:
            assert error.errno in (errno.ENOSPC, errno.EDQUOT), error
    with open(path, "rb") as stream:
        assert stream.read(4) == b"kept"
    room = os.statvfs(one)
    assert room.f_blocks * room.f_frsize == 24 << 20, room
    os.unlink(path)
    with open(path, "wb") as stream:
        stream.write(b"x" * 100000)
    pool.unmounted(process.send(signal.SIGTERM), one)


def check_exercise(pool):
    """The exerciser, while mounts are killed beneath it."""
    pool.up()
    for number in range(3):
        process, one = pool.mount("one")
        exercise = pool.exercise(one)
        if number < 2:
            exercise_calls = os.path.join(pool.home, "model")
            goal = CALLS * (number + 1) // 3
            until("call %d" % goal, lambda goal=goal, path=exercise_calls: (
                calls(path) >= goal or exercise.child.poll() is not None))
            process.kill()
            assert exercise.end() == GONE, (exercise.out, exercise.error)
            pool.gone(process)
            run("fusermount3", "-u", one)
    assert exercise.end() == 0, (exercise.out, exercise.error)
    print(exercise.out.strip(), flush=True)
    pool.unmounted(process.send(signal.SIGTERM), one)


def move_around(place, seed, count):
    """Make, remove and rename folders, and move files between them, with names
    that nobody else gives."""
    dice = random.Random(seed)
    for step in range(count):
        one, other = (os.path.join(place, "d%d" % dice.randrange(6))
                      for _ in range(2))
        what = dice.randrange(10)
        try:
            if what < 2:
                os.mkdir(one)
            elif what < 4:
                os.rmdir(one)
            elif what < 5:
                os.rename(one, other)
            else:
                name = dice.choice(os.listdir(one) or ["none"])
                os.rename(os.path.join(one, name), os.path.join(
                    other, "%s.%d-%d" % (name.split(".")[0], seed, step)))
        except OSError as error:
            assert error.errno in (errno.ENOENT, errno.EEXIST, errno.ESTALE,
                                   errno.ENOTEMPTY, errno.ENOTCONN,
                                   errno.ECONNABORTED), error


def check_storm(pool):
    """Four processes by two mounts, of which one is killed: each file is there
    once, wherever it was moved, and has its bytes."""
    pool.up()
    _, one = pool.mount("one")
    second, two = pool.mount("two")
    for i in range(24):
        os.makedirs(os.path.join(one, "d%d" % (i % 6)), exist_ok=True)
        with open(os.path.join(one, "d%d" % (i % 6), "f%d" % i), "w",
                  encoding="ascii") as stream:
            stream.write("f%d" % i)
    workers = [multiprocessing.Process(target=move_around, args=(
        place, seed, (20000 if SOAK else 400) * (1 + seed % 2 * 3)))
               for seed, place in enumerate((one, two, one, two))]
    for worker in workers:
        worker.start()
    workers[0].join()
    second.kill()
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0, worker
    pool.gone(second)
    run("fusermount3", "-u", two)
    second, two = pool.mount("two")
    for place in one, two:
        found = []
        for folder, _, names in os.walk(place):
            for name in names:
                with open(os.path.join(folder, name),
                          encoding="ascii") as stream:
                    found.append(stream.read())
                assert found[-1] == name.split(".")[0], (name, found[-1])
        assert sorted(found) == sorted("f%d" % i for i in range(24)), found


def check_alone(pool):
    """A mount that nobody is beside keeps bytes in the kernel: the exerciser,
    memory that is mapped; and a write that fails late is not read as zeros."""
    pool.up()
    process, one = pool.mount("one", "--alone")
    exercise = pool.exercise(one)
    assert exercise.end() == 0, (exercise.out, exercise.error)
    numbers = b"".join(b"%d\n" % (i * 7919 % 200003) for i in range(200003))
    assert run("sort", "-n", "-S", "300K", "-T", one, feed=numbers) == \
        b"".join(b"%d\n" % i for i in range(200003))
    path = os.path.join(one, "mapped")
    with open(path, "w+b") as stream:
        stream.truncate(1 << 20)
        with mmap.mmap(stream.fileno(), 1 << 20) as memory:
            memory[:5] = b"first"
            memory[-4:] = b"last"
        stream.seek(1 << 22)
        stream.write(b"x" * 4096)
    with open(path, "ab") as stream:
        stream.write(b"end")
    # A name that was not there is, once it was made in whatever way.
    name, other = os.path.join(one, "name"), os.path.join(one, "other")
    for make, remove in (
            (lambda: open(name, "x", encoding="utf-8").close(), os.unlink),
            (lambda: os.mkdir(name), os.rmdir),
            (lambda: os.symlink("nowhere", name), os.unlink),
            (lambda: (open(other, "x", encoding="utf-8").close(),
                      os.rename(other, name)), os.unlink)):
        assert not os.path.lexists(name) and not os.path.lexists(name)
        make()
        assert os.path.lexists(name) and not os.path.lexists(other)
        remove(name)
    # What is not written yet is no hole.
    with open(os.path.join(one, "hole"), "wb", buffering=0) as stream:
        stream.truncate(4 << 20)
        os.pwrite(stream.fileno(), b"x" * 4096, 1 << 20)
        assert os.lseek(stream.fileno(), 0, os.SEEK_DATA) <= 1 << 20
        assert os.lseek(stream.fileno(), 1 << 20, os.SEEK_HOLE) > 1 << 20
    pool.unmounted(process.send(signal.SIGTERM), one)
    process, one = pool.mount("one")
    with open(path, "rb") as stream:
        bytes_of = stream.read()
    assert (bytes_of[:5], bytes_of[(1 << 20) - 4:1 << 20], bytes_of[1 << 22:]
            ) == (b"first", b"last", b"x" * 4096 + b"end")
    pool.unmounted(process.send(signal.SIGTERM), one)


def check_alone_full(pool):
    """What the pool had no room for is an error of whoever reads it."""
    pool.up()
    pool.do("space", "create", "small", "24M")
    process, one = pool.mount("one", "--space", "small", "--alone")
    path = os.path.join(one, "file")
    slab = b"x" * (1 << 20)
    stream = open(path, "w+b", buffering=0)
    try:
        for _ in range(64):
            stream.write(slab)
        os.fsync(stream.fileno())
        raise AssertionError("it never was full")
    except OSError as error:
        assert error.errno == errno.ENOSPC, error
    # The kernel's copies go; what is read then is the bytes, or an error.
    os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    failed = 0
    for i in range(64):
        try:
            some = os.pread(stream.fileno(), 1 << 20, i << 20)
            assert some in (slab[:len(some)], b""), i
        except OSError:
            failed += 1
    assert failed, "everything was there"
    # Who has been told may go on with it.
    os.ftruncate(stream.fileno(), 0)

    def fits():
        try:
            os.pwrite(stream.fileno(), b"y" * 100000, 0)
            os.fsync(stream.fileno())
            return True
        except OSError as error:
            assert error.errno == errno.ENOSPC, error
            os.ftruncate(stream.fileno(), 0)
            return False
    until("room", fits)
    os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    assert os.pread(stream.fileno(), 1 << 20, 0) == b"y" * 100000
    stream.close()
    pool.unmounted(process.send(signal.SIGTERM), one)


def sort_in(place, path):
    """Numbers in order, by a program that spills them."""
    return subprocess.Popen(["sort", "-n", "-S", "300K", "-T", place, path],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def check_spill_is_taken_back(pool):
    """The lender wants its memory in the middle of a spill: that is an error, or
    the right answer; and then it can be done again."""
    pool.up()
    numbers = [i * 7919 % 200003 for i in range(200003)]
    path = os.path.join(pool.home, "numbers")
    with open(path, "wb") as stream:
        stream.writelines(b"%d\n" % i for i in numbers)
    wanted = b"".join(b"%d\n" % i for i in sorted(numbers))
    for words in ((), ("--alone",)):
        space = "spill%d" % len(words)
        pool.do("space", "create", space, "revocable")
        for size in ("8M", "256M"):
            process, one = pool.mount("one", "--space", space, *words)
            spill = run_in(one, size)
            sort = sort_in(spill, path)
            until("it spills", lambda of=spill: len(os.listdir(of)) > 3)
            sort.send_signal(signal.SIGSTOP)
            pool.take_back(space, size)
            sort.send_signal(signal.SIGCONT)
            found, error = sort.communicate(timeout=TIMEOUT_S)
            assert sort.returncode or found == wanted, error
            # What was there may be gone, folders too.
            os.makedirs(spill, exist_ok=True)
            found, error = sort_in(spill, path).communicate(timeout=TIMEOUT_S)
            assert found == wanted, error
            pool.take_back(space, size)
            pool.unmounted(process.send(signal.SIGTERM), one)
        process, one = pool.mount("one", "--space", space, *words)
        found, error = sort_in(one, path).communicate(timeout=TIMEOUT_S)
        assert found == wanted, error
        pool.unmounted(process.send(signal.SIGTERM), one)


def lose_some(pool, one, count):
    """Make files, and let the lender take memory back until some of them are
    lost and their names are not; which?"""
    for _ in range(15):
        os.makedirs(os.path.join(one, "in"), exist_ok=True)
        paths = [os.path.join(one, "in" if i % 2 else "", str(i))
                 for i in range(count)]
        for path in paths:
            if not os.path.exists(path):
                with open(path, "wb") as stream:
                    stream.write(b"x" * 8000)
        pool.take_back("taken", "8M")
        lost = []
        for path in paths:
            try:
                with open(path, "rb"):
                    pass
            except FileNotFoundError:  # all names are
                lost = []
                break
            except OSError as error:
                assert error.errno == errno.EIO, error
                lost.append(path)
        if len(lost) > 3:
            return lost
    raise AssertionError("no file was lost without its name")


def check_lost_is_deleted(pool):
    """A file whose memory was taken back fails, and can be deleted, or
    replaced; all others are as they were."""
    pool.up()
    pool.do("space", "create", "taken", "revocable")
    process, one = pool.mount("one", "--space", "taken", "--chunk", "4K")
    lost = lose_some(pool, one, 3000)
    for path in lost:
        assert os.stat(path).st_size == 0
        fails(errno.EIO, os.truncate, path, 0)
    fails(errno.EIO, os.rename, lost[0], os.path.join(one, "moved"))
    with open(os.path.join(one, "new"), "wb") as stream:
        stream.write(b"again")
    os.rename(os.path.join(one, "new"), lost[0])
    with open(lost[0], "rb") as stream:
        assert stream.read() == b"again"
    os.unlink(lost[1])
    fails(errno.ENOENT, os.stat, lost[1])
    with open(lost[1], "wb") as stream:
        stream.write(b"again")
    run("rm", "-r", os.path.join(one, "in"))
    run("rm", *[path for path in lost if os.path.exists(path)])
    for name in os.listdir(one):
        os.stat(os.path.join(one, name))
    pool.unmounted(process.send(signal.SIGTERM), one)


def calls(model):
    try:
        with open(model, "rb") as stream:
            stream.seek(16)  # struct exercise: number
            return int.from_bytes(stream.read(8), sys.byteorder)
    except FileNotFoundError:
        return 0


def check_unlinked_comes_back(pool):
    """What a mount that was killed held without a name goes with the next."""
    pool.up()
    process, one = pool.mount("one")
    stream = open(os.path.join(one, "big"), "wb", buffering=0)
    for _ in range(96):
        stream.write(b"x" * (1 << 20))
    os.unlink(os.path.join(one, "big"))
    assert os.listdir(one) == []
    stream.write(b"more")
    process.kill()
    fails(errno.ENOTCONN, stream.write, b"x")
    pool.gone(process)
    fails(errno.ENOTCONN, stream.close)
    run("fusermount3", "-u", one)
    process, one = pool.mount("one")

    def fits():
        try:
            with open(os.path.join(one, "next"), "wb",
                      buffering=0) as another:
                for _ in range(200):
                    another.write(b"y" * (1 << 20))
            return True
        except OSError as error:
            assert error.errno in (errno.ENOSPC, errno.EDQUOT), error
            return False
    until("room for another", fits)
    pool.unmounted(process.send(signal.SIGTERM), one)


def check_pool_goes(pool):
    """A mount whose pool is gone for good unmounts itself, and says so."""
    pool.up()
    process, one = pool.mount("one", REEF_PATIENCE="2s")
    pool.server.stop(signal.SIGKILL)
    assert process.end() == 1, (process.out, process.error)
    assert "the pool is gone" in process.error, process.error
    assert not os.path.ismount(one)


def check_bad_input(pool):
    pool.refused("mount", status=2, text="one directory")
    place = os.path.join(pool.home, "place")
    os.mkdir(place)
    pool.refused("mount", place, text="Is `reef up` running?")
    pool.up()
    pool.refused("mount", place + "/none", text="No such file")
    file = os.path.join(pool.home, "a-file")
    with open(file, "w", encoding="utf-8"):
        pass
    pool.refused("mount", file, text="Not a directory")
    pool.refused("mount", place, "--chunk", "5000", status=2,
                 text="power of two")
    # A place that is in use stays as it is, also by what died there.
    process, one = pool.mount("one")
    for words in ((), ("--cache", pool.home)):
        pool.refused("mount", one, *words, text="is in use")
    with open(os.path.join(one, "x"), "w", encoding="ascii") as stream:
        stream.write("still there")
    process.kill()
    pool.refused("mount", one, text="a mount died there; `fusermount3 -u`")
    run("fusermount3", "-u", one)


def check_what_would_be_hidden(pool):
    """Nothing is mounted over what somebody needs. If it were, then where
    nobody else sees it."""
    pool.up()
    private = ["unshare", "--mount"] if os.getuid() == 0 else []
    os.symlink("/", os.path.join(pool.home, "link"))
    for place, text in (
            ("/", "the root directory"),
            (os.path.join(pool.home, "link"), "the root directory"),
            (pool.home, "your home directory"),
            (os.path.dirname(pool.home), "your home directory"),
            (pool.run, "the sockets of reef"),
            (os.path.dirname(pool.run), "the sockets of reef"),
            (pool.data, "the data of reef"),
            (os.path.dirname(REEF), "this program")):
        for words in ((), ("--cache", pool.home)):
            done = subprocess.run([*private, REEF, "mount", place, *words],
                                  env=pool.environment(), check=False,
                                  capture_output=True, timeout=TIMEOUT_S,
                                  preexec_fn=prepare_child)
            assert done.returncode == 1, done
            assert text in done.stderr.decode(), done
    # What is beside them, or in them, is nobody's; files there come back.
    place = run_in(pool.home, "place")
    process, _ = pool.mount("place")
    assert process.error == "", process.error
    pool.unmounted(process.send(signal.SIGTERM), place)
    with open(os.path.join(place, "note"), "w", encoding="ascii") as stream:
        stream.write("before")
    process, _ = pool.mount("place")
    assert "is not empty" in process.error, process.error
    assert os.listdir(place) == []
    pool.unmounted(process.send(signal.SIGTERM), place)
    assert os.listdir(place) == ["note"]


def blocks(process, thread, number):
    """Whether a thread of a process blocks a signal."""
    path = "/proc/%d/task/%s/status" % (process.child.pid, thread)
    try:
        with open(path, encoding="ascii") as stream:
            mask, = [line.split()[1] for line in stream
                     if line.startswith("SigBlk:")]
    except FileNotFoundError:  # it has ended
        return True
    return int(mask, 16) >> (number - 1) & 1


def check_signal_ends_it(pool):
    """A signal is the main thread's: another that took it would not wake it."""
    pool.up()
    disk = run_in(pool.home, "disk")
    cover = "--cache", disk, "--cover", "t%d" % os.getpid()
    for words in ((), ("--alone",), cover):
        process, one = pool.mount("one", *words)
        with open(os.path.join(one, "file"), "w", encoding="ascii") as stream:
            stream.write("x")
        main = str(process.child.pid)
        for thread in os.listdir("/proc/%s/task" % main):
            assert thread == main or blocks(process, thread, signal.SIGTERM)
        pool.unmounted(process.send(signal.SIGTERM), one)
    os.unlink(pool.cover(*cover)["table"])


def check_odd_names(pool):
    """Names are bytes; many files; one that is replaced while it is open."""
    pool.up()
    process, one = pool.mount("one")
    names = [b"\xff\xfe", b"a b", b"new\nline", b"\x01", b"x" * 255, b"-",
             b"...", b"%s%n"]
    place = os.path.join(one, "odd").encode()
    os.mkdir(place)
    for name in names:
        with open(os.path.join(place, name), "wb") as stream:
            stream.write(name)
    assert sorted(os.listdir(place)) == sorted(names), os.listdir(place)
    for name in names:
        with open(os.path.join(place, name), "rb") as stream:
            assert stream.read() == name
    many = run_in(one, "many")
    count = 10000 if SOAK else 1000
    for i in range(count):
        with open(os.path.join(many, str(i)), "wb"):
            pass
    assert sorted(map(int, os.listdir(many))) == list(range(count))
    with os.scandir(many) as rows:
        for row in rows:
            os.unlink(row.path)
    assert os.listdir(many) == []
    with open(os.path.join(place, names[0]), "rb") as stream:
        os.rename(os.path.join(place, names[1]), stream.name)
        assert stream.read() == names[0]
    with open(os.path.join(place, names[0]), "rb") as stream:
        assert stream.read() == names[1]
    pool.unmounted(process.send(signal.SIGTERM), one)


# Replace a file by another, which is renamed over it, as often as said; the old
# one is open all the while, and read afterwards.
REPLACE = """
import os, sys
path, count = sys.argv[1], int(sys.argv[2])
for i in range(1, count + 1):
    with open(path, "rb") as old:
        with open(path + ".new", "wb") as new:
            new.write(b"%08d" % i * 100)
        os.rename(path + ".new", path)
        assert old.read() == b"%08d" % (i - 1) * 100, i
"""

# Look at a file and read it until standard input ends. What another mount replaced
# and let go since it was opened, or looked at, is ESTALE.
READ = """
import errno, os, select, sys
count = 0
while not select.select([sys.stdin], [], [], 0)[0]:
    try:
        for _ in range(20):
            os.stat(sys.argv[1])
        with open(sys.argv[1], "rb") as stream:
            found = stream.read()
        assert len(found) == 800 and found == found[:8] * 100, found
        if not count:
            print("reads", flush=True)
        count += 1
    except OSError as error:
        assert error.errno == errno.ESTALE, error
"""


def check_replaced_has_its_name(pool):
    """A name whose file is open and replaced is one file's or the other's, as
    all mounts see it, and stays so if that mount dies."""
    pool.up()
    process, one = pool.mount("one")
    path = os.path.join(one, "name")
    with open(path, "wb") as stream:
        stream.write(b"%08d" % 0 * 100)
    other, two = pool.mount("two")
    readers = [subprocess.Popen([sys.executable, "-c", READ,
                                 os.path.join(place, "name")],
                                stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE)
               for place in (one, two, two)]
    try:
        for reader in readers:
            assert reader.stdout.readline() == b"reads\n"
        run(sys.executable, "-c", REPLACE, path, "5000" if SOAK else "500")
    finally:
        for reader in readers:
            reader.communicate(timeout=TIMEOUT_S)
    assert [reader.returncode for reader in readers] == [0, 0, 0]
    assert os.listdir(one) == ["name"], os.listdir(one)
    pool.unmounted(process.send(signal.SIGTERM), one)
    pool.unmounted(other.send(signal.SIGTERM), two)
    for _ in range(20 if SOAK else 3):
        process, one = pool.mount("one")
        with open(path, "rb") as stream:
            first = int(stream.read(8))
        replacer = subprocess.Popen(
            [sys.executable, "-c", REPLACE.replace("range(1, ", "range(%d, "
                                                   % (first + 1)),
             path, "1000000"], stderr=subprocess.DEVNULL)

        def moves():
            with open(path, "rb") as stream:
                return int(stream.read(8)) > first + 3
        try:
            until("it is replaced", moves)
        finally:
            process.kill()
            replacer.wait(timeout=TIMEOUT_S)
        pool.gone(process)
        run("fusermount3", "-u", one)
        process, one = pool.mount("one")
        assert "name" in os.listdir(one), os.listdir(one)
        pool.unmounted(process.send(signal.SIGTERM), one)


def check_cache(pool):
    """A directory on disk, through the pool: all of it is the disk's, whoever
    writes it, and the pool may go."""
    pool.up()
    source = run_in(pool.home, "source")
    words = "--cache", source, "--cover", "t%d" % os.getpid(), "--verify"
    process, one = pool.mount("one", *words)
    tests = os.path.dirname(os.path.abspath(__file__))
    run("cp", "-r", tests, os.path.join(one, "e2e"))
    until("an older state", lambda: time.time() - os.stat(os.path.join(
        source, "e2e", "mount.py")).st_ctime > 0.2)
    for _ in range(2):
        run("diff", "-r", tests, os.path.join(one, "e2e"))
    told = pool.cover(*words)
    assert told["hits"] > 100 and told["differed"] == 0, told
    exercise = pool.exercise(one)
    assert exercise.end() == 0, (exercise.out, exercise.error)
    # Who writes the disk itself is seen.
    with open(os.path.join(source, "e2e", "mount.py"), "r+b") as stream:
        stream.write(b"another")
    run("diff", "-r", source, one)
    with open(os.path.join(one, "e2e", "mount.py"), "r+b") as stream:
        stream.seek(4096)
        stream.write(b"x" * 10000)
    run("diff", "-r", source, one)
    # Also after a write by the mount, before anybody has read.
    path = os.path.join("e2e", "pool.py")
    for place, at in (one, 0), (source, 8192), (one, 0), (source, 12288):
        with open(os.path.join(place, path), "r+b") as stream:
            stream.seek(at)
            stream.write(b"y" * 4096)
    run("diff", "-r", source, one)
    fails(errno.EBUSY, os.rmdir, one)
    pool.server.stop(signal.SIGKILL)
    with open(os.path.join(one, "e2e", "mount.py"), "r+b") as stream:
        stream.write(b"after")
    run("diff", "-r", source, one)
    pool.up()
    run("diff", "-r", source, one)
    assert pool.cover(*words)["differed"] == 0, told
    # The next one finds it as it is.
    process.kill()
    run("fusermount3", "-u", one)
    process, one = pool.mount("one", *words)
    run("diff", "-r", source, one)
    pool.unmounted(process.send(signal.SIGTERM), one)
    os.unlink(pool.cover(*words)["table"])
    pool.refused("mount", source, *words, text="inside")
    pool.refused("mount", one, "--cache", source + ".none", text="No such")
    pool.refused("mount", one, "--verify", status=2, text="--cache")


if __name__ == "__main__":
    sys.exit(run_checks(globals(), lambda: Mounts(REEF), sys.argv[3:]))
