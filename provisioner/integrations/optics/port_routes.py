"""Routes of a node's links at its leaves: rails at a glance, optics with their days, queues.

Nothing is read from a device: the watch looked at every leaf, and what it kept is told with its
time. What was never read stays null.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import Field

from provisioner.api.parts import Ask, Reply
from provisioner.api.route import VIEWERS, Route
from provisioner.integrations.optics.ends import Joined
from provisioner.integrations.optics.host_ends import join_node
from provisioner.integrations.optics.series import (
    DAYS_KEPT,
    NAME,
    QUANTITIES,
    describe,
    read_days,
    read_judged,
    read_now,
)
from provisioner.integrations.optics.trends import (
    BAD,
    FLAPS_MIN,
    Day,
    Verdict,
    find_mates,
    find_shared,
    judge_port,
)
from provisioner.model.alert import Alert
from provisioner.model.base import Record
from provisioner.model.location import Port
from provisioner.model.node import Node
from provisioner.model.times.instant import InstantOrNone

TAG = "nodes"
DAYS_SHOWN = 60
# of `planning/watch/watch_rules.py`
QUEUE_ALERTS = frozenset({"QueueStuck", "PfcStorm", "SlowReceiver", "QueueDiscards"})


class Link(Record):
    """One cable of a host, and when its leaf was last read."""

    rail: int = Field(description="Rail of the east-west network; -1: north-south.")
    card: str = Field(description="Slot of the host's card.")
    switch: str = Field(description="Name of the leaf.")
    interface: str = Field(description="Port of the leaf.")
    read_at: InstantOrNone = Field(description="When the leaf was last read; null: never.")


class RailView(Link):
    """One cable of a host in a line: its light, its queues, its alerts."""

    link: str = Field(description="up or down at the last look; empty: the leaf did not say.")
    optic: str = Field(description="good, dirty, dying, dark or unknown.")
    rx_dbm: float | None = Field(description="Light received on the darkest lane, dBm; -40: none.")
    flaps: int = Field(description="Changes of carrier in the days that are judged.")
    pause_per_s: float | None = Field(
        description="PFC pause frames from the host by the second; null: not counted."
    )
    alerts: tuple[str, ...] = Field(description="Active alerts of this port.")


class OpticDay(Record):
    """Medians of one day at one end of a cable; null: unknown."""

    day: str = Field(description="Date in UTC.")
    rx_dbm: float | None = Field(description="Light received, dBm; -40: none.")
    tx_dbm: float | None = Field(description="Light sent, dBm.")
    bias_ma: float | None = Field(description="Bias current of a laser, mA.")
    temperature_c: float | None = Field(description="Temperature of the module, °C.")
    snr_db: float | None = Field(default=None, description="Signal to noise, dB.")
    pre_fec_ber: float | None = Field(default=None, description="Bit errors before FEC.")
    flaps: int = Field(description="Changes of carrier on that day.")


class OpticView(Link):
    """The optic at the leaf's end of a cable, what its days say, and what to do."""

    state: str = Field(description="good, dirty, dying, dark or unknown.")
    end: str = Field(description="Whose end is at fault: node or leaf; empty: none, or not told.")
    says: str = Field(description="The verdict as a sentence.")
    remedy: str = Field(description="What to clean, reseat or swap; empty: nothing.")
    since: str = Field(description="First day of the trend; empty: none.")
    until: str = Field(description="Day on which the module's alarm limit is reached; empty: none.")
    repaired_on: str = Field(description="Day of the last repair that was seen; empty: none.")
    proved: bool | None = Field(description="Whether the light proves that repair; null: none.")
    kind: str = Field(description="optic, copper or unknown.")
    serial: str = Field(description="Serial number.")
    part: str = Field(description="Vendor and part number.")
    lot: str = Field(description="Date code of its vendor.")
    rx_dbm: float | None = Field(description="Light received on the darkest lane, dBm; -40: none.")
    tx_dbm: float | None = Field(description="Light sent on the darkest lane, dBm.")
    bias_ma: float | None = Field(description="Highest bias current of a laser, mA.")
    temperature_c: float | None = Field(description="Temperature of the module, °C.")
    snr_db: float | None = Field(
        default=None, description="Signal to noise of the worst lane, dB; null: not reported."
    )
    pre_fec_ber: float | None = Field(
        default=None, description="Bit errors before FEC of the worst lane; null: not reported."
    )
    low_alarm_dbm: float | None = Field(description="The module's alarm limit of light received.")
    host_rx_dbm: float | None = Field(
        description="Light that the host's end received at its last validation; null: unknown."
    )
    host_proved: bool | None = Field(
        description="Whether the host's end proves that repair too; null: not read around it."
    )
    host_days: tuple[OpticDay, ...] = Field(
        description="Days of validations at the host's end, which counts no flaps."
    )
    flaps: int = Field(description="Changes of carrier in the days that are judged.")
    days: tuple[OpticDay, ...] = Field(description="Its days, the oldest first.")


class QueueDay(Record):
    """What the queues of one port counted on one day."""

    day: str = Field(description="Date in UTC.")
    counts: dict[str, int] = Field(description="Counter and its growth; absent: not counted.")


class QueueView(Link):
    """The queues of a leaf's port to a host."""

    counts: dict[str, int] = Field(
        description="pause_received (PFC frames from the host), pause_sent, ecn_marked, discards,"
        " watchdog_storms, watchdog_stuck; one that is absent is not counted."
    )
    per_s: dict[str, float] = Field(description="Growth by the second between the last two looks.")
    alerts: tuple[str, ...] = Field(description="Active alerts of its queues.")
    days: tuple[QueueDay, ...] = Field(description="Its days, the oldest first.")


class Rails(Record):
    """The cables of a node at a glance."""

    node: str
    items: tuple[RailView, ...] = Field(description="Its cables, by rail.")


class Optics(Record):
    """The optics of a node's links."""

    node: str
    items: tuple[OpticView, ...] = Field(description="Its cables, by rail.")


class Queues(Record):
    """The queues of a node's links."""

    node: str
    items: tuple[QueueView, ...] = Field(description="Its cables, by rail.")


class FleetOptic(Record):
    """A port of the fleet whose optic degrades, flaps, or was repaired."""

    switch: str = Field(description="Name of the leaf.")
    interface: str = Field(description="Port of the leaf.")
    node: str = Field(description="Host at the port; empty: unknown.")
    state: str = Field(description="good, dirty, dying, dark or unknown.")
    end: str = Field(description="Whose end is at fault: node or leaf; empty: none, or not told.")
    says: str = Field(description="The verdict as a sentence.")
    remedy: str = Field(description="What to clean, reseat or swap; empty: nothing.")
    flaps: int = Field(description="Changes of carrier in the days that are judged.")
    repaired_on: str = Field(description="Day of the last repair that was seen; empty: none.")
    proved: bool | None = Field(description="Whether the light proves that repair; null: none.")
    serial: str = Field(description="Serial number of the optic.")


class OpticCause(Record):
    """What has far more degrading or flapping ports than its share of the fleet."""

    of: str = Field(description="degrading or flapping.")
    group: str = Field(description="A leaf, a part number, or a lot of it.")
    bad: int = Field(description="Such ports that it has.")
    all_bad: int = Field(description="Such ports of the fleet.")
    ports: int = Field(description="Ports that it has.")
    fleet: int = Field(description="Ports of the fleet.")


class FleetOptics(Record):
    """Optics of the fleet that want something, as judged at the end of the last day."""

    items: tuple[FleetOptic, ...] = Field(description="Ports, by leaf.")
    ports: int = Field(description="Ports that were judged.")
    unknown: int = Field(description="Those of them of which nothing can be told yet.")
    unread: tuple[str, ...] = Field(
        description="Leaves that are judged in part or not: their first day has not ended, or what"
        " is kept of them is damaged."
    )
    causes: tuple[OpticCause, ...] = Field(description="What they have in common beyond chance.")


class Kept:
    """What is kept of one cable: newest reading, days, verdict, alerts."""

    def __init__(
        self,
        port: Port,
        now: Mapping[str, Any],
        leaf: Mapping[str, Sequence[Day]],
        alerts: Sequence[Alert],
    ) -> None:
        """`leaf`: the days of all ports of its leaf."""
        days = leaf.get(port.interface, ())
        mates = find_mates(leaf).get(port.interface, ())
        self.port = port
        self.now = now
        self.days = days
        name = f"{port.switch}/{port.interface}"
        self.verdict: Verdict = judge_port(name, days, mates)
        self.alerts = tuple(sorted({a.id for a in alerts if a.active and a.target == name}))

    def get_values(self) -> dict[str, Any]:
        values = self.now.get("values") or {}
        return {quantity: values.get(quantity) for quantity in QUANTITIES}

    def get_link(self) -> dict[str, Any]:
        port = self.port
        at = float(self.now.get("at") or 0.0)
        where = {"switch": port.switch, "interface": port.interface}
        return {"rail": port.rail, "card": port.nic_slot, "read_at": at, **where}


def read_kept(node: Node, folder: Path | None, alerts: Sequence[Alert]) -> list[Kept]:
    """Return what is kept of each cable of a node. A reading for another node is not this one's."""
    kept: list[Kept] = []
    leaves: dict[str, tuple[dict[str, Any], dict[str, list[Day]]]] = {}
    for port in sorted(node.ports, key=lambda p: (p.rail < 0, p.rail, p.switch, p.interface)):
        if port.switch not in leaves:
            known = folder is not None and NAME.fullmatch(port.switch) is not None
            place = (folder or Path()) / port.switch
            leaves[port.switch] = (read_now(place), read_days(place)) if known else ({}, {})
        now, days = leaves[port.switch]
        newest = now.get(port.interface, {})
        own = newest if newest.get("node") == node.id else {}
        kept.append(Kept(port, own, days, alerts))
    return kept


async def _read(ask: Ask) -> tuple[Node, list[Kept]]:
    node = await ask.read_node()
    directory = ask.parts.directory
    folder = None if directory is None else directory / "optics"
    alerts = await ask.parts.store.alerts.list(node.id)
    return node, await asyncio.to_thread(read_kept, node, folder, alerts)


async def list_rails(ask: Ask) -> Reply:
    node, kept = await _read(ask)
    items = tuple(
        RailView(
            **one.get_link(),
            link=str(one.now.get("link", "")),
            optic=one.verdict.state,
            rx_dbm=one.get_values()["rx_dbm"],
            flaps=one.verdict.flaps,
            pause_per_s=(one.now.get("per_s") or {}).get("pause_received"),
            alerts=one.alerts,
        )
        for one in kept
    )
    return Reply(Rails(node=node.id, items=items))


async def list_optics(ask: Ask) -> Reply:
    node, kept = await _read(ask)
    since = ask.parts.clock.now() - DAYS_KEPT * 86_400
    links = [(one.port.nic_slot, one.verdict, one.days) for one in kept]
    joined, at_host = await join_node(ask.parts.store.evidence, node, links, since)
    items = tuple(
        _show_optic(one, by_both, at_host.get(one.port.nic_slot, []))
        for one, by_both in zip(kept, joined, strict=True)
    )
    return Reply(Optics(node=node.id, items=items))


def _show_optic(one: Kept, joined: Joined, at_host: Sequence[Day]) -> OpticView:
    found = joined.verdict
    days = one.days[-DAYS_SHOWN:]
    last = days[-1] if days else None
    kept: dict[str, Any] = (
        {}
        if last is None
        else {
            "kind": last.kind,
            "serial": last.serial,
            "part": last.part,
            "lot": last.lot,
            "low": last.low_alarm_dbm,
        }
    )
    newest = one.now or kept
    return OpticView(
        **one.get_link(),
        **one.get_values(),
        state=found.state,
        end=found.end,
        says=describe(found) if days or not one.now else "unknown: its first day has not ended.",
        remedy=found.remedy,
        since=found.since.isoformat() if found.since else "",
        until=found.until.isoformat() if found.until else "",
        repaired_on=found.repaired_on.isoformat() if found.repaired_on else "",
        proved=found.proved,
        kind=str(newest.get("kind", "unknown")),
        serial=str(newest.get("serial", "")),
        part=str(newest.get("part", "")),
        lot=str(newest.get("lot", "")),
        low_alarm_dbm=newest.get("low"),
        host_rx_dbm=at_host[-1].values.get("rx_dbm") if at_host else None,
        host_proved=joined.proved,
        host_days=tuple(_show_day(day) for day in at_host[-DAYS_SHOWN:]),
        flaps=found.flaps,
        days=tuple(_show_day(day) for day in days),
    )


def _show_day(day: Day) -> OpticDay:
    values = {name: day.values.get(name) for name in QUANTITIES}
    return OpticDay(day=day.day.isoformat(), flaps=day.flaps, **values)


async def list_queues(ask: Ask) -> Reply:
    node, kept = await _read(ask)
    items = tuple(
        QueueView(
            **one.get_link(),
            counts=one.now.get("queues") or {},
            per_s=one.now.get("per_s") or {},
            alerts=tuple(a for a in one.alerts if a in QUEUE_ALERTS),
            days=tuple(
                QueueDay(day=d.day.isoformat(), counts=dict(d.queues))
                for d in one.days[-DAYS_SHOWN:]
                if d.queues
            ),
        )
        for one in kept
    )
    return Reply(Queues(node=node.id, items=items))


async def list_fleet_optics(ask: Ask) -> Reply:
    directory = ask.parts.directory
    folder = Path() if directory is None else directory / "optics"
    return Reply(await asyncio.to_thread(read_fleet, folder))


def read_fleet(folder: Path) -> FleetOptics:
    """Return what stands in the files of all leaves, and the leaves of which not all does."""
    items: list[FleetOptic] = []
    groups_of: dict[str, tuple[str, ...]] = {}
    sizes: Counter[str] = Counter()
    unknown = 0
    unread: list[str] = []
    leaves = sorted(each for each in folder.iterdir() if each.is_dir()) if folder.is_dir() else ()
    for leaf in leaves:
        judged = read_judged(leaf)
        sizes.update(judged.sizes)
        unknown += judged.unknown
        whole = judged.whole
        for row in judged.rows:
            where = {"switch": leaf.name, "interface": str(row.get("port", "")).partition("/")[2]}
            known = {n: row[n] for n in FleetOptic.model_fields if row.get(n) is not None}
            try:
                one = FleetOptic(**{"repaired_on": "", "proved": None, **known, **where})
                groups_of[f"{one.switch}/{one.interface}"] = tuple(map(str, row["groups"]))
                items.append(one)
            except (ValueError, TypeError, KeyError):
                whole = False
        if not whole:
            unread.append(leaf.name)
    fleet = sum(count for group, count in sizes.items() if group.startswith("leaf "))
    names = [f"{one.switch}/{one.interface}" for one in items]
    listed = list(zip(names, items, strict=True))
    # one optic counts once, whatever ports of a breakout it has
    degrading = {one.serial or n: n for n, one in listed if one.state in BAD}.values()
    flapping = [n for n, one in listed if one.flaps >= FLAPS_MIN]
    causes = tuple(
        OpticCause(of=word, **asdict(cause))
        for word, bad in (("degrading", [*degrading]), ("flapping", flapping))
        for cause in find_shared(bad, groups_of, sizes, fleet)
    )
    return FleetOptics(
        items=tuple(items), ports=fleet, unknown=unknown, unread=tuple(unread), causes=causes
    )


ROUTES = (
    Route(
        "GET",
        "/fabric/optics",
        "list_fleet_optics",
        TAG,
        "List optics that degrade, flap or were repaired, and what they have in common.",
        VIEWERS,
        list_fleet_optics,
        {200: FleetOptics},
        heavy=True,
    ),
    Route(
        "GET",
        "/nodes/{node}/rails",
        "list_rails",
        TAG,
        "Show a host's rails as last read: light, flaps, pause frames and alerts of each link.",
        VIEWERS,
        list_rails,
        {200: Rails},
    ),
    Route(
        "GET",
        "/nodes/{node}/optics",
        "list_optics",
        TAG,
        "Show the optics of a host's links: which end degrades, since when, what to do, its days.",
        VIEWERS,
        list_optics,
        {200: Optics},
    ),
    Route(
        "GET",
        "/nodes/{node}/queues",
        "list_queues",
        TAG,
        "Show the queues of a host's links: pause frames, ECN, discards and the PFC watchdog.",
        VIEWERS,
        list_queues,
        {200: Queues},
    ),
)
