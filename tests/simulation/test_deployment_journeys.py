"""An image that is not what was pinned, or a disk that is not what it was: refused, and fenced."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import virtual_time
from branches import branch, certified_host, copy_files
from returned import HOST, HOUR_S, came_back, holds, node_of, take_from_tenant, until_settled
from rig import World

from provisioner.integrations.demo.site import SYSTEM
from provisioner.model.node import Boots, Node, Placement, State
from provisioner.model.outcome import Reason


def deployed(
    directory: Path, spoil: Callable[[World], object], limit_s: float = 48 * HOUR_S
) -> tuple[Node, dict[str, str], list[str]]:
    """A returned node whose deployment meets what `spoil` did; what is on its disks at the end."""

    async def main(world: World) -> tuple[Node, dict[str, str], list[str]]:
        await take_from_tenant(world)
        copy_files(world, directory)
        spoil(world)
        await world.start()
        node = await until_settled(world, limit_s)
        found = node, holds(world), await world.violations()
        await world.crash()
        return found

    return branch(certified_host, main)


def faulty(*names: str) -> Callable[[World], object]:
    return lambda world: world.site.machines[HOST].faults.update(names)


def other_file(world: World) -> None:
    (world.files.artifacts / f"{SYSTEM}.raw").write_bytes(b"another image")


def no_file(world: World) -> None:
    (world.files.artifacts / f"{SYSTEM}.raw").unlink()


def other_iso(world: World) -> None:
    (world.files.artifacts / "maintenance-1.iso").write_bytes(b"not the agent")


REFUSED = {
    "an image with another digest": (other_file, Reason.DIGEST_MISMATCH),
    "an image that is not there": (no_file, Reason.MISSING_ARTIFACT),
    "an image that arrives cut off": (faulty("image_truncated"), Reason.DIGEST_MISMATCH),
    "an image that arrives changed": (faulty("image_digest_wrong"), Reason.DIGEST_MISMATCH),
    "a disk that gives other bytes back": (faulty("read_back_wrong"), Reason.DIGEST_MISMATCH),
    "a firmware without an entry of that disk": (
        faulty("boot_entry_refused"),
        Reason.NOT_ACTIVATED,
    ),
    "a system on another disk": (faulty("root_on_other_disk"), Reason.NOT_ACTIVATED),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_deployment_ends_in_quarantine_behind_the_fence_with(tmp_path: Path, case: str) -> None:
    spoil, reason = REFUSED[case]

    node, disks, wrong = deployed(tmp_path, spoil)

    assert node.state is State.QUARANTINED, node.note
    assert node.blockers[0].reason is reason, node.blockers
    assert node.placement is Placement.MAINTENANCE
    assert node.boots is not Boots.SYSTEM
    assert not {"tenant", "factory"} & set(disks.values())
    assert wrong == []


def test_a_maintenance_image_with_another_digest_is_never_booted(tmp_path: Path) -> None:
    node, disks, wrong = deployed(tmp_path, other_iso)

    assert node.state is State.QUARANTINED
    assert node.blockers[0].reason is Reason.DIGEST_MISMATCH
    # it was switched off at its fence, and is on its way to an image that it does not get
    assert (node.boots, node.served) == (Boots.RAMDISK, "blue")
    assert set(disks.values()) == {"tenant"}
    assert wrong == []


def test_an_image_without_the_token_of_its_boot_is_not_booted() -> None:
    async def main(world: World) -> tuple[Node, dict[str, str]]:
        await take_from_tenant(world)
        daemon = await world.build()
        world.agents._settings = world.settings  # as of agents that are not simulated
        await daemon.start()
        node = await until_settled(world)
        found = node, holds(world)
        await world.crash()
        return found

    node, disks = branch(certified_host, main)

    assert node.state is State.QUARANTINED
    assert node.blockers[0].reason is Reason.NOT_OFFERED
    assert "agent_lookup_trusts" in node.blockers[0].unblock
    assert node.boots is Boots.RAMDISK  # off since its fence
    assert set(disks.values()) == {"tenant"}


def test_the_system_goes_to_the_disk_that_a_person_named() -> None:
    async def main(world: World) -> tuple[Node, dict[str, str]]:
        node = await take_from_tenant(world)
        serial = world.site.machines[HOST].devices["NVMe_2"].serial
        await world.store.nodes.save(node.model_copy(update={"os_disk": serial}))
        await world.start()
        node = await until_settled(world)
        found = node, holds(world)
        await world.crash()
        return found

    node, disks = branch(certified_host, main)

    assert came_back(node)
    assert disks == {"NVMe_0": "erased", "NVMe_1": "erased", "NVMe_2": "image", "NVMe_3": "erased"}


def test_a_named_disk_that_is_not_there_is_not_replaced_by_another() -> None:
    async def main(world: World) -> tuple[Node, dict[str, str]]:
        node = await take_from_tenant(world)
        await world.store.nodes.save(node.model_copy(update={"os_disk": "S-NOWHERE"}))
        await world.start()
        await until_settled(world)
        found = await node_of(world), holds(world)
        await world.crash()
        return found

    node, disks = branch(certified_host, main)

    assert node.state is State.QUARANTINED
    assert node.blockers[0].reason is Reason.NOT_EXPECTED
    assert set(disks.values()) == {"erased"}


def test_a_node_whose_system_is_not_the_pinned_one_gets_it_before_anything_else(
    tmp_path: Path,
) -> None:
    async def main() -> tuple[Node, list[str], dict[str, str]]:
        world = World(tmp_path, nodes=1, seed=5)
        world.site.machines[HOST].host.system = ""  # racked with some other system
        await world.take_in()
        await world.start()
        until = world.clock.now() + 6 * HOUR_S
        while world.clock.now() < until:
            await world.clock.sleep(30.0)
            rows = [
                r for r in await world.store.operations.list_entries(HOST) if "step" in r.before
            ]
            if len(rows) > 2:
                break
        await world.crash()
        return await node_of(world), [r.action for r in rows], holds(world)

    node, actions, disks = virtual_time.run(main())

    assert actions[0].startswith("host.os")
    assert actions[1] == "boot from disk"
    assert sorted(disks.values()) == ["factory", "factory", "factory", "image"]
    assert node.boots is Boots.SYSTEM
