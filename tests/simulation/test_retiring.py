"""A node that people retire: it serves until its time, then it is erased, closed and forgotten."""

from __future__ import annotations

from pathlib import Path

import pytest
import virtual_time
from repairing import HOST, HOUR_S, Shop, lived
from rig import World

from provisioner.adapters.redfish.client import Redfish
from provisioner.daemon.data import read_expected, read_secrets
from provisioner.execution.actions.hold import Hold
from provisioner.execution.steps import farewell
from provisioner.integrations.sim.redfish.accounts import Accounts
from provisioner.model.case import Case, Ending, Origin, Service, Stage
from provisioner.model.node import Node, NodeKind, State
from provisioner.model.outcome import Blocker
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


@pytest.mark.parametrize("interrupted", [False, True])
@pytest.mark.parametrize("keeps", [False, True])
def test_ours_is_forgotten_once_the_bmc_was_seen_to_accept_the_factorys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keeps: bool, interrupted: bool
) -> None:
    """`keeps`: a BMC answers 200 and keeps its password. `interrupted`: a daemon died between its
    yes to a change of ours and the note of it.
    """

    async def story() -> tuple[Blocker | None, set[str], set[str]]:
        world = World(tmp_path, nodes=1, seed=5)
        await world.take_in()
        (node,) = [n for n in await world.store.nodes.list() if n.kind is NodeKind.HOST]
        names = {f"{node.id}/{bmc.name}" for bmc in node.bmcs}
        accounts = {
            b.name: next(iter(world.services[b.url].accounts.accounts.values())) for b in node.bmcs
        }
        for bmc in node.bmcs:
            vendor = "supermicro" if bmc.kind == "host" else "nvidia_openbmc"
            await world.vault.put(f"factory/{vendor}", accounts[bmc.name].username, HANDED_OVER)
        if interrupted:
            mine = accounts["host"]
            mine.password = "Our-second-one-7"
            await world.vault.begin(f"{node.id}/host", mine.username, Secret(mine.password))
        named = {"id": "c", "node": node.id, "origin": Origin.OPERATOR, "service": Service.KEEP}
        end = {"reason": "old", "opened_at": 1.0, "stage": Stage.RETIRING, "retire_at": 1.0}
        case = Case.model_validate({**named, **end})
        await world.store.cases.add(case, now=1.0)
        opened = await world.store.operations.open(node.id, "test", 0.0)
        assert opened is not None
        taken = await world.store.operations.take(opened.id)
        hold = Hold(world.store, world.clock, taken)
        site = (await world.build()).site
        if keeps:
            monkeypatch.setattr(Accounts, "_change", lambda *_: None)
        told = await farewell.give_back(site, hold, node, "supermicro")
        kept = {name for name in names if await world.vault.current(name) is not None}
        return told, kept, {a.password for a in accounts.values()}

    told, kept, passwords = virtual_time.run(story())

    if keeps:
        assert told is not None
        assert "does not accept it" in told.detail
        assert kept
    else:
        assert (told, kept, passwords) == (None, set(), {HANDED_OVER.reveal()})
