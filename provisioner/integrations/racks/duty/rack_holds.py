"""The daemon's loop that keeps nodes held while their rack's update is not proved, and frees them.

What was begun and not proved is told by the campaigns' journals, and by the holds that the store
keeps: whichever of them is lost, the other one keeps the node. Of a campaign that is over, a node
is freed where its domain was never written to, where two whole looks at all of its racks in a row
proved each version (which is then in the journal), or where a person vouches for it. It sends
nothing, and runs also where `racks_update` is off.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from provisioner.integrations.racks.campaign import ActKind, group_units
from provisioner.integrations.racks.campaign_run import Step
from provisioner.integrations.racks.duty.approval import (
    CAMPAIGNS,
    LINES_MAX,
    OVER,
    TEXT_MAX,
    RackCampaign,
    RackCampaignState,
    keep_state,
    list_campaigns,
    read_approval,
    read_state,
    read_vouched,
)
from provisioner.integrations.racks.duty.node_holds import WANT, build_want, find_tenant
from provisioner.integrations.racks.duty.rack_certificate import certify_rack
from provisioner.integrations.racks.duty.rack_duty import RETRY_S, RackDuty
from provisioner.integrations.racks.flash_reading import find_flash
from provisioner.integrations.racks.identity import Kind
from provisioner.integrations.racks.plan import RackPlan, read_plan
from provisioner.integrations.racks.update_log import Line, hold_log, read_log
from provisioner.integrations.racks.update_start import find_unproved, read_rack_units
from provisioner.integrations.racks.update_world import POLL_S, Update
from provisioner.model.input_error import InputError
from provisioner.model.node import Node
from provisioner.model.operation import Operation
from provisioner.ports import DamagedRow, StoreFailed

log = logging.getLogger(__name__)
Unproved = Mapping[str, Sequence[str]]  # trays, by job
_Stamp = tuple[int, int, int] | None


@dataclass(frozen=True)
class _Judged:
    """A campaign, as one look found it. Without an approval it is over, and a word alone frees."""

    campaign: Path
    own: Sequence[Operation]  # its holds
    vouched: Mapping[str, str]
    state: RackCampaign | None = None
    over: bool = True
    unproved: Unproved = field(default_factory=dict)
    keeps: Sequence[Node] = ()
    planned: frozenset[str] = frozenset()  # nodes whose trays the plan has


@dataclass
class RackHolds:
    """One per daemon; it shares holds and logins with the duty of campaigns."""

    duty: RackDuty
    poll_s: float = POLL_S
    _plan: tuple[_Stamp, RackPlan] | None = None
    _unproved: dict[str, tuple[_Stamp, _Stamp, Unproved]] = field(default_factory=dict)
    _proved_once: set[tuple[str, str]] = field(default_factory=set)
    _look_at: dict[str, float] = field(default_factory=dict)  # when a campaign is read (again)
    _said: dict[str, str] = field(default_factory=dict)

    async def run(self) -> None:
        """Look for ever."""
        while True:
            await self.tick()
            await self.duty.parts.clock.sleep(self.poll_s)

    async def tick(self) -> None:
        """Look at each campaign once."""
        folder = Path(self.duty.parts.settings.racks_folder)
        held = await self.duty.holds.list_active()
        known = await asyncio.to_thread(lambda: [one.name for one in list_campaigns(folder)])
        judged: dict[str, _Judged] = {}
        names = sorted({*known, *(o.want.removeprefix(WANT) for o in held.values())})
        for name in names:
            with self._guard(name):
                judged[name] = await self._judge(folder / CAMPAIGNS / name, held)
        self.duty.needs = {n: frozenset(node.id for node in j.keeps) for n, j in judged.items()}
        for name, one in judged.items():
            with self._guard(name):
                await self._settle(one, held, frees=len(judged) == len(names))

    @contextmanager
    def _guard(self, name: str) -> Iterator[None]:
        """Keep what fails with one campaign from the others: its holds stand."""
        try:
            yield
            self._said.pop(name, None)
        except (InputError, OSError, DamagedRow) as error:
            if self._said.get(name) != f"{error}":
                self._said[name] = f"{error}"
                log.error("racks, %s: its holds were not judged: %s", name, error)
        except StoreFailed:
            raise
        except Exception:  # our own bug
            log.exception("racks, %s: its holds were not judged", name)

    async def _judge(self, campaign: Path, held: Mapping[str, Operation]) -> _Judged:
        """Return what is known of a campaign, and which nodes have to be held for it."""
        own = [one for one in held.values() if one.want == build_want(campaign.name)]
        vouched = (await asyncio.to_thread(read_vouched, campaign)).nodes
        if not (campaign / "approved.json").exists():
            return _Judged(campaign, own, vouched)
        if not self.duty.parts.settings.racks_update:
            await self._end_withdrawn(campaign)
        state = await asyncio.to_thread(read_state, campaign)
        over = state is not None and state.state in OVER
        plan = await self._read_plan(campaign.parent.parent / "racks.yaml")
        done = state is not None and state.state is RackCampaignState.DONE
        unproved = {} if done else await self._find_unproved(plan, campaign, held=bool(own))
        trays = {tray for listed in unproved.values() for tray in listed}
        nodes = await self.duty.holds.find_nodes(plan) if own or trays else {}
        keeps = [node for unit, (node, _) in nodes.items() if unit in trays]
        keeps = [node for node in keeps if not (over and node.id in vouched)]
        planned = frozenset(node.id for node, _ in nodes.values())
        return _Judged(campaign, own, vouched, state, over, unproved, keeps, planned)

    async def _settle(self, one: _Judged, held: Mapping[str, Operation], *, frees: bool) -> None:
        """Hold what has to be, and free what nothing speaks against. `frees`: all were judged."""
        holds = self.duty.holds
        name = one.campaign.name
        for node in one.keeps:
            if node.id not in held and not find_tenant(node):
                await holds.hold(node.id, name, firmly=True)
        needed = {each for needs in self.duty.needs.values() for each in needs}
        for own in one.own:
            if not (frees and one.over) or own.node in needed:
                await holds.tell(own)
            elif own.node in one.vouched:
                await holds.end(own, f"a person vouches for it: {one.vouched[own.node]}")
            elif own.node in one.planned:
                await holds.end(own, "nothing unproved is left in its domain")
            else:
                await holds.tell(own)
        if one.keeps and one.state is not None and one.state.state is RackCampaignState.WITHDRAWN:
            await self._prove(one.campaign, one.state, one.unproved)

    async def _end_withdrawn(self, campaign: Path) -> None:
        """Take a withdrawal in where the duty of campaigns, which does so, is switched off."""
        approval = await asyncio.to_thread(read_approval, campaign)
        state = await asyncio.to_thread(read_state, campaign)
        if approval.withdrawn and (state is None or state.state not in OVER):
            await self.duty.withdraw(campaign, approval, state)

    async def _read_plan(self, file: Path) -> RackPlan:
        stamp = await asyncio.to_thread(_read_stamp, file)
        if self._plan is None or self._plan[0] != stamp:
            self._plan = (stamp, await asyncio.to_thread(read_plan, file))
        return self._plan[1]

    async def _find_unproved(self, plan: RackPlan, campaign: Path, *, held: bool) -> Unproved:
        """Return what the journal tells. Raises InputError, also for one that is gone while
        something is `held`: it was written before anything was.
        """
        file = campaign / "journal"
        assert self._plan is not None
        stamps = (self._plan[0], await asyncio.to_thread(_read_stamp, file))
        known = self._unproved.get(campaign.name)
        if known is None or known[:2] != stamps:
            read = await asyncio.to_thread(read_log, file)
            if held and not any(read.list_keys()):
                remedy = "Bring it back; or withdraw the campaign, and `rack vouch`."
                raise InputError(campaign.name, str(file), "its journal is gone", remedy)
            found = await asyncio.to_thread(find_unproved, plan, read)
            if not any(read.list_keys()):
                return found  # one that is gone is asked for again
            known = self._unproved[campaign.name] = (*stamps, found)
        return known[2]

    async def _prove(self, campaign: Path, state: RackCampaign, unproved: Unproved) -> None:
        """Read each unproved domain once more; write down what two looks in a row proved."""
        name = campaign.name
        now = self.duty.parts.clock.now()
        if now < self._look_at.get(name, 0.0):
            return
        self._look_at[name] = now + RETRY_S
        approval = await asyncio.to_thread(read_approval, campaign)
        try:
            update = await self.duty.open_campaign(campaign, approval)
            why = await self._find_missing(update, name, unproved)
        except InputError as error:
            why = dict.fromkeys(unproved, (f"nothing was read: {error}",))
        for job in unproved:
            if why[job]:
                self._proved_once.discard((name, job))
            elif (name, job) not in self._proved_once:
                self._proved_once.add((name, job))
                self._look_at[name] = now  # the second look is the next one
            else:
                async with hold_log(campaign / "journal") as journal:
                    journal.write(Line(f"{job}/{ActKind.PROVE}", "step", Step.DONE, now))
                    await journal.sync()
        missing = dict.fromkeys(each for listed in why.values() for each in listed)
        says = tuple(each[:TEXT_MAX] for each in (approval.withdrawn, *missing)[:LINES_MAX])
        if says != state.says:
            told = state.model_copy(update={"says": says, "at": now})
            await asyncio.to_thread(keep_state, campaign, told)

    async def _find_missing(
        self, update: Update, name: str, unproved: Unproved
    ) -> Mapping[str, Sequence[str]]:
        """Return by job what is not proved of its racks, or still runs on a unit."""
        read = await read_rack_units(update)
        units = group_units(update.plan)
        why: dict[str, list[str]] = {}
        for job in unproved:
            why[job] = [] if job in units else [f"{job}: the campaign has no such domain any more"]
            for rack in sorted({rack.name for rack, _ in units.get(job, ())}):
                now = self.duty.parts.clock.now()
                made = certify_rack(update.plan, rack, update.asked, read, name, now)
                why[job] += made if isinstance(made, tuple) else ()
            if not why[job]:
                named = [u.name for _, u in units[job] if u.kind is not Kind.NVLINK_SWITCH]
                flashes = [await find_flash(await update.client(n), n) for n in named]
                why[job] += [f"{one.subject}: {one.detail}" for one in flashes if one is not None]
        return why


def _read_stamp(file: Path) -> _Stamp:
    try:
        found = file.stat()
    except FileNotFoundError:
        return None
    return (found.st_ino, found.st_mtime_ns, found.st_size)
