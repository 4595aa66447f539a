"""Interfaces, addresses and neighbours of a network namespace, asked of the kernel by netlink.

A look at a switch reads them some hundred times; a process of `ip` for each would cost more than
all the rest together. Numbers are those of linux/rtnetlink.h, if_link.h, if_addr.h and neighbour.h.
"""

from __future__ import annotations

import ipaddress
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

FAMILY = (socket.AF_NETLINK, socket.SOCK_RAW, 0)  # of a socket for `dump`: NETLINK_ROUTE
_GET_LINK, _GET_ADDRESS, _GET_NEIGHBOUR = 18, 22, 30
_REQUEST_DUMP, _ERROR, _DONE = 0x301, 2, 3
_UP = 6  # IF_OPER_UP
_GLOBAL = 0  # RT_SCOPE_UNIVERSE
_NO_NEIGHBOUR = 0x01 | 0x20 | 0x40  # NUD_INCOMPLETE, NUD_FAILED, NUD_NOARP


@dataclass
class Link:
    """One interface. Bytes, packets and errors are of both ways: (received, sent)."""

    name: str
    mtu: int
    up: bool
    carrier_changes: int
    bytes: tuple[int, int]
    packets: tuple[int, int]
    errors: tuple[int, int]
    addresses: set[str] = field(default_factory=set)  # of global scope, with length
    neighbours: dict[str, str] = field(default_factory=dict)  # address -> MAC


def links(line: socket.socket, *, neighbours: bool = False) -> dict[str, Link]:
    """Every interface of the namespace that the socket was made in."""
    found: dict[int, Link] = {}
    for body in _dump(line, _GET_LINK, struct.pack("=BxHiII", 0, 0, 0, 0, 0)):
        index = struct.unpack_from("=i", body, 4)[0]
        told = dict(_attributes(body, 16))
        counted = struct.unpack_from("=6Q", told[23])  # packets, bytes, errors: in and out
        found[index] = Link(
            name=told[3].rstrip(b"\0").decode(),
            mtu=struct.unpack("=I", told[4])[0],
            up=told[16][0] == _UP,
            carrier_changes=struct.unpack("=I", told[35])[0],
            bytes=counted[2:4],
            packets=counted[0:2],
            errors=counted[4:6],
        )
    for body in _dump(line, _GET_ADDRESS, struct.pack("=BBBBI", 0, 0, 0, 0, 0)):
        _, length, _, scope, index = struct.unpack_from("=BBBBI", body)
        told = dict(_attributes(body, 8))
        if scope == _GLOBAL and index in found:
            address = ipaddress.ip_address(told.get(2, told.get(1, b"")))
            found[index].addresses.add(f"{address}/{length}")
    asked = _dump(line, _GET_NEIGHBOUR, struct.pack("=BxxxiHBB", 0, 0, 0, 0, 0))
    for body in asked if neighbours else ():
        index, state = struct.unpack_from("=iH", body, 4)
        told = dict(_attributes(body, 12))
        if index in found and 1 in told and 2 in told and not state & _NO_NEIGHBOUR:
            found[index].neighbours[str(ipaddress.ip_address(told[1]))] = told[2].hex(":")
    return {link.name: link for link in found.values()}


def _dump(line: socket.socket, kind: int, head: bytes) -> Iterator[bytes]:
    line.send(struct.pack("=IHHII", 16 + len(head), kind, _REQUEST_DUMP, 1, 0) + head)
    while True:
        answer = line.recv(1 << 18)
        at = 0
        while at < len(answer):
            length, got = struct.unpack_from("=IH", answer, at)
            if got == _DONE:
                return
            assert got != _ERROR, "the kernel refuses to tell"
            yield answer[at + 16 : at + length]
            at += (length + 3) & ~3


def _attributes(body: bytes, at: int) -> Iterator[tuple[int, bytes]]:
    while at + 4 <= len(body):
        length, kind = struct.unpack_from("=HH", body, at)
        yield kind & 0x3FFF, body[at + 4 : at + length]
        at += (length + 3) & ~3
