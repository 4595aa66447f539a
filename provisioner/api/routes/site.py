"""Routes of the site itself: clock, watch, maintenance agents, factory logins."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from datetime import UTC, datetime
from enum import StrEnum

from pydantic import Field

from provisioner.adapters.agent.tls import CERTIFICATE_FILE
from provisioner.api.changes import Forecast, Outcome, build_objection
from provisioner.api.operations import OperationView
from provisioner.api.parts import ApiParts, Ask, Reply
from provisioner.api.problem import build_refusal, refuse_missing
from provisioner.api.route import OPERATORS, VIEWERS, Effect, Route
from provisioner.execution.steps.farewell import FACTORY
from provisioner.model.access import ChangeKind, ChangeRequest, RequestState
from provisioner.model.agent import MANIFEST_PAYLOAD, AgentSession, BundleManifest
from provisioner.model.alert import WatchStatus
from provisioner.model.base import Record
from provisioner.model.events.request_events import ClockAccepted, FactoryLoginsKept
from provisioner.model.input_error import InputError
from provisioner.model.node import NodeKind, State
from provisioner.model.recovery import Difference, Settlement
from provisioner.model.tenant import PortPlacement
from provisioner.model.times.instant import InstantOrNone
from provisioner.planning.watch.high_water import adopted_proof, settle_by_word, settle_port_by_word
from provisioner.ports import Secret, StaleWrite

# ------------------------------------------------------------------------------
# Route of air-gap bundles: the site's key signs the list of a bundle's files.
#
# The files themselves stay on the machine that packs them (`provisioner bundle create`).


async def seal_bundle(ask: Ask) -> Reply:
    if ask.parts.signer is None:
        detail = "This process has no signing key"
        raise build_refusal(409, "vault", detail, "Ask the daemon of the site.")
    manifest = ask.body.model_dump(mode="json")
    kind = ChangeKind.BUNDLE_SEAL
    return await ask.parts.works.submit_change(ask, kind, ask.body.site, "", manifest)


async def seal_manifest(parts: ApiParts, asked: ChangeRequest) -> Outcome:
    assert parts.signer is not None
    manifest = BundleManifest.model_validate_json(json.dumps(dict(asked.arguments)))
    sealed = parts.signer.seal(MANIFEST_PAYLOAD, manifest.model_dump_json().encode())
    result = {"envelope": json.loads(sealed), "files": len(manifest.files)}
    return Outcome(RequestState.DONE, result)


BUNDLES_ROUTES = (
    Route(
        "POST",
        "/bundles/seal",
        "seal_bundle",
        "site",
        "Sign the list of a bundle's files with the site's key.",
        OPERATORS,
        seal_bundle,
        {200: OperationView, 202: OperationView},
        effect=Effect.LASTING,
        body=BundleManifest,
        refusals={409: "The process has no signing key."},
        example={
            "site": "lab",
            "made_at": "2027-01-15T08:00:00Z",
            "files": [{"path": "artifacts/nic.bin", "size": 8, "sha256": "0" * 64}],
        },
        site=True,
    ),
)


# ------------------------------------------------------------------------------
# Routes of a restore: its differences, a person's decision on each, and its end.
#
# After the end the daemons act again.


RECOVERY_TAG = "recovery"
OTHER_WORD = "Give the other word, or put it right first."


class RecoveryView(Record):
    """A restore that waits to be settled. `look_only` empty: the daemons act."""

    look_only: str = Field(description="Why nothing is written to any device.")
    surveyed_at: InstantOrNone
    adopted_ports: dict[str, str] = Field(
        description='Ports without a node that a person left in a VRF: "leaf/interface".'
    )
    items: tuple[Difference, ...]


class PersonsWord(Record):
    """The body of a settlement."""

    subject: str = Field(
        min_length=1, max_length=200, description="Name of the difference in the list."
    )
    word: Settlement = Field(description="adopt: the leaves are right; keep: the row is right.")


async def list_all(ask: Ask) -> Reply:
    """Return every difference, those without a decision first."""
    book = ask.parts.store.recovery
    shown = RecoveryView(
        look_only=await book.get_look_only(),
        surveyed_at=await book.get_surveyed_at(),
        adopted_ports=dict(await book.list_adopted_ports()),
        items=tuple(await book.list_differences()),
    )
    return Reply(shown)


async def settle_difference(ask: Ask) -> Reply:
    if await _find(ask.parts, ask.body.subject) is None:
        raise refuse_missing("difference that waits for a word")
    arguments = ask.body.model_dump(mode="json")
    kind = ChangeKind.RECOVERY_SETTLE
    return await ask.parts.works.submit_change(ask, kind, ask.body.subject, "", arguments)


async def finish_recovery(ask: Ask) -> Reply:
    return await ask.parts.works.submit_change(ask, ChangeKind.RECOVERY_FINISH, "site", "", {})


async def change_recovery(parts: ApiParts, asked: ChangeRequest) -> Outcome:
    """Carry it out: the decision and the node's row that follows from it are one transaction."""
    book = parts.store.recovery
    now = parts.clock.now()
    if asked.kind is ChangeKind.RECOVERY_FINISH:
        if not await book.get_look_only():
            return build_objection("site", "no restore waits to be settled", "Nothing is to do.")
        try:
            await book.finish(asked.asked_by, now)
        except StaleWrite as stale:
            unblock = "See `provisioner recovery list`; `provisioner serve` compares."
            return build_objection("site", str(stale), unblock)
        return Outcome(RequestState.DONE, {"note": "the daemons act again"})
    word = Settlement(asked.arguments["word"])
    difference = await _find(parts, asked.subject)
    if word is Settlement.RULE:
        return build_objection(asked.subject, "rule is no person's word", "Give adopt or keep.")
    if difference is None:
        return build_objection(
            asked.subject, "it waits for no word", "See `provisioner recovery list`."
        )
    settled = {"settled": word, "settled_by": asked.asked_by, "settled_at": now}
    if difference.leaf:
        if against := settle_port_by_word(difference, word):
            return build_objection(asked.subject, against, OTHER_WORD)
        await book.settle(difference.model_copy(update=settled))
        note = "it stays where it is" if word is Settlement.ADOPT else "it is fenced after `finish`"
        return Outcome(RequestState.DONE, {"note": note})
    node = await parts.store.nodes.get(asked.subject)
    if node is None:
        return build_objection(
            asked.subject, "there is no such node", "See `provisioner node list`."
        )
    changed = settle_by_word(node, difference, word, now)
    if isinstance(changed, str):
        return build_objection(asked.subject, changed, OTHER_WORD)
    read = [
        PortPlacement(switch=p.switch, interface=p.interface, vrf=difference.vrf)
        for p in changed.ports
    ]
    adopted = word is Settlement.ADOPT and changed.state is State.RELEASED
    proof = adopted_proof(changed, read, now) if adopted else None
    await book.settle(difference.model_copy(update=settled), changed, proof)
    return Outcome(RequestState.DONE, {"state": changed.state.value, "tenant": changed.tenant})


async def foresee_settlement(parts: ApiParts, asked: ChangeRequest) -> Forecast:
    """Return both sides' reports, and the effect of the decision on the node."""
    difference = await _find(parts, asked.subject)
    if difference is None:
        return Forecast()
    first = f"{asked.subject}: the row says {difference.row}; the leaves say {difference.world}."
    then = {
        Settlement.ADOPT: (
            "The row becomes what the leaves say; a node that left its tenant is erased."
        ),
        Settlement.KEEP: "The row stays; a node that serves beside it is fenced and erased.",
    }
    return Forecast(
        (first, then.get(Settlement(asked.arguments["word"]), "This is no person's word."))
    )


async def _find(parts: ApiParts, subject: str) -> Difference | None:
    for one in await parts.store.recovery.list_differences():
        if one.subject == subject and one.settled is None:
            return one
    return None


_ASKED = {200: OperationView, 202: OperationView}
RECOVERY_ROUTES = (
    Route(
        "GET",
        "/recovery",
        "list_differences",
        RECOVERY_TAG,
        "List differences between rows and leaves after a restore, and the open decisions.",
        VIEWERS,
        list_all,
        {200: RecoveryView},
    ),
    Route(
        "POST",
        "/recovery/settle",
        "settle_difference",
        RECOVERY_TAG,
        "Decide on one difference. No port moves before the end.",
        OPERATORS,
        settle_difference,
        _ASKED,
        effect=Effect.LASTING,
        body=PersonsWord,
        example={"subject": "su0-n01", "word": "keep"},
        refusals={404: "No such difference waits for a word."},
        site=True,
    ),
    Route(
        "POST",
        "/recovery/finish",
        "finish_recovery",
        RECOVERY_TAG,
        "End a restore once every difference is settled: the daemons act again.",
        OPERATORS,
        finish_recovery,
        _ASKED,
        effect=Effect.LASTING,
        site=True,
    ),
)


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
    lines = (
        f"The daemon's clock says {_moment(parts.clock.now())}.",
        "Certificates, notices and tokens expire by this time from then on.",
    )
    return Forecast(lines)


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
