"""What a simulated switch carries, and whom it speaks BGP with: the truth behind its counters.

A switch carries traffic between others until it is drained and they had time to go around; where
they have no other way, it goes on carrying (a drain asks, it does not force). Whatever it carries
at the moment of a reboot is lost, and written into its log as such.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from provisioner.sim.switches.switch import Switch
from provisioner.sim.switches.switch_config import Tree
from provisioner.sim.switches.switch_state import operational

PORT_BPS = 2_000_000_000  # bytes a second through each port of a switch that carries
KEEPALIVE_BPS = 400  # what is left: BGP, LLDP
CONVERGE_S = 15.0  # from the neighbours' new routes to the last packet
FABRIC_NAMES = ("leaf", "spine")
ON = ("on", "enabled")


class Fabric:
    """One switch's part in the fabric. `alternative`: whether others have a way around it."""

    def __init__(self, switch: Switch) -> None:
        self.switch = switch
        self.alternative: Callable[[], bool] = lambda: True
        self.busy = switch.name.startswith("spine")  # a leaf carries what its hosts send
        self._since: float | None = None  # when the drain was first in force
        self._at = 0.0
        self._bytes: dict[str, float] = {}

    def drained(self) -> bool:
        """Whether it asks its neighbours to go around, as it is in force now."""
        bgp = self.switch.operational.get("router", {}).get("bgp", {})
        return bgp.get("graceful-shutdown") in ON

    def carrying(self, now: float) -> bool:
        """Whether anything but keepalives goes through it."""
        if not self.drained():
            self._since = None
        elif self._since is None:
            self._since = now
        gone = self._since is not None and now - self._since >= CONVERGE_S
        return self.busy and self.switch.up(now) and not (gone and self.alternative())

    def lose(self, now: float) -> None:
        """It goes down now: what it carries is lost, and that is written down."""
        if self.carrying(now):
            self.switch.note(now, "traffic_lost", self.switch.name, "rebooted while carrying")

    def look(self, parts: tuple[str, ...], now: float) -> Tree | None:
        """What is operational only, at this path; None: the configuration tells it."""
        found = operational(self.switch, parts, now)
        return self._document(parts, now) if found is None else found

    def _document(self, parts: tuple[str, ...], now: float) -> Tree | None:
        match parts:
            case ("interface", name, "link", "stats") if name in self.switch.neighbours:
                return self._stats(name, now)
            case ("vrf", "default", "router", "bgp", "neighbor"):
                return {n: {"state": s} for n, s in self._sessions(now)}
            case ("evpn", "vni"):
                return dict(self.switch.operational.get("evpn", {}).get("vni", {}))
            case ("platform", "firmware"):
                return {"ASIC": {"actual-firmware": "34.2014.1136"}}
            case ("router", "bgp"):
                configured = self.switch.applied.get("router", {}).get("bgp", {})
                return {"enable": "on", "graceful-shutdown": "off", **configured}
        return None

    def _sessions(self, now: float) -> Iterable[tuple[str, str]]:
        for name, neighbour in self.switch.neighbours.items():
            if neighbour.system.startswith(FABRIC_NAMES):
                up = self.switch.link_up(name, now)
                yield name, "established" if up else "idle"

    def _stats(self, name: str, now: float) -> Tree:
        rate = PORT_BPS if self.carrying(now) else KEEPALIVE_BPS
        busy = self.switch.planted.busy
        passed = max(0.0, now - self._at) if self._at else 0.0
        for port in self.switch.neighbours:
            if self.switch.link_up(port, now):
                self._bytes[port] = self._bytes.get(port, 0.0) + passed * (
                    PORT_BPS if port in busy else rate
                )
        self._at = now
        half = int(self._bytes.get(name, 0.0)) // 2
        changes = 2 + self.switch.planted.flaps.get(name, 0)
        errors = self.switch.planted.errors.get(name, 0)
        counted = {"in-bytes": half, "out-bytes": half, "in-errors": errors}
        return {**counted, "carrier-transitions": changes}


class HasFabric(Protocol):
    """A service with a part in the fabric."""

    fabric: Fabric


def join(services: Mapping[str, HasFabric], now: Callable[[], float]) -> None:
    """Tell each spine of the others: they are the way around it."""

    def around(name: str) -> Callable[[], bool]:
        return lambda: any(
            other.fabric.switch.up(now()) and not other.fabric.drained()
            for n, other in services.items()
            if n.startswith("spine") and n != name
        )

    leaves = [s.fabric.switch for n, s in services.items() if not n.startswith("spine")]
    for leaf in leaves:
        leaf.overlay = tuple(other for other in leaves if other is not leaf)
    for name, service in services.items():
        if name.startswith("spine"):
            service.fabric.alternative = around(name)
