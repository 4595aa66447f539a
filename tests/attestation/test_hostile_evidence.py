"""Evidence with any bytes changed: nothing but a verdict comes out, and never `proved`."""

from __future__ import annotations

from attested_devices import AT, NONCE, TRUST, Question, chain_of, make_gpu, write_vbios_rim
from hypothesis import example, given
from hypothesis import strategies as st

from provisioner.checks.attestation.certificate_chains import parse_certificates, verify_chain
from provisioner.checks.attestation.reference_manifests import read_manifest
from provisioner.checks.attestation.trust_anchors import digest_spki
from provisioner.model.certificate import Unacceptable, Verdict

REPORT = make_gpu().answer(NONCE)
NEWER = make_gpu(version=0x12).answer(NONCE)
CHAIN = chain_of(make_gpu().device)
RIM = write_vbios_rim()
PIECES = st.binary(min_size=1, max_size=8)


def replace(raw: bytes, at: int, piece: bytes) -> bytes:
    start = at % len(raw)
    return raw[:start] + piece + raw[start + len(piece) :]


@given(at=st.integers(0, 1 << 20), piece=PIECES, raw=st.sampled_from((REPORT, NEWER)))
@example(at=3, piece=b"\xff\x00", raw=REPORT)
def test_no_changed_report_is_proved(at: int, piece: bytes, raw: bytes) -> None:
    changed = replace(raw, at, piece)

    result = Question(report=changed).judge()

    assert (result.verdict is Verdict.PROVED) == (changed == raw)


@given(cut=st.integers(0, len(REPORT) - 1))
def test_no_shortened_report_is_proved(cut: int) -> None:
    assert Question(report=REPORT[:cut]).judge().verdict is not Verdict.PROVED


@given(at=st.integers(0, 1 << 20), piece=PIECES)
def test_a_changed_chain_ends_at_the_pinned_key_or_is_refused(at: int, piece: bytes) -> None:
    try:
        bag = parse_certificates(replace(CHAIN, at, piece))
        chain = verify_chain(bag, TRUST.devices, AT)
    except Unacceptable:
        return

    genuine = parse_certificates(CHAIN)
    if chain.anchor is not None:
        *below, root = chain.certificates
        assert set(below) <= set(genuine)
        # its key is pinned, its own signature proves nothing
        assert digest_spki(root) == chain.anchor.spki_sha256


@given(at=st.integers(0, 1 << 20), piece=PIECES)
def test_a_changed_manifest_gives_the_same_golden_values_or_none(at: int, piece: bytes) -> None:
    genuine = read_manifest(RIM, "own", TRUST.references, AT, AT)

    changed = read_manifest(replace(RIM, at, piece), "own", TRUST.references, AT, AT)

    assert genuine.golden
    assert changed.golden in ((), genuine.golden)
