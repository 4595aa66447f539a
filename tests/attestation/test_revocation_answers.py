"""OCSP answers about certificates of a device's chain: made by hand, and by OpenSSL's responder."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from datetime import UTC, datetime, timedelta
from itertools import pairwise
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
from lying_histories import DEVICES, GENUINE, ROOTS, RULE
from typer.testing import CliRunner

from provisioner.checks.attestation.certificate_chains import (
    check_revocation,
    parse_answer,
    parse_certificates,
)
from provisioner.checks.attestation.device_reports import Evidence as Report
from provisioner.checks.attestation.device_reports import Expectation, verify_report
from provisioner.checks.attestation.reference_manifests import read_manifest
from provisioner.checks.attested_firmware import CHECK
from provisioner.checks.check import CheckContext
from provisioner.execution.observe.inband import attach_answers
from provisioner.integrations.air_gap_bundles.bundle_commands import describe_reference
from provisioner.integrations.evidence_files.evidence_commands import app
from provisioner.integrations.sim.hardware.device_authority import Holder, issue
from provisioner.integrations.sim.hardware.simulated_tpm import SpdmResponder
from provisioner.model.certificate import Attestation, Effect, Verdict
from provisioner.model.cohort import CheckResult, Evidence
from provisioner.model.cohort import Verdict as Passed
from provisioner.model.input_error import InputError

NOW = datetime.fromtimestamp(AT, UTC)
DEVICE = AUTHORITY.make_device("GH100 A01 GSP", "A1")
LEAF, ROM, FAMILY, ROOT = (DEVICE.holder, *DEVICE.issuers)
PAIRS = ((LEAF, ROM), (ROM, FAMILY), (FAMILY, ROOT))
HOLD = ocsp.OCSPCertStatus.REVOKED
GOOD = ocsp.OCSPCertStatus.GOOD


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
    return verify_report(Report(gpu.answer(NONCE), chain), expected)


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


UNKNOWN = ocsp.OCSPCertStatus.UNKNOWN
NO_PROOF = {
    "an answer that has ended": (
        answer(LEAF, ROM, days=0),
        "revocation answer ended: that for 'GH100 A01 GSP FMC LF' on 2026-11-22",
    ),
    "a responder that does not know it": (
        answer(LEAF, ROM, UNKNOWN),
        "revocation unknown: its issuer's responder does not know 'GH100 A01 GSP FMC LF'",
    ),
    "no answer": (
        answer(ROM, FAMILY),
        "revocation not looked at: no OCSP answer of this time for 'GH100 A01 GSP FMC LF'",
    ),
}


@pytest.mark.parametrize("case", NO_PROOF)
def test_a_certificate_is_unproved_by_name_where_answers_are_required_with(case: str) -> None:
    chain = [h.certificate for h in (LEAF, ROM, FAMILY)]
    one, expected = NO_PROOF[case]

    required = check_revocation(chain, (one, answer(ROM, FAMILY)), AT + 60, required=True)
    recorded = check_revocation(chain, (one, answer(ROM, FAMILY)), AT + 60)

    assert [(str(f), f.effect) for f in required] == [(expected, Effect.UNPROVES)]
    assert [(str(f), f.effect) for f in recorded] == [(expected, Effect.NOTES)]


def row(name: str) -> dict[str, str]:
    signed = SpdmResponder(DEVICES[name], GENUINE).answer(NONCE)
    encoded = base64.b64encode(signed).decode()
    chain = DEVICES[name].chain_pem
    return {"component": name, "nonce": NONCE.hex(), "certificates": chain, "signed": encoded}


def ask_roots(folder: Path, policy: str) -> CheckResult:
    """Judge three honest roots of trust with the answers in a folder."""
    text = json.dumps({"asked_at": AT, "components": [row(name) for name in ROOTS], "gaps": []})
    evidence = attach_answers(Evidence(source="bmc", exit_code=0, text=text), str(folder))
    rule = RULE.model_copy(update={"revocation": policy})
    return CHECK.judge({"measurements": evidence}, CheckContext(attestation=rule))


def write_answers(folder: Path, revoked: str = "", days: int = 7) -> None:
    for name in ROOTS:
        holders = (DEVICES[name].holder, *DEVICES[name].issuers)
        for about, issuer in pairwise(holders):
            status = HOLD if name == revoked and about is holders[0] else GOOD
            made = answer(about, issuer, status, days=days)
            path = folder / f"{about.certificate.serial_number:x}.ocsp"
            path.write_bytes(made.public_bytes(Encoding.DER))


def test_gate_a_asks_for_answers_by_policy_and_reads_them_from_the_sites_folder(
    tmp_path: Path,
) -> None:
    (tmp_path / "torn.ocsp").write_bytes(b"0")
    without = {p: ask_roots(tmp_path, p) for p in ("require", "record", "off")}
    write_answers(tmp_path)
    whole = ask_roots(tmp_path, "require")
    write_answers(tmp_path, revoked=ROOTS[1])
    held = {p: ask_roots(tmp_path, p).verdict for p in ("require", "record", "off")}
    write_answers(tmp_path, days=-1)
    ended = ask_roots(tmp_path, "require")

    assert without["require"].verdict is Passed.FAIL
    assert "revocation not looked at" in str(without["require"].findings)
    assert {without[p].verdict for p in ("record", "off")} == {Passed.PASS}
    assert whole.verdict is Passed.PASS, whole.findings
    assert held == {"require": Passed.FAIL, "record": Passed.FAIL, "off": Passed.PASS}
    assert "revocation answer ended: that for 'CEC173x EC FMC LF'" in str(ended.findings)


def test_the_command_reads_a_folder_of_references_as_a_bundle_brings_it(tmp_path: Path) -> None:
    gpu = make_gpu()
    folder = tmp_path / "references"
    folder.mkdir()
    (folder / "driver.xml").write_bytes(write_driver_rim())
    (folder / "vbios.xml").write_bytes(write_vbios_rim())
    holders = (gpu.device.holder, *gpu.device.issuers)
    for about, issuer in pairwise(holders):
        path = folder / f"{about.certificate.serial_number:x}.ocsp"
        path.write_bytes(answer(about, issuer).public_bytes(Encoding.DER))
    (tmp_path / "report").write_bytes(gpu.answer(NONCE))
    (tmp_path / "chain").write_text(gpu.device.chain_pem)
    (tmp_path / "root").write_text(ROOT.pem)
    line = ["verify", str(tmp_path / "report"), str(tmp_path / "chain"), "--json"]
    line += ["--anchor", str(tmp_path / "root"), "--nonce", NONCE.hex()]
    line += ["--references", str(folder), "--revocation", "require", "--at"]

    now = CliRunner().invoke(app, [*line, "2026-11-22T12:00Z"])
    late = CliRunner().invoke(app, [*line, "2026-12-24"])

    assert now.exit_code == 0, now.output
    printed = json.loads(late.stdout.splitlines()[-1])
    assert (late.exit_code, printed["verdict"]) == (1, "unproved")
    assert sum(f.startswith("revocation answer ended") for f in printed["findings"]) == 3


def test_a_bundle_names_its_references_with_their_dates_and_refuses_ended_ones(
    tmp_path: Path,
) -> None:
    contents = {
        "driver.xml": write_driver_rim(),
        "leaf.ocsp": answer(LEAF, ROM).public_bytes(Encoding.DER),
        "other.xml": b"<no/>",
        "torn.ocsp": b"0",
    }
    for name, raw in contents.items():
        (tmp_path / name).write_bytes(raw)

    rim = describe_reference(tmp_path / "driver.xml", AT)
    leaf = describe_reference(tmp_path / "leaf.ocsp", AT)

    assert (rim.path, rim.kind, rim.subject.split()[0]) == ("references/driver.xml", "rim", "GH100")
    assert (leaf.kind, leaf.subject) == ("ocsp", f"{LEAF.certificate.serial_number:x}")
    assert (leaf.since, leaf.until) == (AT - 86400, AT + 7 * 86400)
    for name, at in (("leaf.ocsp", AT + 9 * 86400), ("other.xml", AT), ("torn.ocsp", AT)):
        with pytest.raises(InputError):
            describe_reference(tmp_path / name, at)


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
