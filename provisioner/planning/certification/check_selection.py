"""Which tests a node needs now: the smallest set that covers what changed, with the reason. Pure.

The last certificate says what was proved; the inventory says what is there. What differs is what
must be proved again. Gate A takes seconds and always runs; a load test runs if it covers something
that changed; fabric tests if the change can show between nodes; the long burn of gate D only for a
node or a part that is new here. Between tenants everything but the long burn runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from math import exp

from pydantic import Field

from provisioner.checks.check import Check
from provisioner.model.base import Record
from provisioner.model.certificate import Certificate
from provisioner.model.health import Gate
from provisioner.model.inventory import Inventory
from provisioner.model.node import NodeKind
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.certification.certification import serials, versions
from provisioner.planning.certification.check_coverage import (
    AFTER_LOAD_S,
    EVERYTHING,
    FABRIC_S,
    GATE_A_S,
    TESTS,
    Domain,
    of_component,
    of_device,
)


class Cause(StrEnum):
    """Why a node is tested."""

    NEW = "new"  # nothing was ever proved of it
    REPAIRED = "repaired"  # parts were exchanged
    UPDATED = "updated"  # versions changed
    TURNOVER = "turnover"  # it comes from one tenant and goes to another
    PERIODIC = "periodic"  # nothing changed: its certificate is old
    UNKNOWN = "unknown"  # nobody knows: everything is tested


class Change(Record):
    """What happened since the last certificate."""

    causes: tuple[Cause, ...]
    devices: tuple[str, ...] = ()  # "gpu/GPU_SXM_3": parts that were not certified
    components: tuple[str, ...] = ()  # "hgx.gpu/GPU_SXM_3": versions that were not certified


class SelectionPolicy(Record):
    """What the site demands. `budget_s` None: as long as it takes."""

    gates: frozenset[Gate] = frozenset({Gate.A, Gate.B})
    budget_s: float | None = None
    fabric_days_max: float | None = None  # then gate C is proved anew; None: only after changes
    residual_max: float = 0.01  # chance of an unseen fault that periodic tests may leave


class Standing(Record):
    """A node's record, for periodic tests: what its age and past faults make likely."""

    incidents: int = 0
    healthy_days: float = 0.0
    found: Mapping[str, int] = Field(default_factory=dict)  # test -> faults it found in the fleet
    # gate -> days since it was proved; a gate that is not in it never was. None: nobody knows
    proved_days: Mapping[Gate, float] | None = None

    def never(self, gate: Gate) -> bool:
        """Whether it is known that a gate was never proved."""
        return self.proved_days is not None and gate not in self.proved_days


class Selection(Record):
    """The tests to run, in the order of the catalogue, and why; what is left out, and why."""

    checks: tuple[str, ...]
    fabric: bool  # gate C: tests with partners
    reasons: Mapping[str, str]
    left_out: Mapping[str, str]
    seconds: float
    causes: tuple[Cause, ...] = ()
    optional: tuple[str, ...] = ()  # of `checks`: chosen for what is likely, not for a change
    keeps: tuple[Gate, ...] = ()  # gates whose earlier proof still holds beside these tests
    blocker: Blocker | None = None  # the budget does not allow what must be

    @property
    def demanded(self) -> tuple[str, ...]:
        """Checks without whose results there is no certificate."""
        return tuple(name for name in self.checks if name not in self.optional)


def change_since(
    last: Certificate | None, inventory: Inventory, *, turnover: bool, suspect: bool
) -> Change:
    """What differs between the last certificate and what is installed now.

    `turnover`: it served another tenant since. `suspect`: it failed since, and nobody knows what
    the remedies changed.
    """
    if last is None:
        return Change(causes=(Cause.NEW,))
    causes = [Cause.UNKNOWN] if suspect else []
    fresh = set(serials(inventory)) - set(last.serials)
    devices = sorted(entry.partition("=")[0] for entry in fresh)
    if devices:
        causes.append(Cause.REPAIRED)
    had = dict(last.versions)
    components = sorted(
        name for name, version in versions(inventory) if had.get(name, "") != version
    )
    if components:
        causes.append(Cause.UPDATED)
    if turnover:
        causes.append(Cause.TURNOVER)
    return Change(
        causes=tuple(causes) or (Cause.PERIODIC,),
        devices=tuple(devices),
        components=tuple(components),
    )


def select(
    change: Change,
    catalogue: Sequence[Check],
    policy: SelectionPolicy,
    standing: Standing | None = None,
) -> Selection:
    """The tests for a host after a change. Nothing that must be is ever dropped for time."""
    # gate C is chosen as a whole: its tests run among several nodes
    asked = [
        c
        for c in catalogue
        if c.kind is NodeKind.HOST and not c.on_request and c.gate is not Gate.C
    ]
    reasons: dict[str, str] = {}
    left_out: dict[str, str] = {}
    optional: list[Check] = []
    standing = standing or Standing()
    unmet = {Gate.A}  # gates whose earlier proof says nothing of what is there now
    for check in asked:
        why, needed = _why(check, change, standing)
        if needed and check.gate not in policy.gates:
            unmet.add(check.gate)
        if check.gate not in policy.gates:
            left_out[check.name] = f"the site does not demand gate {check.gate.value.upper()}"
        elif needed:
            reasons[check.name] = why
        elif _only_periodic(change) and check.load and check.gate is Gate.B:
            optional.append(check)
        else:
            left_out[check.name] = why
    fabric_why, fabric = _fabric(change, policy, standing)
    if fabric:
        unmet.add(Gate.C)
    if Gate.C not in policy.gates:
        fabric, fabric_why = False, "the site does not demand gate C"
    (reasons if fabric else left_out)["fabric"] = fabric_why
    spent = _seconds(reasons, asked, fabric=fabric)
    if optional:
        _add_likely(optional, policy, standing, spent, reasons, left_out)
        spent = _seconds(reasons, asked, fabric=fabric)
    return Selection(
        checks=tuple(c.name for c in asked if c.name in reasons),
        fabric=fabric,
        reasons=reasons,
        left_out=left_out,
        seconds=spent,
        causes=change.causes,
        optional=tuple(c.name for c in optional if c.name in reasons),
        keeps=tuple(g for g in Gate if g not in unmet),
        blocker=_over(spent, policy),
    )


def domains_of(change: Change) -> frozenset[Domain]:
    """What a change concerns."""
    if {Cause.NEW, Cause.UNKNOWN, Cause.TURNOVER} & set(change.causes):
        return EVERYTHING
    found: set[Domain] = set()
    for device in change.devices:
        found |= of_device(device.partition("/")[0])
    for component in change.components:
        found |= of_component(component.partition("/")[0])
    return frozenset(found)


def _why(check: Check, change: Change, standing: Standing) -> tuple[str, bool]:
    """(reason, whether it must run)."""
    if check.gate is Gate.A:
        return "gate A takes seconds and always runs", True
    if standing.never(check.gate):
        return f"gate {check.gate.value.upper()} was never proved of it", True
    covered = TESTS[check.name].domains if check.name in TESTS else EVERYTHING
    hit = covered & domains_of(change)
    causes = set(change.causes)
    if not hit:
        return "it covers nothing that changed", False
    words = ", ".join(sorted(hit))
    if check.gate is Gate.D:
        fresh = {Cause.NEW, Cause.UNKNOWN} & causes or (
            Cause.REPAIRED in causes and covered & _of_devices(change)
        )
        if not fresh:
            return "the long burn is for nodes and parts that are new here", False
        return f"{'repaired' if Cause.REPAIRED in causes else 'new'}: {words}", True
    return f"{', '.join(change.causes)}: {words}", True


def _of_devices(change: Change) -> frozenset[Domain]:
    found: set[Domain] = set()
    for device in change.devices:
        found |= of_device(device.partition("/")[0])
    return frozenset(found)


def _fabric(change: Change, policy: SelectionPolicy, standing: Standing) -> tuple[str, bool]:
    hit = {Domain.NIC, Domain.FABRIC} & domains_of(change)
    days = (standing.proved_days or {}).get(Gate.C, 0.0)
    if not hit and standing.never(Gate.C):
        return "gate C was never proved of it", True
    if not hit and policy.fabric_days_max is not None and days > policy.fabric_days_max:
        return f"periodic: gate C was proved {days:.0f} days ago", True
    if not hit:
        return "nothing changed that shows between nodes", False
    return f"{', '.join(change.causes)}: {', '.join(sorted(hit))}", True


def _only_periodic(change: Change) -> bool:
    return set(change.causes) == {Cause.PERIODIC}


def incident_probability(standing: Standing, horizon_days: float = 30.0) -> float:
    """Chance that a node has a fault now or within the horizon.

    A Laplace-smoothed hazard: half an incident in 90 days is assumed of a node without history (a
    proposal; Anubis trains a survival model instead).
    """
    hazard = (standing.incidents + 0.5) / (standing.healthy_days + 90.0)
    return 1 - exp(-hazard * horizon_days)


def _add_likely(
    optional: Sequence[Check],
    policy: SelectionPolicy,
    standing: Standing,
    spent: float,
    reasons: dict[str, str],
    left_out: dict[str, str],
) -> None:
    """Greedy, as Anubis' selector: the most found faults for the time, until the rest is small."""
    weight = {c.name: standing.found.get(c.name, 0) + 1 for c in optional}
    total = sum(weight.values())
    risk = left = incident_probability(standing)
    order = sorted(optional, key=lambda c: (-weight[c.name] / _cost(c), c.name))
    for check in order:
        if left <= policy.residual_max:
            left_out[check.name] = f"the chance of an unseen fault is {left:.1%} without it"
        elif policy.budget_s is not None and spent + _cost(check) > policy.budget_s:
            left_out[check.name] = "it does not fit into the time"
        else:
            reasons[check.name] = f"periodic: the chance of a fault is {risk:.1%}"
            spent += _cost(check)
            left -= risk * weight[check.name] / total


def _cost(check: Check) -> float:
    typical = TESTS[check.name].seconds if check.name in TESTS else check.commands[0].limit_s
    return typical + AFTER_LOAD_S


def _seconds(reasons: Mapping[str, str], asked: Sequence[Check], *, fabric: bool) -> float:
    loads = sum(_cost(c) for c in asked if c.load and c.name in reasons)
    return GATE_A_S + loads + (FABRIC_S if fabric else 0.0)


def _over(seconds: float, policy: SelectionPolicy) -> Blocker | None:
    if policy.budget_s is None or seconds <= policy.budget_s:
        return None
    return Blocker(
        reason=Reason.TIME_LIMIT,
        subject="tests",
        detail=f"what must be tested takes {seconds:.0f} s, and {policy.budget_s:.0f} s are given",
        unblock="Give more time: none of these tests may be left out.",
    )
