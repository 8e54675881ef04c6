"""service.py REEF UNITS - servers under a service manager: what they tell it,
and what their units allow them. UNITS is the folder of the units as built."""

import configparser
import contextlib
import ctypes
import os
import re
import shutil
import socket
import subprocess
import sys

from checks import Skipped, run_checks
from pool_processes import LIBC, Pool, until

REEF, UNITS = (os.path.abspath(path) for path in sys.argv[1:3])
SERVICES = ("reef-broker", "reef-node", "reef-redis")
EXPOSURE_MAX = 1.5
WATCHDOG_US = 200000
SILENCE_S = 8 * WATCHDOG_US / 1e6  # in which a live server tells 16 times
PTRACE_SEIZE, PTRACE_INTERRUPT, PTRACE_DETACH = 0x4206, 0x4207, 17
WALL = 0x40000000  # of waitpid: threads, too


class Manager(Pool):
    """A pool whose servers are told where a service manager listens."""

    def __init__(self):
        super().__init__(REEF)
        self.path = os.path.join(self.home, "notify")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path)
        self.heard = []

    def __exit__(self, *why):
        self.socket.close()
        super().__exit__(*why)

    def watch(self, name, *arguments, path=None, **more):
        return self.start(name, *arguments, NOTIFY_SOCKET=path or self.path,
                          WATCHDOG_USEC=str(WATCHDOG_US), **more)

    def hear(self, wait_s=0.0):
        """Take what was told; whether there was something."""
        before = len(self.heard)
        with contextlib.suppress(BlockingIOError, TimeoutError):
            self.socket.settimeout(wait_s)
            while True:
                self.heard += self.socket.recv(4096).decode().split("\n")
                self.socket.settimeout(0)
        return len(self.heard) > before

    def told(self, line):
        until("told " + line, lambda: (
            self.hear() or True) and line in self.heard)

    def pings_go_on(self):
        """It is told several times that the server is alive."""
        for _ in range(3):
            self.heard.clear()
            until("a sign of life", lambda: (
                self.hear() or True) and "WATCHDOG=1" in self.heard)

    def is_silent(self):
        """After what was under way, nothing more is told."""
        self.hear(WATCHDOG_US / 1e6)
        self.heard.clear()
        return not self.hear(SILENCE_S)


@contextlib.contextmanager
def thread_stopped(tid):
    """One thread of a process stands still, and the others go on."""
    ptrace = LIBC.ptrace
    ptrace.argtypes = [ctypes.c_long] * 4
    assert ptrace(PTRACE_SEIZE, tid, 0, 0) == 0, "PTRACE_SEIZE"
    assert ptrace(PTRACE_INTERRUPT, tid, 0, 0) == 0, "PTRACE_INTERRUPT"
    assert os.waitpid(tid, WALL)[0] == tid
    try:
        yield
    finally:
        assert ptrace(PTRACE_DETACH, tid, 0, 0) == 0, "PTRACE_DETACH"


def threads(pid, name):
    """The threads of a process that are called so."""
    found = []
    for tid in os.listdir("/proc/%d/task" % pid):
        with open("/proc/%d/task/%s/comm" % (pid, tid),
                  encoding="ascii") as stream:
            if re.fullmatch(name, stream.read().strip()):
                found.append(int(tid))
    return found


def check_a_server_tells_that_it_is_ready_alive_and_stopping(manager):
    up = manager.watch("up", "up", "--lend", "64M", "--extent-size", "4M")
    manager.told("READY=1")
    # It is up when it says so.
    assert "is up." in up.out or up.saw("is up.")
    assert manager.status()["nodes"], manager.status()
    assert any(line.startswith("STATUS=") for line in manager.heard)
    manager.pings_go_on()
    up.stop()
    manager.told("STOPPING=1")


def check_a_scheduler_that_stands_still_is_silent(manager):
    """Only the thread of the scheduler stands still."""
    broker = manager.watch("broker", "broker")
    manager.told("READY=1")
    broker.saw("is up.")
    manager.pings_go_on()
    with thread_stopped(broker.child.pid):
        assert manager.is_silent(), manager.heard
    manager.pings_go_on()


def check_a_node_tells_it_too(manager):
    manager.broker()
    node = manager.watch(
        "node", "node", "--node-key", manager.node_key("n"),
        "--run", os.path.join(manager.home, "run-n"), "--lend", "128M",
        "--broker", "shm:%s/broker.sock" % manager.run)
    manager.told("READY=1")
    node.saw("is up.")
    manager.pings_go_on()
    with thread_stopped(node.child.pid):
        assert manager.is_silent(), manager.heard
    manager.pings_go_on()


def check_a_door_is_silent_while_one_of_its_threads_stands_still(manager):
    manager.broker()
    manager.node("n", "--lend", "128M")
    door = manager.watch("door", "redis", "--redis-threads", "2")
    manager.told("READY=1")
    manager.pings_go_on()
    serving = threads(door.child.pid, r"redis-\d+")
    assert len(serving) == 2, serving
    with thread_stopped(serving[1]):
        assert manager.is_silent(), manager.heard
    manager.pings_go_on()
    door.stop()
    manager.told("STOPPING=1")


def check_children_do_not_speak_for_it(manager):
    """The door and the janitor that `reef up` starts know nothing of it."""
    up = manager.watch("up", "up", "--lend", "64M", "--extent-size", "4M",
                       REEF_REDIS="yes")
    up.saw("is up.")
    until("the janitor", manager.janitor)
    with open("/proc/{0}/task/{0}/children".format(up.child.pid),
              encoding="ascii") as stream:
        pids = stream.read().split()
    assert len(pids) == 2, pids
    for pid in pids:
        with open("/proc/%s/environ" % pid, "rb") as stream:
            assert b"NOTIFY_SOCKET" not in stream.read()


def check_odd_managers_do_no_harm(manager):
    """A socket that is not there, that is no path, that nobody reads."""
    for number, path in enumerate((
            manager.path + "-absent", "relative", "@", "/" + "x" * 200,
            "vsock:2:1")):
        process = manager.watch("odd%d" % number, "up", "--lend", "64M",
                                "--extent-size", "4M", path=path)
        process.saw("is up.")
        assert process.stop() == 0, process.error
    # One that never reads: what does not fit is dropped.
    up = manager.start("full", "up", "--lend", "64M", "--extent-size", "4M",
                       NOTIFY_SOCKET=manager.path, WATCHDOG_USEC="2000")
    up.saw("is up.")
    until("it is full", lambda: is_full(manager.path))
    assert manager.status()["nodes"]
    assert up.stop() == 0
    # A watch that is another process's, and an abstract name.
    manager.hear()
    name = "\0reef-service-%d" % os.getpid()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.bind(name)
        manager.socket.close()
        manager.socket = other
        up = manager.watch("others", "up", "--lend", "64M", "--extent-size",
                           "4M", path="@" + name[1:], WATCHDOG_PID="1")
        manager.heard.clear()
        manager.told("READY=1")
        assert manager.is_silent() and not up.stop(), manager.heard


def is_full(path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        probe.setblocking(False)
        try:
            probe.sendto(b"X=1", path)
            return False
        except BlockingIOError:
            return True


# --- units ---


def check_units_are_sandboxed(_):
    analyze = shutil.which("systemd-analyze")
    if not analyze:
        raise Skipped("there is no systemd-analyze")
    for unit in SERVICES:
        done = subprocess.run(
            [analyze, "security", "--offline=yes", "--no-pager",
             "--threshold=%d" % int(EXPOSURE_MAX * 10),
             os.path.join(UNITS, unit + ".service")], check=False, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        found = re.search(r"exposure level for %s.service: ([\d.]+)" % unit,
                          done.stdout)
        assert found, done.stdout
        assert done.returncode == 0, done.stdout
        assert float(found.group(1)) <= EXPOSURE_MAX, done.stdout
        print("%s: exposure %s" % (unit, found.group(1)))


def check_systemd_understands_the_units(manager):
    """Not a word that it would ignore. Paths of this build are not there."""
    analyze = shutil.which("systemd-analyze")
    if not analyze:
        raise Skipped("there is no systemd-analyze")
    for name in os.listdir(UNITS):
        if not name.endswith((".service", ".target")):
            continue
        with open(os.path.join(UNITS, name), encoding="utf-8") as stream:
            text = re.sub(r"^ExecStart=\S+", "ExecStart=" + REEF,
                          stream.read(), flags=re.M)
        text = re.sub(r"^Documentation=.*\n", "", text, flags=re.M)
        with open(os.path.join(manager.home, name), "w",
                  encoding="utf-8") as stream:
            stream.write(text)
    done = subprocess.run(
        [analyze, "verify", "--man=no"] + [
            os.path.join(manager.home, name + ".service")
            for name in SERVICES] + [
                os.path.join(manager.home, "reef.target")],
        check=False, text=True, capture_output=True)
    said = [line for line in done.stderr.splitlines() if "reef" in line]
    assert done.returncode == 0 and not said, done.stderr


def check_units_start_what_there_is(_):
    for unit in SERVICES:
        parser = configparser.RawConfigParser(strict=False)
        parser.optionxform = str
        parser.read(os.path.join(UNITS, unit + ".service"))
        service = parser["Service"]
        assert service["Type"] == "notify", dict(service)
        program, command = service["ExecStart"].split()
        assert program.endswith("/bin/reef"), program
        assert command == unit[len("reef-"):], command
        subprocess.run([REEF, command, "--help"], check=True,
                       stdout=subprocess.DEVNULL)
        assert service["User"] == "reef" and service["WatchdogSec"], unit
        # Settings of the environment that Reef knows.
        for word in service["Environment"].split():
            name = word.split("=")[0][len("REEF_"):].lower()
            assert "\n%s = " % name in subprocess.run(
                [REEF, "node", "--check-config"], check=True, text=True,
                stdout=subprocess.PIPE,
                env={**os.environ, **dict([word.split("=")])}).stdout, word


def check_examples_are_comments_of_known_settings(manager):
    """Each example of a drop-in, without its '#', is understood."""
    analyze = shutil.which("systemd-analyze")
    if not analyze:
        raise Skipped("there is no systemd-analyze")
    folder = os.path.join(os.path.dirname(os.path.dirname(
        os.path.dirname(os.path.abspath(__file__)))), "ops/systemd/examples")
    unit = os.path.join(manager.home, "reef-node.service")
    for name in sorted(os.listdir(folder)):
        with open(os.path.join(folder, name), encoding="utf-8") as stream:
            lines = stream.read().splitlines()
        assert all(line.startswith("#") for line in lines), name
        taken = [line[1:] for line in lines if not line.startswith("# ")]
        assert taken, name
        if taken[0] != "[Service]":
            continue
        with open(os.path.join(UNITS, "reef-node.service"),
                  encoding="utf-8") as stream:
            text = re.sub(r"^ExecStart=\S+", "ExecStart=" + REEF,
                          stream.read(), flags=re.M)
        with open(unit, "w", encoding="utf-8") as stream:
            stream.write(text + "\n" + "\n".join(taken) + "\n")
        done = subprocess.run([analyze, "verify", "--man=no", unit],
                              check=False, text=True, capture_output=True)
        said = [line for line in done.stderr.splitlines()
                if "reef" in line and "reef-broker" not in line]
        assert done.returncode == 0 and not said, (name, done.stderr)


if __name__ == "__main__":
    sys.exit(run_checks(globals(), Manager, sys.argv[3:]))
