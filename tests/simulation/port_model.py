"""The release and reclaim of ports as an abstract model: millions of steps in minutes.

Real here: the code's pure decisions, `lifecycle.decide`, `placement_of`, `misplaced`, `leaks`,
`requests.reclaim`, `may_enter`. Modelled apart: a leaf as four VRFs a port (operational, applied,
startup, and what is on its way), the performer and `Leaf` as the same protocol in small atoms. It
shows that the protocol and the decisions hold; that `Leaf` follows it is for `port_soak` to show.

A step is one atom of one actor: a look, a request that is sent, a row that is written, or one act
of a leaf or of chance.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from port_truth import MAINTENANCE, Violated

from provisioner.model.certificate import Certificate
from provisioner.model.location import Port
from provisioner.model.node import Node, NodeKind, Placement, State
from provisioner.model.outcome import Blocker
from provisioner.model.plan import Plan
from provisioner.model.tenant import PortPlacement
from provisioner.planning import requests
from provisioner.planning.journey import may_enter
from provisioner.planning.lifecycle import (
    Certify,
    Enter,
    Fence,
    Release,
    Rest,
    Validate,
    View,
    decide,
)
from provisioner.planning.port_isolation import leaks, misplaced, placement_of

TENANTS = {"red": "RED", "blue": "BLUE"}
LEAVES = ("leaf-0", "leaf-1")
LOST = 0.1


@dataclass
class ModelPort:
    """One port of a leaf, as it is in each of the leaf's trees."""

    operational: str = MAINTENANCE
    applied: str = MAINTENANCE
    startup: str = MAINTENANCE
    coming: list[str] = field(default_factory=list)  # revisions on their way, the oldest first
    leak: str = ""  # a VRF that its prefix leaks into

    def may_be(self) -> set[str]:
        return {self.operational, self.applied, self.startup, *self.coming}


@dataclass
class Actor:
    """One node's operation: what it does next. None of it survives a crash but `row`."""

    row: Node
    certificate: Certificate | None = None
    revoked: bool = False
    target: str = ""  # VRF of the move under way; "": no move
    leaf: int = 0  # how far the move is
    active: bool = False


class Model:
    """Some nodes on two leaves; `step` makes one step, chosen by chance."""

    def __init__(self, seed: int, nodes: int = 3) -> None:
        self.rng = random.Random(f"model {seed}")
        self.steps: Counter[str] = Counter()
        self.ports = {(leaf, f"swp{n}"): ModelPort() for leaf in LEAVES for n in range(nodes)}
        self.actors = [self._actor(n) for n in range(nodes)]
        self.plan = Plan(node="", release="", profile="")
        self.issued = 0
        self.now = 0.0
        self.entered = 0

    def _actor(self, number: int) -> Actor:
        name, last, ports = f"swp{number}", 2 * number + 1, []
        for at, leaf in enumerate(LEAVES):
            given = {"switch": leaf, "interface": name, "rail": at, "nic_slot": ""}
            ports.append(Port(**given, address=f"172.{32 * at}.0.{last}/31"))
        node = Node(id=f"node-{number}", kind=NodeKind.HOST, ports=tuple(ports))
        placed = {"placement": Placement.MAINTENANCE, "vrf": MAINTENANCE}
        return Actor(node.moved(State.CONVERGING, 0.0, **placed), active=True)

    def step(self) -> bool:
        """One step of an actor, a leaf or chance; False if there was nothing to do."""
        self.now += 1.0
        roll, rng = self.rng.random(), self.rng
        actor = rng.choice(self.actors)
        if roll < 0.5:
            did = self._act(actor) if actor.active else self._wish(actor)
        elif roll < 0.97:
            did = self._leaf(rng.choice(list(self.ports.values())))
        else:
            did = self._chance(actor)
        if did:
            self.steps[did] += 1
            for each in self.actors:
                self.judge(each)
        return bool(did)

    # --- the daemon, an atom at a time

    def _act(self, actor: Actor) -> str:
        if actor.target:
            return self._move(actor)
        node, view = actor.row, self._look(actor)
        if view is None:
            return "lost look"
        if view.placement is not None:
            node = node.model_copy(update={"placement": view.placement, "vrf": view.vrf})
        turn = decide(node, view, 1.0)
        match turn:
            case Fence():
                actor.target, actor.leaf = MAINTENANCE, 0
            case Release():
                changes = {"placement": Placement.MIXED, "vrf": "", "served": node.tenant}
                if actor.revoked:
                    raise Violated(f"{node.id}: a release was begun without a certificate")
                actor.row = node.model_copy(update=changes)
                actor.target, actor.leaf = turn.vrf, 0
            case Enter():
                assert may_enter(node, turn.state, node.placement)
                if turn.state is State.CONVERGING:
                    actor.revoked = True
                actor.row = node.moved(turn.state, self.now)
            case Certify() | Validate():
                self._certify(actor)
            case Rest():
                actor.active = False
        return type(turn).__name__.lower()

    def _look(self, actor: Actor) -> View | None:
        """What the observer sees; None if an answer was lost."""
        node = actor.row
        if node.state in (State.VALIDATING, State.RELEASED, State.QUARANTINED):
            return View(plan=self.plan)
        if self.rng.random() < LOST:
            return None
        placement, vrf = placement_of(node.ports, self._read(actor))
        told = {"certificate": actor.certificate, "tenant_vrf": TENANTS.get(node.tenant, "")}
        withdrawn = (_withdrawn(),) if actor.revoked else ()
        told |= {"placement": placement, "vrf": vrf, "certificate_blockers": withdrawn}
        return View(plan=self.plan, **told)

    def _read(self, actor: Actor) -> tuple[PortPlacement, ...]:
        return tuple(
            PortPlacement(switch=p.switch, interface=p.interface, vrf=vrf)
            for p in actor.row.ports
            for vrf in sorted(self.ports[p.switch, p.interface].may_be())
        )

    def _certify(self, actor: Actor) -> None:
        self.issued += 1
        told: dict[str, Any] = dict.fromkeys(Certificate.model_fields, "")
        told |= {"id": str(self.issued), "node": actor.row.id, "serials": (), "versions": ()}
        told |= {"ports": (), "checks": (), "evidence": (), "gates": ()}
        told |= {"issued_at": 0, "expires_at": 1e12}
        actor.certificate, actor.revoked = Certificate(**told), False
        changes = {"served": "", "tenant": "", "certificate": str(self.issued)}
        actor.row = actor.row.moved(State.CERTIFIED, self.now, **changes)

    def _move(self, actor: Actor) -> str:
        """One leaf of a move looked at, told or saved; after the last one, the proof."""
        if self.rng.random() < LOST:  # nothing was sent, or nothing is known of it: look again
            return "lost request"
        if actor.leaf == len(LEAVES):
            return self._prove(actor)
        planned = actor.row.ports[actor.leaf]
        port = self.ports[planned.switch, planned.interface]
        if {port.operational, port.applied, *port.coming} != {actor.target}:
            if actor.target in port.coming[-1:] or port.applied == actor.target != port.operational:
                return ""  # on its way: a poll, and no step
            port.coming.append(actor.target)
            return "revision sent"
        if port.startup != port.applied:
            port.startup = port.applied
            return "saved"
        actor.leaf += 1
        return "leaf done"

    def _prove(self, actor: Actor) -> str:
        node, target = actor.row, actor.target
        found = misplaced(node.ports, self._read(actor), target)
        routes: dict[str, list[str]] = {}
        for planned in node.ports:
            port = self.ports[planned.switch, planned.interface]
            if port.leak and port.leak != port.operational:
                routes.setdefault(port.leak, []).append(_prefix(planned))
        leaking = leaks([_prefix(p) for p in node.ports], routes, target)
        customers = target != MAINTENANCE
        if found or leaking:
            # towards a customer it is taken back; a fence that does not hold is decided anew
            actor.leaf, actor.target = 0, MAINTENANCE if customers else ""
            return "not proved"
        actor.target = ""
        if customers and actor.revoked:
            actor.target, actor.leaf = MAINTENANCE, 0
            return "overtaken"
        placement = Placement.CUSTOMER if customers else Placement.MAINTENANCE
        actor.row = node.model_copy(update={"placement": placement, "vrf": target})
        if customers:
            assert may_enter(actor.row, State.RELEASED, placement)
            actor.row = actor.row.moved(State.RELEASED, self.now)
            self.entered += 1
            self._no_leak(actor)
        return "proved"

    # --- people, leaves, chance

    def _wish(self, actor: Actor) -> str:
        node = actor.row
        if node.state is State.CERTIFIED:
            tenant = self.rng.choice(list(TENANTS))
            actor.row = node.model_copy(update={"tenant": tenant})
        else:
            asked = requests.reclaim(node, self.now)
            assert isinstance(asked, Node), asked
            actor.row = asked
        actor.active = True
        return "wish"

    def _leaf(self, port: ModelPort) -> str:
        if port.coming:
            port.applied = port.coming.pop(0)
            return "applied"
        if port.operational != port.applied:
            port.operational = port.applied
            return "followed"
        return ""

    def _chance(self, actor: Actor) -> str:
        what = self.rng.choice(("crash", "reboot", "leak", "leak ends", "withdraw", "stale"))
        planned = self.rng.choice(actor.row.ports)
        port = self.ports[planned.switch, planned.interface]
        match what:
            case "crash":
                for each in self.actors:
                    each.target, each.leaf = "", 0
            case "reboot":
                for (leaf, _), each in self.ports.items():
                    if leaf == planned.switch:
                        each.coming.clear()
                        each.applied = each.operational = each.startup
            case "leak":
                if actor.row.state is not State.RELEASED:  # later it is the watch's to see
                    port.leak = self.rng.choice((MAINTENANCE, *TENANTS.values()))
            case "leak ends":
                for each in self.ports.values():
                    each.leak = ""
            case "withdraw":
                actor.revoked = actor.certificate is not None
                if actor.row.state is State.RELEASED and not actor.active:
                    return "withdraw, " + self._wish(actor)
            case "stale":  # somebody else fences a port in the middle of a move
                if actor.row.placement is Placement.MIXED and actor.target:
                    port.coming.append(MAINTENANCE)
        return what

    # --- what must never be

    def judge(self, actor: Actor) -> None:
        """Raises `Violated` if a port of this node is where its row does not allow it."""
        row = actor.row
        allowed = {MAINTENANCE}
        if row.placement is Placement.CUSTOMER:
            allowed = {row.vrf} | ({MAINTENANCE} if row.state is State.DRAINING else set())
        elif row.placement is Placement.MIXED:
            allowed |= {TENANTS[t] for t in (row.tenant, row.served) if t}
        for planned in row.ports:
            there = self.ports[planned.switch, planned.interface].may_be()
            if not there <= allowed:
                raise Violated(f"{row.id}: {sorted(there)} while {row.state}, {row.placement}")
        if not actor.active and row.placement not in (Placement.CUSTOMER, Placement.MAINTENANCE):
            raise Violated(f"{row.id} rests as {row.state}, and its ports are {row.placement}")

    def _no_leak(self, actor: Actor) -> None:
        if actor.revoked:
            raise Violated(f"{actor.row.id} was released without a certificate in force")
        for planned in actor.row.ports:
            if self.ports[planned.switch, planned.interface].leak not in ("", actor.row.vrf):
                raise Violated(f"{actor.row.id} was released over a leak")


def _prefix(port: Port) -> str:
    head, _, last = port.address.removesuffix("/31").rpartition(".")
    return f"{head}.{int(last) - 1}/31"


def _withdrawn() -> Blocker:
    return Blocker(reason="certificate_invalid", subject="node", detail="withdrawn", unblock="")
