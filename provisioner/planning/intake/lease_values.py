"""Values that all lease files have: MACs, addresses, seconds, names. Pure; nothing raises.

Readers split a file at line feeds alone: a client chooses its host name, and must not begin a row
with another character that Python takes for the end of a line.
"""

from __future__ import annotations

import ipaddress
import re

from provisioner.model.integrations.dhcp_lease import DhcpLease, LeaseFile

TEXT_MAX = 255  # bytes of an option of DHCPv4 (RFC 2132): names, vendor classes
_MAC = re.compile(r"[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}")
_SECONDS = re.compile(r"[0-9]{1,12}")


class LeaseRows:
    """Collects the last lease of each address of a file, and counts the rows that have none."""

    def __init__(self, source: str, server: str) -> None:
        self._source = source
        self._server = server
        self._leases: dict[str, DhcpLease] = {}
        self._left_out: dict[str, tuple[int, int]] = {}  # by reason: the first line, and how many

    def add(self, row: DhcpLease | str, line: int) -> None:
        """Take the lease of a row, or count the reason to leave it out."""
        if isinstance(row, DhcpLease):
            self._leases[row.address] = row
            return
        first, count = self._left_out.get(row, (line, 0))
        self._left_out[row] = (first, count + 1)

    def build_file(self) -> LeaseFile:
        """Return all of it; the notes have one sentence for each reason."""
        return LeaseFile(
            source=self._source,
            server=self._server,
            leases=tuple(self._leases.values()),
            notes=tuple(
                f"{self._source}: {count} left out: {reason}; the first at line {first}"
                for reason, (first, count) in self._left_out.items()
            ),
        )


UNREADABLE = "the row cannot be read"
NO_MAC = "it has no Ethernet MAC"
DHCPV6 = "a row of DHCPv6 without a MAC"


def normalize_mac(text: str) -> str:
    """Return an Ethernet MAC in lower case with colons; "" for anything else."""
    return text.lower() if _MAC.fullmatch(text) else ""


def normalize_lease_address(text: str) -> str:
    """Return an IP address in its one form; "" for anything else."""
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return ""


def read_seconds(text: str) -> float | None:
    """Return a count of seconds; None for anything else."""
    return float(text) if _SECONDS.fullmatch(text) else None


def clean_name(text: str) -> str:
    """Return a client's own text without control characters, bounded."""
    return "".join(c if c.isprintable() else "?" for c in text[:TEXT_MAX])
