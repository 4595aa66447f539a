"""The decision whether a node is certified, the certificate, and its later validity.

A certificate records the parts and versions that were installed when the checks ran. A later
difference is drift, and drift invalidates it. The store signs certificates; no function here reads
a clock.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Sequence
from math import floor

from provisioner import checks
from provisioner.checks.check import Check
from provisioner.model.certificate import GATE_NAMES, Certificate, GateProof
from provisioner.model.cohort import CheckResult, Finding, Gate, HealthReport, Severity, Verdict
from provisioner.model.inventory import Inventory
from provisioner.model.node import Node, NodeKind, Placement, State
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.plan import Plan
from provisioner.planning.certification.attested_state import NOT_REQUIRED

# ------------------------------------------------------------------------------
# The gates that a certificate proves, and whether they are enough for a release. Pure.
#
# A gate is proved completely or not at all. A node that was tested in part, because only a part had
# changed, keeps the earlier proof with its date; a change that concerns the gate and was not tested
# ends the proof.


DAY_S = 86400.0


def list_proofs(
    certificate_id: str,
    report: HealthReport,
    kind: NodeKind,
    *,
    catalogue: Sequence[Check],
    last: Certificate | None,
    keeps: Collection[Gate],
    now: float,
) -> tuple[GateProof, ...]:
    """Return the gates of a certificate whose report has only passes.

    `keeps`: gates of which the last certificate's proof remains valid (`Selection.keeps`).
    """
    passed = {r.check for r in report.results}
    earlier = {g.gate: g for g in last.gates} if last is not None else {}
    proofs = []
    for gate in Gate:
        whole = {c.name for c in catalogue if (c.kind, c.gate) == (kind, gate) and not c.on_request}
        if gate is Gate.C:  # it is selected and run as a whole, by a session
            now_proved = any(r.gate is gate for r in report.results)
        else:
            now_proved = bool(whole) and whole <= passed
        if now_proved:
            at = float(floor(now))
            proofs.append(GateProof(gate=gate, certificate=certificate_id, proved_at=at))
        elif gate in keeps and gate in earlier:
            proofs.append(earlier[gate])
    return tuple(proofs)


def count_days_since_proof(last: Certificate | None, now: float) -> dict[Gate, float] | None:
    """Return gate -> days since it was proved; None without a certificate."""
    if last is None:
        return None
    return {g.gate: max(0.0, now - g.proved_at) / DAY_S for g in last.gates}


def find_unproved_gates(certificate: Certificate, demanded: str) -> tuple[Blocker, ...]:
    """Why a certificate is not enough for a release that demands these gates; () if it is."""
    lacking = [g for g in Gate if g.value in demanded and g.value not in certificate.proved]
    if not lacking:
        return ()
    named = ", ".join(f"{g.value} ({GATE_NAMES[g]})" for g in lacking)
    return (
        Blocker(
            reason=Reason.CERTIFICATE_INVALID,
            subject=f"{certificate.node}/gates",
            detail=f"a release demands gate {named}, and its certificate proves"
            f" {certificate.proved or 'none'}",
            unblock="It is tested and certified again automatically; `release_gates` lists the"
            " demanded gates.",
        ),
    )


REPORT_AGE_MAX_S = 24 * 3600.0  # older results say little about a machine that kept running
# A daemon's clock may be set back a little between the checks and their judgement.
REPORT_AHEAD_MAX_S = 60.0
BLOCKERS_MAX = 20  # a person reads the first ones; the report has all

_REMEDY = {
    Severity.CONFIG: "Repair the host's configuration and run the checks again.",
    Severity.MONITOR: "Look at it, then run the checks again.",
    Severity.RESET_GPU: "Reset the GPU and run the checks again.",
    Severity.RESTART: "Restart the host and run the checks again.",
    Severity.POWER_CYCLE: "Cycle the node's power and run the checks again.",
    Severity.ISOLATE: "Open a repair case: the part is a candidate for return.",
}
_WORST = list(Severity)  # ascending
_SINCE = ("memory/", "storage/", "psu/")  # kinds of parts that earlier releases did not read
_VERSIONS_SINCE = ("host.kernel/",)  # kinds that earlier releases did not read
_NOTHING = "nothing"  # in place of a version that the device does not report


def list_serials(inventory: Inventory) -> tuple[str, ...]:
    """Return every serial of the system and its devices as "kind/slot=serial", sorted."""
    labels = {f"{d.kind.value}/{d.slot}={d.serial}" for d in inventory.devices if d.serial}
    if inventory.system_serial:
        labels.add(f"system={inventory.system_serial}")
    return tuple(sorted(labels))


def list_versions(inventory: Inventory) -> tuple[tuple[str, str], ...]:
    """The version vector: (kind/slot, running version), sorted; "" where none is readable."""
    return tuple(sorted((f"{c.kind}/{c.slot}", c.version or "") for c in inventory.components))


def identify_installation(inventory: Inventory) -> str:
    """The digest that a report is bound to: parts, running versions and boot, but not power."""
    content = [list_serials(inventory), list_versions(inventory), inventory.boot_id or ""]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def is_current_report(report: HealthReport, inventory: Inventory, node: Node) -> bool:
    """Return whether a report is of this node, its present parts, versions and boot, and this stay.

    A report from before the node entered its state is of an earlier stay: after a remedy, failed
    checks run again even if the remedy left no trace in the inventory.
    """
    return (
        report.node == node.id
        and report.inventory_digest == identify_installation(inventory)
        and (node.state is not State.VALIDATING or report.started_at >= node.entered_at)
    )


def find_blockers(
    *,
    node: Node,
    inventory: Inventory,
    plan: Plan,
    report: HealthReport,
    now: float,
    demanded: Collection[str] | None = None,
    proofs: Collection[str] = (),
) -> tuple[Blocker, ...]:
    """Return every reason why no certificate may be issued; () if one may.

    `demanded`: checks that the changes require; None: those of every validation. `proofs`: checks
    of signed evidence that the profile requires, whatever changed.
    """
    reasons = [*_failed(report), *plan.blockers, *_unplanned(node, plan)]
    if report.node != node.id or report.inventory_digest != identify_installation(inventory):
        reasons.append(
            _blocker(
                Reason.DRIFT,
                node.id,
                "installed parts, versions or the boot differ from those that were checked",
                "The checks run again automatically.",
            )
        )
    reasons += _dated(node, report, now)
    reasons += _missing(node, report, demanded, set(proofs))
    if node.kind is NodeKind.HOST:
        reasons += _host(node, inventory)
    return tuple(reasons[:BLOCKERS_MAX])


def _dated(node: Node, report: HealthReport, now: float) -> list[Blocker]:
    age_s = now - report.ended_at
    if age_s > REPORT_AGE_MAX_S:
        detail = f"the checks are older than {REPORT_AGE_MAX_S / 3600:.0f} hours"
        return [_blocker(Reason.CHECK_SKIPPED, node.id, detail, "Run the checks again.")]
    if age_s < -REPORT_AHEAD_MAX_S:
        detail = f"the checks are dated {-age_s:.0f} s in the future: a clock was wrong"
        remedy = "Set the daemon's clock by NTP, then run the checks again."
        return [_blocker(Reason.CHECK_SKIPPED, node.id, detail, remedy)]
    return []


def issue_certificate(
    *,
    certificate_id: str,
    node: Node,
    inventory: Inventory,
    report: HealthReport,
    matrix_digest: str,
    now: float,
    valid_s: float,
    gates: tuple[GateProof, ...] = (),
    attestation: str = NOT_REQUIRED,
) -> Certificate:
    """Return the unsigned certificate of a node without blockers.

    `attestation`: what `attested_state.describe_attestation` says about signed measurements.
    """
    return Certificate(
        id=certificate_id,
        node=node.id,
        release=node.release,
        profile=node.profile,
        serials=list_serials(inventory),
        versions=list_versions(inventory),
        boot_id=inventory.boot_id or "",
        location=str(node.location),
        ports=_ports(node),
        report_digest=report.digest(),
        matrix_digest=matrix_digest,
        checks=tuple(sorted(r.check for r in report.results)),
        evidence=tuple(sorted({r.evidence for r in report.results if r.evidence})),
        gates=gates,
        attestation=attestation,
        issued_at=floor(now),
        expires_at=floor(now + valid_s),
    )


def find_invalidity(
    *,
    certificate: Certificate,
    inventory: Inventory,
    node: Node,
    signed: bool,
    revoked: bool,
    now: float,
    absence_counts: bool = True,
) -> tuple[Blocker, ...]:
    """Return every reason why a certificate is not valid for the present inventory; () if it is.

    `absence_counts`: False leaves missing parts and versions to the watch, which reads twice before
    it reports them as a fault (`case_joining.py`). The boot counts until release, because every
    boot loses the run-time settings of NICs. A tenant may reboot its nodes.
    """
    reasons = []
    if not signed:
        reasons.append(_invalid(Reason.CERTIFICATE_INVALID, node.id, "no key of ours signed it"))
    if revoked:
        reasons.append(_invalid(Reason.CERTIFICATE_INVALID, node.id, "it was revoked"))
    if certificate.node != node.id:
        reasons.append(_invalid(Reason.CERTIFICATE_INVALID, node.id, "it is another node's"))
    reasons += find_expiry(certificate, now)
    if now < certificate.issued_at:
        reasons.append(_invalid(Reason.CERTIFICATE_INVALID, node.id, "it is from the future"))
    reasons += [
        _invalid(Reason.DRIFT, name, f"{had or 'nothing'} was certified, now it is {now_is}")
        for name, had, now_is in _changes(
            dict(certificate.versions), dict(list_versions(inventory))
        )
        if absence_counts or now_is != _NOTHING
    ]
    missing_parts = sorted(set(certificate.serials) - set(list_serials(inventory)))
    new_parts = sorted(set(list_serials(inventory)) - set(certificate.serials))
    if not any(s.startswith(_SINCE) for s in certificate.serials):
        # of an earlier release, which read none of them; its drives are in the node's record
        new_parts = [name for name in new_parts if not name.startswith(_SINCE)]
    if absence_counts:
        reasons += [
            _invalid(Reason.DRIFT, name, "this part is no longer present") for name in missing_parts
        ]
    reasons += [_invalid(Reason.DRIFT, name, "this part was not certified") for name in new_parts]
    if certificate.ports != _ports(node) or certificate.location != str(node.location):
        reasons.append(_invalid(Reason.DRIFT, node.id, "its place or its ports have changed"))
    released = node.state in (State.RELEASED, State.DRAINING)
    if not released and certificate.boot_id != (inventory.boot_id or ""):
        reasons.append(_invalid(Reason.DRIFT, node.id, "it was booted since"))
    if (certificate.release, certificate.profile) != (node.release, node.profile):
        reasons.append(_invalid(Reason.DRIFT, node.id, "it is to run another release now"))
    return tuple(reasons[:BLOCKERS_MAX])


def find_expiry(certificate: Certificate, now: float) -> tuple[Blocker, ...]:
    if now < certificate.expires_at:
        return ()
    return (_invalid(Reason.CERTIFICATE_EXPIRED, certificate.node, "its time is over"),)


def list_causes(blockers: Sequence[Blocker]) -> tuple[Blocker, ...]:
    """Return what people read about a certificate: that it was revoked is our own doing, and the
    cause comes before it.
    """
    causes = tuple(b for b in blockers if b.reason is not Reason.CERTIFICATE_INVALID)
    return causes or tuple(blockers)


def is_lost(blockers: Sequence[Blocker]) -> bool:
    """Return whether the certificate's statement no longer holds; a failed check is an alert here.

    Expiry is judged at every evaluation and is no reason to revoke: a clock that was wrong for a
    moment would otherwise invalidate every certificate permanently.
    """
    losing = (Reason.DRIFT, Reason.CHECK_FAILED)
    return any(b.reason in losing for b in blockers)


def _changes(had: dict[str, str], has: dict[str, str]) -> list[tuple[str, str, str]]:
    names = sorted(set(had) | set(has))
    added = {n for n in names if n not in had and n.startswith(_VERSIONS_SINCE)}
    return [
        (n, had.get(n, ""), has.get(n) or _NOTHING)
        for n in names
        if had.get(n) != has.get(n) and n not in added
    ]


def _ports(node: Node) -> tuple[str, ...]:
    return tuple(sorted(f"{p.switch}/{p.interface}" for p in node.ports))


def _failed(report: HealthReport) -> list[Blocker]:
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
    text = f"{finding.part}: {finding.detail}"
    if finding.measured:
        text += f": {finding.measured}"
    if finding.wanted:
        text += f" (wanted: {finding.wanted})"
    return text + (f"; and {len(findings) - 1} more" if len(findings) > 1 else "")


def _missing(
    node: Node, report: HealthReport, demanded: Collection[str] | None, more: set[str]
) -> list[Blocker]:
    """Return blockers for required checks without a result."""
    judged = {r.check for r in report.results}
    names = checks.list_standard_checks(node.kind) if demanded is None else set(demanded)
    required = names | set(report.selected) | more  # every check that was begun must have passed
    return [
        _blocker(Reason.CHECK_SKIPPED, name, "it was not run", "Run the checks again.")
        for name in checks.list_required_results(node.kind, required)
        if name not in judged
    ]


def _unplanned(node: Node, plan: Plan) -> list[Blocker]:
    if not plan.steps and not plan.in_flight:
        return []
    next_work = plan.steps[0].title if plan.steps else plan.in_flight[0]
    return [
        _blocker(
            Reason.DRIFT, node.id, f"not at its pins: {next_work}", "It is converged automatically."
        )
    ]


def _host(node: Node, inventory: Inventory) -> list[Blocker]:
    reasons = []
    if node.served and node.served != node.tenant:
        detail = f"it served {node.served} and was not erased since"
        unblock = "It is erased automatically in the maintenance network."
        reasons.append(_blocker(Reason.NOT_SANITIZED, node.id, detail, unblock))
    if node.placement is not Placement.MAINTENANCE:
        reasons.append(
            _blocker(Reason.ISOLATION, node.id, "it is not proved to be fenced", "Fence it first.")
        )
    if not inventory.boot_id:
        reasons.append(
            _blocker(
                Reason.VERSION_MISSING,
                node.id,
                "its boot id is not readable",
                "Look at the host: it must answer in-band.",
            )
        )
    if not list_serials(inventory):
        reasons.append(
            _blocker(
                Reason.VERSION_MISSING,
                node.id,
                "no part of it reports a serial: a swap could not be detected",
                "Read its inventory again, or replace the part that hides its serial.",
            )
        )
    return reasons


def _invalid(reason: Reason, subject: str, detail: str) -> Blocker:
    unblock = "The node is converged and checked again automatically."
    return _blocker(reason, subject, detail, unblock)


def _blocker(reason: Reason, subject: str, detail: str, unblock: str) -> Blocker:
    return Blocker(reason=reason, subject=subject, detail=detail, unblock=unblock)
