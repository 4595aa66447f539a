"""The server outside of us that has firmware files, as far as we need one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from provisioner.model.artifact import Validators


class ArtifactServer(Protocol):
    """Reads files by plain name. Both raise `PortError`; None: there is no such file."""

    url: str  # of the place that the files are in, without a slash at its end

    def address(self, name: str, *, doubled: bool = False) -> str:
        """Where whoever wants it fetches this file.

        `doubled`: with two slashes behind the host, as a BlueField's BMC asks (facts: redfish 3.3).
        """
        ...

    async def head(
        self, name: str, timeout_s: float, *, doubled: bool = False
    ) -> Validators | None:
        """What it offers now, without the file."""
        ...

    async def get(
        self, name: str, size_max_bytes: int, take: Callable[[bytes], Awaitable[None]]
    ) -> Validators | None:
        """The whole file, piece by piece; returns only if every byte of it has come.

        What `take` raises comes through as it is.
        """
        ...
