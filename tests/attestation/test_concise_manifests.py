"""CoRIMs: re-made ones with the simulator's keys, and vectors and samples from outside.

No CoRIM of NVIDIA's is public. RFC 8949 gives the vectors; ATTESTATION_SAMPLES may hold the samples
of veraison/corim (`corim/testcases`), which are not part of this repository.
"""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from attested_devices import AT, AUTHORITY, TRUST
from typer.testing import CliRunner

from provisioner.integrations.evidence_files.concise_manifests import (
    ConciseManifest,
    NotCbor,
    Tagged,
    is_concise,
    parse_cbor,
    read_concise,
)
from provisioner.integrations.evidence_files.evidence_commands import app
from provisioner.integrations.sim.hardware.device_authority import (
    DeviceAuthority,
    Tag,
    encode,
    issue,
    sign_corim,
    write_corim,
)
from provisioner.integrations.sim.hardware.simulated_tpm import make_values
from provisioner.model.matrix import AttestationRule

VALUES = make_values("firmware", 8)
DIGESTS = {index: [VALUES[index]] for index in (1, 2, 3)}
SIGNED = sign_corim(write_corim(DIGESTS), AUTHORITY)
SAMPLES = Path(os.environ.get("ATTESTATION_SAMPLES", "/nonexistent"))


def read(raw: bytes, at: float = AT, admitted_at: float = AT) -> ConciseManifest:
    return read_concise(raw, TRUST.references, at, admitted_at)


def says(raw: bytes, **times: float) -> str:
    manifest = read(raw, **times)
    assert manifest.values == ()
    return str(manifest.findings[0])


def test_a_signed_manifest_gives_its_values_by_index() -> None:
    manifest = read(SIGNED)

    (values,) = manifest.values
    assert (values.model, values.version, manifest.rim_id) == ("CEC173x", "01.03", "SIM_EROT_01.03")
    assert values.digests == {index: (VALUES[index].hex(),) for index in (1, 2, 3)}
    assert is_concise(SIGNED)


def test_alternatives_are_all_accepted_and_values_without_an_index_are_counted() -> None:
    digests = {1: [VALUES[1], VALUES[2]], "named": [VALUES[3]]}

    (values,) = read(sign_corim(write_corim(digests), AUTHORITY)).values

    assert values.digests == {1: (VALUES[1].hex(), VALUES[2].hex())}
    assert values.unnamed == 1


@pytest.mark.parametrize("outer", [(500,), (502,), (500, 502)])
def test_outer_tags_of_drafts_are_accepted(outer: tuple[int, ...]) -> None:
    raw = SIGNED
    for number in reversed(outer):
        raw = encode(Tag(number, 0))[:-1] + raw

    assert read(raw).values


def edited() -> bytes:
    at = SIGNED.index(VALUES[2])
    return SIGNED[:at] + bytes([SIGNED[at] ^ 1]) + SIGNED[at + 1 :]


OTHER = DeviceAuthority("somebody else", "Simulated Device Identity CA")
TAMPERS: dict[str, tuple[bytes, str]] = {
    "a digest edited": (edited(), "rim signature"),
    "signature edited": (SIGNED[:-1] + bytes([SIGNED[-1] ^ 1]), "rim signature"),
    "not signed": (encode(write_corim(DIGESTS)), "rim signature"),
    "signed by another maker": (sign_corim(write_corim(DIGESTS), OTHER), "rim anchor"),
    "bytes behind it": (SIGNED + b"\0", "rim structure"),
    "cut short": (SIGNED[:-10], "rim structure"),
    "another algorithm": (
        sign_corim(write_corim(DIGESTS), AUTHORITY, headers={1: -7}),
        "algorithm",
    ),
    "an extension to understand": (
        sign_corim(write_corim(DIGESTS), AUTHORITY, headers={2: [99]}),
        "rim structure",
    ),
    "no chain": (sign_corim(write_corim(DIGESTS), AUTHORITY, headers={33: []}), "rim chain"),
    "a chain of nonsense": (
        sign_corim(write_corim(DIGESTS), AUTHORITY, headers={33: [b"nonsense"]}),
        "rim chain",
    ),
    "a digest of another size": (
        sign_corim(write_corim({1: [VALUES[1][:32]]}), AUTHORITY),
        "rim structure",
    ),
    "no index at all": (
        sign_corim(write_corim({"named": [VALUES[1]]}), AUTHORITY),
        "rim structure",
    ),
    "an index that no report has": (
        sign_corim(write_corim({255: [VALUES[1]]}), AUTHORITY),
        "rim structure",
    ),
    "no modules": (sign_corim(Tag(501, {0: "x", 1: []}), AUTHORITY), "rim structure"),
    "no CoRIM": (sign_corim("text", AUTHORITY), "rim structure"),
    "deep": (b"\x81" * 5000, "rim structure"),
}


@pytest.mark.parametrize("name", TAMPERS)
def test_a_tampered_manifest_gives_no_values(name: str) -> None:
    raw, finding = TAMPERS[name]

    assert says(raw).startswith(finding)


def test_an_expired_signer_counts_at_the_time_of_admission() -> None:
    times = (datetime(2023, 1, 1, tzinfo=UTC), datetime(2025, 1, 1, tzinfo=UTC))
    signer = issue(
        "own", "Own Signer", AUTHORITY.family, is_ca=False, times=times, key=AUTHORITY.root.key
    )
    raw = sign_corim(write_corim(DIGESTS), AUTHORITY, signer=signer)

    assert says(raw).startswith("rim expired")
    manifest = read(raw, admitted_at=times[1].timestamp() - 1)
    assert manifest.values
    assert "rim signer expired since" in str([str(f) for f in manifest.findings])


# RFC 8949, appendix A
VECTORS: dict[str, Any] = {
    "00": 0,
    "17": 23,
    "1818": 24,
    "1903e8": 1000,
    "1bffffffffffffffff": 18446744073709551615,
    "3903e7": -1000,
    "f4": False,
    "f6": None,
    "4401020304": b"\x01\x02\x03\x04",
    "62c3bc": "\u00fc",
    "83010203": [1, 2, 3],
    "a201020304": {1: 2, 3: 4},
    "d74401020304": Tagged(23, b"\x01\x02\x03\x04"),
    "826161a161626163": ["a", {"b": "c"}],
}


@pytest.mark.parametrize("text", VECTORS)
def test_the_vectors_of_the_standard_are_read(text: str) -> None:
    assert parse_cbor(bytes.fromhex(text)) == VECTORS[text]


@pytest.mark.parametrize(
    "text",
    ["", "f97e00", "9fff", "5f42010243030405ff", "a201010102", "a1820101f4", "9bffffffffffffffff"],
)
def test_other_items_are_refused(text: str) -> None:
    with pytest.raises(NotCbor):
        parse_cbor(bytes.fromhex(text))


def find(name: str) -> bytes:
    hits = sorted(SAMPLES.rglob(name))
    if not hits:
        pytest.skip(f"{name} is not below ATTESTATION_SAMPLES")
    return hits[0].read_bytes()


def test_a_sample_of_another_implementation_is_read_and_not_trusted() -> None:
    raw = find("signed-good-corim.cbor")

    assert is_concise(raw)
    assert "by an index" in says(raw)  # its keys are UUIDs, its signature is ES256


def test_every_sample_of_another_implementation_is_cbor() -> None:
    find("signed-good-corim.cbor")
    names = [p for p in SAMPLES.rglob("*.cbor") if p.parent.name == "testcases"]

    assert names
    for path in names:
        assert parse_cbor(path.read_bytes()) is not None


def admit(folder: Path, raw: bytes, *words: str) -> tuple[int, str, str]:
    manifest = folder / "own.corim"
    manifest.write_bytes(raw)
    root = folder / "root.pem"
    root.write_text(AUTHORITY.root.pem)
    options = ["--components", "HGX_ERoT_GPU_SXM_*", "--count", "8", "--anchor", str(root)]
    options += ["--at", "2026-11-22", "--reviewed", "two people", *words]
    result = CliRunner().invoke(app, ["admit-rim", str(manifest), *options])
    return result.exit_code, result.stdout, result.stderr


def test_admitted_values_are_lines_of_a_profile(tmp_path: Path) -> None:
    code, printed, _ = admit(tmp_path, SIGNED)

    rule = AttestationRule.model_validate(yaml.safe_load(printed)["attestation"])
    group = rule.components["HGX_ERoT_GPU_SXM_*"]
    assert code == 0
    assert group.digests[3] == (VALUES[3].hex(),)
    assert group.reference is not None
    assert group.reference.sha256 == read(SIGNED).sha256
    assert group.reference.admitted == "2026-11-22"
    assert "never tried on a genuine manifest" in printed


@pytest.mark.parametrize("name", ["a digest edited", "signed by another maker", "not signed"])
def test_a_tampered_manifest_admits_nothing(tmp_path: Path, name: str) -> None:
    raw, finding = TAMPERS[name]

    code, printed, errors = admit(tmp_path, raw)

    assert (code, printed) == (1, "")
    assert finding in errors


def test_of_several_models_one_is_named(tmp_path: Path) -> None:
    one = write_corim(DIGESTS, model="one").value
    other = write_corim({1: [VALUES[4]]}, model="other").value
    both = sign_corim(Tag(501, {0: "BOTH", 1: [*one[1], *other[1]]}), AUTHORITY)

    code, _, errors = admit(tmp_path, both)
    named, printed, _ = admit(tmp_path, both, "--model", "other", "--json")

    assert (code, named) == (1, 0)
    assert "one, other" in errors
    rule = json.loads(printed)["attestation"]["components"]["HGX_ERoT_GPU_SXM_*"]
    assert rule["digests"] == {"1": [VALUES[4].hex()]}
