"""The daemon dies at each await of an onboarding and a reclaim with storage: no tenant is half.

The journey is the first two legs of `legs.py`: to tenant blue, taken back, to tenant red, in the
world of `storage_world.py`. In every run it dies twice within storage; as a long test everywhere
there, and `make soak NAME=crash-points ARGS="--storage"` has the awaits around it too.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest
from lives import explore
from storage_world import WORLDS, StorageWorld

from provisioner.execution.tenancy.spaces import TenantSpaces
from provisioner.execution.tenancy.tenancy import MoveOutcome, Tenancy

SEED = int(os.environ.get("SEED", "8"))
# so many points, and more, have these parts of a leg: within storage, and the rest of the time in
# which ports and addresses enter or leave a tenant
LEAST = {"storage": {"vast": 20, "lustre": 8}, "handover": {"vast": 20, "lustre": 20}}
BEHIND_S = 1800.0  # virtual: whatever a successor has to take up is over by then


@pytest.mark.long
@pytest.mark.parametrize("system", sorted(WORLDS))
@pytest.mark.parametrize("leg", ["blue", "red"])
@pytest.mark.parametrize("part", LEAST)
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no os.fork on this system")
def test_no_death_within_a_handover_leaves_a_half_tenant(
    tmp_path: Path, leg: str, part: str, system: str
) -> None:
    every = int(os.environ.get("EVERY", "1"))
    first, name = random.Random(SEED).randrange(every), f"{leg}, {part}"

    run = explore(
        tmp_path, lambda n, i: n == name and i % every == first, jobs=2, last=leg,
        kind=WORLDS[system], behind_s=None if part == "storage" else BEHIND_S,
    )  # fmt: skip

    assert run.wrong == ""
    assert {place: told for place, told in run.verdicts.items() if told} == {}
    assert run.legs[name] > LEAST[part][system]
    assert len(run.verdicts) >= run.legs[name] // every


async def _admit_first(
    self: Tenancy, ports: Any, vrf: str, *, node: Any = None, **ways: Any
) -> MoveOutcome:
    """Open the storage before the network, and close it after."""
    if self.spaces is not None and node is not None and vrf != "MAINT":
        await self.spaces.admit(node)
    return await self.move_ports(ports, vrf, node=node, **ways)


async def _forget(self: TenantSpaces, node: Any) -> tuple[()]:
    return ()


@pytest.mark.long
@pytest.mark.parametrize(
    ("place", "name", "instead", "leg", "words"),
    [
        (Tenancy, "move", _admit_first, "blue", "reads of"),
        (TenantSpaces, "expel", _forget, "red", "reads of"),
    ],
)
def test_a_daemon_that_keeps_another_order_is_judged_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: Any, name: str, instead: Any,
    leg: str, words: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(place, name, instead)

    run = explore(tmp_path, lambda _leg, _number: False, jobs=1, last=leg, kind=StorageWorld)

    assert words in run.wrong
