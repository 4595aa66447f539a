"""Routes of alerts: the active ones, overrides for a time, and clearing by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

from pydantic import Field

from provisioner.api.changes import Outcome, build_objection, decode_cursor, encode_cursor
from provisioner.api.operations import OperationView
from provisioner.api.parts import ApiParts, Ask, Reply
from provisioner.api.problem import refuse_missing
from provisioner.api.route import ANYBODY, OPERATORS, VIEWERS, Counted, Effect, Paging, Route
from provisioner.checks import ALL as CHECKS
from provisioner.control.engine.overload import list_notices, measure_load
from provisioner.execution.artifacts.outside_artifacts import OutsideArtifacts
from provisioner.model.access import Bound, Caller, ChangeKind, ChangeRequest, RequestState, Role
from provisioner.model.alert import ANY, Alert, Classification, Override
from provisioner.model.base import Record
from provisioner.model.events.request_events import RequestCarriedOut
from provisioner.model.matrix import Pin, Release, Requirement
from provisioner.model.times.instant import Instant, InstantOrNone
from provisioner.planning.lifecycle.admission import Strain, find_strains, highest_level
from provisioner.planning.matrix.diff import ProfileDiff, compare_releases
from provisioner.planning.matrix.readiness import Readiness, judge_readiness
from provisioner.planning.watch import alerts as rules

# ------------------------------------------------------------------------------
# Routes that are the same for all nodes: releases of the matrix, checks, artifacts, the caller.


class ReleaseLine(Record):
    """A release in a list."""

    name: str
    supersedes: str
    profiles: tuple[str, ...]
    ready: bool = Field(description="Every pin is known, with file, digest and evidence.")


class ReleaseList(Record):
    """All releases of the matrix that the daemon runs."""

    sha256: str = Field(description="Digest of the whole matrix.")
    items: tuple[ReleaseLine, ...]


class ProfileView(Record):
    """The pins of one profile."""

    name: str
    pins: dict[str, Pin]
    readiness: Readiness


class ReleaseView(Record):
    """One release."""

    name: str
    supersedes: str
    profiles: tuple[ProfileView, ...]
    requires: tuple[Requirement, ...]


class Moves(Record):
    """The meaning of a move between two releases."""

    older: str
    newer: str
    profiles: tuple[ProfileDiff, ...]


class CheckView(Record):
    """One health check."""

    name: str
    gate: str
    kind: str
    load: bool
    after_load: bool
    on_request: bool
    commands: tuple[str, ...]
    thresholds: tuple[str, ...]


class CheckList(Record):
    """All checks, in the order in which they run."""

    items: tuple[CheckView, ...]


class ArtifactView(Record):
    """A file that the matrix names."""

    name: str
    sha256: str
    pinned_by: tuple[str, ...]
    present: bool = Field(
        description="In the artifact directory of who answers: a cache, where `pulled_from` is set."
    )
    size: int = Field(0, description="Bytes; 0: the file is missing.")
    seen_outside: str = Field(
        "",
        description="SHA-256 that the daemon who answers last read at `pulled_from`; empty: none.",
    )
    seen_at: InstantOrNone = Field(
        0.0, description="Time of that reading; null: not since its start."
    )


class ArtifactList(Record):
    """All files that the matrix names, by name."""

    items: tuple[ArtifactView, ...]
    pulled_from: str = Field(
        "", description="The server outside; empty: devices pull from daemons."
    )


class Me(Record):
    """The caller, as its token proves it."""

    subject: str
    roles: tuple[Role, ...]
    tenant: str
    bounds: tuple[Bound, ...] = Field(
        (), description="Scopes of roles; a role without one is for the whole site."
    )
    via: str
    now: Instant = Field(description="The present time of the site's clock.")
    speed: float = Field(
        1.0, description="Simulated seconds in a real one; a simulated site runs fast."
    )
    power: tuple[str, ...] = Field(
        (), description="Acts on a node's power that the caller may ask for; a tenant of its own."
    )


class HealthLevel(StrEnum):
    """How much work is put off."""

    CALM = "CALM"
    STRAINED = "STRAINED"  # routine readings wait
    SEVERE = "SEVERE"  # new work waits too


class Health(Record):
    """The strains of the process that answers, and the work that it omits because of them."""

    level: HealthLevel
    strained_by: tuple[Strain, ...]
    notices: tuple[str, ...] = Field(
        (),
        description="A time that is in doubt, a clock that differs from the database's, daemons "
        "that work differently, a reach that is less than that of peers, a database that is far.",
    )


async def list_releases(ask: Ask) -> Reply:
    matrix = ask.parts.matrix
    states = judge_readiness(matrix)
    items = tuple(
        ReleaseLine(
            name=name,
            supersedes=release.supersedes,
            profiles=tuple(release.profiles),
            ready=all(s.ready for s in states if s.release == name),
        )
        for name, release in matrix.releases.items()
    )
    return Reply(ReleaseList(sha256=matrix.digest(), items=items))


async def show_release(ask: Ask) -> Reply:
    name = ask.read_word("release")
    release = _release(ask, name)
    states = {s.profile: s for s in judge_readiness(ask.parts.matrix) if s.release == name}
    profiles = tuple(
        ProfileView(name=p, pins=profile.pins, readiness=states[p])
        for p, profile in release.profiles.items()
    )
    view = ReleaseView(
        name=name, supersedes=release.supersedes, profiles=profiles, requires=release.requires
    )
    return Reply(view)


async def show_moves(ask: Ask) -> Reply:
    """Return steps, resets and minutes for each profile."""
    older = ask.read_word("release")
    newer = ask.read_word("newer")
    _release(ask, older)
    _release(ask, newer)
    production = ask.parts.settings.production
    moves_found = await asyncio.to_thread(
        compare_releases, ask.parts.matrix, older, newer, production=production
    )
    return Reply(Moves(older=older, newer=newer, profiles=tuple(moves_found)))


def _release(ask: Ask, name: str) -> Release:
    release = ask.parts.matrix.releases.get(name)
    if release is None:
        raise refuse_missing("release in the matrix")
    return release


async def list_checks(_ask: Ask) -> Reply:
    items = tuple(
        CheckView(
            name=c.name,
            gate=c.gate.value,
            kind=c.kind.value,
            load=c.load,
            after_load=c.after_load,
            on_request=c.on_request,
            commands=tuple(command.line for command in c.commands),
            thresholds=c.thresholds,
        )
        for c in CHECKS
    )
    return Reply(CheckList(items=items))


async def list_artifacts(ask: Ask) -> Reply:
    pinned: dict[tuple[str, str], list[str]] = {}
    matrix = ask.parts.matrix
    for name, release in matrix.releases.items():
        for profile, content in release.profiles.items():
            for kind, pin in content.pins.items():
                _add(pinned, pin.artifact, pin.sha256, f"{name}/{profile}: {kind}")
    for kind, edges in matrix.edges.items():
        for edge in edges:
            _add(pinned, edge.artifact, edge.sha256, f"edge of {kind} to {edge.to}")
    for image, pin in matrix.images.items():
        _add(pinned, pin.artifact, pin.sha256, f"image {image}")
    sizes = await asyncio.to_thread(_sizes, ask.parts.artifacts, {name for name, _ in pinned})
    items = tuple(
        ArtifactView(
            name=name,
            sha256=sha256,
            pinned_by=tuple(by),
            present=name in sizes,
            size=sizes.get(name, 0),
            **_outside(ask.parts.outside, name),
        )
        for (name, sha256), by in sorted(pinned.items())
    )
    pulled_from = "" if ask.parts.outside is None else ask.parts.outside.url
    return Reply(ArtifactList(items=items, pulled_from=pulled_from))


def _outside(files: OutsideArtifacts | None, name: str) -> dict[str, Any]:
    sighting = None if files is None else files.get_reading(name)
    return {} if sighting is None else {"seen_outside": sighting.sha256, "seen_at": sighting.at}


def _add(pinned: dict[tuple[str, str], list[str]], name: str, sha256: str, by: str) -> None:
    if name:
        pinned.setdefault((name, sha256), []).append(by)


def _sizes(directory: Path, names: set[str]) -> dict[str, int]:
    own = {n for n in names if Path(n).name == n}
    return {n: (directory / n).stat().st_size for n in own if (directory / n).is_file()}


async def show_caller(ask: Ask) -> Reply:
    caller: Caller = ask.caller
    view = Me(
        subject=caller.subject,
        roles=tuple(sorted(caller.roles)),
        tenant=caller.tenant,
        bounds=caller.bounds,
        via=caller.via,
        now=ask.now,
        speed=getattr(ask.parts.clock, "speed", 1.0),
        power=_list_power(ask),
    )
    return Reply(view)


def _list_power(ask: Ask) -> tuple[str, ...]:
    """Return the acts on power that a caller may ask for: the site decides on its tenants'."""
    if Role.OPERATOR in ask.caller.roles:
        return ("on", "off", "cycle")
    return tuple(ask.parts.settings.api_tenant_power) if Role.TENANT in ask.caller.roles else ()


async def show_health(ask: Ask) -> Reply:
    """Return the load, measured now. The loop's lag is that of one pass."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    await asyncio.sleep(0)
    strains = find_strains(measure_load(ask.parts.store, loop.time() - began))
    level = HealthLevel(highest_level(strains).name)
    return Reply(Health(level=level, strained_by=strains, notices=list_notices()))


MATTERS_ROUTES = (
    Route(
        "GET",
        "/releases",
        "list_releases",
        "releases",
        "List releases of the matrix in force.",
        VIEWERS,
        list_releases,
        {200: ReleaseList},
    ),
    Route(
        "GET",
        "/releases/{release}",
        "show_release",
        "releases",
        "Show a release's pins for each profile, and its unpublished ones.",
        VIEWERS,
        show_release,
        {200: ReleaseView},
    ),
    Route(
        "GET",
        "/releases/{release}/moves/{newer}",
        "show_moves",
        "releases",
        "Compare a release with another one: changes, steps, resets, minutes.",
        VIEWERS,
        show_moves,
        {200: Moves},
        heavy=True,
    ),
    Route(
        "GET",
        "/checks",
        "list_checks",
        "checks",
        "List health checks, in their order.",
        VIEWERS,
        list_checks,
        {200: CheckList},
    ),
    Route(
        "GET",
        "/artifacts",
        "list_artifacts",
        "artifacts",
        "List the files that the matrix names, and whether they are present.",
        VIEWERS,
        list_artifacts,
        {200: ArtifactList},
        heavy=True,
    ),
    Route(
        "GET",
        "/health",
        "show_health",
        "access",
        "Show the daemon's load: whether it is overloaded, and the cause.",
        ANYBODY,
        show_health,
        {200: Health},
    ),
    Route(
        "GET",
        "/me",
        "show_me",
        "access",
        "Show the caller that your token identifies.",
        ANYBODY,
        show_caller,
        {200: Me},
    ),
)


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
    return await _ask(ask, ChangeKind.ALERT_CLEAR)


async def _ask(ask: Ask, kind: ChangeKind) -> Reply:
    node = await ask.read_node()
    arguments = ask.body.model_dump(mode="json")
    return await ask.parts.works.submit_change(ask, kind, node.id, node.tenant, arguments)


async def change_alert(parts: ApiParts, asked: ChangeRequest) -> Outcome:
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
