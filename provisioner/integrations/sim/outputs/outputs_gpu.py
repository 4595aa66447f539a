"""The output of nvidia-smi on a simulated host, in its true formats."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from provisioner.integrations.sim.hardware.curable_faults import GPU_RESET, cure_faults
from provisioner.integrations.sim.hardware.parts import Device
from provisioner.integrations.sim.hardware.report_devices import write_evidence
from provisioner.integrations.sim.outputs.host import HostView, Output

# ------------------------------------------------------------------------------
# The output of `nvidia-smi -q`, `topo -m` and `nvlink -e` on a simulated host.


NVLINKS = 18  # of an H100
ERROR_KINDS = ("Replay Errors", "Recovery Errors", "CRC Errors")
POWER_LIMIT_W = 700


def print_query(view: HostView) -> Output:
    """`nvidia-smi -q`: for every GPU, the sections that tools read."""
    lines = [
        "",
        "==============NVSMI LOG==============",
        "",
        "Timestamp                                 : Thu Mar 14 20:45:34 2024",
        f"Driver Version                            : {view.driver}",
        "CUDA Version                              : 12.4",
        "",
        f"Attached GPUs                             : {len(view.gpus)}",
    ]
    for gpu in view.gpus:
        lines.append(f"GPU 0000{gpu.pci.upper()}")
        lines += _flat(_facts(view, gpu), 1)
        lines.append("")
    return Output(0, "".join(line + "\n" for line in lines))


Tree = dict[str, "str | Tree"]


def _flat(tree: Tree, depth: int) -> list[str]:
    lines = []
    for name, value in tree.items():
        head = "    " * depth + name
        if isinstance(value, str):
            lines.append(f"{head:<42}: {value}")
        else:
            lines += [head, *_flat(value, depth + 1)]
    return lines


def _processes(view: HostView) -> str | Tree:
    """A training job that did not end, where the fault says so (form: driver 550)."""
    if "gpu_process" not in view.machine.faults:
        return "None"
    block: Tree = {"Type": "C", "Name": "/usr/bin/python3", "Used GPU Memory": "520 MiB"}
    none: Tree = {"GPU instance ID": "N/A", "Compute instance ID": "N/A"}
    return {**none, f"{'Process ID':<34}: 4711": block}


def _facts(view: HostView, gpu: Device) -> Tree:
    heat = int(gpu.traits.get("temperature", view.vary_level(34, 0.08, 0)))
    margin = 87 - heat
    return {
        "Product Name": f"NVIDIA {gpu.model}",
        "Persistence Mode": "Enabled",
        "MIG Mode": {"Current": str(gpu.traits.get("mig", "Disabled")), "Pending": "Disabled"},
        "Serial Number": gpu.serial,
        "GPU UUID": str(gpu.traits["uuid"]),
        "FB Memory Usage": {"Total": "81559 MiB", "Reserved": "551 MiB", "Used": "1 MiB"},
        "Compute Mode": "Default",
        "Clocks Event Reasons": _clocks(gpu),
        "ECC Mode": {"Current": "Enabled", "Pending": "Enabled"},
        "ECC Errors": {"Volatile": _ecc(gpu, "volatile"), "Aggregate": _ecc(gpu, "aggregate")},
        "Retired Pages": {
            "Single Bit ECC": "N/A",
            "Double Bit ECC": "N/A",
            "Pending Page Blacklist": "N/A",
        },
        "Remapped Rows": {
            "Correctable Error": str(gpu.traits.get("remap_correctable", 0)),
            "Uncorrectable Error": str(gpu.traits.get("remap_uncorrectable", 0)),
            "Pending": "Yes" if gpu.traits.get("remap_pending") else "No",
            "Remapping Failure Occurred": "Yes" if gpu.traits.get("remap_failure") else "No",
        },
        "Temperature": {
            "GPU Current Temp": f"{heat} C",
            "GPU T.Limit Temp": f"{margin} C",
            "GPU Shutdown T.Limit Temp": "-8 C",
            "GPU Slowdown T.Limit Temp": "-2 C",
            "GPU Max Operating T.Limit Temp": "0 C",
            "Memory Current Temp": f"{heat + 8} C",
            "Memory Max Operating T.Limit Temp": "0 C",
        },
        "GPU Power Readings": {
            "Power Draw": f"{view.vary_level(72, 0.04, 2)} W",
            "Current Power Limit": f"{gpu.traits.get('power_limit', POWER_LIMIT_W)}.00 W",
            "Default Power Limit": f"{POWER_LIMIT_W}.00 W",
        },
        "Processes": _processes(view),
        "Fabric": {
            "State": str(gpu.traits.get("fabric_state", "Completed")),
            "Status": "Success",
            "CliqueId": "0",
        },
    }


def _clocks(gpu: Device) -> Tree:
    slow = str(gpu.traits.get("clocks_slowed", ""))  # name of the reason
    states = {
        "Idle": "Not Active" if slow else "Active",
        "SW Power Cap": "Not Active",
        "HW Slowdown": "Active" if slow.startswith("HW") else "Not Active",
        "HW Thermal Slowdown": "Not Active",
        "HW Power Brake Slowdown": "Not Active",
        "SW Thermal Slowdown": "Not Active",
    }
    return {**states, slow: "Active"} if slow else dict(states)


def _ecc(gpu: Device, when: str) -> Tree:
    """`sram_uncorrected` stays in the aggregate count; the volatile count ends with the boot."""
    bad = gpu.traits.get("sram_uncorrected", 0)
    counts: Tree = {
        "SRAM Correctable": "0",
        "SRAM Uncorrectable Parity": "0",
        "SRAM Uncorrectable SEC-DED": str(bad if when == "aggregate" else 0),
        "DRAM Correctable": str(gpu.traits.get("ecc_corrected", 0)),
        "DRAM Uncorrectable": str(gpu.traits.get("ecc_uncorrected", 0)),
    }
    return {**counts, "SRAM Threshold Exceeded": "No"} if when == "aggregate" else counts


def print_topology(view: HostView) -> Output:
    """`nvidia-smi topo -m`: NVLinks between GPUs, and each GPU's NIC behind its own switch."""
    gpus = view.gpus
    cards = view.cards
    rails = [n for n, card in enumerate(cards) if card.kind == "nic"]
    near = dict(enumerate(rails[: len(gpus)]))
    names = [f"GPU{n}" for n in range(len(gpus))] + [f"NIC{n}" for n in range(len(cards))]
    lines = ["\t\x1b[4m" + "\t".join([*names, "CPU Affinity", "NUMA Affinity"]) + "\x1b[0m"]
    for row, name in enumerate(names):
        cells = [_path(row, column, len(gpus), near) for column in range(len(names))]
        lines.append("\t".join([name, *cells, "0-47", "0"]))
    lines += ["", "Legend:", "", "  X    = Self", "  PXB  = Connection traversing multiple bridges"]
    return Output(0, "".join(line + "\n" for line in lines))


def _path(row: int, column: int, gpus: int, near: dict[int, int]) -> str:
    if row == column:
        return " X "
    low = min(row, column)
    high = max(row, column)
    if high < gpus:
        return f"NV{NVLINKS}"
    return "PXB" if low < gpus and near.get(low) == high - gpus else "SYS"


def print_nvlink_errors(view: HostView) -> Output:
    """`nvidia-smi nvlink -e`."""
    lines = []
    for index, gpu in enumerate(view.gpus):
        lines.append(f"GPU {index}: NVIDIA {gpu.model} (UUID: {gpu.traits['uuid']})")
        for link in range(NVLINKS):
            for kind in ERROR_KINDS:
                bad = gpu.traits.get("nvlink_errors", 0) if link == 0 else 0
                lines.append(f"\t Link {link}: {kind}: {bad}")
    return Output(0, "".join(line + "\n" for line in lines))


ANSWERS = {
    ("-q",): print_query,
    ("topo", "-m"): print_topology,
    ("nvlink", "-e"): print_nvlink_errors,
}


# ------------------------------------------------------------------------------
# The output of NVIDIA's `nvattest collect-evidence` on a simulated host.
#
# The form is that of NVIDIA/attestation-sdk 443b9e3a (collect_evidence.cpp, nvat.h.in) and of its
# command reference: an object with the evidences, or with a result that says why there are none.
# The
# exit code is the low byte of the result.


_COMMAND = re.compile(
    r"NVAT_FORMAT=json NVAT_LOG_LEVEL=error nvattest collect-evidence"
    r" --device (gpu|nvswitch) --nonce ([0-9a-f]{64})"
)
# results, with their sentences in nvat.h.in
NVML_INIT_FAILED = 500
NVML_ERROR = 501
_MESSAGES = {
    0: "Ok",
    NVML_INIT_FAILED: "a failure to initialize the NVIDIA Management Library (NVML)",
    NVML_ERROR: "a generic failure in the NVML library while performing a management operation",
    509: "the GPU is not running in a supported mode (CC or PPCIe)",
    600: "a failure to initialize NSCQ",
}


def print_nvattest(view: HostView, command: str) -> Output:
    """`nvattest collect-evidence --device gpu|nvswitch --nonce HEX`, with JSON output."""
    machine = view.machine
    asked = _COMMAND.fullmatch(command)
    if machine.nvattest is None:
        return Output(127, "", "/bin/sh: 1: nvattest: not found\n")
    if asked is None:
        return Output(106, "", "The following arguments were not expected\n")
    kind = asked[1]
    if machine.nvattest:
        return _answer(machine.nvattest, None)
    if kind == "gpu" and "gpu_fell_off" in machine.faults:
        return _answer(NVML_ERROR, None)
    if kind == "gpu" and "nvml_mismatch" in machine.faults:
        return _answer(NVML_INIT_FAILED, None)
    nonce = bytes.fromhex(asked[2])
    devices = view.gpus if kind == "gpu" else view.switches
    rows = [
        write_evidence(machine, device, view.driver, nonce)
        for device in devices
        if device.slot not in machine.silent_roots
    ]
    return _answer(0, rows)


def _answer(result: int, evidences: list[dict[str, str]] | None) -> Output:
    message = _MESSAGES.get(result, "unknown")
    answer = {"evidences": evidences, "result_code": result, "result_message": message}
    return Output(result & 0xFF, json.dumps(answer, indent=4) + "\n")


# ------------------------------------------------------------------------------
# `nvidia-smi --gpu-reset` on a simulated host.


def reset_gpus(view: HostView, command: str) -> Output:
    """`nvidia-smi --gpu-reset` with the services around it stopped and started.

    Files that the command writes under /run stay until the host restarts (systemd's
    file-hierarchy(7): /run is a tmpfs).
    """
    boot = view.machine.host.boot_id
    marks = re.findall(r"cat /proc/sys/kernel/random/uuid > (/run/[\w-]+);", command)
    failed = bool({"gpu_reset_fails", "gpu_process"} & set(view.machine.faults))
    for path in marks:
        view.volatile[path] = boot, f"{boot}-{view.now}\n{int(failed)}\n"
    if failed:
        return Output(1, "", "GPU 00000000:1B:00.0 is currently in use by another process.\n")
    view.machine.log_event(view.now, "gpu_reset", "gpus")
    cure_faults(view.machine, GPU_RESET)
    lines = [f"GPU {gpu.pci} was successfully reset.\n" for gpu in view.gpus]
    return Output(0, "".join(lines) + "All done.\n")


NVLINK_SPEED = "26.562 GB/s"

Field = Callable[[HostView, int, Device], str]


def _bus(device: Device) -> str:
    """A PCI address in nvidia-smi's format: eight digits of domain, capitals."""
    return "0000" + device.pci.upper()


FIELDS: dict[str, Field] = {
    "index": lambda _v, i, _d: str(i),
    "uuid": lambda _v, _i, d: str(d.traits["uuid"]),
    "serial": lambda _v, _i, d: d.serial,
    "name": lambda _v, _i, d: f"NVIDIA {d.model}",
    "pci.bus_id": lambda _v, _i, d: _bus(d),
    "vbios_version": lambda v, _i, d: v.machine.firmware["host", f"HGX_FW_{d.slot}"].running,
    "driver_version": lambda v, _i, _d: v.driver,
    "pcie.link.gen.current": lambda _v, _i, d: str(d.link_gen),
    "pcie.link.gen.max": lambda _v, _i, d: str(d.link_gen_max),
    "pcie.link.width.current": lambda _v, _i, d: str(d.link_width),
    "pcie.link.width.max": lambda _v, _i, d: str(d.link_width_max),
    "ecc.mode.current": lambda _v, _i, d: str(d.traits.get("ecc_mode", "Enabled")),
    "ecc.errors.uncorrected.volatile.total": lambda _v, _i, d: _count(d, "ecc_uncorrected"),
    "ecc.errors.corrected.volatile.dram": lambda _v, _i, d: _count(d, "ecc_corrected"),
    "temperature.gpu": lambda v, _i, d: str(d.traits.get("temperature", v.vary_level(34, 0.08, 0))),
    "power.draw": lambda v, _i, _d: f"{v.vary_level(72, 0.04, 2)} W",
}
REMAP_FIELDS: dict[str, Field] = {
    "gpu_uuid": FIELDS["uuid"],
    "remapped_rows.correctable": lambda _v, _i, d: _count(d, "remap_correctable"),
    "remapped_rows.uncorrectable": lambda _v, _i, d: _count(d, "remap_uncorrectable"),
    "remapped_rows.pending": lambda _v, _i, d: _count(d, "remap_pending"),
    "remapped_rows.failure": lambda _v, _i, d: _count(d, "remap_failure"),
}


def _count(device: Device, trait: str) -> str:
    return str(device.traits.get(trait, 0))


def print_nvidia_smi(view: HostView, command: str) -> Output:
    """`nvidia-smi --query-gpu=...`, `--query-remapped-rows=...` or `nvlink -s`."""
    if "nvml_mismatch" in view.machine.faults and view.machine.host.packages.get(
        "host.driver"
    ) != view.machine.host.loaded.get("host.driver"):
        # the new driver's library does not match the old kernel module
        return Output(18, "Failed to initialize NVML: Driver/library version mismatch\n")
    if "gpu_fell_off" in view.machine.faults:
        lost = view.gpus[0]
        return Output(
            15,
            "",
            f"Unable to determine the device handle for GPU {lost.pci}: Unknown Error\n",
        )
    arguments = command.split()
    if arguments[1:] == ["nvlink", "-s"]:
        return Output(0, _nvlink(view))
    if tuple(arguments[1:]) in ANSWERS:
        return ANSWERS[tuple(arguments[1:])](view)
    for option, columns in (("--query-gpu=", FIELDS), ("--query-remapped-rows=", REMAP_FIELDS)):
        if (
            len(arguments) == 3
            and arguments[1].startswith(option)
            and arguments[2] == "--format=csv,noheader"
        ):
            return _table(view, arguments[1].removeprefix(option).split(","), columns)
    return Output(2, "", f"Invalid combination of input arguments: {command}\n")


def _table(view: HostView, fields: list[str], columns: dict[str, Field]) -> Output:
    unknown = [f for f in fields if f not in columns]
    if unknown:
        return Output(2, f'Field "{unknown[0]}" is not a valid field to query.\n\n')
    rows = [
        ", ".join(columns[field](view, index, gpu) for field in fields)
        for index, gpu in enumerate(view.gpus)
    ]
    return Output(0, "".join(row + "\n" for row in rows))


def _nvlink(view: HostView) -> str:
    lines = []
    for index, gpu in enumerate(view.gpus):
        lines.append(f"GPU {index}: NVIDIA {gpu.model} (UUID: {gpu.traits['uuid']})")
        down = int(gpu.traits.get("nvlinks_down", 0))
        speeds = ["<inactive>" if link < down else NVLINK_SPEED for link in range(NVLINKS)]
        lines += [f"\t Link {link}: {speed}" for link, speed in enumerate(speeds)]
    return "".join(line + "\n" for line in lines)
