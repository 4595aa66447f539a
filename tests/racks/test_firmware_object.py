"""NVIDIA's firmware objects: nothing is lost on the way in and out, and no trap passes.

The document has the shape that nv-rms ("Firmware Sources and Manifests") and infra-controller
("SOT firmware-object JSON") publish; versions are those of DGX GB200 1.3.6, digests are made up.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

sys.path.append(str(Path(__file__).parents[1] / "planning"))  # the builder of packages

from import_files import pldm_package

from provisioner.integrations.racks import rack_commands
from provisioner.integrations.racks.firmware_object import (
    RackFirmware,
    find_swapped,
    pin_files,
    read_firmware_object,
    write_firmware_object,
)
from provisioner.integrations.racks.identity import Kind
from provisioner.model.input_error import InputError

Json = dict[str, Any]
A, B = "a" * 64, "b" * 64


def file(name: str, role: str = "Firmware", **more: object) -> Json:
    place = f"https://files.example/fw/{name}"
    return {"Location": place, "LocationType": "https", "FileName": name, "Type": role} | more


SWITCH: Json = {
    "Component": "BMC+FPGA+EROT",
    "Version": "GB200-P4978_0004_260127.1.3",
    "Type": "Prod",
    "Bundle": "P4978",
    "FileNames": ["nvfw_GB200-P4978_0004.fwpkg"],
    "Locations": [
        file("nvfw_GB200-P4978_0004.fwpkg", Sha256=A.upper()),
        file("nvfw_GB200-P4978_0004_recovery.fwpkg", "Firmware-Recovery"),
    ],
    "SubComponents": [
        {"Component": "BMC", "Version": "88.0002.1336"},
        {"Component": "EROT", "Version": "01.04.0026.0000_n04"},
    ],
}
TRAY: Json = {
    "Component": "HMC",
    "Version": "GB200Nvl-25.06-A",
    "Locations": [file("nvfw%20HGX.fwpkg", LocationType="HTTPS", Sha256=B)],
    "SubComponents": [
        {"Component": "GPU", "Version": "97.00.B9.00.99", "SKUID": "1"},
        {"Component": "GPU", "Version": "97.00.B9.00.98", "SKUID": "2"},
        {"Component": "CX7", "Version": ""},
    ],
}
SHELF: Json = {  # stands below the compute tray, its files below its parts
    "Component": "Powershelf FW",
    "Version": "",
    "Locations": [{"Location": None, "LocationType": None}],
    "SubComponents": [{"Component": "PSU", "Version": "0104", "FileNames": ["APP_v01040104.tar"]}],
}
DOCUMENT: Json = {
    "ProductName": "DGXGB200",
    "Milestones": [
        {
            "Name": "1.3.6",
            "State": "Released",
            "BoardSKUs": [
                {
                    "Name": "GB200 Switch",
                    "SKUID": "P4978",
                    "Type": "Switch Tray",
                    "Components": {"Firmware": [SWITCH], "Software": [{"Component": "NVOS"}]},
                },
                {
                    "Type": "Compute Node",
                    "Components": {"Firmware": [TRAY, SHELF], "Software": None},
                },
            ],
        }
    ],
}


def load(document: object) -> RackFirmware:
    return read_firmware_object("f.json", json.dumps(document).encode())


def collect(value: object, keys: set[str]) -> list[str]:
    """Return each text below one of the keys, in any order."""
    if isinstance(value, list):
        return sorted(each for one in value for each in collect(one, keys))
    if not isinstance(value, dict):
        return []
    own = [str(v).lower() for k, v in value.items() if k in keys and isinstance(v, str) and v]
    own += [n for k, v in value.items() if k == "FileNames" for n in v or ()]
    return sorted([*own, *(each for v in value.values() for each in collect(v, keys))])


def test_each_version_file_and_digest_survives_the_way_in_and_out() -> None:
    kept = {"Version", "Sha256", "Location", "SKUID", "Component", "Bundle", "Name", "ProductName"}
    once = load(DOCUMENT)
    written = write_firmware_object(once)

    assert load(written) == once
    assert collect(written, kept) == collect(DOCUMENT, kept)
    assert [file.name for _, file in once.list_files()][2] == "nvfw HGX.fwpkg"


def test_a_shelf_below_a_compute_tray_is_a_shelf_and_a_gpu_may_have_two_versions() -> None:
    boards = load(DOCUMENT).boards
    assert [c.kind for c in boards[1].components] == [Kind.COMPUTE_TRAY, Kind.POWER_SHELF]
    assert [p.version for p in boards[1].components[0].parts if p.component == "GPU"] == [
        "97.00.B9.00.99",
        "97.00.B9.00.98",
    ]


def test_a_recovery_image_is_no_payload_and_each_payload_needs_a_digest() -> None:
    roles = {file.name: file.is_payload for _, file in load(DOCUMENT).list_files()}
    assert roles == {
        "nvfw_GB200-P4978_0004.fwpkg": True,
        "nvfw_GB200-P4978_0004_recovery.fwpkg": False,
        "nvfw HGX.fwpkg": True,
        "": False,
        "APP_v01040104.tar": True,  # named below a part, without any location
    }
    tar = {"APP_v01040104.tar": A}
    assert "APP_v01040104.tar: no SHA-256" in pin_files(load(DOCUMENT), {})[1][0]
    bare = deepcopy(DOCUMENT)
    del bare["Milestones"][0]["BoardSKUs"][1]["Components"]["Firmware"][0]["Locations"][0]["Sha256"]
    assert "no SHA-256" in pin_files(load(bare), {})[1][0]
    pinned, problems = pin_files(load(bare), {"nvfw HGX.fwpkg": B, **tar})
    assert problems == ()
    assert pinned == pin_files(load(DOCUMENT), tar)[0]
    assert load(write_firmware_object(pinned)) == pinned
    assert "another" in pin_files(load(DOCUMENT), {"nvfw HGX.fwpkg": A})[1][0]


def test_a_field_that_the_format_does_not_know_is_told() -> None:
    more = deepcopy(DOCUMENT)
    more["Milestones"][0]["BoardSKUs"][0]["Components"]["Firmware"][0]["Locations"][0] |= {
        "PackageName": "p",
        "Empty": "",
    }
    assert load(more).not_kept == (
        "Milestones[].BoardSKUs[].Components.Firmware[].Locations[].PackageName",
    )


BIOS: Json = {
    "Component": "SBIOS+EROT",
    "Locations": [file("nvfw_GB200-P4978_0006.fwpkg", Sha256=B)],
    "SubComponents": [
        {"Component": "SBIOS", "Version": "00.01.022"},
        {"Component": "EROT", "Version": "01.04.0026.0000_n04"},
    ],
}


def with_bios() -> Json:
    document = deepcopy(DOCUMENT)
    document["Milestones"][0]["BoardSKUs"][0]["Components"]["Firmware"].append(deepcopy(BIOS))
    return document


def test_packages_whose_labels_are_swapped_are_told_by_what_is_inside_them() -> None:
    """NICo's own bundle 1.3.1 has 0004 and 0006 the other way round than NVIDIA's guide."""
    bmc, bios = "nvfw_GB200-P4978_0004.fwpkg", "nvfw_GB200-P4978_0006.fwpkg"
    erot = "01.04.0026.0000_n04"
    inside = {bmc: frozenset({"88.0002.1336", erot}), bios: frozenset({"0ACTV_00.01.022", erot})}
    swapped = {bmc: inside[bios], bios: inside[bmc]}
    release = load(with_bios())

    assert find_swapped(release, inside) == ()
    assert find_swapped(release, {bmc: frozenset({erot}), bios: frozenset()}) == ()
    assert find_swapped(release, swapped) == (
        f"{bmc}: it is listed for BMC+FPGA+EROT and holds SBIOS+EROT's 00.01.022",
        f"{bios}: it is listed for SBIOS+EROT and holds BMC+FPGA+EROT's 88.0002.1336",
    )


def test_an_import_opens_each_package_and_refuses_what_is_swapped(tmp_path: Path) -> None:
    files = {
        "nvfw_GB200-P4978_0004.fwpkg": pldm_package("made", [("x", ["00.01.022"])]),
        "nvfw_GB200-P4978_0006.fwpkg": pldm_package("made", [("x", ["88.0002.1336"])]),
        "nvfw HGX.fwpkg": pldm_package("made", [("x", ["GB200Nvl-25.06-A"])]),
        "APP_v01040104.tar": b"tar",
    }
    document = with_bios()
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    for board in document["Milestones"][0]["BoardSKUs"]:
        for component in board["Components"]["Firmware"]:
            for each in component["Locations"]:
                each.pop("Sha256", None)
    (tmp_path / "f.json").write_text(json.dumps(document))
    source = str(tmp_path / "f.json")
    words = ["firmware-object", "import", source, "--files", str(tmp_path), "--json"]

    told = CliRunner().invoke(rack_commands.app, words)
    problems = json.loads(told.stdout)["problems"]

    assert told.exit_code == 1
    assert len(problems) == 2
    assert all("it is listed for" in each for each in problems)


def put(path: str, value: object) -> Callable[[Json], None]:
    """Return what sets the value at a dotted path."""

    def act(document: Json) -> None:
        keys = [int(k) if k.isdigit() else k for k in path.split(".")]
        at: Any = document
        for key in keys[:-1]:
            at = at[key]
        at[keys[-1]] = value

    return act


BOARD = "Milestones.0.BoardSKUs.0"
FILE = f"{BOARD}.Components.Firmware.0.Locations.0"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (put("Milestones", []), "it has 0"),
        (put("Milestones", DOCUMENT["Milestones"] * 2), "it has 2"),
        (put("Milestones", {}), "no list"),
        (put("ProductName", None), "missing"),
        (put("ProductName", 7), "no text"),
        (put("Milestones.0.Name", " "), "missing"),
        (put("Milestones.0.BoardSKUs", []), "empty"),
        (put(f"{BOARD}.Type", "Storage Node"), "board of type Storage Node"),
        (put(f"{BOARD}.Components", None), "no object"),
        (put(f"{FILE}.Type", "Recovery"), "file of type Recovery"),
        (put(f"{FILE}.LocationType", "s3"), "nobody knows s3"),
        (put(f"{FILE}.Sha256", "a3f1..."), "no SHA-256"),
        (put(f"{FILE}.Location", "https://me:secret@files.example/x"), "holds a login"),
        (put(f"{FILE}.Location", "https://[::1"), "no address"),
        (put(f"{FILE}.FileName", "..%2f..%2fetc"), "no plain file name"),
        (put(f"{FILE}.FileName", "a\x00b"), "no text of one line"),
        (put(f"{FILE}.FileName", "%00"), "no plain file name"),
        (put(f"{BOARD}.Components.Firmware", [SWITCH] * 513), "at most 512"),
    ],
)
def test_a_document_that_nobody_can_mean_is_refused(
    change: Callable[[Json], None], says: str
) -> None:
    document = deepcopy(DOCUMENT)
    change(document)

    with pytest.raises(InputError, match=says) as refused:
        load(document)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "no JSON"),
        (b"[]", "no object"),
        (b"\xff\xfe", "no JSON"),
        (b"[" * 100_000, "nested more than"),
        (b'{"a":' * 30 + b"1" + b"}" * 30, "nested more than"),
        (b'{"ProductName": "a", "ProductName": "b"}', "twice"),
        (b'{"n": ' + b"9" * 5000 + b"}", "no JSON"),
        (b" " * (8 * 2**20 + 1), "larger than"),
    ],
)
def test_bytes_that_are_no_document_are_refused(content: bytes, says: str) -> None:
    with pytest.raises(InputError, match=says):
        read_firmware_object("f.json", content)


def places(value: object, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(value, dict):
        inner = [p for k, v in value.items() for p in places(v, (*at, k))]
    elif isinstance(value, list):
        inner = [p for n, v in enumerate(value) for p in places(v, (*at, n))]
    else:
        return [at]
    return [at, *inner] if at else inner


def test_no_change_of_one_field_crashes_it_or_is_lost() -> None:
    for place in places(DOCUMENT):
        for odd in (None, "", "x", 0, True, [], {}, [None], {"a": 1}, "x" * 3000, [["x"]]):
            document = deepcopy(DOCUMENT)
            at: Any = document
            for key in place[:-1]:
                at = at[key]
            at[place[-1]] = odd
            try:
                read = load(document)
            except InputError:
                continue
            assert load(write_firmware_object(read)) == read.model_copy(update={"not_kept": ()})


def test_an_object_is_imported_with_its_files_and_exported(tmp_path: Path) -> None:
    (tmp_path / "nvfw HGX.fwpkg").write_bytes(b"image")
    (tmp_path / "APP_v01040104.tar").write_bytes(b"tar")
    document = deepcopy(DOCUMENT)
    document["Milestones"][0]["BoardSKUs"][1]["Components"]["Firmware"][0]["Locations"][0][
        "Sha256"
    ] = hashlib.sha256(b"image").hexdigest()
    source = tmp_path / "f.json"
    kept = tmp_path / "r.json"
    source.write_text(json.dumps(document))
    words = ["firmware-object", "import", str(source), "--files", str(tmp_path), "--out", str(kept)]

    imported = CliRunner().invoke(rack_commands.app, words)
    exported = CliRunner().invoke(rack_commands.app, ["firmware-object", "export", str(kept)])

    assert imported.exit_code == 0, imported.output
    assert "DGXGB200 1.3.6 Released" in imported.stdout
    tar = {"APP_v01040104.tar": hashlib.sha256(b"tar").hexdigest()}
    assert load(json.loads(exported.stdout)) == pin_files(load(document), tar)[0]
    (tmp_path / "nvfw HGX.fwpkg").write_bytes(b"other")
    again = CliRunner().invoke(rack_commands.app, [*words[:-1], str(tmp_path / "x.json")])
    assert again.exit_code == 1
    assert not (tmp_path / "x.json").exists()
    assert "another" in again.stdout


def test_the_versions_of_compute_trays_go_into_the_matrix_by_its_own_command(
    tmp_path: Path,
) -> None:
    """`matrix refresh` drafts an overlay for a person to review; switches and shelves are told."""
    document = deepcopy(DOCUMENT)
    tray = document["Milestones"][0]["BoardSKUs"][1]["Components"]["Firmware"][0]
    tray |= {"Type": "Prod", "SubComponents": [{"Component": "GPU", "Version": "97.00.B9.00.99"}]}
    (tmp_path / "object.json").write_text(json.dumps(document))
    out = tmp_path / "overlay.yaml"
    command = ["matrix", "refresh", str(tmp_path / "object.json"), "--release", "dgx-gb200-1.3.6"]
    more = ["--profile", "gb200-tray", "--evidence", "x, read 2026-11-30", "--map", "GPU=hgx.gpu"]
    told = subprocess.run(
        [sys.executable, "-m", "provisioner", *command, *more, "--out", str(out)],
        capture_output=True,
        text=True,
        check=True,
    )
    pins = yaml.safe_load(out.read_text())["releases"]["dgx-gb200-1.3.6"]["profiles"]["gb200-tray"]
    assert pins["pins"]["hgx.gpu"]["version"] == "97.00.B9.00.99"
    assert "is a Switch Tray: not a compute tray" in told.stderr
