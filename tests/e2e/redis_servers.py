"""A real redis-server and a door of Reef, for the same script to run against.

Both listen on a unix socket and a loopback port, keep nothing, and end with the
test."""

import os
import re
import shutil
import sys

from pool_processes import Pool, free_port, until
from redis_wire import Closed, Wire

REDIS = shutil.which("redis-server")


class Server:
    """One that answers Redis's protocol."""

    def __init__(self, name, process, path, port):
        self.name, self.process = name, process
        self.path, self.port = path, port
        self.tcp = ("127.0.0.1", port)

    def wire(self, tcp=False, **more):
        return Wire(self.tcp if tcp else self.path, **more)

    def answers(self):
        try:
            with self.wire() as wire:
                return wire.ask("PING").startswith((b"+PONG", b"-NOAUTH"))
        except (OSError, Closed):
            return False

    def ready(self):
        until("%s answers" % self.name, lambda: (
            self.process.child.poll() is not None or self.answers()))
        assert self.process.child.poll() is None, (
            self.name, self.process.out, self.process.error)
        return self


class Servers(Pool):
    """A home with a pool, doors into it, and a redis-server."""

    def redis(self, *arguments, name="redis"):
        port, path = free_port(), os.path.join(self.home, name + ".sock")
        process = self.start(name, argv=[
            REDIS, "--port", str(port), "--bind", "127.0.0.1", "--unixsocket",
            path, "--dir", self.home, "--save", "", "--appendonly", "no",
            "--daemonize", "no", "--loglevel", "warning", *arguments])
        return Server(name, process, path, port).ready()

    def up(self, *arguments, lend="256M", **more):
        """A pool without a door of its own."""
        return self.start("up", "up", "--lend", lend, "--no-redis",
                          *arguments, **more).saw("is up.")

    def door(self, name="door", *arguments, port=None, **more):
        """A door into the pool that is up."""
        path = os.path.join(self.home, name + ".sock")
        port = port or free_port()
        process = self.start(
            name, "redis", "--redis-listen", "127.0.0.1:%d" % port,
            "--redis-unix", path, *arguments, **more)
        return Server(name, process, path, port).ready()


def without_redis():
    """Why there is nothing to compare with, for tests to skip; None: there
    is a redis-server. Where all must be tested that is a failure."""
    if REDIS:
        return None
    if os.environ.get("CI") == "true":
        sys.exit("redis-server is not installed (tools/setup test)")
    return "redis-server is not installed"


def skip(why):
    print("skipped: " + why)
    print("0 passed, 0 failed, 1 skipped")
    sys.exit(77)


def fields(text):
    """`key=value ...` as CLIENT INFO has it."""
    return dict(re.findall(r"(\S+?)=(\S*)", text))
