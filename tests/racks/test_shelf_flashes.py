"""Both flashes of a power shelf's controller: one whose version nobody pinned is not right."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from rack_rig import finish, held, make

from provisioner.integrations.racks.duty.rack_certificate import certify_rack
from provisioner.integrations.racks.update_start import read_rack_units

FLASH = {"power-shelf": {"pmc": "3.2.4"}}


@pytest.mark.parametrize("running", ["3.2.3", "3.2.4"])
def test_a_second_flash_without_a_pin_is_not_right_whatever_it_runs(
    tmp_path: Path, running: str
) -> None:
    rig = make(tmp_path, FLASH)
    rig.shelf("p0").flash = {"Primary": "3.2.4", "Backup": running}
    rig.packages["power-shelf"]["pmc"]["versions"] = {"FW_PMC_primary": ["3.2.4"]}
    key, why = held(rig)
    assert key == "p0/pmc-backup"
    assert why.startswith("no version of its backup flash is pinned: name it in the package")
    assert rig.rack.find("push") == []
    update = rig.update()
    told = certify_rack(
        update.plan, "r01", update.asked, asyncio.run(read_rack_units(update)), "winter", 0.0
    )
    assert told == (f"p0: pmc: FW_PMC_alt runs {running}, and the package names no version of it",)


def test_one_pin_for_all_flashes_writes_and_proves_both(tmp_path: Path) -> None:
    rig = make(tmp_path, FLASH)
    rig.packages["power-shelf"]["pmc"]["versions"] = {"FW_PMC_*": ["3.2.4"]}
    finish(rig)
    assert rig.shelf("p0").flash == {"Primary": "3.2.4", "Backup": "3.2.4"}
    assert len(rig.rack.find("push")) == 2
