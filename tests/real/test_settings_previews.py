"""`provisioner bmc dry-run URL set-bios` on each recorded tree: what would be sent, or why not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from static_tree import recorded_tree, serving
from typer.testing import CliRunner

from provisioner.cli import app

ON_RESET = {"@Redfish.SettingsApplyTime": {"ApplyTime": "OnReset"}}


def preview(tree: Path, *settings: str) -> tuple[int, dict[str, Any]]:
    with serving(tree) as url:
        pairs = [part for one in settings for part in ("--set", one)]
        asked = ["bmc", "dry-run", url, "set-bios", "--json", *pairs]
        result = CliRunner().invoke(app, asked)
    return result.exit_code, json.loads(result.stdout)


@pytest.mark.parametrize(
    ("name", "settings", "path", "body"),
    [
        (
            "dell",
            ("x2apic=on", "iommu=on"),  # IOMMU is on there already
            "System.Embedded.1/Bios/Settings",
            {"Attributes": {"ProcX2Apic": "Enabled"}, **ON_RESET},
        ),
        pytest.param(
            "nvidia_viking",
            ("sr_iov=off",),
            "DGX/Bios/SD",
            {"Attributes": {"SRIOVEnable": "Disable", "SriovSupport": "Disabled"}},
            marks=pytest.mark.long,
        ),
        (
            "nvidia_dpu",
            ("attribute:EnableSMMU=false", "attribute:L3CachePartitionLevel=1"),
            "Bluefield/Bios/Settings",
            {"Attributes": {"EnableSMMU": False, "L3CachePartitionLevel": 1}},
        ),
    ],
)
def test_the_request_for_a_recorded_tree(
    name: str, settings: tuple[str, ...], path: str, body: dict[str, Any], tmp_path: Path
) -> None:
    code, shown = preview(recorded_tree(name, tmp_path), *settings)

    assert (code, shown["refused"]) == (0, None)
    (write,) = shown["writes"]
    assert (write["method"], write["path"]) == ("PATCH", f"/redfish/v1/Systems/{path}")
    assert write["body"] == body


def test_a_value_that_was_never_read_is_refused_where_there_is_no_registry(tmp_path: Path) -> None:
    code, shown = preview(recorded_tree("nvidia_dpu", tmp_path), "attribute:SPCR_UART=Enabled")

    assert (code, shown["writes"]) == (1, [])
    assert "registry cannot be read" in shown["refused"]["detail"]


def test_mode_and_host_privilege_of_a_recorded_card(tmp_path: Path) -> None:
    tree = recorded_tree("nvidia_dpu", tmp_path)
    code, shown = preview(tree, "host_privilege=unrestricted", "card_mode=nic")

    assert (code, shown["refused"]) == (0, None)
    card = "/redfish/v1/Systems/Bluefield"
    assert [(w["method"], w["path"], w["body"]) for w in shown["writes"]] == [
        ("PATCH", f"{card}/Bios/Settings", {"Attributes": {"HostPrivilegeLevel": "Privileged"}}),
        ("POST", f"{card}/Oem/Nvidia/Actions/Mode.Set", {"Mode": "NicMode"}),
    ]


@pytest.mark.parametrize("name", ["dell", pytest.param("nvidia_viking", marks=pytest.mark.long)])
def test_a_recorded_host_has_no_mode_of_a_card(name: str, tmp_path: Path) -> None:
    code, shown = preview(recorded_tree(name, tmp_path), "card_mode=nic")

    assert (code, shown["writes"]) == (1, [])
    assert "card_mode" in shown["refused"]["detail"] + str(shown["refused"])
