"""A firmware object through the matrix and back: trays, switches with NVOS, shelves, and traps."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from test_firmware_object import BIOS, DOCUMENT, A, B, Json, file, load
from typer.testing import CliRunner, Result

from provisioner.integrations.racks import rack_commands
from provisioner.integrations.racks.firmware_object import RackFirmware, pin_files
from provisioner.integrations.racks.targets.object_pins import pin_object

C = "c" * 64
NVOS: Json = {
    "Component": "NVOS",
    "Version": "25.02.2553",
    "Locations": [file("nvos-amd64-25.02.2553.bin", "Binary", Sha256=C)],
}
CPLD: Json = {
    "Component": "CPLD",
    "Locations": [file("P4978_0007.fwpkg", Sha256="d" * 64)],
    "SubComponents": [
        {"Component": "CPLD1", "Version": "CPLD000370_REV0600"},
        {"Component": "CPLD2", "Version": "CPLD000377_REV1500"},
    ],
}


def make_document() -> Json:
    """The document of the reader's own tests, with NVOS, a BIOS and two CPLDs of the switch."""
    document = deepcopy(DOCUMENT)
    switch = document["Milestones"][0]["BoardSKUs"][0]["Components"]
    switch["Firmware"] += [deepcopy(BIOS), CPLD]
    switch["Firmware"][1]["Locations"][0]["Sha256"] = "e" * 64
    switch["Software"] = [NVOS]
    return document


def pinned(document: Json) -> RackFirmware:
    firmware, problems = pin_files(load(document), {"APP_v01040104.tar": A})
    assert problems == ()
    return firmware


def act(tmp_path: Path, document: Json, *more: str) -> Result:
    (tmp_path / "r.json").write_text(pinned(document).model_dump_json())
    words = ["overlay", str(tmp_path / "r.json"), "--release", "dgx-gb200-9.9.9"]
    like = ["--like", "dgx-gb200-1.3", "--evidence", "mail, read 2026-11-30", *more]
    return CliRunner().invoke(rack_commands.app, ["firmware-object", *words, *like])


def list_facts(firmware: RackFirmware) -> set[tuple[str, ...]]:
    """Each version of each machine, and each file that is written to one with its digest."""
    facts: set[tuple[str, ...]] = set()
    for board in firmware.boards:
        for one in board.components:
            stated = [(p.component.rstrip("1234"), p.version) for p in one.parts if p.version]
            stated += [(one.component, one.version)] if one.component in ("HMC", "NVOS") else []
            facts |= {(one.kind.value, *each) for each in stated if each[1]}
            facts |= {(one.kind.value, f.name, f.sha256) for f in one.files if f.is_payload}
    return facts


def test_every_version_file_and_digest_goes_through_the_matrix_and_comes_back(
    tmp_path: Path,
) -> None:
    out = tmp_path / "o.yaml"
    drafted = act(tmp_path, make_document(), "--out", str(out))
    assert drafted.exit_code == 0, drafted.output
    told = [line for line in drafted.output.splitlines() if line.startswith("not in the matrix")]
    label = "not in the matrix: nvlink-switch BMC+FPGA+EROT: "
    assert told == [
        f"{label}Firmware-Recovery nvfw_GB200-P4978_0004_recovery.fwpkg",
        f"{label}the package's own version GB200-P4978_0004_260127.1.3",
    ]
    profiles = yaml.safe_load(out.read_text())["releases"]["dgx-gb200-9.9.9"]["profiles"]
    switch = profiles["nvlink-switch"]["pins"]
    assert switch["nvswitch.os"]["version"] == "25.02.2553"
    assert (switch["nvswitch.os"]["artifact"], switch["nvswitch.os"]["sha256"]) == (
        "nvos-amd64-25.02.2553.bin",
        C,
    )
    assert switch["nvswitch.cpld"]["also"] == ["CPLD000377_REV1500"]
    assert "artifact" not in switch["nvswitch.erot"]  # both packages bring it
    assert profiles["power-shelf"]["pins"]["shelf.psu"]["artifact"] == "APP_v01040104.tar"
    assert profiles["gb200-tray"]["pins"]["hgx.gpu"]["also"] == ["97.00.B9.00.98"]

    words = ["export", "--release", "dgx-gb200-9.9.9", "--matrix", str(out)]
    exported = CliRunner().invoke(rack_commands.app, ["firmware-object", *words])
    assert exported.exit_code == 0, exported.output
    again = load(json.loads(exported.stdout))
    assert list_facts(again) == list_facts(pinned(make_document()))
    assert (
        pin_object(again, "mail, read 2026-11-30").pins
        == pin_object(pinned(make_document()), "mail, read 2026-11-30").pins
    )


def test_a_rack_targets_what_an_imported_object_says(tmp_path: Path) -> None:
    out = tmp_path / "o.yaml"
    assert act(tmp_path, make_document(), "--out", str(out)).exit_code == 0
    words = ["targets", "dgx-gb200-9.9.9", "--matrix", str(out)]
    drafted = CliRunner().invoke(rack_commands.app, words)
    targets = yaml.safe_load(drafted.stdout)["targets"]
    assert targets["nvlink-switch"] == {"switch-firmware": "88.0002.1336", "nvos": "25.02.2553"}
    assert targets["power-shelf"] == {"psu": "0104"}


def trap(change: Callable[[list[Json], list[Json]], None]) -> Json:
    document = make_document()
    boards = document["Milestones"][0]["BoardSKUs"]
    change(boards[0]["Components"]["Firmware"], boards[1]["Components"]["Firmware"])
    return document


def spoil_digest(switch: list[Json], _: list[Json]) -> None:
    del switch[0]["Locations"][0]["Sha256"]


def add_file(switch: list[Json], _: list[Json]) -> None:
    switch[0]["Locations"].append(file("second.fwpkg", Sha256=B))


def contradict(switch: list[Json], _: list[Json]) -> None:
    switch[1]["SubComponents"][1]["Version"] = "01.04.0031.0000_n04"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (spoil_digest, "nvfw_GB200-P4978_0004.fwpkg has no SHA-256"),
        (add_file, "2 files bring it"),
        (contradict, "nvswitch.erot is 01.04.0026.0000_n04 and 01.04.0031.0000_n04"),
    ],
)
def test_what_a_pin_cannot_hold_truly_is_refused_and_nothing_is_written(
    change: Callable[[list[Json], list[Json]], None], says: str
) -> None:
    told = pin_object(load(trap(change)), "")
    assert any(says in each for each in told.problems), told.problems


def test_traps_of_real_files_lose_nothing_on_the_way() -> None:
    """A null location, no SKU, an empty version, one kind in capitals, a shelf below a tray."""

    def spoil(switch: list[Json], tray: list[Json]) -> None:
        switch[0]["Locations"][0] |= {"Location": None, "LocationType": "HTTPS"}
        tray[0]["SubComponents"] += [{"Component": "hmc cpld", "Version": "0.22"}]
        tray[1]["SubComponents"][0] |= {"SKUID": None}

    told = pin_object(pinned(trap(spoil)), "")
    assert told.problems == []
    pins: Any = {kind.value: sorted(each) for kind, each in told.pins.items()}
    assert pins == {
        "nvlink-switch": [f"nvswitch.{n}" for n in ("bios", "bmc", "cpld", "erot", "os")],
        "compute-tray": ["hgx.bmc", "hgx.cpld", "hgx.gpu"],
        "power-shelf": ["shelf.psu"],
    }
