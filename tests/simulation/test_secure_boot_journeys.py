"""A key that a tenant enrolled in Secure Boot is named, and gone where the site requires that."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import virtual_time
from branches import branch, certified_host, change_settings
from returned import HOST, give_back, take_from_tenant, until_settled
from rig import World
from test_erasure_crashes import stormy
from test_erasure_journeys import report_of

from provisioner.adapters.redfish.settings.bios_writes import fingerprint_pem
from provisioner.integrations.sim.redfish.shapes_bios import list_makers_keys, make_boot_key
from provisioner.model.erasure import ErasureRecord, Holder, Method, Result
from provisioner.model.node import Boots, Node, State

FOREIGN = fingerprint_pem(make_boot_key("somebody else"))


def plant_keys(world: World, *, dropped: bool = False) -> None:
    """Root of the host enrolled a key, and took every revocation away."""
    keys = dict(list_makers_keys())
    keys["db"] = (*keys["db"], make_boot_key("somebody else"))
    keys["dbx"] = ()
    bios = world.site.machines[HOST].host.bios
    bios.boot_keys = keys
    bios.keys_reset_dropped = dropped


def has_makers_keys(world: World) -> bool:
    return world.site.machines[HOST].host.bios.boot_keys is None


CASES = {
    "listed only": ("disk", False, State.CONVERGING, 1),
    "restored": ("disk secure_boot", False, State.CONVERGING, 2),
    "the firmware drops the reset": ("disk secure_boot", True, State.QUARANTINED, 2),
}


@pytest.mark.parametrize("case", CASES)
def test_a_key_that_a_tenant_enrolled_is_named_and_restored_where_required(case: str) -> None:
    required, dropped, state, boots = CASES[case]

    async def main(
        world: World,
    ) -> tuple[Node, dict[str, ErasureRecord], list[str], bool, list[str]]:
        await take_from_tenant(world)
        change_settings(world, erase_required=required)
        plant_keys(world, dropped=dropped)
        if case == "listed only":
            world.site.machines[HOST].faults.add("owner_key_enrolled")
        await world.start()
        node = await until_settled(world)
        report = await report_of(world, node)
        records = {r.device: r for r in report.select_records(Holder.SECURE_BOOT)}
        rows = await world.store.operations.list_entries(HOST)
        wrong = await world.violations()
        await world.crash()
        return node, records, [r.action for r in rows], has_makers_keys(world), wrong

    node, records, acts, restored, wrong = branch(certified_host, main)

    is_clean = case == "restored"
    assert node.state is state, node.note
    assert (records["host db"].result is Result.DONE) is is_clean
    assert (FOREIGN in records["host db"].detail) is not is_clean
    assert restored is is_clean
    assert records["host dbx"].result is (Result.DONE if is_clean else Result.NOT_DONE)
    asked_for = "Secure Boot keys to defaults"
    assert acts.count(asked_for) == (boots - 1)
    assert acts.count("maintenance boot") == boots
    method = Method.COMPARED if case == "listed only" else Method.KEYS_RESTORED
    assert records["host PK"].method is method
    owners = records["host machine owner keys"]
    assert (owners.result is Result.DONE) is (case != "listed only"), owners.detail
    assert ("5f5f5f5f" in owners.detail) is (case == "listed only")
    assert wrong == []


@pytest.mark.parametrize("seed", [pytest.param(s, marks=pytest.mark.long) for s in range(2)])
def test_keys_are_restored_however_often_the_daemon_dies(tmp_path: Path, seed: int) -> None:
    async def main() -> tuple[Node, bool, list[str]]:
        required = "disk secure_boot"
        world = World(tmp_path, nodes=1, seed=11, erase_required=required)  # type: ignore[arg-type]
        await give_back(world)
        plant_keys(world)
        node, _ = await stormy(world, random.Random(f"keys/{seed}"), by_writes=seed == 0)
        return node, has_makers_keys(world), await world.violations()

    node, restored, wrong = virtual_time.run(main())

    assert (node.state, node.boots) == (State.CONVERGING, Boots.SYSTEM), node.note
    assert restored
    assert wrong == []
