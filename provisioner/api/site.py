"""Routes of the site itself: clock, watch, maintenance agents, signing keys, factory logins."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from datetime import UTC, datetime
from typing import Any

from pydantic import Field

from provisioner.adapters.agent.tls import CERTIFICATE_FILE
from provisioner.api.changes import Forecast, Outcome
from provisioner.api.operations import OperationView
from provisioner.api.parts import ApiParts, Ask, Reply
from provisioner.api.problem import missing, no
from provisioner.api.route import OPERATORS, VIEWERS, Route
from provisioner.execution.steps.farewell import FACTORY
from provisioner.model.access import ChangeKind, ChangeRequest, RequestState
from provisioner.model.agent import AgentSession
from provisioner.model.base import Record
from provisioner.model.events.request_events import (
    ClockAccepted,
    FactoryLoginsKept,
    RequestCarriedOut,
)
from provisioner.model.input_error import InputError
from provisioner.model.node import NodeKind, State
from provisioner.model.signing_key import SigningKey
from provisioner.model.watch import WatchStatus
from provisioner.planning.certification import attestation
from provisioner.ports import Secret
from provisioner.store.signing import public_pem

TAG = "site"
STALE = 3  # as many times as long as until the next report was promised, and the watch is silent
VENDORS_MAX = 64


class AgentView(Record):
    """The last boot of a node into the maintenance ramdisk."""

    node: str
    state: str = Field(description="expected, looked up, up, never came or dismissed.")
    seen_at: float
    version: str
    url: str
    command: str = Field(description="What it is doing; empty: nothing.")


class AgentList(Record):
    """Every node that booted the maintenance ramdisk."""

    items: tuple[AgentView, ...]


class AuthorityQuery(Record):
    """How the authority is written."""

    kernel: str = Field("", max_length=1000, description="URL of the agents' API, for arguments.")


class Authority(Record):
    """The certificate authority that a ramdisk must trust."""

    pem: str
    kernel: str = Field("", description="The same as arguments of a kernel, where asked for.")


class WatchQuery(Record):
    """Which nodes."""

    node: str = Field("", max_length=128, description="One node, BMC by BMC.")


class WatchView(Record):
    """What of the serving nodes is watched, and how."""

    status: WatchStatus
    age_s: float = Field(description="Seconds since it was reported.")
    stale: bool = Field(description="The watch is silent: all of this is as old.")
    unwatched: tuple[str, ...] = Field(description="Nodes that serve and are not watched.")
    alerts: dict[str, int] = Field(description="Alerts that are active, by node.")


class KeyView(Record):
    """A public key that signs or signed here."""

    key_id: str
    standing: str = Field(description="signs, verifies only, or withdrawn.")
    created_at: float
    withdrawn_at: float
    pem: str


class KeyList(Record):
    """All of them, the newest first."""

    items: tuple[KeyView, ...]


class Rotation(Record):
    """The body of a key's exchange."""

    compromised: bool = Field(
        default=False, description="Nothing that older keys signed is believed any more."
    )


class SignedList(Record):
    """A DSSE envelope with everything that was revoked."""

    envelope: dict[str, Any]


class FactoryLogin(Record):
    """The login that a vendor ships with."""

    username: str = Field(max_length=200)
    password: str = Field(max_length=500, repr=False)


class FactoryLogins(Record):
    """The body of factory logins, by vendor. A vendor without one is forgotten."""

    logins: dict[str, FactoryLogin | None] = Field(max_length=VENDORS_MAX)


async def list_agents(ask: Ask) -> Reply:
    """Return the last boot of every node that has an agent."""
    sessions = await ask.parts.store.agents.list_sessions()
    return Reply(AgentList(items=tuple(_agent(s, ask.now) for s in sessions)))


def _agent(session: AgentSession, now: float) -> AgentView:
    asked = session.asked
    return AgentView(
        node=session.node,
        state=_standing_of(session, now),
        seen_at=session.seen_at,
        version=session.version,
        url=session.url,
        command=asked.name if asked is not None and not asked.over else "",
    )


def _standing_of(session: AgentSession, now: float) -> str:
    """Return the agent's state in a word; whether it is silent, only its daemon can say."""
    if session.dismissed:
        return "dismissed"
    if session.seen_at:
        return "up"
    if now > session.until:
        return "never came"
    return "looked up" if session.peer else "expected"


async def show_authority(ask: Ask) -> Reply:
    """Return the authority's certificate, which is made when the daemon starts."""
    file = None if ask.parts.directory is None else ask.parts.directory / CERTIFICATE_FILE
    if file is None or not file.is_file():
        raise missing("certificate authority here")
    pem = await asyncio.to_thread(file.read_text, encoding="ascii")
    kernel = ""
    if ask.query.kernel:
        der = base64.b64encode(ssl.PEM_cert_to_DER_cert(pem)).decode()
        kernel = f"ipa-api-url={ask.query.kernel} provisioner-ca={der}"
    return Reply(Authority(pem=pem, kernel=kernel))


async def show_watch(ask: Ask) -> Reply:
    """Return the newest report of the watch, with the nodes that it leaves out."""
    if ask.parts.read_watch is None:
        raise missing("watch in this process")
    try:
        status, age_s = await asyncio.to_thread(ask.parts.read_watch)
    except InputError as error:
        raise no(409, "watch", error.problem, error.remedy) from None
    name = ask.query.node
    if name:
        status = status.model_copy(
            update={"nodes": tuple(n for n in status.nodes if n.node == name)}
        )
        if not status.nodes:
            raise missing("node that is watched: only released hosts are")
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
    """Ask that the clock be believed."""
    return await ask.parts.works.ask(ask, ChangeKind.CLOCK_ACCEPT, "clock", "", {})


async def list_keys(ask: Ask) -> Reply:
    """Return the public keys."""
    keys = await ask.parts.store.signing_keys.list()
    return Reply(KeyList(items=tuple(_key(k) for k in keys)))


def _key(key: SigningKey) -> KeyView:
    standing = "signs" if key.signs else "verifies only"
    return KeyView(
        key_id=key.key_id,
        standing=standing if key.withdrawn_at is None else "withdrawn",
        created_at=key.created_at,
        withdrawn_at=key.withdrawn_at or 0.0,
        pem=public_pem(key.public),
    )


async def list_revocations(ask: Ask) -> Reply:
    """Return everything that was revoked, signed, to be published beside the public keys."""
    store, signer = ask.parts.store, ask.parts.signer
    if signer is None:
        raise missing("signing key in this process")
    keys = await store.signing_keys.list()
    payload = attestation.write_revocations(
        await store.evidence.list_revocations(),
        [k.key_id for k in keys if k.withdrawn_at is not None],
        ask.now,
        attestation.REVOCATIONS_VALID_S,
    )
    sealed = signer.seal(attestation.REVOCATIONS_PAYLOAD, payload)
    return Reply(SignedList(envelope=json.loads(sealed)))


async def rotate_key(ask: Ask) -> Reply:
    """Ask for a new signing key."""
    if ask.parts.exchange_key is None:
        raise no(409, "vault", "This process has no master key", "Ask the daemon.")
    told = ask.body.model_dump(mode="json")
    return await ask.parts.works.ask(ask, ChangeKind.KEY_ROTATE, "signing key", "", told)


async def keep_factory(ask: Ask) -> Reply:
    """Seal factory logins in the vault, then write down that it was done."""
    if ask.parts.vault is None:
        raise no(409, "vault", "This process has no credentials", "Ask the daemon.")
    logins: dict[str, FactoryLogin | None] = ask.body.logins
    if not ask.dry_run:
        for vendor, login in sorted(logins.items()):
            name = f"{FACTORY}/{vendor}"
            if login is None:
                await ask.parts.vault.remove(name)
            else:
                await ask.parts.vault.put(name, login.username, Secret(login.password))
    told = {
        "vendors": sorted(v for v, login in logins.items() if login is not None),
        "forgotten": sorted(v for v, login in logins.items() if login is None),
    }
    return await ask.parts.works.ask(ask, ChangeKind.FACTORY_KEEP, "factory logins", "", told)


async def change_site(parts: ApiParts, asked: ChangeRequest) -> Outcome:
    """Carry it out."""
    now, told = parts.clock.now(), asked.arguments
    if asked.kind is ChangeKind.CLOCK_ACCEPT:
        event = ClockAccepted(by=asked.asked_by, clock=_moment(now))
        await parts.store.clock_marks.accept(now, event)
        return Outcome(RequestState.DONE, {"clock": event.clock})
    if asked.kind is ChangeKind.KEY_ROTATE:
        assert parts.exchange_key is not None
        key = await parts.exchange_key(now, bool(told["compromised"]))
        compromised = bool(told["compromised"])
        rotated = RequestCarriedOut(
            request="rotate", key=key, compromised=compromised, by=asked.asked_by, id=asked.id
        )
        await parts.store.journal.append(rotated, now)
        return Outcome(RequestState.DONE, {"key": key})
    assert asked.kind is ChangeKind.FACTORY_KEEP
    for vendors, forgotten in ((told["vendors"], False), (told["forgotten"], True)):
        if vendors:
            kept = FactoryLoginsKept(vendors=tuple(vendors), forgotten=forgotten)
            await parts.store.journal.append(kept, now)
    return Outcome(RequestState.DONE, dict(told))


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


async def foresee_clock(parts: ApiParts, _asked: ChangeRequest) -> Forecast:
    """Return the time that would be believed."""
    lines = (
        f"The daemon's clock says {_moment(parts.clock.now())}.",
        "Certificates, notices and tokens expire by this time from then on.",
    )
    return Forecast(lines)


async def foresee_rotation(parts: ApiParts, asked: ChangeRequest) -> Forecast:
    """Return what becomes of certificates that older keys signed."""
    lines = ["A new key signs from now on. Publish it: provisioner certificate keys --pem"]
    if asked.arguments.get("compromised"):
        lines.append("Nothing that older keys signed is believed any more, at once and for good:")
        lines.append("nodes that serve no tenant are proved anew, those that serve are listed.")
    else:
        lines.append("Certificates that older keys signed stay valid until they expire.")
    if parts.store.shared:
        lines.append("Other daemons on this database sign with the old key until they restart.")
    return Forecast(tuple(lines))


_ASKED = {200: OperationView, 202: OperationView}
ROUTES = (
    Route("GET", "/agents", "list_agents", TAG,
          "Nodes that booted the maintenance ramdisk, and the state of each agent.", VIEWERS,
          list_agents, {200: AgentList}),
    Route("GET", "/agents/authority", "show_authority", TAG,
          "The certificate that a ramdisk must trust, to be baked into its image.", VIEWERS,
          show_authority, {200: Authority}, query=AuthorityQuery,
          refusals={404: "This process has no authority."}),
    Route("GET", "/watch", "show_watch", TAG,
          "What of the serving nodes is watched, how, and what nobody reports.", VIEWERS,
          show_watch, {200: WatchView}, query=WatchQuery,
          refusals={404: "Nothing is watched by this process.",
                    409: "The watch reported nothing yet."}),
    Route("POST", "/clock/accept", "accept_clock", TAG,
          "Say that the machine's clock is right: a daemon that doubts it decides again.",
          OPERATORS, accept_clock, _ASKED),
    Route("GET", "/keys", "list_keys", TAG,
          "Public keys that signed here: which signs now, which only verifies.", VIEWERS,
          list_keys, {200: KeyList}),
    Route("POST", "/keys/rotate", "rotate_key", TAG, "Sign with a new key from now on.",
          OPERATORS, rotate_key, _ASKED, body=Rotation, example={"compromised": False}),
    Route("GET", "/revocations", "list_revocations", TAG,
          "The signed list of everything that was revoked, to be published.", VIEWERS,
          list_revocations, {200: SignedList},
          refusals={404: "This process has no signing key."}),
    Route("PUT", "/factory-logins", "keep_factory_logins", TAG,
          "Keep vendors' factory logins, sealed: parts that are exchanged later need them.",
          OPERATORS, keep_factory, _ASKED, body=FactoryLogins,
          example={"logins": {"nvidia": None}}),
)  # fmt: skip
