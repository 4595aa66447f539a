"""The whole daemon on sushy-tools' fake machine: a generic service that others wrote.

It is no node for a customer: no vendor declaration fits, no account can be changed, no profile is
made for it. The daemon finds it, shows what it is, controls its power, and holds it with names for
what stands in the way.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import pytest
from emulated import PASSWORD

from provisioner.adapters.redfish.client import Redfish
from provisioner.adapters.redfish.discovery import Probe, probe
from provisioner.adapters.redfish.transport import RedfishTransport
from provisioner.adapters.switch_https import SwitchHttps
from provisioner.daemon.agents import AgentDoor, serve_agents
from provisioner.daemon.daemon import Daemon, Parts
from provisioner.daemon.data import Data, open_data, read_expected, read_matrix, read_secrets
from provisioner.execution.artifacts.artifacts import Artifacts
from provisioner.execution.observe.intake import Taken, find_nodes, take_in
from provisioner.model.expected import Expected
from provisioner.model.inventory import DeviceKind, Power
from provisioner.model.node import Node, Placement, State
from provisioner.model.outcome import Reason
from provisioner.planning.lifecycle.operator_requests import retry_node
from provisioner.ports import PlaybookCall, Unreachable
from provisioner.runtime.switch_systems import make_switches
from provisioner.runtime.wall_clock import WallClock
from provisioner.settings import Settings

MATRIX = Path(__file__).parents[2] / "firmware_matrix.yaml"
RELEASE = "spectrum-x-1.3.0"
TRIES = 600  # looks 0.1 s apart: a loaded machine takes its time, a hung one must end


class NoSystem:
    """Runner and shell for a machine without an operating system: nobody answers ssh."""

    async def run(self, *call: object) -> NoReturn:
        raise Unreachable("no route to host", maybe_executed=False)

    async def recall(self, call: PlaybookCall, since: float) -> None:
        return None

    def progress(self) -> dict[str, str]:
        return {}

    async def forget(self, host: str, known: str = "") -> None:
        return None

    async def close(self) -> None:
        return None


@dataclass
class Bench:
    """A daemon on real parts, not started, and what it was put together from."""

    daemon: Daemon
    data: Data
    expected: Expected
    transport: RedfishTransport

    async def take_in(self, url: str, *, dry: bool = False) -> tuple[Taken, tuple[Reason, ...]]:
        """Probe, log in, pair, store: as `provisioner intake` does."""
        seen = await answering(self.transport, url)
        secrets = read_secrets(self.expected, {"SUSHY_PASSWORD": PASSWORD})
        vault = None if dry else self.data.vault
        now = self.daemon.parts.clock.now()
        assembly, found, silent = await find_nodes(
            self.transport, self.data.store, vault, self.expected, secrets, [seen], now
        )
        named = tuple(b.reason for b in (*silent, *assembly.blockers))
        if dry:
            return Taken((), (), ()), named
        taken = await take_in(
            self.data.store, self.data.vault, self.expected, secrets, assembly, found, now
        )
        return taken, named

    async def node(self) -> Node:
        node = await self.data.store.nodes.get("fake")
        assert node is not None
        return node

    async def held(self) -> Node:
        """Drive until the node is in quarantine; then stop driving."""

        async def resting() -> bool:
            running = self.daemon.engine.running
            return running == 0 and (await self.node()).state is State.QUARANTINED

        await self.daemon.start()
        try:
            await until(resting, "the machine in quarantine")
        finally:
            await self.daemon.stop()
        return await self.node()


@asynccontextmanager
async def bench(folder: Path, url: str, vendor: str = "unknown") -> AsyncIterator[Bench]:
    """Everything that `provisioner serve` opens, on a data directory of its own."""
    listed = {
        "release": RELEASE,
        "factory_credentials": {vendor: {"username": "admin", "password_env": "SUSHY_PASSWORD"}},
        "nodes": [{"name": "fake", "kind": "host", "address": "192.0.2.1", "bmc": {"url": url}}],
        "tenants": [{"name": "red", "vrf": "RED", "l3vni": 4001, "nodes_wanted": 1}],
    }
    file = folder / "expected.yaml"
    file.write_text(json.dumps(listed, indent=1))  # JSON is YAML too
    clock, transport, switches = WallClock(), RedfishTransport(), SwitchHttps()
    (folder / "data").mkdir(mode=0o700)
    settings = Settings(poll_s=0.2, retry_s=0.2)
    door = AgentDoor(port=0)
    async with (
        open_data(folder / "data", clock.now()) as data,
        serve_agents(door, folder / "data", data.store, data.vault, clock, settings) as served,
    ):
        parts = Parts(
            store=data.store,
            credentials=data.vault,
            clock=clock,
            settings=settings,
            transport=transport,
            switches=make_switches(switches),
            runner=NoSystem(),
            shell=NoSystem(),
            agents=served.agents,
            artifacts=Artifacts(folder),
            matrix=read_matrix([MATRIX]),
            signer=data.signer,
        )
        try:
            yield Bench(Daemon(parts), data, read_expected(file), transport)
        finally:
            await switches.close()
            await transport.close()


async def answering(transport: RedfishTransport, url: str) -> Probe:
    """Who is there, once it listens."""
    for _ in range(TRIES):
        seen = await probe(transport, url)
        if isinstance(seen, Probe):
            return seen
        await asyncio.sleep(0.1)
    return pytest.fail(f"sushy-emulator did not answer: {seen}")


async def until(so: Callable[[], Awaitable[bool]], what: str) -> None:
    for _ in range(TRIES):
        if await so():
            return
        await asyncio.sleep(0.1)
    pytest.fail(f"never seen: {what}")


def test_the_daemon_holds_a_generic_machine_with_its_inventory_and_named_blockers(
    emulator: str, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with bench(tmp_path, emulator) as b:
            taken, named = await b.take_in(emulator)
            assert [n.id for n in taken.new] == ["fake"]
            assert not named
            node, inventory = await b.held(), await b.data.store.evidence.get_inventory("fake")
            journal = await b.data.store.journal.verify()

        assert {x.reason for x in node.blockers} == {Reason.NOT_OFFERED, Reason.NO_PROFILE}
        assert all(x.unblock for x in node.blockers)
        assert inventory is not None
        assert inventory.vendor == "unknown"
        assert {d.kind for d in inventory.devices} >= {DeviceKind.SYSTEM, DeviceKind.BMC}
        gaps = {(g.reason, g.source) for g in inventory.gaps}
        assert (Reason.UNKNOWN_VENDOR, "/redfish/v1") in gaps
        assert (Reason.UNREACHABLE, "fake/ssh") in gaps
        assert any("FirmwareInventory" in source for _, source in gaps)
        assert journal.intact
        # and not one step towards a customer
        assert (node.profile, node.certificate, node.vrf) == ("", "", "")
        assert node.placement is Placement.NONE
        assert not any(bmc.rotated for bmc in node.bmcs)

    asyncio.run(scenario())


def test_a_retried_machine_is_held_for_the_same_reasons_and_its_account_is_not_locked(
    emulator: str, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with bench(tmp_path, emulator) as b:
            await b.take_in(emulator)
            first = await b.held()
            for _ in range(3):  # each one tries the password that may have been set
                again = retry_node(await b.node(), b.daemon.parts.clock.now())
                assert isinstance(again, Node)
                await b.data.store.nodes.save(again)
                second = await b.held()
                assert second.blockers == first.blockers

            client = await b.daemon.site.reach.redfish(second, "host")
            assert isinstance(client, Redfish)
            assert await client.power() in (Power.ON, Power.OFF)

    asyncio.run(scenario())


def test_the_daemons_own_client_switches_its_power(emulator: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with bench(tmp_path, emulator) as b:
            await b.take_in(emulator)
            client = await b.daemon.site.reach.redfish(await b.node(), "host")
            assert isinstance(client, Redfish)
            for kind, wanted in (("ForceOff", Power.OFF), ("On", Power.ON)):
                assert await client.reset_system(kind) is None

                async def followed(wanted: Power = wanted) -> bool:
                    assert isinstance(client, Redfish)
                    return await client.power() is wanted

                await until(followed, f"power {wanted}")

    asyncio.run(scenario())


def test_a_machine_taken_in_before_is_not_taken_in_again(emulator: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with bench(tmp_path, emulator) as b:
            await b.take_in(emulator)
            again, named = await b.take_in(emulator)

        assert (again.new, again.known, named) == ((), ("fake",), ())

    asyncio.run(scenario())


def test_a_dry_run_stores_neither_a_node_nor_a_credential(emulator: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with bench(tmp_path, emulator) as b:
            _, named = await b.take_in(emulator, dry=True)
            assert (await b.data.store.nodes.list(), await b.data.vault.names()) == ((), ())

        assert named == ()

    asyncio.run(scenario())


def test_without_a_factory_credential_for_unknown_vendors_it_is_named_and_left_alone(
    emulator: str, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with bench(tmp_path, emulator, vendor="dell_idrac") as b:
            taken, named = await b.take_in(emulator)

        assert taken.new == ()
        assert named == (Reason.UNKNOWN_VENDOR, Reason.UNREACHABLE)

    asyncio.run(scenario())
