"""The real adapters, narrowed to readings. The only module here that holds a port with acts."""

from __future__ import annotations

from collections.abc import Sequence

from provisioner.model.location import OutletState
from provisioner.model.outcome import Blocker
from provisioner.ports import (
    BmcAddress,
    BmcTransport,
    Call,
    HostShell,
    Reply,
    ShellCommand,
    ShellOutput,
    SwitchAddress,
    SwitchTransport,
)
from provisioner.ports.inband import ReadCall, ReadCommand
from provisioner.ports.isolation import Pdu
from provisioner.runtime import permit


def _write_call(call: ReadCall) -> Call:
    return Call(
        call.method,
        call.path,
        headers=call.headers,
        timeout_s=call.timeout_s,
        size_max_bytes=call.size_max_bytes,
        known_s=call.known_s,
    )


class BmcSource:
    """`BmcReads` over a transport."""

    def __init__(self, transport: BmcTransport) -> None:
        self._transport = transport

    async def read(self, bmc: BmcAddress, call: ReadCall) -> Reply:
        return await self._transport.request(bmc, _write_call(call))

    async def fingerprint(self, bmc: BmcAddress) -> str:
        return await self._transport.fingerprint(bmc)

    async def password_change(self, bmc: BmcAddress) -> str | None:
        return await self._transport.password_change(bmc)

    async def forget(self, bmc: BmcAddress) -> None:
        await self._transport.forget(bmc)

    async def close(self) -> None:
        await self._transport.close()


class SwitchSource:
    """`SwitchWireReads` over a transport."""

    def __init__(self, transport: SwitchTransport) -> None:
        self._transport = transport

    async def read(self, switch: SwitchAddress, call: ReadCall) -> Reply:
        return await self._transport.request(switch, _write_call(call))

    async def close(self) -> None:
        await self._transport.close()


class HostSource:
    """`HostReads` over a shell, which counts a command as a write unless its caller says not."""

    def __init__(self, shell: HostShell) -> None:
        self._shell = shell

    async def read(
        self, host: str, address: str, commands: Sequence[ReadCommand]
    ) -> Sequence[ShellOutput]:
        listed = [ShellCommand(c.name, c.line, c.timeout_s) for c in commands]
        with permit.allow_reads():
            return await self._shell.run(host, address, listed)

    async def close(self) -> None:
        await self._shell.close()


class OutletSource:
    """`OutletReads` over a power distribution unit."""

    def __init__(self, pdu: Pdu) -> None:
        self._pdu = pdu

    async def read_outlet(self, outlet: str) -> OutletState | Blocker:
        return await self._pdu.read_outlet(outlet)
