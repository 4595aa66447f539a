"""Erases one disk by one named method, and records the disk's own answer.

The daemon chooses the method and the escalation order; this module has no fallback. NVMe Sanitize
and Format are commands of our own, because ironic-python-agent does not support Sanitize and
chooses Format's kind by itself. ATA secure erase and overwriting are the agent's: it handles drives
that an earlier attempt left locked. Its public `erase_block_device` is not used: that silently
skips RAID members and falls back from a secure erase to overwriting, and both would be recorded
wrongly.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable
from typing import Any, Protocol

from provisioner_hardware_manager import ata_drives, disks, nvme_erasure, samples, scsi_drives
from provisioner_hardware_manager.commands import Run, run, shorten
from provisioner_hardware_manager.results import DONE, NOT_DONE, UNSUPPORTED
from provisioner_hardware_manager.samples import Samples

ATA = ("ata_enhanced_secure_erase", "ata_secure_erase")
OVERWRITE = "overwrite"
METHODS = (
    *nvme_erasure.METHODS,
    *scsi_drives.SANITIZE,
    *ata_drives.SANITIZE,
    *ATA,
    OVERWRITE,
)
LOCKED = "a former owner's key locks the drive (TCG): revert it with the PSID of its label"
Sampler = Callable[[list[str], str], Samples]  # (block devices, seed)

SAMPLE_BYTES = 1 << 20


class AgentErasure(Protocol):
    """The agent's own erasures. Each raises or returns False if it did not erase."""

    def erase_ata(self, device: str) -> bool: ...

    def overwrite(self, device: str) -> bool: ...


def erase(
    device: str,
    serial: str,
    method: str,
    *,
    agent: AgentErasure,
    run: Run = run,
    sleep: Callable[[float], None] = time.sleep,
    sampler: Sampler = samples.read_samples,
) -> dict[str, str]:
    """Erase and return the record: `result` is "done", "not_done" or "unsupported". Never raises.

    The serial is read again first: a name is valid for one boot only, and another disk behind it
    is left alone. Blocks of the disk are read before and after: an erasure that the disk reports as
    done, and that left data in one of them, is not done.
    """
    try:
        result, detail = _erase(device, serial, method, agent, run, sleep, sampler)
    except Exception as failure:  # whatever the cause, this disk is not erased
        result, detail = NOT_DONE, f"{type(failure).__name__}: {shorten(failure)}"
    return {
        "device": device,
        "serial": serial,
        "method": method,
        "result": result,
        "detail": shorten(detail),
    }


def _erase(
    device: str,
    serial: str,
    method: str,
    agent: AgentErasure,
    run: Run,
    sleep: Callable[[float], None],
    sampler: Sampler,
) -> tuple[str, str]:
    if method not in METHODS:
        return UNSUPPORTED, "no such method"
    disk = disks.find_disk(serial, run)
    if disk is None:
        return NOT_DONE, "no disk, or more than one, has this serial now"
    if disk["name"] != device:
        return NOT_DONE, f"this serial is {disk['name']} now"
    if method in nvme_erasure.METHODS:
        refusal = nvme_erasure.find_obstacle(disk, method)
    else:
        refusal = _find_obstacle(disk, method)
    if refusal:
        return UNSUPPORTED, refusal
    if method in nvme_erasure.METHODS:
        if failure := nvme_erasure.attach_namespaces(disk, run):
            return NOT_DONE, failure
        disk = disks.find_disk(serial, run) or disk  # attached namespaces are block devices now
    seed = secrets.token_hex(16)
    before = sampler(disk["names"], seed)
    result, detail = _act(disk, method, agent, run, sleep)
    if result != DONE:
        is_locked = bool(disk["nvme"] and disk["nvme"]["locked"])
        return result, f"{LOCKED}; {detail}" if is_locked else detail
    is_erased, evidence = True, "no namespace was there to read"
    if disk["names"]:
        is_erased, evidence = samples.compare_samples(before, sampler(disk["names"], seed))
    if not is_erased:
        return NOT_DONE, f"{detail}; but {evidence}"
    if method not in nvme_erasure.METHODS:
        return DONE, f"{detail}; {evidence}"
    result, layout = nvme_erasure.restore_layout(disk, method, run)
    return result, "; ".join(part for part in (detail, evidence, layout) if part)


def _find_obstacle(disk: dict[str, Any], method: str) -> str:
    """Return why this disk is not erased by a method outside of NVMe; "" if it is."""
    if method in scsi_drives.SANITIZE:
        offered = scsi_drives.SANITIZE[method][0] in (disk["scsi"] or ())
        return "" if offered else "the drive does not offer this sanitize action"
    abilities = disk["ata"]
    if method in ata_drives.SANITIZE:
        offered = ata_drives.SANITIZE[method][0] in (abilities or {}).get("sanitize", ())
        return "" if offered else "the drive does not offer this sanitize action"
    if method in ATA:
        return _find_ata_obstacle(abilities, method)
    if disk["read_only"]:
        return "read-only"
    # what a drive does not tell of itself may be there
    is_nvme = disk["transport"] == "nvme"
    if is_nvme and not (disk["nvme"] and nvme_erasure.is_reachable_by_blocks(disk["nvme"])):
        return "an overwrite does not reach all namespaces and the capacity outside of them"
    if disk["transport"] in disks.ATA and not (abilities and abilities["hidden_area"] is False):
        return "an overwrite does not reach a host protected area, and the drive may have one"
    return ""


def _act(
    disk: dict[str, Any],
    method: str,
    agent: AgentErasure,
    run: Run,
    sleep: Callable[[float], None],
) -> tuple[str, str]:
    if method in nvme_erasure.METHODS:
        return nvme_erasure.erase_drive(disk, method, run, sleep)
    if method in scsi_drives.SANITIZE:
        is_done, detail = scsi_drives.sanitize(disk["name"], method, run)
        return (DONE if is_done else NOT_DONE), detail
    if method in ata_drives.SANITIZE:
        is_done, detail = ata_drives.sanitize(disk["name"], method, run, sleep)
        return (DONE if is_done else NOT_DONE), detail
    if method in ATA:
        if not agent.erase_ata(disk["name"]):
            return UNSUPPORTED, "smartctl reports that ATA security is not available"
        return DONE, f"{method} by hdparm; the drive's security is no longer enabled"
    if not agent.overwrite(disk["name"]):
        return NOT_DONE, "shred failed"
    checked = count_zero_samples(disk["name"], disk["size"])
    if not checked:
        return NOT_DONE, "the overwritten range does not read as zeroes"
    return DONE, f"one random pass and one of zeroes by shred; {checked} samples read back as zero"


def _find_ata_obstacle(abilities: dict[str, Any] | None, method: str) -> str:
    """Return why an ATA secure erase is not possible; "" if it is.

    The agent uses the enhanced erase where the drive has it, so the plain method applies only to
    drives without the enhanced one.
    """
    if not abilities or not abilities["supported"]:
        return "the drive has no ATA security feature set"
    if abilities["frozen"]:
        return "the BIOS has frozen the drive's security settings"
    if abilities["enhanced"] != (method == ATA[0]):
        has = "enhanced" if abilities["enhanced"] else "plain"
        return f"only the {has} secure erase is used on this drive"
    return ""


def count_zero_samples(device: str, size: int, samples: int = 16) -> int:
    """Return how many samples of a device read as zero, from the first byte to the last.

    The result is 0 if any sample does not.
    """
    chunk = min(SAMPLE_BYTES, size)
    with open(device, "rb", buffering=0) as disk:  # noqa: PTH123  a device, unbuffered
        os.posix_fadvise(
            disk.fileno(), 0, 0, os.POSIX_FADV_DONTNEED
        )  # read the disk, not the cache
        for number in range(samples):
            disk.seek((size - chunk) * number // max(1, samples - 1))
            if disk.read(chunk).strip(b"\0"):
                return 0
    return samples
