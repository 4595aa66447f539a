"""NVLink partitions after the handover: what a foreign hand changes is found, told, and held."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from test_handed_over_partitions import (
    SLOTS,
    Rig,
    Time,
    make_manager,
    make_node,
    make_partitions,
    owners,
)

from provisioner.control.watch.alert_keeper import AlertKeeper
from provisioner.control.watch.membership_watch import MembershipWatch
from provisioner.integrations.racks.partitions.handed_over import NAME
from provisioner.integrations.racks.partitions.unset_partitions import UnsetPartitions
from provisioner.integrations.sim.racks.nmx import Nmx
from provisioner.model.node import Node, Placement, State
from provisioner.runtime import permit
from provisioner.store.sql_store import open_store

OWED = {"placement": Placement.CUSTOMER, "beside": ("nvlink_partition",)}


def serve(tray: str, tenant: str) -> Node:
    return make_node(tray, tenant).model_copy(update=OWED)


def free(tray: str) -> Node:
    return make_node(tray, "", State.CERTIFIED).model_copy(
        update={"placement": Placement.MAINTENANCE}
    )


@dataclass
class Site:
    """t0 and t1 are acme's, t2 is blue's, t3 nobody's, and in the factory's partition."""

    rig: Rig
    nodes: list[Node] = field(default_factory=list)
    now: float = 1000.0

    def __post_init__(self) -> None:
        self.nodes = [serve("t0", "acme"), serve("t1", "acme"), serve("t2", "blue"), free("t3")]
        for node in self.nodes[:3]:
            assert self.rig.do("admit", node) == []
        self.clock = SimpleNamespace(now=lambda: self.now)
        self.sent = list(self.rig.manager.log)
        self.between: Callable[[int], None] = lambda _: None
        self.systems: list[Any] = []

    def watch(self, looks: int = 2, *, again: Callable[[], None] | None = None) -> dict[str, Any]:
        """Return what stands after so many looks; `again`: and after as many others behind it."""

        async def run() -> dict[str, Any]:
            store = open_store(":memory:")
            for node in self.nodes:
                await store.nodes.add(node)
            context = SimpleNamespace(store=store, clock=self.clock)
            self.systems = [make_partitions(self.rig.plan, self.rig.wire, Time())]
            watch = MembershipWatch(context, self.systems, store.alerts)  # type: ignore[arg-type]
            for number in range(looks):
                self.now += 60.0
                self.between(number)
                await watch.look()
            first = await self._read(store)
            if again is None:
                return first
            again()
            for number in range(looks):
                self.now += 60.0
                self.between(looks + number)
                await watch.look()
            return {"first": first, "then": await self._read(store)}

        return asyncio.run(run())

    async def _read(self, store: Any) -> dict[str, Any]:
        alerts = await store.alerts.list()
        keeper = AlertKeeper(store.alerts, store, self.clock, _nothing)  # type: ignore[arg-type]
        return {
            "told": {a.node: a.message for a in alerts if a.active},
            "held": set(await keeper.list_held_nodes()),
        }


async def _nothing(_: str) -> None: ...


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(Rig(tmp_path, make_manager()))


def named(manager: Nmx, name: str) -> dict[str, Any]:
    return next(p for p in manager.partitions.values() if p["Name"] == name)


def of(members: list[Any], tray: str) -> list[Any]:
    return [m for m in members if m["SlotID"] == SLOTS[tray]]


def move(manager: Nmx, tray: str, source: str, target: str) -> None:
    mine = of(named(manager, source)["Members"], tray)
    kept = [m for m in named(manager, source)["Members"] if m not in mine]
    named(manager, source)["Members"] = kept
    if target:
        named(manager, target)["Members"] = [*named(manager, target)["Members"], *mine]


FOUND: Mapping[str, tuple[Callable[[Nmx], object], Mapping[str, str]]] = {
    "in another tenant's": (
        lambda m: move(m, "t0", "acme.d01", "blue.d01"),
        {
            "n-t0": "4 of its 4 GPUs are not in acme.d01; 4 of its GPUs are in blue.d01",
            "n-t2": "blue.d01 has GPUs of t0, which serves acme",
        },
    ),
    "a free tray in a tenant's": (
        lambda m: move(m, "t3", "Default", "acme.d01"),
        {
            "n-t0": "acme.d01 has GPUs of t3, which serves nobody we know of",
            "n-t1": "acme.d01 has GPUs of t3, which serves nobody we know of",
            "n-t3": "4 of its GPUs are in acme.d01",
        },
    ),
    "gone": (
        lambda m: m.partitions.pop(named(m, "blue.d01")["ID"]),
        {"n-t2": "a GPU of it says no partition; blue.d01 is gone"},
    ),
    "out of all": (
        lambda m: move(m, "t1", "acme.d01", ""),
        {"n-t1": "4 of its 4 GPUs are not in acme.d01"},
    ),
    "ill": (
        lambda m: named(m, "blue.d01").update(Health="UNHEALTHY"),
        {"n-t2": "blue.d01 says UNHEALTHY"},
    ),
}


@pytest.mark.parametrize("fault", FOUND)
def test_a_partition_that_drifted_is_an_alert_of_its_trays_and_holds_them(
    site: Site, fault: str
) -> None:
    break_it, told = FOUND[fault]
    break_it(site.rig.manager)
    seen = site.watch()
    assert seen["held"] == set(told)
    for node, words in told.items():
        tray = node.removeprefix("n-")
        assert seen["told"][node].startswith(f"{tray}: ")
        assert all(part in seen["told"][node] for part in words.split("; "))
    assert site.rig.manager.log == site.sent  # nothing is mended by it


def test_one_look_alone_tells_nothing_and_ends_nothing(site: Site) -> None:
    manager = site.rig.manager
    whole = list(named(manager, "acme.d01")["Members"])
    lost = [m for m in whole if m not in of(whole, "t1")]
    shown = [lost, whole, lost, lost, whole, lost]  # at the looks, one after the other

    def show(number: int) -> None:
        named(manager, "acme.d01")["Members"] = shown[number]

    site.between = show
    seen = site.watch(3, again=lambda: None)
    assert seen["first"]["told"] == {}
    assert set(seen["then"]["told"]) == {"n-t1"}


def test_an_alert_stands_until_two_looks_show_none(site: Site) -> None:
    break_it, told = FOUND["in another tenant's"]
    break_it(site.rig.manager)
    seen = site.watch(2, again=lambda: move(site.rig.manager, "t0", "blue.d01", "acme.d01"))
    assert set(seen["first"]["told"]) == set(told)
    assert seen["then"] == {"told": {}, "held": set()}


@pytest.mark.parametrize("fault", ["out of all", "a free tray in a tenant's"])
@pytest.mark.parametrize("silence", ["no answer", "empty lists", "no GPUs"])
def test_silence_and_empty_lists_end_no_alert_and_are_told(
    site: Site, silence: str, fault: str
) -> None:
    break_it, told = FOUND[fault]
    break_it(site.rig.manager)

    def fall_silent() -> None:
        if silence == "no answer":
            site.rig.wire.silent = True
        else:
            site.rig.manager.gpus.clear()
        if silence == "empty lists":
            site.rig.manager.partitions.clear()

    seen = site.watch(2, again=fall_silent)
    assert set(told) <= set(seen["then"]["told"])
    assert set(told) <= seen["then"]["held"]
    notice = permit.get_scope().notices[NAME]
    if silence == "no answer":
        assert notice[0].startswith("nobody knows whether nodes are in it as they were proved")
    else:
        assert all(any(line.startswith(f"{unit}: ") for line in notice) for unit in SLOTS)


def test_what_is_as_it_was_proved_is_no_finding(site: Site) -> None:
    assert site.watch(3) == {"told": {}, "held": set()}
    assert permit.get_scope().notices[NAME] == ()


@pytest.mark.parametrize(
    "changes",
    [
        {"state": State.DRAINING},
        {"state": State.CERTIFIED, "placement": Placement.MIXED, "served": "acme"},
    ],
)
def test_a_tray_on_its_way_is_its_handovers_affair(site: Site, changes: dict[str, Any]) -> None:
    move(site.rig.manager, "t1", "acme.d01", "")
    site.nodes[1] = site.nodes[1].model_copy(update=changes)
    assert site.watch()["told"] == {}


def test_no_other_tray_joins_a_partition_that_lost_one(site: Site) -> None:
    """It would be handed over into a partition that a foreign hand has changed."""
    rig = site.rig
    move(rig.manager, "t1", "acme.d01", "")
    rig.nodes = list(site.nodes)
    new = make_node("t3", "acme")
    assert rig.do("admit", new) == [
        "acme.d01: 4 GPUs of t1, which it was handed over with, are not in it"
    ]
    assert owners(rig.manager, "t3") == {"Default"}
    assert rig.manager.log == site.sent
    draining = site.nodes[1].model_copy(update={"state": State.DRAINING})
    rig.nodes = [site.nodes[0], draining, site.nodes[2]]  # a person takes it back
    assert rig.do("admit", new) == []


def test_a_manager_that_is_not_set_any_more_ends_no_alert_nor_its_hold(site: Site) -> None:
    place = of(named(site.rig.manager, "acme.d01")["Members"], "t0")
    named(site.rig.manager, "acme.d01")["Members"] = [
        m for m in named(site.rig.manager, "acme.d01")["Members"] if m not in place
    ]

    def unset() -> None:
        site.systems[:] = [UnsetPartitions(site.rig.plan.parent)]

    seen = site.watch(again=unset)
    assert "n-t0" in seen["first"]["held"]
    assert seen["then"] == seen["first"]


def _take_out(site: Site) -> None:
    lines = site.rig.plan.read_text().splitlines(keepends=True)
    site.rig.plan.write_text("".join(line for line in lines if "name: t0," not in line))


def _readdress(site: Site) -> None:
    site.rig.plan.write_text(site.rig.plan.read_text().replace("bmc-t0.test", "bmc-t9.test"))


def _rename(site: Site) -> None:
    move(site.rig.manager, "t0", "blue.d01", "acme.d01")
    site.rig.plan.write_text(site.rig.plan.read_text().replace("name: t0,", "name: t8,"))


@pytest.mark.parametrize("hide", [_take_out, _readdress, _rename])
def test_an_alert_stands_while_nobody_judges_its_tray_any_more(
    site: Site, hide: Callable[[Site], None]
) -> None:
    break_it, _ = FOUND["in another tenant's"]
    break_it(site.rig.manager)
    seen = site.watch(2, again=lambda: hide(site))
    assert "n-t0" in seen["first"]["held"]
    assert "n-t0" in seen["then"]["held"]
    assert seen["then"]["told"]["n-t0"] == seen["first"]["told"]["n-t0"]
