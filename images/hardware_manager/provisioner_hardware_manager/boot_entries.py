"""UEFI boot entries: those of systems on disks are removed, and one of the written disk is made.

A tenant with root may leave an entry that comes before every other; an entry of a former system
names a partition that is gone; and a BMC's "boot from disk" is the first one that the firmware
knows. An entry may also name an address on the network (a script or a loader of iPXE), which boots
where the disk does not. Entries of the firmware itself (network, virtual media, its menus) stay: to
boot by HTTP they name no address, which DHCP gives. Output is that of efibootmgr 17.
"""

from __future__ import annotations

import json
import platform
import re
from pathlib import Path
from typing import Any

from provisioner_hardware_manager import disks, uefi_variables
from provisioner_hardware_manager.commands import Run, run, shorten
from provisioner_hardware_manager.results import DONE, NOT_DONE, UNSUPPORTED

ENTRIES_MAX = 256
LABEL = "provisioner"
# the loader of removable media, UEFI 2.10, 3.5.1.1: every image of a distribution has it
LOADERS = {"x86_64": r"\EFI\BOOT\BOOTX64.EFI", "aarch64": r"\EFI\BOOT\BOOTAA64.EFI"}
SYSTEM_PARTITIONS = {"c12a7328-f81f-11d2-ba4b-00a0c93ec93b", "0xef"}
_ENTRY = re.compile(r"Boot([0-9A-Fa-f]{4})(\*?) ([^\t\n]*)\t?(.*)")
_ORDER = re.compile(r"BootOrder: ([0-9A-Fa-f,]+)")
# efivar's text of a hard drive media path: number, GPT or MBR, signature (UEFI 2.10, 10.3.5.1)
_PARTITION = re.compile(r"HD\((\d+),(GPT|MBR),([0-9A-Za-z-]+)")
# UEFI 2.10, 10.3.4.23: URI device path; "Uri()" of the firmware's own entries has none
_ADDRESS = re.compile(r"Uri\([^)]")

Answer = dict[str, str]


def clear(run: Run = run, variables: Path = uefi_variables.ROOT) -> Answer:
    """Remove the entries of systems on disks and of addresses, and other variables of operating
    systems; `result` is "done" when none is listed any more.
    """
    listed = _list_entries(run)
    if listed is None:
        return _answer(UNSUPPORTED, "this system was not booted with UEFI variables")
    removed = _remove_disk_entries(listed, run)
    addresses = _remove([e for e in listed if e["address"]], run)
    run("efibootmgr", "--delete-bootnext")
    left = [e for e in _list_entries(run) or listed if e["partition"] or e["address"]]
    if left:
        named = f"{len(left)} boot entries of disks or addresses cannot be removed"
        return _answer(NOT_DONE, f"{named}: {left[0]['label']}")
    gone, kept = uefi_variables.remove_of_systems(variables)
    if kept:
        detail = f"{len(kept)} variables of operating systems cannot be removed: {kept[0]}"
        return _answer(NOT_DONE, detail)
    others = f", and {len(gone)} variables: {', '.join(gone[:8])}" if gone else ""
    named = f" and {addresses} of addresses on the network" if addresses else ""
    return _answer(DONE, f"{removed} boot entries of disks{named} were removed{others}")


def choose_disk(serial: str, run: Run = run) -> Answer:
    """Make the disk's EFI system partition the first boot entry, and the only one of a disk."""
    listed = _list_entries(run)
    if listed is None:
        return _answer(UNSUPPORTED, "this system was not booted with UEFI variables")
    loader = LOADERS.get(platform.machine())
    if loader is None:
        return _answer(UNSUPPORTED, f"no loader is known for {platform.machine()}")
    disk = disks.find_disk(serial, run)
    if disk is None:
        return _answer(NOT_DONE, "no disk, or more than one, has this serial")
    run("udevadm", "settle", "--timeout=30")
    partition = _find_system_partition(disk["name"], run)
    if partition is None:
        return _answer(NOT_DONE, f"{serial} has no EFI system partition, or more than one")
    number, identity = partition
    _remove_disk_entries(listed, run)
    created = run(
        "efibootmgr",
        "--create",
        "--disk",
        disk["name"],
        "--part",
        str(number),
        "--label",
        LABEL,
        "--loader",
        loader,
    )
    if not created.ok:
        return _answer(NOT_DONE, f"efibootmgr --create: {created.error or created.text}")
    return _judge(_list_entries(run) or [], identity)


def _judge(listed: list[dict[str, Any]], identity: str) -> Answer:
    """Return whether the first entry in the boot order is that of this partition, as read back."""
    of_disks = [e for e in listed if e["partition"]]
    first = min(listed, key=lambda e: e["place"], default=None)
    if first is None or first["partition"] != identity or not first["active"]:
        shown = "nothing" if first is None else f"{first['number']} {first['label']}"
        return _answer(NOT_DONE, f"the first boot entry is {shown}, not the one that was made")
    if len(of_disks) != 1:
        return _answer(NOT_DONE, f"{len(of_disks)} boot entries are of disks, not the one only")
    return _answer(DONE, f"Boot{first['number']} {first['label']} is first in the boot order")


def _list_entries(run: Run) -> list[dict[str, Any]] | None:
    """Return the boot entries with their places in the order; None without UEFI variables."""
    answer = run("efibootmgr", "--verbose")
    if not answer.ok:
        return None
    order_line = _ORDER.search(answer.text)
    order = order_line.group(1).upper().split(",") if order_line else []
    entries = []
    for line in answer.text.splitlines():
        matched = _ENTRY.fullmatch(line)
        if matched is None:
            continue
        number, active, label, path = matched.groups()
        partition = _PARTITION.search(path)
        place = order.index(number.upper()) if number.upper() in order else len(order)
        entries.append(
            {
                "number": number.upper(),
                "label": shorten(label),
                "active": bool(active),
                "place": place,
                "partition": _identify(*partition.groups()) if partition else "",
                "address": partition is None and _ADDRESS.search(path) is not None,
            }
        )
    return entries[:ENTRIES_MAX]


def _identify(number: str, kind: str, signature: str) -> str:
    """Return the identity of a partition: of an MBR the disk's signature, of a GPT its own."""
    value = signature.lower()
    return f"{number} {kind} {int(value, 16):08x}" if kind == "MBR" else f"{number} {kind} {value}"


def _remove_disk_entries(listed: list[dict[str, Any]], run: Run) -> int:
    return _remove([e for e in listed if e["partition"]], run)


def _remove(entries: list[dict[str, Any]], run: Run) -> int:
    for entry in entries:
        run("efibootmgr", "--bootnum", entry["number"], "--delete-bootnum")
    return len(entries)


def _find_system_partition(disk: str, run: Run) -> tuple[int, str] | None:
    """Return (number, identity) of the disk's one EFI system partition."""
    answer = run("lsblk", "--json", "--list", "--output", "NAME,PARTTYPE,PARTUUID", disk)
    try:
        listed = json.loads(answer.text).get("blockdevices", []) if answer.ok else []
    except ValueError:
        return None
    matched = []
    for part in listed:
        number = re.search(r"(\d+)$", str(part.get("name")))
        uuid = str(part.get("partuuid") or "").lower()
        if number and uuid and str(part.get("parttype")).lower() in SYSTEM_PARTITIONS:
            is_gpt = str(part["parttype"]).lower() != "0xef"
            signature = uuid if is_gpt else uuid.partition("-")[0]
            kind = "GPT" if is_gpt else "MBR"
            matched.append((int(number.group(1)), _identify(number.group(1), kind, signature)))
    return matched[0] if len(matched) == 1 else None


def _answer(result: str, detail: str) -> Answer:
    return {"result": result, "detail": shorten(detail)}
