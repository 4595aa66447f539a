"""The output of `nvidia-smi -q`, `topo -m` and `nvlink -e` on a simulated host."""

from __future__ import annotations

from provisioner.sim.hardware.parts import Device
from provisioner.sim.outputs.host import HostView, Output

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
