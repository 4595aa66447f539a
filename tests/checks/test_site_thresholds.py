"""A site's own threshold decides: what passed by the published one fails, and the other way."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from provisioner import checks
from provisioner.checks.check import BEFORE, CheckContext
from provisioner.checks.threshold_data import Limit
from provisioner.model.cohort import Evidence, Verdict

ROOT = Path(__file__).parents[1] / "golden" / "checks"
CONTEXT = CheckContext.model_validate_json((ROOT / "context.json").read_text())
BY_NAME = {check.name: check for check in checks.ALL}
LINES = {command.name: command.line for check in checks.ALL for command in check.commands}
PASS, FAIL = Verdict.PASS, Verdict.FAIL


@pytest.mark.parametrize(
    ("check", "case", "threshold", "value", "verdict"),
    [
        ("pcie_link", "good", "pcie_gen", 6, FAIL),
        ("pcie_link", "good", "pcie_width", 32, FAIL),
        ("pcie_link", "bad_slot_is_gen4", "pcie_gen", 4, PASS),
        ("nvlink", "good", "nvlinks", 19, FAIL),
        ("topology", "good", "nvlinks", 19, FAIL),
        ("topology", "bad_fewer_links", "nvlinks", 12, PASS),
        ("rdma_links", "good", "rail_gbit_s", 800, FAIL),
        ("mlxlink", "good", "rail_gbit_s", 800, FAIL),
        ("mlxlink", "bad_half_speed", "rail_gbit_s", 200, PASS),
        ("row_remap", "bad_too_many", "remapped_uncorrectable", 1000, PASS),
        ("ecc", "bad_noisy_dram", "dram_correctable", 50_000_000, PASS),
    ],
)
def test_a_sites_own_threshold_decides(
    check: str, case: str, threshold: str, value: float, verdict: Verdict
) -> None:
    folder = ROOT / check / case
    codes = json.loads((folder / "expected.json").read_text())["exit_codes"]
    evidence = {
        file.stem: Evidence(
            source=LINES[file.stem.removesuffix(BEFORE)],
            exit_code=codes.get(file.stem, 0),
            text=file.read_text(),
        )
        for file in folder.glob("*.txt")
    }
    own = {threshold: {"any": Limit(value=value, source="the site")}}

    result = BY_NAME[check].judge(evidence, CONTEXT.model_copy(update={"overrides": own}))

    assert threshold in BY_NAME[check].thresholds
    assert result.verdict is verdict, result.findings


def test_the_loopback_asks_for_ports_of_the_sites_rate() -> None:
    own = {"rail_gbit_s": {"any": Limit(value=200, source="the site")}}

    line = BY_NAME["gdr_loopback"].commands_of(CheckContext(overrides=own))[0].line

    assert "grep -q '^200 '" in line
