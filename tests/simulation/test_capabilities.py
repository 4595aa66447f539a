"""Acts on adopted nodes: random histories, in which none arrives without a person's grant."""

from __future__ import annotations

from pathlib import Path

import pytest
from handing_over import SCOPES, History, open_handover
from virtual_time import run

from provisioner.model.adoption.capability import LADDER

STEPS = 4
SITE = 50  # histories on one site, before a new one is built


async def run_histories(directory: Path, first: int, count: int) -> int:
    """Run histories one after the other on one site; return how many acts arrived."""
    world, witness = await open_handover(directory)
    for seed in range(first, first + count):
        await History(world, witness, seed).run(STEPS)
        assert not witness.unlawful, (seed, witness.unlawful[:5])
    return len(witness.acts)


def run_all(tmp_path: Path, count: int) -> int:
    """Run histories on sites of their own."""
    acts = 0
    for first in range(0, count, SITE):
        directory = tmp_path / str(first)
        directory.mkdir()
        acts += run(run_histories(directory, first, SITE))
    return acts


def test_no_act_arrives_at_an_adopted_node_without_a_grant(tmp_path: Path) -> None:
    assert run_all(tmp_path, SITE) > SITE  # the grants had an effect as well


@pytest.mark.long
def test_no_act_arrives_in_ten_thousand_histories(tmp_path: Path) -> None:
    assert run_all(tmp_path, 10_000) > 10_000


def test_the_witness_of_the_histories_sees_an_act_without_a_grant(tmp_path: Path) -> None:
    async def scenario() -> None:
        world, witness = await open_handover(tmp_path)
        history = History(world, witness, 1)
        await world.start()
        await history.put([(scope, name, LADDER) for scope, name in SCOPES], granted=True)
        witness.grants = witness.former = ()  # as if nothing was granted
        await history.reclaim()
        await world.clock.sleep(60.0)
        await world.crash()
        assert any("isolation" in act for act in witness.unlawful)

    run(scenario())
