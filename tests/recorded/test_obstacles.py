"""Licences and lockdowns that a BMC reports: named in its inventory, in plans, before any write."""

from __future__ import annotations

import asyncio
import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from golden_requests import IMAGE, TREES, read_tree, run_dry
from tree_transport import ADDRESS, TreeTransport

from provisioner import quirks
from provisioner.adapters.redfish.client import Redfish
from provisioner.integrations.recordings.bmc_commands import Request
from provisioner.model.inventory import Inventory

V1 = "/redfish/v1"
BOOT = Request("boot-maintenance", image=IMAGE)
LICENCES = {
    "hpe_ilo5": (f"{V1}/Managers/1/LicenseService/1", {"License": "iLO Standard"}),
    "dell_idrac9": ("DellLicense", {"LicenseDescription": ["iDRAC9 15g Express License"]}),
    "supermicro_x13": (f"{V1}/Managers/1/LicenseManager/QueryLicense", {"Licenses": []}),
}


@pytest.fixture
def package(tmp_path: Path) -> Path:
    file = tmp_path / "firmware.fwpkg"
    file.write_bytes(b"firmware")
    return file


def collect(tree: dict[str, Any]) -> Inventory:
    client = Redfish(TreeTransport(tree), ADDRESS, quirks.identify(tree[V1]))
    return asyncio.run(client.collect("n", "host"))


def without_licence(name: str) -> dict[str, Any]:
    tree, (where, change) = deepcopy(read_tree(name)), LICENCES[name]
    changed = [p for p in tree if where in p and "Members" not in tree[p]]
    changed += [p for p in tree if "LicenseDescription" in json.dumps(tree[p]) and where in p]
    for path in changed:
        if "Members" in tree[path]:
            tree[path]["Members"] = [m | change for m in tree[path]["Members"]]
        else:
            tree[path] = tree[path] | change | {"LicenseTier": None}
    return tree


def locked() -> dict[str, Any]:
    """A PowerEdge in System Lockdown Mode. source: iDRAC9 User's Guide."""
    tree = deepcopy(read_tree("dell_idrac9"))
    for path, resource in tree.items():
        if path.endswith("DellAttributes/iDRAC.Embedded.1"):
            resource["Attributes"]["Lockdown.1.SystemLockdown"] = "Enabled"
    return tree


@pytest.mark.parametrize("name", TREES)
def test_the_recorded_trees_report_no_obstacle(name: str) -> None:
    assert collect(read_tree(name)).obstacles == ()


@pytest.mark.parametrize("name", LICENCES)
def test_a_missing_licence_is_refused_before_anything_is_sent(name: str, package: Path) -> None:
    tree, push = without_licence(name), Request("push", "host.bios", file=package)

    refused = run_dry(tree, push if name == "supermicro_x13" else BOOT)

    assert refused["writes"] == []
    assert refused["refused"]["reason"] == "not_offered"
    assert refused["refused"]["unblock"].startswith("Install the licence")


@pytest.mark.parametrize(
    ("name", "hinders"),
    [("hpe_ilo5", ("media",)), ("dell_idrac9", ("media",)), ("supermicro_x13", ("push",))],
)
def test_a_missing_licence_is_in_the_inventory(name: str, hinders: tuple[str, ...]) -> None:
    (obstacle,) = collect(without_licence(name)).obstacles

    assert (obstacle.bmc, obstacle.name, obstacle.hinders) == ("host", "licence", hinders)


def test_licences_that_cannot_be_read_block_nothing(package: Path) -> None:
    tree = deepcopy(read_tree("supermicro_x13"))
    del tree[f"{V1}/Managers/1/LicenseManager/QueryLicense"]
    push = Request("push", "host.bios", file=package)

    assert run_dry(tree, push)["refused"] is None
    seen = collect(tree)
    assert seen.obstacles == ()
    assert not [gap for gap in seen.gaps if "License" in gap.source]


@pytest.mark.parametrize(
    "request_",
    [
        BOOT,
        Request("boot-maintenance", image=IMAGE, way="pxe"),
        Request("boot-disk"),
        Request("push", "host.bios", file=Path(__file__)),
    ],
    ids=["virtual media", "pxe", "disk", "push"],
)
def test_a_locked_idrac_gets_no_write_and_no_power_off(request_: Request) -> None:
    refused = run_dry(locked(), request_)

    assert refused["writes"] == []
    assert refused["refused"]["reason"] == "refused"
    assert "Lockdown" in refused["refused"]["detail"]
    assert "off" in refused["refused"]["unblock"]


def test_a_locked_idrac_is_still_switched_on_and_off() -> None:
    """source: iDRAC9 User's Guide: power operations remain functional in this mode."""
    assert run_dry(locked(), Request("power", "cycle"))["refused"] is None


def test_a_lockdown_is_in_the_inventory() -> None:
    (obstacle,) = collect(locked()).obstacles

    hindered = ("push", "media", "boot", "settings")
    assert (obstacle.name, obstacle.hinders) == ("lockdown", hindered)
