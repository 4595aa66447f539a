"""Decide the next turn of a node, by one pure function of the current observation.

The table of states is in `journey.py`. `control/node/reconciler.py` observes the node, calls
`decide`, carries out the result and records it; it takes no decisions itself.
"""

from __future__ import annotations

from pydantic import Field

from provisioner.model.base import Record
from provisioner.model.certificate import Certificate
from provisioner.model.cohort import HealthReport
from provisioner.model.fabric_session import FabricOutcome
from provisioner.model.inventory import Inventory
from provisioner.model.node import Node, NodeKind, Placement, State, TenantData
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.plan import Plan, Step
from provisioner.model.tenant import PortPlacement
from provisioner.planning.certification.check_selection import Selection
from provisioner.planning.erasure.erasure import describe_strange_drives
from provisioner.planning.fault_location.fabric_session import has_fabric_results
from provisioner.planning.lifecycle.destruction import ask_about_data
from provisioner.planning.lifecycle.journey import may_enter
from provisioner.planning.release import entitlement

# Causes that pass by themselves: the same turn is tried again until the state's limit.
PASSING: frozenset[Reason] = frozenset(
    {
        Reason.UNREACHABLE,
        Reason.ACCOUNT_LOCKED,
        Reason.BUSY,
        Reason.SWITCH_REFUSED,
        Reason.PRECONDITION,
        Reason.MALFORMED,
    }
)
# passing causes in the daemon or in a decision of people, not in the node
OURS = frozenset({Reason.OVERLOADED, Reason.NOT_GRANTED, Reason.NOT_CONFIRMED})
# After this many failures in a row, a passing cause counts as a lasting one.
PASSING_FAILURES_MAX = 12


IN_FLIGHT_POLLS = 4


class View(Record):
    """The observations of one turn. Each turn observes anew; nothing is kept from the last one."""

    inventory: Inventory | None = None
    unseen: tuple[Blocker, ...] = ()  # why there is no (complete) inventory
    identified: bool = False  # credentials taken over, DPUs paired, profile chosen
    placement: Placement | None = None  # None: not read in this turn
    vrf: str = ""
    unrecorded: bool = False  # its row has another placement
    violations: tuple[PortPlacement, ...] = ()  # ports in a customer's VRF without a handover
    foreign: tuple[Blocker, ...] = ()  # why the ports of an unknown node may not be moved
    plan: Plan | None = None
    selection: Selection | None = None  # checks that the changes since the last ones require
    report: HealthReport | None = None  # only if it judged exactly this inventory and this boot
    report_blockers: tuple[Blocker, ...] = ()  # reasons against a certificate
    fabric: FabricOutcome | None = None  # result of tests among nodes after that report
    fabric_wait: str = ""  # reason to wait for such a test; the node was then not observed
    fabric_late: tuple[Blocker, ...] = ()  # the wait is too long
    in_session: bool = False  # a test with other nodes is under way
    certificate: Certificate | None = None
    certificate_blockers: tuple[Blocker, ...] = ()  # why the certificate is no longer valid
    neighbours_busy: tuple[str, ...] = ()  # switches of this node's ports that are being upgraded
    owed: tuple[Blocker, ...] = ()  # why it must be erased before anything else
    strange_drives: tuple[str, ...] = ()  # drives neither delivered with the node nor erased
    repair: str | None = None  # of its repair case: "" is due now, else the reason to wait
    tenant_vrf: str = ""  # VRF of the tenant that the node is allocated to


class Enter(Record):
    """Enter another state.

    `owes_erasure`: a drive was exchanged and may hold data of another owner.
    """

    state: State
    why: str
    blockers: tuple[Blocker, ...] = ()
    owes_erasure: bool = False
    expired: bool = False  # only the certificate's time has run out: it is not revoked


class Identify(Record):
    """Take over the credentials, pair the DPUs and choose the profile."""


class Fence(Record):
    """Move every port into the maintenance VRF, proved by read-back.

    `violations` are ports in a customer's VRF without a handover.
    """

    violations: tuple[PortPlacement, ...] = ()


class Sanitize(Record):
    """Boot the maintenance image and erase everything that may hold the last tenant's data."""


class Execute(Record):
    """Carry out one step of the plan."""

    step: Step


class Validate(Record):
    """Run the health checks."""


class Prove(Record):
    """Record the result of tests among nodes, and look for errors that these tests left behind."""


class Certify(Record):
    """Issue a certificate and enter `certified`."""


class Release(Record):
    """Move every port into the tenant's VRF, with proof, and enter `released`."""

    vrf: str


class Mend(Record):
    """Carry out one step of the repair case: evidence, diagnosis, a remedy, or the return."""


class Wait(Record):
    """Observe the node again after `after_s` seconds."""

    after_s: float = Field(gt=0)
    why: str


class Rest(Record):
    """Do nothing until something changes: the operation ends."""

    why: str


Turn = (
    Enter
    | Identify
    | Fence
    | Sanitize
    | Execute
    | Validate
    | Prove
    | Certify
    | Release
    | Mend
    | Wait
    | Rest
)


def decide(node: Node, view: View, poll_s: float) -> Turn:
    """Return the next turn of a node for the observations in `view`."""
    if view.unseen:
        return decide_after_failure(node, view.unseen, failures=1, retry_s=poll_s)
    found = () if view.violations else entitlement.unanswered(node)
    if found and may_enter(node, State.QUARANTINED, node.placement):
        # the daemon that fenced its ports ended before it could quarantine it
        return Enter(state=State.QUARANTINED, why=str(found[0]), blockers=found)
    return _DECISIONS[node.state](node, view, poll_s)


def decide_after_failure(
    node: Node, blockers: tuple[Blocker, ...], *, failures: int, retry_s: float
) -> Turn:
    """Return the turn that follows the `failures`-th failed turn in a row.

    Passing causes are retried with doubling pauses. Other causes lead to quarantine, where the
    journey's table allows it. A node that cannot be fenced is not quarantined but keeps its state,
    because a quarantined node is assumed to be isolated.
    """
    assert blockers
    ours = all(b.reason in OURS for b in blockers)
    passing = all(b.reason in PASSING | OURS for b in blockers)
    if ours or (passing and failures <= PASSING_FAILURES_MAX):
        return Wait(after_s=retry_s * 2 ** min(failures - 1, 5), why=str(blockers[0]))
    if may_enter(node, State.QUARANTINED, node.placement):
        return Enter(state=State.QUARANTINED, why=str(blockers[0]), blockers=blockers)
    return Wait(after_s=retry_s * 2**5, why=str(blockers[0]))


def _discovered(node: Node, view: View, _poll_s: float) -> Turn:
    if not view.identified:
        return Identify()
    return Enter(state=State.INTAKE, why="identified")


def _intake(node: Node, view: View, _poll_s: float) -> Turn:
    if view.foreign:  # the ports belong to another system or a customer: the node may serve
        return Enter(state=State.QUARANTINED, why=str(view.foreign[0]), blockers=view.foreign)
    if node.kind is NodeKind.HOST and view.placement is not Placement.MAINTENANCE:
        return Fence(violations=view.violations)
    return Enter(state=State.CONVERGING, why="fenced, parts and place as planned")


def _converging(node: Node, view: View, poll_s: float) -> Turn:
    if node.kind is NodeKind.HOST and view.placement is not Placement.MAINTENANCE:
        return Fence(violations=view.violations)
    if view.owed:
        return _sanitize(node, view)
    assert view.plan is not None
    if view.plan.blockers:
        first = view.plan.blockers[0]
        return Enter(state=State.QUARANTINED, why=str(first), blockers=view.plan.blockers)
    if view.plan.in_flight:
        # a background copy takes 10 to 20 minutes (docs/sources/redfish.md#background-copy): poll
        # less often
        why = f"in flight: {', '.join(view.plan.in_flight[:3])}"
        return Wait(after_s=IN_FLIGHT_POLLS * poll_s, why=why)
    if not view.plan.steps:
        if view.neighbours_busy:
            # here, not in validating: a switch does not go down under a host that is validated
            return Wait(after_s=poll_s, why=f"{view.neighbours_busy[0]} is being upgraded")
        return Enter(state=State.VALIDATING, why="every component runs its pin")
    return Execute(step=view.plan.steps[0])


def _sanitize(node: Node, view: View) -> Turn:
    """Erase what a tenant or a person gave up; ask a person where only a reading says so.

    Whoever fenced it may have died before the row said so. It is fenced once more then, since rows
    of an earlier stay would be taken for those of this one.
    """
    if view.unrecorded and node.kind is NodeKind.HOST:
        return Fence(violations=view.violations)
    if node.tenant_data is TenantData.ASKED:
        asked = ask_about_data(node)
        return Enter(state=State.QUARANTINED, why=str(asked), blockers=(asked,))
    return Sanitize()


def _validating(node: Node, view: View, poll_s: float) -> Turn:
    if view.placement not in (None, Placement.MAINTENANCE) and node.kind is NodeKind.HOST:
        return Fence(violations=view.violations)
    if view.owed:
        return Enter(state=State.CONVERGING, why=str(view.owed[0]))
    if view.strange_drives:
        return _erase_strange_drives(node, view)
    if view.fabric_wait:
        return _waiting_for_partners(view, poll_s)
    assert view.plan is not None
    if not view.plan.done:
        return Enter(state=State.CONVERGING, why="drift: not every component runs its pin")
    if view.report is None and view.neighbours_busy:
        # the switch may be waiting until this host has left `validating`
        return Enter(state=State.CONVERGING, why=f"{view.neighbours_busy[0]} is being upgraded")
    if view.report is None and view.selection is not None and view.selection.blocker is not None:
        blocker = view.selection.blocker
        return Enter(state=State.QUARANTINED, why=str(blocker), blockers=(blocker,))
    if view.report is None:
        return Validate()
    if view.fabric is not None and not has_fabric_results(view.report):
        return Prove()
    accused = view.fabric.blockers if view.fabric is not None else ()
    if blockers := accused or view.report_blockers:  # the culprit before its effects
        return Enter(state=State.QUARANTINED, why=str(blockers[0]), blockers=blockers)
    if view.selection is not None and view.selection.fabric and not has_fabric_results(view.report):
        return Enter(state=State.CONVERGING, why="gate C is demanded since it was validated")
    return Certify()


def _erase_strange_drives(node: Node, view: View) -> Turn:
    """Return the node to converging, where its drives are erased; this ends its certificate."""
    why = str(describe_strange_drives(node.id, view.strange_drives))
    return Enter(state=State.CONVERGING, why=why, owes_erasure=True)


def _waiting_for_partners(view: View, poll_s: float) -> Turn:
    if view.neighbours_busy and not view.in_session:
        # the switch may be waiting until this host has left `validating`
        return Enter(state=State.CONVERGING, why=f"{view.neighbours_busy[0]} is being upgraded")
    if view.fabric_late:
        why = str(view.fabric_late[0])
        return Enter(state=State.QUARANTINED, why=why, blockers=view.fabric_late)
    return Wait(after_s=poll_s, why=view.fabric_wait)


def _certified(node: Node, view: View, poll_s: float) -> Turn:
    if view.placement not in (None, Placement.MAINTENANCE) or view.unrecorded:
        # an interrupted release is undone completely and recorded, then started again; a fence
        # whose answer was lost is carried out once more, or its row would rest as it was
        return Fence(violations=view.violations)
    if node.served and node.served != node.tenant:
        return Enter(state=State.CONVERGING, why=f"it served {node.served}")
    if view.strange_drives:
        return _erase_strange_drives(node, view)
    if view.certificate is None or view.certificate_blockers:
        why = str(view.certificate_blockers[0]) if view.certificate_blockers else "no certificate"
        reasons = {b.reason for b in view.certificate_blockers}
        expired = reasons == {Reason.CERTIFICATE_EXPIRED}
        return Enter(state=State.CONVERGING, why=why, expired=expired)
    if node.kind is NodeKind.SWITCH:
        return Enter(state=State.RELEASED, why="back in service")
    if not view.tenant_vrf:
        return Rest(why="certified, waits for a tenant")
    if view.in_session:  # the test ends within minutes
        return Wait(after_s=poll_s, why="it is tested with others")
    if view.neighbours_busy:
        return Wait(after_s=poll_s, why=f"{view.neighbours_busy[0]} is being upgraded")
    return Release(vrf=view.tenant_vrf)


def _released(node: Node, view: View, _poll_s: float) -> Turn:
    if view.certificate_blockers:
        return Rest(why=f"attention: {view.certificate_blockers[0]}")
    return Rest(why="released")


def _draining(node: Node, view: View, _poll_s: float) -> Turn:
    if node.kind is NodeKind.HOST and view.placement is not Placement.MAINTENANCE:
        return Fence(violations=view.violations)
    if view.repair is not None:  # before the erasure, whose reboot destroys evidence
        return Enter(state=State.REPAIRING, why="fenced; it has a repair case")
    if view.owed:
        return _sanitize(node, view)
    return Enter(state=State.CONVERGING, why="fenced into the maintenance tenant")


def _resting(node: Node, view: View, _poll_s: float) -> Turn:
    why = str(node.blockers[0]) if node.blockers else node.state.value
    return Rest(why=why)


def _repairing(node: Node, view: View, poll_s: float) -> Turn:
    if view.repair is None:
        return _resting(node, view, poll_s)
    lost = view.unrecorded and view.placement is Placement.MAINTENANCE  # a fence's answer was
    if view.violations or lost:
        return Fence(violations=view.violations)
    return Rest(why=view.repair) if view.repair else Mend()


_DECISIONS = {
    State.DISCOVERED: _discovered,
    State.INTAKE: _intake,
    State.CONVERGING: _converging,
    State.VALIDATING: _validating,
    State.CERTIFIED: _certified,
    State.RELEASED: _released,
    State.DRAINING: _draining,
    State.QUARANTINED: _resting,
    State.REPAIRING: _repairing,
    State.RETIRED: _resting,
}
