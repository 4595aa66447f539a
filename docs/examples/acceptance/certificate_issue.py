"""Certificates of the second daemon's API, as a site's own tool would write and renew them."""

from __future__ import annotations

import datetime
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

AUTHORITY = "agent-ca"  # of the daemon's data folder: what clients of the run trust
DAYS = 30


def issue(data: Path, file: Path, days: float = DAYS) -> int:
    """Write a certificate with its key for 127.0.0.1 and return its serial number."""
    authority = x509.load_pem_x509_certificate((data / f"{AUTHORITY}.pem").read_bytes())
    signer = serialization.load_pem_private_key((data / f"{AUTHORITY}.key").read_bytes(), None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "second")]))
        .issuer_name(authority.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False
        )
        .sign(signer, hashes.SHA256())
    )
    form = serialization.PrivateFormat.PKCS8
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, form, serialization.NoEncryption())
    new = file.with_suffix(".new")
    new.touch(mode=0o600)
    new.write_bytes(certificate.public_bytes(pem) + private)
    new.replace(file)
    return certificate.serial_number
