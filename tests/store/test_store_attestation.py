"""A certificate is an in-toto statement in a DSSE envelope that other tools verify."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from securesystemslib.dsse import Envelope as TheirEnvelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import SSlibKey

from provisioner.model.certificate import Certificate, Revocation
from provisioner.planning.certification import attestation
from provisioner.planning.certification.attestation import (
    NotAnAttestation,
    parse_envelope,
    read_certificate,
)
from provisioner.store import MasterKey, exchange_signing_key, open_signer, public_keys
from provisioner.store.signing import Signer, envelope_of, keys_of, public_pem, signed, verify

CERTIFICATE = Certificate(
    id="c1", node="su0-n01", release="spectrum-x-1.3.0", profile="hgx-h100-bf3",
    serials=("gpu/GPU_SXM_1=G1", "system=Ü-1"), versions=(("hgx.gpu/GPU_SXM_1", "96.00.99"),),
    boot_id="b", location="su0/rack1/3", ports=("leaf0/swp1s0",), report_digest="d" * 64,
    matrix_digest="e" * 64, checks=("ecc", "versions"), evidence=("f" * 64,),
    issued_at=1_800_000_000.0, expires_at=1_800_086_400.0,
)  # fmt: skip
NOW = CERTIFICATE.issued_at + 60


@pytest.fixture(scope="module")
def signer() -> Signer:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Signer(Ed25519PrivateKey.generate())


def test_the_tools_of_in_toto_verify_an_envelope_with_the_public_key_alone(signer):
    text = envelope_of(signer.sign(CERTIFICATE))
    theirs = TheirEnvelope.from_dict(json.loads(text))
    key = SSlibKey.from_crypto(
        attestation_key(signer), keyid=signer.key_id
    )  # what a person has: the PEM

    theirs.verify([key], 1)

    statement = json.loads(theirs.payload)
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["subject"][0]["name"] == "su0-n01"
    assert statement["predicate"]["matrix"] == {"sha256": "e" * 64}
    theirs.payload = theirs.payload.replace(b"su0-n01", b"su0-n02")
    with pytest.raises(VerificationError):
        theirs.verify([key], 1)


def attestation_key(signer: Signer):
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    return load_pem_public_key(public_pem(signer.public_key).encode())


def test_an_envelope_carries_the_whole_certificate_there_and_back(signer):
    certificate = signer.sign(CERTIFICATE)
    envelope = parse_envelope(envelope_of(certificate))
    keys = keys_of("a comment\n" + public_pem(signer.public_key))

    assert signed(envelope, keys)
    assert read_certificate(envelope) == certificate
    assert verify(read_certificate(envelope), keys)
    assert not signed(envelope, {})


def test_a_signature_is_bound_to_the_type_of_what_it_signs(signer):
    document = json.loads(envelope_of(signer.sign(CERTIFICATE)))
    document["payloadType"] = attestation.REVOCATIONS_PAYLOAD

    assert not signed(parse_envelope(json.dumps(document)), {signer.key_id: signer.public_key})


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "{", "null", '{"payloadType": "x"}', "[" * 20_000,
        '{"payloadType": "x", "payload": "====", "signatures": [{"sig": ""}]}',
        '{"payloadType": "x", "payload": "", "signatures": []}',
        '{"payloadType": 7, "payload": "", "signatures": [{"keyid": "k", "sig": ""}]}',
        '{"payloadType": "x", "payload": "", "signatures": [{"sig": ""}, {"sig": ""}]}',
    ],
)  # fmt: skip
def test_what_is_no_envelope_is_named_so(text):
    with pytest.raises(NotAnAttestation):
        parse_envelope(text)


@given(st.dictionaries(st.text(), st.text() | st.integers() | st.lists(st.text()), max_size=5))
def test_a_payload_with_other_fields_is_no_certificate(predicate):
    payload = json.dumps({"predicate": predicate}).encode()
    text = attestation.write_envelope(attestation.STATEMENT_PAYLOAD, payload, "k", b"s")

    with pytest.raises(NotAnAttestation):
        read_certificate(parse_envelope(text))


def test_a_statement_with_one_field_more_is_refused(signer):
    document = json.loads(envelope_of(signer.sign(CERTIFICATE)))
    statement = json.loads(base64.b64decode(document["payload"]))
    statement["predicate"]["unseen"] = "field"
    document["payload"] = base64.b64encode(json.dumps(statement).encode()).decode()

    with pytest.raises(NotAnAttestation, match="fields"):
        read_certificate(parse_envelope(json.dumps(document)))


def listed(signer: Signer, *revoked: Revocation, keys: tuple[str, ...] = ()):
    payload = attestation.write_revocations(revoked, keys, NOW, 3600)
    text = signer.seal(attestation.REVOCATIONS_PAYLOAD, payload)
    envelope = parse_envelope(text)
    assert signed(envelope, {signer.key_id: signer.public_key})
    return attestation.read_revocations(envelope)


def test_a_certificate_is_believed_until_it_expires_or_is_revoked(signer):
    certificate = signer.sign(CERTIFICATE)
    mine = Revocation(certificate="c1", node="su0-n01", revoked_at=NOW, reason="drift: GPU 3")
    other = mine.model_copy(update={"certificate": "c2"})

    def why(now: float, *revoked: Revocation, keys: tuple[str, ...] = ()) -> str:
        return " ".join(
            attestation.find_objections(certificate, now, listed(signer, *revoked, keys=keys))
        )

    assert why(NOW, other) == ""
    assert attestation.find_objections(certificate, NOW) == ()
    assert "drift: GPU 3" in why(NOW, mine, other)
    assert "was withdrawn" in why(NOW, keys=(certificate.key_id,))
    assert "out of date" in why(NOW + 3600)
    assert "list is from the future" in why(NOW - 10)
    assert "expired" in why(certificate.expires_at)
    assert "from the future" in why(certificate.issued_at - 1)


def test_a_withdrawn_key_is_believed_no_more_and_a_retired_one_still_is(run):
    async def scenario(store):
        master = MasterKey.generate()
        first = (await open_signer(store, master, 1.0)).sign(CERTIFICATE)
        second = (await exchange_signing_key(store, master, 2.0)).sign(CERTIFICATE)
        retired = await store.evidence.is_attested(first)
        third = await exchange_signing_key(store, master, 3.0, compromised=True)
        return (
            retired,
            await store.evidence.is_attested(first),
            await store.evidence.is_attested(second),
            await store.evidence.is_attested(third.sign(CERTIFICATE)),
            await store.evidence.is_attested(CERTIFICATE),
            set(await public_keys(store)) == {third.key_id},
        )

    assert run(scenario) == (True, False, False, True, False, True)
