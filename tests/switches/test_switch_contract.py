"""The contract of the `Switch` port: the same scenarios on every operating system.

They run on each simulated switch, and on a leaf of real FRRouting as far as that can stand for one:
the skipped scenarios say why it cannot.
"""

from __future__ import annotations

import json
from contextlib import nullcontext
from typing import Any

import pytest
from switch_box import FIRST, SECOND, Box
from switch_boxes import BOXES, RIGS, play, skip_without

from provisioner.execution.tenancy.leaf import Leaf
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.switch import Move
from provisioner.ports import PortError, Switch, SwitchRefused
from provisioner.runtime.switch_systems import find_switch_systems

pytestmark = pytest.mark.parametrize("system", [*BOXES, *RIGS])


def test_a_switch_is_opened_by_the_scheme_of_its_address(system: str) -> None:
    assert {declared.facts.name for declared in find_switch_systems()} < set(BOXES)
    assert play(system, opened_system) == {"frr": "cumulus"}.get(system, system)


async def opened_system(_box: Box, switch: Switch, _leaf: Leaf) -> str:
    return switch.facts.name


def test_a_move_is_read_back_and_survives_a_reboot(system: str) -> None:
    async def story(box: Box, switch: Switch, leaf: Leaf) -> Any:
        port = box.ports[0]
        moved = await leaf.move([Move(port, "RED", FIRST)])
        writes = box.count_writes()
        again = await leaf.move([Move(port, "RED", FIRST)])
        read = await leaf.vrfs([port])
        return (
            (moved.blockers, again.blockers, again.revision, box.count_writes() - writes),
            (box.true_vrf(port), box.saved_vrf(port), await switch.is_saved()),
            isinstance(read, Blocker) or read[port],
        )

    assert play(system, story) == (((), (), "", 0), ("RED", "RED", True), frozenset({"RED"}))


def test_one_change_moves_ports_of_several_nodes(system: str) -> None:
    async def story(box: Box, _switch: Switch, leaf: Leaf) -> Any:
        moves = [Move(box.ports[0], "RED", FIRST), Move(box.ports[1], "MAINT", SECOND)]
        outcome = await leaf.move(moves)
        return outcome.blockers, [box.true_vrf(port) for port in box.ports]

    assert play(system, story) == ((), ["RED", "MAINT"])


def test_forwarding_that_does_not_follow_is_not_believed(system: str) -> None:
    async def story(box: Box, _switch: Switch, leaf: Leaf) -> Any:
        box.fail("lags")
        outcome = await leaf.move([Move(box.ports[0], "RED", FIRST)])
        return [blocker.reason for blocker in outcome.blockers], box.true_vrf(box.ports[0])

    assert play(system, story) == ([Reason.ISOLATION], "default")


def test_a_refusal_is_a_value_with_the_switchs_own_text(system: str) -> None:
    async def story(box: Box, _switch: Switch, leaf: Leaf) -> Any:
        box.fail("refuses")
        outcome = await leaf.move([Move(box.ports[0], "RED", FIRST)])
        (blocker,) = outcome.blockers
        return blocker.reason, bool(blocker.detail), bool(blocker.unblock)

    assert play(system, story) == (Reason.SWITCH_REFUSED, True, True)


def test_an_answer_that_cannot_be_read_is_never_an_empty_one(system: str) -> None:
    skip_without(system, "garbled")

    async def story(box: Box, switch: Switch, _leaf: Leaf) -> None:
        box.fail("garbled")
        port = box.ports[0]
        for read in (
            switch.read_places([port]),
            switch.read_tenant_ports(["default"]),
            switch.read_filter_state(),
            switch.read_carriers(),
            switch.read_state([port]),
        ):
            with pytest.raises(PortError):
                await read

    play(system, story)


def test_a_port_that_does_not_exist_is_a_refusal(system: str) -> None:
    async def story(_box: Box, switch: Switch, leaf: Leaf) -> Any:
        with pytest.raises(PortError):
            await switch.read_places(["swp99s9"])
        return (await leaf.move([Move("swp99s9", "RED")])).blockers

    assert play(system, story)


def test_a_configuration_of_the_next_start_unsettles_a_port(system: str) -> None:
    async def story(box: Box, switch: Switch, leaf: Leaf) -> Any:
        port = box.ports[0]
        box.plant(port, "RED", saved_only=True)
        read = await leaf.vrfs([port])
        now = await switch.read_places([port], saved=False)
        ports = await leaf.tenant_ports(["", "default", "mgmt", "MAINT"])
        assert not isinstance(read, Blocker)
        assert not isinstance(ports, Blocker)
        return read[port], {place.vrf for place in now[port]}, {n: p.vrfs for n, p in ports.items()}

    settled, now, ports = play(system, story)

    assert settled == {"default", "RED"}
    assert now == {"default"}
    assert list(ports.values()) == [frozenset({"RED"})]


def test_the_filter_between_hosts_is_set_with_its_rules_and_taken_off_by_a_move(
    system: str,
) -> None:
    skip_without(system, "rule numbers")

    async def story(box: Box, _switch: Switch, leaf: Leaf) -> Any:
        port = box.ports[0]
        seen = []
        door = ("10.64.0.7", "10.64.0.8")
        for move in (
            Move(port, "MAINT", FIRST, apart=True),
            Move(port, "", apart=True, doors=(door,)),
            Move(port, "", apart=True, doors=()),
            Move(port, "RED", FIRST),
        ):
            outcome = await leaf.move([move])
            state = await leaf.filter_state()
            assert outcome.blockers == ()
            assert not isinstance(state, Blocker)
            numbers = {frozenset(f.rules) for f in state.filters.values() if f is not None}
            bound = {ports[port] for ports in state.ports.values()}
            seen.append((numbers, bound))
        return seen

    fenced, opened, closed, released = play(system, story)

    assert fenced == ({frozenset({20000, 30000})}, {("MAINT", True)})
    assert opened == ({frozenset({1, 2, 20000, 30000})}, {("MAINT", True)})
    assert closed == fenced
    assert released[1] == {("RED", False)}


def test_a_description_of_ours_is_written_and_read(system: str) -> None:
    async def story(box: Box, switch: Switch, leaf: Leaf) -> Any:
        port = box.ports[0]
        moved = await leaf.move([Move(port, "RED", FIRST, description="provisioner: n1")])
        return moved.blockers, (await switch.read_descriptions())[port]

    assert play(system, story) == ((), "provisioner: n1")


def test_a_drain_is_read_back(system: str) -> None:
    async def story(box: Box, switch: Switch, _leaf: Leaf) -> Any:
        states = [await switch.is_drained()]
        for on in (True, False):
            await switch.set_drain(on=on)
            await box.pass_time(30.0)
            states.append(await switch.is_drained())
        return states

    assert play(system, story) == [False, True, False]


def test_the_other_image_is_chosen_and_booted(system: str) -> None:
    skip_without(system, "images")

    async def story(box: Box, switch: Switch, _leaf: Leaf) -> Any:
        with pytest.raises(SwitchRefused):
            await choose(switch)
        other = box.add_image()
        await choose(switch)
        images = await switch.read_images()
        await switch.reboot(nullcontext)
        await box.clock.sleep(3600.0)
        return images.next == other, images.running != other, box.count_boots()

    assert play(system, story) == (True, True, 1)


async def choose(switch: Switch) -> None:
    await switch.choose_other_image(nullcontext, 60.0)


def test_health_carriers_and_counters_are_read(system: str) -> None:
    async def story(box: Box, switch: Switch, _leaf: Leaf) -> Any:
        wellness = await switch.read_wellness()
        _source, code, text = await switch.read_health_report(30.0, 100_000)
        counters = await switch.read_counters(box.ports[0])
        login = await switch.check_login()
        return (
            (wellness.health, code, json.loads(text)["status"]),
            set(wellness.ports) == set(await switch.read_carriers()),
            set(box.ports) <= set(wellness.ports),
            (counters.carried_bytes is None, counters.in_errors),
            login.status,
        )

    assert play(system, story) == (("OK", 0, "OK"), True, True, (False, 0), "accepted")


def test_the_gates_look_has_the_port_its_vrf_and_its_routes(system: str) -> None:
    async def story(box: Box, switch: Switch, leaf: Leaf) -> Any:
        port = box.ports[0]
        await leaf.move([Move(port, "RED", FIRST)])
        await box.pass_time(1.0)
        state = await switch.read_state([port])
        routes = await leaf.routes()
        assert not isinstance(routes, Blocker)
        seen = state.ports[port]
        return (seen.vrf, seen.applied_vrf, state.unsaved, state.issues), len(routes["RED"])

    assert play(system, story) == (("RED", "RED", frozenset(), ()), 1)
