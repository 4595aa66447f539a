"""Secure Boot as a BMC shows it: the state of each system, and a digest of each key database.

The digest covers the entries as a sorted set: SHA-256 of each certificate, type and text of each
other signature. Order, ids of members and the owner's GUID are left out, because a BMC makes them
anew at a boot. This is the BMC's word: a quote of the board's TPM proves more (PCR 7).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from cryptography.hazmat.primitives.serialization import Encoding

from provisioner.checks.attestation.certificate_chains import parse_certificates
from provisioner.checks.check import Unreadable
from provisioner.checks.readers.bmc_resources import Resources, read_resources
from provisioner.checks.readers.tool_output import parse_json
from provisioner.model.attestation import Unacceptable

NAMES = ("PK", "KEK", "db", "dbx")
_ENTRIES = ("Certificates", "Signatures")
SYSTEMS_MAX = 8


@dataclass(frozen=True)
class BootDatabase:
    """One database: how many entries it has, and the digest over them."""

    entries: int
    sha256: str


@dataclass(frozen=True)
class BootState:
    """Secure Boot of one system."""

    source: str  # path of its resource
    running: bool | None  # of this boot; None: not shown
    mode: str  # SetupMode, UserMode, AuditMode, DeployedMode; "" if not shown
    databases: Mapping[str, BootDatabase] = field(default_factory=dict)


def read_boot_states(text: str) -> tuple[BootState, ...]:
    """Return the state of each system that has Secure Boot. Raises `Unreadable`.

    A database whose entries the BMC does not show is left out: it is not an empty one.
    """
    resources = read_resources(text)
    missing = tuple(_list_missing(text))
    states = [path for path in resources if path.rstrip("/").endswith("/SecureBoot")]
    return tuple(_read_state(path, resources, missing) for path in states[:SYSTEMS_MAX])


def digest_entries(entries: Mapping[str, Mapping[str, Any]]) -> BootDatabase:
    """Return count and digest of the entries of one database. Raises `Unreadable`."""
    lines = sorted({line for path, body in entries.items() for line in _describe(path, body)})
    return BootDatabase(len(lines), hashlib.sha256("\n".join(lines).encode()).hexdigest())


def _read_state(path: str, resources: Resources, missing: tuple[str, ...]) -> BootState:
    body = resources[path]
    running = {"Enabled": True, "Disabled": False}.get(str(body.get("SecureBootCurrentBoot")))
    mode = body.get("SecureBootMode")
    databases = {}
    for name in NAMES:
        at = f"{path.rstrip('/')}/SecureBootDatabases/{name}"
        shown = resources.get(at, {})
        links = [link for kind in _ENTRIES if (link := _link(shown, kind))]
        if not links or any(gap.startswith(link) for gap in missing for link in links):
            continue
        entries = {
            p: b for p, b in resources.items() if any(p.startswith(f"{link}/") for link in links)
        }
        databases[name] = digest_entries(entries)
    return BootState(path, running, mode if isinstance(mode, str) else "", databases)


def _link(body: Mapping[str, Any], name: str) -> str:
    target = body.get(name)
    path = target.get("@odata.id") if isinstance(target, dict) else None
    return path.rstrip("/") if isinstance(path, str) else ""


def _list_missing(text: str) -> Iterator[str]:
    """Return the paths that the BMC did not serve; `read_resources` has checked their form."""
    for gap in parse_json(text, "Redfish").get("gaps", []):
        yield str(gap[0]).rstrip("/")


def _describe(path: str, body: Mapping[str, Any]) -> Iterator[str]:
    """Return a line for each certificate of an entry, or one for a signature of another kind."""
    pem = body.get("CertificateString")
    signature = body.get("SignatureString")
    if isinstance(pem, str):
        try:
            certificates = parse_certificates(pem.encode())
        except Unacceptable as refused:
            raise Unreadable(f"{path[-80:]}: {refused.finding}") from None
        for certificate in certificates:
            der = certificate.public_bytes(Encoding.DER)
            yield f"certificate {hashlib.sha256(der).hexdigest()}"
    elif isinstance(signature, str) and signature.strip():
        yield f"signature {str(body.get('SignatureType', ''))[:80]} {signature.strip()}"
    else:
        raise Unreadable(f"{path[-80:]}: an entry without a certificate or a signature")
