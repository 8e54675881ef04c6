"""top.py REEF - `reef top` in a terminal of its own."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios

from checks import run_checks
from pool_processes import Pool, prepare_child, until, until_said

REEF = os.path.abspath(sys.argv[1])
END = b"\x1b[?25h\x1b[?1049l"


def take_terminal():
    """In a child: what it has as standard input is its terminal, whose Ctrl-C
    is for it."""
    prepare_child()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


class Terminal:
    """A program in a terminal; what it wrote since the last screen began."""

    def __init__(self, pool, *command, lines=40, columns=100):
        self.ours, theirs = pty.openpty()
        self.resize(lines, columns)
        self.before = termios.tcgetattr(self.ours)
        self.said = b""
        self.child = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs,
            env=pool.environment(TERM="xterm", LC_ALL="C.UTF-8"),
            preexec_fn=take_terminal, start_new_session=True)
        pool.processes.append(self)
        os.close(theirs)
        self.name, self.out, self.error = "terminal", "", ""

    def kill(self):
        self.child.kill()
        self.child.wait()

    def resize(self, lines, columns):
        fcntl.ioctl(self.ours, termios.TIOCSWINSZ,
                    struct.pack("HHHH", lines, columns, 0, 0))

    def hear(self):
        """Take what it has written by now."""
        while select.select([self.ours], [], [], 0)[0]:
            try:
                self.said += os.read(self.ours, 65536)
            except OSError:
                return

    def screen(self):
        """The lines of the last whole screen; [] before the first."""
        self.hear()
        whole = self.said.split(b"\x1b[H")[1:]
        done = [one for one in whole if b"1 2 3 table" in one]
        if not done:
            return []
        return re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b"",
                      done[-1]).decode().replace("\r", "").split("\n")

    def shows(self, what, probe):
        """Wait for a screen of which this is true."""
        return until_said(
            lambda: "%s: %r" % (what, self.screen()),
            lambda: self.screen() and probe(self.screen()))

    def type(self, keys):
        self.said = b""
        os.write(self.ours, keys)

    def column(self, section, index):
        """The cells of a column of a table, as they are on the screen."""
        lines = self.screen()
        at = next(i for i, line in enumerate(lines)
                  if line[2:].startswith(section + ":"))
        cells = []
        for line in lines[at + 3:]:
            if not line or line[1:2] == " " and line[2:3].isalpha():
                break
            cells.append(re.split(r"\s{2,}", line.strip())[index])
        return cells

    def is_restored(self):
        self.hear()
        return END in self.said and (
            termios.tcgetattr(self.ours) == self.before)


def start(pool):
    pool.start("up", "up", "--lend", "64M", "--extent-size", "4M",
               "--no-redis").saw("is up.")
    for name in "beta", "alpha", "gamma":
        pool.do("space", "create", name)


def names(terminal):
    return [cell for cell in terminal.column("spaces", 1)
            if cell in ("alpha", "beta", "gamma")]


def check_keys_choose_and_sort(pool):
    start(pool)
    top = Terminal(pool, REEF, "top")
    top.shows("all", lambda lines: any("gamma" in line for line in lines))
    assert top.screen()[0].startswith("pool "), top.screen()
    assert any(line.startswith("> sessions:") for line in top.screen())
    top.type(b"2")
    top.shows("chosen", lambda lines: any(
        line.startswith("> spaces:") for line in lines))
    # From "used" to "name": by text, falling; then rising.
    top.type(b"<<\x1b[D")
    top.shows("by name", lambda lines: any(
        line.endswith("by name, falling") for line in lines))
    assert names(top) == ["gamma", "beta", "alpha"], top.screen()
    top.type(b"r")
    top.shows("other way", lambda lines: any(
        line.endswith("by name") for line in lines))
    assert names(top) == ["alpha", "beta", "gamma"], top.screen()
    # By number: as they were made.
    top.type(b"<")
    top.shows("by number", lambda lines: any(
        line.endswith("by space") for line in lines))
    assert names(top) == ["beta", "alpha", "gamma"], top.screen()
    # What changes is seen without a key.
    pool.do("space", "create", "delta")
    top.shows("a new one", lambda lines: any(
        " delta " in line for line in lines))
    # A small terminal is not overrun.
    top.resize(12, 30)
    top.said = b""
    top.shows("small", lambda lines: len(lines) <= 12)
    assert max(map(len, top.screen())) <= 30, top.screen()
    top.type(b"q")
    assert top.child.wait(60) == 0
    assert top.is_restored(), top.said


def check_a_broker_that_is_away_is_waited_for(pool):
    start(pool)
    top = Terminal(pool, REEF, "top")
    top.shows("all", lambda lines: any("gamma" in line for line in lines))
    pool.processes[0].kill()
    top.shows("away", lambda lines: "said last" in lines[0])
    assert any("gamma" in line for line in top.screen()), top.screen()
    pool.start("again", "up", "--lend", "64M", "--extent-size", "4M",
               "--no-redis").saw("is up.")
    top.shows("back", lambda lines: lines[0].startswith("pool "))
    top.type(b"q")
    assert top.child.wait(60) == 0
    assert top.is_restored(), top.said


def check_every_end_restores_the_terminal(pool):
    start(pool)
    for number in signal.SIGTERM, signal.SIGHUP, signal.SIGINT:
        top = Terminal(pool, REEF, "top")
        top.shows("all", lambda lines: any("gamma" in line for line in lines))
        assert termios.tcgetattr(top.ours) != top.before
        if number == signal.SIGINT:
            os.write(top.ours, b"\x03")
        else:
            os.kill(top.child.pid, number)
        assert top.child.wait(60) == 0, number
        assert top.is_restored(), (number, top.said)


def check_names_do_nothing_to_the_terminal(pool):
    """A program can be called anything; a line of it stays a line."""
    start(pool)
    evil = os.path.join(pool.home, "evil\x1b[2J\x07")
    os.symlink(REEF, evil)
    pool.start("holder", argv=[evil, "lock", "l", "--", "sleep", "600"])
    until("it is there", lambda: pool.status()["sessions"])
    top = Terminal(pool, REEF, "top")
    top.shows("it", lambda lines: any("evil?[2J?" in line for line in lines))
    top.hear()
    left = re.sub(rb"\x1b\[(H|K|J|\?1049h|\?25l|\d+;1H)", b"", top.said)
    assert b"\x1b" not in left, left
    assert b"\x07" not in left, left
    top.type(b"q")
    assert top.child.wait(60) == 0


def check_without_a_terminal_it_says_so(pool):
    start(pool)
    pool.refused("top", text="needs a terminal")
    top = Terminal(pool, REEF, "top", "more")
    assert top.child.wait(60) == 2
    pool.processes[0].stop()
    top = Terminal(pool, REEF, "top")
    assert top.child.wait(60) == 1
    top.hear()
    assert b"no broker" in top.said and END not in top.said, top.said


if __name__ == "__main__":
    sys.exit(run_checks(globals(), lambda: Pool(REEF), sys.argv[2:]))
