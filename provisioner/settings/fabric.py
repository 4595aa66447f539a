"""Settings of the fabric: how tenants are isolated, and how often the daemon reads the leaves."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Literal

from pydantic import Field, field_validator

from provisioner.model.base import Record


class FabricSettings(Record):
    """Part of `Settings`."""

    isolation: Literal["vrf", "infiniband"] = Field(
        "vrf",
        description="What isolates tenants east-west: VRFs on Ethernet leaves, or InfiniBand "
        "partitions of ports that have a `guid`, through UFM.",
    )
    rail_networks: tuple[str, ...] = Field(
        ("172.0.0.0/8",),
        min_length=1,
        max_length=64,
        description="Networks that hosts reach by their rails: one for all rails, or one for each "
        "rail in its order, which traffic without a source address then takes too.",
    )
    rail_mtu: int = Field(
        9216, ge=1280, le=9978, description="Bytes of a frame on the rails of a host."
    )
    rail_proof: Literal["other_leaf", "own_leaf"] = Field(
        "other_leaf",
        description="Where every rail of a host must reach before its release: another leaf, or "
        "only its own, in a fabric whose rails are not connected with each other.",
    )
    tenant_settle_s: float = Field(
        60.0,
        gt=0,
        description="Between searches for tenants whose network differs from the database.",
    )

    @field_validator("rail_networks")
    @classmethod
    def _require_networks(cls, networks: tuple[str, ...]) -> tuple[str, ...]:
        for network in networks:
            ip_network(network)
        return networks
