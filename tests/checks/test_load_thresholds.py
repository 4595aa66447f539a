"""Which threshold holds, and what is passed to a tool whose own are too low."""

from __future__ import annotations

from pathlib import Path

import pytest

from provisioner import checks
from provisioner.checks import dcgm_diag, hbm
from provisioner.checks.check import CheckContext, NotJudged
from provisioner.checks.threshold_data import MODELS, THRESHOLDS, Limit
from provisioner.checks.thresholds import check_threshold, find, require_threshold
from provisioner.model.cohort import Evidence, Verdict

ROOT = Path(__file__).parents[1] / "golden" / "checks"
H100 = CheckContext(gpu_model="H100")
OWN = {"all_reduce_gb_s": {"H100": Limit(value=440, source="site")}}
LEARNED = {"all_reduce_gb_s": (455.0, "32 nodes")}


def test_a_sites_own_value_beats_the_published_one() -> None:
    context = H100.model_copy(update={"overrides": OWN, "learned": LEARNED})

    assert require_threshold(context, "all_reduce_gb_s") == 440


def test_a_profiles_value_beats_its_models() -> None:
    own = {"all_reduce_gb_s": {**OWN["all_reduce_gb_s"], "p": Limit(value=410, source="site")}}
    context = H100.model_copy(update={"overrides": own, "profile": "p"})

    assert require_threshold(context, "all_reduce_gb_s") == 410


def test_a_learned_value_stands_in_only_where_nobody_publishes_one() -> None:
    b200 = CheckContext(gpu_model="B200", learned=LEARNED)

    assert require_threshold(H100.model_copy(update={"learned": LEARNED}), "all_reduce_gb_s") == 460
    assert require_threshold(b200, "all_reduce_gb_s") == 455
    assert find(b200, "all_reduce_gb_s").source == "learned: 32 nodes"


@pytest.mark.parametrize("model", ["B200", "H300", ""])
def test_an_unknown_value_is_not_judged_and_says_why(model: str) -> None:
    with pytest.raises(NotJudged, match="no published floor"):
        check_threshold(CheckContext(gpu_model=model), "all_reduce_gb_s", 1e9)


def test_a_limit_is_missed_from_its_own_side() -> None:
    context = CheckContext(learned={"rdma_latency_us": (6.0, "x")})

    assert check_threshold(context, "rdma_latency_us", 5.9) is None
    assert check_threshold(context, "rdma_latency_us", 6.1) == ("6.1 us", "at most 6 us")
    assert check_threshold(H100, "host_gpu_gb_s", 47.9) == ("47.9 GB/s", "at least 48 GB/s")
    assert check_threshold(H100, "host_gpu_gb_s", 48.0) is None


def test_every_value_has_a_source_and_every_unknown_one_says_so() -> None:
    for name, row in THRESHOLDS.items():
        for model, limit in row.values.items():
            assert limit.source, (name, model)
            assert limit.learned or limit.value is not None, (name, model)
            assert model in (*MODELS, "any"), (name, model)


def test_a_coarse_floor_gives_way_to_a_stricter_learned_one_only() -> None:
    def floor(learned: float) -> float | None:
        taught = {"nccl_rail_gb_s": (learned, "the fleet")}
        context = CheckContext(gpu_model="H100", learned=taught)
        return find(context, "nccl_rail_gb_s").value

    assert (floor(46.0), floor(12.0)) == (46.0, 40)


def test_every_threshold_that_a_check_names_is_there() -> None:
    named = {name for check in checks.ALL for name in check.thresholds}

    assert named <= set(THRESHOLDS)


def test_dcgm_is_told_the_minima_of_the_model() -> None:
    h200 = CheckContext(gpu_model="H200")

    line = dcgm_diag.CHECK_LONG.commands_of(h200)[0].line

    assert line.startswith("dcgmi diag -r 3 -j -p '")
    assert "pcie.h2d_d2h_single_pinned.min_pci_generation=5;" in line
    assert line.endswith(";memory_bandwidth.minimum_bandwidth=2332500'")
    assert "memory_bandwidth" not in dcgm_diag.CHECK.commands_of(h200)[0].line
    assert hbm.CHECK.commands_of(CheckContext())[0].line == "dcgmi diag -r memory_bandwidth -j"


@pytest.mark.parametrize(
    ("model", "minimum", "verdict"),
    [
        ("H100", "1905000", Verdict.PASS),
        ("H200", "2332500", Verdict.PASS),
        ("H200", "2333", Verdict.SKIPPED),  # DCGM's own, which no GPU can miss
        ("H200", "23325000.0.0", Verdict.SKIPPED),
        ("H200", "", Verdict.SKIPPED),
    ],
)
def test_a_pass_of_dcgm_counts_only_with_a_minimum_that_is_high_enough(
    model: str, minimum: str, verdict: Verdict
) -> None:
    text = (ROOT / "hbm" / "bad_no_minimum_was_passed" / "hbm.txt").read_text()
    line = "dcgmi diag -r memory_bandwidth -j"
    if minimum:
        line += f" -p 'memory_bandwidth.minimum_bandwidth={minimum}'"
    evidence = {"hbm": Evidence(source=line, exit_code=0, text=text)}

    result = hbm.CHECK.judge(evidence, CheckContext(gpu_model=model))

    assert result.verdict is verdict, result.findings
