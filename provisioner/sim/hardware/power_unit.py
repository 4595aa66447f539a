"""A simulated power distribution unit: outlets that feed simulated servers. No protocol in here.

A server has power as long as one of its feeds has: an outlet of any unit. A unit may be troubled:
`lies` reports the requested state and switches nothing, `silent` answers nothing, `sticks` answers
success and leaves an outlet as it is, `crossed` switches the next outlet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from provisioner.sim.hardware.machine import Machine


class PowerUnit:
    """Outlets by name, each on or off, and the servers whose cords are in them."""

    def __init__(self, name: str, outlets: Sequence[str]) -> None:
        self.name = name
        self.on = dict.fromkeys(outlets, True)
        self.reported: dict[str, bool] = {}  # of a unit that lies
        self.troubles: set[str] = set()
        self.on_switch: list[Callable[[float], None]] = []
        self.log: list[tuple[float, str, bool]] = []

    def read(self, outlet: str) -> bool:
        """The state that the unit reports."""
        return self.reported.get(outlet, self.on[outlet])

    def switch(self, outlet: str, now: float, *, on: bool) -> None:
        """Switch an outlet, as far as the unit's troubles let it."""
        if "sticks" in self.troubles:
            return
        if "lies" in self.troubles:
            self.reported[outlet] = on
            return
        if "crossed" in self.troubles:
            names = list(self.on)
            self.reported[outlet] = on
            outlet = names[(names.index(outlet) + 1) % len(names)]
        self.on[outlet] = on
        self.log.append((now, outlet, on))
        for notify in self.on_switch:
            notify(now)


class Cords:
    """The cords of one server: it loses power with its last feed and regains it with the first."""

    def __init__(self, machine: Machine, feeds: Sequence[tuple[PowerUnit, str]]) -> None:
        self.machine = machine
        self.feeds = tuple(feeds)
        self.fed = True
        for unit in {id(u): u for u, _ in feeds}.values():
            unit.on_switch.append(self.follow)

    def follow(self, now: float) -> None:
        """Take the outlets' present states over to the server."""
        fed = any(unit.on[outlet] for unit, outlet in self.feeds)
        if fed == self.fed:
            return
        self.fed = fed
        if fed:
            self.machine.regain_feeds(now)
        else:
            self.machine.lose_feeds(now)
