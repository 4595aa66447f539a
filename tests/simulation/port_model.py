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
from typing import Any

from given_events import in_state
from port_members import DRIVERLESS_S, EVENTS, Members
from port_model_members import MemberSteps
from port_model_parts import (
    BMCS,
    CHANCES,
    FENCE_STEPS,
    FOREIGN,
    KEEPS,
    LEAVES,
    LEFT_ALONE,
    LEFT_STEPS,
    LIES_MAX,
    LOOK_STEPS,
    LOST,
    MEMBERS,
    MISREAD,
    NOTICE_STEPS,
    POLICY,
    SAVED,
    STEP_S,
    TENANTS,
    TRUE_FAULTS,
    VRF_OF,
    Actor,
    ModelPort,
    Watch,
    placed,
    prefix_of,
    withdrawn,
)
from port_model_watch import WatchSteps
from port_truth import MAINTENANCE, Violated

from provisioner.model.case import Case, Fault, Origin, Service
from provisioner.model.certificate import Certificate
from provisioner.model.cohort import HealthReport
from provisioner.model.location import Port
from provisioner.model.node import Boots, Node, NodeKind, Placement, State, TenantData
from provisioner.model.outcome import Reason
from provisioner.model.plan import Plan
from provisioner.model.tenant import PortPlacement
from provisioner.planning.erasure import erasure
from provisioner.planning.lifecycle import operator_requests as requests
from provisioner.planning.lifecycle.decide import (
    Certify,
    Enter,
    Fence,
    Release,
    Rest,
    Sanitize,
    Validate,
    View,
    decide,
)
from provisioner.planning.lifecycle.destruction import Destruction, Facts, judge_destruction
from provisioner.planning.lifecycle.journey import may_enter
from provisioner.planning.release.entitlement import find_isolation_violations
from provisioner.planning.release.port_isolation import (
    find_misplaced_ports,
    find_route_leaks,
    placement_of,
)

# What a step is: a leaf's, or a driver's if it has nothing to do; a driver's; the watch's; chance.
LEAF_BELOW, DRIVER_BELOW, WATCH_BELOW = 0.37, 0.87, 0.97
DRIVERLESS_STEPS = int(DRIVERLESS_S / STEP_S)


class Model(WatchSteps, MemberSteps):
    """Some nodes on two leaves; `step` makes one step, chosen by chance."""

    def __init__(self, seed: int, nodes: int = 3) -> None:
        self.rng = random.Random(f"model {seed}")
        self.steps: Counter[str] = Counter()
        self.ports = {(leaf, f"swp{n}"): ModelPort() for leaf in LEAVES for n in range(nodes)}
        self.places = tuple(self.ports.values())
        self.actors = [self._actor(n) for n in range(nodes)]
        self.owner = {id(port): a for a in self.actors for port in a.ports}
        devices = dict.fromkeys(d for a in self.actors for d in a.devices)
        self.members = Members(MEMBERS, tuple(devices), self.rng)
        self.lead = 0  # who watches the leaves
        self.driverless_steps = 0  # the longest time without a driver that reaches its devices
        self.report = HealthReport(
            node="", inventory_digest="", started_at=0, ended_at=0, results=()
        )
        self.plan = Plan(node="", release="", profile="")
        self.issued = 0
        self.now = 0.0
        self.entered = 0
        self.made = 0
        self.watch: Watch | None = None  # what the watch of leaves suspects
        self.fence_steps = 0  # the longest time to a fence

    def _actor(self, number: int) -> Actor:
        name, last, ports = f"swp{number}", 2 * number + 1, []
        for at, leaf in enumerate(LEAVES):
            given = {"switch": leaf, "interface": name, "rail": at, "nic_slot": ""}
            ports.append(Port(**given, address=f"172.{32 * at}.0.{last}/31"))
        node = Node(id=f"node-{number}", kind=NodeKind.HOST, ports=tuple(ports))
        fenced = {"placement": Placement.MAINTENANCE, "vrf": MAINTENANCE}
        return Actor(
            in_state(node, State.CONVERGING, 0.0, **fenced),
            active=True,
            ports=tuple(self.ports[leaf, name] for leaf in LEAVES),
            devices=(*LEAVES, *(f"{name}-bmc{n}" for n in range(BMCS))),
        )

    def step(self) -> bool:
        """One step of an actor, a leaf or chance; False if there was nothing to do."""
        self.now += 1.0
        self.made += 1
        if not self.made % LOOK_STEPS:
            self._members_look()
            self._judge_all()
        draw, actors = self.rng.random, self.actors
        roll = draw()
        actor = actors[int(draw() * len(actors))]
        if roll < LEAF_BELOW:
            port = self.places[int(draw() * len(self.places))]
            if port.coming or port.operational != port.applied:
                actor, did = self.owner[id(port)], self._leaf(port)
            else:
                did = self._driven(actor)
        elif roll < DRIVER_BELOW:
            did = self._driven(actor)
        elif roll < WATCH_BELOW:
            actor = actor if self.watch is None else self.watch.actor
            did = self._watch()
        else:
            did = self._chance(actor)
            self._judge_all()
        if did:
            self.steps[did] += 1
            self.judge(actor)
        return bool(did)

    def _driven(self, actor: Actor) -> str:
        if actor.active:
            return self._act(actor)
        return self._wish(actor) if self.made >= actor.left_until else ""

    def _judge_all(self) -> None:
        for each in self.actors:
            self.judge(each)

    # --- the daemon, an atom at a time

    def _act(self, actor: Actor) -> str:
        if actor.target:
            return self._move(actor)
        late = actor.pending is not None
        view = self._decides_on(actor)
        if not isinstance(view, View):
            return view
        node = actor.row
        if view.placement is not None:
            view = view.model_copy(update={"unrecorded": view.placement is not node.placement})
            node = node.model_copy(update={"placement": view.placement, "vrf": view.vrf})
        turn = decide(node, view, 1.0)
        match turn:
            case Fence():
                if turn.violations:
                    actor.row = self._noted(actor.row, turn.violations)
                    self._found(actor)
                actor.target, actor.leaf = MAINTENANCE, 0
                actor.parks = bool(turn.violations) and node.state is not State.DRAINING
            case Sanitize():
                return self._erase(actor, node)
            case Release():
                return self._begin_release(actor, node, turn.vrf, late=late)
            case Enter():
                assert may_enter(node, turn.state, node.placement)
                if turn.state is State.CONVERGING:
                    actor.revoked = True
                actor.row = in_state(node, turn.state, self.now)
            case Certify() | Validate():
                self._certify(actor)
            case Rest():
                actor.active = False
                if self.rng.random() < LEFT_ALONE:
                    actor.left_until = self.made + LEFT_STEPS
        return type(turn).__name__.lower()

    def _begin_release(self, actor: Actor, node: Node, vrf: str, *, late: bool) -> str:
        if late and actor.revoked:  # asked again within the transaction
            return "standing lost"
        changes = {"placement": Placement.MIXED, "vrf": "", "served": node.tenant}
        if actor.revoked:
            raise Violated(f"{node.id}: a release was begun without a certificate")
        actor.row = node.model_copy(update=changes)
        actor.target, actor.leaf = vrf, 0
        return "release"

    def _look(self, actor: Actor) -> View | None:
        """What the observer sees; None if an answer was lost."""
        node = actor.row
        if node.state in (State.RELEASED, State.QUARANTINED):
            return View(plan=self.plan)
        if self.rng.random() < LOST:
            return None
        placement, vrf = placement_of(node.ports, self._read(actor))
        found = find_isolation_violations(node, self._read(actor), VRF_OF)
        owed = erasure.require_erasure(node, POLICY) if placement is Placement.MAINTENANCE else ()
        told: dict[str, Any] = {"violations": found, "owed": owed, "report": self.report}
        told |= {"certificate": actor.certificate, "tenant_vrf": TENANTS.get(node.tenant, "")}
        lapsed = (withdrawn(),) if actor.revoked else ()
        told |= {"placement": placement, "vrf": vrf, "certificate_blockers": lapsed}
        return View(plan=self.plan, **told)

    def _read(self, actor: Actor) -> tuple[PortPlacement, ...]:
        return tuple(
            placed(p.switch, p.interface, vrf)
            for p, port in zip(actor.row.ports, actor.ports, strict=True)
            for vrf in sorted(port.look())
        )

    def _erase(self, actor: Actor, node: Node) -> str:
        """Erase it, if the gate lets it; the truth says whether that may be."""
        seen = Boots.NOTHING
        if actor.bmc_halves:  # what it has booted is not known, so it counts as its own system
            actor.bmc_halves -= 1
            seen = Boots.SYSTEM
        booted = node.model_copy(update={"boots": seen})
        cases = [a.case for a in self.actors if a.case is not None]
        rows = [a.row for a in self.actors]
        facts = Facts(node=booted, case=actor.case, nodes=rows, cases=cases)
        refused = judge_destruction(Destruction.DISKS, node.id, facts)
        if refused is not None and refused.reason is Reason.TRESPASS:
            actor.row = node.model_copy(update={"tenant_data": TenantData.ASKED})
            return "asked"
        if refused is not None:
            return "erasure stopped" if refused.reason is Reason.NOT_CONFIRMED else "refused"
        if actor.data and not actor.exposed and not actor.given_up:
            raise Violated(f"{node.id}: the disks of {actor.data} were erased, who was not exposed")
        if actor.agent_halves:  # a drive is missing in the report: nothing is proved by it
            actor.agent_halves -= 1
            return "not sanitized"
        changes = {"served": "", "tenant_data": TenantData.SETTLED}
        actor.row, actor.soiled = node.model_copy(update=changes), False
        actor.data, actor.given_up, actor.exposed = "", False, False
        return "sanitize"

    def _certify(self, actor: Actor) -> None:
        self.issued += 1
        told: dict[str, Any] = dict.fromkeys(Certificate.model_fields, "")
        told |= {"id": str(self.issued), "node": actor.row.id, "serials": (), "versions": ()}
        told |= {"ports": (), "checks": (), "evidence": (), "gates": ()}
        told |= {"issued_at": 0, "expires_at": 1e12}
        actor.certificate, actor.revoked = Certificate(**told), False
        kept = actor.row.tenant_data is TenantData.KEEP
        changes = {"tenant": actor.row.tenant if kept else "", "certificate": str(self.issued)}
        actor.case = None
        actor.row = in_state(actor.row, State.CERTIFIED, self.now, **changes)

    def _move(self, actor: Actor) -> str:
        """One leaf of a move looked at, told or saved; after the last one, the proof."""
        if actor.target != MAINTENANCE and actor.revoked:  # asked before each leaf
            actor.target, actor.leaf = MAINTENANCE, 0
            return "standing lost"
        leaf = LEAVES[min(actor.leaf, len(LEAVES) - 1)]
        if not self._reaches(actor, leaf):
            return ""
        if self.rng.random() < LOST:
            return "lost request"  # nothing was sent, or nothing is known of it: look again
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
        found = find_misplaced_ports(node.ports, self._read(actor), target)
        routes: dict[str, list[str]] = {}
        for planned in node.ports:
            port = self.ports[planned.switch, planned.interface]
            if port.leak and port.leak != port.operational:
                routes.setdefault(port.leak, []).append(prefix_of(planned))
        leaking = find_route_leaks([prefix_of(p) for p in node.ports], routes, target)
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
        there: dict[str, Any] = {"placement": placement, "vrf": target}
        actor.row = node.model_copy(update=there | ({} if customers else {"fenced_at": self.now}))
        if actor.parks and not customers:
            actor.parks = False
            self._parked(actor)
        if customers:
            assert may_enter(actor.row, State.RELEASED, placement)
            settled = {"tenant_data": TenantData.SETTLED}
            actor.row = in_state(actor.row, State.RELEASED, self.now, **settled)
            self.entered += 1
            self._handed_over(actor)
            self._no_leak(actor)
        return "proved"

    # --- people, leaves, chance

    def _wish(self, actor: Actor) -> str:
        node = actor.row
        if node.state is State.QUARANTINED:
            actor.active = True
            return self._answer(actor)
        if node.state is State.CERTIFIED:
            if node.tenant_data is not TenantData.KEEP:  # else it is its tenant's
                tenant = self.rng.choice(list(TENANTS))
                actor.row = node.model_copy(update={"tenant": tenant})
        else:
            asked = requests.reclaim_node(node, self.now)
            assert isinstance(asked, Node), asked
            actor.row, actor.given_up = asked, True
        actor.active = True
        return "wish"

    def _answer(self, actor: Actor) -> str:
        """A person has a node tried again; about its tenant's data by what is true, or by word."""
        node = actor.row
        if node.tenant_data not in (TenantData.ASKED, TenantData.KEEP):
            actor.row = in_state(node, State.CONVERGING, self.now)
            return "retry"
        keeps = bool(node.tenant) and not actor.soiled and self.rng.random() < KEEPS
        keeps = keeps and node.tenant_data is TenantData.ASKED
        decision = TenantData.KEEP if keeps else TenantData.ERASE
        answered = requests.retry_node(node, self.now, tenant_data=decision)
        assert isinstance(answered, Node), answered
        actor.row, actor.given_up = answered, actor.given_up or not keeps
        return f"person: {decision.value}"

    def _handed_over(self, actor: Actor) -> None:
        """A tenant has the node, and its data is on it from now on."""
        if actor.data and actor.data != actor.row.tenant:
            raise Violated(f"{actor.row.id}: data of {actor.data} reached {actor.row.tenant}")
        actor.data, actor.given_up, actor.exposed = actor.row.tenant, False, False

    def _leaf(self, port: ModelPort) -> str:
        if port.coming:
            port.applied = port.coming.pop(0)
            return "applied"
        if port.operational != port.applied:
            port.operational = port.applied
            self._forwards(port)
            return "followed"
        return ""

    def _forwards(self, port: ModelPort) -> None:
        """What forwarding tells the truth of a port: whether a foreign hand's VRF is entered."""
        actor = self.owner[id(port)]
        there = port.operational
        if there in port.hands and there not in self._allowed(actor.row):
            port.inside = port.inside or self.made
        elif port.inside:
            self.fence_steps = max(self.fence_steps, self.made - port.inside)
            if self.made - port.inside > NOTICE_STEPS:
                actor.soiled = True
            port.inside = 0

    def _chance(self, actor: Actor) -> str:
        what = self.rng.choice(CHANCES)
        planned = self.rng.choice(actor.row.ports)
        port = self.ports[planned.switch, planned.interface]
        if what in FOREIGN:
            self._foreign(what, actor, planned, port)
            return what
        if what in MISREAD:
            return what if self._misread(what, actor, port) else ""
        if what in EVENTS:
            return self._strike(what)
        if what == "crash":
            self._crash()
            return what
        match what:
            case "reboot":
                for (leaf, _), each in self.ports.items():
                    if leaf == planned.switch:
                        each.coming.clear()
                        each.applied = each.operational = each.startup
                        self._forwards(each)
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
        return what

    def _foreign(self, what: str, actor: Actor, planned: Port, port: ModelPort) -> None:
        """Somebody else's hand on a port, on a leaf's configuration, or on a drive."""
        mine = [each for (leaf, _), each in self.ports.items() if leaf == planned.switch]
        match what:
            case "foreign hand":
                vrf = self.rng.choice(list(VRF_OF.values()))
                port.hands.setdefault(vrf, self.made)
                port.coming.append(vrf)
                if self.rng.random() < SAVED:
                    port.startup = vrf  # else the leaf's next start undoes it
                actor.foreign = self.made
            case "keep configuration":
                for each in mine:
                    each.kept = each.startup
            case "restore configuration":
                for each in mine:
                    if each.kept != MAINTENANCE:
                        each.hands.setdefault(each.kept, self.made)
                    self.owner[id(each)].foreign = self.made
                    each.coming.clear()
                    each.startup = each.applied = each.operational = each.kept
                    self._forwards(each)
            case "hot swap":
                actor.revoked = actor.certificate is not None
            case "stale":  # somebody else fences a port in the middle of a move
                if actor.row.placement is Placement.MIXED and actor.target:
                    port.coming.append(MAINTENANCE)

    def _misread(self, what: str, actor: Actor, port: ModelPort) -> bool:
        """Something is read that is not so; False: there was nothing to read it of."""
        row = actor.row
        match what:
            case "misread leaf":
                port.lie = self.rng.choice(("default", MAINTENANCE, *TENANTS.values()))
                port.lies = self.rng.randint(1, LIES_MAX)
            case "replayed leaf":
                port.lie, port.lies = port.kept, self.rng.randint(1, LIES_MAX)
            case "half answer of a BMC":
                actor.bmc_halves = self.rng.randint(1, LIES_MAX)
            case "half answer of an agent":
                actor.agent_halves = self.rng.randint(1, LIES_MAX)
            case "half answer":  # nothing of this leaf's other trees: as if it were nowhere
                port.lie, port.lies = "default", 1
            case "event of a BMC":
                return self._cut_off(actor)
            case "strange drive":
                if row.state not in (State.CONVERGING, State.VALIDATING, State.CERTIFIED):
                    return False
                if actor.target:
                    return False
                owing = erasure.owe_erasure(row)
                actor.row = in_state(owing, State.CONVERGING, self.now)
                actor.active, actor.revoked = True, actor.certificate is not None
        return True

    def _cut_off(self, actor: Actor) -> bool:
        """An event takes a node from its tenant at once; what it says may not be so."""
        row = actor.row
        if row.state is not State.RELEASED or actor.active:
            return False
        true = self.rng.random() < TRUE_FAULTS
        sources = ("alert", "event_log", "xid") if true else ("alert", "event_log")
        actor.case = Case(
            id=f"{row.id}-c",
            node=row.id,
            origin=Origin.EVENT,
            service=Service.CUT_OFF,
            reason="a fatal event",
            faults=tuple(Fault(source=source, id="fault") for source in sources),
            drain_at=self.now,
            opened_at=self.now,
        )
        actor.given_up = true  # confirmed: the site's rule for a broken node, which tenants know
        asked = requests.reclaim_node(row, self.now, for_repair=True)
        assert isinstance(asked, Node), asked
        actor.row, actor.active = asked, True
        return True

    # --- what must never be

    def judge(self, actor: Actor) -> None:
        """Raises `Violated` if a port of this node is where its row does not allow it."""
        row, allowed = actor.row, self._allowed(actor.row)
        for port in actor.ports:
            there = port.may_be()
            if not port.hands and there <= allowed:
                continue
            for vrf in port.hands.keys() - there:
                del port.hands[vrf]
            for vrf in there - allowed:
                if vrf == MAINTENANCE and actor.foreign:
                    continue  # somebody else fenced it: the watch of released nodes sees that
                if self.made - port.hands.get(vrf, -FENCE_STEPS) >= FENCE_STEPS:
                    raise Violated(f"{row.id}: {vrf} while {row.state}, {row.placement}")
            if actor.pending is not None:
                continue  # what is written next was read before the hand came
            for vrf in port.hands.keys() & allowed:
                del port.hands[vrf]  # it goes there by right meanwhile
                port.inside = 0
        if actor.driverless and self.made - actor.driverless > DRIVERLESS_STEPS:
            raise Violated(f"{row.id}: no driver that reaches its devices for {DRIVERLESS_STEPS}")
        if not actor.active and row.placement not in (Placement.CUSTOMER, Placement.MAINTENANCE):
            raise Violated(f"{row.id} rests as {row.state}, and its ports are {row.placement}")

    def _allowed(self, row: Node) -> set[str]:
        allowed = {MAINTENANCE}
        if row.placement is Placement.CUSTOMER:
            allowed = {row.vrf} | ({MAINTENANCE} if row.state is State.DRAINING else set())
        elif row.placement is Placement.MIXED:
            names = {row.tenant, *row.served.split(", ")}
            allowed |= {vrf for tenant, vrf in VRF_OF.items() if tenant in names}
        return allowed

    def _no_leak(self, actor: Actor) -> None:
        if actor.soiled:
            raise Violated(f"{actor.row.id} was released, not erased since it stood elsewhere")
        if actor.revoked:
            raise Violated(f"{actor.row.id} was released without a certificate in force")
        for planned in actor.row.ports:
            if self.ports[planned.switch, planned.interface].leak not in ("", actor.row.vrf):
                raise Violated(f"{actor.row.id} was released over a leak")
