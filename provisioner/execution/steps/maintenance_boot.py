"""A stay in the maintenance image: off, boot it, wait for its agent; later boot from disk again.

Only a node that is proved to be fenced is booted so. Every act is absolute and observes first, so a
stay may be entered again after a crash at any point: rows of the ledger record its progress, and
the agent's answer proves its presence. The rows carry `visit`, so that no other stay takes them up.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from provisioner.adapters.redfish.client import Redfish
from provisioner.execution.actions.hold import Hold
from provisioner.execution.actions.once import Act, Sent, Snapshot, blocked
from provisioner.execution.actions.work import Site, Work, do_work
from provisioner.execution.observe.inband import describe_console
from provisioner.execution.steps.activations import pace_of, power_off
from provisioner.execution.steps.agent_steps import (
    boot_disk,
    boot_image,
    find_last,
    find_open,
    identify_agent,
    list_addresses,
    make_unavailable_blocker,
    run_command,
    without_token,
)
from provisioner.execution.steps.board_proof import prove_board
from provisioner.execution.steps.methods_redfish import require_offer
from provisioner.execution.steps.quiet import check_quiet
from provisioner.model.events.event import Event
from provisioner.model.events.node_events import BoardTpmRead
from provisioner.model.inventory import Inventory, Power
from provisioner.model.matrix import Pin
from provisioner.model.node import BmcRef, Boots, Node, Placement
from provisioner.model.operation import ActionStatus, LedgerEntry
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.path.history import OPEN
from provisioner.ports import AgentAddress, PortError
from provisioner.settings.maintenance import BY_SITE

OFF = "maintenance off"
BOOT = "maintenance boot"
LEAVE = "boot from disk"


@dataclass
class Stay:
    """One driver's stay with one node. `node` is as it is stored now."""

    site: Site
    hold: Hold
    node: Node
    inventory: Inventory
    since: float = 0.0  # the host must have booted the image after this, besides after the fence

    async def enter_image(self) -> AgentAddress | Blocker:
        """Return the agent of this stay's boot; the image is booted if it does not run.

        A host that came out of a tenant's network is off first, whatever becomes of the image: no
        system of a former tenant runs in the maintenance network.
        """
        assert self.node.placement is Placement.MAINTENANCE, self.node.id
        image = self.site.image
        lacking = find_image_fault(image, production=self.site.settings.production)
        try:
            rows = await self.hold.list_entries()
            usable = image is not None and not lacking
            if usable and self._is_in(rows) and (agent := await self._agent(rows)) is not None:
                return agent
            if not usable and not self.node.served:
                return make_unavailable_blocker(
                    self.node, lacking
                )  # what runs there is no tenant's
            host = await self.site.reach.redfish(self.node, "host")
            if isinstance(host, Blocker):
                return host
            if (stuck := await self._keep_off(rows, host)) is not None:
                return stuck
            if image is None or lacking:
                return make_unavailable_blocker(self.node, lacking)
            return await self._boot_image(await self.hold.list_entries(), image, host)
        except PortError as error:
            return blocked(error, f"{self.node.id}/maintenance")

    async def mark_boots(self, boots: Boots) -> None:
        """Record the system that the host runs from now on, before it is started."""
        if self.node.boots is not boots:
            await self._record({"boots": boots})

    async def replace_bmc(self, bmc: BmcRef, events: Sequence[Event]) -> None:
        """Store another pin or login of one BMC of the node."""
        refs = tuple(bmc if b.name == bmc.name else b for b in self.node.bmcs)
        await self._record({"bmcs": refs}, events)

    async def _record(self, changes: Mapping[str, Any], events: Sequence[Event] = ()) -> None:
        stored = await self.hold.record(node=self.node.model_copy(update=changes), events=events)
        assert stored is not None
        self.node = stored.model_copy(
            update={"placement": self.node.placement, "vrf": self.node.vrf}
        )

    def off_row(self, rows: Sequence[LedgerEntry]) -> LedgerEntry | None:
        """The row that proves that power was away in this stay: after the node was fenced."""
        row = find_last(rows, OFF)
        if row is None or row.status is not ActionStatus.CONFIRMED:
            return None
        return row if row.intended_at >= max(self.node.fenced_at, self.since) else None

    async def leave_image(
        self, arrived: Callable[[], Awaitable[Blocker | None]], more: Mapping[str, Any]
    ) -> Blocker | None:
        """Boot from disk; `arrived` says whether the right system runs (None: it does).

        `more` is kept with the row: the step that this boot is a part of.
        """
        try:
            host = await self.site.reach.redfish(self.node, "host")
            if isinstance(host, Blocker):
                return host
            work = self._leave(host, arrived, more)
            rows = await self.hold.list_entries()
            entry = find_open(rows, LEAVE) if self.is_leaving(rows) else None
            problem = await do_work(self.site, self.hold, work, entry)
        except PortError as error:
            return blocked(error, f"{self.node.id}/maintenance")
        if problem is None:
            await self.mark_boots(Boots.SYSTEM)
        return problem

    def is_leaving(self, rows: Sequence[LedgerEntry]) -> bool:
        """Return whether a predecessor was about to boot from disk, and did not see its end."""
        leave_row = find_open(rows, LEAVE)
        boot = find_last(rows, BOOT)
        return leave_row is not None and (boot is None or leave_row.intended_at > boot.intended_at)

    def has_left(self, rows: Sequence[LedgerEntry]) -> bool:
        """Whether a predecessor saw the boot from disk to its end, but did not mark the node."""
        leave_row = find_last(rows, LEAVE)
        boot = find_last(rows, BOOT)
        if leave_row is None or leave_row.status is not ActionStatus.CONFIRMED:
            return False
        newest = boot is None or leave_row.intended_at > boot.intended_at
        return newest and self.node.boots is not Boots.SYSTEM

    # --- booting

    async def _current(self, rows: Sequence[LedgerEntry], action: str) -> LedgerEntry | None:
        """Return the open row of this stay; one that an earlier stay left is given up."""
        row = find_open(rows, action)
        if row is None or row.before.get("visit") == self.node.fenced_at:
            return row
        await self.hold.settle_entry(row, ActionStatus.ABSENT, outcome="given up: a new stay began")
        return None

    def _is_in(self, rows: Sequence[LedgerEntry]) -> bool:
        """Return whether the last boot of this stay was into the image."""
        off = self.off_row(rows)
        boot = find_last(rows, BOOT)
        leave_row = find_last(rows, LEAVE)
        if off is None or boot is None or boot.status is not ActionStatus.CONFIRMED:
            return False
        return boot.intended_at >= off.settled_at and (
            leave_row is None or leave_row.intended_at < boot.intended_at
        )

    async def _agent(self, rows: Sequence[LedgerEntry]) -> AgentAddress | None:
        """Return the agent, given time to be heard again; longer while something may be written."""
        under_way = any("visit" in r.before and r.status in OPEN for r in rows)
        settings = self.site.settings
        limit_s = settings.boot_limit_s if under_way else settings.agent_heartbeat_s
        return await self.site.agents.wait(self.node.id, limit_s)

    async def _keep_off(self, rows: Sequence[LedgerEntry], host: Redfish) -> Blocker | None:
        """Switch the host off, unless a boot of the image is under way; why it is not off."""
        booting = await self._current(rows, BOOT)
        off = self.off_row(rows)
        if booting is not None and off is not None:
            return None
        if self.node.boots in (Boots.SYSTEM, Boots.HANDED_OVER):
            await self.mark_boots(Boots.RAMDISK)
        if off is not None and self._waits_for_boot(rows, off) and await host.power() is Power.OFF:
            return None  # a predecessor came so far, and could not boot the image
        turning = await self._current(rows, OFF)
        return await do_work(self.site, self.hold, self._off(host), turning)

    def _waits_for_boot(self, rows: Sequence[LedgerEntry], off: LedgerEntry) -> bool:
        """Return whether nothing was booted since the host was switched off in this stay."""
        since = [r for r in rows if r.action in (BOOT, LEAVE) and r.intended_at >= off.intended_at]
        return not since

    async def _boot_image(
        self, rows: Sequence[LedgerEntry], image: Pin, host: Redfish
    ) -> AgentAddress | Blocker:
        files = self.site.artifacts
        ready = files.offer_file if find_open(rows, BOOT) is None else files.renew_offer
        if (
            blocker := await ready(image.artifact, image.sha256) or self._exhausted(rows)
        ) is not None:
            return blocker
        booting = await self._current(rows, BOOT)
        boot = require_offer(
            self.site, self._boot(host, image.artifact), image.artifact, image.sha256
        )
        problem = await do_work(self.site, self.hold, boot, booting)
        if problem is not None:
            return problem
        agent = await self.site.agents.present(self.node.id)
        return agent if agent is not None else await self._silent()

    def _exhausted(self, rows: Sequence[LedgerEntry]) -> Blocker | None:
        """Return the blocker of a boot that failed as often as this operation allows: a person is
        needed.
        """
        failed = [
            r
            for r in rows
            if r.action == BOOT
            and r.operation == self.hold.operation.id
            and r.status is ActionStatus.FAILED
        ]
        if len(failed) < self.site.settings.attempts_max:
            return None
        return Blocker(
            reason=Reason.ATTEMPTS_EXHAUSTED,
            subject=f"{self.node.id}/maintenance",
            detail=f"{len(failed)} boots of the maintenance image failed: {failed[-1].outcome}",
            unblock="Look at the host's console while it boots the image, then retry the node.",
        )

    def _off(self, host: Redfish) -> Work:
        off_s = self.site.settings.memory_off_s

        async def look() -> Snapshot | Blocker:
            written = await check_quiet(self.site, self.node)
            return written if written is not None else {"power": str(await host.power())}

        async def send() -> Sent | Blocker:
            refused = await power_off(self.site, self.node, host)
            return refused if refused is not None else Sent()

        async def finish(_entry: LedgerEntry) -> Blocker | None:
            if (stuck := await power_off(self.site, self.node, host)) is not None:
                return stuck
            await self.site.clock.sleep(off_s)
            if await host.power() is Power.OFF:
                return None
            return Blocker(
                reason=Reason.POWER,
                subject=f"{self.node.id}/host",
                detail=f"it did not stay off for {off_s:.0f} s",
                unblock="Look who switches it on, then retry the node.",
            )

        return self._work(OFF, look, send, finish, {"off_s": off_s})

    async def _open_window(self, macs: Sequence[str], limit_s: float, name: str) -> str | Blocker:
        """Expect the agent of this boot; return where the BMC fetches its image, with the token in
        it.

        An image without a slot, or one from an outside server, carries no token: then it is not
        booted, unless the site lets the first lookup with an address of this node get it.
        """
        agents = self.site.agents
        files = self.site.artifacts
        fetched = self.site.settings.maintenance_boot not in BY_SITE
        through_boot = fetched and await files.takes_token(name)
        if not through_boot and not agents.lookup_gives_token:
            return without_token(self.node, name)
        token = await agents.expect(self.node.id, macs, limit_s, through_boot=through_boot)
        return files.pull_url(name) if token is None else files.boot_url(self.node.id, name, token)

    def _boot(self, host: Redfish, name: str) -> Work:
        settings = self.site.settings

        async def look() -> Snapshot | Blocker:
            return {"agent": identify_agent(await self.site.agents.present(self.node.id))}

        async def send() -> Sent | Blocker:
            macs = await list_addresses(self.node, self.inventory, host)
            if not macs:
                return make_unavailable_blocker(
                    self.node, "no address of its network cards is known"
                )
            limit_s = settings.maintenance_boot_limit_s + settings.power_limit_s
            address = await self._open_window(macs, limit_s, name)
            if isinstance(address, Blocker):
                return address
            way = settings.maintenance_boot
            refused = await boot_image(host, pace_of(self.site, self.node), address, way)
            return refused if refused is not None else Sent()

        async def finish(_entry: LedgerEntry) -> Blocker | None:
            agent = await self.site.agents.wait(self.node.id, settings.maintenance_boot_limit_s)
            if agent is None:
                return await self._silent()
            self.site.artifacts.boots.withdraw_ticket(self.node.id)  # it runs from memory now
            return await self._prove_board(agent)

        image = self.site.artifacts.pull_url(name)
        return self._work(BOOT, look, send, finish, {"image": image})

    async def _prove_board(self, agent: AgentAddress) -> Blocker | None:
        """Return why the agent is not that of this board; a TPM that is proved is enrolled."""
        tpm = await prove_board(self.site, self.hold, self.node, agent)
        if isinstance(tpm, Blocker) or tpm is None:
            return tpm
        read = BoardTpmRead(key=tpm.key_sha256, maker=tpm.maker, contradiction=tpm.contradiction)
        await self._record({"tpm": tpm}, [read])
        return None

    def _leave(
        self,
        host: Redfish,
        arrived: Callable[[], Awaitable[Blocker | None]],
        more: Mapping[str, Any],
    ) -> Work:
        settings = self.site.settings

        async def look() -> Snapshot | Blocker:
            return {"arrived": await arrived() is None}

        async def send() -> Sent | Blocker:
            agent = await self.site.agents.present(self.node.id)
            # cached data is flushed to the disk; then the agent's token is void
            if agent is not None:
                limit_s = settings.agent_step_limit_s
                synced = await run_command(self.site, self.node, agent, "standby.sync", {}, limit_s)
                if isinstance(synced, Blocker):
                    return synced
            await self.site.agents.dismiss(self.node.id)
            refused = await boot_disk(host, pace_of(self.site, self.node))
            return refused or Sent()

        async def finish(_entry: LedgerEntry) -> Blocker | None:
            until = self.site.clock.now() + settings.boot_limit_s
            while (problem := await arrived()) is not None:
                if self.site.clock.now() > until:
                    return problem
                await self.site.clock.sleep(settings.poll_s)
            return None

        return self._work(
            LEAVE, look, send, finish, more, lambda _before, now: bool(now["arrived"])
        )

    def _work(
        self,
        name: str,
        look: Callable[[], Awaitable[Snapshot | Blocker]],
        send: Callable[[], Awaitable[Sent | Blocker]],
        finish: Callable[[LedgerEntry], Awaitable[Blocker | None]],
        more: Mapping[str, Any],
        happened: Callable[[Snapshot, Snapshot], bool | None] | None = None,
    ) -> Work:
        """An absolute act: unless it surely happened it is repeated, and this is harmless."""
        act = Act(
            name=name,
            before={"visit": self.node.fenced_at, **more},
            look=look,
            send=send,
            happened=happened or (lambda _before, _now: False),
            request_max_s=2 * self.site.settings.power_limit_s,
            destroys=None,
        )
        return Work(act=act, finish=finish)

    async def _silent(self) -> Blocker:
        limit_s = self.site.settings.maintenance_boot_limit_s
        console = await describe_console(self.site, self.node)
        return Blocker(
            reason=Reason.UNREACHABLE,
            subject=f"{self.node.id}/maintenance",
            detail=f"the agent of the maintenance image did not call within {limit_s:.0f} s"
            f"{console}",
            unblock="Look at the host's console: does it boot the image, and reach the daemon?",
        )


def find_image_fault(image: Pin | None, *, production: bool) -> str:
    """Why this image may not be booted; "": it may. Production boots none of unpinned bytes."""
    if image is None or not image.known or not image.artifact:
        return "the matrix pins no maintenance image"
    if production and not image.sha256:
        return "the matrix pins no SHA-256 of the maintenance image"
    return ""
