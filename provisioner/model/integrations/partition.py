"""InfiniBand partitions and the keys of their subnet manager, as UFM lists them."""

from __future__ import annotations

import ipaddress

from pydantic import Field

from provisioner.model.base import Record
from provisioner.model.outcome import Blocker

# ------------------------------------------------------------------------------
# Loopback addresses: the one place where a login or a journal may go over plain HTTP.


def is_loopback(host: str | None) -> bool:
    """Return whether a host name or an IP address is this machine's own; no name is looked up."""
    try:
        return host == "localhost" or ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return False


class SubnetKeys(Record):
    """The protection of the subnet manager by its keys; no key itself is held or shown."""

    management: bool = Field(description="Whether a Management Key (M_Key) other than 0 is set.")
    per_port: bool = Field(description="Whether each port has a Management Key of its own.")


class ListedPartition(Record):
    """One partition that UFM lists."""

    pkey: str = Field(description="P_Key without the bit of membership, such as `0x0fa1`.")
    tenant: str = Field(
        description="The tenant that this P_Key was given to; empty: none, or the program's own."
    )
    vrf: str = Field(description="Name of its network; empty: no record has this P_Key.")
    ports: int = Field(description="Number of InfiniBand ports in it.")


class FabricPartitions(Record):
    """The partitions of an InfiniBand fabric, read from UFM."""

    items: tuple[ListedPartition, ...]
    keys: SubnetKeys | None = Field(description="Null: UFM did not list them.")
    blockers: tuple[Blocker, ...]
