"""The daemon's loop that keeps nodes held while their rack's update is not proved, and frees them.

What was begun and not proved is told by the campaigns' journals, those of people's commands, and
the holds that the store keeps: whichever of them is lost, the other one keeps the node. Of an
approval that is over, a node is freed where its domain was never written to, where two whole looks
at all of its racks in a row proved each version (which is then in the journal), or where a person
vouches for it; where its files are lost, or its folder is another approval's by now, by a word
alone. It sends nothing, and runs also where `racks_update` is off.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from provisioner.integrations.racks.campaign import ActKind, group_units
from provisioner.integrations.racks.campaign_run import Step
from provisioner.integrations.racks.duty.approval import (
    CAMPAIGNS,
    CAMPAIGNS_MAX,
    LINES_MAX,
    OVER,
    TEXT_MAX,
    Approval,
    RackCampaign,
    RackCampaignState,
    build_mark,
    keep_state,
    list_campaigns,
    read_approval,
    read_state,
    read_vouched,
    take_word,
)
from provisioner.integrations.racks.duty.node_holds import find_tenant, read_marks
from provisioner.integrations.racks.duty.rack_certificate import certify_rack
from provisioner.integrations.racks.duty.rack_duty import (
    RETRY_S,
    RackDuty,
    build_gone,
    is_shorter,
)
from provisioner.integrations.racks.flash_reading import find_flash
from provisioner.integrations.racks.hand_journals import (
    HANDS,
    JOURNALS_MAX,
    HandJournal,
    is_at_work,
    list_hand_journals,
    make_folder,
    read_digest,
    read_hand_journal,
)
from provisioner.integrations.racks.identity import Kind
from provisioner.integrations.racks.plan import RackPlan, Stamp, read_plan, read_stamp
from provisioner.integrations.racks.update_log import Line, hold_log, read_log
from provisioner.integrations.racks.update_start import (
    find_unproved,
    read_rack_units,
)
from provisioner.integrations.racks.update_world import POLL_S, Update
from provisioner.model.input_error import InputError
from provisioner.model.node import Node
from provisioner.ports import DamagedRow, StoreFailed

log = logging.getLogger(__name__)
PLAN = "racks.yaml"
Unproved = Mapping[str, Sequence[str]]  # trays, by job


@dataclass(frozen=True)
class _Judged:
    """An approval, as one look found it. Without its files it is over, and a word alone frees."""

    mark: str
    vouched: Mapping[str, str]
    campaign: Path | None = None
    state: RackCampaign | None = None
    over: bool = True
    unproved: Unproved = field(default_factory=dict)
    keeps: Sequence[Node] = ()
    proved: frozenset[str] | None = None  # trays that alone may be freed; None: all others
    planned: frozenset[str] = frozenset()  # nodes whose trays the plan has, and may be freed


@dataclass
class RackHolds:
    """One per daemon; it shares holds and logins with the duty of campaigns."""

    duty: RackDuty
    poll_s: float = POLL_S
    _plan: tuple[Stamp, RackPlan] | None = None
    _unproved: dict[str, tuple[Stamp, Stamp, Unproved]] = field(default_factory=dict)
    _hands: dict[str, tuple[tuple[Stamp, Stamp, bool], HandJournal | None]] = field(
        default_factory=dict
    )
    _proved_once: set[tuple[str, str]] = field(default_factory=set)
    _look_at: dict[str, float] = field(default_factory=dict)  # when a campaign is read (again)
    _said: dict[str, str] = field(default_factory=dict)

    async def run(self) -> None:
        """Look for ever."""
        with self._guard(f"{HANDS}, made"):
            held = (await self.duty.holds.list_active()).values()
            if not any(HANDS in read_marks(one) for one in held):  # an empty one would free them
                await asyncio.to_thread(make_folder, Path(self.duty.parts.settings.racks_folder))
        while True:
            await self.tick()
            await self.duty.parts.clock.sleep(self.poll_s)

    async def tick(self) -> None:
        """Look at each campaign once: hold for all, then free; proofs are last, they take long."""
        judged = await self._judge_all()
        for act in (self._hold, self._free, self._prove):
            for one in judged:
                with self._guard(f"{one.mark}, {act.__name__.strip('_')}"):
                    await act(one)

    async def _judge_all(self) -> Sequence[_Judged]:
        """Judge each campaign, and say whether all were judged: nobody is freed before."""
        folder = Path(self.duty.parts.settings.racks_folder)
        held = (await self.duty.holds.list_active()).values()
        marks = {mark for one in held for mark in read_marks(one)}
        judged, all_hands = await self._judge_hands(folder, marks)
        hands = len(judged)
        known: list[Path] | None = None
        with self._guard(CAMPAIGNS):
            count = CAMPAIGNS_MAX + 1
            known = await asyncio.to_thread(lambda: list(list_campaigns(folder, count)))
            _refuse_many(CAMPAIGNS, known, CAMPAIGNS_MAX)
        for campaign in (known or ())[:CAMPAIGNS_MAX]:
            with self._guard(campaign.name):
                judged.append(await self._judge(campaign, marks))
        all_campaigns = known is not None and len(judged) - hands == len(known)
        self.duty.judged = all_hands and all_campaigns
        for mark in sorted(marks - {one.mark for one in judged}):  # their files are lost
            with self._guard(mark):
                vouched = await asyncio.to_thread(read_vouched, folder, mark)
                judged.append(_Judged(mark, vouched))
        return judged

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
            self.duty.judged = False
            raise
        except Exception:  # our own bug
            log.exception("racks, %s: its holds were not judged", name)

    async def _judge(self, campaign: Path, held: Collection[str]) -> _Judged:
        """Return what is known of a campaign, and which nodes have to be held for it."""
        folder = campaign.parent.parent
        approval = await asyncio.to_thread(read_approval, campaign)
        mark = build_mark(campaign.name, approval)
        vouched = await asyncio.to_thread(read_vouched, folder, mark)
        if not self.duty.parts.settings.racks_update:
            await self._end_withdrawn(campaign, approval)
        state = await asyncio.to_thread(read_state, campaign)
        over = state is not None and state.state in OVER
        acts = await self.duty.tells_of_acts(mark, state)  # asked first: it is written last
        plan = await self._read_plan(folder / PLAN)
        unproved: Unproved | None = {}
        if state is None or state.state is not RackCampaignState.DONE:
            unproved = await self._find_unproved(plan, campaign, state)
        if unproved is None and acts:
            if over:
                return _Judged(mark, vouched)
            raise build_gone(campaign)
        one = _Judged(mark, vouched, campaign, state, over, unproved or {})
        return await self._weigh(one, plan, held)

    async def _judge_hands(self, folder: Path, held: Collection[str]) -> tuple[list[_Judged], bool]:
        """Return what people's commands left, and whether each of their journals was read. While
        one is not, it may be any planned node's: all are held.
        """
        files: Sequence[Path] | None = None
        with self._guard(HANDS):
            files = await asyncio.to_thread(list_hand_journals, folder)
            _refuse_many(HANDS, files, JOURNALS_MAX)
        judged: list[_Judged] = []
        read = 0
        for file in (files or ())[:JOURNALS_MAX]:
            with self._guard(f"{HANDS}/{file.name}"):
                plan = await self._read_plan(folder / PLAN)
                told = await self._read_hand(file, plan)
                if told is not None:
                    mark = told.mark
                    vouched = await asyncio.to_thread(take_word, folder, mark, told.content)
                    over = not told.runs
                    one = _Judged(
                        mark, vouched, over=over, unproved=told.unproved, proved=told.proved
                    )
                    judged.append(await self._weigh(one, plan, held))
                read += 1
        known = files is not None and read == len(files)
        # a folder that is gone tells nothing of the journal that could not be read in it
        known &= HANDS not in held or await asyncio.to_thread((folder / HANDS).is_dir)
        with self._guard(f"{HANDS}, unread"):
            if not known:
                nodes = await self.duty.holds.find_nodes(await self._read_plan(folder / PLAN))
                judged.append(_Judged(HANDS, {}, keeps=[node for node, _ in nodes.values()]))
            elif HANDS in held:
                every = frozenset(await self.duty.holds.list_active())
                judged.append(_Judged(HANDS, {}, planned=every))
        return judged, known

    async def _read_hand(self, file: Path, plan: RackPlan) -> HandJournal | None:
        """Return what a command's journal tells, read anew where anything of it has changed."""
        assert self._plan is not None
        runs = await asyncio.to_thread(is_at_work, file)
        state = (self._plan[0], await asyncio.to_thread(read_stamp, file), runs)
        known = self._hands.get(file.name)
        if known is None or known[0] != state:
            try:
                told = await asyncio.to_thread(partial(read_hand_journal, file, plan, runs=runs))
            except InputError:  # what it says now, no word was about
                mark, content = await asyncio.to_thread(read_digest, file)
                await asyncio.to_thread(take_word, file.parent.parent, mark, content)
                raise
            known = self._hands[file.name] = (state, told)
        return known[1]

    async def _weigh(self, one: _Judged, plan: RackPlan, held: Collection[str]) -> _Judged:
        """Return it with the nodes of what is unproved."""
        trays = {tray for listed in one.unproved.values() for tray in listed}
        nodes = await self.duty.holds.find_nodes(plan) if trays or one.mark in held else {}
        keeps = [node for unit, (node, _) in nodes.items() if unit in trays]
        keeps = [node for node in keeps if not (one.over and node.id in one.vouched)]
        proved = nodes if one.proved is None else one.proved
        ended = frozenset(node.id for unit, (node, _) in nodes.items() if unit in proved)
        return replace(one, keeps=keeps, planned=ended)

    async def _hold(self, one: _Judged) -> None:
        held = await self.duty.holds.list_active()
        for node in one.keeps:
            known = read_marks(held[node.id]) if node.id in held else ()
            if one.mark not in known and not find_tenant(node):
                await self.duty.holds.hold(node.id, one.mark, firmly=True)

    async def _free(self, one: _Judged) -> None:
        """Take it off each hold that nothing speaks for any more."""
        holds = self.duty.holds
        kept = {node.id for node in one.keeps}
        for node, own in (await holds.list_active()).items():
            if one.mark not in read_marks(own):
                continue
            if not (self.duty.judged and one.over) or node in kept:
                await holds.tell(own)
            elif node in one.vouched:
                await holds.leave(own, one.mark, f"a person vouches for it: {one.vouched[node]}")
            elif node in one.planned:
                await holds.leave(own, one.mark, "nothing unproved is left in its domain")
            else:
                await holds.tell(own)

    async def _end_withdrawn(self, campaign: Path, approval: Approval) -> None:
        """Take a withdrawal in where the duty of campaigns, which does so, is switched off."""
        state = await asyncio.to_thread(read_state, campaign)
        if approval.withdrawn and (state is None or state.state not in OVER):
            await self.duty.withdraw(campaign, approval, state)

    async def _read_plan(self, file: Path) -> RackPlan:
        stamp = await asyncio.to_thread(read_stamp, file)
        if self._plan is None or self._plan[0] != stamp:
            self._plan = (stamp, await asyncio.to_thread(read_plan, file))
        return self._plan[1]

    async def _find_unproved(
        self, plan: RackPlan, campaign: Path, state: RackCampaign | None
    ) -> Unproved | None:
        """Return what the journal tells, None where it or its end is gone. Raises InputError."""
        file = campaign / "journal"
        assert self._plan is not None
        stamps = (self._plan[0], await asyncio.to_thread(read_stamp, file))
        known = self._unproved.get(campaign.name)
        if known is None or known[:2] != stamps:
            read = await asyncio.to_thread(read_log, file)
            if not any(read.list_keys()) or is_shorter(read, state):
                return None
            found = await asyncio.to_thread(find_unproved, plan, read)
            known = self._unproved[campaign.name] = (*stamps, found)
        return known[2]

    async def _prove(self, one: _Judged) -> None:
        """Read each unproved domain of a withdrawn campaign once more; write down what two looks in
        a row proved.
        """
        campaign = one.campaign
        state = one.state
        unproved = one.unproved
        if campaign is None or state is None or not one.keeps:
            return
        if state.state is not RackCampaignState.WITHDRAWN:
            return
        mark = one.mark
        now = self.duty.parts.clock.now()
        if now < self._look_at.get(mark, 0.0):
            return
        self._look_at[mark] = now + RETRY_S
        approval = await asyncio.to_thread(read_approval, campaign)
        try:
            update = await self.duty.open_campaign(campaign, approval)
            why = await self._find_missing(update, campaign.name, unproved)
        except InputError as error:
            why = dict.fromkeys(unproved, (f"nothing was read: {error}",))
        planned = group_units(update.plan)
        for job in unproved:
            units = [unit.name for _, unit in planned.get(job, ())]
            if why[job]:
                self._proved_once.discard((mark, job))
            elif (mark, job) not in self._proved_once:
                self._proved_once.add((mark, job))
                self._look_at[mark] = now  # the second look is the next one
            else:
                async with hold_log(campaign / "journal") as journal:
                    names = " ".join(sorted(units))
                    journal.write(Line(f"{job}/{ActKind.PROVE}", "step", Step.DONE, now, names))
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


def _refuse_many(folder: str, listed: Sequence[Path], most: int) -> None:
    if len(listed) > most:
        problem = f"it has more than {most}: no node is freed"
        raise InputError(folder, "", problem, "Move those away that are over.")
