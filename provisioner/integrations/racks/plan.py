"""The plan of racks: which unit stands where, as the integrator delivers them."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar
from urllib.parse import urlsplit

import yaml
from pydantic import AfterValidator, Field, StringConstraints, ValidationError, model_validator

from provisioner.integrations.racks.identity import Kind
from provisioner.model.base import Record
from provisioner.model.input_error import InputError
from provisioner.runtime.shipped import read_text

UNITS_MAX = 128  # of one rack; an NVL72 has 35 with a BMC
RACKS_MAX = 4096
BYTES_MAX = 32 * 2**20  # 256 racks and their states take some 3 MiB
DEPTH_MAX = 16  # of lists and mappings; a plan has five
R = TypeVar("R", bound=Record)
NAME = r"^[a-z0-9][a-z0-9.-]*$"
# what PyYAML raises for a value that is not what it looks like or its tag says, as 2001-99-99
_UNLOADABLE = (
    yaml.YAMLError, ValueError, ArithmeticError, LookupError, AttributeError, TypeError,
    RecursionError,
)  # fmt: skip
_REMEDY = "Correct it; docs/racks.md has an example."


Name = Annotated[str, StringConstraints(pattern=NAME, max_length=63)]


def _check_host(url: str) -> str:
    """Refuse a host and a port that no socket takes."""
    parts = urlsplit(url)
    if url and (not parts.hostname or parts.port == 0):
        raise ValueError("it names no host, or port 0")
    (parts.hostname or "").encode("idna")
    return url


# https://HOST: a login, a path or a query in it would stand in messages
Address = Annotated[
    str,
    StringConstraints(max_length=256, pattern=r"^(https?://[^\s/@?#\\]+/?)?$"),
    AfterValidator(_check_host),
]


Outlet = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9._-]+/[A-Za-z0-9._-]+$", max_length=128)
]


NodeName = Annotated[str, StringConstraints(min_length=1, max_length=128)]


LINK_ROLES = ("acp", "sw", "fnm")  # NVOS' words: to trays, front panel, between switches
LinkName = Annotated[str, StringConstraints(pattern=r"^(acp|sw|fnm)[0-9ps]*$", max_length=32)]


class PlannedUnit(Record):
    """One unit of a rack.

    `u` counts rack units from the floor. A shelf has neither slot nor index: nothing states them.
    """

    name: str = Field(min_length=1, max_length=63, pattern=NAME)
    kind: Kind
    u: int = Field(ge=1, le=64)
    bmc: Address = ""  # of its BMC
    nvos: Address = ""  # of an NVLink switch's NVOS
    serial: str = Field(default="", max_length=128)  # as its BMC says it; "": it is not compared
    slot: int | None = Field(default=None, ge=0, le=255)
    tray_index: int | None = Field(default=None, ge=0, le=255)
    domain: str = Field(default="", max_length=63)  # where one rack holds several
    feeds: tuple[Name, ...] = Field(default=(), max_length=8)  # of a shelf
    outlets: tuple[Outlet, ...] = Field(default=(), max_length=16)  # of a shelf, as PDU/OUTLET
    supplies: int | None = Field(default=None, ge=1, le=16)  # of a shelf
    leaves: tuple[Name, ...] = Field(default=(), max_length=64)  # of a tray: all are needed
    loop: str = Field(default="", max_length=63)  # coolant, where it is not the rack's

    @model_validator(mode="after")
    def _check(self) -> Self:
        placed = self.slot is not None and self.tray_index is not None
        if self.kind in (Kind.COMPUTE_TRAY, Kind.NVLINK_SWITCH) and not placed:
            raise ValueError(f"{self.name}: a tray or switch needs `slot` and `tray_index`")
        if self.kind is Kind.POWER_SHELF and (self.slot, self.tray_index) != (None, None):
            raise ValueError(f"{self.name}: a shelf states no slot, so the plan has none")
        if self.nvos and self.kind is not Kind.NVLINK_SWITCH:
            raise ValueError(f"{self.name}: only an NVLink switch has `nvos`")
        if (self.feeds or self.outlets or self.supplies) and self.kind is not Kind.POWER_SHELF:
            raise ValueError(f"{self.name}: only a shelf has `feeds`, `outlets` and `supplies`")
        if self.leaves and self.kind is not Kind.COMPUTE_TRAY:
            raise ValueError(f"{self.name}: only a tray has `leaves`")
        return self


class PlannedRack(Record):
    """One rack; `domain` names its NVLink domain: two racks cabled as one have the same."""

    name: str = Field(min_length=1, max_length=63, pattern=NAME)
    chassis_serial: str = Field(min_length=1, max_length=128)
    domain: str = Field(default="", max_length=63)
    loop: str = Field(default="", max_length=63)  # its coolant loop
    shelves_needed: int | None = Field(default=None, ge=1, le=64)  # None: unknown, so all
    # of its switches' NVLink interfaces, by name or by role; any: it may be down
    links: Mapping[LinkName, Literal["up", "down", "any"]] = Field(default={}, max_length=512)
    units: tuple[PlannedUnit, ...] = Field(min_length=1, max_length=UNITS_MAX)

    @model_validator(mode="after")
    def _check(self) -> Self:
        _refuse_twice("name", [unit.name for unit in self.units])
        _refuse_twice("u", [str(unit.u) for unit in self.units])
        _refuse_twice("slot", [str(u.slot) for u in self.units if u.slot is not None])
        indexes = [f"{u.kind} {u.tray_index}" for u in self.units if u.tray_index is not None]
        _refuse_twice("tray_index", indexes)
        return self


# a unit, or KIND:NAME as leaf:, spine:, superspine:, storage:, feed:, loop:, host:
Thing = Annotated[
    str, StringConstraints(pattern=r"^([a-z]+:)?[A-Za-z0-9][A-Za-z0-9./_-]*$", max_length=128)
]


class PlannedNeed(Record):
    """`least` of the things `of` have to be there; None: all of them."""

    what: str = Field(min_length=1, max_length=63)
    of: tuple[Thing, ...] = Field(min_length=1, max_length=1024)
    least: int | None = Field(default=None, ge=1)


class RackPlan(Record):
    """All racks of a site. `outside`: nodes with a rack's GPUs that stand in none (NVL4). `needs`:
    what things have to have beside what their racks say, as a leaf its spines, a host its storage.
    """

    needs: Mapping[Thing, tuple[PlannedNeed, ...]] = Field(default={}, max_length=1 << 16)
    racks: tuple[PlannedRack, ...] = Field(min_length=1, max_length=RACKS_MAX)
    outside: tuple[NodeName, ...] = Field(default=(), max_length=1 << 16)

    @model_validator(mode="after")
    def _check(self) -> Self:
        _refuse_twice("rack", [rack.name for rack in self.racks])
        _refuse_twice("chassis_serial", [rack.chassis_serial for rack in self.racks])
        units = [unit for rack in self.racks for unit in rack.units]
        _refuse_twice("name", [unit.name for unit in units])  # water and campaigns know them by it
        _refuse_twice("serial", [f"{u.kind} {u.serial}" for u in units if u.serial])
        addresses = [each for unit in units for each in (unit.bmc, unit.nvos) if each]
        _refuse_twice("bmc", [each.lower().rstrip("/") for each in addresses])
        if strange := sorted(set(self.needs) - self.list_things()):  # their needs would not count
            raise ValueError(f"needs.{strange[0]}: nothing of the plan has this name")
        return self

    def list_things(self) -> frozenset[str]:
        """Return the names of all that an impact is told of, but domains and tenants."""
        things = {one for each in self.needs.values() for need in each for one in need.of}
        for rack in self.racks:
            for unit in rack.units:
                things |= {unit.name, f"loop:{unit.loop or rack.loop}"}
                things |= {f"feed:{one}" for one in unit.feeds}
                things |= {f"outlet:{one}" for one in unit.outlets}
                things |= {f"leaf:{one}" for one in unit.leaves}
                if unit.kind is Kind.COMPUTE_TRAY:
                    things.add(f"host:{unit.name}")
        return frozenset(things)

    def find(self, name: str) -> PlannedRack:
        """Return the rack of this name. Raises InputError, which lists the names."""
        for rack in self.racks:
            if rack.name == name:
                return rack
        known = ", ".join(rack.name for rack in self.racks[:8])
        raise InputError("RACK", name, f"the plan has no such rack (it has {known})", "Name one.")


def normalize_host(host: str) -> str:
    """Return a host as certificates have it: an address in its one spelling."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return host


def read_plan(file: Path) -> RackPlan:
    """Return the plan of a YAML file. Raises InputError that names the field."""
    return read_record(file, RackPlan)


Stamp = tuple[int, int, int] | None


def read_stamp(file: Path) -> Stamp:
    """Return what changes with a file, None for one that is not there. Raises OSError."""
    try:
        found = file.stat()
    except FileNotFoundError:
        return None
    return (found.st_ino, found.st_mtime_ns, found.st_size)


def list_files(folder: Path) -> Sequence[Path]:
    """Return what is in a folder, nothing where it is not there. Raises InputError."""
    try:
        return sorted(folder.iterdir())
    except FileNotFoundError:
        return ()
    except OSError as error:
        problem = f"it cannot be read ({error.strerror})"
        raise InputError(str(folder), "", problem, "Check its permissions.") from None


def read_record(file: Path, record: type[R]) -> R:
    """Return the record of a YAML or JSON file. Raises InputError that names the field."""
    return parse_record(file, read_text(file, BYTES_MAX), record)


def parse_record(file: Path, written: str, record: type[R]) -> R:
    """Return the record that a file says. Raises InputError that names the field."""
    try:
        loaded = _load(file, written)
    except _UNLOADABLE as error:
        raise InputError(str(file), "", f"is no YAML: {str(error)[:200]}", _REMEDY) from None
    try:
        return record.model_validate(loaded)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InputError(str(file), where, first["msg"][:200], _REMEDY) from None


def _load(file: Path, written: str) -> Any:
    def pair(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            names = [name for name, _ in pairs]
            raise _stands_twice(file, next(n for n in names if names.count(n) > 1))
        return found

    if written.lstrip()[:1] == "{":  # our own files; YAML knows no pair of \u escapes
        with suppress(ValueError, RecursionError):
            return json.loads(written, object_pairs_hook=pair)
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    _refuse_strange(file, yaml.parse(written, Loader=loader))
    return yaml.load(written, Loader=loader)  # noqa: S506 (plain values)


def _refuse_strange(file: Path, events: Iterable[yaml.Event]) -> None:
    """Refuse aliases and deep nesting, which grow when they are built, and a key that stands twice:
    of two values the last would silently be meant.
    """
    open_keys: list[set[str] | None] = [None]  # of each collection; None: a list
    is_key = [False]
    for event in events:
        if isinstance(event, yaml.AliasEvent):
            raise InputError(str(file), "", "uses YAML aliases", "Write each unit out.")
        if isinstance(event, yaml.CollectionEndEvent):
            open_keys.pop()
            is_key.pop()
        elif isinstance(event, yaml.NodeEvent):
            keys = open_keys[-1]
            if keys is not None and is_key[-1] and isinstance(event, yaml.ScalarEvent):
                if event.value in keys:
                    raise _stands_twice(file, event.value)
                keys.add(event.value)
            is_key[-1] = not is_key[-1]
            if isinstance(event, yaml.CollectionStartEvent):
                open_keys.append(set() if isinstance(event, yaml.MappingStartEvent) else None)
                is_key.append(True)
        if len(open_keys) > DEPTH_MAX + 1:
            raise InputError(str(file), "", f"nested more than {DEPTH_MAX} deep", _REMEDY)


def _stands_twice(file: Path, key: str) -> InputError:
    return InputError(str(file), key[:100], "this key stands twice in one object", "Keep one.")


def _refuse_twice(field: str, values: list[str]) -> None:
    seen: set[str] = set()
    for value in values:
        if value in seen:
            raise ValueError(f"`{field}` {value} stands twice")
        seen.add(value)
