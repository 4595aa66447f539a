"""Faults of adopted hosts become cases for people once a person granted that, and nothing more.

The site is that of `test_taking_over.py`, built by hand; its people have left the wrong cables.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hand_built import HandBuilt
from virtual_time import run

from provisioner.model.adoption.capability import Capability
from provisioner.model.case import Origin, Service
from provisioner.model.node import NodeKind, State

TURN_S = 400.0  # longer than `watch_s` of this site
WATCH_S = 300.0


async def advise(directory: Path, hosts: int) -> None:
    site = HandBuilt(directory, hosts)
    world = site.world
    world.settings = world.settings.model_copy(update={"watch_s": WATCH_S})
    world.cases = world.store.cases
    await site.build()
    planted = site.planted
    site.place(planted.vrf, [5], site.vrf_of(planted.vrf))
    corrected = await site.list_nodes(other_password=True)
    await site.adopt(corrected, NodeKind.SWITCH)
    adopted = await site.adopt(corrected, NodeKind.HOST)
    assert {n.id for n in adopted.nodes} == set(site.hosts)
    before = site.read_state()

    witness = await site.hand_over()
    await world.clock.sleep(TURN_S)
    assert await world.store.cases.list_open() == ()
    journal = await world.store.journal.list(0, 100_000)
    would = {r["node"] for r in journal if r["kind"] == "would" and "case" in str(r["detail"])}
    faulty = {planted.gpu, *planted.cables}
    assert would == faulty

    for capability in (Capability.WATCH, Capability.TICKETS):
        await site.decide(witness, capability, granted=True)
    await world.clock.sleep(2 * TURN_S)
    cases = {c.node: c for c in await world.store.cases.list_open()}
    assert set(cases) == faulty
    assert "gpu" in cases[planted.gpu].reason
    for name in planted.cables:
        assert "cabling" in cases[name].reason
    for case in cases.values():
        assert (case.service, case.origin, case.tenant) == (Service.KEEP, Origin.WORK, "")
        assert case.ticket is not None
    rows = {n.id: n for n in await world.store.nodes.list()}
    assert all(rows[name].state is State.RELEASED for name in site.hosts)
    await world.crash()
    assert site.read_state() == before
    assert site.list_interruptions() == {}
    assert {need for _, need, _ in witness.acts} <= {Capability.WATCH}
    assert not witness.unlawful


def test_faults_become_cases_as_advice_when_that_is_granted(tmp_path: Path) -> None:
    run(advise(tmp_path, 4))


@pytest.mark.long
def test_faults_of_sixty_four_hosts_become_cases_as_advice(tmp_path: Path) -> None:
    run(advise(tmp_path, 64))
