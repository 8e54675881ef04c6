"""redis_python.py SOCKET - a script with redis-py; prints what came back, a line
for each step. Run by an interpreter that has the module."""

import sys
import threading

import redis

def lines(client, other, path):
    """Name and call of each step."""
    yield "flush", client.flushall
    yield "ping", client.ping
    yield "set", lambda: client.set("a", 1)
    yield "get", lambda: client.get("a")
    yield "get none", lambda: client.get("none")
    yield "set ex", lambda: client.set("b", "x", ex=100)
    yield "ttl", lambda: client.ttl("b")
    yield "set nx", lambda: client.set("a", 2, nx=True)
    yield "set xx get", lambda: client.set("a", 3, xx=True, get=True)
    yield "set keepttl", lambda: client.set("b", "y", keepttl=True)
    yield "ttl kept", lambda: client.ttl("b")
    yield "set pxat", lambda: client.set("p", 3, pxat=33177117420123)
    yield "pexpiretime", lambda: client.execute_command("PEXPIRETIME", "p")
    yield "set wrong", lambda: client.execute_command("SET", "a", 1, "EX", 0)
    yield "setex", lambda: client.setex("a", 100, 4)
    yield "psetex wrong", lambda: client.psetex("a", -1, 4)
    yield "mset", lambda: client.mset({"m1": "x", "m2": "y"})
    yield "mget", lambda: client.mget("m1", "none", "m2")
    yield "msetnx", lambda: client.msetnx({"m1": "x", "m9": "y"})
    yield "incr", lambda: client.incr("n")
    yield "incrby", lambda: client.incrby("n", 41)
    yield "decrby", lambda: client.decrby("n", 2)
    yield "incrbyfloat", lambda: client.incrbyfloat("f", 1.5)
    yield "incr wrong", lambda: client.incr("m1")
    yield "append", lambda: client.append("s", "hello world")
    yield "getrange", lambda: client.getrange("s", 0, 4)
    yield "setrange", lambda: client.setrange("s", 6, "there")
    yield "strlen", lambda: client.strlen("s")
    yield "getset", lambda: client.getset("s", "new")
    yield "getdel", lambda: client.getdel("s")
    yield "getex", lambda: client.getex("b", persist=True)
    yield "expire", lambda: client.expire("a", 100)
    yield "expire gt", lambda: client.expire("a", 50, gt=True)
    yield "persist", lambda: client.persist("a")
    yield "exists", lambda: client.exists("a", "b", "none")
    yield "type", lambda: client.type("a")
    yield "rename", lambda: client.rename("m1", "m3")
    yield "rename none", lambda: client.rename("none", "m3")
    yield "renamenx", lambda: client.renamenx("m3", "a")
    yield "copy", lambda: client.copy("m3", "m4", replace=True)
    yield "copy db", lambda: client.copy("m3", "m4", destination_db=2)
    yield "delete", lambda: client.delete("m2", "m3")
    yield "unlink", lambda: client.unlink("m4")
    yield "touch", lambda: client.touch("a", "none")
    yield "encoding", lambda: client.object("ENCODING", "a")
    yield "idletime", lambda: client.object("IDLETIME", "a") < 60
    yield "memory", lambda: client.memory_usage("a") > 0
    yield "dbsize", client.dbsize
    yield "keys", lambda: sorted(client.keys("*"))
    yield "randomkey", lambda: client.randomkey() in client.keys()
    yield "scan", lambda: scan(client)
    yield "pipeline", lambda: pipeline(client, False)
    yield "transaction", lambda: pipeline(client, True)
    yield "transaction wrong", lambda: client.pipeline().set(
        "t", "x").incr("t").get("t").execute(raise_on_error=False)
    yield "watch kept", lambda: client.transaction(increment, "w")
    yield "transfers", lambda: transfers(path)
    yield "watch broken", lambda: broken(client, other)
    yield "counted together", lambda: together(path)
    yield "big", lambda: client.set("big", b"b" * 3000000) and client.get(
        "big") == b"b" * 3000000
    yield "bytes", lambda: client.set(b"\0\1", bytes(range(256))) and client.get(
        b"\0\1")
    yield "unknown", lambda: client.execute_command("NOSUCH", "a", "b")
    yield "name", lambda: (client.client_setname("me"), client.client_getname())
    yield "id", lambda: client.client_id() > 0
    yield "clients", lambda: sorted(client.client_list()[0])
    yield "info", lambda: client.info()["redis_version"]
    yield "info role", lambda: client.info("replication")["role"]
    yield "keyspace", lambda: sorted(client.info("keyspace"))
    yield "time", lambda: len(client.time())
    yield "config", lambda: client.config_get("databases")
    yield "command", lambda: client.execute_command("COMMAND INFO", "get")
    yield "lock", lambda: lock(client)
    yield "another db", lambda: redis.Redis(
        unix_socket_path=path, db=5).set("k", "v")
    yield "db out of range", lambda: redis.Redis(
        unix_socket_path=path, db=99).set("k", "v")
    yield "flushdb", client.flushdb


def scan(client):
    for i in range(300):
        client.set("scan:%d" % i, i)
    return len(set(client.scan_iter(match="scan:*", count=20)))


def pipeline(client, transaction):
    with client.pipeline(transaction=transaction) as pipe:
        pipe.set("t", 1).incr("t").get("t").mget("t", "none").ttl("t")
        return pipe.execute()


def increment(pipe):
    value = int(pipe.get("w") or 0)
    pipe.multi()
    pipe.set("w", value + 1)


def broken(client, other):
    with client.pipeline() as pipe:
        pipe.watch("w")
        other.set("w", 9)
        pipe.multi()
        pipe.set("w", 10)
        return pipe.execute()


def together(path):
    """Threads that add to one number, each by WATCH."""
    def work():
        client = redis.Redis(unix_socket_path=path)
        for _ in range(25):
            client.transaction(increment, "w")
        client.close()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    client = redis.Redis(unix_socket_path=path)
    return client.get("w")


def move(pipe):
    one, other = (int(value) for value in pipe.mget("one", "other"))
    pipe.multi()
    pipe.mset({"one": one - 3, "other": other + 3})


def transfers(path):
    """Threads that move money between two keys, each by WATCH of both."""
    redis.Redis(unix_socket_path=path).mset({"one": 1000, "other": 1000})
    sums = []

    def work():
        client = redis.Redis(unix_socket_path=path)
        for _ in range(25):
            client.transaction(move, "one", "other")
            sums.append(sum(map(int, client.mget("one", "other"))))
        client.close()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return set(sums), redis.Redis(unix_socket_path=path).mget("one", "other")


def lock(client):
    """Its lock needs scripts, which a door need not have: only the taking."""
    return client.set("lock", "token", nx=True, px=1000), client.set(
        "lock", "other", nx=True, px=1000)


def main():
    path = sys.argv[1]
    client = redis.Redis(unix_socket_path=path)
    other = redis.Redis(unix_socket_path=path)
    for name, run in lines(client, other, path):
        try:
            value = repr(run())
        except redis.RedisError as error:
            value = "%s: %s" % (type(error).__name__, error)
        print("%s: %s" % (name, value))


if __name__ == "__main__":
    main()
