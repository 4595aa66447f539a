"""Read the lease file of Kea's memfile backend: CSV with a header. Pure.

Source: "Memfile - Basic Storage for Leases" and "Why Is Lease File Cleanup Necessary?" of the Kea
Administrator Reference Manual 2.2.0 (updates are appended, the latest row of a lease is the valid
one, a row that cannot be read is discarded), and files that Debian's kea-dhcp4 2.2.0 wrote.
Columns are taken by the header's names, since versions differ in the last ones. Commas inside of a
value are written as `&#x2c`, so cells are never quoted. `expire` is the client's last contact plus
`valid_lifetime`; a row with `valid_lifetime` 0 is read as a lease that was given back.
"""

from __future__ import annotations

from provisioner.model.input_error import InputError
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

COLUMNS = ("address", "hwaddr", "valid_lifetime", "expire", "state")
IN_USE = "0"  # state; 1: declined, 2: expired and reclaimed; later versions have more
INFINITE = 2**32 - 1  # valid_lifetime: RFC 2131, 3.3
_COMMA = "&#x2c"


def read_kea_leases(source: str, text: str) -> LeaseFile:
    """Return the last lease of each address. Raises InputError for a header without columns."""
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    header = lines[0].split(",")
    lacks = [name for name in COLUMNS if name not in header]
    if lacks or len(set(header)) < len(header):
        problem = f"the header lacks {', '.join(lacks)}" if lacks else "a column is named twice"
        raise InputError(source, "line 1", problem, "Name a lease file of Kea's memfile backend.")
    rows = LeaseRows(source, "kea")
    for number, line in enumerate(lines[1:], start=2):
        cells = line.split(",")
        if not line.strip() or line == lines[0]:  # files may be joined
            continue
        if len(cells) != len(header):
            rows.add(UNREADABLE, number)
            continue
        row = dict(zip(header, cells, strict=True))
        rows.add(_read_row(row), number)
    return rows.build_file()


def _read_row(row: dict[str, str]) -> DhcpLease | str:
    """Return the lease of a row, or the reason to leave it out."""
    address = normalize_lease_address(row["address"])
    expire = read_seconds(row["expire"])
    lifetime = read_seconds(row["valid_lifetime"])
    if not address or expire is None or lifetime is None:
        return UNREADABLE
    mac = normalize_mac(row["hwaddr"])
    if not mac:
        return DHCPV6 if "duid" in row else NO_MAC
    return DhcpLease(
        address=address,
        mac=mac,
        active=row["state"] == IN_USE and lifetime > 0,
        began_at=max(0.0, expire - lifetime),
        ends_at=None if lifetime == INFINITE else expire,
        hostname=clean_name(row.get("hostname", "").replace(_COMMA, ",")),
    )
