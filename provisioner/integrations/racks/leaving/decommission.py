"""What has to be proved before a rack's unit leaves for good, and what stays to be done by hand.

Pure. A tray leaves once nobody uses it, its GPUs are in no NVLink partition, and the daemon has
retired its node, which erases its disks (docs/repair.md#retirement), or a person answers for them.
A switch leaves an emptied domain: nobody uses a tray of it, each is off and in no partition. A
shelf leaves last: all trays and switches of its rack have left. Unread is not proved.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from provisioner.integrations.racks.identity import Kind
from provisioner.integrations.racks.impact import domain_of
from provisioner.integrations.racks.plan import PlannedRack, PlannedUnit, RackPlan
from provisioner.integrations.racks.update_steps import Nvos

DECOMMISSION = "decommission"  # of the journal's keys
RETIRED = "retired"
LEFT = "left"  # the note of a unit that is decommissioned
NVOS_RESET = "nvos-reset"
OFF = "off"


@dataclass(frozen=True)
class Seen:
    """What one look found. `tenants`, `powers`: of the trays that a unit's leave takes away."""

    tenants: Mapping[str, str | None] = field(default_factory=dict)
    powers: Mapping[str, str] = field(default_factory=dict)  # as read, "" unread
    partitions: Sequence[str] = ()  # what is still in one, or cannot be told
    journals: Sequence[str] = ()  # whose writes are not proved
    nvos: Nvos | None = None  # None: not asked
    staying: Sequence[str] = ()  # units of a shelf's rack that have not left
    moved: Sequence[str] = ()  # why what answers is not proved to be the planned unit


@dataclass(frozen=True)
class Disks:
    """Why a tray's disks hold nothing: its node's state, or a person's word."""

    node: str = ""
    state: str = ""
    word: str = ""


def list_trays(plan: RackPlan, rack: PlannedRack, unit: PlannedUnit) -> Sequence[PlannedUnit]:
    """Return the trays that lose something when a unit leaves."""
    if unit.kind is Kind.COMPUTE_TRAY:
        return (unit,)
    every = [(r, u) for r in plan.racks for u in r.units if u.kind is Kind.COMPUTE_TRAY]
    if unit.kind is Kind.NVLINK_SWITCH:
        domain = domain_of(rack, unit)
        return [u for r, u in every if domain_of(r, u) == domain and (domain or r == rack)]
    return [u for r, u in every if r == rack]


def list_acts(unit: PlannedUnit) -> Sequence[str]:
    """Return what is sent to a unit, in order."""
    match unit.kind:
        case Kind.COMPUTE_TRAY:
            return (OFF,)
        case Kind.NVLINK_SWITCH:
            return (NVOS_RESET, OFF)
        case _:
            return ()


def find_missing(unit: PlannedUnit, seen: Seen, disks: Disks) -> Iterable[str]:
    """Yield what is not proved, each as a sentence."""
    for name, tenant in seen.tenants.items():
        if tenant is None:
            yield f"nobody says whose host {name} is"
        elif tenant:
            yield f"{tenant} uses {name}"
    yield from seen.partitions
    yield from seen.journals
    yield from seen.moved
    for name, power in seen.powers.items():
        if power != "Off":
            yield f"{name} is {power or 'not read'}, and has to be Off"
    yield from (f"{name} of its rack has not left" for name in seen.staying)
    if unit.kind is Kind.COMPUTE_TRAY and disks.state != RETIRED and not disks.word:
        where = f"node {disks.node} is {disks.state}" if disks.node else "no node of it is shown"
        yield f"its disks are not proved to be erased: {where}"
    if unit.kind is Kind.NVLINK_SWITCH and seen.nvos not in (Nvos.OK, Nvos.FACTORY):
        yield f"its NVOS cannot be reset: it is {seen.nvos or 'not asked'}"


def list_by_hand(unit: PlannedUnit) -> Iterable[str]:
    """Yield what no public source lets us do or prove, and a person does."""
    yield "its BMC: restore its factory defaults (Redfish Manager.ResetToDefaults, where it has it)"
    yield "its passwords: take them out of your own stores; the daemon's go with its node's row"
    match unit.kind:
        case Kind.COMPUTE_TRAY:
            yield "the NVLink manager: delete its compute node (NetQ: DELETE /v1/compute-nodes/ID)"
        case Kind.NVLINK_SWITCH:
            yield "the NVLink manager: delete its switch node (NetQ: DELETE /v1/switch-nodes/ID)"
            yield "its certificates and images: whether a reset removes them is not published"
        case _:
            yield "its feeds: cut them; no order to a shelf is published that keeps it off"
    yield "the plan: take it over from --out; then move this journal away, and `rack vouch`"


def take_out(plan: RackPlan, left: Iterable[str]) -> RackPlan | None:
    """Return a plan without these units, None where nothing is left of it. Raises ValueError for
    one that no command would read.
    """
    gone = frozenset(left)
    kept = [
        rack.model_copy(update={"units": units})
        for rack in plan.racks
        if (units := tuple(unit for unit in rack.units if unit.name not in gone))
    ]
    if not kept:
        return None
    left_over = plan.model_copy(update={"racks": tuple(kept)})
    things = left_over.list_things()
    needs = {name: each for name, each in plan.needs.items() if name in things}
    left_over = left_over.model_copy(update={"needs": needs})
    return RackPlan.model_validate(left_over.model_dump(mode="json"))
