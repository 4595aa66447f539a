"""I3: every CPU socket and thread is there and on, and no memory is missing on one side.

How much memory a server must have, nobody publishes for a profile: the bill of materials counts the
modules out of band, the amount is measured for comparison with the fleet, and here the NUMA nodes
are held against one another: a module that dropped out leaves its side smaller.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from provisioner.checks.check import Check, CheckContext, Command, Unreadable, fault
from provisioner.checks.readers.reading import (
    json_of,
    lines_of,
    mapping,
    sequence,
    text_of,
    whole,
    word,
)
from provisioner.checks.thresholds import misses
from provisioner.model.health import Evidence, Finding, Gate, Severity

LSCPU = Command(name="lscpu", line="lscpu -J", limit_s=30.0)
MEMORY = Command(
    name="memory",
    line="cat /proc/meminfo /sys/devices/system/node/node*/meminfo",
    limit_s=30.0,
)

_KIB = re.compile(r"^(?:Node (\d{1,4}) )?(MemTotal|SwapTotal): +(\d{1,15}) kB$")
_DEPTH_MAX = 4  # util-linux 2.37 and later nest what belongs to a socket


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    cpu = _cpu(text_of(evidence, LSCPU))
    sockets, threads = whole(cpu["Socket(s)"], "Socket(s)"), whole(cpu["CPU(s)"], "CPU(s)")
    cores = whole(cpu["Core(s) per socket"], "cores")
    per_core = whole(cpu["Thread(s) per core"], "threads")
    if context.sockets and sockets != context.sockets:
        yield fault("host", Severity.ISOLATE, "CPU sockets", sockets, context.sockets)
    online = _listed(cpu["On-line CPU(s) list"])
    if online != threads or threads != sockets * cores * per_core:
        wanted = sockets * cores * per_core
        yield fault("host", Severity.CONFIG, "CPU threads that are on", online, wanted)
    totals, swap = _memory(text_of(evidence, MEMORY))
    if swap:
        yield fault("host", Severity.CONFIG, "swap is on", f"{swap} KiB", "0")
    sides = {node: kib for node, kib in totals.items() if node and kib}
    largest = max(sides.values(), default=0)
    for node, kib in sorted(sides.items()):
        # one of 16 modules of a socket is 6 % of it
        if misses(context, "numa_memory_difference", 1 - kib / largest):
            detail = "less memory than on another NUMA node"
            yield fault(f"NUMA node {node}", Severity.ISOLATE, detail, f"{kib} KiB", largest)


def _cpu(text: str) -> dict[str, str]:
    """Field -> data, of the flat and of the nested form of `lscpu -J`."""
    found: dict[str, str] = {}
    rows: list[tuple[int, Any]] = [
        (0, row) for row in sequence(mapping(json_of(text, "lscpu"), "lscpu").get("lscpu"), "lscpu")
    ]
    while rows:
        depth, entry = rows.pop()
        row = mapping(entry, "field")
        data = row.get("data")
        if isinstance(data, str):
            found[word(row.get("field"), "field").rstrip(":").strip()] = data.strip()
        children = sequence(row.get("children", []), "children")
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
        if field not in found:
            raise Unreadable(f"lscpu: does not say {field}")
    return found


def _listed(text: str) -> int:
    """How many CPUs a list like "0-63,96-127" names."""
    total = 0
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        low, high = whole(first, "CPU list"), whole(last or first, "CPU list")
        if high < low:
            raise Unreadable(f"lscpu: {part[:40]!r} is no range")
        total += high - low + 1
    return total


def _memory(text: str) -> tuple[dict[str, int], int]:
    """NUMA node ("" for the whole host) -> KiB, and the KiB of swap."""
    totals: dict[str, int] = {}
    swap: int | None = None
    for line in lines_of(text):
        match = _KIB.match(line.strip())
        if match is None:
            continue
        if match[2] == "SwapTotal":
            swap = int(match[3])
        elif match[2] == "MemTotal":
            totals[match[1] or ""] = int(match[3])
    if "" not in totals or swap is None or len(totals) < 2:
        raise Unreadable("meminfo: no total of memory, of swap, or of a NUMA node")
    # the kernel takes some percent of the whole for itself; more is missing from the output
    if sum(kib for node, kib in totals.items() if node) < totals[""]:
        raise Unreadable("meminfo: the NUMA nodes do not add up to the whole")
    return totals, swap


def _measure(evidence: Mapping[str, Evidence], _context: CheckContext) -> Mapping[str, float]:
    totals, _ = _memory(text_of(evidence, MEMORY))
    return {"memory_gib/host": totals[""] / 1024**2}


CHECK = Check(
    "cpu_memory",
    Gate.A,
    (LSCPU, MEMORY),
    _findings,
    measure=_measure,
    thresholds=("numa_memory_difference",),
)
