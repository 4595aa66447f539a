"""Opens what tenants need: the leaves of a data directory, and a UFM if the site has one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from provisioner.control.tenant_keeper import TenantKeeper
from provisioner.execution.reach import Reach
from provisioner.execution.vrf_fabric import VrfIsolation
from provisioner.nvue import NvueTransport
from provisioner.planning.address_plan import AddressPlan
from provisioner.ports import Clock, Credentials, Isolation, Store
from provisioner.redfish.transport import RedfishTransport
from provisioner.settings import Settings
from provisioner.ufm import UfmAddress, UfmIsolation, UfmTransport


@dataclass(frozen=True)
class FabricAccess:
    """How a site's fabrics are reached. `ufm` None: there is no InfiniBand."""

    plan: AddressPlan
    settings: Settings
    ca_file: Path | None = None
    ufm: UfmAddress | None = None
    default_limited: bool = False  # of the default InfiniBand partition: a person's word


@asynccontextmanager
async def open_keeper(
    store: Store, credentials: Credentials, clock: Clock, access: FabricAccess
) -> AsyncIterator[TenantKeeper]:
    """A keeper of all tenants; its connections are closed at the end."""
    switches = NvueTransport(ca_file=access.ca_file)
    reach = Reach(RedfishTransport(), switches, credentials)  # it is asked for switches only
    vrfs = VrfIsolation(store, access.plan, reach, clock, access.settings)
    isolations: list[Isolation] = [vrfs]
    if access.ufm is not None:
        transport = UfmTransport(access.ufm, access.ca_file)
        isolations.append(UfmIsolation(transport, default_limited=access.default_limited))
    keeper = TenantKeeper(store, clock, isolations, vrfs.fabric)
    try:
        yield keeper
    finally:
        await keeper.close()
        await reach.transport.close()
        await switches.close()
