"""A year of one synchronous job on 16,384 GPUs in virtual time, for `bench_goodput.py`.

Faults come at published rates; which host takes a place, which remedies are tried in which order,
and which tests a repaired host passes are decided by the program's own planners. Nothing is made up
about cures: no source publishes how often which remedy helps, so a year is played at two bounds,
where the first remedy always cures and where nothing cures but a person's work.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

from provisioner.checks import ALL as CHECKS
from provisioner.model.case import Case, Fault, Origin, RemedyOutcome, RemedyTry, Service
from provisioner.model.cohort import Gate
from provisioner.model.location import Location, Port
from provisioner.model.node import Node, NodeKind, Placement, State
from provisioner.planning.certification.check_selection import (
    Cause,
    Change,
    SelectionPolicy,
    select_checks,
)
from provisioner.planning.repair.diagnosis import diagnose
from provisioner.planning.repair.remedies import Later, Limits, People, choose_remedy
from provisioner.planning.tenancy.spares import choose_spare

DAY_S = 86400.0
YEAR_S = 365 * DAY_S
NODES, UNIT = 2048, 32  # 16,384 GPUs; hosts on the same leaves
# Llama 3 (arXiv 2407.21783, table 5): unexpected interruptions of 54 days on 16,384 GPUs. The
# counts add up to the 419 of the text (two of the percentages printed beside them do not fit).
LLAMA_DAYS = 54.0
LLAMA = {
    "Faulty GPU": 148,
    "GPU HBM3 Memory": 72,
    "Software Bug": 54,
    "Network Switch/Cable": 35,
    "Host Maintenance": 32,
    "GPU SRAM Memory": 19,
    "GPU System Processor": 17,
    "NIC": 7,
    "NCCL Watchdog Timeouts": 7,
    "Silent Data Corruption": 6,
    "GPU Thermal Interface + Sensor": 6,
    "SSD": 3,
    "Power Supply": 3,
    "Server Chassis": 2,
    "IO Expansion Board": 2,
    "Dependency": 2,
    "CPU": 2,
    "System Memory": 2,
}
# RSC-1 (arXiv 2410.21680, HPCA 2025): failures of 1,000 node-days
RSC_PER_1000_NODE_DAYS = 6.50
# Causes that are no host's: the job starts again on the hosts that it had.
NO_HOST = frozenset({"Software Bug", "NCCL Watchdog Timeouts", "Dependency"})
# How each cause shows itself to the diagnosis (sources and words as its rules read them).
SHOWS = {
    "Faulty GPU": ("xid", "xid 79", "GPU_SXM_1", "GPU has fallen off the bus"),
    "GPU HBM3 Memory": ("xid", "xid 48", "GPU_SXM_1", "xid 48 double-bit"),
    "Network Switch/Cable": ("isolation", "cabling", "rail 1", "the link fails"),
    "GPU SRAM Memory": ("check", "sram_ecc", "GPU_SXM_1", "uncorrectable"),
    "GPU System Processor": ("xid", "xid 119", "GPU_SXM_1", "xid 119"),
    "NIC": ("check", "nic_inventory", "NIC_1", "health compromised"),
    "SSD": ("check", "nvme_smart", "nvme1", "below its threshold"),
    "Power Supply": ("check", "bmc_sensors", "PSU_1", "power supply"),
    "System Memory": ("alert", "memory", "DIMM_1", "uncorrectable ecc"),
}


@dataclass(frozen=True)
class Policy:
    """The dimensions of the search. Times of the tenant's own job are stated, and not ours."""

    spares: int  # of each unit
    checkpoint_s: float  # the tenant's: between two checkpoints
    gates: str = "ab"  # that a repaired host passes


@dataclass(frozen=True)
class Times:
    """What is not ours to decide, in seconds."""

    place_s: float  # fault to a proved spare: the journey of `make bench NAME=mttr`
    restart_s: float  # the tenant's: from a complete set of hosts to the first step
    write_s: float  # the tenant's: the job stands still for a checkpoint
    remedy_s: float  # a reset or a cold boot until the host answers
    people_s: float  # until people have worked on it


@dataclass
class Year:
    """The figures of a year."""

    faults: int = 0
    waits: int = 0  # faults for which no spare was free
    down_s: list[float] = field(default_factory=list)  # the job had not all hosts, by fault
    lost_s: float = 0.0  # steps done again, and restarts
    written_s: float = 0.0
    test_s: float = 0.0  # of hosts
    planned_s: float = 0.0  # the job stood still for a campaign
    spares: int = 0
    length_s: float = YEAR_S

    @property
    def effective(self) -> float:
        """Share of the time in which the job made steps that counted."""
        lost = sum(self.down_s) + self.lost_s + self.written_s + self.planned_s
        return max(0.0, 1 - lost / self.length_s)

    @property
    def mttr_s(self) -> float:
        """Mean time until the job has all its hosts again, of faults that took one."""
        took = [s for s in self.down_s if s]
        return sum(took) / len(took) if took else 0.0


def list_rates(source: str) -> dict[str, float]:
    """Return faults a second of each cause, for the whole fleet."""
    total = sum(LLAMA.values())
    if source == "llama":
        per_s = total / (LLAMA_DAYS * DAY_S)
    else:
        per_s = RSC_PER_1000_NODE_DAYS / 1000 * NODES / DAY_S
    return {cause: per_s * count / total for cause, count in LLAMA.items()}


def build_host(unit: int, index: int, *, spare: bool) -> Node:
    """A host of the fleet."""
    return Node(
        id=f"n{unit}-{index}",
        kind=NodeKind.HOST,
        state=State.CERTIFIED if spare else State.RELEASED,
        placement=Placement.MAINTENANCE if spare else Placement.CUSTOMER,
        tenant="" if spare else "red",
        location=Location(scalable_unit=unit, rack="r", index=index),
        ports=(Port(switch=f"leaf-{unit}", interface=f"swp{index}", rail=0, nic_slot="NIC_0"),),
    )


@cache
def repair_s(cause: str, gates: str, times: Times, *, first_cures: bool) -> tuple[float, float]:
    """Return how long a repair takes by the planner's own order of remedies, and the tests' time.

    A fault of a host that no rule knows begins with the host itself, as the diagnosis has it.
    """
    source, name, part, words = SHOWS.get(cause, ("report", "reported", "", cause))
    suspects = diagnose([Fault(source=source, id=name, part=part, detail=words)], None)
    case = Case(
        id="n-c1",
        node="n",
        origin=Origin.EVENT,
        reason=cause,
        service=Service.CUT_OFF,
        opened_at=0.0,
        suspects=suspects.suspects,
    )
    now = 0.0
    tests = 0.0
    while True:
        choice = choose_remedy(case, suspects.start, (), Limits(), now)
        if isinstance(choice, Later):
            now = choice.at
            continue
        people = isinstance(choice, People)
        now += times.people_s if people else times.remedy_s
        cause_of = Cause.REPAIRED if people else Cause.UNKNOWN
        took = tests_s(gates, cause_of, case.suspects[0].kind.value)
        now += took
        tests += took
        if people or first_cures:
            return now, tests
        tried = RemedyTry(
            remedy=choice.rung.remedy,
            part=choice.suspect.part,
            kind=choice.suspect.kind,
            attempt=choice.attempt,
            started_at=now,
            done_at=now,
            measured_at=now,
            outcome=RemedyOutcome.SAME,
        )
        case = case.model_copy(update={"tries": (*case.tries, tried)})


@cache
def tests_s(gates: str, cause: Cause, device: str) -> float:
    """Return the time of the tests that the planner selects after a change."""
    devices = (f"{device.partition('_')[0]}/1",) if cause is Cause.REPAIRED else ()
    change = Change(causes=(cause,), devices=devices)
    policy = SelectionPolicy(gates=frozenset(Gate(g) for g in gates))
    return select_checks(change, CHECKS, policy).seconds


def play_year(
    policy: Policy,
    times: Times,
    rates: dict[str, float],
    campaigns: Sequence[float],
    *,
    first_cures: bool,
    seed: str = "year",
    length_s: float = YEAR_S,
) -> Year:
    """Play the faults of a year. campaigns: seconds for which each stops the job."""
    rng = random.Random(seed)
    units = NODES // UNIT
    fleet = {
        u: {i: build_host(u, i, spare=i >= UNIT) for i in range(UNIT + policy.spares)}
        for u in range(units)
    }
    free_at: list[tuple[float, int, int]] = []  # repaired hosts: (when, unit, index)
    year = Year(spares=units * policy.spares, planned_s=sum(campaigns), length_s=length_s)
    causes = list(rates)
    weights = [rates[c] for c in causes]
    now = 0.0
    while (now := now + rng.expovariate(sum(weights))) < length_s:
        cause = rng.choices(causes, weights)[0]
        year.faults += 1
        year.lost_s += times.restart_s + rng.random() * policy.checkpoint_s
        if cause in NO_HOST:
            year.down_s.append(0.0)
            continue
        unit = rng.randrange(units)
        hosts = fleet[unit]
        take_back(fleet, free_at, now)
        faulty = rng.choice([n for n in hosts.values() if n.tenant])
        index = faulty.location.index
        took, tests = repair_s(cause, policy.gates, times, first_cures=first_cures)
        year.test_s += tests
        spare = choose_spare(faulty, hosts.values(), ())
        hosts[index] = faulty.model_copy(update={"state": State.REPAIRING, "tenant": ""})
        heapq.heappush(free_at, (now + took, unit, index))
        down = times.place_s
        if spare is None:
            year.waits += 1
            back = min(at for at, u, _ in free_at if u == unit)
            take_back(fleet, free_at, back)
            down += back - now
            spare = choose_spare(faulty, hosts.values(), ())
            assert spare is not None
        changes = {"state": State.RELEASED, "placement": Placement.CUSTOMER, "tenant": "red"}
        hosts[spare.location.index] = spare.model_copy(update=changes)
        year.down_s.append(down)
        now += down  # nothing else fails while the job stands still
    up = length_s - sum(year.down_s) - year.lost_s - year.planned_s
    year.written_s = max(0.0, up) * times.write_s / (policy.checkpoint_s + times.write_s)
    return year


def take_back(
    fleet: dict[int, dict[int, Node]], free_at: list[tuple[float, int, int]], now: float
) -> None:
    """Hosts whose repair has ended are certified and free."""
    while free_at and free_at[0][0] <= now:
        _, unit, index = heapq.heappop(free_at)
        fleet[unit][index] = build_host(unit, index, spare=True)
