"""How much memory a server takes while somebody tries to make it take more."""

import re
import threading

MIB = 1 << 20
KIB = 1 << 10


def resident(process):
    """Bytes of memory that a process has for itself, without what it maps of
    the pool."""
    with open("/proc/%d/status" % process.child.pid,
              encoding="ascii") as stream:
        found = re.search(r"RssAnon:\s+(\d+)", stream.read())
    assert found, process.name + " has ended"
    return int(found.group(1)) * KIB


class Growth(threading.Thread):
    """How much memory a process has taken at the most, above what it had."""

    def __init__(self, process):
        super().__init__()
        self.process, self.before = process, resident(process)
        self.most, self.over = 0, threading.Event()

    def __enter__(self):
        self.start()
        return self

    def look(self):
        self.most = max(self.most, resident(self.process) - self.before)

    def run(self):
        while not self.over.wait(0.002):
            self.look()

    def __exit__(self, *_):
        self.look()
        self.over.set()
        self.join()

    def is_below(self, limit):
        self.look()
        print("%.1f MiB at the most" % (self.most / MIB))
        assert self.most < limit, (self.most, limit)
