"""load.py REEF WORKER - the pool of real processes under load.

Brokers, nodes and clients are killed and stopped while workers (worker.c)
write, read and check. With REEF_SOAK=1: more of it.
"""

import os
import random
import re
import signal
import sys
import time

from checks import run_checks
from pool_processes import Workers, is_about, until

REEF, WORKER = (os.path.abspath(name) for name in sys.argv[1:3])
SOAK = os.environ.get("REEF_SOAK") == "1"


class Load(Workers):
    """A pool with nodes and workers."""

    def lend(self, name, size="64M", **more):
        return self.node(name, "--lend", size, **more)


def finish(workers):
    """Stop them; the sum of what they did."""
    total = 0
    for worker in workers:
        assert worker.stop() == 0, (worker.name, worker.out, worker.error)
        assert worker.error == "", worker.error
        total += int(re.search(r"rounds (\d+)", worker.out).group(1))
    return total


def pause(seconds):
    """Let the others run."""
    time.sleep(seconds)


# --- brokers ---


def check_broker_kills(pool):
    arguments = ("--ttl", "2s", "--node-ttl", "10s", "--extent-size", "4M")
    broker = pool.broker(*arguments)
    pool.lend("near")
    pool.lend("far", broker=pool.tcp)
    pool.node_is("far", "ok")
    pool.do("space", "create", "work")
    workers = [pool.worker("churn", "work", 200, 8192, fabrics=kind,
                           name="%s-%d" % (kind or "any", i))
               for i, kind in enumerate((None, None, "tcp"))]
    for worker in workers:
        worker.saw("busy")
    sessions = {pool.session_of(worker)["session"] for worker in workers}
    kills = 50
    for i in range(kills):
        broker.kill()
        broker = pool.broker(*arguments)
        pause(random.uniform(0, 0.1))
    until("all are back", lambda: all(
        row["fabric"] for row in pool.status()["sessions"]))
    assert sessions == {pool.session_of(worker)["session"]
                        for worker in workers}, pool.status()
    assert all(row["state"] == "ok" for row in pool.nodes().values())
    assert pool.status()["broker_epoch"] == kills + 1
    rounds = finish(workers)
    print("broker killed %d times, %d rounds of work, no lease lost" % (
        kills, rounds))
    assert pool.capacity("work") > 0


def check_stopped_broker(pool):
    """One that stood still judges nobody by what it did not see."""
    broker = pool.broker("--ttl", "1s", "--node-ttl", "1s",
                         "--lease-kills", "--extent-size", "4M")
    pool.lend("one")
    pool.lend("two", broker=pool.tcp)
    pool.node_is("two", "ok")
    pool.do("space", "create", "work")
    workers = [pool.worker("churn", "work", 100, 8192, fabrics=kind)
               for kind in (None, "tcp")]
    for worker in workers:
        worker.saw("busy")
    before = pool.status()
    for _ in range(2):
        broker.send(signal.SIGSTOP)
        pause(2.2)
        broker.send(signal.SIGCONT)
        until("it answers", lambda: pool.ask("status").returncode == 0)
        pause(0.3)
    after = pool.status()
    lives = [(row["name"], row["incarnation"]) for row in before["nodes"]]
    assert lives == [(row["name"], row["incarnation"])
                     for row in after["nodes"]], after
    assert [row["session"] for row in before["sessions"]] == [
        row["session"] for row in after["sessions"]], after
    finish(workers)


# --- fences ---


def check_fence_tcp(pool):
    pool.broker("--ttl", "1s", "--extent-size", "4M")
    pool.lend("one")
    pool.node_is("one", "ok")
    pool.do("space", "create", "work")
    observer = pool.worker("churn", "work", 20, 256).saw("busy")
    worker = pool.worker("count", "work", fabrics="tcp").saw("counts")
    old = pool.session_of(worker)
    assert old["fabric"].startswith("tcp"), old
    worker.send(signal.SIGSTOP)
    pool.gone(worker)
    before = pool.work("peek", "work")
    assert int(before.split()[1]) > 0, before
    worker.send(signal.SIGCONT)
    worker.saw("fenced REEF_EFENCED")
    until("its new session", lambda: pool.session_of(worker))
    assert pool.session_of(worker)["session"] != old["session"]
    assert pool.work("peek", "work") == before, "it wrote after its fence"
    assert worker.stop() == 0, (worker.out, worker.error)
    now = int(pool.work("peek", "work").split()[1])
    assert now == int(before.split()[1]) + 1, (before, now)
    finish([observer])


def check_fence_shm(pool):
    pool.broker("--ttl", "1s", "--lease-kills",
                "--extent-size", "4M")
    pool.lend("one")
    pool.node_is("one", "ok")
    pool.do("space", "create", "work")
    observer = pool.worker("churn", "work", 20, 256).saw("busy")
    worker = pool.worker("fork", "work", 10).saw("child")
    child = int(re.search(r"child (\d+) REEF_EFORKED", worker.out).group(1))
    try:
        worker.saw("holds").send(signal.SIGSTOP)
        pool.gone(worker)
        assert worker.end() == -signal.SIGKILL
        os.kill(child, 0)  # it had nothing mapped, and lives
    finally:
        os.kill(child, signal.SIGKILL)
    finish([observer])


def check_pins(pool):
    """Who holds freed memory back, by standing still or by staying inside, is
    shown, and killed when another has no room: no sooner."""
    pool.broker("--ttl", "1s", "--node-ttl", "1s", "--extent-size", "4M")
    pool.lend("one", "16M")
    pool.node_is("one", "ok")
    pool.do("space", "create", "work")
    inside = pool.worker("inside", "work").saw("inside")
    stopped = pool.worker("hold", "work", 10).saw("holds")
    stopped.send(signal.SIGSTOP)
    until("who is behind is shown", lambda: any(
        pool.session_of(worker)["holds_ns"] for worker in (inside, stopped)))
    shown = pool.do("status")
    assert "has held memory back for" in shown, shown
    assert re.search(r" \d+(\.\d+)? (ms|s|min) +worker",
                     pool.do("session", "list")), pool.do("session", "list")
    pause(2.5)
    # It has room for what it has, and not for twice that.
    writer = pool.worker("later", "work", 900, 8192)
    pool.gone(stopped)
    pool.gone(inside)
    assert stopped.end() == -signal.SIGKILL
    events = [row["text"] for row in pool.status()["events"]]
    assert any("held memory back" in text for text in events), events
    writer.saw("busy")
    assert inside.end() == -signal.SIGKILL, (inside.end(), inside.out)
    finish([writer])


def check_session_end(pool):
    """An operator ends one; over shm that kills, over tcp it is told."""
    pool.start("up", "up", "--lend", "64M", "--extent-size", "4M").saw("Ctrl")
    pool.do("space", "create", "work")
    near = pool.worker("hold", "work", 10).saw("holds")
    far = pool.worker("count", "work", fabrics="tcp").saw("counts")
    for worker in (near, far):
        session = "%08x" % pool.session_of(worker)["session"]
        assert session in pool.do("session", "list")
        pool.do("session", "end", session)
    assert near.end() == -signal.SIGKILL
    far.saw("fenced REEF_EFENCED")
    assert far.stop() == 0, far.out


# --- clients that die ---


def was_fenced(worker):
    """Over tcp, because it got no processor for as long as a lease."""
    return "REEF_EFENCED" in worker.out


def check_dead_clients(pool):
    pool.start("up", "up", "--ttl", "500ms", "--lend", "64M",
               "--extent-size", "4M").saw("Ctrl-C")
    pool.do("space", "create", "work")
    room = pool.capacity("work")
    survivor = pool.worker("churn", "work", 50, 4096).saw("busy")
    kills = 1000 if SOAK else 50
    killed = 0
    while killed < kills:
        victims = [pool.worker("churn", "work", 300, 8192, fabrics=kind,
                               name="victim")
                   for kind in (None, None, "tcp", "tcp", None)]
        victims[0].saw("busy")
        for victim in victims:
            pause(random.uniform(0, 0.03))
            assert victim.child.poll() is None or was_fenced(victim), (
                victim.out, victim.error)
            victim.kill()
            assert "error" not in victim.out or was_fenced(victim), victim.out
        killed += len(victims)
    pool.only(survivor)
    pool.room_is_back(room * 15 // 16, "work")
    rounds = finish([survivor])
    after = pool.room_is_back(room * 15 // 16, "work")
    print("%d clients killed, a survivor did %d rounds, room for %d blocks "
          "before and %d after" % (killed, rounds, room, after))


def check_repair_time(pool):
    pool.start("up", "up", "--lend", "256M").saw("Ctrl-C")
    pool.do("space", "create", "work")
    survivor = pool.worker("churn", "work", 20, 256).saw("busy")
    victim = pool.worker("hold", "work", 10000, 1000).saw("holds")
    session = "%08x" % pool.session_of(victim)["session"]
    victim.kill()
    pool.gone(victim)
    ages = {}
    for event in pool.status()["events"]:
        if event["text"].startswith("session " + session):
            ages[event["text"].split()[-1]] = event["age_ns"]
    print("10,000 live blocks repaired %.1f ms after FENCED (budget 100 ms)" %
          ((ages["fenced"] - ages["recovered"]) / 1e6))
    finish([survivor])


# --- nodes ---


def check_dead_node(pool):
    pool.broker("--node-ttl", "500ms", "--extent-size", "4M")
    one = pool.lend("one")
    pool.lend("two", broker=pool.tcp)
    pool.node_is("one", "ok")
    pool.node_is("two", "ok")
    pool.do("space", "create", "work")
    workers = [pool.worker("lossy", "work", 2000, 16384, fabrics=kind)
               for kind in (None, "tcp")]
    for worker in workers:
        worker.saw("busy")
    until("both are used", lambda: all(
        row["extents"] for row in pool.nodes().values()))
    one.kill()
    pool.node_is("one", "dead")
    pool.lend("one")
    pool.node_is("one", "ok")
    pause(0.3)
    for worker in workers:
        assert worker.child.poll() is None, (worker.out, worker.error)
    rounds = finish(workers)
    lost = [int(re.search(r"lost (\d+)", worker.out).group(1))
            for worker in workers]
    print("a node died: %d rounds, blocks lost %s" % (rounds, lost))
    assert any(lost), lost


def check_stopped_node(pool):
    """One that stood still for too long returns as another, with nothing."""
    pool.broker("--node-ttl", "400ms", "--extent-size", "4M")
    one = pool.lend("one")
    pool.lend("two", broker=pool.tcp)
    pool.node_is("one", "ok")
    pool.node_is("two", "ok")
    pool.do("space", "create", "work")
    workers = [pool.worker("lossy", "work", 1000, 16384, fabrics=kind)
               for kind in (None, "tcp")]
    for worker in workers:
        worker.saw("busy")
    until("both are used", lambda: all(
        row["extents"] for row in pool.nodes().values()))
    life = pool.nodes()["one"]["incarnation"]
    one.send(signal.SIGSTOP)
    pool.node_is("one", "dead")
    pause(0.2)
    one.send(signal.SIGCONT)
    pool.node_is("one", "ok")
    assert pool.nodes()["one"]["incarnation"] != life
    pause(0.3)
    finish(workers)


def check_drain_under_load(pool):
    pool.broker("--extent-size", "4M")
    pool.lend("one")
    pool.lend("two", broker=pool.tcp)
    pool.node_is("one", "ok")
    pool.node_is("two", "ok")
    pool.do("space", "create", "work")
    workers = [pool.worker("churn", "work", 1500, 16384, fabrics=kind)
               for kind in (None, "tcp")]
    for worker in workers:
        worker.saw("busy")
    until("both are used", lambda: all(
        row["extents"] for row in pool.nodes().values()))
    for name in ("one", "two", "one"):
        pool.do("node", "drain", name)
        pool.node_is(name, "drained")
        assert pool.nodes()[name]["extents"] == 0
        pool.do("node", "undrain", name)
        pool.node_is(name, "ok")
    print("three drains under %d rounds of work" % finish(workers))


def check_storm(pool):
    """Brokers and clients die while nodes are drained."""
    arguments = ("--ttl", "1s", "--extent-size", "4M")
    broker = pool.broker(*arguments)
    names = ("one", "two", "three")
    for name in names:
        pool.lend(name, broker=pool.tcp if name == "two" else None)
        pool.node_is(name, "ok")
    pool.do("space", "create", "work")
    workers = [pool.worker("churn", "work", 800, 16384, fabrics=kind)
               for kind in (None, "tcp")]
    for worker in workers:
        worker.saw("busy")
    rounds = 60 if SOAK else 6
    for i in range(rounds):
        name = names[i % 3]
        victims = [pool.worker("churn", "work", 300, 8192, fabrics=kind,
                               name="victim") for kind in (None, "tcp")]
        victims[0].saw("busy")
        pool.do("node", "drain", name)
        pause(random.uniform(0, 0.05))
        broker.kill()
        broker = pool.broker(*arguments)
        for victim in victims:
            # One that found no broker was never in.
            assert victim.child.poll() is None or (
                "error open " in victim.out), (victim.out, victim.error)
            victim.kill()
        pool.node_is(name, "drained")
        pool.do("node", "undrain", name)
        pool.node_is(name, "ok")
        for worker in workers:
            assert worker.child.poll() is None, (worker.out, worker.error)
    print("a storm of %d drains and dead brokers: %d rounds" % (
        rounds, finish(workers)))


def check_reclaim(pool):
    pool.start("up", "up", "--lend", "64M", "--extent-size", "4M",
               "--revoke-notice", "100ms").saw("Ctrl-C")
    pool.do("space", "create", "mine")
    pool.do("space", "create", "lent", "revocable")
    keeper = pool.worker("churn", "mine", 500, 8192).saw("busy")
    user = pool.worker("lossy", "lent", 500, 8192).saw("busy")
    node, = pool.nodes()
    told = pool.do("node", "reclaim", node, "64M")
    assert "will go back" in told, told
    until("it is taken back", lambda: any(
        "lost" in event["text"] or "revoke" in event["text"]
        for event in pool.status()["events"]))
    pause(0.5)
    finish([keeper, user])
    lost = int(re.search(r"lost (\d+)", user.out).group(1))
    assert lost > 0, user.out


# --- memory that comes back ---


def check_shrink(pool):
    """A space that was full and is empty goes back to its nodes."""
    pool.start("up", "up", "--lend", "64M", "--extent-size", "4M",
               "--ttl", "1s").saw("Ctrl")
    pool.do("space", "create", "work")
    # Somebody has the space open, and little in it.
    worker = pool.worker("churn", "work", 20, 4096)
    worker.saw("busy")
    room = pool.capacity("work", 64 << 10)
    assert room >= 500, room

    def used():
        return pool.status()["spaces"][0]["used"]

    full = 64 << 20
    until("nine tenths are back", lambda: used() <= full // 10)
    print("%d MiB of %d are left" % (used() >> 20, full >> 20))
    finish([worker])


# --- limits ---


def check_full_and_quota(pool):
    pool.start("up", "up", "--lend", "16M", "--extent-size", "4M").saw("Ctrl")
    pool.do("space", "create", "all")
    room = pool.capacity("all", 64 << 10)
    assert 150 <= room <= 256, room
    assert pool.capacity("all", 64 << 10) == room
    pool.do("space", "drop", "all")
    pool.do("space", "create", "half", "8M")
    half = pool.capacity("half", 64 << 10)
    assert room // 3 <= half <= room * 2 // 3, (room, half)
    used, = pool.status()["spaces"]
    assert used["used"] <= 8 << 20, used
    # Room for more than one process at a time.
    workers = [pool.worker("churn", "half", 200, 65536, name="full-%d" % i)
               for i in range(3)]
    for worker in workers:
        worker.saw("busy")
    pause(0.3)
    finish(workers)
    assert is_about(pool.capacity("half", 64 << 10), half)


def check_limits(pool):
    pool.start("up", "up", "--lend", "64M", "--extent-size", "4M").saw("Ctrl")
    pool.do("space", "create", "work")
    for kind in (None, "tcp"):
        assert "error" not in pool.work("limits", "work", fabrics=kind)
    assert [row["name"] for row in pool.status()["spaces"]] == ["work"]
    assert pool.do("name", "list", "work") == ""


def check_tokens(pool):
    pool.start("up", "up", "--lend", "64M", "--extent-size", "4M").saw("Ctrl")
    pool.do("space", "create", "work")
    file = os.path.join(pool.home, "fred")
    pool.do("user", "add", "fred", file)
    token = pool.do("space", "token", "work").strip()
    reader = pool.do("space", "token", "work", "read").strip()
    as_fred = {"REEF_CREDENTIAL": file}

    assert pool.work("open", "work", WORKER_TOKEN=token, **as_fred)
    assert "filled 10" in pool.work("fill", "work", 10, WORKER_TOKEN=token,
                                    **as_fred)
    for wrong in ("", token[:-1] + ("a" if token[-1] != "a" else "b"),
                  token.replace("reef-space", "reef-user"), "x" * 100000):
        out = pool.work("open", "work", status=1, WORKER_TOKEN=wrong,
                        **as_fred)
        assert re.search(r"error space (EACCES|EINVAL|REEF_ECORRUPT)", out), (
            wrong[:40], out)
    out = pool.work("fill", "work", 1, status=1, WORKER_TOKEN=reader,
                    **as_fred)
    assert "error alloc EACCES" in out, out
    pool.do("space", "revoke", "work")
    out = pool.work("open", "work", status=1, WORKER_TOKEN=token, **as_fred)
    assert "error space EACCES" in out, out
    out = pool.work("open", "n" * 100000, status=1)
    assert "error space ENAMETOOLONG" in out, out
    out = pool.work("open", "none", status=1)
    assert "error space ENOENT" in out, out
    os.chmod(file, 0o644)
    out = pool.work("open", "work", status=1, **as_fred)
    assert re.search(r"error open (EACCES|EPERM)", out), out
    out = pool.work("open", "work", status=1, REEF_POOL="reef://127.0.0.1:1",
                    REEF_CREDENTIAL=pool.run + "/owner.credential")
    assert "error open ECONNREFUSED" in out, out


if __name__ == "__main__":
    sys.exit(run_checks(globals(), lambda: Load(REEF, WORKER), sys.argv[3:]))
