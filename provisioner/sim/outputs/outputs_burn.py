"""The output of long and synthetic load tests on a simulated host.

gpu_burn, ib_write_bw, fio, stress-ng and STREAM, in their own formats (facts: health 1.4, 1.9).
Healthy values are a little above the published minima; `load_faults` lower them.
"""

from __future__ import annotations

import json
from typing import Any

from provisioner.sim.hardware.parts import Device
from provisioner.sim.outputs.host import HostView, Output

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
