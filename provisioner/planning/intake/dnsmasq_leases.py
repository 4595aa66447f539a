"""Read the lease file of dnsmasq (`--dhcp-leasefile`). Pure.

dnsmasq(8) of 2.90 names the file, its contents (MAC, address, host name, client id, expiry) and the
form of a MAC of another network type ("06-01:23:…"); the order in a line is that of files which
Debian's dnsmasq 2.90 wrote: expiry (0: never), MAC, address, host name or `*`, client id or `*`.
A line `duid …` begins the leases of DHCPv6, which have an IAID in place of the MAC. The file is
written anew at each change, and has neither the vendor class nor the time of the last contact.
"""

from __future__ import annotations

from provisioner.model.integrations.dhcp_lease import DhcpLease, LeaseFile
from provisioner.planning.intake.lease_values import (
    DHCPV6,
    NO_MAC,
    UNREADABLE,
    LeaseRows,
    clean_name,
    normalize_lease_address,
    normalize_mac,
    read_seconds,
)

FIELDS = 5
NOTHING = "*"


def read_dnsmasq_leases(source: str, text: str) -> LeaseFile:
    """Return the leases of DHCPv4. Lines that cannot be read are counted in the notes."""
    rows = LeaseRows(source, "dnsmasq")
    version_6 = False
    for number, line in enumerate(text.split("\n"), start=1):
        fields = line.removesuffix("\r").split(" ")
        if fields == [""]:
            continue
        if fields[0] == "duid":
            version_6 = True
            continue
        if version_6:
            rows.add(DHCPV6, number)
            continue
        rows.add(_read_line(fields), number)
    return rows.build_file()


def _read_line(fields: list[str]) -> DhcpLease | str:
    """Return the lease of a line, or the reason to leave it out."""
    if len(fields) < FIELDS:
        return UNREADABLE
    ends_at = read_seconds(fields[0])
    address = normalize_lease_address(fields[2])
    if ends_at is None or not address:
        return UNREADABLE
    mac = normalize_mac(fields[1])
    if not mac:
        return NO_MAC
    return DhcpLease(
        address=address,
        mac=mac,
        active=True,
        ends_at=ends_at or None,
        hostname="" if fields[3] == NOTHING else clean_name(fields[3]),
    )
