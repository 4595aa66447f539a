"""The serial consoles of hosts: their streams, and the book of their lines."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Literal, Protocol

from provisioner.model.base import Record
from provisioner.model.times.instant import Instant
from provisioner.ports.wire import BmcAddress


class ConsoleDoor(Record):
    """The way to a BMC's console: SSH to a port, or to a command at its shell, or IPMI."""

    port: int
    command: str = ""  # of SSH; "": the port leads to the console itself
    protocol: Literal["ssh", "ipmi"] = "ssh"


class ConsoleLine(Record):
    """One line as it is kept: printable text, without secrets. `seq` grows with each line."""

    seq: int
    at: Instant  # when it was received, seconds since the epoch
    text: str


class Consoles(Protocol):
    """Streams of consoles. Raises `PortError` subclasses only, also while reading."""

    def open(
        self, name: str, bmc: BmcAddress, door: ConsoleDoor
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Return the bytes that the console prints, until it ends; `name` pins the host key."""
        ...


class ConsoleBook(Protocol):
    """Lines of consoles by node, on disk when a method returns; bounded for each node."""

    async def append(self, node: str, lines: Sequence[str], at: float) -> None: ...

    async def list_lines(self, node: str, after: int, most: int) -> Sequence[ConsoleLine]:
        """Return the lines after a number; for `after` -1 the last ones."""
        ...

    async def prune(self, before: float) -> None:
        """Remove what was received before a time."""
        ...
