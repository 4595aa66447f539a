"""Every rail reaches another leaf's rail, by its own interface and in frames of full size.

A packet from a rail's address that leaves by the default route goes over management: RDMA between
hosts then fails, or runs at a hundredth of its speed, while every port looks healthy. For each
planned address the kernel is asked for its interface and for the route of a packet from it, and an
echo in one frame is sent. The other end is the leaf's end of this host's next rail on another leaf,
so that no second host is needed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from provisioner.checks.check import Check, CheckContext, Command, Unreadable, fault
from provisioner.checks.readers.tool_output import END, read_output, split_lines
from provisioner.model.cohort import Evidence, Finding, Gate, Severity

HEADERS = {4: 28, 6: 48}  # bytes of IP and ICMP before an echo's payload
FRAME_BYTES = 9000  # the smallest that rails must carry (threshold `mtu`)
_LINE = (
    "for rail in RAILS; do ( a=${rail%%,*}; t=${rail#*,}; s=${t#*,}; t=${t%,*};"
    " i=$(ip -o address show to $a | awk 'NR==1{print $2}');"
    " r=$(ip -o route get $t from $a 2>&1 | sed -n 's/.* dev \\([^ ]*\\).*/\\1/p');"
    " ping -n -q -c 3 -i 0.3 -W 1 -M do -s $s -I $a $t >/dev/null 2>&1;"
    ' echo "rail $a to $t own ${i:--} route ${r:--} ping $?" ) & done; wait; '
)
_ROW = re.compile(
    r"rail ([0-9a-f.:]{2,45}) to ([0-9a-f.:]{2,45}) own ([\w.@-]{1,32})"
    r" route ([\w.@-]{1,32}) ping (\d{1,3})"
)


@dataclass(frozen=True)
class _Row:
    """One rail: its own interface and the route's, "-" for none, and the exit code of `ping`."""

    own: str
    route: str
    code: int


def _build_command(rails: str) -> Command:
    return Command(name="rail_routes", line=_LINE.replace("RAILS", rails) + END, limit_s=60.0)


def _build_commands(context: CheckContext) -> tuple[Command, ...]:
    rails = (
        f"{own},{target},{FRAME_BYTES - HEADERS[6 if ':' in own else 4]}"
        for own, target in context.rail_paths
    )
    return (_build_command(" ".join(rails)),)


RAIL_ROUTES = _build_command("ADDRESS,TARGET,BYTES")


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    rows = _read_rows(read_output(evidence, RAIL_ROUTES))
    for own, target in context.rail_paths:
        row = rows.get((own, target))
        if row is None:
            raise Unreadable(f"rail_routes: no line for {own}")
        if row.own == "-":
            detail = "no interface has the rail's planned address"
            yield fault(own, Severity.CONFIG, detail, "none", own)
        elif row.route != row.own:
            detail = f"packets from the rail to {target} leave by another interface"
            yield fault(own, Severity.CONFIG, detail, row.route.replace("-", "none"), row.own)
        elif row.code:
            detail = f"no echo of {FRAME_BYTES} bytes comes back from {target}"
            yield fault(own, Severity.CONFIG, detail, f"ping ended with {row.code}", "an echo")


def _read_rows(text: str) -> dict[tuple[str, str], _Row]:
    rows: dict[tuple[str, str], _Row] = {}
    for line in split_lines(text):
        match = _ROW.fullmatch(line.strip())
        if match is None:
            raise Unreadable(f"rail_routes: cannot read {line[:60]!r}")
        if (match[1], match[2]) in rows:
            raise Unreadable(f"rail_routes: {match[1]} is there twice")
        rows[match[1], match[2]] = _Row(match[3].partition("@")[0], match[4], int(match[5]))
    return rows


CHECK = Check("rail_routes", Gate.A, (RAIL_ROUTES,), _findings, lines=_build_commands)
