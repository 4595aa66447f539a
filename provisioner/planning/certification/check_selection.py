"""Selection of the smallest set of tests that covers the changes of a node, with reasons. Pure.

The last certificate states the proofs, the inventory states the present parts and versions; every
difference must be proved again. Gate A takes seconds and always runs. A load test runs if it covers
a change, fabric tests run if the change can appear between nodes, and the long burn of gate D runs
only for a new node or part. Between two tenants everything but the long burn runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from math import exp

from pydantic import Field

from provisioner.checks.check import Check
from provisioner.model.base import Record
from provisioner.model.certificate import Certificate
from provisioner.model.cohort import Gate
from provisioner.model.inventory import Inventory
from provisioner.model.node import NodeKind
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.certification.certification import list_serials, list_versions

# ------------------------------------------------------------------------------
# Coverage and duration of each test, and the domains of each component and device. Pure data.
#
# Checks of gate A are not here: they take seconds and always run. A kind without a row concerns
# every domain, so that a forgotten row costs time and hides no fault.


class Domain(StrEnum):
    """A domain of a node that can wear, be exchanged or be updated by itself."""

    GPU = "gpu"  # compute and HBM
    NVLINK = "nvlink"
    PCIE = "pcie"
    NIC = "nic"
    FABRIC = "fabric"  # faults that appear only between nodes
    CPU = "cpu"
    MEMORY = "memory"
    DISK = "disk"
    POWER = "power"  # supplies, cooling
    SOFTWARE = "software"


EVERYTHING = frozenset(Domain)
_G = Domain.GPU
_V = Domain.NVLINK
_P = Domain.PCIE
_N = Domain.NIC
_F = Domain.FABRIC
_C = Domain.CPU
_M = Domain.MEMORY
_D = Domain.DISK
_W = Domain.POWER
_S = Domain.SOFTWARE


class Coverage(Record):
    """The domains that a test covers. `seconds`: typical wall time on one node, from the
    vendors' and clouds' documents.
    """

    domains: frozenset[Domain]
    seconds: float


def _of(seconds: float, *domains: Domain) -> Coverage:
    return Coverage(domains=frozenset(domains), seconds=seconds)


TESTS: dict[str, Coverage] = {
    "dcgm_diag": _of(630, _G, _P, _S),  # level 2: 2.5 to 10.5 minutes (AWS)
    "nvbandwidth": _of(180, _P, _V, _G),
    "nccl_single": _of(60, _V, _G, _S),
    "gdr_loopback": _of(240, _N, _P),  # 8 times 10 to 30 s
    "hbm": _of(120, _G),
    "gpu_burn": _of(120, _G, _W),
    "dcgm_long": _of(1800, _G, _V, _W),  # level 3: 15 to 30 minutes
    "dcgm_xlong": _of(8100, _G, _V, _W),  # level 4: 1 to 2.25 hours
    "gpu_burn_long": _of(900, _G, _W),  # SuperBench: 900 s
    "nccl_collectives": _of(180, _V, _G),
    "storage_load": _of(360, _D),  # fio: 6 minutes, drives side by side
    "cpu_stress": _of(120, _C, _M, _W),
    "cpu_stream": _of(60, _M),
}
GATE_A_S = 60.0  # all of gate A
AFTER_LOAD_S = 15.0  # checks after each load test, for faults that load causes
FABRIC_S = 600.0  # gate C: about ten minutes with its partners

# Component kinds by prefix; the longest matching prefix counts.
COMPONENTS: dict[str, frozenset[Domain]] = {
    "hgx.": frozenset({_G, _V, _P}),
    "hgx.nvswitch": frozenset({_V}),
    "hgx.retimer": frozenset({_P, _N}),
    "hgx.pcieswitch": frozenset({_P, _N}),
    "hgx.cpu": frozenset({_C, _M}),
    "bluefield.": frozenset({_N, _F}),
    "supernic.": frozenset({_N, _F}),
    "nic.": frozenset({_N, _F}),
    "host.bios": frozenset({_C, _M, _P}),
    "host.bmc": frozenset({_W}),
    "host.psu": frozenset({_W}),
    "host.power": frozenset({_W}),
    "host.cpld": frozenset({_W, _P}),
    "host.driver": frozenset({_G, _V, _S}),
    "host.fabric_manager": frozenset({_V, _S}),
    "host.nccl": frozenset({_V, _F, _S}),
    "host.doca": frozenset({_N, _F}),
    "host.spcx_cc": frozenset({_N, _F}),
    "host.storage_client": frozenset({_D, _S}),
    "host.nvme": frozenset({_D}),
    "drive.": frozenset({_D}),
    "host.raid": frozenset({_D}),
    "host.gpu": frozenset({_G, _V, _P}),
    "host.nvswitch": frozenset({_V}),
    "host.retimer": frozenset({_P, _N}),
    "host.pcieswitch": frozenset({_P, _N}),
    "host.tpm": frozenset({_S}),
    "host.tools": frozenset({_S}),
}

# Kinds of devices as the inventory names them.
DEVICES: dict[str, frozenset[Domain]] = {
    "gpu": frozenset({_G, _V, _P, _W}),
    "nvswitch": frozenset({_V}),
    "nic": frozenset({_N, _F, _P}),
    "dpu": frozenset({_N, _F, _P}),
    "cpu": frozenset({_C, _M}),
    "memory": frozenset({_M, _C}),
    "storage": frozenset({_D}),
    "bmc": frozenset({_W}),
    "psu": frozenset({_W}),
}


def domains_of_component(kind: str) -> frozenset[Domain]:
    """Return the domains that a component kind concerns; all of them if no row matches."""
    fitting = [prefix for prefix in COMPONENTS if kind.startswith(prefix)]
    return COMPONENTS[max(fitting, key=len)] if fitting else EVERYTHING


def domains_of_device(kind: str) -> frozenset[Domain]:
    """Return the domains that a device concerns; all of them if no row matches."""
    return DEVICES.get(kind, EVERYTHING)


class Cause(StrEnum):
    """The reason for testing a node."""

    NEW = "new"  # it has no certificate yet
    REPAIRED = "repaired"  # parts were exchanged
    UPDATED = "updated"  # versions changed
    TURNOVER = "turnover"  # it comes from one tenant and goes to another
    PERIODIC = "periodic"  # no change: its certificate is old
    UNKNOWN = "unknown"  # unknown changes: everything is tested


class Change(Record):
    """The changes since the last certificate."""

    causes: tuple[Cause, ...]
    devices: tuple[str, ...] = ()  # "gpu/GPU_SXM_3": parts that were not certified
    components: tuple[str, ...] = ()  # "hgx.gpu/GPU_SXM_3": versions that were not certified


class SelectionPolicy(Record):
    """The site's requirements. `budget_s` None: no limit on the time."""

    gates: frozenset[Gate] = frozenset({Gate.A, Gate.B})
    budget_s: float | None = None
    # gate C is proved again after so many days; None: only after changes
    fabric_days_max: float | None = None
    residual_max: float = 0.01  # chance of an undetected fault that periodic tests may leave


class FaultRecord(Record):
    """A node's history, from which periodic tests estimate the chance of a fault."""

    incidents: int = 0
    healthy_days: float = 0.0
    # test -> faults that it detected in the fleet
    found: Mapping[str, int] = Field(default_factory=dict)
    # gate -> days since it was proved; a missing gate was never proved. None: no record
    proved_days: Mapping[Gate, float] | None = None

    def was_never_proved(self, gate: Gate) -> bool:
        """Return whether the records show that a gate was never proved."""
        return self.proved_days is not None and gate not in self.proved_days


class Selection(Record):
    """The tests to run, in the order of the catalogue, and those left out, each with its reason."""

    checks: tuple[str, ...]
    fabric: bool  # gate C: tests with partners
    reasons: Mapping[str, str]
    left_out: Mapping[str, str]
    seconds: float
    causes: tuple[Cause, ...] = ()
    optional: tuple[str, ...] = ()  # of `checks`: chosen for a likely fault, not for a change
    keeps: tuple[Gate, ...] = ()  # gates whose earlier proof remains valid beside these tests
    blocker: Blocker | None = None  # the budget is too small for the required tests

    @property
    def demanded(self) -> tuple[str, ...]:
        """Return the checks whose results a certificate requires."""
        return tuple(name for name in self.checks if name not in self.optional)


def change_since(
    last: Certificate | None, inventory: Inventory, *, turnover: bool, suspect: bool
) -> Change:
    """Return the differences between the last certificate and the present inventory.

    `turnover`: it served another tenant since. `suspect`: it failed since, and the effect of the
    remedies is unknown.
    """
    if last is None:
        return Change(causes=(Cause.NEW,))
    causes = [Cause.UNKNOWN] if suspect else []
    fresh = set(list_serials(inventory)) - set(last.serials)
    devices = sorted(entry.partition("=")[0] for entry in fresh)
    if devices:
        causes.append(Cause.REPAIRED)
    had = dict(last.versions)
    components = sorted(
        name for name, version in list_versions(inventory) if had.get(name, "") != version
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


def select_checks(
    change: Change,
    catalogue: Sequence[Check],
    policy: SelectionPolicy,
    standing: FaultRecord | None = None,
) -> Selection:
    """Return the tests for a host after a change. Required tests are never dropped for time."""
    # gate C is chosen as a whole: its tests run among several nodes
    candidates = [
        c
        for c in catalogue
        if c.kind is NodeKind.HOST and not c.on_request and c.gate is not Gate.C
    ]
    reasons: dict[str, str] = {}
    left_out: dict[str, str] = {}
    optional: list[Check] = []
    standing = standing or FaultRecord()
    unmet = {Gate.A}  # gates whose earlier proof does not cover the present state
    for check in candidates:
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
        fabric = False
        fabric_why = "the site does not demand gate C"
    (reasons if fabric else left_out)["fabric"] = fabric_why
    spent = _seconds(reasons, candidates, fabric=fabric)
    if optional:
        _add_likely(optional, policy, standing, spent, reasons, left_out)
        spent = _seconds(reasons, candidates, fabric=fabric)
    return Selection(
        checks=tuple(c.name for c in candidates if c.name in reasons),
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
    if {Cause.NEW, Cause.UNKNOWN, Cause.TURNOVER} & set(change.causes):
        return EVERYTHING
    domains: set[Domain] = set()
    for device in change.devices:
        domains |= domains_of_device(device.partition("/")[0])
    for component in change.components:
        domains |= domains_of_component(component.partition("/")[0])
    return frozenset(domains)


def _why(check: Check, change: Change, standing: FaultRecord) -> tuple[str, bool]:
    """Return (reason, whether it must run)."""
    if check.gate is Gate.A:
        return "gate A takes seconds and always runs", True
    if standing.was_never_proved(check.gate):
        return f"gate {check.gate.value.upper()} was never proved of it", True
    covered = TESTS[check.name].domains if check.name in TESTS else EVERYTHING
    hit = covered & domains_of(change)
    causes = set(change.causes)
    if not hit:
        return "it covers nothing that changed", False
    covered_names = ", ".join(sorted(hit))
    if check.gate is Gate.D:
        fresh = {Cause.NEW, Cause.UNKNOWN} & causes or (
            Cause.REPAIRED in causes and covered & _of_devices(change)
        )
        if not fresh:
            return "the long burn is for nodes and parts that are new here", False
        return f"{'repaired' if Cause.REPAIRED in causes else 'new'}: {covered_names}", True
    return f"{', '.join(change.causes)}: {covered_names}", True


def _of_devices(change: Change) -> frozenset[Domain]:
    domains: set[Domain] = set()
    for device in change.devices:
        domains |= domains_of_device(device.partition("/")[0])
    return frozenset(domains)


def _fabric(change: Change, policy: SelectionPolicy, standing: FaultRecord) -> tuple[str, bool]:
    hit = {Domain.NIC, Domain.FABRIC} & domains_of(change)
    days = (standing.proved_days or {}).get(Gate.C, 0.0)
    if not hit and standing.was_never_proved(Gate.C):
        return "gate C was never proved of it", True
    if not hit and policy.fabric_days_max is not None and days > policy.fabric_days_max:
        return f"periodic: gate C was proved {days:.0f} days ago", True
    if not hit:
        return "nothing changed that shows between nodes", False
    return f"{', '.join(change.causes)}: {', '.join(sorted(hit))}", True


def _only_periodic(change: Change) -> bool:
    return set(change.causes) == {Cause.PERIODIC}


def incident_probability(standing: FaultRecord, horizon_days: float = 30.0) -> float:
    """Return the probability that a node has a fault now or within the horizon.

    A Laplace-smoothed hazard: half an incident in 90 days is assumed for a node without history (a
    proposal; Anubis trains a survival model instead).
    """
    hazard = (standing.incidents + 0.5) / (standing.healthy_days + 90.0)
    return 1 - exp(-hazard * horizon_days)


def _add_likely(
    optional: Sequence[Check],
    policy: SelectionPolicy,
    standing: FaultRecord,
    spent: float,
    reasons: dict[str, str],
    left_out: dict[str, str],
) -> None:
    """Add tests greedily, as Anubis' selector does: by detected faults per second, until the
    remaining risk is small.
    """
    weight = {c.name: standing.found.get(c.name, 0) + 1 for c in optional}
    total = sum(weight.values())
    risk = remaining_risk = incident_probability(standing)
    order = sorted(optional, key=lambda c: (-weight[c.name] / _cost(c), c.name))
    for check in order:
        if remaining_risk <= policy.residual_max:
            left_out[check.name] = (
                f"the chance of an unseen fault is {remaining_risk:.1%} without it"
            )
        elif policy.budget_s is not None and spent + _cost(check) > policy.budget_s:
            left_out[check.name] = "it does not fit into the time"
        else:
            reasons[check.name] = f"periodic: the chance of a fault is {risk:.1%}"
            spent += _cost(check)
            remaining_risk -= risk * weight[check.name] / total


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
        detail=f"the required tests take {seconds:.0f} s, "
        f"and the budget is {policy.budget_s:.0f} s",
        unblock="Raise the budget: none of these tests may be left out.",
    )
