"""What a rack's certificate says of its NVLink domain: judged anew, or the reason why it is not."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from duty_rig import Daemon
from proved_domain import keep, see, serials

from provisioner.integrations.racks.duty.rack_certificate import judge_fabric

GOOD = [
    "links and control plane of d01",
    "the GPUs' fabric, IMEX and NCCL of d01",
]


class Site(Daemon):
    """Two trays that are nodes, and a proof with their GPUs."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, {"compute-tray": {}})
        keep(folder, {tray: serials(tray) for tray in ("t0", "t1")})

    def judge(self, *, acted: bool = False) -> tuple[list[str], list[str]]:
        async def run() -> tuple[list[str], list[str]]:
            for number in (0, 1):
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
    assert proved == GOOD[:1]
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
