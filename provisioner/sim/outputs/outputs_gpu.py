"""The output of nvidia-smi on a simulated host, in its true formats."""

from __future__ import annotations

from collections.abc import Callable

from provisioner.sim.hardware.parts import Device
from provisioner.sim.outputs import outputs_gpu_query
from provisioner.sim.outputs.host import HostView, Output

NVLINKS = 18  # of an H100
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
    if tuple(arguments[1:]) in outputs_gpu_query.ANSWERS:
        return outputs_gpu_query.ANSWERS[tuple(arguments[1:])](view)
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
