"""Read a file with leases of Kea, dnsmasq or ISC's dhcpd, recognized by its first line. Pure."""

from __future__ import annotations

import re

from provisioner.model.input_error import InputError
from provisioner.model.integrations.dhcp_lease import LeaseFile
from provisioner.planning.intake.dhcpd_leases import read_dhcpd_leases
from provisioner.planning.intake.dnsmasq_leases import read_dnsmasq_leases
from provisioner.planning.intake.dnsmasq_notes import VERSION, read_dnsmasq_notes
from provisioner.planning.intake.kea_leases import read_kea_leases

# a lease has some 100 to 400 bytes, and a file some renewals of each until it is cleaned up
SIZE_MAX = 64 * 1024 * 1024
LINES_MAX = 1_000_000
_KEA = "address,"
_NOTES = f"{VERSION}\t"
_DNSMASQ = re.compile(r"duid [^ ]|[0-9]{1,12} [^ ]+ [^ ]+ [^ ]+ [^ ]")
# dhcpd.leases(5): the declarations and statements that a file may begin with
_DHCPD = re.compile(
    r"(lease|host|group|subgroup|failover|ia-na|ia-ta|ia-pd|server-duid|authoring-byte-order)\b"
)
_REMEDY = "Name kea-leases4.csv of Kea, dnsmasq.leases of dnsmasq or dhcpd.leases of dhcpd."


def read_leases(source: str, text: str) -> LeaseFile:
    """Return the leases of a file. Raises InputError if it is no lease file, or too large."""
    if len(text) > SIZE_MAX or text.count("\n") > LINES_MAX:
        problem = f"it has more than {SIZE_MAX} characters or {LINES_MAX} lines"
        raise InputError(source, "", problem, "Have the server clean it up (Kea: lfc-interval).")
    first = _find_first_line(text)
    if not first:
        return LeaseFile(source=source, server="", notes=(f"{source}: it has no lease",))
    if first.startswith(_KEA):
        return read_kea_leases(source, text[text.index(first) :])
    if first.startswith(_NOTES):
        return read_dnsmasq_notes(source, text)
    if _DNSMASQ.match(first):
        return read_dnsmasq_leases(source, text)
    if _DHCPD.match(first):
        return read_dhcpd_leases(source, text)
    problem = "it is no lease file of Kea, dnsmasq or dhcpd"
    raise InputError(source, "", problem, _REMEDY)


def _find_first_line(text: str) -> str:
    """Return the first line that is neither empty nor a comment."""
    lines = (line.strip() for line in text.split("\n"))
    return next((line for line in lines if line and not line.startswith("#")), "")
