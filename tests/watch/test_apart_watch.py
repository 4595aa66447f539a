"""The watch of leaves keeps hosts apart: it prepares leaves, and finds what foreign hands undo."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from leaf_bench import A, Bench
from leaf_rig import Rig

from provisioner.control.watch.leaf_watch import ApartWatch
from provisioner.execution.tenancy.release_sequence import HostsApart
from provisioner.integrations.cumulus.port_filter import NAME
from provisioner.model.fabric_session import FabricMember, FabricSession
from provisioner.model.node import Placement, State

B = "su0-n01"
ON = {"lookup_networks": ("10.64.0.0/16",)}


class ApartBench(Bench):
    """A watch of leaves that keeps hosts apart."""

    def __init__(self, rig: Rig) -> None:
        super().__init__(rig)
        self.begin()

    def begin(self) -> None:
        """A daemon that knows nothing but the rows."""
        apart = HostsApart(self.rig.effects, self.store, self.rig.tenancy)
        self.watch._apart = ApartWatch(self.store, self.rig.clock, apart, self.book)

    @property
    def trees(self) -> tuple[dict[str, Any], ...]:
        return self.leaf.operational, self.leaf.applied, self.leaf.startup

    def has_filter(self) -> set[bool]:
        entries = [tree["interface"][self.port.interface] for tree in self.trees]
        return {NAME in entry.get("acl", {}) for entry in entries}

    def doors(self) -> set[int]:
        """How many rules of doors each tree has."""
        rules = [tree.get("acl", {}).get(NAME, {}).get("rule", {}) for tree in self.trees]
        return {sum(int(n) < 20_000 for n in one) for one in rules}

    async def reports(self) -> list[tuple[str, bool | None]]:
        found = await self.store.journal.list(0, 1000)
        return [
            (r["kind"].removeprefix("hosts_").replace("_", " "), r["detail"].get("alert"))
            for r in found
            if r["kind"].startswith("hosts_")
        ]


def play(scenario: Callable[[ApartBench], Awaitable[Any]], **settings: Any) -> Any:
    async def main() -> Any:
        rig = await Rig(**settings).open()
        try:
            for node in rig.nodes.values():
                for port in node.ports:
                    switch = rig.site.switches[port.switch]
                    for tree in (switch.operational, switch.applied, switch.startup):
                        tree["interface"][port.interface].setdefault("ip", {})["vrf"] = "MAINT"
            return await scenario(ApartBench(rig))
        finally:
            await rig.close()

    return asyncio.run(main())


def test_a_leaf_that_was_never_prepared_is_prepared_without_an_alert() -> None:
    async def scenario(bench: ApartBench) -> Any:
        await bench.look()
        return bench.has_filter(), await bench.reports(), await bench.alerts(bench.leaf.name)

    has, reports, alerts = play(scenario, **ON)

    assert has == {True}
    assert reports == [("not apart", False), ("kept apart", None)]
    assert alerts == []


@pytest.mark.parametrize("again", [False, True], ids=["the same daemon", "the next one"])
@pytest.mark.parametrize("tree", ["operational", "applied", "startup"])
def test_what_a_foreign_hand_takes_away_is_put_back_and_reported(tree: str, again: bool) -> None:
    async def scenario(bench: ApartBench) -> Any:
        await bench.look()
        await bench.look()
        if again:
            bench.begin()
        getattr(bench.leaf, tree)["interface"][bench.port.interface]["acl"].pop(NAME)
        await bench.look()
        raised = await bench.alerts(bench.leaf.name)
        has = bench.has_filter()
        await bench.look()
        return has, raised, await bench.alerts(bench.leaf.name), await bench.reports()

    has, raised, after, reports = play(scenario, **ON)

    assert has == {True}
    assert raised == ["HostsNotApart "]
    assert after == []  # it is whole again
    assert reports[2:] == [("not apart", True), ("kept apart", None)]


@pytest.mark.parametrize("kept", ["its rules", "the next start's rules", "one port's binding"])
def test_a_leaf_with_any_trace_of_the_filter_was_prepared_and_is_an_alert(kept: str) -> None:
    async def scenario(bench: ApartBench) -> Any:
        await bench.look()
        startup = bench.leaf.startup
        for tree in bench.trees:
            if kept == "one port's binding" or (kept != "its rules" and tree is not startup):
                tree["acl"].pop(NAME)
            for name, entry in tree["interface"].items():
                if kept != "one port's binding" or name != bench.port.interface:
                    entry.get("acl", {}).pop(NAME, None)
        bench.begin()  # the next daemon remembers nothing
        await bench.look()
        return (await bench.reports())[2:], bench.has_filter(), bench.doors()

    reports, has, doors = play(scenario, **ON)

    assert reports == [("not apart", True), ("kept apart", None)]
    assert (has, doors) == ({True}, {0})


def test_nothing_is_read_or_written_without_networks() -> None:
    async def scenario(bench: ApartBench) -> Any:
        await bench.look()
        return bench.has_filter(), await bench.reports(), sum(bench.rig.revisions().values())

    assert play(scenario) == ({False}, [], 0)


def test_a_port_that_serves_a_tenant_and_one_of_nobody_get_no_filter() -> None:
    async def scenario(bench: ApartBench) -> Any:
        await bench.node(
            state=State.RELEASED, placement=Placement.CUSTOMER, vrf="RED", tenant="red"
        )
        bench.put("RED")
        bench.leaf.add_port("swp60")
        bench.put("MAINT", "swp60")
        await bench.look()
        entries = bench.leaf.operational["interface"]
        return bench.has_filter(), NAME in entries["swp60"].get("acl", {})

    assert play(scenario, **ON) == ({False}, False)


def test_a_port_that_the_site_names_gets_the_filter_whichever_network_it_is_in() -> None:
    async def scenario(bench: ApartBench) -> Any:
        bench.leaf.add_port("swp60")
        await bench.look()
        entry = bench.leaf.operational["interface"]["swp60"]
        return entry.get("acl"), entry.get("ip")

    named = {**ON, "lookup_ports": ("leaf-*/swp6?",)}
    assert play(scenario, **named) == ({NAME: {"inbound": {}}}, None)


def session(bench: ApartBench, **changes: Any) -> FabricSession:
    members = tuple(
        FabricMember(node=n, seeks=True, bound="", entered_at=0.0, ports=bench.rig.nodes[n].ports)
        for n in (A, B)
    )
    given = {"id": "s", "vrf": "MAINT", "release": "r", "profile": "p", "opened_at": 1.0}
    return FabricSession.model_validate({**given, "members": members, **changes})


def test_a_tests_doors_are_open_while_its_row_says_so_and_closed_by_whoever_comes_after() -> None:
    async def scenario(bench: ApartBench) -> Any:
        await bench.look()
        shut = bench.doors()
        opened = await bench.store.fabric.put_session(session(bench, doors=((A, B),)))
        await bench.look()
        opened_doors = bench.doors()
        bench.begin()  # the daemon that ran the test died
        await bench.store.fabric.put_session(opened.model_copy(update={"ended_at": 2.0}))
        await bench.look()
        return shut, opened_doors, bench.doors()

    assert play(scenario, **ON) == ({0}, {2}, {0})


def test_a_fence_of_another_daemon_leaves_the_doors_of_a_test_open() -> None:
    async def scenario(bench: ApartBench) -> Any:
        await bench.store.fabric.put_session(session(bench, doors=((A, B),)))
        await bench.look()
        bench.put("RED")
        await bench.rig.tenancy.fence([bench.port])
        return bench.doors(), bench.vrf()

    assert play(scenario, **ON) == ({2}, "MAINT")
