"""Which addresses a URL that people give may lead to: public ones, and those that the site names.

The daemon reaches what the callers of its API do not: itself, BMCs, switches, a cloud's metadata.
A URL in a request must not be a way to them. The rule is asked twice: for the host as it is written
(`refuse_host`), and for each address that a connection is opened to (`refuse_address`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network

Address = IPv4Address | IPv6Address
# Metadata and credentials of clouds, at whatever address, as their manuals name them: AWS (IMDS,
# DNS, ECS, EKS), Google (fd20:ce::254), Azure's WireServer (168.63.129.16, which is a public
# address), Alibaba (100.100.100.200), Oracle (192.0.0.192)
METADATA = frozenset(
    ip_address(text)
    for text in (
        "169.254.169.254",
        "169.254.169.253",
        "169.254.170.2",
        "169.254.170.23",
        "fd00:ec2::254",
        "fd00:ec2::253",
        "fd00:ec2::23",
        "fd20:ce::254",
        "168.63.129.16",
        "100.100.100.200",
        "192.0.0.192",
    )
)
# networks whose last 32 bits are an IPv4 address: NAT64 (RFC 6052, RFC 8215), IPv4-compatible
# (RFC 4291 section 2.5.5.1), IPv4-translated (RFC 2765)
_LAST_BITS = tuple(
    IPv6Network(n) for n in ("64:ff9b::/96", "64:ff9b:1::/48", "::/96", "::ffff:0:0:0/96")
)
_SITE_LOCAL = IPv6Network("fec0::/10")
_HOST = re.compile(r"[a-z0-9_.-]+")
_NUMBER = re.compile(r"0x[0-9a-f]*|[0-9]+")


def refuse_host(host: str, networks: Sequence[str]) -> str:
    """Return why a URL's host is not asked, or "": a name is judged again when it is resolved."""
    name = host.lower().strip("[]")
    if ":" in name:
        return refuse_address(name, networks)
    if not _HOST.fullmatch(name):
        return "this is no name of a host"
    labels = name.rstrip(".").split(".")
    if _NUMBER.fullmatch(labels[-1]):  # inet_aton reads 127.1, 0x7f000001 and 0177.0.0.1 too
        try:
            return refuse_address(str(IPv4Address(name)), networks)
        except ValueError:
            return "this is an IPv4 address in another form than four decimal numbers"
    if labels[-1] == "localhost" or labels[0] in ("localhost", "ip6-localhost", "ip6-loopback"):
        return refuse_address("127.0.0.1", networks) and refuse_address("::1", networks)
    return ""


def refuse_address(address: str, networks: Sequence[str]) -> str:
    """Return why no connection is opened to an address, or "". `networks`: those of the site.

    An address in an IPv6 form of IPv4 is judged as both; a cloud's metadata needs its own entry.
    """
    try:
        given = ip_address(address.partition("%")[0])
    except ValueError:
        return "this is no address"
    for one in _meanings(given):
        kind = _kind(one)
        if kind and (kind in _NEVER or not _is_listed(one, networks)):
            return f"{one} is {kind}"
    return ""


def _meanings(given: Address) -> Iterator[Address]:
    if isinstance(given, IPv4Address):
        yield given
        return
    if given.ipv4_mapped is not None:  # the kernel itself opens an IPv4 connection
        yield given.ipv4_mapped
        return
    yield given
    if given.sixtofour is not None:
        yield given.sixtofour
    if given.teredo is not None:
        yield given.teredo[1]
    if int(given) > 1 and any(given in network for network in _LAST_BITS):  # not :: and ::1
        yield IPv4Address(int(given) & 0xFFFF_FFFF)


_NEVER = ("no address of one host",)


def _kind(one: Address) -> str:
    """Return in what way an address is not public, or ""."""
    this_network = isinstance(one, IPv4Address) and int(one) >> 24 == 0
    if one.is_unspecified or one.is_multicast or this_network:
        return _NEVER[0]
    if isinstance(one, IPv4Address) and one.is_reserved:
        return _NEVER[0]
    if one in METADATA:
        return "a cloud's metadata"
    if one.is_loopback:
        return "the daemon's own machine"
    if one.is_link_local or (isinstance(one, IPv6Address) and one in _SITE_LOCAL):
        return "link-local"
    return "" if one.is_global else "in a private network"


def _is_listed(one: Address, networks: Sequence[str]) -> bool:
    mine = [n for n in map(ip_network, networks) if n.version == one.version and one in n]
    if one in METADATA:
        return any(n.num_addresses == 1 for n in mine)
    return bool(mine)
