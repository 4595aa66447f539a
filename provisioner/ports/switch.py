"""A switch, in the fabric's words: images, ports and VRFs, changes, drains, health and counters.

Behind it stands one integration for each operating system. An adapter speaks its
switch's own protocol and decides nothing: the callers hold the switch's turn while they write
(`execution/actions/reach.py`), read back, and judge. Every method raises `PortError` only;
`SwitchRefused` is the one that means "it answered, and not with the expected answer".

A reading of ports covers every source from which a port's VRF may come: the state in force, the
applied configuration, the configuration of the next start, and each change that is under way.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol

from provisioner.model.host_filter import FilterState, SeenFilter
from provisioner.model.link_reading import LinkReading
from provisioner.model.location import Bond
from provisioner.model.node import Node
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.recovery import LeafState
from provisioner.model.switch import (
    BondsRead,
    Images,
    LoginCheck,
    Place,
    Platform,
    PortChange,
    PortCounters,
    Surroundings,
    SwitchServices,
    TenantPort,
    TenantRouting,
    Wellness,
)
from provisioner.model.tenant_network import NetworkChange, NetworkLimits, NetworkState
from provisioner.ports.errors import PortError
from provisioner.ports.wire import Clock, Secret, SwitchAddress
from provisioner.settings import Settings

# Enters the switch's turn. An adapter starts each act inside of it, and awaits the end outside.
Turn = Callable[[], AbstractAsyncContextManager[None]]


class SwitchRefused(PortError):
    """The switch answered, and not as needed. `reason` is of the closed list."""

    def __init__(self, reason: Reason, detail: str) -> None:
        # printable: the text may be the switch's own
        super().__init__("".join(c if c.isprintable() else " " for c in detail))
        self.reason = reason


@dataclass(frozen=True)
class SwitchFacts:
    """Facts of an operating system that decisions depend on, declared by its adapter."""

    name: str  # as the expected-hardware list names it
    scheme: str  # of a management address
    networks: NetworkLimits = field(default_factory=NetworkLimits)  # on tenants' networks
    stored_login: bool = True  # False: it is logged in to by the daemon's own key
    takes_tacacs_key: bool = False  # it takes the key of TACACS+ servers, and logs it nowhere
    title: str = ""  # for people; "": its name
    port: int = 0  # of its API; 0: the usual one of its scheme
    factory_user: str = ""  # "": no source names it
    factory_hostname: str = ""  # all new switches have it, so it names none


@dataclass(frozen=True)
class ServiceChange:
    """Servers and order of logins that a switch is set to; None: they stay as they are."""

    ntp: tuple[str, ...] | None = None
    syslog: tuple[str, ...] | None = None
    tacacs: tuple[str, ...] | None = None
    logins: tuple[str, ...] | None = None
    tacacs_key: Secret | None = None


class ImageReads(Protocol):
    async def read_images(self) -> Images: ...

    async def read_platform(self) -> Platform: ...


class SwitchImages(ImageReads, Protocol):
    async def install_image(self, url: str, file_name: str, turn: Turn, limit_s: float) -> None:
        """Fetch an image and install it beside the running one; each job ends within `limit_s`."""
        ...

    async def choose_other_image(self, turn: Turn, limit_s: float) -> None:
        """Make the image that does not run the next one."""
        ...

    async def reboot(self, turn: Turn) -> None:
        """Start the reboot and return: it forwards nothing until it is back."""
        ...


class PortReads(Protocol):
    """Readings of the ports and VRFs of a switch."""

    async def read_places(
        self, interfaces: Sequence[str], *, saved: bool = True
    ) -> Mapping[str, frozenset[Place]]:
        """The places of each port by every source; without `saved`, not of the next start."""
        ...

    async def read_tenant_ports(self, site_vrfs: Collection[str]) -> Mapping[str, TenantPort]:
        """Return every port that is, or will be by itself, in a VRF not in `site_vrfs`."""
        ...

    async def read_bonds(self, bonds: Mapping[str, Bond]) -> BondsRead:
        """Compare bonds that are made, by the interface that routes for them, with the applied."""
        ...

    async def read_descriptions(self) -> Mapping[str, str]:
        """Return the applied description of each port; "?" for one that cannot be read."""
        ...

    async def read_routes(self) -> Mapping[str, tuple[str, ...]]:
        """Return VRF -> prefixes of its routes in force."""
        ...

    async def read_filter(self, source: str) -> SeenFilter | None:
        """Return the filter between hosts of one source: "applied", "startup", "operational"."""
        ...

    async def read_filter_state(self) -> FilterState: ...

    async def is_saved(self) -> bool: ...


class SwitchPorts(PortReads, Protocol):
    """Ports and VRFs of a switch, and changes of them."""

    async def apply_change(self, change: PortChange) -> str:
        """Apply moves as one change, and return its name when the switch has accepted it.

        The change is proved by reading afterwards, and survives a reboot after
        `save_configuration`.
        """
        ...

    async def set_password(self, username: str, new: Secret) -> str:
        """Change the password of the API's user, as one change whose name is returned.

        Raises `LoginRefused` once the old password is void, which this address still has. It
        survives a reboot after `save_configuration`.
        """
        ...

    async def save_configuration(self) -> None: ...


class WatchReads(Protocol):
    """Readings of the health and state of a switch."""

    async def check_login(self) -> LoginCheck: ...

    async def is_drained(self) -> bool: ...

    async def read_wellness(self) -> Wellness:
        """Return health, BGP sessions, VNIs and ports with carrier."""
        ...

    async def read_sessions(self) -> frozenset[str]: ...

    async def read_health_report(self, limit_s: float, size_max_bytes: int) -> tuple[str, int, str]:
        """Return the source of the switch's own health report, its exit code, and its text.

        The text is JSON with `status` ("OK") and `issues`, an object of names and details.
        """
        ...

    async def read_carriers(self) -> tuple[str, ...]: ...

    async def read_counters(self, interface: str) -> PortCounters: ...

    async def read_link(self, interface: str) -> LinkReading:
        """Return the optic and the queues of one port, as far as it reports them."""
        ...

    async def read_neighbours(self, interface: str) -> frozenset[tuple[str, str]]:
        """Return (system, port) of each device that one port hears by LLDP."""
        ...

    async def read_surroundings(self) -> Surroundings: ...

    async def read_macs(self) -> Mapping[str, frozenset[str]]:
        """Return front-panel port -> MACs, in lower case, that the switch learned there.

        Of bridged ports these are in the forwarding database, of routed ones in the tables of ARP
        and neighbour discovery. A port without an entry is absent.
        """
        ...

    async def find_wrong_firmware(self, version: str) -> str:
        """Why the ASIC's firmware is wrong under this image; "" if nothing published says so."""
        ...

    async def read_state(self, interfaces: Sequence[str]) -> LeafState:
        """Return all that the release gate judges, with at least these ports."""
        ...

    async def read_tenant_routing(self, vrf: str, vni: str) -> TenantRouting: ...


class SwitchWatch(WatchReads, Protocol):
    async def set_drain(self, *, on: bool) -> str:
        """Ask the neighbours to go around it, or to come back; return the change's name."""
        ...


class NetworkReads(Protocol):
    async def read_networks(self, vrfs: Collection[str]) -> NetworkState:
        """Return the configuration, VRFs and ports of the switch, and the VNIs of `vrfs`."""
        ...


class SwitchNetworks(NetworkReads, Protocol):
    """Tenants' networks on a switch: VRF, L3VNI, route targets, policy."""

    async def apply_networks(self, change: NetworkChange) -> str: ...


class ServiceReads(Protocol):
    """Readings of the services that a switch is configured to use."""

    async def read_services(self, source: str) -> SwitchServices:
        """Return the services of one source: "applied", or "startup" for the next start."""
        ...


class SwitchServiceWrites(ServiceReads, Protocol):
    """Time, syslog and logins of a switch."""

    async def apply_services(self, change: ServiceChange) -> str:
        """Apply a change and return its name; "" if there was nothing to change.

        It survives a reboot after `save_configuration`.
        """
        ...


class SwitchReads(ImageReads, PortReads, WatchReads, NetworkReads, ServiceReads, Protocol):
    """One switch that can only be read: no method changes it."""

    @property
    def facts(self) -> SwitchFacts: ...


class Switch(
    SwitchImages,
    SwitchPorts,
    SwitchWatch,
    SwitchNetworks,
    SwitchServiceWrites,
    SwitchReads,
    Protocol,
):
    """One switch at one address, with one credential."""


class Switches(Protocol):
    """Opens switches of every operating system that has an adapter."""

    def open(self, name: str, address: SwitchAddress, clock: Clock, settings: Settings) -> Switch:
        """Return the switch at an address. Raises `SwitchRefused` for an unknown system."""
        ...

    def get_facts(self, system: str, url: str) -> SwitchFacts | None:
        """Return the facts of an operating system, or of the one that the scheme of an address
        names where `system` is ""; None if no adapter speaks to it.
        """
        ...

    async def close(self) -> None: ...


class PortReader(Protocol):
    """Reads counters of leaves' ports, and tries logins; it changes nothing."""

    async def read_counters(
        self, leaf: Node, interfaces: Sequence[str]
    ) -> Mapping[str, PortCounters] | Blocker:
        """Return the counters of some ports of a leaf now, or why it gives none."""
        ...

    async def try_login(
        self, switch: Node, login: tuple[str, Secret] | None = None
    ) -> LoginCheck | Blocker:
        """Try a login at a switch once, the stored one if none is given."""
        ...


class SwitchPasswords(Protocol):
    """Changes the factory password of a switch, whose API does nothing before that."""

    async def change(
        self, switch: str, address: str, username: str, old: Secret, new: Secret
    ) -> None:
        """Change the password at `address`, a host name or number. Raises `PortError` subclasses
        only.
        """
        ...
