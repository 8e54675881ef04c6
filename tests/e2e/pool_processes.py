"""Processes of a pool for the tests: private directories, no port that
somebody else may have, and nothing left behind, however a test ends."""

import ctypes
import errno
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time

from checks import Skipped

TIMEOUT_S = 120  # where many others run, too; nothing waits for it to pass
LIBC = ctypes.CDLL(None)
PR_SET_PDEATHSIG = 1


def prepare_child():
    """In a child, before it becomes its program: it dies with its parent, and
    takes signals as a command of an interactive shell does. What the tests
    were started with must not matter: nohup ignores SIGHUP, a script's `&`
    SIGINT and SIGQUIT, and no shell can trap what was ignored before it."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT,
                   signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2,
                   signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def until(what, probe):
    """Ask until the answer is true; a bound, never an expectation."""
    return until_said(lambda: what, probe)


def until_said(say, probe):
    """The same, with what is to be said when it never came."""
    end = time.monotonic() + TIMEOUT_S
    while True:
        answer = probe()
        if answer:
            return answer
        assert time.monotonic() < end, "never came: " + say()
        time.sleep(0.01)


class SmallDisk:
    """A file system of its own in a directory, which only those see whom it
    runs; it goes with the last of them."""

    def __init__(self, pool, directory, size):
        self.directory = directory
        keeper = pool.start("disk", argv=[
            "unshare", "--mount", "sh", "-c",
            'mount -t tmpfs -o mode=700,size="$2" none "$1" && echo mounted; '
            'exec sleep 3600', "sh", directory, size])
        self.pid = keeper.child.pid
        until("a disk, or why there is none", lambda: (
            "mounted" in keeper.out or keeper.error or
            keeper.child.poll() is not None))
        if "mounted" not in keeper.out:
            raise Skipped("a file system cannot be mounted here: " +
                          keeper.error)

    def run(self, *command):
        """The words that run a command which sees it."""
        return ["nsenter", "--mount", "--target", str(self.pid), *command]

    def resize(self, size):
        subprocess.run(self.run("mount", "-o", "remount,size=" + size,
                                self.directory), check=True)


def has_ended(pid):
    """Whether a process is gone, or waits to be buried by whoever inherited
    it."""
    try:
        with open("/proc/%d/stat" % pid, encoding="utf-8") as stream:
            return stream.read().rsplit(")", 1)[1].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def free_port():
    """One that nobody has at this moment. Below those that the kernel deals
    out: one of these may be somebody's own end of a connection before it is
    listened on (again), even that of a client who waits for it there."""
    with open("/proc/sys/net/ipv4/ip_local_port_range",
              encoding="ascii") as stream:
        end = int(stream.read().split()[0])
    for _ in range(1000):
        port = random.SystemRandom().randrange(10000, max(end, 10001))
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError as error:
                assert error.errno == errno.EADDRINUSE, error
    raise AssertionError("no port is free")


class Process:
    """One that runs on, with what it printed in files."""

    def __init__(self, name, argv, env, directory, cwd=None):
        self.out_path = os.path.join(directory, name + ".out")
        self.error_path = os.path.join(directory, name + ".err")
        with open(self.out_path, "wb") as out, \
                open(self.error_path, "wb") as error:
            self.child = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=out, stderr=error,
                env=env, cwd=cwd, preexec_fn=prepare_child)
        self.name = name

    @property
    def out(self):
        with open(self.out_path, encoding="utf-8") as stream:
            return stream.read()

    @property
    def error(self):
        with open(self.error_path, encoding="utf-8") as stream:
            return stream.read()

    def saw(self, text):
        """Wait until it has printed that."""
        until("%s: %r" % (self.name, text), lambda: (
            text in self.out or self.child.poll() is not None))
        assert text in self.out, (self.name, text, self.out, self.error)
        return self

    def send(self, number):
        self.child.send_signal(number)
        return self

    def kill(self):
        self.child.kill()
        self.child.wait()

    def end(self):
        """The status it ends with, by itself."""
        return self.child.wait(TIMEOUT_S)

    def stop(self, number=signal.SIGTERM):
        if self.child.poll() is None:
            self.child.send_signal(number)
        return self.end()


class Pool:
    """A user with a home of their own, and what they run."""

    def __init__(self, reef):
        self.reef = reef
        self.home = tempfile.mkdtemp(prefix="reef-e2e-")
        self.run = os.path.join(self.home, "run", "reef")
        self.data = os.path.join(self.home, "state", "reef")
        self.processes = []
        self.tcp = "tcp:127.0.0.1:0"
        self.counts = {}

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        for process in self.processes:
            if process.child.poll() is None:
                process.kill()
        for pid in self.holders():
            os.kill(pid, signal.SIGTERM)
            os.kill(pid, signal.SIGCONT)  # a check may have stopped it
            until("holder %d ends" % pid, lambda pid=pid: has_ended(pid))
        if kind and os.environ.get("REEF_E2E_KEEP"):
            print("kept: " + self.home)
        else:
            shutil.rmtree(self.home)

    def nothing_is_held(self):
        """A holder that was told to go does so a moment after its node."""
        until_said(lambda: "nothing stays behind, but %s" % self.holders(),
                   lambda: not self.holders())

    def holders(self):
        """The processes that hold memory of this pool's nodes."""
        found = []
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open("/proc/%s/cmdline" % name, "rb") as stream:
                    words = stream.read().split(b"\0")
            except OSError:
                continue
            if words[1:2] == [b"hold"] and any(
                    self.home.encode() in word for word in words):
                found.append(int(name))
        return found

    def environment(self, **more):
        clean = {name: value for name, value in os.environ.items()
                 if not name.startswith(("REEF_", "XDG_", "LC_", "LANG"))}
        clean.update(HOME=self.home,
                     XDG_RUNTIME_DIR=os.path.join(self.home, "run"),
                     XDG_STATE_HOME=os.path.join(self.home, "state"),
                     REEF_LISTEN=self.tcp, REEF_NODE_LISTEN="tcp:127.0.0.1:0",
                     REEF_REDIS="no", REEF_REDIS_LISTEN="127.0.0.1:0",
                     # Most tests are about nodes that die for good.
                     REEF_KEEP="none")
        clean.update(more)
        return clean

    def start(self, name, *arguments, argv=None, **more):
        """Start `reef ARGUMENTS`, or another program."""
        count = self.counts[name] = self.counts.get(name, 0) + 1
        process = Process(
            name if count == 1 else "%s.%d" % (name, count),
            argv or [self.reef, *arguments], self.environment(**more),
            self.home)
        self.processes.append(process)
        return process

    def ask(self, *arguments, **more):
        """Run `reef ARGUMENTS` to its end."""
        return subprocess.run(
            [self.reef, *arguments], capture_output=True, text=True,
            stdin=subprocess.DEVNULL, timeout=TIMEOUT_S, check=False,
            env=self.environment(**more), preexec_fn=prepare_child)

    def do(self, *arguments, **more):
        done = self.ask(*arguments, **more)
        assert done.returncode == 0, (arguments, done.stdout, done.stderr)
        assert done.stderr == "", (arguments, done.stderr)
        return done.stdout

    def refused(self, *arguments, status=1, text="", **more):
        """It must fail, with that status and that text, and print nothing."""
        done = self.ask(*arguments, **more)
        assert done.returncode == status, (arguments, done)
        assert text in done.stderr, (arguments, text, done.stderr)
        assert "Invalid argument" not in done.stderr, done.stderr
        assert done.stdout == "", done.stdout
        return done.stderr

    def status(self):
        """What the pool tells, without the janitor's session, which is there
        as long as the broker is."""
        told = json.loads(self.do("status", "--json"))
        told["sessions"] = [row for row in told["sessions"]
                            if row["name"] != "reef janitor"]
        return told

    def janitor(self):
        """The janitor's session; None: there is none."""
        for row in json.loads(self.do("status", "--json"))["sessions"]:
            if row["name"] == "reef janitor" and row["state"] == "alive":
                return row
        return None

    def nodes(self):
        return {row["name"]: row for row in self.status()["nodes"]}

    def broker(self, *arguments, **more):
        """A broker, whose port the next one takes, too."""
        if self.tcp.endswith(":0"):
            self.tcp = "tcp:127.0.0.1:%d" % free_port()
        return self.start("broker", "broker", *arguments, **more).saw("is up.")

    def node_key(self, name):
        """The file with the key of a node, which is added if it is new."""
        path = os.path.join(self.home, name + ".key")
        if not os.path.exists(path):
            self.do("node", "add", name, path)
        return path

    def node(self, name, *arguments, broker=None, **more):
        """A node of this pool as if it were on another machine: a runtime
        directory of its own, and its key. All that it holds is in `places`."""
        key = self.node_key(name)
        run = os.path.join(self.home, "run-" + name)
        process = self.start(
            name, "node", "--node-key", key, "--run", run,
            "--broker", broker or "shm:%s/broker.sock" % self.run,
            *arguments, **more)
        process.places = [key, run]
        return process.saw("is up.")

    def node_is(self, name, state):
        until("%s is %s" % (name, state), lambda: (
            self.nodes().get(name, {}).get("state") == state))


class Taker(threading.Thread):
    """A lender that takes all its memory back, again and again."""

    def __init__(self, pool, size):
        super().__init__()
        self.pool, self.size = pool, size
        self.over, self.taken = threading.Event(), 0

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.join()

    def run(self):
        node, = self.pool.nodes()
        while not self.over.wait(0.05):
            done = self.pool.ask("node", "reclaim", node, self.size)
            self.taken += done.returncode == 0 and done.stdout[:2] != "0 "


class Workers(Pool):
    """A pool and programs that use its memory (worker.c)."""

    def __init__(self, reef, worker):
        super().__init__(reef)
        self.program = worker

    def worker(self, mode, space, *arguments, fabrics=None, name=None, **more):
        if fabrics:
            more["REEF_FABRICS"] = fabrics
        return self.start(name or "worker-" + mode, argv=[
            self.program, mode, space, *map(str, arguments)], **more)

    def work(self, mode, space, *arguments, status=0, **more):
        """A worker to its end; what it printed."""
        worker = self.worker(mode, space, *arguments, **more)
        assert worker.end() == status, (mode, worker.out, worker.error)
        return worker.out

    def session_of(self, process):
        """The session of a process; None: it has none any more."""
        for row in self.status()["sessions"]:
            if row["pid"] == process.child.pid:
                return row
        return None

    def gone(self, process):
        until("the end of its session", lambda: (
            self.session_of(process) is None))

    def only(self, process):
        """All others' sessions have ended, and are recovered."""
        until("all others are recovered", lambda: [
            row["pid"] for row in self.status()["sessions"]] == [
                process.child.pid])

    def capacity(self, space, size=4096):
        """How many blocks one can have, each checked; freed, and again. How
        slabs fit between others' makes a small difference."""
        first, second = map(int, re.findall(r"filled (\d+)", self.work(
            "fill", space, 1 << 19, size)))
        return max(first, second)

    def room_is_back(self, least, space, size=4096):
        """What was recovered is reused when nobody can know it any more: a
        while after the dead are gone, and whoever recovered it must live until
        then. Wait for room for so many; how many there is room for."""
        counts = []

        def has_room():
            counts.append(self.capacity(space, size))
            return counts[-1] >= least

        until_said(lambda: "room for %d blocks: there is for %s" % (
            least, counts[-5:]), has_room)
        return counts[-1]


def is_about(one, other):
    return abs(one - other) <= max(one, other) // 16
