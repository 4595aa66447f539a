"""Daemons in the abstract model: who drives what, who is far from its database, who takes over."""

from __future__ import annotations

import random
from collections import Counter

from port_members import Members
from port_model_parts import (
    LEAVES,
    LOOK_STEPS,
    STEP_S,
    STRIKES,
    TURN_TRIPS,
    Actor,
    ModelPort,
    Pending,
    Watch,
)

from provisioner.planning.lifecycle.decide import View


class MemberSteps:
    """What members add to the steps; the model has the actors."""

    rng: random.Random
    actors: list[Actor]
    members: Members
    lead: int
    ports: dict[tuple[str, str], ModelPort]
    made: int
    watch: Watch | None
    driverless_steps: int
    steps: Counter[str]

    def _strike(self, what: str) -> str:
        """One member becomes slow, or reaches few devices; its operations are its own still."""
        if self.rng.random() >= STRIKES:
            return ""
        self.members.strike(what, self.rng.choice(self.members.all), self.made * STEP_S)
        return what

    def _members_look(self) -> None:
        """Each looks at its peers; who gave up forgets all, and others go on with its rows."""
        for gone in self.members.look(self.made * STEP_S):
            at = self.members.all.index(gone)
            after = self.members.all.index(self.members.takes_over(gone))
            for actor in self.actors:
                if actor.member == at:
                    self._forget(actor)
                    actor.member = after
            if self.lead == at:
                self.lead, self.watch = after, None
            self.steps["handed over"] += 1
        self._hindered()
        for actor in self.actors:
            self._watch_driver(actor)

    def _hindered(self) -> None:
        """Nobody fences on a leaf that gives the lead no answer; that it hands over is judged."""
        for leaf in self.members.all[self.lead].cut.intersection(LEAVES):
            for (name, _), port in self.ports.items():
                if name == leaf:
                    port.hands.update({vrf: at + LOOK_STEPS for vrf, at in port.hands.items()})
                    port.inside += LOOK_STEPS if port.inside else 0

    def _watch_driver(self, actor: Actor) -> None:
        """Note since when its driver reaches less of its devices than a peer does."""
        driver, lead = (self.members.all[n] for n in (actor.member, self.lead))
        better = actor.active and self.members.find_better(driver, actor.devices, slow=True)
        better = better or self.members.find_better(lead, LEAVES, slow=True)
        if not better:
            if actor.driverless:
                took = self.made - actor.driverless
                self.driverless_steps = max(self.driverless_steps, took)
            actor.driverless = 0
        elif not actor.driverless:
            actor.driverless = self.made

    def _crash(self) -> None:
        for each in self.actors:
            self._forget(each)
        self.watch = None

    def _forget(self, actor: Actor) -> None:
        """Whoever drove it is gone, and its row is all that is left."""
        actor.target, actor.leaf, actor.parks, actor.pending = "", 0, False, None

    def _reaches(self, actor: Actor, *devices: str) -> bool:
        return self.members.all[actor.member].reaches(devices)

    # --- a driver that is far from its database: it decides from what it read some time ago

    def _decides_on(self, actor: Actor) -> View | str:
        """What this turn is decided on; a word where nothing is decided yet."""
        late = actor.pending
        if late is None:
            if not self._reaches(actor, *actor.devices):
                return ""  # no answer: it asks again
            view = self._look(actor)
            if view is None:
                return "lost look"
            return "slow write" if self._begins_late(actor, view) else view
        if self.made < late.due:
            return ""
        actor.pending = None
        return late.view if late.row == actor.row else "stale write"

    def _look(self, actor: Actor) -> View | None:
        raise NotImplementedError

    def _begins_late(self, actor: Actor, view: View) -> bool:
        trip_s = self.members.all[actor.member].round_trip_ms / 1000
        steps = int(trip_s * TURN_TRIPS / STEP_S)
        if steps:
            actor.pending = Pending(self.made + steps, actor.row, view)
        return steps > 0
