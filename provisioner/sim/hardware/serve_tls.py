"""Certificates of simulated BMCs: each its own, self-signed, as delivered by the factory."""

from __future__ import annotations

import ssl
import tempfile
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

VALID_DAYS = 3650


def make_certificate(name: str, host: str) -> tuple[bytes, bytes]:
    """A new P-256 certificate and key in PEM (P-256: half the handshake cost of RSA-2048)."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])
    now = datetime.now(UTC)
    cert = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=VALID_DAYS))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ip_address(host))]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    return cert.public_bytes(pem), key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def server_context(name: str, host: str) -> ssl.SSLContext:
    """A TLS server context with its own certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    load_certificate(context, *make_certificate(name, host))
    return context


def load_certificate(context: ssl.SSLContext, cert: bytes, key: bytes) -> None:
    """Present this certificate from the next handshake on. `ssl` reads keys from files only."""
    with tempfile.NamedTemporaryFile(suffix=".pem") as file:  # mode 0600
        Path(file.name).write_bytes(key + cert)
        context.load_cert_chain(file.name)
