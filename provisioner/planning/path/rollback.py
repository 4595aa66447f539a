"""Whether there is a way back, computed before there is a way forth. Pure.

The planner itself is asked: from a node that runs everything the release pins, to the baseline.
What it refuses (a fuse, no edge), and images that are not held, speak against it. Steps that
nothing undoes are named one by one: a person confirms them by these names.
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

NAMED_MAX = 20  # nodes by name; the rest is counted


class WayBack(Record):
    """How one node would go back. `one_way`: steps that nothing undoes, or that have no way back;
    a person confirms them by name. `blockers`: what else speaks against a way back."""

    node: str
    one_way: tuple[str, ...] = ()  # "component version"
    why: tuple[Blocker, ...] = ()  # what the planner said of the steps in `one_way`
    blockers: tuple[Blocker, ...] = ()
    steps: int = 0
    resets: int = 0
    minutes: int = 0


class RollbackPreview(Record):
    """What a campaign's way back means. `nodes` are moved; `minutes` are of all of them together.

    With `refused` it does not begin.
    """

    campaign: str
    baseline: str
    nodes: tuple[str, ...] = ()
    steps: int = 0
    resets: int = 0
    minutes: int = 0
    tenants: tuple[str, ...] = ()  # whose nodes are drained again
    refused: tuple[Blocker, ...] = ()

    def lines(self) -> tuple[str, ...]:
        """Return the sentences that a person reads before it begins."""
        cost = f"{self.steps} steps, {self.resets} resets, {self.minutes} node minutes"
        first = f"{len(self.nodes)} nodes of {self.campaign} go back to {self.baseline}: {cost}."
        if self.tenants:
            first += f" They are drained again from: {', '.join(self.tenants)}."
        more = len(self.nodes) - NAMED_MAX
        named = [f"  {name}" for name in self.nodes[:NAMED_MAX]]
        return (first, *named, *([f"  and {more} more"] if more > 0 else []))


def way_back(
    node: PlanningNode, forth: Plan, baseline: str, cache: PlanCache, held: Set[str] | None = None
) -> WayBack:
    """The way back to `baseline` after the plan `forth` has been carried out.

    `held`: names of the artifacts that are kept; None: nobody looked, and files are not judged.
    """
    name = node.inventory.node
    if not forth.steps:
        return WayBack(node=name)
    there = arrived(node.inventory, forth, cache)
    back = cache.plan(
        replace(node, inventory=there, release=baseline, history=type(node.history)())
    )
    against = [b.model_copy(update={"detail": f"back: {b.detail}"}) for b in back.blockers]
    if held is not None:
        against += [
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
    stay = {kind for b in against if (kind := b.subject.partition("/")[0]) in ends}
    one_way = [*one_way_steps(forth, cache), *(f"{kind} {ends[kind]}" for kind in sorted(stay))]
    return WayBack(
        node=name,
        one_way=tuple(dict.fromkeys(one_way)),
        why=tuple(b for b in against if b.subject.partition("/")[0] in stay),
        blockers=tuple(b for b in against if b.subject.partition("/")[0] not in stay),
        steps=len(back.steps),
        resets=back.resets,
        minutes=-(-back.duration_s // 60),
    )


def one_way_steps(forth: Plan, cache: PlanCache) -> tuple[str, ...]:
    """Steps of a plan behind which the matrix forbids going back, as "component version"."""
    release = cache.matrix.releases[forth.release]
    pins = {k: p for k, p in release.profiles[forth.profile].pins.items() if p.known}
    moves = Moves(cache.matrix, pins, cache.kinds, production=cache.production, leave=cache.leave)
    return tuple(
        dict.fromkeys(
            f"{step.component} {step.to_version}"
            for step in forth.steps
            if step.kind is StepKind.UPDATE
            and moves.bars(step.component, step.to_version, step.from_version)
        )
    )


def arrived(inventory: Inventory, forth: Plan, cache: PlanCache) -> Inventory:
    """The inventory as the plan leaves it: what it wrote runs, and nothing waits."""
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
