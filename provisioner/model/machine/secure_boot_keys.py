"""The keys of UEFI Secure Boot as a BMC shows them: who may sign what the host boots."""

from __future__ import annotations

from pydantic import Field

from provisioner.model.base import Record


class KeyDatabase(Record):
    """One database: what is in force, and what the factory put there.

    An entry is the lower-case SHA-256 of a certificate (DER), or a signature as it is shown.
    """

    name: str  # "PK", "KEK", "db", "dbx", ...
    entries: tuple[str, ...] = ()
    factory: tuple[str, ...] | None = None  # None: the service shows no such set
    titles: dict[str, str] = Field(default_factory=dict)  # entry -> the subject of its certificate


class SecureBootKeys(Record):
    """One reading of a system's Secure Boot."""

    enabled: bool | None = None  # from the next boot on
    mode: str | None = None  # "UserMode", "SetupMode", ...
    databases: tuple[KeyDatabase, ...] = ()
    resets: bool = False  # the factory's keys can be asked for
    gaps: tuple[str, ...] = ()  # resources that did not answer
