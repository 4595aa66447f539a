"""A small daemon to be killed: what `provisioner serve` has for a deployment, nothing else.

Store, vault, agents' API and images over TLS, Redfish, ledger and `deploy` are the real ones. Only
SSH into the system that was written is not: `WrittenSystem` says what the disk would say.

Reads lines of JSON from its standard input, forks a driver for each and tells its process id: what
takes long, importing, is done once. A driver exits with 0 when the system of the image runs.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from provisioner.adapters.agent import client
from provisioner.adapters.redfish.transport import RedfishTransport
from provisioner.components.kind import DEPLOY, HOST_OS, NOTHING, STAMP
from provisioner.daemon.agents import AgentDoor, serve_agents
from provisioner.execution.actions.hold import Hold
from provisioner.execution.actions.reach import Reach
from provisioner.execution.actions.work import HostLogin, Site
from provisioner.execution.artifacts.artifacts import Artifacts
from provisioner.execution.artifacts.os_images import OsImages
from provisioner.execution.observe.inband import run_commands
from provisioner.execution.steps.deployment import deploy_image
from provisioner.model.inventory import Activation, Device, DeviceKind, Inventory
from provisioner.model.matrix import Pin
from provisioner.model.node import Boots
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.plan import Disruption, Step, StepKind
from provisioner.planning.erasure.deployment import render_stamp
from provisioner.ports import ShellCommand, ShellOutput, Unreachable
from provisioner.runtime.wall_clock import WallClock
from provisioner.settings import Settings
from provisioner.store.repositories.signing_keys import MasterKey
from provisioner.store.repositories.vault import Vault
from provisioner.store.sql_store import SqlStore, open_store

NODE, MAC, DISK = "n1", "52:54:00:aa:00:01", "SCRATCH1"
SETTINGS = Settings(
    production=False,
    agent_lookup_trusts="first",
    poll_s=0.2,
    send_window_s=0.3,
    power_limit_s=2.0,
    memory_off_s=0.0,
    boot_limit_s=30.0,
    maintenance_boot_limit_s=60.0,
    agent_heartbeat_s=40.0,
    agent_step_limit_s=60.0,
    image_write_limit_s=60.0,
)
PASSING = frozenset({Reason.BUSY, Reason.UNREACHABLE})  # the reconciler would come again
TURNS_MAX = 3
PR_SET_PDEATHSIG = 1  # prctl(2): no driver outlives a test that was ended
REFUSED = 3  # exit code: "problem" in the folder says why


class WrittenSystem:
    """The host's shell: it answers while the machine runs what is on its disk."""

    def __init__(self, file: Path) -> None:
        self._file = file

    async def run(
        self, host: str, address: str, commands: Sequence[ShellCommand]
    ) -> Sequence[ShellOutput]:
        seen = json.loads(self._file.read_text())
        if seen["runs"] != "disk":
            raise Unreachable("no system answers", maybe_executed=False)
        return [ShellOutput(0, seen["stamp"], "") for _ in commands]

    async def forget(self, host: str, known: str = "") -> None:
        return None

    async def close(self) -> None:
        return None


def step(asked: dict[str, Any]) -> Step:
    return Step(
        kind=StepKind.UPDATE,
        component=HOST_OS,
        slots=("host",),
        from_version=NOTHING,
        to_version=asked["version"],
        method=DEPLOY,
        artifact=asked["artifact"],
        sha256=asked["sha256"],
        activation=Activation.NONE,
        disruption=Disruption.HOST,
        duration_s=1,
        expected=(),
        reason="a test",
    )


async def drive(asked: dict[str, Any]) -> Blocker | None:
    """Take up what the last driver left, and bring the image to the disk; why not, or None."""
    client.POLL_S, client.ARRIVES_S = 0.1, 1.0  # an agent on this machine, not in a rack
    folder, clock = Path(asked["folder"]), WallClock()
    store = open_store(folder / "store.db")
    vault = Vault(store, MasterKey.parse(asked["key"], "the test"))
    artifacts = Artifacts(folder / "images", "http://artifacts.test")

    def make_images(url: str) -> OsImages:
        return OsImages(artifacts, folder / "raw", url)

    transport = RedfishTransport()
    door = AgentDoor(asked["gateway"], asked["port"])
    settings = SETTINGS.model_copy(update=asked.get("settings", {}))
    try:
        async with serve_agents(door, folder, store, vault, clock, settings, make_images) as served:
            site = Site(
                clock=clock,
                settings=settings,
                reach=Reach(transport, None, vault),  # type: ignore[arg-type] # no switch is asked
                runner=None,  # type: ignore[arg-type] # no play is run
                shell=WrittenSystem(folder / "system"),
                agents=served.agents,
                artifacts=artifacts,
                image=Pin(version="1", artifact="ramdisk.iso"),
                os_images=served.images,
                login=HostLogin("provisioner", "ssh-ed25519 AAAA provisioner"),
            )
            await store.operations.open(NODE, "test", clock.now())
            mine = next(o for o in await store.operations.list_active() if o.node == NODE)
            hold = Hold(store, clock, await store.operations.take(mine.id))
            return await turns(site, hold, store, asked)
    finally:
        await transport.close()
        await store.close()


async def turns(site: Site, hold: Hold, store: SqlStore, asked: dict[str, Any]) -> Blocker | None:
    """What the reconciler does with such a step: look whether it is done, do it, come again."""
    card = Device(kind=DeviceKind.NIC, slot="NIC_0", mac=asked.get("mac", MAC))
    inventory = Inventory(node=NODE, vendor="supermicro", devices=(card,))
    problem = None
    for _ in range(asked.get("turns", TURNS_MAX)):
        node = await store.nodes.get(NODE)
        assert node is not None
        if node.boots is Boots.SYSTEM:
            seen = await run_commands(site, node, [("stamp", f"cat {STAMP}", 20.0)])
            wanted = render_stamp(asked["version"], asked["sha256"])
            if not isinstance(seen, Blocker) and seen["stamp"].text == wanted:
                return None
        node = node.model_copy(update={"os_disk": asked.get("os_disk", DISK)})
        problem = await deploy_image(site, hold, node, step(asked), inventory)
        if problem is None or problem.reason not in PASSING:
            break
    return problem


def main() -> None:
    """Fork a driver for each line."""
    last = 0
    for line in sys.stdin:
        if last:
            os.waitpid(last, 0)
        asked = json.loads(line)
        pid = os.fork()
        if pid == 0:
            code = 1
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            try:
                problem = asyncio.run(drive(asked))
                code = 0 if problem is None else REFUSED
                if problem is not None:
                    (Path(asked["folder"]) / "problem").write_text(problem.model_dump_json())
            except BaseException:
                with (Path(asked["folder"]) / "driver-errors").open("a") as file:
                    traceback.print_exc(file=file)
            os._exit(code)
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # its id stays its own
        sys.stdout.write(f"{ended.si_status}\n")
        sys.stdout.flush()
        last = pid


if __name__ == "__main__":
    main()
