"""The repair of the dead GPU of a site built by hand, from its case as advice to its end."""

from __future__ import annotations

from collections.abc import Callable

from exchanged import exchanges
from hand_built import HandBuilt, is_in_window

from provisioner.control.context import Context
from provisioner.control.repairs.case_service import CaseService
from provisioner.integrations.sim.hardware.curable_faults import exchange_part
from provisioner.model.case import Case, Origin, Service, Stage
from provisioner.model.node import Node, State

HOUR_S = 3600.0
SLOT = "GPU_SXM_5"  # `dead_gpu` takes this one
LIMIT_S = 60 * HOUR_S


async def read_advice(site: HandBuilt) -> Case:
    """Return the case of the dead GPU, which is advice: its host serves on."""
    case = await site.world.store.cases.get_open(site.planted.gpu)
    assert case is not None
    assert "gpu" in case.reason
    assert (case.service, case.stage, case.tenant) == (Service.KEEP, Stage.HARDWARE, "")
    node = await site.world.store.nodes.get(site.planted.gpu)
    assert node is not None
    assert node.state is State.RELEASED
    return case


async def repair_gpu(site: HandBuilt) -> Case:
    """Have its tenant noticed, and the GPU exchanged when the host is out of service.

    The notice runs out in the nightly window, because it is given in one and takes a whole day.
    """
    world = site.world
    name = site.planted.gpu
    advice = await read_advice(site)
    while not is_in_window(world.clock.now()):
        await world.clock.sleep(HOUR_S)
    assert world.settings.repair_notice_s == 24 * HOUR_S
    case_service = CaseService(
        Context(world.store, world.clock, world.settings), world.store.cases, None
    )
    node = await world.store.nodes.get(name)
    assert node is not None
    reason = "its GPU is exchanged"
    case = await case_service.open(node, Origin.OPERATOR, reason, "ada", service=Service.DRAIN)
    assert isinstance(case, Case), case
    assert case.id == advice.id
    notices = [n for n in await world.store.cases.list_notices() if n.case == case.id]
    assert [(n.tenant, n.effective_at) for n in notices] == [(node.tenant, case.drain_at)]

    waiting = await wait_for(site, lambda _, c: c.stage is Stage.HARDWARE)
    exchange_part(world.site.machines[name], SLOT, "1650000000043")
    people = exchanges(world, world.store.cases)
    closed = await people.record_return(waiting[1], "ada", "GPU replaced", [])
    assert isinstance(closed, Case), closed
    node, case = await wait_for(
        site, lambda n, c: n.state is State.RELEASED and c.stage is Stage.CLOSED
    )
    assert node.certificate
    return case


async def wait_for(site: HandBuilt, holds: Callable[[Node, Case], bool]) -> tuple[Node, Case]:
    """Let time pass until node and case look so."""
    world = site.world
    end = world.clock.now() + LIMIT_S
    while world.clock.now() < end:
        await world.clock.sleep(300.0)
        node = await world.store.nodes.get(site.planted.gpu)
        cases = await world.store.cases.list(site.planted.gpu)
        assert node is not None
        if holds(node, cases[0]):
            return node, cases[0]
    raise AssertionError((node.state, node.blockers, node.note, cases[:1]))
