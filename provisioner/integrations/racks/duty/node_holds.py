"""Holds of nodes whose racks are updated, or whose update began and is not proved.

A hold is an operation that no reconciler drives (`OUTSIDE`). The store admits no other one beside
it, so that no journey, release, upgrade or request begins at the node, also where the daemon has
lost this integration meanwhile. The node's row says why, and what would end it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from provisioner.integrations.racks.duty.approval import (
    CAMPAIGNS,
    TEXT_MAX,
    RackCampaignState,
    read_state,
)
from provisioner.integrations.racks.plan import RackPlan
from provisioner.model.events.node_events import NodeWaits
from provisioner.model.input_error import InputError
from provisioner.model.node import BmcRef, Node, State
from provisioner.model.operation import OUTSIDE, Operation, OperationStatus
from provisioner.model.outcome import Blocker, Reason
from provisioner.ports import Clock, Fenced, StaleWrite
from provisioner.settings import Settings
from provisioner.store.sql_store import SqlStore

WANT = f"{OUTSIDE}rack campaign "
_SERVES = frozenset({State.RELEASED, State.DRAINING})
# in which an operation may be ended at any time, as by a death: nobody uses the node yet
_BEFORE_USE = frozenset({State.DISCOVERED, State.INTAKE, State.CONVERGING, State.VALIDATING})


class HoldParts(Protocol):
    """What holds need of the daemon's parts."""

    @property
    def store(self) -> SqlStore: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def settings(self) -> Settings: ...


@dataclass(frozen=True)
class NodeHolds:
    """One per daemon."""

    parts: HoldParts

    async def find_nodes(self, plan: RackPlan) -> Mapping[str, tuple[Node, BmcRef]]:
        """Return the node of each unit whose BMC is one of a node's, by the unit's name."""
        nodes = await self.parts.store.nodes.list()
        known = {find_socket(ref.url): (node, ref) for node in nodes for ref in node.bmcs}
        units = (unit for rack in plan.racks for unit in rack.units if unit.bmc)
        placed = ((unit.name, find_socket(unit.bmc)) for unit in units)
        return {name: known[where] for name, where in placed if where in known}

    async def list_active(self) -> Mapping[str, Operation]:
        """Return the holds of all rack campaigns, by node."""
        active = await self.parts.store.operations.list_active()
        return {one.node: one for one in active if one.want.startswith(WANT)}

    async def hold(self, node: str, name: str, *, firmly: bool = False) -> str:
        """Keep the daemon's other parts from a node; return who has it instead, "" if we do.

        The hold of a campaign that was withdrawn does for another one, too. `firmly`: a journey on
        its way to a first use is ended.
        """
        operations = self.parts.store.operations
        want = build_want(name)
        now = self.parts.clock.now()
        opened = await operations.open(node, want, now)
        if opened is None:
            active = [o for o in await operations.list_active() if o.node == node]
            others = [o for o in active if o.want != want and not self._is_left(o)]
            if others and firmly and await self._end_journey(others[0], name):
                opened = await operations.open(node, want, now)
            if others and opened is None:
                return f"operation {others[0].id} ({others[0].want})"
            if not active:  # it is asked again in the next round
                return "an operation that has just ended"
        found = await self.parts.store.nodes.get(node)
        tenant = "somebody" if found is None else find_tenant(found)  # released in between
        if opened is not None:
            if tenant:
                await self.end(opened, "a tenant has it")
            else:
                await self.tell(opened)
        return tenant

    async def free(
        self, name: str, plan: RackPlan, kept: Collection[str], needed: Collection[str]
    ) -> None:
        """End a campaign's holds on nodes of the plan, but on those of the units `kept`, and on the
        nodes that other campaigns need to be held.
        """
        nodes = await self.find_nodes(plan)
        freed = {node.id for unit, (node, _) in nodes.items() if unit not in kept} - set(needed)
        for node, one in (await self.list_active()).items():
            if one.want == build_want(name) and node in freed:
                await self.end(one, "nothing unproved is left in its domain")

    async def tell(self, one: Operation) -> None:
        """Write into the row of a held node what holds it, unless it stands there."""
        node = await self.parts.store.nodes.get(one.node)
        blocker = build_blocker(one)
        if node is None or node.note == str(blocker):
            return
        operations = self.parts.store.operations
        with contextlib.suppress(Fenced, StaleWrite):  # it is told with the next look
            taken = await operations.take(one.id)
            noted = node.model_copy(update={"note": str(blocker)})
            events = [NodeWaits(blockers=(blocker,))]
            await operations.record(taken, node=noted, events=events, now=self.parts.clock.now())

    async def end(self, one: Operation, why: str) -> None:
        """End a hold; where its row changes meanwhile it stands until the next look."""
        operations = self.parts.store.operations
        now = self.parts.clock.now()
        with contextlib.suppress(Fenced, StaleWrite):
            taken = await operations.take(one.id)
            node = await self.parts.store.nodes.get(one.node)
            if node is not None and node.note == str(build_blocker(one)):
                noted = node.model_copy(update={"note": why[:TEXT_MAX]})
                taken, _ = await operations.record(taken, node=noted, now=now)
            await operations.end(taken, OperationStatus.DONE, why[:TEXT_MAX])

    def _is_left(self, one: Operation) -> bool:
        """Return whether it is the hold of a campaign that was withdrawn."""
        if not one.want.startswith(WANT):
            return False
        name = one.want.removeprefix(WANT)
        try:
            state = read_state(Path(self.parts.settings.racks_folder, CAMPAIGNS, name))
        except InputError:
            return False
        return state is not None and state.state is RackCampaignState.WITHDRAWN

    async def _end_journey(self, one: Operation, name: str) -> bool:
        """End a journey to a first use; return whether it was one."""
        node = await self.parts.store.nodes.get(one.node)
        early = node is not None and node.state in _BEFORE_USE
        if early and one.want in {state.value for state in State}:
            await self.end(one, f"rack campaign {name} holds it")
            return True
        return False


def build_want(name: str) -> str:
    return f"{WANT}{name}"


def build_blocker(one: Operation) -> Blocker:
    """Return why nothing else is done with a held node."""
    name = one.want.removeprefix(WANT)
    return Blocker(
        reason=Reason.CANNOT_TELL,
        subject=one.node,
        detail=f"rack campaign {name} may have written to its NVLink domain, and not every version "
        "of it is proved",
        unblock="It ends with the proof, which wants `racks_update`. Of a withdrawn campaign also "
        f"by a person's word: `provisioner rack vouch RACKS_FOLDER {name} {one.node} --who YOU "
        "--why REASON` (docs/racks.md#the-daemon)",
    )


def find_tenant(node: Node) -> str:
    """Return whose host or data a node is; a node that is only promised to somebody is free."""
    if node.state in _SERVES or node.served:
        return node.served or node.tenant or "somebody"
    return ""


def find_socket(url: str) -> str:
    """Return HOST:PORT of an address."""
    parts = urlsplit(url.lower())
    port = parts.port or (80 if parts.scheme == "http" else 443)
    return f"{parts.hostname}:{port}"
