"""Serial consoles of a served site: read by the product's client, as those of real BMCs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiohttp
import pytest

from provisioner.adapters.consoles.ssh_consoles import SshConsoles
from provisioner.integrations.sim.hardware.clock import FastClock
from provisioner.integrations.sim.site.serve_site import serve_site
from provisioner.integrations.sim.site.site import Site
from provisioner.ports import BmcAddress, LoginRefused, Secret, Unreachable
from provisioner.ports.agents import ConsoleDoor

NODE = "su0-n00"


def with_consoles(work: Callable[[Site, BmcAddress, ConsoleDoor], Awaitable[None]]) -> None:
    """Serve a site of one node with its console while `work` runs, for ten seconds at most."""

    async def run() -> None:
        site = Site(1, 3, clock=FastClock(600))
        server = await serve_site(site, consoles=True)
        bmc = site.machines[NODE].bmcs["host"]
        address = BmcAddress(site.urls[f"{NODE}/host"], bmc.username, Secret(bmc.password))
        try:
            async with asyncio.timeout(10):
                await work(site, address, ConsoleDoor(port=bmc.console_port))
        finally:
            await server.close()

    asyncio.run(run())


def test_a_client_gets_what_the_host_prints_while_it_starts(tmp_path: Path) -> None:
    async def work(site: Site, address: BmcAddress, door: ConsoleDoor) -> None:
        machine = site.machines[NODE]
        text = b""
        async with SshConsoles(tmp_path).open(NODE, address, door) as pieces:
            machine.power_cycle(site.clock.now())
            async for piece in pieces:
                text += piece
                if b"login: " in text:
                    break

        lines = text.decode().splitlines()
        assert any(line.startswith("[    0.000000] Linux version") for line in lines)
        assert lines[-1] == f"{NODE} login: "

    with_consoles(work)


def test_a_wrong_password_is_refused_and_counts_in_the_bmcs_lockout(tmp_path: Path) -> None:
    async def work(site: Site, address: BmcAddress, door: ConsoleDoor) -> None:
        wrong = BmcAddress(address.url, address.username, Secret("wrong"))
        with pytest.raises(LoginRefused):
            async with SshConsoles(tmp_path).open(NODE, wrong, door):
                pass
        assert [e.detail for e in site.machines[NODE].log if e.kind == "login_failed"] == [
            f"{address.username} 1"
        ]

    with_consoles(work)


def test_a_bmc_that_restarts_cuts_its_console_and_one_without_ssh_opens_none(
    tmp_path: Path,
) -> None:
    async def work(site: Site, address: BmcAddress, door: ConsoleDoor) -> None:
        machine = site.machines[NODE]

        async def read() -> None:
            async with SshConsoles(tmp_path).open(NODE, address, door) as pieces:
                machine.bmc_reset("host", site.clock.now())
                async for _ in pieces:
                    pass

        with pytest.raises(Unreachable):
            await read()
        machine.bmcs["host"].gone_until = 0.0
        machine.bmcs["host"].protocols["SSH"] = False
        with pytest.raises(Unreachable):
            async with SshConsoles(tmp_path).open(NODE, address, door):
                pass

    with_consoles(work)


def test_the_tree_of_the_bmc_shows_the_door() -> None:
    async def work(site: Site, address: BmcAddress, door: ConsoleDoor) -> None:
        bmc = site.machines[NODE].bmcs["host"]
        login = {"Authorization": aiohttp.encode_basic_auth(bmc.username, bmc.password)}
        systems = f"{address.url}/redfish/v1/Systems"
        connector = aiohttp.TCPConnector(ssl=False)
        async with aiohttp.ClientSession(connector=connector, headers=login) as client:
            async with client.get(systems) as listed:
                path = (await listed.json())["Members"][0]["@odata.id"]
            async with client.get(address.url + path) as read:
                shown = (await read.json())["SerialConsole"]["SSH"]
        assert (shown["Port"], shown["ServiceEnabled"]) == (door.port, True)

    with_consoles(work)
