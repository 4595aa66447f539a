"""A credential is opened by one TPM and for one key; a maker counts where the site pins it."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.hashes import SHA384
from cryptography.hazmat.primitives.serialization import Encoding

from provisioner.checks.attestation.endorsement_certificates import (
    MAKERS_BYTES_MAX,
    Makers,
    parse_makers,
    read_endorsement,
    verify_endorsement,
)
from provisioner.checks.attestation.tpm_quotes import make_credential, parse_attestation_key
from provisioner.integrations.sim.hardware.device_authority import Holder, issue
from provisioner.integrations.sim.hardware.simulated_tpm import MAKER, SimulatedTpm, make_authority
from provisioner.model.certificate import Unacceptable
from provisioner.model.node import BoardTpm, TpmProof
from provisioner.planning.certification.board_identity import challenge_board, judge_opening

NOW = 1_800_000_000.0
SECRET = b"\x5c" * 32
BOARD, OTHER = SimulatedTpm("board"), SimulatedTpm("other")
MAKERS = Makers((make_authority(MAKER).root.certificate,))
KEY = parse_attestation_key(BOARD.area).spki_sha256
ENROLLED = BoardTpm(key_sha256=KEY, enrolled_at=NOW)


def encode(raw: bytes | None) -> str:
    return base64.b64encode(raw or b"").decode()


def answer(tpm: SimulatedTpm = BOARD, **changes: Any) -> dict[str, Any]:
    certificates = tpm.endorsement.list_certificates()
    rows = {index: encode(raw) for index, raw in certificates.items()}
    return {"result": "done", "public": encode(tpm.area), "certificates": rows, **changes}


def opened_by(tpm: SimulatedTpm, content: bytes, area: bytes) -> dict[str, str]:
    return {"result": "done", "secret": encode(tpm.endorsement.open_credential(content, area))}


def test_a_tpm_of_a_pinned_maker_that_opens_the_credential_is_proved() -> None:
    challenge = challenge_board(answer(), KEY, MAKERS, SECRET, NOW)

    proved = judge_opening(opened_by(BOARD, challenge.credential, BOARD.area), challenge, ENROLLED)

    assert (proved.key_sha256, proved.proof, proved.maker) == (KEY, TpmProof.MAKER, MAKER)
    assert len(proved.endorsement_sha256) == 64
    assert SECRET not in challenge.credential


def test_no_other_tpm_and_no_other_key_opens_the_credential() -> None:
    challenge = challenge_board(answer(), KEY, MAKERS, SECRET, NOW)

    for tpm, area in ((OTHER, BOARD.area), (BOARD, OTHER.area)):
        with pytest.raises(Unacceptable, match="ak is not bound to the ek"):
            judge_opening(opened_by(tpm, challenge.credential, area), challenge, ENROLLED)


def test_the_certificate_of_another_board_does_not_help_a_program_with_a_key() -> None:
    """A program shows a genuine certificate and a key of its own; it cannot open the credential."""
    program = SimulatedTpm("program")
    mixed = answer(certificates=answer(BOARD)["certificates"], public=encode(program.area))
    key = parse_attestation_key(program.area)
    challenge = challenge_board(mixed, key.spki_sha256, MAKERS, SECRET, NOW)

    with pytest.raises(Unacceptable, match="ak is not bound"):
        judge_opening(opened_by(program, challenge.credential, program.area), challenge, ENROLLED)


UNRESTRICTED = BOARD.area.replace(bytes.fromhex("00050472"), bytes.fromhex("00040472"))
LEAF = BOARD.endorsement.list_certificates()["0x1c0000a"]
FAMILY = make_authority(MAKER).family
LARGE = issue("large", "x", FAMILY, is_ca=False, key=ec.derive_private_key(5, ec.SECP521R1()))
AUTHORITY = issue("a", "an authority", FAMILY, is_ca=True, key=BOARD.endorsement.key)
ENDED = (datetime(2020, 1, 1, tzinfo=UTC), datetime(2021, 1, 1, tzinfo=UTC))
EXPIRED = issue("e", "old", FAMILY, is_ca=False, key=BOARD.endorsement.key, times=ENDED)


def only(raw: bytes) -> dict[str, Any]:
    return answer(certificates={"0x1c0000a": encode(raw)})


def der(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(Encoding.DER)


UNPROVED: dict[str, tuple[object, str]] = {
    "another maker": (
        answer(SimulatedTpm("board", maker="Nobody Known")),
        "ek maker is not pinned: 'CN=Nobody",
    ),
    "no certificate": (answer(certificates={}), "ek certificate missing"),
    "no issuer": (only(LEAF), "ek maker is not pinned: 'CN=Simulated Identity'"),
    "bytes": (only(b"\x30\x82"), "ek certificate unfit"),
    "a larger curve": (
        only(der(LARGE.certificate)),
        "neither RSA of 2048 or 3072 bits nor P-256 or P-384",
    ),
    "an authority": (only(der(AUTHORITY.certificate)), "it is an authority's"),
    "an old certificate": (only(der(EXPIRED.certificate)), "'old' is valid until 2021-01-01"),
    "a key that signs all": (answer(public=encode(UNRESTRICTED)), "not a restricted key"),
    "a key not of the quote": (answer(public=encode(OTHER.area)), "not that of the key"),
    "half a key": (answer(public=encode(BOARD.area[:40])), "malformed at byte"),
    "a tool that failed": ({"result": "not_done", "detail": "\x1b[2Jlocked"}, " [2Jlocked"),
    "a list": ([], "no object"),
}


@pytest.mark.parametrize("case", UNPROVED)
def test_a_tpm_is_unproved_by_name_with(case: str) -> None:
    given, reason = UNPROVED[case]

    with pytest.raises(Unacceptable) as refused:
        challenge_board(given, KEY, MAKERS, SECRET, NOW)

    assert reason in str(refused.value)


def test_an_intermediate_in_the_sites_file_is_enough_and_a_padded_certificate_is_read() -> None:
    """Many TPMs store their own certificate alone, in an index that is longer than it."""
    makers = parse_makers(f"{FAMILY.pem}text between\n{make_authority(MAKER).root.pem}".encode())
    leaf = read_endorsement(LEAF + b"\xff" * 100)

    endorsement = verify_endorsement(leaf, (), makers, NOW)

    assert (endorsement.maker, endorsement.kind) == ("Simulated Identity", "ecc")
    assert make_credential(endorsement.key, b"name", SECRET).startswith(b"\xba\xdc\xc0\xde")


ROOT = make_authority(MAKER).root
LISTED = datetime(2026, 12, 1, tzinfo=UTC)  # before NOW, January 2027
RENEWED = datetime(2027, 6, 1, tzinfo=UTC)


def write_list(
    issuer: Holder, *serials: int, until: datetime = RENEWED, signer: Holder | None = None
) -> bytes:
    """Return an issuer's revocation list (PEM); `signer`: the holder that signs it in its place."""
    return sign_list(issuer, (signer or issuer).key, *serials, until=until)


def sign_list(
    issuer: Holder,
    key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey,
    *serials: int,
    until: datetime = RENEWED,
) -> bytes:
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(issuer.certificate.subject)
        .last_update(LISTED)
        .next_update(until)
    )
    for serial in serials:
        revoked = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(LISTED)
        builder = builder.add_revoked_certificate(revoked.build())
    return builder.sign(key, SHA384()).public_bytes(Encoding.PEM)


def challenge_with(*lists: bytes) -> None:
    makers = parse_makers(ROOT.pem.encode() + b"".join(lists))
    assert len(makers.revocations) == len(lists)
    challenge_board(answer(), KEY, makers, SECRET, NOW)


OWN = read_endorsement(LEAF).serial_number


def test_a_revoked_endorsement_key_proves_no_board() -> None:
    with pytest.raises(Unacceptable, match=r"ek certificate revoked.*list of 2026-12-01"):
        challenge_with(write_list(FAMILY, OWN))
    with pytest.raises(Unacceptable, match="ek certificate revoked"):
        challenge_with(write_list(ROOT, FAMILY.certificate.serial_number))
    ended = datetime(2026, 12, 2, tzinfo=UTC)
    with pytest.raises(Unacceptable, match="ek certificate revoked"):
        challenge_with(write_list(FAMILY, OWN, until=ended))


def test_a_list_that_names_others_or_is_of_another_maker_costs_nothing() -> None:
    stranger = make_authority("Nobody Known").family

    challenge_with(write_list(FAMILY, OWN + 2), write_list(ROOT))
    challenge_with(write_list(make_authority("Nobody Known").root, OWN))
    challenge_with(write_list(FAMILY, OWN, signer=stranger), write_list(FAMILY))


def test_a_list_under_the_issuers_name_that_its_key_did_not_sign_proves_no_key_good() -> None:
    stranger = make_authority("Nobody Known").family
    large = rsa.generate_private_key(65537, 2048)

    for signer in (stranger.key, large):
        with pytest.raises(Unacceptable, match=r"ek revocation list unfit: no list under the name"):
            challenge_with(sign_list(FAMILY, signer))


def test_a_list_that_has_ended_proves_no_key_good_until_a_newer_one_is_there() -> None:
    ended = write_list(FAMILY, until=datetime(2026, 12, 2, tzinfo=UTC))

    with pytest.raises(Unacceptable, match=r"ek revocation list ended.*until 2026-12-02"):
        challenge_with(ended)
    challenge_with(ended, write_list(FAMILY))


HEAD = b"-----BEGIN X509 CRL-----\n"
HOSTILE: dict[str, bytes] = {
    "a list without an end": write_list(FAMILY)[:-20],
    "begins of many lists": HEAD * (MAKERS_BYTES_MAX // len(HEAD)),
    "many small lists": write_list(FAMILY) * 513,
    "no list between the lines": HEAD + b"AAAA\n-----END X509 CRL-----\n",
    "a file without bounds": b"-" * (MAKERS_BYTES_MAX + 1),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_file_with_a_list_that_cannot_be_read_is_refused_whole(case: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - each parser has its own text
        parse_makers(ROOT.pem.encode() + HOSTILE[case])
