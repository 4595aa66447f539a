"""The whole journey over many seeds: lost messages, crashes and faults, under virtual time.

One seed decides everything: how much is lost, when the daemon dies, and what is broken. `SEEDS=200`
tries as many seeds, `SEED=17` only that one: a failure prints the command.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import virtual_time
from acts import repeated
from rig import World

from provisioner.integrations.sim.site import control as fault_presets
from provisioner.model.node import Node, NodeKind, Placement, State

HOUR_S = 3600.0
IN_CI = (2,)  # seeds; each takes some seconds of a core
ENDS = (State.RELEASED, State.CERTIFIED, State.QUARANTINED, State.REPAIRING, State.RETIRED)

# what a daemon must outlast: each of them passes by itself, or hides nothing that is needed
PASSING = (
    "busy",
    "busy_as_400",
    "drops_connections",
    "etag_empty",
    "etag_weak",
    "flapping_service",
    "no_task_location",
    "post_lost_after",
    "slow_inventory",
    "task_late",
    "task_new",
    "token_expires",
)
# what ends in quarantine, with the reason
LASTING = (
    "bfb_never_completes",
    "dead_gpu",
    "nccl_slow",
    "nic_burn_fails",
    "package_install_fails",
    "pcie_gen4",
    "rail_down",
    "resets_itself",  # in the middle of the GPU tray: nothing shows what was written
    "task_stuck",
    "xid_79",
)


@dataclass(frozen=True)
class Ended:
    """What is left of a run: nodes, and everything that must never be there."""

    nodes: tuple[Node, ...]
    wrong: tuple[str, ...]
    history: tuple[Any, ...]  # the journal and the ledger, without what is random by design


def chosen_seeds() -> list[int]:
    if "SEED" in os.environ:
        return [int(os.environ["SEED"])]
    if "SEEDS" in os.environ:
        return list(range(1, int(os.environ["SEEDS"]) + 1))
    return list(IN_CI)


def replay(seed: int) -> str:
    return f"replay: SEED={seed} .venv/bin/pytest tests/simulation/test_journeys.py -k ends_well"


def break_something(world: World, rng: random.Random) -> list[tuple[str, str]]:
    """Up to two faults that pass, and on every other run one that lasts."""
    hosts = sorted(world.site.machines)
    names = rng.sample(PASSING, rng.randint(0, 2)) + rng.sample(LASTING, rng.randint(0, 1))
    broken = []
    for name in names:
        host = rng.choice(hosts)
        preset = fault_presets.inject_fault(world.site, name, host)
        broken.append((host, preset.name))
    return broken


async def lived(directory: Path, seed: int) -> Ended:
    """One run from cabled to the end, with crashes in between."""
    rng = random.Random(f"plan {seed}")
    nodes = 1 + (seed % 3 == 0)
    world = World(directory, nodes=nodes, seed=seed, lost=rng.uniform(0.01, 0.03))
    await world.take_in()
    spoiled = {host for host, fault in break_something(world, rng) if fault in LASTING}
    await world.start()
    for _ in range(rng.randint(1, 4)):
        await world.clock.sleep(rng.uniform(1.0, 1.2 * HOUR_S))
        await world.crash()
        await world.clock.sleep(rng.choice((0.0, 1.0, 60.0, 2 * HOUR_S)))
        await world.start()
    ended = await world.settle(60 * HOUR_S)
    await world.clock.sleep(60.0)
    await world.crash()
    wrong = await misdeeds(world)
    wrong += [
        f"{n.id} ended {n.state} for nothing: {n.note}"
        for n in ended
        if n.state is not State.RELEASED and n.id not in spoiled
    ]
    return Ended(tuple(ended), tuple(wrong), tuple(await history(world)))


async def misdeeds(world: World) -> list[str]:
    """Whatever must never be so, at the end of a run."""
    wrong = await world.violations()
    for node in await world.store.nodes.list():
        wrong += repeated(world.site, node.id, await world.store.operations.list_entries(node.id))
        if node.state not in ENDS:
            wrong.append(f"{node.id} ended {node.state}: {node.note}")
        elif node.state in (State.QUARANTINED, State.REPAIRING) and not node.blockers:
            wrong.append(f"{node.id} is {node.state} without a reason")
        if any(b.reason.value == "our_bug" for b in node.blockers):
            wrong.append(f"{node.id} was parked: {node.blockers[0]}")
        if node.state is not State.RELEASED or node.kind is not NodeKind.HOST:
            continue
        if (
            node.placement is not Placement.CUSTOMER
            or await world.store.evidence.get_proof(node.id) is None
        ):
            wrong.append(f"{node.id} is released without proof")
    return wrong


async def history(world: World) -> list[Any]:
    """What happened, in order and with its times; certificate ids and the like are random."""
    rows = await world.store.journal.list(limit=100_000)
    told: list[Any] = [(r["kind"], r["node"], round(float(r["at"]), 6)) for r in rows]
    for node in await world.store.nodes.list():
        for row in await world.store.operations.list_entries(node.id):
            told.append((node.id, row.action, row.status.value, row.attempt, row.intended_at))
    return [*told, world.wire.requests]


@pytest.mark.parametrize("seed", chosen_seeds())
def test_every_journey_ends_well_whatever_is_lost_and_whenever_the_daemon_dies(
    tmp_path: Path, seed: int
) -> None:
    ended = virtual_time.run(lived(tmp_path, seed))

    assert ended.wrong == (), replay(seed)


@pytest.mark.long
def test_a_seed_replays_its_run_exactly(tmp_path: Path) -> None:
    first, second = (virtual_time.run(lived(tmp_path / name, 2)) for name in ("first", "second"))

    assert first.history == second.history
