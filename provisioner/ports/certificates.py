"""The site's certificate authority, which signs the requests of BMCs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from provisioner.model.integrations.wrapped_key import KeyService
from provisioner.model.outcome import Blocker
from provisioner.ports.wire import Secret

# ------------------------------------------------------------------------------
# A service that seals the master key, so that it is on no disk of ours.


class KeyWrapping(Protocol):
    """Seals and opens one text. Raises InputError with the service's reason."""

    async def wrap(self, key: Secret) -> str: ...

    async def unwrap(self, ciphertext: str) -> Secret: ...


OpenKeyService = Callable[[KeyService], KeyWrapping]


class CertificateAuthority(Protocol):
    """Signs. A request may be signed twice: nothing is revoked here."""

    async def sign(self, bmc: str, host: str, request: str) -> str | Blocker:
        """Return the certificate (PEM, the BMC's own first) for a request (PKCS#10, PEM).

        `bmc` is "node/bmc", `host` the name or address in the BMC's URL. Raises `PortError`
        subclasses only.
        """
        ...
