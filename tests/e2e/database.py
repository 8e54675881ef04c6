"""database.py REEF PROGRAM EXTENSION [PART OF A NAME...] - `reef bench database`
and `reef demo`, small: that everything runs, that what it says of the disk is
so, and that it leaves nothing behind, however it ends. Also the program that
they run with SQLite (PROGRAM), while the lender takes its memory back.

Nothing here is about time."""

import glob
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile

from checks import Skipped, run_each
from pool_processes import Pool, has_ended, prepare_child, until

REEF, PROGRAM, EXTENSION = (os.path.abspath(one) for one in sys.argv[1:4])
TIMEOUT_S = 240
STORIES = ("extend", "spill", "semantic", "prime")


def groups(process):
    """The cgroups of a process's stage that are there, of either version."""
    return glob.glob("/sys/fs/cgroup/**/reef-bench-%d" % process.pid,
                     recursive=True)


def mounts():
    with open("/proc/self/mounts", encoding="utf-8") as stream:
        return stream.read()


def members(directory):
    """Processes whose run directory that is."""
    found = []
    for place in glob.glob("/proc/[0-9]*/environ"):
        try:
            with open(place, "rb") as stream:
                if directory.encode() in stream.read():
                    found.append(int(place.split("/")[2]))
        except OSError:
            pass
    return [pid for pid in found if pid != os.getpid() and not has_ended(pid)]


class Stage:
    """A directory in which a stage is made, and must be gone again."""

    def __init__(self):
        self.held = tempfile.TemporaryDirectory(prefix="reef-db-")
        self.directory = self.held.name
        os.chmod(self.directory, 0o711)  # Postgres is another user
        self.started = []

    def __enter__(self):
        return self

    def __exit__(self, *error):
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.wait()
            process.stdout.close()
        self.held.cleanup()

    def start(self, *words, program=REEF, **more):
        process = subprocess.Popen(
            [program, *words], stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, preexec_fn=prepare_child,
            env={**os.environ, "TMPDIR": self.directory, **more})
        self.started.append(process)
        return process

    def run(self, *words, status=0, **more):
        process = self.start(*words, **more)
        text, _ = process.communicate(timeout=TIMEOUT_S)
        needs_machine(text)
        assert status is None or process.returncode == status, text
        return text

    def is_clear(self):
        return (not os.listdir(self.directory) and
                self.directory not in mounts() and
                not any(groups(one) for one in self.started) and
                not members(self.directory + "/reef-bench"))


def needs_machine(text):
    """Where a machine with little memory cannot be made, it is said."""
    found = re.search(r"^reef (?:bench database|demo): (.*(?:needs root|"
                      r"no cgroups|cannot be made here|cannot be dropped).*)",
                      text, re.M)
    if found:
        raise Skipped(found.group(1))


def check_bench_runs_every_case(stage):
    """Each case has a line or a reason; a ratio only where the disk was read."""
    names = [line.split()[0] for line in stage.run(
        "bench", "database", "--list").splitlines()[2:]]
    charts = stage.directory + "-charts"
    try:
        text = stage.run("bench", "database", "--quick", "--json", "-",
                         "--charts", charts, status=None)
        drawn = os.listdir(charts)
    finally:
        shutil.rmtree(charts, ignore_errors=True)
    lines = {}
    for line in text.splitlines():
        if line.startswith("{"):
            one = json.loads(line)
            lines[one["case"]] = one
    for name in names:
        assert name in text, (name, text)
        if name not in lines:
            # Only what is another's may be missing, and that is said.
            why = re.search(r"^%s .*(not installed|not built)" % name, text,
                            re.M)
            assert why, (name, text[-3000:])
            assert os.environ.get("CI") != "true", text
            continue
        check_line(lines[name])
        assert "database-%s.svg" % name in drawn, drawn
    for name in ("file-read-8k", "mount-read-4k", "spill-sort"):
        assert name in lines, text
    until("a clear stage", stage.is_clear)


def check_line(one):
    assert one["bench"] == "database" and one["value"] > 0, one
    costs = [one[key] for key in ("disk_bytes", "faults", "waited")]
    for cost in costs:
        assert set(cost) == {"reef", *one["peers"]}, one
        assert all(value >= 0 for value in cost.values()), one
    if "disk" in one["peers"]:
        assert ("disk" in one["ratio"]) == (one["disk_bytes"]["disk"] > 0), one
    for peer, ratio in one["ratio"].items():
        times = one["value"] / one["peers"][peer]
        if one["unit"] == "seconds":
            times = 1 / times
        assert abs(ratio - times) < 0.01 * times, one


def check_bench_says_what_duckdb_lacks(stage):
    """It is npm's, and may not be there; or its sort may fail."""
    def row(**more):
        text = stage.run("bench", "database", "--quick", "--case",
                         "spill-duckdb", status=1, **more)
        found = re.search(r"^spill-duckdb +(.*?)  ", text, re.M)
        assert found, text
        return found.group(1)
    with tempfile.TemporaryDirectory(prefix="reef-npm-") as place:
        # A copy has no build-node beside it.
        copy = os.path.join(place, "reef")
        subprocess.run(["cp", REEF, copy], check=True)
        peers = os.path.join(os.path.dirname(REEF), "bench/peers")
        assert row(program=copy, REEF_PEERS=peers, NODE_PATH=":") == (
            "npm's @duckdb/node-api is not installed (make bench installs it; "
            "NODE_PATH says where it is)")
        assert "database_duckdb is not there" in row(REEF_PEERS=place)
        library = os.path.join(place, "@duckdb/node-bindings-any")
        os.makedirs(library)
        library = os.path.join(library, "libduckdb.so")
        with open(library, "w", encoding="ascii") as stream:
            stream.write("none")
        paths = "/nowhere:" + place
        assert library + ": " in row(NODE_PATH=paths)
        fake = os.path.join(place, "database_duckdb")
        with open(fake, "w", encoding="ascii") as stream:
            stream.write('#!/bin/sh\n[ "$1" = %s ] && [ -d "$3" ] && '
                         'echo the sort is wrong: $2 $4\nexit 1\n' % library)
        os.chmod(fake, 0o755)
        assert row(REEF_PEERS=place, NODE_PATH=paths) == (
            "database_duckdb: the sort is wrong: 48MiB 1048576")


def check_bench_without_root(stage):
    """It says what it needs, and does nothing."""
    if os.geteuid():
        raise Skipped("this is not root, who can be another user")
    os.chmod(stage.directory, 0o777)
    # The program may be where only root reads: a copy is not.
    copy = os.path.join(stage.directory, "reef")
    subprocess.run(["cp", REEF, copy], check=True)
    for words in (("bench", "database", "--quick"), ("demo", "extend")):
        run = subprocess.run(
            [copy, *words], capture_output=True, text=True, check=False,
            user="nobody", group="nogroup", extra_groups=[],
            cwd="/", env={"TMPDIR": stage.directory, "PATH": "/usr/bin"},
            timeout=TIMEOUT_S)
        assert run.returncode == 1, run
        assert "needs root" in run.stderr, run
    assert os.listdir(stage.directory) == ["reef"]


def check_interrupted(stage, number):
    """In the middle of a turn, whose programs know nothing of it."""
    process = stage.start("bench", "database", "--quick", "--seconds", "600",
                          "--case", "spill-sort", "--case", "mount-read-4k")

    def is_mounted():
        if process.poll() is not None:
            text = process.stdout.read()
            needs_machine(text)
            raise AssertionError(text)
        return stage.directory in mounts()
    until("a mount", is_mounted)
    assert groups(process), "no cgroup"
    assert members(stage.directory + "/reef-bench")
    process.send_signal(number)
    process.wait(timeout=TIMEOUT_S)
    if number != signal.SIGKILL:
        # Whoever has the prompt again finds everything gone.
        assert not os.listdir(stage.directory), os.listdir(stage.directory)
        assert stage.directory not in mounts()
        assert not groups(process), groups(process)
    until("a clear stage", stage.is_clear)


def check_interrupted_by_sigint(stage):
    check_interrupted(stage, signal.SIGINT)


def check_interrupted_by_sigkill(stage):
    check_interrupted(stage, signal.SIGKILL)


def check_demo(stage):
    for story in STORIES:
        text = stage.run("demo", story, "--quick")
        assert "read from disk" in text and "major faults" in text, text
        assert "with the pool" in text or "not read" in text, text
        assert os.listdir(stage.directory) == []
    until("a clear stage", stage.is_clear)


def check_demo_arguments(stage):
    for words in ((), ("nothing",), ("extend", "spill"),
                  ("extend", "--size", "1K"), ("extend", "--size", "x")):
        process = stage.start("demo", *words)
        text, _ = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 2 and "reef demo --help" in text, text
    text = stage.run("demo", "--help")
    for story in STORIES:
        assert re.search(r"^  %s " % story, text, re.M), text


class Lender(Pool):
    """A pool, and the program with SQLite, which checks each row it reads."""

    def __init__(self):
        super().__init__(REEF)

    def up(self):
        self.start("up", "up", "--lend", "320M", "--extent-size", "16M",
                   "--name", "lender", "--revoke-notice",
                   "100ms").saw("is up.")

    def sqlite(self, *words, wait=True):
        process = subprocess.Popen(
            [PROGRAM, *words], stdout=subprocess.PIPE, text=True,
            cwd=self.home, preexec_fn=prepare_child,
            env=self.environment(REEF_SQLITE=EXTENSION))
        return finish(process) if wait else process

    def take_back(self):
        """The lender takes what is revocable, all of it."""
        return self.ask("node", "reclaim", "lender", "320M")


def finish(process):
    text, _ = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, text
    return text


def check_mixture_on_both_vfs(_):
    """The same statements, with the same outcome, wherever the bytes are."""
    with Lender() as pool:
        pool.up()
        sums = [re.search(r"^sum .*", pool.sqlite("speed", name, "2"),
                          re.M).group()
                for name in ("file:plain.db", "file:cached.db?vfs=reefcache",
                             "file:pool.db?vfs=reef")]
        assert len(set(sums)) == 1, sums


def check_memory_is_taken_back(_):
    """In the middle of each scenario: slower, nothing wrong."""
    table = "file:t.db?vfs=reefcache&reef_size=64M"
    kept = "file:results.db?vfs=reef"
    with Lender() as pool:
        pool.up()
        pool.sqlite("make", "t.db", "16000000")
        pool.sqlite("prime", table)
        pool.sqlite("keep", "file:t.db", kept)
        for words in (("points", table, "1000000", "2"),
                      ("start", table, "1000000", "200", "2"),
                      ("lookup", "file:t.db", kept, "1000000", "2")):
            process = pool.sqlite(*words, wait=False)
            pool.take_back()
            pool.take_back()
            text = finish(process)
            if words[1] == table:
                told = json.loads(text.split("stats ")[1])
                assert told["misses"] > 0, told  # of pages that were taken
            assert float(re.search(r"figure (\S+)", text).group(1)) > 0, text
        # And it serves again what is brought there anew.
        assert int(re.search(r"figure (\d+)",
                             pool.sqlite("prime", table)).group(1)) > 0
        text = pool.sqlite("points", table, "1000000", "0.2")
        assert json.loads(text.split("stats ")[1])["hits"] > 0, text


CHECKS = [(name, function) for name, function in sorted(globals().items())
          if name.startswith("check_") and name not in (
              "check_line", "check_interrupted")]

if __name__ == "__main__":
    sys.exit(run_each(
        [(name, check) for name, check in CHECKS
         if not sys.argv[4:] or any(part in name for part in sys.argv[4:])],
        Stage))
