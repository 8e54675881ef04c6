"""restart_times.py REEF [GIB...] - how long a pool takes to be up again.

No test: it prints, for pools with so many GiB of random bytes, the time from the
start of `reef up` until it is up, from its holder (after SIGKILL) and from its
image (after SIGTERM), and how long the clean stop took. Best and median of five
rounds; 0 GiB is what a start takes by itself.
"""

import os
import statistics
import sys
import time

from redis_servers import Servers

ROUNDS = 5


class Restarted(Servers):
    def environment(self, **more):
        return Servers.environment(self, **{"REEF_KEEP": "holder,image",
                                            **more})

    def begin(self, gib):
        """Start the pool; the process, and how long it took."""
        begun = time.monotonic()
        up = self.start("up", "up", "--lend", "%dG" % (gib + 1), "--no-redis")
        while "is up." not in up.out:
            assert up.child.poll() is None, up.error
            time.sleep(0.001)
        return up, time.monotonic() - begun

    def fill(self, gib):
        door = self.door()
        with door.wire() as wire:
            for number in range(gib * 960):
                wire.ask("SET", "k%d" % number, os.urandom(1 << 20))
        door.process.stop()


def tell(name, times, gib):
    print("  %-12s best %.3f s, median %.3f s%s" % (
        name, min(times), statistics.median(times),
        ", %.2f s a GiB" % (statistics.median(times) / gib) if gib else ""),
          flush=True)


def measure(pool, gib):
    up, _ = pool.begin(gib)
    pool.fill(gib)
    used = pool.status()["nodes"][0]["used"] / 2**30
    holder, image, stop = [], [], []
    for _ in range(ROUNDS):
        up.kill()
        up, took = pool.begin(gib)
        holder.append(took)
    for _ in range(ROUNDS):
        begun = time.monotonic()
        assert up.stop() == 0, up.error
        stop.append(time.monotonic() - begun)
        up, took = pool.begin(gib)
        image.append(took)
    up.stop()
    print("%.2f GiB in use" % used)
    tell("from holder", holder, used)
    tell("from image", image, used)
    tell("clean stop", stop, used)


if __name__ == "__main__":
    for wanted in [int(word) for word in sys.argv[2:]] or [0, 1, 2]:
        with Restarted(os.path.abspath(sys.argv[1])) as place:
            measure(place, wanted)
