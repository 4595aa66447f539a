"""Carries a campaign over racks out: begins acts, writes a journal first, and resumes from it.

It knows neither time nor hardware: `Hands` begin an act and look at one. Each act is written as
sent before it is sent. After a restart the world is looked at: nothing is sent again that may have
begun. An act is done when it was seen to be, and a failed one stops its domain, which stays out.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from provisioner.integrations.racks.campaign import (
    SHELF_ACTS,
    Act,
    Campaign,
    DomainJob,
    Limits,
)

LOOKS_UNKNOWN_MAX = 20  # in a row; then a person looks
LOOKS_IDLE_MIN = 2  # before an act whose outcome nobody knows is sent (again)


class Seen(StrEnum):
    """What a look at an act shows. IDLE: it neither runs nor is its end reached."""

    DONE = "done"
    RUNNING = "running"
    IDLE = "idle"
    FAILED = "failed"
    UNKNOWN = "unknown"


class Step(StrEnum):
    """A line of the journal."""

    SENT = "sent"
    DONE = "done"
    HELD = "held"


@dataclass(frozen=True)
class Entry:
    """One line of the journal: what became of an act."""

    key: str
    step: Step


class Hands(Protocol):
    """What touches the world. A lost answer is no error: the next look tells."""

    def send(self, act: Act) -> None:
        """Begin an act."""

    def look(self, act: Act) -> Seen:
        """Read the world; never from memory."""


@dataclass(frozen=True)
class Outcome:
    """How a campaign stands: every act is in one of these."""

    done: int
    running: tuple[str, ...]
    waiting: int
    held: Mapping[str, str]  # domain: the act that stopped it
    finished: bool  # every act of every job was seen to be done


class Execution:
    """One campaign under way. `journal` is what an earlier one wrote."""

    def __init__(
        self,
        campaign: Campaign,
        hands: Hands,
        write: Callable[[Entry], None],
        journal: Iterable[Entry] = (),
    ) -> None:
        self._hands = hands
        self._write = write
        self._limits = _Room(campaign.limits, campaign.jobs)
        self._jobs = {job.domain: job for job in campaign.jobs}
        self._acts = {act.key: act for job in campaign.jobs for act in job.acts}
        self._job_of = {act.key: job.domain for job in campaign.jobs for act in job.acts}
        self._followers: dict[str, list[str]] = {}
        self._missing = {key: len(act.after) for key, act in self._acts.items()}
        for key, act in self._acts.items():
            for before in act.after:
                self._followers.setdefault(before, []).append(key)
        self._left = {job.domain: len(job.acts) for job in campaign.jobs}
        self._closed = list(campaign.jobs)
        self._open: dict[str, list[str]] = {}  # domain: acts whose predecessors are done
        self._running: dict[str, int] = {}  # act: looks in a row that showed nothing
        self._busy: set[str] = set()
        self._in_rack: Counter[str] = Counter()
        self._shelf_in: set[str] = set()
        self._held: dict[str, str] = {}
        self._done = 0
        self._restore(journal)

    def outcome(self) -> Outcome:
        """Return how it stands."""
        waiting = len(self._acts) - self._done - len(self._running)
        finished = self._done == len(self._acts)
        return Outcome(self._done, tuple(self._running), waiting, dict(self._held), finished)

    @property
    def open_domains(self) -> Sequence[str]:
        """Return the domains that are out: begun, and not every act of them is done."""
        return tuple(self._open)

    def advance(self) -> Sequence[Act]:
        """Begin every act that may begin now, and return them."""
        began: list[Act] = []
        while (job := self._limits.choose(self._closed)) is not None:
            self._admit(job)
        for domain, ready in self._open.items():
            if domain in self._held:
                continue
            for key in list(ready):
                act = self._acts[key]
                if self._fits(act):
                    ready.remove(key)
                    self._write(Entry(key, Step.SENT))
                    self._take(act)
                    self._hands.send(act)
                    began.append(act)
        return began

    def observe(self, key: str) -> Seen:
        """Look at a running act, and write down its end."""
        act = self._acts[key]
        seen = self._hands.look(act)
        if seen is Seen.DONE:
            self._finish(act, Step.DONE)
        elif seen is Seen.FAILED:
            self._finish(act, Step.HELD)
        elif seen is Seen.RUNNING:
            self._running[key] = 0
        else:  # begun and idle is a lost act: it is not sent again without a person
            self._running[key] += 1
            if self._running[key] >= LOOKS_UNKNOWN_MAX:
                self._finish(act, Step.HELD)
        return seen

    def _restore(self, journal: Iterable[Entry]) -> None:
        last: dict[str, Step] = {}
        for entry in journal:
            if entry.key in self._acts:
                last[entry.key] = entry.step
        for domain in dict.fromkeys(self._job_of[key] for key in last):
            self._admit(self._jobs[domain])
        for key, step in last.items():
            if step is Step.DONE:
                self._settle(key)
            elif step is Step.HELD:
                self._held[self._job_of[key]] = key
        for key in (key for key, step in last.items() if step is Step.SENT):
            act = self._acts[key]
            ready = self._open[self._job_of[key]]
            ready.remove(key)
            self._take(act)
            looks = [self._hands.look(act) for _ in range(LOOKS_IDLE_MIN)]
            if set(looks) == {Seen.IDLE}:  # it never began: the answer to nothing is lost
                self._release(act)
                ready.append(key)

    def _admit(self, job: DomainJob) -> None:
        self._closed.remove(job)
        self._limits.take(job)
        self._open[job.domain] = [act.key for act in job.acts if not act.after]

    def _fits(self, act: Act) -> bool:
        if act.on in self._busy or not self._shelf_in.isdisjoint(act.racks):
            return False
        return act.kind not in SHELF_ACTS or not any(self._in_rack[r] for r in act.racks)

    def _take(self, act: Act) -> None:
        self._running[act.key] = 0
        self._busy.add(act.on)
        self._in_rack.update(act.racks)
        if act.kind in SHELF_ACTS:
            self._shelf_in.update(act.racks)

    def _release(self, act: Act) -> None:
        del self._running[act.key]
        self._busy.discard(act.on)
        self._in_rack.subtract(act.racks)
        if act.kind in SHELF_ACTS:
            self._shelf_in.difference_update(act.racks)

    def _finish(self, act: Act, step: Step) -> None:
        self._write(Entry(act.key, step))
        if step is Step.DONE:
            self._release(act)
            self._settle(act.key)
        else:  # what a failed act left behind is unknown: its unit stays taken
            del self._running[act.key]
            self._held[self._job_of[act.key]] = act.key

    def _settle(self, key: str) -> None:
        """Count an act as done, and make ready what only waited for it."""
        domain = self._job_of[key]
        ready = self._open[domain]
        if key in ready:
            ready.remove(key)
        self._done += 1
        self._left[domain] -= 1
        for follower in self._followers.get(key, ()):
            self._missing[follower] -= 1
            if not self._missing[follower]:
                ready.append(follower)
        if not self._left[domain]:
            del self._open[domain]
            self._limits.give_back(self._jobs[domain])


class _Room:
    """How many domains are out, of the site and of each shared thing."""

    def __init__(self, limits: Limits, jobs: Sequence[DomainJob]) -> None:
        self._at_once = limits.at_once
        self._each = {
            "tenant": limits.per_tenant,
            "feed": limits.per_feed,
            "leaf": limits.per_leaf,
            "loop": limits.per_loop,
        }
        self._out: Counter[str] = Counter()
        self._jobs_out = 0
        self._work: Counter[str] = Counter()  # what is still to be done, by thing
        for job in jobs:
            for thing in job.things:
                self._work[thing] += int(job.expected_s)

    def choose(self, waiting: Sequence[DomainJob]) -> DomainJob | None:
        """Return the job that would end last if it waited: of the scarcest thing, the longest."""
        if self._jobs_out >= self._at_once:
            return None
        fitting = (job for job in waiting if all(self._has_room(t) for t in job.things))
        return max(fitting, key=self._urgency, default=None)

    def take(self, job: DomainJob) -> None:
        self._jobs_out += 1
        self._out.update(job.things)
        for thing in job.things:
            self._work[thing] -= int(job.expected_s)

    def give_back(self, job: DomainJob) -> None:
        self._jobs_out -= 1
        self._out.subtract(job.things)

    def _cap(self, thing: str) -> int:
        return self._each[thing.partition(":")[0]]

    def _has_room(self, thing: str) -> bool:
        return self._out[thing] < self._cap(thing)

    def _urgency(self, job: DomainJob) -> tuple[float, float, str]:
        queued = max((self._work[thing] / self._cap(thing) for thing in job.things), default=0.0)
        return max(queued, job.expected_s), job.expected_s, job.domain


@dataclass(frozen=True)
class Expected:
    """When an act is expected to begin and to end, in seconds from the campaign's begin."""

    act: Act
    begin_s: float
    end_s: float


class _Clock:
    """Hands in virtual time: each act takes what the plan expects."""

    def __init__(self) -> None:
        self.now = 0.0
        self.ends: list[tuple[float, str]] = []
        self.began: dict[str, float] = {}

    def send(self, act: Act) -> None:
        self.began[act.key] = self.now
        heapq.heappush(self.ends, (self.now + act.duration_s, act.key))

    def look(self, act: Act) -> Seen:
        over = self.began[act.key] + act.duration_s <= self.now
        return Seen.DONE if over else Seen.RUNNING


def predict(campaign: Campaign) -> Sequence[Expected]:
    """Return when each act is expected: the campaign carried out by its plan, in virtual time."""
    clock = _Clock()
    acts = {act.key: act for job in campaign.jobs for act in job.acts}
    execution = Execution(campaign, clock, lambda _: None)
    execution.advance()
    while clock.ends:
        clock.now, key = heapq.heappop(clock.ends)
        execution.observe(key)
        execution.advance()
    rows = [
        Expected(act, clock.began[key], clock.began[key] + act.duration_s)
        for key, act in acts.items()
    ]
    return sorted(rows, key=lambda row: (row.begin_s, row.act.key))
