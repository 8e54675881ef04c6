"""pool.py REEF - the pool of real processes, from outside.

What a new user meets, what operators do, and what happens to brokers, nodes
and files that fail. Programs that use its memory: load.py.
"""

import base64
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys

from checks import run_checks
from pool_processes import Pool, free_port, has_ended, prepare_child, until

REEF = os.path.abspath(sys.argv[1])
SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))


# --- a new user ---


def check_walk(pool):
    up = pool.start("up", "up").saw("Ctrl-C")
    assert re.search(r"^Reef pool [0-9a-f]{16} is up\.$", up.out, re.M), up.out
    for text in (pool.run + "/broker.sock", pool.run + "/node.sock",
                 "tcp:127.0.0.1:", pool.data, "reef status"):
        assert text in up.out, (text, up.out)
    status = pool.do("status")
    assert "over shm" in status, status
    told = pool.status()
    assert told["fabric"] == "shm" and told["pool_epoch"] >= 1, told
    node, = told["nodes"]
    assert node["state"] == "ok" and node["capacity"] == 1 << 30, node
    assert told["spaces"] == told["sessions"] == [], told
    assert pool.do("node", "list").count("\n") == 3
    # The same over tcp, with the owner's credential.
    port = node["addresses"] and told["events"][0]["text"].split()[-1][4:]
    assert "over tcp" in pool.do(
        "status", "--pool", "reef://" + port,
        "--credential", pool.run + "/owner.credential")
    for folder in (pool.run, pool.data):
        assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700, folder
    assert up.stop(signal.SIGINT) == 0, up.error
    assert up.error == "", up.error
    assert os.listdir(pool.run) == [], os.listdir(pool.run)
    pool.refused("status", text="Is `reef up` running?")


def check_readme(pool):
    """The walk of the README, as it stands there."""
    with open(os.path.join(SOURCE, "README.md"), encoding="utf-8") as stream:
        text = stream.read()
    walk = re.search(r"^## A walk$(.*?)^## ", text, re.M | re.S).group(1)
    lines = re.findall(r"^    \$ (.*)$", walk, re.M)
    with open(os.path.join(pool.home, "hello.c"), "w",
              encoding="utf-8") as stream:
        stream.write(re.search(r"```c\n(.*?)```", text, re.S).group(1))
    script, port = ["set -e", "trap 'kill $(jobs -p) 2>/dev/null || :' EXIT",
                    "cd " + pool.home], free_port()
    for line in lines:
        if line.startswith("sudo "):  # who is root needs none
            if os.geteuid():
                continue
            line = line[len("sudo "):]
        script.append(line.replace("-p 7379", "-p %d" % port))
        # People are slower.
        if line.split("#")[0].strip().endswith("&"):
            script.append("for i in $(seq 3000); do redis-cli -p %d ping "
                          ">ping 2>&1 && break; sleep 0.01; done" % port)
    script.append("wait $!")
    build = os.path.dirname(REEF)
    shell = pool.start(
        "walk", argv=["bash", "-c", "\n".join(script)], REEF_REDIS="yes",
        REEF_KEEP="holder image",
        REEF_REDIS_LISTEN="127.0.0.1:%d" % port,
        PATH=build + ":" + os.environ["PATH"],
        PKG_CONFIG_PATH=build + "/meson-uninstalled",
        CPATH=SOURCE + "/include", LD_LIBRARY_PATH=build + "/src")
    assert shell.end() == 0, (shell.out, shell.error)
    for wanted in ("is up.", "visit 1\n", "visit 2\n", "visits", "mine\n",
                   "I lead\n", "red\n", "OK\n", "green\n", "Stopping."):
        assert wanted in shell.out, (wanted, shell.out)
    # Before the pool was killed, and after.
    assert len(re.findall(r"^red$", shell.out, re.M)) == 2, shell.out
    # Bash says whom a signal ended.
    error = re.sub(r"^bash: line \d+: +\d+ Killed .*\n", "", shell.error)
    assert error == "", shell.error
    assert os.listdir(pool.run) == []


def check_up_again(pool):
    pool.start("up", "up").saw("Ctrl-C")
    pool.do("space", "create", "mine", "10M")
    error = pool.refused("up", text="already")
    assert pool.data in error, error
    # The first has not noticed.
    assert pool.status()["spaces"][0]["name"] == "mine"
    up = pool.processes[0]
    assert up.stop(signal.SIGTERM) == 0 and up.error == "", up.error
    assert os.listdir(pool.run) == [], os.listdir(pool.run)
    # What was kept is there, and what a dead one left is replaced.
    up = pool.start("up", "up").saw("Ctrl-C")
    up.kill()
    assert os.listdir(pool.run) != []
    pool.refused("status", text="Is `reef up` running?")
    up = pool.start("up", "up").saw("Ctrl-C")
    space, = pool.status()["spaces"]
    assert (space["name"], space["quota"]) == ("mine", 10 << 20), space
    assert pool.status()["broker_epoch"] == 3
    assert up.stop(signal.SIGHUP) == 0


def check_session_of_the_dead(pool):
    """The door dies with its pool. The next broker knows its session and its
    process from the journal, and ends it long before its lease is over. One
    that came over tcp may be anywhere: it is waited for, but not shown as one
    that is there."""
    up = ("up", "--ttl", "600s")
    first = pool.start("up", *up, REEF_REDIS="yes").saw("Ctrl-C")
    pool.do("space", "create", "locks")
    far = pool.start("far", "lock", "--space", "locks", "mine", "--", "sleep",
                     "600", REEF_FABRICS="tcp")
    until("both are there", lambda: len(pool.status()["sessions"]) == 2)
    door, lock = sorted(pool.status()["sessions"],
                        key=lambda row: row["fabric"])
    assert (door["state"], door["fabric"]) == ("alive", "shm"), door
    assert lock["fabric"].startswith("tcp"), lock
    assert re.search(r"^0*%x +alive +redis +%d .* shm$" % (
        door["session"], door["pid"]), pool.do("status"), re.M)
    far.kill()
    first.kill()
    pool.start("up", *up).saw("Ctrl-C")
    until("the door's end", lambda: all(
        row["state"] == "fenced" for row in pool.status()["sessions"]
        if row["session"] == door["session"]))
    again, = (row for row in pool.status()["sessions"]
              if row["session"] == lock["session"])
    assert (again["state"], again["fabric"]) == ("alive", ""), again
    shown = pool.do("status")
    assert re.search(r"^0*%x +away +- +- .* -$" % lock["session"], shown,
                     re.M), shown
    assert " away " in pool.do("session", "list")


def check_session_that_dies_late(pool):
    """Whoever dies with its broker may do so a moment after the next broker
    has started: its session does not wait for its lease either."""
    up = ("up", "--ttl", "600s")
    first = pool.start("up", *up).saw("Ctrl-C")
    pool.do("space", "create", "locks")
    late = pool.start("late", "lock", "--space", "locks", "mine", "--",
                      "sleep", "600")
    session, = until("it is there", lambda: pool.status()["sessions"])
    late.send(signal.SIGSTOP)
    first.kill()
    pool.start("up", *up).saw("Ctrl-C")
    again, = pool.status()["sessions"]
    assert (again["session"], again["state"], again["fabric"]) == (
        session["session"], "alive", ""), again
    late.kill()
    until("its end", lambda: all(
        row["state"] == "fenced" for row in pool.status()["sessions"]))


def check_janitor(pool):
    """What sessions leave is put in order though nobody has the space open;
    also when the janitor is killed, which is then started again."""
    # It dies with its pool.
    broker = pool.start("broker", "broker").saw("Ctrl-C")
    pid = until("the janitor", pool.janitor)["pid"]
    broker.kill()
    until("its end", lambda: has_ended(pid))
    up = pool.start("up", "up", "--ttl", "2s").saw("Ctrl-C")
    until("the janitor", pool.janitor)
    pool.do("space", "create", "maps")
    for turn in range(3):
        for i in range(8):
            pool.do("map", "put", "maps", "m", "key%d" % i, "%d" % turn)
        if turn == 1:
            os.kill(pool.janitor()["pid"], signal.SIGKILL)
        until("all are recovered", lambda: pool.status()["sessions"] == [])
        until("a janitor", pool.janitor)
    assert pool.do("map", "count", "maps", "m").strip() == "8"
    assert pool.do("map", "get", "maps", "m", "key3").strip() == "2"
    pid = pool.janitor()["pid"]
    assert up.stop(signal.SIGTERM) == 0, up.error
    assert re.fullmatch(r"reef up: the janitor was killed by signal 9; .*\n",
                        up.error), up.error
    assert not os.path.exists("/proc/%d" % pid)


def check_lost_memory(pool):
    """What was lost with a node is not shown as used."""
    up = pool.start("up", "up").saw("Ctrl-C")
    pool.do("space", "create", "a", "1G")
    pool.do("map", "put", "a", "m", "k", "v")
    before, = pool.status()["spaces"]
    assert before["used"] > 0 and before["lost"] == 0, before
    up.kill()
    pool.start("up", "up").saw("Ctrl-C")
    until("it is lost", lambda: pool.status()["spaces"][0]["lost"])
    after, = pool.status()["spaces"]
    assert (after["used"], after["lost"]) == (0, before["used"]), after
    assert re.search(r" lost +quota +copies$", pool.do("space", "list"), re.M)


def check_lost_memory_forgotten(pool):
    """Lost memory counts against the quota until it is forgotten. What was in
    it stays lost, and can be made anew."""
    up = pool.start("up", "up", "--extent-size", "4M").saw("Ctrl-C")
    pool.do("space", "create", "a", "4M")
    pool.do("map", "put", "a", "m", "k", "v")
    pool.do("space", "forget", "a")
    used = pool.status()["spaces"][0]["used"]
    assert used == 4 << 20, used
    up.kill()
    up = pool.start("up", "up").saw("Ctrl-C")
    until("it is lost", lambda: pool.status()["spaces"][0]["lost"])
    lost = pool.refused("map", "get", "a", "m", "k")
    pool.refused("map", "put", "a", "n", "k", "v")
    pool.refused("space", "forget", "b", text="b")
    pool.do("space", "forget", "a")
    space, = pool.status()["spaces"]
    assert (space["used"], space["lost"], space["extents"]) == (0, 0, 0), space
    pool.do("space", "forget", "a")
    pool.do("map", "put", "a", "n", "k", "v")
    assert pool.do("map", "get", "a", "n", "k") == "v\n"
    # Also for a broker that knows it from its journal.
    assert up.stop() == 0, up.error
    pool.start("up", "up").saw("Ctrl-C")
    assert pool.refused("map", "get", "a", "m", "k") == lost
    pool.do("map", "drop", "a", "m")


def check_spaces(pool):
    pool.start("up", "up").saw("Ctrl-C")
    pool.do("space", "create", "a", "100M")
    pool.do("space", "create", "b", "revocable")
    pool.do("space", "create", "c", "revocable", "1G")
    rows = {row["name"]: row for row in pool.status()["spaces"]}
    assert [rows[name]["quota"] for name in "abc"] == [100 << 20, 0, 1 << 30]
    assert [rows[name]["keeping"] for name in "abc"] == [
        "kept", "revocable", "revocable"], rows
    listed = pool.do("space", "list")
    assert re.search(r"^ +1 +a +shared +kept +0 +0 +100 MiB +1$", listed,
                     re.M), listed
    # One node has room for one copy: that is shown, and refused if strict.
    pool.do("space", "create", "twice", "--copies", "2")
    row = [r for r in pool.status()["spaces"] if r["name"] == "twice"][0]
    assert (row["copies"], row["copies_had"], row["degraded"]) == (2, 2, 0)
    pool.do("map", "put", "twice", "m", "k", "v")
    row = [r for r in pool.status()["spaces"] if r["name"] == "twice"][0]
    assert (row["copies"], row["copies_had"]) == (2, 1), row
    assert row["degraded"] == row["extents"] > 0, row
    assert re.search(r"twice .* 1 of 2 \(1 extent\)$", pool.do("space", "list"),
                     re.M)
    pool.do("space", "drop", "twice")
    assert "ENOSPC" in pool.refused("space", "create", "twice", "--copies", "2",
                                    "--strict")
    assert "1 or 2 copies" in pool.refused("space", "create", "twice",
                                           "--copies", "3", status=2)
    assert "revocable" in pool.refused("space", "create", "twice", "revocable",
                                       "--copies", "2", status=2)
    pool.do("space", "quota", "a", "2G")
    pool.do("space", "quota", "c", "none")
    rows = {row["name"]: row for row in pool.status()["spaces"]}
    assert [rows[name]["quota"] for name in "abc"] == [2 << 30, 0, 0], rows
    # A quota may be smaller than an extent is.
    pool.do("space", "create", "small", "5M")
    pool.do("map", "put", "small", "map", "key", "value")
    pool.refused("space", "quota", "small", "4M", text="uses more than that")
    assert pool.do("map", "get", "small", "map", "key") == "value\n"
    assert pool.status()["spaces"][3]["used"] == 5 << 20, pool.status()
    pool.do("space", "drop", "small")
    # A token is a secret of its own; revoking makes another.
    first = pool.do("space", "token", "a")
    assert first == pool.do("space", "token", "a", "write")
    assert first != pool.do("space", "token", "a", "read")
    assert first.startswith("reef-space-") and first.count("\n") == 1
    pool.do("space", "revoke", "a")
    second = pool.do("space", "token", "a")
    assert second != first
    file = os.path.join(pool.home, "token")
    pool.do("space", "token", "a", "write", file)
    with open(file, encoding="ascii") as stream:
        assert stream.read() == second
    assert stat.S_IMODE(os.stat(file).st_mode) == 0o600
    pool.refused("space", "token", "a", "write", file, text=file)
    pool.do("space", "drop", "1")  # by its number
    pool.do("space", "drop", "b")
    space, = pool.status()["spaces"]
    assert space["name"] == "c", space


def check_names(pool):
    pool.start("up", "up", "--lend", "64M").saw("Ctrl-C")
    pool.do("space", "create", "a")
    pool.do("name", "bind", "a", "one", "0x10")
    pool.do("name", "bind", "a", "two", "17")
    line = re.compile(r"^([0-9a-f]{16}) +(\d+)  (\S+)$", re.M)
    found = line.findall(pool.do("name", "list", "a"))
    assert [(row[0], row[2]) for row in found] == [
        ("%016x" % 16, "one"), ("%016x" % 17, "two")], found
    assert line.findall(pool.do("name", "list", "a", "t")) == found[1:]
    assert line.findall(pool.do("name", "look", "a", "one")) == found[:1]
    pool.refused("name", "bind", "a", "one", "5", text="already")
    pool.refused("name", "bind", "a", "six", "x", text="\"x\"")
    pool.refused("name", "look", "a", "six", text="no name \"six\"")
    pool.refused("name", "look", "b", "six", text="no space \"b\"")
    pool.refused("name", "bind", "a", "n" * 100000, "5", text="long")
    pool.refused("name", "bind", "a", status=2)
    pool.do("name", "unbind", "a", "one")
    assert line.findall(pool.do("name", "list", "a")) == found[1:]
    pool.processes[0].stop()
    pool.refused("name", "list", "a", text="Is `reef up` running?")


def check_logs(pool):
    pool.start("up", "up", "--lend", "256M").saw("Ctrl-C")
    pool.do("space", "create", "a")
    pool.refused("log", "read", "a", "l", text="no log \"l\"")
    pool.do("log", "append", "a", "l", "one")
    followers = [
        pool.start("follow-" + fabrics, "log", "tail", "-f", "a", "l",
                   REEF_FABRICS=fabrics).saw("one\n")
        for fabrics in ("shm", "tcp")]
    # `tail -f | head -1` ends with head, though nothing is appended.
    for more in [], ["--group", "g"]:
        tail = subprocess.Popen(
            [REEF, "log", "tail", "-f", "a", "l", *more],
            stdout=subprocess.PIPE, env=pool.environment())
        assert tail.stdout.readline() == b"one\n"
        tail.stdout.close()
        assert tail.wait(60) == -signal.SIGPIPE
    pool.do("log", "forget", "a", "l", "g")
    # From standard input, a line each, empty ones too; over shm and over tcp.
    lines = ["line %d" % i for i in range(50)] + ["", "x" * 1000]
    for fabrics in ("shm", "tcp"):
        subprocess.run(
            [REEF, "log", "append", "a", "l"], check=True, text=True,
            input="".join(line + "\n" for line in lines), timeout=60,
            env=pool.environment(REEF_FABRICS=fabrics))
    everything = "\n".join(["one"] + lines + lines) + "\n"
    assert pool.do("log", "read", "a", "l") == everything
    assert pool.do("log", "read", "a", "l", "1", "2") == "line 0\nline 1\n"
    for last in ["-n", "1"], ["-n1"], ["--last", "1"]:
        assert pool.do("log", "tail", "a", "l", *last) == "x" * 1000 + "\n"
    pool.refused("log", "tail", "a", "l", "-nope", status=2, text="\"ope\"")
    assert len(pool.do("log", "tail", "a", "l").splitlines()) == 10
    found = [json.loads(line) for line in pool.do(
        "log", "read", "a", "l", "50", "3", "--json").splitlines()]
    assert found == [{"position": 50 + i, "text": text} for i, text in
                     enumerate(["line 49", "", "x" * 1000])], found
    pool.do("log", "tail", "a", "l", "--reader", "r", "-n", "1")
    assert re.search(r"^r +one +1 +104 +0 +-$", pool.do(
        "log", "readers", "a", "l"), re.M)
    pool.do("log", "trim", "a", "l", "50")
    pool.refused("log", "read", "a", "l", "49", text="trimmed")
    pool.refused("log", "trim", "a", "l", "5000", text="beyond the tail")
    stats = json.loads(pool.do("log", "stats", "a", "l", "--json"))
    assert stats["first"] == 50 and stats["tail"] == 105, stats
    assert "105" in pool.do("log", "stats", "a", "l")
    assert json.loads(pool.do("log", "list", "a", "--json"))["log"] == "l"
    assert "open" in pool.do("log", "list", "a")
    # What cannot be appended is said, and how many lines were before it.
    for lines, told in (
            ("x" * 1048577 + "\n", "takes: 1 MiB"),
            ("one\ntwo\n" + "x" * 1048577, "2 lines were appended, then:")):
        append = subprocess.run(
            [REEF, "log", "append", "a", "odd"], input=lines, text=True,
            env=pool.environment(), timeout=60, stderr=subprocess.PIPE)
        assert append.returncode == 1 and told in append.stderr, append
    assert pool.do("log", "read", "a", "odd") == "one\ntwo\n"
    with open(pool.home + "/input", "wb") as stream:
        append = subprocess.run(
            [REEF, "log", "append", "a", "odd"], text=True, stdin=stream,
            env=pool.environment(), timeout=60, stderr=subprocess.PIPE)
    assert "lines: Bad file descriptor" in append.stderr, append
    pool.do("log", "drop", "a", "odd")
    # With order by cuts, each line by a process of its own.
    for flag in ("--sharded", "--early"):
        pool.do("log", "create", "a", "cuts" + flag, flag)
        for i in range(5):
            pool.do("log", "append", "a", "cuts" + flag, "line %d" % i)
        assert pool.do("log", "tail", "a", "cuts" + flag, "-n", "2") == (
            "line 3\nline 4\n")
        stats = json.loads(pool.do(
            "log", "stats", "a", "cuts" + flag, "--json"))
        assert stats["sharded"] and stats["tail"] == 5, stats
        assert stats["early"] == (flag == "--early"), stats
        assert stats["segments"] == 1, stats
        pool.do("log", "drop", "a", "cuts" + flag)
    # Who follows is told of the seal, and ends.
    pool.do("log", "seal", "a", "l")
    for follower in followers:
        assert follower.end() == 0, follower.error
        until("all was printed", lambda f=follower: f.out == everything)
    pool.refused("log", "append", "a", "l", "late", text="sealed")
    pool.refused("map", "get", "a", "l", "k", text="not a map")
    pool.do("log", "drop", "a", "l")
    pool.refused("log", "drop", "a", "l", text="no log \"l\"")
    pool.do("log", "create", "a", "l", "--keep", "100")
    for same in [], ["--keep", "100"]:
        pool.do("log", "create", "a", "l", *same)
    for other in (["--keep", "99"], ["--keep-size", "1M"], ["--sharded"],
                  ["--keep", "100", "--early"]):
        pool.refused("log", "create", "a", "l", *other, text="other options")
    pool.do("log", "create", "a", "cuts", "--sharded", "--keep-size", "1M")
    pool.do("log", "create", "a", "cuts", "--sharded", "--keep-size", "1M")
    pool.refused("log", "create", "a", "cuts", "--early", text="other options")
    pool.refused("log", "create", "a", "l", "--keep-size", "x", status=2)
    assert pool.ask("log", "read", "a").returncode == 2
    assert pool.ask("log", "create", "a", "l", "--json").returncode == 2
    assert pool.ask("log", "trim", "a", "l", "x").returncode == 2


def check_maps(pool):
    pool.start("up", "up", "--lend", "256M").saw("Ctrl-C")
    pool.do("space", "create", "a")
    pool.refused("map", "get", "a", "m", "k", text="no map \"m\"")
    pool.do("map", "put", "a", "m", "k", "one")
    assert pool.do("map", "get", "a", "m", "k") == "one\n"
    assert pool.do("map", "get", "a", "m", "k", "--raw") == "one"
    # From standard input, of any length; over shm and over tcp.
    large = bytes(range(256)) * (64 << 12)
    for fabrics, other in (("shm", "tcp"), ("tcp", "shm")):
        done = subprocess.run(
            [REEF, "map", "put", "a", "m", "large"], input=large, check=True,
            timeout=60, env=pool.environment(REEF_FABRICS=fabrics))
        done = subprocess.run(
            [REEF, "map", "get", "a", "m", "large", "--raw"], check=True,
            capture_output=True, timeout=60,
            env=pool.environment(REEF_FABRICS=other))
        assert done.stdout == large
    done = subprocess.run(
        [REEF, "map", "put", "a", "m", "large"], input=large + b"x",
        capture_output=True, check=False, timeout=60, env=pool.environment())
    assert done.returncode == 1 and b"too long" in done.stderr, done
    pool.do("map", "put", "a", "m", "brief", "x", "--expire", "1ms")
    until("it is gone", lambda: pool.ask(
        "map", "get", "a", "m", "brief").returncode == 1)
    pool.do("map", "put", "a", "m", "a\\b\nc", "")
    assert sorted(pool.do("map", "scan", "a", "m").split("\n")) == [
        "", "a\\x5cb\\x0ac", "k", "large"]
    assert pool.do("map", "scan", "a", "m", "la") == "large\n"
    assert pool.do("map", "count", "a", "m") == "3\n"
    pool.do("map", "delete", "a", "m", "k")
    pool.refused("map", "delete", "a", "m", "k", text="no key \"k\"")
    pool.do("map", "create", "a", "small", "--size", "1M", "--evict", "lru")
    row, = [json.loads(line) for line in pool.do(
        "map", "list", "a", "--json").splitlines()
            if "small" in line]
    assert (row["size_max"], row["eviction"], row["keys"]) == (
        1 << 20, "lru", 0), row
    assert json.loads(pool.do("map", "stats", "a", "m", "--json"))["keys"] == 2
    assert "depth" in pool.do("map", "stats", "a", "m")
    assert "small" in pool.do("map", "list", "a")
    pool.refused("map", "put", "a", "m", "k" * 70000, "x", text="longer")
    # What is there already is not silently something else.
    pool.do("map", "create", "a", "small", "--size", "1M")
    pool.refused("map", "create", "a", "small", "--size", "2M", text="already")
    pool.refused("map", "create", "a", "m", "--evict", "lfu", text="already")
    pool.refused("map", "create", "a", "n", "--evict", "x", status=2)
    pool.refused("map", "put", "a", "", "k", "x", text="not a name")
    pool.refused("map", status=2, text="a verb is missing")
    pool.refused("map", "fetch", status=2, text="no `reef map fetch`")
    pool.refused("map", "get", "a", "m", "k", "--expire", "1s", status=2,
                 text="does not take")
    pool.refused("map", "get", "a", "m", status=2)
    pool.refused("map", "count", "b", "m", text="no space \"b\"")
    pool.do("name", "bind", "a", "other", "5")
    pool.refused("map", "count", "a", "other", text="not a map")
    pool.do("map", "drop", "a", "m")
    pool.refused("map", "drop", "a", "m", text="no map \"m\"")


def check_trees(pool):
    pool.start("up", "up", "--lend", "256M").saw("Ctrl-C")
    pool.do("space", "create", "a")

    def tree(verb, *more, **environment):
        return pool.do("tree", verb, "a", "t", *more, **environment)

    def lines(*found):
        return "".join(line + "\n" for line in found)

    pool.refused("tree", "get", "a", "t", "k", text="no tree \"t\"")
    keys = ["", "a", "a\xff", "ab", "b", "ba", "c"]
    keys.sort(key=str.encode)
    for key in reversed(keys):
        tree("put", key, "value of " + key, REEF_FABRICS="tcp")
    shown = [key.replace("\xff", "\\xc3\\xbf") for key in keys]
    for begin, end, options in (
            (0, 7, []), (1, 7, ["--from", "a"]), (0, 4, ["--to", "b"]),
            (2, 6, ["--from", "ab", "--to", "c"]),
            (3, 6, ["--from", "aca", "--to", "bb"]),
            (0, 0, ["--from", "b", "--to", "a"])):
        expected = shown[begin:end]
        for fabrics in "shm", "tcp":
            assert tree("scan", *options, REEF_FABRICS=fabrics) == lines(
                *expected), options
            assert tree("scan", "--reverse", *options,
                        REEF_FABRICS=fabrics) == lines(*expected[::-1]), options
        assert tree("scan", "--limit", "2", *options) == lines(
            *expected[:2]), options
        assert tree("scan", "--limit", "2", "--reverse", *options) == lines(
            *expected[::-1][:2]), options
        assert tree("count", *options) == "%d\n" % (end - begin), options
        for verb, one in ("first", expected[:1]), ("last", expected[-1:]):
            if one:
                assert tree(verb, *options) == lines(*one), options
            else:
                pool.refused("tree", verb, "a", "t", *options,
                             text="no such key")
    assert tree("floor", "azz") == "ab\n" and tree("floor", "ab") == "ab\n"
    assert tree("ceiling", "b") == "b\n" and tree("ceiling", "bb") == "c\n"
    assert tree("floor", "b", "--values") == "b\tvalue of b\n"
    pool.refused("tree", "ceiling", "a", "t", "d", text="no such key")
    row = json.loads(tree("last", "--json"))
    assert row == {"key": "c", "value": "value of c"}, row
    assert tree("get", "ab") == "value of ab\n"
    assert tree("get", "ab", "--raw") == "value of ab"
    tree("delete", "ab")
    pool.refused("tree", "delete", "a", "t", "ab", text="no key \"ab\"")
    assert tree("delete-range", "--from", "b", "--to", "c") == "2\n"
    assert tree("delete-range", "--to", "b", "--limit", "1") == "1\n"
    assert tree("scan") == lines("a", "a\\xc3\\xbf", "c")
    for wrong in (["delete-range"], ["scan", "--limit", "x"],
                  ["scan", "--limit", "0"], ["count", "--raw"]):
        pool.refused("tree", wrong[0], "a", "t", *wrong[1:], status=2)
    pool.do("tree", "drop", "a", "t")
    pool.refused("tree", "drop", "a", "t", text="no tree \"t\"")


def check_files(pool):
    pool.start("up", "up", "--lend", "64M", "--extent-size", "4M").saw("Ctrl-C")
    pool.do("space", "create", "a")
    path, back = (os.path.join(pool.home, name) for name in ("in", "out"))
    # More than one transfer, a hole of some chunks, an odd end.
    large = os.urandom(1300000) + bytes(2000000) + b"the end"

    def piped(*words, **more):
        return subprocess.run([REEF, "file", *words], check=True, timeout=60,
                              stdout=subprocess.PIPE, **more)

    with open(path, "wb") as stream:
        stream.write(large)
    pool.refused("file", "get", "a", "f", back, text="no file \"f\" in a")
    assert not os.path.exists(back) and not os.path.exists(back + ".part")
    for fabrics in "shm", "tcp":
        environment = pool.environment(REEF_FABRICS=fabrics)
        pool.do("file", "put", "a", "f", path, REEF_FABRICS=fabrics)
        pool.do("file", "get", "a", "f", back, REEF_FABRICS=fabrics)
        with open(back, "rb") as stream:
            assert stream.read() == large, fabrics
        assert piped("cat", "a", "f", env=environment).stdout == large
        piped("put", "a", "g", "-", "--chunk", "4K", input=large[::-1],
              env=environment)
        assert piped("get", "a", "g", "-", env=environment).stdout == \
            large[::-1]
    told = json.loads(pool.do("file", "stat", "a", "f", "--json"))
    assert told["size"] == len(large) and told["chunk"] == 256 * 1024, told
    # Zeroes take no memory.
    assert told["taken"] < 2500000, told
    assert "size     %d\n" % len(large) in pool.do("file", "stat", "a", "f")
    rows = [json.loads(line) for line in pool.do(
        "file", "list", "a", "--json").splitlines()]
    assert {row["file"]: row["chunk"] for row in rows} == {
        "f": 256 * 1024, "g": 4096}, rows
    shown = pool.do("file", "list", "a")
    assert shown.index("\nf ") < shown.index("\ng "), shown
    assert "\ng " not in pool.do("file", "list", "a", "f")
    told = json.loads(pool.do("file", "df", "a", "--json"))
    assert told["files"] == 2 and told["size"] == 2 * len(large), told
    assert told["used"] >= told["taken"], told
    assert "files  2\n" in pool.do("file", "df", "a")
    # Nor do they take room on the disk when they come back, at the end too.
    with open(path, "wb") as stream:
        stream.write(b"x")
        stream.truncate(64 << 20)
    pool.do("file", "put", "a", "f", path)
    pool.do("file", "get", "a", "f", back)
    with open(back, "rb") as stream:
        assert stream.read() == b"x" + bytes((64 << 20) - 1)
    assert os.stat(back).st_blocks * 512 < 8 << 20, os.stat(back)
    pool.do("file", "put", "a", "f", "/dev/null")
    assert piped("cat", "a", "f", env=pool.environment()).stdout == b""
    pool.do("file", "get", "a", "g", "/dev/null")
    pool.do("file", "rm", "a", "g")
    pool.refused("file", "rm", "a", "g", text="no file \"g\"")


def check_files_refuse(pool):
    """A put that fails leaves the file as it was, and nothing beside it."""
    pool.start("up", "up", "--lend", "16M", "--extent-size", "4M").saw("Ctrl-C")
    pool.do("space", "create", "a", "8M")
    path = os.path.join(pool.home, "in")
    with open(path, "wb") as stream:
        stream.write(b"as before")
    pool.do("file", "put", "a", "f", path)
    for words, status, text in (
            (["put", "a", "x/y", path], 1, "not a name for a file"),
            (["put", "a", ".", path], 1, "not a name for a file"),
            (["put", "a", "..", path], 1, "not a name for a file"),
            (["put", "a", "x" * 256, path], 1, "ENAMETOOLONG"),
            (["put", "a", path], 1, "FILE is the name that it gets"),
            (["put", "a", "f", path + ".no"], 1, "No such file"),
            (["put", "a", "none"], 1, "PATH is - for standard input"),
            (["ls", "a"], 2, "`reef file ls`, but list, put, get"),
            (["put", "a", "f", pool.home], 1, "is a folder"),
            (["get", "a", "f", pool.home], 1, "is a folder"),
            (["get", "a", "f", path + "/x"], 1, "Not a directory"),
            (["get", "a", "none"], 1, "no file \"none\" in a"),
            (["put", "a", "f", path, "--chunk", "5000"], 2, "power of two"),
            (["put", "a", "f", path, "--chunk", "32M"], 2, "power of two"),
            (["list", "a", "--chunk", "4K"], 2, "does not take --chunk"),
            (["df", "b"], 1, "no space \"b\""), (["df"], 2, "takes SPACE")):
        pool.refused("file", *words, status=status, text=text)
    with open(path, "wb") as stream:
        stream.write(b"x" * (20 << 20))
    pool.refused("file", "put", "a", "f", path, text="EDQUOT")
    # What comes by a pipe ends in the middle: the signal is the exit status.
    put = subprocess.Popen([REEF, "file", "put", "a", "f", "-"],
                           stdin=subprocess.PIPE, env=pool.environment())
    put.stdin.write(b"y" * 100000)
    put.stdin.flush()
    until("it has begun", lambda: ".put." in pool.do("file", "list", "a"))
    put.send_signal(signal.SIGINT)
    assert put.wait(60) == -signal.SIGINT
    put.stdin.close()
    assert pool.do("file", "list", "a").count("stays") == 1
    assert pool.do("file", "cat", "a", "f") == "as before"


def check_own_names(pool):
    """What Reef itself keeps under a name is not for commands to change."""
    pool.start("up", "up", "--lend", "256M").saw("Ctrl-C")
    pool.do("space", "create", "a")
    for name in "f", "~f":
        pool.do("file", "put", "a", name, "/dev/null")
    named = pool.do("name", "list", "a")
    assert "~files" in named, named
    for words in (
            ["tree", "drop", "a", "~files"], ["tree", "create", "a", "~x"],
            ["tree", "put", "a", "~files", "k", "v"],
            ["tree", "delete", "a", "~files", "k"],
            ["tree", "delete-range", "a", "~files", "--from", "a"],
            ["map", "create", "a", "~x"], ["map", "put", "a", "~x", "k", "v"],
            ["map", "delete", "a", "~files", "k"], ["map", "drop", "a", "~x"],
            ["log", "create", "a", "~x"], ["log", "append", "a", "~x", "e"],
            ["log", "trim", "a", "~x", "0"], ["log", "seal", "a", "~x"],
            ["log", "forget", "a", "~x", "r"], ["log", "drop", "a", "~x"],
            ["name", "bind", "a", "~x", "5"], ["name", "unbind", "a", "~files"],
            ["lock", "--space", "a", "~x", "--", "true"],
            ["lock", "--space", "a", "--drop", "~files"],
            ["elect", "--space", "a", "~x", "--", "true"],
            ["elect", "--space", "a", "--drop", "~files"]):
        pool.refused(*words, status=2,
                     text="names that begin with ~ are Reef's own")
    for kind in "tree", "map", "log":
        assert "~" not in pool.do(kind, "list", "a"), kind
        assert pool.do(kind, "list", "a", "--json") == "", kind
    # They can be looked at; and a file may have such a name.
    assert json.loads(pool.do("tree", "stats", "a", "~files", "--json"))["keys"]
    assert "~files" in pool.do("name", "look", "a", "~files")
    pool.do("file", "rm", "a", "~f")
    assert pool.do("name", "list", "a") == named
    assert pool.do("file", "cat", "a", "f") == ""


def check_dumps(pool):
    """What is printed of keys and values is all of them, whatever they are."""
    pool.start("up", "up", "--lend", "256M").saw("Ctrl-C")
    pool.do("space", "create", "a")
    pairs = {"plain": b"v", "\xe4": "\xe4\ufffd".encode(), b"x\xff": b"\xc3",
             b"x\xfe": b"\0\xff", b"x\xef\xbf\xbd": b"", "a\\b\t\u202e": b"\n"}
    pairs = {key if isinstance(key, bytes) else key.encode(): value
             for key, value in pairs.items()}

    def member(row, name):
        assert (name in row) != (name + "_base64" in row), row
        return (row[name].encode() if name in row
                else base64.b64decode(row[name + "_base64"], validate=True))

    def rows(*words):
        return list(map(json.loads, pool.do(*words, "--json").splitlines()))

    for kind in "map", "tree":
        for key, value in pairs.items():
            subprocess.run([REEF, kind, "put", "a", kind, key], input=value,
                           check=True, timeout=60, env=pool.environment())
        assert {member(row, "key"): member(row, "value") for row in rows(
            kind, "scan", "a", kind)} == pairs, kind
        # For people: what their locale can show.
        for locale, a_umlaut in ("C", "\\xc3\\xa4"), ("C.UTF-8", "\xe4"):
            shown = pool.do(kind, "scan", "a", kind, LC_ALL=locale)
            other = "\ufffd" if locale != "C" else "\\xef\\xbf\\xbd"
            assert sorted(shown.splitlines()) == sorted([
                "plain", a_umlaut, "x\\xff", "x\\xfe", "x" + other,
                "a\\x5cb\\x09\\xe2\\x80\\xae"]), (locale, shown)
            shown = pool.do(kind, "scan", "a", kind, "--values", LC_ALL=locale)
            for line in ("plain\tv", a_umlaut + "\t" + a_umlaut + other,
                         "x\\xfe\t\\x00\\xff"):
                assert line in shown.splitlines(), (line, shown)
    row, = rows("map", "scan", "a", "map", "pl")
    assert row == {"key": "plain", "value": "v"}, row
    texts = [text for text in pairs.values() if text != b"\n"]
    subprocess.run([REEF, "log", "append", "a", "l"],
                   input=b"".join(text + b"\n" for text in texts),
                   check=True, timeout=60, env=pool.environment())
    for verb in "read", "tail":
        assert [member(row, "text") for row in rows(
            "log", verb, "a", "l")] == texts, verb
    for key in pairs:
        pool.do("file", "put", "a", key, "/dev/null")
        row, = rows("file", "stat", "a", key)
        assert member(row, "file") == key, row
    assert {member(row, "file") for row in rows(
        "file", "list", "a")} == set(pairs)


def check_trees_like_maps(pool):
    """What a tree does as a map does it."""
    pool.start("up", "up", "--lend", "256M").saw("Ctrl-C")
    pool.do("space", "create", "a")
    large = bytes(range(256)) * 1000
    subprocess.run([REEF, "tree", "put", "a", "t", "large"], input=large,
                   check=True, timeout=60, env=pool.environment())
    done = subprocess.run([REEF, "tree", "get", "a", "t", "large", "--raw"],
                          check=True, capture_output=True, timeout=60,
                          env=pool.environment(REEF_FABRICS="tcp"))
    assert done.stdout == large
    pool.do("tree", "put", "a", "t", "brief", "x", "--expire", "1ms")
    until("it is gone", lambda: pool.ask(
        "tree", "get", "a", "t", "brief").returncode == 1)
    pool.refused("tree", "put", "a", "t", "k" * 2000, "x", text="longer")
    pool.do("tree", "create", "a", "empty")
    pool.refused("tree", "first", "a", "empty", text="no such key")
    rows = {row["tree"]: row["keys"] for row in map(
        json.loads, pool.do("tree", "list", "a", "--json").splitlines())}
    assert rows == {"empty": 0, "t": 1}, rows
    assert "empty" in pool.do("tree", "list", "a")
    assert "height" in pool.do("tree", "stats", "a", "t")
    told = json.loads(pool.ask("doctor", "--space", "a", "--json").stdout)
    found = {one["name"]: one for one in told["findings"]}
    for name, keys in ("tree a/t", 1), ("tree a/empty", 0):
        assert found[name]["verdict"] == "ok", found
        assert found[name]["found"] == "%d keys, in order" % keys, found
    pool.refused("doctor", "--space", "none", text="none: ")
    pool.refused("map", "get", "a", "t", "k", text="not a map")


def check_users(pool):
    pool.start("up", "up").saw("Ctrl-C")
    file = os.path.join(pool.home, "fred")
    pool.do("user", "add", "fred", file)
    text = pool.do("user", "add", "anna")
    assert text.startswith("reef-user-"), text
    pool.refused("user", "add", "fred", text="already")
    status = pool.do("status", REEF_CREDENTIAL=file)
    assert "over shm" in status and "session" not in status.split("events")[1]
    # A user is not the owner.
    for order in (("user", "add", "eve"), ("node", "drain", "1")):
        pool.refused(*order, text="may not", REEF_CREDENTIAL=file)
    listed = pool.do("user", "list")
    assert "fred" in listed and "anna" in listed, listed
    pool.do("user", "remove", "fred")
    assert "fred" not in pool.do("user", "list")
    pool.refused("status", text="does not take this credential",
                 REEF_CREDENTIAL=file)
    os.chmod(file, 0o644)
    pool.refused("status", text="chmod 600", REEF_CREDENTIAL=file)


# --- brokers and nodes in processes of their own ---


def check_processes(pool):
    broker = pool.broker("--node-ttl", "2s")
    near = pool.node("near", "--lend", "64M")
    far = pool.node("far", "--lend", "64M", broker=pool.tcp)
    pool.node_is("near", "ok")
    pool.node_is("far", "ok")
    pool.do("space", "create", "kept", "1G")
    pool.do("user", "add", "fred", os.path.join(pool.home, "fred"))
    before = pool.status()
    token = pool.do("space", "token", "kept")
    # The broker is killed: everything comes back, nobody is dead.
    broker.kill()
    broker = pool.broker("--node-ttl", "2s")
    pool.node_is("near", "ok")
    pool.node_is("far", "ok")
    after = pool.status()
    for name in ("pool", "pool_epoch", "spaces"):
        assert before[name] == after[name], (before, after)
    assert after["broker_epoch"] == before["broker_epoch"] + 1
    lives = {row["name"]: row["incarnation"] for row in before["nodes"]}
    assert lives == {row["name"]: row["incarnation"]
                     for row in after["nodes"]}, (before, after)
    assert token == pool.do("space", "token", "kept")
    assert "fred" in pool.do("user", "list")
    # A node is killed: dead, in a new epoch; it returns as another.
    far.kill()
    pool.node_is("far", "dead")
    told = pool.status()
    assert told["pool_epoch"] > after["pool_epoch"], told
    assert pool.nodes()["near"]["state"] == "ok"
    pool.node("far", "--lend", "64M", broker=pool.tcp)
    pool.node_is("far", "ok")
    assert pool.nodes()["far"]["incarnation"] != lives["far"]
    # Nodes that are stopped leave cleanly, and may be forgotten.
    assert near.stop() == 0 and near.error == "", near.error
    pool.node_is("near", "dead")
    pool.do("node", "remove", "near")
    assert list(pool.nodes()) == ["far"]
    assert broker.stop(signal.SIGINT) == 0 and broker.error == "", broker.error
    assert os.listdir(pool.run) == []


def check_addresses_without_fabric(pool):
    """HOST:PORT is tcp:HOST:PORT, wherever an address is asked for."""
    place = "127.0.0.1:%d" % free_port()
    broker = pool.start("broker", "broker", "--listen", place).saw("is up.")
    assert "tcp:" + place in broker.out, broker.out
    node = pool.start(
        "node", "node", "--broker", place, "--node-listen", "127.0.0.1:0",
        "--run", os.path.join(pool.home, "other"),
        "--node-key", pool.node_key("other"), "--lend", "64M").saw("is up.")
    assert "tcp:" + place in node.out, node.out
    # How the pool is used is said where its broker is.
    for text in ("others reach", "reef_open", "reef user add"):
        until("it is said", lambda t=text: t in broker.out)
        assert text not in node.saw("Ctrl-C").out, node.out
    pool.node_is("other", "ok")
    assert "tcp:127.0.0.1:" in pool.nodes()["other"]["addresses"]
    assert "over tcp" in pool.do(
        "status", "--pool", place,
        "--credential", pool.run + "/owner.credential")
    assert node.stop() == 0 and broker.stop() == 0, (node.error, broker.error)


def check_encryption(pool):
    """tls = yes for all of a pool on loopback; who says otherwise is told."""
    broker = pool.broker(REEF_TLS="yes")
    node = pool.node("far", "--lend", "64M", broker=pool.tcp, REEF_TLS="yes")
    pool.node_is("far", "ok")
    far = ["--pool", "reef://" + pool.tcp[4:],
           "--credential", pool.run + "/owner.credential"]
    assert "over tcp" in pool.do("status", *far, "--tls", "yes")
    pool.do("space", "create", "a")
    pool.do("map", "put", "a", "m", "k", "one", *far,
            "--fabrics", "tcp", REEF_TLS="yes")
    assert pool.do("map", "get", "a", "m", "k", *far, "--fabrics", "tcp",
                   "--tls", "yes") == "one\n"
    for tls in ("auto", "no"):
        for order in (("status",), ("map", "get", "a", "m", "k")):
            pool.refused(*order, *far, "--fabrics", "tcp", "--tls", tls,
                         text="disagree about encryption; see --tls")
    pool.refused("node", "--node-key", pool.node_key("other"), "--broker",
                 pool.tcp, "--run", pool.home + "/run-other", "--lend", "64M",
                 text="disagree about encryption; see --tls")
    pool.refused("status", "--tls", "maybe", status=2, text="tls")
    assert node.stop() == 0 and broker.stop() == 0, (node.error, broker.error)


def check_drain(pool):
    pool.broker()
    pool.node("one", "--lend", "64M")
    two = pool.node("two", "--lend", "64M")
    pool.node_is("two", "ok")
    pool.refused("node", "remove", "one", text="drain")
    assert "reef status" in pool.do("node", "drain", "one")
    pool.node_is("one", "drained")
    pool.do("node", "undrain", "one")
    pool.node_is("one", "ok")
    pool.do("node", "drain", "two")
    pool.node_is("two", "drained")
    pool.refused("node", "remove", "two", text="stop")
    two.stop()
    pool.do("node", "remove", "two")
    assert list(pool.nodes()) == ["one"]
    # Its key is void, also when there is another node of that name.
    old = ["node", "--node-key", pool.node_key("two"), "--run",
           pool.home + "/run-two", "--broker", pool.tcp, "--lend", "64M"]
    pool.refused(*old, text="was removed")
    pool.do("node", "add", "two", pool.home + "/two-again.key")
    pool.refused(*old, text="was removed")
    pool.do("node", "remove", "two")
    pool.refused("node", "drain", "three", text="no node \"three\"")


def check_nodes_wait(pool):
    """A node that starts before its broker waits for it."""
    broker = pool.broker()
    key = pool.node_key("early")
    assert pool.nodes()["early"]["state"] == "expected"
    broker.kill()
    node = pool.start("early", "node", "--node-key", key, "--broker",
                      pool.tcp, "--lend", "64M")
    node.saw("looks for its broker")
    pool.broker()
    pool.node_is("early", "ok")


# --- two of them ---


def check_two_brokers(pool):
    pool.broker()
    before = pool.status()
    error = pool.refused("broker", "--run", pool.home + "/run-other",
                         "--listen", "tcp:127.0.0.1:0", text="another broker")
    assert pool.data in error, error
    # Another pool in the same places.
    error = pool.refused("broker", "--data", pool.home + "/data-other",
                         "--listen", "tcp:127.0.0.1:0", text="already")
    assert "broker.sock" in error, error
    error = pool.refused("broker", "--data", pool.home + "/data-third",
                         "--run", pool.home + "/run-third", text="already")
    assert pool.tcp in error, error
    after = pool.status()
    for name in ("pool", "broker_epoch", "pool_epoch"):
        assert before[name] == after[name]
    with open(pool.run + "/broker", encoding="ascii") as stream:
        assert pool.tcp in stream.read()


# --- keys ---


def check_keys(pool):
    broker = pool.broker()
    key = pool.data + "/pool.key"
    other = os.path.join(pool.home, "other")
    assert stat.S_IMODE(os.stat(key).st_mode) == 0o600
    # Another pool's node.
    stranger = pool.start("stranger", "broker", "--data", other, "--run",
                          other + "-run", "--listen", "tcp:127.0.0.1:0")
    stranger.saw("is up.")
    pool.do("node", "add", "near", other + "/node.key",
            REEF_RUN=other + "-run")
    assert stat.S_IMODE(os.stat(other + "/node.key").st_mode) == 0o600
    stranger.stop()
    pool.node_key("near")
    for name, place in (("near", None), ("far", pool.tcp)):
        error = pool.refused(
            "node", "--run", pool.home + "/run-" + name,
            "--data", other, "--broker",
            place or "shm:%s/broker.sock" % pool.run, text="key")
        assert "another pool" in error, error
    assert pool.nodes()["near"]["state"] == "expected"
    # The pool's key is not a node's, and there is one node of a name.
    error = pool.refused("node", "--run", pool.home + "/run-3", "--node-key",
                         key, "--broker", pool.tcp, text=key)
    pool.refused("node", "add", "near", text="near")
    # A node without any; two with one.
    pool.refused("node", "--run", pool.home + "/run-3", "--data",
                 pool.home + "/data-3", "--broker", pool.tcp,
                 text="--node-key")
    pool.node("near", "--lend", "64M")
    pool.refused("node", "--run", pool.home + "/run-3", "--node-key",
                 pool.node_key("near"), "--broker", pool.tcp, "--lend", "64M",
                 text="another node runs with the key")
    # One that others may read, that is a link, that is mistyped.
    broker.stop()
    with open(key, encoding="ascii") as stream:
        text = stream.read()
    os.chmod(key, 0o640)
    error = pool.refused("broker", text="chmod 600 " + key)
    os.chmod(key, 0o600)
    wrong = text[:20] + ("a" if text[20] != "a" else "b") + text[21:]
    with open(key, "w", encoding="ascii") as stream:
        stream.write(wrong)
    error = pool.refused("broker", text=key)
    assert text[12:30] not in error and wrong[12:30] not in error, error
    with open(key, "w", encoding="ascii") as stream:
        stream.write(text)
    os.chmod(pool.data, 0o755)
    pool.refused("broker", text="chmod 700 " + pool.data)
    os.chmod(pool.data, 0o700)
    pool.broker()


# --- the journal's files ---


def journal_of(pool):
    folder = pool.data + "/journal"
    files = {}
    for name in os.listdir(folder):
        with open(os.path.join(folder, name), "rb") as stream:
            files[name] = stream.read()
    return files


def write_journal(pool, name, data):
    with open(os.path.join(pool.data, "journal", name), "wb") as stream:
        stream.write(data)


def check_torn_journal(pool):
    broker = pool.broker()
    for name in "abcd":
        pool.do("space", "create", name)
    broker.kill()
    segment = max(name for name in journal_of(pool) if "segment" in name)
    whole = journal_of(pool)[segment]
    for cut in (1, 3, 8, 40):
        write_journal(pool, segment, whole[:-cut])
        broker = pool.broker()
        names = [row["name"] for row in pool.status()["spaces"]]
        assert names == list("abcd")[:len(names)] and len(names) >= 2, names
        broker.kill()
        for name in journal_of(pool):
            if "segment" in name and name != segment:
                os.unlink(os.path.join(pool.data, "journal", name))


def check_corrupt_journal(pool):
    broker = pool.broker()
    for name in "abcd":
        pool.do("space", "create", name)
    assert broker.stop() == 0
    whole = journal_of(pool)
    del whole["journal"]  # nothing but the lock
    for name, data in whole.items():
        places = {len(data) // 2, len(data) // 3} if data else set()
        for place in places:
            write_journal(pool, name, data[:place] +
                          bytes([data[place] ^ 0x40]) + data[place + 1:])
            damaged = journal_of(pool)
            error = pool.refused("broker", text=name)
            assert re.search(r"\b(at|byte|position) \d+", error), error
            assert "journal" in error, error
            assert journal_of(pool) == damaged, "something was changed"
            write_journal(pool, name, data)
    pool.broker()
    assert len(pool.status()["spaces"]) == 4


# --- settings and arguments ---


def check_settings(pool):
    file = os.path.join(pool.home, "reef.conf")

    def write(text):
        with open(file, "w", encoding="ascii") as stream:
            stream.write(text)

    write("lned = 1G\n")
    error = pool.refused("up", "--config", file, status=2, text="lned")
    assert file + ":1" in error and "lend" in error, error
    for line, text in (("ttl = soon", "soon"), ("lend = 0", "lend"),
                       ("extent-size = 1000", "extent-size"),
                       ("extent-size = 8G", "extent-size"),
                       ("listen = localhost", "listen"),
                       ("name = a/b", "name"), ("run = here", "run"),
                       ("log = loud", "loud"), ("lend = 1G\nlend = 2G", ":2")):
        write(line + "\n")
        for command in ("up", "broker", "node", "status", "space"):
            error = pool.refused(command, "--config", file, status=2,
                                 text=text)
            assert file in error, error
        pool.refused("up", "--check-config", "--config", file, status=2,
                     text=text)
    write("lend = 2G\nttl = 3s\n")
    for command in ("up", "broker", "node", "status", "session"):
        shown = pool.do(command, "--check-config", "--config", file,
                        REEF_NODE_TTL="4s")
        assert "lend = 2G  # %s:1" % file in shown, shown
        assert "node-ttl = 4s  # REEF_NODE_TTL" in shown, shown
    pool.refused("up", "--ttl", "3", "--config", file, status=2, text="ttl")
    pool.refused("up", status=2, text="REEF_TTL", REEF_TTL="-1s")
    assert not os.path.exists(pool.data) and not os.path.exists(pool.run)


def check_arguments(pool):
    commands = re.findall(r"^  (\w+) ", pool.do("help"), re.M)
    assert {"up", "status", "broker", "node", "space"} <= set(commands)
    for command in commands:
        if command == "help":
            continue
        text = pool.do(command, "--help")
        assert text.startswith("usage: reef " + command), text
        assert pool.do("help", command) == text, command
        long = [line for line in text.splitlines() if len(line) > 80]
        assert not long or command in ("bench", "sim"), long
    assert pool.do("help", "help") == pool.do("help")
    for arguments, text in (
            (("help", "nothing"), "\"nothing\""),
            (("up", "now"), "\"now\""), (("broker", "x"), "\"x\""),
            (("status", "x"), "\"x\""), (("space",), "verb"),
            (("space", "eat"), "\"eat\""), (("space", "drop"), "SPACE"),
            (("space", "create", "a", "b", "c", "d"), "NAME"),
            (("node", "drain"), "NODE"), (("node", "fly", "a"), "\"fly\""),
            (("user", "add"), "NAME"), (("session", "end"), "SESSION"),
            (("up", "--fly"), "--fly"), (("nothing",), "\"nothing\"")):
        pool.refused(*arguments, status=2, text=text)
    for word, meant in (("mpa", "map"), ("statsu", "status"), ("spce", "space"),
                        ("holdd", None), ("nothing", None), ("", None)):
        told = pool.refused(word, status=2, text="no command \"%s\"" % word)
        assert told.count("\n") == 2 and "reef help" in told, told
        assert ("did you mean %s?" % meant in told if meant
                else "mean" not in told), told


def check_taken_port(pool):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = "127.0.0.1:%d" % taken.getsockname()[1]
        for flag in "listen", "node-listen", "redis-listen":
            told = pool.refused("up", "--redis=yes", "--" + flag, port,
                                text="somebody listens")
            assert port in told and "--" + flag in told, told


def check_more_than_there_is(pool):
    up = pool.start("up", "up", "--lend", "64T").saw("Ctrl-C")
    assert "lends 64 TiB" in up.out, up.out
    assert "more than this machine has, " in up.out, up.out


def check_full_pool(pool):
    pool.start("up", "up", "--lend", "64M").saw("Ctrl-C")
    for space in "a", "b":
        pool.do("space", "create", space)
    pool.do("map", "put", "a", "m", "k", "v")
    # One small value has taken all there was: say what a space takes.
    pool.refused("map", "put", "b", "m", "k", "v", text="by whole extents")


def check_bad_orders(pool):
    pool.start("up", "up", "--lend", "64M").saw("Ctrl-C")
    pool.do("space", "create", "a")
    before = pool.status()
    long = "n" * 100000
    for order, text in (
            (("space", "create", "a"), "already"),
            (("space", "create", "a\u009bb"), "control characters"),
            (("space", "create", long), "long"),
            (("space", "quota", "nix", "5M"), "no space \"nix\""),
            (("space", "drop", "nix"), "no space \"nix\""),
            (("space", "revoke", "nix"), "no space \"nix\""),
            (("user", "add", long), "long"),
            (("user", "remove", "nix"), "no user \"nix\""),
            (("node", "reclaim", "nix", "1G"), "no node \"nix\""),
            (("session", "end", "12345678"), "no session \"12345678\"")):
        error = pool.refused(*order, text=text)
        assert error.startswith("reef %s: " % order[0]), error
        assert len(error) < 500, error
    for order, text in (
            (("user", "add", ""), "name"),
            (("space", "create", "z", "0"), "quota"),
            (("space", "create", "z", "much"), "much"),
            (("space", "create", "z", "1M"), "at least 2 MiB"),
            (("space", "create", "z", "2097151"), "at least 2 MiB"),
            (("space", "create", "z", "3M", "--copies", "2"),
             "at least 4 MiB with 2 copies"),
            (("space", "create", ""), "name"),
            (("space", "quota", "a", "0"), "quota"),
            (("space", "quota", "a", "5X"), "5X"),
            (("space", "token", "a", "everything"), "everything"),
            (("node", "reclaim", "1", "lots"), "lots")):
        pool.refused(*order, status=2, text=text)
    after = pool.status()
    assert before["spaces"] == after["spaces"], after
    # The least is enough to put something.
    pool.do("space", "create", "least", "2M")
    pool.do("map", "put", "least", "m", "key", "value")
    pool.do("space", "drop", "least")
    assert len(pool.do("user", "list").splitlines()) <= 3
    pool.refused("status", "--pool", "reef://127.0.0.1:1", "--credential",
                 pool.run + "/owner.credential", text="127.0.0.1:1")
    pool.refused("status", "--credential", pool.home + "/none",
                 text=pool.home + "/none")
    pool.refused("status", "--pool", "embedded:1G", text="embedded")
    # A space that no node could ever hold is said so when it asks; the
    # node lends what it was told and not more.
    assert pool.status()["nodes"][0]["capacity"] == 64 << 20


def check_where_it_prints(pool):
    pool.start("up", "up").saw("Ctrl-C")
    ascii_only = pool.do("status", LC_ALL="C")
    ascii_only.encode("ascii")
    assert pool.do("status", LC_ALL="C.UTF-8")
    for order in (("status",), ("status", "--json"), ("space", "list"),
                  ("node", "list"), ("user", "list"), ("user", "add", "a"),
                  ("space", "--help"), ("version",), ("help",),
                  ("up", "--check-config")):
        with open("/dev/full", "wb") as full:
            done = subprocess.run(
                [REEF, *order], stdout=full, stderr=subprocess.PIPE,
                stdin=subprocess.DEVNULL, timeout=60, check=False,
                env=pool.environment())
        assert done.returncode == 1, (order, done)
        assert b"No space left" in done.stderr, (order, done.stderr)
    # Nobody reads what a server says: it serves all the same.
    other = {"REEF_DATA": pool.home + "/d2", "REEF_RUN": pool.home + "/r2"}
    with subprocess.Popen(
            ["/bin/sh", "-c", "exec \"$0\" up >&- 2>&- <&-", REEF],
            env=pool.environment(**other), preexec_fn=prepare_child) as silent:
        until("it serves", lambda: pool.ask(
            "status", **other).returncode == 0)
        names = [row["name"] for row in json.loads(
            pool.do("status", "--json", **other))["nodes"]]
        assert len(names) == 1, names
        silent.send_signal(signal.SIGINT)
        assert silent.wait(60) in (0, 1), silent.returncode
    assert os.listdir(pool.home + "/r2") == []


if __name__ == "__main__":
    sys.exit(run_checks(globals(), lambda: Pool(REEF), sys.argv[2:]))
