"""Every act that nothing undoes, as one table, and the one gate that each of them passes. Pure.

`TABLE` has a row for each act: what allows it, by which second look that is confirmed, how many at
once, and who is told. `judge_destruction` decides from the table and from rows that were read
immediately before the act; `execution/actions/once.py` asks it at the edge. A row that is wrong is
corrected here, and nowhere else: no caller has a rule of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from provisioner.model.case import Case, Origin, Service, Stage
from provisioner.model.cohort import Severity
from provisioner.model.node import Boots, Node, NodeKind, Placement, State, TenantData
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.certification.regression import STRANGER
from provisioner.planning.release.entitlement import MARK

HOUR_S = 3600.0
NAMES_MAX = 8  # of nodes, in one sentence


class Destruction(StrEnum):
    """An act whose effect no later act takes back."""

    DISKS = "erasure of disks"
    TPM = "clearing of the TPM"
    BOOT_ENTRIES = "removal of boot entries"
    BIOS_DEFAULTS = "BIOS to factory defaults"
    SECURE_BOOT_KEYS = "Secure Boot keys to factory defaults"
    BMC_DEFAULTS = "BMC to factory defaults"
    CARD_STORAGE = "wipe of a card's eMMC and NVMe"
    CARD_SYSTEM = "installation of a card's system (BFB)"
    FIRMWARE = "writing of firmware"
    IMAGE = "writing of an operating system to a disk"
    SWITCH_IMAGE = "installation of a switch's operating system"
    LOGIN = "change of the only password"
    FACTORY_LOGIN = "factory password given back"
    FORGOTTEN_LOGIN = "deletion of a stored login"
    HOST_LOGIN = "removal of the login on a host"
    RETIREMENT = "decommission of a node"


class Need(StrEnum):
    """A condition of an act, judged by rows read immediately before it."""

    FENCED = "fenced"
    UNASKED = "unasked"
    GROUND = "ground"
    FEW = "few"
    NOBODYS = "nobodys"
    BOOTED = "booted"
    SWITCH = "switch"
    STORED = "stored"
    ORDERED = "ordered"
    CLEAN = "clean"
    LEAVING = "leaving"


MEANINGS: Mapping[Need, str] = {
    Need.FENCED: "a host's ports were proved to be in maintenance, by reading them back",
    Need.UNASKED: "no question about a tenant's data is open, and nobody decided to keep it",
    Need.GROUND: "somebody gave the data up, or a second look confirms why the node was taken",
    Need.FEW: "no more nodes at once than the limits say",
    Need.NOBODYS: "the node holds nobody's data",
    Need.BOOTED: "the host was booted into the maintenance image, away from its own system",
    Need.SWITCH: "it is a switch that is not in service",
    Need.STORED: "the password that follows is stored beside the one in force",
    Need.ORDERED: "a person ordered the node's retirement",
    Need.CLEAN: "it is erased, or its disks are destroyed by a person's word, or it was never ours",
    Need.LEAVING: "the node is on its way to the tenant that the release is for",
}


class Limits:
    """The most nodes at once whose erasure no person asked for; more of them ask a person."""

    QUESTIONS = 1  # nodes of a leaf that a reading took back; more stop the erasures of that leaf
    LEAF = 2  # nodes cut off within an hour
    RACK = 2
    TENANT = 4
    SITE = 8


@dataclass(frozen=True)
class Row:
    """One act of the table; the texts are for the page and for the reader of a refusal."""

    needs: tuple[Need, ...]
    allowed_by: str  # the observation that allows it
    confirmed_by: str  # the second look, by another way
    at_once: str  # how many at most, and what holds the limit
    told: str  # who learns of it, and how
    undone: str = "by nothing"


_STOP = (
    f"{Limits.LEAF} nodes of a leaf, {Limits.RACK} of a rack, {Limits.TENANT} of a tenant and "
    f"{Limits.SITE} of the site that were cut off within an hour; none of a leaf that took back "
    f"more than {Limits.QUESTIONS} node on a reading; what a person or the tenant gave up: as "
    "many as the request names"
)
_IN_ERASURE = "those of the erasure that it is a part of"
_STAY = (
    "the ports are read back at every leaf, and the agent that answers has the certificate of "
    "this boot, on the host whose serial its BMC shows"
)
_ERASURE_TOLD = "`sanitized` or `not_sanitized` with the report; the tenant by the node's case"
_ERASURE_NEEDS = (Need.FENCED, Need.UNASKED, Need.BOOTED)
_GIVEN_UP = "the tenant or a person gave the node up, or its tenant's notice has run out"
_PART = "the erasure of its disks, in the same stay"

TABLE: Mapping[Destruction, Row] = {
    Destruction.DISKS: Row(
        (Need.FENCED, Need.UNASKED, Need.GROUND, Need.FEW, Need.BOOTED),
        f"{_GIVEN_UP}; or it was cut off, and evidence from the host or its checks shows a fault",
        f"{_STAY}; the BMC's list of drives and the agent's agree on what there is",
        _STOP,
        f"{_ERASURE_TOLD}; a refusal as `waits` or `state` with its reason",
    ),
    Destruction.TPM: Row(_ERASURE_NEEDS, _PART, _STAY, _IN_ERASURE, _ERASURE_TOLD),
    Destruction.BOOT_ENTRIES: Row(_ERASURE_NEEDS, _PART, _STAY, _IN_ERASURE, _ERASURE_TOLD),
    Destruction.BIOS_DEFAULTS: Row(
        _ERASURE_NEEDS,
        f"{_PART}, where `erase_required` has `bios`",
        f"{_STAY}; settings are read before and after",
        _IN_ERASURE,
        _ERASURE_TOLD,
    ),
    Destruction.SECURE_BOOT_KEYS: Row(
        _ERASURE_NEEDS,
        f"{_PART}, where `erase_required` has `secure_boot`, and keys differ",
        f"{_STAY}; the keys are read before and after",
        _IN_ERASURE,
        _ERASURE_TOLD,
    ),
    Destruction.BMC_DEFAULTS: Row(
        _ERASURE_NEEDS,
        f"{_PART}, where `erase_bmc_defaults` is on",
        "its stored serial, by which it is found again; a login that is known for afterwards",
        f"one BMC of a node after the other; {_IN_ERASURE}",
        f"{_ERASURE_TOLD}; `credential_replaced`",
    ),
    Destruction.CARD_STORAGE: Row(
        _ERASURE_NEEDS,
        f"{_PART}, where `erase_card_storage` is on",
        "its bundle is planned next; what waits is read again; its boot is watched",
        _IN_ERASURE,
        _ERASURE_TOLD,
    ),
    Destruction.CARD_SYSTEM: Row(
        (Need.FENCED, Need.UNASKED),
        "the matrix pins another bundle, or a remedy of a repair case writes it once more",
        "the running version is read again; the file is the verified one when its address is sent",
        "the waves of its campaign; remedies per hour (`repair_remedies_per_hour`)",
        "`step_ended`; the campaign, or the case",
        "by installing the bundle from before; not what the card stored",
    ),
    Destruction.FIRMWARE: Row(
        (Need.FENCED,),
        "the matrix pins another version, or a remedy of a repair case writes it once more",
        "the running version is read again; the file is the verified one when its address is sent",
        "the waves of its campaign; remedies per hour (`repair_remedies_per_hour`)",
        "`step_ended`; the campaign, or the case",
        "by writing the version from before, unless its security version forbids it",
    ),
    Destruction.IMAGE: Row(
        (Need.FENCED, Need.UNASKED, Need.NOBODYS, Need.BOOTED),
        "the release pins an image, and no tenant's data is left on the node",
        f"{_STAY}; two looks at the disks agree",
        "one disk of a node; the waves of its campaign",
        "`step_ended`",
    ),
    Destruction.SWITCH_IMAGE: Row(
        (Need.SWITCH,),
        "the matrix pins another version of a switch that left its service",
        "the list of its images is read again; the running one is never written over",
        "the share of switches that may be down (`switches_down_percent`), one of a pair of rails",
        "`step_ended`; the campaign",
        "by the image from before, in the other partition",
    ),
    Destruction.LOGIN: Row(
        (Need.STORED,),
        "an intake, the end of a tenancy, its age, or a person",
        "the device accepts the new one before the old one is forgotten",
        "one change of a login at a time; an attempt that failed waits longer each time",
        "`credential_replaced`; a failure in the row of the login, and its alert",
        "by another change, with the stored password",
    ),
    Destruction.FACTORY_LOGIN: Row(
        (Need.ORDERED, Need.CLEAN, Need.STORED),
        "a person retires the node, and `retire_credentials` is `factory`",
        "the BMC answers to the login that is given up; the factory's is stored beside it",
        "one BMC of a node after the other",
        "`retired`",
        "by a person who knows the factory's password",
    ),
    Destruction.FORGOTTEN_LOGIN: Row(
        (Need.ORDERED, Need.CLEAN),
        "a person retires the node",
        "its erasure report, or a person's word about the disks",
        "the logins of one node",
        "`retired`",
    ),
    Destruction.HOST_LOGIN: Row(
        (Need.LEAVING,),
        "its release, where `handover_login` is `remove`",
        "the host presents its pinned key; the login is tried afterwards, and is refused",
        "one host of a release",
        "the proof of the release",
        "by another system on its disk, when it is taken back",
    ),
    Destruction.RETIREMENT: Row(
        (Need.ORDERED, Need.CLEAN),
        "a person retires the node",
        "its erasure report, or a person's word about the disks",
        "the node of the case",
        "`retired`; the case; the tenant by its notice",
    ),
}


class Ground(StrEnum):
    """Why a tenant's data may be destroyed."""

    NOBODYS = "nobody's data is on it"
    DECIDED = "a person decided so"
    GIVEN_UP = "its tenant does not have it any more"
    REQUESTED = "the tenant or a person asked for it"
    NOTICE = "the tenant's notice has run out"
    CONFIRMED = "a second look found the fault"


# sources of faults that are no second reading of the alert that cut the node off: an alert, and
# the event log that it came from
_CONFIRMING = frozenset({"xid", "isolation", "inventory", "report"})
# findings of checks about settings are usual in a tenant's own system, and so is what it lacks
_NO_FAULT = frozenset({None, Severity.CONFIG, Severity.MONITOR})
_PEOPLE = frozenset({Origin.TENANT, Origin.OPERATOR, Origin.MAINTENANCE})


@dataclass(frozen=True)
class Facts:
    """What was read immediately before the act. Only what its row needs has to be given."""

    node: Node | None  # its stored row; None: it has none
    case: Case | None = None  # its open case
    nodes: Sequence[Node] = ()  # of the site
    cases: Sequence[Case] = ()  # that are open
    keeps: bool = False  # the site returns nodes to their tenants unerased
    stored: bool = False  # the password that follows is in the vault


def judge_destruction(
    act: Destruction, subject: str, facts: Facts, later: Collection[Need] = ()
) -> Blocker | None:
    """Return why the act must not be carried out now; None: it may.

    `subject`: the node or the part. A need that cannot be judged from the facts is not met.
    `later`: needs that are judged when the gate is asked again.
    """
    for need in TABLE[act].needs:
        if need in later:
            continue
        refused = _JUDGES[need](act, subject, facts)
        if refused is not None:
            return refused
    return None


def find_ground(node: Node, case: Case | None, *, keeps: bool) -> Ground | None:
    """Return why the data on a node may be destroyed; None: one observation alone says so."""
    owners = {name for name in node.served.split(", ") if name}
    tenants = {name for name in owners if name != STRANGER and not name.startswith(MARK)}
    if node.tenant_data is TenantData.ERASE:
        return Ground.DECIDED
    if case is not None and case.retire_at:
        return Ground.DECIDED
    returns = keeps and node.tenant in tenants and node.boots is Boots.SYSTEM
    if returns and node.served != node.tenant:
        return None  # it would return as it is, but for a reading of its ports or drives
    if not tenants:
        return Ground.NOBODYS
    if node.tenant not in tenants:
        return Ground.GIVEN_UP
    if case is None or not case.drain_at or case.origin in _PEOPLE:
        return Ground.REQUESTED  # no case of the site's own took it from its tenant
    if case.service is not Service.CUT_OFF:
        return Ground.NOTICE
    return Ground.CONFIRMED if is_confirmed(case) else None


def is_confirmed(case: Case) -> bool:
    """Return whether another look than the alert's found a fault, or people worked on the node.

    A check that names no broken part, or whose output cannot be judged, is no such look.
    """
    seen = any(f.source in _CONFIRMING or f.severity not in _NO_FAULT for f in case.faults)
    return seen or any(entered.stage is Stage.HARDWARE for entered in case.stages)


def ask_about_data(node: Node) -> Blocker:
    """Return the question that a person answers before a node is erased.

    One reading may be wrong, and an erasure cannot be undone.
    """
    return Blocker(
        reason=Reason.TRESPASS,
        subject=node.id,
        detail=f"the data of {node.served} is still on it, and only one observation says that it "
        "has to be erased: nothing is erased on a reading alone",
        unblock="Find out what was observed. If its tenant agrees, it goes back as it is: "
        f"`provisioner node retry {node.id} --tenant-data keep`; else "
        f"`provisioner node retry {node.id} --tenant-data erase`.",
    )


# ------------------------------------------------------------------------------
# Several nodes at once are one cause: a leaf, a feed, a monitoring that errs.


def list_leaves(node: Node) -> frozenset[str]:
    return frozenset(port.switch for port in node.ports)


def find_questions(node: Node, nodes: Iterable[Node]) -> tuple[str, ...]:
    """Return the other nodes of its leaves whose data a person has to decide about, sorted."""
    leaves = list_leaves(node)
    asked = [n for n in nodes if n.tenant_data is TenantData.ASKED and n.id != node.id]
    return tuple(sorted(n.id for n in asked if leaves & list_leaves(n)))


def find_crowd(node: Node, case: Case, nodes: Iterable[Node], cases: Iterable[Case]) -> str:
    """Return which limit the nodes exceed that were cut off around the same time; "": none."""
    near = {
        other.node
        for other in cases
        if _is_cut_off(other) and abs(other.opened_at - case.opened_at) <= HOUR_S
    } - {node.id}
    crowd = [n for n in nodes if n.id in near]
    leaves = list_leaves(node)
    rack = node.location.rack
    tenant = node.tenant
    groups: tuple[tuple[str, int, list[Node]], ...] = (
        ("leaf", Limits.LEAF, _most_at_one_leaf(leaves, crowd)),
        (f"rack {rack}", Limits.RACK, [n for n in crowd if rack and n.location.rack == rack]),
        (f"tenant {tenant}", Limits.TENANT, [n for n in crowd if n.tenant == tenant]),
        ("site", Limits.SITE, crowd),
    )
    for name, most, found in groups:
        if len(found) + 1 > most:
            others = ", ".join(sorted(n.id for n in found)[:NAMES_MAX])
            return (
                f"{len(found) + 1} nodes of one {name} were cut off within an hour, with {others}"
            )
    return ""


def _most_at_one_leaf(leaves: Collection[str], crowd: Sequence[Node]) -> list[Node]:
    at = [[n for n in crowd if leaf in list_leaves(n)] for leaf in sorted(leaves)]
    return max(at, key=len, default=[])


def _is_cut_off(case: Case) -> bool:
    taken = case.service is Service.CUT_OFF and case.drain_at > 0
    return taken and case.origin not in _PEOPLE


# ------------------------------------------------------------------------------
# The judge of each need.


def _fenced(act: Destruction, subject: str, facts: Facts) -> Blocker | None:
    node = facts.node
    if node is not None and node.kind is NodeKind.SWITCH and act is Destruction.FIRMWARE:
        return None  # a switch has no ports in a tenant's network
    if node is not None and node.placement is Placement.MAINTENANCE and node.fenced_at > 0:
        return None
    detail = f"no {act}: its ports are not proved to be in maintenance"
    return _no(Reason.PRECONDITION, subject, detail, "It is fenced first, by itself.")


def _unasked(act: Destruction, subject: str, facts: Facts) -> Blocker | None:
    node = facts.node
    if node is not None and node.tenant_data is TenantData.ASKED:
        return ask_about_data(node)
    if node is not None and node.tenant_data is not TenantData.KEEP:
        return None
    served = node.served if node is not None else "its tenant"
    detail = f"no {act}: a person decided that the data of {served} is kept"
    unblock = f"Decide again: `provisioner node retry {subject} --tenant-data erase`."
    return _no(Reason.NOT_SANITIZED, subject, detail, unblock)


def _ground(_act: Destruction, _subject: str, facts: Facts) -> Blocker | None:
    node = facts.node
    assert node is not None, "it was judged to be fenced"
    ground = find_ground(node, facts.case, keeps=facts.keeps)
    return ask_about_data(node) if ground is None else None


def _few(act: Destruction, subject: str, facts: Facts) -> Blocker | None:
    node = facts.node
    case = facts.case
    assert node is not None, "it was judged to be fenced"
    ground = find_ground(node, case, keeps=facts.keeps)
    if ground is Ground.DECIDED:
        return None  # a person's word about this very node
    questions = find_questions(node, facts.nodes)
    if len(questions) > Limits.QUESTIONS:
        names = ", ".join(questions[:NAMES_MAX])
        detail = f"no {act}: {len(questions)} nodes of its leaf were taken back on a reading"
        unblock = f"Look at the leaf; then decide about {names} (`node retry --tenant-data`)."
        return _no(Reason.NOT_CONFIRMED, subject, detail, unblock)
    if ground is Ground.CONFIRMED:
        assert case is not None, "nothing else confirms it"
        if crowd := find_crowd(node, case, facts.nodes, facts.cases):
            unblock = "Find their common cause; it goes on when their cases are closed. Or retire "
            unblock += "the node, or take it back by request."
            return _no(Reason.NOT_CONFIRMED, subject, f"no {act}: {crowd}", unblock)
    return None


def _nobodys(act: Destruction, subject: str, facts: Facts) -> Blocker | None:
    node = facts.node
    if node is not None and not node.served:
        return None
    served = node.served if node is not None else "a tenant"
    detail = f"no {act}: it may hold data of {served}"
    return _no(Reason.NOT_SANITIZED, subject, detail, "It is erased first, by itself.")


def _booted(act: Destruction, subject: str, facts: Facts) -> Blocker | None:
    node = facts.node
    if node is not None and node.boots in (Boots.RAMDISK, Boots.NOTHING):
        return None
    detail = f"no {act}: its own system may run"
    return _no(Reason.PRECONDITION, subject, detail, "The maintenance image is booted first.")


def _switch(act: Destruction, subject: str, facts: Facts) -> Blocker | None:
    node = facts.node
    out = node is not None and node.state not in (State.RELEASED, State.RETIRED)
    if node is not None and node.kind is NodeKind.SWITCH and out:
        return None
    detail = f"no {act}: it is not a switch out of service"
    return _no(Reason.PRECONDITION, subject, detail, "It is planned again by itself.")


def _stored(act: Destruction, subject: str, facts: Facts) -> Blocker | None:
    if facts.stored:
        return None
    detail = f"no {act}: the password that would be in force is not stored"
    return _no(Reason.PRECONDITION, subject, detail, "It is tried again by itself.")


def _ordered(act: Destruction, subject: str, facts: Facts) -> Blocker | None:
    case = facts.case
    if case is not None and case.stage is Stage.RETIRING and case.retire_at > 0:
        return None
    detail = f"no {act}: nobody ordered its retirement"
    return _no(Reason.NOT_CONFIRMED, subject, detail, "`provisioner case retire` orders it.")


def _clean(act: Destruction, subject: str, facts: Facts) -> Blocker | None:
    node = facts.node
    case = facts.case
    gone = case is not None and bool(case.disks_gone)
    if node is not None and (not node.served or gone or node.placement is Placement.NONE):
        return None
    served = node.served if node is not None else "a tenant"
    detail = f"no {act}: the data of {served} may still be on it"
    unblock = "It is erased first; or confirm that its disks are destroyed."
    return _no(Reason.NOT_SANITIZED, subject, detail, unblock)


def _leaving(act: Destruction, subject: str, facts: Facts) -> Blocker | None:
    node = facts.node
    if node is not None and node.tenant and node.served == node.tenant:
        moving = (node.placement, node.state)
        if moving == (Placement.MIXED, State.CERTIFIED):
            return None
    detail = f"no {act}: it is not on its way to a tenant"
    return _no(Reason.PRECONDITION, subject, detail, "It is decided anew by itself.")


_JUDGES: Mapping[Need, Callable[[Destruction, str, Facts], Blocker | None]] = {
    Need.FENCED: _fenced,
    Need.UNASKED: _unasked,
    Need.GROUND: _ground,
    Need.FEW: _few,
    Need.NOBODYS: _nobodys,
    Need.BOOTED: _booted,
    Need.SWITCH: _switch,
    Need.STORED: _stored,
    Need.ORDERED: _ordered,
    Need.CLEAN: _clean,
    Need.LEAVING: _leaving,
}


def _no(reason: Reason, subject: str, detail: str, unblock: str) -> Blocker:
    return Blocker(reason=reason, subject=subject, detail=detail, unblock=unblock)
