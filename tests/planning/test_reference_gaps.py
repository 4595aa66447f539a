"""`matrix check` names each part without golden values, and each proof that was not decided on."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from provisioner.integrations.matrix_tools.deciding.review import Remark, Weight, review_matrix
from provisioner.model.input_error import InputError
from provisioner.model.matrix import Matrix
from provisioner.planning.matrix.matrix_text import parse

RIM = {"rim": "NV_GPU_VBIOS_1010_0200_882_9600A50001", "sha256": "a" * 64, "admitted": "2026-11-22"}
GROUP = {"digests": {"3": ["6d9f8d6c"]}, "learned_from": "su0-n01, 2026-11-22"}
OFF = {
    "policy": "off",
    "secure_boot": {"policy": "off"},
    "gpu_reports": {"policy": "off"},
}


def read(attestation: Any = None, **pins: Any) -> Matrix:
    listed = {"hgx.gpu": {"version": "96.00.A5.00.01"}, "host.bios": {"version": "1"}}
    for kind, more in pins.items():
        listed[kind.replace("_", ".")] |= more
    profile: dict[str, Any] = {"match": {"kind": "host"}, "pins": listed}
    if attestation is not None:
        profile["attestation"] = attestation
    tree = {"schema": 1, "releases": {"r": {"profiles": {"p": profile}}}}
    return parse([("matrix.yaml", yaml.safe_dump(tree))])


def notes_of(matrix: Matrix) -> list[Remark]:
    rows = [r for r in review_matrix(matrix) if "polic" in r.problem or "golden" in r.problem]
    assert {r.weight for r in rows} <= {Weight.NOTE}
    return rows


def test_a_profile_that_decides_nothing_is_named() -> None:
    (note,) = notes_of(read())

    assert "no policy for roots of trust, Secure Boot, `gpu_reports`:" in note.problem
    assert note.where == "r/p"


def test_off_is_a_decision() -> None:
    assert notes_of(read(OFF)) == []


@pytest.mark.parametrize("policy", ["require", "record"])
def test_a_pinned_part_without_golden_values_is_named(policy: str) -> None:
    rule = {**OFF, "policy": policy, "components": {"HGX_ERoT_GPU_*": GROUP}}

    (note,) = notes_of(read(rule))

    assert note.where == "r/p: hgx.gpu"
    assert "RIM of the VBIOS" in note.problem


def test_a_reference_or_admitted_digests_end_the_note() -> None:
    rule = {**OFF, "policy": "require", "components": {"HGX_ERoT_GPU_*": GROUP}}
    covering = {**rule, "components": {"HGX_ERoT_GPU_*": {**GROUP, "covers": ["hgx.gpu"]}}}

    assert notes_of(read(rule, hgx_gpu={"reference": RIM})) == []
    assert notes_of(read(covering)) == []


@pytest.mark.parametrize(
    "named",
    [
        {"references": [RIM]},
        {"digests": {"3": ["6d9f8d6c"]}},
    ],
)
def test_reports_of_gpus_are_compared_with_what_their_rule_names(named: dict[str, Any]) -> None:
    asked = {**OFF, "gpu_reports": {"policy": "require"}}

    (note,) = notes_of(read(asked))

    assert note.where == "r/p: hgx.gpu"
    assert notes_of(read({**OFF, "gpu_reports": {"policy": "require", **named}})) == []


def test_a_cover_of_a_part_that_is_not_pinned_is_named() -> None:
    group = {**GROUP, "covers": ["hgx.gpu", "hgx.fpga"]}
    rule = {**OFF, "policy": "require", "components": {"HGX_ERoT_*": group}}

    rows = [r for r in review_matrix(read(rule)) if "covers" in r.problem]

    assert [r.problem for r in rows] == ["`covers` names hgx.fpga, which the profile does not pin"]


def test_secure_boot_without_keys_is_named() -> None:
    rule = {"policy": "off", "secure_boot": {"policy": "require"}}

    rows = [r for r in review_matrix(read(rule)) if "compared with nothing" in r.problem]

    assert [r.where for r in rows] == ["r/p"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"rim": "", "sha256": "a" * 64, "admitted": "2026-11-22"},
        {"rim": "x", "sha256": "a" * 63, "admitted": "2026-11-22"},
        {"rim": "x", "sha256": "a" * 64, "admitted": "yesterday"},
        {"rim": "x", "sha256": "a" * 64},
    ],
)
def test_a_reference_without_id_digest_or_date_is_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(InputError):
        read(OFF, hgx_gpu={"reference": wrong})


def test_unknown_databases_and_empty_lists_are_refused() -> None:
    for databases in ({"dbt": ["a" * 64]}, {"db": []}, {"db": ["short"]}):
        rule = {"policy": "off", "secure_boot": {"policy": "require", "databases": databases}}
        with pytest.raises(InputError):
            read(rule)
