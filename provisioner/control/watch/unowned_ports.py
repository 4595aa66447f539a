"""Decides which ports without an owner are a host's, and which ones are only listed.

An uplink, a peer link, a border or a storage port may stand in a customer's VRF by right. The watch
of leaves and the survey after a restore judge such ports by the same rules, so that a port about
which the survey asks a person is a port that the watch would fence.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable, Sequence

from provisioner.execution.tenancy.tenancy import Tenancy
from provisioner.model.location import Port
from provisioner.model.switch import TenantPort
from provisioner.model.tenant import Tenant
from provisioner.planning.places.address_plan import AddressPlan
from provisioner.planning.places.addressing import Addressing
from provisioner.planning.places.place_ports import Ports
from provisioner.planning.release import entitlement
from provisioner.settings import Settings

HEARS_A_SWITCH = "it hears a switch"


class UnownedPorts:
    """`plan` None: LLDP says which ports are links between switches."""

    def __init__(
        self, settings: Settings, tenancy: Tenancy, plan: AddressPlan | None = None
    ) -> None:
        self._settings = settings
        self._tenancy = tenancy
        self._places = None if plan is None else Ports(Addressing(plan))

    def why_not_ours(
        self, leaf: str, interface: str, port: TenantPort, tenants: Sequence[Tenant]
    ) -> str:
        """Return why this port is only listed; "" if it is a host's port."""
        place = None if self._places is None else self._places.find_switch(leaf)
        planned = None
        if self._places is not None and place is not None:
            planned = self._places.find_end(place, interface) is not None
        peers = [o.peer for t in tenants for o in t.outside if o.switch == leaf]
        return entitlement.why_not_ours(
            f"{leaf}/{interface}",
            min(port.vrfs),
            declared=self._settings.ports_not_ours,
            planned=planned,
            storage=frozenset(vrf for t in tenants for vrf in t.storage),
            physical=port.physical,
            sessions=any(_reaches(address, peer) for address in port.addresses for peer in peers),
        )

    async def find_switch_links(
        self, ports: Iterable[tuple[str, str]], switches: Collection[str]
    ) -> set[tuple[str, str]]:
        """Return the ports, each (leaf, interface), that hear one of these switches by LLDP."""
        heard = await self._tenancy.heard([as_port(leaf, name) for leaf, name in ports])
        return {
            key
            for key, ends in heard.items()
            if any(system in switches or system.split(".")[0] in switches for system, _ in ends)
        }


def as_port(leaf: str, interface: str) -> Port:
    """Return a port that no node's row describes."""
    return Port(switch=leaf, interface=interface, rail=-1, nic_slot="")


def _reaches(address: str, peer: str) -> bool:
    try:
        return ipaddress.ip_address(peer) in ipaddress.ip_interface(address).network
    except ValueError:
        return False
