"""Looks before and after resets: nothing is being written, every BMC answers steadily."""

from __future__ import annotations

import asyncio

from provisioner.adapters.redfish.service import raise_silence
from provisioner.execution.actions.once import blocked
from provisioner.execution.actions.work import Site
from provisioner.execution.observe.collector import add_settings
from provisioner.model.inventory import BackgroundCopy
from provisioner.model.node import Node
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.plan import Step
from provisioner.planning.machine_settings.pinned_sets import BIOS, SUPERNIC, find_card_kind
from provisioner.ports import PortError


async def check_quiet(site: Site, node: Node) -> Blocker | None:
    """Return None if no BMC of this node has a running task, and no background copy runs."""
    answers = await asyncio.gather(*(_quiet(site, node, bmc.name) for bmc in node.bmcs))
    return next((f for f in answers if f is not None), None)


async def _quiet(site: Site, node: Node, name: str) -> Blocker | None:
    try:
        client = await site.reach.redfish(node, name)
        if isinstance(client, Blocker):
            return client
        running = await client.read_tasks()
        inventory = await client.read_firmware(node.id, name)
        raise_silence(inventory.gaps)  # a root of trust that was not read may be copying
    except PortError as error:
        return blocked(error, f"{node.id}/{name}")
    copying = [
        f"{c.kind}/{c.slot}"
        for c in inventory.components
        if c.background_copy not in (None, BackgroundCopy.COMPLETED)
    ]
    if not running and not copying:
        return None
    obstacle = f"task {running[0]}" if running else f"background copy of {copying[0]}"
    return Blocker(
        reason=Reason.BUSY,
        subject=f"{node.id}/{name}",
        detail=f"a reset must wait for {obstacle}",
        unblock="It goes on by itself when the device is quiet.",
    )


async def wait_until_settled(
    site: Site, node: Node, limit_s: float, names: tuple[str, ...] = ()
) -> Blocker | None:
    """Wait until BMCs served their trees several times in a row (docs/sources/bmc-faults.md#u12).

    `names`: which BMCs; all of the node's if none is named.
    """
    chosen = names or tuple(b.name for b in node.bmcs)
    answers = await asyncio.gather(*(_settled(site, node, name, limit_s) for name in chosen))
    return next((f for f in answers if f is not None), None)


async def _settled(site: Site, node: Node, name: str, limit_s: float) -> Blocker | None:
    until = site.clock.now() + limit_s
    good = 0
    last = "its tree is not complete"
    while good < site.settings.good_reads_wanted:
        if site.clock.now() > until:
            return Blocker(
                reason=Reason.UNREACHABLE,
                subject=f"{node.id}/{name}",
                detail=f"the BMC did not settle within {limit_s:.0f} s: {last}",
                unblock="Look at the BMC; it may need a power cycle.",
            )
        try:
            client = await site.reach.redfish(node, name)
            if isinstance(client, Blocker):
                return client
            good = good + 1 if await client.serves_tree() else 0
        except PortError as error:
            good = 0
            last = str(error)
        if good < site.settings.good_reads_wanted:
            await site.clock.sleep(site.settings.poll_s / 2)
    return None


async def read_versions(site: Site, node: Node, step: Step) -> dict[str, str | None]:
    """Return the running versions that a reset activates, by "kind/slot", as the BMCs report them
    now.

    Versions that only the host itself shows are not included: the next inventory reads them.
    """
    activated = {name for name, _ in step.activates}
    versions: dict[str, str | None] = {}
    for bmc in node.bmcs:
        if bmc.kind == "supernic" and not any(n.startswith(SUPERNIC) for n in activated):
            continue
        client = await site.reach.redfish(node, bmc.name)
        if isinstance(client, Blocker):
            continue
        inventory = await client.read_firmware(node.id, bmc.name)
        kind = BIOS if bmc.kind == "host" else find_card_kind(bmc.name)
        if any(name.startswith(kind) for name in activated):
            inventory = await add_settings(client, inventory, site.machine_sets, bmc.name)
        for component in inventory.components:
            slot = component.slot if bmc.kind == "host" else bmc.name
            if (name := f"{component.kind}/{slot}") in activated:
                versions[name] = component.version
    return versions
