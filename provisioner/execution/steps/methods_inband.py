"""Updates that run inside the host: packages, NIC firmware, NIC configuration.

Plays are idempotent (a second run changes nothing), so a lost answer is settled by running again.
But a run outlives the daemon, and a task outlives the run: first the runner is asked what became
of it, then the host whether anything is still at work in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from provisioner.execution.actions.once import Act, Sent, Snapshot
from provisioner.execution.actions.work import Site, Work
from provisioner.execution.observe.inband import until_quiet
from provisioner.model.inventory import DeviceKind, Inventory
from provisioner.model.node import Node
from provisioner.model.operation import LedgerEntry
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.plan import Step
from provisioner.ports import PlaybookCall, PlaybookResult, Unreachable

_STATUS = {
    "failed": (Reason.PLAYBOOK_FAILED, "Look at the host's log and the play's message."),
    "unreachable": (Reason.UNREACHABLE, "It is tried again by itself; check the host's network."),
    "timeout": (Reason.UPDATE_STALLED, "Look at the host: the play did not end in time."),
    "unknown": (Reason.CANNOT_TELL, "It is looked at by itself; nothing is repeated before."),
}
_UNSURE = ("timeout", "unknown", "unreachable")  # something may still be at work in the host


async def run_play(
    site: Site, node: Node, name: str, variables: Mapping[str, Any]
) -> PlaybookResult:
    """Run one play on one node's host."""
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
    return _work(site, node, step, "host_software", {"packages": packages}, "installed", packages)


def nic_firmware(site: Site, node: Node, step: Step, inventory: Inventory) -> Work | Blocker:
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


def _pci(inventory: Inventory, step: Step) -> tuple[str, ...] | Blocker:
    """Return the PCI addresses of the step's slots, in slot order."""
    cards = {
        d.slot: d.pci
        for d in inventory.devices
        if d.kind in (DeviceKind.NIC, DeviceKind.DPU) and d.pci
    }
    missing = [slot for slot in step.slots if slot not in cards]
    if missing:
        return Blocker(
            reason=Reason.PAIRING_FAILED,
            subject=f"{step.component}/{missing[0]}",
            detail="its PCI address is not known",
            unblock="Take the node in again, with the host's operating system up.",
        )
    return tuple(str(cards[slot]) for slot in step.slots)


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
        ),
        finish=finish,
    )
