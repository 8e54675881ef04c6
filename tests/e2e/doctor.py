"""doctor.py REEF - `reef doctor` from outside, and with it the settings.

What it finds is for the unit tests (test_doctor.c); here, that it is told, in
both forms, that the status fits, and that nothing is left behind. It is also
where flags, environment and file meet in a real process.
"""

import json
import os
import re
import subprocess
import sys
import tempfile

from checks import run_checks

REEF = os.path.abspath(sys.argv[1])
TIMEOUT_S = 30


def reef(home, *arguments, **environment):
    clean = {name: value for name, value in os.environ.items()
             if not name.startswith(("REEF_", "XDG_"))}
    return subprocess.run(
        [REEF, "doctor", *arguments], capture_output=True, text=True,
        timeout=TIMEOUT_S, check=False,
        env={**clean, "HOME": home, "XDG_RUNTIME_DIR": home + "/run",
             **environment})


def check_both_forms(home):
    people, programs = reef(home), reef(home, "--json")
    assert people.stderr == "" and programs.stderr == "", people.stderr
    told = json.loads(programs.stdout)
    assert people.returncode == programs.returncode == (
        1 if told["problems"] else 0), people.stdout
    counted = {"ok": 0, "warn": 0, "problem": 0}
    for finding in told["findings"]:
        counted[finding["verdict"]] += 1
        assert finding["name"] and finding["found"], finding
        assert (finding["verdict"] == "ok") == (finding["advice"] == ""), finding
        line = "%-8s %s: " % (finding["verdict"], finding["name"])
        assert line in people.stdout, line
    assert counted["warn"] == told["warnings"]
    assert counted["problem"] == told["problems"]
    assert os.listdir(home) == [], "something was left behind"


def check_problem(home):
    key = os.path.join(home, "pool.key")
    with open(key, "w", encoding="ascii") as stream:
        stream.write("reef-pool-secret\n")
    os.chmod(key, 0o644)
    done = reef(home, "--key-file", key)
    assert done.returncode == 1, done.stdout
    assert re.search(r"^problem +key file: .*others", done.stdout, re.M), (
        done.stdout)
    assert "$ chmod 600 " + key in done.stdout, done.stdout
    assert "secret" not in done.stdout + done.stderr
    os.unlink(key)


def check_settings(home):
    folder = os.path.join(home, ".config", "reef")
    os.makedirs(folder)
    file = os.path.join(folder, "reef.conf")
    with open(file, "w", encoding="ascii") as stream:
        stream.write("# mine\nlend = 2G\nttl = 5s\nname = a\n")
    done = reef(home, "--check-config", "--lend", "3G", REEF_TTL="6s")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "# file: " + file in lines, lines
    assert "lend = 3G  # --lend" in lines, lines
    assert "ttl = 6s  # REEF_TTL" in lines, lines
    assert "name = a  # %s:4" % file in lines, lines
    assert "spin = 20us  # default" in lines, lines
    # What it prints is a file that says the same.
    with open(file, "w", encoding="ascii") as stream:
        stream.write(done.stdout)
    again = reef(home, "--check-config")
    bare = re.compile(r"  # .*$", re.M)
    assert bare.sub("", again.stdout) == bare.sub("", done.stdout)


def check_refusals(home):
    for arguments, environment, text in (
            (["--lned=1G"], {}, "did you mean --lend?"),
            (["--lend"], {}, "--lend needs a value"),
            ([], {"REEF_LEND": "8X"}, "REEF_LEND: lend: \"8X\" is not a size"),
            (["--config", home + "/none"], {}, "No such file"),
            (["more"], {}, "unexpected argument \"more\"")):
        done = reef(home, *arguments, **environment)
        assert done.returncode == 2, (arguments, done)
        assert text in done.stderr, done.stderr
        assert done.stdout == "", done.stdout


if __name__ == "__main__":
    sys.exit(run_checks(globals(), lambda: tempfile.TemporaryDirectory(
        prefix="reef-doctor-"), sys.argv[2:]))
