"""image.py BUILD SOURCE - the OCI image that tools/image makes: that it is whole
and the same each time, what it says of itself, and that a pool runs in it; by
podman where that works, else by hand, as a runtime would. And the manifest for
Kubernetes, as YAML."""

import contextlib
import gzip
import hashlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile

from checks import Skipped, run_checks
from pool_processes import TIMEOUT_S, prepare_child, until

BUILD, SOURCE = (os.path.abspath(path) for path in sys.argv[1:3])
VOLUME = "/var/lib/reef"
# Ports that are free, and no children that outlive the test.
SETTINGS = {"REEF_LISTEN": "127.0.0.1:0", "REEF_NODE_LISTEN": "127.0.0.1:0",
            "REEF_REDIS_LISTEN": "127.0.0.1:0", "REEF_KEEP": "image"}
# A root as a container has it, then the program; the rest is its arguments.
ENTER = """
mount --make-rprivate /
mkdir -p "$1/proc" "$1/dev"
mount --rbind /proc "$1/proc"
mount --rbind /dev "$1/dev"
who=$2
root=$1
shift 2
exec env -i %s /usr/sbin/chroot $who "$root" "$@"
"""


def run(*command, **more):
    return subprocess.run(command, check=True, text=True,
                          stdout=subprocess.PIPE, **more).stdout


class Image:
    """The program, as an image; made once for all checks."""

    folder = None

    def __enter__(self):
        if not Image.folder:
            Image.folder = tempfile.mkdtemp(prefix="reef-image-")
            os.chmod(self.folder, 0o755)
            # As the package has them: /lib is a link in the image.
            for source, name in (BUILD + "/reef", "usr/bin/reef"), (
                    BUILD + "/ops/systemd/reef.target",
                    "lib/systemd/system/reef.target"):
                path = os.path.join(self.folder, "root", name)
                os.makedirs(os.path.dirname(path))
                shutil.copy(source, path)
            self.make("oci")
        self.version = self.read_json(
            "index.json")["manifests"][0]["annotations"][
                "org.opencontainers.image.ref.name"]
        self.manifest = self.blob(self.read_json("index.json")["manifests"][0])
        self.config = json.loads(self.blob_bytes(
            json.loads(self.manifest)["config"]))
        self.layers = json.loads(self.manifest)["layers"]
        return self

    def __exit__(self, *_):
        pass

    def make(self, name):
        run(SOURCE + "/tools/image", "--root", self.folder + "/root",
            os.path.join(self.folder, name))

    def read_json(self, name):
        with open("%s/oci/%s" % (self.folder, name), "rb") as stream:
            return json.load(stream)

    def blob_bytes(self, descriptor):
        """A blob, which is what its name says."""
        kind, digest = descriptor["digest"].split(":")
        with open("%s/oci/blobs/%s/%s" % (self.folder, kind, digest),
                  "rb") as stream:
            data = stream.read()
        assert len(data) == descriptor["size"], descriptor
        assert hashlib.sha256(data).hexdigest() == digest, descriptor
        return data

    def blob(self, descriptor):
        return self.blob_bytes(descriptor).decode()

    def archives(self):
        for layer in self.layers:
            yield tarfile.open(fileobj=io.BytesIO(gzip.decompress(
                self.blob_bytes(layer))))


def check_the_layout_is_whole(image):
    assert image.read_json("oci-layout") == {"imageLayoutVersion": "1.0.0"}
    known = {image.read_json("index.json")["manifests"][0]["digest"],
             json.loads(image.manifest)["config"]["digest"]}
    known |= {layer["digest"] for layer in image.layers}
    assert {"sha256:" + name for name in os.listdir(
        image.folder + "/oci/blobs/sha256")} == known
    assert image.config["rootfs"]["diff_ids"] == [
        "sha256:" + hashlib.sha256(gzip.decompress(image.blob_bytes(
            layer))).hexdigest() for layer in image.layers]
    seen = {}
    for archive in image.archives():
        for entry in archive:
            assert not entry.name.startswith(("/", "..")), entry.name
            assert not entry.mode & 0o6000, "set-user-id: " + entry.name
            assert entry.uid in (0, 7337), entry.name
            # A folder of one layer does not replace a link of another.
            assert seen.setdefault(entry.name, entry.type) == entry.type, (
                entry.name)
            seen[entry.name] = entry.type
    assert image.config["config"]["Entrypoint"][0][1:] in seen


def check_it_says_what_it_needs(image):
    config = image.config["config"]
    assert config["User"] == "7337:7337", "not root"
    assert config["Volumes"] == {VOLUME: {}}
    assert "REEF_DATA=" + VOLUME in config["Env"]
    assert config["StopSignal"] == "SIGTERM"
    with open(SOURCE + "/docs/OPERATIONS.md", encoding="utf-8") as stream:
        assert VOLUME in stream.read(), "the docs name the volume"


def check_the_same_files_make_the_same_image(image):
    image.make("again")
    for name in "index.json", "oci-layout":
        with open("%s/oci/%s" % (image.folder, name), "rb") as one, \
                open("%s/again/%s" % (image.folder, name), "rb") as two:
            assert one.read() == two.read(), name


def podman(image):
    """podman with a storage of its own; None: it runs nothing here."""
    if not shutil.which("podman"):
        return None
    command = ["podman", "--root", image.folder + "/storage", "--runroot",
               image.folder + "/runroot", "--storage-driver", "vfs"]
    tried = subprocess.run(
        [*command, "run", "--rm", "--network", "none", "oci:%s/oci:%s" % (
            image.folder, image.version), "version"], check=False, text=True,
        timeout=TIMEOUT_S, capture_output=True)
    if tried.returncode:
        print("podman runs nothing here: " + tried.stderr.strip()[-200:])
        return None
    return [*command, "run", "--rm", "--network", "none"] + [
        "--env=%s=%s" % pair for pair in SETTINGS.items()]


def by_hand(image, name, **more):
    """The layers in a folder, entered as a runtime would; as the user of the
    image where that is allowed, else as the only one there is."""
    root = os.path.join(image.folder, name)
    for archive in image.archives():
        archive.extractall(root, numeric_owner=True)
    words = " ".join(image.config["config"]["Env"] + [
        "%s=%s" % pair for pair in {**SETTINGS, **more}.items()])
    user = os.geteuid() == 0
    return ["unshare", "--mount", *([] if user else ["--map-root-user"]),
            "sh", "-euc", ENTER % words, "sh", root,
            "--userspec=7337:7337" if user else "",
            *image.config["config"]["Entrypoint"]]


@contextlib.contextmanager
def pool_up(command, out):
    """A pool in the image, which stops as it should."""
    with open(out, "wb") as stream:
        up = subprocess.Popen([*command, "up", "--lend", "64M",
                               "--extent-size", "4M"], stdout=stream,
                              stderr=subprocess.STDOUT,
                              preexec_fn=prepare_child)

    def told():
        with open(out, encoding="utf-8") as stream:
            return stream.read()

    try:
        until("the pool", lambda: "is up." in told() or
              up.poll() is not None)
        assert up.poll() is None, told()
        yield
    finally:
        if up.poll() is None:
            up.send_signal(signal.SIGTERM)
            up.wait(TIMEOUT_S)
    assert up.returncode == 0, told()


def check_podman_runs_it_or_skopeo_takes_it(image):
    name = "oci:%s/oci:%s" % (image.folder, image.version)
    command = podman(image)
    if command:
        with pool_up([*command, name], image.folder + "/podman.out"):
            return
    if not shutil.which("skopeo"):
        raise Skipped("there is no skopeo")
    told = json.loads(run("skopeo", "inspect", name))
    assert told["Layers"] == [layer["digest"] for layer in image.layers]
    assert told["Os"] == "linux", told
    # A copy reads and checks every blob.
    run("skopeo", "--insecure-policy", "copy", name, "dir:%s/copy" %
        image.folder)


def check_a_pool_runs_in_it_and_its_volume_stays(image):
    command = by_hand(image, "plain")
    for is_new in True, False:
        with pool_up(command, image.folder + "/up.out"):
            if is_new:
                run(*command, "space", "create", "s")
                run(*command, "map", "put", "s", "m", "k", "v")
            assert run(*command, "map", "get", "s", "m", "k") == "v\n"
    assert "node-1" in os.listdir(image.folder + "/plain" + VOLUME)


def check_it_runs_on_volumes_as_kubernetes_has_them(image):
    """Root's, and open to the group: what is Reef's is a folder inside."""
    if os.geteuid() != 0:
        raise Skipped("only root can give files away")
    command = by_hand(image, "given", REEF_DATA=VOLUME + "/data",
                      REEF_RUN="/run/reef/own")
    for path in VOLUME, "/run/reef":
        path = image.folder + "/given" + path
        os.chown(path, 0, 7337)
        os.chmod(path, 0o2775)
    with pool_up(command, image.folder + "/up.out"):
        assert "nodes" in run(*command, "status")


def check_the_manifest_of_kubernetes(image):
    try:
        import yaml
    except ImportError as error:
        raise Skipped("python3-yaml is not there") from error
    with open(SOURCE + "/ops/kubernetes/reef.yaml",
              encoding="utf-8") as stream:
        text = stream.read()
    assert "not been run on a cluster" in text
    things = list(yaml.safe_load_all(text))
    for thing in things:
        assert {"apiVersion", "kind", "metadata"} <= set(thing), thing
        assert thing["metadata"]["name"].startswith("reef"), thing
    sets = [one for one in things if one["kind"] == "StatefulSet"]
    assert sets
    services = {one["metadata"]["name"]: one for one in things
                if one["kind"] == "Service"}
    for one in sets:
        spec = one["spec"]
        pod = spec["template"]
        assert spec["selector"]["matchLabels"].items() <= (
            pod["metadata"]["labels"].items()), one["metadata"]
        assert services[spec["serviceName"]]["spec"]["selector"].items() <= (
            pod["metadata"]["labels"].items())
        claims = {claim["metadata"]["name"]
                  for claim in spec.get("volumeClaimTemplates", [])}
        volumes = {volume["name"]
                   for volume in pod["spec"].get("volumes", [])} | claims
        assert pod["spec"]["securityContext"]["runAsUser"] == 7337
        for container in pod["spec"]["containers"]:
            if "/reef:" not in container["image"]:
                continue
            assert container["image"].endswith("/reef:" + image.version)
            mounts = {mount["name"]: mount["mountPath"]
                      for mount in container["volumeMounts"]}
            assert set(mounts) <= volumes, mounts
            assert mounts["data"] == VOLUME and "data" in claims
            settings = {one["name"]: one.get("value")
                        for one in container["env"]}
            assert settings["REEF_DATA"] == VOLUME + "/data", settings
            # What the program is told, it knows.
            known = run(BUILD + "/reef", container["args"][0], "--help")
            for word in container["args"][1:]:
                if word.startswith("--"):
                    assert "  %s " % word.split("=")[0] in known, word


def main():
    try:
        return run_checks(globals(), Image, sys.argv[3:])
    finally:
        if Image.folder:
            shutil.rmtree(Image.folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
