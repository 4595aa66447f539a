"""What a rack's certificate says of its NVLink domain: judged anew, or the reason why it is not."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from duty_rig import Daemon
from proved_domain import keep, see, serials
from test_handed_over_partitions import UUID, Wire, make_partitions

from provisioner.integrations.demo.rack_site import CHASSIS
from provisioner.integrations.racks.duty.rack_certificate import judge_fabric
from provisioner.integrations.racks.partitions.owed_acts import FILE, OwedAct, OwedFile
from provisioner.integrations.racks.partitions.partition_proof import UNSET
from provisioner.integrations.racks.partitions.tenant_partitions import PartitionAct, Verb
from provisioner.integrations.sim.racks.nmx import Nmx
from provisioner.model.node import Placement, State
from provisioner.model.operation import OperationStatus

GOOD = [
    "links and control plane of d01",
    "the GPUs' fabric, IMEX and NCCL of d01",
    "partitions of d01",
]
TENANT = {"placement": Placement.CUSTOMER, "beside": ("nvlink_partition",), "served": "acme"}


class Site(Daemon):
    """Two trays that are nodes, and a proof with their GPUs."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, {"compute-tray": {}})
        keep(folder, {tray: serials(tray) for tray in ("t0", "t1")})
        self.nodes = (0, 1)
        self.manager = Nmx()
        for unit in self.rig.plan().racks[0].units[:2]:
            self.manager.add_tray(UUID, CHASSIS, unit.slot or 0)
        self.manager.add_default()
        self.wire = Wire(self.manager)
        beside = make_partitions(folder / "racks.yaml", self.wire)
        self.parts.fabrics = SimpleNamespace(memberships=[beside])

    def take(self, name: str, gpus: slice, number: int = 7) -> None:
        """Have a foreign hand put GPUs into a partition of another name."""
        default = self.manager.partitions["default"]["Members"]
        taken = default[gpus]
        del default[gpus]
        self.manager._store(name, number, name, taken)

    def serve(self, tray: int) -> None:
        """Have a tray be a tenant's, as its handover leaves it."""

        async def run() -> None:
            node = await self.store.nodes.get(f"n{tray}")
            one = await self.store.operations.open(f"n{tray}", "released", 0.0)
            assert node is not None
            assert one is not None
            serves = node.model_copy(update={**TENANT, "state": State.RELEASED})
            one, _ = await self.store.operations.record(one, node=serves, now=0.0)
            await self.store.operations.end(one, OperationStatus.DONE, "")

        asyncio.run(run())

    def judge(self, *, acted: bool = False) -> tuple[list[str], list[str]]:
        async def run() -> tuple[list[str], list[str]]:
            for number in self.nodes:
                if await self.store.nodes.get(f"n{number}") is None:
                    await self.add(number=number)
                    seen = see(f"t{number}").model_copy(update={"node": f"n{number}"})
                    await self.store.evidence.put_inventory(seen, 0.0)
            update = self.rig.update()
            duty = self.duty()
            rack = update.plan.racks[0]
            told = await judge_fabric(update, rack, duty.holds, acted=acted)
            return list(told[0]), list(told[1])

        return asyncio.run(run())


WRONG: dict[str, tuple[Callable[[Site], Any], int, str]] = {
    "a link": (
        lambda site: site.rig.switch("s0").faults.links.update({"startup/acp1": "down"}),
        0,
        "s0/acp1: wanted up, effective up, applied not said, startup down (1 of 1)",
    ),
    "a mute switch": (
        lambda site: setattr(site.rig.switch("s0").faults, "nvos_dead", True),
        0,
        "s0: its links and its controller were not read",
    ),
    "other GPUs": (
        lambda site: keep(site.folder, {"t0": ("x",), "t1": serials("t1")}),
        1,
        "its proof was made with other GPUs in t0 than are there now",
    ),
    "no proof": (lambda site: (site.folder / "fabric/d01.json").unlink(), 1, "nobody proved"),
}


def test_a_certificate_names_what_was_judged_anew_and_from_a_persons_proof(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.rig.rack.now = time.time()
    assert site.judge() == (GOOD, [])
    proved, left = site.judge(acted=True)
    assert proved == [GOOD[0], GOOD[2]]
    assert [one.partition(": ")[0] for one in left] == [GOOD[1]]


@pytest.mark.parametrize("name", WRONG)
def test_a_certificate_says_why_a_part_of_the_fabric_is_not_proved(
    tmp_path: Path, name: str
) -> None:
    site = Site(tmp_path)
    site.rig.rack.now = time.time()
    assert site.judge() == (GOOD, [])
    spoil, which, why = WRONG[name]
    spoil(site)
    proved, (told,) = site.judge()
    assert proved == [one for n, one in enumerate(GOOD) if n != which]
    assert told.startswith(f"{GOOD[which]}: {why}")


def _owe(site: Site) -> None:
    act = PartitionAct(Verb.CREATE, "blue.d01")
    owed = OwedFile(acts=(OwedAct(act=act, at=0.0, operation="op1", completed=True),))
    (site.folder / FILE).write_text(owed.model_dump_json())


def _change_between_two_looks(site: Site) -> None:
    pause = site.rig.pause

    async def change(seconds: float) -> None:
        await pause(seconds)
        site.take("theirs", slice(4))

    site.rig.pause = change  # type: ignore[method-assign]


LACKS: dict[str, tuple[Callable[[Site], Any], str]] = {
    "no manager is set": (lambda site: setattr(site.parts, "fabrics", None), UNSET),
    "silence": (
        lambda site: setattr(site.wire, "silent", True),
        "the manager's lists were not read: no answer",
    ),
    "no GPUs": (lambda site: site.manager.gpus.clear(), "t0: the manager lists no GPU of rack r01"),
    "one tray is not listed": (
        lambda site: site.manager.gpus.__delitem__(slice(4)),
        "t0: the manager lists 0 GPUs of it, and of others 4",
    ),
    "one GPU is not listed": (
        lambda site: site.manager.gpus.pop(),
        "t1: the manager lists 3 GPUs of it, and of others 4",
    ),
    "in another's": (
        lambda site: site.take("theirs", slice(4, None)),
        "t1: 4 of its GPUs are in theirs",
    ),
    "one GPU in another's": (
        lambda site: site.take("theirs", slice(3, 4)),
        "t0: 1 of its GPUs are in theirs",
    ),
    "a late one": (_owe, "the manager does not list the end of create blue.d01"),
    "it changes": (_change_between_two_looks, "t0: 4 of its GPUs are in theirs"),
    "no node": (lambda site: setattr(site, "nodes", (0,)), "t1 was not judged"),
}


@pytest.mark.parametrize("name", LACKS)
def test_a_certificate_proves_no_partitions_but_by_the_managers_own_whole_answer(
    tmp_path: Path, name: str
) -> None:
    site = Site(tmp_path)
    site.rig.rack.now = time.time()
    spoil, why = LACKS[name]
    spoil(site)
    proved, left = site.judge()
    assert GOOD[2] not in proved
    assert left[-1].startswith(f"{GOOD[2]}: {why}"), left
    assert site.manager.log == []


def test_a_certificate_proves_the_partition_of_a_tray_that_serves_and_not_a_lost_one(
    tmp_path: Path,
) -> None:
    site = Site(tmp_path)
    site.rig.rack.now = time.time()
    site.take("acme.d01", slice(4))
    assert site.judge()[1] == ["partitions of d01: t0: 4 of its GPUs are in acme.d01"]
    site.serve(0)
    assert site.judge() == (GOOD, [])
    site.manager.partitions["acme.d01"]["Members"].pop()
    proved, (told,) = site.judge()
    assert proved == GOOD[:2]
    assert told.startswith("partitions of d01: t0: 1 of its 4 GPUs are not in acme.d01")
