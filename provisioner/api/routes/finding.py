"""One search over what a caller may see, and the nodes that an expression selects."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum

from pydantic import Field

from provisioner.api.fleet_atlas import HIDDEN, parse_where
from provisioner.api.parts import Ask, Reply, Verb
from provisioner.api.route import ANYBODY, Nothing, Route
from provisioner.control.campaigns.selecting import begin_reading
from provisioner.model.access import Caller
from provisioner.model.base import Record
from provisioner.model.node import Node, NodeKind, State
from provisioner.model.shipped_tables import read_table
from provisioner.planning.campaigns.fleet_fields import ABOUT_FIELDS, TENANT_FIELDS, list_fitting
from provisioner.planning.campaigns.select_expression import pick

TAG = "fleet"
SERIAL_MIN = 4  # characters from which serials are searched: fewer are in each node
ADDRESS = re.compile(r"[0-9a-fA-F]*[.:][0-9a-fA-F.:]+")
EXACT = 100  # how well a text fits
BEGINS = 80
WORD_BEGINS = 60
INSIDE = 40


class HitKind(StrEnum):
    """What was found."""

    NODE = "node"
    SWITCH = "switch"
    SERIAL = "serial"
    ADDRESS = "address"
    PORT = "port"
    CASE = "case"
    CAMPAIGN = "campaign"
    TENANT = "tenant"
    ALERT = "alert"
    PAGE = "page"
    VERB = "verb"


_PLACES = {kind: place for place, kind in enumerate(HitKind)}
# by the console's address: its title there, and words for what one does on it
PAGES = {
    row["page"]: (row["title"], row["about"])
    for row in read_table("provisioner.api", "console_pages.csv")
}
TENANTS_PAGES = frozenset({"fleet", "nodes", "cases", "events", "tenants", "usage"})


class Hit(Record):
    """One thing that was found."""

    kind: HitKind = Field(description="What it is.")
    id: str = Field(description="Its id: of a port, switch and port; of a verb, the command.")
    of: str = Field("", description="The node that has it: of a serial, port, alert or case.")
    detail: str = Field("", description="More about it, in one line.")
    score: int = Field(description="How well it fits: 100 is exact.")


class Hits(Record):
    """What was found, the best first."""

    items: tuple[Hit, ...]
    total: int = Field(description="Hits before the limit; each kind finds at most 500.")


class SearchQuery(Nothing):
    """The text that is looked for."""

    q: str = Field("", max_length=200, description="A part of a name, serial or word.")
    most: int = Field(20, ge=1, le=100, description="Hits at most.")


FOUND_MAX = 500  # hits of one kind


def rank_text(wanted: str, text: str) -> int:
    """Return how well a text fits; 0: not at all. Both are in small letters."""
    at = text.find(wanted)
    if at < 0:
        return 0
    if at == 0:
        return EXACT if len(text) == len(wanted) else BEGINS
    return INSIDE if text[at - 1].isalnum() else WORD_BEGINS


async def search(ask: Ask) -> Reply:
    """Return what the text finds among what the caller may see."""
    wanted = ask.query.q.strip().casefold()
    found: list[Hit] = []
    if wanted:
        nodes = [n for n in await ask.parts.store.nodes.list() if ask.may_see(n)]
        found += _find_nodes(wanted, nodes)
        found += _find_ports(wanted, nodes)
        found += await _find_cases(ask, wanted)
        found += await _find_tenants(ask, wanted)
        found += _find_words(wanted, ask.caller, ask.parts.list_verbs())
        if ask.caller.staff:
            found += _find_addresses(wanted, nodes)
            found += await _find_serials(ask, wanted)
            found += await _find_alerts(ask, wanted)
            found += await _find_campaigns(ask, wanted)
    found.sort(key=lambda hit: (-hit.score, _PLACES[hit.kind], len(hit.id), hit.id))
    return Reply(Hits(items=tuple(found[: ask.query.most]), total=len(found)))


def _find_nodes(wanted: str, nodes: Iterable[Node]) -> Iterator[Hit]:
    count = 0
    for node in nodes:
        score = rank_text(wanted, node.id.casefold())
        if score and count < FOUND_MAX:
            count += 1
            kind = HitKind.SWITCH if node.kind is NodeKind.SWITCH else HitKind.NODE
            place = node.location.rack or "no known place"
            tenant = f", {node.tenant}" if node.tenant else ""
            detail = f"{node.state.value}, {place}{tenant}"
            lowered = 10 if node.state is State.RETIRED else 0
            yield Hit(kind=kind, id=node.id, of=node.id, detail=detail, score=score - lowered)


def _find_ports(wanted: str, nodes: Iterable[Node]) -> Iterator[Hit]:
    """Find "SWITCH/PORT": a text without the stroke is a switch or a node."""
    if "/" not in wanted:
        return
    count = 0
    for node in nodes:
        for port in node.ports:
            name = f"{port.switch}/{port.interface}"
            score = rank_text(wanted, name.casefold())
            if score and count < FOUND_MAX:
                count += 1
                detail = f"cable of {node.id}, rail {port.rail}"
                yield Hit(kind=HitKind.PORT, id=name, of=node.id, detail=detail, score=score)


def _find_addresses(wanted: str, nodes: Iterable[Node]) -> Iterator[Hit]:
    if not ADDRESS.fullmatch(wanted):
        return
    for node in nodes:
        places = [("host", node.address), *((f"BMC {b.name}", b.url) for b in node.bmcs)]
        for what, text in places:
            address = re.sub(r"^https?://|[/\[\]].*$", "", text)
            score = rank_text(wanted, address.casefold())
            if score in (EXACT, BEGINS):
                yield Hit(kind=HitKind.ADDRESS, id=address, of=node.id, detail=what, score=score)


async def _find_serials(ask: Ask, wanted: str) -> list[Hit]:
    if len(wanted) < SERIAL_MIN:
        return []
    found = await ask.parts.store.evidence.list_parts(None, (wanted,), (), FOUND_MAX)
    hits = []
    for node, (lines, _) in found.items():
        for line in lines:
            serial, _, part = line.partition("\t")
            score = rank_text(wanted, serial)
            if score:
                hits.append(
                    Hit(kind=HitKind.SERIAL, id=serial.upper(), of=node, detail=part, score=score)
                )
    return hits[:FOUND_MAX]


async def _find_cases(ask: Ask, wanted: str) -> list[Hit]:
    book = ask.parts.store.cases
    cases = {case.id: case for case in await book.list_open()}
    named = await book.get(ask.query.q.strip())
    if named is not None:
        cases[named.id] = named
    hits = []
    for case in cases.values():
        tenant = ask.caller.tenant
        if not (ask.caller.staff or (tenant and case.tenant == tenant)):
            continue
        words = case.reason if ask.caller.staff else ""
        score = max(rank_text(wanted, case.id.casefold()), rank_text(wanted, words.casefold()) // 2)
        if score:
            detail = f"{case.stage.value}: {words}"[:200] if words else case.stage.value
            hits.append(
                Hit(kind=HitKind.CASE, id=case.id, of=case.node, detail=detail, score=score)
            )
    return hits[:FOUND_MAX]


async def _find_tenants(ask: Ask, wanted: str) -> list[Hit]:
    hits = []
    for tenant in await ask.parts.store.tenants.list():
        if not (ask.caller.staff or tenant.name == ask.caller.tenant):
            continue
        names = (tenant.name.casefold(), tenant.vrf.casefold())
        score = max(rank_text(wanted, name) for name in names)
        if score:
            detail = f"VRF {tenant.vrf}"
            hits.append(Hit(kind=HitKind.TENANT, id=tenant.name, detail=detail, score=score))
    return hits


async def _find_alerts(ask: Ask, wanted: str) -> list[Hit]:
    hits: list[Hit] = []
    for alert in await ask.parts.store.alerts.list():
        score = rank_text(wanted, alert.id.casefold())
        if score and len(hits) < FOUND_MAX:
            detail = f"{alert.target} {alert.message}".strip()[:200]
            hits.append(
                Hit(kind=HitKind.ALERT, id=alert.id, of=alert.node, detail=detail, score=score)
            )
    return hits


async def _find_campaigns(ask: Ask, wanted: str) -> list[Hit]:
    hits = []
    for campaign in await ask.parts.store.campaigns.list():
        names = (campaign.id.casefold(), campaign.release.casefold())
        score = max(rank_text(wanted, name) for name in names)
        if score:
            detail = f"{campaign.state.value}, to {campaign.release}"
            hits.append(Hit(kind=HitKind.CAMPAIGN, id=campaign.id, detail=detail, score=score))
    return hits[-FOUND_MAX:]


def _find_words(wanted: str, caller: Caller, verbs: Iterable[Verb]) -> Iterator[Hit]:
    """Find pages of the console and commands that the caller may use."""
    for page, (title, about) in PAGES.items():
        if not caller.staff and page not in TENANTS_PAGES:
            continue
        by_name = max(rank_text(wanted, page), rank_text(wanted, title.casefold()))
        score = max(by_name, rank_text(wanted, about.casefold()) // 2)
        if score:
            yield Hit(kind=HitKind.PAGE, id=page, detail=f"{title}: {about}", score=score)
    for verb in verbs:
        if verb.roles & caller.roles:
            score = max(rank_text(wanted, verb.name), rank_text(wanted, verb.about.casefold()) // 2)
            if score:
                yield Hit(kind=HitKind.VERB, id=verb.name, detail=verb.about, score=score)


# ------------------------------------------------------------------------------
# The nodes that an expression selects, and the fields that it may have.


class Where(Record):
    """An expression, and how many names are answered."""

    where: str = Field(
        "",
        max_length=8_000,
        description="An expression: `driver=535.* and rack=su0-*`; empty: all nodes.",
    )
    limit: int = Field(65_536, ge=0, le=65_536, description="Names at most.")


class NodeSelection(Record):
    """What an expression selects: for "select all that match", and for pages that paint."""

    total: int = Field(description="Nodes that it selects.")
    nodes: tuple[str, ...] = Field(description="Their names in order, at most `limit`.")
    states: dict[str, int] = Field(description="How many of them are in each state.")
    releases: dict[str, int] = Field(description="How many of them are to run each release.")
    fitting: tuple[str, ...] = Field(
        description="Releases that have all their profiles, the newest first; () of no node."
    )


class FieldView(Record):
    """A field of expressions."""

    name: str = Field(description="The field, as expressions have it.")
    about: str = Field(description="Its meaning.")


class FieldList(Record):
    """The fields of expressions: those of nodes first, then those of components."""

    items: tuple[FieldView, ...]


async def show_selection(ask: Ask) -> Reply:
    """Return how many nodes an expression selects, and their names."""
    staff = ask.caller.staff
    where = ask.query.where.strip()
    known: Sequence[Node] = [n for n in await ask.parts.store.nodes.list() if ask.may_see(n)]
    if where:
        expression = parse_where(where, staff=staff)
        more = await begin_reading(expression, ask.parts.store, ask.parts.matrix, ask.now)
        hidden = {} if staff else HIDDEN
        known = pick(expression, known, lambda n: {**more.read(n), **hidden})
    names = sorted(n.id for n in known)
    counts = Counter(n.state for n in known)
    view = NodeSelection.model_construct(
        total=len(names),
        nodes=tuple(names[: ask.query.limit]),
        states={str(state): counts[state] for state in sorted(counts)},
        releases=dict(sorted(Counter(n.release for n in known).items())),
        fitting=list_fitting(ask.parts.matrix, {n.profile for n in known if n.profile}),
    )
    return Reply(view)


async def list_fields(ask: Ask) -> Reply:
    """Return the fields that the caller's expressions may have."""
    names = [n for n in ABOUT_FIELDS if ask.caller.staff or n in TENANT_FIELDS - HIDDEN.keys()]
    return Reply(FieldList(items=tuple(FieldView(name=n, about=ABOUT_FIELDS[n]) for n in names)))


ROUTES = (
    Route(
        "GET",
        "/selection",
        "show_selection",
        TAG,
        "Count and name the nodes that an expression selects; a mistake is answered with its "
        "place.",
        ANYBODY,
        show_selection,
        {200: NodeSelection},
        query=Where,
        heavy=True,
    ),
    Route(
        "GET",
        "/selection/fields",
        "list_selection_fields",
        TAG,
        "List the fields of expressions, with their meanings.",
        ANYBODY,
        list_fields,
        {200: FieldList},
    ),
    Route(
        "GET",
        "/search",
        "search",
        TAG,
        "Find nodes, serials, addresses, ports, tenants, cases, alerts, campaigns, pages, verbs.",
        ANYBODY,
        search,
        {200: Hits},
        query=SearchQuery,
        heavy=True,
    ),
)
