"""A PDU's SNMP agent: pysnmp's own agent over one of the vendors' tables."""

from __future__ import annotations

from typing import Any

from pysnmp.carrier.asyncio.dgram import udp
from pysnmp.entity import config, engine
from pysnmp.entity.rfc3413 import cmdrsp, context
from pysnmp.proto import rfc1902
from pysnmp.proto.rfc1905 import noSuchInstance
from pysnmp.smi import error
from pysnmp.smi.instrum import AbstractMibInstrumController

from provisioner.integrations.outlets.outlet_tables import OutletTable

COMMUNITY, READER = "write-community-1", "read-community-1"
USER, AUTH, PRIVACY = "switcher", "authentication-key-1", "encryption-key-1"


class Outlets(AbstractMibInstrumController):  # type: ignore[misc]
    """The objects of the agent: `states` by index."""

    def __init__(self, table: OutletTable, *indices: tuple[int, ...]) -> None:
        self.table = table
        self.states = dict.fromkeys(indices, True)
        self.answers: int | None = None  # a value that is answered instead of the state

    def read_variables(self, *rows: Any, **_more: Any) -> list[Any]:
        return [(name, self._read(tuple(name))) for name, _ in rows]

    def write_variables(self, *rows: Any, **more: Any) -> list[Any]:
        length = len(self.table.command)
        for name, value in rows:
            if more["acFun"]("write", (name, value), **more):  # the view-based access model
                raise error.NoAccessError(name=name, idx=0)
            column, index = tuple(name)[:length], tuple(name)[length:]
            if column != self.table.command or index not in self.states:
                raise error.NotWritableError(name=name, idx=0)
            self.states[index] = int(value) == self.table.turn_on
        return list(rows)

    def _read(self, name: tuple[int, ...]) -> Any:
        column, index = name[: len(self.table.state)], name[len(self.table.state) :]
        if column != self.table.state or index not in self.states:
            return noSuchInstance
        value = self.table.is_on if self.states[index] else self.table.is_off
        return rfc1902.Integer32(value if self.answers is None else self.answers)


def serve(outlets: Outlets) -> engine.SnmpEngine:
    """Answer on a free port of loopback, within the running loop."""
    snmp = engine.SnmpEngine()
    transport = udp.UdpAsyncioTransport().open_server_mode(("127.0.0.1", 0))
    config.add_transport(snmp, udp.DOMAIN_NAME, transport)
    config.add_v1_system(snmp, "writer", COMMUNITY)
    config.add_v1_system(snmp, "reader", READER)
    config.add_v3_user(
        snmp, USER, config.USM_AUTH_HMAC192_SHA256, AUTH, config.USM_PRIV_CFB128_AES, PRIVACY
    )
    everything = (1, 3, 6)
    config.add_vacm_user(snmp, 2, "writer", "noAuthNoPriv", everything, everything)
    config.add_vacm_user(snmp, 2, "reader", "noAuthNoPriv", everything, (1, 3, 6, 1, 2, 1, 1))
    config.add_vacm_user(snmp, 3, USER, "authPriv", everything, everything)
    around = context.SnmpContext(snmp)
    around.unregister_context_name(b"")
    around.register_context_name(b"", outlets)
    cmdrsp.GetCommandResponder(snmp, around)
    cmdrsp.SetCommandResponder(snmp, around)
    return snmp


async def find_port(snmp: engine.SnmpEngine) -> int:
    """Return the port that the agent listens on, as soon as it does."""
    transport = snmp.transport_dispatcher.get_transport(udp.DOMAIN_NAME)
    await transport._lport
    port: int = transport.transport.get_extra_info("sockname")[1]
    return port
