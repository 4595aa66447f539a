"""May this node be given to a customer? Every reason why not; the certificate; whether it holds.

Rule: a certificate says what was installed when the checks ran. Whatever differs afterwards is
drift, and drift ends it. Signing is the store's; nothing here reads a clock.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Sequence
from math import floor

from provisioner import checks
from provisioner.model.certificate import Certificate, GateProof
from provisioner.model.health import CheckResult, Finding, HealthReport, Severity, Verdict
from provisioner.model.inventory import Inventory
from provisioner.model.node import Node, NodeKind, Placement, State
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.plan import Plan

REPORT_AGE_MAX_S = 24 * 3600.0  # older results say little of a machine that went on running
# A daemon's clock may be set back a little between the checks and their judgement.
REPORT_AHEAD_MAX_S = 60.0
BLOCKERS_MAX = 20  # a person reads the first; the report has all

_REMEDY = {
    Severity.CONFIG: "Repair the host's configuration and run the checks again.",
    Severity.MONITOR: "Look at it, then run the checks again.",
    Severity.RESET_GPU: "Reset the GPU and run the checks again.",
    Severity.RESTART: "Restart the host and run the checks again.",
    Severity.POWER_CYCLE: "Cycle the node's power and run the checks again.",
    Severity.ISOLATE: "Open a repair case: the part is a candidate for return.",
}
_WORST = list(Severity)  # ascending
_SINCE = ("memory/", "storage/", "psu/")  # parts that earlier releases did not read
_NOTHING = "nothing"  # instead of a version that is not shown


def serials(inventory: Inventory) -> tuple[str, ...]:
    """Every serial of the system and its devices, sorted, each with what it is of."""
    found = {f"{d.kind.value}/{d.slot}={d.serial}" for d in inventory.devices if d.serial}
    if inventory.system_serial:
        found.add(f"system={inventory.system_serial}")
    return tuple(sorted(found))


def versions(inventory: Inventory) -> tuple[tuple[str, str], ...]:
    """The version vector: (kind/slot, running version), sorted; "" where none is readable."""
    return tuple(sorted((f"{c.kind}/{c.slot}", c.version or "") for c in inventory.components))


def identity(inventory: Inventory) -> str:
    """Digest of what a report is bound to: parts, running versions, boot. Power is not in it."""
    content = [serials(inventory), versions(inventory), inventory.boot_id or ""]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def judges(report: HealthReport, inventory: Inventory, node: Node) -> bool:
    """Whether a report is of this node, its present parts, versions and boot, and of this stay.

    A report from before the node entered its state is of an earlier stay: what failed then is
    looked at again after a remedy, also if the remedy left no trace in the inventory.
    """
    return (
        report.node == node.id
        and report.inventory_digest == identity(inventory)
        and (node.state is not State.VALIDATING or report.started_at >= node.entered_at)
    )


def blockers(
    *,
    node: Node,
    inventory: Inventory,
    plan: Plan,
    report: HealthReport,
    now: float,
    demanded: Collection[str] | None = None,
) -> tuple[Blocker, ...]:
    """Every reason why no certificate may be issued; () if one may.

    `demanded`: checks that what changed asks for; None: those of every validation.
    """
    found = [*_failed(report), *plan.blockers, *_unplanned(node, plan)]
    if report.node != node.id or report.inventory_digest != identity(inventory):
        found.append(
            _blocker(
                Reason.DRIFT,
                node.id,
                "what is installed, or its boot, is not what the checks judged",
                "The checks are run again by themselves.",
            )
        )
    found += _dated(node, report, now)
    found += _missing(node, report, demanded)
    if node.kind is NodeKind.HOST:
        found += _host(node, inventory)
    return tuple(found[:BLOCKERS_MAX])


def _dated(node: Node, report: HealthReport, now: float) -> list[Blocker]:
    """Return what is wrong with the time of a report."""
    age_s = now - report.ended_at
    if age_s > REPORT_AGE_MAX_S:
        detail = f"the checks are older than {REPORT_AGE_MAX_S / 3600:.0f} hours"
        return [_blocker(Reason.CHECK_SKIPPED, node.id, detail, "Run the checks again.")]
    if age_s < -REPORT_AHEAD_MAX_S:
        detail = f"the checks are dated {-age_s:.0f} s in the future: a clock was wrong"
        remedy = "Set the daemon's clock by NTP, then run the checks again."
        return [_blocker(Reason.CHECK_SKIPPED, node.id, detail, remedy)]
    return []


def issue(
    *,
    certificate_id: str,
    node: Node,
    inventory: Inventory,
    report: HealthReport,
    matrix_digest: str,
    now: float,
    valid_s: float,
    gates: tuple[GateProof, ...] = (),
) -> Certificate:
    """The unsigned certificate of a node without blockers."""
    return Certificate(
        id=certificate_id,
        node=node.id,
        release=node.release,
        profile=node.profile,
        serials=serials(inventory),
        versions=versions(inventory),
        boot_id=inventory.boot_id or "",
        location=str(node.location),
        ports=_ports(node),
        report_digest=report.digest(),
        matrix_digest=matrix_digest,
        checks=tuple(sorted(r.check for r in report.results)),
        evidence=tuple(sorted({r.evidence for r in report.results if r.evidence})),
        gates=gates,
        issued_at=floor(now),
        expires_at=floor(now + valid_s),
    )


def validity(
    *,
    certificate: Certificate,
    inventory: Inventory,
    node: Node,
    signed: bool,
    revoked: bool,
    now: float,
    absence_counts: bool = True,
) -> tuple[Blocker, ...]:
    """Every reason why a certificate does not hold for what is installed now; () if it does.

    `absence_counts`: False leaves parts and versions that are not shown now to the watch, which
    looks twice and reports them as a fault (`lost_parts.py`).

    The boot is part of it until release: run-time settings of NICs are lost at every boot. A
    tenant may reboot what it was given.
    """
    found = []
    if not signed:
        found.append(_invalid(Reason.CERTIFICATE_INVALID, node.id, "no key of ours signed it"))
    if revoked:
        found.append(_invalid(Reason.CERTIFICATE_INVALID, node.id, "it was revoked"))
    if certificate.node != node.id:
        found.append(_invalid(Reason.CERTIFICATE_INVALID, node.id, "it is another node's"))
    found += expired(certificate, now)
    if now < certificate.issued_at:
        found.append(_invalid(Reason.CERTIFICATE_INVALID, node.id, "it is from the future"))
    found += [
        _invalid(Reason.DRIFT, name, f"{had or 'nothing'} was certified, now it is {now_is}")
        for name, had, now_is in _changes(dict(certificate.versions), dict(versions(inventory)))
        if absence_counts or now_is != _NOTHING
    ]
    gone = sorted(set(certificate.serials) - set(serials(inventory)))
    new = sorted(set(serials(inventory)) - set(certificate.serials))
    if not any(s.startswith(_SINCE) for s in certificate.serials):
        # of an earlier release, which read none of them; its drives are in the node's record
        new = [name for name in new if not name.startswith(_SINCE)]
    if absence_counts:
        found += [_invalid(Reason.DRIFT, name, "this part is not there any more") for name in gone]
    found += [_invalid(Reason.DRIFT, name, "this part was not certified") for name in new]
    if certificate.ports != _ports(node) or certificate.location != str(node.location):
        found.append(_invalid(Reason.DRIFT, node.id, "its place or its ports have changed"))
    released = node.state in (State.RELEASED, State.DRAINING)
    if not released and certificate.boot_id != (inventory.boot_id or ""):
        found.append(_invalid(Reason.DRIFT, node.id, "it was booted since"))
    if (certificate.release, certificate.profile) != (node.release, node.profile):
        found.append(_invalid(Reason.DRIFT, node.id, "it is to run another release now"))
    return tuple(found[:BLOCKERS_MAX])


def expired(certificate: Certificate, now: float) -> tuple[Blocker, ...]:
    """That its evidence is too old to be believed; () if it is not."""
    if now < certificate.expires_at:
        return ()
    return (_invalid(Reason.CERTIFICATE_EXPIRED, certificate.node, "its time is over"),)


def lost(blockers: Sequence[Blocker]) -> bool:
    """Whether what a certificate says is not so any more; a failed check is an alert here.

    That its time is over is judged at each look, and no reason to revoke it: a clock that was wrong
    for a moment would end every certificate for good.
    """
    losing = (Reason.DRIFT, Reason.CHECK_FAILED)
    return any(b.reason in losing for b in blockers)


def _changes(had: dict[str, str], has: dict[str, str]) -> list[tuple[str, str, str]]:
    names = sorted(set(had) | set(has))
    return [(n, had.get(n, ""), has.get(n) or _NOTHING) for n in names if had.get(n) != has.get(n)]


def _ports(node: Node) -> tuple[str, ...]:
    return tuple(sorted(f"{p.switch}/{p.interface}" for p in node.ports))


def _failed(report: HealthReport) -> list[Blocker]:
    """One blocker for each check that failed, then for each that was skipped."""
    failed = [r for r in report.results if r.verdict is Verdict.FAIL]
    skipped = [r for r in report.results if r.verdict is Verdict.SKIPPED]
    return [_of(r, Reason.CHECK_FAILED) for r in failed] + [
        _of(r, Reason.CHECK_SKIPPED) for r in skipped
    ]


def _of(result: CheckResult, reason: Reason) -> Blocker:
    if not result.findings:
        return _blocker(reason, result.check, "it gave no reason", "Run the checks again.")
    worst = max(result.findings, key=lambda f: _WORST.index(f.severity))
    return _blocker(
        reason, result.check, _sentence(worst, result.findings), _REMEDY[worst.severity]
    )


def _sentence(finding: Finding, findings: Sequence[Finding]) -> str:
    words = f"{finding.part}: {finding.detail}"
    if finding.measured:
        words += f": {finding.measured}"
    if finding.wanted:
        words += f" (wanted: {finding.wanted})"
    return words + (f"; and {len(findings) - 1} more" if len(findings) > 1 else "")


def _missing(node: Node, report: HealthReport, demanded: Collection[str] | None) -> list[Blocker]:
    """Checks that must have a result and have none."""
    judged = {r.check for r in report.results}
    names = checks.plain(node.kind) if demanded is None else set(demanded)
    wanted = names | set(report.selected)  # whatever was begun must have ended well
    return [
        _blocker(Reason.CHECK_SKIPPED, name, "it was not run", "Run the checks again.")
        for name in checks.required(node.kind, wanted)
        if name not in judged
    ]


def _unplanned(node: Node, plan: Plan) -> list[Blocker]:
    if not plan.steps and not plan.in_flight:
        return []
    what = plan.steps[0].title if plan.steps else plan.in_flight[0]
    return [
        _blocker(Reason.DRIFT, node.id, f"not at its pins: {what}", "It is converged by itself.")
    ]


def _host(node: Node, inventory: Inventory) -> list[Blocker]:
    found = []
    if node.served and node.served != node.tenant:
        detail = f"it served {node.served} and was not erased since"
        unblock = "It is erased by itself in the maintenance network."
        found.append(_blocker(Reason.NOT_SANITIZED, node.id, detail, unblock))
    if node.placement is not Placement.MAINTENANCE:
        found.append(
            _blocker(Reason.ISOLATION, node.id, "it is not proved to be fenced", "Fence it first.")
        )
    if not inventory.boot_id:
        found.append(
            _blocker(
                Reason.VERSION_MISSING,
                node.id,
                "its boot id is not readable",
                "Look at the host: it must answer in-band.",
            )
        )
    if not serials(inventory):
        found.append(
            _blocker(
                Reason.VERSION_MISSING,
                node.id,
                "no part of it gives a serial: a swap could not be seen",
                "Read its inventory again, or replace the part that hides it.",
            )
        )
    return found


def _invalid(reason: Reason, subject: str, detail: str) -> Blocker:
    return _blocker(reason, subject, detail, "The node is converged and checked again by itself.")


def _blocker(reason: Reason, subject: str, detail: str, unblock: str) -> Blocker:
    return Blocker(reason=reason, subject=subject, detail=detail, unblock=unblock)
