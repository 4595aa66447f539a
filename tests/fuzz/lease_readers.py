"""Readers of the lease files of DHCP servers, as registry.py lists readers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from provisioner.model.input_error import InputError

_DHCP = "integrations.dhcp.deciding"
_FILE = {"source": "leases"}
LEASE_READERS: tuple[tuple[str, tuple[type[Exception], ...], str, Mapping[str, Any]], ...] = (
    (f"{_DHCP}.dhcp_leases", (InputError,), "read_leases", _FILE),
    (f"{_DHCP}.dhcp_leases", (InputError,), "read_kea_leases", _FILE),
    (f"{_DHCP}.dhcp_leases", (), "read_dnsmasq_leases", _FILE),
    (f"{_DHCP}.dhcp_leases", (), "read_dnsmasq_notes", _FILE),
    (f"{_DHCP}.lease_comparison", (InputError,), "read_page", _FILE),
    (f"{_DHCP}.dhcp_leases", (), "read_dhcpd_leases", _FILE),
    (
        f"{_DHCP}.dhcp_leases",
        (),
        "normalize_mac normalize_lease_address read_seconds clean_name",
        {},
    ),
)
