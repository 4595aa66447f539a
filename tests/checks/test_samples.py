"""True outputs of others' machines, each judged: the verdict, and what it must say.

The files are not part of the repository: PROVISIONER_SAMPLES names their folder. A table is held
here of file, check, what the machine is, verdict, and words of the finding that matters most.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from test_samples_load import CASES

from provisioner import checks
from provisioner.checks.check import CheckContext
from provisioner.model.cohort import Evidence, Verdict

ROOT = Path(__file__).parents[2]
SAMPLES = Path(os.environ.get("PROVISIONER_SAMPLES", ROOT / ".." / "shared" / "samples"))
BY_NAME = {check.name: check for check in checks.ALL}
COLUMNS = (
    "index,uuid,name,serial,pci.bus_id,pstate,pcie.link.gen.current,pcie.link.gen.max,"
    "pcie.link.width.current,pcie.link.width.max,temperature.gpu,utilization.gpu,memory.util,"
    "memory.total,memory.used,power.draw,power.limit,clocks.sm,clocks.mem,ecc.mode.current,"
    "ecc.errors.corrected.volatile.dram,ecc.errors.uncorrected.volatile.total"
)
H100 = {"gpu_model": "H100"}
ONE = {**H100, "gpus": 1}
PASS, FAIL, SKIPPED = Verdict.PASS, Verdict.FAIL, Verdict.SKIPPED


class Sample(NamedTuple):
    """One file, and what is right to say of it."""

    file: str
    check: str
    context: dict[str, Any]
    verdict: Verdict
    words: str = ""  # in a finding: its part, detail or measured value
    source: str = ""  # the command line, where it tells the columns


CARDS = {"rails": 8, "dpu_pci": ("0000:9d:00.0", "0000:b4:00.0")}
TABLE = (
    # one GPU of an A100 node: its links are up, and how many it must have is not H100's number
    Sample("azure/good_nvlink_status.txt", "nvlink", ONE, FAIL, "12"),
    Sample("azure/bad_nvlink_status.txt", "nvlink", ONE, FAIL, "NVLinks that are up"),
    Sample("azure/orig_nvsmi8_output.txt", "page_retirement", {}, PASS),
    Sample("azure/bad_nvsmi8_output.txt", "page_retirement", {}, FAIL, "waits for a reset"),
    Sample("azure/bad_nvsmi8_output.txt", "page_retirement", {}, FAIL, "0002:00:00.0"),
    Sample("azure/bad_nvsmi8_output.txt", "gpu_processes", {}, FAIL, "does not report MIG Mode"),
    Sample("azure/0flap_syslog", "link_flaps", {}, PASS),
    Sample("azure/1dev_6flap_syslog", "link_flaps", {}, FAIL, "ib6"),
    Sample("dcgm/gcm_dcgmi_nvlink_e_j_pass.json", "nvlink_errors", ONE, PASS),
    Sample("dcgm/gcm_dcgmi_nvlink_e_j_fail.json", "nvlink_errors", ONE, FAIL, "CRC Data Error"),
    Sample("dcgm/gcm_dcgmi_nvlink_s_fail.txt", "nvlink", H100 | {"gpus": 2}, FAIL, "GPU 1 link 6"),
    Sample("dcgm/gcm_dcgmi_nvlink_s_pass.txt", "nvlink", H100 | {"gpus": 2}, FAIL, "12"),
    Sample("dcgm/gcm_dcgmi_nvlink_s_pass.txt", "nvlink",
           H100 | {"gpus": 2, "overrides": {"nvlinks": {"any": {"value": 12, "source": "A100"}}}},
           PASS),
    # a few lines of two logs: their Xids are told, and that the beginning is missing
    Sample("misc/xid74_kmsg.txt", "kernel_log", {}, FAIL, "Xid 74"),
    Sample("misc/xid74_kmsg.txt", "kernel_log", {}, FAIL, "log_buf_len"),
    Sample("misc/xid74_kmsg.txt", "kernel_errors", {}, FAIL, "log_buf_len"),
    Sample("misc/devlink_health_diagnose_tx.json", "devlink_health", {}, FAIL, "queue 138"),
    Sample("misc/devlink_health_show.txt", "devlink_health", {}, SKIPPED,
           "no send queue"),
    Sample("misc/nvidia_smi_query_csv_h100.community-test.csv", "pcie_link", H100 | {"gpus": 3},
           FAIL, "GPU 1", f"nvidia-smi --query-gpu={COLUMNS} --format=csv,noheader"),
    Sample("misc/nvidia_smi_query_csv_h100.community-test.csv", "ecc", H100 | {"gpus": 3}, PASS,
           "", f"nvidia-smi --query-gpu={COLUMNS} --format=csv,noheader"),
    Sample("misc/rdma_statistic_show.txt", "rdma_counters", {}, PASS),
    Sample("misc/rdma_statistic_show.txt", "roce_transport", {}, PASS),
    Sample("mlx/bfvcheck.out", "bfvcheck", {}, FAIL, "ATF"),
    Sample("mlx/bfvcheck_power_cycle_needed.txt", "bfvcheck", {}, FAIL, "power cycled"),
    Sample("mlx/mlxconfig_json_basic.json", "nic_config", {}, PASS),
    Sample("mlx/mlxconfig_json_arrays.json", "nic_config", {}, PASS),
    Sample("mlx/mlxconfig_json_basic.json", "nic_config", {"nic_parameters": {"SRIOV_EN": "0"}},
           FAIL, "SRIOV_EN"),
    Sample("mlx/mlxconfig_e_q_0.txt", "nic_config", {}, FAIL, "MEMIC_SIZE_LIMIT"),
    Sample("mlx/mlxconfig_e_q_1.txt", "nic_config", {}, PASS),
    Sample("mlx/mlxconfig_e_q_2.txt", "nic_config", {}, FAIL, "cannot be judged"),
    Sample("mlx/mlxconfig_e_q_3.txt", "nic_config", {}, PASS),
    Sample("mlx/mlxconfig_e_q_4.txt", "nic_config", {}, FAIL, "without parameters"),
    Sample("mlx/mlxconfig_e_q_5.txt", "nic_config", {}, FAIL, "PCI_DOWNSTREAM_PORT_OWNER[0]"),
    Sample("mlx/mlxconfig_e_q_6.txt", "nic_config", {}, FAIL, "MIXED_FORMAT_PARAM"),
    Sample("mlx/mlxfwmanager_burned_ne_running.txt", "nic_inventory", {}, FAIL, "22.43.1020"),
    Sample("mlx/mlxfwmanager_running_eq_burned.txt", "nic_inventory", {}, PASS),
    Sample("mlx/mlxfwmanager_truncated.txt", "nic_inventory", {}, FAIL, "no firmware version"),
    Sample("mlx/mlxfwmanager_dpu_failed_xml.xml", "nic_inventory", {}, FAIL, "Failed to open"),
    Sample("mlx/mlxfwmanager_dpu_failed_xml.xml", "nic_inventory",
           {"dpu_pci": ("0000:b4:00.0",)}, PASS),
    Sample("mlx/mlxfwmanager_dpu_failed_xml2.xml", "nic_inventory", {}, FAIL, "0000:9d:00.0"),
    Sample("mlx/mlxfwmanager_mixed_devices_xml.xml", "nic_inventory",
           {"rails": 2, "dpu_pci": ("0000:9d:00.0",)}, PASS),
    Sample("mlx/mlxfwmanager_mixed_devices_xml.xml", "nic_inventory",
           {"rails": 2, "dpu_pci": ("0000:9d:00.0",), "pins": {"supernic.nic": ("32.44.1036",)}},
           FAIL, "32.42.1000"),
    # the list holds the eight SuperNICs; the two DPUs of that machine are not in it
    Sample("mlx/mlxfwmanager_query_xml_8xB3140L_2xDPU.xml", "nic_inventory", {"rails": 8}, PASS),
    Sample("mlx/mlxfwmanager_query_xml_8xB3140L_2xDPU.xml", "nic_inventory", CARDS, FAIL, "8"),
    Sample("mlx/nico_mlxconfig.out", "nic_inventory", {"rails": 8}, PASS),
    Sample("mlx/mlxlink_mft4.34.1_cx7_400g_dr4.json", "mlxlink", {}, PASS),
    Sample("mlx/mlxlink_mft4.34.1_cx7_400g_dr4.json", "optics", {}, PASS),
    Sample("mlx/mlxlink_mft4.34.1_cx7_400g_dr4.json", "fec_histogram", {}, FAIL, "no histogram"),
    Sample("mlx/mlxlink_fec_histogram_excerpt.json", "fec_histogram", {}, PASS),
    Sample("mlx/mlxlink_fec_histogram_excerpt.json", "mlxlink", {}, FAIL, "not report its state"),
    Sample("mlx/mlxlink_status_error.json", "mlxlink", {}, FAIL, "Failed to open device"),
    Sample("mlx/mlxlink_status_error.json", "optics", {}, FAIL, "Failed to open device"),
    Sample("nvfwupd/show_version_DGX_H100_241205.json", "hgx_inventory", {}, PASS),
    Sample("nvfwupd/show_version_DGX_H100_241205.json", "hgx_inventory",
           {"pins": {"hgx.gpu": ("96.00.74.00.01",)}, "grammars": {"hgx.gpu": "dotted_hex"}},
           FAIL, "96.00.BC.00.01"),
    Sample("nvfwupd/show_version_GH200_text.txt", "hgx_inventory", {}, PASS),
    Sample("nvfwupd/show_version_GH200_text.txt", "hgx_inventory",
           {"pins": {"hgx.cpu": ("01.02.04",)}}, FAIL, "HGX_CPU_0"),
    Sample("nvfwupd/update_task_text.txt", "hgx_inventory", {}, FAIL, "cannot be judged"),
    Sample("nvue/system_health_not_ok.json", "switch_health", {}, FAIL, "PSU1"),
    Sample("nvue/frr_bgp_summary_success.json", "bgp_peers", {}, PASS),
    Sample("nvue/frr_bgp_summary_with_tenant_routes.json", "bgp_peers", {}, PASS),
    Sample("nvue/frr_bgp_summary_single_failed_tor_peer.json", "bgp_peers", {}, FAIL, "p0_if"),
    Sample("nvue/frr_bgp_summary_failed_tor_peers.json", "bgp_peers", {}, FAIL, "p1_if"),
    Sample("superbench/monitor.jsonl", "temperatures", {}, SKIPPED, "holds no limits"),
)  # fmt: skip


@pytest.mark.parametrize("sample", TABLE, ids=lambda s: f"{s.file}-{s.check}")
def test_a_true_output_is_judged_rightly(sample: Sample) -> None:
    file = SAMPLES / sample.file
    if not file.is_file():
        pytest.skip(f"no samples in {SAMPLES.name}: set PROVISIONER_SAMPLES")
    check = BY_NAME[sample.check]
    command = check.commands[0]
    evidence = Evidence(source=sample.source or file.name, exit_code=0, text=file.read_text())

    result = check.judge({command.name: evidence}, CheckContext.model_validate(sample.context))

    assert result.verdict is sample.verdict, result.findings
    told = [f"{f.part} {f.detail} {f.measured}" for f in result.findings]
    assert sample.words == "" or any(sample.words in words for words in told), told


def test_a_monitors_record_is_measured_though_it_cannot_be_judged() -> None:
    file = SAMPLES / "superbench" / "monitor.jsonl"
    if not file.is_file():
        pytest.skip(f"no samples in {SAMPLES.name}: set PROVISIONER_SAMPLES")
    evidence = Evidence(source=file.name, exit_code=0, text=file.read_text())

    result = BY_NAME["temperatures"].judge({"smi_query": evidence}, CheckContext())

    assert len(result.measured) == 8
    assert all(10 < value < 100 for value in result.measured.values())


# what is no output of a gate's tool -> what it is
NO_OUTPUTS = {
    "README.md": "the index of the samples",
    "dcgm/dcgm_errors.csv": "a table out of DCGM's source",
    "dcgm/diag_skus_hgx.json": "a table out of DCGM's source",
    "nvue/": "configurations, requests and outputs of switches: the fabric's",
    "spectrum-x/": "profiles of network cards",
    "xid/": "NVIDIA's tables, which the Xid tests hold ours against",
}


def test_every_sample_of_a_gates_tool_is_in_a_table() -> None:
    if not SAMPLES.is_dir():
        pytest.skip(f"no samples in {SAMPLES.name}: set PROVISIONER_SAMPLES")
    judged = {s.file for s in TABLE} | {case[0] for case in CASES}
    there = {str(f.relative_to(SAMPLES)) for f in SAMPLES.rglob("*") if f.is_file()}

    left = {f for f in there - judged if not f.startswith(tuple(NO_OUTPUTS))}

    assert left == set()


@pytest.mark.parametrize("check", checks.ALL, ids=lambda c: c.name)
def test_no_check_passes_an_output_of_another_tool(check: checks.Check) -> None:
    """Every file of the table goes to every check: it is a pass only where the table says so."""
    files = {s.file for s in TABLE if s.check == check.name}
    for name in sorted({s.file for s in TABLE} - files):
        file = SAMPLES / name
        if not file.is_file():
            pytest.skip(f"no samples in {SAMPLES.name}: set PROVISIONER_SAMPLES")
        outputs = {
            c.name: Evidence(source=name, exit_code=0, text=file.read_text())
            for c in check.commands
        }

        result = check.judge(outputs, CheckContext(gpu_model="H100"))

        assert result.verdict is not PASS, name
