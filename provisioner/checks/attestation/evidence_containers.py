"""Files of evidence: reports and certificate chains, told apart by content and never by name.

Accepted: binary, hex and base64 text, PEM and DER chains, and JSON that holds any of these under
the names that NVML, NSCQ, the SDK's evidence files and Redfish answers use.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from cryptography import x509

from provisioner.checks.attestation.certificate_chains import parse_certificates
from provisioner.checks.attestation.device_reports import Evidence
from provisioner.checks.attestation.tpm_quotes import QuoteEvidence
from provisioner.model.certificate import Effect, Finding, FindingName, Unacceptable
from provisioner.model.matrix import Reference
from provisioner.model.shipped_tables import read_table

# ------------------------------------------------------------------------------
# The step that would settle each finding about signed evidence, for the person who reads it.


REMEDIES: Mapping[FindingName, str] = {
    FindingName(row["finding"]): row["remedy"]
    for row in read_table("provisioner.checks.attestation", "finding_remedies.csv")
}


def list_remedies(findings: Iterable[Finding]) -> tuple[str, ...]:
    """Return the steps that would settle the findings of one component, each once."""
    steps = (REMEDIES.get(f.name) for f in findings if f.effect is not Effect.NOTES)
    return tuple(dict.fromkeys(step for step in steps if step))


# ------------------------------------------------------------------------------
# The versions and manifests that a profile's pins name for devices that give reports.


NO_MANIFEST = "none"  # no file has this digest
# what a report states -> the pinned kind
PINNED: Mapping[str, str] = {
    "gpu.report/driver": "host.driver",
    "gpu.report/vbios": "hgx.gpu",
    "nvswitch.report/vbios": "hgx.nvswitch",
}


@dataclass(frozen=True)
class PinnedVersions:
    """The only versions and manifests that count."""

    versions: Mapping[str, tuple[str, ...]]  # "gpu.report/driver" -> approved versions
    admitted_at: Mapping[str, float]  # SHA-256 of a manifest -> when a person admitted it

    @property
    def manifests(self) -> frozenset[str]:
        """The manifests by digest; a pin that names none has none, and stays unproved."""
        return frozenset(self.admitted_at) or frozenset({NO_MANIFEST})


def select_pinned(
    pins: Mapping[str, tuple[str, ...]],
    references: Mapping[str, Reference],
    more: Iterable[Reference] = (),
) -> PinnedVersions:
    """Return what reports are compared with.

    `pins`: kind -> approved versions; `more`: manifests of parts that have no pin of their own.
    """
    named = [references[kind] for kind in PINNED.values() if kind in references]
    admitted = {reference.sha256: _read_day(reference) for reference in (*named, *more)}
    versions = {name: pins[kind] for name, kind in PINNED.items() if pins.get(kind)}
    return PinnedVersions(versions, admitted)


def _read_day(reference: Reference) -> float:
    return datetime.fromisoformat(reference.admitted).replace(tzinfo=UTC).timestamp()


SIZE_MAX = 8 * 1024 * 1024  # bytes of a file; 72 GPUs with their chains have less than 1 MB
REPORTS_MAX = 1024  # of one file
DEPTH_MAX = 8
_HEX = re.compile(rb"(?:0x)?(?:[0-9a-fA-F]\s*)+")
_BASE64 = re.compile(rb"[A-Za-z0-9+/=_\-\s]+")
_REPORT_KEYS = ("evidence", "signedmeasurements", "report", "attestationreport")
_QUOTE_KEYS = ("quote", "signature", "ak")
_CHAIN_KEYS = ("certificate", "certificates", "certificatestring", "certificatechain", "certchain")


@dataclass(frozen=True)
class Chained:
    """A certificate chain of a file, or why it cannot be read."""

    certificates: tuple[x509.Certificate, ...]
    problem: Finding | None = None


@dataclass(frozen=True)
class Contents:
    """The content of one file: reports with their chains, and what stands alone."""

    paired: tuple[Evidence, ...] = ()
    reports: tuple[bytes, ...] = ()
    chains: tuple[Chained, ...] = ()
    quotes: tuple[QuoteEvidence, ...] = ()


def read_evidence_file(raw: bytes) -> Contents:
    """Return the reports and chains of a file; bytes of no known form are a malformed report."""
    if len(raw) > SIZE_MAX:
        return Contents(reports=(raw[:64],))
    document = _parse_json(raw)
    if document is None:
        content = decode_text(raw)
        if _is_chain(content):
            return Contents(chains=(_read_chain(content),))
        return Contents(reports=(content,))
    collected = _Collected([], [], [], [])
    _collect(document, collected, 0)
    return Contents(
        tuple(collected.paired[:REPORTS_MAX]),
        tuple(collected.reports[:REPORTS_MAX]),
        tuple(collected.chains[:REPORTS_MAX]),
        tuple(collected.quotes[:REPORTS_MAX]),
    )


def read_manifest_file(raw: bytes, name: str) -> tuple[tuple[str, bytes], ...]:
    """Return (id, document) of a manifest: XML, its base64, or the RIM service's JSON answer."""
    document = _parse_json(raw[:SIZE_MAX])
    rows = document if isinstance(document, list) else [document]
    answers = [r for r in rows if isinstance(r, dict) and isinstance(r.get("rim"), str)]
    if answers:
        return tuple(
            (str(r.get("id", name))[:120], decode_text(r["rim"].encode())) for r in answers
        )
    text = raw.strip()
    return ((name, raw if text.startswith((b"<", b"\xef\xbb\xbf")) else decode_text(raw)),)


def decode_text(raw: bytes) -> bytes:
    """Return the bytes that hex or base64 text stands for; other bytes as they are."""
    text = raw.strip()
    if b"-----BEGIN" in text[:4096] or not text:
        return text or raw
    if _HEX.fullmatch(text):
        digits = b"".join(text.split()).removeprefix(b"0x")
        return bytes.fromhex(digits[: len(digits) // 2 * 2].decode())
    if _BASE64.fullmatch(text):
        joined = b"".join(text.split()).replace(b"-", b"+").replace(b"_", b"/").rstrip(b"=")
        try:
            return base64.b64decode(joined + b"=" * (-len(joined) % 4), validate=True)
        except (binascii.Error, ValueError):
            return raw
    return raw


@dataclass
class _Collected:
    paired: list[Evidence]
    reports: list[bytes]
    chains: list[Chained]
    quotes: list[QuoteEvidence]


def _parse_json(raw: bytes) -> Any:
    if raw.lstrip()[:1] not in (b"{", b"["):
        return None
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return None


def _collect(node: Any, collected: _Collected, depth: int) -> None:
    if depth > DEPTH_MAX or len(collected.paired) > REPORTS_MAX:
        return
    if isinstance(node, list):
        for item in node[:REPORTS_MAX]:
            _collect(item, collected, depth + 1)
        return
    if not isinstance(node, dict):
        return
    lowered = {str(key).lower().replace("_", ""): value for key, value in node.items()}
    if all(isinstance(lowered.get(k), str) for k in _QUOTE_KEYS):
        collected.quotes.append(_read_quote(lowered))
        return
    report = next((lowered[k] for k in _REPORT_KEYS if isinstance(lowered.get(k), str)), None)
    texts = [t for k in _CHAIN_KEYS for t in _chain_texts(lowered.get(k))]
    chain = _read_chain(b"\n".join(decode_text(t.encode()) for t in texts)) if texts else None
    if report is not None:
        content = decode_text(report.encode())
        if chain is None:
            collected.reports.append(content)
        else:
            collected.paired.append(Evidence(content, chain.certificates, chain.problem))
    elif chain is not None:
        collected.chains.append(chain)
    else:
        for value in list(node.values())[:REPORTS_MAX]:
            _collect(value, collected, depth + 1)


def _read_quote(lowered: dict[str, Any]) -> QuoteEvidence:
    """A TPM's quote: each part as hex or base64, the key also as PEM, the event log if it came."""
    log = lowered.get("eventlog")
    quote, signature, key = (decode_text(lowered[k].encode()) for k in _QUOTE_KEYS)
    events = decode_text(log.encode()) if isinstance(log, str) else b""
    return QuoteEvidence(quote, signature, key, events)


def _chain_texts(value: Any) -> list[str]:
    """The texts of a chain: one text, a list of texts, or Redfish certificates."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return _chain_texts(value.get("CertificateString"))
    if isinstance(value, list):
        return [t for item in value[:16] if not isinstance(item, list) for t in _chain_texts(item)]
    return []


def _is_chain(content: bytes) -> bool:
    return b"-----BEGIN CERTIFICATE" in content or content[:2] == b"\x30\x82"


def _read_chain(content: bytes) -> Chained:
    try:
        return Chained(parse_certificates(content))
    except Unacceptable as refused:
        return Chained((), refused.finding)
