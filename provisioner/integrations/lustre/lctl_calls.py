"""Commands of `lctl` on one MGS over SSH: whole answers or none, bounded in time and bytes."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from provisioner.adapters.ssh import SshShell
from provisioner.model.outcome import Reason
from provisioner.ports import (
    HostShell,
    Malformed,
    PortError,
    Remote,
    Secret,
    ShellCommand,
    ShellOutput,
    Unreachable,
)
from provisioner.runtime.late_module import LateModule

if TYPE_CHECKING:
    import asyncssh
else:  # loaded by the first connection
    asyncssh = LateModule("asyncssh")

END = "provisioner:end"  # printed after the last answer: without it an output is a part of one
COMMAND_S = 60.0
LINE_COMMANDS = 100  # of one line; each has some 80 bytes, and the line less than 128 KiB
_MISSING = ("No such file or directory", "No matching parameters")


class Refused(PortError):
    """`lctl` ran, and ended with a failure."""

    reason = Reason.REFUSED

    def __init__(self, output: ShellOutput) -> None:
        words = "".join(c if c.isprintable() else " " for c in output.stderr[:1000]).strip()
        super().__init__(f"lctl ended with {output.exit_code}: {words[:300] or 'no words'}")
        self.missing = any(text in output.stderr for text in _MISSING)


class LctlCalls:
    """`lctl` on one MGS. Raises `PortError` only."""

    def __init__(self, shell: HostShell, address: str) -> None:
        self._shell = shell
        self._address = address

    async def read(self, parameters: Sequence[str]) -> str:
        return (await self._run([["get_param", *parameters]]))[0]

    async def read_optional(self, parameter: str) -> str:
        """Return what is printed; "" where this Lustre has no such parameter."""
        try:
            return await self.read([parameter])
        except Refused as refused:
            if refused.missing:
                return ""
            raise

    async def change(self, commands: Sequence[Sequence[str]]) -> None:
        """Run the commands in their order, up to the first that fails."""
        for start in range(0, len(commands), LINE_COMMANDS):
            await self._run(commands[start : start + LINE_COMMANDS])

    async def close(self) -> None:
        await self._shell.close()

    async def _run(self, commands: Sequence[Sequence[str]]) -> tuple[str]:
        lines = [shlex.join(["lctl", *words]) for words in commands]
        line = " && ".join([*lines, f"echo {END}"])
        command = ShellCommand(f"lctl {commands[0][0]}", line, COMMAND_S)
        outputs = await self._shell.run(self._address, self._address, [command])
        if len(outputs) != 1:
            raise Malformed("lctl: not one answer to one command")
        output = outputs[0]
        if output.exit_code is None:
            raise Unreachable("lctl did not end in time", maybe_executed=True)
        if output.exit_code != 0:
            raise Refused(output)
        said, end, rest = output.stdout.rpartition(f"{END}\n")
        if output.truncated or not end or rest:
            raise Malformed("lctl: its answer is not whole")
        return (said,)


class KeyShell(SshShell):
    """As the daemon's shell, with the key that `storage` names; no host key is learned."""

    def __init__(self, remote: Remote, secret: Secret) -> None:
        super().__init__(remote, 1)
        self._secret = secret

    def _options(self, host: str, known: Any) -> Any:
        key = asyncssh.import_private_key(self._secret.reveal())
        options = super()._options(host, known)
        return asyncssh.SSHClientConnectionOptions(
            options=options, client_keys=[key], agent_path=None
        )
