"""Opens the fabrics of tenants: the leaves of a data directory, and a UFM if the site has one."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from provisioner.adapters.granted.switches import GrantedSwitches
from provisioner.adapters.read_only.switches import ReadOnlySwitches
from provisioner.adapters.redfish.transport import RedfishTransport
from provisioner.adapters.switch_https import SwitchHttps
from provisioner.control.fabric.fabric_standing import Fabrics
from provisioner.control.fabric.tenant_keeper import TenantKeeper
from provisioner.daemon.granting import guard_fabrics
from provisioner.daemon.observing import narrow_fabrics
from provisioner.execution.actions.reach import Reach
from provisioner.execution.tenancy.release_recheck import TenantSessions
from provisioner.execution.tenancy.spaces import TenantSpaces
from provisioner.execution.tenancy.vrf_fabric import VrfIsolation
from provisioner.planning.places.address_plan import AddressPlan
from provisioner.ports import Clock, Credentials, Isolation
from provisioner.ports.isolation import UfmAddress
from provisioner.runtime import permit
from provisioner.runtime.integrations import open_memberships, open_partitions, open_spaces
from provisioner.runtime.permit import CapabilityGate
from provisioner.runtime.switch_systems import make_switches
from provisioner.runtime.wall_clock import WallClock
from provisioner.settings import Settings
from provisioner.store.sql_store import SqlStore


@dataclass(frozen=True)
class FabricAccess:
    """The access to a site's fabrics. `ufm` None: there is no InfiniBand."""

    plan: AddressPlan
    settings: Settings
    ca_file: Path | None = None
    ufm: UfmAddress | None = None
    default_limited: bool = False  # of the default InfiniBand partition: a person confirmed it


@asynccontextmanager
async def open_fabrics(access: FabricAccess) -> AsyncIterator[Fabrics]:
    """Yield the fabrics of a daemon, and close the connections to UFM and storage at the end."""
    async with (
        open_spaces(access.settings, WallClock(), os.environ, access.ca_file) as spaces,
        open_memberships(access.settings, os.environ, access.ca_file) as memberships,
    ):
        if access.ufm is None:
            yield Fabrics(access.plan, spaces=spaces, memberships=memberships)
            return
        partitions = open_partitions(access.ufm, access.ca_file, limited=access.default_limited)
        try:
            yield Fabrics(access.plan, partitions, spaces, memberships)
        finally:
            await partitions.close()


@asynccontextmanager
async def open_keeper(
    store: SqlStore,
    credentials: Credentials,
    clock: Clock,
    access: FabricAccess,
    gate: CapabilityGate,
) -> AsyncIterator[TenantKeeper]:
    """Yield a keeper of all tenants beside a daemon, and close its connections at the end.

    Leaves that run SONiC belong to the daemon: it has the key for their login. Beside one that
    observes, the keeper has readings alone.
    """
    observes = permit.is_observing()
    switches = SwitchHttps(ca_file=access.ca_file)
    made = make_switches(switches)
    reach = Reach(  # it is asked for switches only
        RedfishTransport(),
        ReadOnlySwitches(made) if observes else GrantedSwitches(made, gate),
        credentials,
    )
    vrfs = VrfIsolation(store, access.plan, reach, clock, access.settings)
    sessions = TenantSessions(store, reach, clock, access.settings)
    async with open_fabrics(access) as opened:
        fabrics = (
            narrow_fabrics(opened) if observes else guard_fabrics(opened, gate, access.settings)
        )
        isolations: list[Isolation] = [vrfs]
        if fabrics.partitions is not None:
            isolations.append(fabrics.partitions)
        spaces = None
        if fabrics.spaces is not None:
            spaces = TenantSpaces(fabrics.spaces, store, clock, access.settings)
            isolations.append(spaces)
        try:
            yield TenantKeeper(
                store,
                clock,
                isolations,
                vrfs.fabric,
                sessions.missing,
                fabrics.partitions,
                vrfs.read_filters,
                spaces,
            )
        finally:
            await vrfs.close()
            await reach.transport.close()
            await switches.close()
