"""A PDU behind the site's own command, for PDUs with another protocol.

The command is run without a shell, as `ARGV... read OUTLET`, `ARGV... on OUTLET` or
`ARGV... off OUTLET`. `read` prints `on` or `off`; exit code 0 means done. Its time and its output
are bounded, its environment has only the variables that the settings name: secrets are given there
or in a file, never as an argument, which every user of the machine can read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from provisioner.adapters.site_command import run_command
from provisioner.model.location import OutletState
from provisioner.model.outcome import Blocker, Reason
from provisioner.runtime import permit

OUTPUT_MAX = 4096  # bytes; the answer is one word


class CommandPdu:
    """`ports.power.Pdu` by a command; `environment` is all that the command inherits."""

    def __init__(self, argv: Sequence[str], limit_s: float, environment: Mapping[str, str]) -> None:
        self._argv = tuple(argv)
        self._limit_s = limit_s
        self._environment = dict(environment)

    async def read_outlet(self, outlet: str) -> OutletState | Blocker:
        """Return the state that the command prints."""
        code, output = await self._run("read", outlet)
        if code:
            return self._refuse("read", outlet, code)
        return parse_printed_state(output)

    async def switch_outlet(self, outlet: str, *, on: bool) -> Blocker | None:
        """Run the command to switch one outlet."""
        verb = "on" if on else "off"
        code, _ = await self._run(verb, outlet)
        return self._refuse(verb, outlet, code) if code else None

    async def _run(self, verb: str, outlet: str) -> tuple[int, bytes]:
        """Return exit code and output; a command over its limits is ended with its children."""
        permit.ask(writes=verb != "read")
        argv = (*self._argv, verb, outlet)
        return await run_command(argv, self._environment, self._limit_s, OUTPUT_MAX)

    def _refuse(self, verb: str, outlet: str, code: int) -> Blocker:
        return Blocker(
            reason=Reason.REFUSED,
            subject=f"{self._argv[0]}/{outlet}"[:120],
            detail=f"`{verb}` ended with exit code {code}",
            unblock="Run the command by hand as the daemon's user, and correct it or `outlets`.",
        )


def parse_printed_state(output: bytes) -> OutletState:
    """Return the state that a command printed; anything but one of the two words is unknown."""
    word = output.strip().lower()
    return {b"on": OutletState.ON, b"off": OutletState.OFF}.get(word, OutletState.UNKNOWN)
