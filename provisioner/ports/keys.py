"""A service that seals the master key, so that it is on no disk of ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from provisioner.model.integrations.wrapped_key import KeyService
from provisioner.ports.wire import Secret


class KeyWrapping(Protocol):
    """Seals and opens one text. Raises InputError with the service's reason."""

    async def wrap(self, key: Secret) -> str: ...

    async def unwrap(self, ciphertext: str) -> Secret: ...


OpenKeyService = Callable[[KeyService], KeyWrapping]
