"""Carries a campaign out by rounds: each domain that is out has rounds of its own.

One whose BMCs restart, or are mute, keeps no other waiting; what moves in one is no reason to ask
another. What all need, who uses their trays, is read once for those whose rounds begin together.
How long a write took at one unit tells when to look at the next one.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from provisioner.integrations.racks.campaign import Act, ActKind, Campaign, group_units
from provisioner.integrations.racks.campaign_run import Entry, Execution, Outcome, Step
from provisioner.integrations.racks.rack_update import Hands
from provisioner.integrations.racks.update_log import NOTED, Line, UpdateLog
from provisioner.integrations.racks.update_world import Update

WHY_MAX = 300  # characters of a reason that the journal keeps
NEAR = 0.05  # of what a write is expected to take: between two looks once it may have ended
NEAR_S = 3.0  # at least
SOON_S = 1.0  # until a domain's next round where it moved in this one: most wait for nothing


class Pace:
    """Knows how long each kind of write took, and so when the next look at one is worth it."""

    def __init__(self) -> None:
        self._looked: dict[str, float] = {}  # by act: when it was last seen to go on
        self._takes_s: dict[str, float] = {}  # by kind: how long the last one surely took

    def learn(self, act: Act, before: Line | None, now: Line | None, at: float) -> None:
        """Take what a look at an act showed: its last step before the look, and behind it."""
        looked = self._looked.get(act.key, 0.0)
        if before is None or now is before:
            self._looked[act.key] = at
        elif looked > before.at:
            known_s = self._takes_s.get(_name(act, before), 0.0)
            known_s = known_s if known_s < at - before.at else 0.0
            self._takes_s[_name(act, before)] = max(known_s, looked - before.at)

    def find_wait(self, act: Act, last: Line | None, at: float, poll_s: float) -> float:
        """Return in how many seconds to look again: soon once the others of its kind had ended."""
        takes_s = None if last is None else self._takes_s.get(_name(act, last))
        if last is None or takes_s is None:
            return poll_s
        near_s = min(max(NEAR_S, NEAR * takes_s), poll_s)
        left_s = takes_s + near_s - (at - last.at)
        if left_s > 0:
            return min(max(left_s, SOON_S), poll_s)
        return near_s if left_s > -poll_s else poll_s


def _name(act: Act, last: Line) -> str:
    return f"{act.kind} {act.component} {last.what}"


@dataclass
class _Rounds:
    """One campaign under way."""

    update: Update
    log: UpdateLog
    hands: Hands
    execution: Execution
    _due: dict[str, float] = field(default_factory=dict)  # by domain: when its next round begins
    _pace: Pace = field(default_factory=Pace)
    _begun: Counter[str] = field(default_factory=Counter)  # rounds of each domain
    _under_way: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    async def run(self) -> None:
        """Go on until nothing runs. The first failure is raised once all rounds have ended."""
        try:
            while await self._go_on():
                pass
        except asyncio.CancelledError:
            for task in self._under_way.values():
                task.cancel()
            raise
        finally:
            await asyncio.gather(*self._under_way.values(), return_exceptions=True)

    async def _go_on(self) -> bool:
        """Begin each round that is due, and wait until one ends or another is due."""
        soon = self.update.now() + min(self.update.poll_s, SOON_S)
        for act in () if self.update.halted() else self.execution.advance():
            domain = self.hands.jobs[act.key].domain
            self._due[domain] = min(soon, self._due.get(domain, 0.0))
        outcome = self.execution.outcome()
        await self.log.sync()
        if self.update.tell is not None:
            await self.update.tell(outcome, self.execution.open_domains, self.hands.why)
        waiting: dict[str, list[str]] = {}
        for key in outcome.running:
            domain = self.hands.jobs[key].domain
            if domain not in self._under_way and self._begun[domain] < self.update.rounds_max:
                waiting.setdefault(domain, []).append(key)
        now = self.update.now()
        due = [domain for domain in waiting if self._due.get(domain, now) <= now]
        if due:
            await self.hands.prepare([key for domain in due for key in waiting[domain]])
        for domain in due:
            self._begun[domain] += 1
            self._due.pop(domain, None)
            self._under_way[domain] = asyncio.create_task(self._do(domain, waiting.pop(domain)))
        if not (waiting or self._under_way):
            return False
        await self._wait(min((self._due[domain] for domain in waiting), default=None))
        return True

    async def _do(self, domain: str, keys: Sequence[str]) -> None:
        acts = {key: self.hands.acts[key] for key in keys}
        before = {key: self.log.of(key).find_last() for key in keys}
        moved = await self.hands.round(keys)
        for key in keys:
            self.execution.observe(key)
        await self.log.sync()
        now = self.update.now()
        poll_s = min(self.update.poll_s, SOON_S) if moved else self.update.poll_s
        for key, act in acts.items():
            last = self.log.of(key).find_last()
            self._pace.learn(act, before[key], last, now)
            poll_s = min(poll_s, self._pace.find_wait(act, last, now, self.update.poll_s))
        self._due[domain] = min(now + poll_s, self._due.get(domain, now + poll_s))

    async def _wait(self, due: float | None) -> None:
        """Wait until a round ends, or `due`; those that come due within a second begin together."""
        wait_s = min(self.update.poll_s, SOON_S)
        if due is not None:
            wait_s = max(wait_s, due - self.update.now())
        if not self._under_way:
            await self.update.pause(wait_s)
            return
        timer = None if due is None else asyncio.ensure_future(self.update.pause(wait_s))
        asked = {*self._under_way.values(), *([] if timer is None else [timer])}
        try:
            await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if timer is not None:
                timer.cancel()
        for domain in [name for name, task in self._under_way.items() if task.done()]:
            self._under_way.pop(domain).result()


async def carry_out(update: Update, log: UpdateLog, campaign: Campaign) -> tuple[Outcome, Hands]:
    """Carry the campaign's jobs out, or on from its journal; return how they ended and why.

    As many domains are out at one time as the campaign's limits admit: by default one.
    """
    jobs = {act.key: job for job in campaign.jobs for act in job.acts}
    acts = {act.key: act for job in campaign.jobs for act in job.acts}
    hands = Hands(update, log, jobs, acts)
    units = {
        f"{domain}/{ActKind.PROVE}": " ".join(sorted(unit.name for _, unit in listed))
        for domain, listed in group_units(update.plan).items()
    }

    def write(entry: Entry) -> None:
        if entry.step is Step.HELD:  # a later process, or a person, asks why
            why = hands.why.get(entry.key, "")[:WHY_MAX]
            log.write(Line(entry.key, NOTED, Step.HELD, update.now(), why))
        # a proof says whom it looks at: the plan may have another unit in its domain later
        log.write(Line(entry.key, "step", entry.step, update.now(), units.get(entry.key, "")))

    execution = Execution(campaign, hands, write, _list_entries(log, acts))
    hands.why |= {key: log.of(key).note(Step.HELD) for key in execution.outcome().held.values()}
    await _Rounds(update, log, hands, execution).run()
    return execution.outcome(), hands


def _list_entries(log: UpdateLog, acts: Mapping[str, Act]) -> list[Entry]:
    """Return the journal's steps; a drain that was held sent nothing, so that it is tried again."""
    drains = {key for key, act in acts.items() if act.kind is ActKind.DRAIN}
    return [
        Entry(key, Step(what))
        for key, what in log.steps()
        if key not in drains or what != Step.HELD
    ]
