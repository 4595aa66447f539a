"""Real exporters: node_exporter (Debian's) over a tree of sysfs that changes, scraped by a real
Prometheus through our own targets, with our rules for exporters.

DCGM's exporter is on no registry: its series, in the form that it documents, are served by
node_exporter's textfile collector. gnmic's configuration is held against its documents elsewhere.
"""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from test_monitoring_files import FILES, _listening, ask, ready

from provisioner.integrations.topology.graph import build_targets

SERIES = re.compile(r"\b(?:node|DCGM)_[A-Za-z_]+\b")
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        shutil.which("prometheus") is None or shutil.which("prometheus-node-exporter") is None,
        reason="apt-get install prometheus prometheus-node-exporter",
    ),
]
# source: NVIDIA, dcgm-exporter, README (etc/default-counters.csv): one line for each GPU
DCGM = """\
# TYPE DCGM_FI_DEV_XID_ERRORS gauge
DCGM_FI_DEV_XID_ERRORS{{gpu="3",UUID="GPU-0a",device="nvidia3",Hostname="host"}} {xid}
# TYPE DCGM_FI_DEV_ROW_REMAP_FAILURE gauge
DCGM_FI_DEV_ROW_REMAP_FAILURE{{gpu="3",UUID="GPU-0a",device="nvidia3",Hostname="host"}} 1
# TYPE DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS counter
DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS{{gpu="3",UUID="GPU-0a",device="nvidia3"}} {rows}
"""


class Host:
    """What the exporter reads: files of sysfs in the kernel's form, and a text file."""

    def __init__(self, root: Path) -> None:
        self.sys, self.text = root / "sys", root / "text"
        port = self.sys / "class/infiniband/mlx5_0/ports/1"
        self.downed = port / "counters/link_downed"
        self.memory = self.sys / "devices/system/edac/mc/mc0/ue_count"
        device = self.sys / "class/infiniband/mlx5_0"
        for path, words in (
            (device / "fw_ver", "28.39.2048"),
            (device / "board_id", "MT_0000000838"),
            (device / "hca_type", "MT4129"),
            (port / "state", "4: ACTIVE"),
            (port / "phys_state", "5: LinkUp"),
            (port / "rate", "400 Gb/sec (4X NDR)"),
            (port / "counters/port_xmit_data", "1000"),
            (self.downed, "1"),
            (self.memory, "0"),
            (self.memory.with_name("ce_count"), "0"),
            (self.memory.with_name("ue_noinfo_count"), "0"),
            (self.memory.with_name("ce_noinfo_count"), "0"),
        ):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(words + "\n")
        self.text.mkdir()
        self.write_dcgm(xid=0, rows=0)

    def write_dcgm(self, xid: int, rows: int) -> None:
        new = self.text / "dcgm.new"
        new.write_text(DCGM.format(xid=xid, rows=rows))
        new.replace(self.text / "dcgm.prom")


@contextmanager
def node_exporter(host: Host) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    started = subprocess.Popen(
        [
            "prometheus-node-exporter",
            f"--path.sysfs={host.sys}",
            "--collector.disable-defaults",
            *(f"--collector.{name}" for name in ("infiniband", "edac", "timex", "textfile")),
            f"--collector.textfile.directory={host.text}",
            f"--web.listen-address=127.0.0.1:{port}",
        ],
        stderr=subprocess.DEVNULL,
    )
    try:
        yield started, port
    finally:
        started.terminate()
        started.wait(30)


@contextmanager
def prometheus(folder: Path, targets: Path) -> Iterator[str]:
    """Ours as a site runs it: file discovery of our targets, our rules, every second."""
    jobs = [{"job_name": "fleet", "file_sd_configs": [{"files": [str(targets)]}]}]
    told = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(FILES / "alerts_exporters.yaml")],
        "scrape_configs": jobs,
    }
    config = folder / "prometheus.yml"
    config.write_text(yaml.safe_dump(told))
    subprocess.run(["promtool", "check", "config", config], check=True, capture_output=True)
    data = folder / "tsdb"
    with (folder / "log").open("w") as said:
        started = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={config}",
                f"--storage.tsdb.path={data}",
                "--web.listen-address=127.0.0.1:0",
            ],
            stdout=said,
            stderr=said,
        )
    try:
        yield _listening(started.pid, folder / "log")
    finally:
        started.terminate()
        started.wait(30)


def wait_for(what: Callable[[], object], words: str) -> None:
    for _ in range(600):
        if what():
            return
        time.sleep(0.5)
    pytest.fail(f"it did not come: {words}")


def test_our_targets_and_rules_see_what_real_exporters_tell(tmp_path: Path) -> None:
    host = Host(tmp_path)
    node = {"id": "su0-n01", "kind": "host", "address": "127.0.0.1", "state": "released"}
    targets = tmp_path / "fleet.json"
    with node_exporter(host) as (exporter, port):
        rows = build_targets([{**node, "tenant": "acme", "ports": []}])
        for row in rows:  # both exporters are behind one port here
            row["targets"] = [f"127.0.0.1:{port}"]
        targets.write_text(json.dumps(rows))
        with prometheus(tmp_path, targets) as base:
            wait_for(lambda: ready(base), "Prometheus")

            def find(alert: str, state: str = "firing") -> list[dict[str, object]]:
                return ask(base, f'ALERTS{{alertname="{alert}",alertstate="{state}"}}')

            wait_for(lambda: len(ask(base, "up == 1")) == 2, "both jobs")
            seen = {row["metric"]["job"]: row["metric"] for row in ask(base, "up")}
            assert set(seen) == {"node", "dcgm"}
            assert {m["node"] for m in seen.values()} == {"su0-n01"}
            assert {m["tenant"] for m in seen.values()} == {"acme"}
            wait_for(lambda: find("DcgmRowRemapFailed"), "an alert that stands")
            quiet = ("NodeLinkDowned", "NodeMemoryUncorrectable", "DcgmXid", "DcgmRowsRemapped")
            assert [name for name in quiet if find(name)] == []

            host.downed.write_text("5\n")
            host.memory.write_text("1\n")
            host.write_dcgm(xid=79, rows=1)

            for name in quiet:
                wait_for(lambda name=name: find(name), name)
            assert find("NodeLinkDowned")[0]["metric"]["device"] == "mlx5_0"
            assert "su0-n01" in {r["metric"]["node"] for r in find("DcgmXid")}
            with urllib.request.urlopen(f"{base}/api/v1/rules", timeout=10) as answer:
                (group,) = json.load(answer)["data"]["groups"]
            assert {r["name"]: r["health"] for r in group["rules"] if r["health"] != "ok"} == {}
            asked = {n for rule in group["rules"] for n in SERIES.findall(rule["query"])}
            assert len(asked) > 5
            assert [n for n in sorted(asked) if not ask(base, n)] == []

            exporter.terminate()
            wait_for(lambda: find("ExporterDown", "pending"), "an exporter that is down")
