"""A host comes back from its tenant, and its set-up password is changed, with a whole daemon."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import virtual_time
from returned import HOST, HOUR_S, give_back, until_settled
from rig import World

from provisioner import quirks
from provisioner.integrations.sim.redfish.redfish_power import mount_jobs, mount_setup_password
from provisioner.model.credential import RotationCause
from provisioner.model.node import State
from provisioner.planning.lifecycle.credential_rotation import SETUP
from provisioner.quirks.dell_idrac import QUIRK as DELL

SYSTEM, MANAGER = "/redfish/v1/Systems/1", "/redfish/v1/Managers/1"
NAME = f"{HOST}/{SETUP}"


def offer_set_up(world: World) -> None:
    """The host's BMC has the set-up password of a PowerEdge; no other vendor shows a proof."""
    service = world.services[world.site.urls[f"{HOST}/host"]]
    bios = world.site.machines[HOST].host.bios
    entry = mount_setup_password(service.tree, SYSTEM, bios)
    settings = f"{SYSTEM}/Bios/SD"
    now = world.clock.now
    jobs = mount_jobs(service.tree, MANAGER, settings, bios, service.tasks, now)
    shown, managed = service.tree.resources[f"{SYSTEM}/Bios"], service.tree.resources[MANAGER]
    read_bios: Any = shown.read
    read_manager: Any = managed.read

    def show_bios() -> dict[str, Any]:
        body = read_bios()
        attributes = {**body["Attributes"], **bios.setup.show()}
        return {**body, "Attributes": attributes, "Actions": {**body["Actions"], **entry}}

    def show_manager() -> dict[str, Any]:
        body = read_manager()
        return {**body, "Links": {**body["Links"], "Oem": {"Dell": jobs}}}

    shown.read, managed.read = show_bios, show_manager


@pytest.mark.parametrize("policy", [True, False])
def test_the_set_up_password_of_a_host_that_came_back_is_ours_and_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: bool
) -> None:
    own = quirks.ALL["supermicro"]
    patched = own.model_copy(update={"setup_password": DELL.setup_password})
    monkeypatch.setitem(quirks.ALL, "supermicro", patched)
    given = tmp_path / "setup"
    given.write_text("The-Sites-Own\n")

    async def story() -> None:
        world = World(
            tmp_path,
            nodes=1,
            seed=11,
            credential_setup_password=policy,  # type: ignore[arg-type]
            credential_setup_password_file=str(given),  # type: ignore[arg-type]
        )
        offer_set_up(world)
        setup = world.site.machines[HOST].host.bios.setup
        setup.set("The-Sites-Own")
        await give_back(world)
        standings = world.store.credential_standings
        await standings.demand(RotationCause.EMERGENCY, world.clock.now())
        await world.start()
        node = await until_settled(world, 48 * HOUR_S)
        assert node.state is State.CONVERGING, node.note
        stored, standing = await world.vault.current(NAME), await standings.get(NAME)
        events = [r["detail"] for r in await world.store.journal.list(limit=100_000)]
        if policy:
            assert stored is not None
            assert stored[1].reveal() == setup.password != "The-Sites-Own"
            assert standing is not None
            assert (standing.problem, standing.failures) == ("", 0)
            assert standing.changed_at >= node.fenced_at
            assert any(e.get("bmc") == SETUP for e in events)
            assert setup.password not in str(events)
        else:
            assert (stored, standing, setup.password) == (None, None, "The-Sites-Own")
        assert await world.violations() == []
        await world.crash()

    virtual_time.run(story())
