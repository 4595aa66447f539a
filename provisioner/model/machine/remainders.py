"""Things that a tenant may have left in a BMC, as the BMC shows them."""

from __future__ import annotations

from provisioner.model.base import Record


class BmcAccount(Record):
    """A user of the BMC that may log in."""

    name: str
    role: str = ""
    keys: tuple[str, ...] | None = None  # fingerprints of its SSH keys; None: none are shown


class BmcRemainders(Record):
    """One reading. None: the BMC does not show it."""

    accounts: tuple[BmcAccount, ...] | None = None  # those that are enabled
    destinations: tuple[str, ...] | None = None  # where the BMC sends its events
    waiting: dict[str, str] | None = None  # BIOS attributes that change at the next boot
    gaps: tuple[str, ...] = ()  # resources that did not answer
