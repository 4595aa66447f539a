"""Holds of nodes whose racks are updated, or whose update began and is not proved.

A hold is an operation that no reconciler drives (`OUTSIDE`). The store admits no other one beside
it, so that no journey, release, upgrade or request begins at the node, also where the daemon has
lost this integration meanwhile. It names every approval that relies on it; each takes only itself
away, and it ends with the last one. The node's row says why, and what would end it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from provisioner.integrations.racks.duty.approval import (
    CAMPAIGNS,
    TEXT_MAX,
    RackCampaignState,
    build_mark,
    read_approval,
    read_state,
)
from provisioner.integrations.racks.hand_journals import HANDS
from provisioner.integrations.racks.plan import RackPlan, normalize_host
from provisioner.model.events.node_events import NodeWaits
from provisioner.model.input_error import InputError
from provisioner.model.node import BmcRef, Node, State
from provisioner.model.operation import OUTSIDE, Operation, OperationStatus
from provisioner.model.outcome import Blocker, Reason
from provisioner.ports import Clock, Fenced, StaleWrite
from provisioner.ports.isolation import Membership
from provisioner.settings import Settings
from provisioner.store.sql_store import SqlStore

WANT = f"{OUTSIDE}rack campaign "
_SERVES = frozenset({State.RELEASED, State.DRAINING})
# in which an operation may be ended at any time, as by a death: nobody uses the node yet
_BEFORE_USE = frozenset({State.DISCOVERED, State.INTAKE, State.CONVERGING, State.VALIDATING})


class Beside(Protocol):
    """The systems that have hosts for tenants, beside the fabric."""

    @property
    def memberships(self) -> Sequence[Membership]: ...


class HoldParts(Protocol):
    """What holds need of the daemon's parts."""

    @property
    def store(self) -> SqlStore: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def settings(self) -> Settings: ...
    @property
    def fabrics(self) -> Beside | None: ...


@dataclass(frozen=True)
class NodeHolds:
    """One per daemon."""

    parts: HoldParts

    async def find_nodes(self, plan: RackPlan) -> Mapping[str, tuple[Node, BmcRef]]:
        """Return the node of each unit whose BMC is one of a node's, by the unit's name."""
        return place_nodes(plan, await self.parts.store.nodes.list())

    async def list_active(self) -> Mapping[str, Operation]:
        """Return the holds of all rack campaigns, by node."""
        active = await self.parts.store.operations.list_active()
        return {one.node: one for one in active if one.want.startswith(WANT)}

    async def hold(self, node: str, mark: str, *, firmly: bool = False) -> str:
        """Keep the daemon's other parts from a node; return who has it instead, "" if we do.

        A hold of campaigns that were all withdrawn is joined. `firmly`: that of any campaign, and a
        journey on its way to a first use is ended.
        """
        operations = self.parts.store.operations
        now = self.parts.clock.now()
        opened = await operations.open(node, build_want((mark,)), now)
        if opened is None:
            other = next((o for o in await operations.list_active() if o.node == node), None)
            if other is None:  # it is asked again in the next round
                return "an operation that has just ended"
            if mark not in read_marks(other):
                if await self._may_join(other, firmly=firmly):
                    if not await self._join(other, mark):
                        return "an operation that has just changed"
                elif firmly and await self._end_journey(other, mark):
                    opened = await operations.open(node, build_want((mark,)), now)
                    if opened is None:
                        return "an operation that has just begun"
                else:
                    return f"operation {other.id} ({other.want})"
        found = await self.parts.store.nodes.get(node)
        tenant = "somebody" if found is None else find_tenant(found)  # released in between
        if opened is not None:
            if tenant:
                await self._end(opened, "a tenant has it")
            else:
                await self.tell(opened)
        return tenant

    async def free(self, mark: str, plan: RackPlan, kept: Collection[str]) -> None:
        """Take an approval off the holds on nodes of the plan, but on those of the units `kept`."""
        nodes = await self.find_nodes(plan)
        freed = {node.id for unit, (node, _) in nodes.items() if unit not in kept}
        for node, one in (await self.list_active()).items():
            if node in freed:
                await self.leave(one, mark, "nothing unproved is left in its domain")

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

    async def leave(self, one: Operation, mark: str, why: str) -> None:
        """Take an approval off a hold, which ends with the last one; where another one changes it
        meanwhile it stands until the next look.
        """
        if mark not in read_marks(one):
            return
        others = [each for each in read_marks(one) if each != mark]
        if not others:
            await self._end(one, why)
        elif (left := await self._change(one, others)) is not None:
            await self.tell(left)

    async def _end(self, one: Operation, why: str) -> None:
        """End an operation, unless it has changed."""
        operations = self.parts.store.operations
        now = self.parts.clock.now()
        with contextlib.suppress(Fenced, StaleWrite):
            taken = await operations.take(one.id)
            if taken.want != one.want:
                return
            node = await self.parts.store.nodes.get(one.node)
            if node is not None and node.note == str(build_blocker(one)):
                noted = node.model_copy(update={"note": why[:TEXT_MAX]})
                taken, _ = await operations.record(taken, node=noted, now=now)
            await operations.end(taken, OperationStatus.DONE, why[:TEXT_MAX])

    async def _join(self, one: Operation, mark: str) -> bool:
        joined = await self._change(one, (*read_marks(one), mark))
        if joined is not None:
            await self.tell(joined)
        return joined is not None

    async def _change(self, one: Operation, marks: Sequence[str]) -> Operation | None:
        """Write who relies on a hold; return it, None where another one was faster."""
        operations = self.parts.store.operations
        with contextlib.suppress(Fenced, StaleWrite):
            taken = await operations.take(one.id)
            if taken.want == one.want:
                changed = taken.model_copy(update={"want": build_want(marks)})
                return (await operations.record(changed, now=self.parts.clock.now()))[0]
        return None

    async def _may_join(self, one: Operation, *, firmly: bool) -> bool:
        """Return whether it is a hold, and of campaigns that were withdrawn, unless `firmly`."""
        marks = read_marks(one)
        folder = Path(self.parts.settings.racks_folder)
        return bool(marks) and (
            firmly or await asyncio.to_thread(lambda: all(_is_withdrawn(folder, m) for m in marks))
        )

    async def _end_journey(self, one: Operation, mark: str) -> bool:
        """End a journey to a first use; return whether it was one."""
        node = await self.parts.store.nodes.get(one.node)
        early = node is not None and node.state in _BEFORE_USE
        if early and one.want in {state.value for state in State}:
            await self._end(one, f"rack campaign {mark} holds it")
            return True
        return False


def place_nodes(plan: RackPlan, nodes: Sequence[Node]) -> Mapping[str, tuple[Node, BmcRef]]:
    """Return the node of each unit whose BMC is one of a node's, by the unit's name."""
    known = {find_socket(ref.url): (node, ref) for node in nodes for ref in node.bmcs}
    units = (unit for rack in plan.racks for unit in rack.units if unit.bmc)
    placed = ((unit.name, find_socket(unit.bmc)) for unit in units)
    return {name: known[where] for name, where in placed if where in known}


def build_want(marks: Sequence[str]) -> str:
    return f"{WANT}{', '.join(marks)}"


def read_marks(one: Operation) -> Sequence[str]:
    """Return the approvals that rely on a hold; none of any other operation."""
    return one.want.removeprefix(WANT).split(", ") if one.want.startswith(WANT) else ()


def _is_withdrawn(folder: Path, mark: str) -> bool:
    campaign = folder / CAMPAIGNS / mark.rpartition(".")[0]
    try:
        state = read_state(campaign)
        known = build_mark(campaign.name, read_approval(campaign))
    except InputError:
        return False
    return known == mark and state is not None and state.state is RackCampaignState.WITHDRAWN


def build_blocker(one: Operation) -> Blocker:
    """Return why nothing else is done with a held node."""
    marks = read_marks(one)
    if HANDS in marks:
        return Blocker(
            reason=Reason.CANNOT_TELL,
            subject=one.node,
            detail=f"not every journal in `{HANDS}` of the racks' folder can be read, or told of "
            "the planned racks: what a person's command wrote nobody can tell",
            unblock="The daemon's log says which, and why. Mend it, or move it away once each of "
            f"its racks was read by hand; where `{HANDS}` itself is gone, bring it back, or make "
            "it anew then (docs/racks.md#the-daemon)",
        )
    return Blocker(
        reason=Reason.CANNOT_TELL,
        subject=one.node,
        detail=f"rack campaign {', '.join(marks)} may have written to its NVLink domain, and not "
        "every version of it is proved",
        unblock="It ends with the proof, which wants `racks_update`. Of a withdrawn campaign also "
        f"by a person's word: `provisioner rack vouch RACKS_FOLDER {'|'.join(marks)} {one.node} "
        "--who YOU --why REASON` (docs/racks.md#the-daemon). While one campaign or journal of the "
        "folder cannot be judged, nobody is freed: the daemon's log names it",
    )


def find_tenant(node: Node) -> str:
    """Return whose host or data a node is; a node that is only promised to somebody is free."""
    if node.state in _SERVES or node.served:
        return node.served or node.tenant or "somebody"
    return ""


def find_socket(url: str) -> str:
    """Return HOST:PORT of an address: one for all of its spellings."""
    parts = urlsplit(url.lower())
    port = parts.port or (80 if parts.scheme == "http" else 443)
    return f"{normalize_host((parts.hostname or '').rstrip('.'))}:{port}"
