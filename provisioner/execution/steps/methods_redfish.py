"""Updates over Redfish: a multipart push, and a BFB that the BlueField's BMC pulls.

"Task completed" is never "done": a push is done when its task says that the package was written
and nothing failed; what runs is verified after the activation, from a fresh inventory.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from itertools import chain, repeat
from typing import Any

from provisioner.adapters.redfish.client import Redfish, TaskRef
from provisioner.adapters.redfish.settings.bios_writes import set_bios
from provisioner.adapters.redfish.settings.bmc_writes import set_bmc, set_card
from provisioner.adapters.redfish.settings.reading import read_host_settings
from provisioner.execution.actions.once import Act, Sent, Snapshot
from provisioner.execution.actions.pacing import grow_waits
from provisioner.execution.actions.work import Site, Work
from provisioner.execution.steps.methods_switch_settings import SWITCH_METHOD, write_switch_settings
from provisioner.model.inventory import Inventory
from provisioner.model.node import Node
from provisioner.model.operation import LedgerEntry
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.plan import Step
from provisioner.model.versions import is_same_version
from provisioner.planning.lifecycle.destruction import Destruction
from provisioner.planning.machine_settings.pinned_sets import BIOS, CARD, DPU, SUPERNIC
from provisioner.planning.machine_settings.running_sets import build_components
from provisioner.ports import PortError

# ------------------------------------------------------------------------------
# Settings of BIOS and BMC: written through Redfish, proved by reading.
#
# BIOS settings wait for a boot, which the plan merges with other activations; they are done when
# they wait, and run when the reading after the boot shows it. BMC settings act at once, and are
# read again before the step ends. A write that was cut off is sent again: both are the same whoever
# carries them out, and what waits or runs already is not sent.


SETTINGS_METHODS = frozenset(
    {"redfish_bios_settings", "redfish_bmc_settings", "redfish_card_settings", SWITCH_METHOD}
)
_OF_CARDS = (CARD, DPU, SUPERNIC)


async def write_settings(site: Site, node: Node, step: Step) -> Work | Blocker:
    if step.method == SWITCH_METHOD:
        return await write_switch_settings(site, node, step)
    bmc = step.slots[0] if step.component in _OF_CARDS else "host"
    client = await site.reach.redfish(node, bmc)
    if isinstance(client, Blocker):
        return client
    settings = site.machine_sets.get(step.component, {}).get(step.to_version)
    if settings is None:
        return Blocker(
            reason=Reason.NOT_OFFERED,
            subject=f"{node.id}/{step.component}",
            detail=f"the matrix has no settings {step.to_version!r}",
            unblock="Add them under machine_settings.",
        )

    async def send() -> Sent | Blocker:
        if step.component == BIOS:
            sent = await set_bios(client.service, settings)
            return sent if isinstance(sent, Blocker) else Sent(task=sent.job)
        write = set_card if step.component in (DPU, SUPERNIC) else set_bmc
        refused = await write(client.service, settings)
        return refused if refused is not None else Sent()

    return Work(
        act=Act(
            name=f"{step.component} {step.to_version}{'' if bmc == 'host' else f' {bmc}'}",
            before={"step": step.model_dump(mode="json"), "slots": list(step.slots)},
            look=_look_at(client, step, {step.to_version: settings}),
            send=send,
            happened=lambda _before, now: step.to_version in (now["version"], now["staged"]),
            destroys=None,
        ),
        finish=_read_again(client, node, step, {step.to_version: settings}),
    )


Sets = Mapping[str, Mapping[str, str]]


def _look_at(client: Redfish, step: Step, sets: Sets) -> Callable[[], Awaitable[Snapshot]]:
    async def look() -> dict[str, Any]:
        settings = await read_host_settings(client.service)
        rows = client.quirk.meanings
        bmc = step.slots[0] if step.component in _OF_CARDS else "host"
        components = build_components(settings, {step.component: sets}, rows, bmc)
        shown = next((c for c in components), None)
        return {
            "version": None if shown is None else shown.version,
            "staged": None if shown is None else shown.staged,
        }

    return look


def _read_again(
    client: Redfish, node: Node, step: Step, sets: Sets
) -> Callable[[LedgerEntry], Awaitable[Blocker | None]]:
    look = _look_at(client, step, sets)

    async def finish(_entry: LedgerEntry) -> Blocker | None:
        shown = await look()
        if step.to_version in (shown["version"], shown["staged"]):
            return None
        return Blocker(
            reason=Reason.UPDATE_FAILED,
            subject=f"{node.id}/{step.component}",
            detail=f"the settings {step.to_version} were accepted, and do not show",
            unblock="Compare `provisioner inspect --settings` with the set; the BIOS or the BMC "
            "may refuse a value.",
        )

    return finish


# ------------------------------------------------------------------------------
# Ensure that a file is still the verified one up to the moment when a device gets its address.


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
    blocker = await files.offer_file(step.artifact, step.sha256)
    # a file that would be refused at the last moment is reported now
    if blocker is None and step.method == BFB:
        blocker = await files.confirm_offer(step.artifact, step.sha256, doubled=True)
    return blocker


def require_offer(site: Site, work: Work, name: str, sha256: str, *, doubled: bool = False) -> Work:
    """Return the same work, which sends no device an address unless the file is still the verified
    one.

    `doubled`: the device is a card, whose BMC asks in its own way.
    """
    act = work.act
    send = work.act.send

    async def tell() -> Sent | Blocker:
        blocker = await site.artifacts.confirm_offer(name, sha256, doubled=doubled)
        # BUSY: the device was not asked (`Act.send`), so this is no failure of it
        return (
            await send() if blocker is None else blocker.model_copy(update={"reason": Reason.BUSY})
        )

    longest = act.request_max_s or site.settings.request_max_s
    longer = longest + site.artifacts.ask_max_s
    return replace(work, act=replace(act, send=tell, request_max_s=longer))


BFB_RUNNING = frozenset({"OsIsRunning"})  # BootProgress.OemLastState in DPU mode


async def push(site: Site, node: Node, step: Step, inventory: Inventory) -> Work | Blocker:
    """Push one package to the BMC behind these slots, and follow its task to the end."""
    opened = await _open(site, node, step, inventory)
    if isinstance(opened, Blocker):
        return opened
    client, bmc = opened
    path = await site.artifacts.resolve(step.artifact, step.sha256)
    if isinstance(path, Blocker):
        return path

    async def send() -> Sent | Blocker:
        sent = await client.push(step.component, step.slots, path, force=step.force)
        return sent if isinstance(sent, Blocker) else Sent(task=sent.path)

    async def finish(entry: LedgerEntry) -> Blocker | None:
        problem = await _task(site, node, step, client, entry, site.settings.task_limit_s)
        try:
            return problem or await client.end_push()
        except PortError:
            return problem  # the BMC restarts: the next push finds no task, and takes the claim

    return _work(node, step, client, bmc, send, finish, Destruction.FIRMWARE)


async def bluefield_bfb(site: Site, node: Node, step: Step, inventory: Inventory) -> Work | Blocker:
    """Let the card's BMC pull the BFB: its task is the transfer, then the Arm side installs."""
    opened = await _open(site, node, step, inventory)
    if isinstance(opened, Blocker):
        return opened
    client, bmc = opened

    async def send() -> Sent | Blocker:
        sent = await client.simple_update(site.artifacts.pull_url(step.artifact), step.component)
        return sent if isinstance(sent, Blocker) else Sent(task=sent.path)

    async def finish(entry: LedgerEntry) -> Blocker | None:
        moved = await _task(site, node, step, client, entry, site.settings.bfb_transfer_limit_s)
        return moved if moved is not None else await _installed(site, node, step, client, bmc)

    return _work(node, step, client, bmc, send, finish, Destruction.CARD_SYSTEM)


async def _open(
    site: Site, node: Node, step: Step, inventory: Inventory
) -> tuple[Redfish, str] | Blocker:
    component = inventory.find_component(step.component, step.slots[0])
    bmc = component.bmc if component is not None and component.bmc else "host"
    client = await site.reach.redfish(node, bmc)
    return client if isinstance(client, Blocker) else (client, bmc)


def _work(
    node: Node,
    step: Step,
    client: Redfish,
    bmc: str,
    send: Callable[[], Awaitable[Sent | Blocker]],
    finish: Callable[[LedgerEntry], Awaitable[Blocker | None]],
    destroys: Destruction,
) -> Work:
    async def look() -> Snapshot | Blocker:
        inventory = await client.read_firmware(node.id, bmc)
        return {
            "versions": {f"{c.kind}/{c.slot}": c.version for c in inventory.components},
            "tasks": sorted(await client.task_paths()),
        }

    def happened(before: Snapshot, now: Snapshot) -> bool | None:
        """Return whether the image arrived: a new task or a changed version; False if the BMC has
        neither.

        A BMC that lost its tasks by a reset shows fewer than before; then None is returned.
        """
        if now["versions"] != before.get("versions") or set(now["tasks"]) - set(before["tasks"]):
            return True
        return None if set(before["tasks"]) - set(now["tasks"]) else False

    return Work(
        act=Act(
            name=f"update {step.component} {' '.join(step.slots)} to {step.to_version}",
            before={"step": step.model_dump(mode="json"), "slots": list(step.slots)},
            look=look,
            send=send,
            happened=happened,
            destroys=destroys,
        ),
        finish=finish,
    )


async def _task(
    site: Site, node: Node, step: Step, client: Redfish, entry: LedgerEntry, limit_s: float
) -> Blocker | None:
    """Follow a task until the task itself or the limit ends it; an error while waiting is no
    answer.

    A driver that takes it up after the limit (the daemon was down) still observes, as after a
    reset.
    """
    now = site.clock.now()
    settings = site.settings
    until = max(entry.intended_at + limit_s, now + settings.bmc_return_limit_s)
    ref: TaskRef | None = None
    last = "no progress was seen"
    was_listed = False
    waits = grow_waits(settings.poll_s)
    if now - entry.intended_at > settings.poll_s:
        # taken up again, with thousands of others perhaps: at once, and then at an even pace
        waits = chain((0.0,), repeat(settings.poll_s))
    while site.clock.now() < until:
        await site.clock.sleep(next(waits))
        try:
            ref = ref or await _watched(client, entry)
            view = await client.read_task(ref)
            if view.vanished and not was_listed and site.clock.now() - now < _LATE_S:
                continue
            was_listed = True
            if view.vanished:
                # the table of tasks is lost with the BMC: only versions show the outcome
                written = await _runs(client, node, step)
                return None if written else _failed(node, step, _VANISHED)
        except PortError as error:
            last = str(error)
            continue
        if view.failed is not None:
            return _failed(node, step, view.failed)
        if view.done or (view.staged and client.ends_staged(step.component)):
            # to write it once more was all that was asked for: then it was not done
            again = step.from_version == step.to_version
            return _failed(node, step, view.skipped) if again and view.skipped else None
        last = f"{view.state}, {view.percent if view.percent is not None else '?'} %"
    return Blocker(
        reason=Reason.UPDATE_STALLED,
        subject=f"{node.id}/{step.component}/{'+'.join(step.slots)}",
        detail=f"no end within {limit_s:.0f} s: {last}",
        unblock="Reset the card's BMC (or the BMC that owns the task), then retry the node.",
    )


# a new task may not be found at first: iDRAC, some seconds (docs/sources/bmc-faults.md#e10)
_LATE_S = 60.0
_VANISHED = "its task vanished, and nothing shows that it was written"


async def _watched(client: Redfish, entry: LedgerEntry) -> TaskRef:
    """Return the task to follow: for a lost answer, the task that was not there before.

    An empty path stands for a service's own way (iLO 5), which reports the progress elsewhere.
    """
    if entry.task or not entry.outcome.startswith("adopted"):
        return TaskRef(path=entry.task)
    before = entry.before.get("seen", {}).get("tasks", [])
    new = sorted(set(await client.task_paths()) - set(before))
    return TaskRef(path=new[-1] if new else "")


async def _runs(client: Redfish, node: Node, step: Step) -> bool:
    """Return whether the version that was written is shown as running already."""
    inventory = await client.read_firmware(node.id, "")
    versions = [c.version for c in inventory.of_kind(step.component)]
    return bool(versions) and all(v == step.to_version for v in versions)


async def _installed(
    site: Site, node: Node, step: Step, client: Redfish, bmc: str
) -> Blocker | None:
    """Wait until the Arm side runs the new bundle (up to 40 minutes,
    docs/sources/redfish.md#bf-times).

    Where the same bundle ran before, only the installer that was seen running in between proves it.
    """
    was_away = step.from_version != step.to_version
    until = site.clock.now() + site.settings.bfb_install_limit_s
    state = "unknown"
    version = None
    while site.clock.now() < until:
        await site.clock.sleep(site.settings.poll_s)
        try:
            progress = await client.boot_progress()
            state = progress or "unknown"
            if progress is None or progress not in BFB_RUNNING or not was_away:
                was_away = was_away or (progress is not None and progress not in BFB_RUNNING)
                continue
            inventory = await client.read_firmware(node.id, bmc)
        except PortError:
            continue
        version = next((c.version for c in inventory.of_kind(step.component)), None)
        if same_bundle(version, step.to_version):
            return None
    return Blocker(
        reason=Reason.UPDATE_STALLED,
        subject=f"{node.id}/{step.component}/{bmc}",
        detail=f"not installed within {site.settings.bfb_install_limit_s:.0f} s: "
        f"boot progress {state}, version {version}",
        unblock="Look at the card's console (rshim), reset the card, then retry the node.",
    )


def same_bundle(running: str | None, wanted: str) -> bool:
    """Return whether a bundle runs: "bf-bundle-2.9.0-90_24.10_ubuntu-22.04_prod" is the pinned
    "2.9.0-90".
    """
    return running is not None and is_same_version("bfb", running, wanted)


def _failed(node: Node, step: Step, detail: str) -> Blocker:
    return Blocker(
        reason=Reason.UPDATE_FAILED,
        subject=f"{node.id}/{step.component}/{'+'.join(step.slots)}",
        detail=detail,
        unblock="Look at the task's messages and the component's event log, then retry the node.",
    )
