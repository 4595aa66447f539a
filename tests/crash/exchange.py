"""The leg in which a GPU is gone and people exchange a card as well, while answers are lost.

The tenant reports it, the host is drained, nothing but hands can help: the technician puts in a GPU
and a card that come from the factory. The card is logged into, its password changed, its firmware
brought to the pins, and the host goes back to its tenant.
"""

from __future__ import annotations

from collections import Counter

import next_release
from exchanged import another_card, another_gpu, exchanges
from losing import LosingBmcs
from returned import HOST, node_of
from rig import World

from provisioner.control.context import Context
from provisioner.control.repairs.case_service import CaseService
from provisioner.integrations.demo.site import ARTIFACTS
from provisioner.integrations.sim.site.control import inject_fault
from provisioner.model.case import Case, Ending, Origin, Stage
from provisioner.model.node import State

GPU, CARD = "GPU_SXM_5", "DPU_0"
# what the journey's next release has a way from
DELIVERED = {"DPU_OS": "bf-bundle-2.10.0-147_25.01_ubuntu-22.04_prod", "DPU_NIC": "32.44.1036"}
FILES = {**ARTIFACTS, **next_release.ARTIFACTS}


async def begin(world: World) -> None:
    """Red's host loses a GPU, and red agrees to have it taken."""
    assert isinstance(world.transport, LosingBmcs)
    world.transport.loss.on = True
    inject_fault(world.site, "dead_gpu", HOST, GPU)
    await reported(world, "a GPU is gone")


async def reported(world: World, why: str) -> None:
    """Red says that its host has a fault, and that it may be taken for it."""
    case_service = CaseService(
        Context(world.store, world.clock, world.settings), world.store.cases, None
    )
    case = await case_service.open(await node_of(world), Origin.TENANT, why, "red")
    assert isinstance(case, Case), case
    agreed = await case_service.accept(case, "red")
    assert isinstance(agreed, Case), agreed


async def over(world: World) -> str | None:
    """The people of this leg as well: whoever is asked for hands has them."""
    book = world.store.cases
    case, node = (await book.list(HOST))[0], await node_of(world)
    if case.stage is Stage.HARDWARE and _times(case) == 1:
        if not world.site.machines[HOST].devices[GPU].present:
            another_gpu(world, GPU)
            another_card(world, CARD, FILES)
            for item, version in DELIVERED.items():
                world.site.machines[HOST].firmware[CARD, item].running = version
        told = await exchanges(world, book).record_return(case, "ada", f"{GPU}, {CARD} new", [CARD])
        assert isinstance(told, Case), told
        return None
    if case.stage is Stage.HARDWARE:
        return f"people were asked again: {case.note}"
    return "" if not case.open and node.state is State.RELEASED else None


def _times(case: Case) -> int:
    return sum(s.stage is Stage.HARDWARE for s in case.stages)


async def wrong(world: World) -> list[str]:
    """What must hold of the case and of the card, beside what must hold of any leg."""
    case = (await world.store.cases.list(HOST))[0]
    found = [] if case.ending is Ending.REPAIRED else [f"the case ended {case.ending}: {case.note}"]
    rows = await world.store.journal.list(limit=100_000)
    told = Counter(str(r["kind"]) for r in rows if r["detail"].get("case") == case.id)
    for kind in ("case_opened", "case_closed"):
        found += [f"{kind} was told {told[kind]} times"] * (told[kind] != 1)
    service = world.services[world.site.urls[f"{HOST}/{CARD}"]]
    (account,) = service.accounts.accounts.values()
    login = await world.vault.current(f"{HOST}/{CARD}")
    if login is None or login[1].reveal() != account.password:
        found.append(f"nobody knows the password of {CARD} any more")
    elif account.password == world.site.machines[HOST].bmcs[CARD].password:
        found.append(f"{CARD} has its factory password still")
    return found
