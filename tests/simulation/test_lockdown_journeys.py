"""A host whose BMC is in lockdown comes back from its tenant: it is lifted, and restored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import virtual_time
from returned import HOST, HOUR_S, give_back, node_of, until_settled
from rig import World

from provisioner import quirks
from provisioner.integrations.sim.redfish.redfish_media import mount_first_boot
from provisioner.model.node import Node, State
from provisioner.quirks.dell_idrac import QUIRK as DELL

MANAGER = "/redfish/v1/Managers/1"
ATTRIBUTE = "Lockdown.1.SystemLockdown"


def offer_lockdown(world: World) -> None:
    """The host's BMC has the lockdown of a PowerEdge; no source in hand has its own vendor's."""
    service = world.services[world.site.urls[f"{HOST}/host"]]
    links = mount_first_boot(service.tree, world.site.machines[HOST], MANAGER)
    manager = service.tree.resources[MANAGER]
    read: Any = manager.read

    def show() -> dict[str, Any]:
        shown = read()
        return {**shown, "Links": {**shown["Links"], **links}}

    manager.read = show


async def live(directory: Path, policy: str) -> tuple[Node, set[str], str, list[str]]:
    """Return the node, what its BMC showed while it was erased, what at the end, and wrongs."""
    world = World(directory, nodes=1, seed=11, bmc_lockdown=policy)  # type: ignore[arg-type]
    offer_lockdown(world)
    await give_back(world)
    attributes = world.site.machines[HOST].host.first_boot
    attributes[ATTRIBUTE] = "Enabled"
    await world.start()
    shown = set()
    until = world.clock.now() + 48 * HOUR_S
    while world.clock.now() < until:
        node = await until_settled(world, 60.0)
        shown.add(attributes[ATTRIBUTE])
        if node.state not in (State.DRAINING, State.CONVERGING):
            break
    await world.clock.sleep(300.0)
    node = await node_of(world)
    wrong = await world.violations()
    await world.crash()
    return node, shown, attributes[ATTRIBUTE], wrong


@pytest.mark.long
def test_the_lockdown_is_lifted_while_the_host_converges_and_then_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = quirks.ALL["supermicro"]
    patched = own.model_copy(update={"lockdown": DELL.lockdown})
    monkeypatch.setitem(quirks.ALL, "supermicro", patched)

    node, shown, at_end, wrong = virtual_time.run(live(tmp_path, "lift"))

    assert node.state in (State.VALIDATING, State.CERTIFIED), node.note
    assert "Disabled" in shown
    assert at_end == "Enabled"
    assert wrong == []


def test_without_the_policy_a_locked_host_waits_for_a_person(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = quirks.ALL["supermicro"]
    patched = own.model_copy(update={"lockdown": DELL.lockdown})
    monkeypatch.setitem(quirks.ALL, "supermicro", patched)

    node, shown, at_end, _ = virtual_time.run(live(tmp_path, "refuse"))

    assert node.state is State.QUARANTINED
    assert (shown, at_end) == ({"Enabled"}, "Enabled")
