"""Commands on one switch over SSH, for the adapters of systems that have no other API.

A command that reads and fails, or whose output cannot be read, is `Malformed`: it is never taken
for an empty answer. A command that writes and fails is the switch's refusal, in its own text.
"""

from __future__ import annotations

import json
from typing import Any, TypeVar
from urllib.parse import urlsplit

from provisioner.model.outcome import Reason
from provisioner.ports import HostShell, Malformed, ShellCommand, ShellOutput
from provisioner.ports.switch import SwitchRefused
from provisioner.runtime import permit

T = TypeVar("T")

READ_S = 30.0
WRITE_S = 300.0  # a patch is checked against the models first


class ShellLine:
    """One switch; nothing is kept. Methods raise `PortError`."""

    def __init__(self, name: str, shell: HostShell, url: str) -> None:
        self.name = name
        self.url = url
        self._shell = shell

    async def read_json(self, line: str) -> Any:
        """Return the JSON that a command prints."""
        text = await self.read_text(line)
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            raise Malformed(f"{self.url}: {line}: not JSON") from None

    async def read_text(self, line: str) -> str:
        """Return the text that a reading command prints."""
        with permit.allow_reads():
            output = await self._run(line, READ_S)
        if output.exit_code != 0 or output.truncated:
            raise Malformed(f"{self.url}: {line}: ended with {output.exit_code}")
        return output.stdout

    async def write(self, line: str) -> None:
        """Run a command that changes the switch."""
        output = await self._run(line, WRITE_S)
        if output.exit_code != 0:
            detail = output.stderr.strip() or output.stdout.strip() or "no message"
            raise SwitchRefused(Reason.SWITCH_REFUSED, f"{line.split()[0]}: {detail[-300:]}")

    def check(self, value: T | None, line: str) -> T:
        """Return a reading; raise `Malformed` for None, which stands for an unreadable output."""
        if value is None:
            raise Malformed(f"{self.url}: {line}: an answer that cannot be read")
        return value

    async def _run(self, line: str, timeout_s: float) -> ShellOutput:
        address = urlsplit(self.url).hostname or ""
        command = ShellCommand(name=line.split()[0], line=line, timeout_s=timeout_s)
        (output,) = await self._shell.run(address, address, [command])
        return output
