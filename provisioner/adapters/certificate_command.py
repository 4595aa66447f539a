"""The site's certificate authority behind a command: `step ca sign`, `openssl x509 -req`, a script.

The command reads the request from its input and prints the certificate. PROVISIONER_BMC has the
node and the BMC, PROVISIONER_BMC_HOST the name or address of the BMC, for subject alternative names
and for the authority's own policy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from provisioner.adapters.site_command import run_command
from provisioner.model.outcome import Blocker, Reason
from provisioner.runtime import permit

OUTPUT_MAX = 65_536  # bytes; a chain of three certificates has some 6,000


class CertificateCommand:
    """`ports.certificates.CertificateAuthority`; `environment` is all that it inherits."""

    def __init__(self, argv: Sequence[str], limit_s: float, environment: Mapping[str, str]) -> None:
        self._argv = tuple(argv)
        self._limit_s = limit_s
        self._environment = dict(environment)

    async def sign(self, bmc: str, host: str, request: str) -> str | Blocker:
        """Run the command for one request; anything but exit code 0 is a refusal."""
        permit.ask(writes=True)
        environment = {
            **self._environment,
            "PROVISIONER_BMC": bmc,
            "PROVISIONER_BMC_HOST": host,
        }
        code, output = await run_command(
            self._argv, environment, self._limit_s, OUTPUT_MAX, request.encode()
        )
        if code == 0:
            return output.decode("ascii", "replace")
        return Blocker(
            reason=Reason.REFUSED,
            subject=bmc,
            detail=f"the authority's command {self._argv[0]} ended with exit code {code}",
            unblock="Run it by hand as the daemon's user with a request of `openssl req -new`, and "
            "correct it or `bmc_ca_command`.",
        )
