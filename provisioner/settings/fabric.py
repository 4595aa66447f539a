"""Settings of the fabric: how tenants are isolated, and how often the daemon reads the leaves."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from provisioner.model.base import Record


class FabricSettings(Record):
    """Part of `Settings`."""

    isolation: Literal["vrf", "infiniband"] = Field(
        "vrf",
        description="What isolates tenants east-west: VRFs on Ethernet leaves, or InfiniBand "
        "partitions of ports that have a `guid`, through UFM.",
    )
    tenant_settle_s: float = Field(
        60.0,
        gt=0,
        description="Between searches for tenants whose network differs from the database.",
    )
