"""Health of what the bare ramdisk can see, without a vendor's driver: a first look, no certificate.

Each check answers "pass", "fail" or "unknown" with a reason. Silence is never a pass. The checks
that certify a node are the daemon's (docs/checks.md); these say early that a node is not worth
converging.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from provisioner_hardware_manager import disks
from provisioner_hardware_manager.commands import Output, Run, run

PASS, FAIL, UNKNOWN = "pass", "fail", "unknown"
SHOWN_MAX = 5  # findings named in a reason
# kernel messages of hardware that has failed: machine check and memory errors that were not
# corrected, fatal PCIe errors, a device that fell off the bus, NVIDIA's Xid, disk I/O errors
_TROUBLE = re.compile(
    r"\[Hardware Error\]:.*(?:[Uu]ncorrect|fatal)|AER:.*(?:Uncorrectable|Fatal)|"
    r"fallen off the bus|NVRM: Xid|I/O error, dev|EDAC .*: \d+ UE "
)
_SPEED = re.compile(r"(\d{1,3}\.\d) GT/s")  # "32.0 GT/s PCIe"
LINKED = frozenset({"gpu", "ethernet", "infiniband", "nvme"})


def checks(
    facts: Mapping[str, Any], expected: Mapping[str, int], run: Run = run
) -> list[dict[str, str]]:
    """Every check's verdict. `facts`: `inventory.collect()`; `expected`: kind -> count that the
    daemon expects ("gpu", "nvme", "infiniband", "ethernet", "memory_gib")."""
    found = [
        ("devices", lambda: _devices(facts, expected)),
        ("pcie_links", lambda: _links(facts)),
        ("memory", lambda: _memory(facts, expected)),
        ("kernel_log", lambda: _kernel_log(run)),
        ("disk_health", lambda: _disk_health(run)),
    ]
    return [_named(name, check) for name, check in found]


def _named(name: str, check: Callable[[], tuple[str, str]]) -> dict[str, str]:
    try:
        verdict, detail = check()
    except (OSError, ValueError, KeyError, TypeError) as failure:
        verdict, detail = UNKNOWN, f"{type(failure).__name__}: {failure}"
    return {"check": name, "verdict": verdict, "detail": detail[:300]}


def _devices(facts: Mapping[str, Any], expected: Mapping[str, int]) -> tuple[str, str]:
    counted: dict[str, int] = {}
    for device in facts["pci"]:
        counted[device["kind"]] = counted.get(device["kind"], 0) + 1
    wanted = {k: int(n) for k, n in expected.items() if k != "memory_gib"}
    if not wanted:
        return UNKNOWN, f"nothing was expected; there are {counted}"
    missing = [
        f"{counted.get(k, 0)} of {n} {k}" for k, n in wanted.items() if counted.get(k, 0) < n
    ]
    return (FAIL, "; ".join(missing)) if missing else (PASS, f"{counted}")


def _links(facts: Mapping[str, Any]) -> tuple[str, str]:
    """A link narrower or slower than both of its ends can be. Idle GPUs lower their speed to save
    power: a GPU's speed is not judged without its driver, its width is."""
    slow, looked_at = [], 0
    for device in facts["pci"]:
        ends = [_able(device, prefix) for prefix in ("max", "port_max")]
        able = [end for end in ends if end is not None]
        now = _able(device, "current")
        if device["kind"] not in LINKED or now is None or not able:
            continue
        looked_at += 1
        width, speed = min(w for w, _ in able), min(s for _, s in able)
        if now[0] < width or (now[1] < speed and device["kind"] != "gpu"):
            is_now, can = f"x{now[0]} {now[1]:g} GT/s", f"x{width} {speed:g} GT/s"
            slow.append(f"{device['kind']} {device['address']}: {is_now}, can {can}")
    if slow:
        return FAIL, f"{len(slow)} links: " + "; ".join(slow[:SHOWN_MAX])
    return (PASS, f"{looked_at} links") if looked_at else (UNKNOWN, "no device shows its link")


def _able(device: Mapping[str, str], prefix: str) -> tuple[int, float] | None:
    """Width in lanes and speed in GT/s of one end; None where the kernel does not know ("255",
    "Unknown", no file)."""
    width = device.get(f"{prefix}_link_width", "")
    speed = _SPEED.match(device.get(f"{prefix}_link_speed", ""))
    if not width.isdigit() or not 1 <= int(width) <= 32 or speed is None:
        return None
    return int(width), float(speed[1])


def _memory(facts: Mapping[str, Any], expected: Mapping[str, int]) -> tuple[str, str]:
    """The kernel keeps up to a few per cent for itself and for the firmware."""
    gib = facts["memory_kib"] / (1 << 20)
    if not gib:
        return UNKNOWN, "the kernel does not say"
    wanted = int(expected.get("memory_gib", 0))
    if not wanted:
        return UNKNOWN, f"nothing was expected; there are {gib:.0f} GiB"
    return (PASS if gib >= 0.95 * wanted else FAIL), f"{gib:.0f} of {wanted} GiB"


def _kernel_log(run: Run) -> tuple[str, str]:
    log = run("dmesg", "--level", "emerg,alert,crit,err,warn")
    if not log.ok:
        return UNKNOWN, f"dmesg: {log.error}"
    bad = [" ".join(line.split()) for line in log.text.splitlines() if _TROUBLE.search(line)]
    if bad:
        return FAIL, f"{len(bad)} messages: " + "; ".join(bad[:SHOWN_MAX])
    return PASS, "no message of failed hardware since this boot"


def _disk_health(run: Run) -> tuple[str, str]:
    """SMART's own verdict. smartctl's exit status is a bit mask (smartctl(8)): bits 0 and 1 say
    that it could not ask, bit 3 that the disk is failing."""
    bad, silent, good = [], [], 0
    for disk in disks.listed(run):
        answer = run("smartctl", "--json", "--health", disk["name"])
        verdict = _smart(answer)
        if verdict is None:
            silent.append(disk["serial"] or disk["name"])
        elif verdict:
            good += 1
        else:
            bad.append(disk["serial"] or disk["name"])
    if bad:
        return FAIL, "SMART says that these fail: " + ", ".join(bad[:SHOWN_MAX])
    if silent or not good:
        return UNKNOWN, "no SMART health from " + (", ".join(silent[:SHOWN_MAX]) or "any disk")
    return PASS, f"{good} disks"


def _smart(answer: Output) -> bool | None:
    if answer.status is None or answer.status & 0b11:
        return None
    status = json.loads(answer.text).get("smart_status")
    passed = status.get("passed") if isinstance(status, dict) else None
    return passed if isinstance(passed, bool) else None
