"""The `--expect` options of `attest verify`: pins that evidence is compared with."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from provisioner.checks.attestation.pinned_versions import select_pinned
from provisioner.checks.attestation.tpm_quotes import QuoteExpectation
from provisioner.model.input_error import InputError
from provisioner.model.matrix import AttestationRule, Pin

_SHA256 = re.compile(r"[0-9a-f]{64}")
_PCR = re.compile(r"pcr(\d|1\d|2[0-3])")
_REMEDY = "Write driver=VERSION, vbios=VERSION, rim=SHA256, ak=SHA256, pcr7=HEX or resets=NUMBER."


@dataclass
class ExpectedEvidence:
    """The pins that were named on the command line."""

    versions: dict[str, str | tuple[str, ...]] = field(default_factory=dict)  # driver, vbios
    rims: set[str] = field(default_factory=set)  # SHA-256 of manifests
    admitted_at: dict[str, float] = field(default_factory=dict)  # SHA-256 -> when, by the matrix
    key_sha256: str = ""  # of the enrolled attestation key
    pcrs: dict[int, tuple[str, ...]] = field(default_factory=dict)
    resets: int | None = None
    secure_boot: bool | None = None

    @property
    def manifests(self) -> frozenset[str]:
        """The only manifests that count; any with a good chain if none was named."""
        return frozenset(self.rims)

    def of_quote(self, nonce: bytes | None) -> QuoteExpectation:
        """Return the expectation for a TPM's quote."""
        return QuoteExpectation(
            nonce=nonce,
            key_sha256=self.key_sha256,
            reset_count=self.resets,
            secure_boot=self.secure_boot,
            golden_pcrs=tuple(sorted(self.pcrs.items())),
            reference="--expect",
        )


def add_pins(expected: ExpectedEvidence, pins: Mapping[str, Pin], rule: AttestationRule) -> None:
    """Expect the versions of a profile's pins, and only the manifests that it names.

    A version of which no manifest is named has none: it stays unproved.
    """
    known = {kind: (pin.version, *pin.also) for kind, pin in pins.items() if pin.known}
    references = {
        kind: pin.reference for kind, pin in pins.items() if pin.known and pin.reference is not None
    }
    more = (*rule.gpu_reports.references, *rule.nvswitch_reports.references)
    pinned = select_pinned(known, references, more)
    for name, versions in pinned.versions.items():
        expected.versions.setdefault(name, versions)
    expected.admitted_at.update(pinned.admitted_at)
    expected.rims |= pinned.admitted_at.keys()
    expected.rims = expected.rims or set(pinned.manifests)


def parse_expected(rows: list[str]) -> ExpectedEvidence:
    """Parse NAME=VALUE of each option. Raises InputError."""
    expected = ExpectedEvidence()
    for row in rows:
        name, _, value = row.partition("=")
        if not value or len(value) > 80 or not _take(expected, name, value):
            raise InputError("--expect", row[:80], "it is no expectation of this form", _REMEDY)
    return expected


def _take(expected: ExpectedEvidence, name: str, value: str) -> bool:
    """Store one expectation; False if its name or its value has another form."""
    if name in ("driver", "vbios"):
        expected.versions[name] = value
        return True
    if name == "resets" and value.isascii() and value.isdecimal():
        expected.resets = int(value)
        return True
    if name == "secure_boot" and value in ("on", "off"):
        expected.secure_boot = value == "on"
        return True
    digest = value.lower()
    pcr = _PCR.fullmatch(name)
    if not _SHA256.fullmatch(digest):
        return False
    if pcr is not None:
        number = int(pcr[1])
        expected.pcrs[number] = (*expected.pcrs.get(number, ()), digest)
    elif name == "rim":
        expected.rims.add(digest)
    elif name == "ak":
        expected.key_sha256 = digest
    else:
        return False
    return True
