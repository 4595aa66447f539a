"""A PDU over SNMP: one object is read, one is written, by `outlet_tables`.

The library is loaded with the first SNMP PDU, because most sites have none. Each request has a new
engine: engines keep the boots and the time of the agent, and a PDU that restarted would be refused.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from provisioner.integrations.outlets.outlet_tables import OutletTable, parse_index, parse_state
from provisioner.model.location import OutletState
from provisioner.model.outcome import Blocker, Reason
from provisioner.ports import LoginRefused, Secret, Unreachable
from provisioner.runtime import permit

TIMEOUT_S = 3.0
TRIES = 3  # of UDP datagrams: reading and absolute switching may both be repeated


@dataclass(frozen=True)
class SnmpAddress:
    """Where a PDU answers, and its login: a community (2c), or a user with two keys (3)."""

    host: str
    port: int
    secret: Secret
    username: str = ""  # "": version 2c
    auth: str = "sha256"
    privacy: Secret | None = None


class SnmpPdu:
    """`ports.power.Pdu` over SNMP 2c or 3."""

    def __init__(
        self, address: SnmpAddress, table: OutletTable, timeout_s: float = TIMEOUT_S
    ) -> None:
        self._address = address
        self._table = table
        self._timeout_s = timeout_s

    async def read_outlet(self, outlet: str) -> OutletState | Blocker:
        """Return the state that the PDU reports now."""
        index = parse_index(self._table, outlet)
        if index is None:
            return self._refuse(outlet, self._describe_index())
        value = await self._exchange(outlet, (*self._table.state, *index), None)
        return value if isinstance(value, Blocker) else parse_state(self._table, value)

    async def switch_outlet(self, outlet: str, *, on: bool) -> Blocker | None:
        """Write the command of the outlet's row."""
        index = parse_index(self._table, outlet)
        if index is None:
            return self._refuse(outlet, self._describe_index())
        command = self._table.turn_on if on else self._table.turn_off
        answer = await self._exchange(outlet, (*self._table.command, *index), command)
        return answer if isinstance(answer, Blocker) else None

    async def _exchange(self, outlet: str, oid: tuple[int, ...], value: int | None) -> Any:
        """Send one GET, or one SET with a value; return the value of the answer."""
        permit.ask(writes=value is not None)
        from pysnmp.hlapi.v3arch import asyncio as snmp
        from pysnmp.proto import rfc1905

        engine = snmp.SnmpEngine()
        try:
            where = await snmp.UdpTransportTarget.create(
                (self._address.host, self._address.port), self._timeout_s, TRIES - 1
            )
            name = snmp.ObjectIdentity(oid)
            row = snmp.ObjectType(name, snmp.Null("") if value is None else snmp.Integer32(value))
            send = snmp.get_cmd if value is None else snmp.set_cmd
            login = _login(snmp, self._address)
            async with asyncio.timeout(TRIES * self._timeout_s + 2.0):
                failure, status, _, rows = await send(
                    engine, login, where, snmp.ContextData(), row, lookupMib=False
                )
        except (TimeoutError, OSError) as error:
            detail = f"{self._address.host}: {type(error).__name__}"
            raise Unreachable(detail, maybe_executed=value is not None) from None
        finally:
            engine.close_dispatcher()
        if failure:
            raise _read_failure(self._address.host, str(failure), sent=value is not None)
        if status:
            return self._refuse(outlet, f"the PDU answers {status.prettyPrint()}"[:120])
        if len(rows) != 1 or tuple(rows[0][0]) != oid:
            return self._refuse(outlet, "the PDU answers another object than was asked for")
        answer = rows[0][1]
        if any(
            absent.isSameTypeWith(answer)
            for absent in (rfc1905.noSuchInstance, rfc1905.noSuchObject)
        ):
            return self._refuse(outlet, "the PDU has no such outlet in this table")
        return answer

    def _describe_index(self) -> str:
        form = {1: "OUTLET", 2: "PDU/OUTLET", 3: "UNIT/CORD/OUTLET"}[self._table.index]
        return f"this table names an outlet by numbers, {form}"

    def _refuse(self, outlet: str, detail: str) -> Blocker:
        return Blocker(
            reason=Reason.NOT_OFFERED,
            subject=f"{self._address.host}/{outlet}"[:120],
            detail=detail,
            unblock="Correct `outlets` of the hardware list, and `table` and the login of the PDU "
            "in the settings; the login needs the right to write.",
        )


def _login(snmp: Any, address: SnmpAddress) -> Any:
    if not address.username:
        return snmp.CommunityData(address.secret.reveal(), mpModel=1)
    assert address.privacy is not None, "the settings require a key for encryption"
    protocols = {
        "sha1": snmp.usmHMACSHAAuthProtocol,
        "sha256": snmp.usmHMAC192SHA256AuthProtocol,
        "sha512": snmp.usmHMAC384SHA512AuthProtocol,
    }
    return snmp.UsmUserData(
        address.username,
        authKey=address.secret.reveal(),
        privKey=address.privacy.reveal(),
        authProtocol=protocols[address.auth],
        privProtocol=snmp.usmAesCfb128Protocol,
    )


_LOGIN_WORDS = ("usm user", "digest", "cipher")  # pysnmp.proto.errind: usmStats of RFC 3414


def _read_failure(host: str, failure: str, *, sent: bool) -> Unreachable | LoginRefused:
    """Return the port's error; agents do not answer a wrong community or key at all."""
    line = "".join(c for c in failure if c.isprintable())[:120]
    if any(word in line.lower() for word in _LOGIN_WORDS):
        return LoginRefused(f"{host}: {line}")
    return Unreachable(f"{host}: {line}", maybe_executed=sent)
