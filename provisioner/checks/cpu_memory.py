"""Every CPU socket and thread is present and online, and no memory is missing on one side.

No source publishes the amount of memory for a profile. The bill of materials counts the modules out
of band, and the amount is measured for comparison with the fleet. This check compares the NUMA
nodes with one another: a module that dropped out makes its side smaller.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from provisioner.checks.check import Check, CheckContext, Command, Unreadable, fault
from provisioner.checks.readers.tool_output import (
    parse_json,
    parse_whole,
    read_output,
    require_list,
    require_object,
    require_text,
    split_lines,
)
from provisioner.checks.thresholds import check_threshold
from provisioner.model.cohort import Evidence, Finding, Gate, Severity

LSCPU = Command(name="lscpu", line="lscpu -J", limit_s=30.0)
MEMORY = Command(
    name="memory", line="cat /proc/meminfo /sys/devices/system/node/node*/meminfo", limit_s=30.0
)

_KIB = re.compile(r"^(?:Node (\d{1,4}) )?(MemTotal|SwapTotal): +(\d{1,15}) kB$")
_DEPTH_MAX = 4  # util-linux 2.37 and later nest the fields of a socket


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    cpu = _read_cpu(read_output(evidence, LSCPU))
    sockets = parse_whole(cpu["Socket(s)"], "Socket(s)")
    threads = parse_whole(cpu["CPU(s)"], "CPU(s)")
    cores = parse_whole(cpu["Core(s) per socket"], "cores")
    per_core = parse_whole(cpu["Thread(s) per core"], "threads")
    if context.sockets and sockets != context.sockets:
        yield fault("host", Severity.ISOLATE, "CPU sockets", sockets, context.sockets)
    online = _count_cpus(cpu["On-line CPU(s) list"])
    if online != threads or threads != sockets * cores * per_core:
        expected = sockets * cores * per_core
        yield fault("host", Severity.CONFIG, "CPU threads that are on", online, expected)
    totals, swap = _read_memory(read_output(evidence, MEMORY))
    if swap:
        yield fault("host", Severity.CONFIG, "swap is on", f"{swap} KiB", "0")
    sides = {node: kib for node, kib in totals.items() if node and kib}
    largest = max(sides.values(), default=0)
    for node, kib in sorted(sides.items()):
        # one of 16 modules of a socket is 6 % of it
        if check_threshold(context, "numa_memory_difference", 1 - kib / largest):
            detail = "less memory than on another NUMA node"
            yield fault(f"NUMA node {node}", Severity.ISOLATE, detail, f"{kib} KiB", largest)


def _read_cpu(text: str) -> dict[str, str]:
    """Return field -> data, of the flat or the nested form of `lscpu -J`."""
    fields: dict[str, str] = {}
    rows: list[tuple[int, Any]] = [
        (0, row)
        for row in require_list(
            require_object(parse_json(text, "lscpu"), "lscpu").get("lscpu"), "lscpu"
        )
    ]
    while rows:
        depth, entry = rows.pop()
        row = require_object(entry, "field")
        data = row.get("data")
        if isinstance(data, str):
            fields[require_text(row.get("field"), "field").rstrip(":").strip()] = data.strip()
        children = require_list(row.get("children", []), "children")
        if children and depth == _DEPTH_MAX:
            raise Unreadable("lscpu: too deep")
        rows += [(depth + 1, child) for child in children]
    for field in (
        "CPU(s)",
        "Socket(s)",
        "Core(s) per socket",
        "Thread(s) per core",
        "On-line CPU(s) list",
    ):
        if field not in fields:
            raise Unreadable(f"lscpu: does not report {field}")
    return fields


def _count_cpus(text: str) -> int:
    """Return how many CPUs a list such as "0-63,96-127" names."""
    total = 0
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        low = parse_whole(first, "CPU list")
        high = parse_whole(last or first, "CPU list")
        if high < low:
            raise Unreadable(f"lscpu: {part[:40]!r} is no range")
        total += high - low + 1
    return total


def _read_memory(text: str) -> tuple[dict[str, int], int]:
    """Return NUMA node ("" for the whole host) -> KiB, and the KiB of swap."""
    totals: dict[str, int] = {}
    swap: int | None = None
    for line in split_lines(text):
        match = _KIB.match(line.strip())
        if match is None:
            continue
        if match[2] == "SwapTotal":
            swap = int(match[3])
        elif match[2] == "MemTotal":
            totals[match[1] or ""] = int(match[3])
    if "" not in totals or swap is None or len(totals) < 2:
        raise Unreadable("meminfo: no total of memory, of swap, or of a NUMA node")
    # the kernel reserves some percent of the whole; a larger difference means a damaged output
    if sum(kib for node, kib in totals.items() if node) < totals[""]:
        raise Unreadable("meminfo: the NUMA nodes do not add up to the whole")
    return totals, swap


def _measure(evidence: Mapping[str, Evidence], _context: CheckContext) -> Mapping[str, float]:
    totals, _ = _read_memory(read_output(evidence, MEMORY))
    return {"memory_gib/host": totals[""] / 1024**2}


CHECK = Check(
    "cpu_memory",
    Gate.A,
    (LSCPU, MEMORY),
    _findings,
    measure=_measure,
    thresholds=("numa_memory_difference",),
)
