"""What a node must prove follows from what changed, and its fleet has a say."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_returns import HOST, lived, state, states, swap_gpu, want

from provisioner.checks import ALL
from provisioner.model.cohort import Gate, HealthReport, Sample
from provisioner.model.node import Node, NodeKind, State
from provisioner.model.outcome import Reason
from provisioner.planning.certification.check_selection import TESTS
from provisioner.planning.lifecycle.operator_requests import reclaim_node

METRIC = "all_reduce_gb_s/host"


async def reported(world) -> HealthReport:
    report = await world.store.evidence.get_report(HOST)
    assert report is not None
    return report


def loads(report: HealthReport) -> set[str]:
    return {r.check for r in report.results} & set(TESTS)


@pytest.mark.long
def test_a_node_that_waits_is_looked_at_again_when_its_cohort_turns_out_better(
    tmp_path: Path,
) -> None:
    async def story(world) -> tuple[Node, list[str]]:
        (mine,) = await world.store.cohorts.list_samples("hgx-h100-bf3", None, 10)
        for n in range(12):
            name = f"elsewhere-{n}"
            await world.store.nodes.add(Node(id=name, kind=NodeKind.HOST, state=State.RETIRED))
            better = mine.measured[METRIC] * (1.08 + n / 10_000)
            await world.store.cohorts.put_sample(
                Sample(
                    **{**mine.model_dump(), "node": name, "rack": f"r{n % 3}"}
                    | {"measured": {METRIC: better}}
                )
            )
        return await state(world, State.QUARANTINED), await states(world)

    (node, entered), wrong = lived(tmp_path, story, wanted=0, remedies_max=0)

    assert entered[-4:] == ["certified", "converging", "validating", "quarantined"]
    assert node.blockers[0].reason is Reason.CHECK_FAILED
    assert "outlier among 13 nodes of its cohort" in node.blockers[0].detail
    assert wrong == []


def test_a_swapped_gpu_is_proved_with_what_covers_a_gpu(tmp_path: Path) -> None:
    async def story(world) -> tuple[HealthReport, HealthReport]:
        first = await reported(world)
        swap_gpu(world)
        before = (await state(world, State.CERTIFIED)).certificate
        while (await state(world, State.CERTIFIED)).certificate == before:
            pass
        return first, await reported(world)

    (first, again), wrong = lived(tmp_path, story, wanted=0)

    assert first.causes == ("new",)
    assert again.causes == ("repaired",)
    assert loads(first) == loads(again) == {c.name for c in ALL if c.gate is Gate.B}
    assert wrong == []


@pytest.mark.long
def test_between_two_tenants_everything_but_the_long_burn_is_proved(tmp_path: Path) -> None:
    async def story(world) -> HealthReport:
        await want(world, 0)
        released = await world.store.nodes.get(HOST)
        assert released is not None
        back = reclaim_node(released, world.clock.now())
        assert isinstance(back, Node)
        await world.store.nodes.save(back)
        await state(world, State.CERTIFIED)
        return await reported(world)

    report, wrong = lived(tmp_path, story)

    assert "turnover" in report.causes
    assert {"dcgm_diag", "gdr_loopback", "gpu_burn"} <= loads(report)
    assert wrong == []
