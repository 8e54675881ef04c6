"""prometheus.py REEF SOURCE - a real Prometheus scrapes a pool: every expression
of the dashboard and of the alerts has a sample, and an alert comes when it is
due."""

import contextlib
import filecmp
import json
import os
import re
import subprocess
import sys
import tempfile
import urllib.parse
import urllib.request

from checks import run_checks
from pool_processes import free_port, until, until_said
from web_pool import Watched

REEF, SOURCE = (os.path.abspath(path) for path in sys.argv[1:3])
OPS = os.path.join(SOURCE, "ops")
MADE = ("alerts.yml", "grafana/reef.json")
CONFIG = """
global: {{scrape_interval: 500ms, scrape_timeout: 500ms, evaluation_interval: 500ms}}
rule_files: ["{rules}"]
scrape_configs:
  - job_name: reef
    static_configs: [{{targets: {targets}}}]
"""


class Scraped(Watched):
    """A pool of two nodes with a Prometheus."""

    def prometheus(self, *ports):
        self.api = free_port()
        config = os.path.join(self.home, "prometheus.yml")
        with open(config, "w", encoding="utf-8") as stream:
            stream.write(CONFIG.format(
                rules=os.path.join(OPS, "alerts.yml"),
                targets=json.dumps(["127.0.0.1:%d" % port for port in ports])))
        return self.start("prometheus", argv=[
            "prometheus", "--config.file", config, "--storage.tsdb.path",
            os.path.join(self.home, "tsdb"), "--web.listen-address",
            "127.0.0.1:%d" % self.api])

    def told(self, path, **query):
        """An answer of Prometheus; None: it is not up yet."""
        with contextlib.suppress(ConnectionError, urllib.error.URLError):
            with urllib.request.urlopen(
                    "http://127.0.0.1:%d/api/v1/%s?%s" % (
                        self.api, path, urllib.parse.urlencode(query)),
                    timeout=60) as answer:
                return json.loads(answer.read())["data"]
        return None

    def samples(self, expression):
        return (self.told("query", query=expression) or {}).get("result")


def table():
    return json.loads(subprocess.check_output([REEF, "http", "--table"]))


def check_what_is_made_of_the_table_is_committed(_):
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, os.path.join(SOURCE, "tools/dashboards"),
                        REEF, folder], check=True)
        differ = filecmp.cmpfiles(folder, OPS, MADE, shallow=False)
    assert differ == (list(MADE), [], []), (
        "run: tools/dashboards build/reef ops", differ)


def dashboard():
    with open(os.path.join(OPS, "grafana/reef.json"),
              encoding="utf-8") as stream:
        return json.load(stream)


def check_the_dashboard_is_what_grafana_reads(_):
    """By what Grafana says of the JSON of a dashboard; Debian has none to ask."""
    board = dashboard()
    assert board["uid"] and len(board["uid"]) <= 40 and board["title"], board
    # Since 8.1 a source is named by its type and uid; 36 is the first with that.
    assert board["schemaVersion"] >= 36 and board["version"] >= 1, board
    assert "id" not in board, "a new one has none"
    assert re.fullmatch(r"\d+[smhd]", board["refresh"]), board["refresh"]
    sources = {one["name"]: one for one in board["templating"]["list"]}
    assert list(sources) == ["datasource"], sources
    assert (sources["datasource"]["type"], sources["datasource"]["query"]) == (
        "datasource", "prometheus"), sources
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    source = {"type": "prometheus", "uid": "${datasource}"}
    taken = {}
    for panel in panels:
        at = panel["gridPos"]
        assert at["w"] > 0 and at["h"] > 0 and at["x"] >= 0, panel
        assert at["x"] + at["w"] <= 24, panel
        for x in range(at["x"], at["x"] + at["w"]):
            for y in range(at["y"], at["y"] + at["h"]):
                assert (x, y) not in taken, (panel["title"], taken[x, y])
                taken[x, y] = panel["title"]
        if panel["type"] == "row":
            assert panel["panels"] == [] and not panel["collapsed"], panel
            continue
        assert panel["type"] in ("timeseries", "stat", "gauge", "table"), panel
        assert panel["datasource"] == source and panel["targets"], panel
        assert panel["fieldConfig"]["overrides"] == [], panel
        assert panel["fieldConfig"]["defaults"]["unit"], panel
        names = [one["refId"] for one in panel["targets"]]
        assert len(set(names)) == len(names), panel
        for one in panel["targets"]:
            assert one["datasource"] == source and one["expr"], one


def check_every_expression_has_a_sample(pool):
    pool.broker("--node-ttl", "2s", "--extent-size", "4M", "--http",
                "127.0.0.1:0")
    broker = pool.http_port(pool.processes[0])
    nodes = {name: pool.node(name, "--lend", "64M", "--http", "127.0.0.1:0")
             for name in ("one", "two")}
    for name in nodes:
        pool.node_is(name, "ok")
    pool.do("space", "create", 'odd "name"', "16M")
    pool.do("map", "put", 'odd "name"', "m", "k", "v")
    pool.prometheus(broker, pool.http_port(nodes["one"]))
    expressions = [metric["expression"] for metric in table()["metrics"]
                   if "expression" in metric]
    values = [alert["value"] for alert in table()["alerts"]]
    assert sorted(one["expr"] for panel in dashboard()["panels"]
                  for one in panel.get("targets", ())) == sorted(expressions)
    with open(os.path.join(OPS, "alerts.yml"), encoding="utf-8") as stream:
        rules = re.findall(r"expr: (.*)", stream.read())
    assert len(rules) == len(values) == len(set(rules)) >= 8, rules
    assert len(expressions) >= 40, expressions
    # Calls go on, so that there is something to have quantiles of.
    missing = list(expressions + values)

    def all_are_there():
        pool.do("map", "get", 'odd "name"', "m", "k")
        missing[:] = [one for one in missing if not pool.samples(one)]
        return not missing

    until_said(lambda: "samples of %s" % missing, all_are_there)
    # Nothing is NaN, and a label with quotes has come through.
    assert [one["metric"]["space"] for one in pool.samples(
        "reef_space_used_bytes")] == ['odd "name"'], pool.samples(
            "reef_space_used_bytes")
    # Prometheus took all of it, from both, by the rules of OpenMetrics.
    targets = pool.told("targets")["activeTargets"]
    assert [one["lastError"] for one in targets] == ["", ""], targets
    names = set(pool.told("label/__name__/values"))
    assert len([name for name in names if name.startswith("reef_")]) >= 65, (
        sorted(names))
    # A node dies with its memory: an alert, and no others of its kind.
    assert not pool.told("alerts")["alerts"], pool.told("alerts")
    nodes[next(row["name"] for row in pool.status()["nodes"]
               if row["extents"])].kill()
    until("the alert", lambda: "ReefExtentLost" in [
        alert["labels"]["alertname"] for alert in pool.told("alerts")["alerts"]
        if alert["state"] == "firing"])


def check_promtool_takes_the_rules(_):
    subprocess.run(["promtool", "check", "rules",
                    os.path.join(OPS, "alerts.yml")], check=True,
                   stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    sys.exit(run_checks(globals(), lambda: Scraped(REEF), sys.argv[3:]))
