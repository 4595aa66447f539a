"""Whether a node must be erased, by which methods, and whether the result is sufficient. Pure.

A device that is missing, unsupported, or without a record is *not sanitized*. No function here
turns an absent answer into a good one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from provisioner.model.erasure import (
    Disk,
    ErasurePolicy,
    ErasureRecord,
    ErasureReport,
    Holder,
    Method,
    Result,
)
from provisioner.model.inventory import DeviceKind, Inventory
from provisioner.model.node import Boots, Node, TenantData
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.certification.regression import STRANGER
from provisioner.settings import Settings

# ------------------------------------------------------------------------------
# Drives of a node that are neither the delivered nor the erased ones. Pure.
#
# A drive can be exchanged while a node waits for a tenant, without a boot and without a version
# that changes; its content is then unknown. So the serials of clean drives are stored with the
# node: those of its first reading, then those of each erasure. A drive that is not among them makes
# an erasure of the whole node necessary.


def list_drives(inventory: Inventory) -> tuple[str, ...]:
    """Return the serials of all drives that the BMC or the host's own system lists, sorted."""
    listed = {d.serial for d in inventory.devices_of(DeviceKind.STORAGE) if d.serial}
    return tuple(sorted(listed | set(inventory.drives)))


def list_erased(report: ErasureReport) -> tuple[str, ...]:
    """Return the serials of the drives that an erasure covered, sorted."""
    return tuple(sorted({d.serial for d in report.after} | set(report.expected)))


def find_strange_drives(known: tuple[str, ...] | None, inventory: Inventory) -> tuple[str, ...]:
    """Return the node's drives that are not among the clean ones, regardless of letter case.

    `known` None: the drives of this node were never recorded, so none is strange.
    """
    if known is None:
        return ()
    clean = {serial.strip().casefold() for serial in known}
    return tuple(s for s in list_drives(inventory) if s.strip().casefold() not in clean)


def describe_strange_drives(node: str, strange: tuple[str, ...]) -> Blocker:
    return Blocker(
        reason=Reason.NOT_SANITIZED,
        subject=node,
        detail=f"drive {', '.join(strange[:8])} was not there when it was erased or delivered",
        unblock="It is erased by itself in the maintenance network.",
    )


def owe_erasure(node: Node) -> Node:
    """Return the node as one that must be erased before it gets a tenant.

    A policy may skip the erasure of data of the tenant that the node returns to, but never that of
    a stranger, so the node is marked with a stranger's.
    """
    if node.served and node.served != node.tenant:
        return node
    owners = f"{node.served}, {STRANGER}" if node.served else STRANGER
    return node.model_copy(update={"served": owners})


def record_drives(node: Node, inventory: Inventory) -> Node:
    """Return the node with the drives of its first reading, or marked for a necessary erasure."""
    if node.drives is None:
        return node.model_copy(update={"drives": list_drives(inventory)})
    return owe_erasure(node) if find_strange_drives(node.drives, inventory) else node


# Best first. Sanitize also reaches spare and deallocated blocks and caches, unlike a format; a
# key change takes seconds, a block erase minutes, an overwrite hours.
LADDER = (
    Method.SANITIZE_CRYPTO,
    Method.SANITIZE_BLOCK,
    Method.FORMAT_CRYPTO,
    Method.FORMAT_USER_DATA,
    Method.SCSI_SANITIZE_CRYPTO,
    Method.SCSI_SANITIZE_BLOCK,
    Method.SCSI_SANITIZE_OVERWRITE,
    Method.ATA_SANITIZE_CRYPTO,
    Method.ATA_SANITIZE_BLOCK,
    Method.ATA_ENHANCED,
    Method.ATA_SANITIZE_OVERWRITE,
    Method.ATA_SECURE,
    Method.OVERWRITE,
)
PAYLOAD_TYPE = "application/vnd.provisioner.erasure+json"  # of a signed report
_UNBLOCK_DISK = "Replace the disk, or allow `erase_overwrite`; then retry the node."
# Named, not guessed: no published method is available that leaves the card's firmware unchanged.
NOT_OFFERED: Mapping[Holder, str] = {
    Holder.BLUEFIELD_STORAGE: "`erase_card_storage` is off",
    Holder.BIOS: "`erase_required` does not ask for `bios`",
    Holder.FIRMWARE: "`erase_rewrites` names nothing to write once more",
}


# Places that no method reaches: they are in the report with the reason, and block nothing.
BMC_SETTINGS = "those that no set pins are not reset: `erase_bmc_defaults` is off"


def policy_of(settings: Settings) -> ErasurePolicy:
    return ErasurePolicy(
        required=tuple(h for h in Holder if h.value in settings.erase_required.split()),
        overwrite=settings.erase_overwrite,
        bmc_defaults=settings.erase_bmc_defaults,
        rewrites=tuple(dict.fromkeys(settings.erase_rewrites.split())),
        card_storage=settings.erase_card_storage,
        same_tenant_may_skip=settings.erase_same_tenant_may_skip,
    )


def require_erasure(node: Node, policy: ErasurePolicy) -> tuple[Blocker, ...]:
    """Return why this node must be erased before it gets a tenant; () if it holds no tenant's
    data.

    A system without the daemon's login is written anew, so that it cannot be kept for its tenant.
    """
    kept = policy.same_tenant_may_skip or node.tenant_data is TenantData.KEEP
    returns = kept and node.tenant == node.served
    if not node.served or (returns and node.boots is Boots.SYSTEM):
        return ()
    return (
        Blocker(
            reason=Reason.NOT_SANITIZED,
            subject=node.id,
            detail=f"it served {node.served} and was not erased since",
            unblock="It is erased by itself in the maintenance network.",
        ),
    )


def list_methods(disk: Disk, policy: ErasurePolicy) -> tuple[Method, ...]:
    """Return the methods to try on one disk, best first."""
    allowed = [m for m in LADDER if m is not Method.OVERWRITE or policy.overwrite]
    return tuple(m for m in allowed if m in disk.methods)


def record_unsupported(disk: Disk) -> ErasureRecord:
    """Return the record of a disk that supports no method which the policy allows."""
    offered = ", ".join(disk.methods) or "nothing"
    return ErasureRecord(
        holder=Holder.DISK,
        device=disk.name,
        serial=disk.serial,
        model=disk.model,
        size_bytes=disk.size_bytes,
        result=Result.UNSUPPORTED,
        detail=f"it offers {offered}, and the policy allows none of it",
    )


def merge_tries(records: Sequence[ErasureRecord]) -> ErasureRecord:
    """Return one disk's record from its tries: the last one, with the earlier failures as text."""
    last = records[-1]
    before = [f"{r.method.value}: {r.detail or r.result.value}" for r in records[:-1]]
    parts = [w for w in (last.detail, f"before it: {'; '.join(before)}" if before else "") if w]
    changed = {"detail": "; ".join(parts)[:1000], "started_at": records[0].started_at}
    return last.model_copy(update=changed)


def find_disk_changes(before: Iterable[Disk], after: Iterable[Disk]) -> tuple[str, ...]:
    """The differences of two readings of a node's disks as sentences; () if there are none."""
    old = {d.identity: d for d in before}
    new = {d.identity: d for d in after}
    removed = [f"disk {d.serial} is no longer present" for k, d in old.items() if k not in new]
    came = [f"disk {d.serial} was not there before" for k, d in new.items() if k not in old]
    return tuple(sorted(removed) + sorted(came))


def find_missing_disks(report: ErasureReport) -> tuple[str, ...]:
    serials = {d.serial.casefold() for d in report.before}
    sentences = [
        f"the BMC lists drive {serial}, the agent does not see it"
        for serial in report.expected
        if serial.casefold() not in serials
    ]
    if report.expected_count and len(report.before) < report.expected_count:
        count = f"{len(report.before)} of {report.expected_count} disks of the profile were seen"
        sentences.append(count)
    if not report.before:
        sentences.append("the agent saw no disk at all")
    return tuple(sentences)


def list_unsanitized(report: ErasureReport, policy: ErasurePolicy) -> tuple[Blocker, ...]:
    """Return every reason why this report does not prove that the node is clean; () if it does."""
    blockers = [
        _no("disks", why, "Put the disk back, or correct the profile.")
        for why in find_missing_disks(report)
    ]
    moved = "Look at the node: its disks changed while it was erased."
    blockers += [_no("disks", why, moved) for why in find_disk_changes(report.before, report.after)]
    records = {r.serial: r for r in report.select_records(Holder.DISK)}
    for disk in report.before:
        record = records.get(disk.serial)
        if record is None:
            blockers.append(_no(f"disk/{disk.serial}", "it has no record", "Retry the node."))
        elif record.result is not Result.DONE:
            detail = f"{record.result.value} by {record.method.value}: {record.detail}"
            blockers.append(_no(f"disk/{disk.serial}", detail, _UNBLOCK_DISK))
    for holder in policy.required:
        if holder is not Holder.DISK:
            blockers += _holder(report, holder)
    return tuple(b.model_copy(update={"subject": f"{report.node}/{b.subject}"}) for b in blockers)


def _holder(report: ErasureReport, holder: Holder) -> list[Blocker]:
    records = report.select_records(holder)
    unblock = f"Erase it by hand, or take {holder.value} out of `erase_required`."
    if not records:
        return [_no(holder.value, "it has no record", unblock)]
    return [
        _no(f"{holder.value}/{r.device}", f"{r.result.value}: {r.detail}", unblock)
        for r in records
        if r.result is not Result.DONE and not _blocks_nothing(r)
    ]


def _blocks_nothing(record: ErasureRecord) -> bool:
    """Return whether there is nothing to compare, or it is a card's Secure Boot: recorded cards
    come in setup mode, and show no keys of their factory.
    """
    if record.holder is Holder.SECURE_BOOT and not record.device.startswith("host "):
        return True
    compared = (Holder.BMC, Holder.SECURE_BOOT)
    return record.holder in compared and record.result is Result.UNSUPPORTED


def _no(subject: str, detail: str, unblock: str) -> Blocker:
    return Blocker(reason=Reason.NOT_SANITIZED, subject=subject, detail=detail, unblock=unblock)


def record_memory(
    holder: Holder, device: str, off_at: float, on_at: float, wanted_s: float
) -> ErasureRecord:
    """Return the record of volatile memory: done if the power was observed off for long enough.

    DRAM at room temperature keeps no data after 2.5 to 35 seconds without power (Halderman et al.,
    "Lest We Remember", USENIX Security 2008); the setting has a margin over that.
    """
    off_s = on_at - off_at
    long_enough = off_at > 0 and off_s >= wanted_s
    observation = (
        f"host power was seen off for {off_s:.0f} s" if off_at > 0 else "power was not seen off"
    )
    return ErasureRecord(
        holder=holder,
        device=device,
        method=Method.POWER_REMOVED if long_enough else Method.NONE,
        result=Result.DONE if long_enough else Result.NOT_DONE,
        detail=f"{observation}; {wanted_s:.0f} s are asked for",
        started_at=off_at,
        ended_at=on_at,
    )


def not_done(holder: Holder, device: str, why: str, now: float) -> ErasureRecord:
    """Return the record of a device that was not erased."""
    return ErasureRecord(
        holder=holder,
        device=device,
        result=Result.NOT_DONE,
        detail=why,
        started_at=now,
        ended_at=now,
    )


def list_unreached(bmcs: Sequence[str], now: float, policy: ErasurePolicy) -> list[ErasureRecord]:
    """Return a record of each place that no method reaches under this policy."""
    names = bmcs if policy.bmc_defaults == "off" else ()
    places = [(Holder.BMC, f"{name} settings", BMC_SETTINGS) for name in names]
    return [
        not_done(holder, device, why, now).model_copy(update={"result": Result.UNSUPPORTED})
        for holder, device, why in places
    ]


def render_certificate(report: ErasureReport) -> str:
    """Return the report with its verdict as canonical JSON, which is signed and handed out."""
    blockers = list_unsanitized(report, report.policy)
    document = {
        "sanitized": not blockers,
        "blockers": [b.model_dump(mode="json") for b in blockers],
        "report": report.model_dump(mode="json"),
    }
    return json.dumps(document, sort_keys=True, separators=(",", ":"))


def certificate_text(report: ErasureReport) -> str:
    """Return the report for a person: one line for each device."""
    blockers = list_unsanitized(report, report.policy)
    verdict = "SANITIZED" if not blockers else "NOT SANITIZED"
    subject = f"node {report.node} ({report.system_serial or 'no serial'})"
    lines = [f"{verdict}: {subject}, last tenant {report.tenant}", ""]
    for r in sorted(report.records, key=lambda r: (list(Holder).index(r.holder), r.device)):
        name = " ".join(w for w in (r.device, r.serial, r.model) if w)
        lines.append(
            f"{r.holder.value:18} {name:48} {r.method.value:24} {r.result.value:12} {r.detail}"
        )
    lines += ["", *(f"not sanitized: {b.subject}: {b.detail}" for b in blockers)]
    return "\n".join(lines).rstrip() + "\n"
