"""The facts of the fleet for a campaign's decision, read at its start and at every turn.

Plans are made once, when a campaign is previewed or started: while a node is under way its plan
shrinks. A turn reads the nodes' rows only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence, Set

from provisioner import components
from provisioner.control.node.explaining import read_facing_versions
from provisioner.execution.observe.identify import bill_of_materials
from provisioner.model.campaign import Campaign, CampaignNode, CampaignRow, ReleasePin
from provisioner.model.inventory import DeviceKind, Inventory
from provisioner.model.matrix import Matrix, Release
from provisioner.model.node import Node, NodeKind, Origin, State
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.plan import Neighbour, Plan
from provisioner.planning.campaigns.campaign_moves import (
    find_obstacle,
    find_pin_conflict,
    is_in_service,
)
from provisioner.planning.lifecycle.admission import rails_of
from provisioner.planning.path.planner import PlanCache, PlanningNode, WayBack, plan_way_back
from provisioner.planning.path.profiles import choose_profile
from provisioner.planning.places.address_plan import AddressPlan
from provisioner.planning.places.place_ports import find_switch, list_switch_groups
from provisioner.settings import Settings
from provisioner.store.sql_store import SqlStore

Versions = dict[str, tuple[str, ...]]


def read_standing(
    node: Node,
    campaign: Campaign,
    pins: Sequence[ReleasePin],
    known: CampaignRow | None,
    leaf_rails: Mapping[str, tuple[int, ...]],
    now: float,
    plan: AddressPlan | None = None,
) -> CampaignNode:
    """The present facts of one node, by its row; `known`: its plan at the campaign's start."""
    facts = CampaignNode(name=node.id) if known is None else known.facts
    blockers: tuple[Blocker, ...] = ()
    returning = taken_back = False
    if known is not None:
        back = campaign.going_back
        held = None if back else find_pin_conflict(node, campaign.target, pins, now)
        obstacle = held or find_obstacle(node, rolling_back=back)
        if obstacle is not None and obstacle.reason is Reason.BUSY:
            obstacle = None
            returning = True
        blockers = (obstacle,) if obstacle is not None else () if back else facts.blockers
        taken_back = back and node.state is State.QUARANTINED and not blockers
    location = node.location
    return facts.model_copy(
        update={
            "kind": node.kind,
            "selected": known is not None,
            "profile": facts.profile or node.profile,
            "rack": location.rack,
            "unit": f"pod{location.pod}/su{location.scalable_unit}",
            "leaves": tuple(sorted({p.switch for p in node.ports})),
            "rails": leaf_rails.get(node.id, ()),
            "planes": facts.planes or planes_of(node, plan),
            "groups": list_switch_groups(node.id, plan) if node.kind is NodeKind.SWITCH else (),
            "tenant": node.tenant,
            "in_service": is_in_service(node),
            "recalled": taken_back,
            "returning": returning,
            "blockers": blockers,
        }
    )


def read_fleet(
    nodes: Sequence[Node],
    campaign: Campaign,
    rows: Sequence[CampaignRow],
    pins: Sequence[ReleasePin],
    now: float,
    plan: AddressPlan | None = None,
) -> tuple[CampaignNode, ...]:
    """Return all nodes as `rollout.decide` takes them; retired ones are left out."""
    mine = {r.node: r for r in rows}
    by_leaf = rails_of(nodes)
    return tuple(
        read_standing(n, campaign, pins, mine.get(n.id), by_leaf, now, plan)
        for n in nodes
        if n.state is not State.RETIRED
    )


def planes_of(node: Node, plan: AddressPlan | None) -> tuple[int, ...]:
    """Return the plane of a switch, by its planned name; () where a fabric has only one."""
    place = find_switch(node.id, plan) if node.kind is NodeKind.SWITCH else None
    return (place.plane,) if place and plan and plan.planes > 1 else ()


class Survey:
    """Plans for every selected node, from the recorded inventories: reads, touches nothing."""

    def __init__(
        self, store: SqlStore, matrix: Matrix, settings: Settings, held: Set[str] | None = None
    ) -> None:
        self._store = store
        self._matrix = matrix
        self._held = held  # artifacts that a way back needs and that are available; None: unknown
        self._settings = settings
        self._versions: dict[str, Versions] = {}

    async def read_plans(
        self, nodes: Sequence[Node], selected: Collection[str], release: str
    ) -> dict[str, tuple[CampaignNode, Plan | None]]:
        """Return each selected node's plan for `release`; a blocker gives the reason where there is
        no path.
        """
        pinned = self._matrix.releases[release]
        leave = frozenset(self._settings.switch_methods_allowed)
        production = self._settings.production
        way = self._settings.maintenance_boot
        cache = PlanCache(self._matrix, components.ALL, production, leave, way)
        below = _below(nodes)
        await self._read_versions(nodes)
        ahead = self._ahead(nodes, selected, pinned)
        planned = {}
        for node in nodes:
            if node.id not in selected:
                continue
            inventory = await self._store.evidence.get_inventory(node.id)
            planned[node.id] = await asyncio.to_thread(
                self._planned, node, inventory, pinned, release, cache, _around(node, below), ahead
            )
        return planned

    def _planned(
        self,
        node: Node,
        inventory: Inventory | None,
        pinned: Release,
        release: str,
        cache: PlanCache,
        around: Sequence[str],
        ahead: Mapping[str, Versions],
    ) -> tuple[CampaignNode, Plan | None]:
        facts = CampaignNode(name=node.id, kind=node.kind)
        if inventory is None:
            blocker = Blocker(
                reason=Reason.VERSION_MISSING,
                subject=node.id,
                detail="its installed versions are unknown",
                unblock="Let it be taken in first.",
            )
            return facts.model_copy(update={"blockers": (blocker,)}), None
        profile = choose_profile(inventory, pinned, node.kind)
        if isinstance(profile, Blocker):
            return facts.model_copy(update={"blockers": (profile,)}), None
        plan = self._plan(cache, inventory, release, profile, around, self._versions)
        after: tuple[str, ...] = ()
        if any(b.reason is Reason.CONSTRAINT for b in plan.blockers):
            # what its neighbours do not run yet, and will when they are done
            then = {**self._versions, **{n: ahead[n] for n in around if n in ahead}}
            later = self._plan(cache, inventory, release, profile, around, then)
            if not later.blockers:
                plan = later
                after = tuple(n for n in around if n in ahead)
        back = self._way_back(node, inventory, plan, around, cache)
        return (
            facts.model_copy(
                update={
                    "profile": profile,
                    "revision": revision_of(inventory),
                    "gpus": len(inventory.devices_of(DeviceKind.GPU)),
                    "steps": len(plan.steps),
                    "resets": plan.resets,
                    "minutes": -(-plan.duration_s // 60),
                    "one_way": back.one_way,
                    "irreversible": back.blockers,
                    "after": after,
                    "blockers": (*plan.blockers, *_find_missing(node, inventory, profile, pinned)),
                }
            ),
            plan,
        )

    def _plan(
        self,
        cache: PlanCache,
        inventory: Inventory,
        release: str,
        profile: str,
        around: Sequence[str],
        versions: Mapping[str, Versions],
    ) -> Plan:
        ends = tuple(Neighbour(node=n, versions=versions[n]) for n in around if n in versions)
        return cache.plan(PlanningNode(inventory, release, profile, neighbours=ends))

    def _way_back(
        self, node: Node, inventory: Inventory, plan: Plan, around: Sequence[str], cache: PlanCache
    ) -> WayBack:
        """Return the way back to the node's present release; a node on none has no way back."""
        if not node.release or node.release == plan.release or plan.blockers:
            return WayBack(node=node.id)
        ends = tuple(
            Neighbour(node=n, versions=self._versions[n]) for n in around if n in self._versions
        )
        question = PlanningNode(inventory, plan.release, plan.profile, neighbours=ends)
        return plan_way_back(question, plan, node.release, cache, self._held)

    async def _read_versions(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            inventory = await self._store.evidence.get_inventory(node.id)
            if inventory is not None:
                self._versions[node.id] = read_facing_versions(inventory)

    def _ahead(
        self, nodes: Sequence[Node], selected: Collection[str], pinned: Release
    ) -> dict[str, Versions]:
        """Return the versions that selected nodes will show their neighbours after the campaign."""
        versions_ahead = {}
        for node in nodes:
            if node.id not in selected or node.id not in self._versions:
                continue
            profile = pinned.profiles.get(node.profile)
            pins = {} if profile is None else profile.pins
            now = self._versions[node.id]
            versions_ahead[node.id] = {
                kind: (pins[kind].version,) if kind in pins and pins[kind].known else versions
                for kind, versions in now.items()
            }
        return versions_ahead


def _below(nodes: Sequence[Node]) -> dict[str, list[str]]:
    """Return the nodes whose cables end on each leaf."""
    below: dict[str, list[str]] = {}
    for node in sorted(nodes, key=lambda n: n.id):
        for leaf in {p.switch for p in node.ports}:
            below.setdefault(leaf, []).append(node.id)
    return below


def _around(node: Node, below: Mapping[str, Sequence[str]]) -> Sequence[str]:
    if node.kind is NodeKind.HOST:
        return sorted({p.switch for p in node.ports})
    return below.get(node.id, ())


def _find_missing(
    node: Node, inventory: Inventory, profile: str, pinned: Release
) -> tuple[Blocker, ...]:
    """Return the parts that an adopted host lacks: no certificate could bring it back into service.

    No intake has compared its parts with its profile.
    """
    if node.origin is not Origin.ADOPTED or node.certificate:
        return ()
    return bill_of_materials(node, inventory, profile, pinned.profiles[profile])


def revision_of(inventory: Inventory) -> str:
    """The hardware revision, for spreading canaries: model and the baseboard's part number."""
    boards = inventory.devices_of(DeviceKind.BASEBOARD)
    parts = sorted({b.part or b.model or "" for b in boards})
    return " ".join(filter(None, (inventory.model or "", *parts)))
