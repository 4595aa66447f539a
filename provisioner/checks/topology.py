"""Every GPU reaches every other over all its NVLinks, and has a NIC of its own close by.

PIX and PXB are paths that do not leave the PCIe switches: only there GPUDirect reaches its rate
(AWS's health checks compare the same matrix). As many GPUs as there are rails must each have a NIC
that no other GPU uses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from provisioner.checks.check import Check, CheckContext, Command, Unreadable, fault
from provisioner.checks.readers.tool_output import END, read_output, split_lines
from provisioner.checks.thresholds import require_threshold
from provisioner.model.cohort import Evidence, Finding, Gate, Severity

TOPOLOGY = Command(name="topology", line=f"nvidia-smi topo -m && {END}", limit_s=120.0)

_ESCAPE = re.compile(r"\x1b\[[0-9;]{0,8}m")  # the head of the table is underlined
_GPU = re.compile(r"^GPU\d{1,3}$")
_NIC = re.compile(r"^(?:NIC\d{1,3}|mlx\w{1,60})$")  # older drivers name the devices themselves
_PATH = re.compile(r"^(?:X|SYS|NODE|PHB|PXB|PIX|NV\d{1,3})$")
_CLOSE = frozenset({"PIX", "PXB"})
DEVICES_MAX = 128


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    matrix = _parse_matrix(read_output(evidence, TOPOLOGY))
    gpus = [name for name in matrix if _GPU.match(name)]
    if len(gpus) != context.gpus:
        yield fault("host", Severity.ISOLATE, "GPUs in the matrix", len(gpus), context.gpus)
    least = require_threshold(context, "nvlinks")
    for at, gpu in enumerate(gpus):
        for peer in gpus[at + 1 :]:
            path = matrix[gpu][peer]
            if _count_links(path) < least or matrix[peer][gpu] != path:
                yield fault(f"{gpu} to {peer}", Severity.ISOLATE, "NVLinks", path, f"NV{least:g}")
    if context.rails:
        yield from _judge_nics(matrix, gpus, context)


def _count_links(path: str) -> int:
    """Return the NVLinks of a path; 0 for a path over PCIe."""
    return int(path[2:]) if path.startswith("NV") else 0


def _judge_nics(
    matrix: Mapping[str, Mapping[str, str]], gpus: list[str], context: CheckContext
) -> Iterator[Finding]:
    near = {
        gpu: [n for n, path in matrix[gpu].items() if _NIC.match(n) and path in _CLOSE]
        for gpu in gpus
    }
    served = _match_gpus_to_nics(near)
    if len(served) < min(context.rails, len(gpus)):
        for gpu in gpus:
            if gpu not in served:
                nearby = ", ".join(near[gpu]) or "none"
                detail = "no NIC of its own below the same PCIe switch"
                yield fault(gpu, Severity.CONFIG, detail, nearby, "PIX or PXB")


def _match_gpus_to_nics(near: Mapping[str, list[str]]) -> set[str]:
    """Return the GPUs that get a NIC of their own in a maximum bipartite matching."""
    taken: dict[str, str] = {}

    def place(gpu: str, tried: set[str]) -> bool:
        for nic in near[gpu]:
            if nic not in tried:
                tried.add(nic)
                if nic not in taken or place(taken[nic], tried):
                    taken[nic] = gpu
                    return True
        return False

    return {gpu for gpu in near if place(gpu, set())}


def _parse_matrix(text: str) -> dict[str, dict[str, str]]:
    """Return row -> column -> path, for the rows and columns that are GPUs and NICs."""
    lines = [_ESCAPE.sub("", line) for line in split_lines(text)]
    columns: list[str] = []
    matrix: dict[str, dict[str, str]] = {}
    for line in lines:
        cells = line.split()
        if not columns:
            if cells and _GPU.match(cells[0]) and len(cells) > 1 and _is_name(cells[1]):
                columns = [c for c in cells if _is_name(c)]
                if len(columns) > DEVICES_MAX or len(set(columns)) != len(columns):
                    raise Unreadable("nvidia-smi topo: too many columns, or one is there twice")
            elif cells and cells[0] == "GPU0" and len(cells) > 1 and cells[1] == "CPU":
                columns = ["GPU0"]
            continue
        if not cells or not _is_name(cells[0]) or cells[0] not in columns:
            continue
        paths = cells[1 : len(columns) + 1]
        if len(paths) != len(columns) or not all(_PATH.match(p) for p in paths):
            raise Unreadable(f"nvidia-smi topo: the row of {cells[0]} cannot be read")
        if cells[0] in matrix:
            raise Unreadable(f"nvidia-smi topo: {cells[0]} is there twice")
        matrix[cells[0]] = dict(zip(columns, paths, strict=True))
    if not columns or set(matrix) != set(columns):
        raise Unreadable("nvidia-smi topo: no whole matrix in it")
    return matrix


def _is_name(cell: str) -> bool:
    return bool(_GPU.match(cell) or _NIC.match(cell))


CHECK = Check("topology", Gate.A, (TOPOLOGY,), _findings, thresholds=("nvlinks",))
