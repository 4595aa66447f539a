"""The records of a DHCP and ZTP profile for an empty management network."""

from __future__ import annotations

from provisioner.model.base import Record


class Reservation(Record):
    """The address of one network card, by the expected-hardware list."""

    mac: str
    address: str
    name: str  # as a host name: "su0-n00-bmc", "leaf-su0-r0"


class SwitchName(Record):
    """A switch of the list, as its first script needs it."""

    name: str
    address: str
    os: str


class ManagementNetwork(Record):
    """An empty management network, and the server on it that gives out addresses and scripts."""

    network: str  # "10.0.1.0/24"
    server: str  # address of the DHCP and web server in it
    interface: str
    gateway: str = ""
    pools: tuple[tuple[str, str], ...] = ()  # first and last address of each
    reservations: tuple[Reservation, ...] = ()
    switches: tuple[SwitchName, ...] = ()
    url: str  # base of the first scripts: "http://10.0.1.1"
    ssh_user: str = "provisioner"
    ssh_key: str = ""  # the daemon's public key, for switches that it logs in to by key
    notes: tuple[str, ...] = ()  # entries that were left out, and why


class ProfileFile(Record):
    """One file of a profile, with its path inside of the profile's folder."""

    path: str
    text: str
    mode: int = 0o644
