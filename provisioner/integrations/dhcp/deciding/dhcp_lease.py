"""Leases of DHCP servers, and their comparison with the expected-hardware list.

A lease names an address, never an identity: the BMC behind it is known by its certificate and,
after a login, by its serial. So nothing here is taken in; the rows are for a person.
"""

from __future__ import annotations

from enum import StrEnum

from provisioner.model.base import Record

# ------------------------------------------------------------------------------
# The records of a DHCP and ZTP profile for an empty management network.


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


class DhcpLease(Record):
    """The last lease of an address, as the server recorded it."""

    address: str  # "10.0.1.10", normalized
    mac: str  # "5c:25:73:00:00:01"
    active: bool  # False: released, expired or free, in the server's own record
    began_at: float = 0.0  # last contact of the client; 0: not recorded
    ends_at: float | None = None  # None: never
    hostname: str = ""
    vendor_class: str = ""  # option 60, where the server records it
    relay: str = ""  # option 82, where the server records it: often the switch and port


class LeaseFile(Record):
    """The leases of one file or socket; `notes` has the rows that were left out, and why."""

    source: str
    server: str  # "kea" | "dnsmasq" | "dhcpd"; "": an empty file
    leases: tuple[DhcpLease, ...] = ()
    notes: tuple[str, ...] = ()


class Standing(StrEnum):
    """The place of a lease on the expected-hardware list."""

    LISTED = "listed"  # by its MAC, and at its listed address if there is one
    BY_ADDRESS = "by address"  # the entry of this address has no MAC
    MOVED = "moved"  # the entry of this MAC has another address
    CONFLICT = "conflict"  # MAC and address belong to different entries
    NOT_LISTED = "not listed"


class Candidate(Record):
    """One network card with a lease in force: perhaps a BMC."""

    address: str
    mac: str
    hint: str = ""  # the kind of device, as far as vendor class or MAC prefix show it
    vendor_class: str = ""
    relay: str = ""  # the relay's own words: often the switch and port
    hostname: str = ""
    lease_ends: str = ""  # RFC 3339, or "never"
    other_addresses: tuple[str, ...] = ()  # of this MAC in the same files, the newest first
    standing: Standing | None = None  # None: there was no list
    entry: str = ""  # "su0-n00", "su0-n00/DPU_0"
    detail: str = ""
    remedy: str = ""


class MissingEntry(Record):
    """A host of the list whose BMC has no lease in force."""

    entry: str
    mac: str = ""
    address: str = ""
    detail: str
    remedy: str


class LeaseComparison(Record):
    """The candidates, the entries without a lease, and the rows that were left out."""

    candidates: tuple[Candidate, ...] = ()
    missing: tuple[MissingEntry, ...] = ()
    notes: tuple[str, ...] = ()
