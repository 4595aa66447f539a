"""Reads the counters of RDMA ports: sysfs as `grep -H .` prints it, or `rdma statistic show link`.

The boot id and the uptime stand beside them, so that two looks give rates, and a restart between
them is seen.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from provisioner.checks.check import CheckContext, Command, Unreadable
from provisioner.checks.counters import earlier, per_device
from provisioner.checks.readers.reading import (
    END,
    lines_of,
    mapping,
    number,
    sequence,
    text_of,
    whole,
)
from provisioner.checks.readers.sysfs import counts, files_of, grouped, matching, one
from provisioner.model.health import Evidence

_BOOT_ID, _UPTIME = "/proc/sys/kernel/random/boot_id", "/proc/uptime"
_PORTS = "/sys/class/infiniband/*/ports/1/"
RDMA_COUNTERS = Command(
    name="rdma_counters",
    line=f"grep -H . {_BOOT_ID} {_UPTIME} {_PORTS}counters/* {_PORTS}hw_counters/*; {END}",
    limit_s=60.0,
)
_FILE = re.compile(r"/sys/class/infiniband/([\w.-]{1,64})/ports/1/(?:hw_)?counters/([\w.-]{1,64})")
_LINK = re.compile(r"^link ([\w.-]{1,64})/1 (.{1,8000})$")
# settings among the counters: they need not grow
_SETTINGS = frozenset({"lifespan"})


@dataclass(frozen=True)
class Look:
    """One look: every port's counters. `boot` "" and `uptime_s` None: this format has none."""

    ports: Mapping[str, Mapping[str, int]]
    boot: str = ""
    uptime_s: float | None = None


@dataclass(frozen=True)
class Growth:
    """What grew between two looks, and in how many seconds."""

    ports: Mapping[str, Mapping[str, int]]
    seconds: float


def look(evidence: Mapping[str, Evidence], context: CheckContext) -> Look:
    """The counters of at least as many ports as there are rails."""
    text = text_of(evidence, RDMA_COUNTERS, any_exit=True)
    bare = text.lstrip()
    if bare.startswith("["):
        found = _of_json(bare)
    elif bare.startswith("link "):
        found = _of_text(bare)
    else:
        found = _of_sysfs(text)
    if not found.ports or len(found.ports) < context.rails:
        raise Unreadable(f"counters of {len(found.ports)} ports, {context.rails} are rails")
    return found


def growth(evidence: Mapping[str, Evidence], context: CheckContext) -> Growth | None:
    """What grew since the look before the load; None: this is the first look."""
    before = earlier(evidence, RDMA_COUNTERS)
    if before is None:
        return None
    had, now = look(before, context), look(evidence, context)
    if had.boot != now.boot:
        raise Unreadable("the host was booted between two looks")
    if had.uptime_s is None or now.uptime_s is None or now.uptime_s <= had.uptime_s:
        raise Unreadable("how long it was between two looks cannot be told")
    grew = per_device(had.ports, now.ports, "counters")
    return Growth(grew, now.uptime_s - had.uptime_s)


def _of_sysfs(text: str) -> Look:
    files = files_of(text)
    found = {
        port: counts({name: line for name, line in facts.items() if name not in _SETTINGS})
        for port, facts in grouped(matching(files, _FILE)).items()
    }
    boot, uptime = "", None
    if _BOOT_ID in files:
        boot = one(files, _BOOT_ID)
        uptime = number(one(files, _UPTIME).split(" ")[0], "uptime")
    return Look(found, boot, uptime)


def _of_text(text: str) -> Look:
    found: dict[str, dict[str, int]] = {}
    for line in lines_of(text):
        match = _LINK.match(line)
        words = match[2].split() if match else []
        if match is None or len(words) % 2 or match[1] in found:
            raise Unreadable(f"rdma statistic: cannot read {line[:60]!r}")
        found[match[1]] = {
            name: whole(value, name) for name, value in zip(words[::2], words[1::2], strict=True)
        }
    return Look(found)


def _of_json(text: str) -> Look:
    found: dict[str, dict[str, int]] = {}
    try:
        listed = sequence(json.loads(text), "rdma statistic")
    except (ValueError, RecursionError):
        raise Unreadable("rdma statistic: not JSON, or cut short") from None
    for entry in listed:
        port = mapping(entry, "port")
        name = str(port.get("ifname", ""))[:64]
        if not name or name in found:
            raise Unreadable("rdma statistic: a port without a name, or one twice")
        found[name] = {
            key: whole(str(value), key)
            for key, value in port.items()
            if key not in ("ifname", "ifindex", "port", "counters")
        }
    return Look(found)
