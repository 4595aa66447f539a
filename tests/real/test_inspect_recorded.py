"""`inspect` against recorded machines, compared with figures computed from the raw trees."""

from __future__ import annotations

import functools
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from static_tree import recorded_tree, serving
from typer.testing import CliRunner

from provisioner.cli import app

# what machines print where they have no version, as recorded
NO_VERSION = {"version not available", "Not Present", "-*", "", None}
# the recorded items whose Version is an identity
IDENTITIES = {"DPU_BOARD", "DPU_NODE", "DPU_SYS_IMAGE"}
ALL_TREES = [
    "nvidia_viking",
    "nvidia_dpu",
    "dell",
    "dell_multi_dpu",
    "hpe",
    "lenovo",
    "supermicro",
    "nvidia_gb200",
    "nvidia_gh200",
    "nvidia_gbswitch",
]


def resource(tree: Path, path: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((tree / path.strip("/") / "index.json").read_text())
    return found


@functools.cache
def tree_of(name: str, scratch: Path) -> Path:
    (scratch / name).mkdir(exist_ok=True)  # a tree that is not here is asked for by each test
    return recorded_tree(name, scratch / name)


@functools.cache
def inspected(name: str, scratch: Path) -> dict[str, Any]:
    """What `inspect` shows of a recorded tree; read once, since a DGX has hundreds of resources."""
    with serving(tree_of(name, scratch)) as url:
        result = CliRunner().invoke(app, ["inspect", url, "--json"])
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where trees are unpacked that come as archives."""
    return tmp_path_factory.mktemp("trees")


@pytest.mark.parametrize("name", ALL_TREES)
def test_every_firmware_member_appears_once_with_the_version_that_the_tree_gives_or_a_gap(
    name: str, scratch: Path
) -> None:
    tree = tree_of(name, scratch)
    inventory = resource(tree, "/redfish/v1/UpdateService/FirmwareInventory")
    wanted: dict[str, tuple[str | None, bool | None]] = {}
    for member in inventory["Members"]:
        data = resource(tree, member["@odata.id"])
        said = data.get("Version")
        none = said in NO_VERSION or data["Id"] in IDENTITIES
        wanted[member["@odata.id"]] = (None if none else said.strip(), data.get("Updateable"))

    found = inspected(name, scratch)

    listed = [c for c in found["components"] if "/FirmwareInventory/" in c["source"]]
    assert len(listed) == len(wanted)
    assert {c["source"]: (c["version"], c["updateable"]) for c in listed} == wanted
    places = Counter((c["kind"], c["slot"]) for c in found["components"])
    gaps = {g["source"] for g in found["gaps"]}
    assert [p for p, n in places.items() if n > 1] == []
    assert {c["source"] for c in found["components"] if c["version"] is None} <= gaps


def test_a_dgx_shows_its_baseboard_gpus_switches_and_background_copies(scratch: Path) -> None:
    tree = tree_of("nvidia_viking", scratch)
    chassis = resource(tree, "/redfish/v1/Chassis")["Members"]
    copied = [
        c["@odata.id"]
        for c in chassis
        if "BackgroundCopyStatus"
        in (resource(tree, c["@odata.id"]).get("Oem") or {}).get("Nvidia", {})
    ]

    found = inspected("nvidia_viking", scratch)

    kinds = Counter(c["kind"] for c in found["components"])
    devices = Counter(d["kind"] for d in found["devices"])
    serials = [d["serial"] for d in found["devices"] if d["kind"] == "gpu"]
    system = resource(tree, "/redfish/v1/Systems/DGX")
    gpus = [f"/redfish/v1/Systems/HGX_Baseboard_0/Processors/GPU_SXM_{n}" for n in range(1, 9)]
    assert found["quirk"] == "ami_megarac"
    assert found["system"]["serial"] == system["SerialNumber"]
    assert kinds["hgx.erot"] == 15
    assert (kinds["hgx.gpu"], kinds["hgx.nvswitch"], kinds["hgx.driver"]) == (8, 4, 12)
    assert (devices["gpu"], devices["nvswitch"], devices["baseboard"]) == (8, 4, 1)
    assert serials == [resource(tree, g)["SerialNumber"] for g in gpus]
    assert sum(c["background_copy"] is not None for c in found["components"]) == len(copied) > 0
    assert kinds["unclassified"] == 0


def test_a_bluefield_shows_its_card_and_tells_identities_from_versions(scratch: Path) -> None:
    tree = tree_of("nvidia_dpu", scratch)

    found = inspected("nvidia_dpu", scratch)

    card = next(d for d in found["devices"] if d["kind"] == "dpu")
    by_kind = {c["kind"]: c for c in found["components"]}
    identities = {c["part"] for c in found["components"] if c["kind"] == "bluefield.identity"}
    base = resource(tree, "/redfish/v1/Systems/Bluefield/Oem/Nvidia")["BaseMAC"]
    assert found["quirk"] == "nvidia_openbmc"
    assert card["mac"].replace(":", "") == base
    assert card["serial"] == resource(tree, "/redfish/v1/Chassis/Card1")["SerialNumber"]
    assert by_kind["bluefield.bundle"]["version"].startswith("bf-bundle-2.9.0")
    assert by_kind["bluefield.nic"]["updateable"] is False
    assert "MT_0000000884" in identities


def test_a_dell_previous_version_is_never_taken_for_the_running_one(scratch: Path) -> None:
    found = inspected("dell", scratch)

    running = {c["kind"]: c["version"] for c in found["components"]}
    copies = Counter(c["kind"] for c in found["components"])
    assert running["host.bios"] == "1.8.2"
    assert running["host.bmc"] == "6.00.30.00"
    assert (copies["copy.previous"], copies["copy.current"]) == (2, 6)
    assert copies["unclassified"] == 0
