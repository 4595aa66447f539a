"""Changes a switch's expired password over SSH: the dialogue that sshd forces on the first login.

Cumulus Linux ships with a password that is expired, and its REST API answers 403 until it was
changed; no request of the API changes it. sshd then runs passwd(1) in the session, on a terminal.
The host key is believed when it is first seen, and pinned under the switch's name. Nothing that
either side said is repeated in an error: it may hold a password.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from provisioner.adapters.ssh import SshShell
from provisioner.ports import LoginRefused, Malformed, Remote, Secret, Unreachable
from provisioner.runtime.late_module import LateModule

if TYPE_CHECKING:
    import asyncssh
else:  # loaded by the first connection
    asyncssh = LateModule("asyncssh")

DIALOGUE_S = 60.0  # three questions; a loaded switch hashes a password for a second
SAID_MAX = 16_384  # characters of a dialogue; a banner and four lines are below 2,000
PORT = 22

_CURRENT = re.compile(r"(?:current|old)[^\n]*password: *$", re.IGNORECASE)
_NEW = re.compile(r"(?:retype |re-enter )?new[^\n]*password: *$", re.IGNORECASE)
_DONE = re.compile(r"password (?:updated|changed) successfully|all authentication tokens updated")
_NO = (
    "BAD PASSWORD",
    "manipulation error",
    "must choose",
    "unchanged",
    "do not match",
    "too short",
)


class SshPasswords:
    """`SwitchPasswords` for switches whose first login is over SSH.

    `known_hosts`: where keys are pinned; the daemon's own file.
    """

    def __init__(self, known_hosts: Path, port: int = PORT) -> None:
        self._known_hosts = known_hosts
        self._port = port

    async def change(
        self, switch: str, address: str, username: str, old: Secret, new: Secret
    ) -> None:
        """Answer the dialogue. Raises PortError: also if it ended in any other way than well."""
        remote = Remote(username, None, self._known_hosts, learn=True, port=self._port)
        connection = await _Login(remote, old).open(switch, address)
        try:
            async with asyncio.timeout(DIALOGUE_S):
                await _answered(connection, old, new)
        except (OSError, asyncssh.Error, TimeoutError) as error:
            detail = f"ssh {address}: the dialogue broke off ({type(error).__name__})"
            raise Unreachable(detail, maybe_executed=True) from None
        finally:
            connection.abort()


class _Login(SshShell):
    """As the daemon's shell, which pins the host's key, but with a password."""

    def __init__(self, remote: Remote, secret: Secret) -> None:
        super().__init__(remote, 1)
        self._secret = secret

    async def open(self, host: str, address: str) -> asyncssh.SSHClientConnection:
        """One connection; whoever asks ends it."""
        return await self._connect(host, address)

    def _options(
        self, host: str, known: asyncssh.SSHKnownHosts
    ) -> asyncssh.SSHClientConnectionOptions:
        return asyncssh.SSHClientConnectionOptions(
            options=super()._options(host, known),
            client_keys=None,
            agent_path=None,
            password=self._secret.reveal(),
            preferred_auth="password",
        )


async def _answered(connection: asyncssh.SSHClientConnection, old: Secret, new: Secret) -> None:
    process = await connection.create_process(term_type="dumb", encoding="utf-8", errors="replace")
    async with process:
        answers: Sequence[Secret] = (old, new, new)
        output = ""
        answered = 0
        while data := await process.stdout.read(4096):
            output = (output + data)[-SAID_MAX:]
            if any(refusal in output for refusal in _NO):
                raise LoginRefused("passwd does not take the new password")
            if _DONE.search(output):
                return
            question = _CURRENT if answered == 0 else _NEW
            if question.search(output):
                if answered == len(answers):
                    raise LoginRefused("passwd asks again: it does not take the new password")
                # passwd that has ended meanwhile is read to its end: its words say why
                with contextlib.suppress(BrokenPipeError):
                    process.stdin.write(answers[answered].reveal() + "\n")
                output = ""
                answered += 1
    if answered < len(answers):
        raise Malformed(f"no such dialogue: it ended after {answered} answers")
    raise Malformed("passwd does not say that it changed the password")
