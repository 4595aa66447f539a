"""Outputs of real load tests, where somebody has them here: each to its right verdict.

They are not part of this repository; `PROVISIONER_SAMPLES` says where they are.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from provisioner import checks
from provisioner.checks.check import CheckContext
from provisioner.checks.threshold_data import Limit
from provisioner.model.cohort import CheckResult, Evidence, Verdict

SAMPLES = Path(os.environ.get("PROVISIONER_SAMPLES", Path(__file__).parents[3] / "shared/samples"))
BY_NAME = {check.name: check for check in checks.ALL}
A100 = {
    "all_reduce_gb_s": {"any": Limit(value=200, source="facebookresearch/gcm")},
    "nccl_pair_gb_s": {"any": Limit(value=150, source="facebookresearch/gcm")},
    "nccl_message_gib": {"any": Limit(value=1, source="the recording")},
}
H100 = CheckContext(gpu_model="H100")
ONE = CheckContext(gpu_model="H100", gpus=1)

# file, check, context, verdict, words of a finding that must be there
CASES = [
    ("dcgm/dcgm4.2.3_real_gb10-level1.json", "dcgm_software", ONE, "fail", "Persistence mode"),
    ("dcgm/dcgm4.2.3_real_gb10-level1.json", "dcgm_diag", ONE, "fail", "did not run memory"),
    ("dcgm/dcgm4.2.3_real_gb10-level2-partial-skip.json", "dcgm_diag", ONE, "fail", "no pass"),
    ("dcgm/dcgm4.2.3_real_gb10-level2-plugins-gated.json", "dcgm_diag", ONE, "fail", "pcie: skip"),
    ("dcgm/dcgm4.2.3_real_gb10-level2-plugins-allowed.json", "dcgm_diag", ONE, "fail", "SRAM"),
    ("dcgm/gcm_dcgm3_diag_r1_pass.json", "dcgm_software", H100, "pass", ""),
    ("dcgm/gcm_dcgm3_diag_r1_pass.json", "dcgm_diag", H100, "fail", "did not run pcie"),
    ("dcgm/gcm_dcgm3_diag_r1_fail.json", "dcgm_software", H100, "fail", "Persistence Mode: fail"),
    ("dcgm/dcgm_diag_schema.json", "dcgm_diag", H100, "fail", "cannot be judged"),
    ("dcgm/dcgm_mndiag_schema.json", "dcgm_mndiag", H100, "fail", "cannot be judged"),
    ("nvbandwidth/dcgm_verboseFullOutput.json", "nvbandwidth", ONE, "fail", "device_to_device"),
    ("nvbandwidth/dcgm_verboseFullOutputWithErrors.txt", "nvbandwidth", ONE, "fail", "is below"),
    ("superbench/nvbandwidth_results.log", "nvbandwidth", H100, "fail", "device_to_device"),
    ("nccl/gcm_sample_single_success_output.txt", "nccl_single", H100, "fail", "below its floor"),
    (
        "nccl/gcm_sample_single_success_output.txt",
        "nccl_single",
        CheckContext(overrides=A100),
        "pass",
        "",
    ),
    (
        "nccl/gcm_sample_pairwise_success_output.txt",
        "nccl_pair",
        CheckContext(overrides=A100),
        "pass",
        "",
    ),
    ("nccl/gcm_sample_pairwise_success_output.txt", "nccl_single", H100, "fail", "ranks"),
    ("nccl/gcm_sample_failure_output.txt", "nccl_single", H100, "fail", "cannot be judged"),
    ("superbench/nccl_allreduce.log", "nccl_single", H100, "fail", "nothing was verified"),
    ("constructed/nccl_tests_J_output.json", "nccl_single", H100, "pass", ""),
    ("superbench/ib_loopback_8M_size.log", "gdr_loopback", H100, "fail", "below its floor"),
    ("constructed/ib_write_bw_out_json.json", "gdr_loopback", H100, "pass", ""),
    ("superbench/gpu_burn.log", "gpu_burn", CheckContext(), "pass", ""),
    ("superbench/disk_performance.log", "storage_load", H100, "skipped", "not judged"),
]


def judged(file: str, check: str, context: CheckContext) -> CheckResult:
    path = SAMPLES / file
    if not path.is_file():
        pytest.skip(f"there is no {file} here: set PROVISIONER_SAMPLES")
    command = BY_NAME[check].commands[0]
    text = path.read_bytes().decode("utf-8", errors="replace")
    evidence = {command.name: Evidence(source=command.line, exit_code=0, text=text)}
    return BY_NAME[check].judge(evidence, context)


@pytest.mark.parametrize(
    ("file", "check", "context", "verdict", "words"), CASES, ids=lambda v: str(v)[:60]
)
def test_a_real_output_gets_its_right_verdict(
    file: str, check: str, context: CheckContext, verdict: str, words: str
) -> None:
    result = judged(file, check, context)

    assert result.verdict.value == verdict, result.findings
    assert words in "\n".join(f.detail for f in result.findings)


def test_the_figures_of_real_outputs_are_read_as_they_stand() -> None:
    nccl = judged("nccl/gcm_sample_single_success_output.txt", "nccl_single", H100)
    loop = judged("superbench/ib_loopback_8M_size.log", "gdr_loopback", H100)
    burn = judged("superbench/gpu_burn.log", "gpu_burn", CheckContext())

    assert nccl.measured["all_reduce_gb_s/host"] == pytest.approx(231.71)
    # 24056.72 MB/s of 2^20 bytes
    assert loop.measured["gdr_loopback_gbit_s/host"] == pytest.approx(201.803, abs=0.001)
    assert len(burn.measured) == 8
    assert burn.verdict is Verdict.PASS
