"""NVMe drives as wholes: all namespaces, attached or not, and the capacity that is in none.

A root user may shrink, add, detach and delete namespaces, so the visible one is no measure of the
drive. Field names are those of the NVM Express Base Specification 1.4, Identify Controller (figure
247) and Identify Namespace (figure 245); JSON as nvme-cli 2.3 prints it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from provisioner_hardware_manager.commands import Output, Run, encode_raw

OACS_SECURITY = 1 << 0  # Security Send and Receive
OACS_FORMAT = 1 << 1
OACS_NAMESPACES = 1 << 3  # Namespace Management and Attachment
FNA_FORMAT_ALL = 1 << 0  # a format of one namespace is one of all
FNA_ERASE_ALL = 1 << 1  # a secure erase of one namespace is one of all
FNA_CRYPTO = 1 << 2
NAMESPACES_MAX = 1024
DISCOVERY_BYTES = 2048
LOCKING_FEATURE = 2
ALL_NAMESPACES = "0xffffffff"
_CREATED = re.compile(r"created nsid:\s*(\d+)")
MANAGEMENT_S = 120.0


def read_drive(controller: str, serial: str, run: Run) -> dict[str, Any] | None:
    """Return the drive's abilities, capacity and namespaces; None if it does not answer.

    A controller with another serial than the namespace is another drive.
    """
    fields = _read_json(run("nvme", "id-ctrl", controller, "-o", "json"))
    if fields is None:
        return None
    own_serial = str(fields.get("sn") or "").strip()
    if own_serial and own_serial != serial:
        return None
    oacs = parse_whole(fields.get("oacs"))
    attached = _list_namespaces(controller, run)
    every = _list_namespaces(controller, run, "--all") if oacs & OACS_NAMESPACES else attached
    return {
        **{key: parse_whole(fields.get(key)) for key in ("sanicap", "oacs", "fna")},
        "capacity": parse_whole(fields.get("tnvmcap")),
        "unallocated": parse_whole(fields.get("unvmcap")),
        "controller_id": parse_whole(fields.get("cntlid")),
        "locked": _read_lock(controller, run) if oacs & OACS_SECURITY else None,
        "namespaces": None if every is None else sorted({*every, *(attached or ())}),
        "attached": attached,
    }


def has_full_namespace(drive: dict[str, Any]) -> bool:
    """Return whether the drive is one attached namespace, with no capacity outside of it."""
    namespaces = drive["namespaces"]
    return not drive["unallocated"] and namespaces == drive["attached"] and len(namespaces) == 1


def attach_all(controller: str, drive: dict[str, Any], run: Run) -> str:
    """Attach the namespaces that are not attached; return the failure, "" if there is none."""
    for namespace in sorted(set(drive["namespaces"]) - set(drive["attached"])):
        if failure := _attach(controller, namespace, drive, run):
            return failure
    return ""


def rebuild(controller: str, drive: dict[str, Any], run: Run) -> str:
    """Delete all namespaces and create one with the whole capacity.

    Return the failure, "" if there is none.
    """
    if not drive["oacs"] & OACS_NAMESPACES:
        return "the controller does not manage namespaces"
    block = _read_block_format(controller, drive["attached"], run)
    if drive["namespaces"]:
        selected = f"--namespace-id={ALL_NAMESPACES}"
        deleted = run("nvme", "delete-ns", controller, selected, timeout_s=MANAGEMENT_S)
        if not deleted.ok:
            return f"nvme delete-ns: {deleted.error or deleted.text}"
    fields = _read_json(run("nvme", "id-ctrl", controller, "-o", "json")) or {}
    flbas, block_bytes = block
    blocks = parse_whole(fields.get("unvmcap")) // block_bytes
    if not blocks:
        return "the controller reports no capacity after its namespaces were deleted"
    created = run(
        "nvme",
        "create-ns",
        controller,
        f"--nsze={blocks}",
        f"--ncap={blocks}",
        f"--flbas={flbas}",
        "--dps=0",
        timeout_s=MANAGEMENT_S,
    )
    number = _CREATED.search(created.text)
    if not created.ok or number is None:
        return f"nvme create-ns: {created.error or created.text}"
    return _attach(controller, int(number.group(1)), drive, run)


def _attach(controller: str, namespace: int, drive: dict[str, Any], run: Run) -> str:
    attached = run(
        "nvme",
        "attach-ns",
        controller,
        f"--namespace-id={namespace}",
        f"--controllers={drive['controller_id']}",
        timeout_s=MANAGEMENT_S,
    )
    if not attached.ok:
        return f"nvme attach-ns {namespace}: {attached.error or attached.text}"
    run("nvme", "ns-rescan", controller)
    run("udevadm", "settle", "--timeout=30")
    return ""


def _read_block_format(controller: str, attached: Sequence[int], run: Run) -> tuple[int, int]:
    """Return the format of a present namespace: its index, and the bytes of a block.

    FLBAS bits 3:0 select the format; LBADS is a power of two. For a drive without an attached
    namespace, the controller answers for all with its first format.
    """
    selected = str(attached[0]) if attached else ALL_NAMESPACES
    answer = run("nvme", "id-ns", controller, f"--namespace-id={selected}", "-o", "json")
    fields = _read_json(answer) or {}
    index = parse_whole(fields.get("flbas")) & 0xF
    formats = fields.get("lbafs")
    if isinstance(formats, list) and index < len(formats) and isinstance(formats[index], dict):
        shift = parse_whole(formats[index].get("ds"))
        if 9 <= shift <= 16:
            return index, 1 << shift
    return 0, 512


def _read_lock(controller: str, run: Run) -> bool | None:
    """Return whether a key locks a range of a self-encrypting drive; None if it does not say.

    TCG Storage Architecture Core Specification 2.01, 3.3.6 "Level 0 Discovery": after 48 bytes come
    descriptors of code (2 bytes), version, length, data; code 0002h is the locking feature, and bit
    2 of its first byte says that a range is locked.
    """
    options = ("--secp=1", "--spsp=1", f"--size={DISCOVERY_BYTES}", f"--al={DISCOVERY_BYTES}")
    answer = run("nvme", "security-recv", controller, *options, "--raw-binary")
    page = encode_raw(answer.text) if answer.ok else b""
    end = min(len(page), 4 + int.from_bytes(page[:4], "big"))
    place = 48
    while place + 4 < end:
        code = int.from_bytes(page[place : place + 2], "big")
        if code == LOCKING_FEATURE:
            return bool(page[place + 4] & 0b100)
        place += 4 + page[place + 3]
    return None


def _list_namespaces(controller: str, run: Run, *options: str) -> list[int] | None:
    """Return the ids of namespaces; None if the controller does not list them."""
    fields = _read_json(run("nvme", "list-ns", controller, *options, "-o", "json"))
    listed = fields.get("nsid_list") if fields is not None else None
    if not isinstance(listed, list) or len(listed) > NAMESPACES_MAX:
        return None
    numbers = {parse_whole(e.get("nsid")) for e in listed if isinstance(e, dict)}
    return sorted(numbers - {0})


def _read_json(answer: Output) -> dict[str, Any] | None:
    try:
        fields = json.loads(answer.text) if answer.ok else None
    except ValueError:
        return None
    return fields if isinstance(fields, dict) else None


def parse_whole(value: Any) -> int:
    """Return a non-negative whole number; 0 for anything else.

    nvme-cli prints 128-bit capacities as numbers, numbers with a fraction or text, by version.
    """
    if isinstance(value, str) and value.replace(",", "").isdigit():
        value = int(value.replace(",", ""))
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0
