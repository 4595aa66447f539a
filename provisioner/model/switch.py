"""A switch in the fabric's words: its images, ports and their VRFs, counters, and changes of ports.

No operating system's own form appears here: the integration of each system translates between
these records and its switch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from provisioner.model.base import Record
from provisioner.model.host_filter import Door, HostFilter, SeenFilter
from provisioner.model.link_reading import LinkReading
from provisioner.model.location import Bond
from provisioner.model.tenant_network import PortFilter

DEFAULT_VRF = "default"
ABSENT = "(absent)"  # in place of a VRF, of an interface that a bond will have when it is made


class Images(Record):
    """The images on a switch. `versions`: of all slots, without duplicates."""

    running: str
    next: str
    versions: tuple[str, ...]


class Platform(Record):
    """Model and serial of a switch; None where it does not report them.

    `port_names`: what its ports are called in its own LLDP -> their names in its configuration.
    None: they are called by their names.
    """

    model: str | None = None
    serial: str | None = None
    port_names: Mapping[str, str] | None = None
    damaged: tuple[str, ...] = ()  # fields that could not be read so far: "path: field"


class SwitchServices(Record):
    """The servers that a switch is configured to use, and who is asked about a login, in order.

    `tacacs_keyed`: a key for its TACACS+ servers is stored on it; keys are never read.
    """

    ntp: tuple[str, ...] = ()
    syslog: tuple[str, ...] = ()
    tacacs: tuple[str, ...] = ()  # the first one is asked first
    logins: tuple[str, ...] = ("local",)
    tacacs_keyed: bool = False


@dataclass(frozen=True)
class LoginCheck:
    """The switch's answer to a login. `status`: "accepted", "refused", "must_change" or "other".

    `date`: the switch's clock as an HTTP date; "" if the switch does not report it.
    """

    status: str
    detail: str = ""
    date: str = ""


class Place(NamedTuple):
    """The VRF of a port by one source, and whether it lets nothing through, or only not to other
    hosts. `guards`: filters of tenants' security groups on it.
    """

    vrf: str
    denied: bool
    apart: bool
    guards: frozenset[str] = frozenset()


class BondsRead(NamedTuple):
    """Whether a switch lacks a part of bonds that are made, why they cannot be made there, and of
    these reasons those that say that a member is elsewhere.
    """

    lacking: bool = False
    obstacles: tuple[str, ...] = ()
    astray: tuple[str, ...] = ()


class Heard(NamedTuple):
    """A device that a port hears by LLDP. `mac`: its chassis id where that is one, else ""."""

    system: str
    port: str
    mac: str = ""


class Surroundings(NamedTuple):
    """The name that a switch calls itself by, and what each port with carrier hears by LLDP."""

    hostname: str  # "": it shows none
    heard: Mapping[str, frozenset[Heard]]


class TenantPort(NamedTuple):
    """A port that stands in VRFs other than the site's, or will by itself.

    `physical`: it is a port of the front panel, and no loopback, bridge or tunnel.
    """

    vrfs: frozenset[str]
    addresses: tuple[str, ...]
    physical: bool = True


@dataclass(frozen=True)
class Move:
    """One port into one VRF. `address` of the leaf's end, with length; "": none is set.

    `denied`: nothing goes through it, and it stays where it is; otherwise a filter of ours is taken
    off. `apart`: its host reaches no other host on the agents' network; without a VRF, only that is
    set. `doors`: exactly these hosts may connect to each other; None: they are left as they are.
    """

    interface: str
    vrf: str
    address: str = ""
    denied: bool = False
    apart: bool | None = False  # None: whether it is so is left as it is
    doors: tuple[Door, ...] | None = None
    description: str = ""  # of the port, where there is none of the site's; "": it stays
    guard: str = ""  # the tenant's filter that it has in this VRF; "": it has none
    rules: PortFilter = ()  # of the guard
    bond: Bond | None = None  # that is made with it, or brought back to its plan

    @property
    def stays(self) -> bool:
        """Return whether only filters are set."""
        return self.denied or not self.vrf


@dataclass(frozen=True)
class PortChange:
    """Moves that are applied as one, with the state that was read just before.

    `denied`, `apart`: ports that have our filters now, by any source. `guards`: the filters of
    tenants on each of them. `host_filter`: the desired filter where a move sets it, `held` the one
    of the applied configuration.
    """

    moves: tuple[Move, ...]
    denied: frozenset[str] = frozenset()
    apart: frozenset[str] = frozenset()
    guards: Mapping[str, frozenset[str]] = field(default_factory=dict)
    host_filter: HostFilter | None = None
    held: SeenFilter | None = None
    with_doors: bool = False


@dataclass(frozen=True)
class PortCounters:
    """Counters of one port. None where the switch does not report a readable value."""

    carried_bytes: int | None = None  # both ways
    in_errors: int | None = None  # damaged frames received
    carrier_changes: int | None = None
    link: LinkReading | None = None  # its optic and queues, where they were asked for


Counters = Mapping[str, int]  # front-panel port -> a count


@dataclass(frozen=True)
class Wellness:
    """The switch's health as it reports it, to be compared with an earlier report."""

    health: str
    established: frozenset[str]  # neighbours
    vnis: frozenset[str]
    ports: frozenset[str] = frozenset()  # front-panel ports with carrier


@dataclass(frozen=True)
class TenantRouting:
    """Route targets and BGP sessions of one tenant on one leaf. None: they cannot be read."""

    targets: tuple[frozenset[str], frozenset[str]] | None  # imported, exported
    sessions: Mapping[str, str] | None = field(default_factory=dict)  # neighbour -> state
