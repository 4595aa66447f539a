"""Lay out an empty management network by the expected-hardware list. Pure.

A BMC or a switch whose entry has both a MAC and an address gets that address always. Every other
listed address, and those of the server and the gateway, are left out of the pools, so that no
unknown card gets an address which the list promises to another.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from provisioner.model.expected import Expected, ExpectedNode
from provisioner.model.input_error import InputError
from provisioner.model.integrations.management_profile import (
    ManagementNetwork,
    Reservation,
    SwitchName,
)
from provisioner.model.node import NodeKind
from provisioner.planning.intake.lease_values import normalize_lease_address, normalize_mac

POOLS_MAX = 4096
NOTES_MAX = 20
INTERFACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,14}")
KEY = re.compile(r"[a-z0-9@.-]{1,64} [A-Za-z0-9+/=]{1,4096}( [!-~]{1,200})?")
URL = re.compile(r"https?://[A-Za-z0-9.:\[\]_-]{1,253}(/[A-Za-z0-9._~/-]{0,200})?")
USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
_SOURCE = "discover profile"


@dataclass(frozen=True)
class Wishes:
    """The parts of a profile that the list does not have, as a person wrote them."""

    subnet: str
    server: str
    interface: str
    gateway: str = ""
    pool: str = ""  # "10.0.1.100-10.0.1.200"; "": the whole subnet
    url: str = ""  # "": http:// and the server
    ssh_user: str = "provisioner"
    ssh_key: str = ""


@dataclass(frozen=True)
class _Listed:
    """One entry of the list: its name, and MAC and address as far as it has them."""

    name: str
    mac: str
    address: str
    os: str = ""


def lay_out_network(expected: Expected, wishes: Wishes) -> ManagementNetwork:
    """Return the network. Raises InputError for values that do not fit together."""
    network = _parse_network(wishes.subnet)
    server = _parse_member(network, wishes.server, "--address")
    gateway = _parse_member(network, wishes.gateway, "--gateway") if wishes.gateway else ""
    _check_words(wishes)
    listed = [_read_entry(node) for node in expected.nodes]
    _check_unique(listed)
    notes: list[str] = []
    reservations = list(_reserve(listed, network, (server, gateway), notes))
    inside = [e.address for e in listed if _is_inside(e.address, network)]
    return ManagementNetwork(
        network=str(network),
        server=server,
        interface=wishes.interface,
        gateway=gateway,
        pools=_cut_pools(network, wishes.pool, [server, gateway, *inside]),
        reservations=tuple(reservations),
        switches=tuple(
            SwitchName(name=e.name, address=e.address, os=e.os)
            for e in listed
            if e.os and _is_inside(e.address, network)
        ),
        url=(wishes.url or f"http://{server}").rstrip("/"),
        ssh_user=wishes.ssh_user,
        ssh_key=wishes.ssh_key.strip(),
        notes=_bound(notes),
    )


def _parse_network(text: str) -> ipaddress.IPv4Network:
    try:
        network = ipaddress.IPv4Network(text)
    except ValueError:
        problem = "this is no network of IPv4"
        raise InputError("--subnet", text[:40], problem, "Write it like 10.0.1.0/24.") from None
    if not 16 <= network.prefixlen <= 29:
        problem = "a management network has 16 to 29 bits"
        raise InputError("--subnet", text[:40], problem, "Name the network of one pod or unit.")
    return network


def _parse_member(network: ipaddress.IPv4Network, text: str, option: str) -> str:
    address = normalize_lease_address(text)
    if not _is_inside(address, network):
        problem = f"this is no host address of {network}"
        raise InputError(option, text[:40], problem, "Name an address of the server's own subnet.")
    return address


def _is_inside(address: str, network: ipaddress.IPv4Network) -> bool:
    """Return whether an address is one that a host of the network may have."""
    if not address or ":" in address:
        return False
    place = ipaddress.IPv4Address(address)
    return place in network and place not in (network.network_address, network.broadcast_address)


def _check_words(wishes: Wishes) -> None:
    """Refuse words that would mean something else in a file of configuration."""
    rules = (
        ("--interface", wishes.interface, INTERFACE, "Name it as `ip link` shows it."),
        ("--url", wishes.url, URL, "Write it like http://10.0.1.1 or https://ztp.example/racks."),
        ("--ssh-user", wishes.ssh_user, USER, "Name the user of `serve --ssh-user`."),
        ("--ssh-key", wishes.ssh_key.strip(), KEY, "Name a file with one public key of OpenSSH."),
    )
    for option, word, pattern, remedy in rules:
        if (word or option == "--interface") and not pattern.fullmatch(word):
            raise InputError(option, word[:40], "this cannot be used", remedy)


def _read_entry(node: ExpectedNode) -> _Listed:
    mac = normalize_mac(node.bmc.mac)
    if node.kind is NodeKind.SWITCH:
        return _Listed(node.name, mac, _read_host(node.address), node.os)
    return _Listed(f"{node.name}-bmc", mac, _read_host(node.bmc.url))


def _read_host(url: str) -> str:
    """Return the IP address of a URL; "" if it has a name, or none."""
    try:
        return normalize_lease_address(urlsplit(url).hostname or "")
    except ValueError:
        return ""


def _check_unique(listed: Sequence[_Listed]) -> None:
    """Refuse a list in which two entries have one MAC or one address."""
    owners: dict[str, str] = {}
    for entry in listed:
        for value in filter(None, (entry.mac, entry.address)):
            other = owners.setdefault(value, entry.name)
            if other != entry.name:
                problem = f"{other} and {entry.name} both have {value}"
                raise InputError("--file", "", problem, "Correct the list.")


def _reserve(
    listed: Iterable[_Listed],
    network: ipaddress.IPv4Network,
    taken: tuple[str, str],
    notes: list[str],
) -> Iterator[Reservation]:
    """Yield the reservations, and note each entry that gets none."""
    for entry in listed:
        if entry.address in taken and entry.address:
            problem = f"{entry.name} has the address {entry.address} of the server or gateway"
            raise InputError("--file", "", problem, "Correct the list, or name another address.")
        if not entry.address:
            lacks = "no address of its own" if entry.mac else "neither MAC nor address"
            notes.append(f"{entry.name}: {lacks} on the list; it gets one of the pool")
        elif not _is_inside(entry.address, network):
            notes.append(f"{entry.name}: {entry.address} is not in {network}")
        elif not entry.mac:
            notes.append(
                f"{entry.name}: no MAC on the list (`bmc: {{mac: …}}`); it gets an address of the "
                f"pool, and {entry.address} is given to nothing"
            )
        else:
            name = re.sub(r"[^A-Za-z0-9-]", "-", entry.name)
            yield Reservation(mac=entry.mac, address=entry.address, name=name)


def _cut_pools(
    network: ipaddress.IPv4Network, pool: str, excluded: Iterable[str]
) -> tuple[tuple[str, str], ...]:
    """Return the ranges of a pool without the excluded addresses."""
    first = int(network.network_address) + 1
    last = int(network.broadcast_address) - 1
    if pool:
        low, _, high = pool.partition("-")
        first = int(ipaddress.IPv4Address(_parse_member(network, low.strip(), "--pool")))
        last = int(ipaddress.IPv4Address(_parse_member(network, high.strip(), "--pool")))
    pools: list[tuple[str, str]] = []
    start = first
    out = sorted({int(ipaddress.IPv4Address(a)) for a in excluded if a})
    for stop in [*(n for n in out if first <= n <= last), last + 1]:
        if start < stop:
            pools.append((str(ipaddress.IPv4Address(start)), str(ipaddress.IPv4Address(stop - 1))))
        start = stop + 1
    if not pools:
        problem = "no address is left for cards that are not on the list"
        raise InputError("--pool", pool, problem, "Name a larger subnet or pool.")
    if len(pools) > POOLS_MAX:
        problem = f"the list's addresses cut it into more than {POOLS_MAX} ranges"
        raise InputError("--pool", pool, problem, "Name a pool beside the listed addresses.")
    return tuple(pools)


def _bound(notes: Sequence[str]) -> tuple[str, ...]:
    more = len(notes) - NOTES_MAX
    return (*notes[:NOTES_MAX], *([f"and {more} more entries"] if more > 0 else []))
