"""An NVLink switch under an update: read through NVOS and its BMC, written by one of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from provisioner.adapters.redfish.client import Redfish
from provisioner.integrations.racks.campaign import Act, ActKind
from provisioner.integrations.racks.nvue import NvosClient
from provisioner.integrations.racks.update_log import ActLog
from provisioner.integrations.racks.update_packages import Package
from provisioner.integrations.racks.update_steps import (
    Next,
    Nvos,
    SwitchView,
    decide_image,
    decide_reboot,
    decide_switch_files,
)
from provisioner.integrations.racks.update_trays import Answer, mark_tasks, read_task
from provisioner.model.outcome import Blocker, Reason
from provisioner.ports import PortError, Unreachable


def find_last(log: ActLog, files: int) -> tuple[str, str]:
    """Return the last write of a file that an act began, and the job or task that it was told."""
    for number in reversed(range(files)):
        for way in ("push", "install", "fetch"):
            if log.count(f"{way}:{number}"):
                return f"{way}:{number}", log.told(f"{way}:{number}") or ""
    return "", ""


async def read_switch(
    nvos: NvosClient | None, client: Redfish, act: Act, packages: Sequence[Package], log: ActLog
) -> SwitchView:
    """Return a switch as it reads now. Raises no PortError."""
    own = packages[0].files if act.kind is not ActKind.SWITCH_REBOOT else ()
    last, told = find_last(log, len(own))
    view = SwitchView(Nvos.SILENT)
    if nvos is not None:
        view = await nvos.read("" if last.startswith("push") else told)
        part = own[int(last.partition(":")[2])].part if last and own else own[0].part if own else ""
        if view.nvos is Nvos.OK and part:
            view = replace(view, files=await _list_files(nvos, own, log))
    try:
        paths = await client.task_paths()
        running = await client.read_tasks()
        task = await read_task(client, told if last.startswith("push") else "")
    except PortError:
        return view
    return replace(view, bmc=True, tasks=mark_tasks(paths), running=running, task=task)


async def _list_files(nvos: NvosClient, own: Sequence[Any], log: ActLog) -> frozenset[str]:
    waiting = [f for n, f in enumerate(own) if not log.noted(f"installed:{n}")]
    try:
        return await nvos.read_part_files(waiting[0].part) if waiting else frozenset()
    except PortError:
        return frozenset()


def decide_switch(
    act: Act, packages: Sequence[Package], view: SwitchView, log: ActLog, now: float
) -> Next:
    """Return the next step of a switch's act."""
    if act.kind is ActKind.SWITCH_REBOOT:
        return decide_reboot(packages, view, log, now)
    if act.kind is ActKind.NVOS:
        allowed = packages[0].versions.get("nvos", ())
        wanted = next((v for v in allowed if v == view.next_image), allowed[0] if allowed else "")
        return decide_image(packages[0], wanted, view, log, now)
    return decide_switch_files(packages[0], view, log, now)


class SwitchWrites:
    """Sends one write to one switch."""

    def __init__(self, nvos: NvosClient | None, client: Redfish, folder: Path, pause: Any) -> None:
        self._nvos = nvos
        self._client = client
        self._folder = folder
        self._pause = pause

    async def send(self, packages: Sequence[Package], what: str) -> Answer:
        """Send it once. Raises PortError; where that was maybe executed, the next look tells."""
        verb, _, number = what.partition(":")
        if verb == "push":
            file = self._folder / packages[0].files[int(number)].file
            sent = await self._client.push("host.bmc", ("BMC_0",), file)
            return sent if isinstance(sent, Blocker) else sent.path
        if verb == "reboot" and (self._nvos is None or not await self._answers()):
            return await self._client.reset_system("GracefulRestart") or ""
        if self._nvos is None:
            raise Unreachable("no login to its NVOS is given", maybe_executed=False)
        if verb == "reboot":
            return await self._nvos.reboot()
        if verb == "password":
            await self._nvos.set_password(self._pause)
            return ""
        file_of = packages[0].files[int(number or 0)]
        if verb == "fetch":
            if not file_of.url:
                return _refuse("the package names no `url` that NVOS could fetch it from")
            return await self._nvos.fetch(file_of.part, file_of.url)
        return await self._nvos.install(file_of.part, file_of.remote_name)

    async def _answers(self) -> bool:
        return self._nvos is not None and (await self._nvos.read("")).nvos is Nvos.OK


def _refuse(detail: str) -> Blocker:
    remedy = "Give it, or put the file on the switch."
    return Blocker(reason=Reason.MISSING_ARTIFACT, subject="nvos", detail=detail, unblock=remedy)
