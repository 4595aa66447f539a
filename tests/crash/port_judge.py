"""Judges every entry into a customer's VRF at the moment at which it happens.

It reads the switches, the disks and the rows of the database, and nothing of the daemon's memory. A
port that enters a customer's VRF needs a certificate that is valid at that time, a release to that
very tenant that is under way or recorded, and disks on which no other tenant's data is left. A port
that a foreign hand moved has to be fenced in time, with no certificate signed meanwhile. Between
the loss of writes and a person's word nothing may be changed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from returned import HOST
from rig import World

from provisioner.integrations.sim.switches.switch import Switch

CUSTOMERS = ("RED", "BLUE")
# A revision that was sent before a certificate was revoked takes its course.
REVISION_S = 25.0
# Two looks at the leaf, a minute apart at the most, each behind revisions of others.
FENCE_S = 300.0
DATA_OF = b"data of "


def data_of(vrf: str) -> bytes:
    """Return what a disk has of the tenant of this VRF."""
    return DATA_OF + vrf.encode()


@dataclass
class Hand:
    """A port that somebody else put into a customer's VRF."""

    switch: str
    interface: str
    vrf: str
    at: float  # when it stood there, or was going to with the leaf's start
    fenced_at: float | None = None


@dataclass
class PortJudge:
    """`wrong` grows; nothing is taken back from it. `rows`: the database's connection."""

    world: World
    rows: Any = None
    wrong: list[str] = field(default_factory=list)
    hands: list[Hand] = field(default_factory=list)
    entered: int = 0  # ports that a daemon brought into a customer's VRF
    heard: int = 0  # what leaves have noted since it listens
    closed: bool = False  # writes were lost, and no person has settled it yet
    when_entered: Callable[[], None] | None = None  # once, at the next entry

    def watch(self) -> None:
        """Hear of every port that moves, from now on."""
        for switch in self.world.site.switches.values():
            self._hear(switch)

    def _hear(self, switch: Switch) -> None:
        noted = switch.log_event

        def note(now: float, kind: str, subject: str, detail: str = "") -> None:
            noted(now, kind, subject, detail)
            self.heard += 1
            if kind == "vrf":
                self._moved(switch, subject.partition("/")[2], now)
            if self.closed and kind in ("vrf", "config_applied", "config_saved"):
                self.wrong.append(f"{subject}: {kind} before anybody had settled the restore")

        switch.log_event = note  # type: ignore[method-assign]

    def hand(self, switch: Switch, interface: str, vrf: str, at: float) -> None:
        """A foreign hand puts this port there."""
        self.hands.append(Hand(switch.name, interface, vrf, at))

    def _moved(self, switch: Switch, interface: str, now: float) -> None:
        if interface != self.world.site.places[HOST].interface:
            return
        vrf = switch.get_vrf(interface)
        mine = [h for h in self.hands if (h.switch, h.interface) == (switch.name, interface)]
        for hand in mine:
            if hand.fenced_at is None and vrf not in CUSTOMERS:
                hand.fenced_at = now
        if vrf not in CUSTOMERS or any(h.vrf == vrf and h.fenced_at is None for h in mine):
            return
        self.entered += 1
        port = f"{switch.name}/{interface} entered {vrf}"
        wrong = (*self._not_entitled(vrf, now), *self._soiled(vrf))
        self.wrong += [f"{port}: {why}" for why in wrong]
        if self.when_entered is not None:
            act, self.when_entered = self.when_entered, None
            act()
        if all(s.get_vrf(interface) == vrf for s in self.leaves()):
            self.soil(vrf)

    def leaves(self) -> list[Switch]:
        """The leaves of the host."""
        place = self.world.site.places[HOST]
        rails = (cable.rail for cable in self.world.site.hosts[HOST].cables)
        return [self.world.site.switches[place.name_leaf(rail)] for rail in rails]

    def _not_entitled(self, vrf: str, now: float) -> list[str]:
        """What the rows lack for this port to be there."""
        node = json.loads(self._row("SELECT body FROM nodes WHERE id = ?", HOST)[0])
        found = []
        row = self._row(
            "SELECT body, issued_at, revoked_at FROM certificates WHERE id = ?", node["certificate"]
        )
        if row is None:
            found.append("there is no certificate")
        else:
            body = json.loads(row[0])
            if body["node"] != HOST or not row[1] <= now < body["expires_at"]:
                found.append("its certificate is not valid now")
            if row[2] is not None and now - row[2] > REVISION_S:
                found.append(f"its certificate was revoked {now - row[2]:.0f} s ago")
        tenant = self._row("SELECT body FROM tenants WHERE name = ?", node["tenant"])
        if tenant is None or json.loads(tenant[0])["vrf"] != vrf:
            found.append(f"its row names the tenant '{node['tenant']}'")
        if node["state"] not in ("certified", "released"):
            found.append(f"its row is {node['state']}")
        return found

    def _row(self, query: str, key: str) -> Any:
        return self.rows.execute(query, (key,)).fetchone()

    # --- whose data is on the disks

    def soil(self, vrf: str) -> None:
        """Who has the host writes on each of its disks."""
        for disk in self.world.site.machines[HOST].disks.values():
            disk.content, disk.holds = data_of(vrf), "tenant"

    def _soiled(self, vrf: str) -> list[str]:
        disks = self.world.site.machines[HOST].disks
        strange = {
            slot: disk.content
            for slot, disk in disks.items()
            if disk.content.startswith(DATA_OF) and disk.content != data_of(vrf)
        }
        return [f"{slot} has {content!r}" for slot, content in sorted(strange.items())]

    # --- at the end of a leg

    def judge(self) -> list[str]:
        """Everything that must never be so and was, until now."""
        now = self.world.clock.now()
        found = [*self.wrong, *["no leaf was heard"] * (not self.heard)]
        for hand in self.hands:
            if hand.at > now:
                continue
            until = hand.fenced_at or now
            port = f"{hand.switch}/{hand.interface} by a foreign hand in {hand.vrf}"
            if until - hand.at > FENCE_S:
                found.append(f"{port} for {until - hand.at:.0f} s")
            signed = self.rows.execute(
                "SELECT id FROM certificates WHERE issued_at > ? AND issued_at < ?",
                (hand.at, until),
            ).fetchall()
            found += [f"{port}: {name} was signed meanwhile" for (name,) in signed]
        return found
