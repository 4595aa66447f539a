"""`provisioner matrix refresh --settings`: sets drafted from a good node, as a difference."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from provisioner.cli import app
from provisioner.integrations.published_versions.deciding.learned_sets import learn_sets

MATRIX = """\
schema: 1
releases:
  r:
    profiles:
      p:
        match: {gpu_models: [H100]}
        pins:
          host.bios_settings: {version: before, evidence: page}
edges:
  host.bios_settings:
    - {from: ["*"], to: before, activates_by: warm_reboot, evidence: page}
machine_settings:
  before: {iommu: off, smt: on, boot_mode: uefi}
"""
NODE: dict[str, Any] = {
    "settings": {
        "vendor": "dell_idrac",
        "bios": [
            {
                "attributes": [
                    {"name": "ProcVirtualization", "shown": True, "current": "Enabled"},
                    {"name": "LogicalProc", "shown": True, "current": "Enabled"},
                    {"name": "SubNumaCluster", "shown": True, "current": "Auto"},
                    {"name": "ProcX2Apic", "shown": False, "current": None},
                    {"name": "SetupPassword", "shown": True, "current": "***"},
                ]
            }
        ],
        "secure_boot": [{"running": True, "enabled": True}],
        "bmcs": [
            {"values": {"IPMI.ProtocolEnabled": False, "AccountLockoutThreshold": 5}},
            {"values": {"IPMI.ProtocolEnabled": True}},
        ],
    }
}


def run(folder: Path, node: object, *words: str) -> Any:
    (folder / "matrix.yaml").write_text(MATRIX)
    (folder / "node.json").write_text(node if isinstance(node, str) else json.dumps(node))
    files = ["--settings", str(folder / "node.json"), "--matrix", str(folder / "matrix.yaml")]
    return CliRunner().invoke(app, ["matrix", "refresh", *files, *words])


PLACE = ("--release", "r", "--profile", "p", "--name", "good", "--evidence", "node 7, measured")


def test_the_draft_has_the_sets_that_run_on_the_node(tmp_path: Path) -> None:
    done = run(tmp_path, NODE, "--name", "good")

    draft = yaml.safe_load(done.stdout)
    assert done.exit_code == 0
    assert draft["machine_settings"] == {
        "good-bios": {"iommu": "on", "smt": "on", "secure_boot": "on"},
        "good-bmc": {"ipmi": "off", "lockout_threshold": "5"},
    }
    assert "releases" not in draft
    assert "SubNumaCluster = Auto" in " ".join(done.stderr.split())


def test_the_difference_is_from_the_set_that_the_profile_pins(tmp_path: Path) -> None:
    done = run(tmp_path, NODE, *PLACE, "--json")

    changes = {c["setting"]: c["verdict"] for c in json.loads(done.stdout)["changes"]}
    assert changes == {
        "boot_mode": "not learned",
        "iommu": "differs",
        "secure_boot": "adds",
        "smt": "same",
        "ipmi": "adds",
        "lockout_threshold": "adds",
    }


def test_a_pin_that_has_a_set_is_not_replaced_without_an_override(tmp_path: Path) -> None:
    """As for versions: the person writes `override: true` with a reason."""
    done = run(tmp_path, NODE, *PLACE, "--out", str(tmp_path / "draft.yaml"))

    overlay = yaml.safe_load((tmp_path / "draft.yaml").read_text())
    pins = overlay["releases"]["r"]["profiles"]["p"]["pins"]
    assert done.exit_code == 0
    assert set(pins) == {"host.bmc_settings"}
    assert "host.bios_settings of p is before" in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("node", "part"),
    [
        ("no json", "no JSON object"),
        ([], "no JSON object"),
        ({}, "holds no settings"),
        ({"settings": {"vendor": "acme"}}, "no vendor"),
        ({"settings": {"vendor": "dell_idrac", "bios": [{"attributes": 7}]}}, "has a meaning"),
    ],
)
def test_another_file_is_refused_with_the_command_that_makes_one(
    node: object, part: str, tmp_path: Path
) -> None:
    done = run(tmp_path, node)

    text = done.output + str(done.exception)
    assert done.exit_code != 0
    assert part in text
    assert "inspect" in text


def test_secrets_and_attributes_that_are_not_shown_are_never_learned() -> None:
    learned = learn_sets(NODE, "node.json")

    assert "***" not in str(learned.sets)
    assert "x2apic" not in learned.sets["host.bios_settings"]
