"""Updates that run inside the host: packages, NIC firmware, NIC configuration.

Plays are idempotent (a second run changes nothing), so a lost answer is settled by running again.
But a run outlives the daemon, and a task outlives the run: first the runner is asked what became
of it, then the host whether anything is still at work in it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from provisioner.execution.actions.once import Act, Sent, Snapshot
from provisioner.execution.actions.work import Site, Work
from provisioner.execution.observe.inband import run_commands, until_quiet
from provisioner.model.host_packages import OFED_MIGRATION
from provisioner.model.inventory import DeviceKind, Inventory
from provisioner.model.location import list_rail_paths
from provisioner.model.machine.settings import split_version
from provisioner.model.node import Node
from provisioner.model.operation import LedgerEntry
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.plan import Step
from provisioner.planning.certification.host_settings import (
    find_differences,
    list_packages,
    list_rail_links,
    list_services,
    write_netplan,
)
from provisioner.planning.intake.host_tools import HOST_LOOK as LOOK
from provisioner.planning.intake.host_tools import build_look, read_facts
from provisioner.planning.lifecycle.destruction import Destruction
from provisioner.planning.path.activation import AT_ONCE
from provisioner.ports import PlaybookCall, PlaybookResult, Unreachable

_STATUS = {
    "failed": (Reason.PLAYBOOK_FAILED, "Look at the host's log and the play's message."),
    "unreachable": (Reason.UNREACHABLE, "It is tried again by itself; check the host's network."),
    "timeout": (Reason.UPDATE_STALLED, "Look at the host: the play did not end in time."),
    "unknown": (Reason.CANNOT_TELL, "It is looked at by itself; nothing is repeated before."),
}
DRIVE_FIRMWARE = "playbook_drive_firmware"
_UNSURE = ("timeout", "unknown", "unreachable")  # something may still be at work in the host


async def run_play(
    site: Site, node: Node, name: str, variables: Mapping[str, Any]
) -> PlaybookResult:
    return await site.runner.run(_call(site, node, name, variables))


def _call(site: Site, node: Node, name: str, variables: Mapping[str, Any]) -> PlaybookCall:
    return PlaybookCall(
        play=name,
        host=node.id,
        address=node.address,
        variables=variables,
        timeout_s=site.settings.playbook_limit_s,
    )


def make_play_blocker(node: Node, name: str, result: PlaybookResult) -> Blocker | None:
    """Return the blocker of a play that failed; None if it succeeded."""
    if result.status == "ok":
        return None
    reason, unblock = _STATUS.get(result.status, _STATUS["failed"])
    return Blocker(
        reason=reason, subject=f"{node.id}/{name}", detail=result.detail, unblock=unblock
    )


def install_software(site: Site, node: Node, step: Step) -> Work:
    """Install one package set (driver and Fabric Manager go together: step.carries)."""
    packages = {step.component: step.to_version, **dict(step.carries)}
    variables: dict[str, Any] = {"packages": packages}
    if step.method == OFED_MIGRATION:
        variables["ofed_removal_allowed"] = True
    return _work(site, node, step, "host_software", variables, "installed", packages)


def burn_firmware(site: Site, node: Node, step: Step, inventory: Inventory) -> Work | Blocker:
    """Write firmware from inside the host: of drives, else of network cards."""
    if step.method == DRIVE_FIRMWARE:
        return _drive_firmware(site, node, step)
    return _nic_firmware(site, node, step, inventory)


def _nic_firmware(site: Site, node: Node, step: Step, inventory: Inventory) -> Work | Blocker:
    """Burn NIC firmware from the host; it runs after its activation."""
    devices = _pci(inventory, step)
    if isinstance(devices, Blocker):
        return devices
    variables = {
        "devices": list(devices),
        "version": step.to_version,
        "image": step.artifact,
        "sha256": step.sha256,
        "url": site.artifacts.pull_url(step.artifact),
        "again": step.force,
    }
    versions = dict.fromkeys(devices, step.to_version)
    return _work(site, node, step, "nic_firmware", variables, "burned", versions)


def _drive_firmware(site: Site, node: Node, step: Step) -> Work:
    """Write the firmware of NVMe drives of one model; the slots are their serial numbers.

    It runs after the step's activation, or at once where the edge has none.
    """
    model, version = split_version(step.to_version)
    variables = {
        "drives": list(step.slots),
        "model": model,
        "version": version,
        "image": step.artifact,
        "sha256": step.sha256,
        "url": site.artifacts.pull_url(step.artifact),
        "at_once": step.activation in AT_ONCE,
    }
    versions = dict.fromkeys(step.slots, version)
    return _work(site, node, step, "drive_firmware", variables, "written", versions)


def nic_config(
    site: Site, node: Node, step: Step, inventory: Inventory, parameters: Mapping[str, str]
) -> Work | Blocker:
    """Write an NV-config profile; it is current after its activation."""
    devices = _pci(inventory, step)
    if isinstance(devices, Blocker):
        return devices
    variables = {"devices": list(devices), "parameters": dict(parameters)}
    profiles = {device: dict(parameters) for device in devices}
    return _work(site, node, step, "nic_config", variables, "next_boot", profiles)


def set_baseline(
    site: Site, node: Node, step: Step, inventory: Inventory, settings: Mapping[str, str]
) -> Work | Blocker:
    """Set a host's baseline: its rails, RoCE, PCIe, kernel arguments, packages and services."""
    slots = {p.nic_slot for p in node.ports if p.rail >= 0}
    pci = {d.slot: d.pci for d in inventory.devices if d.slot in slots and d.pci}
    if unknown := sorted(slots - set(pci)):
        return _unpaired(node.id, unknown[0])
    links = list_rail_links(node, inventory, site.settings) if "rails" in settings else ()
    rails = sorted(p.rail for p in node.ports if p.rail >= 0)
    if "rails" in settings and len(links) < len(rails):
        return Blocker(
            reason=Reason.PAIRING_FAILED,
            subject=f"{node.id}/{step.component}",
            detail=f"of its rails {rails}, {len(links)} have a planned address and a known card",
            unblock="Correct the ports' addresses, or take the node in again.",
        )
    variables = {
        "settings": dict(settings),
        "packages": list_packages(settings),
        "devices": sorted(str(address) for address in pci.values()),
        "rails": [link.model_dump(mode="json") for link in links],
        "netplan": write_netplan(links),
    }
    work = _work(site, node, step, "host_baseline", variables, "settings", dict(settings))
    devices = [str(address) for address in pci.values()]
    return replace(work, finish=_read_again(site, node, step, settings, devices))


def install_check_tools(
    site: Site, node: Node, step: Step, settings: Mapping[str, str]
) -> Work | Blocker:
    """Install the pinned tools that the checks run, and start their services."""
    packages = list_packages(settings)
    variables = {
        "packages": packages,
        "services": list(list_services(settings)),
        "persistence": False,
        "training": site.settings.fabric_training,
    }
    work = _work(site, node, step, "check_tools", variables, "installed", packages)
    return replace(work, finish=_read_again(site, node, step, settings, ()))


def _read_again(
    site: Site, node: Node, step: Step, settings: Mapping[str, str], devices: Sequence[str]
) -> Callable[[LedgerEntry], Awaitable[Blocker | None]]:
    """Return the reading after a play: what the host itself shows, by other tools than the play's.

    Without it a play that claims more than it did would be planned and run again without end.
    Kernel arguments are in force after the next boot, and read then.
    """
    now = {name: value for name, value in settings.items() if name != "kernel_arguments"}
    to_other_leaf = site.settings.rail_proof == "other_leaf"
    rails = list_rail_paths(node.ports, to_other_leaf=to_other_leaf)
    look = build_look({step.component: {step.to_version: settings}}, rails)

    async def finish(_entry: LedgerEntry) -> Blocker | None:
        outputs = await run_commands(site, node, [look]) if look is not None else {}
        if isinstance(outputs, Blocker):
            return outputs
        text = outputs[LOOK].text if LOOK in outputs else ""
        differing = find_differences(now, read_facts(text, devices, site.settings.rail_mtu))
        if not differing:
            return None
        shown = ", ".join(f"{k} is {v or 'not read'}" for k, v in sorted(differing.items())[:4])
        return Blocker(
            reason=Reason.UPDATE_FAILED,
            subject=f"{node.id}/{step.component}",
            detail=f"the play ended well, but in the host {shown}",
            unblock="Look at the host: something else holds or changes these settings.",
        )

    return finish


def _unpaired(component: str, slot: str) -> Blocker:
    return Blocker(
        reason=Reason.PAIRING_FAILED,
        subject=f"{component}/{slot}",
        detail="its PCI address is not known",
        unblock="Take the node in again, with the host's operating system up.",
    )


def _pci(inventory: Inventory, step: Step) -> tuple[str, ...] | Blocker:
    """Return the PCI addresses of the step's slots, in slot order."""
    cards = {
        d.slot: d.pci
        for d in inventory.devices
        if d.kind in (DeviceKind.NIC, DeviceKind.DPU) and d.pci
    }
    missing = [slot for slot in step.slots if slot not in cards]
    if missing:
        return _unpaired(step.component, missing[0])
    return tuple(str(cards[slot]) for slot in step.slots)


# every play that changes a host, with what it destroys
DESTROYS: Mapping[str, Destruction | None] = {
    "host_software": None,
    "nic_firmware": Destruction.FIRMWARE,
    "drive_firmware": Destruction.FIRMWARE,
    "nic_config": None,
    "host_baseline": None,
    "check_tools": None,
}


def _work(
    site: Site,
    node: Node,
    step: Step,
    name: str,
    variables: Mapping[str, Any],
    fact: str,
    wanted: Mapping[str, Any],
) -> Work:
    async def look() -> Snapshot | Blocker:
        busy = await until_quiet(site, node, site.settings.playbook_limit_s)
        return {} if busy is None else busy

    async def send() -> Sent | Blocker:
        result = await run_play(site, node, name, variables)
        if result.status in _UNSURE:
            raise Unreachable(f"{name}: {result.status}: {result.detail}", maybe_executed=True)
        return judged(result)

    async def recall(since: float) -> Sent | Blocker | None:
        result = await site.runner.recall(_call(site, node, name, variables), since)
        return None if result is None or result.status in _UNSURE else judged(result)

    def judged(result: PlaybookResult) -> Sent | Blocker:
        if (failed := make_play_blocker(node, name, result)) is not None:
            return failed
        facts = result.facts.get(fact)
        if not isinstance(facts, Mapping) or any(facts.get(k) != v for k, v in wanted.items()):
            return Blocker(
                reason=Reason.UPDATE_FAILED,
                subject=f"{node.id}/{step.component}",
                detail=f"the play {name} ended well, but the host shows {facts!r:.200}",
                unblock="Look at the host: something else holds or changes this software.",
            )
        return Sent()

    async def finish(_entry: LedgerEntry) -> Blocker | None:
        return None  # `send` has read the result back

    return Work(
        act=Act(
            name=f"{step.component} {step.to_version}",
            before={"step": step.model_dump(mode="json"), "slots": list(step.slots)},
            look=look,
            send=send,
            happened=lambda _before, _now: False,
            request_max_s=site.settings.playbook_limit_s,
            recall=recall,
            destroys=DESTROYS[name],
        ),
        finish=finish,
    )
