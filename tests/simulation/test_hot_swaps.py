"""A drive that is exchanged while a node waits for its tenant goes to no tenant unerased."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import virtual_time
from branches import branch, certified_host
from rig import World
from test_returns import HOST, state, want

from provisioner.integrations.sim.hardware.disks import fit_disks
from provisioner.integrations.sim.hardware.machine import Machine
from provisioner.model.certificate import Certificate
from provisioner.model.node import Node, Placement, State

SLOT, SERIAL, HOUR_S = "NVMe_2", "S64HSTRANGER01", 3600.0


def swap_drive(machine: Machine) -> None:
    """Pull a drive while the host runs, and put in another one that somebody has used."""
    device = machine.devices[SLOT]
    device.serial = SERIAL
    fresh = fit_disks({SLOT: device})[SLOT]
    fresh.name, fresh.bootable = machine.disks[SLOT].name, False
    fresh.content, fresh.holds = b"another customer's data", "tenant"
    machine.disks[SLOT] = fresh


async def certify_unlisted(directory: Path) -> World:
    """Certify a host whose BMC lists no drives."""
    world = World(directory, nodes=1, seed=9)
    tree = world.services[world.site.urls[f"{HOST}/host"]].tree
    for path in [p for p in tree.resources if "/NVMeSSD/Drives/" in p]:
        del tree.resources[path]
    await world.take_in()
    await want(world, 0)
    await world.start()
    return world


async def release_after_swap(world: World, *, at_once: bool) -> tuple[
    Node, str, Certificate, Certificate, list[str]
]:  # fmt: skip
    """Swap a drive of a certified host, ask for the node: as it is released."""
    certified = await state(world, State.CERTIFIED)
    first = await world.store.evidence.get_certificate(certified.certificate)
    machine = world.site.machines[HOST]
    swap_drive(machine)
    if not at_once:
        await world.clock.sleep(2 * HOUR_S)
    await want(world, 1)
    seen_outside: list[str] = []
    for _ in range(24 * 180):
        await world.clock.sleep(20.0)
        node = await world.store.nodes.get(HOST)
        assert node is not None
        if node.placement is not Placement.MAINTENANCE:
            seen_outside.append(machine.disks[SLOT].holds)
        if node.state is State.RELEASED:
            break
    assert node.state is State.RELEASED, node.note
    second = await world.store.evidence.get_certificate(node.certificate)
    assert first is not None
    assert second is not None
    wrong = await world.violations()
    await world.crash()
    return node, machine.disks[SLOT].holds, first, second, [*wrong, *set(seen_outside)]


@pytest.mark.parametrize(
    "at_once",
    [pytest.param(True, id="just before", marks=pytest.mark.long), pytest.param(False, id="hours")],
)
def test_a_drive_swapped_while_certified_is_erased_before_the_release(at_once: bool) -> None:
    node, holds, first, second, seen = branch(
        certified_host, partial(release_after_swap, at_once=at_once)
    )

    assert holds in ("erased", "image")
    assert set(seen) <= {"erased", "image"}
    assert first.id != second.id
    assert any(s.startswith(f"storage/{SLOT}=") and SERIAL not in s for s in first.serials)
    assert f"storage/{SLOT}={SERIAL}" in second.serials
    assert SERIAL in (node.drives or ())
    assert any(s.startswith("memory/") for s in second.serials)


@pytest.mark.slow
def test_a_swap_that_only_the_host_itself_shows_is_seen_too(tmp_path: Path) -> None:
    async def live() -> tuple[Node, str, Certificate, Certificate, list[str]]:
        return await release_after_swap(await certify_unlisted(tmp_path), at_once=True)

    node, holds, first, _, seen = virtual_time.run(live())

    assert not any(s.startswith("storage/") for s in first.serials)
    assert holds in ("erased", "image")
    assert set(seen) <= {"erased", "image"}
    assert SERIAL in (node.drives or ())
