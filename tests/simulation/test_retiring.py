"""A node that people retire: it serves until its time, then it is erased, closed and forgotten."""

from __future__ import annotations

from pathlib import Path

import pytest
from repairing import HOST, HOUR_S, Shop, lived

from provisioner.adapters.redfish.client import Redfish
from provisioner.daemon.data import read_expected, read_secrets
from provisioner.model.case import Case, Ending, Origin
from provisioner.model.node import Node, State
from provisioner.ports import BmcAddress, Secret

HANDED_OVER = Secret("Handed-over.2026")


async def admitted(shop: Shop, node: Node, users: dict[str, str]) -> set[bool]:
    """Whether the node's BMCs let in whoever shows what was handed over."""
    assert shop.daemon is not None
    reach, seen = shop.daemon.site.reach, await shop.world.store.evidence.get_inventory(node.id)
    assert seen is not None
    found = set()
    for bmc in node.bmcs:
        user = users[seen.vendor if bmc.kind == "host" else "nvidia_openbmc"]
        address = BmcAddress(url=bmc.url, username=user, secret=HANDED_OVER, pin=bmc.pin)
        found.add(await Redfish(reach.transport, address, await reach.quirk(address)).admits())
    return found


@pytest.mark.long
def test_a_retired_node_is_erased_closed_and_forgotten_however_often_the_daemon_dies(
    tmp_path: Path,
) -> None:
    async def story(shop: Shop) -> tuple[State, Node, Case, list[str], dict[str, object]]:
        world, vault = shop.world, shop.world.vault
        factory = read_secrets(read_expected(world.files.expected), {}).factory
        for vendor, login in factory.items():
            # BMCs take no default again that breaks their own rules: the site hands over another
            await vault.put(f"factory/{vendor}", login[0], HANDED_OVER)
        case = await shop.report("too old", Origin.OPERATOR)
        at = world.clock.now() + 2 * HOUR_S
        assert isinstance(await shop.case_service.retire(case, at, "old", "ada"), Case)
        await world.clock.sleep(HOUR_S)
        before = (await shop.node()).state
        for _ in range(40):  # killed in every stage, also while it is erased
            await world.clock.sleep(397.0)
            await shop.start()
            if (await shop.node()).state is State.RETIRED:
                break
        await world.clock.sleep(120.0)
        node, case = await shop.node(), await shop.newest()
        rows = await world.store.journal.list(0, 10_000)
        (proof,) = [r["detail"] for r in rows if r["kind"] == "retired"]
        kept = [b.name for b in node.bmcs if await vault.current(f"{node.id}/{b.name}")]
        seen: dict[str, object] = {
            "kept": kept,
            "disks": {d.holds for d in world.site.machines[HOST].disks.values()},
            "proof": proof,
            "admits": await admitted(shop, node, {v: u for v, (u, _) in factory.items()}),
        }
        told = [n.kind for n in await shop.book.list_notices("blue")]
        return before, node, case, told, seen

    (before, node, case, told, seen), wrong = lived(
        tmp_path, story, wanted=1, fabric_overlay="pure_l3", retire_credentials="factory"
    )

    assert before is State.RELEASED  # its time had not come
    assert (node.state, node.tenant, node.served, node.certificate) == (State.RETIRED, "", "", "")
    assert (case.ending, told[:2], told[-1]) == (Ending.RETIRED, ["failure", "retirement"],
                                                 "retirement")  # fmt: skip
    assert (seen["kept"], seen["admits"]) == ([], {True})
    assert seen["disks"] == {"erased"}
    assert seen["proof"] == {
        "case": case.id, "credentials": "factory", "disks": "", "erasure": node.erasure,
        "not_off": "",
    }  # fmt: skip
    assert node.erasure
    assert wrong == []
