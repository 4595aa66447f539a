"""Re-made reports: simulated GPUs and switches, signed by the simulator's own authority.

No genuine report is in this repository. The forms are those of public reports, the keys are the
simulator's, and a verifier trusts them only because these tests add the simulator's root.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from cryptography.hazmat.primitives.serialization import Encoding

from provisioner.checks.attestation.certificate_chains import parse_certificates
from provisioner.checks.attestation.device_reports import Evidence, Expectation, verify_report
from provisioner.checks.attestation.reference_manifests import ReferenceManifest, read_manifest
from provisioner.checks.attestation.trust_anchors import TrustStore, read_anchors
from provisioner.integrations.sim.hardware.device_authority import DeviceAuthority, SimulatedDevice
from provisioner.integrations.sim.hardware.simulated_tpm import (
    SpdmResponder,
    gpu_fields,
    make_values,
)
from provisioner.model.certificate import Attestation

NONCE = bytes.fromhex("5a" * 32)
AT = datetime(2026, 11, 22, tzinfo=UTC).timestamp()
DRIVER, VBIOS, BOARD = "590.12", "96.00.A5.00.01", "1010_0200_882"
VBIOS_INDICES, DRIVER_INDICES = range(1, 13), range(20, 42)  # of manifests, from 0; 35 is NVDEC's
AUTHORITY = DeviceAuthority("tests")
TRUST = TrustStore((), ()).with_added(read_anchors(AUTHORITY.root.pem.encode(), "the simulator"))


def make_gpu(serial: str = "A1", **changes: Any) -> SpdmResponder:
    """Return a GPU whose measurements are those of the manifests below."""
    device = AUTHORITY.make_device("GH100 A01 GSP", serial)
    opaque = gpu_fields(DRIVER, VBIOS, BOARD, device.fwid)
    own = {"values": make_values("firmware"), "opaque": opaque}
    return SpdmResponder(device, **{**own, **changes})


def write_driver_rim(version: str = DRIVER, **changes: Any) -> bytes:
    """Return the manifest of the driver."""
    return write_rim(version, DRIVER_INDICES, **changes)


def write_vbios_rim(version: str = VBIOS, **changes: Any) -> bytes:
    """Return the manifest of the VBIOS."""
    return write_rim(version, VBIOS_INDICES, **changes)


def write_rim(
    version: str,
    indices: range,
    *,
    seed: str = "firmware",
    by: DeviceAuthority = AUTHORITY,
    product: str = "GH100",
    signer: Any = None,
) -> bytes:
    values = make_values(seed)
    golden = {i: (values[i + 1],) for i in indices}
    return by.sign_manifest(product, version, golden, signer)


@dataclass
class Question:
    """A report and everything that it is judged by; a test changes one thing of it."""

    gpu: SpdmResponder = field(default_factory=make_gpu)
    report: bytes | None = None  # in place of the GPU's answer
    chain: bytes | None = None  # in place of the GPU's chain
    nonce: bytes | None = NONCE  # that we asked with
    rims: list[tuple[str, bytes]] = field(
        default_factory=lambda: [
            ("NV_GPU_DRIVER_GH100_590.12", write_driver_rim()),
            ("NV_GPU_VBIOS_1010_0200_882_9600A50001", write_vbios_rim()),
        ]
    )
    at: float = AT
    admitted_at: float | None = None
    admitted: frozenset[str] = frozenset()
    versions: dict[str, str] = field(default_factory=dict)

    def read_rims(self) -> tuple[ReferenceManifest, ...]:
        when = self.at if self.admitted_at is None else self.admitted_at
        return tuple(read_manifest(raw, i, TRUST.references, self.at, when) for i, raw in self.rims)

    def judge(self) -> Attestation:
        report = self.gpu.answer(NONCE) if self.report is None else self.report
        chain = chain_of(self.gpu.device) if self.chain is None else self.chain
        certificates = parse_certificates(chain) if chain else ()
        expected = Expectation(
            nonce=self.nonce,
            at=self.at,
            trust=TRUST,
            manifests=self.read_rims(),
            admitted=self.admitted,
            versions=self.versions,
        )
        return verify_report(Evidence(report, certificates), expected)


def chain_of(device: SimulatedDevice) -> bytes:
    return device.chain_pem.encode()


def pem_of(certificate: Any) -> bytes:
    pem: bytes = certificate.public_bytes(Encoding.PEM)
    return pem


def flip(raw: bytes, at: int, bit: int = 1) -> bytes:
    """Return the bytes with one bit changed."""
    return raw[:at] + bytes([raw[at] ^ bit]) + raw[at + 1 :]


def names_of(result: Attestation) -> set[str]:
    return {f.name.value for f in result.findings}
