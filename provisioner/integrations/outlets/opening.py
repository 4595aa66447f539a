"""Opens the power distribution units that the settings name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from provisioner.integrations.outlets.command_pdu import CommandPdu
from provisioner.integrations.outlets.outlet_tables import TABLES
from provisioner.integrations.outlets.redfish_pdu import RedfishPdu
from provisioner.integrations.outlets.snmp_pdu import SnmpAddress, SnmpPdu
from provisioner.model.input_error import InputError
from provisioner.ports import BmcAddress, BmcTransport, Secret
from provisioner.ports.isolation import Pdu
from provisioner.runtime.shipped import read_text
from provisioner.settings.bmcs import (
    CommandPduSettings,
    PduSettings,
    RedfishPduSettings,
    SnmpPduSettings,
)


def build_pdus(
    chosen: Mapping[str, PduSettings], transport: BmcTransport, environ: Mapping[str, str]
) -> Mapping[str, Pdu]:
    """Return the PDUs by name; Redfish ones live as long as `transport`. Raises InputError."""
    return {name: build_pdu(name, pdu, transport, environ) for name, pdu in chosen.items()}


def build_pdu(
    name: str, chosen: PduSettings, transport: BmcTransport, environ: Mapping[str, str]
) -> Pdu:
    """Return the adapter of one PDU. Raises InputError for a secret that is missing."""
    where = f"pdus.{name}"
    match chosen:
        case RedfishPduSettings():
            secret = _read_secret(where, chosen.password_env, chosen.password_file, environ)
            url = chosen.url.rstrip("/")
            address = BmcAddress(url, chosen.username, secret, chosen.pin.lower())
            return RedfishPdu(transport, address)
        case SnmpPduSettings():
            return SnmpPdu(_read_snmp(where, chosen, environ), TABLES[chosen.table])
        case CommandPduSettings():
            missing = [v for v in chosen.environment if v not in environ]
            if missing:
                raise InputError("settings", where, f"{missing[0]} is not set", "Export it.")
            inherited = {v: environ[v] for v in chosen.environment}
            return CommandPdu(chosen.argv, chosen.limit_s, inherited)


def _read_snmp(where: str, chosen: SnmpPduSettings, environ: Mapping[str, str]) -> SnmpAddress:
    secret = _read_secret(where, chosen.password_env, chosen.password_file, environ)
    if chosen.version == "2c":
        return SnmpAddress(chosen.host, chosen.port, secret)
    privacy = _read_secret(where, chosen.privacy_env, chosen.privacy_file, environ)
    login = (chosen.username, chosen.auth, privacy)
    return SnmpAddress(chosen.host, chosen.port, secret, *login)


def _read_secret(where: str, variable: str, file: str, environ: Mapping[str, str]) -> Secret:
    value = read_text(Path(file)).strip() if file else environ.get(variable, "")
    if not value:
        problem = f"{file or variable} is empty or not set"
        raise InputError("settings", where, problem, "Give the secret there.")
    return Secret(value)
