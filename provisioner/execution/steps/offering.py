"""Ensure that a file is still the verified one up to the moment when a device gets its address."""

from __future__ import annotations

from dataclasses import replace

from provisioner.execution.actions.once import Sent
from provisioner.execution.actions.work import Site, Work
from provisioner.model.operation import LedgerEntry
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.plan import Step

# methods whose device, host or switch fetches the file itself, from an address that it is sent
BFB = "bluefield_bfb"
PULLED = frozenset(
    {BFB, "playbook_nic_firmware", "playbook_drive_firmware", "nvue_image", "sonic_installer"}
)


async def prepare_file(site: Site, step: Step, entry: LedgerEntry | None) -> Blocker | None:
    """Get the step's file ready.

    With an open `entry` it may be on its way to the device already; then an outside server does not
    delay the reading of its outcome.
    """
    files = site.artifacts
    if step.method not in PULLED:
        resolved = await files.resolve(step.artifact, step.sha256)
        return resolved if isinstance(resolved, Blocker) else None
    if entry is not None:
        return await files.renew_offer(step.artifact, step.sha256)
    no = await files.offer_file(step.artifact, step.sha256)
    # a file that would be refused at the last moment is reported now
    if no is None and step.method == BFB:
        no = await files.confirm_offer(step.artifact, step.sha256, doubled=True)
    return no


def require_offer(site: Site, work: Work, name: str, sha256: str, *, doubled: bool = False) -> Work:
    """Return the same work, which sends no device an address unless the file is still the verified
    one.

    `doubled`: the device is a card, whose BMC asks in its own way.
    """
    act = work.act
    send = work.act.send

    async def tell() -> Sent | Blocker:
        no = await site.artifacts.confirm_offer(name, sha256, doubled=doubled)
        # BUSY: the device was not asked (`Act.send`), so this is no failure of it
        return await send() if no is None else no.model_copy(update={"reason": Reason.BUSY})

    longest = act.request_max_s or site.settings.request_max_s
    longer = longest + site.artifacts.ask_max_s
    return replace(work, act=replace(act, send=tell, request_max_s=longer))
