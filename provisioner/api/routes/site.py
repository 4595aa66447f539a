"""Routes of the site itself: clock, watch, maintenance agents, factory logins."""

from __future__ import annotations

import asyncio
import base64
import ssl
from datetime import UTC, datetime
from enum import StrEnum

from pydantic import Field

from provisioner.adapters.agent.tls import CERTIFICATE_FILE
from provisioner.api.changes import Forecast, Outcome
from provisioner.api.operations import OperationView
from provisioner.api.parts import ApiParts, Ask, Reply
from provisioner.api.problem import build_refusal, refuse_missing
from provisioner.api.route import OPERATORS, VIEWERS, Effect, Route
from provisioner.execution.steps.farewell import FACTORY
from provisioner.model.access import ChangeKind, ChangeRequest, RequestState
from provisioner.model.agent import AgentSession
from provisioner.model.alert import WatchStatus
from provisioner.model.base import Record
from provisioner.model.events.request_events import (
    ClockAccepted,
    FactoryLoginsKept,
)
from provisioner.model.input_error import InputError
from provisioner.model.node import NodeKind, State
from provisioner.model.times.instant import InstantOrNone
from provisioner.ports import Secret

TAG = "site"
STALE = 3  # periods without a report after which the watch counts as silent
VENDORS_MAX = 64


class AgentStanding(StrEnum):
    """Progress of a boot into the maintenance ramdisk."""

    EXPECTED = "expected"
    LOOKED_UP = "looked up"  # an agent asked for its node
    UP = "up"
    NEVER_CAME = "never came"
    DISMISSED = "dismissed"


class AgentView(Record):
    """The last boot of a node into the maintenance ramdisk."""

    node: str
    state: AgentStanding
    seen_at: InstantOrNone
    version: str
    url: str
    command: str = Field(description="Present action; empty: none.")


class AgentList(Record):
    """Every node that booted the maintenance ramdisk."""

    items: tuple[AgentView, ...]


class AuthorityQuery(Record):
    """The form of the authority."""

    kernel: str = Field("", max_length=1000, description="URL of the agents' API, for arguments.")


class Authority(Record):
    """The certificate authority that a ramdisk must trust."""

    pem: str
    kernel: str = Field("", description="The same as kernel arguments, if requested.")


class WatchQuery(Record):
    """The selection of nodes."""

    node: str = Field("", max_length=128, description="One node, BMC by BMC.")


class WatchView(Record):
    """The watch over released nodes, as it last reported."""

    status: WatchStatus
    age_s: float = Field(description="Seconds since it was reported.")
    stale: bool = Field(description="Whether the watch is silent, so that these data are as old.")
    unwatched: tuple[str, ...] = Field(description="Released nodes that are not watched.")
    alerts: dict[str, int] = Field(description="Alerts that are active, by node.")


class FactoryLogin(Record):
    """The login that a vendor ships with."""

    username: str = Field(max_length=200)
    password: str = Field(max_length=500, repr=False)


class FactoryLogins(Record):
    """The body of factory logins, by vendor. A vendor that it does not name is removed."""

    logins: dict[str, FactoryLogin | None] = Field(max_length=VENDORS_MAX)


async def list_agents(ask: Ask) -> Reply:
    """Return the last boot of every node that has an agent."""
    sessions = await ask.parts.store.agents.list_sessions()
    return Reply(AgentList(items=tuple(_agent(s, ask.now) for s in sessions)))


def _agent(session: AgentSession, now: float) -> AgentView:
    command = session.asked
    return AgentView(
        node=session.node,
        state=_standing_of(session, now),
        seen_at=session.seen_at,
        version=session.version,
        url=session.url,
        command=command.name if command is not None and not command.over else "",
    )


def _standing_of(session: AgentSession, now: float) -> AgentStanding:
    """Return the agent's state in a word; only its daemon can say whether it is silent."""
    if session.dismissed:
        return AgentStanding.DISMISSED
    if session.seen_at:
        return AgentStanding.UP
    if now > session.until:
        return AgentStanding.NEVER_CAME
    return AgentStanding.LOOKED_UP if session.peer else AgentStanding.EXPECTED


async def show_authority(ask: Ask) -> Reply:
    """Return the authority's certificate, which is made when the daemon starts."""
    file = None if ask.parts.directory is None else ask.parts.directory / CERTIFICATE_FILE
    if file is None or not file.is_file():
        raise refuse_missing("certificate authority here")
    pem = await asyncio.to_thread(file.read_text, encoding="ascii")
    kernel = ""
    if ask.query.kernel:
        der = base64.b64encode(ssl.PEM_cert_to_DER_cert(pem)).decode()
        kernel = f"ipa-api-url={ask.query.kernel} provisioner-ca={der}"
    return Reply(Authority(pem=pem, kernel=kernel))


async def show_watch(ask: Ask) -> Reply:
    """Return the newest report of the watch, with the nodes that it omits."""
    if ask.parts.read_watch is None:
        raise refuse_missing("watch in this process")
    try:
        status, age_s = await asyncio.to_thread(ask.parts.read_watch)
    except InputError as error:
        raise build_refusal(409, "watch", error.problem, error.remedy) from None
    name = ask.query.node
    if name:
        status = status.model_copy(
            update={"nodes": tuple(n for n in status.nodes if n.node == name)}
        )
        if not status.nodes:
            raise refuse_missing("node that is watched: only released hosts are")
    serving = {
        n.id
        for n in await ask.parts.store.nodes.list()
        if n.state is State.RELEASED and n.kind is NodeKind.HOST
    }
    alerts: dict[str, int] = {}
    for alert in await ask.parts.store.alerts.list():
        alerts[alert.node] = alerts.get(alert.node, 0) + 1
    view = WatchView(
        status=status,
        age_s=round(age_s, 1),
        stale=age_s > STALE * status.every_s,
        unwatched=() if name else tuple(sorted(serving - {n.node for n in status.nodes})),
        alerts=alerts,
    )
    return Reply(view)


async def accept_clock(ask: Ask) -> Reply:
    """Ask that the clock be trusted."""
    return await ask.parts.works.submit_change(ask, ChangeKind.CLOCK_ACCEPT, "clock", "", {})


async def keep_factory(ask: Ask) -> Reply:
    """Seal factory logins in the vault, then record that it was done."""
    if ask.parts.vault is None:
        raise build_refusal(409, "vault", "This process has no credentials", "Ask the daemon.")
    logins: dict[str, FactoryLogin | None] = ask.body.logins
    if not ask.dry_run:
        for vendor, login in sorted(logins.items()):
            name = f"{FACTORY}/{vendor}"
            if login is None:
                await ask.parts.vault.remove(name)
            else:
                await ask.parts.vault.put(name, login.username, Secret(login.password))
    result = {
        "vendors": sorted(v for v, login in logins.items() if login is not None),
        "forgotten": sorted(v for v, login in logins.items() if login is None),
    }
    return await ask.parts.works.submit_change(
        ask, ChangeKind.FACTORY_KEEP, "factory logins", "", result
    )


async def change_site(parts: ApiParts, asked: ChangeRequest) -> Outcome:
    """Carry out a change of the site."""
    now = parts.clock.now()
    arguments = asked.arguments
    if asked.kind is ChangeKind.CLOCK_ACCEPT:
        event = ClockAccepted(by=asked.asked_by, clock=_moment(now))
        await parts.store.clock_marks.accept(now, event)
        return Outcome(RequestState.DONE, {"clock": event.clock})
    assert asked.kind is ChangeKind.FACTORY_KEEP
    for vendors, forgotten in ((arguments["vendors"], False), (arguments["forgotten"], True)):
        if vendors:
            kept_logins = FactoryLoginsKept(vendors=tuple(vendors), forgotten=forgotten)
            await parts.store.journal.append(kept_logins, now)
    return Outcome(RequestState.DONE, dict(arguments))


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


async def foresee_clock(parts: ApiParts, _asked: ChangeRequest) -> Forecast:
    """Return the time that would be trusted."""
    lines = (
        f"The daemon's clock says {_moment(parts.clock.now())}.",
        "Certificates, notices and tokens expire by this time from then on.",
    )
    return Forecast(lines)


_ASKED = {200: OperationView, 202: OperationView}
ROUTES = (
    Route(
        "GET",
        "/agents",
        "list_agents",
        TAG,
        "List nodes that booted the maintenance ramdisk, and the state of each agent.",
        VIEWERS,
        list_agents,
        {200: AgentList},
    ),
    Route(
        "GET",
        "/agents/authority",
        "show_authority",
        TAG,
        "Show the certificate that a ramdisk must trust, to be built into its image.",
        VIEWERS,
        show_authority,
        {200: Authority},
        query=AuthorityQuery,
        refusals={404: "This process has no authority."},
    ),
    Route(
        "GET",
        "/watch",
        "show_watch",
        TAG,
        "Show which released nodes are watched, how, and which data are missing.",
        VIEWERS,
        show_watch,
        {200: WatchView},
        query=WatchQuery,
        refusals={
            404: "Nothing is watched by this process.",
            409: "The watch reported nothing yet.",
        },
    ),
    Route(
        "POST",
        "/clock/accept",
        "accept_clock",
        TAG,
        "Confirm that the machine's clock is right: a daemon that doubts it decides again.",
        OPERATORS,
        accept_clock,
        _ASKED,
        effect=Effect.LASTING,
        site=True,
    ),
    Route(
        "PUT",
        "/factory-logins",
        "keep_factory_logins",
        TAG,
        "Store vendors' factory logins, sealed: exchanged parts need them later.",
        OPERATORS,
        keep_factory,
        _ASKED,
        effect=Effect.LASTING,
        body=FactoryLogins,
        example={"logins": {"nvidia": None}},
        site=True,
    ),
)
