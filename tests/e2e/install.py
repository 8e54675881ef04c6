#!/usr/bin/env python3
"""install.py BUILD SOURCE - install into an empty folder, and use what is there.

What a user of the library sees: headers that stand alone, pkg-config, a shared
and a static library with the public symbols and no others, the program and its
manual page.
"""

import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

from checks import run_each

BUILD, SOURCE = (os.path.abspath(path) for path in sys.argv[1:3])
EXAMPLES = sorted(glob.glob(os.path.join(SOURCE, "examples", "*.c")))
CC = os.environ.get("CC", "cc")


def run(*command, **more):
    """Run to the end; an error ends this test."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          check=False, **more)
    assert done.returncode == 0, "%s\nfailed with status %d:\n%s" % (
        " ".join(command), done.returncode, done.stdout)
    return done.stdout


def only(pattern):
    """The one file that matches."""
    found = glob.glob(pattern, recursive=True)
    assert len(found) == 1, (pattern, found)
    return found[0]


class Installed:
    def __init__(self, root):
        run("meson", "install", "-C", BUILD, "--no-rebuild", "--destdir", root)
        self.root = root
        self.config = only(root + "/**/reef.pc")
        with open(self.config, encoding="utf-8") as stream:
            prefix = re.search(r"^prefix=(.*)$", stream.read(), re.M).group(1)
        self.prefix = root + prefix

    def flags(self, *options):
        return run("pkg-config", "--define-variable=prefix=" + self.prefix,
                   *options, self.config).split()


def test_program(installed):
    program = installed.prefix + "/bin/reef"
    version = run(program, "version")
    assert version.startswith("reef "), version
    assert installed.flags("--modversion") == [version.split()[1]], version
    only(installed.prefix + "/share/man/man1/reef.1*")
    only(installed.prefix + "/share/man/man5/reef.conf.5*")


def test_manual(installed):
    """The manual pages know every command, and every option of each: its own
    are in the first, settings in the second."""
    program = installed.prefix + "/bin/reef"
    with open(SOURCE + "/man/reef.1", encoding="utf-8") as stream:
        manual = stream.read()
    with open(SOURCE + "/man/reef.conf.5", encoding="utf-8") as stream:
        settings = set(re.findall(r"^\.It Cm ([\w-]+) No =", stream.read(), re.M))
    commands = re.findall(r"^  (\w+) ", run(program, "help"), re.M)
    assert "version" in commands, commands
    for command in commands:
        assert re.search(r"^\.It Cm %s\b" % command, manual, re.M), command
        options = re.findall(r"^  -(-[\w-]+)", run(program, command, "--help"),
                             re.M) if command != "help" else []
        for option in set(options) - {"-help"}:
            if option[1:] in settings:
                continue
            assert re.search(r"^\.It Fl %s\b" % option, manual, re.M), (
                command, option)


def test_headers(installed):
    """Each header stands alone, in C and in C++."""
    headers = glob.glob(installed.prefix + "/include/reef/*.h")
    assert headers
    expected = glob.glob(SOURCE + "/include/reef/*.h")
    assert len(headers) == len(expected), (headers, expected)
    compilers = [[CC, "-std=c11", "-x", "c"]]
    if shutil.which("c++"):
        compilers.append(["c++", "-x", "c++"])
    for header in headers:
        for compiler in compilers:
            run(*compiler, "-Wall", "-Wextra", "-Wpedantic", "-Werror",
                "-fsyntax-only", "-include", header, "/dev/null",
                *installed.flags("--cflags"))


def compile_and_run(installed, source, flags):
    program = os.path.join(installed.root, "program")
    run(CC, "-Wall", "-Werror", "-o", program, source, *flags)
    # What a README shows opens the default pool: here, one inside.
    run(program, env={**os.environ, "REEF_POOL": "embedded:64M"})
    return run("ldd", program)


def test_shared(installed):
    """Every example builds against what is installed, and runs."""
    folder = os.path.dirname(only(installed.prefix + "/lib/**/libreef.so"))
    flags = installed.flags("--cflags", "--libs") + ["-Wl,-rpath," + folder]
    for example in EXAMPLES:
        assert "libreef.so" in compile_and_run(installed, example, flags)


def test_static(installed):
    archive = only(installed.prefix + "/lib/**/libreef.a")
    flags = [archive if flag == "-lreef" else flag
             for flag in installed.flags("--cflags", "--static", "--libs")]
    for example in EXAMPLES:
        assert "libreef.so" not in compile_and_run(installed, example, flags)


def test_readme(installed):
    """The example that the README shows."""
    with open(SOURCE + "/README.md", encoding="utf-8") as stream:
        code = re.findall(r"^```c\n(.*?)^```$", stream.read(), re.M | re.S)
    assert code, "the README shows no example"
    archive = only(installed.prefix + "/lib/**/libreef.a")
    flags = [archive if flag == "-lreef" else flag
             for flag in installed.flags("--cflags", "--static", "--libs")]
    for number, text in enumerate(code):
        source = os.path.join(installed.root, "readme%d.c" % number)
        with open(source, "w", encoding="utf-8") as stream:
            stream.write(text)
        compile_and_run(installed, source, flags)
        # Where no pool is it says so.
        alone = subprocess.run(
            [os.path.join(installed.root, "program")], capture_output=True,
            text=True, check=False, env={
                **os.environ, "REEF_POOL": "local",
                "REEF_RUN": os.path.join(installed.root, "none")})
        assert alone.returncode == 1 and "no pool" in alone.stderr, alone


def test_symbols(installed):
    """Both libraries show what the headers mark, and nothing else."""
    public = set()
    for header in glob.glob(installed.prefix + "/include/reef/*.h"):
        with open(header, encoding="utf-8") as stream:
            public |= set(re.findall(r"^REEF_API [^;(]*?\b(reef_\w+)\s*[;(\[]",
                                     stream.read(), re.M))
    assert public, "no public symbols found in the headers"
    for name, option in (("libreef.so", "-D"), ("libreef.a", "-g")):
        library = only(installed.prefix + "/lib/**/" + name)
        lines = run("nm", option, "--defined-only", library).splitlines()
        shown = {line.split()[-1].split("@")[0] for line in lines
                 if len(line.split()) == 3}
        assert shown == public, (name, sorted(shown - public),
                                 sorted(public - shown))


def test_rooms(installed):
    """The library has what a program needs; the Redis door, doctor, the
    simulator, its hooks and the benches are the program's."""
    rooms = {
        "the Redis door": "redis_door_create",
        "doctor": "reef_diagnosis_create",
        "the simulator": "reef_sim_create",
        "hooks": "reef_cost_push",
        "the benches": "bench_run",
        "settings": "reef_settings_load",
    }
    for path in (only(installed.prefix + "/lib/**/libreef.so"),
                 only(installed.prefix + "/lib/**/libreef.a"),
                 installed.prefix + "/bin/reef"):
        shown = set(re.findall(r" [tT] (\w+)$", run("nm", path), re.M))
        for room, symbol in rooms.items():
            assert (symbol in shown) == path.endswith("/bin/reef"), (
                path, room, symbol)


def test_mutants(installed):
    """What is shipped has no code of mutants; what the tests link has."""
    pattern = re.compile(r"\b\w*(?:mutant|mutate)\w*\b", re.I)
    tested = run("nm", BUILD + "/src/libreef_tested.a")
    assert "reef_mutate" in pattern.findall(tested), "nothing to look for"
    for path in (only(installed.prefix + "/lib/**/libreef.so"),
                 only(installed.prefix + "/lib/**/libreef.a"),
                 installed.prefix + "/bin/reef"):
        shown = run("nm", path)
        assert " t " in shown, "%s is stripped: nothing can be seen" % path
        assert not pattern.findall(shown), (path, pattern.findall(shown))
        with open(path, "rb") as stream:
            assert b"SIM_F1_TWICE" not in stream.read(), path


def main():
    with tempfile.TemporaryDirectory(prefix="reef-install-") as root:
        installed = Installed(root)
        return run_each([(test.__name__, lambda _, test=test: test(installed))
                         for test in (
                             test_program, test_manual, test_headers,
                             test_shared, test_static, test_readme,
                             test_symbols, test_rooms, test_mutants)])


if __name__ == "__main__":
    sys.exit(main())
