"""page.py REEF - the live page in a real browser: what it shows, what it
says when something is wrong, what keys do, and what other pages can do with it.
A screenshot of each check is left in REEF_SHOTS, if that is set."""

import http.server
import os
import re
import shutil
import signal
import subprocess
import sys
import threading

from browser import Browser
from checks import run_checks
from pool_processes import free_port, until, until_said
from web_pool import Watched

REEF = os.path.abspath(sys.argv[1])
SIZE_MAX = 60 << 10
PICTURES_MAX = 2  # one a second, until what the pool knows is shown
ODD = '<script>document.title="x"</script>\'"&<b>b'
CONTRAST_MIN = 4.5

# The least contrast of a text with what is behind it, and which text that is.
CONTRAST = """
const parse = (text) => {
    const found = text.match(/[\\d.]+/g).map(Number);
    const scale = text.startsWith('color(') ? 1 : 255;
    return {rgb: found.slice(0, 3).map((one) => one / scale),
            alpha: found[3] ?? 1};
};
const luminance = (rgb) => rgb.map((one) => one <= 0.03928 ? one / 12.92 :
    ((one + 0.055) / 1.055) ** 2.4).reduce((all, one, i) =>
    all + one * [0.2126, 0.7152, 0.0722][i], 0);
const behind = (element) => {
    for (; element; element = element.parentElement) {
        const colour = parse(getComputedStyle(element).backgroundColor);
        if (colour.alpha === 1)
            return colour.rgb;
    }
    return [1, 1, 1];
};
let least = [99, ''];
for (const element of document.querySelectorAll('body *')) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 &&
        node.data.trim());
    if (!own || !element.checkVisibility() || element.closest('svg'))
        continue;
    const one = luminance(parse(getComputedStyle(element).color).rgb);
    const two = luminance(behind(element));
    const ratio = (Math.max(one, two) + 0.05) / (Math.min(one, two) + 0.05);
    if (ratio < least[0])
        least = [ratio, element.outerHTML.slice(0, 200)];
}
return least;
"""
# What can be used and has no name, or is no button and can be clicked.
NAMELESS = """
return [...document.querySelectorAll('button, input, a, svg[role], table, '+
    'section, dialog')].filter((one) => !(one.textContent.trim() &&
    one.matches('button, a') || one.ariaLabel ||
    document.getElementById(one.getAttribute('aria-labelledby'))))
    .map((one) => one.outerHTML.slice(0, 100));
"""


class Place(Watched):
    """A pool, and the window that all checks have in common."""

    browser = None

    def __init__(self):
        super().__init__(REEF)
        self.browser.look(1400, 1000)

    def __exit__(self, kind, error, trace):
        folder = os.environ.get("REEF_SHOTS")
        if folder:
            self.browser.screenshot("%s/%s.png" % (folder, os.path.basename(
                self.home)))
        # What it says when its pool goes away is not the next check's.
        self.browser.open("about:blank")
        self.browser.console()
        super().__exit__(kind, error, trace)

    def visit(self, port=None, state="live"):
        self.browser.open("http://127.0.0.1:%d/" % (port or self.port))
        self.comes(state)
        return self.browser

    def comes(self, state):
        look = ("return [document.body.dataset.state, "
                "document.getElementById('notice').innerText]")
        until_said(lambda: "the page is %s, not %s" % (
            state, self.browser.run(look)),
                   lambda: self.browser.run(look)[0] == state)

    def row(self, table, name):
        """Class and text of the row of that name; None: there is none."""
        return self.browser.run("""
            const [table, name] = arguments;
            const row = [...document.querySelectorAll(`#${table} tbody tr`)]
                .find((row) => row.firstChild.textContent === name);
            return row ? [row.className, row.innerText] : null;
            """, table, name)

    def texts(self, selector):
        return self.browser.run(
            "return [...document.querySelectorAll(arguments[0])].map((one) => "
            "one.textContent)", selector)

    def is_quiet(self):
        """Neither an error nor a breach of the policy was told."""
        told = self.browser.console()
        assert not told, told


def check_files_are_small_and_whole(pool):
    pool.up()
    total = 0
    for path in "/", "/page.js", "/page.css", "/icon.svg":
        status, headers, body = pool.get(path)
        assert status == 200, path
        assert headers["X-Content-Type-Options"] == "nosniff"
        policy = dict(part.strip().split(" ", 1) for part in headers[
            "Content-Security-Policy"].split(";"))
        assert policy["default-src"] == "'none'", policy
        assert policy["frame-ancestors"] == "'none'", policy
        assert policy["script-src"] == policy["style-src"] == "'self'", policy
        assert "unsafe" not in str(policy) and "*" not in str(policy), policy
        # Nothing comes from elsewhere; an SVG's name of itself is not a place.
        body = body.replace("http://www.w3.org/2000/svg", "")
        assert "://" not in body and "//cdn" not in body, path
        assert "innerHTML" not in body and "eval(" not in body, path
        total += len(body.encode())
    assert total <= SIZE_MAX, total
    html = pool.get("/")[2]
    assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?! src)", html)
    assert pool.get("/page.js", "HEAD")[0] == 200
    assert pool.get("/", "POST")[0] == 405


def check_names_are_text_and_all_is_legible(pool):
    pool.up(REEF_REDIS="yes")
    long = "l" * 200
    for name in ODD, long, "  ", "\u202eright\u0007":
        if pool.ask("space", "create", name, "16M").returncode == 0:
            pool.ask("map", "put", name, "m", "k", "v")
    page = pool.visit()
    until("the odd name", lambda: pool.row("spaces", ODD))
    assert pool.row("spaces", long), "a long name"
    assert "4 MiB of 16 MiB" in pool.row("spaces", ODD)[1]
    assert pool.texts("#nodes tbody tr") and pool.texts("#events li")
    until("a door", lambda: pool.row("doors", "redis"))
    assert page.run("return document.querySelectorAll('b b, td b, td script')"
                    ".length") == 0
    assert page.run("return document.title") == "Reef"
    assert not page.run(NAMELESS), page.run(NAMELESS)
    for theme in "light", "dark":
        page.look(1400, 1000, theme, "reduce")
        until(theme, lambda: page.run(
            "return matchMedia('(prefers-color-scheme: %s)').matches" % theme))
        assert page.run("return getComputedStyle(document.querySelector("
                        "'main')).transitionDuration") == "0s"
        least = page.run(CONTRAST)
        assert least[0] >= CONTRAST_MIN, (theme, least)
    for width in 320, 390, 768, 1024, 2560:
        page.look(width, 900)
        wide = page.run("return document.documentElement.scrollWidth")
        assert wide <= width, (width, wide)
    pool.is_quiet()


def check_a_killed_node_turns_red(pool):
    """As soon as its link is lost, whenever it is taken for dead."""
    broker = pool.broker("--node-ttl", "5s", "--http", "127.0.0.1:0")
    pool.port = pool.http_port(broker)
    first = pool.node("first", "--lend", "64M")
    pool.node("second", "--lend", "64M")
    page = pool.visit()
    for name in "first", "second":
        until(name, lambda: (pool.row("nodes", name) or [""])[1:] and
              "ok" in pool.row("nodes", name)[1])
    assert page.run("return document.getElementById('health').innerText"
                    ) == "All is well"
    first.kill()
    until("it is missed", lambda: not next(
        row["linked"] for row in pool.status()["nodes"]
        if row["name"] == "first"))
    known = page.run("return Number(document.body.dataset.pictures)")
    until("it is red", lambda: "bad" in pool.row("nodes", "first")[0])
    shown, colour, background = page.run("""
        const row = document.querySelector('#nodes tr.bad td');
        return [Number(document.body.dataset.pictures),
            getComputedStyle(row).color, getComputedStyle(row).backgroundColor];
        """)
    assert shown - known <= PICTURES_MAX, (known, shown)
    red, green, blue = map(int, re.findall(r"\d+", colour)[:3])
    assert red > 150 and red > 2 * green and red > 2 * blue, colour
    assert "bad" not in pool.row("nodes", "second")[0]
    assert "silent" in page.run("return document.title")
    until("it is dead", lambda: "dead" in pool.row("nodes", "first")[1])
    assert "bad" in pool.row("nodes", "first")[0]
    assert "dead" in page.run("return document.title")
    least = page.run(CONTRAST)
    assert least[0] >= CONTRAST_MIN, (background, least)
    pool.is_quiet()


def check_traffic_is_drawn(pool):
    pool.up()
    pool.do("space", "create", "s")
    page = pool.visit()
    now = "return document.querySelector('#operations .now').innerText"

    def moves():
        pool.do("map", "put", "s", "m", "k", "v")
        return re.match("[1-9]", page.run(now))

    until("operations", moves)
    until("a line", lambda: page.run(
        "return document.querySelector('#operations .spark-line')"
        ".getAttribute('d')").count("L") >= 2)
    assert re.search("(shm|tcp) 100 %|per second", page.run(now)), now
    assert re.search(r"\d.*or less", pool.texts("#latency .now")[0]) or (
        pool.texts("#latency .peak")[0]), pool.texts("#latency")
    pool.is_quiet()


def check_a_large_pool_is_bounded(pool):
    """A picture of 64 nodes, 4,000 sessions and names as long as they get."""
    pool.up(REEF_REDIS="yes")
    pool.do("space", "create", "s")
    page = pool.visit()
    until("a session", lambda: pool.row("sessions", "redis"))
    shown = page.run("""
        const large = structuredClone(page.status);
        const many = (rows, count, key, more) => Array.from({length: count},
            (_, i) => ({...rows[0], [key]: i + 1, ...more(i)}));
        large.nodes = many(large.nodes, 64, 'node', (i) => ({name: 'n' + i,
            state: i === 60 ? 'dead' : i === 9 ? 'draining' : 'ok'}));
        large.spaces = many(large.spaces, 300, 'space', (i) => ({
            name: '\\u{1f419}<b>'.repeat(60) + i, lost: i % 100 ? 0 : 1 << 20}));
        large.sessions = many(large.sessions, 4000, 'session', (i) => ({
            name: 'program "' + i, holds_ns: i % 1000 ? 0 : 7e9}));
        large.uptime_ns += 1;
        take(large);
        const count = (selector) => document.querySelectorAll(selector).length;
        const before = ['nodes', 'spaces', 'doors', 'sessions'].map((name) =>
            count(`#${name} tbody tr`));
        const title = document.title;
        document.querySelector('#spaces .more').click();
        return {before, title, all: count('#spaces tbody tr'),
            first: document.querySelector('#nodes tr.bad td').innerText,
            squares: count('#picture path'), wide:
                document.documentElement.scrollWidth};
        """)
    assert shown["before"] == [40, 20, 0, 50], shown
    assert shown["title"].startswith("1 node dead, 3 MiB lost"), shown
    assert shown["all"] == 300 and shown["first"] == "n60", shown
    assert shown["squares"] <= 40 and shown["wide"] == 1400, shown
    pool.is_quiet()


def check_a_broker_that_is_alone_says_so(pool):
    """It cannot take nodes for dead that it does not hear: the page can."""
    pool.up()
    page = pool.visit()
    shown = page.run("""
        const alone = structuredClone(page.status);
        alone.nodes[0].heard_ns = 6e9;
        alone.events.push({event: 9999, age_ns: 0, text: arguments[0]});
        alone.uptime_ns += 1;
        take(alone);
        return [document.title, document.getElementById('notice').innerText,
            document.querySelector('#nodes tr.bad').innerText];
        """, "too few nodes follow this broker; missing: n")
    assert "Too few nodes" in shown[0] and "changes nothing" in shown[1], shown
    assert "silent" in shown[2], shown
    until("it is well again", lambda: page.run(
        "return document.getElementById('notice').hidden"))
    # The words are those of the broker.
    broker = os.path.dirname(REEF) + "/../src/pool/broker"
    assert subprocess.run(["grep", "-rq", "too few nodes follow this broker",
                           broker], check=False).returncode == 0
    pool.is_quiet()


def check_keys_do_what_they_say(pool):
    pool.up()
    for name in "apple", "pear", "plum":
        pool.do("space", "create", name)
    page = pool.visit()
    until("spaces", lambda: pool.row("spaces", "plum"))
    has_focus = "return document.activeElement.matches(arguments[0])"
    page.press("3")
    assert page.run(has_focus, "#spaces tbody tr:first-child")
    page.press("j")
    page.press("ArrowDown")
    assert page.run(has_focus, "#spaces tbody tr:nth-child(3)")
    page.press("k")
    assert page.run(has_focus, "#spaces tbody tr:nth-child(2)")
    page.press("/")
    page.press("p", "l")  # text now, and neither a pause nor anything else
    assert pool.texts("#spaces td.name") == ["apple", "plum"]
    assert page.run("return document.getElementById('pause').ariaPressed"
                    ) == "false"
    page.press("Escape")
    assert len(pool.texts("#spaces td.name")) >= 3
    for order, names in (("ascending", ["apple", "pear", "plum"]),
                         ("descending", ["plum", "pear", "apple"])):
        page.run("document.querySelector('#spaces th button').focus()")
        page.press("Enter")
        assert page.run("return document.querySelector('#spaces th').ariaSort"
                        ) == order
        assert [one for one in pool.texts("#spaces td.name")
                if one != "redis"] == names
    page.press("?")
    assert page.run("return document.getElementById('keys').open")
    page.press("Escape")
    assert not page.run("return document.getElementById('keys').open")
    page.press("t")
    assert page.run("return document.documentElement.dataset.theme") == "light"
    page.press("t", "t")
    page.press("p")
    stood = page.run("return document.body.dataset.pictures")
    pool.do("space", "create", "later")
    until("the pool has it", lambda: "later" in pool.get("/api/v1/spaces")[2])
    assert not pool.row("spaces", "later")
    assert page.run("return document.body.dataset.pictures") == stood
    page.press("p")
    until("it goes on", lambda: pool.row("spaces", "later"))
    pool.is_quiet()


def check_what_is_wrong_is_said(pool):
    # No node, no space, no door.
    broker = pool.broker("--http", "127.0.0.1:0")
    pool.port = pool.http_port(broker)
    page = pool.visit()
    assert "No node lends" in pool.texts("#nodes .empty")[0]
    assert "No space yet" in pool.texts("#spaces .empty")[0]
    assert "No door is open" in pool.texts("#doors .empty")[0]
    assert "No memory" in page.run("return document.title")
    pool.is_quiet()
    node = pool.node("n", "--lend", "64M", "--http", "127.0.0.1:0")
    pool.visit(pool.http_port(node), "node")
    assert "broker" in pool.texts("#notice")[0]
    pool.visit()
    page.console()  # the node refused a status, as it should
    # A broker that stands still, and one that is gone.
    broker.send(signal.SIGSTOP)
    pool.comes("away")
    broker.send(signal.SIGCONT)
    pool.comes("live")
    broker.kill()
    pool.comes("away")
    assert "No answer" in pool.texts("#notice")[0]
    assert page.run("return document.getElementById('notice').role") == "alert"
    pool.broker("--http", "127.0.0.1:%d" % pool.port)
    pool.comes("live")
    assert page.run("return document.getElementById('notice').hidden")


class Stranger(http.server.BaseHTTPRequestHandler):
    """A page of somebody else's, which tries to read a pool."""

    target = 0

    def do_GET(self):
        body = ("""<!doctype html><title>tries</title><script>
const at = 'http://127.0.0.1:%d', tries = {};
const attempt = (name, run) => run().then(() => 'done', () => 'refused')
    .then((how) => { tries[name] = how; });
const load = (tag, path) => new Promise((done, fail) => {
    const element = document.createElement(tag);
    element.onload = done;
    element.onerror = fail;
    element.src = at + path;
    document.head.append(element);
});
Promise.all([
    attempt('read', () => fetch(at + '/api/v1/status')),
    attempt('opaque', () => fetch(at + '/api/v1/status', {mode: 'no-cors'})),
    attempt('post', () => fetch(at + '/api/v1/nodes', {method: 'POST',
        body: '{}', headers: {'Content-Type': 'application/json'}})),
    attempt('order', () => fetch(at + '/api/v1/nodes/1/drain',
        {method: 'POST', mode: 'no-cors', body: 'x'})),
    attempt('explain', () => fetch(at + '/api/v1/explain?space=s&map=m&key=k',
        {mode: 'no-cors'})),
    attempt('stream', () => new Promise((done, fail) => {
        const source = new EventSource(at + '/events');
        source.onopen = done;
        source.onerror = fail;
    })),
    attempt('script', () => load('script', '/page.js')),
    attempt('image', () => load('img', '/icon.svg')),
]).then(() => { window.tries = tries; });
</script><iframe src="http://127.0.0.1:%d/"></iframe>""" % (
    self.target, self.target)).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def check_other_pages_get_nothing(pool):
    pool.up()
    for path, method in (("/api/v1/status", "GET"), ("/page.js", "GET"),
                         ("/events", "GET"), ("/api/v1/nodes/1/drain", "POST"),
                         ("/api/v1/explain?space=s&map=m&key=k", "GET")):
        for site in "cross-site", "same-site":
            assert pool.get(path, method, **{"Sec-Fetch-Site": site})[0] == (
                403), (path, site)
    # A click on a link that leads here is no harm.
    assert pool.get("/", **{"Sec-Fetch-Site": "cross-site",
                            "Sec-Fetch-Dest": "document"})[0] == 200
    Stranger.target = pool.port
    server = http.server.ThreadingHTTPServer(("127.0.0.1", free_port()),
                                             Stranger)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        page = pool.browser
        # A name of theirs that means this machine, now: rebinding.
        page.open("http://evil.example:%d/" % pool.port)
        assert "not served here" in page.run(
            "return document.body.innerText"), "rebinding"
        page.open("http://evil.example:%d/" % server.server_port)
        tries = until("it has tried", lambda: page.run("return window.tries"))
        assert len(tries) == 8 and set(tries.values()) == {"refused"}, tries
        assert pool.status()["nodes"][0]["state"] == "ok"
        page.call("POST", "/frame", {"id": 0})
        assert "not for pages from elsewhere" in page.run(
            "return document.body.innerText"), "in a frame"
    finally:
        server.shutdown()
        server.server_close()


def main():
    if not shutil.which("chromedriver"):
        print("no chromedriver here: tools/setup test installs it")
        return 77
    with Browser("--host-resolver-rules=MAP evil.example 127.0.0.1") as browser:
        Place.browser = browser
        return run_checks(globals(), Place, sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
