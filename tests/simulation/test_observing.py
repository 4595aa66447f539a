"""A daemon that observes a whole simulated site: every request is recorded, and none writes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from rig import World
from virtual_time import run

from provisioner.adapters.read_only.switches import ReadOnlySwitch
from provisioner.control.watch.watcher import WatchParts
from provisioner.daemon.observing import ObservingDaemon
from provisioner.integrations.sim.site.truth import list_placements
from provisioner.model.node import NodeKind, Placement, State
from provisioner.ports import BmcAddress, BmcTransport, Call, Reply
from provisioner.ports.switch import Switch, SwitchReads
from provisioner.runtime import permit

HOST = "su0-n00"


class Recorded:
    """The methods that arrived at a device, whatever the daemon's own gates say."""

    def __init__(self) -> None:
        self.methods: set[str] = set()

    def note(self, handle: Callable[..., object]) -> Callable[..., object]:
        def handled(method: str, *rest: object) -> object:
            self.methods.add(method)
            return handle(method, *rest)

        return handled


def record(world: World) -> Recorded:
    """Record every request to the site's BMCs and switches from here on."""
    recorded = Recorded()
    for device in (*world.services.values(), *world.site.nvue.values()):
        device.handle = recorded.note(device.handle)  # type: ignore[method-assign,assignment]
    return recorded


def digest_site(world: World) -> str:
    """Return the state of all devices: the switches' trees, and each host's power and parts."""
    switches = {n: [s.operational, s.applied, s.startup] for n, s in world.site.switches.items()}
    hosts = {
        name: [machine.power_turns, [str(event) for event in machine.log]]
        for name, machine in world.site.machines.items()
    }
    return json.dumps([switches, hosts], sort_keys=True, default=str)


async def observe(world: World, lasts_s: float) -> ObservingDaemon:
    """Observe the world for a while with the parts of its acting daemon."""
    assert world.daemon is not None
    watch = WatchParts(world.store.alerts, lambda: "secret", listener="https://daemon.test/events")
    parts = replace(world.daemon.parts, watch=watch)
    with permit.observe():
        daemon = ObservingDaemon(parts)
        await daemon.start()
        await world.clock.sleep(lasts_s)
        await daemon.stop()
    return daemon


def test_a_new_site_is_read_for_hours_and_nothing_is_written(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = World(tmp_path, 2, 7)
        await world.take_in()
        await world.build()
        recorded = record(world)
        before = digest_site(world)
        rows = {n.id: n for n in await world.store.nodes.list()}

        daemon = await observe(world, 5400.0)

        assert recorded.methods <= {"GET", "HEAD"}
        assert recorded.methods
        assert digest_site(world) == before
        assert {n.id: n for n in await world.store.nodes.list()} == rows
        assert not await world.store.operations.list_active()
        seen = daemon.observer.observations
        assert set(seen) == set(rows)
        hosts = [seen[n.id] for n in rows.values() if n.kind is NodeKind.HOST]
        assert all("set a password of its own" in h.would[0] for h in hosts)
        assert all(h.steps and not h.unread for h in hosts), hosts
        assert all(h.certificate for h in hosts)
        inventory = await world.store.evidence.get_inventory(HOST)
        assert inventory is not None
        assert inventory.components

    run(scenario())


def test_a_foreign_hand_at_a_serving_node_is_shown_and_not_acted_upon(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = World(tmp_path, 1, 5)
        await world.take_in()
        await world.build()
        node = await world.store.nodes.get(HOST)
        assert node is not None
        serving = {"state": State.RELEASED, "placement": Placement.CUSTOMER, "vrf": "RED"}
        await world.store.nodes.save(node.model_copy(update={**serving, "tenant": "red"}))
        put(world, range(8), "RED")
        well = await observe(world, 60.0)
        assert well.observer.observations[HOST].would == ()
        assert well.observer.observations[HOST].ports == ()
        assert well.observer.observations[HOST].vrfs == ("RED",)

        put(world, [3], "BLUE")
        recorded = record(world)
        daemon = await observe(world, 60.0)

        observation = daemon.observer.observations[HOST]
        assert "take su0-n00 back" in observation.would[0]
        assert any("BLUE" in str(b) for b in observation.ports)
        assert recorded.methods <= {"GET", "HEAD"}
        assert "BLUE" in list_placements(world.site, HOST).values()
        stored = await world.store.nodes.get(HOST)
        assert stored is not None
        assert stored.state is State.RELEASED

    run(scenario())


def put(world: World, rails: Iterable[int], vrf: str, name: str = HOST) -> None:
    """Put ports of a host into a network, in every tree of their leaves."""
    place = world.site.places[name]
    for rail in rails:
        leaf = world.site.switches[place.name_leaf(rail)]
        for tree in (leaf.operational, leaf.applied, leaf.startup):
            tree["interface"][place.interface].setdefault("ip", {})["vrf"] = vrf


class Eager:
    """A transport that turns every reading into a reset: the gate behind it must refuse."""

    def __init__(self, inner: BmcTransport) -> None:
        self._inner = inner

    async def request(self, bmc: BmcAddress, call: Call) -> Reply:
        if call.method == "GET":
            call = Call("POST", "/redfish/v1/Systems/1/Actions/ComputerSystem.Reset", {})
        return await self._inner.request(bmc, call)

    async def fingerprint(self, bmc: BmcAddress) -> str:
        return await self._inner.fingerprint(bmc)

    async def password_change(self, bmc: BmcAddress) -> str | None:
        return await self._inner.password_change(bmc)

    async def forget(self, bmc: BmcAddress) -> None:
        await self._inner.forget(bmc)

    async def close(self) -> None:
        await self._inner.close()


def test_a_part_that_sends_a_post_is_stopped_by_the_gate_behind_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = World(tmp_path, 1, 5)
        await world.take_in()
        daemon = await world.build()
        recorded = record(world)
        world.daemon = daemon
        daemon.parts = replace(daemon.parts, transport=Eager(daemon.parts.transport))

        observing = await observe(world, 60.0)

        assert recorded.methods <= {"GET", "HEAD"}
        assert observing.observer.observations[HOST].unread

    run(scenario())


def test_switches_are_refused_every_change_by_name() -> None:
    changes = set(_methods(Switch)) - set(_methods(SwitchReads))
    assert changes == {
        "apply_change",
        "apply_networks",
        "apply_services",
        "choose_other_image",
        "install_image",
        "reboot",
        "save_configuration",
        "set_drain",
        "set_password",
    }
    assert set(_methods(ReadOnlySwitch)) >= set(_methods(Switch))


def _methods(kind: type) -> list[str]:
    return [name for name in dir(kind) if not name.startswith("_")]
