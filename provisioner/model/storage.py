"""Shared file storage of tenants: the wish on a tenant's record, and sets of client addresses."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from pydantic import Field, field_validator, model_validator

from provisioner.model.base import Record

EXPORTS_MAX = 32  # of one tenant
_NAME = r"^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$"
_PATH = r"^(/[A-Za-z0-9][A-Za-z0-9._-]{0,62}){1,8}$"  # no "..", no trailing slash, no blank
BYTES_MAX = 2**60  # an exbibyte: more is a slip of the keyboard


class Export(Record):
    """One directory that a tenant's nodes mount, and no others."""

    name: str = Field(pattern=_NAME, description="Its name, one of the tenant's.")
    path: str = Field(pattern=_PATH, description="Directory in the tenant's own name space.")
    read_only: bool = Field(default=False, description="The nodes cannot write to it.")
    root_squash: bool = Field(
        default=True, description="Root of a node is nobody there; false: root is root."
    )
    quota_bytes: int | None = Field(
        default=None, ge=1, le=BYTES_MAX, description="Most that it holds; without, no limit."
    )


class FileStorage(Record):
    """The shared storage that a tenant has: made with its network, and removed with it."""

    exports: tuple[Export, ...] = Field((), max_length=EXPORTS_MAX, description="By name.")
    quota_bytes: int | None = Field(
        default=None, ge=1, le=BYTES_MAX, description="Most that all of it holds."
    )
    encrypted: bool = Field(
        default=False, description="Its data are encrypted by keys of its own, where offered."
    )
    adopt: bool = Field(
        default=False, description="An empty space of its name, made by hand, is taken as its own."
    )

    @field_validator("exports")
    @classmethod
    def _sort(cls, exports: tuple[Export, ...]) -> tuple[Export, ...]:
        return tuple(sorted(exports, key=lambda e: e.name))

    @model_validator(mode="after")
    def _has_each_once(self) -> FileStorage:
        names = [e.name for e in self.exports]
        paths = sorted(e.path for e in self.exports)
        if len(set(names)) != len(names):
            raise ValueError("two exports have one name")
        inside = any(b.startswith(f"{a}/") for a in paths for b in paths)
        if inside or len(set(paths)) != len(paths):
            raise ValueError("one export is inside of another: its rules would not hold there")
        return self


# ------------------------------------------------------------------------------
# Sets of addresses, as storage systems keep them: ranges with both ends included. A set is sorted,
# its ranges neither overlap nor touch, so that equal sets are equal values.


class AddressRange(NamedTuple):
    """From the first address to the last one, both included; both of one IP version."""

    first: str
    last: str

    def __str__(self) -> str:
        return self.first if self.first == self.last else f"{self.first}-{self.last}"


AddressSet = tuple[AddressRange, ...]
_Span = tuple[int, int, int]  # IP version, first, last


def make_set(ranges: Iterable[tuple[str, str]]) -> AddressSet:
    """Return the set of these ranges. Raises ValueError for one that is none."""
    return _write(_read(first, last) for first, last in ranges)


def make_set_of(addresses: Iterable[str]) -> AddressSet:
    """Return the set of single addresses. Raises ValueError for one that is none."""
    return make_set((a, a) for a in addresses)


def unite(one: AddressSet, other: AddressSet) -> AddressSet:
    return make_set((*one, *other))


def subtract(one: AddressSet, other: AddressSet) -> AddressSet:
    """Return the addresses of `one` that `other` does not have."""
    left = [_read(*r) for r in one]
    for version, first, last in (_read(*r) for r in other):
        kept: list[_Span] = []
        for mine in left:
            if mine[0] != version or mine[2] < first or last < mine[1]:
                kept.append(mine)
                continue
            if mine[1] < first:
                kept.append((version, mine[1], first - 1))
            if last < mine[2]:
                kept.append((version, last + 1, mine[2]))
        left = kept
    return _write(left)


def intersect(one: AddressSet, other: AddressSet) -> AddressSet:
    return subtract(one, subtract(one, other))


def count_addresses(ranges: AddressSet) -> int:
    return sum(last - first + 1 for _, first, last in (_read(*r) for r in ranges))


def describe_set(ranges: AddressSet, shown_max: int = 4) -> str:
    """Return the set for people: its first ranges, and how many addresses it has in all."""
    if not ranges:
        return "no address"
    words = ", ".join(str(r) for r in ranges[:shown_max])
    rest = f" and more, {count_addresses(ranges)} in all" if len(ranges) > shown_max else ""
    return words + rest


def _read(first: str, last: str) -> _Span:
    low = ipaddress.ip_address(first)
    high = ipaddress.ip_address(last)
    if low.version != high.version or int(high) < int(low):
        raise ValueError(f"{first:.45}-{last:.45} is no range of addresses")
    return low.version, int(low), int(high)


def _write(spans: Iterable[_Span]) -> AddressSet:
    joined: list[_Span] = []
    for version, first, last in sorted(spans):
        if joined and joined[-1][0] == version and first <= joined[-1][2] + 1:
            joined[-1] = (version, joined[-1][1], max(last, joined[-1][2]))
        else:
            joined.append((version, first, last))
    return tuple(AddressRange(_text(v, a), _text(v, b)) for v, a, b in joined)


def _text(version: int, number: int) -> str:
    kind = ipaddress.IPv4Address if version == 4 else ipaddress.IPv6Address
    return str(kind(number))


# ------------------------------------------------------------------------------
# What a storage system has for one tenant, and the acts that change it.


@dataclass(frozen=True)
class SeenExport:
    """One export as it was read. A limit of None: there is none. A rule of None: it does not hold
    for all clients alike, or there is no client that it could be read of.

    `clients`: those that the export's own rules admit, whatever the space admits; a system without
    such rules gives the clients of the space. `foreign`: openings that these fields cannot say, as
    sentences for people ("open over SMB"); () if there are none.
    """

    name: str
    path: str
    read_only: bool | None
    root_squash: bool | None
    clients: AddressSet = ()
    quota_bytes: int | None = None
    used_bytes: int | None = None
    mount: str = ""  # what a node mounts, "192.0.2.10:/scratch"; "": it is not known
    foreign: tuple[str, ...] = ()


@dataclass(frozen=True)
class SpaceState:
    """What the storage has for one tenant. `handle`: the system's own lasting id of it, which is
    another one once somebody removed the space and made a new one of its name; "": it has none.

    `clients`: addresses that the space admits. `exports`: by name; one that no record asks for has
    the name that the system shows. `foreign`: as of an export.
    """

    handle: str = ""
    clients: AddressSet = ()
    exports: Mapping[str, SeenExport] = field(default_factory=dict)
    quota_bytes: int | None = None
    used_bytes: int | None = None
    encrypted: bool = False
    foreign: tuple[str, ...] = ()


class SpaceVerb(StrEnum):
    """What an act does. Every act is absolute or a repetition of it is harmless."""

    MAKE = "make"  # the space, admitting nobody, with its encryption
    LIMIT = "limit"  # set the quota of the whole space; None: no limit
    EXPORT = "export"  # make one export, or give it exactly these rules and this quota
    ADMIT = "admit"  # these clients, to the space and to every export of it
    EXPEL = "expel"  # these clients, from the space first and then from every export
    UNEXPORT = "unexport"  # remove one export, also a foreign one; its files stay
    REMOVE = "remove"  # the space, which has no export and no client any more


@dataclass(frozen=True)
class SpaceAct:
    """One act on one space. All clients of a batch are in one act: an adapter sends them in one
    request to each policy, never one to each node.

    `handle`: that of the space as it was read; an adapter refuses to act on another one.
    """

    verb: SpaceVerb
    space: str
    handle: str = ""
    clients: AddressSet = ()  # ADMIT, EXPEL; EXPORT: those that the export admits afterwards
    export: Export | None = None  # EXPORT; UNEXPORT: of its name and path
    quota_bytes: int | None = None  # LIMIT
    encrypted: bool = False  # MAKE
