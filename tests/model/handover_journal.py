"""Records the journal of a simulated site, in the words of the model.

The daemon's own reconciler, performer, tenancy and watches live on simulated leaves (`port_soak`)
with two nodes and two leaves. Recorded are each row that is written, each port that changes its VRF
in force, each saved configuration, each certificate that is revoked, each start of a leaf, each
foreign hand, and each death of a daemon, whose successor takes its operations over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from handover_state import CERTIFIED, CONVERGING, DRAINING, LEAVING, RELEASED
from handover_trace import Entry, Journal, Row, Site
from port_given import TENANTS
from port_soak import Soak
from port_truth import MAINTENANCE
from port_world import WATCH_S, PortWorld

from provisioner.integrations.sim.switches.switch import Switch
from provisioner.model.node import Node, NodeKind, Placement, State
from provisioner.planning.lifecycle import operator_requests as requests

VRFS = {MAINTENANCE: 0, **{vrf: n for n, vrf in enumerate(TENANTS.values(), 1)}}
NUMBERS = {name: n for n, name in enumerate(TENANTS, 1)}
UNKNOWN = len(TENANTS) + 1
RESTS_WITHIN_S = 4 * 3600.0
GONE_S = (1.0, 3.0, 60.0)  # until a successor starts: requests of the dead one have arrived
ACTS = {
    "release": 10,
    "reclaim": 4,
    "retry": 4,
    "withdraw": 3,
    "crash": 3,
    "reboot": 2,
    "foreign hand": 3,
}


def describe_row(node: Node, before: Row | None) -> Row:
    """Return a node's row as the model has it, after the row before."""
    names = [name for name in node.served.split(", ") if name]
    owed = 0 if not names else UNKNOWN
    if len(names) == 1:
        owed = NUMBERS.get(names[0], UNKNOWN)
    tenant = NUMBERS.get(node.tenant, 0)
    match node.state:
        case State.RELEASED:
            return Row(RELEASED, tenant, owed)
        case State.DRAINING if node.placement is not Placement.MAINTENANCE:
            return Row(DRAINING, next((NUMBERS[n] for n in names if n in NUMBERS), 0), owed)
        case State.CERTIFIED:
            leaving = before is not None and before.phase == LEAVING
            begun = before is not None and before.phase == CERTIFIED and node.served == node.tenant
            if node.placement is Placement.MIXED and tenant and (leaving or begun):
                return Row(LEAVING, tenant, owed)
            # marked with a network that it was in, it is never released as it is
            return Row(CONVERGING if owed == UNKNOWN else CERTIFIED, 0, owed)
    return Row(CONVERGING, 0, owed)


def _ignore(_world: PortWorld) -> None:
    """Leave the daemon as it is."""


class Recorder(Soak):
    """A life whose journal is recorded, without lost requests, leaks and exchanged drives."""

    def __init__(self, seed: int, sabotage: Callable[[PortWorld], None] = _ignore) -> None:
        super().__init__(seed, nodes=2, pace_s=6.0, sabotage=sabotage)
        self.wire.lost = 0.0
        self.valid_s = 1e9
        self.weights = ACTS
        self.entries: list[Entry] = []
        self._rows: dict[str, Row] = {}
        self._number = {node.id: number for number, node in enumerate(self.hosts)}
        self._begun = False
        for leaf, switch in enumerate(self.switches.values()):
            switch.log_event = self._listen(leaf, switch)  # type: ignore[method-assign]
        self._revoke_stored = self.store.evidence.revoke
        self.store.evidence.revoke = self._revoke  # type: ignore[method-assign]

    async def record(self, acts: int) -> Journal:
        """Live through so many acts of chance to the rest after them; return the journal."""
        await self.open()
        await self._come_to_rest()
        first = Site(tuple(self._rows.values()), self._read("operational"), self._read("startup"))
        self._begun = True
        self._note_duties()
        names = list(self.weights)
        for _ in range(acts):
            await self._pass_time(self.rng.expovariate(1 / self.pace_s))
            act = self.rng.choices(names, list(self.weights.values()))[0]
            if await getattr(self, "_" + act.replace(" ", "_"))():
                self.count(act)
        await self._come_to_rest()
        self._note("rests")
        await self.close()
        return Journal(first, tuple(self.entries))

    # --- entries

    def _note_duties(self) -> None:
        """Record which daemon does what at the beginning; there is only one."""

    def _note(self, kind: str, number: int = 0, *detail: Any) -> None:
        if self._begun:
            self.entries.append(Entry(self.clock.now(), kind, number, detail))

    def saw(self, node: Node | None) -> None:
        """Record a row that was written."""
        super().saw(node)
        if node is None or node.kind is not NodeKind.HOST:
            return
        row = describe_row(node, self._rows.get(node.id))
        if self._rows.get(node.id) != row:
            self._note("row", self._number[node.id], *row)
        self._rows[node.id] = row

    def _listen(self, leaf: int, switch: Switch) -> Callable[..., None]:
        log_stored = switch.log_event
        starting = False

        def log_event(now: float, kind: str, subject: str, detail: str = "") -> None:
            nonlocal starting
            log_stored(now, kind, subject, detail)
            in_force = tuple(ports[leaf] for ports in self._read("operational"))
            match kind:
                case "vrf" if not starting:  # one of each port that has moved at this moment
                    last = self.entries[-1] if self.entries else None
                    if last is None or last[1:4] != ("moved", leaf, in_force):
                        self._note("moved", leaf, *in_force)
                case "config_saved":
                    self._note("saved", leaf, *(ports[leaf] for ports in self._read("startup")))
                case "reset":
                    starting = True
                case "boot":
                    starting = False
                    self._note("restarted", leaf, *in_force)

        return log_event

    def _read(self, tree: str) -> tuple[tuple[int, ...], ...]:
        """Return the VRFs of all nodes' ports at all leaves, in one of the leaves' trees."""
        return tuple(
            tuple(
                VRFS.get(getattr(switch, tree)["interface"][name].get("ip", {}).get("vrf", ""), -1)
                for switch in self.switches.values()
            )
            for name in (f"swp{number + 1}" for number in range(len(self.hosts)))
        )

    async def _revoke(self, certificate: str, reason: str, now: float) -> None:
        await self._revoke_stored(certificate, reason, now)
        node = self.truth.certificates[certificate].node
        if self.truth.rows[node].certificate == certificate:
            self._note("revoked", self._number[node])

    # --- acts

    async def _crash(self) -> bool:
        """End the daemon; requests that left it arrive before its successor starts."""
        for task in self.driving.values():
            task.cancel()
        await asyncio.gather(*self.driving.values(), return_exceptions=True)
        self.driving.clear()
        await self._stop_watching()
        await self.tenancy.close()
        await self.clock.sleep(self.rng.choice(GONE_S))
        self.advance()
        self._note("crashed")
        self._start()
        for operation in await self.store.operations.list_active():
            self._drive(operation)
        return True

    async def _foreign_hand(self) -> bool:
        """Put a port of a node at rest into a customer's VRF at once, saved or not."""
        node = await self._idle(State.CERTIFIED, State.RELEASED)
        leaf = self.rng.randrange(len(self.switches))
        vrf = self.rng.choice(list(TENANTS.values()))
        if node is None:
            return False
        interface = f"swp{self._number[node.id] + 1}"
        switch = list(self.switches.values())[leaf]
        there = switch.get_vrf(interface)
        quiet = switch.is_up(self.clock.now()) and switch.applied == switch.operational
        if there == vrf or there != node.vrf or not quiet or switch._applying:
            return False
        saved = self.rng.random() < 0.5
        for tree in (switch.applied, switch.operational, *([switch.startup] if saved else [])):
            tree["interface"][interface].setdefault("ip", {})["vrf"] = vrf
        self._note("hand", self._number[node.id], leaf, VRFS[vrf], saved)
        return True

    async def _pass_time(self, seconds: float) -> None:
        await self.clock.sleep(seconds)
        self.advance()
        await self._reap()
        await self._schedule()

    async def _come_to_rest(self) -> None:
        """Wait until everything rests; people try nodes again that wait for them."""
        until = self.clock.now() + RESTS_WITHIN_S
        quiet_at = self.clock.now() + 4 * WATCH_S
        while self.clock.now() < quiet_at:
            assert self.clock.now() < until, f"no rest: {self.truth.rows}"
            await self._pass_time(5.0)
            if await self._retry() or await self._answer() or self.driving:
                quiet_at = self.clock.now() + 4 * WATCH_S

    async def _answer(self) -> bool:
        """Drive a node whose certificate was revoked, as the watch of certificates does."""
        for node in [await self.store.nodes.get(host.id) for host in self.hosts]:
            assert node is not None
            if node.id in self.driving or self.truth.lapsed_at(node.certificate) is None:
                continue
            if node.state is State.RELEASED:
                drained = requests.reclaim_node(node, self.clock.now())
                assert isinstance(drained, Node)
                return await self._asked(drained)
            if node.state is State.CERTIFIED:
                return await self._operation(node.id)
        return False
