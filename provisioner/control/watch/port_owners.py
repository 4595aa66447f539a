"""Which nodes own which leaf ports, kept from one round to the next: half a million of a fleet.

An unchanged row is the same object (`store/rows/node_rows.py`): only rows that are others are
taken in anew.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable, Sequence

from provisioner.execution.tenancy.tenancy import Tenancy
from provisioner.model.location import Port
from provisioner.model.node import Node, NodeKind, Origin, State
from provisioner.model.switch import TenantPort
from provisioner.model.tenant import Tenant
from provisioner.planning.places.address_plan import AddressPlan
from provisioner.planning.places.addressing import Addressing
from provisioner.planning.places.place_ports import Ports
from provisioner.planning.release import entitlement
from provisioner.settings import Settings

# ------------------------------------------------------------------------------
# Decides which ports without an owner are a host's, and which ones are only listed.
#
# An uplink, a peer link, a border or a storage port may stand in a customer's VRF by right. The
# watch of leaves and the survey after a restore judge such ports by the same rules, so that a port
# about which the survey asks a person is a port that the watch would fence.


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


class PortOwners:
    """`leaves` has every switch that is not retired, by name."""

    def __init__(self) -> None:
        self.leaves: dict[str, Node] = {}
        self._nodes: dict[str, Node] = {}
        self._ports: dict[str, dict[str, tuple[str, ...]]] = {}  # leaf -> interface -> nodes

    def take(self, nodes: Sequence[Node]) -> None:
        """Take in the fleet as it is now."""
        for node in nodes:
            old = self._nodes.get(node.id)
            if old is node:
                continue
            self._nodes[node.id] = node
            if node.kind is NodeKind.SWITCH:
                self.leaves[node.id] = node
                if node.state is State.RETIRED:
                    del self.leaves[node.id]
            elif old is None or old.ports != node.ports:
                self._drop(node.id, () if old is None else old.ports)
                self._add(node)
        if len(self._nodes) > len(nodes):
            present = {n.id for n in nodes}
            for name in [n for n in self._nodes if n not in present]:
                self._drop(name, self._nodes.pop(name).ports)
                self.leaves.pop(name, None)

    def find_owners(self, leaf: str, interface: str) -> list[Node]:
        """Return the nodes that are cabled to a port: a retired one beside its successor."""
        names = self._ports.get(leaf, {}).get(interface, ())
        return [self._nodes[name] for name in names]

    def find_ports(self, leaf: str) -> tuple[str, ...]:
        """Return the ports of a leaf that hosts are cabled to, but for those of detached ones."""
        return tuple(
            interface
            for interface, names in self._ports.get(leaf, {}).items()
            if all(self._nodes[name].origin is not Origin.DETACHED for name in names)
        )

    def _add(self, node: Node) -> None:
        for port in node.ports:
            if not port.guid:
                mine = self._ports.setdefault(port.switch, {})
                mine[port.interface] = (*mine.get(port.interface, ()), node.id)

    def _drop(self, name: str, ports: Sequence[Port]) -> None:
        for port in ports:
            mine = self._ports.get(port.switch, {})
            remaining = tuple(n for n in mine.get(port.interface, ()) if n != name)
            if remaining:
                mine[port.interface] = remaining
            else:
                mine.pop(port.interface, None)
