"""redis_tls.py REEF TOP - the door by TLS: redis-cli (whose library is hiredis),
redis-py, node-redis, ioredis, and Python's own ssl against certificates that are
made here. TOP is the top of the source tree (redis_clients.py).
"""

import os
import re
import shutil
import socket
import ssl
import subprocess
import sys

from checks import Skipped, run_checks
from pool_processes import free_port, until
from redis_servers import Server, Servers
from redis_wire import Closed, Wire, request, tree

REEF = os.path.abspath(sys.argv[1])
MODULES = os.path.join(os.path.abspath(sys.argv[2]), "build-node")
NODE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "node")
MIB = 1 << 20


class Certificates:
    """An authority, and what it has signed."""

    def __init__(self, home, name="authority"):
        self.home, self.name = home, name
        self.openssl("req", "-x509", "-newkey", "ec", "-pkeyopt",
                     "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                     "-subj", "/CN=" + name, "-keyout", self.path("key"),
                     "-out", self.path("crt"))
        self.file = self.path("crt")

    def path(self, kind, name=None):
        return os.path.join(self.home, "%s.%s" % (name or self.name, kind))

    def openssl(self, *words):
        subprocess.run(["openssl", *words], check=True, cwd=self.home,
                       stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def sign(self, name):
        """A key and a certificate for it."""
        extension = self.path("ext", name)
        with open(extension, "w", encoding="ascii") as stream:
            stream.write("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
        self.openssl("req", "-newkey", "ec", "-pkeyopt",
                     "ec_paramgen_curve:P-256", "-nodes", "-subj",
                     "/CN=" + name, "-keyout", self.path("key", name), "-out",
                     self.path("csr", name))
        self.openssl("x509", "-req", "-in", self.path("csr", name), "-CA",
                     self.file, "-CAkey", self.path("key"), "-CAcreateserial",
                     "-days", "2", "-extfile", extension, "-out",
                     self.path("crt", name))
        os.chmod(self.path("key", name), 0o600)
        return self.path("crt", name), self.path("key", name)


class Doors(Servers):
    """A pool, and doors with TLS beside the socket."""

    def secure(self, certificate, *arguments, name="door", **more):
        path = os.path.join(self.home, name + ".sock")
        port = free_port()
        process = self.start(
            name, "redis", "--redis-listen", "none", "--redis-unix", path,
            "--redis-tls", "127.0.0.1:%d" % port, "--redis-cert",
            certificate[0], "--redis-key", certificate[1], *arguments, **more)
        return Server(name, process, path, port).ready()


class Secure(Wire):
    """One connection, by TLS."""

    def __init__(self, door, authority, own=None, version=None, timeout=30):
        super().__init__(door.tcp, timeout)
        context = ssl.create_default_context(cafile=authority)
        if version:
            context.minimum_version = context.maximum_version = version
        if own:
            context.load_cert_chain(*own)
        self.socket = context.wrap_socket(self.socket,
                                          server_hostname="localhost")


def refused(*arguments, **more):
    """True if no PING is answered."""
    try:
        with Secure(*arguments, **more) as wire:
            return wire.ask("PING") != b"+PONG\r\n"
    except (OSError, Closed):
        return True


def number_of(wire):
    return wire.socket.getpeercert()["serialNumber"]


def check_values(pool):
    """What crosses is what was sent, of any size, pieces and pipelines."""
    authority = Certificates(pool.home)
    pool.up()
    door = pool.secure(authority.sign("door"))
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        with Secure(door, authority.file, version=version) as wire:
            assert wire.socket.compression() is None
            for size in (0, 1, 100, 16383, 16384, 16385, 70000, 300_000,
                         9 * MIB):
                value = os.urandom(size)
                assert wire.ask("SET", "k", value) == b"+OK\r\n"
                assert tree(wire.ask("GET", "k")) == (b"$", value)
            assert wire.ask("MSET", "a", b"a" * 70000, "b", "b") == b"+OK\r\n"
            assert tree(wire.ask("MGET", "a", "b", "c"))[1][1] == (b"$", b"b")
            count = 20000
            wire.send(request("SET", "n", "0"))
            assert wire.reply() == b"+OK\r\n"
            wire.send(request("INCR", "n") * count + request("GET", "n"))
            whole = wire.exactly(sum(len(b":%d\r\n" % i)
                                     for i in range(1, count + 1)))
            assert whole.endswith(b":%d\r\n" % count)
            assert wire.reply() == b"$5\r\n20000\r\n"
            # Bytes one by one, each in a record.
            for byte in request("ECHO", "slow"):
                wire.send(bytes([byte]))
            assert wire.reply() == b"$4\r\nslow\r\n"
    with door.wire() as wire:
        assert wire.ask("GET", "n") == b"$5\r\n20000\r\n"


def check_unread(pool):
    """Who does not read costs as little as without TLS."""
    authority = Certificates(pool.home)
    pool.up()
    door = pool.secure(authority.sign("door"), "--redis-threads", "1")
    value = b"v" * MIB
    with door.wire() as wire, Secure(door, authority.file) as slow:
        assert wire.ask("SET", "k", value) == b"+OK\r\n"
        slow.send(request("GET", "k") * 100)
        for _ in range(100):
            assert wire.ask("PING") == b"+PONG\r\n"
        line = next(line for line in wire.ask("CLIENT", "LIST").splitlines()
                    if b"cmd=get" in line)
        assert int(re.search(rb"tot-mem=(\d+)", line)[1]) < 16 * MIB, line
        for _ in range(100):
            assert tree(slow.reply()) == (b"$", value)


def check_strangers(pool):
    """Old protocols, no TLS at all, half a handshake, and nonsense."""
    authority = Certificates(pool.home)
    pool.up()
    door = pool.secure(authority.sign("door"))
    other = Certificates(pool.home, "other")
    assert refused(door, other.file)
    with door.wire(tcp=True) as plain:
        plain.send(request("PING"))
        assert b"PONG" not in plain.rest()
    out = subprocess.run(
        ["openssl", "s_client", "-connect", "127.0.0.1:%d" % door.port,
         "-tls1_1", "-cipher", "ALL:@SECLEVEL=0"], input=b"",
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=30,
        check=False)
    assert out.returncode, out.stdout
    crowd = []
    for size in range(60):
        one = socket.create_connection(door.tcp)
        one.sendall(b"\x16\x03\x01\x02\x00\x01" + os.urandom(size))
        crowd.append(one)
    with Secure(door, authority.file) as wire:
        assert wire.ask("PING") == b"+PONG\r\n"
        for one in crowd:
            one.close()
        until("they are gone", lambda: re.search(
            rb"connected_clients:1\r", wire.ask("INFO", "clients")))


def check_client_certificates(pool):
    authority = Certificates(pool.home)
    own = authority.sign("client")
    wrong = Certificates(pool.home, "other").sign("stranger")
    certificate = authority.sign("door")
    pool.up()
    for word, without, with_wrong in (("required", True, True),
                                      ("optional", False, True),
                                      ("no", False, False),
                                      (None, True, True)):
        more = ["--redis-client-certs", word] if word else []
        door = pool.secure(certificate, "--redis-ca", authority.file, *more)
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            assert refused(door, authority.file,
                           version=version) == without, word
            assert refused(door, authority.file, wrong,
                           version=version) == with_wrong, word
            assert not refused(door, authority.file, own, version=version)
        assert door.process.stop() == 0, door.process.error


def check_changed(pool):
    """Certificates are changed while clients are connected."""
    authority = Certificates(pool.home)
    first, second = authority.sign("first"), authority.sign("second")
    pool.up()
    door = pool.secure(first)
    with Secure(door, authority.file) as old:
        assert old.ask("CONFIG", "GET", "tls-cert-file").endswith(
            first[0].encode() + b"\r\n")
        # A key that is not the certificate's changes nothing.
        pipe = os.path.join(pool.home, "pipe")
        os.mkfifo(pipe)
        for words in (("tls-cert-file", second[0]),
                      ("tls-cert-file", pipe), ("tls-ca-cert-file", pipe),
                      ("tls-key-file", "/nonexistent"),
                      ("tls-ca-cert-file", second[1]),
                      ("tls-auth-clients", "yes"),
                      ("tls-auth-clients", "perhaps")):
            answer = old.ask("CONFIG", "SET", *words)
            assert answer.startswith(b"-ERR CONFIG SET failed"), answer
        with Secure(door, authority.file) as wire:
            assert number_of(wire) == number_of(old)
        assert old.ask("CONFIG", "SET", "tls-cert-file", second[0],
                       "tls-key-file", second[1]) == b"+OK\r\n"
        with Secure(door, authority.file) as wire:
            assert wire.ask("PING") == b"+PONG\r\n"
            assert number_of(wire) != number_of(old)
        # The same files with other contents.
        for old_file, new_file in zip(second, first):
            with open(new_file, "rb") as stream:
                data = stream.read()
            with open(old_file, "wb") as stream:
                stream.write(data)
        assert old.ask("CONFIG", "SET", "tls-cert-file",
                       second[0]) == b"+OK\r\n"
        with Secure(door, authority.file) as wire:
            assert number_of(wire) == number_of(old)
        assert old.ask("CONFIG", "SET", "tls-ca-cert-file", authority.file,
                       "tls-auth-clients", "yes") == b"+OK\r\n"
        assert refused(door, authority.file)
        assert not refused(door, authority.file, first)
        assert old.ask("PING") == b"+PONG\r\n"
        assert old.ask("CONFIG", "GET", "tls-auth-clients").endswith(
            b"$3\r\nyes\r\n")


def check_refusals(pool):
    """What is said where a door cannot begin."""
    authority = Certificates(pool.home)
    certificate = authority.sign("door")
    other = authority.sign("other")
    pool.up()
    listen = ["redis", "--redis-listen", "none", "--redis-tls",
              "127.0.0.1:%d" % free_port(), "--redis-unix",
              os.path.join(pool.home, "d.sock")]
    open_key = os.path.join(pool.home, "open.key")
    with open(certificate[1], "rb") as stream, open(open_key, "wb") as copy:
        copy.write(stream.read())
    os.chmod(open_key, 0o644)
    for words, said in (
            ([], "--redis-cert"),
            (["--redis-cert", certificate[0], "--redis-key", other[1]],
             "is not the key of"),
            (["--redis-cert", "/nonexistent", "--redis-key", other[1]],
             "/nonexistent: "),
            (["--redis-cert", certificate[1], "--redis-key", certificate[1]],
             "is not a certificate"),
            (["--redis-cert", certificate[0], "--redis-key", open_key],
             "chmod 600"),
            (["--redis-cert", certificate[0], "--redis-key", certificate[1],
              "--redis-client-certs", "required"], "--redis-ca")):
        door = pool.start("door", *listen, *words)
        assert door.end() != 0, words
        assert said in door.error, (words, door.error)
    # The world needs a password, or certificates.
    listen[4] = "0.0.0.0:%d" % free_port()
    own = ["--redis-cert", certificate[0], "--redis-key", certificate[1]]
    door = pool.start("door", *listen, *own)
    assert door.end() != 0 and "password" in door.error, door.error
    door = pool.start("door", *listen, *own, "--redis-ca",
                      authority.file).saw("is open")
    assert door.stop() == 0, door.error


def check_redis_cli(pool):
    authority = Certificates(pool.home)
    own = authority.sign("client")
    pool.up()
    door = pool.secure(authority.sign("door"), "--redis-ca", authority.file)

    def cli(*words):
        return subprocess.run(
            ["redis-cli", "-p", str(door.port), "--tls", "--cacert",
             authority.file, *words], stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, timeout=60, check=False).stdout

    mine = ("--cert", own[0], "--key", own[1])
    assert cli(*mine, "SET", "k", "v") == b"OK\n"
    assert cli(*mine, "GET", "k") == b"v\n"
    assert b"v" not in cli("GET", "k").split()
    out = subprocess.run(
        ["redis-benchmark", "-p", str(door.port), "--tls", "--cacert",
         authority.file, *mine, "-n", "2000", "-c", "20", "-P", "4", "-q",
         "-t", "set,get"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        timeout=120, check=False)
    assert out.returncode == 0 and b"GET" in out.stdout, out.stdout
    # Debian's module is for Debian's interpreter.
    assert subprocess.run(["/usr/bin/python3", "-c", PYTHON % (
        door.port, authority.file, *own)], check=False).returncode == 0


def with_password(pool):
    """The words for a door with a password, which is "secret"."""
    path = os.path.join(pool.home, "password")
    with open(path, "w", encoding="ascii") as stream:
        stream.write("secret\n")
    os.chmod(path, 0o600)
    return ["--redis-password-file", path]


def check_node_clients(pool):
    """node-redis and ioredis come in with the password, and refuse a door whose
    certificate another authority has signed."""
    if not shutil.which("node") or not os.path.isfile(
            os.path.join(MODULES, "installed")):
        assert os.environ.get("CI") != "true"
        raise Skipped("the clients for node are not installed "
                      "(tools/setup test)")
    authority = Certificates(pool.home)
    other = Certificates(pool.home, "other")
    pool.up()
    door = pool.secure(authority.sign("door"), *with_password(pool))
    for client in ("node-redis", "ioredis"):
        for file, password, wanted in (
                (authority.file, "secret", r"ok"),
                (other.file, "secret", r"UNABLE_TO_VERIFY_LEAF_SIGNATURE|"
                 r"SELF_SIGNED_CERT_IN_CHAIN|CERT_SIGNATURE_FAILURE"),
                (authority.file, "wrong", r"WRONGPASS.*")):
            done = subprocess.run(
                ["node", os.path.join(NODE, "tls.mjs"), client,
                 str(door.port), file, password], capture_output=True,
                text=True, stdin=subprocess.DEVNULL, timeout=60, check=False,
                env={**os.environ, "REDIS_CLIENTS": MODULES})
            assert re.fullmatch(wanted, done.stdout.strip()), (client, done)


def check_late(pool):
    """Who does not finish the handshake, or does not say the password, is
    closed in time; who has stays."""
    authority = Certificates(pool.home)
    pool.up()
    door = pool.secure(authority.sign("door"), *with_password(pool),
                       "--redis-login", "100ms")
    with Secure(door, authority.file) as known, \
            Secure(door, authority.file) as silent, \
            door.wire() as near, door.wire(tcp=True) as half:
        assert known.ask("AUTH", "secret") == b"+OK\r\n"
        half.send(b"\x16\x03\x01\x02\x00\x01")
        assert near.ask("PING").startswith(b"-NOAUTH")
        for late in (silent, near, half):
            assert late.rest() == b"", late
        assert known.ask("PING") == b"+PONG\r\n"


PYTHON = """
import redis
r = redis.Redis(port=%d, ssl=True, ssl_ca_certs=%r, ssl_certfile=%r,
                ssl_keyfile=%r)
assert r.set("python", b"x" * 100000)
assert r.get("python") == b"x" * 100000
with r.pipeline() as pipe:
    for i in range(2000):
        pipe.incr("count")
    assert pipe.execute()[-1] == 2000
"""


if __name__ == "__main__":
    sys.exit(run_checks(globals(), lambda: Doors(REEF), sys.argv[3:]))
