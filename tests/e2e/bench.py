"""bench.py REEF - `reef bench` runs every case and says so in JSON.

Nothing here is about time: only that every case ran, beside everybody it is
to run beside, and that what is missing is named.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile

from checks import run_each

REEF = os.path.abspath(sys.argv[1])
TIMEOUT_S = 240


def reef(*arguments, **environment):
    return subprocess.run(
        [REEF, "bench", *arguments], capture_output=True, text=True,
        timeout=TIMEOUT_S, env={**os.environ, **environment}, check=False)


def listed():
    """case -> peers that it has a required ratio against."""
    lines = reef("fabric", "--list").stdout.splitlines()[2:]
    return {line.split()[0]: line for line in lines}


def check_line(line):
    one = json.loads(line)
    assert one["bench"] == "fabric", line
    assert one["unit"] == "ops/s", line
    assert one["value"] > 0, line
    assert set(one["ratio"]) == set(one["spread"]) == set(one["peers"]), line
    # Each round has a ratio: their median, and between what half of them lie.
    for peer, (low, high) in one["spread"].items():
        assert 0 < low <= one["ratio"][peer] <= high, line
    known = {"bench", "case", "unit", "value", "peers", "ratio", "spread",
             "absent"}
    assert set(one) <= known, line
    return one


def bench_quick_runs_every_case():
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "out.json")
        run = reef("fabric", "--quick", "--json", path)
        assert run.returncode == 0, run.stdout + run.stderr
        with open(path, encoding="utf-8") as file:
            cases = [check_line(line) for line in file]
    assert [one["case"] for one in cases] == list(listed()), cases
    for one in cases:
        assert one["case"] in run.stdout, run.stdout
        for peer in ("raw", "ucx", "libfabric", "swapcontext"):
            if peer + " " in listed()[one["case"]].split("  ")[-1]:
                where = {**one["peers"], **one.get("absent", {})}
                assert peer in where, one
        # Built or not, but never built and failing.
        for peer, why in one.get("absent", {}).items():
            assert why.startswith("not built"), (peer, why)


def bench_alloc_runs_every_case():
    run = reef("alloc", "--quick", "--size", "64M", "--json", "-")
    assert run.returncode == 0, run.stderr
    cases = {one["case"]: one
             for one in map(json.loads, run.stdout.splitlines())}
    assert list(cases) == ["own-64", "own-4k", "own-32k", "remote-free",
                           "fragmentation"], cases
    for one in cases.values():
        assert one["bench"] == "alloc" and one["value"] > 0, one
        assert "mimalloc" in {**one["peers"], **one.get("absent", {})}, one
    last = cases["fragmentation"]
    assert last["unit"] == "used/asked" and last["value"] >= 1, last
    # Less is better here, and a ratio above 1 still means that Reef is.
    ratio = last["peers"]["limit"] / last["value"]
    assert abs(last["ratio"]["limit"] - ratio) < 0.01 * ratio, last


def bench_sync_runs_every_case():
    run = reef("sync", "--quick", "--json", "-")
    assert run.returncode == 0, run.stderr
    cases = {one["case"]: one
             for one in map(json.loads, run.stdout.splitlines())}
    assert list(cases) == [line.split()[0] for line in reef(
        "sync", "--list").stdout.splitlines()[2:]], cases
    for one in cases.values():
        assert one["bench"] == "sync" and one["value"] > 0, one
    # A lock that lets two in at once has no figure, and its line says so.
    for case in ("lock-alone", "lock-2", "lock-8", "barrier-4"):
        assert cases[case]["peers"]["pthread"] > 0, cases[case]
    for case in ("lock-alone", "lock-alone-tcp"):
        one = cases[case]
        assert "redis" in {**one["peers"], **one.get("absent", {})}, one
        # Not built, or no server; but never there and failing.
        why = one.get("absent", {}).get("redis", "not built")
        assert why.startswith(("not built", "redis-server: No such")), one


def bench_redis_runs_every_case():
    # What asks both is Redis's, too.
    if not shutil.which("redis-benchmark"):
        assert os.environ.get("CI") != "true", "no redis-benchmark"
        return
    with tempfile.TemporaryDirectory() as directory:
        run = reef("redis", "--quick", "--json", "-", TMPDIR=directory)
        assert run.returncode == 0, run.stderr
        assert os.listdir(directory) == [], os.listdir(directory)
    cases = {one["case"]: one
             for one in map(json.loads, run.stdout.splitlines())}
    assert list(cases) == ["get-c50", "set-c50", "get-c50-p16", "set-c50-p16",
                           "multi-c50", "get-4m-c8", "set-4m-c8"], cases
    for one in cases.values():
        assert one["bench"] == "redis" and one["value"] > 0, one
        assert one["peers"]["redis"] > 0, one


def bench_tree_runs_every_case():
    with tempfile.TemporaryDirectory() as directory:
        run = reef("tree", "--quick", "--json", "-", TMPDIR=directory)
        assert run.returncode == 0, run.stderr
        assert os.listdir(directory) == [], os.listdir(directory)
    cases = {one["case"]: one
             for one in map(json.loads, run.stdout.splitlines())}
    assert list(cases) == [line.split()[0] for line in reef(
        "tree", "--list").stdout.splitlines()[2:]], cases
    for one in cases.values():
        assert one["bench"] == "tree" and one["value"] > 0, one
        # Built or not, but never built and failing.
        for peer, why in one.get("absent", {}).items():
            assert why.startswith("not built"), (peer, why)
    assert cases["u64-bytes-per-key"]["unit"] == "bytes", cases
    assert cases["get-uniform"]["ratio"]["map"] > 0, cases


def bench_log_runs_every_case():
    with tempfile.TemporaryDirectory() as directory:
        run = reef("log", "--quick", "--json", "-", TMPDIR=directory)
        assert run.returncode == 0, run.stderr
        assert os.listdir(directory) == [], os.listdir(directory)
    cases = {one["case"]: one
             for one in map(json.loads, run.stdout.splitlines())}
    assert list(cases) == [line.split()[0] for line in reef(
        "log", "--list").stdout.splitlines()[2:]], cases
    for one in cases.values():
        assert one["bench"] == "log" and one["value"] > 0, one
        for peer, why in one.get("absent", {}).items():
            assert why.startswith("not built"), (peer, why)
    assert cases["tail"]["unit"] == "us", cases


def bench_txn_runs_every_case():
    with tempfile.TemporaryDirectory() as directory:
        run = reef("txn", "--quick", "--rounds", "1", "--json", "-",
                   TMPDIR=directory)
        assert run.returncode == 0, run.stderr
        assert os.listdir(directory) == [], os.listdir(directory)
    cases = {one["case"]: one
             for one in map(json.loads, run.stdout.splitlines())}
    assert list(cases) == [line.split()[0] for line in reef(
        "txn", "--list").stdout.splitlines()[2:]], cases
    for one in cases.values():
        assert one["bench"] == "txn" and one["value"] > 0, one
        for peer, why in one.get("absent", {}).items():
            assert why.startswith(("not built", "PostgreSQL 15 is not")), (
                peer, why)
    assert cases["smallbank-p99"]["unit"] == "us", cases
    assert 0 < cases["smallbank-2-commits"]["value"] <= 100, cases


def bench_copies_runs_every_case():
    with tempfile.TemporaryDirectory() as directory:
        run = reef("copies", "--quick", "--rounds", "1", "--json", "-",
                   TMPDIR=directory)
        assert run.returncode == 0, run.stderr
        assert os.listdir(directory) == [], os.listdir(directory)
    cases = {one["case"]: one
             for one in map(json.loads, run.stdout.splitlines())}
    assert list(cases) == ["put-tcp", "get-tcp", "put-shm", "get-shm",
                           "set-replicated", "failover"], cases
    for name, one in cases.items():
        assert one["bench"] == "copies" and one["value"] > 0, one
        if name == "failover":
            assert one["unit"] == "ms" and not one["peers"], one
        elif name != "set-replicated":
            assert one["peers"]["one"] > 0, one
        elif shutil.which("redis-server"):
            assert one["peers"].get("redis", 0) > 0, one
        else:
            assert os.environ.get("CI") != "true", "no redis-server"
            assert "No such program" in one["absent"]["redis"], one


def bench_sync_leaves_nothing_behind():
    with tempfile.TemporaryDirectory() as directory:
        run = reef("sync", "--quick", "--case", "lock-alone*",
                   TMPDIR=directory)
        assert run.returncode == 0, run.stderr
        assert os.listdir(directory) == [], os.listdir(directory)


def bench_sync_without_redis_says_so():
    with tempfile.TemporaryDirectory() as directory:
        run = reef("sync", "--quick", "--case", "lock-alone", "--json", "-",
                   PATH=directory)
    assert run.returncode == 0, run.stderr
    one = json.loads(run.stdout)
    assert set(one["peers"]) == {"pthread"}, one
    assert set(one["absent"]) == {"redis"}, one
    assert "met" not in [line.split()[-1] for line in run.stderr.splitlines()
                         if " redis " in line and " 500 " in line], run.stderr


def bench_json_to_stdout_is_only_json():
    run = reef("fabric", "--quick", "--case", "fiber-*", "--json", "-")
    assert run.returncode == 0, run.stderr
    assert len(run.stdout.splitlines()) == 1, run.stdout
    check_line(run.stdout)
    assert "fiber-switch" in run.stderr, run.stderr


def bench_missing_peer_is_named():
    with tempfile.TemporaryDirectory() as directory:
        run = reef("fabric", "--quick", "--case", "shm-read-64", "--json",
                   "-", REEF_PEERS=directory)
    assert run.returncode == 0, run.stderr
    one = check_line(run.stdout)
    assert set(one["peers"]) == {"raw"}, one
    assert set(one["absent"]) == {"ucx", "libfabric"}, one


def bench_broken_peer_is_named():
    with tempfile.TemporaryDirectory() as directory:
        for peer in ("peer_ucx", "peer_libfabric"):
            path = os.path.join(directory, peer)
            with open(path, "w", encoding="utf-8") as file:
                file.write("#!/bin/sh\nexit 3\n")
            os.chmod(path, 0o755)
        run = reef("fabric", "--quick", "--case", "shm-read-64", "--json",
                   "-", REEF_PEERS=directory)
    assert run.returncode == 0, run.stderr
    one = check_line(run.stdout)
    for why in one["absent"].values():
        assert "ended" in why or why.startswith("not built"), one


def bench_wrong_arguments_are_refused():
    for arguments in ([], ["nothing"], ["fabric", "--case", "none"],
                      ["fabric", "--seconds", "0"], ["fabric", "--what"],
                      ["fabric", "--rounds", "100"], ["alloc", "--size", "0"]):
        run = reef(*arguments)
        assert run.returncode == 2, (arguments, run)
        assert "reef bench:" in run.stderr, (arguments, run)


def bench_json_to_nowhere_fails():
    run = reef("fabric", "--quick", "--json", "/nonexistent/out.json")
    assert run.returncode == 1, run


def bench_help_helps():
    run = reef("--help")
    assert run.returncode == 0 and "--quick" in run.stdout, run


TESTS = [
    bench_quick_runs_every_case,
    bench_alloc_runs_every_case,
    bench_sync_runs_every_case,
    bench_redis_runs_every_case,
    bench_tree_runs_every_case,
    bench_log_runs_every_case,
    bench_txn_runs_every_case,
    bench_copies_runs_every_case,
    bench_sync_leaves_nothing_behind,
    bench_sync_without_redis_says_so,
    bench_json_to_stdout_is_only_json,
    bench_missing_peer_is_named,
    bench_broken_peer_is_named,
    bench_wrong_arguments_are_refused,
    bench_json_to_nowhere_fails,
    bench_help_helps,
]


sys.exit(run_each([
    (test.__name__, lambda _, test=test: test()) for test in TESTS]))
