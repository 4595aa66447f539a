"""Routes of capabilities: the acts that people hand over on adopted nodes, step by step.

A dry run lists the nodes that gain or lose a capability, and the acts that were withheld of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field, model_validator
from typing_extensions import TypeAliasType

from provisioner.api.changes import Forecast, Outcome, build_objection
from provisioner.api.operations import OperationView
from provisioner.api.parts import ApiParts, Ask, Reply
from provisioner.api.problem import refuse_missing
from provisioner.api.route import ANYBODY, OPERATORS, VIEWERS, Effect, Route
from provisioner.model.access import ChangeKind, ChangeRequest, RequestState
from provisioner.model.adoption.capability import LADDER, Capability, Grant, GrantScope, Observation
from provisioner.model.base import Record
from provisioner.model.events import EventKind
from provisioner.model.node import Node, Origin
from provisioner.model.times.instant import Instant
from provisioner.planning.release.adoption import (
    covers_node,
    find_change,
    list_allowed,
    list_decisions,
    plan_withdrawal,
)
from provisioner.runtime import permit

# ------------------------------------------------------------------------------
# Routes of observing: the mode of the daemon, and the acts that it would carry out.


OBSERVATION_TAG = "observation"
Mode = TypeAliasType("Mode", Literal["act", "observe", "look_only"])


class ModeView(Record):
    """Whether this daemon changes devices."""

    mode: Mode = Field(
        description="act: it changes devices; observe: it was started to read alone; look_only: "
        "a restore must be settled first."
    )
    why: str = Field(description="Why no device is changed; empty: it acts.")
    withheld: int = Field(description="Requests that were refused before they were sent.")


class StrangePort(Record):
    """A port that stands in a tenant's network, and that no node owns."""

    port: str = Field(description="Leaf and interface.")
    why: str


class ObservationList(Record):
    """The last reading of every node."""

    items: tuple[Observation, ...]


class PortList(Record):
    """Ports of the leaves that no node owns."""

    items: tuple[StrangePort, ...]


def read_mode() -> Mode:
    if permit.is_observing():
        return "observe"
    return "look_only" if permit.get_closing_reason() else "act"


async def show_mode(ask: Ask) -> Reply:
    withheld = permit.get_scope().counts.get(permit.WITHHELD, 0)
    why = permit.get_closing_reason() if ask.caller.staff else ""
    return Reply(ModeView(mode=read_mode(), why=why, withheld=withheld))


async def list_observations(ask: Ask) -> Reply:
    """Return the last reading of every node; none where this daemon acts."""
    observer = ask.parts.observer
    rows = {} if observer is None else observer.observations
    return Reply(ObservationList(items=tuple(rows[name] for name in sorted(rows))))


async def show_observation(ask: Ask) -> Reply:
    node = await ask.read_node()
    observer = ask.parts.observer
    row = None if observer is None else observer.observations.get(node.id)
    if row is None:
        raise refuse_missing("observation of this node yet")
    return Reply(row)


async def list_strange_ports(ask: Ask) -> Reply:
    """Return the ports in tenants' networks that no node owns."""
    observer = ask.parts.observer
    rows = {} if observer is None else observer.ports
    return Reply(PortList(items=tuple(StrangePort(port=p, why=rows[p]) for p in sorted(rows))))


_ABSENT = {404: "This daemon does not observe, or has not read the node yet."}
OBSERVATION_ROUTES = (
    Route(
        "GET",
        "/mode",
        "show_mode",
        OBSERVATION_TAG,
        "Show whether this daemon changes devices, and why not.",
        ANYBODY,
        show_mode,
        {200: ModeView},
    ),
    Route(
        "GET",
        "/observations",
        "list_observations",
        OBSERVATION_TAG,
        "List what an observing daemon read of each node, and would do.",
        VIEWERS,
        list_observations,
        {200: ObservationList},
    ),
    Route(
        "GET",
        "/nodes/{node}/observation",
        "show_observation",
        OBSERVATION_TAG,
        "Show the last reading of a node, with its plan, ports, cables, health and refusals.",
        VIEWERS,
        show_observation,
        {200: Observation},
        refusals=_ABSENT,
    ),
    Route(
        "GET",
        "/observations/ports",
        "list_strange_ports",
        OBSERVATION_TAG,
        "List ports of leaves that stand in a tenant's network and belong to no node.",
        VIEWERS,
        list_strange_ports,
        {200: PortList},
    ),
)


TAG = "capabilities"
WOULD_MAX = 50  # rows of a node's journal that are looked through
LISTED_MAX = 20  # nodes that a preview names
STEPS = f"One step, the former ones first: {', '.join(Capability)}."


class CapabilityAsk(Record):
    """A capability over a set of nodes."""

    capability: Capability = Field(description=STEPS)
    scope: GrantScope = Field(description="site, unit, rack or node.")
    name: str = Field(
        "", max_length=128, description="Node, rack, or unit (pod0/su0); empty for the site."
    )
    reason: str = Field(min_length=1, max_length=500, description="Why; it is recorded.")

    @model_validator(mode="after")
    def _check(self) -> CapabilityAsk:
        if (self.scope is GrantScope.SITE) != (not self.name):
            raise ValueError("a unit, rack or node has a name, and the site has none")
        return self


class GrantList(Record):
    """All decisions on capabilities."""

    items: tuple[Grant, ...]


class WithheldAct(Record):
    """An act that would have been sent to a node."""

    at: Instant = Field(description="Time at which it was withheld.")
    act: str = Field(description="The act, as it would have been sent.")
    needs: Capability = Field(description="The capability that it needs.")
    why: str = Field(description="The capability that is lacking.")


class NodeCapabilities(Record):
    """The capabilities over one node, and the acts that were withheld."""

    node: str
    origin: Origin
    allowed: tuple[Capability, ...] = Field(description="Capabilities in force, in their order.")
    decisions: tuple[Grant, ...] = Field(description="The decision that counts for each.")
    would: tuple[WithheldAct, ...] = Field(description="Acts that were withheld, newest first.")


async def list_grants(ask: Ask) -> Reply:
    return Reply(GrantList(items=tuple(await ask.parts.store.grants.list())))


async def show_capabilities(ask: Ask) -> Reply:
    node = await ask.read_node()
    grants = await ask.parts.store.grants.list()
    allowed = list_allowed(node, grants)
    return Reply(
        NodeCapabilities(
            node=node.id,
            origin=node.origin,
            allowed=tuple(c for c in LADDER if c in allowed),
            decisions=tuple(list_decisions(node, grants).values()),
            would=await _list_withheld(ask.parts, node.id),
        )
    )


async def _list_withheld(parts: ApiParts, node: str) -> tuple[WithheldAct, ...]:
    rows, _ = await parts.store.journal.list_page(
        after=0, limit=WOULD_MAX, kinds=[EventKind.WOULD], node=node, backwards=True
    )
    return tuple(
        WithheldAct(
            at=row["at"],
            act=row["detail"]["act"],
            needs=Capability(row["detail"]["needs"]),
            why=row["detail"]["why"],
        )
        for row in rows
    )


async def ask_grant(ask: Ask) -> Reply:
    return await _ask(ask, ChangeKind.CAPABILITY_GRANT)


async def ask_withdrawal(ask: Ask) -> Reply:
    return await _ask(ask, ChangeKind.CAPABILITY_WITHDRAW)


async def _ask(ask: Ask, kind: ChangeKind) -> Reply:
    body: CapabilityAsk = ask.body
    subject = f"{body.scope.value} {body.name}".strip()
    arguments = body.model_dump(mode="json")
    return await ask.parts.works.submit_change(ask, kind, subject, "", arguments)


async def change_capability(parts: ApiParts, asked: ChangeRequest) -> Outcome:
    """Carry out a grant or a withdrawal."""
    plan = await _plan(parts, asked)
    if isinstance(plan, Outcome):
        return plan
    await parts.store.grants.put(plan.decisions, parts.clock.now())
    return Outcome(RequestState.DONE, {"lines": list(plan.lines)})


async def foresee_capability(parts: ApiParts, asked: ChangeRequest) -> Forecast:
    """Return the nodes that would gain or lose capabilities, and their withheld acts."""
    plan = await _plan(parts, asked)
    if isinstance(plan, Outcome):
        return Forecast(blockers=plan.blockers)
    lines = list(plan.lines)
    for node in plan.changed[:LISTED_MAX]:
        waiting = [a for a in await _list_withheld(parts, node.id) if a.needs in plan.gained]
        acts = list(dict.fromkeys(a.act for a in waiting))
        lines += [f"{node.id} would then: {act}" for act in acts[:3]]
    return Forecast(tuple(lines))


class _Plan(Record):
    decisions: tuple[Grant, ...]
    changed: tuple[Node, ...]
    gained: frozenset[Capability]
    lines: tuple[str, ...]


async def _plan(parts: ApiParts, asked: ChangeRequest) -> _Plan | Outcome:
    """Return the decisions that a request makes and their effects, or why it is refused."""
    body = CapabilityAsk.model_validate(asked.arguments, strict=False)
    grants = await parts.store.grants.list()
    nodes = [n for n in await parts.store.nodes.list() if n.origin is Origin.ADOPTED]
    grant = Grant(
        scope=body.scope,
        name=body.name,
        capability=body.capability,
        granted=asked.kind is ChangeKind.CAPABILITY_GRANT,
        by=asked.asked_by,
        at=parts.clock.now(),
        reason=body.reason,
    )
    inside = [n for n in nodes if covers_node(grant, n)]
    if not inside:
        remedy = "See the adopted nodes with their racks and units: `provisioner node list`."
        return build_objection(asked.subject, "no adopted node is there", remedy)
    if grant.granted and (lacking := _find_lacking(inside, grants, grant.capability)):
        detail = f"{lacking[0].id} has no {lacking[1]}, which {grant.capability} builds upon"
        return build_objection(asked.subject, detail, f"Grant {lacking[1]} there first.")
    decisions = (grant,) if grant.granted else plan_withdrawal(grant, grants, nodes)
    keys = {d.key for d in decisions}
    after = [*(g for g in grants if g.key not in keys), *decisions]
    effects = {n.id: find_change(n, grants, after) for n in inside}
    changed = tuple(n for n in inside if any(effects[n.id]))
    lines = tuple(_describe(changed, effects, len(inside)))
    gained = frozenset().union(*(effects[n.id][0] for n in changed))
    return _Plan(decisions=decisions, changed=changed, gained=gained, lines=lines)


def _find_lacking(
    nodes: Sequence[Node], grants: Sequence[Grant], capability: Capability
) -> tuple[Node, Capability] | None:
    """Return a node with a capability before this one that is not in force over it."""
    for node in nodes:
        allowed = list_allowed(node, grants)
        for before in LADDER[: LADDER.index(capability)]:
            if before not in allowed:
                return node, before
    return None


def _describe(
    changed: Sequence[Node],
    effects: dict[str, tuple[frozenset[Capability], frozenset[Capability]]],
    count: int,
) -> list[str]:
    lines = [f"{len(changed)} of {count} adopted nodes change."]
    for node in changed[:LISTED_MAX]:
        gained, lost = effects[node.id]
        parts = [f"gains {c}" for c in LADDER if c in gained]
        parts += [f"loses {c}" for c in LADDER if c in lost]
        lines.append(
            f"{node.id} ({node.state}, tenant {node.tenant or 'none'}): {', '.join(parts)}"
        )
    return lines


_ASKED = {200: OperationView, 202: OperationView}
ROUTES = (
    Route(
        "GET",
        "/capabilities",
        "list_capabilities",
        TAG,
        "List the decisions on capabilities over adopted nodes.",
        VIEWERS,
        list_grants,
        {200: GrantList},
    ),
    Route(
        "GET",
        "/nodes/{node}/capabilities",
        "show_capabilities",
        TAG,
        "Show the capabilities over a node, and the acts that were withheld of it.",
        VIEWERS,
        show_capabilities,
        {200: NodeCapabilities},
    ),
    Route(
        "POST",
        "/capabilities/grant",
        "grant_capability",
        TAG,
        "Grant a capability over adopted nodes: the site, a unit, a rack or a node.",
        OPERATORS,
        ask_grant,
        _ASKED,
        effect=Effect.LASTING,
        body=CapabilityAsk,
        example={"capability": "watch", "scope": "rack", "name": "su0-rack1", "reason": "step 1"},
        site=True,
    ),
    Route(
        "POST",
        "/capabilities/withdraw",
        "withdraw_capability",
        TAG,
        "Withdraw a capability over adopted nodes, and those that build upon it.",
        OPERATORS,
        ask_withdrawal,
        _ASKED,
        effect=Effect.LASTING,
        body=CapabilityAsk,
        example={"capability": "watch", "scope": "rack", "name": "su0-rack1", "reason": "stop"},
        site=True,
    ),
)
