"""Objects of a NetBox as they are compared: by names, never by its numbers."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from provisioner.model.base import Record

TAG = "provisioner"  # slug of objects made by us: only these are changed or deleted


class NetBoxKind(StrEnum):
    """Kinds of objects, in the order of creation; they are deleted in the reverse order."""

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
    """One object. A field that refers to another object has that object's key."""

    kind: NetBoxKind
    key: str  # "fra1", "su0-n04", "su0-n04/NIC_0", "172.0.0.1/31", "leaf/swp1--su0-n04/NIC_0"
    fields: Mapping[str, str]
    ours: bool = False
    number: int = 0  # NetBox' id; 0: not there yet


class Verb(StrEnum):
    """The effect of a change."""

    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"
    LEAVE = "leave"  # it differs, and was not made by us


class NetBoxChange(Record):
    """One change to be made. `wanted`, `there`: the desired and present values of fields that
    differ.
    """

    verb: Verb
    kind: NetBoxKind
    key: str
    wanted: Mapping[str, str] = {}
    there: Mapping[str, str] = {}
    number: int = 0
    why: str = ""
