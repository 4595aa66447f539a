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
import struct
import time
from collections.abc import Callable
from typing import Any, Protocol

from provisioner_hardware_manager import disks
from provisioner_hardware_manager.commands import Run, encode_raw, run, shorten

DONE, NOT_DONE, UNSUPPORTED = "done", "not_done", "unsupported"

# NVM Express Base Specification 1.4, Identify Controller
SANICAP_CRYPTO, SANICAP_BLOCK, OACS_FORMAT, FNA_CRYPTO = 1, 2, 2, 4
# method -> (`nvme sanitize --sanact`, SANICAP bit): Sanitize command, Sanitize Action
SANITIZE = {"nvme_sanitize_crypto": (4, SANICAP_CRYPTO), "nvme_sanitize_block": (2, SANICAP_BLOCK)}
FORMAT = {"nvme_format_crypto": 2, "nvme_format_user_data": 1}  # method -> `nvme format --ses`
ATA = ("ata_enhanced_secure_erase", "ata_secure_erase")
OVERWRITE = "overwrite"
METHODS = (*SANITIZE, *FORMAT, *ATA, OVERWRITE)

SANITIZE_POLL_S = 5.0
# A block erase takes the time that the controller estimates, hours for the largest drives. The
# daemon has its own, shorter limit; this one only keeps a thread from living forever.
SANITIZE_LIMIT_S = 12 * 3600.0
# `nvme format --timeout` is in milliseconds; the longest that vendors state for Format is an hour
FORMAT_LIMIT_S = 3600.0
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
) -> dict[str, str]:
    """Erase and return the record: `result` is "done", "not_done" or "unsupported". Never raises.

    The serial is read again first: a name is valid for one boot only, and another disk behind it
    is left alone.
    """
    try:
        result, detail = _erase(device, serial, method, agent, run, sleep)
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
) -> tuple[str, str]:
    if method not in METHODS:
        return UNSUPPORTED, "no such method"
    disk = disks.find_disk(serial, run)
    if disk is None:
        return NOT_DONE, "no disk, or more than one, has this serial now"
    if disk["name"] != device:
        return NOT_DONE, f"this serial is {disk['name']} now"
    if method in SANITIZE:
        return _sanitize(disk, *SANITIZE[method], run, sleep)
    if method in FORMAT:
        return _format(disk, FORMAT[method], run)
    if method in ATA:
        return _erase_ata(disk, method, agent)
    if disk["read_only"]:
        return UNSUPPORTED, "read-only"
    if not agent.overwrite(device):
        return NOT_DONE, "shred failed"
    checked = count_zero_samples(device, disk["size"])
    if not checked:
        return NOT_DONE, "the overwritten range does not read as zeroes"
    return DONE, f"one random pass and one of zeroes by shred; {checked} samples read back as zero"


def _sanitize(
    disk: dict[str, Any], action: int, bit: int, run: Run, sleep: Callable[[float], None]
) -> tuple[str, str]:
    """Start a sanitize on the controller, then read the sanitize log until it has ended.

    A sanitize that is already running is awaited first, then this one is started: only the end of
    its own run counts.
    """
    if not (disk["nvme"] or {}).get("sanicap", 0) & bit:
        return UNSUPPORTED, "the controller does not offer this sanitize action"
    controller = disks.name_controller(disk["name"])
    _await_sanitize(controller, run, sleep)
    started = run("nvme", "sanitize", controller, f"--sanact={action}", timeout_s=120.0)
    if not started.ok:
        return NOT_DONE, f"nvme sanitize: {started.error or started.text}"
    sleep(SANITIZE_POLL_S)
    status = _await_sanitize(controller, run, sleep)
    if status is None:
        return NOT_DONE, "the sanitize log cannot be read"
    if status & 0b111 in (1, 4):
        return DONE, f"sanitize log: SSTAT {status:#06x}, completed successfully"
    return NOT_DONE, f"sanitize log: SSTAT {status:#06x}"


def _await_sanitize(controller: str, run: Run, sleep: Callable[[float], None]) -> int | None:
    """Wait while a sanitize is in progress and return SSTAT; None if the log cannot be read.

    NVM Express Base Specification 1.4, Sanitize Status log page: bytes 3:2 are SSTAT, whose bits
    2:0 are 1 (completed), 2 (in progress), 3 (failed), 4 (completed, without deallocation).
    """
    for _ in range(int(SANITIZE_LIMIT_S / SANITIZE_POLL_S)):
        log = run("nvme", "sanitize-log", controller, "--raw-binary")
        page = encode_raw(log.text)
        if not log.ok or len(page) < 4:
            return None
        status: int = struct.unpack_from("<H", page, 2)[0]
        if status & 0b111 != 2:
            return status
        sleep(SANITIZE_POLL_S)
    return 2


def _format(disk: dict[str, Any], setting: int, run: Run) -> tuple[str, str]:
    abilities = disk["nvme"] or {}
    if not abilities.get("oacs", 0) & OACS_FORMAT:
        return UNSUPPORTED, "the controller does not offer Format NVM"
    if setting == 2 and not abilities.get("fna", 0) & FNA_CRYPTO:
        return UNSUPPORTED, "the controller's Format does not erase cryptographically"
    ended = run(
        "nvme",
        "format",
        disk["name"],
        f"--ses={setting}",
        "--force",
        f"--timeout={int(FORMAT_LIMIT_S * 1000)}",
        timeout_s=FORMAT_LIMIT_S + 60,
    )
    if not ended.ok:
        return NOT_DONE, f"nvme format: {ended.error or ended.text}"
    return DONE, f"nvme format --ses={setting}: {ended.text or 'success'}"


def _erase_ata(disk: dict[str, Any], method: str, agent: AgentErasure) -> tuple[str, str]:
    """Erase by the agent, which uses the enhanced erase where the drive has it.

    So the plain method applies only to drives without the enhanced one.
    """
    abilities = disk["ata"]
    if not abilities or not abilities["supported"]:
        return UNSUPPORTED, "the drive has no ATA security feature set"
    if abilities["frozen"]:
        return UNSUPPORTED, "the BIOS has frozen the drive's security settings"
    if abilities["enhanced"] != (method == ATA[0]):
        has = "enhanced" if abilities["enhanced"] else "plain"
        return UNSUPPORTED, f"only the {has} secure erase is used on this drive"
    if not agent.erase_ata(disk["name"]):
        return UNSUPPORTED, "smartctl reports that ATA security is not available"
    return DONE, f"{method} by hdparm; the drive's security is no longer enabled"


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
