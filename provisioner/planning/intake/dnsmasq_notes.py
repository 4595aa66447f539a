"""Read the notes of the lease script that dnsmasq runs (`lease_script.sh`). Pure.

A line is one event with fields between tabs: `note1`, the time, `add`, `old` or `del`, MAC,
address, end (seconds since 1970; 0: never), host name, vendor class, and the relay's circuit and
remote id. After a restart dnsmasq repeats its leases as `old` without the vendor class and the
relay's ids: those of an earlier note of the same card stay.
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

VERSION = "note1"
FIELDS = 10
ACTIONS = frozenset({"add", "old", "del"})


def read_dnsmasq_notes(source: str, text: str) -> LeaseFile:
    """Return the last lease of each address. Lines that cannot be read are counted."""
    rows = LeaseRows(source, "dnsmasq")
    noted: dict[str, DhcpLease] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        if not line or line.startswith("#"):
            continue
        lease = _read_line(line.split("\t"))
        if isinstance(lease, DhcpLease):
            lease = _remember(noted.get(lease.address), lease)
            noted[lease.address] = lease
        rows.add(lease, number)
    return rows.build_file()


def _read_line(fields: list[str]) -> DhcpLease | str:
    """Return the lease of a line, or the reason to leave it out."""
    if len(fields) != FIELDS or fields[0] != VERSION or fields[2] not in ACTIONS:
        return UNREADABLE
    at = read_seconds(fields[1])
    ends_at = read_seconds(fields[5])
    address = normalize_lease_address(fields[4])
    if at is None or ends_at is None or not address:
        return UNREADABLE
    mac = normalize_mac(fields[3])
    if not mac:
        return DHCPV6 if ":" in address else NO_MAC
    ids = zip(("circuit", "remote"), fields[8:10], strict=True)
    return DhcpLease(
        address=address,
        mac=mac,
        active=fields[2] != "del",
        began_at=at,
        ends_at=ends_at or None,
        hostname=clean_name(fields[6]),
        vendor_class=clean_name(fields[7]),
        relay=clean_name(", ".join(f"{name} {value}" for name, value in ids if value)),
    )


def _remember(before: DhcpLease | None, lease: DhcpLease) -> DhcpLease:
    """Return a lease with what an earlier note of the same card has and this one lacks."""
    if before is None or before.mac != lease.mac:
        return lease
    changes = {
        "vendor_class": lease.vendor_class or before.vendor_class,
        "relay": lease.relay or before.relay,
    }
    return lease.model_copy(update=changes)
