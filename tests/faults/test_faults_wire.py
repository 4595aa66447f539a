"""The entries of the fault catalogue that only a real connection shows."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from sockets import NODE, Served, run, served

from provisioner import quirks
from provisioner.adapters.redfish.client import Redfish, TaskRef
from provisioner.adapters.redfish.governor import LoginGovernor
from provisioner.adapters.redfish.transport import RedfishTransport
from provisioner.integrations.sim.hardware.build import make_image
from provisioner.integrations.sim.site.control import ALL, inject_fault
from provisioner.ports import BmcAddress, Call, CertificateChanged, Reply, Unreachable

SYSTEM = Call("GET", "/redfish/v1/Systems/1", timeout_s=20)
READS = 210  # more than a BMC takes connections
CONNECTIONS_MAX = 3  # two for reads, one for a write

Play = Callable[[Served, RedfishTransport, BmcAddress, Path], Awaitable[None]]


async def reads(_: Served, transport: RedfishTransport, bmc: BmcAddress, _folder: Path) -> None:
    """Three reads and a write: all of them answered."""
    for _ in range(3):
        assert (await transport.request(bmc, SYSTEM)).status == 200
    reset = Call("POST", "/redfish/v1/Systems/1/Actions/ComputerSystem.Reset", {"ResetType": "On"})
    assert (await transport.request(bmc, reset)).status in (200, 204, 400)


async def comes_back(bmcs: Served, transport: RedfishTransport, bmc: BmcAddress, f: Path) -> None:
    """The login's second request meets the reset; the next turn takes new connections for it."""
    with pytest.raises(Unreachable) as met:
        await transport.request(bmc, SYSTEM)
    assert not met.value.maybe_executed
    await reads(bmcs, transport, bmc, f)


async def pushes(_: Served, transport: RedfishTransport, bmc: BmcAddress, folder: Path) -> None:
    """An image of some size, with its length told before."""
    file = folder / "bios.bin"
    file.write_bytes(make_image("host.bios", {"BIOS": "9.9"}) + b" " * 2_000_000)
    root = (await transport.request(bmc, Call("GET", "/redfish/v1"))).json()
    client = Redfish(transport, bmc, quirks.identify(root))

    assert isinstance(await client.push("host.bios", ("BIOS",), file), TaskRef)


async def crowds(bmcs: Served, transport: RedfishTransport, bmc: BmcAddress, _: Path) -> None:
    """Many reads at once, over few connections."""
    most = 0

    async def one() -> Reply:
        nonlocal most
        reply = await transport.request(bmc, SYSTEM)
        most = max(most, bmcs.connections())
        return reply

    found = await asyncio.gather(*(one() for _ in range(READS)))

    assert {reply.status for reply in found} == {200}
    assert most <= CONNECTIONS_MAX


async def restarts(bmcs: Served, transport: RedfishTransport, bmc: BmcAddress, _: Path) -> None:
    """After the restart it is another certificate: nothing is sent to whoever has it."""
    root = (await transport.request(bmc, Call("GET", "/redfish/v1"))).json()
    client = Redfish(transport, bmc, quirks.identify(root))
    assert await client.reset_bmc() is None
    asked = bmcs.service.requests
    while True:
        await asyncio.sleep(0.05)
        try:
            await transport.request(bmc, SYSTEM)
        except Unreachable:
            continue
        except CertificateChanged:
            break
        assert bmcs.service.bmc.boots == 0, "a new certificate was trusted"
        asked = bmcs.service.requests
    assert bmcs.service.requests == asked


WIRE: dict[str, Play] = {
    "resets_reused": comes_back,
    "identity_refused": reads,
    "chunks_refused": pushes,
    "connections_run_out": crowds,
    "new_certificate": restarts,
    "closes_each": reads,
    # of a card's own BMC, whose installation the daemon gives up: tests/sim/test_front.py
    "bfb_never_completes": reads,
}


@pytest.mark.parametrize("name", [pytest.param(n, id=f"{ALL[n].catalogue}-{n}") for n in WIRE])
def test_a_fault_of_connections_is_lived_with(tmp_path: Path, name: str) -> None:
    async def scenario() -> None:
        async with served() as bmcs:
            inject_fault(bmcs.site, name, NODE)
            transport = RedfishTransport(governor=LoginGovernor(backoff_s=0.0))
            try:
                await WIRE[name](bmcs, transport, await bmcs.address(), tmp_path)
            finally:
                await transport.close()

    run(scenario())
