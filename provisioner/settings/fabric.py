"""Settings of the fabric: how tenants are kept apart, and how often the daemon looks."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from provisioner.model.base import Record


class FabricSettings(Record):
    """Part of `Settings`."""

    isolation: Literal["vrf", "infiniband"] = Field(
        "vrf",
        description="What keeps tenants apart east-west: VRFs on Ethernet leaves, or InfiniBand "
        "partitions of ports that have a `guid`, through UFM.",
    )
    tenant_settle_s: float = Field(
        60.0,
        gt=0,
        description="Between looks for tenants whose network is not yet as it is written down.",
    )
