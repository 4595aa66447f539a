"""Ports in a customer's network that no node owns, after the database lost writes."""

from __future__ import annotations

from typing import Any

import pytest
from leaf_bench import SPARE, A, Bench, play

from provisioner.control.watch.port_owners import UnownedPorts
from provisioner.control.watch.recovery import Recovery
from provisioner.integrations.sim.switches.switch import Neighbour
from provisioner.model.node import Origin, State
from provisioner.model.recovery import Difference, DifferenceKind, Settlement
from provisioner.planning.watch.high_water import settle_port_by_word
from provisioner.ports import StaleWrite
from provisioner.store.schema.schema import site_state


async def survey(bench: Bench) -> list[Difference]:
    """The differences that wait for a word, but for the nodes' own."""
    store, settings = bench.store, bench.rig.effects.settings
    row = {"id": 1, "site": "s", "server": "", "timeline": 0, "surveyed_at": 0.0}
    if not await bench.recovery_book.get_look_only():
        await store.write(
            lambda c: (
                c.execute(site_state.delete()),
                c.execute(site_state.insert().values(**row, look_only="restored")),
            )
        )
    unowned = UnownedPorts(settings, bench.rig.tenancy)
    given = (store, bench.recovery_book, bench.rig.clock, bench.rig.tenancy)
    await Recovery(*given, unowned=unowned).survey()
    found = await bench.recovery_book.list_differences()
    return [d for d in found if d.leaf and d.settled is None]


async def settle(bench: Bench, difference: Difference, word: Settlement) -> None:
    """A person's word, as the command line gives it."""
    assert settle_port_by_word(difference, word) == ""
    settled = {"settled": word, "settled_by": "anna", "settled_at": bench.rig.clock.now()}
    await bench.recovery_book.settle(difference.model_copy(update=settled))


async def finish(bench: Bench) -> None:
    """The end of the restore; nodes' own differences are put right."""
    for one in await bench.recovery_book.list_differences():
        if one.settled is None and not one.leaf:
            word = {"settled": Settlement.KEEP, "settled_by": "anna", "settled_at": 1.0}
            await bench.recovery_book.settle(one.model_copy(update=word))
    await bench.recovery_book.finish("anna", bench.rig.clock.now())


def lose_node(bench: Bench) -> None:
    """A node that was taken in after the backup: its port serves, and no row names it."""
    bench.leaf.add_port(SPARE, "172.9.9.1/31")
    bench.put("RED", SPARE)


def test_a_port_of_a_node_without_a_row_waits_for_a_word() -> None:
    async def scenario(bench: Bench) -> Any:
        lose_node(bench)
        found = await survey(bench)
        with pytest.raises(StaleWrite, match=r"wait for a word"):
            await finish(bench)
        return found, bench.leaf.name, bench.vrf(SPARE)

    found, leaf, vrf = play(scenario)

    assert [(d.subject, d.kind, d.world, d.tenant) for d in found] == [
        (f"{leaf}/{SPARE}", DifferenceKind.STRANGER, "RED", "red")
    ]
    assert vrf == "RED"


def test_a_port_of_a_retired_node_waits_for_a_word() -> None:
    async def scenario(bench: Bench) -> Any:
        await bench.node(state=State.RETIRED)
        bench.put("RED")
        return await survey(bench)

    found = play(scenario)

    assert [(d.kind, d.row) for d in found] == [(DifferenceKind.STRANGER, f"{A} is retired")]


def test_a_port_of_a_detached_node_is_listed_and_stays_in_every_network() -> None:
    async def scenario(bench: Bench) -> Any:
        await bench.node(state=State.RETIRED, origin=Origin.DETACHED)
        bench.put("RED")
        differences = await survey(bench)
        await finish(bench)
        await bench.look()
        stayed, listed = bench.vrf(), dict(bench.watch.listed)
        bench.put("MAINT")
        await bench.look()
        bench.put("BLUE")
        await bench.look()
        owned = bench.watch._owners.find_ports(bench.leaf.name)
        port = bench.port.interface
        return differences, stayed, listed[f"{bench.leaf.name}/{port}"], bench.vrf(), port, owned

    differences, stayed, listed, at_last, port, owned = play(scenario)

    assert differences == []  # after a restore, no word of a person is awaited
    assert (stayed, at_last) == ("RED", "BLUE")
    assert listed.startswith(f"detached: node {A}")
    assert port not in owned  # the filter between hosts is not written there


def test_an_adopted_port_stays_until_it_leaves_its_network() -> None:
    async def scenario(bench: Bench) -> Any:
        lose_node(bench)
        (found,) = await survey(bench)
        await settle(bench, found, Settlement.ADOPT)
        again = await survey(bench)
        await finish(bench)
        await bench.watch.run_round()
        await bench.look()
        stayed, listed = bench.vrf(SPARE), dict(bench.watch.listed)
        bench.put("MAINT", SPARE)
        await bench.look()
        bench.put("RED", SPARE)
        await bench.watch.run_round()
        await bench.look()
        return again, stayed, listed, bench.vrf(SPARE), found.subject

    again, stayed, listed, at_last, subject = play(scenario)

    assert again == []
    assert stayed == "RED"
    assert "a person adopted it in RED" in listed[subject]
    assert at_last == "MAINT"  # a foreign hand's: the word was for the time before


def test_an_adopted_port_of_a_retired_node_stays() -> None:
    async def scenario(bench: Bench) -> Any:
        await bench.node(state=State.RETIRED)
        bench.put("RED")
        (found,) = await survey(bench)
        await settle(bench, found, Settlement.ADOPT)
        await finish(bench)
        await bench.watch.run_round()
        await bench.look()
        return bench.vrf(), await bench.rows()

    assert play(scenario) == ("RED", [])


@pytest.mark.parametrize("trees", [(), ("startup",)], ids=["now", "after a reboot"])
def test_a_port_that_nobody_adopts_is_fenced_once_the_daemon_acts(trees: tuple[str, ...]) -> None:
    async def scenario(bench: Bench) -> Any:
        lose_node(bench)
        bench.put("MAINT", SPARE)
        bench.put("RED", SPARE, trees)
        (found,) = await survey(bench)
        await settle(bench, found, Settlement.KEEP)
        await finish(bench)
        await bench.watch.run_round()
        await bench.look()
        return bench.vrf(SPARE), await bench.recovery_book.list_differences()

    assert play(scenario) == ("MAINT", ())


def test_a_word_holds_for_the_network_in_which_the_port_stood() -> None:
    async def scenario(bench: Bench) -> Any:
        lose_node(bench)
        (found,) = await survey(bench)
        await settle(bench, found, Settlement.ADOPT)
        bench.put("BLUE", SPARE)
        return await survey(bench)

    assert [(d.world, d.tenant) for d in play(scenario)] == [("BLUE", "blue")]


def test_a_network_without_a_tenant_is_not_adopted() -> None:
    async def scenario(bench: Bench) -> Any:
        lose_node(bench)
        bench.put("LOST", SPARE)
        (found,) = await survey(bench)
        return settle_port_by_word(found, Settlement.ADOPT), settle_port_by_word(
            found, Settlement.KEEP
        )

    adopt, keep = play(scenario)

    assert "no row names a tenant of VRF LOST" in adopt
    assert keep == ""


def test_links_and_ports_that_the_site_declares_are_not_asked_about() -> None:
    async def scenario(bench: Bench) -> Any:
        lose_node(bench)
        bench.leaf.add_port("swp61", "172.9.9.3/31")
        bench.put("RED", "swp61")
        bench.leaf.neighbours["swp61"] = Neighbour("leaf-su0-r1", "swp1", "00:00:00:00:00:01")
        return await survey(bench)

    assert play(scenario, ports_not_ours=(f"leaf-*/{SPARE}",)) == []


def test_a_silent_leaf_waits_for_a_word_of_its_own() -> None:
    async def scenario(bench: Bench) -> Any:
        lose_node(bench)
        bench.rig.site.nvue[bench.leaf.name].reachable = lambda: False
        (found,) = await survey(bench)
        assert settle_port_by_word(found, Settlement.ADOPT)
        await settle(bench, found, Settlement.KEEP)
        await finish(bench)
        bench.rig.site.nvue[bench.leaf.name].reachable = lambda: True
        await bench.watch.run_round()
        await bench.look()
        return found, bench.leaf.name, bench.vrf(SPARE)

    found, leaf, vrf = play(scenario)

    assert (found.subject, found.kind) == (leaf, DifferenceKind.UNREAD)
    assert vrf == "MAINT"
