"""NVMe Sanitize and Format of a whole drive: every namespace, and the capacity that is in none.

Sanitize is a command to the NVM subsystem and reaches all of it. Format reaches namespaces only: so
all are formatted, and where capacity is in none, one namespace with all of it is made and formatted
too. Either way the drive has one full namespace afterwards.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from provisioner_hardware_manager import disks, nvme_drives
from provisioner_hardware_manager.commands import Run, encode_raw
from provisioner_hardware_manager.nvme_drives import (
    FNA_CRYPTO,
    FNA_ERASE_ALL,
    FNA_FORMAT_ALL,
    OACS_FORMAT,
    OACS_NAMESPACES,
)
from provisioner_hardware_manager.results import DONE, NOT_DONE

# NVM Express Base Specification 1.4, Identify Controller
SANICAP_CRYPTO = 1
SANICAP_BLOCK = 2
# method -> (`nvme sanitize --sanact`, SANICAP bit): Sanitize command, Sanitize Action
SANITIZE = {"nvme_sanitize_crypto": (4, SANICAP_CRYPTO), "nvme_sanitize_block": (2, SANICAP_BLOCK)}
EXIT_FAILURE_MODE = 1
FORMAT = {"nvme_format_crypto": 2, "nvme_format_user_data": 1}  # method -> `nvme format --ses`
METHODS = (*SANITIZE, *FORMAT)

SANITIZE_POLL_S = 5.0
# A block erase takes the time that the controller estimates, hours for the largest drives. The
# daemon has its own, shorter limit; this one only keeps a thread from living forever.
SANITIZE_LIMIT_S = 12 * 3600.0
# `nvme format --timeout` is in milliseconds; the longest that vendors state for Format is an hour
FORMAT_LIMIT_S = 3600.0


def find_obstacle(disk: dict[str, Any], method: str) -> str:
    """Return why this drive is not erased by this method; "" if it is."""
    drive = disk["nvme"] or {}
    if method in SANITIZE:
        offered = drive.get("sanicap", 0) & SANITIZE[method][1]
        return "" if offered else "the controller does not offer this sanitize action"
    if not drive.get("oacs", 0) & OACS_FORMAT:
        return "the controller does not offer Format NVM"
    if FORMAT[method] == 2 and not drive.get("fna", 0) & FNA_CRYPTO:
        return "the controller's Format does not erase cryptographically"
    if drive["namespaces"] is None or drive["attached"] is None:
        return "the controller does not list its namespaces, and Format reaches those named only"
    if drive["unallocated"] and not drive["oacs"] & OACS_NAMESPACES:
        return f"{drive['unallocated']} bytes are in no namespace, where Format does not reach"
    return ""


def is_reachable_by_blocks(drive: dict[str, Any]) -> bool:
    """Return whether the one namespace that is a block device is all of the drive."""
    return bool(drive["attached"]) and nvme_drives.has_full_namespace(drive)


def attach_namespaces(disk: dict[str, Any], run: Run) -> str:
    """Attach the namespaces that are not visible, so that they can be read and formatted.

    Return the failure, "" if there is none.
    """
    drive = disk["nvme"]
    if drive["namespaces"] is None or drive["attached"] is None:
        return ""  # only Sanitize comes as far as this, which needs no list
    return nvme_drives.attach_all(disks.name_controller(disk["name"]), drive, run)


def erase_drive(
    disk: dict[str, Any], method: str, run: Run, sleep: Callable[[float], None]
) -> tuple[str, str]:
    """Erase the drive, and return result and evidence."""
    controller = disks.name_controller(disk["name"])
    if method in SANITIZE:
        return _sanitize(controller, SANITIZE[method][0], run, sleep)
    return _format_all(controller, disk["nvme"], FORMAT[method], run)


def restore_layout(disk: dict[str, Any], method: str, run: Run) -> tuple[str, str]:
    """Give an erased drive one namespace with all of its capacity, if it has another layout.

    A sanitized drive is erased whatever its layout is. After a format the new namespace holds
    blocks that no format has reached yet, so it is formatted too.
    """
    controller = disks.name_controller(disk["name"])
    drive = nvme_drives.read_drive(controller, disk["serial"], run)
    if drive is None or drive["namespaces"] is None:
        return (DONE if method in SANITIZE else NOT_DONE), "its namespaces cannot be listed"
    if nvme_drives.has_full_namespace(drive) or not drive["oacs"] & OACS_NAMESPACES:
        return DONE, ""
    needs_format = method in FORMAT and drive["unallocated"] > 0
    if not needs_format and not drive["capacity"]:
        return DONE, "its namespaces stay: the controller reports no capacity to make one of"
    if failure := nvme_drives.rebuild(controller, drive, run):
        result = NOT_DONE if needs_format else DONE
        return result, f"its layout is not restored: {failure}"
    if method in SANITIZE:
        return DONE, "one namespace with all of its capacity was made"
    drive = nvme_drives.read_drive(controller, disk["serial"], run)
    if drive is None or drive["namespaces"] is None or len(drive["namespaces"]) != 1:
        return NOT_DONE, "the namespace that was made cannot be listed"
    result, detail = _format_all(controller, drive, FORMAT[method], run)
    return result, f"one namespace with all of its capacity was made; {detail}"


def _sanitize(
    controller: str, action: int, run: Run, sleep: Callable[[float], None]
) -> tuple[str, str]:
    """Start a sanitize on the controller, then read the sanitize log until it has ended.

    A sanitize that is already running is awaited first, then this one is started: only the end of
    its own run counts. AUSE permits the exit from a failure: otherwise the drive refuses every
    other command, and the next method could not be tried.
    """
    _await_sanitize(controller, run, sleep)
    arguments = ("nvme", "sanitize", controller, f"--sanact={action}", "--ause")
    started = run(*arguments, timeout_s=120.0)
    if not started.ok:
        return NOT_DONE, f"nvme sanitize: {started.error or started.text}"
    sleep(SANITIZE_POLL_S)
    status = _await_sanitize(controller, run, sleep)
    if status is None:
        return NOT_DONE, "the sanitize log cannot be read"
    if status & 0b111 in (1, 4):
        return DONE, f"sanitize log: SSTAT {status:#06x}, completed successfully"
    if status & 0b111 == 3:
        run("nvme", "sanitize", controller, f"--sanact={EXIT_FAILURE_MODE}", timeout_s=120.0)
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


def _format_all(controller: str, drive: dict[str, Any], setting: int, run: Run) -> tuple[str, str]:
    """Format every namespace; only one where the controller then formats or erases all (FNA)."""
    namespaces = drive["namespaces"]
    if drive["fna"] & (FNA_FORMAT_ALL | FNA_ERASE_ALL):
        namespaces = namespaces[:1]
    for namespace in namespaces:
        ended = run(
            "nvme",
            "format",
            controller,
            f"--namespace-id={namespace}",
            f"--ses={setting}",
            "--force",
            f"--timeout={int(FORMAT_LIMIT_S * 1000)}",
            timeout_s=FORMAT_LIMIT_S + 60,
        )
        if not ended.ok:
            return NOT_DONE, f"nvme format of namespace {namespace}: {ended.error or ended.text}"
    formatted = ", ".join(str(n) for n in namespaces[:16]) or "none"
    reach = "all of them by one command" if namespaces != drive["namespaces"] else formatted
    return DONE, f"nvme format --ses={setting}: namespaces {reach}"
