#!/usr/bin/env python3
"""nbd.py REEF PLUGIN RUN FILESYSTEM [CHECK]... - a file of a pool as a block
device, by the plugin of a real nbdkit; its clients are nbdcopy, nbdsh, qemu-img,
fio, and the kernel of a virtual machine (RUN, FILESYSTEM: see tests/vm)."""

import json
import os
import pickle
import shutil
import subprocess
import sys

from checks import Skipped, run_checks
from pool_processes import TIMEOUT_S, Pool, until

REEF, PLUGIN, RUN, FILESYSTEM = map(os.path.abspath, sys.argv[1:5])
MIB = 1 << 20
SOAK = os.environ.get("REEF_SOAK") == "1"
CALLS, KILLS = (20000, 20) if SOAK else (1500, 2)
# Debian's nbdsh wants Debian's Python, before which another may stand.
SYSTEM_PATH = "/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"
# Where the virtual machine's kernel is kept.
CACHE = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")


class Disks(Pool):
    """A pool, and nbdkits that serve its files."""

    def up(self, *arguments, lend="256M"):
        started = self.start("up", "up", "--lend", lend, "--no-redis",
                             *arguments).saw("is up.")
        self.do("space", "create", "disks")
        return started

    def serve(self, file, *arguments, name=None, **more):
        """An nbdkit; returns the process and the address it serves."""
        path = os.path.join(self.home, (name or file) + ".nbd")
        process = self.start(
            name or "nbdkit", argv=["nbdkit", "-f", "-U", path, PLUGIN,
                                    "space=disks", "file=" + file,
                                    *arguments], **more)
        until("it listens", lambda: (
            os.path.exists(path) or process.child.poll() is not None))
        return process, "nbd+unix:///?socket=" + path

    def program(self, *argv, status=0):
        """A program to its end; what it printed."""
        done = subprocess.run(
            argv, cwd=self.home, env=self.environment(
                PATH=SYSTEM_PATH, XDG_CACHE_HOME=CACHE),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, timeout=TIMEOUT_S * 4, check=False,
            text=True, errors="replace")
        assert done.returncode == status, (argv, done.returncode, done.stdout)
        return done.stdout

    def shell(self, uri, script, status=0):
        """What a script of nbdsh printed; `h` is the connection."""
        return self.program("nbdsh", "-u", uri, "-c", script, status=status)

    def map(self, uri):
        """(offset, length, is a hole) of each part of the device."""
        rows = json.loads(self.program("nbdinfo", "--map", "--json", uri))
        return [(row["offset"], row["length"], row["type"] == 3)
                for row in rows]

    def random_file(self, name, size):
        path = os.path.join(self.home, name)
        with open(path, "wb") as stream:
            stream.write(os.urandom(size))
        return path

    def path(self, name):
        return os.path.join(self.home, name)


def contents(path, size=-1):
    with open(path, "rb") as stream:
        return stream.read(size)


def check_copied_in_and_out(pool):
    """nbdcopy by several connections; holes stay holes, and trimmed bytes give
    their memory back."""
    pool.up()
    image = pool.random_file("image", 9 * MIB + 4096)
    _, uri = pool.serve("disk", "size=64M")
    assert pool.map(uri) == [(0, 64 * MIB, True)]
    pool.program("nbdcopy", "--connections=4", image, uri)
    pool.program("nbdcopy", "--connections=4", uri, pool.path("back"))
    back = contents(pool.path("back"))
    assert len(back) == 64 * MIB
    assert back[:9 * MIB + 4096] == contents(image)
    assert not any(back[9 * MIB + 4096:])
    (begin, length, hole), rest = pool.map(uri)
    assert begin == 0 and not hole and length < 10 * MIB, length
    assert rest[2]
    pool.shell(uri, "h.trim(8 << 20, 0)")
    assert pool.map(uri)[0] == (0, 8 * MIB, True)
    assert pool.shell(uri, "print(any(h.pread(8 << 20, 0)))") == "False\n"


EXERCISE = """
import random
SIZE = 4 << 20
model = bytearray(SIZE)
other = nbd.NBD()
other.connect_uri(%r)
for seed in range(%d):
    rng = random.Random(seed)
    for step in range(60):
        at = rng.randrange(SIZE)
        size = min(SIZE - at, rng.choice((1, 7, 512, 4096, 70000, 600000)))
        one = rng.choice((h, other))
        what = rng.randrange(5)
        if what < 2:
            data = rng.randbytes(size)
            one.pwrite(data, at, rng.choice((0, nbd.CMD_FLAG_FUA)))
            model[at:at + size] = data
        elif what == 2:
            one.trim(size, at)
            model[at:at + size] = one.pread(size, at)
            assert not any(model[at:at + size]), (seed, step)
        elif what == 3:
            one.zero(size, at, rng.choice((0, nbd.CMD_FLAG_NO_HOLE)))
            model[at:at + size] = bytes(size)
        else:
            one.flush()
        size = min(SIZE - at, 1 << 20)
        got = rng.choice((h, other)).pread(size, at)
        assert got == model[at:at + size], (seed, step, what, at)
assert h.pread(SIZE, 0) == model
print("as the model")
"""


def check_exercised(pool):
    """Random reads, writes, trims and zeroes by two connections, against a
    model; the device stays what it is when its server is another."""
    pool.up()
    first, uri = pool.serve("disk", "size=4M")
    seeds = int(os.environ.get("REEF_NBD_SEEDS", "4"))
    said = pool.shell(uri, EXERCISE % (uri, seeds))
    assert said == "as the model\n", said
    pool.program("nbdcopy", uri, pool.path("before"))
    first.stop()
    _, uri = pool.serve("disk", name="again", REEF_FABRICS="tcp")
    pool.program("nbdcopy", uri, pool.path("after"))
    assert contents(pool.path("before")) == contents(pool.path("after"))


def check_qemu(pool):
    """qemu-img writes an image of its own format into it, and checks it."""
    pool.up()
    image = pool.random_file("image", 3 * MIB)
    _, uri = pool.serve("disk", "size=32M")
    pool.program("qemu-img", "convert", "-n", "-f", "raw", "-O", "raw", image, uri)
    assert "virtual size: 32 MiB" in pool.program("qemu-img", "info", uri)
    pool.program("qemu-img", "convert", "-f", "raw", "-O", "qcow2", uri,
             pool.path("copy.qcow2"))
    pool.program("qemu-img", "check", pool.path("copy.qcow2"))
    pool.program("qemu-img", "compare", "-f", "raw", "-F", "qcow2", uri,
             pool.path("copy.qcow2"))


def check_fio(pool):
    """fio's own engine, many requests at a time, each block verified."""
    pool.up()
    _, uri = pool.serve("disk", "size=32M", "--threads=8")
    said = pool.program(
        "fio", "--name=t", "--ioengine=nbd", "--uri=" + uri, "--rw=randwrite",
        "--bs=4k", "--iodepth=16", "--size=16M", "--verify=crc32c",
        "--do_verify=1", "--verify_state_save=0", "--output-format=json")
    job, = json.loads(said[said.index("{"):])["jobs"]
    assert job["error"] == 0, said
    assert job["write"]["total_ios"] == 4096 == job["read"]["total_ios"], said


def check_session_ended(pool):
    """An operator ends the server's session: reads go on, one write may fail,
    the next does not. Over shm the process would end with it."""
    pool.up()
    _, uri = pool.serve("disk", "size=1M", REEF_FABRICS="tcp")
    script = """
h.pwrite(b"before", 0)
import json, subprocess
rows = json.loads(subprocess.check_output([%(reef)r, "status", "--json"]))
for row in rows["sessions"]:
    if row["name"] == "nbdkit":
        ended = "%%08x" %% row["session"]
        subprocess.check_call([%(reef)r, "session", "end", ended])
assert h.pread(6, 0) == b"before"
failed = 0
for i in range(3):
    try:
        h.pwrite(b"later%%d" %% i, 0)
    except nbd.Error as error:
        failed += 1
        assert error.errno == "EIO", error
assert failed <= 1, failed
print(h.pread(6, 0))
""" % {"reef": REEF}
    assert pool.shell(uri, script) == "bytearray(b'later2')\n"


def check_full(pool):
    """No room: ENOSPC, and what was there is there."""
    pool.start("up", "up", "--lend", "64M", "--no-redis").saw("is up.")
    pool.do("space", "create", "disks")
    _, uri = pool.serve("disk", "size=256M")
    said = pool.shell(uri, """
block = bytes(range(256)) * 4096
done = 0
try:
    for i in range(256):
        h.pwrite(block, i << 20)
        done += 1
except nbd.Error as error:
    print(error.errno)
assert 8 < done < 64, done
for i in range(done):
    assert h.pread(1 << 20, i << 20) == block
h.trim(done << 20, 0)
h.pwrite(block, 0)
print("goes on")
""")
    assert said == "ENOSPC\ngoes on\n", said


def check_refused(pool):
    """What cannot be served is said, and nbdkit does not start."""
    pool.up()
    for arguments, text in (
            (["space=disks", "file=none"], "none: No such file"),
            (["space=none", "file=disk"], "none: No such file"),
            (["space=disks"], "say space=SPACE and file=FILE"),
            (["space=disks", "a/b", "size=1M"], "a/b: Invalid argument"),
            (["space=disks", "disk", "size=-1"], "size"),
            (["space=disks", "disk", "size=2000T"], "File too large"),
            (["space=disks", "disk", "token=abc"], "token is a secret"),
            (["space=disks", "disk", "colour=red"], "no parameter 'colour'"),
            (["space=disks", "disk", "pool=reef://127.0.0.1:1"],
             "the pool: Connection refused")):
        # A socket of its own choice would leave its folder behind.
        said = pool.program("nbdkit", "-f", "-U", pool.path("nbd"), PLUGIN,
                            *arguments, "--run", "true", status=1)
        assert text in said, (arguments, said)


def check_token(pool):
    """A user whom the owner gave a token serves that space; nobody else."""
    pool.up()
    credential, token = pool.path("credential"), pool.path("token")
    pool.do("user", "add", "guest", credential)
    pool.do("space", "token", "disks", "write", token)
    base = ["nbdkit", "-f", "-U", pool.path("nbd"), PLUGIN, "space=disks",
            "file=disk", "size=1M", "credential=" + credential]
    said = pool.program(*base, "--run", "true", status=1)
    assert "disks: Permission denied" in said, said
    pool.program(*base, "token=+" + token, "--run", "nbdinfo --size $uri")


def check_machine(pool):
    """A virtual machine makes a file system on it, and finds its files after it
    was mounted anew; the file system is whole."""
    if not shutil.which("qemu-system-x86_64"):
        raise Skipped("there is no qemu-system-x86_64")
    pool.up()
    server, uri = pool.serve("disk", "size=128M")
    said = pool.program(RUN, "--seconds", "240", "--disk", uri, "--", FILESYSTEM)
    assert "the file system has its files" in said, said
    used = [row for row in pool.map(uri) if not row[2]]
    assert 0 < sum(row[1] for row in used) < 96 * MIB, used
    pool.program("nbdcopy", uri, pool.path("image"))
    pool.program("e2fsck", "-f", "-n", pool.path("image"))
    server.stop()


def check_exercised_with_kills(pool):
    """Random calls against a model, while servers are killed beneath them."""
    pool.up("--ttl", "1s")
    words = [os.path.join(os.path.dirname(os.path.abspath(__file__)),
                          "nbd_exercise.py"), None, pool.path("model"),
             os.environ.get("REEF_SEED", "1"), str(CALLS)]
    for number in range(KILLS + 1):
        server, words[1] = pool.serve("disk", "size=8M")
        client = pool.start("exercise", argv=["/usr/bin/python3", "-I", *words])
        if number < KILLS:
            goal = CALLS * (number + 1) // (KILLS + 1)
            until("call %d" % goal, lambda goal=goal, client=client: (
                calls(words[2]) >= goal or client.child.poll() is not None))
            server.kill()
            assert client.end() == 3, (client.out, client.error)
            os.unlink(pool.path("disk.nbd"))
            # What it was doing cannot happen any more.
            until("its session ends", lambda server=server: not any(
                row["pid"] == server.child.pid
                for row in pool.status()["sessions"]))
    assert client.end() == 0, (client.out, client.error)
    print(client.out.strip(), flush=True)


def calls(model):
    """How many a model has seen."""
    try:
        with open(model, "rb") as stream:
            return pickle.load(stream)["calls"]
    except FileNotFoundError:
        return 0


if __name__ == "__main__":
    sys.exit(run_checks(globals(), lambda: Disks(REEF), sys.argv[5:]))
