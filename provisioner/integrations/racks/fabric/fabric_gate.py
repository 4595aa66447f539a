"""Whether the GPUs of one NVLink partition can be used together, by what each GPU says of itself.

Pure. `Completed` alone proves nothing: state, status, health and mask have to agree, and all GPUs
of the partition have to name one cluster and one clique. What is missing is no health. Formats:
`nvidia-smi -q` ("Fabric") and NVML's healthMask (docs/sources/hardware.md#nvlink-fabric).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from provisioner.model.outcome import Blocker, Reason

GPUS_MAX = 16  # of one tray; an NVL72's has four
TEXT_MAX_BYTES = 1 << 20  # of one host; four GPUs print some 60 KiB
LINES_MAX = 20_000
# two bits each; 0: not supported, 1: true, 2: false
_FLAGS = {"degraded bandwidth": 0, "route recovery": 2, "route unhealthy": 4, "access timeout": 6}
_CONFIGURATION = {
    2: "wrong system GUID",
    3: "wrong chassis serial",
    4: "no partition",
    5: "too few NVLinks",
    6: "incompatible GPU firmware",
    7: "invalid location",
}
_GOOD = {
    "Summary": ("healthy",),
    "Bandwidth": ("full",),
    "Route Recovery in progress": ("false",),
    "Route Unhealthy": ("false",),
    "Access Timeout Recovery": ("false",),
    "Incorrect Configuration": ("none",),
}
_NOT_SAID = frozenset({"", "n/a", "not supported"})
# of the GPU itself, not of what hangs below it; "N/A" is none
_SERIAL = re.compile(r" {1,4}Serial Number\s+: ([0-9A-Za-z]{4,64})\s*$")
_SERIAL_KEY = " serial"  # no key of the block "Fabric" begins so
_NO_ID = re.compile(r"[0\-]*")
_REMEDY = "Look at the NVLink switches and their controller first, then at the tray."


@dataclass(frozen=True)
class GpuFabric:
    """What one GPU says of the fabric; None and "" for what it does not say."""

    tray: str
    gpu: str
    state: str = ""
    status: str = ""
    clique: str = ""
    cluster: str = ""
    health: Mapping[str, str] | None = None  # the lines below "Health"
    mask: int | None = None  # NVML's healthMask
    serial: str = ""


def read_fabric(tray: str, printed: str) -> tuple[GpuFabric, ...]:
    """Return each GPU of `nvidia-smi -q`; one without a block "Fabric" is among them, and empty."""
    gpus: list[dict[str, str]] = []
    inside = 0  # indentation of "Fabric"; 0: not in it
    for line in printed[:TEXT_MAX_BYTES].splitlines()[:LINES_MAX]:
        if re.match(r"GPU [0-9A-Fa-f]{8}:", line) and len(gpus) < GPUS_MAX:
            gpus.append({"": line.split(None, 1)[1].strip()})
            inside = 0
            continue
        depth = len(line) - len(line.lstrip())
        if gpus and line.strip() == "Fabric":
            inside = depth
            continue
        if gpus and (found := _SERIAL.match(line)):
            gpus[-1][_SERIAL_KEY] = (
                "" if gpus[-1].get(_SERIAL_KEY, found[1]) != found[1] else found[1]
            )
        if not inside or not gpus:
            continue
        if line.strip() and depth <= inside:
            inside = 0
            continue
        key, colon, value = (part.strip() for part in line.partition(":"))
        if colon:
            twice = gpus[-1].setdefault(key, value) != value
            gpus[-1][key] = "stands twice" if twice else value
    return tuple(
        GpuFabric(
            tray,
            gpu[""],
            state=gpu.get("State", ""),
            status=gpu.get("Status", ""),
            clique=gpu.get("CliqueId", ""),
            cluster=gpu.get("ClusterUUID", ""),
            health={name: gpu[name] for name in _GOOD if name in gpu},
            serial=gpu.get(_SERIAL_KEY, ""),
        )
        for gpu in gpus
    )


def find_gpu_faults(gpu: GpuFabric) -> Iterator[str]:
    """Yield each reason why a GPU cannot use the fabric, as a sentence."""
    if gpu.state.strip().lower() != "completed":
        yield f"its state is {gpu.state or 'not said'}"
    if gpu.status.strip().lower() != "success":
        yield f"its status is {gpu.status or 'not said'}"
    if not re.fullmatch(r"[1-9][0-9]{0,9}", gpu.clique.strip()):
        yield f"its clique is {gpu.clique or 'not said'}"
    if gpu.cluster.strip().lower() in _NOT_SAID or _NO_ID.fullmatch(gpu.cluster.strip()):
        yield f"its cluster is {gpu.cluster or 'not said'}"
    told = {
        name: value
        for name, value in (gpu.health or {}).items()
        if value.strip().lower() not in _NOT_SAID
    }
    for name, value in told.items():
        if value.strip().lower() not in _GOOD.get(name, ()):
            yield f"{name}: {value}"
    if gpu.mask is not None:
        yield from read_mask(gpu.mask)
    if not told and gpu.mask in (None, 0):  # 0: no field is supported
        yield "nothing is said of its health"


def read_mask(mask: int) -> Iterator[str]:
    """Yield what a healthMask says is wrong: 0xAA and 0x1AA are the masks of a healthy GPU."""
    for name, shift in _FLAGS.items():
        value = mask >> shift & 3
        if value in (1, 3):
            yield f"healthMask {mask:#x}: {name}" + (" (a value nobody knows)" if value > 2 else "")
    configured = mask >> 8
    if configured > 1:
        what = _CONFIGURATION.get(configured, f"configuration {configured}, which nobody knows")
        yield f"healthMask {mask:#x}: {what}"


def judge_partition(
    planned: Mapping[str, int], gpus: Sequence[GpuFabric], cluster: str = "", clique: str = ""
) -> tuple[Blocker, ...]:
    """Return why the planned trays (GPUs by tray) are no whole partition; empty: they are.

    `cluster` and `clique`: what the domain's controller gave; "": the most common ones. A tray
    that was not read is a fault: no verdict is given over fewer GPUs than planned.
    """
    faults: list[Blocker] = []
    counted = Counter(gpu.tray for gpu in gpus)
    for tray, count in planned.items():
        if counted[tray] != count:
            faults.append(_refuse(tray, f"{counted[tray]} of {count} GPUs were read"))
    strangers = sorted(set(counted) - set(planned))
    faults += [_refuse(stranger, "the plan has no such tray") for stranger in strangers]
    faults += [
        _refuse(f"{gpu.tray}/{gpu.gpu}", told) for gpu in gpus for told in find_gpu_faults(gpu)
    ]
    for what, wanted, said in (
        ("cluster", cluster, [(g.tray, g.cluster.strip().lower()) for g in gpus]),
        ("clique", clique, [(g.tray, g.clique.strip()) for g in gpus]),
    ):
        faults.extend(_compare(what, wanted.strip().lower(), said))
    return tuple(faults)


def find_unnamed(gpus: Sequence[GpuFabric]) -> tuple[Blocker, ...]:
    """Return the GPUs without a serial of their own: a proof would be of any that stood there."""
    counted = Counter(gpu.serial for gpu in gpus)
    return tuple(
        _refuse(f"{gpu.tray}/{gpu.gpu}", "it says no serial that is its alone")
        for gpu in gpus
        if not gpu.serial or counted[gpu.serial] > 1
    )


def _compare(what: str, wanted: str, said: Sequence[tuple[str, str]]) -> Iterator[Blocker]:
    values = Counter(value for _, value in said)
    if not values:
        return
    common = wanted or values.most_common(1)[0][0]
    for tray, value in dict.fromkeys(pair for pair in said if pair[1] != common):
        yield _refuse(tray, f"its {what} is {value or 'not said'}, and the others' is {common}")


def _refuse(subject: str, detail: str) -> Blocker:
    return Blocker(reason=Reason.FABRIC, subject=subject, detail=detail[:300], unblock=_REMEDY)
