"""Gate C in a whole simulated site: who is tested with whom, who is named, and who passes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import virtual_time
from rig import World

from provisioner.integrations.sim.site import control as fault_presets
from provisioner.model.certificate import Certificate
from provisioner.model.fabric_session import FabricOutcome
from provisioner.model.node import Node, NodeKind, State
from provisioner.model.outcome import Reason

HOUR_S = 3600.0


@dataclass(frozen=True)
class Ended:
    """What is left of a run."""

    nodes: Mapping[str, Node]
    certificates: Mapping[str, Certificate]
    outcomes: Mapping[str, FabricOutcome]
    journal: tuple[Any, ...]
    metrics: Mapping[str, frozenset[str]]  # of the samples that the fleet is held against

    @property
    def held(self) -> dict[str, tuple[Reason, str]]:
        """Hosts that were not released: why, and which part is named."""
        return {
            name: (node.blockers[0].reason, node.blockers[0].subject)
            for name, node in self.nodes.items()
            if node.kind is NodeKind.HOST and node.state is not State.RELEASED
        }


async def gathered(world: World) -> Ended:
    assert await world.violations() == []
    nodes = {n.id: n for n in await world.store.nodes.list()}
    certificates, outcomes = {}, {}
    for name, node in nodes.items():
        certificate = (
            await world.store.evidence.get_certificate(node.certificate)
            if node.certificate
            else None
        )
        if certificate is not None:
            certificates[name] = certificate
        outcome = await world.store.fabric.get_outcome(name)
        if outcome is not None:
            outcomes[name] = outcome
    rows = await world.store.journal.list(limit=100_000)
    samples = await world.store.cohorts.list_samples("hgx-h100-bf3", None, 100)
    metrics = {s.node: frozenset(s.measured) for s in samples}
    return Ended(nodes, certificates, outcomes, tuple(rows), metrics)


async def lived(directory: Path, nodes: int, faults: Mapping[str, str]) -> Ended:
    # long enough for the slowest: who comes later finds all others with their tenants
    world = World(directory, nodes=nodes, seed=7, certify_gates="abc", fabric_gather_s=HOUR_S / 2)
    await world.take_in()
    for subject, fault in faults.items():
        fault_presets.inject_fault(world.site, fault, subject)
    await world.start()
    await world.settle(12 * HOUR_S)
    await world.crash()
    return await gathered(world)


@pytest.mark.long
def test_a_bad_cable_is_named_and_everybody_else_is_released(tmp_path: Path) -> None:
    ended = virtual_time.run(lived(tmp_path, 6, {"su0-n02": "cable_lossy"}))

    assert ended.held == {"su0-n02": (Reason.CABLING, "su0-n02/rail5")}
    assert "leaf-su0-r5/swp2s0" in ended.nodes["su0-n02"].blockers[0].detail
    assert len(ended.outcomes["su0-n02"].partners) >= 3
    certificate = ended.certificates["su0-n00"]
    assert {"rdma_pair", "rdma_counters after rdma_pair"} <= set(certificate.checks)
    assert certificate.proved == "abc"
    assert "rdma_pair_gbit_s/fabric" in ended.metrics["su0-n00"]
    assert "rdma_pair_gbit_s/fabric" not in ended.metrics["su0-n02"]


async def died(directory: Path) -> Ended:
    """The whole daemon dies while nodes are tested, and again while they take their outcomes."""
    world = World(directory, nodes=4, seed=11, certify_gates="abc")
    await world.take_in()
    await world.start()
    while not any(s.runs for s in await world.store.fabric.list_sessions()):
        await world.clock.sleep(1.0)
    for rest_s in (0.0, 600.0):
        await world.crash()
        await world.clock.sleep(rest_s)
        await world.start()
        await world.clock.sleep(45.0)
    await world.settle(6 * HOUR_S)
    await world.crash()
    return await gathered(world)


@pytest.mark.long
def test_a_daemon_that_dies_in_the_middle_of_a_session_changes_nothing(tmp_path: Path) -> None:
    ended = virtual_time.run(died(tmp_path))

    assert ended.held == {}
    assert [r["kind"] for r in ended.journal if r["kind"].startswith("fabric")] == [
        "fabric_session",
        "fabric_verdicts",
    ]
    assert len({o.session for o in ended.outcomes.values()}) == 1
