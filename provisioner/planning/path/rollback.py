"""Rollback plans, computed before a campaign begins. Pure.

The planner computes the way from a node that runs all pins of the new release back to the baseline.
Its blockers (a fuse, a missing edge) and files that are not in the artifact store are reasons
against a rollback. Irreversible steps are named one by one, so that an operator confirms each by
its name.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from provisioner.model.base import Record
from provisioner.model.inventory import Inventory
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.plan import Plan, StepKind
from provisioner.planning.path.hops import Moves
from provisioner.planning.path.pins import judge_pin
from provisioner.planning.path.planner import PlanCache, PlanningNode

NAMED_MAX = 20  # nodes listed by name; the others are counted


class WayBack(Record):
    """The rollback of one node.

    `one_way` names the steps that are irreversible or have no way back; an operator confirms them
    by name. `blockers` are all other reasons against a rollback.
    """

    node: str
    one_way: tuple[str, ...] = ()  # "component version"
    why: tuple[Blocker, ...] = ()  # the planner's blockers for `one_way`
    blockers: tuple[Blocker, ...] = ()
    steps: int = 0
    resets: int = 0
    minutes: int = 0


class RollbackPreview(Record):
    """The effect of a campaign's rollback on its nodes.

    `minutes` is the sum over all nodes. A rollback with `refused` does not begin.
    """

    campaign: str
    baseline: str
    nodes: tuple[str, ...] = ()
    steps: int = 0
    resets: int = 0
    minutes: int = 0
    tenants: tuple[str, ...] = ()  # tenants whose nodes are drained again
    refused: tuple[Blocker, ...] = ()

    def format_lines(self) -> tuple[str, ...]:
        """Return the sentences that an operator reads before the rollback begins."""
        cost = f"{self.steps} steps, {self.resets} resets, {self.minutes} node minutes"
        first = f"{len(self.nodes)} nodes of {self.campaign} go back to {self.baseline}: {cost}."
        if self.tenants:
            first += f" They are drained again from: {', '.join(self.tenants)}."
        more = len(self.nodes) - NAMED_MAX
        named = [f"  {name}" for name in self.nodes[:NAMED_MAX]]
        return (first, *named, *([f"  and {more} more"] if more > 0 else []))


def plan_way_back(
    node: PlanningNode, forth: Plan, baseline: str, cache: PlanCache, held: Set[str] | None = None
) -> WayBack:
    """Return the rollback to `baseline` after the plan `forth` has been carried out.

    `held` names the files in the artifact store; None means that it was not read, and files are
    then not checked.
    """
    name = node.inventory.node
    if not forth.steps:
        return WayBack(node=name)
    updated = apply_plan(node.inventory, forth, cache)
    back = cache.plan(
        replace(node, inventory=updated, release=baseline, history=type(node.history)())
    )
    reasons = [b.model_copy(update={"detail": f"back: {b.detail}"}) for b in back.blockers]
    if held is not None:
        reasons += [
            Blocker(
                reason=Reason.MISSING_ARTIFACT,
                subject=step.component,
                detail=f"back: {step.artifact} is not held",
                unblock=f"Put {step.artifact} into the artifact store before the campaign begins.",
            )
            for step in back.steps
            if step.artifact and step.artifact not in held
        ]
    ends = {s.component: s.to_version for s in forth.steps if s.kind is StepKind.UPDATE}
    stay = {kind for b in reasons if (kind := b.subject.partition("/")[0]) in ends}
    one_way = [
        *find_one_way_steps(forth, cache),
        *(f"{kind} {ends[kind]}" for kind in sorted(stay)),
    ]
    return WayBack(
        node=name,
        one_way=tuple(dict.fromkeys(one_way)),
        why=tuple(b for b in reasons if b.subject.partition("/")[0] in stay),
        blockers=tuple(b for b in reasons if b.subject.partition("/")[0] not in stay),
        steps=len(back.steps),
        resets=back.resets,
        minutes=-(-back.duration_s // 60),
    )


def find_one_way_steps(forth: Plan, cache: PlanCache) -> tuple[str, ...]:
    """Return the steps after which the matrix forbids going back, as "component version"."""
    release = cache.matrix.releases[forth.release]
    pins = {k: p for k, p in release.profiles[forth.profile].pins.items() if p.known}
    moves = Moves(cache.matrix, pins, cache.kinds, production=cache.production, leave=cache.leave)
    return tuple(
        dict.fromkeys(
            f"{step.component} {step.to_version}"
            for step in forth.steps
            if step.kind is StepKind.UPDATE
            and moves.find_one_way_edge(step.component, step.to_version, step.from_version)
        )
    )


def apply_plan(inventory: Inventory, forth: Plan, cache: PlanCache) -> Inventory:
    """Return the inventory after the plan: its versions run, and none is staged."""
    pins = cache.matrix.releases[forth.release].profiles[forth.profile].pins
    carried: dict[str, str] = {}
    written: dict[tuple[str, str], str] = {}
    for step in forth.steps:
        carried |= dict(step.carries)
        written |= {(step.component, slot): step.to_version for slot in step.slots}
    parts = []
    for part in inventory.components:
        version = written.get((part.kind, part.slot), carried.get(part.kind, part.version))
        pin = pins.get(part.kind)
        if pin and pin.known and not judge_pin(part.kind, version, pin).met:
            version = pin.version  # a bundle's parts follow it; the plan ends with every pin
        parts.append(part.model_copy(update={"version": version, "staged": None, "pending": None}))
    return inventory.model_copy(update={"components": tuple(parts)})
