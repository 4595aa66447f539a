"""A node comes back from its tenant, and its BMCs get their factory defaults, with a daemon."""

from __future__ import annotations

from pathlib import Path

import virtual_time
from returned import HOST, HOUR_S, give_back, node_of, until_settled
from rig import World

from provisioner.integrations.sim.redfish.accounts import Account
from provisioner.integrations.sim.redfish.redfish_power import TYPES, mount_defaults
from provisioner.model.erasure import ErasureReport, Holder, Result
from provisioner.model.node import Node, State
from provisioner.model.outcome import Reason
from provisioner.planning.lifecycle.operator_requests import retry_node
from provisioner.ports import Secret

QUIRKS = {"supermicro": "supermicro", "nvidia_openbmc": "nvidia_openbmc"}
MANAGER = "/redfish/v1/Managers/1"


def offer_reset(world: World) -> None:
    """The host's BMC offers what a PowerEdge's tree does; no tree of its own vendor is in hand."""
    service = world.services[world.site.urls[f"{HOST}/host"]]
    shown = service.tree.resources[MANAGER].read()
    shown["Actions"].update(mount_defaults(service, MANAGER, TYPES["dell"]))


async def prepare(directory: Path) -> World:
    """A node whose tenant has left; each of its BMCs has an account of the tenant's."""
    world = World(
        directory,
        nodes=1,
        seed=11,
        erase_bmc_defaults="addresses_reserved",  # type: ignore[arg-type]
        erase_required="disk bmc",  # type: ignore[arg-type]
    )
    offer_reset(world)
    await give_back(world)
    for name, bmc in world.site.machines[HOST].bmcs.items():
        service = world.services[world.site.urls[f"{HOST}/{name}"]]
        service.accounts.accounts["7"] = Account("7", "svc-update", "Planted-Word.1")
        vault_name = f"factory/{QUIRKS[bmc.vendor]}"
        await world.vault.put(vault_name, bmc.username, Secret(bmc.password))
    return world


async def report_of(world: World, node: Node) -> ErasureReport:
    text = await world.store.evidence.get_output(node.erasure)
    assert text is not None
    return ErasureReport.model_validate_json(text)


def test_every_bmc_comes_back_without_what_its_tenant_left(tmp_path: Path) -> None:
    async def story() -> tuple[Node, ErasureReport, list[str], dict[str, list[str]], list[str]]:
        world = await prepare(tmp_path)
        await world.start()
        node = await until_settled(world, 48 * HOUR_S)
        rows = [r.action for r in await world.store.operations.list_entries(HOST)]
        left = {
            name: list(world.services[world.site.urls[f"{HOST}/{name}"]].accounts.accounts)
            for name in world.site.machines[HOST].bmcs
        }
        report = await report_of(world, node)
        wrong = await world.violations()
        await world.crash()
        return node, report, rows, left, wrong

    node, report, rows, left, wrong = virtual_time.run(story())

    records = report.select_records(Holder.BMC_DEFAULTS)
    assert {r.device for r in records} == set(left)
    assert {r.result for r in records} == {Result.DONE}, records
    assert all(len(accounts) == 1 for accounts in left.values()), left
    assert node.state is State.CONVERGING, node.note
    assert rows.count("BMC host to defaults") == 1
    last = len(rows) - 1 - rows[::-1].index("maintenance boot")
    assert last > rows.index("BMC host to defaults"), (
        "the host boots through the BMC that came back"
    )
    assert wrong == []


def test_a_bmc_that_never_comes_back_quarantines_its_node_until_a_person_found_it(
    tmp_path: Path,
) -> None:
    async def story() -> tuple[Node, Node, list[str]]:
        world = await prepare(tmp_path)
        bmc = world.site.machines[HOST].bmcs["host"]
        bmc.troubles.add("lost_after_defaults")
        await world.start()
        blocked = await until_settled(world, 48 * HOUR_S)
        bmc.troubles.clear()
        bmc.gone_until = 0.0
        again = retry_node(await node_of(world), world.clock.now())
        assert isinstance(again, Node)
        await world.store.nodes.save(again)
        clean = await until_settled(world, 48 * HOUR_S)
        wrong = await world.violations()
        await world.crash()
        return blocked, clean, wrong

    blocked, clean, wrong = virtual_time.run(story())

    assert blocked.state is State.QUARANTINED
    assert [b.reason for b in blocked.blockers] == [Reason.NOT_ACTIVATED]
    assert blocked.served == "blue"
    assert (clean.served, clean.state) == ("", State.CONVERGING), clean.note
    assert wrong == []
