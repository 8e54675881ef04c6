"""package.py BUILD SOURCE LIBRARY - what can be said of the Debian packages
without building them; `make deb` builds them, `make deb-test` tries them."""

import contextlib
import fnmatch
import glob
import json
import os
import re
import subprocess
import sys

from checks import run_checks

BUILD, SOURCE, LIBRARY = (os.path.abspath(path) for path in sys.argv[1:4])
PACKAGES = {"reef", "libreef0", "libreef-dev", "libsqlite3-mod-reef",
            "nbdkit-plugin-reef", "reef-doc"}
# What debian/rules moves, and where debhelper puts libraries.
MOVED = (("usr/lib/systemd/", "lib/systemd/"),
         ("usr/share/zsh/site-functions/", "usr/share/zsh/vendor-completions/"),
         ("usr/lib/libreef", "usr/lib/TRIPLET/libreef"),
         ("usr/lib/nbdkit/", "usr/lib/TRIPLET/nbdkit/"),
         ("usr/lib/reef_sqlite", "usr/lib/TRIPLET/reef_sqlite"),
         ("usr/lib/reef_pages", "usr/lib/TRIPLET/reef_pages"),
         ("usr/lib/pkgconfig/", "usr/lib/TRIPLET/pkgconfig/"))


def read(*path):
    with open(os.path.join(SOURCE, *path), encoding="utf-8") as stream:
        return stream.read()


def paragraphs(text):
    """The fields of each paragraph of a control file."""
    return [{name: " ".join(value.split()) for name, value in re.findall(
        r"^([\w-]+):((?:.*\n)(?:[ \t].*\n)*)", part + "\n", re.M)}
            for part in text.split("\n\n")]


def run(*command):
    return subprocess.run(command, check=True, text=True,
                          stdout=subprocess.PIPE).stdout


def check_symbols_are_those_of_the_library(_):
    lines = read("debian", "libreef0.symbols").splitlines()
    soname = re.search(r"SONAME.*\[(.*)\]", run("readelf", "-d", LIBRARY))
    assert lines[0] == "%s libreef0 #MINVER#" % soname.group(1), lines[0]
    listed = {}
    for line in lines:
        match = re.fullmatch(r" (\w+)@Base ([\d.]+)", line)
        if match:
            listed[match.group(1)] = match.group(2)
    shown = {line.split()[-1].split("@")[0] for line in run(
        "nm", "-D", "--defined-only", LIBRARY).splitlines()}
    assert set(listed) == shown, (
        "debian/libreef0.symbols: gone %s; new, each a line ` NAME@Base "
        "VERSION`: %s" % (sorted(set(listed) - shown),
                          sorted(shown - set(listed))))


def check_control_and_changelog(_):
    source, *binaries = paragraphs(read("debian", "control"))
    assert {one["Package"] for one in binaries} == PACKAGES, binaries
    for one in binaries:
        assert "${misc:Depends}" in one["Depends"], one
        assert one["Architecture"] in ("linux-any", "all"), one
        if one["Architecture"] != "all" and one["Package"] != "libreef-dev":
            assert "${shlibs:Depends}" in one["Depends"], one
    # The version of the project is that of the package.
    version = re.search(r"version: '([\d.]+)'", read("meson.build")).group(1)
    head = read("debian", "changelog").splitlines()[0]
    assert head.startswith("reef (%s)" % version), head
    # What the build asks for, the package asks for.
    for library in re.findall(r"^\w+ = dependency\('(\w+)'",
                              read("meson.build"), re.M):
        package = {"threads": None, "libxxhash": "libxxhash-dev",
                   "libcrypto": "libssl-dev", "libssl": "libssl-dev",
                   "libmicrohttpd": "libmicrohttpd-dev",
                   "libibverbs": "libibverbs-dev",
                   "nbdkit": "nbdkit-plugin-dev",
                   "sqlite3": "libsqlite3-dev"}.get(library)
        if package:
            assert package in source["Build-Depends"], package


def check_every_installed_file_is_in_one_package(_):
    installed = json.loads(run("meson", "introspect", "--installed", BUILD))
    options = {one["name"]: one["value"] for one in json.loads(
        run("meson", "introspect", "--buildoptions", BUILD))}
    patterns = {}
    for path in glob.glob(SOURCE + "/debian/*.install"):
        for line in read(path).split():
            patterns[line] = os.path.basename(path)
    used = set()
    for path in installed.values():
        name = "usr" + path[len(options["prefix"]):]
        for before, after in MOVED:
            if name.startswith(before):
                name = after + name[len(before):]
        # Bench peers, which no package has (-Dpeers=disabled).
        if name.startswith("usr/libexec/reef/peers/"):
            continue
        found = [one for one in patterns if fnmatch.fnmatch(name, one) or
                 fnmatch.fnmatch(name, one + "/*")]
        # "libreef.so.*" and "libreef.so" are two things.
        assert len(found) == 1, (name, found)
        used.add(found[0])
    # Links that go with the library are made at install time.
    idle = set(patterns) - used - {"usr/lib/*/libreef.so"}
    assert not idle, idle


def check_documents_are_there(_):
    listed = set(read("debian", "reef-doc.docs").split())
    shipped = {os.path.relpath(path, SOURCE)
               for path in glob.glob(SOURCE + "/docs/*")}
    # That one is beside the program that it explains.
    assert listed == shipped - {"docs/OPERATIONS.md"} | {"README.md"}, (
        listed ^ shipped)


if __name__ == "__main__":
    sys.exit(run_checks(globals(), contextlib.nullcontext, sys.argv[4:]))
