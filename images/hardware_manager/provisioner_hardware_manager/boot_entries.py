"""UEFI boot entries: those of systems on disks are removed, and one of the written disk is made.

A tenant with root may leave an entry that comes before every other; an entry of a former system
names a partition that is gone; and a BMC's "boot from disk" is the first one that the firmware
knows. An entry may also name an address on the network (a script or a loader of iPXE), which boots
where the disk does not. Entries of the firmware itself (network, virtual media, its menus) stay: to
boot by HTTP they name no address, which DHCP gives.

The variables' bytes are read here (`uefi_entries`): efibootmgr lists nothing at all where it cannot
print one entry. That a machine has UEFI variables is known from the kernel's folder, never from a
tool's exit code.
"""

from __future__ import annotations

import json
import platform
import re
from pathlib import Path

from provisioner_hardware_manager import disks, uefi_entries, uefi_variables
from provisioner_hardware_manager.commands import Run, run, shorten
from provisioner_hardware_manager.results import DONE, NOT_DONE, UNSUPPORTED
from provisioner_hardware_manager.uefi_entries import Entry, NoVariables

LABEL = "provisioner"
# the loader of removable media, UEFI 2.10, 3.5.1.1: every image of a distribution has it
LOADERS = {"x86_64": r"\EFI\BOOT\BOOTX64.EFI", "aarch64": r"\EFI\BOOT\BOOTAA64.EFI"}
SYSTEM_PARTITIONS = {"c12a7328-f81f-11d2-ba4b-00a0c93ec93b", "0xef"}

Answer = dict[str, str]


def clear(run: Run = run, variables: Path = uefi_variables.ROOT) -> Answer:
    """Remove the entries of systems on disks and of addresses, and other variables of operating
    systems; `result` is "done" when none is there any more, and "unsupported" only where the kernel
    shows that this boot has no UEFI. An entry whose path cannot be read is taken for a tenant's.
    """
    problems = []
    removed: list[Entry] = []
    left: list[Entry] = []
    try:
        removed = [e for e in uefi_entries.list_entries(variables) if e.is_of_system]
        _remove(removed, run, variables)
        left = [e for e in uefi_entries.list_entries(variables) if e.is_of_system]
    except NoVariables as missing:
        if missing.is_proved:
            return _answer(UNSUPPORTED, "this system was not booted with UEFI variables")
        problems.append(str(missing))
    if left:
        named = f"{len(left)} boot entries of disks or addresses cannot be removed"
        problems.append(f"{named}: {left[0].label or left[0].number}")
    # whatever the entries are: these variables are removed in any case
    if not uefi_variables.remove_variable(uefi_entries.BOOT_NEXT, variables):
        problems.append("BootNext cannot be removed")
    gone, kept = uefi_variables.remove_of_systems(variables)
    if kept:
        problems.append(f"{len(kept)} variables of operating systems cannot be removed: {kept[0]}")
    if problems:
        return _answer(NOT_DONE, "; ".join(problems))
    others = f", and {len(gone)} variables: {', '.join(gone[:8])}" if gone else ""
    addresses = sum(e.is_address for e in removed)
    unread = sum(e.problem != "" for e in removed)
    named = f" and {addresses} of addresses on the network" if addresses else ""
    named += f" and {unread} whose path cannot be read" if unread else ""
    count = len(removed) - addresses - unread
    return _answer(DONE, f"{count} boot entries of disks{named} were removed{others}")


def choose_disk(serial: str, run: Run = run, variables: Path = uefi_variables.ROOT) -> Answer:
    """Make the disk's EFI system partition the first boot entry, and the only one of a disk."""
    try:
        listed = uefi_entries.list_entries(variables)
    except NoVariables as missing:
        result = UNSUPPORTED if missing.is_proved else NOT_DONE
        return _answer(result, str(missing))
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
    _remove([e for e in listed if e.is_of_system and not e.is_address], run, variables)
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
    # its exit code also tells of entries that it cannot print: what counts is what is there now
    answer = _judge(uefi_entries.list_entries(variables), identity)
    if answer["result"] != DONE and not created.ok:
        return _answer(NOT_DONE, f"efibootmgr --create: {created.error or created.text}")
    return answer


def _judge(listed: list[Entry], identity: str) -> Answer:
    """Return whether the first entry in the boot order is that of this partition, as read back."""
    of_disks = [e for e in listed if e.partition]
    ordered = [e for e in listed if e.place is not None]
    first = min(ordered, key=lambda e: e.place or 0, default=None)
    if first is None or first.partition != identity or not first.is_active:
        shown = "nothing" if first is None else f"{first.number} {first.label}"
        return _answer(NOT_DONE, f"the first boot entry is {shown}, not the one that was made")
    if len(of_disks) != 1:
        return _answer(NOT_DONE, f"{len(of_disks)} boot entries are of disks, not the one only")
    return _answer(DONE, f"Boot{first.number} {first.label} is first in the boot order")


def _remove(entries: list[Entry], run: Run, variables: Path) -> None:
    """Remove entries by efibootmgr, which also takes them out of BootOrder, else by ourselves."""
    for entry in entries:
        if entry.is_boot:
            run("efibootmgr", "--bootnum", entry.number, "--delete-bootnum")
        uefi_variables.remove_variable(entry.variable, variables)
    uefi_entries.drop_from_order({e.number for e in entries if e.is_boot}, variables)


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
            matched.append(
                (
                    int(number.group(1)),
                    uefi_entries.name_partition(number.group(1), kind, signature),
                )
            )
    return matched[0] if len(matched) == 1 else None


def _answer(result: str, detail: str) -> Answer:
    return {"result": result, "detail": shorten(detail)}
