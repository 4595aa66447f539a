"""`BmcTransport` behind the gate of capabilities."""

from __future__ import annotations

from provisioner.planning.release.capabilities import find_need_of_request
from provisioner.ports import BmcAddress, BmcTransport, Call, Reply
from provisioner.ports.reading import READING_METHODS
from provisioner.runtime.capability_gate import CapabilityGate, Need


class GrantedBmcs:
    """Requests that change a BMC of an adopted node need the capability of their path."""

    def __init__(self, transport: BmcTransport, gate: CapabilityGate) -> None:
        self._transport = transport
        self._gate = gate

    async def request(self, bmc: BmcAddress, call: Call) -> Reply:
        if call.method in READING_METHODS:
            return await self._transport.request(bmc, call)
        need = find_need_of_request(call.path)
        url = bmc.url.rstrip("/").lower()
        needs = [
            Need(node, need, f"{call.method} {call.path}")
            for node in await self._gate.list_guarded()
            if any(b.url.rstrip("/").lower() == url for b in node.bmcs)
        ]
        await self._gate.admit(needs)
        with self._gate.guard(needs):
            return await self._transport.request(bmc, call)

    async def fingerprint(self, bmc: BmcAddress) -> str:
        return await self._transport.fingerprint(bmc)

    async def password_change(self, bmc: BmcAddress) -> str | None:
        return await self._transport.password_change(bmc)

    async def forget(self, bmc: BmcAddress) -> None:
        await self._transport.forget(bmc)

    async def close(self) -> None:
        await self._transport.close()
