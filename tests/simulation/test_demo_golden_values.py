"""The demonstration that stays requires attestation, by golden values of its own site."""

from __future__ import annotations

import hashlib
import json
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from provisioner.daemon.data import read_matrix
from provisioner.integrations.demo.site import BASE, RELEASE, build_overlay
from provisioner.integrations.demo.stay import PROFILE, require_attestation
from provisioner.integrations.matrix_tools.deciding.reference_gaps import find_reference_gaps
from provisioner.integrations.sim.redfish.redfish_integrity import list_measurements
from provisioner.integrations.sim.site.site import Site
from provisioner.model.matrix import AttestationRule

MATRIX = Path(__file__).parents[2] / "firmware_matrix.yaml"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("demo")
    (folder / "overlay.yaml").write_text(json.dumps(build_overlay()))
    require_attestation(folder / "overlay.yaml", folder / "references")
    return folder


def read_rule(folder: Path, release: str) -> AttestationRule:
    matrix = read_matrix([MATRIX, folder / "overlay.yaml"])
    assert not [
        f
        for f in find_reference_gaps(matrix)
        if "no policy" in f.problem and (f.where == f"{release}/{PROFILE}")
    ]
    return matrix.releases[release].profiles[PROFILE].attestation


def test_every_root_of_trust_of_a_new_site_measures_what_is_admitted(folder: Path) -> None:
    machine = Site(1).machines["su0-n00"]
    names = sorted(name for bmc, name in machine.copies if bmc == "host")
    rule = read_rule(folder, BASE)

    admitted = {
        name: group
        for name in names
        for pattern, group in rule.components.items()
        if fnmatchcase(name, pattern)
    }

    assert sorted(admitted) == names
    assert sum(group.count for group in rule.components.values()) == len(names)
    for name, group in admitted.items():
        measured = list_measurements(machine, name)
        assert {i: (measured[i].hex(),) for i in group.digests} == group.digests


@pytest.mark.parametrize("release", [BASE, RELEASE])
def test_every_kind_is_required_and_each_manifest_is_there(folder: Path, release: str) -> None:
    rule = read_rule(folder, release)
    reports = (rule.gpu_reports, rule.nvswitch_reports)

    assert {rule.policy, rule.secure_boot.policy, *(r.policy for r in reports)} == {"require"}
    named = [reference for report in reports for reference in report.references]
    assert len(named) == 3
    for reference in named:
        raw = (folder / "references" / f"{reference.rim}.xml").read_bytes()
        assert hashlib.sha256(raw).hexdigest() == reference.sha256


def test_the_releases_of_the_demonstration_admit_different_firmware(folder: Path) -> None:
    assert read_rule(folder, BASE).components != read_rule(folder, RELEASE).components
