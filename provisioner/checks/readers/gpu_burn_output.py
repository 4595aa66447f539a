"""Parses the output of gpu_burn: progress that overwrites itself, then a verdict on each GPU.

wilicc/gpu-burn gpu_burn-drv.cpp: "N (F Gflop/s) - ...  errors: N - ...  temps: N C - ...", with
"(WARNING!)" behind errors and "(DIED!)" behind a GPU whose process ended.
"""

from __future__ import annotations

import re

from provisioner.checks.check import Unreadable
from provisioner.checks.readers.tool_output import parse_whole
from provisioner.model.base import Record

GPUS_MAX = 64
_PROGRESS = re.compile(r"([0-9.]{1,6})%\s+proc'd: (.{1,4000}?)\s+errors: (.{1,2000}?)\s+temps: ")
_CELL = re.compile(r"^(-?\d{1,18})\s*\((\d{1,9}) Gflop/s\)\s*(\(DIED!\))?$")
_ERRORS = re.compile(r"^(-?\d{1,18})\s*(\(WARNING!\)|\(DIED!\))?$")
_TESTED = re.compile(r"^Tested (\d{1,3}) GPUs:$", re.MULTILINE)
_VERDICT = re.compile(r"^\s*GPU (\d{1,3}): (OK|FAULTY)\s*$", re.MULTILINE)


class BurnResult(Record):
    """The result of one GPU: its errors over the whole burn, and its last speed."""

    gpu: int
    ok: bool
    died: bool
    errors: int
    gflop_s: int  # 0 where it never reported a speed


def read(text: str) -> tuple[BurnResult, ...]:
    """Return the results of all GPUs in order. Raises `Unreadable`."""
    tested = list(_TESTED.finditer(text))
    if len(tested) != 1:
        tail = " ".join(text[-160:].split())
        raise Unreadable(f"gpu_burn: not exactly one verdict in it: {tail}")
    count = parse_whole(tested[0][1], "GPUs")
    verdicts = {int(m[1]): m[2] == "OK" for m in _VERDICT.finditer(text, tested[0].end())}
    if not 0 < count <= GPUS_MAX or set(verdicts) != set(range(count)):
        raise Unreadable(f"gpu_burn: verdicts on {len(verdicts)} of {count} GPUs")
    errors = [0] * count
    speeds = [0] * count
    died = [False] * count
    has_progress = False
    for match in _PROGRESS.finditer(text, 0, tested[0].start()):
        for gpu, (calculated, speed) in enumerate(_parse_cells(match[2], _CELL, count)):
            died[gpu] |= calculated.startswith("-") or "DIED" in match[2].split(" - ")[gpu]
            speeds[gpu] = int(speed) or speeds[gpu]
        for gpu, (wrong, note) in enumerate(_parse_cells(match[3], _ERRORS, count)):
            errors[gpu] = max(errors[gpu], int(wrong))  # -1: it died
            died[gpu] |= "DIED" in note
        has_progress = True
    if not has_progress:
        raise Unreadable("gpu_burn: no progress in it")
    return tuple(
        BurnResult(gpu=n, ok=verdicts[n], died=died[n], errors=errors[n], gflop_s=speeds[n])
        for n in range(count)
    )


def _parse_cells(listed: str, pattern: re.Pattern[str], count: int) -> list[tuple[str, str]]:
    cells = [pattern.match(cell.strip()) for cell in listed.split(" - ")]
    if len(cells) != count:
        raise Unreadable(f"gpu_burn: progress of {len(cells)} GPUs, it tested {count}")
    parsed = []
    for cell in cells:
        if cell is None:
            raise Unreadable("gpu_burn: progress that cannot be read")
        parsed.append((cell[1], cell[2] or ""))
    return parsed
