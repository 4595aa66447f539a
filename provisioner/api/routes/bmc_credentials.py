"""Routes of BMC passwords: their ages, their change on demand, and one shown to a person.

Rule: a password is in one answer only, that of a reveal, to the person whose request another person
approved. The row that demands its change is written before the answer is. No request, row, stored
answer or log has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from provisioner.api.changes import Forecast, Outcome, build_objection, decode_cursor, encode_cursor
from provisioner.api.operations import OperationView, parse_number
from provisioner.api.parts import ApiParts, Ask, Reply
from provisioner.api.problem import build_refusal, refuse_missing
from provisioner.api.route import OPERATORS, VIEWERS, Effect, Paging, Route
from provisioner.model.access import ChangeKind, ChangeRequest, RequestState
from provisioner.model.base import Record
from provisioner.model.credential import CredentialStanding, RotationCause
from provisioner.model.events.request_events import CredentialShown, RequestCarriedOut
from provisioner.model.times.instant import Instant
from provisioner.planning.lifecycle.credential_rotation import SETUP, list_logins, may_rotate
from provisioner.ports import Credentials
from provisioner.runtime import permit

TAG = "credentials"
SELECTED_MAX = 1000  # names in one request; --all has no limit


class CredentialQuery(Paging):
    """The selection of logins."""

    node: str = Field("", max_length=128, description="Select this node.")
    due: Literal["true", "false"] = Field(
        "false", description="Select logins whose change is demanded now."
    )


class CredentialPage(Record):
    """A part of a list."""

    items: tuple[CredentialStanding, ...]
    next: str = ""


class RotationWish(Record):
    """The body of a demand: whose passwords are changed, and how urgently."""

    nodes: tuple[str, ...] = Field(
        (), max_length=SELECTED_MAX, description="Change those of these nodes."
    )
    racks: tuple[str, ...] = Field(
        (), max_length=SELECTED_MAX, description="Change those of all nodes of these racks."
    )
    logins: tuple[str, ...] = Field(
        (), max_length=SELECTED_MAX, description="Change these: su0-n03/host."
    )
    person: str = Field("", max_length=100, description="Change all that this person was shown.")
    all: bool = Field(default=False, description="Change all that the daemon keeps.")
    emergency: bool = Field(default=False, description="Before every other change.")
    reason: str = Field(min_length=1, max_length=200, description="Why, for the audit.")


class BreakGlass(Record):
    """The body of a request to be shown a password."""

    reason: str = Field(min_length=1, max_length=200, description="Why, for the audit.")


class RevealedCredential(Record):
    """A login with its password. It is in this answer only, and never stored."""

    login: str = Field(description="Node and BMC: su0-n03/host.")
    username: str = Field(description="Name of the account.")
    password: str = Field(description="The password in force.", repr=False)
    pending_password: str = Field(
        "",
        description="Another one that may be in force, of a change that failed; empty: none.",
        repr=False,
    )
    expires_at: Instant = Field(description="When the password is changed, at the latest.")


async def list_credentials(ask: Ask) -> Reply:
    """List logins by name, without passwords."""
    started = decode_cursor(ask.query.cursor, str)
    limit = ask.query.limit
    rows = await ask.parts.store.credential_standings.list_page(
        str(started[0]) if started else "",
        limit + 1,
        node=ask.query.node,
        due_by=ask.now if ask.query.due == "true" else None,
    )
    following = encode_cursor(rows[limit - 1].name) if len(rows) > limit else ""
    return Reply(CredentialPage(items=tuple(rows[:limit]), next=following))


async def ask_rotation(ask: Ask) -> Reply:
    body: RotationWish = ask.body
    named = bool(body.nodes or body.racks or body.logins)
    if [named, bool(body.person), body.all].count(True) != 1:
        unblock = "Name nodes, racks or logins; or a person; or all."
        raise build_refusal(400, "body", "It is unclear which passwords are meant", unblock)
    arguments = body.model_dump(mode="json")
    if missing := await _find_missing(ask.parts, arguments):
        raise build_refusal(404, "missing", f"There is no {missing}", "Look at the list of them.")
    named_first = [body.person, *body.nodes, *body.racks, *body.logins]
    subject = "all" if body.all else next(word for word in named_first if word)
    kind = ChangeKind.CREDENTIAL_ROTATE
    return await ask.parts.works.submit_change(ask, kind, subject, "", arguments)


async def _find_missing(parts: ApiParts, arguments: Mapping[str, Any]) -> str:
    """Return the first name of a selection that does not exist; "" if all do."""
    nodes = await parts.store.nodes.list()
    racks = {n.location.rack for n in nodes if n.location is not None}
    ids = {n.id for n in nodes}
    for noun, real in (("node", ids), ("rack", racks)):
        for name in arguments[f"{noun}s"]:
            if name not in real:
                return f"{noun} {name}"
    for login in arguments["logins"]:
        if await parts.store.credential_standings.get(login) is None:
            return f"login {login}"
    return ""


async def change_credential(parts: ApiParts, asked: ChangeRequest) -> Outcome:
    """Carry out a demand, or give leave to be shown a password."""
    if asked.kind is ChangeKind.CREDENTIAL_SHOW:
        return await _allow_showing(parts, asked)
    now = parts.clock.now()
    number = await _demand(parts, asked.arguments, now)
    if not number:
        return _refuse_nothing(asked.subject)
    event = RequestCarriedOut(
        request="credential rotate",
        target=asked.subject,
        by=asked.asked_by,
        id=asked.id,
        approved=asked.decided_by,
        why=str(asked.arguments["reason"]),
    )
    await parts.store.journal.append(event, now)
    note = "changes begin now: `provisioner credential list --due` shows those that are left"
    return Outcome(RequestState.DONE, {"logins": number}, note=note)


async def _demand(parts: ApiParts, arguments: Mapping[str, Any], now: float) -> int:
    standings = parts.store.credential_standings
    cause = RotationCause.REQUESTED
    if arguments["person"]:
        cause = RotationCause.PERSON_LEFT
    if arguments["emergency"]:
        cause = RotationCause.EMERGENCY
    if arguments["all"]:
        return await standings.demand(cause, now)
    if arguments["person"]:
        return await standings.demand(cause, now, shown_to=str(arguments["person"]))
    nodes, logins = await _select(parts, arguments)
    if not nodes and not logins:
        return 0  # nothing selected would mean all
    return await standings.demand(cause, now, nodes=nodes, names=logins)


async def _select(parts: ApiParts, arguments: Mapping[str, Any]) -> tuple[set[str], set[str]]:
    """Return the nodes of a selection, and the logins of other nodes; no row is read for it."""
    racks, nodes = (set(arguments[key]) for key in ("racks", "nodes"))
    if racks:
        stored = await parts.store.nodes.list()
        nodes |= {n.id for n in stored if n.location is not None and n.location.rack in racks}
    logins = {login for login in arguments["logins"] if _node_of(login) not in nodes}
    return nodes, logins


def _node_of(login: str) -> str:
    return login.rpartition("/")[0]


async def foresee_rotation(parts: ApiParts, asked: ChangeRequest) -> Forecast:
    """Return how many passwords are changed and how long that takes."""
    number, touched = await _count_logins(parts, asked.arguments)
    if not number:
        return Forecast(blockers=_refuse_nothing(asked.subject).blockers)
    least_min = number / parts.settings.credential_rotations_per_s / 60.0
    lines = [
        f"Passwords of {number} BMCs are changed, which takes {least_min:.0f} minutes or more.",
        "Every session at these BMCs ends, and other tools that have these passwords lose access.",
    ]
    if parts.settings.credential_setup_password:
        lines.append("Set-up passwords are changed when their hosts come back from their tenants.")
    stored = await parts.store.nodes.list()
    chosen = [n for n in stored if touched is None or n.id in touched]
    also = parts.settings.credential_switches
    kept = [n for n in chosen if list_logins(n, switches=also)]
    later = [n.id for n in kept if not may_rotate(n, switches=also)]
    if later:
        shown = ", ".join(later[:5])
        lines.append(f"{len(later)} nodes wait for a person, and come after that: {shown}.")
    return Forecast(tuple(lines))


async def _count_logins(
    parts: ApiParts, arguments: Mapping[str, Any]
) -> tuple[int, set[str] | None]:
    """Return the number of logins of a demand and their nodes; None: all nodes."""
    standings = parts.store.credential_standings
    if arguments["all"]:
        return (await standings.summarize(parts.clock.now())).count, None
    if arguments["person"]:
        shown = await standings.list_shown(str(arguments["person"]))
        return len(shown), {_node_of(login) for login in shown}
    nodes, logins = await _select(parts, arguments)
    kept = {node: len(await standings.list_node(node)) for node in sorted(nodes)}
    touched = {node for node, count in kept.items() if count} | {_node_of(n) for n in logins}
    return sum(kept.values()) + len(logins), touched


def _refuse_nothing(subject: str) -> Outcome:
    unblock = "`provisioner credential list` shows the logins that the daemon keeps."
    return build_objection(subject, "no login that the daemon keeps fits", unblock)


async def ask_showing(ask: Ask) -> Reply:
    """Ask to be shown a password; another person has to approve it, whatever the settings."""
    node = await ask.read_node()
    bmc = ask.read_word("bmc")
    _vault(ask.parts)
    kept = {b.name for b in list_logins(node, setup=ask.parts.settings.credential_setup_password)}
    if bmc not in kept | {b.name for b in node.bmcs}:
        raise refuse_missing("BMC of this node")
    if bmc not in kept:
        unblock = "Ask whoever gave it to the daemon: it was not set here, nor could it be changed."
        raise build_refusal(409, "login", "The site keeps this password itself", unblock)
    arguments = {"bmc": bmc, **ask.body.model_dump(mode="json")}
    kind = ChangeKind.CREDENTIAL_SHOW
    return await ask.parts.works.submit_change(ask, kind, node.id, "", arguments)


async def _allow_showing(parts: ApiParts, asked: ChangeRequest) -> Outcome:
    assert asked.decided_by, "no password is shown without a second person"
    login = f"{asked.subject}/{asked.arguments['bmc']}"
    if await parts.store.credential_standings.get(login) is None:
        detail = f"the password of {login} is not one that the daemon set"
        return build_objection(asked.subject, detail, "Ask whoever gave it to the daemon.")
    ends = parts.clock.now() + _window_s(parts)
    note = f"{asked.asked_by} may read it once or more: provisioner credential reveal r{asked.id}"
    return Outcome(RequestState.DONE, {"login": login, "expires_at": ends}, note=note)


async def foresee_showing(parts: ApiParts, asked: ChangeRequest) -> Forecast:
    bmc = asked.arguments["bmc"]
    shown = f"{asked.asked_by} is shown the password of {asked.subject}/{bmc}"
    when = f"{parts.settings.credential_shown_h:g} hours after the approval"
    when = "when its host comes back from its tenant" if bmc == SETUP else when
    lines = f"{shown}, once another person has approved it.", f"It is changed {when}."
    return Forecast(lines)


async def reveal_credential(ask: Ask) -> Reply:
    """Show a password to the person whose request for it was approved."""
    parts = ask.parts
    asked = await parts.store.requests.get(parse_number(ask.read_word("request")))
    if asked is None or asked.kind is not ChangeKind.CREDENTIAL_SHOW:
        raise refuse_missing("request for a password")
    if asked.asked_by.casefold() != ask.caller.subject.casefold():
        unblock = "Ask for it yourself: `provisioner credential show`."
        raise build_refusal(403, "person", "It was approved for another person", unblock)
    if asked.state is not RequestState.DONE or asked.result is None:
        unblock = "Ask another person who has the role approver."
        raise build_refusal(409, "approval", f"The request is {asked.state.value}", unblock)
    ends = asked.ended_at + _window_s(parts)
    if ask.now >= ends:
        unblock = "Ask anew: `provisioner credential show`."
        raise build_refusal(409, "over", "The time to read it is over", unblock)
    if permit.is_observing() or permit.get_closing_reason():
        unblock = "Ask a daemon that acts: a password that was shown is changed afterwards."
        raise build_refusal(409, "observe", "This daemon changes no password now", unblock)
    login = f"{asked.subject}/{asked.arguments['bmc']}"
    await _check_unchanging(ask, asked.subject, login)
    event = CredentialShown(
        about=asked.subject,
        login=login,
        by=asked.asked_by,
        approved=asked.decided_by,
        id=asked.id,
        why=str(asked.arguments["reason"]),
        expires_at=ends,
    )
    standings = parts.store.credential_standings
    person = asked.asked_by
    if not await standings.record_shown(login, person, ends, event, ask.now):
        raise refuse_missing("login that the daemon keeps")
    vault = _vault(parts)
    current = await vault.current(login)
    pending = await vault.pending(login)
    # a change that ends now has cleared the row, or its attempt is in the row still
    await _check_unchanging(ask, asked.subject, login, person)
    if current is None:
        raise refuse_missing("password in the vault")
    return Reply(
        RevealedCredential(
            login=login,
            username=current[0],
            password=current[1].reveal(),
            pending_password="" if pending is None else pending[1].reveal(),
            expires_at=ends,
        )
    )


async def _check_unchanging(ask: Ask, node: str, login: str, person: str = "") -> None:
    """Refuse while a change of the password is under way, since it could be the new one that is
    shown, without a row that demands its change. `person`: the row has to name this one.
    """
    store = ask.parts.store
    active = {operation.node for operation in await store.operations.list_active()}
    standing = await store.credential_standings.get(login)
    if standing is None:
        raise refuse_missing("login that the daemon keeps")
    attempt = standing.retry_at > ask.parts.clock.now()
    attempt = attempt and (node in active or not standing.failures)
    if attempt or (person and person not in standing.shown_to):
        unblock = "Ask again when its operation has ended, or in half an hour."
        raise build_refusal(409, "changing", "This password is being changed", unblock)


def _vault(parts: ApiParts) -> Credentials:
    if parts.vault is None:
        raise build_refusal(409, "vault", "This process has no credentials", "Ask the daemon.")
    return parts.vault


def _window_s(parts: ApiParts) -> float:
    return parts.settings.credential_shown_h * 3600.0


_ASKED = {200: OperationView, 202: OperationView}
ROUTES = (
    Route(
        "GET",
        "/credentials",
        "list_credentials",
        TAG,
        "List the logins of BMCs: the age of each password, and why it is to be changed.",
        VIEWERS,
        list_credentials,
        {200: CredentialPage},
        query=CredentialQuery,
    ),
    Route(
        "POST",
        "/credentials/rotate",
        "rotate_credentials",
        TAG,
        "Change passwords of BMCs: of nodes, racks, all, or all that a person was shown.",
        OPERATORS,
        ask_rotation,
        _ASKED,
        effect=Effect.LASTING,
        body=RotationWish,
        refusals={404: "There is no such node, rack or login."},
        example={"racks": ["su0-rack1"], "reason": "a laptop was lost"},
    ),
    Route(
        "POST",
        "/nodes/{node}/credentials/{bmc}/show",
        "request_credential",
        TAG,
        "Ask to be shown a BMC's password: another person approves, it is changed afterwards.",
        OPERATORS,
        ask_showing,
        _ASKED,
        effect=Effect.LASTING,
        body=BreakGlass,
        refusals={409: "The site keeps this password itself, or this process has no vault."},
        example={"reason": "the host hangs, and its console is needed"},
    ),
    Route(
        "POST",
        "/requests/{request}/reveal",
        "reveal_credential",
        TAG,
        "Show the password to the person whose request for it was approved.",
        OPERATORS,
        reveal_credential,
        {200: RevealedCredential},
        effect=Effect.LASTING,
        secret=True,
        refusals={
            403: "It was approved for another person.",
            409: "It is not approved, its time is over, or the password is being changed.",
        },
    ),
)
