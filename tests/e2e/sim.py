"""sim.py REEF - `reef sim` prints tables and draws charts.

That the shapes are right is for the unit tests (test_shape.c, test_locks.c,
test_trees.c, test_txns_sim.c); here, that they are told: the same on every run, in files that a
browser can read.
"""

import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

REEF = os.path.abspath(sys.argv[1])
TIMEOUT_S = 240
CHARTS = {
    "copies": ["copies-map", "copies-map-wait"],
    "fabric": ["fabric-atomics", "fabric-connections", "fabric-pages",
               "fabric-threads"],
    "log": ["log-append", "log-append-wait"],
    "locks": ["locks-hot", "locks-hot-wait", "locks-zipf", "locks-zipf-wait"],
    "tree": ["tree-insert", "tree-lookup", "tree-lookup-64",
             "tree-lookup-tight", "tree-update"],
    "txn": ["txn-cold", "txn-hot"],
}
# Tables beside those of the charts: what an operation costs.
MORE = {"tree": 5, "txn": 2}


def reef(*arguments, **environment):
    return subprocess.run(
        [REEF, "sim", *arguments], capture_output=True, text=True,
        timeout=TIMEOUT_S, env={**os.environ, **environment}, check=False)


def check_run(directory, subject):
    charts = os.path.join(directory, subject)
    done = reef(subject, "--quick", "--seed", "7", "--out", charts,
                LC_ALL="C")
    assert done.returncode == 0, done.stderr
    assert done.stderr == "", done.stderr
    # A microsecond is written with a letter of its own.
    assert done.stdout.replace("\u00b5s", "us").isascii()
    files = [f"{name}.svg" for name in CHARTS[subject]]
    tables = len(files) + MORE.get(subject, 0)
    assert done.stdout.count("\n---") == tables, done.stdout
    assert sorted(os.listdir(charts)) == sorted(files), charts
    for file in files:
        path = os.path.join(charts, file)
        assert path in done.stdout, file
        root = xml.etree.ElementTree.parse(path).getroot()
        assert root.tag == "{http://www.w3.org/2000/svg}svg", root.tag
    return done.stdout, [open(os.path.join(charts, file)).read()
                         for file in files]


def main():
    with tempfile.TemporaryDirectory() as directory:
        told = {subject: check_run(directory, subject) for subject in CHARTS}
        # The same seed tells the same; once more of those that are quick.
        for subject in ("locks", "log", "txn"):
            assert check_run(directory, subject) == told[subject]
        gone = os.path.join(directory, "no", "such")
        assert reef("fabric", "--quick", "--out", gone).returncode == 1
    assert reef("--help").returncode == 0
    for subject in CHARTS:
        assert subject in reef("--help").stdout
    for wrong in ([], ["nonsense"], ["fabric", "--seed", "x"],
                  ["fabric", "--nonsense"], ["fabric", "twice"]):
        done = reef(*wrong)
        assert done.returncode == 2 and not done.stdout, wrong


main()
