"""Health of the parts that the bare ramdisk sees without a vendor's driver; not a certification.

Each check answers "pass", "fail" or "unknown" with a reason. A missing answer is never a pass. The
daemon's checks certify a node (docs/checks.md); these show early that a node is not worth
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
# kernel messages of failed hardware: uncorrected machine check and memory errors, fatal PCIe
# errors, a device that fell off the bus, NVIDIA's Xid, disk I/O errors
_TROUBLE = re.compile(
    r"\[Hardware Error\]:.*(?:[Uu]ncorrect|fatal)|AER:.*(?:Uncorrectable|Fatal)|"
    r"fallen off the bus|NVRM: Xid|I/O error, dev|EDAC .*: \d+ UE "
)
_SPEED = re.compile(r"(\d{1,3}\.\d) GT/s")  # "32.0 GT/s PCIe"
LINKED = frozenset({"gpu", "ethernet", "infiniband", "nvme"})


def run_checks(
    facts: Mapping[str, Any], expected: Mapping[str, int], run: Run = run
) -> list[dict[str, str]]:
    """Return every check's verdict.

    `facts` is the result of `inventory.collect()`; `expected` maps a kind ("gpu", "nvme",
    "infiniband", "ethernet", "memory_gib") to the count that the daemon expects.
    """
    checks = [
        ("devices", lambda: _check_devices(facts, expected)),
        ("pcie_links", lambda: _check_links(facts)),
        ("memory", lambda: _check_memory(facts, expected)),
        ("kernel_log", lambda: _check_kernel_log(run)),
        ("disk_health", lambda: _check_disks(run)),
    ]
    return [_run_check(name, check) for name, check in checks]


def _run_check(name: str, check: Callable[[], tuple[str, str]]) -> dict[str, str]:
    try:
        verdict, detail = check()
    except (OSError, ValueError, KeyError, TypeError) as failure:
        verdict, detail = UNKNOWN, f"{type(failure).__name__}: {failure}"
    return {"check": name, "verdict": verdict, "detail": detail[:300]}


def _check_devices(machine: Mapping[str, Any], expected: Mapping[str, int]) -> tuple[str, str]:
    counted: dict[str, int] = {}
    for device in machine["pci"]:
        counted[device["kind"]] = counted.get(device["kind"], 0) + 1
    counts = {k: int(n) for k, n in expected.items() if k != "memory_gib"}
    if not counts:
        return UNKNOWN, f"no count was expected; there are {counted}"
    missing = [
        f"{counted.get(k, 0)} of {n} {k}" for k, n in counts.items() if counted.get(k, 0) < n
    ]
    return (FAIL, "; ".join(missing)) if missing else (PASS, f"{counted}")


def _check_links(machine: Mapping[str, Any]) -> tuple[str, str]:
    """Find links that are narrower or slower than both of their ends allow.

    An idle GPU lowers its speed to save power: without its driver only its width is judged.
    """
    slow, judged = [], 0
    for device in machine["pci"]:
        ends = [_read_link(device, prefix) for prefix in ("max", "port_max")]
        able = [end for end in ends if end is not None]
        now = _read_link(device, "current")
        if device["kind"] not in LINKED or now is None or not able:
            continue
        judged += 1
        width, speed = min(w for w, _ in able), min(s for _, s in able)
        if now[0] < width or (now[1] < speed and device["kind"] != "gpu"):
            is_now, can = f"x{now[0]} {now[1]:g} GT/s", f"x{width} {speed:g} GT/s"
            slow.append(f"{device['kind']} {device['address']}: {is_now}, can {can}")
    if slow:
        return FAIL, f"{len(slow)} links: " + "; ".join(slow[:SHOWN_MAX])
    return (PASS, f"{judged} links") if judged else (UNKNOWN, "no device reports its link")


def _read_link(device: Mapping[str, str], prefix: str) -> tuple[int, float] | None:
    """Return width in lanes and speed in GT/s of one end.

    None means that the kernel does not know them ("255", "Unknown", no file).
    """
    width = device.get(f"{prefix}_link_width", "")
    speed = _SPEED.match(device.get(f"{prefix}_link_speed", ""))
    if not width.isdigit() or not 1 <= int(width) <= 32 or speed is None:
        return None
    return int(width), float(speed[1])


def _check_memory(machine: Mapping[str, Any], expected: Mapping[str, int]) -> tuple[str, str]:
    """Compare the memory with the expectation; the kernel and firmware keep a few per cent."""
    gib = machine["memory_kib"] / (1 << 20)
    if not gib:
        return UNKNOWN, "the kernel does not report it"
    expected_gib = int(expected.get("memory_gib", 0))
    if not expected_gib:
        return UNKNOWN, f"no count was expected; there are {gib:.0f} GiB"
    return (PASS if gib >= 0.95 * expected_gib else FAIL), f"{gib:.0f} of {expected_gib} GiB"


def _check_kernel_log(run: Run) -> tuple[str, str]:
    log = run("dmesg", "--level", "emerg,alert,crit,err,warn")
    if not log.ok:
        return UNKNOWN, f"dmesg: {log.error}"
    bad = [" ".join(line.split()) for line in log.text.splitlines() if _TROUBLE.search(line)]
    if bad:
        return FAIL, f"{len(bad)} messages: " + "; ".join(bad[:SHOWN_MAX])
    return PASS, "no message of failed hardware since this boot"


def _check_disks(run: Run) -> tuple[str, str]:
    """Return SMART's own verdict.

    smartctl's exit status is a bit mask (smartctl(8)): bits 0 and 1 mean that it could not query
    the disk, bit 3 that the disk is failing.
    """
    bad, silent, good = [], [], 0
    for disk in disks.list_disks(run):
        answer = run("smartctl", "--json", "--health", disk["name"])
        verdict = _parse_smart(answer)
        if verdict is None:
            silent.append(disk["serial"] or disk["name"])
        elif verdict:
            good += 1
        else:
            bad.append(disk["serial"] or disk["name"])
    if bad:
        return FAIL, "SMART reports failure of: " + ", ".join(bad[:SHOWN_MAX])
    if silent or not good:
        return UNKNOWN, "no SMART health from " + (", ".join(silent[:SHOWN_MAX]) or "any disk")
    return PASS, f"{good} disks"


def _parse_smart(answer: Output) -> bool | None:
    if answer.status is None or answer.status & 0b11:
        return None
    status = json.loads(answer.text).get("smart_status")
    passed = status.get("passed") if isinstance(status, dict) else None
    return passed if isinstance(passed, bool) else None
