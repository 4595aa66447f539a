"""A compute tray under an update: how it is read, and how each write is sent, over Redfish."""

from __future__ import annotations

import zlib
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from provisioner.adapters.redfish.client import Redfish, TaskRef
from provisioner.adapters.redfish.parsing import text
from provisioner.integrations.racks.campaign import Act, ActKind
from provisioner.integrations.racks.update_log import ActLog
from provisioner.integrations.racks.update_packages import Package
from provisioner.integrations.racks.update_steps import (
    PUSH_MAX_S,
    Next,
    TaskSeen,
    TrayView,
    decide_activate,
    decide_bundle,
    decide_copy,
)
from provisioner.model.inventory import BackgroundCopy, Inventory
from provisioner.model.outcome import Blocker, Reason
from provisioner.ports import PortError, Unreachable

Answer = Blocker | str  # "": it was taken; else the path of the task that it began
_HMC = "HGX_FW_BMC_0"  # the HMC lists itself once it is there (docs/sources/hardware.md#gb200)


def list_versions(inventory: Inventory) -> dict[str, str]:
    """Return version by inventory id; a slot that is blank is empty, whatever state it names."""
    return {
        one.source.rsplit("/", 1)[-1]: one.version.strip()
        for one in inventory.components
        if one.version is not None and one.version.strip()
    }


def is_copying(inventory: Inventory) -> bool | None:
    """Return whether a root of trust copies; None: not all of them were read."""
    copies = [one.background_copy for one in inventory.components if one.background_copy]
    if any(one is not BackgroundCopy.COMPLETED for one in copies):
        return True
    reasons = {gap.reason for gap in inventory.gaps}
    if Reason.BUSY in reasons:
        return True
    return None if Reason.UNREACHABLE in reasons else False


async def read_task(client: Redfish, path: str) -> TaskSeen:
    """Return a task as it reads now; one that is gone, or says nothing, is not known."""
    if not path:
        return TaskSeen()
    view = await client.read_task(TaskRef(path=path))
    known = not view.vanished and view.state != "unknown"
    return TaskSeen(known, view.done or view.staged, (view.failed or "")[:200])


async def is_pushing(client: Redfish, log: ActLog, now: float) -> bool:
    """Return whether a push surely goes on, by its task alone; if not, all has to be read."""
    told = log.told("push")
    if not told or log.since("push", now) >= PUSH_MAX_S:
        return False
    task = await read_task(client, told)
    return task.known and not (task.ended or task.failed)


def mark_tasks(paths: Sequence[str]) -> int:
    """Return a number that another list of tasks does not have: a full one drops its oldest task,
    so that their count tells nothing.
    """
    return zlib.crc32("\n".join(sorted(paths)).encode())


async def read_tray(client: Redfish, name: str, log: ActLog, now: float) -> TrayView:
    """Return a tray as it reads now. Raises no PortError: a silent one is not reachable."""
    try:
        if not log.count("bmc-reset") and await is_pushing(client, log, now):
            return TrayView(reachable=True, pushing=True)
        inventory = await client.read_firmware(name, name)
        versions = list_versions(inventory)
        if not versions:
            return TrayView(reachable=False)
        system = await client.service.read_system()
        paths = await client.task_paths()
        return TrayView(
            reachable=True,
            power=inventory.power.value,
            policy=text(system.data.get("PowerRestorePolicy")) or "" if system else "",
            hmc=_HMC in versions,
            versions=versions,
            copying=is_copying(inventory),
            tasks=mark_tasks(paths),
            running=await client.read_tasks(),
            task=await read_task(client, log.told("push") or ""),
        )
    except PortError:
        return TrayView(reachable=False)


def decide_tray(
    act: Act, packages: Sequence[Package], view: TrayView, log: ActLog, now: float
) -> Next:
    """Return the next step of a tray's act; `packages`: the act's own, or all of an activation."""
    if act.kind is ActKind.COPY:
        return decide_copy(view, log, now)
    if act.kind is ActKind.ACTIVATE:
        return decide_activate(packages, view, log, now)
    baseboard = act.kind is ActKind.HGX_BUNDLE
    return decide_bundle(packages[0], view, log, now, baseboard=baseboard)


def find_detail(what: str, view: TrayView) -> str:
    """Return what has to be remembered of a tray before a write."""
    if what == "policy-off":
        return view.policy
    return str(view.tasks) if what == "push" and view.tasks is not None else ""


class TrayWrites:
    """Sends one write to one tray."""

    def __init__(
        self,
        client: Redfish,
        file: Path | None,
        admit: Callable[[str], Awaitable[Blocker | None]],
    ) -> None:
        self._client = client
        self._file = file
        self._admit = admit

    async def send(self, act: Act, what: str, log: ActLog) -> Answer:
        """Send it once. Raises PortError; where that was maybe executed, the next look tells."""
        client = self._client
        if what == "push" and self._file is not None:
            # NVIDIA/open-nvfwupd, factory flow: FW_BMC_0 first, then HGX_Chassis_0 with all of it
            baseboard = act.kind is ActKind.HGX_BUNDLE
            kind, slots = ("hgx.bundle", ()) if baseboard else ("host.bmc", ("BMC_0",))
            sent = await client.push(kind, slots, self._file)
            return sent if isinstance(sent, Blocker) else sent.path
        if what == "bmc-reset":
            return await client.reset_bmc() or ""
        if what == "off":
            return await client.reset_system("ForceOff") or ""
        if what == "ac":
            return await self._admit("PowerCycle") or await client.ac_cycle() or ""
        if what == "on":
            return await self._admit("On") or await client.reset_system("On") or ""
        if what in ("policy-off", "policy-back"):
            policy = "AlwaysOff" if what == "policy-off" else log.detail("policy-off")
            return await self.set_policy(policy or "LastState")
        raise Unreachable(f"nobody knows how to {what}", maybe_executed=False)

    async def set_policy(self, policy: str) -> Answer:
        """Set what the BMC does with its host once it has power again."""
        service = self._client.service
        system = await service.read_system()
        if system is None:
            return service.not_offered("host", "system")
        return await service.patch(system.path, {"PowerRestorePolicy": policy}, "host") or ""
