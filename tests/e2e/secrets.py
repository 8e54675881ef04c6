"""secrets.py REEF LIBRARY - what a fault that is left gives away.

Both are built so that a fault is hard to use. Keys and lent memory are in no
core dump: each place of a process that has one lies in a mapping that the kernel
leaves out.
"""

import base64
import glob
import os
import re
import subprocess
import sys

from checks import run_checks
from pool_processes import Pool

REEF, LIBRARY = (os.path.abspath(name) for name in sys.argv[1:3])
KEY_SIZE, CRC_SIZE = 32, 4
MARK = b"a value that nobody else may read, " * 4


def readelf(*arguments):
    return subprocess.run(["readelf", "--wide", *arguments], check=True,
                          capture_output=True, text=True).stdout


def check_build(_):
    for path in (REEF, LIBRARY):
        dynamic = readelf("--dynamic", path)
        assert "BIND_NOW" in dynamic, dynamic
        segments = readelf("--program-headers", path)
        assert "GNU_RELRO" in segments, segments
        assert re.search(r"GNU_STACK .* RW ", segments), segments
        assert "DYN (" in readelf("--file-header", path)
        symbols = readelf("--dyn-syms", path)
        assert "__stack_chk_fail" in symbols, path
        assert re.search(r"__(memcpy|snprintf|vsnprintf)_chk", symbols), path


def find_secrets(pool):
    """The keys in the files of the pool, as bytes and as text."""
    found = {}
    for path in glob.glob(os.path.join(pool.home, "**"), recursive=True):
        if not os.path.isfile(path) or os.path.getsize(path) > 200:
            continue
        with open(path, encoding="ascii", errors="ignore") as stream:
            match = re.fullmatch(r"reef-[a-z]+-([a-z2-7]+)\n", stream.read())
        if match:
            text = match[1].upper()
            packed = base64.b32decode(text + "=" * (-len(text) % 8))
            found[os.path.basename(path)] = \
                packed[-KEY_SIZE - CRC_SIZE:-CRC_SIZE]
            found[os.path.basename(path) + " (text)"] = match[1].encode()
    return found


def read_memory(memory, start, end):
    """What can be read of a mapping: a stack's guard may lie inside it."""
    pieces = []
    while start < end:
        try:
            pieces.append(os.pread(memory, end - start, start))
        except OSError:
            pieces.append(bytes(4096))
        start += len(pieces[-1])
    return b"".join(pieces)


def find_dumped(pid):
    """The bytes of the mappings that a core dump of a process would have."""
    with open("/proc/%d/smaps" % pid, encoding="utf-8") as stream:
        mappings = re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", stream.read(),
                            flags=re.M)[1:]
    with open("/proc/%d/mem" % pid, "rb", buffering=0) as memory:
        for mapping in mappings:
            head = mapping.split("\n", 1)[0]
            start, end = (int(part, 16)
                          for part in head.split()[0].split("-"))
            flags = re.search(r"^VmFlags: (.*)$", mapping, re.M)[1].split()
            if "dd" in flags or "[v" in head or head.split()[1][0] != "r":
                continue
            yield head, read_memory(memory.fileno(), start, end)


def family(pid):
    """A process and its children."""
    with open("/proc/%d/task/%d/children" % (pid, pid),
              encoding="ascii") as stream:
        return [pid] + [one for child in stream.read().split()
                        for one in family(int(child))]


def check_core_dumps(pool):
    up = pool.start("up", "up", "--lend", "256M", REEF_REDIS="yes")
    up.saw("Ctrl-C")
    pool.do("space", "create", "kept")
    pool.do("map", "put", "kept", "map", "key", MARK.decode())
    watch = pool.start("watch", "status", "--json", "--watch").saw("{")
    holder = pool.start("hold", "lock", "name", "--", "sh", "-c",
                        "echo held; sleep 60").saw("held")
    secrets = find_secrets(pool)
    assert len(secrets) >= 4, list(secrets)
    found = []
    for process in (up, watch, holder):
        for pid in family(process.child.pid):
            for head, content in find_dumped(pid):
                found += ["%s %d: %s in %s" % (process.name, pid, name, head)
                          for name, secret in secrets.items()
                          if secret in content]
                # A copy that a process has read is its own affair.
                if head.split()[1][3] == "s" and MARK in content:
                    found.append("%s: a value in %s" % (process.name, head))
    assert not found, "\n".join(found)


if __name__ == "__main__":
    sys.exit(run_checks(globals(), lambda: Pool(REEF), sys.argv[3:]))
