"""Plans and decisions are computed in threads: meanwhile the daemon answers and watches."""

from __future__ import annotations

import inspect
import threading
from pathlib import Path
from typing import Any

import pytest
import virtual_time
from campaign_fleet import Fleet
from rig import World

from provisioner.control.campaigns import campaigns
from provisioner.model.campaign import Decision, Policy
from provisioner.model.plan import Plan
from provisioner.planning.campaigns.rollout import decide
from provisioner.planning.path.planner import PlanCache, PlanningNode


def is_on_loop() -> bool:
    """Return whether the caller holds up the event loop; virtual time runs threads' work inline."""
    frame = inspect.currentframe()
    inline = False
    while frame is not None:
        inline |= frame.f_code.co_name == "run_in_executor"
        frame = frame.f_back
    return threading.current_thread() is threading.main_thread() and not inline


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Return, for each plan that was made, whether it was made on the event loop's thread."""
    made: list[bool] = []
    compute = PlanCache._plan

    def record(cache: PlanCache, node: PlanningNode) -> Plan:
        made.append(is_on_loop())
        return compute(cache, node)

    monkeypatch.setattr(PlanCache, "_plan", record)
    return made


@pytest.mark.slow
def test_the_plans_of_a_nodes_journey_are_made_beside_the_event_loop(
    threads: list[bool], tmp_path: Path
) -> None:
    async def live() -> None:
        world = World(tmp_path, 1, 1)
        await world.take_in()
        await world.start()
        await world.settle(24 * 3600.0)
        await world.crash()

    virtual_time.run(live())

    assert threads
    assert not any(threads)


def test_the_plans_of_a_campaign_are_made_beside_the_event_loop(threads: list[bool]) -> None:
    async def live() -> None:
        fleet = Fleet(hosts=4, units=1)
        await fleet.build()
        made = await fleet.requests.create("next", "all", Policy())
        assert made.campaign is not None
        await fleet.requests.preview(made.campaign.id)
        await fleet.requests.start(made.campaign.id)

    virtual_time.run(live())

    assert len(threads) >= 8
    assert not any(threads)


def test_the_decisions_of_a_campaign_are_reached_beside_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reached: list[bool] = []

    def record(*asked: Any) -> Decision:
        reached.append(is_on_loop())
        return decide(*asked)

    monkeypatch.setattr(campaigns, "decide", record)

    async def live() -> None:
        fleet = Fleet(hosts=4, units=1)
        await fleet.build()
        made = await fleet.requests.create("next", "all", Policy())
        assert made.campaign is not None
        await fleet.requests.start(made.campaign.id)
        await fleet.campaigns.tick()

    virtual_time.run(live())

    assert reached
    assert not any(reached)
