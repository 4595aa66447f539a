"""Writes the pinned operating system to the right disk, and boots it: one step of a plan.

Maintenance image, two looks at the disks, write, read back, boot from disk, SSH: each part looks
first, so that the step may be entered again at any point. It is done when the new system itself
says, over SSH, which image it was made from.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from provisioner.components.kind import HOST_OS, STAMP
from provisioner.execution.actions.hold import Hold
from provisioner.execution.actions.once import Act, Sent, Snapshot, blocked
from provisioner.execution.actions.work import Site, Work, do_work, host_key
from provisioner.execution.observe.inband import run_commands
from provisioner.execution.steps.agent_steps import (
    DEPLOY,
    agent_node,
    ask_step,
    find_last,
    find_open,
    list_addresses,
    run_command,
)
from provisioner.execution.steps.maintenance_boot import BOOT, Stay
from provisioner.model.erasure import Disk, Result
from provisioner.model.inventory import Inventory
from provisioner.model.node import Boots, Node
from provisioner.model.operation import ActionStatus, LedgerEntry
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.plan import Step
from provisioner.planning.certification.host_settings import list_rail_links, write_bonds
from provisioner.planning.erasure import deployment, disk_answers, erasure
from provisioner.planning.erasure.deployment import ImageFile
from provisioner.planning.lifecycle.destruction import Destruction
from provisioner.ports import AgentAddress, AgentResult, PortError

# ------------------------------------------------------------------------------
# Proof that the system that runs is the one that was written: its disk, boot entry and stamp.


CHOOSE = "provisioner_choose_boot_disk"
# the disks below the file system of "/", through partitions, LVM and md
ROOT_DISKS = (
    "lsblk --inverse --list --noheadings --output TYPE,SERIAL "
    '"$(findmnt --noheadings --nofsroot --output SOURCE /)"'
)
_DISK = re.compile(r"^disk +(\S.*?) *$", re.MULTILINE)


async def choose_boot_disk(
    site: Site, node: Node, agent: AgentAddress, serial: str
) -> Blocker | None:
    """Make the written disk the first boot entry of the machine; a Blocker: it is not.

    A machine without UEFI variables, and an image that has no such step, leave the choice to the
    BMC's "boot from disk"; the system that runs is asked for its disk in any case.
    """
    limit_s = site.settings.agent_step_limit_s
    answer = await ask_step(site, node, agent, CHOOSE, {"serial": serial}, limit_s)
    if isinstance(answer, Blocker):
        return None if answer.reason is Reason.NOT_OFFERED else answer
    result, detail = disk_answers.step_result(answer)
    if result is not Result.NOT_DONE:
        return None
    return _no(node, f"disk {serial} is not the first boot entry: {detail}")


async def verify_system(
    site: Site, node: Node, label: str, image: ImageFile, serial: str
) -> Blocker | None:
    """Return None if the host answers over SSH, and its system was made from exactly this image and
    runs from the disk with this serial.

    A system whose root file system leads to no disk with a serial, as on ZFS, proves the image
    alone; "" as serial: the disk is not on record.
    """
    commands = [("stamp", f"cat {STAMP}", 20.0), ("disks", ROOT_DISKS, 20.0)]
    outputs = await run_commands(site, node, commands)
    if isinstance(outputs, Blocker):
        return outputs
    if outputs["stamp"].text != deployment.render_stamp(label, image.sha256):
        stamp_shown = disk_answers.strip_control_characters(outputs["stamp"].text, 120)
        return _no(node, f"the system that runs says of itself: {stamp_shown or 'nothing'}")
    running = parse_root_disks(outputs["disks"].text)
    if not serial or not running or serial.casefold() in {s.casefold() for s in running}:
        return None
    return _no(node, f"the system runs from disk {', '.join(running)}, written was {serial}")


def parse_root_disks(text: str) -> tuple[str, ...]:
    return tuple(disk_answers.strip_control_characters(s, 64) for s in _DISK.findall(text[:4096]))


def _no(node: Node, detail: str) -> Blocker:
    return Blocker(
        reason=Reason.NOT_ACTIVATED,
        subject=f"{node.id}/{HOST_OS}",
        detail=detail,
        unblock="Look at the host's console and boot order.",
    )


@dataclass(frozen=True)
class _Writing:
    """What one deployment writes, to which disk, seen when."""

    stay: Stay
    agent: AgentAddress
    step: Step
    image: ImageFile
    disk: Disk
    disks: tuple[Disk, ...]


async def deploy_image(
    site: Site, hold: Hold, node: Node, step: Step, inventory: Inventory
) -> Blocker | None:
    """Carry out the step, or its remaining part; None: the new system runs and reports its
    version.
    """
    if node.served:
        return Blocker(
            reason=Reason.NOT_SANITIZED,
            subject=f"{node.id}/{HOST_OS}",
            detail=f"its disks may hold data of {node.served}; an image would be written over it",
            unblock="Let the node be erased first: release it to no tenant, or change the policy.",
        )
    if site.os_images is None or site.login is None:
        return _no_deployment(
            node, Reason.NOT_OFFERED, "this daemon offers no images", "Start it with --ssh-key."
        )
    image = await site.os_images.prepare_image(step.artifact, step.sha256)
    if isinstance(image, Blocker):
        return image
    stay = Stay(site, hold, node, inventory)

    async def arrived() -> Blocker | None:
        serial = find_written_disk(await hold.list_entries(), step.to_version)
        return await verify_system(site, node, step.to_version, image, serial)

    rows = await hold.list_entries()
    if stay.is_leaving(rows):  # a predecessor came as far as this
        return await stay.leave_image(arrived, _step(step))
    if stay.has_left(rows) and await arrived() is None:  # or to the end, and could not note it
        await stay.mark_boots(Boots.SYSTEM)
        return None
    agent = await stay.enter_image()
    if isinstance(agent, Blocker):
        return agent
    problem = await _write(stay, agent, step, image)
    return problem if problem is not None else await stay.leave_image(arrived, _step(step))


def find_written_disk(rows: Sequence[LedgerEntry], version: str) -> str:
    """The serial of the disk that this version was written to last; "": none is on record."""
    begins = f"{HOST_OS} {version} on "
    written = [r for r in rows if r.action.startswith(begins)]
    newest = max(written, key=lambda r: r.intended_at, default=None)
    return str(newest.before.get("serial", "")) if newest is not None else ""


def _step(step: Step) -> dict[str, Any]:
    """Return the fields that the ledger stores, so that failures of this step are counted
    (planning/history).
    """
    return {"step": step.model_dump(mode="json"), "slots": [deployment.SLOT]}


async def _write(stay: Stay, agent: AgentAddress, step: Step, image: ImageFile) -> Blocker | None:
    site = stay.site
    node = stay.node
    try:  # before anything else is asked: the agent's last command is what became of it
        await _resolve(stay, agent, f"{HOST_OS} {step.to_version} on ")
    except PortError as error:
        return blocked(error, f"{node.id}/{HOST_OS}")
    disks = await _disks(site, node, agent)
    if isinstance(disks, Blocker):
        return disks
    disk = deployment.target_disk(node, disks, image.size)
    if isinstance(disk, Blocker):
        return disk
    await stay.mark_boots(Boots.NOTHING)
    writing = _Writing(stay, agent, step, image, disk, disks)
    name = f"{HOST_OS} {step.to_version} on {disk.serial}"
    rows = await stay.hold.list_entries()
    written = find_last(rows, name)
    booted = find_last(rows, BOOT)
    if (
        written is not None
        and booted is not None
        and written.status is ActionStatus.CONFIRMED
        and written.intended_at > booted.intended_at
        and await _differs(writing) is None
    ):
        return await choose_boot_disk(site, node, agent, disk.serial)
    try:
        problem = await do_work(site, stay.hold, _work(writing, name), find_open(rows, name))
    except PortError as error:
        return blocked(error, f"{node.id}/{HOST_OS}")
    return problem or await choose_boot_disk(site, node, agent, disk.serial)


async def _resolve(stay: Stay, agent: AgentAddress, begins: str) -> None:
    """Settle the write that a predecessor may have begun, by the agent's own report.

    The disk alone does not show it: a write that broke off in its last part, or before the
    configuration drive was written, reads back as the image. A write without a success reported by
    the agent is repeated.
    """
    for row in await stay.hold.list_entries():
        if row.status is ActionStatus.INTENDED and row.action.startswith(begins):
            result = await _told(stay, agent, row.intended_at)
            status = ActionStatus.SENT if _ended_well(result) else ActionStatus.ABSENT
            outcome = (
                f"it ended {result.status}: {result.error}"
                if result
                else "it was not asked for this"
            )
            await stay.hold.settle_entry(row, status, outcome=f"the agent says: {outcome}")


async def _told(stay: Stay, agent: AgentAddress, since: float) -> AgentResult | None:
    """Wait while the agent still writes, and return its result. Raises `PortError`s."""
    limit_s = stay.site.settings.image_write_limit_s
    return await stay.site.agents.recall(agent, DEPLOY, since, limit_s)


def _ended_well(told: AgentResult | None) -> bool:
    return told is not None and told.status == "SUCCEEDED"


def _work(writing: _Writing, name: str) -> Work:
    stay = writing.stay
    settings = writing.stay.site.settings

    async def look() -> Snapshot | Blocker:
        difference = await _differs(writing)
        if difference is not None and difference.reason is not Reason.DIGEST_MISMATCH:
            return difference
        return {"written": difference is None}

    async def send() -> Sent | Blocker:
        again = await _disks(stay.site, stay.node, writing.agent)
        if isinstance(again, Blocker):
            return again
        if moved := erasure.find_disk_changes(writing.disks, again):
            unblock = "Look at the node: its disks changed between two looks. Then retry it."
            return _no_deployment(
                stay.node, Reason.BILL_OF_MATERIALS, "; ".join(moved[:4]), unblock
            )
        drive = await _drive(writing)
        if isinstance(drive, Blocker):
            return drive
        parameters = deployment.write_command(
            agent_node(stay.node), writing.disk, writing.image, drive
        )
        answer = await run_command(
            stay.site, stay.node, writing.agent, DEPLOY, parameters, settings.image_write_limit_s
        )
        return answer if isinstance(answer, Blocker) else Sent()

    async def recall(since: float) -> Sent | None:
        return Sent() if _ended_well(await _told(stay, writing.agent, since)) else None

    async def finish(_entry: LedgerEntry) -> Blocker | None:
        return await _differs(writing)

    return Work(
        act=Act(
            name=name,
            before={
                "visit": stay.node.fenced_at,
                "serial": writing.disk.serial,
                **_step(writing.step),
            },
            look=look,
            send=send,
            happened=lambda _before, _now: False,  # only a success reported by the agent counts
            recall=recall,
            destroys=Destruction.IMAGE,
        ),
        finish=finish,
    )


async def _disks(site: Site, node: Node, agent: AgentAddress) -> tuple[Disk, ...] | Blocker:
    limit_s = site.settings.agent_step_limit_s
    answer = await ask_step(site, node, agent, "provisioner_disks", {}, limit_s)
    return answer if isinstance(answer, Blocker) else disk_answers.parse_disks(answer, node.id)


async def _differs(writing: _Writing) -> Blocker | None:
    """Read the disk back; None: it has the image, and is the intended disk."""
    site = writing.stay.site
    node = writing.stay.node
    image = writing.image
    offset, length = deployment.read_range(image.size)
    arguments = {"serial": writing.disk.serial, "offset": offset, "bytes": length}
    limit_s = site.settings.image_write_limit_s
    answer = await ask_step(site, node, writing.agent, "provisioner_read_disk", arguments, limit_s)
    if isinstance(answer, Blocker):
        return answer
    read = disk_answers.read_back(answer, node.id)
    if isinstance(read, Blocker):
        return read
    requested = (writing.disk.serial, offset, length)
    if (read.serial, read.offset, read.length) != requested:
        return disk_answers.make_malformed_blocker(
            node.id, f"it read back {read!r}, asked was {requested!r}"
        )
    if read.sha256 == image.checked:
        return None
    detail = f"disk {read.serial} does not hold the image: {read.sha256}, not {image.checked}"
    return _no_deployment(
        node, Reason.DIGEST_MISMATCH, detail, "Look at the disk's log; replace it if it lasts."
    )


async def _drive(writing: _Writing) -> str | Blocker:
    """Return the configuration drive, which is the same for every request of one deployment."""
    stay = writing.stay
    node = writing.stay.node
    login = stay.site.login
    assert login is not None
    key = await host_key(stay.site.reach.credentials, node)
    # from here on only the new system is accepted under this name: no ramdisk, no older system
    await stay.site.shell.forget(node.id, key[1])
    host = await stay.site.reach.redfish(node, "host")
    if isinstance(host, Blocker):
        return host
    macs = await list_addresses(node, stay.inventory, host)
    files = deployment.first_boot(
        node,
        list_rail_links(node, stay.inventory, stay.site.settings),
        writing.image,
        writing.step.to_version,
        # cloud-init runs anew for a new instance: one for each stay and image
        instance=f"{int(node.fenced_at)}-{writing.image.sha256[:12]}",
        user=login.user,
        authorized_key=login.authorized_key,
        host_key=key,
        other_macs=macs,
        bonded=write_bonds(node, stay.inventory),
        metadata=stay.site.settings.host_metadata == "link_local",
    )
    return deployment.pack_volume(files)


def _no_deployment(node: Node, reason: Reason, detail: str, unblock: str) -> Blocker:
    return Blocker(reason=reason, subject=f"{node.id}/{HOST_OS}", detail=detail, unblock=unblock)
