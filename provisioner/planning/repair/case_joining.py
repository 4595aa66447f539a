"""How a further report joins the open case of a node. Pure.

A node has one open case at most, so a second fault is recorded in the case of the first. Its report
can only make the service stricter (`keep`, then `drain`, then `cut_off`), and does so at once: the
time at which the node is taken back moves forward, never backward. A weaker report changes nothing
but the record.
"""

from __future__ import annotations

from collections.abc import Iterable

from provisioner.model.alert import Alert
from provisioner.model.case import Case, JoinedReport, Origin, Service, Stage, TenantNotice
from provisioner.model.node import Node, State
from provisioner.planning.repair.case_policy import (
    WORDS_MAX,
    CasePolicy,
    make_notice,
    opening_alerts,
    service_for,
)

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
    """Return the case with these alerts recorded as weighed."""
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
    """Return the service that policy chooses for these alerts."""
    return service_for([c for a in alerts for c in a.classifications], origin, policy)
