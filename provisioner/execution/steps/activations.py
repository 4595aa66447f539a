"""Resets, which activate staged versions. Each act is absolute: off is observed, then on.

No reset begins while a file is written or copied anywhere on the node. Afterwards every version
that the reset was for is read again, and must be running.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

from provisioner import components
from provisioner.adapters.redfish.client import Redfish
from provisioner.execution.actions.once import Act, Sent, Snapshot
from provisioner.execution.actions.pacing import grow_waits
from provisioner.execution.actions.power import (
    Feeds,
    Pace,
    check_feeds,
    cycle_outlets,
    cycle_standby,
    find_leak,
    restore_outlets,
    switch_off,
    switch_on,
)
from provisioner.execution.actions.work import Site, Work
from provisioner.execution.observe.inband import boot_id, describe_console, restart_system
from provisioner.execution.steps import methods_switch
from provisioner.execution.steps.methods_inband import make_play_blocker, run_play
from provisioner.execution.steps.quiet import check_quiet, read_versions, wait_until_settled
from provisioner.model.inventory import Activation, Inventory, Power
from provisioner.model.location import Outlet
from provisioner.model.node import Node
from provisioner.model.operation import ActionStatus, LedgerEntry
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.plan import Step
from provisioner.model.versions import is_same_version


async def build_work(site: Site, node: Node, step: Step, inventory: Inventory) -> Work | Blocker:
    """Return the work of one activation step; `inventory` says where its cards are."""
    match step.activation:
        case Activation.IMAGE_REBOOT:
            return await methods_switch.boot_image(site, node, step)
        case Activation.BMC_RESET:
            return await _bmc_reset(site, node, step)
        case Activation.COLD_BOOT:
            return await _host_reset(site, node, step, _cold_boot)
        case Activation.AC_CYCLE:
            return await _host_reset(site, node, step, cycle_ac_power)
        case Activation.WARM_REBOOT:
            return await _host_reset(site, node, step, _warm_reboot)
        case Activation.NIC_RESET:
            slots = {name.partition("/")[2] for name, _ in step.activates}
            cards = sorted(d.pci for d in inventory.devices if d.pci and d.slot in slots)
            return await _host_reset(site, node, step, partial(_nic_reset, cards))
    return Blocker(
        reason=Reason.NOT_OFFERED,
        subject=node.id,
        detail=f"there is no reset for {step.activation}",
        unblock="Correct `activates_by` of the edge in the matrix.",
    )


async def _cold_boot(site: Site, node: Node, host: Redfish) -> Blocker | None:
    """Power off, observed; power on, observed. Safe to repeat from any point."""
    if (stuck := await power_off(site, node, host)) is not None:
        return stuck
    return await power_on(site, node, host)


async def cycle_ac_power(site: Site, node: Node, host: Redfish) -> Blocker | None:
    """Remove standby power and restore it: by the vendor's own action, else by the outlets."""
    returned = partial(
        wait_until_settled, site, node, site.settings.bmc_return_limit_s, names=("host",)
    )
    pace = pace_of(site, node)
    if (feeds := await choose_feeds(site, node, host)) is not None:
        return await cycle_outlets(feeds, node, host, pace, site.settings, returned)
    return await cycle_standby(host, pace, returned)


async def choose_feeds(site: Site, node: Node, host: Redfish) -> Feeds | None:
    """Return the site's PDUs if this host is cycled by its outlets: its BMC has no such action."""
    if site.feeds is None or not node.outlets:
        return None
    offered = await host.find_ac_cycle()
    unable = isinstance(offered, Blocker) and offered.reason is Reason.NOT_OFFERED
    return site.feeds if unable else None


async def look_at_feeds(site: Site, node: Node, host: Redfish) -> Snapshot | Blocker:
    """Return the outlets that the step will switch, for the ledger, or why it must not."""
    feeds = await choose_feeds(site, node, host)
    if feeds is None:
        return {}
    refused = await check_feeds(feeds, node, host)
    return refused if refused is not None else {"outlets": [o.model_dump() for o in node.outlets]}


def find_cut_outlets(entry: LedgerEntry) -> tuple[Outlet, ...]:
    """Return the outlets that an open intent may have switched off."""
    if entry.status is not ActionStatus.INTENDED:
        return ()
    listed = entry.before.get("seen", {}).get("outlets", ())
    return tuple(Outlet.model_validate(o) for o in listed)


async def restore_power(site: Site, node: Node, entry: LedgerEntry) -> Blocker | None:
    """Give a host its power back that an interrupted step took, and switch the host on.

    Nothing can be read before: neither the BMC without power, nor a DGX's tray while it is off.
    Only outlets that the intent names are switched; a person may have switched off others.
    """
    assert site.feeds is not None, "only a site with feeds writes such an intent"
    outlets = find_cut_outlets(entry)
    pace = pace_of(site, node)
    missing = sorted({o.pdu for o in outlets} - set(site.feeds.pdus))
    if missing:
        return Blocker(
            reason=Reason.NOT_OFFERED,
            subject=pace.subject,
            detail=f"its outlets may be off, and `pdus` has no {missing[0]} any more",
            unblock=f"Switch {', '.join(map(str, outlets))} on, or give the PDU in the settings.",
        )
    by_itself = "Then the daemon switches these outlets on."
    if (wet := await find_leak(site.feeds, node.id, outlets, by_itself)) is not None:
        return wet
    if (off := await restore_outlets(site.feeds, outlets, pace, site.settings)) is not None:
        return off
    limit_s = site.settings.bmc_return_limit_s
    if (silent := await wait_until_settled(site, node, limit_s, names=("host",))) is not None:
        return silent
    host = await site.reach.redfish(node, "host")
    return host if isinstance(host, Blocker) else await switch_on(host, pace)


async def power_off(site: Site, node: Node, host: Redfish) -> Blocker | None:
    """Switch the host off, and observe that it is off. Safe to repeat."""
    return await switch_off(host, pace_of(site, node))


async def power_on(site: Site, node: Node, host: Redfish) -> Blocker | None:
    """Switch the host on, and observe that it is on. Safe to repeat."""
    return await switch_on(host, pace_of(site, node))


def pace_of(site: Site, node: Node) -> Pace:
    """Return the clock and the limits of power requests to a node's host."""
    limits = site.settings
    return Pace(site.clock, limits.poll_s, limits.power_limit_s, f"{node.id}/host")


async def _warm_reboot(site: Site, node: Node, host: Redfish) -> Blocker | None:
    return await restart_system(site, node)


async def _nic_reset(
    cards: Sequence[str], site: Site, node: Node, _host: Redfish
) -> Blocker | None:
    """Run mlxfwreset, from the host, on the cards with a pending activation
    (docs/sources/host.md#mlxfwreset).
    """
    return make_play_blocker(
        node, "nic_reset", await run_play(site, node, "nic_reset", {"devices": list(cards)})
    )


HostReset = Callable[[Site, Node, Redfish], Awaitable[Blocker | None]]


async def _host_reset(site: Site, node: Node, step: Step, reset: HostReset) -> Work | Blocker:
    """Return a reset that ends with the host's system up again, under a new boot id."""
    host = await site.reach.redfish(node, "host")
    if isinstance(host, Blocker):
        return host
    booted = step.activation is not Activation.NIC_RESET
    cuts_power = step.activation is Activation.AC_CYCLE
    limits = site.settings

    async def look() -> Snapshot | Blocker:
        if (written := await check_quiet(site, node)) is not None:
            return written
        feeds = await look_at_feeds(site, node, host) if cuts_power else {}
        if isinstance(feeds, Blocker):
            return feeds
        return {**await _boot_seen(site, node, host), **feeds}

    async def send() -> Sent | Blocker:
        refused = await host.admit_act() or await reset(site, node, host)
        return refused if refused is not None else Sent()

    async def finish(entry: LedgerEntry) -> Blocker | None:
        before = entry.before.get("seen", {}).get("boot_id")
        if booted and (dead := await _booted(site, node, before)) is not None:
            return dead
        if (
            silent := await wait_until_settled(site, node, site.settings.bmc_return_limit_s)
        ) is not None:
            return silent
        return await verify_activation(site, node, step)

    return Work(
        act=Act(
            name=f"{step.activation} {node.id}",
            before={"step": step.model_dump(mode="json")},
            look=look,
            send=send,
            # a host that is off was not started again yet: going on from there is not repeating
            happened=lambda before, now: bool(
                now.get("boot_id") and now.get("boot_id") != before.get("boot_id")
            ),
            request_max_s=4 * limits.power_limit_s
            + limits.bmc_return_limit_s
            + (limits.outlets_off_s + limits.outlets_silence_limit_s if cuts_power else 0.0),
            destroys=None,
        ),
        finish=finish,
    )


async def _boot_seen(site: Site, node: Node, host: Redfish) -> Snapshot:
    """Return the boot that runs now. A host that is on but silent is booting: it is waited for."""
    if await host.power() is Power.OFF:
        return {"boot_id": None, "power": "Off"}
    until = site.clock.now() + site.settings.boot_limit_s
    while (boot := await boot_id(site, node)) is None and site.clock.now() < until:
        await site.clock.sleep(site.settings.poll_s)
    return {"boot_id": boot, "power": "On"}


async def _booted(site: Site, node: Node, before: str | None) -> Blocker | None:
    until = site.clock.now() + site.settings.boot_limit_s
    waits = grow_waits(site.settings.poll_s)
    while site.clock.now() < until:
        await site.clock.sleep(next(waits))
        now = await boot_id(site, node)
        if now is not None and now != before:
            return None
    console = await describe_console(site, node)
    return Blocker(
        reason=Reason.UNREACHABLE,
        subject=f"{node.id}/host",
        detail=f"its system did not come up within {site.settings.boot_limit_s:.0f} s{console}",
        unblock="Look at the host's console.",
    )


async def _bmc_reset(site: Site, node: Node, step: Step) -> Work | Blocker:
    """Restart the BMCs that own the staged versions; repeating it is harmless while all is
    quiet.
    """

    async def look() -> Snapshot | Blocker:
        written = await check_quiet(site, node)
        return (
            written if written is not None else {"versions": await read_versions(site, node, step)}
        )

    async def send() -> Sent | Blocker:
        for name in step.bmcs:
            client = await site.reach.redfish(node, name)
            if isinstance(client, Blocker):
                return client
            if (refused := await client.reset_bmc()) is not None:
                return refused
        return Sent()

    async def finish(_entry: LedgerEntry) -> Blocker | None:
        # a BMC answers for some seconds after it took the request
        await site.clock.sleep(site.settings.poll_s)
        if (
            silent := await wait_until_settled(site, node, site.settings.bmc_return_limit_s)
        ) is not None:
            return silent
        return await verify_activation(site, node, step)

    activated = dict(step.activates)
    return Work(
        act=Act(
            name=f"bmc_reset {node.id} {' '.join(step.bmcs)}",
            before={"step": step.model_dump(mode="json")},
            look=look,
            send=send,
            happened=lambda _before, now: all(
                now.get("versions", {}).get(k) == v for k, v in activated.items()
            ),
            destroys=None,
        ),
        finish=finish,
    )


async def verify_activation(site: Site, node: Node, step: Step) -> Blocker | None:
    """Return the blocker unless the devices report that every activated version runs."""
    versions = await read_versions(site, node, step)
    wrong = [
        f"{name} runs {versions[name]}, not {version}"
        for name, version in step.activates
        if name in versions and not _same(name, versions[name], version)
    ]
    if not wrong:
        return None
    return Blocker(
        reason=Reason.NOT_ACTIVATED,
        subject=f"{node.id}/{wrong[0].split()[0]}",
        detail=f"after {step.activation}: {'; '.join(wrong[:3])}",
        unblock="Look at the component's event log; the matrix may name too weak a reset.",
    )


def _same(name: str, found: str | None, wanted: str) -> bool:
    """Whether two versions are equal in the component's own grammar; an unreadable one never is."""
    kind = components.ALL.get(name.partition("/")[0])
    return found is not None and is_same_version(kind.grammar if kind else "opaque", found, wanted)


# ------------------------------------------------------------------------------
# Resets of a host that has no system of its own: they end with its BMC, not with a boot.
#
# Between two tenants nothing is on the drives, so that no system comes up which could prove a
# reset. The boot of the maintenance image follows, and proves it.


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
