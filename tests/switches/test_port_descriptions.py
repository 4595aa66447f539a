"""Descriptions of leaf ports: written with a move, never over a site's own, compared at a start."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from leaf_rig import Rig
from sonic_standin import SonicSwitch

from provisioner.control.watch.recovery import find_lost_moves
from provisioner.execution.tenancy.tenancy import Tenancy
from provisioner.model.host_filter import (
    SIZE_MAX,
    DatabaseMark,
    PortLabel,
    may_overwrite,
    read_label,
    write_label,
)
from provisioner.model.node import Node
from provisioner.planning.watch.high_water import find_newer_labels
from provisioner.ports import Call, Reply, SwitchAddress
from provisioner.runtime.switch_systems import make_switches

MARK = DatabaseMark("0123abcd" * 4, 1)
HOST, LEAF = "su0-n00", "leaf-su0-r0"


def play(scenario: Callable[[Rig], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        async with asyncio.timeout(60):
            rig = await Rig(switch_apply_limit_s=60.0).open()
            rig.tenancy.name_ports(MARK)
            try:
                return await scenario(rig)
            finally:
                await rig.close()

    return asyncio.run(main())


def row(rig: Rig, **changes: Any) -> Node:
    return rig.nodes[HOST].model_copy(update=changes)


def description(rig: Rig) -> str:
    """What the leaf has at the host's first port, in every tree."""
    port = next(p.interface for p in rig.nodes[HOST].ports if p.switch == LEAF)
    leaf = rig.site.switches[LEAF]
    trees = (leaf.operational, leaf.applied, leaf.startup)
    (text,) = {str(t["interface"][port].get("description", "")) for t in trees}
    return text


def test_a_move_names_node_tenant_and_epoch_and_the_way_back_too() -> None:
    async def scenario(rig: Rig) -> Any:
        there = await rig.tenancy.move(
            rig.nodes[HOST].ports, "RED", node=row(rig, tenant="red", generation=7)
        )
        out = description(rig)
        back = await rig.tenancy.move(
            rig.nodes[HOST].ports, "MAINT", node=row(rig, tenant="red", generation=9)
        )
        return there.blockers + back.blockers, out, description(rig)

    blockers, out, back = play(scenario)

    assert blockers == ()
    assert out == f"provisioner: db=0123abcd life=1 node={HOST} tenant=red epoch=7"
    assert back == f"provisioner: db=0123abcd life=1 node={HOST} tenant=- epoch=9"


@pytest.mark.parametrize("text", ["uplink to spine 3", "Provisioner: ours", "x" * 2000])
def test_a_description_of_the_site_is_left_alone(text: str) -> None:
    async def scenario(rig: Rig) -> Any:
        leaf = rig.site.switches[LEAF]
        port = next(p.interface for p in rig.nodes[HOST].ports if p.switch == LEAF)
        for tree in (leaf.operational, leaf.applied, leaf.startup):
            tree["interface"][port]["description"] = text[:256]
        moved = await rig.tenancy.move(rig.nodes[HOST].ports, "RED", node=row(rig, tenant="red"))
        return moved.blockers, description(rig)

    assert play(scenario) == ((), text[:256])


class Refusing:
    """A switch of a release whose API takes no description."""

    def __init__(self, switches: Any) -> None:
        self._switches = switches
        self.refused = 0

    async def request(self, switch: SwitchAddress, call: Call) -> Reply:
        if call.method == "PATCH" and "description" in str(call.body):
            self.refused += 1
            return Reply(400, {}, b'{"detail": "unknown property description"}')
        reply: Reply = await self._switches.request(switch, call)
        return reply

    async def close(self) -> None:
        await self._switches.close()


def test_a_switch_that_takes_no_description_is_fenced_all_the_same() -> None:
    async def scenario(rig: Rig) -> Any:
        switches = Refusing(rig.switches)
        rig.effects.reach.switches = make_switches(switches)
        tenancy = Tenancy(rig.effects, rig.store)
        tenancy.mark = MARK
        try:
            moved = await tenancy.move(rig.nodes[HOST].ports, "RED", node=row(rig, tenant="red"))
            return moved.blockers, {p.vrf for p in moved.placements}, switches.refused
        finally:
            await tenancy.close()

    blockers, vrfs, refused = play(scenario)

    assert (blockers, vrfs) == ((), {"RED"})
    assert refused


def test_sonic_keeps_the_description_in_its_port_table() -> None:
    async def scenario(rig: Rig) -> Any:
        mine = [p for p in rig.nodes[HOST].ports if p.switch == LEAF]
        switch = SonicSwitch([(p.interface, p.address) for p in mine])
        leaf = rig.nodes[LEAF].model_copy(update={"address": f"ssh://{LEAF}"})
        rig.nodes[LEAF] = await rig.store.nodes.save(leaf)
        transport = make_switches(rig.switches, switch)
        rig.effects.reach.switches = transport
        tenancy = Tenancy(rig.effects, rig.store)
        tenancy.mark = MARK
        try:
            moved = await tenancy.move(mine, "RED", node=row(rig, tenant="red", generation=3))
            labels = await tenancy.read_labels(LEAF)
            switch.config["PORT"][mine[0].interface]["description"] = "the site's own"
            back = await tenancy.move(mine, "MAINT", node=row(rig, generation=4))
            return moved.blockers + back.blockers, labels, switch, mine[0].interface
        finally:
            await tenancy.close()

    blockers, labels, switch, port = play(scenario)

    assert blockers == ()
    assert labels == {port: PortLabel("0123abcd", 1, HOST, "red", 3)}
    assert switch.config["PORT"][port]["description"] == "the site's own"
    assert "lanes" in switch.config["PORT"][port]
    assert switch.startup == switch.config


@pytest.mark.parametrize(
    ("ahead", "why"), [(0, ""), (1, "of epoch 1, its row is of epoch 0")], ids=["same", "newer"]
)
def test_a_start_notices_ports_that_were_moved_later_than_the_rows_know(
    ahead: int, why: str
) -> None:
    async def scenario(rig: Rig) -> Any:
        stored = await rig.store.nodes.get(HOST)
        assert stored is not None
        moved = stored.model_copy(update={"generation": stored.generation + ahead})
        await rig.tenancy.move(stored.ports, "RED", node=moved)
        rig.site.nvue["leaf-su0-r1"].reachable = lambda: False  # the others say enough
        return await find_lost_moves(rig.store, rig.tenancy, MARK), stored.generation

    found, generation = play(scenario)

    assert found.startswith(f"{7 * ahead} ports were moved later") if ahead else found == ""
    assert why.replace("epoch 1", f"epoch {generation + 1}").replace(
        "epoch 0", f"epoch {generation}"
    ) in (found)


LABEL = PortLabel("0123abcd", 1, "n1", "red", 7)


@pytest.mark.parametrize(
    ("label", "epochs", "newer"),
    [
        (LABEL, {"n1": 7}, False),
        (LABEL, {"n1": 8}, False),
        (LABEL, {"n1": 6}, True),
        (LABEL, {}, True),
        (LABEL._replace(database="ffffffff"), {}, False),
        (LABEL._replace(life=0), {"n1": 1}, False),
        (LABEL._replace(life=2), {"n1": 9}, True),
    ],
    ids=["same", "older", "newer", "no row", "other database", "settled", "later restore"],
)
def test_which_labels_show_that_writes_were_lost(
    label: PortLabel, epochs: dict[str, int], newer: bool
) -> None:
    assert bool(find_newer_labels({"leaf/swp1": label}, epochs, MARK)) is newer


def test_a_label_is_read_as_it_was_written_and_fits() -> None:
    text = write_label(MARK, "n1", "red", 7)

    assert read_label(text) == LABEL
    assert may_overwrite(text)
    assert may_overwrite("")
    assert not may_overwrite("a person's")
    assert len(write_label(MARK, "n" * 80, "t" * 80, 10**11)) <= SIZE_MAX
    assert write_label(MARK, "n'1", "red", 7) == ""
    assert write_label(MARK, "n1", "rot und grün", 7) == ""
    assert read_label(text + " and more") is None
