"""Every NVLink of every GPU is up, and all run at one speed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from provisioner.checks.check import Check, CheckContext, Unreadable, fault
from provisioner.checks.commands import NVLINK
from provisioner.checks.readers.tool_output import parse_number, read_output, split_lines
from provisioner.checks.thresholds import require_threshold
from provisioner.model.cohort import Evidence, Finding, Gate, Severity

_GPU = re.compile(r"GPU (\d{1,3}): .{1,200}\(UUID: GPU-[0-9A-Za-z-]{1,64}\)$")
_LINK = re.compile(r"Link (\d{1,3}): ([0-9.]{1,12}) GB/s$")
_DOWN = re.compile(r"Link (\d{1,3}): .{0,60}(inactive|disabled|off)", re.IGNORECASE)
_DCGMI_GPU = re.compile(r"gpuId (\d{1,3}):$")
# up, down, disabled, absent
_DCGMI_LINKS = re.compile(r"[UDX_](?: [UDX_]){0,63}$")
_DCGMI_OTHER = re.compile(r"(?:[+|]|GPUs:|No NvSwitches|Key:|[UDX_](?: [UDX_]){0,63}$|\w+=)")
_ALL_DOWN = "all links are inactive"


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    text = read_output(evidence, NVLINK)
    links = _parse_dcgmi(text) if "gpuId" in text else _parse_smi(text)
    if len(links) != context.gpus:
        yield fault("host", Severity.ISOLATE, "GPUs with NVLinks", len(links), context.gpus)
    down = {gpu: [n for n, speed in speeds.items() if speed <= 0] for gpu, speeds in links.items()}
    for gpu, listed in down.items():
        for link in listed:
            yield fault(f"GPU {gpu} link {link}", Severity.ISOLATE, "the NVLink is down")
    required = int(require_threshold(context, "nvlinks"))
    for gpu, speeds in links.items():
        up = len(speeds) - len(down[gpu])
        if up < required:
            yield fault(f"GPU {gpu}", Severity.ISOLATE, "NVLinks that are up", up, required)
    rates = {speed for speeds in links.values() for speed in speeds.values() if speed > 0}
    if len(rates) > 1:
        common = max(rates)
        for gpu, speeds in links.items():
            for link, speed in speeds.items():
                if 0 < speed < common:
                    yield fault(
                        f"GPU {gpu} link {link}",
                        Severity.ISOLATE,
                        "an NVLink is slower than the others",
                        f"{speed} GB/s",
                        f"{common} GB/s",
                    )


def _parse_dcgmi(text: str) -> dict[int, dict[int, float]]:
    """Parse `dcgmi nvlink -s`: one letter per link, no speeds; a link that is up counts as 1."""
    links: dict[int, dict[int, float]] = {}
    gpu: int | None = None
    for line in split_lines(text):
        bare = line.strip()
        if match := _DCGMI_GPU.match(bare):
            gpu = int(match[1])
            if gpu in links:
                raise Unreadable("dcgmi nvlink: one GPU is listed twice")
            links[gpu] = {}
        elif bare.startswith(("NvSwitches", "physicalId")):
            gpu = None
        elif gpu is not None and _DCGMI_LINKS.match(bare):
            if links[gpu]:
                raise Unreadable("dcgmi nvlink: one GPU is listed twice")
            cells = bare.split()
            links[gpu] = {n: float(c == "U") for n, c in enumerate(cells) if c != "_"}
        elif gpu is not None or not _DCGMI_OTHER.match(bare):
            raise Unreadable(f"dcgmi nvlink: cannot read {bare[:60]!r}")
    if not links or not all(links.values()):
        raise Unreadable("dcgmi nvlink: a GPU without links")
    return links


def _parse_smi(text: str) -> dict[int, dict[int, float]]:
    """Return GPU -> link -> GB/s; 0 for a link that is down."""
    links: dict[int, dict[int, float]] = {}
    current: dict[int, float] | None = None
    for line in split_lines(text):
        bare = line.strip()
        if match := _GPU.match(bare):
            gpu = int(match[1])
            if gpu in links:
                raise Unreadable("nvidia-smi nvlink: one GPU is listed twice")
            current = links[gpu] = {}
        elif current is None:
            raise Unreadable(f"nvidia-smi nvlink: cannot read {bare[:60]!r}")
        elif match := _LINK.match(bare):
            if int(match[1]) in current:
                raise Unreadable("nvidia-smi nvlink: one link is listed twice")
            current[int(match[1])] = parse_number(match[2], "link speed")
        elif match := _DOWN.match(bare):
            current[int(match[1])] = 0.0
        elif _ALL_DOWN not in bare.lower():  # "... as all links are inActive"
            raise Unreadable(f"nvidia-smi nvlink: cannot read {bare[:60]!r}")
    if not links:
        raise Unreadable("nvidia-smi nvlink: no GPU in it")
    return links


CHECK = Check("nvlink", Gate.A, (NVLINK,), _findings, after_load=True, thresholds=("nvlinks",))
