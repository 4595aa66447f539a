"""`provisioner node rejudge`: stored evidence under other thresholds; nothing is changed."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from program import run

from provisioner.daemon.data import open_data
from provisioner.model.cohort import CheckResult, Evidence, Gate, HealthReport, Verdict
from provisioner.model.inventory import Device, DeviceKind, Inventory
from provisioner.model.node import Node, NodeKind

TEXT = (
    Path(__file__).parents[1] / "golden" / "checks" / "nccl_single" / "good" / "nccl.txt"
).read_text()
STORED = {"nccl": Evidence(source="all_reduce_perf", exit_code=0, text=TEXT)}
GPUS = tuple(
    Device(kind=DeviceKind.GPU, slot=f"GPU_SXM_{n}", model="NVIDIA H100 80GB HBM3", serial=f"G{n}")
    for n in range(1, 9)
)


KERNEL = """\
2025-06-15T15:00:00,000000+00:00 Linux version 6.1.0 (a@b)
2025-06-15T15:06:40,000000+00:00 acme_probe: port 7 is asleep
end-of-output
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    async def fill() -> None:
        async with open_data(tmp_path / "var", 1.0) as data:
            node = await data.store.nodes.add(Node(id="n1", kind=NodeKind.HOST))
            await data.store.nodes.add(Node(id="n2", kind=NodeKind.HOST))
            operation = await data.store.operations.open("n1", "validate", 1.0)
            assert operation is not None
            operation = await data.store.operations.take(operation.id)
            raw = {name: e.model_dump(mode="json") for name, e in STORED.items()}
            digest = await data.store.evidence.put_output(json.dumps(raw, sort_keys=True))
            said = Evidence(source="dmesg", exit_code=0, text=KERNEL)
            kernel = {"kernel_errors": said.model_dump(mode="json")}
            logged = await data.store.evidence.put_output(json.dumps(kernel))
            results = (
                CheckResult(
                    check="kernel_errors", gate=Gate.A, verdict=Verdict.FAIL, evidence=logged
                ),
                CheckResult(
                    check="nccl_single", gate=Gate.B, verdict=Verdict.PASS, evidence=digest
                ),
                CheckResult(check="hbm", gate=Gate.B, verdict=Verdict.SKIPPED),
                CheckResult(check="ecc", gate=Gate.A, verdict=Verdict.PASS, evidence="0" * 64),
            )
            report = HealthReport(
                node="n1", inventory_digest="i", started_at=1.0, ended_at=2.0, results=results
            )
            inventory = Inventory(node="n1", vendor="x", devices=GPUS)
            await data.store.operations.record(
                operation, node=node, inventory=inventory, report=report, now=2.0
            )

    asyncio.run(fill())
    return tmp_path


def certify(site: Path, *words: str, code: int, **settings: Any) -> dict[str, Any]:
    done = run(["node", "rejudge", *words, "--json"], site, **settings)
    assert done.returncode == code, done.stdout + done.stderr
    return json.loads(done.stdout)


def test_the_same_thresholds_give_the_same_verdict_and_lost_evidence_is_no_pass(
    site: Path,
) -> None:
    told = certify(site, "n1", code=1)
    now = {r["check"]: (r["was"], r["now"]["verdict"]) for r in told["nodes"][0]["results"]}

    assert now == {"ecc": ("pass", "skipped")}  # those that would change
    assert told["nodes"][0]["judged"] == 3
    assert told["nodes"][0]["worse"] == 1


def test_other_thresholds_show_what_would_change_and_change_nothing(site: Path) -> None:
    own = 'all_reduce_gb_s:\n  H100: {value: 500, source: "another day"}\n'
    (site / "own.yaml").write_text(own)

    told = certify(site, "--thresholds", "own.yaml", code=1)
    result = next(r for r in told["nodes"][0]["results"] if r["check"] == "nccl_single")
    table = run(["node", "rejudge", "n1", "--thresholds", "own.yaml"], site)

    assert (result["was"], result["now"]["verdict"]) == ("pass", "fail")
    assert result["now"]["findings"][0]["wanted"] == "at least 500 GB/s"
    assert told["changed"] == 2
    assert "2 would change" in table.stdout
    assert certify(site, "n1", code=1)["changed"] == 1


def test_what_the_site_calls_harmless_is_so_when_evidence_is_judged_again(site: Path) -> None:
    told = certify(site, "n1", code=1, kernel_lines_harmless=("acme_probe: ",))

    kernel = next(r for r in told["nodes"][0]["results"] if r["check"] == "kernel_errors")
    assert kernel["now"]["verdict"] == "pass"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["n9"], "no such node"),
        (["n2"], "no such report"),
        (["n1", "--thresholds", "gone.yaml"], "--thresholds"),
        (["n1", "--thresholds", "bad.yaml"], "threshold"),
    ],
)
def test_wrong_input_is_named_and_changes_nothing(site: Path, words: list[str], says: str) -> None:
    (site / "bad.yaml").write_text("nonsense: 1\n")

    done = run(["node", "rejudge", *words], site)

    assert done.returncode == (4 if says.startswith("no such") else 2)
    assert says in done.stderr
