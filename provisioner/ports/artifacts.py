"""The external server that has firmware files."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from provisioner.model.artifact import Validators


class ArtifactServer(Protocol):
    """Reads files by plain name. Both readers raise `PortError`, and return None if there is no
    such file.
    """

    url: str  # of the folder of the files, without a trailing slash

    def address(self, name: str, *, doubled: bool = False) -> str:
        """Return the URL at which a device fetches this file.

        `doubled`: with two slashes behind the host, as a BlueField's BMC needs (facts: redfish
        3.3).
        """
        ...

    async def head(
        self, name: str, timeout_s: float, *, doubled: bool = False
    ) -> Validators | None:
        """Return the validators that the server sends now, without reading the file."""
        ...

    async def get(
        self, name: str, size_max_bytes: int, take: Callable[[bytes], Awaitable[None]]
    ) -> Validators | None:
        """Read the whole file in pieces; return only after every byte has arrived.

        Exceptions of `take` are passed on unchanged.
        """
        ...
