"""The certificate of the API and of metrics: the site's own, or one of our authority.

A site's certificate is renewed by its own tool (an ACME client, cert-manager). The files are looked
at again and again, and a new pair is served from the next connection on, without a restart. A pair
that does not fit is never put in force: the one before goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from cryptography import x509

from provisioner.adapters.agent.tls import names_of_ours, open_authority
from provisioner.model.input_error import InputError
from provisioner.runtime import process_scope
from provisioner.settings import Settings

log = logging.getLogger(__name__)
LOOK_S = 30.0  # how late a renewed certificate is served
EXPIRES = "api_certificate_expires_at"  # of the process's gauges, in seconds since the epoch
FILE_MAX = 256 * 1024
Marks = tuple[tuple[int, int, int], ...]


class ServedCertificate:
    """A certificate with its key in files, and the TLS of servers that show it."""

    def __init__(self, certificate: str, key: str = "") -> None:
        """Read the files. Raises InputError if they cannot be used."""
        self._certificate = certificate
        self._key = key
        self._problem = ""
        self._marks = self._read_marks()
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            self._load()
        except (OSError, ssl.SSLError, ValueError) as error:
            remedy = "Name a PEM file with the certificate, its chain and its key."
            problem = f"it cannot be used ({_explain(error)})"
            raise InputError("api_certificate", certificate, problem, remedy) from None

    def reload(self) -> bool:
        """Put changed files in force; return whether there were any, and they fit together."""
        marks = self._read_marks()
        if marks == self._marks:
            return False
        try:
            self._load()
        except (OSError, ssl.SSLError, ValueError) as error:
            problem = _explain(error)
            if problem != self._problem:  # its key may follow in a moment
                log.warning("the new %s is not served yet: %s", self._certificate, problem)
            self._problem = problem
            return False
        self._marks = marks
        self._problem = ""
        log.warning("the API serves the new certificate of %s", self._certificate)
        return True

    def _load(self) -> None:
        """Try the pair in a context of its own first: a half one would break the served one."""
        scratch = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        scratch.load_cert_chain(self._certificate, self._key or None)
        with Path(self._certificate).open("rb") as file:
            (leaf, *_) = x509.load_pem_x509_certificates(file.read(FILE_MAX))
        self.context.load_cert_chain(self._certificate, self._key or None)
        counts = process_scope.get_scope().counts
        counts[EXPIRES] = int(leaf.not_valid_after_utc.timestamp())

    def _read_marks(self) -> Marks:
        """Return what changes when a file is exchanged, also behind a symbolic link."""
        marks = []
        for name in filter(None, (self._certificate, self._key)):
            with contextlib.suppress(OSError):
                status = Path(name).stat()
                marks.append((status.st_mtime_ns, status.st_ino, status.st_size))
        return tuple(marks)


@asynccontextmanager
async def served_tls(
    data: Path, settings: Settings, look_s: float = LOOK_S
) -> AsyncIterator[ssl.SSLContext]:
    """Yield the TLS of our servers, and keep its certificate in step with the site's files.

    Raises InputError if it cannot be used.
    """
    if not settings.api_certificate:
        named = [*settings.api_names, settings.api_host, "localhost", "127.0.0.1"]
        yield open_authority(data).server_context(names_of_ours(named))
        return
    served = ServedCertificate(settings.api_certificate, settings.api_certificate_key)
    looking = asyncio.create_task(_look_again(served, look_s), name="renewed certificate")
    try:
        yield served.context
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)


async def _look_again(served: ServedCertificate, look_s: float) -> None:
    while True:
        await asyncio.sleep(look_s)
        served.reload()


def _explain(error: Exception) -> str:
    return str(getattr(error, "strerror", "") or error)
