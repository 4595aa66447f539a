"""Our certificate authority for the agents' side: the ramdisk trusts it, and it alone.

It is made at the first start, in the data directory; its certificate goes into the maintenance
image or onto its kernel command line. The server's certificate is made at every start: nothing but
the authority is kept. Its key is sealed under the master key; one in clear, of an older version, is
sealed at the first start, and removed.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Protocol

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from provisioner.model.input_error import InputError
from provisioner.runtime.server_tls import open_server_context
from provisioner.runtime.whole_files import replace_file

KEY_FILE = "agent-ca.key"  # in clear, of older versions
CERTIFICATE_FILE = "agent-ca.pem"
AUTHORITY_DAYS = 3650  # images are built anew far more often
SERVER_DAYS = 397  # longer than a daemon runs
SKEW = timedelta(days=1)  # the clock of a ramdisk may be behind
FILE_MAX = 16 * 1024  # bytes of a key or certificate
EVERYWHERE = frozenset({"0.0.0.0", "::"})  # noqa: S104 (no address that a client would use)
Key = ec.EllipticCurvePrivateKey
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Authority:
    """Signs the certificate that our server shows to agents."""

    certificate: x509.Certificate
    key: Key

    def ca_pem(self) -> str:
        """Return the certificate that a ramdisk must trust."""
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    def server_context(self, hosts: tuple[str, ...]) -> ssl.SSLContext:
        """Return TLS for a server that agents call by these names or addresses."""
        return open_server_context(self.make_server_pem(hosts))

    def make_server_pem(self, hosts: tuple[str, ...]) -> bytes:
        """Return a new key, secret, with its certificate by these names, and our own."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = _certificate("provisioner", key, self.certificate, self.key, hosts)
        shown = certificate.public_bytes(serialization.Encoding.PEM)
        return _pem(key) + shown + self.ca_pem().encode()


def names_of_ours(names: Iterable[str]) -> tuple[str, ...]:
    """Return those names that our certificate can have, each once."""
    return tuple(dict.fromkeys(n for n in names if n and n not in EVERYWHERE))


class Custody(Protocol):
    """Where the authority's key is kept."""

    def read(self) -> bytes | None:
        """Return the key, PEM; None if there is none. Raises `InputError` if it does not open."""
        ...

    def write(self, plain: bytes) -> None: ...


def open_authority(directory: Path, custody: Custody) -> Authority:
    """Return the authority of this data directory, made if there is none.

    The caller holds the directory's lock. Raises `InputError` if its files cannot be used: a new
    one is never made in place of one that images trust already.
    """
    certificate_file = directory / CERTIFICATE_FILE
    key = _take_over(directory / KEY_FILE, custody)
    if key is None:
        if certificate_file.exists():
            remedy = "Restore it from a backup, or delete the certificate: images are built anew."
            name = f"{KEY_FILE}.sealed"
            raise InputError(str(directory / name), "", "is missing, not its certificate", remedy)
        key = ec.generate_private_key(ec.SECP256R1())
        custody.write(_pem(key))
    if not certificate_file.exists():  # a crash in between: the key alone has signed nothing
        made = _certificate("provisioner agents", key, None, key, ())
        replace_file(certificate_file, made.public_bytes(serialization.Encoding.PEM))
    try:
        certificate = x509.load_pem_x509_certificate(_content(certificate_file))
    except ValueError:
        raise _unusable(certificate_file, "is no certificate") from None
    if certificate.public_key() != key.public_key():
        raise _unusable(certificate_file, f"does not belong to {KEY_FILE}")
    if certificate.not_valid_after_utc < datetime.now(UTC):
        raise _unusable(certificate_file, "has expired")
    return Authority(certificate, key)


def _certificate(
    name: str, key: Key, issuer: x509.Certificate | None, signer: Key, hosts: tuple[str, ...]
) -> x509.Certificate:
    """An authority's own certificate (no issuer), or a server's; with what RFC 5280 wants of each:
    Python 3.13 and others verify strictly."""
    now = datetime.now(UTC)
    authority = issuer is None
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    days = AUTHORITY_DAYS if authority else SERVER_DAYS
    usage = {"key_cert_sign": authority, "crl_sign": authority, "digital_signature": True}
    unused = (
        "content_commitment",
        "key_encipherment",
        "data_encipherment",
        "key_agreement",
        "encipher_only",
        "decipher_only",
    )
    built = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.subject if issuer is not None else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(
            x509.BasicConstraints(ca=authority, path_length=0 if authority else None), critical=True
        )
        .add_extension(x509.KeyUsage(**usage, **dict.fromkeys(unused, False)), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
    )
    if not authority:
        names = x509.SubjectAlternativeName([_name(host) for host in hosts])
        serves = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
        built = built.add_extension(names, critical=False).add_extension(serves, critical=False)
    return built.sign(signer, hashes.SHA256())


def _name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(key: Key) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _take_over(clear: Path, custody: Custody) -> Key | None:
    """Return the key that is kept; one in clear is sealed, and removed once that opens again."""
    kept = custody.read()
    content = _content(clear) if clear.exists() else b""
    if kept is not None and content and not content.strip(b"\0"):
        clear.unlink()  # a start that sealed it was cut off
    elif content:
        found = _parse_key(content, clear)
        if (mode := clear.stat().st_mode) & 0o077:
            remedy = f"Run: chmod 0600 {clear}"
            raise InputError(str(clear), "", f"others may use it (mode {mode & 0o777:04o})", remedy)
        if kept is None:
            custody.write(content)
            kept = custody.read()
        if kept is None or _parse_key(kept, clear).public_key() != found.public_key():
            remedy = "Move the one away that agent-ca.pem does not belong to."
            raise InputError(str(clear), "", "is another key than the sealed one beside it", remedy)
        clear.write_bytes(b"\0" * len(content))
        clear.unlink()
        log.warning("%s was in clear; it is sealed under the master key now", clear)
    return None if kept is None else _parse_key(kept, clear)


def _parse_key(content: bytes, file: Path) -> Key:
    try:
        key = serialization.load_pem_private_key(content, password=None)
    except ValueError:
        raise _unusable(file, "is no key") from None
    if not isinstance(key, Key):
        raise _unusable(file, "is a key of another kind")
    return key


def _content(file: Path) -> bytes:
    try:
        with file.open("rb") as stream:
            return stream.read(FILE_MAX)
    except OSError as error:
        raise _unusable(file, f"cannot be read ({error.strerror})") from None


def _unusable(file: Path, problem: str) -> InputError:
    remedy = f"Restore it; or delete {KEY_FILE} and {CERTIFICATE_FILE} and build the image anew."
    return InputError(str(file), "", problem, remedy)
