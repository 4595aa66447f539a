"""Verdicts that follow from golden values, from signers that expired, and from the decoder.

The reports are re-made: simulated devices, signed by the simulator's own authority.
"""

from __future__ import annotations

from datetime import UTC, datetime

from attested_devices import (
    AT,
    AUTHORITY,
    TRUST,
    Question,
    make_gpu,
    names_of,
    write_driver_rim,
    write_vbios_rim,
)

from provisioner.checks.attestation.certificate_chains import parse_certificates, verify_chain
from provisioner.integrations.sim.hardware.device_authority import issue
from provisioner.model.certificate import Verdict


def test_22_a_signer_that_expired_after_the_admission_is_accepted_and_noted() -> None:
    times = (datetime(2023, 1, 1, tzinfo=UTC), datetime(2025, 1, 1, tzinfo=UTC))
    signer = AUTHORITY.make_signer(*times)
    rims = [
        ("driver", write_driver_rim(signer=signer)),
        ("vbios", write_vbios_rim(signer=signer)),
    ]
    admitted_at = datetime(2024, 6, 1, tzinfo=UTC).timestamp()

    result = Question(rims=rims, admitted_at=admitted_at).judge()

    assert result.verdict is Verdict.PROVED
    assert "rim signer expired since" in names_of(result)


def test_23_an_enabled_decoder_is_compared() -> None:
    gpu = make_gpu()
    enabled = make_gpu(opaque={**gpu.opaque, 11: b"\xaa"})
    lying = make_gpu(opaque={**gpu.opaque, 11: b"\xaa"})
    lying.values[36] = b"\1" * 48

    assert Question(gpu=enabled).judge().measurements.golden == 34
    assert Question(gpu=lying).judge().verdict is Verdict.CONTRADICTED


def test_another_measurement_is_contradicted_with_index_golden_and_measured_value() -> None:
    gpu = make_gpu()
    golden = gpu.values[3].hex()
    gpu.values[3] = b"\xbb" * 48

    result = Question(gpu=gpu).judge()

    assert result.verdict is Verdict.CONTRADICTED
    (mismatch,) = result.mismatches
    assert (mismatch.index, mismatch.golden, mismatch.measured) == (3, (golden,), "bb" * 48)
    assert (result.measurements.golden, result.measurements.matched) == (33, 32)


def test_a_missing_index_is_a_mismatch() -> None:
    gpu = make_gpu()
    del gpu.values[3]

    assert Question(gpu=gpu).judge().mismatches[0].measured == ""


def test_without_a_reference_nothing_is_proved() -> None:
    result = Question(rims=[]).judge()

    assert result.verdict is Verdict.UNPROVED
    assert "reference missing" in names_of(result)


def test_an_authority_that_may_not_issue_is_refused() -> None:
    """A leaf that issues another leaf: its basic constraints say that it is no authority."""
    device = make_gpu().device
    below = issue("below", "GH100 A01 GSP FMC LF", device.holder, is_ca=False, serial="A0")
    pem = below.pem + device.chain_pem

    chain = verify_chain(parse_certificates(pem.encode()), TRUST.devices, AT)

    assert any("may not issue" in str(f) for f in chain.findings)
