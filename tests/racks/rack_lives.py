"""Lives of the plan's executor in a world of racks: carried out, killed and resumed."""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass

from rack_world import World

from provisioner.integrations.racks.campaign import Act, Campaign
from provisioner.integrations.racks.campaign_run import Entry, Execution, Seen


class Killed(Exception):
    """The daemon died here."""


@dataclass(frozen=True)
class Hands:
    """Sends to the world, and dies before or after it where it is told to."""

    world: World
    die: Callable[[], None]

    def send(self, act: Act) -> None:
        self.die()
        self.world.send(act)
        self.die()

    def look(self, act: Act) -> Seen:
        return Seen(self.world.look(act))


def live(campaign: Campaign, world: World, kills: Set[int] = frozenset()) -> tuple[Execution, int]:
    """Carry a campaign out; return its last executor, and how often one died.

    Each write of the journal and each request is two steps, before and after; at those of `kills`
    the executor dies, and another one begins with the journal alone.
    """
    journal: list[Entry] = []
    steps = deaths = 0

    def die() -> None:
        nonlocal steps
        steps += 1
        if steps in kills:
            raise Killed

    def write(entry: Entry) -> None:
        die()
        journal.append(entry)
        die()

    while True:
        try:
            execution = Execution(campaign, Hands(world, die), write, journal)
            for key in execution.outcome().running:
                execution.observe(key)
            execution.advance()
            while (ended := world.step()) is not None:
                execution.observe(ended)
                execution.advance()
            return execution, deaths
        except Killed:
            deaths += 1
