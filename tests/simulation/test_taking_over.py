"""Taking over a serving site that was built by hand, from the first reading to certificates.

The way of docs/adopting.md: observe, adopt, mend what was named, hand over step by step, certify in
windows with notice. The long form has the 64 hosts; the short one the same faults on fewer.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hand_built import NOTICE_S, ODD, HandBuilt, is_in_window
from hand_repair import read_advice, repair_gpu
from handing_over import Witness
from test_intake_cables import LEAF
from virtual_time import run

from provisioner.model.adoption.capability import LADDER, Capability, GrantScope
from provisioner.model.campaign import CampaignState, Progress
from provisioner.model.node import NodeKind, State
from provisioner.model.outcome import Reason

OBSERVED_S = 600.0
STEP_S = 900.0  # between two grants
WATCH_S = 4 * 3600.0  # between two readings of an adopted host


async def observe_and_adopt(site: HandBuilt) -> None:
    """Adopt every host without a write, and have each planted fault named."""
    planted = site.planted
    recorded, before = site.watch_writes()
    expected = await site.list_nodes(other_password=False)
    switches = await site.adopt(expected, NodeKind.SWITCH)
    assert switches.blockers == ()

    first = await site.adopt(expected, NodeKind.HOST)
    reasons = {(b.subject.partition("/")[0], b.reason) for b in first.blockers}
    assert (planted.vrf, Reason.ISOLATION) in reasons
    assert [b.reason for b in first.blockers if f"{planted.password}.host" in b.subject] == [
        Reason.LOGIN_REFUSED
    ]
    adopted = {n.id for n in first.nodes}
    assert adopted == set(site.hosts) - {planted.vrf, planted.password}

    readings = await site.observe(OBSERVED_S)
    assert {n for n, o in readings.items() if ODD in str(o.plan_blockers)} == {planted.odd}
    assert {n for n, o in readings.items() for b in o.plan_blockers if b.subject == f"{n}/gpu"} == {
        planted.gpu
    }
    assert not any(o.would or o.unread for o in readings.values())
    assert recorded.methods <= {"GET", "HEAD"}
    assert site.read_state() == before
    assert site.count_refused_logins() == {planted.password: 1}  # tried once, never locked


async def mend_by_hand(site: HandBuilt) -> None:
    """People mend what was named, and adopt the rest of the hosts; its cables are named then."""
    planted = site.planted
    site.place(planted.vrf, [5], site.vrf_of(planted.vrf))
    recorded, before = site.watch_writes()
    corrected = await site.list_nodes(other_password=True)
    rest = await site.adopt(corrected, NodeKind.HOST)
    assert {n.id for n in rest.nodes} == {planted.vrf, planted.password}
    rows = [n for n in await site.world.store.nodes.list() if n.kind is NodeKind.HOST]
    assert {n.id: n.vrf for n in rows} == {name: site.vrf_of(name) for name in site.hosts}
    cabling = {n: o.cabling for n, o in (await site.observe(OBSERVED_S)).items() if o.cabling}
    assert set(cabling) == set(planted.cables)
    plugs = {f"{LEAF}/{site.world.site.places[name].interface}" for name in planted.cables}
    assert all(plug in wrong[0].unblock for wrong in cabling.values() for plug in plugs)
    assert recorded.methods <= {"GET", "HEAD"}
    assert site.read_state() == before
    site.recable()
    assert not any(o.cabling or o.ports for o in (await site.observe(OBSERVED_S)).values())


async def hand_over(site: HandBuilt, witness: Witness) -> None:
    """Grant each step for the site, the last one also back and forth; no tenant notices."""
    for capability in LADDER:
        await site.decide(witness, capability, granted=True)
        await site.world.clock.sleep(STEP_S)
        assert not witness.unlawful
        assert not site.list_interruptions()
        if capability is Capability.TICKETS:
            await site.world.clock.sleep(2 * WATCH_S)
            await read_advice(site)
    rack = {"scope": GrantScope.RACK, "name": "su0-rack0"}
    await site.decide(witness, Capability.FIRMWARE, granted=False, **rack)
    await site.world.clock.sleep(STEP_S)
    await site.decide(witness, Capability.FIRMWARE, granted=True, **rack)


async def take_over(directory: Path, hosts: int, select: str, nights: int) -> None:
    site = HandBuilt(directory, hosts)
    world = site.world
    world.settings = world.settings.model_copy(update={"watch_s": WATCH_S})
    world.cases = world.store.cases
    await site.build()
    await observe_and_adopt(site)
    await mend_by_hand(site)
    witness = await site.hand_over()
    await hand_over(site, witness)

    campaign, progress = await site.run_campaign(select, nights)
    case = await repair_gpu(site)
    await world.crash()

    assert campaign.state is CampaignState.DONE, campaign.reason
    gpu = site.planted.gpu
    chosen = {p.node for p in progress} - {gpu}
    assert {p.node for p in progress if p.state is Progress.DONE} == chosen
    rows = {n.id: n for n in await site.world.store.nodes.list()}
    assert {n for n in site.hosts if rows[n].certificate} == chosen | {gpu}
    for name in site.hosts:
        assert (rows[name].state, rows[name].vrf) == (State.RELEASED, site.vrf_of(name))
    assert site.list_out_of_service() == set()
    notices = {p.node: p.notified_at for p in progress} | {gpu: case.drain_at - NOTICE_S}
    interruptions = site.list_interruptions()
    assert set(interruptions) == chosen | {gpu}
    for name, at in interruptions.items():
        assert is_in_window(at), (name, at)
        assert notices[name] > 0
        assert at >= notices[name] + NOTICE_S
    assert site.list_violations() == []
    assert witness.unlawful == []


@pytest.mark.long
def test_a_site_built_by_hand_is_taken_over_without_an_unannounced_interruption(
    tmp_path: Path,
) -> None:
    run(take_over(tmp_path, 4, "node=su0-n01 or node=su0-n00", 3))


@pytest.mark.long
def test_sixty_four_hosts_built_by_hand_are_taken_over(tmp_path: Path) -> None:
    run(take_over(tmp_path, 64, "kind=host", 30))
