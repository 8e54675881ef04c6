"""sim.py REEF - `reef sim fabric` prints four tables and draws four charts.

That the shapes are right is for the unit tests (test_shape.c); here, that they
are told: the same on every run, in files that a browser can read.
"""

import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

REEF = os.path.abspath(sys.argv[1])
TIMEOUT_S = 240
NAMES = ["atomics", "connections", "pages", "threads"]


def reef(*arguments, **environment):
    return subprocess.run(
        [REEF, "sim", *arguments], capture_output=True, text=True,
        timeout=TIMEOUT_S, env={**os.environ, **environment}, check=False)


def check_run(directory):
    charts = os.path.join(directory, "charts")
    done = reef("fabric", "--quick", "--seed", "7", "--out", charts,
                LC_ALL="C")
    assert done.returncode == 0, done.stderr
    assert done.stderr == "", done.stderr
    assert done.stdout.isascii()
    assert done.stdout.count("\n---") == len(NAMES), done.stdout
    files = [f"fabric-{name}.svg" for name in NAMES]
    assert sorted(os.listdir(charts)) == files, os.listdir(charts)
    for file in files:
        path = os.path.join(charts, file)
        assert path in done.stdout, file
        root = xml.etree.ElementTree.parse(path).getroot()
        assert root.tag == "{http://www.w3.org/2000/svg}svg", root.tag
    return done.stdout, [open(os.path.join(charts, file)).read()
                         for file in files]


def main():
    with tempfile.TemporaryDirectory() as directory:
        assert check_run(directory) == check_run(directory)
        gone = os.path.join(directory, "no", "such")
        assert reef("fabric", "--quick", "--out", gone).returncode == 1
    assert reef("--help").returncode == 0
    assert "fabric" in reef("--help").stdout
    for wrong in ([], ["nonsense"], ["fabric", "--seed", "x"],
                  ["fabric", "--nonsense"], ["fabric", "twice"]):
        done = reef(*wrong)
        assert done.returncode == 2 and not done.stdout, wrong


main()
