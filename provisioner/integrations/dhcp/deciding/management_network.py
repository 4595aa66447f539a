"""Lay out an empty management network by the expected-hardware list. Pure.

A BMC or a switch whose entry has both a MAC and an address gets that address always. Every other
listed address, and those of the server and the gateway, are left out of the pools, so that no
unknown card gets an address which the list promises to another.
"""

from __future__ import annotations

import ipaddress
import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from provisioner.integrations.dhcp.deciding.dhcp_lease import (
    ManagementNetwork,
    Reservation,
    SwitchName,
)
from provisioner.integrations.dhcp.deciding.dhcp_leases import (
    normalize_lease_address,
    normalize_mac,
)
from provisioner.model.expected import Expected, ExpectedNode
from provisioner.model.input_error import InputError
from provisioner.model.node import NodeKind

# ------------------------------------------------------------------------------
# Write a management network as configuration of Kea or dnsmasq. Pure.
#
# New switches are recognized by their own words: Cumulus Linux sends the vendor class
# `cumulus-linux x86_64` and takes its first script from option 239 (its user guide, Zero Touch
# Provisioning); SONiC sends the user class `SONiC-ZTP` (sonic-buildimage, dhclient.conf.j2) and
# takes the URL of its ZTP data from option 67 (sonic-ztp). Neither is sent to any other device.


KEA_FILE = "kea-dhcp4.conf"
DNSMASQ_FILE = "dnsmasq.conf"
CUMULUS_SCRIPT = "cumulus-ztp.sh"
SONIC_DATA = "ztp.json"
SONIC_SCRIPT = "sonic-login.sh"
CUMULUS_CLASS = "cumulus-linux"
SONIC_CLASS = "SONiC-ZTP"
PROVISION_URL = 239
LEASE_S = 3600
RETRIES = 100_000
RETRY_MS = 5000
SOCKET = "/run/kea/kea4-ctrl-socket"  # as in Debian's own file, where AppArmor allows it
LEASES = "/var/lib/kea/kea-leases4.csv"
NOTES = "/var/lib/provisioner-leases"


def write_kea(site: ManagementNetwork, hooks: str) -> str:
    """Return the file of kea-dhcp4; `hooks` is the folder of its hook libraries."""
    options = [{"name": "routers", "data": site.gateway}] if site.gateway else []
    subnet = {
        "id": 1,
        "subnet": site.network,
        "pools": [{"pool": f"{first} - {last}"} for first, last in site.pools],
        "option-data": options,
        "reservations-in-subnet": True,
        "reservations-out-of-pool": True,
        "reservations": [
            {"hw-address": r.mac, "ip-address": r.address, "hostname": r.name}
            for r in site.reservations
        ],
    }
    settings = {
        "interfaces-config": {
            "interfaces": [site.interface],
            # at the server's start the cable may have no link yet
            "service-sockets-max-retries": RETRIES,
            "service-sockets-retry-wait-time": RETRY_MS,
        },
        "control-socket": {"socket-type": "unix", "socket-name": SOCKET},
        "hooks-libraries": [{"library": f"{hooks}/libdhcp_lease_cmds.so"}],
        "lease-database": {"type": "memfile", "name": LEASES, "lfc-interval": LEASE_S},
        "valid-lifetime": LEASE_S,
        "option-def": [{"name": "provision-url", "code": PROVISION_URL, "type": "string"}],
        "client-classes": _write_classes(site),
        "subnet4": [subnet],
    }
    return json.dumps({"Dhcp4": settings}, indent=2) + "\n"


def _write_classes(site: ManagementNetwork) -> list[Mapping[str, Any]]:
    length = len(CUMULUS_CLASS)
    return [
        {
            "name": "cumulus",
            "test": f"substring(option[60].hex,0,{length}) == '{CUMULUS_CLASS}'",
            "option-data": [{"name": "provision-url", "data": f"{site.url}/{CUMULUS_SCRIPT}"}],
        },
        {
            "name": "sonic",
            "test": f"substring(option[77].hex,0,{len(SONIC_CLASS)}) == '{SONIC_CLASS}'",
            "option-data": [{"name": "boot-file-name", "data": f"{site.url}/{SONIC_DATA}"}],
        },
    ]


def write_dnsmasq(site: ManagementNetwork) -> str:
    """Return the file of dnsmasq: DHCP alone, no names."""
    netmask = site.network.partition("/")[2]
    mask = _write_mask(int(netmask))
    lines = [
        "# DHCP of an empty management network, by `provisioner discover profile`",
        "port=0",
        f"interface={site.interface}",
        "bind-interfaces",
        "dhcp-authoritative",
        "dhcp-leasefile=/var/lib/misc/dnsmasq.leases",
        "dhcp-script=/usr/local/sbin/note-lease",
        "dhcp-scriptuser=dnsmasq",
        *(f"dhcp-range={first},{last},{mask},{LEASE_S}" for first, last in site.pools),
        f"dhcp-option=option:router{f',{site.gateway}' if site.gateway else ''}",
        "dhcp-option=option:dns-server",
        f"dhcp-vendorclass=set:cumulus,{CUMULUS_CLASS}",
        f"dhcp-option=tag:cumulus,{PROVISION_URL},{site.url}/{CUMULUS_SCRIPT}",
        f"dhcp-userclass=set:sonic,{SONIC_CLASS}",
        f"dhcp-option=tag:sonic,option:bootfile-name,{site.url}/{SONIC_DATA}",
        *(f"dhcp-host={r.mac},{r.address},{r.name}" for r in site.reservations),
    ]
    return "\n".join(lines) + "\n"


def _write_mask(bits: int) -> str:
    number = (0xFFFFFFFF << (32 - bits)) & 0xFFFFFFFF
    return ".".join(str(number >> shift & 255) for shift in (24, 16, 8, 0))


# ------------------------------------------------------------------------------
# The first scripts of new switches: names, and the door that the daemon comes through. Pure.
#
# They are fetched without a login by whatever stands on the management network, so that they hold
# no password. A switch with Cumulus Linux keeps its factory password until its intake, when the
# daemon changes it; one with SONiC gets the daemon's public key. Both take their name by their
# address.


MARKER = "CUMULUS-AUTOPROVISIONING"  # without it Cumulus Linux does not run a script
CUMULUS = "cumulus"
SONIC = "sonic"
_NAMES = """name_of() {{
  case "$1" in
{cases}
  *) ;;
  esac
}}

address=$(ip -4 -o address show dev eth0 | awk '{{print $4}}' | cut -d/ -f1 | head -n 1)
name=$(name_of "$address")
"""
_CUMULUS = """#!/bin/bash
# {marker}
# Written by `provisioner discover profile`: the first script of a switch with Cumulus Linux.
# It has no password: the daemon changes the factory one at the switch's intake.
exec >>/var/log/autoprovision 2>&1
set -eu

{names}
echo "$(date +%FT%T) first script at $address: name ${{name:-not on the list}}"
nv set system api state enabled
if [ -n "$name" ]; then
  nv set system hostname "$name"
fi
nv config apply -y
nv config save
exit 0
"""
_SONIC = """#!/bin/bash
# Written by `provisioner discover profile`: the first script of a switch with SONiC (ztp.json).
# It has no password: the daemon comes with the key whose public half is here.
set -eu

{names}
user={user}
key={key}
id -u "$user" >/dev/null 2>&1 || useradd -m -s /bin/bash "$user"
home=$(getent passwd "$user" | cut -d: -f6)
install -d -m 0700 -o "$user" -g "$user" "$home/.ssh"
printf '%s\\n' "$key" >"$home/.ssh/authorized_keys"
chown "$user:$user" "$home/.ssh/authorized_keys"
chmod 0600 "$home/.ssh/authorized_keys"
printf '%s ALL=(ALL) NOPASSWD:ALL\\n' "$user" >"/etc/sudoers.d/$user"
chmod 0440 "/etc/sudoers.d/$user"
if [ -n "$name" ]; then
  config hostname "$name"
fi
config save -y
exit 0
"""


def write_cumulus_script(site: ManagementNetwork) -> str:
    """Return the first script of switches with Cumulus Linux."""
    return _CUMULUS.format(marker=MARKER, names=_write_names(site.switches, CUMULUS))


def write_sonic_data(site: ManagementNetwork) -> str:
    """Return the ZTP data of switches with SONiC: one section with a script of its own."""
    section = {
        "plugin": {"url": f"{site.url}/{SONIC_SCRIPT}"},
        "halt-on-failure": True,
    }
    return json.dumps({"ztp": {"01-provisioner-login": section}}, indent=2) + "\n"


def write_sonic_script(site: ManagementNetwork) -> str:
    return _SONIC.format(
        names=_write_names(site.switches, SONIC),
        user=shlex.quote(site.ssh_user),
        key=shlex.quote(site.ssh_key),
    )


def _write_names(switches: Iterable[SwitchName], system: str) -> str:
    """Return the shell function that knows the names of one system's switches by address."""
    cases = "\n".join(
        f"  {shlex.quote(s.address)}) echo {shlex.quote(s.name)} ;;"
        for s in switches
        if s.os == system
    )
    return _NAMES.format(cases=cases or "  '') ;;").rstrip("\n")


# ------------------------------------------------------------------------------
# The steps that a person takes with a profile for an empty management network. Pure.


_KEA = f"""    cp {KEA_FILE} /etc/kea/kea-dhcp4.conf
    systemctl restart kea-dhcp4-server"""
_DNSMASQ = f"""    install -m 0755 note-lease /usr/local/sbin/note-lease
    install -d -o dnsmasq {NOTES}
    cp {DNSMASQ_FILE} /etc/dnsmasq.d/management.conf
    systemctl restart dnsmasq"""


def write_steps(server: str, site: ManagementNetwork) -> str:
    install = _KEA if server == "kea" else _DNSMASQ
    source = f"--kea-socket {SOCKET}" if server == "kea" else f"{NOTES}/notes"
    serve = (
        f"2. Serve the folder `www` at {site.url}, without a login. It holds no password. New "
        "switches run its scripts as root: nothing else may answer at that address."
    )
    if not site.switches:
        serve = "2. The list has no switch in this network: there is nothing to serve."
    lines = [
        f"# {site.network}: DHCP and first scripts",
        "",
        "Only for a network that is empty but for new hardware.",
        "",
        f"1. See that no other DHCP server answers on {site.interface}.",
        serve,
        f"3. On the server, which has {site.server} on {site.interface}:",
        "",
        install,
        "",
        "4. Power the racks, and compare what comes up with the list:",
        "",
        f"    provisioner discover leases {source} --file expected.yaml --subnet {site.network}",
        "",
        "5. Correct the list until the command ends with exit code 0. Then take the hardware in",
        "   (docs/intake.md), or adopt what serves already (docs/adopting.md).",
        "6. To end it, stop the server. Addresses that were given out end within the hour;",
        "   switches keep what their first script wrote.",
    ]
    return "\n".join(lines) + "\n"


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
