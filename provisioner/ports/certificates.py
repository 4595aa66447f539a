"""The site's certificate authority, which signs the requests of BMCs."""

from __future__ import annotations

from typing import Protocol

from provisioner.model.outcome import Blocker


class CertificateAuthority(Protocol):
    """Signs. A request may be signed twice: nothing is revoked here."""

    async def sign(self, bmc: str, host: str, request: str) -> str | Blocker:
        """Return the certificate (PEM, the BMC's own first) for a request (PKCS#10, PEM).

        `bmc` is "node/bmc", `host` the name or address in the BMC's URL. Raises `PortError`
        subclasses only.
        """
        ...
