"""Every writable file system has free space."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from provisioner.checks.check import Check, CheckContext, Command, Unreadable, fault
from provisioner.checks.readers.tool_output import END, read_output, split_lines
from provisioner.checks.thresholds import check_threshold
from provisioner.model.cohort import Evidence, Finding, Gate, Severity

DISK_SPACE = Command(name="disk_space", line=f"df -PT -k 2>/dev/null; {END}", limit_s=30.0)

_ROW = re.compile(
    r"^(\S.{0,200}?)\s+(?:([a-z][a-z0-9._-]{0,30})\s+)?(\d{1,18})\s+(\d{1,18})\s+(-?\d{1,18})"
    r"\s+(\d{1,3}%|-)\s+(/.{0,400})$"
)
# images are always full; the other types hold no data
_NOT_WRITTEN = frozenset(
    {"squashfs", "iso9660", "erofs", "devtmpfs", "efivarfs", "overlay", "udf", "cramfs"}
)


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    # df exits with 1 for a mount that does not answer, and still prints the other mounts
    lines = split_lines(read_output(evidence, DISK_SPACE, any_exit=True))
    if not lines or not lines[0].startswith("Filesystem"):
        raise Unreadable("df: no table in it")
    mount_points = set()
    for line in lines[1:]:
        match = _ROW.match(line)
        if match is None:
            raise Unreadable(f"df: cannot read {line[:80]!r}")
        kind = match[2]
        total = int(match[3])
        free = int(match[5])
        place = match[7]
        mount_points.add(place)
        if kind in _NOT_WRITTEN or match[1].startswith("/dev/loop") or total == 0:
            continue
        if missed := check_threshold(context, "disk_free", max(free, 0) / total):
            yield fault(place, Severity.CONFIG, "too little space is left", *missed)
    if "/" not in mount_points:
        raise Unreadable("df: the root is not in it")


CHECK = Check("disk_space", Gate.A, (DISK_SPACE,), _findings, thresholds=("disk_free",))
