"""Settings of BIOS and BMC: written through Redfish, proved by reading.

BIOS settings wait for a boot, which the plan merges with other activations; they are done when
they wait, and run when the reading after the boot shows it. BMC settings act at once, and are read
again before the step ends. A write that was cut off is sent again: both are the same whoever
carries them out, and what waits or runs already is not sent.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from provisioner.adapters.redfish.client import Redfish
from provisioner.adapters.redfish.settings.bios_writes import set_bios
from provisioner.adapters.redfish.settings.bmc_writes import set_bmc
from provisioner.adapters.redfish.settings.card_writes import set_card
from provisioner.adapters.redfish.settings.reading import read_host_settings
from provisioner.execution.actions.once import Act, Sent, Snapshot
from provisioner.execution.actions.work import Site, Work
from provisioner.execution.steps.methods_switch_settings import (
    SWITCH_METHOD,
    write_switch_settings,
)
from provisioner.model.node import Node
from provisioner.model.operation import LedgerEntry
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.plan import Step
from provisioner.planning.machine_settings.pinned_sets import BIOS, CARD, DPU, SUPERNIC
from provisioner.planning.machine_settings.running_sets import build_components

SETTINGS_METHODS = frozenset(
    {"redfish_bios_settings", "redfish_bmc_settings", "redfish_card_settings", SWITCH_METHOD}
)
_OF_CARDS = (CARD, DPU, SUPERNIC)


async def write_settings(site: Site, node: Node, step: Step) -> Work | Blocker:
    """Return the work that writes one set."""
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
