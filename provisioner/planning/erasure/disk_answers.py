"""Answers of the maintenance agent about disks and erasures, as records; all others are refused.

The agent runs on a machine that a tenant had: its answers are hostile until they are parsed here.
docs/erasure.md has the contract with the hardware manager in the maintenance image.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from provisioner.model.base import Record
from provisioner.model.erasure import Disk, ErasureRecord, Holder, Method, Result
from provisioner.model.outcome import Blocker, Reason

DISKS_MAX = 128  # the largest HGX chassis sold has 34 drive bays
TEXT_MAX = 400
SIZE_MAX_BYTES = 1 << 60
_NAME = re.compile(r"/dev/[A-Za-z0-9_!-]{1,32}")
# Printable, no blanks at the ends: a serial goes into a command and into people's terminals.
_SERIAL = re.compile(r"[!-~](?:[ -~]{0,62}[!-~])?")
_DIGEST = re.compile(r"[0-9a-f]{64}")

# NVM Express Base Specification 1.4, Identify Controller: SANICAP bits 0 and 1 (crypto erase and
# block erase by Sanitize), OACS bit 1 (Format NVM), FNA bit 2 (Format can erase cryptographically)
_SANITIZE_CRYPTO = 1
_SANITIZE_BLOCK = 2
_FORMAT = 2
_FORMAT_CRYPTO = 4
_SCSI_SANITIZE = {
    "crypto": Method.SCSI_SANITIZE_CRYPTO,
    "block": Method.SCSI_SANITIZE_BLOCK,
    "overwrite": Method.SCSI_SANITIZE_OVERWRITE,
}
_ATA_SANITIZE = {
    "crypto": Method.ATA_SANITIZE_CRYPTO,
    "block": Method.ATA_SANITIZE_BLOCK,
    "overwrite": Method.ATA_SANITIZE_OVERWRITE,
}


class ReadBack(Record):
    """A range of a disk as it was read, with the serial of the disk that was actually read."""

    serial: str
    offset: int
    length: int
    sha256: str


def parse_disks(answer: object, node: str) -> tuple[Disk, ...] | Blocker:
    """The disks of a `provisioner_disks` answer, by serial; a blocker if one is ambiguous."""
    listed = answer.get("disks") if isinstance(answer, Mapping) else None
    if not isinstance(listed, Sequence) or isinstance(listed, str) or len(listed) > DISKS_MAX:
        return make_malformed_blocker(node, "its disks are no list of a credible length")
    parsed: list[Disk] = []
    for entry in listed:
        disk = _disk(entry)
        if disk is None:
            return make_malformed_blocker(node, f"a disk is not described: {entry!r:.120}")
        parsed.append(disk)
    for attribute in ("serial", "name"):
        values = [getattr(d, attribute) for d in parsed]
        twice = sorted({v for v in values if values.count(v) > 1})
        if twice:
            return Blocker(
                reason=Reason.DUPLICATE,
                subject=f"{node}/{twice[0]}",
                detail=f"two disks have this {attribute}: it is ambiguous which one is meant",
                unblock="Merge its namespaces into one, or take one of the disks out.",
            )
    return tuple(sorted(parsed, key=lambda d: d.serial))


def _disk(entry: object) -> Disk | None:
    if not isinstance(entry, Mapping):
        return None
    name = entry.get("name")
    serial = entry.get("serial")
    size = entry.get("size")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        return None
    if not isinstance(serial, str) or not _SERIAL.fullmatch(serial.strip()):
        return None
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= SIZE_MAX_BYTES:
        return None
    return Disk(
        name=name,
        serial=serial.strip(),
        wwn=strip_control_characters(entry.get("wwn"), 64),
        model=strip_control_characters(entry.get("model"), 64),
        size_bytes=size,
        capacity_bytes=_capacity(entry.get("nvme")),
        transport=strip_control_characters(entry.get("transport"), 16).lower(),
        methods=_methods(entry),
    )


def _methods(entry: Mapping[str, Any]) -> tuple[Method, ...]:
    """Return the methods that the disk supports, from the values that its own tools printed."""
    methods: list[Method] = []
    nvme = entry.get("nvme")
    ata = entry.get("ata")
    scsi = entry.get("scsi")
    if isinstance(nvme, Mapping):
        sanitize, commands, formats = (_bits(nvme.get(k)) for k in ("sanicap", "oacs", "fna"))
        if sanitize & _SANITIZE_CRYPTO:
            methods.append(Method.SANITIZE_CRYPTO)
        if sanitize & _SANITIZE_BLOCK:
            methods.append(Method.SANITIZE_BLOCK)
        if commands & _FORMAT:
            if formats & _FORMAT_CRYPTO:
                methods.append(Method.FORMAT_CRYPTO)
            methods.append(Method.FORMAT_USER_DATA)
    for actions, known in ((scsi, _SCSI_SANITIZE), (_sanitizes(ata), _ATA_SANITIZE)):
        if isinstance(actions, Sequence) and not isinstance(actions, str):
            methods += [method for action, method in known.items() if action in actions]
    if isinstance(ata, Mapping) and ata.get("supported") is True and ata.get("frozen") is False:
        if ata.get("enhanced") is True:
            methods.append(Method.ATA_ENHANCED)
        methods.append(Method.ATA_SECURE)
    if entry.get("read_only") is not True:
        methods.append(Method.OVERWRITE)
    return tuple(methods)


def _sanitizes(ata: object) -> object:
    """Return the sanitize actions of an ATA drive; an older image does not list them."""
    return ata.get("sanitize") if isinstance(ata, Mapping) else None


def _capacity(nvme: object) -> int:
    """Return the bytes of a whole NVMe drive; 0 if they are not reported, or not credible."""
    capacity = _bits(nvme.get("capacity")) if isinstance(nvme, Mapping) else 0
    return capacity if capacity <= SIZE_MAX_BYTES else 0


def _bits(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0


def record_erasure(
    answer: object, disk: Disk, method: Method, started_at: float, ended_at: float
) -> ErasureRecord:
    """Return the record of erasing one disk. An answer about any other disk is `not_done`."""
    record = ErasureRecord(
        holder=Holder.DISK,
        device=disk.name,
        serial=disk.serial,
        model=disk.model,
        size_bytes=disk.size_bytes,
        method=method,
        result=Result.NOT_DONE,
        started_at=started_at,
        ended_at=ended_at,
    )
    if not isinstance(answer, Mapping):
        return record.model_copy(update={"detail": f"the agent's answer is {answer!r:.120}"})
    detail = strip_control_characters(answer.get("detail"), TEXT_MAX)
    identity = (answer.get("device"), str(answer.get("serial", "")).strip(), answer.get("method"))
    if identity != (disk.name, disk.serial, method.value):
        mismatch = f"the agent's answer is about {identity!r:.120}"
        return record.model_copy(update={"detail": mismatch})
    result = answer.get("result")
    if result not in tuple(Result):
        return record.model_copy(update={"detail": f"no result: {result!r:.60}; {detail}"})
    return record.model_copy(update={"result": Result(result), "detail": detail})


def step_result(answer: object) -> tuple[Result, str]:
    """Return the result and text of a step about the whole machine (the TPM)."""
    if isinstance(answer, Mapping) and answer.get("result") in tuple(Result):
        return Result(answer["result"]), strip_control_characters(answer.get("detail"), TEXT_MAX)
    return Result.NOT_DONE, f"the agent's answer is {answer!r:.120}"


def read_back(answer: object, node: str) -> ReadBack | Blocker:
    """Return the range of a `provisioner_read_disk` answer, or a blocker."""
    if isinstance(answer, Mapping):
        serial = answer.get("serial")
        digest = answer.get("sha256")
        offset = answer.get("offset")
        length = answer.get("bytes")
        if (
            isinstance(serial, str)
            and isinstance(digest, str)
            and _DIGEST.fullmatch(digest)
            and type(offset) is int
            and type(length) is int
        ):
            return ReadBack(serial=serial.strip(), offset=offset, length=length, sha256=digest)
    return make_malformed_blocker(
        node, f"its report of the data read back cannot be parsed: {answer!r:.120}"
    )


def strip_control_characters(value: object, size_max: int) -> str:
    """Return a device's text without terminal control characters; "" if it is no text."""
    if not isinstance(value, str):
        return ""
    return "".join(c if c.isprintable() else " " for c in value[:size_max]).strip()


def make_malformed_blocker(node: str, detail: str) -> Blocker:
    """Return the blocker for an agent's answer that cannot be parsed."""
    return Blocker(
        reason=Reason.MALFORMED,
        subject=f"{node}/agent",
        detail=strip_control_characters(detail, TEXT_MAX),
        unblock="Boot the maintenance image that the matrix pins; look at its log if it lasts.",
    )
