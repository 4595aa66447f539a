"""Repair cases: a fault, its suspects, the remedies that were tried, and the times, until the
node's return.

A case states what was observed, tried and measured; consequences are decided in
`planning/repair/case_policy.py`. Times are Unix seconds; 0 is "not yet".
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from pydantic import Field

from provisioner.model.base import Record
from provisioner.model.cohort import Severity
from provisioner.model.inventory import DeviceKind
from provisioner.model.times.instant import Instant, InstantOrNone


class Origin(StrEnum):
    """The source that reported the fault."""

    EVENT = "event"  # an alert of the watch, or of the site's own monitoring
    CHECK = "check"  # a health check, or tests among nodes
    WORK = "work"  # an update, a boot or a look that failed for good
    TENANT = "tenant"
    OPERATOR = "operator"  # an update, a boot or a read that failed permanently
    MAINTENANCE = "maintenance"  # planned work by people: the node has no fault


class Service(StrEnum):
    """How the tenant's use of the node is treated while the case is open."""

    KEEP = "keep"  # it continues to serve; the tenant gets a notice
    DRAIN = "drain"  # it is reclaimed once the notice has run out, or the tenant agrees
    CUT_OFF = "cut_off"  # it is reclaimed at once


class Stage(StrEnum):
    """The stage of a case. A case returns to `diagnosis` after a remedy that did not help."""

    OPENED = "opened"  # reported; the node still serves, or is being fenced
    EVIDENCE = "evidence"  # fenced; evidence that a reset would destroy is collected
    DIAGNOSIS = "diagnosis"  # the evidence is collected; suspect and remedy are chosen
    REMEDY = "remedy"  # a remedy is carried out, or waits for its turn
    MEASURING = "measuring"  # a remedy was carried out; the node is brought up and validated
    HARDWARE = "hardware"  # people work on it: reseat, replace
    RETURNING = "returning"  # back from repair: treated as unknown hardware until it is certified
    RETIRING = "retiring"  # it is removed for good: erased, ports closed, credentials removed
    CLOSED = "closed"


class Ending(StrEnum):
    CURED = "cured"  # by a remedy; certified again
    REPAIRED = "repaired"  # by people; certified again
    NO_FAULT = "no_fault"  # no fault was found, or the fault is over
    REPLACED = "replaced"  # another host is in its place
    RETIRED = "retired"


class RemedyKind(StrEnum):
    """The steps of the escalation order, from the cheapest."""

    RERUN = "rerun"  # judge again: the node is not touched
    GPU_RESET = "gpu_reset"
    COLD_BOOT = "cold_boot"  # host power off, then on
    REFLASH = "reflash"  # the pinned firmware is written once more, then activated
    AC_CYCLE = "ac_cycle"  # standby power is removed too
    RESEAT = "reseat"  # by a person: removed and inserted again, or the cable or module cleaned
    REPLACE = "replace"  # by a person: another part


BY_PEOPLE = frozenset({RemedyKind.RESEAT, RemedyKind.REPLACE})


class PartClass(StrEnum):
    """The class of a suspected part, for the escalation order and for reports."""

    GPU = "gpu"
    GPU_MEMORY = "gpu_memory"
    NVLINK = "nvlink"
    NVSWITCH = "nvswitch"
    BASEBOARD = "baseboard"
    PCIE = "pcie"
    NIC = "nic"
    DPU = "dpu"
    OPTIC = "optic"
    CABLE = "cable"
    LEAF = "leaf"
    MEMORY = "memory"
    CPU = "cpu"
    STORAGE = "storage"
    PSU = "psu"
    FEED = "feed"  # of power: cords, outlets, breakers
    FAN = "fan"
    COOLING = "cooling"
    BMC = "bmc"
    SOFTWARE = "software"
    HOST = "host"  # no narrower class applies


class Suspect(Record):
    """A part that may be the cause. `evidence`: lines that a person can follow to their source."""

    part: str  # "GPU_SXM_5", "DPU_1", "DPU_1/p0", "leaf-03/swp1s0", "host"
    kind: PartClass
    confidence: float = Field(ge=0.0, le=1.0)
    rule: str  # name of the rule in `planning/repair/diagnosis_rules.csv`
    why: str  # one sentence
    evidence: tuple[str, ...] = ()
    serial: str = ""
    part_number: str = ""
    vendor: str = ""


class Fault(Record):
    """One observed fault, as the diagnosis reads it and as faults before and after a remedy are
    compared.

    `source` names the reporter: "alert", "check", "event_log", "xid", "isolation", "inventory",
    "report" (by a person), "work". `severity` is that of a check's finding.
    """

    source: str
    id: str  # name of the alert, check or reason; "xid 79"
    part: str = ""  # in the source's own terms; "" is the node
    detail: str = ""
    at: InstantOrNone = 0.0
    count: int = 1
    severity: Severity | None = None

    @property
    def key(self) -> str:
        """Return the identity by which a fault before a remedy is compared with one after it."""
        return f"{self.source}:{self.id}:{self.part}"


class RemedyOutcome(StrEnum):
    """The result of one attempt at a remedy."""

    UNDER_WAY = "under_way"
    CURED = "cured"  # none of the earlier faults is present after it
    LESS = "less"  # some are gone, some remain
    SAME = "same"
    WORSE = "worse"  # new faults are present too
    NOT_DONE = "not_done"  # it could not be carried out


class RemedyTry(Record):
    """One attempt at one remedy, with the faults before and after it."""

    remedy: RemedyKind
    part: str
    kind: PartClass
    attempt: int  # of this remedy on this part in this case, from 1
    started_at: Instant
    done_at: InstantOrNone = 0.0  # carried out (or not); its effect is not measured yet
    measured_at: InstantOrNone = 0.0
    outcome: RemedyOutcome = RemedyOutcome.UNDER_WAY
    before: tuple[str, ...] = ()  # keys of faults
    after: tuple[str, ...] = ()
    detail: str = ""


class StageTime(Record):
    stage: Stage
    at: Instant


class Ticket(Record):
    """A work order for people, with its identity in the site's own ticket system."""

    id: str = ""  # in the site's system; "": not created there yet
    system: str = ""  # name of the adapter: "webhook", "email", ...
    url: str = ""
    opened_at: InstantOrNone = 0.0
    closed_at: InstantOrNone = 0.0
    rma: str = ""  # the vendor's return number
    bundle: str = ""  # SHA-256 of the signed evidence archive
    led: bool = False  # the identify LED was switched on for it
    led_problem: str = ""  # why the LED is not in the intended state
    work: str = ""  # the work to do, in one sentence
    asked: str = ""  # message for its system; written before it is sent
    asks: int = 0  # messages of this ticket so far
    told: str = ""  # last message that its system accepted; equal to `asked`: none is open
    tries: int = 0  # of the last message
    problem: str = ""  # why the message was not delivered yet


class Spare(Record):
    """The spare part that is to be built in, or was built in."""

    kind: DeviceKind
    part_number: str = ""
    serial: str = ""
    reserved_at: InstantOrNone = 0.0


class PartChange(Record):
    """A slot whose part was exchanged. None: the slot was, or is, empty."""

    kind: DeviceKind
    slot: str
    before: str | None = None  # serial
    after: str | None = None
    model_before: str | None = None
    model_after: str | None = None
    moved_from: str = ""  # the slot that the new serial was in before


class PartsDifference(Record):
    """The differences in parts before and after people worked on a node."""

    changes: tuple[PartChange, ...] = ()
    unknown: tuple[str, ...] = ()  # "kind/slot" without a serial before or after: unproved
    unexpected: tuple[str, ...] = ()  # changed, although the case did not ask for it
    missing: tuple[str, ...] = ()  # asked for, and not changed
    wrong: tuple[str, ...] = ()  # another model or part number than before
    system_changed: bool = False  # the host itself is another one


class TenantNotice(Record):
    """A notice to a tenant about a node. Stored when it arises, delivered separately."""

    id: str
    tenant: str
    node: str
    case: str = ""
    kind: str  # "failure" | "maintenance" | "returned" | "retirement" | "replacement"
    text: str
    at: Instant
    effective_at: InstantOrNone = 0.0  # when the node is reclaimed, at the latest; 0: it is not
    channels: int | None = None  # webhooks that accepted it when it was written; None: not counted
    sent_at: InstantOrNone = 0.0
    accepted_at: InstantOrNone = 0.0  # the tenant agrees to be drained earlier

    @property
    def delivery(self) -> str:
        """Return "sent", "waiting" (no webhook has accepted it yet) or "recorded only"."""
        if self.sent_at:
            return "sent"
        return "recorded only" if self.channels == 0 else "waiting"


class JoinedReport(Record):
    """A report that joined a case which was already open."""

    origin: Origin
    reason: str  # one sentence
    by: str  # a person, a tenant, the source of the alert
    at: Instant


class Case(Record):
    """One fault of one node. `generation` grows by one with every change."""

    id: str  # "n07-0003": node and number
    node: str
    generation: int = 0
    origin: Origin
    reason: str  # the report, in one sentence
    by: str = ""  # who reported it: a person, a tenant, the alert's source
    service: Service
    tenant: str = ""  # the tenant that the node served when the case was opened; it returns to it
    stage: Stage = Stage.OPENED
    stages: tuple[StageTime, ...] = ()
    reports: tuple[JoinedReport, ...] = ()  # that joined it after it was opened, oldest first
    weighed: tuple[str, ...] | None = None  # alerts that chose its service; None: not recorded
    faults: tuple[Fault, ...] = ()  # as last collected
    evidence: Mapping[str, str] = Field(default_factory=dict)  # name -> SHA-256 of the stored text
    gaps: tuple[str, ...] = ()  # evidence that could not be collected, and why
    suspects: tuple[Suspect, ...] = ()  # most likely first
    tries: tuple[RemedyTry, ...] = ()
    next_at: InstantOrNone = 0.0  # no attempt before this time (rate limit, notice)
    note: str = ""  # the condition that it waits for, for people
    parts_before: tuple[tuple[str, str, str, str], ...] = ()  # (kind, slot, serial, model)
    system_before: str = ""  # serial of the host
    profile: str = ""  # of the node when it was opened; "": intake was not complete then
    vendor: str = ""
    difference: PartsDifference | None = None
    ticket: Ticket | None = None
    spare: Spare | None = None
    deeper: bool = False  # a repeat offender: everything is tested before it is certified
    score: float = 0.0  # of its history, when the case was opened
    drain_at: InstantOrNone = 0.0  # when it is reclaimed from its tenant
    work_ends_at: InstantOrNone = 0.0  # of planned maintenance, as people estimate; 0: no estimate
    stand_in: str = ""  # the hot spare that takes the node's place with its tenant
    stood_in_at: InstantOrNone = 0.0  # when the spare was proved in the tenant's network
    retire_at: InstantOrNone = 0.0  # when people have the node removed for good
    disks_gone: str = ""  # who destroyed its disks, and how; "": it is erased before it is retired
    opened_at: Instant
    closed_at: InstantOrNone = 0.0
    ending: Ending | None = None

    @property
    def open(self) -> bool:
        """Return whether the case is not closed."""
        return self.stage is not Stage.CLOSED

    @property
    def suspect(self) -> Suspect | None:
        """Return the most likely cause, or None."""
        return self.suspects[0] if self.suspects else None

    @property
    def trying(self) -> RemedyTry | None:
        """Return the remedy whose effect is not measured yet, or None."""
        last = self.tries[-1] if self.tries else None
        return last if last is not None and last.outcome is RemedyOutcome.UNDER_WAY else None

    def enter_stage(self, stage: Stage, now: float, **changes: object) -> Case:
        """Return this case after it entered `stage`; the store raises the generation."""
        stages = (*self.stages, StageTime(stage=stage, at=now))
        return self.model_copy(update={"stage": stage, "stages": stages, **changes})
