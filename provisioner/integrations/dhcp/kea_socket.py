"""The control socket of a Kea DHCPv4 server: its leases are read page by page.

One command a connection: Kea answers it with one JSON object and closes. `lease4-get-page` is the
only command that is sent, and it changes nothing. The socket is a file of the server's machine, and
who may open it decides who may ask.
"""

from __future__ import annotations

import ipaddress
import json
import socket
from pathlib import Path

from provisioner.integrations.dhcp.deciding.dhcp_lease import DhcpLease, LeaseFile
from provisioner.integrations.dhcp.deciding.dhcp_leases import NO_MAC, UNREADABLE
from provisioner.integrations.dhcp.deciding.lease_comparison import LeasePage, read_page
from provisioner.model.input_error import InputError

PAGE = 1000  # leases in one answer, some 250 bytes each
PAGES_MAX = 1000
ANSWER_MAX = 8 * 2**20  # bytes of one answer
ANSWER_S = 30.0  # of silence
_CHUNK = 65_536


def read_socket(path: Path) -> LeaseFile:
    """Return the leases that a server holds now. Raises InputError, never OSError."""
    source = str(path)
    leases: list[DhcpLease] = []
    unreadable = 0
    without_mac = 0
    place = "start"
    for _ in range(PAGES_MAX):
        page = read_page(source, _ask(path, place))
        leases += page.leases
        unreadable += page.unreadable
        without_mac += page.without_mac
        if not page.last:
            notes = [f"{source}: {n} left out: {why}" for n, why in _count(unreadable, without_mac)]
            kept = tuple({lease.address: lease for lease in leases}.values())
            return LeaseFile(source=source, server="kea", leases=kept, notes=tuple(notes))
        place = _advance(source, place, page)
    problem = f"it has more than {PAGES_MAX * PAGE} leases"
    raise InputError(source, "", problem, "Is it the server of the management network?")


def _count(unreadable: int, without_mac: int) -> list[tuple[int, str]]:
    return [(n, why) for n, why in ((unreadable, UNREADABLE), (without_mac, NO_MAC)) if n]


def _advance(source: str, place: str, page: LeasePage) -> str:
    """Return the place after a page; a server that goes backwards would never end."""
    here = ipaddress.ip_address(page.last)
    before = None if place == "start" else ipaddress.ip_address(place)
    if before is not None and (here.version != before.version or int(here) <= int(before)):
        problem = f"after {place} it went on with {page.last}"
        raise InputError(source, "", problem, "Read the lease file of the server in its place.")
    return page.last


def _ask(path: Path, place: str) -> str:
    command = {"command": "lease4-get-page", "arguments": {"from": place, "limit": PAGE}}
    answer = bytearray()
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
            server.settimeout(ANSWER_S)
            server.connect(str(path))
            server.sendall(json.dumps(command).encode())
            while chunk := server.recv(_CHUNK):
                answer += chunk
                if len(answer) > ANSWER_MAX:
                    problem = f"its answer has more than {ANSWER_MAX} bytes"
                    raise InputError(str(path), "", problem, "Is it the socket of kea-dhcp4?")
    except OSError as error:
        problem = f"it does not answer ({error.strerror or error})"
        remedy = "Check the path, whether kea-dhcp4 runs, and whether you may open its socket."
        raise InputError(str(path), "", problem, remedy) from None
    return answer.decode("utf-8", "replace")
