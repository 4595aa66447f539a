"""A power shelf under an update, in both dialects.

Source of the writes: docs.nvidia.com, DGX GB200 firmware update guide, "Power Shelf Firmware Update
Process" (Delta): the selector of the flash, the apply time, a raw POST, and the selector back. How
one supply alone is written is published nowhere: it needs a service that offers targets.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from provisioner.adapters.redfish.client import Redfish
from provisioner.adapters.redfish.messages import body_of, read_refusal, task_paths
from provisioner.adapters.redfish.parsing import Json, at, link, path_of, text
from provisioner.adapters.redfish.service import UNBLOCK
from provisioner.integrations.racks.campaign import Act, ActKind
from provisioner.integrations.racks.shelf_steps import ShelfView, decide_flash, decide_supply
from provisioner.integrations.racks.update_log import ActLog
from provisioner.integrations.racks.update_packages import Package, PackageFile
from provisioner.integrations.racks.update_steps import Next
from provisioner.integrations.racks.update_trays import (
    Answer,
    is_pushing,
    list_versions,
    mark_tasks,
    read_task,
)
from provisioner.model.outcome import Blocker, Reason
from provisioner.ports import Call, PortError

PUSH_S = 300.0
FILE_MAX_BYTES = 256 * 2**20  # a PMC's package has some tens of MiB
_DELTA = "deltaenergysystems"


async def read_shelf(client: Redfish, name: str, log: ActLog, now: float) -> ShelfView:
    """Return a shelf as it reads now, without the rest of its rack. Raises no PortError."""
    try:
        if not log.noted("end") and await is_pushing(client, log, now):
            return ShelfView(reachable=True, pushing=True)
        service = client.service
        inventory = await client.read_firmware(name, name)
        update = (await service.find_part("UpdateService")).data
        manager = await _read_manager(client)
        paths = await client.task_paths()
        listed = link(update, "FirmwareInventory") or ""
        targets = update.get("HttpPushUriTargets")
        return ShelfView(
            reachable=True,
            part_number=text(manager.get("PartNumber")) or "",
            selector=text(at(manager, "Oem", _DELTA, "FlashSelector")),
            apply_time=text(at(update, "HttpPushUriOptions", "HttpPushUriApplyTime", "ApplyTime")),
            push=path_of(update.get("HttpPushUri")) is not None,
            targets=None if not isinstance(targets, list) or not listed else _texts(targets),
            versions=list_versions(inventory),
            tasks=mark_tasks(paths),
            running=await client.read_tasks(),
            task=await read_task(client, log.told("push") or ""),
        )
    except PortError:
        return ShelfView(reachable=False)


def _texts(values: list[object]) -> tuple[str, ...]:
    return tuple(value for value in values[:64] if isinstance(value, str))


async def _read_manager(client: Redfish) -> Json:
    """Return the shelf's one manager; a shelf has no system that would name its own."""
    walk = client.service.walk()
    members = await walk.read_linked(await walk.read_root(), "Managers")
    return members[0].data if len(members) == 1 else {}


def decide_shelf(act: Act, package: Package, view: ShelfView, log: ActLog, now: float) -> Next:
    """Return the next step of a shelf's act."""
    if act.kind is ActKind.PSU:
        return decide_supply(package, int(act.key.rpartition("-")[2]), view, log, now)
    flash = "Backup" if act.kind is ActKind.PMC_BACKUP else "Primary"
    return decide_flash(package, flash, view, log, now)


def choose_file(act: Act, package: Package) -> PackageFile:
    """Return the file of an act: a package may hold one for each flash (Delta PR3)."""
    flash = "Backup" if act.kind is ActKind.PMC_BACKUP else "Primary"
    return next((one for one in package.files if one.part == flash), package.files[0])


class ShelfWrites:
    """Sends one write to one shelf."""

    def __init__(self, client: Redfish, folder: Path) -> None:
        self._client = client
        self._folder = folder

    async def send(self, act: Act, package: Package, what: str) -> Answer:
        """Send it once. Raises PortError; where that was maybe executed, the next look tells."""
        service = self._client.service
        update = await service.find_part("UpdateService")
        verb, _, value = what.partition(":")
        if verb == "select":
            walk = service.walk()
            managers = await walk.read_links(link(await walk.read_root(), "Managers"))
            if len(managers) != 1:
                return service.not_offered("pmc", "one manager")
            body = {"Oem": {_DELTA: {"FlashSelector": value}}}
            return await service.patch(managers[0], body, "pmc") or ""
        if verb == "apply-now":
            body = {"HttpPushUriOptions": {"HttpPushUriApplyTime": {"ApplyTime": "Immediate"}}}
            return await service.patch(update.path, body, "pmc") or ""
        if verb == "target":
            listed = link(update.data, "FirmwareInventory") or ""
            number = act.key.rpartition("-")[2]
            wanted = {"HttpPushUriTargets": [f"{listed.rstrip('/')}/FW_PSU_{number}"]}
            return await service.patch(update.path, wanted, "psu") or ""
        where = path_of(update.data.get("HttpPushUri"))
        if where is None:
            return service.not_offered("pmc", "HttpPushUri")
        content = await asyncio.to_thread(self._read, choose_file(act, package))
        if len(content) > FILE_MAX_BYTES:
            return Blocker(
                reason=Reason.NOT_EXPECTED,
                subject="pmc",
                detail=f"its file has more than {FILE_MAX_BYTES // 2**20} MiB",
                unblock="Name the controller's package.",
            )
        headers = {"Content-Type": "application/octet-stream"}
        reply = await service.ask(Call("POST", where, content, headers, timeout_s=PUSH_S))
        if not 200 <= reply.status < 300:
            return read_refusal(reply, "pmc", UNBLOCK)
        named = path_of(body_of(reply)) or ""
        return next(task_paths(reply), named)

    def _read(self, file: PackageFile) -> bytes:
        with (self._folder / file.file).open("rb") as opened:
            return opened.read(FILE_MAX_BYTES + 1)
