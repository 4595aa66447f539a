"""OCSP answers about certificates of a device's chain: made by hand, and by OpenSSL's responder."""

from __future__ import annotations

import json
import shutil
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from attested_devices import (
    AT,
    AUTHORITY,
    NONCE,
    TRUST,
    make_gpu,
    write_driver_rim,
    write_vbios_rim,
)
from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA1, SHA384
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509 import ocsp
from typer.testing import CliRunner

from provisioner.checks.attestation.certificate_chains import parse_certificates
from provisioner.checks.attestation.device_reports import Evidence, Expectation, verify_report
from provisioner.checks.attestation.reference_manifests import read_manifest
from provisioner.checks.attestation.revocation_answers import check_revocation, parse_answer
from provisioner.cli.offline.device_evidence import app
from provisioner.model.attestation import Attestation, Verdict
from provisioner.model.input_error import InputError
from provisioner.sim.hardware.device_authority import Holder, issue

NOW = datetime.fromtimestamp(AT, UTC)
DEVICE = AUTHORITY.make_device("GH100 A01 GSP", "A1")
LEAF, ROM, FAMILY, ROOT = (DEVICE.holder, *DEVICE.issuers)
PAIRS = ((LEAF, ROM), (ROM, FAMILY), (FAMILY, ROOT))
HOLD = ocsp.OCSPCertStatus.REVOKED


def answer(
    about: Holder,
    issuer: Holder,
    status: ocsp.OCSPCertStatus = ocsp.OCSPCertStatus.GOOD,
    *,
    signer: Holder | None = None,
    days: int = 7,
) -> ocsp.OCSPResponse:
    """Return an answer that was made a day ago, parsed from its bytes."""
    by = signer or issuer
    revoked = status is HOLD
    made = (
        ocsp.OCSPResponseBuilder()
        .add_response(
            cert=about.certificate,
            issuer=issuer.certificate,
            algorithm=SHA1(),
            cert_status=status,
            this_update=NOW - timedelta(days=1),
            next_update=NOW + timedelta(days=days),
            revocation_time=NOW - timedelta(days=3) if revoked else None,
            revocation_reason=x509.ReasonFlags.certificate_hold if revoked else None,
        )
        .responder_id(ocsp.OCSPResponderEncoding.HASH, by.certificate)
        .sign(by.key, SHA384())
    )
    return parse_answer(made.public_bytes(Encoding.DER))


def judge(*answers: ocsp.OCSPResponse) -> Attestation:
    gpu = make_gpu()
    manifests = tuple(
        read_manifest(raw, "own", TRUST.references, AT, AT)
        for raw in (write_driver_rim(), write_vbios_rim())
    )
    chain = parse_certificates(gpu.device.chain_pem.encode())
    expected = Expectation(NONCE, AT, TRUST, manifests, answers=answers)
    return verify_report(Evidence(gpu.answer(NONCE), chain), expected)


def note(result: Attestation) -> str:
    return " ".join(str(f) for f in result.findings if str(f).startswith(("revo", "revocation")))


def test_a_chain_of_which_every_certificate_is_good_has_nothing_to_note() -> None:
    result = judge(*(answer(*pair) for pair in PAIRS))

    assert (result.verdict, note(result)) == (Verdict.PROVED, "")


def test_a_certificate_on_hold_contradicts_what_a_report_alone_would_prove() -> None:
    assert judge().verdict is Verdict.PROVED

    result = judge(*(answer(*pair) for pair in PAIRS[1:]), answer(LEAF, ROM, HOLD))

    assert result.verdict is Verdict.CONTRADICTED
    assert "revoked: 'GH100 A01 GSP FMC LF' since 2026-11-19: certificateHold" in note(result)


def test_a_certificate_without_an_answer_is_named() -> None:
    result = judge(*(answer(*pair) for pair in PAIRS[1:]))

    assert result.verdict is Verdict.PROVED
    assert note(result).endswith("for 'GH100 A01 GSP FMC LF'")


STRANGER = issue("stranger", "Simulated Identity", None, is_ca=True)
NOT_COUNTED = {
    "an answer that is out of date": answer(LEAF, ROM, days=-1 + 0),
    "an answer that another authority signed": answer(LEAF, ROM, signer=STRANGER),
    "an answer of an authority beside the issuer": answer(LEAF, ROM, signer=FAMILY),
    "an answer about another certificate": answer(ROM, FAMILY),
    "an answer of another issuer of that name": answer(LEAF, STRANGER),
}


@pytest.mark.parametrize("case", NOT_COUNTED)
def test_it_is_as_if_there_were_no_answer_for(case: str) -> None:
    chain = [h.certificate for h in (LEAF, ROM, FAMILY)]

    findings = check_revocation(chain, (NOT_COUNTED[case], answer(ROM, FAMILY)), AT)

    assert [str(f) for f in findings] == [
        "revocation not looked at: no OCSP answer of this time for 'GH100 A01 GSP FMC LF'"
    ]


def test_a_revocation_outlives_the_answer_that_states_it() -> None:
    late = AT + 400 * 86400

    (finding, *_) = check_revocation(
        [LEAF.certificate, ROM.certificate], (answer(LEAF, ROM, HOLD),), late
    )

    assert str(finding).startswith("revoked")


def test_the_command_takes_answers_from_files_and_refuses_others(tmp_path: Path) -> None:
    gpu = make_gpu()
    held = answer(LEAF, ROM, HOLD).public_bytes(Encoding.DER)
    contents = {"report": gpu.answer(NONCE), "chain": gpu.device.chain_pem.encode(), "held": held}
    for name, raw in contents.items():
        (tmp_path / name).write_bytes(raw)
    (tmp_path / "root").write_text(ROOT.pem)
    files = [str(tmp_path / name) for name in ("report", "chain")]
    line = ["verify", *files, "--anchor", str(tmp_path / "root"), "--at", "2026-11-22", "--json"]
    line += ["--nonce", NONCE.hex(), "--ocsp"]

    result = CliRunner().invoke(app, [*line, str(tmp_path / "held")])
    refused = CliRunner().invoke(app, [*line, str(tmp_path / "root")])

    printed = json.loads(result.stdout.splitlines()[-1])
    assert (result.exit_code, printed["verdict"]) == (1, "contradicted")
    assert any(f.startswith("revoked") for f in printed["findings"])
    assert isinstance(refused.exception, InputError)


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not installed")
@pytest.mark.parametrize(
    ("row", "expected"),
    [("V\t401231000000Z\t", ""), ("R\t401231000000Z\t261101000000Z,certificateHold", "revoked")],
)
def test_openssls_answers_are_read(tmp_path: Path, row: str, expected: str) -> None:
    number = f"{LEAF.certificate.serial_number:X}"
    number = number.zfill(len(number) + len(number) % 2)
    (tmp_path / "index").write_text(f"{row}\t{number}\tunknown\t/CN=device\n")
    (tmp_path / "index.attr").write_text("unique_subject = no\n")
    for name, holder in (("leaf", LEAF), ("rom", ROM)):
        (tmp_path / name).write_text(holder.pem)
    key = ROM.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (tmp_path / "key").write_bytes(key)
    line = (
        "openssl ocsp -index index -CA rom -rsigner rom -rkey key -rmd sha384 -issuer rom "
        "-cert leaf -ndays 7 -respout answer -noverify"
    )
    subprocess.run(line.split(), cwd=tmp_path, check=True, capture_output=True)
    made = parse_answer((tmp_path / "answer").read_bytes())

    chain = [LEAF.certificate, ROM.certificate]
    findings = check_revocation(chain, (made,), made.this_update_utc.timestamp() + 60)

    assert " ".join(str(f) for f in findings).partition(":")[0] == expected
