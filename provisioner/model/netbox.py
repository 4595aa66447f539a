"""Objects of a NetBox as we compare them: by names, never by its numbers."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from provisioner.model.base import Record

TAG = "provisioner"  # slug: what carries it was made by us, and only that is changed or deleted


class NetBoxKind(StrEnum):
    """In the order in which they are made; they are deleted in the reverse order."""

    SITE = "site"
    MANUFACTURER = "manufacturer"
    DEVICE_TYPE = "device_type"
    ROLE = "role"
    RACK = "rack"
    DEVICE = "device"
    INTERFACE = "interface"
    ADDRESS = "address"
    CABLE = "cable"
    MODULE = "module"  # only read: cards with their serials


class NetBoxObject(Record):
    """One object. What a field refers to is named by that object's key."""

    kind: NetBoxKind
    key: str  # "fra1", "su0-n04", "su0-n04/NIC_0", "172.0.0.1/31", "leaf/swp1--su0-n04/NIC_0"
    fields: Mapping[str, str]
    ours: bool = False
    number: int = 0  # NetBox' id; 0: not there yet


class Verb(StrEnum):
    """What a change does."""

    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"
    LEAVE = "leave"  # it differs, and it is not ours to change


class NetBoxChange(Record):
    """One line of what is to be done. `wanted`, `there`: the fields that differ."""

    verb: Verb
    kind: NetBoxKind
    key: str
    wanted: Mapping[str, str] = {}
    there: Mapping[str, str] = {}
    number: int = 0
    why: str = ""
