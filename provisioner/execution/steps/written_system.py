"""Proof that the system that runs is the one that was written: its disk, boot entry and stamp."""

from __future__ import annotations

import re

from provisioner.components.host_os import HOST_OS, STAMP
from provisioner.execution.actions.work import Site
from provisioner.execution.observe.inband import run_commands
from provisioner.execution.steps.agent_steps import ask_step
from provisioner.model.erasure import Result
from provisioner.model.node import Node
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.erasure import deployment, disk_answers
from provisioner.planning.erasure.deployment import ImageFile
from provisioner.ports import AgentAddress

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
    """Return the serials of disks in the answer to ROOT_DISKS."""
    return tuple(disk_answers.strip_control_characters(s, 64) for s in _DISK.findall(text[:4096]))


def _no(node: Node, detail: str) -> Blocker:
    return Blocker(
        reason=Reason.NOT_ACTIVATED,
        subject=f"{node.id}/{HOST_OS}",
        detail=detail,
        unblock="Look at the host's console and boot order.",
    )
