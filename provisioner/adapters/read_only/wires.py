"""`BmcTransport` and `SwitchTransport` of a daemon that only observes: GET and HEAD."""

from __future__ import annotations

from typing import Literal, cast

from provisioner.adapters.read_only.hosts import refuse_act
from provisioner.ports import BmcAddress, Call, Reply, SwitchAddress
from provisioner.ports.inband import READING_METHODS, BmcReads, ReadCall, SwitchWireReads


def read_call(device: str, call: Call) -> ReadCall:
    """Return a call as a reading one. Raises `LookOnly` for a call that may change something."""
    if call.method not in READING_METHODS or call.body is not None:
        raise refuse_act(device, f"{call.method} {call.path}")
    return ReadCall(
        cast('Literal["GET", "HEAD"]', call.method),
        call.path,
        call.headers,
        call.timeout_s,
        call.size_max_bytes,
        call.known_s,
    )


class ReadOnlyBmcs:
    """`BmcTransport` over readings alone."""

    def __init__(self, reads: BmcReads) -> None:
        self._reads = reads

    async def request(self, bmc: BmcAddress, call: Call) -> Reply:
        return await self._reads.read(bmc, read_call(bmc.url, call))

    async def fingerprint(self, bmc: BmcAddress) -> str:
        return await self._reads.fingerprint(bmc)

    async def password_change(self, bmc: BmcAddress) -> str | None:
        return await self._reads.password_change(bmc)

    async def forget(self, bmc: BmcAddress) -> None:
        await self._reads.forget(bmc)

    async def close(self) -> None:
        await self._reads.close()


class ReadOnlySwitchWire:
    """`SwitchTransport` over readings alone."""

    def __init__(self, reads: SwitchWireReads) -> None:
        self._reads = reads

    async def request(self, switch: SwitchAddress, call: Call) -> Reply:
        return await self._reads.read(switch, read_call(switch.url, call))

    async def close(self) -> None:
        await self._reads.close()
