"""The expected-hardware list: the nodes that a person declares as racked, their places, and the
first logins.

The daemon never logs in to a BMC whose vendor has no factory credential here.
"""

from __future__ import annotations

from pydantic import Field, model_validator

from provisioner.model.base import Record
from provisioner.model.location import Location, Outlet, Port
from provisioner.model.names import PciAddress
from provisioner.model.node import NodeKind
from provisioner.model.tenant import Tenant


class FactoryCredential(Record):
    """The factory password of a vendor. Exactly one of the three sources is set."""

    username: str
    password: str = Field(default="", repr=False)
    password_env: str = ""
    password_file: str = ""

    @model_validator(mode="after")
    def _one_source(self) -> FactoryCredential:
        if sum(map(bool, (self.password, self.password_env, self.password_file))) != 1:
            raise ValueError("give exactly one of password, password_env, password_file")
        return self


class ExpectedBmc(Record):
    """The identification of a BMC: by address, by its MAC in the neighbour table, or by its
    serial.
    """

    url: str = ""
    mac: str = ""
    serial: str = ""


class ExpectedDpu(Record):
    """A BlueField card of a host: paired by serial, then by PCI address and base MAC."""

    slot: str  # "DPU_0" (DPU mode) or "NIC_3" (SuperNIC)
    serial: str = ""
    base_mac: str = ""
    pci: PciAddress = ""


DEFAULT_OS = "cumulus"  # of a switch whose entry names none
# schemes of management addresses; of another system its adapter checks the scheme
OS_SCHEMES = {DEFAULT_OS: "https", "sonic": "ssh"}


class ExpectedNode(Record):
    """One host or switch."""

    name: str = Field(min_length=1, max_length=63, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    kind: NodeKind
    bmc: ExpectedBmc = ExpectedBmc()
    address: str = ""
    location: Location = Location()
    dpus: tuple[ExpectedDpu, ...] = ()
    ports: tuple[Port, ...] = ()
    outlets: tuple[Outlet, ...] = Field((), max_length=16)  # all its feeds
    os_disk: str = Field(default="", max_length=64)  # serial or WWN, for its operating system
    os: str = Field(default=DEFAULT_OS, pattern=r"^[a-z][a-z0-9_]{0,31}$")  # of a switch
    username: str = ""  # switch API
    password: str = Field(default="", repr=False)
    password_env: str = ""
    password_file: str = ""


class Expected(Record):
    """The whole file."""

    site: str = "site"
    release: str = ""  # release of the matrix that new nodes are brought to
    factory_credentials: dict[str, FactoryCredential] = Field(default_factory=dict)
    nodes: tuple[ExpectedNode, ...] = ()
    tenants: tuple[Tenant, ...] = ()
