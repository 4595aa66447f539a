"""How a further report joins the open case of a node. Pure.

A node has one open case at most, so a second fault is recorded in the case of the first. Its report
can only make the service stricter (`keep`, then `drain`, then `cut_off`), and does so at once: the
time at which the node is taken back moves forward, never backward. A weaker report changes nothing
but the record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

from provisioner.checks.check import Check
from provisioner.model.alert import Alert, Classification
from provisioner.model.base import Record
from provisioner.model.case import (
    Case,
    Ending,
    JoinedReport,
    Origin,
    RemedyKind,
    RemedyOutcome,
    Service,
    Stage,
    TenantNotice,
)
from provisioner.model.certificate import Certificate
from provisioner.model.cohort import Gate
from provisioner.model.inventory import DeviceKind, Inventory, Power
from provisioner.model.node import Node, State
from provisioner.model.outcome import Reason
from provisioner.planning.certification.certification import list_serials, list_versions
from provisioner.planning.certification.check_selection import (
    Change,
    FaultRecord,
    Selection,
    SelectionPolicy,
    select_checks,
)
from provisioner.planning.repair.case_policy import (
    WORDS_MAX,
    CasePolicy,
    is_planned,
    make_notice,
    opening_alerts,
    service_for,
)
from provisioner.planning.watch.watch_rules import ITEMS_MAX, Found

# ------------------------------------------------------------------------------
# Certified parts that a serving node no longer reports. Pure.
#
# A part that vanishes from a node is a fault of the node, in contrast to a version that a
# controller does not report for a moment. So absence counts only where the BMC answered completely
# while the host was on, and only if a second reading, at least `CONFIRM_S` later, has the same
# result.


# Ours: the restart of a baseboard's management controller takes 2 to 4 minutes, in which it lists
# its parts one after the other (docs/sources/redfish.md#silence).
CONFIRM_S = 300.0
# parts that only the host's BMC reports; cards with a BMC of their own are listed by that one
_OF_HOST = frozenset(
    {
        DeviceKind.BASEBOARD,
        DeviceKind.GPU,
        DeviceKind.NVSWITCH,
        DeviceKind.CPU,
        DeviceKind.MEMORY,
        DeviceKind.STORAGE,
    }
)
# gaps of an absent resource or of a single value; any other gap may hide a part
_NO_HOLES = frozenset({Reason.NOT_OFFERED, Reason.VERSION_MISSING, Reason.UNKNOWN_VENDOR})
# components whose absence in a list of versions implies that their part is absent
_PARTS_OF = {"hgx.gpu": "gpu", "hgx.nvswitch": "nvswitch"}


def is_whole(seen: Inventory) -> bool:
    """Return whether this answer of a BMC can prove that a part is absent."""
    return seen.power is Power.ON and all(g.reason in _NO_HOLES for g in seen.gaps)


def may_have_lost(certificate: Certificate, seen: Inventory) -> bool:
    """Return whether a list of versions lacks an entry that only a missing part explains.

    It is cheap, and asks for the parts to be read; it proves nothing.
    """
    listed = {name for name, _ in list_versions(seen)}
    certified = (name for name, version in certificate.versions if version)
    return any(n.partition("/")[0] in _PARTS_OF and n not in listed for n in certified)


def find_lost(certificate: Certificate, seen: Inventory) -> frozenset[str]:
    """Return the certified parts ("gpu/GPU_SXM_5=serial") that the BMC of the host lacks.

    A part in another slot, or one that is there without its serial, is not lost.
    """
    serials = {part.partition("=")[2] for part in list_serials(seen)}
    slots = {f"{d.kind.value}/{d.slot}" for d in seen.devices}
    lost = set()
    for part in certificate.serials:
        slot, _, serial = part.partition("=")
        kind = slot.partition("/")[0]
        if kind in _OF_HOST and slot not in slots and serial not in serials:
            lost.add(part)
    return frozenset(lost)


def confirm_losses(
    lost: frozenset[str], since: Mapping[str, float], now: float
) -> tuple[tuple[Found, ...], bool]:
    """Return the confirmed findings, and whether an absence still needs a confirming reading.

    `since`: when each lost part was first absent in an unbroken series of readings.
    """
    pending = any(now - since.get(part, now) < CONFIRM_S for part in lost)
    findings = [
        Found(
            id="PartMissing",
            target=slot,
            classifications=(Classification.HARDWARE, Classification.DRIFT),
            message=f"{slot} with serial {serial} is no longer present",
        )
        for part in sorted(lost)
        for slot, _, serial in (part.partition("="),)
        if now - since.get(part, now) >= CONFIRM_S
    ]
    return tuple(findings[:ITEMS_MAX]), pending


# ------------------------------------------------------------------------------
# Repeat offenders: a score over a node's cases leads to deeper tests, or to retirement. Pure.
#
# The score is the sum of each case's weight, halved with every `half_life_s` since it was opened.
# The weights are ours, because no source publishes any; the same part again counts double, a case
# without a fault half.


DAY_S = 86400.0
CASES_MAX = 64  # the newest cases of a node that are counted


class Advice(StrEnum):
    """The consequence of a node's history."""

    NOTHING = "nothing"
    DEEPER = "deeper"  # every test, also the long burn, before it is certified
    RETIRE = "retire"  # people decide; it gets no tenant before that


class OffenderPolicy(Record):
    """`deeper_at`, `retire_at`: scores; the settings of the same names document them."""

    half_life_s: float = 60 * DAY_S
    deeper_at: float = 2.0
    retire_at: float = 5.0


class Offence(Record):
    """A node's score with its components, for people."""

    node: str
    score: float
    cases: int
    again: tuple[str, ...] = ()  # parts that were suspected before
    advice: Advice


def compute_score(node: str, cases: Sequence[Case], now: float, policy: OffenderPolicy) -> Offence:
    """Return the score of all cases of one node, the open one included, in any order."""
    mine = sorted((c for c in cases if c.node == node), key=lambda c: -c.opened_at)[:CASES_MAX]
    cases_of = Counter(c.suspect.part for c in mine if c.suspect is not None and c.suspect.rule)
    total = 0.0
    for case in mine:
        age_s = max(0.0, now - case.opened_at)
        total += compute_weight(case, cases_of) * 0.5 ** (age_s / policy.half_life_s)
    advice = Advice.NOTHING
    if total >= policy.retire_at:
        advice = Advice.RETIRE
    elif total >= policy.deeper_at:
        advice = Advice.DEEPER
    return Offence(
        node=node,
        score=round(total, 3),
        cases=len(mine),
        again=tuple(sorted(part for part, count in cases_of.items() if count > 1)),
        advice=advice,
    )


def compute_weight(case: Case, seen: Counter[str]) -> float:
    if case.ending is Ending.REPLACED:
        return 0.0  # it was another host
    if is_planned(case):  # it had no fault
        return 0.0  # nothing was wrong with it
    if case.ending is Ending.NO_FAULT:
        return 0.5
    weight_of_case = 1.0
    suspect = case.suspect
    if suspect is not None and seen[suspect.part] > 1:
        weight_of_case = 2.0  # the same part again: the remedy did not last
    if suspect is not None and suspect.kind.value == "leaf":
        return 0.0  # not the node's fault
    cured = case.tries[-1] if case.tries else None
    easily = cured is not None and cured.outcome is RemedyOutcome.CURED
    if easily and cured is not None and cured.remedy is RemedyKind.RERUN:
        weight_of_case /= 2
    return weight_of_case


def select_deeper_checks(
    change: Change,
    catalogue: Sequence[Check],
    policy: SelectionPolicy,
    standing: FaultRecord | None,
    *,
    limit_s: float,
) -> Selection:
    """Return the selection with further tests of gates B and D, within a time limit.

    Added tests are left out again if they take longer than `limit_s` or the site's own budget; the
    tests that the site demands never are.
    """
    selection = select_checks(change, catalogue, policy, standing)
    for more in (frozenset({Gate.B, Gate.D}), frozenset({Gate.B})):
        gates = policy.gates | more
        wider = select_checks(
            change, catalogue, policy.model_copy(update={"gates": gates}), standing
        )
        if wider.blocker is None and wider.seconds - selection.seconds <= limit_s:
            return wider
    return selection


REPORTS_MAX = 32  # kept of one case; the oldest make room
TENANT_REPORTS_MAX = 8  # of one case: a tenant cannot fill the journal
WEIGHED_MAX = 256  # alerts of one node are 128 at most, each with few sets of classifications
_STRICTNESS = (Service.KEEP, Service.DRAIN, Service.CUT_OFF)


def is_stricter(service: Service, than: Service) -> bool:
    """Return whether a service takes more from the tenant than another one."""
    return _STRICTNESS.index(service) > _STRICTNESS.index(than)


def weigh_key(alert: Alert) -> str:
    """Return the name under which a case remembers that an alert was weighed.

    The classifications are part of it: an alert that becomes fatal is weighed again.
    """
    classes = "+".join(sorted(c.value for c in alert.classifications))
    return f"{alert.id}/{alert.target}/{classes}"


def find_new_alerts(case: Case, standing: Iterable[Alert]) -> tuple[Alert, ...]:
    """Return the alerts that would open a case and that this one has not weighed, gravest first.

    An alert that stood when a person chose the service is not weighed again. A case of an earlier
    release does not record its alerts: there the time of the alert decides.
    """
    opening = opening_alerts(standing)
    if case.weighed is None:
        return tuple(a for a in opening if a.since > case.opened_at)
    weighed = set(case.weighed)
    return tuple(a for a in opening if weigh_key(a) not in weighed)


def add_weighed(case: Case, alerts: Iterable[Alert]) -> Case:
    keys = dict.fromkeys([*(case.weighed or ()), *(weigh_key(a) for a in alerts)])
    return case.model_copy(update={"weighed": tuple(keys)[-WEIGHED_MAX:]})


def join_report(
    case: Case, node: Node, report: JoinedReport, service: Service, policy: CasePolicy
) -> Case | str:
    """Return the open case after a further report, or why the report is not taken.

    Where the node serves again after a repair of this case, the report is about its new service:
    the case begins anew at `opened`, and the service is the one of the report.
    """
    now = report.at
    serves = node.state is State.RELEASED
    again = serves and case.stage is not Stage.OPENED
    stricter = again or is_stricter(service, case.service)
    tenants = sum(r.origin is Origin.TENANT for r in case.reports)
    if not stricter and report.origin is Origin.TENANT and tenants >= TENANT_REPORTS_MAX:
        return f"{tenants} reports of the tenant are in case {case.id} already"
    shortened = report.model_copy(
        update={"reason": report.reason[:WORDS_MAX], "by": report.by[:120]}
    )
    changes: dict[str, object] = {"reports": (*case.reports, shortened)[-REPORTS_MAX:]}
    if stricter:
        changes["service"] = service
    if stricter and serves:
        # a case as advice names no tenant: its opening took nothing away
        changes["tenant"] = case.tenant or node.tenant
        changes |= _find_drain_time(case, service, policy, now, again=again)
    return (
        case.enter_stage(Stage.OPENED, now, **changes) if again else case.model_copy(update=changes)
    )


def _find_drain_time(
    case: Case, service: Service, policy: CasePolicy, now: float, *, again: bool
) -> dict[str, object]:
    """Return when the node is taken back: no later than it would have been without the report."""
    times = [case.drain_at] if case.drain_at and not again else []
    times += [case.retire_at] if case.retire_at else []
    if service is Service.CUT_OFF:
        times.append(now)
    elif service is Service.DRAIN:
        times.append(now + policy.notice_s)
    elif case.retire_at:
        return {"service": Service.DRAIN, "drain_at": case.retire_at}
    return {"drain_at": min(times, default=0.0)}


def write_joined_notice(before: Case, after: Case, now: float) -> TenantNotice | None:
    """Return the notice to the tenant that a joined report asks for, or None.

    The tenant is informed where the service became stricter or the node is taken back earlier.
    """
    changed = (before.service, before.drain_at) != (after.service, after.drain_at)
    if not after.tenant or not after.drain_at or not changed:
        return None
    sentences = {
        Service.KEEP: "It goes on serving you; nothing is done to it without another notice.",
        Service.DRAIN: "It is taken back when the notice ends; move your work, or agree to less.",
        Service.CUT_OFF: "It is taken back now: its results cannot be trusted.",
    }
    report = after.reports[-1]
    planned = report.origin is Origin.MAINTENANCE
    begin = "Planned maintenance of node {}" if planned else "Node {} has a further fault"
    if before.origin is Origin.MAINTENANCE and not planned:
        begin = "Node {} has a fault"
    text = f"{begin.format(after.node)}: {report.reason}. {sentences[after.service]}"
    kind = "maintenance" if planned else "failure"
    joined = make_notice(after, kind, text, now, after.drain_at)
    # two reports of one second are two notices
    return joined.model_copy(update={"id": f"{joined.id}/{before.generation}"})


def choose_service_of_alerts(
    alerts: Iterable[Alert], origin: Origin, policy: CasePolicy
) -> Service:
    return service_for([c for a in alerts for c in a.classifications], origin, policy)
