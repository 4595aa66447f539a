"""The public reports of NVIDIA's repositories, from the folder that ATTESTATION_SAMPLES names.

Nothing is fetched and nothing of them is committed: without the folder these tests are skipped,
and the re-made reports of the other modules, signed by the simulator's authority, stand in.
Expected layout: attestation-sdk's `unit-tests/testdata` and `common-test-data`, nvtrust's verifier
`samples` and its `ppcie-verifier-sdk-cpp/tests/data`, anywhere below the folder.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import pytest
from typer.testing import CliRunner

from provisioner.checks.attestation.reference_manifests import read_manifest
from provisioner.checks.attestation.trust_anchors import RIM_ANCHORS
from provisioner.integrations.evidence_files.evidence_commands import app

FOLDER = Path(os.environ.get("ATTESTATION_SAMPLES", "/nonexistent"))
pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="ATTESTATION_SAMPLES names no folder")
USUAL = "931d8dd0add203ac3d8b4fbde75e115278eefcdceac5b87671a748f32364dfcb"
PPCIE = "4760e30534a0621357d458b1a7936551b5dc4cd1e69718adf7ed9fb0252a537e"
MULTI = "e97b23a1718095a0e9e35edca810768c70a6a5a389b705e753b197912bc11576"
OLD = "27a328247bf7935c993341cf587be6f05986ccce4fe7ba2c54100bd616a58f66"
# files, nonce, how many reports, whether they are signed, a version that one states
TABLE = [
    (["hopper_evidence.json"], MULTI, 1, True, "590.12"),
    (["hopper_evidence_cert_hold.json"], USUAL, 1, True, "570.86.10"),
    (["multi_gpu_hopper.json"], MULTI, 4, True, "96.00.A5.00.01"),
    (["multi_switch_ls10.json"], USUAL, 4, True, "96.10.55.00.01"),
    (["switch_evidence_ls10.json"], USUAL, 1, True, "96.10.55.00.01"),
    (["evidence_hopper_590_12.json"], MULTI, 1, True, "590.12"),
    (["gpu/hopperAttestationReport.txt", "gpu/hopperCertChain.txt"], OLD, 1, True, "535.86.09"),
    (
        ["gpu/hopperAttestationReportExpired.txt", "gpu/hopperCertChainExpired.txt"],
        USUAL,
        1,
        True,
        "570.124.03",
    ),
    (
        ["gpu/hopperAttestationReportInvalidSignature.txt", "gpu/hopperCertChain.txt"],
        USUAL,
        1,
        False,
        "560.00",
    ),
    (
        ["gpu/blackwellAttestationReport.txt", "gpu/blackwellCertChain.txt"],
        USUAL,
        1,
        True,
        "97.00.88.00.0F",
    ),
    (
        ["switch/switchAttestationReport.txt", "switch/switchCertChain.txt"],
        USUAL,
        1,
        True,
        "96.10.55.00.01",
    ),
    (
        ["switch/switchAttestationReportInvalidSignature.txt", "switch/switchCertChain.txt"],
        "ea038ed507a451e005bae91186bc9403150a3cb8971fdebd05ffed65eeb6a997",
        1,
        False,
        "",
    ),
    (["gpu_evidence.json"], PPCIE, 8, True, "96.00.A5.00.01"),
    (["switch_evidence.json"], PPCIE, 4, True, "96.10.73.00.01"),
]


def find(name: str) -> str:
    hits = sorted(p for p in FOLDER.rglob(Path(name).name) if str(p).endswith(name))
    if not hits:
        pytest.skip(f"{name} is not below ATTESTATION_SAMPLES")
    return str(hits[0])


def verify(*args: str) -> tuple[int, list[dict[str, object]]]:
    result = CliRunner().invoke(app, ["verify", *args, "--json"])
    printed = json.loads(result.stdout.splitlines()[-1])
    return result.exit_code, printed if isinstance(printed, list) else [printed]


@pytest.mark.parametrize("row", TABLE, ids=lambda row: Path(row[0][0]).name)
def test_each_public_report_gives_the_row_of_the_table(
    row: tuple[list[str], str, int, bool, str],
) -> None:
    files, nonce, count, signed, version = row

    code, results = verify(*(find(f) for f in files), "--nonce", nonce, "--at", "2026-11-22")

    assert (code, len(results)) == (1, count)  # no reference is named: signed, and not proved
    verdicts = Counter(r["verdict"] for r in results)
    assert verdicts == {"unproved" if signed else "contradicted": count}
    assert ("signature" in str(results[0]["findings"])) is not signed
    assert version in str(results[0]["versions"])


def test_the_switch_is_proved_from_end_to_end() -> None:
    files = (find("switch/switchAttestationReport.txt"), find("switch/switchCertChain.txt"))
    rim = find("switchVBIOSRim_NV_SWITCH_BIOS_5612_0002_890_9610550001.xml")

    code, results = verify(*files, "--nonce", USUAL, "--at", "2026-11-22", "--rim", rim)

    assert code == 0
    assert results[0]["verdict"] == "proved"
    assert results[0]["measurements"] == {"golden": 31, "matched": 31}


@pytest.mark.parametrize(
    ("rim", "says"),
    [
        ("NV_SWITCH_BIOS_5612_0002_890_9610550001_invalid_signature.xml", "rim digest"),
        ("NV_SWITCH_BIOS_5612_0002_890_9610550001_measurement_mismatch.xml", "rim digest"),
        ("1010_0200_882_96005E0001_PROD.swidtag", "rim is for"),
        ("incorrect_cert_chain_driver_rim.xml", "rim anchor"),
    ],
)
def test_a_wrong_manifest_proves_no_switch(rim: str, says: str) -> None:
    files = (find("switch/switchAttestationReport.txt"), find("switch/switchCertChain.txt"))

    code, results = verify(*files, "--nonce", USUAL, "--at", "2026-11-22", "--rim", find(rim))

    assert (code, results[0]["verdict"]) == (1, "unproved")
    assert says in str(results[0]["findings"])


def test_the_vbios_half_of_an_old_gpu_matches_while_its_signer_was_valid() -> None:
    files = (find("gpu/hopperAttestationReport.txt"), find("gpu/hopperCertChain.txt"))
    rims = (
        "--rim",
        find("1010_0200_882_96005E0001_PROD.swidtag"),
        "--rim",
        find("NV_GPU_DRIVER_GH100_535.86.09_measurement_mismatch.xml"),
    )

    code, results = verify(*files, "--nonce", OLD, "--at", "2025-01-01", *rims)

    assert (code, results[0]["measurements"]) == (1, {"golden": 12, "matched": 12})
    assert "rim digest" in str(results[0]["findings"])


def test_every_public_manifest_has_a_good_digest_unless_its_name_says_otherwise() -> None:
    tags = sorted(FOLDER.rglob("*.swidtag"))
    at = 1_719_800_000.0  # July 2024: every signer of these was valid

    usable = [read_manifest(p.read_bytes(), p.stem, RIM_ANCHORS, at, at) for p in tags]

    assert [m.rim_id for m in usable if not m.is_usable or m.findings] == []
