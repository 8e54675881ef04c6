"""schema.py REEF SCHEMA - what commands print as JSON is what docs/schema.json
says, no more and no less."""

import json
import os
import re
import subprocess
import sys

from checks import run_checks
from pool_processes import Pool

REEF, SCHEMA = (os.path.abspath(path) for path in sys.argv[1:3])
PYTHONS = ("/usr/bin/python3", sys.executable)
# Run by a Python that has Debian's module. Each line of its input is the name of
# a definition and a value; it answers with what is wrong with them.
VALIDATE = """
import json, sys
from jsonschema import Draft202012Validator as Validator
schema = json.load(open(sys.argv[1], encoding="utf-8"))
Validator.check_schema(schema)
for line in sys.stdin:
    name, value = json.loads(line)
    one = dict(schema, **{"$ref": "#/$defs/" + name})
    for error in Validator(one).iter_errors(value):
        print(name, list(error.path), error.message)
"""


def faults(*pairs):
    """What the schema has against these (definition, value)."""
    python = next(path for path in PYTHONS if subprocess.run(
        [path, "-c", "import jsonschema"], check=False,
        capture_output=True).returncode == 0)
    return subprocess.run(
        [python, "-c", VALIDATE, SCHEMA], text=True, check=True,
        input="\n".join(map(json.dumps, pairs)),
        stdout=subprocess.PIPE).stdout.splitlines()


def check_every_output_is_as_the_schema_says(pool):
    pool.start("up", "up", "--lend", "64M", "--extent-size", "4M").saw("is up.")
    pool.do("user", "add", "ada", os.path.join(pool.home, "ada"))
    pool.do("user", "limit", "ada", "sessions=7")
    pool.do("space", "create", "s")
    pool.do("map", "put", "s", "m", "key", "value")
    pool.do("tree", "put", "s", "t", "key", "value")
    pool.do("log", "append", "s", "l", "an entry")
    pool.do("log", "tail", "s", "l", "--reader", "r")
    # Once more with what is not UTF-8.
    pool.do("map", "put", "s", "m", b"\xff", b"\xfe")
    pool.do("tree", "put", "s", "t", b"\xff", b"\xfe")
    pool.do("log", "append", "s", "l", b"\xff")
    pool.do("file", "put", "s", b"\xff", "/dev/null")
    pool.do("file", "put", "s", "f", "/dev/null")
    pool.do("lock", "l", "--", "true")
    pool.do("elect", "e", "--", "true")
    told = [(name, json.loads(line)) for name, command in (
        ("status", ("status", "--json")),
        ("users", ("user", "list", "--json")),
        ("lock", ("lock", "--json")),
        ("election", ("elect", "--json")),
        ("map", ("map", "list", "s", "--json")),
        ("map", ("map", "stats", "s", "m", "--json")),
        ("map_entry", ("map", "scan", "s", "m", "--json")),
        ("tree", ("tree", "list", "s", "--json")),
        ("tree", ("tree", "stats", "s", "t", "--json")),
        ("tree_entry", ("tree", "scan", "s", "t", "--json")),
        ("tree_entry", ("tree", "floor", "s", "t", "z", "--json")),
        ("log", ("log", "list", "s", "--json")),
        ("log", ("log", "stats", "s", "l", "--json")),
        ("log_entry", ("log", "read", "s", "l", "--json")),
        ("log_entry", ("log", "tail", "s", "l", "--json")),
        ("log_reader", ("log", "readers", "s", "l", "--json")),
        ("file", ("file", "list", "s", "--json")),
        ("file", ("file", "stat", "s", "f", "--json")),
        ("files", ("file", "df", "s", "--json")),
        ("doctor", ("doctor", "--json")),
    ) for line in pool.do(*command).splitlines()]
    # It writes the same for people beside it.
    figures = os.path.join(pool.home, "figures")
    subprocess.run([REEF, "bench", "fabric", "--quick", "--case", "fiber-*",
                    "--json", figures], check=True, capture_output=True)
    with open(figures, encoding="utf-8") as stream:
        told += [("bench", json.loads(line)) for line in stream]
    assert len(told) >= 20 and len({name for name, _ in told}) == 15, told
    assert set(re.findall(r'"(\w+_base64)"', json.dumps(told))) == {
        "key_base64", "value_base64", "text_base64", "file_base64"}, told
    status = dict(told)["status"]
    for part in ("nodes", "spaces", "sessions", "events"):
        assert status[part], status
    assert not faults(*told), faults(*told)
    # The check can fail: a member too few, one too many, one of another type.
    few = {key: value for key, value in status.items() if key != "stuck"}
    many = dict(status, colour="blue")
    other = dict(status, pool_epoch="7")
    for wrong in few, many, other:
        assert len(faults(("status", wrong))) == 1, wrong.keys()
    for wrong in ({"key": "k"}, {"key": "k", "value": "v", "key_base64": "/w=="}):
        assert faults(("map_entry", wrong)), wrong


if __name__ == "__main__":
    sys.exit(run_checks(globals(), lambda: Pool(REEF)))
