"""`provisioner attest verify` on files of every form: hex, base64, binary, PEM and JSON."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from attested_devices import AUTHORITY, NONCE, Question, chain_of, make_gpu, pem_of
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from typer.testing import CliRunner

from provisioner.cli.commands import load
from provisioner.integrations.evidence_files.evidence_commands import app
from provisioner.integrations.sim.hardware.simulated_tpm import SimulatedTpm
from provisioner.model.input_error import InputError

GPU = make_gpu()
REPORT, CHAIN = GPU.answer(NONCE), chain_of(GPU.device)
DERS = [h.certificate.public_bytes(Encoding.DER) for h in (GPU.device.holder, *GPU.device.issuers)]
EVIDENCE = {
    "arch": "HOPPER",
    "certificate": base64.b64encode(CHAIN).decode(),
    "evidence": base64.b64encode(REPORT).decode(),
    "nonce": NONCE.hex(),
}
REDFISH = {
    "SignedMeasurements": base64.b64encode(REPORT).decode(),
    "HashingAlgorithm": "TPM_ALG_SHA_384",
    "Certificate": {"CertificateString": CHAIN.decode(), "CertificateType": "PEMchain"},
}
FORMS: dict[str, tuple[bytes, ...]] = {
    "hex and PEM": (REPORT.hex().encode(), CHAIN),
    "hex in lines": (REPORT.hex("\n", 32).encode(), CHAIN),
    "0x before upper case": (b"0x" + REPORT.hex().upper().encode(), CHAIN),
    "base64": (base64.b64encode(REPORT), base64.b64encode(CHAIN)),
    "base64 in lines": (base64.encodebytes(REPORT), base64.encodebytes(CHAIN)),
    "binary": (REPORT, CHAIN),
    "DER, root first": (REPORT, b"".join(reversed(DERS))),
    "chain first": (CHAIN, REPORT),
    "evidence": (json.dumps([EVIDENCE]).encode(),),
    "one object": (json.dumps(EVIDENCE).encode(),),
    "below a name": (json.dumps({"evidences": {"gpu": [EVIDENCE]}}).encode(),),
    # the form that NVIDIA documents for `nvattest collect-evidence`; the host may lie beside it
    "nvattest's answer": (
        json.dumps(
            {
                "evidences": [
                    {
                        **EVIDENCE,
                        "version": "1.0",
                        "nonce": "00" * 32,
                        "vbios_version": "96.00.FF.00.01",
                        "driver_version": "999.99",
                    }
                ],
                "result_code": 0,
                "result_message": "Ok",
            }
        ).encode(),
    ),
    "Redfish's answer": (json.dumps(REDFISH).encode(),),
    "Redfish's answer and certificate": (
        json.dumps({"SignedMeasurements": REDFISH["SignedMeasurements"]}).encode(),
        json.dumps(REDFISH["Certificate"]).encode(),
    ),
}


def run(folder: Path, files: tuple[bytes, ...], *options: str) -> tuple[int, Any]:
    names = []
    for number, content in enumerate(files):
        path = folder / f"file{number}"
        path.write_bytes(content)
        names.append(str(path))
    root = folder / "root.pem"
    root.write_bytes(pem_of(AUTHORITY.root.certificate))
    rims = []
    for name, raw in Question().rims:
        (folder / f"{name}.xml").write_bytes(raw)
        rims += ["--rim", str(folder / f"{name}.xml")]
    line = [
        "verify",
        *names,
        "--anchor",
        str(root),
        "--at",
        "2026-11-22",
        "--json",
        *rims,
        *options,
    ]
    result = CliRunner().invoke(app, line)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, json.loads(result.stdout.splitlines()[-1])


@pytest.mark.parametrize("files", FORMS.values(), ids=FORMS.keys())
def test_every_form_of_evidence_is_read_by_its_content(
    tmp_path: Path, files: tuple[bytes, ...]
) -> None:
    code, printed = run(tmp_path, files, "--nonce", NONCE.hex())

    assert (code, printed["verdict"]) == (0, "proved")
    assert printed["measurements"] == {"golden": 33, "matched": 33}
    assert printed["component"] == "GH100 GPU A1"


def test_what_a_host_says_beside_its_reports_counts_for_nothing(tmp_path: Path) -> None:
    code, printed = run(tmp_path, FORMS["nvattest's answer"], "--nonce", NONCE.hex())
    empty = json.dumps({"evidences": [], "result_code": 503, "result_message": "no"}).encode()

    assert code == 0
    assert printed["versions"] == {"driver": "590.12", "vbios": "96.00.A5.00.01"}
    assert printed["nonce"] == NONCE.hex()
    with pytest.raises(InputError, match="there is no report in it"):
        run(tmp_path, (empty,), "--nonce", NONCE.hex())


def test_several_reports_give_a_list_and_one_bad_one_the_exit_code(tmp_path: Path) -> None:
    other = make_gpu("A2")
    other.values[3] = b"\xbb" * 48
    lying = {
        "evidence": base64.b64encode(other.answer(NONCE)).decode(),
        "certificate": base64.b64encode(chain_of(other.device)).decode(),
    }
    code, printed = run(tmp_path, (json.dumps([EVIDENCE, lying]).encode(),), "--nonce", NONCE.hex())

    assert code == 1
    assert [r["verdict"] for r in printed] == ["proved", "contradicted"]
    assert printed[1]["mismatches"][0]["index"] == 3


def test_reports_find_their_chains_among_several_files(tmp_path: Path) -> None:
    other = make_gpu("A2")
    files = (REPORT, other.answer(NONCE), chain_of(other.device), CHAIN)

    code, printed = run(tmp_path, files, "--nonce", NONCE.hex())

    assert code == 0
    assert [r["identity"] for r in printed] == ["A1", "A2"]


def test_results_stand_in_the_order_of_the_files(tmp_path: Path) -> None:
    """A bare report is first before a file that brings chains, and has its own chain."""
    other = make_gpu("A2")
    files = (other.answer(NONCE), json.dumps([EVIDENCE]).encode(), chain_of(other.device))

    code, printed = run(tmp_path, files, "--nonce", NONCE.hex())

    assert code == 0
    assert [r["identity"] for r in printed] == ["A2", "A1"]
    assert [Path(r["source"]).name for r in printed] == ["file0", "file1#0"]


def test_without_the_simulators_root_its_devices_are_not_anchored(tmp_path: Path) -> None:
    (tmp_path / "report").write_bytes(REPORT)
    (tmp_path / "chain").write_bytes(CHAIN)
    line = ["verify", str(tmp_path / "report"), str(tmp_path / "chain"), "--json"]

    result = CliRunner().invoke(app, [*line, "--nonce", NONCE.hex()])

    printed = json.loads(result.stdout.splitlines()[-1])
    assert (result.exit_code, printed["verdict"]) == (1, "unproved")
    assert any(f.startswith("anchor") for f in printed["findings"])


def test_a_report_without_a_chain_and_without_a_nonce_is_unproved(tmp_path: Path) -> None:
    code, printed = run(tmp_path, (REPORT,))

    assert (code, printed["verdict"]) == (1, "unproved")
    assert any(f.startswith("chain") for f in printed["findings"])
    assert any(f.startswith("nonce") for f in printed["findings"])


def test_bytes_of_no_known_form_are_a_malformed_report(tmp_path: Path) -> None:
    code, printed = run(tmp_path, (b"\0\1\2nothing",), "--nonce", NONCE.hex())

    assert (code, printed["verdict"]) == (1, "unproved")


def test_a_pin_from_the_matrix_is_compared(tmp_path: Path) -> None:
    options = ("--nonce", NONCE.hex(), "--expect", "driver=590.13")

    code, printed = run(tmp_path, (REPORT, CHAIN), *options)

    assert (code, printed["verdict"]) == (1, "contradicted")
    assert any(f.startswith("version is not the pin") for f in printed["findings"])


@pytest.mark.parametrize(
    "options",
    [
        ("--nonce", "12"),
        ("--at", "yesterday"),
        ("--expect", "colour=blue"),
        ("--expect", "rim=12"),
        ("--anchor", "/dev/null"),
        ("--rim", "/nonexistent"),
    ],
)
def test_a_wrong_option_is_refused_with_a_remedy(tmp_path: Path, options: tuple[str, str]) -> None:
    with pytest.raises(InputError) as refused:
        run(tmp_path, (REPORT, CHAIN), *options)

    assert str(refused.value).endswith(".")


def test_a_chain_alone_is_no_report(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        run(tmp_path, (CHAIN,))


def test_people_get_a_table(tmp_path: Path) -> None:
    (tmp_path / "report").write_bytes(REPORT)

    result = CliRunner().invoke(app, ["verify", str(tmp_path / "report"), "--nonce", NONCE.hex()])

    assert "unproved" in result.stdout


def test_the_command_is_listed() -> None:
    assert load("attest").name == "attest"


def test_a_quote_of_a_tpm_is_verified_from_a_file(tmp_path: Path) -> None:
    tpm = SimulatedTpm("board")
    quote, signature = tpm.quote(NONCE)
    document = {
        "quote": quote.hex(),
        "signature": base64.b64encode(signature).decode(),
        "ak": tpm.key_pem.decode(),
        "event_log": base64.b64encode(tpm.write_log()).decode(),
    }
    spki = tpm.key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    pcrs = [f"pcr{n}={tpm.read_pcrs()[n].hex()}" for n in tpm.pcrs]
    wishes = [f"ak={hashlib.sha256(spki).hexdigest()}", "resets=1", "secure_boot=on", *pcrs]
    options = [word for wish in wishes for word in ("--expect", wish)]
    files = (json.dumps(document).encode(),)

    code, printed = run(tmp_path, files, "--nonce", NONCE.hex(), *options)
    again, replayed = run(tmp_path, files, "--nonce", "11" * 32, *options)

    assert (code, printed["verdict"], printed["kind"]) == (0, "proved", "tpm.quote")
    assert printed["measurements"] == {"golden": 4, "matched": 4}
    assert (again, replayed["verdict"]) == (1, "contradicted")


def test_a_quote_without_its_enrolled_key_is_unproved(tmp_path: Path) -> None:
    tpm = SimulatedTpm("board")
    quote, signature = tpm.quote(NONCE)
    document = {"quote": quote.hex(), "signature": signature.hex(), "ak": tpm.key_pem.decode()}

    code, printed = run(tmp_path, (json.dumps(document).encode(),), "--nonce", NONCE.hex())

    assert (code, printed["verdict"]) == (1, "unproved")
    assert any(f.startswith("ak") for f in printed["findings"])


def test_the_pins_of_a_profile_name_versions_and_manifests(tmp_path: Path) -> None:
    question = Question()
    rims = [raw for _, raw in question.rims]
    files = (REPORT, CHAIN, *rims)

    def pin(version: str, raw: bytes) -> dict[str, Any]:
        digest = hashlib.sha256(raw).hexdigest()
        reference = {"rim": "NV_OWN", "sha256": digest, "admitted": "2026-11-20"}
        return {"version": version, "reference": reference}

    def judge(pins: dict[str, Any]) -> tuple[int, Any]:
        tree = {"schema": 1, "releases": {"r": {"profiles": {"p": {"match": {}, "pins": pins}}}}}
        matrix = tmp_path / "matrix.yaml"
        matrix.write_text(json.dumps(tree))
        named = ("--matrix", str(matrix), "--release", "r", "--profile", "p")
        given = [word for n in (2, 3) for word in ("--rim", str(tmp_path / f"file{n}"))]
        root = tmp_path / "root.pem"
        root.write_bytes(pem_of(AUTHORITY.root.certificate))
        for number, content in enumerate(files):
            (tmp_path / f"file{number}").write_bytes(content)
        words = [str(tmp_path / f"file{n}") for n in (0, 1)]
        options = ("--nonce", NONCE.hex(), "--at", "2026-11-22", "--anchor", str(root))
        result = CliRunner().invoke(app, ["verify", *words, *named, *given, *options, "--json"])
        return result.exit_code, json.loads(result.stdout)

    pins = {"host.driver": pin("590.12", rims[0]), "hgx.gpu": pin("96.00.A5.00.01", rims[1])}

    code, proved = judge(pins)
    _, older = judge({**pins, "hgx.gpu": pin("96.00.9F.00.01", rims[1])})
    _, other = judge({**pins, "hgx.gpu": pin("96.00.A5.00.01", b"another file")})
    _, unnamed = judge({kind: {"version": row["version"]} for kind, row in pins.items()})

    assert (code, proved["verdict"]) == (0, "proved")
    assert "version is not the pin: vbios 96.00.A5.00.01" in str(older["findings"])
    assert other["verdict"] == unnamed["verdict"] == "unproved"
    assert "rim is not the admitted one" in str(other["findings"])
    assert "rim is not the admitted one" in str(unnamed["findings"])


def test_a_profile_that_the_matrix_does_not_have_is_refused(tmp_path: Path) -> None:
    report = tmp_path / "report"
    report.write_bytes(REPORT)

    result = CliRunner().invoke(app, ["verify", str(report), "--release", "own"])

    assert isinstance(result.exception, InputError)
