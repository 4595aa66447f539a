"""The parts of the site that a change acts on, compared with the scopes of the role that asks.

Rule: fails closed. A change acts on the whole site unless it is in the table here; a subject that
is gone, and a selection of nothing, are covered by no scope. A change is compared when it is asked
for, when another person decides on it, and once more before it is carried out.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from provisioner.api.problem import Refused, build_refusal
from provisioner.control.campaigns.selecting import find_selected
from provisioner.model.access import (
    Caller,
    ChangeKind,
    ChangeRequest,
    Concern,
    Role,
    Scope,
    find_uncovered,
)
from provisioner.model.campaign import PinScope
from provisioner.model.input_error import InputError
from provisioner.model.node import Node, NodeKind
from provisioner.model.outcome import Blocker, Reason

if TYPE_CHECKING:
    from provisioner.api.parts import ApiParts, Ask

SHOWN = 3  # names of a refusal
SITE = Concern(name="the whole site")
K = ChangeKind
FindConcerns = Callable[["ApiParts", ChangeRequest], Awaitable[Sequence[Concern]]]


def require_whole_site(caller: Caller, roles: frozenset[Role]) -> None:
    """Check that one of these roles is for the whole site. Raises Refused."""
    if scopes := caller.list_scopes(roles):
        raise _refuse((SITE,), scopes)


async def require_scope(ask: Ask, asked: ChangeRequest) -> None:
    """Check that the caller's scopes cover a change. Raises Refused with what would unblock it."""
    outside = find_uncovered(ask.scopes, await _list_concerns(ask.parts, asked, ask.scopes))
    if outside:
        raise _refuse(outside, ask.scopes)


def _refuse(outside: Sequence[Concern], scopes: Sequence[Scope]) -> Refused:
    title = "This is outside of the scope of your role"
    return build_refusal(403, "scope", title, _remedy(outside), _detail(outside, scopes))


async def find_scope_blockers(parts: ApiParts, asked: ChangeRequest) -> tuple[Blocker, ...]:
    outside = find_uncovered(asked.scopes, await _list_concerns(parts, asked, asked.scopes))
    if not outside:
        return ()
    return (
        Blocker(
            reason=Reason.PRECONDITION,
            subject=asked.subject,
            detail=_detail(outside, asked.scopes),
            unblock=_remedy(outside),
        ),
    )


async def _list_concerns(
    parts: ApiParts, asked: ChangeRequest, scopes: Sequence[Scope]
) -> Sequence[Concern]:
    """Return the concerns of a change; nothing is read for a role of the whole site."""
    if not scopes:
        return ()
    find = CONCERNS.get(asked.kind)
    concerns = () if find is None else await find(parts, asked)
    return concerns or (SITE if find is None else Concern(name=asked.subject),)


def _detail(outside: Sequence[Concern], scopes: Sequence[Scope]) -> str:
    names = ", ".join(c.name for c in outside[:SHOWN])
    more = f" and {len(outside) - SHOWN} others" if len(outside) > SHOWN else ""
    own = "; or ".join(str(scope) for scope in scopes)
    return f"it acts on {names}{more}; the role is for {own}"


def _remedy(outside: Sequence[Concern]) -> str:
    first = outside[0]
    nouns = (("rack", first.rack), ("release", first.release), ("tenant", first.tenant))
    needed = " and ".join(f"{noun} {name}" for noun, name in nouns if name)
    whose = f"for {needed}, or for the whole site" if needed else "for the whole site"
    return f"Ask a person whose role is {whose} (docs/access.md#scopes)."


async def _concern_node(parts: ApiParts, asked: ChangeRequest) -> Sequence[Concern]:
    return await _concern_named(parts, [asked.subject])


async def _concern_named(
    parts: ApiParts, names: Collection[str], release: str = ""
) -> Sequence[Concern]:
    stored = await parts.store.nodes.list_named(names)
    missing = [Concern(name=name) for name in names if name not in stored]
    return [*missing, *await _concern_nodes(parts, stored.values(), release)]


async def _concern_nodes(
    parts: ApiParts, nodes: Iterable[Node], release: str = ""
) -> Sequence[Concern]:
    concerned = {n.id: n for n in nodes}
    switches = {n.id for n in concerned.values() if n.kind is NodeKind.SWITCH}
    if switches:
        for node in await parts.store.nodes.list():
            if any(port.switch in switches for port in node.ports):
                concerned.setdefault(node.id, node)
    return [
        Concern(
            name=name, rack=node.location.rack, release=release or node.release, tenant=node.tenant
        )
        for name, node in sorted(concerned.items())
    ]


async def _concern_group(parts: ApiParts, asked: ChangeRequest) -> Sequence[Concern]:
    """Return the nodes of a bulk retry, which leaves out those that the asker's role is not for."""
    words = asked.arguments
    names = await parts.store.home.list_retryable(str(words["reason"]), str(words["unblock"]))
    concerns = await _concern_named(parts, names)
    outside = set(find_uncovered(asked.scopes, concerns))
    return [c for c in concerns if c not in outside]


async def keep_in_scope(parts: ApiParts, asked: ChangeRequest, names: Sequence[str]) -> list[str]:
    """Return the nodes that the scopes of a change cover, in their order."""
    if not asked.scopes:
        return list(names)
    concerns = await _concern_named(parts, names)
    outside = {c.name for c in find_uncovered(asked.scopes, concerns)}
    return [name for name in names if name not in outside]


async def _concern_tenant(_parts: ApiParts, asked: ChangeRequest) -> Sequence[Concern]:
    return (Concern(name=f"tenant {asked.subject}", tenant=asked.subject),)


async def _concern_certificate(parts: ApiParts, asked: ChangeRequest) -> Sequence[Concern]:
    certificate = await parts.store.evidence.get_certificate(asked.subject)
    return () if certificate is None else await _concern_named(parts, [certificate.node])


async def _concern_draft(parts: ApiParts, asked: ChangeRequest) -> Sequence[Concern]:
    arguments = asked.arguments
    return await _concern_selected(parts, str(arguments["select"]), str(arguments["release"]))


async def _concern_selected(parts: ApiParts, select: str, release: str) -> Sequence[Concern]:
    try:
        known = await parts.store.nodes.list()
        now = parts.clock.now()
        nodes = await find_selected(select, known, parts.store, parts.matrix, now)
    except InputError as error:
        return (Concern(name=f"a selection that cannot be read ({error.problem})"),)
    return await _concern_nodes(parts, nodes, release)


async def _concern_campaign(parts: ApiParts, asked: ChangeRequest) -> Sequence[Concern]:
    """Return the nodes of a campaign; of a draft, those that it would start with now."""
    campaign = await parts.store.campaigns.get(asked.subject)
    if campaign is None:
        return ()
    rows = await parts.store.campaigns.list_rows(campaign.id)
    if rows:
        return await _concern_named(parts, {r.node for r in rows}, campaign.release)
    return await _concern_selected(parts, campaign.select, campaign.release)


async def _concern_campaign_node(parts: ApiParts, asked: ChangeRequest) -> Sequence[Concern]:
    campaign = await parts.store.campaigns.get(asked.subject)
    if campaign is None:
        return ()
    return await _concern_named(parts, [str(asked.arguments["node"])], campaign.release)


async def _concern_case(parts: ApiParts, asked: ChangeRequest) -> Sequence[Concern]:
    case = await parts.store.cases.get(asked.subject)
    if case is None:
        return ()
    of_node = await _concern_named(parts, [case.node])
    return [
        c.model_copy(update={"tenant": case.tenant or c.tenant}) if c.name == case.node else c
        for c in of_node
    ]


async def _list_rack(parts: ApiParts, racks: Collection[str]) -> list[Node]:
    return [n for n in await parts.store.nodes.list() if n.location.rack in racks]


async def _concern_rack(parts: ApiParts, asked: ChangeRequest) -> Sequence[Concern]:
    return await _concern_nodes(parts, await _list_rack(parts, {asked.subject}))


async def _concern_pin(parts: ApiParts, asked: ChangeRequest) -> Sequence[Concern]:
    scope = PinScope(asked.arguments["scope"])
    name = str(asked.arguments["name"])
    pins = await parts.store.campaigns.list_pins()
    releases = {p.release for p in pins if (p.scope, p.name) == (scope, name)}
    releases |= {str(asked.arguments["release"])} if asked.kind is K.PIN_SET else set()
    concerns: list[Concern] = []
    for release in sorted(releases):
        match scope:
            case PinScope.NODE:
                concerns += await _concern_named(parts, [name], release)
            case PinScope.RACK:
                concerns += await _concern_nodes(parts, await _list_rack(parts, {name}), release)
            case PinScope.FLEET:
                concerns.append(Concern(name="the whole fleet", release=release))
    return concerns


async def _concern_passwords(parts: ApiParts, asked: ChangeRequest) -> Sequence[Concern]:
    """Return the nodes of a change of passwords that names them; a person's are anywhere."""
    arguments = asked.arguments
    if arguments.get("all") or arguments.get("person"):
        return ()
    logins = {str(login).rpartition("/")[0] for login in arguments["logins"]}
    named = await _concern_named(parts, {*arguments["nodes"], *logins})
    racks = await _list_rack(parts, set(arguments["racks"]))
    return [*named, *await _concern_nodes(parts, racks)]


CONCERNS: Mapping[ChangeKind, FindConcerns] = {
    **dict.fromkeys(
        (
            K.NODE_RETRY,
            K.NODE_RECLAIM,
            K.NODE_POWER,
            K.NODE_BMC_TIME,
            K.NODE_GPU_RESET,
            K.NODE_BMC_ADDRESS,
            K.NODE_TAG,
            K.NODE_DETACH,
            K.NODE_TAKE,
            K.ALERT_OVERRIDE,
            K.ALERT_CLEAR,
            K.CASE_OPEN,
            K.CREDENTIAL_SHOW,
        ),
        _concern_node,
    ),
    K.NODE_RETRY_GROUP: _concern_group,
    **dict.fromkeys(
        (
            K.TENANT_PUT,
            K.TENANT_SHRINK,
            K.TENANT_DELETE,
            K.TENANT_SETTLE,
            K.TENANT_KEY_SET,
            K.TENANT_KEY_REMOVE,
            K.TENANT_USER_DATA_SET,
            K.TENANT_USER_DATA_REMOVE,
        ),
        _concern_tenant,
    ),
    K.CERTIFICATE_REVOKE: _concern_certificate,
    K.CAMPAIGN_CREATE: _concern_draft,
    **dict.fromkeys(
        (
            K.CAMPAIGN_START,
            K.CAMPAIGN_PAUSE,
            K.CAMPAIGN_RESUME,
            K.CAMPAIGN_ABORT,
            K.CAMPAIGN_ROLLBACK,
            K.CAMPAIGN_ACCEPT,
            K.CAMPAIGN_REHEARSE,
        ),
        _concern_campaign,
    ),
    **dict.fromkeys((K.CAMPAIGN_DEFER, K.CAMPAIGN_SKIP, K.CAMPAIGN_AGAIN), _concern_campaign_node),
    K.CASE_OPEN_RACK: _concern_rack,
    **dict.fromkeys(
        (
            K.CASE_ACCEPT,
            K.CASE_DEFER,
            K.CASE_RETURNED,
            K.CASE_REPLACE,
            K.CASE_RETIRE,
            K.CASE_CLOSE,
            K.CASE_RMA,
            K.CASE_SPARE,
            K.CASE_TELL,
        ),
        _concern_case,
    ),
    K.PIN_SET: _concern_pin,
    K.PIN_REMOVE: _concern_pin,
    K.CREDENTIAL_ROTATE: _concern_passwords,
}
# any other kind is an act of the whole site: a role with a scope makes none of them
