"""Certificates of the second daemon's API, as a site's own tool would write and renew them."""

from __future__ import annotations

import datetime
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

AUTHORITY = "site-ca"  # beside the daemon's data folder: what clients of the run trust
DAYS = 30


def issue(data: Path, file: Path, days: float = DAYS) -> int:
    """Write a certificate with its key for 127.0.0.1 and return its serial number."""
    authority, signer = _open_authority(data.parent)
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


def _open_authority(folder: Path) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """Return the site's authority, made at the first use: the daemon's own signs nothing else."""
    certificate, private = folder / f"{AUTHORITY}.pem", folder / f"{AUTHORITY}.key"
    if not certificate.exists():
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "site")])
        now = datetime.datetime.now(datetime.UTC)
        made = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(minutes=5))
            .not_valid_after(now + datetime.timedelta(days=365))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(key, hashes.SHA256())
        )
        pem = serialization.Encoding.PEM
        form = serialization.PrivateFormat.PKCS8
        private.touch(mode=0o600)
        private.write_bytes(key.private_bytes(pem, form, serialization.NoEncryption()))
        certificate.write_bytes(made.public_bytes(pem))
    signer = serialization.load_pem_private_key(private.read_bytes(), None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    return x509.load_pem_x509_certificate(certificate.read_bytes()), signer
