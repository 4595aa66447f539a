"""The store: facts in rows, and secrets encrypted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from provisioner.model.campaign import Campaign, CampaignRow
from provisioner.ports.wire import Secret


class Credentials(Protocol):
    """BMC and switch credentials, encrypted at rest. A change is pending before it is made."""

    async def current(self, name: str) -> tuple[str, Secret] | None:
        """Return (username, password) in force for "node/bmc", or None."""
        ...

    async def pending(self, name: str) -> tuple[str, Secret] | None:
        """The credential that may already be in force: a rotation was begun, not confirmed."""
        ...

    async def is_pending_likely(self, name: str) -> bool:
        """Return whether the pending credential is likelier in force than the current one."""
        ...

    async def expect_pending(self, name: str) -> None:
        """Note that the device took the pending credential, or refused the current one."""
        ...

    async def begin(self, name: str, username: str, secret: Secret) -> None:
        """Store the new credential as pending, on disk, before it is sent to the device."""
        ...

    async def confirm(self, name: str) -> None:
        """Make the pending credential the current one, after the device accepted it."""
        ...

    async def put(self, name: str, username: str, secret: Secret) -> None:
        """Store a credential that is in force."""
        ...

    async def remove(self, name: str) -> None: ...


# ------------------------------------------------------------------------------
# The rehearsal of a campaign, outside of the daemon's process so that it does not delay its
# work.


class Rehearsals(Protocol):
    """Runs one rehearsal at a time; later callers wait."""

    async def rehearse(
        self, store: Any, campaign: Campaign, rows: Sequence[CampaignRow], hosts: int
    ) -> Mapping[str, Any]:
        """Return the result, in the form that `provisioner campaign rehearse --json` prints.

        `store`: the daemon's own.

        `rows`: the campaign's nodes as of now; at most `hosts` of its hosts are simulated. Raises
        RehearsalFailed if the rehearsal does not finish.
        """
        ...


class RehearsalFailed(Exception):
    """The rehearsal did not finish; the text gives the reason, for people."""
