"""redis_clients.py REEF HIREDIS TOP - real clients, unchanged, with the same
script against a redis-server and against the door: what they say is the same.

HIREDIS is the program of redis_hiredis.c ("" where there is no hiredis), TOP the
top of the source tree: clients for node are in its build-node (tools/setup).
What is not installed is skipped, or fails where all must be tested (CI=true).
"""

import difflib
import os
import re
import shutil
import subprocess
import sys

from checks import Skipped, run_checks
from redis_replies import Both
from redis_servers import skip, without_redis

REEF = os.path.abspath(sys.argv[1])
HERE = os.path.dirname(os.path.abspath(__file__))
PYTHONS = ("/usr/bin/python3", shutil.which("python3"), sys.executable)
TIMEOUT_S = 120


def missing(what):
    """Say so, and fail where nothing may be missing."""
    assert os.environ.get("CI") != "true", what
    raise Skipped(what)


def run(argv, **more):
    done = subprocess.run(argv, capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, timeout=TIMEOUT_S,
                          check=False, env={**os.environ, **more})
    assert done.returncode == 0, (argv, done.stdout[-1000:],
                                  done.stderr[-3000:])
    return done.stdout


def same(both, argv_for, **more):
    """What the program says of each; it must be the same."""
    theirs, ours = (run(argv_for(server), **more).splitlines()
                    for server in (both.theirs, both.ours))
    assert theirs == ours, "\n".join(
        line[:400] for line in difflib.unified_diff(
            theirs, ours, "redis", "door", lineterm="", n=0))
    assert len(theirs) > 3, theirs


def check_hiredis(both):
    program = sys.argv[2]
    if not program:
        missing("hiredis is not installed (libhiredis-dev)")
    both.begin()
    same(both, lambda server: [program, server.path])


def check_python(both):
    for python in filter(None, PYTHONS):
        if subprocess.run([python, "-c", "import redis"], check=False,
                          capture_output=True).returncode == 0:
            break
    else:
        missing("no python3 has the module redis (python3-redis)")
    both.begin()
    same(both, lambda server: [
        python, os.path.join(HERE, "redis_python.py"), server.path])


def node(both, *scripts):
    modules = os.path.join(os.path.abspath(sys.argv[3]), "build-node")
    if not shutil.which("node"):
        missing("node is not installed (nodejs)")
    if not os.path.isfile(os.path.join(modules, "installed")):
        missing("the clients for node are not installed "
                "(tools/setup test)")
    both.begin()
    for name, *arguments in scripts:
        same(both, lambda server: [
            "node", os.path.join(HERE, "node", name), server.path,
            *arguments], REDIS_CLIENTS=modules)


def check_node_redis(both):
    node(both, ("node-redis.mjs", "2"), ("node-redis.mjs", "3"))


def check_ioredis(both):
    node(both, ("ioredis.mjs",))


# --- redis-cli and redis-benchmark ---

CLI = r"""
ping
set a "hello world"
get a
get none
set b 1 ex 100
incr b
mget a b none
append a !
strlen a
nosuch x y
set a
multi
incr b
get a
exec
object encoding b
select 1
get a
select 0
rename a c
exists a c
del c b
dbsize
type none
config get databases
client setname cli
client getname
command info get
echo "a\x00b\n"
"""


def cli(server, *arguments, stdin=None, tcp=False):
    where = ["-p", str(server.port)] if tcp else ["-s", server.path]
    done = subprocess.run(
        ["redis-cli", *where, *arguments], capture_output=True, text=True,
        timeout=TIMEOUT_S, check=False, input=stdin,
        stdin=None if stdin is not None else subprocess.DEVNULL)
    # After what took half a second it says so.
    text = re.sub(r"^\(\d+\.\d\ds\)\n", "", done.stdout, flags=re.M)
    text += done.stderr
    # Connections have numbers.
    return re.sub(r"(\"?id\"? ?(=>)? ?\(integer\) |id=|\"id\",)\d+", "id",
                  "%d\n%s" % (done.returncode, text))


def check_redis_cli(both):
    both.begin()
    value = "x" * 100000
    for arguments, stdin in (
            ((), CLI), (("-3",), CLI), (("--no-raw",), CLI),
            (("--no-raw", "-3"), CLI), (("--raw",), CLI),
            (("--csv",), CLI), (("--json", "-3"), CLI),
            (("-n", "3"), "set k v\nget k\n"),
            (("-n", "99"), "get k\n"), (("-e", "nosuch"), None),
            (("-x", "set", "big"), value), (("strlen", "big"), None),
            (("get", "big"), None), (("-r", "5", "incr", "n"), None),
            (("ping",), None),
            (("--pipe",), "SET p1 1\r\nSET p2 2\r\nINCR p1\r\nNOSUCH\r\n"),
            (("mget", "p1", "p2"), None),
            (("-a", "wrong", "ping"), None)):
        for tcp in (False, True):
            theirs, ours = (cli(server, *arguments, stdin=stdin, tcp=tcp)
                            for server in (both.theirs, both.ours))
            assert theirs == ours, "%s:\n%s" % (arguments, "\n".join(
                line[:300] for line in difflib.unified_diff(
                    theirs.splitlines(), ours.splitlines(), "redis", "door",
                    lineterm="", n=0)))
    for server in (both.theirs, both.ours):
        cli(server, "flushall")
        cli(server, stdin="".join("set scan:%d x\n" % i for i in range(500)))
    theirs, ours = (sorted(cli(server, "--scan", "--pattern", "scan:1*")
                           .splitlines())
                    for server in (both.theirs, both.ours))
    assert theirs == ours and len(ours) == 112, (theirs, ours)
    for option in ("--bigkeys", "--memkeys"):
        text = cli(both.ours, option)
        assert text.startswith("0\n") and "500 keys" in text, text[-500:]


def check_redis_benchmark(both):
    """It runs to its end, in every way it has, with no error."""
    if not shutil.which("redis-benchmark"):
        missing("redis-benchmark is not installed (redis-tools)")
    both.begin()
    tests = "ping_inline,ping_mbulk,set,get,incr,mset"
    for arguments in ((), ("-P", "16"), ("-3",), ("-r", "1000", "-c", "5"),
                      ("-d", "100000", "-n", "500"), ("-k", "0", "-n", "500"),
                      ("--threads", "2"), ("--dbnum", "3")):
        text = run(["redis-benchmark", "-p", str(both.ours.port), "-n", "3000",
                    "-t", tests, "-q", *arguments])
        found = set(re.findall(r"^(\w+)[^:\r\n]*: [\d.]+ requests per second",
                               text.replace("\r", "\n"), re.MULTILINE))
        assert found >= {"PING_INLINE", "PING_MBULK", "SET", "GET", "INCR",
                         "MSET"}, (arguments, text)
    run(["redis-benchmark", "-p", str(both.ours.port), "-n", "1000", "-q",
         "-r", "100", "GETRANGE", "key:__rand_int__", "0", "-1"])


if __name__ == "__main__":
    WHY = without_redis()
    if WHY:
        skip(WHY)
    sys.exit(run_checks(globals(), lambda: Both(REEF), sys.argv[4:]))
