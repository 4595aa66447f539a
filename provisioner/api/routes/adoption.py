"""The routes that adopt nodes which serve, and give them back: no device is changed by either.

The list of an adoption has the form of an intake's. Its logins are the site's own: they go sealed
into the vault. A detachment changes the node's row alone; the gate of capabilities refuses every
act on it from then on.
"""

from __future__ import annotations

import uuid
from typing import Any

from pydantic import Field

from provisioner.adapters.redfish.discovery import parse_network, probe_all, scan
from provisioner.api.changes import Forecast, Outcome, build_failure, build_objection, find_node
from provisioner.api.operations import OperationState, OperationView
from provisioner.api.parts import ApiParts, Ask, Reply
from provisioner.api.problem import build_refusal
from provisioner.api.route import OPERATORS, Effect, Route, format_etag
from provisioner.api.routes import intake
from provisioner.execution.tenancy.adopting import Adopted, AdoptionSite, adopt_nodes
from provisioner.model.access import ChangeKind, ChangeRequest, RequestState
from provisioner.model.base import Record
from provisioner.model.campaign import SETTLED
from provisioner.model.events.request_events import RequestCarriedOut
from provisioner.model.expected import Expected
from provisioner.model.input_error import InputError
from provisioner.model.node import Node
from provisioner.model.outcome import Blocker, Gap
from provisioner.planning.intake import expected_text
from provisioner.planning.intake.pairing import name_causes
from provisioner.planning.release.adoption import (
    PresentWork,
    describe_detachment,
    describe_end,
    detach_node,
    end_detachment,
    find_detach_obstacles,
    find_end_obstacles,
)
from provisioner.ports import Secret
from provisioner.runtime import permit

TAG = "observation"
SEALED = "adoption"  # prefix of the vault's names for lists that wait


class AdoptionList(Record):
    """The body of an adoption: the list with the site's logins, and further addresses of BMCs."""

    expected: str = Field(
        min_length=1,
        max_length=intake.BODY_MAX,
        repr=False,
        description="The list of serving nodes as YAML or JSON, with the site's logins in it.",
    )
    bmc: tuple[str, ...] = Field(
        (), max_length=intake.BMCS_MAX, description="URLs of further BMCs, such as those of cards."
    )
    networks: tuple[str, ...] = Field(
        (),
        max_length=intake.NETWORKS_MAX,
        description="Networks whose addresses are probed: 10.0.0.0/24.",
    )
    port: int = Field(443, ge=1, le=65535, description="Port that is probed in networks.")
    recorded_tenants: dict[str, str] = Field(
        default_factory=dict,
        max_length=intake.BMCS_MAX,
        description="Tenants of nodes as another system records them: another one is refused.",
    )


class Detachment(Record):
    """The body of a detachment."""

    reason: str = Field(min_length=1, max_length=200, description="Why; it is recorded.")
    gone: bool = Field(
        default=False,
        description="A detached node's hardware is gone: its ports and BMCs are free again.",
    )


async def ask_adoption(ask: Ask) -> Reply:
    parts = ask.parts
    body: AdoptionList = ask.body
    if parts.observer is None or parts.vault is None or parts.transport is None:
        unblock = "Start the daemon with --observe (docs/adopting.md)."
        raise build_refusal(409, "observe", "Only a daemon that observes adopts nodes", unblock)
    try:
        expected = expected_text.parse("expected", body.expected)
        intake.read_secrets(expected)
        for text in body.networks:
            parse_network(text)
        for url in body.bmc:
            intake.check_url(url)
    except InputError as error:
        detail = f"{error.where}: {error.problem}"
        raise build_refusal(
            400, "expected", "The list cannot be used", error.remedy, detail
        ) from None
    if ask.dry_run:
        return await _forecast(ask, expected, body)
    arguments: dict[str, Any] = body.model_dump(mode="json", exclude={"expected"})
    arguments |= {"site": expected.site, "nodes": len(expected.nodes)}
    arguments["sealed"] = f"{SEALED}/{uuid.uuid4().hex}"
    await parts.vault.put(arguments["sealed"], "list", Secret(body.expected))
    kind = ChangeKind.NODE_ADOPT
    return await parts.works.submit_change(ask, kind, expected.site, "", arguments)


async def _forecast(ask: Ask, expected: Expected, body: AdoptionList) -> Reply:
    adopted, silent = await _run(ask.parts, expected, body, by="", keep=False)
    lines = [f"{n.id} enters as released to {n.tenant}." for n in adopted.nodes if n.tenant]
    shown = OperationView(
        id="",
        kind=ChangeKind.NODE_ADOPT.value,
        subject=expected.site,
        state=OperationState.DRY_RUN,
        opened_at=ask.now,
        result={"lines": lines, **_result(expected, adopted, silent)},
    )
    return Reply(shown)


async def change_adoption(parts: ApiParts, asked: ChangeRequest) -> Outcome:
    """Carry it out; each node is stored with its logins, and nothing is sent but readings."""
    assert parts.vault is not None
    arguments = asked.arguments
    sealed = await parts.vault.current(str(arguments["sealed"]))
    if sealed is None or parts.observer is None:
        return build_objection(asked.subject, "its list is gone", "Send the list again.")
    expected = expected_text.parse("expected", sealed[1].reveal())
    fields = {
        k: arguments[k] for k in ("bmc", "networks", "port", "recorded_tenants") if k in arguments
    }
    body = AdoptionList.model_validate({"expected": "sealed", **fields}, strict=False)
    adopted, silent = await _run(parts, expected, body, by=asked.asked_by, keep=True)
    await parts.vault.remove(str(arguments["sealed"]))
    return Outcome(RequestState.DONE, _result(expected, adopted, silent))


async def _run(
    parts: ApiParts, expected: Expected, body: AdoptionList, *, by: str, keep: bool
) -> tuple[Adopted, tuple[Blocker, ...]]:
    assert parts.transport is not None
    assert parts.vault is not None
    assert parts.observer is not None
    gaps: list[Gap] = []
    urls = [*body.bmc, *(n.bmc.url for n in expected.nodes if n.bmc.url)]
    probes = {p.url: p for p in await probe_all(parts.transport, urls, gap_seen=gaps.append)}
    for text in body.networks:
        network = parse_network(text)
        for probe in await scan(parts.transport, network, body.port, lambda _done, _all: None):
            probes.setdefault(probe.url, probe)
    site = AdoptionSite(parts.transport, parts.store, parts.vault, parts.observer.tenancy)
    adopted = await adopt_nodes(
        site,
        expected,
        intake.read_secrets(expected),
        list(probes.values()),
        by=by,
        now=parts.clock.now(),
        keep=keep,
        recorded_tenants=body.recorded_tenants,
    )
    return adopted, tuple(intake.describe_unanswered(gap) for gap in gaps)


def _result(expected: Expected, adopted: Adopted, silent: tuple[Blocker, ...]) -> dict[str, Any]:
    blockers = name_causes(expected, adopted.blockers, silent)
    return {
        "adopted": [n.id for n in adopted.nodes],
        "known": list(adopted.known),
        "blockers": [b.model_dump(mode="json") for b in blockers],
    }


async def ask_detachment(ask: Ask) -> Reply:
    """Ask to give a node back as it stands."""
    node = await ask.read_node()
    ask.check_match(format_etag(node.generation))
    arguments = ask.body.model_dump(mode="json")
    kind = ChangeKind.NODE_DETACH
    return await ask.parts.works.submit_change(ask, kind, node.id, "", arguments)


async def change_detachment(parts: ApiParts, asked: ChangeRequest) -> Outcome:
    """Give a node back: its row changes and its certificate is revoked, in one transaction."""
    judged = await _judge_detachment(parts, asked)
    if isinstance(judged, Outcome):
        return judged
    now = parts.clock.now()
    reason = str(asked.arguments["reason"])
    if asked.arguments["gone"]:
        row = end_detachment(judged, asked.asked_by, reason)
    else:
        row = detach_node(judged, asked.asked_by, reason, now)
    event = RequestCarriedOut(
        request="gone" if asked.arguments["gone"] else "detach",
        by=asked.asked_by,
        id=asked.id,
        approved=asked.decided_by,
        why=reason,
        certificate=judged.certificate,
    )
    await parts.store.nodes.save_detached(row, judged.certificate, event, now)
    if not permit.is_observing():
        await parts.context.get_gate().open()  # writes of this process are named from now on
    return Outcome(RequestState.DONE, {"origin": row.origin.value})


async def foresee_detachment(parts: ApiParts, asked: ChangeRequest) -> Forecast:
    judged = await _judge_detachment(parts, asked)
    if isinstance(judged, Outcome):
        return Forecast(blockers=judged.blockers)
    describe = describe_end if asked.arguments["gone"] else describe_detachment
    return Forecast(describe(judged))


async def _judge_detachment(parts: ApiParts, asked: ChangeRequest) -> Node | Outcome:
    node = await find_node(parts, asked)
    if isinstance(node, Outcome):
        return node
    if asked.arguments["gone"]:
        obstacles = find_end_obstacles(node)
    else:
        nodes = await parts.store.nodes.list()
        obstacles = find_detach_obstacles(node, nodes, await _list_work(parts, node))
    return build_failure(*obstacles) if obstacles else node


async def _list_work(parts: ApiParts, node: Node) -> PresentWork:
    operations = await parts.store.operations.list_active()
    rows = await parts.store.campaigns.list_active_rows()
    cases = await parts.store.cases.list_open()
    vault = parts.vault
    bmcs = () if vault is None else node.bmcs
    return PresentWork(
        operation=next((o.want for o in operations if o.node == node.id), ""),
        case=next((c.id for c in cases if node.id in (c.node, c.stand_in)), ""),
        campaign=next(
            (r.campaign for r in rows if r.node == node.id and r.progress.state not in SETTLED), ""
        ),
        passwords=tuple(
            [b.name for b in bmcs if vault and await vault.pending(f"{node.id}/{b.name}")]
        ),
    )


ROUTES = (
    Route(
        "POST",
        "/adoption",
        "adopt_nodes",
        TAG,
        "Adopt nodes that serve: they enter as released to the tenant whose network they are in.",
        OPERATORS,
        ask_adoption,
        {200: OperationView, 202: OperationView},
        effect=Effect.LASTING,
        body=AdoptionList,
        body_max=intake.BODY_MAX,
        example={"expected": "site: x\nnodes: []\n"},
        refusals={409: "This daemon acts: only one that observes adopts nodes."},
        site=True,
    ),
    Route(
        "POST",
        "/nodes/{node}/detach",
        "detach_node",
        TAG,
        "Give a node in service back to another system, as it stands: nothing is sent to it.",
        OPERATORS,
        ask_detachment,
        {200: OperationView, 202: OperationView},
        effect=Effect.LASTING,
        body=Detachment,
        entity=True,
        refusals={409: "It is not in service, or work on it is under way."},
        example={"reason": "back to Ironic"},
    ),
)
