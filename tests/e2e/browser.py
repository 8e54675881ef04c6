"""A browser for the tests: Debian's chromium, without a screen, driven by
WebDriver, of which this is as much as they need."""

import base64
import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile

from pool_processes import TIMEOUT_S, prepare_child, until

# No telephone calls of its own, no first steps, nothing that stays.
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic",
         "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync",
         "--disable-dev-shm-usage", "--hide-scrollbars")
KEYS = {"Escape": "\ue00c", "Tab": "\ue004", "Enter": "\ue007",
        "ArrowDown": "\ue015"}


class Browser:
    """One window. Closed with the `with` that opened it."""

    def __init__(self, *flags):
        self.flags = FLAGS + flags
        self.folder = tempfile.mkdtemp(prefix="reef-browser-")
        self.log = open(self.folder + "/driver.log", "w+", encoding="utf-8")
        self.driver = subprocess.Popen(
            ["chromedriver", "--port=0"], stdin=subprocess.DEVNULL,
            stdout=self.log, stderr=subprocess.STDOUT,
            env=dict(os.environ, HOME=self.folder, TMPDIR=self.folder),
            start_new_session=True, preexec_fn=prepare_child)
        self.session = None

    def __enter__(self):
        try:
            self.port = int(until("chromedriver", self.told_port).group(1))
            self.session = self.call("POST", "/session", {"capabilities": {
                "alwaysMatch": {
                    "goog:loggingPrefs": {"browser": "ALL"},
                    "goog:chromeOptions": {"args": [
                        *self.flags, "--user-data-dir=" + self.folder + "/data"]},
                }}})["sessionId"]
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *why):
        if self.session:
            self.call("DELETE", "")
        # The group is ours: the driver leads it, and its browser is in it.
        os.killpg(self.driver.pid, signal.SIGKILL)
        self.driver.wait()
        self.log.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def told_port(self):
        with open(self.log.name, encoding="utf-8") as stream:
            return re.search(r"successfully on port (\d+)", stream.read())

    def call(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port,
                                                timeout=TIMEOUT_S)
        if self.session:
            path = "/session/" + self.session + path
        connection.request(method, path, None if method != "POST" else
                           json.dumps(body or {}),
                           {"Content-Type": "application/json"})
        value = json.loads(connection.getresponse().read())["value"]
        connection.close()
        if isinstance(value, dict) and "error" in value:
            raise AssertionError("%s %s: %s" % (method, path, value))
        return value

    def open(self, url):
        self.call("POST", "/url", {"url": url})

    def run(self, script, *arguments):
        """What a function with that body returns in the page."""
        return self.call("POST", "/execute/sync",
                         {"script": script, "args": arguments})

    def devtools(self, command, **arguments):
        return self.call("POST", "/goog/cdp/execute",
                         {"cmd": command, "params": arguments})

    def press(self, *keys):
        """Press keys, one after the other; names in KEYS, or characters."""
        actions = []
        for key in keys:
            for what in "keyDown", "keyUp":
                actions.append({"type": what, "value": KEYS.get(key, key)})
        self.call("POST", "/actions", {"actions": [
            {"type": "key", "id": "keyboard", "actions": actions}]})

    def console(self):
        """What the page and the browser complained of since the last time."""
        return self.call("POST", "/se/log", {"type": "browser"})

    def look(self, width, height, theme="light", motion="no-preference"):
        """A window of that size, for eyes that like light or dark."""
        self.devtools("Emulation.setDeviceMetricsOverride", width=width,
                      height=height, deviceScaleFactor=1, mobile=False)
        self.devtools("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": theme},
            {"name": "prefers-reduced-motion", "value": motion}])

    def screenshot(self, path):
        with open(path, "wb") as stream:
            stream.write(base64.b64decode(self.call("GET", "/screenshot")))
