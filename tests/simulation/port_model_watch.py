"""The watch of leaves in the abstract model: a row, a leaf, a judgement, a note, a fence."""

from __future__ import annotations

import random

from given_events import in_state
from port_members import Members
from port_model_parts import LEAVES, LOST, VRF_OF, Actor, ModelPort, Watch, placed
from port_truth import MAINTENANCE

from provisioner.model.node import Node, Placement, State, TenantData
from provisioner.model.tenant import PortPlacement
from provisioner.planning.lifecycle import operator_requests as requests
from provisioner.planning.lifecycle.journey import may_enter
from provisioner.planning.release.entitlement import find_isolation_violations, mark_served
from provisioner.planning.release.port_isolation import find_misplaced_ports


class WatchSteps:
    """Steps of the watch; the model has the ports and the actors."""

    rng: random.Random
    actors: list[Actor]
    ports: dict[tuple[str, str], ModelPort]
    members: Members
    lead: int
    watch: Watch | None
    now: float

    # --- the watch of leaves: read one, judge it between two readings of the row, note, fence

    def _watch(self) -> str:
        watch = self.watch
        if watch is None:
            actor = self.rng.choice(self.actors)
            if self.rng.random() >= LOST:
                self.watch = Watch(actor, actor.row, self.rng.randrange(len(LEAVES)))
            return "watch: row"
        actor, planned = watch.actor, watch.actor.row.ports[watch.leaf]
        port = self.ports[planned.switch, planned.interface]
        if not self.members.all[self.lead].reaches((planned.switch,)):
            self.watch = None  # other leaves are looked at meanwhile
            return ""
        if watch.seen is None:
            watch.seen = tuple(
                placed(planned.switch, planned.interface, vrf) for vrf in sorted(port.look())
            )
            return "watch: leaf"
        if watch.noted:
            if self.rng.random() < LOST:
                return "watch: lost"
            if {port.operational, port.applied, *port.coming} != {MAINTENANCE}:
                if port.coming[-1:] != [MAINTENANCE]:
                    port.coming.append(MAINTENANCE)
                    return "watch: fence"
                return ""  # on its way: a poll
            port.startup = port.applied
            self.watch = None
            return "watch: " + self._parked(actor)
        found = find_isolation_violations(actor.row, watch.seen, VRF_OF)
        rests = actor.row == watch.before and not found and not actor.active
        served = rests and actor.row.state is State.RELEASED
        if served and find_misplaced_ports((planned,), watch.seen, actor.row.vrf):
            self.watch = None
            self._take_back(actor)
            return "watch: taken back"
        if actor.row != watch.before or not found:
            self.watch = None  # nothing, or the row moved on: another look
            return "watch: nothing"
        watch.noted = True
        self._found(actor)
        actor.row = self._noted(actor.row, found)
        if actor.target not in ("", MAINTENANCE):  # a release meets a row that is another one
            actor.target, actor.leaf = MAINTENANCE, 0
        if actor.row.state is State.RELEASED:
            self._take_back(actor)
        return "watch: note"

    def _noted(self, node: Node, found: tuple[PortPlacement, ...]) -> Node:
        return node.model_copy(update={"served": mark_served(node.served, (p.vrf for p in found))})

    def _found(self, actor: Actor) -> None:
        """The truth's word: whoever was found in a customer's network has to be erased."""
        mine = (self.ports[p.switch, p.interface] for p in actor.row.ports)
        actor.soiled = actor.soiled or any(port.inside for port in mine)
        actor.exposed = actor.exposed or actor.soiled

    def _take_back(self, actor: Actor) -> None:
        """Its driver fences all of it; it comes back through an erasure."""
        asked = requests.reclaim_node(actor.row, self.now, for_repair=True)
        assert isinstance(asked, Node), asked
        doubt = {"placement": Placement.MIXED, "vrf": "", "tenant_data": TenantData.ASKED}
        actor.row = asked.model_copy(update=doubt)
        actor.active = True

    def _parked(self, actor: Actor) -> str:
        """Quarantine, where a person is waited for, if its row allows it."""
        node = actor.row
        if node.state in (State.CONVERGING, State.VALIDATING, State.CERTIFIED) and may_enter(
            node, State.QUARANTINED, node.placement
        ):
            actor.row = in_state(node, State.QUARANTINED, self.now)
            actor.target = ""  # its driver meets a row that is another one
            return "park"
        return "fenced"
