"""The alert rules and the dashboard: tried by Prometheus' own tool, and over metrics that exist."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path

import pytest
import yaml
from measured_site import scraped, site
from prometheus_client.parser import text_string_to_metric_families

from provisioner.integrations.topology.graph import PATHS

FILES = Path(__file__).parents[2] / "docs" / "monitoring"
TRIES = ("alerts_test.yaml", "alerts_days_test.yaml", "alerts_exporters_test.yaml")
NAME = re.compile(r"\b(?:provisioner|process)_[a-z_]+\b")
MISSING = "prometheus is not installed: apt-get install prometheus"
promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason=MISSING)
server = pytest.mark.skipif(shutil.which("prometheus") is None, reason=MISSING)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with site(tmp_path_factory.mktemp("site")) as found:
        yield found


def rules(file: str = "alerts.yaml") -> list[dict[str, object]]:
    (group,) = yaml.safe_load((FILES / file).read_text())["groups"]
    return group["rules"]


def queries(board: str = "dashboard.json") -> list[str]:
    panels = json.loads((FILES / board).read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel["targets"]]


@promtool
def test_the_rules_fire_when_they_should_and_only_then():
    checked = subprocess.run(
        ["promtool", "check", "rules", "alerts.yaml", "alerts_exporters.yaml"],
        cwd=FILES,
        capture_output=True,
        text=True,
    )
    tried = subprocess.run(
        ["promtool", "test", "rules", *TRIES], cwd=FILES, capture_output=True, text=True
    )

    assert (checked.returncode, checked.stderr) == (0, "")
    assert tried.returncode == 0, tried.stdout + tried.stderr


def test_every_rule_is_tried_and_says_what_to_do():
    tried = "".join((FILES / name).read_text() for name in TRIES)

    every = [*rules(), *rules("alerts_exporters.yaml")]
    assert [r["alert"] for r in every if f'alertname="{r["alert"]}"' not in tried] == []
    assert all(r["annotations"]["summary"] and r["annotations"]["remedy"] for r in every)


def test_rules_and_dashboard_ask_for_metrics_that_exist(url: str):
    told = {s.name for f in text_string_to_metric_families(scraped(url)[1]) for s in f.samples}
    asked = {
        n for text in (*queries(), *(str(r["expr"]) for r in rules())) for n in NAME.findall(text)
    }

    assert asked - told == set()
    assert len(asked) > 20


# source: NVIDIA/dcgm-exporter, etc/default-counters.csv; prometheus/node_exporter,
# collector/infiniband_linux.go, edac_linux.go and timex.go. gnmic's series are a path's elements
# with underscores between (its prometheus output).
EXPORTED = {
    *("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", "DCGM_FI_DEV_XID_ERRORS"),
    *("DCGM_FI_DEV_ROW_REMAP_FAILURE", "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS"),
    *("node_infiniband_port_data_transmitted_bytes_total", "node_infiniband_symbol_error_total"),
    *("node_infiniband_link_downed_total", "node_edac_uncorrectable_errors_total"),
    *("node_timex_sync_status", "node_timex_offset_seconds"),
    "up",
}
STREAMED = tuple(re.sub(r"[/-]", "_", path.strip("/")) + "_" for path in PATHS.values())
WORDS = re.compile(r"\{[^}]*\}|\[[^]]*\]|\b(?:by|on|group_left|without)\s*\([^)]*\)")
SERIES = re.compile(r"\b[A-Za-z_:][\w:]*\b(?!\s*\()")
BOARDS = ("dashboard.json", "rails.json")


def name_series(query: str) -> set[str]:
    """The series that a query names: what is neither a function, a label nor an operator."""
    return set(SERIES.findall(WORDS.sub(" ", query))) - {"and", "or", "unless"}


@promtool
@pytest.mark.parametrize("board", BOARDS)
def test_each_query_of_a_dashboard_is_one_that_prometheus_reads(tmp_path: Path, board: str):
    rows = [
        {"record": f"panel:query{n}", "expr": re.sub(r"\$\w+", ".*", query)}
        for n, query in enumerate(queries(board))
    ]
    for rules_of, problem in ((rows, False), ([*rows, {"record": "a:b", "expr": "sum(up"}], True)):
        file = tmp_path / "rules.yaml"
        file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules_of}]}))
        read = subprocess.run(["promtool", "check", "rules", file], capture_output=True, text=True)
        assert (read.returncode != 0) == problem, read.stderr


def test_boards_and_rules_name_only_series_that_an_exporter_or_we_tell():
    ours = set(yaml.safe_load((FILES / "metrics.yaml").read_text()))
    asked = {name for board in BOARDS for query in queries(board) for name in name_series(query)}
    asked |= {n for r in rules("alerts_exporters.yaml") for n in name_series(str(r["expr"]))}
    others = {n for n in asked if not n.startswith(("provisioner_", "process_"))}
    gnmic = {n for n in others if n.startswith(STREAMED)}
    own = {re.sub(r"_(?:bucket|sum|count|total)$", "", n) for n in asked - others}

    assert len(gnmic) >= 5
    assert others - gnmic - EXPORTED == set()
    assert EXPORTED - others == set()
    named = {re.sub(r"_total$", "", n) for n in ours}
    assert {n for n in own if n.startswith("provisioner_")} - named == set()


def test_every_metric_is_documented_and_none_besides(url: str):
    said = yaml.safe_load((FILES / "metrics.yaml").read_text())
    families = {f.name for f in text_string_to_metric_families(scraped(url)[1])}
    # the format adds these to names where the library's parser does not take them off again
    ending = re.compile(r"_(info|created|total)$")
    told = {ending.sub("", n) for n in families if n.startswith("provisioner_")}
    listed = {ending.sub("", n) for n in said if n.startswith("provisioner_")}

    assert sorted(told - listed) == []
    assert sorted(listed - told) == []


# source: @grafana/schema 13.2.3 (raw/dashboard, raw/composable) and the rules of Grafana's
# dashboard-linter, read on 2026-11-28; a grid is 24 columns wide
KINDS = {"timeseries", "stat", "table", "bargauge"}
UNITS = {"short", "s", "percentunit", "reqps", "dateTimeFromNow"}


def test_the_dashboard_is_one_that_grafana_imports():
    """The schema's required fields and closed words, ids that are unique, variables that exist."""
    board = json.loads((FILES / "dashboard.json").read_text())
    panels = board["panels"]
    variables = {v["name"] for v in board["templating"]["list"]}
    used = set(re.findall(r"\$\{(\w+)\}", json.dumps(board)))

    assert isinstance(board["schemaVersion"], int)
    assert "id" not in board  # a number of another Grafana would be taken for its own dashboard
    assert 0 < len(board["uid"]) <= 40
    assert [v["type"] for v in board["templating"]["list"]] == ["datasource"]
    assert used == variables
    assert len({p["id"] for p in panels}) == len(panels)
    assert {p["type"] for p in panels} <= KINDS
    assert {p["fieldConfig"]["defaults"]["unit"] for p in panels} <= UNITS
    for panel in panels:
        references = [target["refId"] for target in panel["targets"]]
        assert panel["title"]
        assert len(set(references)) == len(references) > 0, panel["title"]
        for source in (panel["datasource"], *(t["datasource"] for t in panel["targets"])):
            assert source == {"type": "prometheus", "uid": "${datasource}"}, panel["title"]


def test_panels_of_the_dashboard_lie_in_the_grid_and_not_over_one_another():
    panels = json.loads((FILES / "dashboard.json").read_text())["panels"]
    taken: dict[tuple[int, int], str] = {}
    for panel in panels:
        place = panel["gridPos"]
        assert 0 < place["w"] <= 24 - place["x"], panel["title"]
        for cell in product(
            range(place["x"], place["x"] + place["w"]), range(place["y"], place["y"] + place["h"])
        ):
            assert cell not in taken, (panel["title"], taken.get(cell))
            taken[cell] = panel["title"]


@contextmanager
def prometheus(tmp_path: Path, target: str) -> Iterator[str]:
    """A Prometheus that scrapes `target` every second; the URL of its API."""
    config = tmp_path / "prometheus.yml"
    scrape = {
        "job_name": "provisioner",
        "scrape_interval": "1s",
        "static_configs": [{"targets": [target]}],
    }
    told = {"rule_files": [str(FILES / "alerts.yaml")], "scrape_configs": [scrape]}
    config.write_text(yaml.safe_dump(told))
    log = tmp_path / "log"
    arguments = [
        "prometheus",
        f"--config.file={config}",
        f"--storage.tsdb.path={tmp_path / 'tsdb'}",
    ]
    with log.open("w") as said:
        started = subprocess.Popen(
            [*arguments, "--web.listen-address=127.0.0.1:0"], stdout=said, stderr=said
        )
    try:
        yield _listening(started.pid, log)
    finally:
        started.terminate()
        started.wait(30)


def _listening(pid: int, log: Path) -> str:
    """Where the process listens: Prometheus does not tell the port that it was given."""
    import psutil

    for _ in range(200):
        for connection in psutil.Process(pid).net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN:
                return f"http://127.0.0.1:{connection.laddr.port}"
        time.sleep(0.1)
    pytest.fail(log.read_text()[-2000:])


def ready(base: str) -> bool:
    try:
        with urllib.request.urlopen(f"{base}/-/ready", timeout=10):
            return True
    except urllib.error.URLError:
        return False  # it listens before it answers


def ask(base: str, query: str) -> list[dict[str, object]]:
    words = urllib.parse.urlencode({"query": query})
    with urllib.request.urlopen(f"{base}/api/v1/query?{words}", timeout=10) as answer:
        return json.load(answer)["data"]["result"]


@server
def test_a_real_prometheus_scrapes_it_and_answers_every_query_of_the_dashboard(
    tmp_path: Path, url: str
):
    target = urllib.parse.urlsplit(url).netloc
    with prometheus(tmp_path, target) as base:
        assert any(ready(base) or time.sleep(0.2) for _ in range(300))
        found: list[dict[str, object]] = []
        for _ in range(150):
            found = ask(base, 'provisioner_nodes{job="provisioner", kind="host", state="released"}')
            if found:
                break
            time.sleep(0.2)
        answers = {query: ask(base, query) for query in queries()}

    assert [row["value"][1] for row in found] == ["2"]
    at_once = {q for q in answers if "rate(" not in q and "increase(" not in q}
    assert [q for q in at_once if not answers[q]] == []
