"""The whole protocol between the daemon's agent code and simulated agents, under virtual time."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import virtual_time
from rig import World

from provisioner.integrations.sim.site.control import inject_fault
from provisioner.ports import (
    AgentAddress,
    AgentResult,
    CertificateChanged,
    PortError,
    Unreachable,
)

NODE = "su0-n00"
LIMIT_S = 1800.0
NOBODY: Mapping[str, Any] = {"node": {"uuid": "x"}, "ports": []}


def step(name: str, **args: Any) -> dict[str, Any]:
    return {"step": {"step": name, "interface": "deploy", "args": args}, **NOBODY}


def simulate(
    folder: Path, scenario: Callable[[World], Awaitable[None]], *, lost: float = 0.0
) -> None:
    async def main() -> None:
        world = World(folder, 2, 7, lost)
        await world.take_in()
        await world.start()
        assert world.daemon is not None
        await world.daemon.stop()  # the agents alone are looked at
        await scenario(world)

    virtual_time.run(main())


def macs(world: World, node: str = NODE) -> list[str]:
    return [d.mac for d in world.site.machines[node].devices.values() if d.mac]


def boot(world: World, node: str = NODE, *, ramdisk: bool = True) -> None:
    """As a BMC would: media in, the override that this machine boots them by, power cycle."""
    machine = world.site.machines[node]
    machine.host.media = "http://images.test/ramdisk.iso" if ramdisk else ""
    target = {
        "BootSourceOverrideEnabled": "Once",
        "BootSourceOverrideTarget": machine.host.media_target,
    }
    machine.host.override.update(target if ramdisk else {})
    machine.power_cycle(world.site.advance())


async def booted(world: World) -> AgentAddress:
    await world.agents.expect(NODE, macs(world), LIMIT_S)
    boot(world)
    agent = await world.agents.wait(NODE, LIMIT_S)
    assert agent is not None
    return agent


async def refusals(world: World) -> list[tuple[str, str]]:
    """Node and reason, each once: whoever is refused asks again."""
    rows = await world.store.journal.list()
    found = [(r["node"], r["detail"]["reason"]) for r in rows if r["kind"] == "agent_refused"]
    return list(dict.fromkeys(found))


def test_a_node_that_is_expected_phones_home_and_says_what_it_is(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        agent = await booted(world)
        told = await world.agents.command(agent, "poll.get_hardware_info", {}, 60.0)

        assert agent.version == "13.0.0"
        assert told.status == "SUCCEEDED"
        assert len(told.result["disks"]) == 4
        assert await refusals(world) == []

    simulate(tmp_path, scenario)


def test_a_node_that_nobody_expects_gets_no_token(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        boot(world)

        assert await world.agents.wait(NODE, LIMIT_S) is None
        assert ("", "not_expected") in await refusals(world)

    simulate(tmp_path, scenario)


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("agent_silent", None),
        ("agent_wrong_mac", ("", "not_expected")),
        ("agent_wrong_token", (NODE, "foreign_agent")),
    ],
)
def test_an_agent_that_is_not_ours_is_not_there(
    tmp_path: Path, fault: str, reason: tuple[str, str] | None
) -> None:
    async def scenario(world: World) -> None:
        inject_fault(world.site, fault, NODE)
        await world.agents.expect(NODE, macs(world), LIMIT_S)
        boot(world)

        assert await world.agents.wait(NODE, LIMIT_S) is None
        assert await refusals(world) == ([reason] if reason else [])

    simulate(tmp_path, scenario)


def test_a_dismissed_agent_is_gone_and_its_next_boot_needs_a_window(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        agent = await booted(world)
        await world.agents.dismiss(NODE)

        assert await world.agents.present(NODE) is None
        with pytest.raises(Unreachable):
            await world.agents.command(agent, "standby.sync", {}, 60.0)
        boot(world)
        assert await world.agents.wait(NODE, LIMIT_S) is None
        again = await booted(world)
        with pytest.raises(Unreachable):  # of the earlier boot
            await world.agents.command(agent, "standby.sync", {}, 60.0)
        assert (await world.agents.command(again, "standby.sync", {}, 60.0)).status == "SUCCEEDED"

    simulate(tmp_path, scenario)


def test_a_host_that_was_booted_again_behind_our_back_is_another_agent(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        agent = await booted(world)
        boot(world)
        await world.clock.sleep(600.0)

        with pytest.raises((CertificateChanged, Unreachable)):
            await world.agents.command(agent, "standby.sync", {}, 60.0)
        assert await world.agents.present(NODE) is None

    simulate(tmp_path, scenario)


def test_disks_are_erased_and_read_back(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        agent = await booted(world)
        run = world.agents.command
        told = await run(agent, "clean.execute_clean_step", step("provisioner_disks"), 60.0)
        disk = told.result["clean_result"]["disks"][1]
        given = {"device": disk["name"], "serial": disk["serial"]}
        method = "nvme_sanitize_block"
        asked = step("provisioner_erase_device", **given, by=method)
        done = await run(agent, "clean.execute_clean_step", asked, 3600.0)
        asked = step("provisioner_read_disk", serial=disk["serial"], offset=0, bytes=4096)
        read = await run(agent, "clean.execute_clean_step", asked, 60.0)

        assert done.result["clean_result"]["result"] == "done"
        assert read.result["clean_result"]["sha256"] == hashlib.sha256(bytes(4096)).hexdigest()
        holds = [d.holds for d in world.site.machines[NODE].disks.values()]
        assert holds == ["factory", "erased", "factory", "factory"]

    simulate(tmp_path, scenario)


@pytest.mark.parametrize("lost", [0.0, 0.3])
def test_a_command_is_carried_out_once_whatever_is_lost(tmp_path: Path, lost: float) -> None:
    async def scenario(world: World) -> None:
        agent = await booted(world)
        ends = 0
        for serial in [d.device.serial for d in world.site.machines[NODE].disks.values()]:
            disk = next(
                d for d in world.site.machines[NODE].disks.values() if d.device.serial == serial
            )
            asked = step(
                "provisioner_erase_device",
                device=disk.name,
                serial=serial,
                by="nvme_format_crypto",
            )
            for _ in range(20):
                try:
                    told = await world.agents.command(
                        agent, "clean.execute_clean_step", asked, 600.0
                    )
                except PortError:
                    continue
                ends += told.status == "SUCCEEDED"
                break

        erased = [e.subject for e in world.site.machines[NODE].log if e.kind == "erase"]
        assert ends == 4
        assert erased == ["NVMe_0", "NVMe_1", "NVMe_2", "NVMe_3"]

    simulate(tmp_path, scenario, lost=lost)


def test_a_new_daemon_goes_on_with_the_agent_and_its_command(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        agent = await booted(world)
        asked = step("erase_devices")
        work = asyncio.ensure_future(
            world.agents.command(agent, "clean.execute_clean_step", asked, 3600.0)
        )
        await world.clock.sleep(30.0)
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        await world.start()
        assert world.daemon is not None
        await world.daemon.stop()
        again = await world.agents.wait(NODE, 600.0)
        assert again is not None
        told = await world.agents.command(again, "clean.execute_clean_step", asked, 3600.0)

        assert told.status == "SUCCEEDED"
        erased = [e.subject for e in world.site.machines[NODE].log if e.kind == "erase"]
        assert erased == ["NVMe_0", "NVMe_1", "NVMe_2", "NVMe_3"]

    simulate(tmp_path, scenario)


def test_an_agent_that_dies_in_a_command_leaves_it_open(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        agent = await booted(world)
        inject_fault(world.site, "agent_dies", NODE)

        asked = step("erase_devices")
        with pytest.raises(Unreachable) as caught:
            await world.agents.command(agent, "clean.execute_clean_step", asked, 600.0)
        assert caught.value.maybe_executed
        assert await world.agents.present(NODE) is None

    simulate(tmp_path, scenario)


def image(data: bytes, **changes: Any) -> dict[str, Any]:
    info = {
        "id": "os",
        "urls": ["http://artifacts.test/os.raw"],
        "os_hash_algo": "sha256",
        "os_hash_value": hashlib.sha256(data).hexdigest(),
        "disk_format": "raw",
        "image_type": "whole-disk",
        "stream_raw_images": True,
    }
    return {"image_info": {**info, **changes}}


@pytest.mark.parametrize(
    ("served", "changes", "status"),
    [
        (b"an operating system", {}, "SUCCEEDED"),
        (b"an operating syste", {}, "FAILED"),
        (None, {}, "FAILED"),
        (b"an operating system", {"os_hash_value": "00" * 32}, "FAILED"),
    ],
)
def test_an_image_is_written_to_the_disk_that_was_named_or_refused(
    tmp_path: Path, served: bytes | None, changes: dict[str, Any], status: str
) -> None:
    async def scenario(world: World) -> None:
        world.site.agents.fetch = lambda _url, done: done(served)
        agent = await booted(world)
        run = world.agents.command
        serial = world.site.machines[NODE].disks["NVMe_2"].device.serial
        node = {"uuid": "x", "properties": {}, "instance_info": {"root_device": {"serial": serial}}}
        named = {**step("provisioner_disks"), "node": node}
        await run(agent, "clean.execute_clean_step", named, 60.0)
        told: AgentResult = await run(
            agent, "standby.prepare_image", image(b"an operating system", **changes), 600.0
        )

        assert told.status == status
        disks = world.site.machines[NODE].disks
        assert disks["NVMe_0"].holds == "factory"
        assert (disks["NVMe_2"].holds == "image") is (status == "SUCCEEDED")

    simulate(tmp_path, scenario)


def test_an_image_that_comes_late_is_waited_for(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        data = b"an operating system"
        fetched: list[asyncio.Task[None]] = []

        async def answer(done: Callable[[bytes | None], None]) -> None:
            await world.clock.sleep(120.0)
            done(data)

        def fetch(_url: str, done: Callable[[bytes | None], None]) -> None:
            fetched.append(asyncio.create_task(answer(done)))

        world.site.agents.fetch = fetch
        agent = await booted(world)
        result: AgentResult = await world.agents.command(
            agent, "standby.prepare_image", image(data), 600.0
        )

        assert result.status == "SUCCEEDED"

    simulate(tmp_path, scenario)
