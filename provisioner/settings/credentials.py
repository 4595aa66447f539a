"""Settings of logins that the daemon keeps: how old a password may become, and how fast all change.

The rate at its default changes the 720,896 BMCs of 65,536 hosts within 6.3 hours.
"""

from __future__ import annotations

from pydantic import Field

from provisioner.model.base import Record


class CredentialSettings(Record):
    """Part of `Settings`."""

    credential_days: float = Field(
        0.0,
        ge=0,
        le=3650,
        description="A BMC's password is changed when it is older than this, in days; 0: only "
        "when an event or a person demands it.",
    )
    credential_after_tenant: bool = Field(
        default=False,
        description="Passwords of a host's BMCs are changed when it comes back from a tenant, "
        "before it counts as sanitized.",
    )
    credential_switches: bool = Field(
        default=False,
        description="Passwords of switches' APIs are changed like those of BMCs, the site's own "
        "ones of the list too; other tools that have them lose access.",
    )
    credential_setup_password: bool = Field(
        default=False,
        description="The UEFI set-up password of a host is set and changed when it comes back from "
        "a tenant, where its BMC proves the one in force; one boot more.",
    )
    credential_setup_password_file: str = Field(
        "",
        max_length=1024,
        description="File with the set-up password that the site's hosts have today; empty: they "
        "have none, or the daemon's.",
    )
    switch_tacacs_key_file: str = Field(
        "",
        max_length=1024,
        description="File with the key of the TACACS+ servers that sets of switches name; empty: "
        "such a set is refused on switches that take the key.",
    )
    credential_shown_h: float = Field(
        4.0,
        gt=0,
        le=72,
        description="A password that a person was shown is changed after this, in hours.",
    )
    credential_rotations_per_s: float = Field(
        32.0, gt=0, le=1000, description="BMCs whose password is changed, for the whole fleet."
    )
    credential_nodes_max: int = Field(
        256, ge=1, le=65536, description="Nodes whose passwords are changed at the same time."
    )
