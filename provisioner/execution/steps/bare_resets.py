"""Resets of a host that has no system of its own: they end with its BMC, not with a boot.

Between two tenants nothing is on the drives, so that no system comes up which could prove a reset.
The boot of the maintenance image follows, and proves it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from provisioner.execution.actions.once import Act, Sent, Snapshot
from provisioner.execution.actions.work import Site, Work
from provisioner.execution.steps.activations import choose_feeds, cycle_ac_power, look_at_feeds
from provisioner.execution.steps.quiet import check_quiet, wait_until_settled
from provisioner.model.node import Node
from provisioner.model.operation import LedgerEntry
from provisioner.model.outcome import Blocker


async def explain_no_ac_cycle(site: Site, node: Node) -> str:
    """Return why the host's standby power cannot be removed; "": it can."""
    host = await site.reach.redfish(node, "host")
    if isinstance(host, Blocker):
        return host.detail
    if await choose_feeds(site, node, host) is not None:
        return ""
    offered = await host.find_ac_cycle()
    return offered.detail if isinstance(offered, Blocker) else ""


async def build_bare_cycle(
    site: Site, node: Node, name: str, before: Mapping[str, Any]
) -> Work | Blocker:
    """Return an AC cycle. It is absolute, and repeated where its end is not on record."""
    host = await site.reach.redfish(node, "host")
    if isinstance(host, Blocker):
        return host
    limits = site.settings

    async def look() -> Snapshot | Blocker:
        written = await check_quiet(site, node)
        return written if written is not None else await look_at_feeds(site, node, host)

    async def send() -> Sent | Blocker:
        refused = await host.admit_act() or await cycle_ac_power(site, node, host)
        return refused if refused is not None else Sent()

    async def finish(_entry: LedgerEntry) -> Blocker | None:
        return await wait_until_settled(site, node, limits.bmc_return_limit_s, names=("host",))

    longest_s = 4 * limits.power_limit_s + limits.bmc_return_limit_s
    longest_s += limits.outlets_off_s + limits.outlets_silence_limit_s
    act = Act(
        name=name,
        before=before,
        look=look,
        send=send,
        happened=lambda _before, _now: False,
        request_max_s=longest_s,
        destroys=None,
    )
    return Work(act=act, finish=finish)


async def build_bare_pause(
    site: Site, node: Node, name: str, before: Mapping[str, Any]
) -> Work | Blocker:
    """Return an act that waits until nothing is written: the next boot takes the power away."""

    async def look() -> Snapshot | Blocker:
        written = await check_quiet(site, node)
        return written if written is not None else {}

    async def send() -> Sent | Blocker:
        return Sent()

    async def finish(_entry: LedgerEntry) -> Blocker | None:
        return None

    def repeat(_before: Snapshot, _now: Snapshot) -> bool:
        return False

    act = Act(name=name, before=before, look=look, send=send, happened=repeat, destroys=None)
    return Work(act=act, finish=finish)
