"""Simulated BMCs on real sockets: own certificates, vanishing, broken answers."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
import signal
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from typer.testing import CliRunner

from provisioner.cli import app
from provisioner.integrations.sim.faults.faults import Rule
from provisioner.integrations.sim.hardware.build import make_image
from provisioner.integrations.sim.hardware.clock import FastClock
from provisioner.integrations.sim.site.serve import Addresses, Server
from provisioner.integrations.sim.site.serve_site import serve_site
from provisioner.integrations.sim.site.site import Site
from provisioner.model.input_error import InputError

ROOT = "/redfish/v1"
HOST = "su0-n00/host"


def serving(
    work: Callable[[Site, Server, aiohttp.ClientSession], Awaitable[None]],
    *,
    one_listener: bool = False,
) -> None:
    """Serve a site of one node at 300 times real time while `work` runs."""

    async def run() -> None:
        site = Site(1, 3, clock=FastClock(300))
        server = await serve_site(site, one_listener=one_listener)
        try:
            async with aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=False), timeout=aiohttp.ClientTimeout(10)
            ) as client:
                await work(site, server, client)
        finally:
            await server.close()

    asyncio.run(run())


def basic(username: str, password: str) -> dict[str, str]:
    """Basic authentication as a header."""
    coded = base64.b64encode(f"{username}:{password}".encode()).decode()
    return {"Authorization": f"Basic {coded}"}


def count_listeners(port: int) -> int:
    """How many sockets listen at this port."""
    rows = map(str.split, Path("/proc/net/tcp").read_text(encoding="utf-8").splitlines()[1:])
    return sum(row[1].endswith(f":{port:04X}") and row[3] == "0A" for row in rows)


@pytest.mark.parametrize("one_listener", [False, True])
def test_every_endpoint_has_a_certificate_of_its_own(one_listener: bool) -> None:
    async def work(site: Site, _: Server, __: aiohttp.ClientSession) -> None:
        loop = asyncio.get_running_loop()
        prints = set()
        for url in site.urls.values():
            host, _sep, port = url.removeprefix("https://").partition(":")
            pem = await loop.run_in_executor(None, ssl.get_server_certificate, (host, int(port)))
            prints.add(hashlib.sha256(pem.encode()).hexdigest())

        assert len(prints) == len(site.urls) == 11 + 8 + 4

    serving(work, one_listener=one_listener)


@pytest.mark.parametrize("one_listener", [False, True])
def test_a_restarting_bmc_refuses_connections_and_comes_back(one_listener: bool) -> None:
    async def work(site: Site, _: Server, client: aiohttp.ClientSession) -> None:
        url = site.urls[HOST] + ROOT
        async with client.get(url) as told:
            assert told.status == 200
        machine = site.machines["su0-n00"]
        machine.bmc_reset("host", site.clock.now())
        await asyncio.sleep(0.05)
        with pytest.raises(aiohttp.ClientConnectionError):
            await client.get(url)
        seen = set()
        while 200 not in seen:
            await asyncio.sleep(0.02)
            try:
                async with client.get(url) as told:
                    seen.add(told.status)
            except aiohttp.ClientConnectionError:
                seen.add(0)

        assert {0, 503, 200} <= seen

    serving(work, one_listener=one_listener)


def test_one_listener_has_one_socket_for_all_addresses_and_resets_those_that_are_nobodys() -> None:
    async def work(site: Site, _: Server, client: aiohttp.ClientSession) -> None:
        places = [url.removeprefix("https://").partition(":") for url in site.urls.values()]
        (port,) = {port for _host, _sep, port in places}
        hosts = {host for host, _sep, _port in places}

        assert len(hosts) == len(site.urls)
        assert count_listeners(int(port)) == 1
        assert "127.0.0.200" not in hosts
        with pytest.raises(aiohttp.ClientConnectionError):
            await client.get(f"https://127.0.0.200:{port}{ROOT}")

    serving(work, one_listener=True)


def test_faults_reach_the_wire() -> None:
    async def work(site: Site, _: Server, client: aiohttp.ClientSession) -> None:
        url = site.urls[HOST] + ROOT
        site.faults.add(Rule("gone", "drop", endpoint=HOST, count=2))
        with pytest.raises(aiohttp.ClientConnectionError):
            await client.get(url)  # aiohttp repeats a GET once on a connection that it kept
        site.faults.remove("gone")
        site.faults.add(Rule("cut", "break", endpoint=HOST, value=10, count=1))
        with pytest.raises(aiohttp.ClientError):
            async with client.get(url) as told:
                await told.read()
        async with client.get(url) as told:
            assert told.status == 200

    serving(work)


def test_a_bluefield_pulls_its_image_from_a_real_server() -> None:
    image = make_image("bluefield.bundle", {"DPU_OS": "bf-bundle-2.10.0-147_25.01"})

    async def give(_: web.Request) -> web.Response:
        return web.Response(body=image)

    async def work(site: Site, _: Server, client: aiohttp.ClientSession) -> None:
        app = web.Application()
        app.router.add_get("//bf.bfb", give)
        app.router.add_get("/bf.bfb", give)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        where = f"127.0.0.1:{runner.addresses[0][1]}//bf.bfb"
        bmc = site.machines["su0-n00"].bmcs["DPU_0"]
        base = site.urls["su0-n00/DPU_0"] + ROOT
        login = basic(bmc.username, bmc.password)
        changed = {"Password": "Changed-at-once-1"}
        path = base + "/AccountService/Accounts/root"
        async with client.patch(path, json=changed, headers=login) as told:
            assert told.status == 200
        login = basic(bmc.username, "Changed-at-once-1")
        body = {"TransferProtocol": "HTTP", "ImageURI": where,
                "Targets": ["redfish/v1/UpdateService/FirmwareInventory/DPU_OS"]}  # fmt: skip
        path = base + "/UpdateService/Actions/UpdateService.SimpleUpdate"
        async with client.post(path, json=body, headers=login) as told:
            assert told.status == 202
        item = site.machines["su0-n00"].firmware["DPU_0", "DPU_OS"]
        for _ in range(200):
            await asyncio.sleep(0.05)
            if item.running == "bf-bundle-2.10.0-147_25.01":
                break
        await runner.cleanup()

        assert item.running == "bf-bundle-2.10.0-147_25.01"

    serving(work)


def test_addresses_are_own_ones_in_the_loopback_net_or_own_ports() -> None:
    loopback, elsewhere = Addresses("127.1.2.254", 8443), Addresses("192.0.2.1", 9000)

    assert [loopback.next_address() for _ in range(3)] == [
        ("127.1.2.254", 8443),
        ("127.1.2.255", 8443),
        ("127.1.3.0", 8443),
    ]
    assert [elsewhere.next_address() for _ in range(2)] == [
        ("192.0.2.1", 9000),
        ("192.0.2.1", 9001),
    ]
    assert Addresses("127.0.0.1", 0).next_address() == ("127.0.0.1", 0)


class TestCommand:
    """`provisioner sim serve`."""

    tool = Path(sys.executable).with_name("provisioner")

    def test_it_serves_until_it_is_stopped(self) -> None:
        command = [self.tool, "sim", "serve", "--nodes", "1", "--json"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                listed = json.loads(process.stdout.readline())["endpoints"]
                context = ssl._create_unverified_context()
                with urllib.request.urlopen(listed[0]["url"] + ROOT, context=context) as told:
                    root: dict[str, Any] = json.load(told)
            finally:
                os.kill(process.pid, signal.SIGTERM)

        assert root["RedfishVersion"] == "1.11.0"
        assert {e["kind"] for e in listed} == {"supermicro", "nvidia_openbmc", "cumulus"}
        assert process.returncode == 0

    @pytest.mark.parametrize(
        "wrong",
        [["--nodes", "0"], ["--port", "70000"], ["--speed", "0"], ["--vendor", "acme"],
         ["--listen", "not-an-ip"], ["--listen", "203.0.113.9"],
         ["--one-listener", "--listen", "203.0.113.9"],
         ["--one-listener", "--listen", "::1"]],
    )  # fmt: skip
    def test_bad_input_is_one_clear_line(self, wrong: list[str]) -> None:
        result = CliRunner().invoke(app, ["sim", "serve", *wrong])

        assert isinstance(result.exception, InputError)  # `main` turns it into exit code 2
        assert str(result.exception).startswith(wrong[0])
