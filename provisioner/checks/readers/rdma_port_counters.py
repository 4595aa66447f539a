"""Parses the counters of RDMA ports: sysfs as `grep -H .` prints it, or `rdma statistic show link`.

The boot id and the uptime come with them, so that two readings give rates, and a restart between
them is detected.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from provisioner.checks.check import CheckContext, Command, Unreadable
from provisioner.checks.counter_growth import compute_growth_per_device, find_before_load
from provisioner.checks.readers.sysfs import (
    group_by_device,
    match_files,
    parse_counts,
    parse_files,
    read_single_line,
)
from provisioner.checks.readers.tool_output import (
    END,
    parse_number,
    parse_whole,
    read_output,
    require_list,
    require_object,
    split_lines,
)
from provisioner.model.cohort import Evidence

_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_UPTIME = "/proc/uptime"
_PORTS = "/sys/class/infiniband/*/ports/1/"
RDMA_COUNTERS = Command(
    name="rdma_counters",
    line=f"grep -H . {_BOOT_ID} {_UPTIME} {_PORTS}counters/* {_PORTS}hw_counters/*; {END}",
    limit_s=60.0,
)
_FILE = re.compile(r"/sys/class/infiniband/([\w.-]{1,64})/ports/1/(?:hw_)?counters/([\w.-]{1,64})")
_LINK = re.compile(r"^link ([\w.-]{1,64})/1 (.{1,8000})$")
# settings among the counters, which need not grow
_SETTINGS = frozenset({"lifespan"})


@dataclass(frozen=True)
class CounterSnapshot:
    """All ports' counters at one time. `boot` "" and `uptime_s` None: the format has none."""

    ports: Mapping[str, Mapping[str, int]]
    boot: str = ""
    uptime_s: float | None = None


@dataclass(frozen=True)
class CounterGrowth:
    """The growth of each counter between two readings, and the seconds between them."""

    ports: Mapping[str, Mapping[str, int]]
    seconds: float


def read_counters(evidence: Mapping[str, Evidence], context: CheckContext) -> CounterSnapshot:
    """Return the counters. Raises `Unreadable` for fewer ports than there are rails."""
    text = read_output(evidence, RDMA_COUNTERS, any_exit=True)
    bare = text.lstrip()
    if bare.startswith("["):
        snapshot = _parse_json(bare)
    elif bare.startswith("link "):
        snapshot = _parse_text(bare)
    else:
        snapshot = _parse_sysfs(text)
    if not snapshot.ports or len(snapshot.ports) < context.rails:
        raise Unreadable(f"counters of {len(snapshot.ports)} ports, {context.rails} are rails")
    return snapshot


def read_growth(evidence: Mapping[str, Evidence], context: CheckContext) -> CounterGrowth | None:
    """Return the growth since the reading before the load; None for the first reading."""
    before = find_before_load(evidence, RDMA_COUNTERS)
    if before is None:
        return None
    previous = read_counters(before, context)
    current = read_counters(evidence, context)
    if previous.boot != current.boot:
        raise Unreadable("the host was rebooted between the two readings")
    if (
        previous.uptime_s is None
        or current.uptime_s is None
        or current.uptime_s <= previous.uptime_s
    ):
        raise Unreadable("the time between the two readings is unknown")
    grew = compute_growth_per_device(previous.ports, current.ports, "counters")
    return CounterGrowth(grew, current.uptime_s - previous.uptime_s)


def _parse_sysfs(text: str) -> CounterSnapshot:
    files = parse_files(text)
    ports = {
        port: parse_counts({name: line for name, line in facts.items() if name not in _SETTINGS})
        for port, facts in group_by_device(match_files(files, _FILE)).items()
    }
    boot = ""
    uptime = None
    if _BOOT_ID in files:
        boot = read_single_line(files, _BOOT_ID)
        uptime = parse_number(read_single_line(files, _UPTIME).split(" ")[0], "uptime")
    return CounterSnapshot(ports, boot, uptime)


def _parse_text(text: str) -> CounterSnapshot:
    ports: dict[str, dict[str, int]] = {}
    for line in split_lines(text):
        match = _LINK.match(line)
        cells = match[2].split() if match else []
        if match is None or len(cells) % 2 or match[1] in ports:
            raise Unreadable(f"rdma statistic: cannot read {line[:60]!r}")
        ports[match[1]] = {
            name: parse_whole(value, name)
            for name, value in zip(cells[::2], cells[1::2], strict=True)
        }
    return CounterSnapshot(ports)


def _parse_json(text: str) -> CounterSnapshot:
    ports: dict[str, dict[str, int]] = {}
    try:
        listed = require_list(json.loads(text), "rdma statistic")
    except (ValueError, RecursionError):
        raise Unreadable("rdma statistic: not JSON, or cut short") from None
    for entry in listed:
        port = require_object(entry, "port")
        name = str(port.get("ifname", ""))[:64]
        if not name or name in ports:
            raise Unreadable("rdma statistic: a port without a name, or one twice")
        ports[name] = {
            key: parse_whole(str(value), key)
            for key, value in port.items()
            if key not in ("ifname", "ifindex", "port", "counters")
        }
    return CounterSnapshot(ports)
