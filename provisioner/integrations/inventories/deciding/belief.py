"""The records of another system about our hosts, and their differences from the daemon's."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from provisioner.model.base import Record
from provisioner.model.expected import ExpectedDpu
from provisioner.model.location import Port


class Belief(Record):
    """A host as another system records it. An empty field: that system records nothing of it."""

    key: str  # its id there
    name: str = ""
    address: str = ""  # of its BMC: "10.0.0.11:443"
    serial: str = ""  # of the system
    power: str = ""  # On | Off
    state: str = ""  # in the other system's own word
    serves: bool | None = None  # whether it is in use by a tenant; None: its state does not say
    busy: str = ""  # why that system may act on it now, or was asked not to
    tenant: str = ""
    site: str = ""
    rack: str = ""
    versions: Mapping[str, str] = {}  # our component kind -> version


class SourceRow(Record):
    """A serving host as another system or a table lists it for an adoption."""

    belief: Belief
    mac: str = ""  # of its BMC
    ports: tuple[Port, ...] = ()
    cards: tuple[ExpectedDpu, ...] = ()
    username: str = ""  # of its BMC, with the place of its password
    password_env: str = ""
    password_file: str = ""


class Aspect(StrEnum):
    """The subject of a difference."""

    IDENTITY = "identity"
    WORK = "work"  # the other system acts on it, or holds it for a person
    STATE = "state"
    POWER = "power"
    TENANT = "tenant"
    PLACE = "place"
    VERSION = "version"


class Difference(Record):
    """One difference: the value here and there, and the reading that settles it."""

    node: str  # our name, or the other system's for a host that is not here
    aspect: Aspect
    here: str
    there: str
    settle: str
