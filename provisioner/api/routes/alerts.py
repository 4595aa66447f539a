"""Routes of alerts: the active ones, overrides for a time, and clearing by hand."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from provisioner.api.changes import Outcome, build_objection, decode_cursor, encode_cursor
from provisioner.api.operations import OperationView
from provisioner.api.parts import ApiParts, Ask, Reply
from provisioner.api.route import ANYBODY, OPERATORS, Counted, Effect, Paging, Route
from provisioner.model.access import ChangeKind, ChangeRequest, RequestState
from provisioner.model.alert import ANY, Alert, Classification, Override
from provisioner.model.base import Record
from provisioner.model.events.request_events import RequestCarriedOut
from provisioner.model.times.instant import Instant, InstantOrNone
from provisioner.planning.watch import alerts as rules

TAG = "alerts"
HOURS_MAX = rules.OVERRIDE_MAX_S / 3600
# a message of at least one visible character
LINE = r"^[^\x00-\x1f\x7f]*[^\x00-\x20\x7f][^\x00-\x1f\x7f]*$"


class AlertView(Record):
    """An alert; `message` is the text of the device or monitor."""

    node: str
    id: str
    target: str
    classifications: tuple[Classification, ...]
    message: str
    source: str
    since: Instant
    last_at: Instant
    count: int
    active: bool
    flapping: bool
    overridden_until: InstantOrNone = Field(
        0.0, description="End of the override; null: the alert has its effect."
    )
    overridden_by: str = ""
    overridden_why: str = ""
    raises: tuple[Instant, ...] = Field((), description="The latest times at which it was raised.")
    cleared_at: InstantOrNone = Field(0.0, description="Time of clearing; null: it is active.")
    cleared_why: str = ""


class AlertPage(Counted):
    """A page of the list: by node, active alerts first."""

    items: tuple[AlertView, ...]
    next: str = ""


class AlertQuery(Paging):
    """The selection of alerts."""

    node: str = Field("", max_length=128, description="Select this node; includes cleared alerts.")


class Over(Record):
    """The body of a clearing."""

    id: str = Field(min_length=1, max_length=200, description="Name of the alert; * for all.")
    target: str = Field(ANY, max_length=200, description="Part; * for all.")
    why: str = Field(
        min_length=1, max_length=200, pattern=LINE, description="Reason; it is stored permanently."
    )


class Overriding(Over):
    """The body of an override."""

    hours: float = Field(gt=0, le=HOURS_MAX, description="Hours without effect.")


async def list_all(ask: Ask) -> Reply:
    """List active alerts; for one node, cleared ones too. A tenant sees those of its own nodes."""
    started = decode_cursor(ask.query.cursor, int)
    begin = int(started[0]) if started else 0
    if ask.query.node:
        await ask.read_node(ask.query.node)
    alerts = ask.parts.store.alerts
    rows = await alerts.list(ask.query.node)
    over = await alerts.list_overrides(ask.query.node)
    if not ask.caller.staff:
        own = {n.id: n for n in await ask.parts.store.nodes.list() if ask.may_see(n)}
        rows = tuple(a for a in rows if a.node in own and a.since >= own[a.node].entered_at)
    shown = rows[begin : begin + ask.query.limit]
    items = tuple(_view(a, over, ask.now) for a in shown)
    more = begin + len(shown) < len(rows)
    following = encode_cursor(begin + len(shown)) if more else ""
    return Reply(AlertPage(items=items, next=following, total=len(rows)))


def _view(alert: Alert, overrides: Sequence[Override], now: float) -> AlertView:
    over = rules.find_override(alert, overrides, now)
    return AlertView(
        node=alert.node,
        id=alert.id,
        target=alert.target,
        classifications=alert.classifications,
        message=alert.message,
        source=alert.source,
        since=alert.since,
        last_at=alert.last_at,
        count=alert.count,
        active=alert.active,
        flapping=alert.flapping,
        overridden_until=over.until if over else 0.0,
        overridden_by=over.by if over else "",
        overridden_why=over.why if over else "",
        raises=alert.raises,
        cleared_at=alert.cleared_at,
        cleared_why=alert.cleared_why,
    )


async def override_alert(ask: Ask) -> Reply:
    """Ask to suspend an alert's effect for a time."""
    return await _ask(ask, ChangeKind.ALERT_OVERRIDE)


async def clear_alert(ask: Ask) -> Reply:
    """Ask to clear an alert."""
    return await _ask(ask, ChangeKind.ALERT_CLEAR)


async def _ask(ask: Ask, kind: ChangeKind) -> Reply:
    node = await ask.read_node()
    arguments = ask.body.model_dump(mode="json")
    return await ask.parts.works.submit_change(ask, kind, node.id, node.tenant, arguments)


async def change_alert(parts: ApiParts, asked: ChangeRequest) -> Outcome:
    """Carry out a change of an alert."""
    now = parts.clock.now()
    arguments = asked.arguments
    store = parts.store
    ident = str(arguments["id"])
    target = str(arguments["target"])
    why = str(arguments["why"])
    event = RequestCarriedOut(
        about=asked.subject,
        request=asked.kind.value,
        by=asked.asked_by,
        id=ident,
        target=target,
        why=why,
    )
    if asked.kind is ChangeKind.ALERT_OVERRIDE:
        made = Override(
            node=asked.subject,
            id=ident,
            target=target,
            by=asked.asked_by,
            why=why,
            made_at=now,
            until=now + float(arguments["hours"]) * 3600,
        )
        await store.alerts.put_override(made, event, now)
        return Outcome(RequestState.DONE, {"until": made.until})
    rows = await store.alerts.list(asked.subject)
    chosen = [a for a in rows if ident in (ANY, a.id) and target in (ANY, a.target)]
    over = [c for a in chosen if (c := rules.clear_alert(a, now, f"{asked.asked_by}: {why}"))]
    if not over:
        return build_objection(asked.subject, "no such alert stands", "Look at the list of alerts.")
    await store.alerts.put(over, [event], now)
    return Outcome(RequestState.DONE, {"cleared": len(over)})


_DONE = {200: OperationView, 202: OperationView}
ROUTES = (
    Route(
        "GET",
        "/alerts",
        "list_alerts",
        TAG,
        "List active alerts.",
        ANYBODY,
        list_all,
        {200: AlertPage},
        query=AlertQuery,
        refusals={404: "There is no such node, or not yours."},
    ),
    Route(
        "POST",
        "/nodes/{node}/alerts/override",
        "override_alert",
        TAG,
        "Suspend the effect of an alert for a time.",
        OPERATORS,
        override_alert,
        _DONE,
        effect=Effect.LASTING,
        body=Overriding,
        example={"id": "FanFailed", "target": "*", "why": "the fan is ordered", "hours": 24},
    ),
    Route(
        "POST",
        "/nodes/{node}/alerts/clear",
        "clear_alert",
        TAG,
        "Clear an alert; it is raised again when it is observed again.",
        OPERATORS,
        clear_alert,
        _DONE,
        effect=Effect.LASTING,
        body=Over,
        refusals={409: "No such alert stands."},
        example={"id": "FanFailed", "target": "*", "why": "the fan was replaced"},
    ),
)
