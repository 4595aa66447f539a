"""The output of load tests on a simulated host: DCGM 4.x, nvbandwidth, nccl-tests.

Healthy values are a few percent above the published minima (docs/sources/health.md#minima); a fault
of the machine lowers them where the real test would show it. DCGM passes a link that trained down
to Gen4, as the real one does (docs/sources/health.md#dcgm-gaps).
"""

from __future__ import annotations

import json
from typing import Any

from provisioner.integrations.sim.hardware.parts import Device
from provisioner.integrations.sim.outputs.host import HostView, Output

# ------------------------------------------------------------------------------
# The output of long and synthetic load tests on a simulated host.
#
# gpu_burn, ib_write_bw, fio, stress-ng and STREAM, in their own formats
# (docs/sources/health.md#formats). Healthy values are a little above the published minima;
# `load_faults` lower them.


BURN_GFLOP_S = 51_100.0  # one H100 with tensor cores, double precision
LOOPBACK_GBIT_S = 391.9  # a 400 Gbit/s port
DRIVES = 4
READ_BYTES_S = 6.9e9
READ_IOPS = 950_000.0
TRIAD_MB_S = 612_000.0
MESSAGE_BYTES = 8 * 1024 * 1024
_RULE = "-" * 87 + "\n"


def print_gpu_burn(view: HostView, _command: str) -> Output:
    """Progress at each tenth, then a verdict for each GPU."""
    count = len(view.gpus)
    if not count:
        return Output(124, "No CUDA devices\n")
    faults = view.machine.faults
    errors = [17 if n == 3 and "gpu_wrong_results" in faults else 0 for n in range(count)]
    lines = [
        f"GPU {n}: NVIDIA {gpu.model} (UUID: GPU-{gpu.serial:0>36.36})\n"
        for n, gpu in enumerate(view.gpus)
    ]
    for tenth in range(1, 11):
        speeds = [view.vary_level(BURN_GFLOP_S, 0.006, 0) for _ in range(count)]
        if "gpu_slow_under_load" in faults:
            speeds[-1] = int(speeds[-1] * 5 / 6)
        progress = " - ".join(f"{2261 * tenth} ({speed} Gflop/s)" for speed in speeds)
        wrong = " - ".join(f"{n} {' (WARNING!)' if n else ''}".strip() for n in errors)
        temperatures = " - ".join(["64 C"] * count)
        lines.append(f"\r{10 * tenth:.1f}%  proc'd: {progress}   errors: {wrong}   temps: ")
        lines.append(f"{temperatures} \n\tSummary at:   Mon Jan  5 10:00:00 UTC 2026\n\n")
    lines.append(f"Killing processes.. done\n\nTested {count} GPUs:\n")
    lines += [f"\tGPU {n}: {'FAULTY' if wrong else 'OK'}\n" for n, wrong in enumerate(errors)]
    return Output(0, "".join(lines))


def print_loopback(view: HostView, _command: str) -> Output:
    """`ib_write_bw` on each rail's NIC in turn, in the loop of docs/in-band.md."""
    text = ""
    nics = [card for card in view.cards if card.kind == "nic"]
    for rail, card in enumerate(nics):
        device = f"mlx5_{view.cards.index(card)}"
        slow = "loopback_slow" in view.machine.faults and rail == 1
        level = view.vary_level(LOOPBACK_GBIT_S * (0.5 if slow else 1.0), 0.001)
        if card.traits.get("link_down") or not _rate(card).startswith("400 "):
            continue  # the loop skips ports below 400 Gbit/s
        text += (
            f"== rail {rail} {device}\n{print_write_bw(device, float(level))}== end {device} 0\n"
        )
    return Output(0, text)


def _rate(card: Device) -> str:
    return str(card.traits.get("rate", "400 Gb/sec (4X NDR)"))


def print_write_bw(device: str, gbit_s: float, title: str = "RDMA_Write BW Test") -> str:
    """One run of `ib_write_bw` with messages of 8 MiB, as its client prints it."""
    rate = gbit_s * 125e6 / MESSAGE_BYTES / 1e6
    return (
        f"{_RULE}                    {title}\n"
        f" Dual-port       : OFF\t\tDevice         : {device}\n"
        " Number of qps   : 1\t\tTransport type : IB\n"
        " Connection type : RC\t\tUsing SRQ      : OFF\n"
        " Link type       : Ethernet\n GID index       : 3\n"
        f"{_RULE} #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n"
        f" {MESSAGE_BYTES}    5000             {gbit_s + 0.2:.2f}             {gbit_s:.2f}"
        f"\t\t   {rate:.6f}\n{_RULE}"
    )


def print_fio(view: HostView, _command: str) -> Output:
    """One JSON document: each drive read sequentially, then randomly."""
    bad = "drive_errors" in view.machine.faults
    jobs = []
    for pattern in ("sequential", "random"):
        for drive in range(DRIVES):
            error = 5 if bad and drive == 1 else 0
            jobs.append(_job(view, f"nvme{drive}n1-{pattern}", error))
    body = {"fio version": "fio-3.33", "global options": {"direct": "1"}, "jobs": jobs}
    return Output(1 if bad else 0, json.dumps(body, indent=2) + "\n")


def _job(view: HostView, name: str, error: int) -> dict[str, Any]:
    iops = float(
        view.vary_level(READ_IOPS if name.endswith("random") else READ_BYTES_S / 2**20, 0.01)
    )
    size = 4096 if name.endswith("random") else 2**20
    idle = {"io_bytes": 0, "bw_bytes": 0, "iops": 0.0, "short_ios": 0, "drop_ios": 0}
    read = {**idle, "io_bytes": int(iops * size * 30), "bw_bytes": int(iops * size), "iops": iops}
    options = {"name": name, "rw": "randread" if name.endswith("random") else "read"}
    return {
        "jobname": name,
        "groupid": 0,
        "error": error,
        "job options": options,
        "read": read,
        "write": idle,
    }


def print_stress_ng(view: HostView, _command: str) -> Output:
    """`--verify`: a stressor that finds a wrong bit fails the run."""
    messages = ["dispatching hogs: 192 cpu, 8 vm"]
    bad = "memory_flips_bits" in view.machine.faults
    text = "".join(f"stress-ng: info:  [1255] {message}\n" for message in messages)
    if bad:
        text += "stress-ng: fail:  [1260] vm: detected 3 bit errors while checking memory\n"
    passed = "199: cpu (192) vm (7)" if bad else "200: cpu (192) vm (8)"
    messages = ["skipped: 0", f"passed: {passed}", "failed: 1: vm (1)" if bad else "failed: 0"]
    messages.append(f"{'un' if bad else ''}successful run completed in 2 mins, 0.82 secs")
    text += "".join(f"stress-ng: info:  [1255] {message}\n" for message in messages)
    return Output(2 if bad else 0, text)


def print_stream(view: HostView, _command: str) -> Output:
    """STREAM 5.10: rates in MB/s, then its validation."""
    rule = "-" * 61 + "\n"
    times = "     0.036157     0.035891     0.038008\n"
    rows = "".join(
        f"{name + ':':<12}{view.vary_level(TRIAD_MB_S, 0.01, 1):>12}{times}"
        for name in ("Copy", "Scale", "Add", "Triad")
    )
    return Output(
        0,
        f"{rule}STREAM version $Revision: 5.10 $\n{rule}"
        "Function    Best Rate MB/s  Avg time     Min time     Max time\n"
        f"{rows}{rule}"
        f"Solution Validates: avg error less than 1.000000e-13 on all three arrays\n{rule}",
    )


HOST_GPU_GB_S = {5: 55.3, 4: 26.4, 3: 13.2, 2: 6.5, 1: 3.1}  # one x16 link, by generation
HBM_MB_S = 2_540_000.0  # one H100
GPU_GPU_GB_S = 391.0  # one pair of H100 over NVSwitch
ALL_REDUCE_GB_S = 478.0  # 8 H100 over NVSwitch, 16 GB
NCCL_BYTES = 16 * 1024**3
# DCGM error severities
ISOLATE = 2
CONFIG = 5


def print_dcgm(view: HostView, command: str) -> Output:
    """`dcgmi diag -r LEVEL -j`, or one plugin by name; exit code 226 if a test fails."""
    if not view.gpus:
        return Output(226, "Error: No GPUs were found.\n")
    run_level = command.split(" -r ", 1)[-1].split()[0]
    software = [_software(view, i) for i in range(len(view.gpus))]
    memory = [_memory(view, i, gpu) for i, gpu in enumerate(view.gpus)]
    pcie = [_pcie(view, i, gpu) for i, gpu in enumerate(view.gpus)]
    categories = {
        "1": [("Deployment", "software", software)],
        "2": [("Hardware", "memory", memory), ("Integration", "pcie", pcie)],
        "3": [
            ("Hardware", "diagnostic", _passes(view)),
            ("Stress", "memory_bandwidth", [_bandwidth(view, i) for i in range(len(view.gpus))]),
            ("Stress", "targeted_stress", _passes(view)),
            ("Stress", "targeted_power", _passes(view)),
        ],
        "4": [("Hardware", "memtest", _passes(view)), ("Stress", "pulse_test", _passes(view))],
    }
    listed = [row for level in categories if level <= run_level for row in categories[level]]
    if run_level not in categories:
        listed = [row for rows in categories.values() for row in rows if row[1] == run_level]
    categories_shown = [_category(*row) for row in listed]
    entities = [
        {"device_id": "2330", "entity_id": i, "serial_num": gpu.serial}
        for i, gpu in enumerate(view.gpus)
    ]
    document = {
        "DCGM Diagnostic": {"test_categories": categories_shown},
        "entity_groups": [{"entities": entities, "entity_group": "GPU", "entity_group_id": 1}],
        "metadata": {"Driver Version Detected": view.driver, "version": "4.2.3"},
    }
    failed = any(c["tests"][0]["test_summary"]["status"] == "Fail" for c in categories_shown)
    return Output(226 if failed else 0, json.dumps(document, indent=1) + "\n")


def _category(category: str, name: str, results: list[dict[str, Any]]) -> dict[str, Any]:
    statuses = {r["status"] for r in results}
    summary: dict[str, Any] = {"status": "Pass"}
    if "Skip" in statuses:
        summary["status"] = "Skip"
    if "Fail" in statuses:
        warnings = [w for r in results for w in r.get("warnings", [])]
        summary = {"status": "Fail", "warnings": warnings}
    return {
        "category": category,
        "tests": [{"name": name, "results": results, "test_summary": summary}],
    }


def _result(index: int, status: str, **more: Any) -> dict[str, Any]:
    return {
        "entity_group": "GPU",
        "entity_group_id": 1,
        "entity_id": index,
        "status": status,
        **more,
    }


def _failure(index: int, error_id: int, category: int, severity: int, text: str) -> dict[str, Any]:
    warning = {
        "error_category": category,
        "error_id": error_id,
        "error_severity": severity,
        "warning": text,
    }
    return _result(index, "Fail", warnings=[warning])


def _software(view: HostView, index: int) -> dict[str, Any]:
    if "persistence_off" in view.machine.faults:
        text = f"Persistence Mode: Persistence mode for GPU {index} is disabled."
        return _failure(index, 29, 8, CONFIG, text)
    return _result(index, "Pass")


def _memory(view: HostView, index: int, gpu: Device) -> dict[str, Any]:
    if "dcgm_skips_memory" in view.machine.faults:
        return _result(index, "Skip")
    if gpu.traits.get("ecc_uncorrected"):
        text = f"GPU {index} had uncorrectable memory errors and row remapping failed."
        return _failure(index, 83, 3, ISOLATE, text)
    return _result(index, "Pass", info=["Allocated 83022012416 bytes (97.8%)"])


def _pcie(view: HostView, index: int, gpu: Device) -> dict[str, Any]:
    if gpu.link_gen < 3 or gpu.link_width < 16:
        text = f"GPU {index}: PCIe generation or width is below the minimum."
        return _failure(index, 35, 4, ISOLATE, text)
    speed = _host_gpu(view, gpu)
    info = [f"GPU to Host bandwidth:\t\t{speed} GB/s", f"Host to GPU bandwidth:\t\t{speed} GB/s"]
    return _result(index, "Pass", info=info)


def _passes(view: HostView) -> list[dict[str, Any]]:
    return [_result(index, "Pass") for index in range(len(view.gpus))]


def _bandwidth(view: HostView, index: int) -> dict[str, Any]:
    slow = "hbm_slow" in view.machine.faults and index == 1
    speed = view.vary_level(HBM_MB_S * (0.5 if slow else 1.0), 0.005)
    if slow:  # the plugin compares with the minimum from its parameters
        text = f"GPU {index} achieved a bandwidth of {speed} MB/s, below the minimum."
        return _failure(index, 97, 5, ISOLATE, text)
    return _result(index, "Pass", info=[f"GPU {index} memory bandwidth: {speed} MB/s"])


def _host_gpu(view: HostView, gpu: Device) -> float | int:
    level = HOST_GPU_GB_S.get(gpu.link_gen, 3.1) * gpu.link_width / 16
    return view.vary_level(float(gpu.traits.get("host_gpu_gb_s", level)), 0.01, 4)


def print_nvbandwidth(view: HostView, command: str) -> Output:
    """`nvbandwidth -j -i N -t CASE...`: one row of numbers, as strings, for each case."""
    arguments = command.split()
    names = arguments[arguments.index("-t") + 1 :] if "-t" in arguments else []
    cases = []
    for name in names:
        if name.startswith("device_to_device"):
            cases.append(_device_to_device(view, name))
            continue
        direction = "->" if name.startswith("host_to_device") else "<-"
        values = [_host_gpu(view, gpu) for gpu in view.gpus]
        cases.append(
            {
                "average": sum(values) / max(len(values), 1),
                "bandwidth_description": "memcpy CE CPU(row) "
                f"{direction} GPU(column) bandwidth (GB/s) ",
                "bandwidth_matrix": [[f"{value:.4f}" for value in values]],
                "max": max(values, default=0),
                "min": min(values, default=0),
                "name": name,
                "status": "Passed" if values else "Waived",
                "sum": sum(values),
            }
        )
    body = {
        "CUDA Runtime Version": 12020,
        "Driver Version": view.driver,
        "git_version": "v0.8",
        "testcases": cases,
    }
    return Output(0, json.dumps({"nvbandwidth": body}, indent="\t") + "\n")


def _device_to_device(view: HostView, name: str) -> dict[str, Any]:
    """The rate between each pair of GPUs; a GPU with NVLinks down is slow with all of them."""
    slow = [1 - int(gpu.traits.get("nvlinks_down", 0)) / 18 for gpu in view.gpus]
    rows = [
        [
            "N/A" if a == b else f"{view.vary_level(GPU_GPU_GB_S * min(x, y), 0.004):.4f}"
            for b, y in enumerate(slow)
        ]
        for a, x in enumerate(slow)
    ]
    if len(rows) < 2:
        return {"name": name, "status": "Waived"}
    values = [float(cell) for row in rows for cell in row if cell != "N/A"]
    return {
        "average": sum(values) / len(values),
        "bandwidth_description": "memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s) ",
        "bandwidth_matrix": rows,
        "max": max(values),
        "min": min(values),
        "name": name,
        "status": "Passed",
        "sum": sum(values),
    }


def print_nccl(view: HostView, command: str) -> Output:
    """`all_reduce_perf ... -g 8`: the text table of nccl-tests with its last two lines."""
    arguments = command.split()
    gpus = int(arguments[arguments.index("-g") + 1]) if "-g" in arguments else 1
    host = view.machine.name
    if gpus > len(view.gpus):
        text = f"{host}: Test CUDA failure common.cu:1030 'invalid device ordinal'\n"
        return Output(3, "", text + f" .. {host} pid 41727: Test failure common.cu:891\n")
    level = ALL_REDUCE_GB_S
    if "nccl_slow" in view.machine.faults:
        level = 301.0
    if any(gpu.traits.get("nvlinks_down") for gpu in view.gpus):
        level *= 0.8
    wrong = 117 if "nccl_corrupts" in view.machine.faults else 0
    busses = [float(view.vary_level(level, 0.008)), float(view.vary_level(level, 0.008))]
    ranks = "".join(
        f"#  Rank {i:2d} Group  0 Pid  41727 on {host:>10s} device {i:2d} "
        f"[0x{gpu.pci[5:7]}] NVIDIA {gpu.model}\n"
        for i, gpu in enumerate(view.gpus[:gpus])
    )
    row = f"{NCCL_BYTES:12d}{NCCL_BYTES // 4:14d}{'float':>10s}{'sum':>8s}{'-1':>8s}"
    for bus in busses:
        algorithm = bus * gpus / (2 * (gpus - 1)) if gpus > 1 else bus
        microseconds = NCCL_BYTES / algorithm / 1e3
        row += f"{microseconds:9.1f}{algorithm:8.2f}{bus:8.2f}{wrong:7d}"
    verdict = "FAILED" if wrong else "OK"
    text = (
        f"# nThread 1 nGpus {gpus} minBytes {NCCL_BYTES} maxBytes {NCCL_BYTES} step: 2(factor) "
        "warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0\n#\n# Using devices\n"
        f"{ranks}#\n"
        "#                                                              out-of-place"
        "                       in-place          \n"
        "#       size         count      type   redop    root     time   algbw   busbw #wrong"
        "     time   algbw   busbw #wrong\n"
        "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)       "
        "     (us)  (GB/s)  (GB/s)       \n"
        f"{row}\n# Out of bounds values : {2 * wrong} {verdict}\n"
        f"# Avg bus bandwidth    : {sum(busses) / 2:g} \n#\n"
    )
    return Output(1 if wrong else 0, text)
