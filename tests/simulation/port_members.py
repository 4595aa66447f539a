"""Daemons on one database of the soaks of ports: what each reaches, and who gives its work away.

Real here: what a daemon states of itself and when it gives up, `planning/watch/membership.py`.
Given is what is between a daemon and its devices and its database: chance makes a member slow, or
lets it reach the database but few devices.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from provisioner.planning.watch import membership
from provisioner.planning.watch.membership import Fitness, Standing

LOOK_S = 5.0  # between two looks of a member at its peers, as the daemon's
NEAR_MS = 1.0
SLOW_MS = (50.0, 100.0, 500.0, 1500.0)
# A daemon has heard nothing of a device for a minute at most, looks every five seconds, and gives
# up ten seconds behind the first difference; a successor's first turn comes after that.
DRIVERLESS_S = 120.0
MEMBERS_CUT = 0.5  # of the times: so many of a member's devices give it no answer, at least
EVENTS = ("slow member", "half reach")


@dataclass
class Member:
    """One daemon, and what is between it and the others."""

    name: str
    cut: frozenset[str] = frozenset()  # devices that give it no answer, and others one
    cut_until: float = 0.0
    round_trip_ms: float = NEAR_MS
    slow_until: float = 0.0
    fitness: Fitness = field(default_factory=Fitness)
    remembered: tuple[str, ...] = ()  # the silent devices on whose account it gave up
    stated: Standing = field(default_factory=Standing)

    def reaches(self, devices: Collection[str]) -> bool:
        """Whether it has a way to all of these."""
        return self.cut.isdisjoint(devices)

    def is_well(self) -> bool:
        """Whether nothing is between it and anything, and it knows so."""
        far = self.cut or self.round_trip_ms != NEAR_MS
        return not far and self.fitness == Fitness() and not self.stated.silent


class Members:
    """All of them; `look` is what each does every few seconds."""

    def __init__(self, count: int, devices: Sequence[str], rng: random.Random) -> None:
        self.all = [Member(f"d{number}") for number in range(count)]
        self.devices, self._rng, self._looked_at = tuple(devices), rng, 0.0

    def strike(self, what: str, member: Member, now: float) -> None:
        """One of `EVENTS`."""
        lasts_s = self._rng.uniform(10.0, 400.0)
        if what == "slow member":
            member.round_trip_ms = self._rng.choice(SLOW_MS)
            member.slow_until = now + lasts_s
            return
        least = int(len(self.devices) * MEMBERS_CUT)
        count = self._rng.randint(least, len(self.devices))
        member.cut = frozenset(self._rng.sample(self.devices, count))
        member.cut_until = now + lasts_s

    def mend(self, now: float) -> None:
        """What lasted for so long is over."""
        for member in self.all:
            if member.cut and now >= member.cut_until:
                member.cut = frozenset()
            if member.round_trip_ms != NEAR_MS and now >= member.slow_until:
                member.round_trip_ms = NEAR_MS

    def look(self, now: float) -> list[Member]:
        """Let each state what it reaches and look at the others; who gave up in this look."""
        self.mend(now)
        if now - self._looked_at < LOOK_S:
            return []
        self._looked_at = now
        if all(m.is_well() for m in self.all):
            return []  # nobody differs from anybody
        given_up = []
        for member in self.all:
            peers = [m.stated for m in self.all if m is not member]
            ours = self._state(member, peers, now)
            alone = membership.is_alone(peers, now)
            why = membership.find_difference(ours, peers, now)
            after = membership.judge_fitness(member.fitness, why, now, alone=alone)
            if member.fitness.fit and not after.fit:
                given_up.append(member)
            member.fitness = after
            told = membership.shorten(ours.model_copy(update={"fit": after.fit}))
            kept = membership.says_the_same(member.stated, told)
            member.stated = member.stated.model_copy(update={"at": now}) if kept else told
        return given_up

    def _state(self, member: Member, peers: Sequence[Standing], now: float) -> Standing:
        """As `Cluster._measure`: one that drives nothing tries what was silent before."""
        fit = member.fitness.fit
        quiet = tuple(d for d in self.devices if d in member.cut)
        own = quiet[: membership.SAMPLE_MAX] if fit else member.remembered
        member.remembered = own
        silent = tuple(d for d in own if d in member.cut)
        before = Standing(id=member.name, at=now, fit=fit, sample=own)
        asked = (d for d in membership.list_asked(before, peers) if d not in own)
        return before.model_copy(
            update={
                "sample": silent,
                "tried": len(self.devices) if fit else len(own),
                "silent": len(quiet) if fit else len(silent),
                "probed": {d: d not in member.cut for d in asked},
                "round_trip_ms": member.round_trip_ms,
            }
        )

    def find_better(self, member: Member, devices: Collection[str], *, slow: bool) -> Member | None:
        """A fit peer that reaches all, where `member` does not reach these, or is slow."""
        worse = not member.reaches(devices) or (slow and member.round_trip_ms > NEAR_MS)
        peers = (m for m in self.all if m is not member and m.fitness.fit and not m.cut)
        return next((m for m in peers if worse and m.round_trip_ms == NEAR_MS), None)

    def takes_over(self, gone: Member) -> Member:
        """Whoever goes on with the work of one that gave up."""
        fit = [m for m in self.all if m is not gone and m.fitness.fit]
        return fit[0] if fit else gone
