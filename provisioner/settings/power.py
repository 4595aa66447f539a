"""Settings of power distribution units (PDUs), whose outlets stand on the hardware list.

A PDU stands here and not on the list, because a list comes through the API: a caller
who may take nodes in must not name a command that the daemon runs.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from provisioner.model.base import Record

OUTLET_TABLES = ("apc_rpdu2", "apc_rpdu", "raritan_pdu2", "sentry4")
VARIABLE = r"^[A-Za-z_][A-Za-z0-9_]{0,63}$"


class PduLogin(Record):
    """A user and a password, which is in the environment or in a file and never here."""

    username: str = Field("", max_length=64)
    password_env: str = Field("", max_length=64)
    password_file: str = Field("", max_length=1024)

    @model_validator(mode="after")
    def _has_source(self) -> PduLogin:
        if bool(self.password_env) == bool(self.password_file):
            raise ValueError("give exactly one of password_env, password_file")
        return self


class RedfishPduSettings(PduLogin):
    """A PDU with a Redfish service (DSP2046: PowerEquipment, RackPDUs, Outlets)."""

    kind: Literal["redfish"]
    url: str = Field(pattern=r"^https://[^@/\s]+/?$")
    pin: str = Field("", pattern=r"^([0-9a-fA-F]{64})?$")  # SHA-256 of its certificate


class SnmpPduSettings(PduLogin):
    """A PDU over SNMP. `version` 2c: the password is the community, and there is no user."""

    kind: Literal["snmp"]
    host: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9.:-]*$", max_length=253)
    port: int = Field(161, ge=1, le=65535)
    table: Literal["apc_rpdu2", "apc_rpdu", "raritan_pdu2", "sentry4"]
    version: Literal["3", "2c"] = "3"
    auth: Literal["sha256", "sha512", "sha1"] = "sha256"
    privacy_env: str = Field("", max_length=64)  # version 3: the key of its encryption
    privacy_file: str = Field("", max_length=1024)

    @model_validator(mode="after")
    def _is_encrypted(self) -> SnmpPduSettings:
        if self.version == "3" and not self.username:
            raise ValueError("SNMP version 3 needs a username")
        if self.version == "3" and bool(self.privacy_env) == bool(self.privacy_file):
            raise ValueError("SNMP version 3 needs exactly one of privacy_env, privacy_file")
        return self


class CommandPduSettings(Record):
    """The site's own command: `argv` with `read`, `on` or `off` and the outlet after it."""

    kind: Literal["command"]
    argv: tuple[str, ...] = Field(min_length=1, max_length=32)
    limit_s: float = Field(30.0, gt=0, le=300)
    environment: tuple[Annotated[str, Field(pattern=VARIABLE)], ...] = Field((), max_length=16)

    @model_validator(mode="after")
    def _is_absolute(self) -> CommandPduSettings:
        if not self.argv[0].startswith("/"):
            raise ValueError("argv begins with the absolute path of the command")
        return self


PduSettings = Annotated[
    RedfishPduSettings | SnmpPduSettings | CommandPduSettings, Field(discriminator="kind")
]


class PowerSettings(Record):
    """Part of `Settings`."""

    pdus: dict[str, PduSettings] = Field(
        {},
        max_length=4096,
        description="Power distribution units by name, for `outlets` of the hardware list: kind "
        "`redfish`, `snmp` or `command`.",
    )
    outlets_off_s: float = Field(
        300.0,
        ge=10,
        le=3600,
        description="A host whose BMC cannot remove standby power has its outlets off this long.",
    )
    outlets_silence_limit_s: float = Field(
        120.0,
        gt=0,
        description="A BMC falls silent within this after all outlets of its host are off.",
    )
    outlets_limit_s: float = Field(
        60.0, gt=0, description="An outlet reports the requested state within this."
    )
