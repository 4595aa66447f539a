"""Tests among nodes where leaves keep hosts apart: doors are open while mpirun runs, then shut."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import virtual_time
from rig import World
from test_fabric_sessions import HOUR_S, Place

from provisioner.control.context import Context
from provisioner.control.fabric.fabric import FabricSessions
from provisioner.execution.tenancy.release_sequence import HostsApart
from provisioner.execution.validate.fabric_tests import FabricTests
from provisioner.integrations.cumulus.port_filter import NAME
from provisioner.model.node import NodeKind

SETTINGS: dict[str, Any] = {
    "certify_gates": "abc",
    "fabric_nccl": True,
    "lookup_networks": ("10.64.0.0/16",),
    "lookup_ports": ("leaf-*/swp[1-9]s*",),
}


def doors(world: World) -> set[int]:
    """How many rules of doors the leaves have, in every tree."""
    found = set()
    for name, switch in world.site.switches.items():
        if name.startswith("leaf"):
            for tree in (switch.applied, switch.startup, switch.operational):
                rules = tree.get("acl", {}).get(NAME, {}).get("rule", {})
                found.add(sum(int(n) < 20_000 for n in rules) if rules else -1)
    return found


class DoorPlace(Place):
    """Sessions with doors, or without any."""

    def __init__(self, world: World, *, opens: bool) -> None:
        super().__init__(world)
        self._opens = opens

    @property
    def apart(self) -> HostsApart:
        daemon = self.world.daemon
        assert daemon is not None
        return HostsApart(daemon.site, self.store, daemon.tenancy)

    def start(self) -> None:
        daemon = self.world.daemon
        assert daemon is not None
        tests = FabricTests(daemon.site, self.store, daemon.parts.matrix)
        context = Context(self.store, self.world.clock, self.world.settings)
        apart = self.apart if self._opens else None
        self.sessions = FabricSessions(context, tests, apart=apart)
        self._ticking = asyncio.create_task(self.sessions.run())


def live(directory: Path, *, opens: bool, crash: bool = False) -> tuple[Any, list[set[int]]]:
    """Outcomes of a session over six nodes, and the doors before, while and after it ran."""

    async def main() -> tuple[Any, list[set[int]]]:
        world = World(directory, nodes=6, seed=3, **SETTINGS)
        place = DoorPlace(world, opens=opens)
        await place.prepare(())
        hosts = [n for n in await place.store.nodes.list() if n.kind is NodeKind.HOST]
        assert await place.apart.bring(hosts) == ()
        seen = [doors(world)]
        place.start()
        until = world.clock.now() + 3 * HOUR_S
        while not any(s.doors for s in await place.store.fabric.list_sessions()):
            await world.clock.sleep(0.5)
            if world.clock.now() > until:
                break
        if opens:
            while 0 in doors(world):
                await world.clock.sleep(0.5)
            await world.clock.sleep(20.0)
            seen.append(doors(world))
        if crash:
            await place.stop()
            place.start()
        await world.clock.sleep(3 * HOUR_S)
        await place.stop()
        seen.append(doors(world))
        return await place.outcomes(), seen

    return virtual_time.run(main())


@pytest.mark.parametrize(
    "crash",
    [
        pytest.param(False, id="", marks=pytest.mark.long),
        pytest.param(True, id="and its daemon dies"),
    ],
)
def test_doors_are_open_for_a_round_and_shut_after_it(tmp_path: Path, crash: bool) -> None:
    outcomes, (before, during, after) = live(tmp_path, opens=True, crash=crash)

    assert before == after == {0}
    assert min(during) > 0
    assert all(o.passed for o in outcomes.values()), outcomes
    measured = [name for o in outcomes.values() for r in o.results for name in r.measured]
    assert sum(name.startswith("nccl_rail_gb_s") for name in measured) == 6 * 8


@pytest.mark.long  # tests/real/test_mpi_door.py lets nobody in that a door does not name
def test_without_a_door_mpirun_does_not_come_about(tmp_path: Path) -> None:
    outcomes, seen = live(tmp_path, opens=False)

    assert seen == [{0}, {0}]
    assert len(outcomes) == 6
    assert {o.blockers[0].subject for o in outcomes.values()} == {
        f"{n}/nccl_rail" for n in outcomes
    }
    assert all("NCCL gave no result" in o.blockers[0].detail for o in outcomes.values())
